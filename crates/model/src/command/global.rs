//! Commands of the mode of linearizable keys of scope global: owners of slots, handovers, mirrors,
//! failovers.

use super::Properties;
use crate::{
    Ballot, DestinationStep, Group, Loan, LoanClaim, LoanOffer, LoanReport, LoanState, LoanTaken,
    MirrorStep, MoveId, Registry, RequestId, Revision, SiteId, SlotEpochs, SlotSet, StagedItem,
};
use std::fmt;

/// A command of the mode of linearizable keys of scope global.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GlobalCommand {
    /// Registers the owner of slots, for lookups of others. Only higher epochs count.
    Register { owner: SiteId, slots: SlotEpochs },
    /// A step of slots leaving this site. [`crate::Answer::Done`].
    Source { number: u64, step: SourceStep },
    /// A step of slots coming to this site.
    Destination { id: MoveId, step: DestinationStep },
    /// This site's mirror is kept there from now on, beginning anew; `None`: nowhere. The site that
    /// had it is fed until [`GlobalCommand::EndMirror`].
    SetMirror { to: Option<SiteId> },
    /// Ends the stream of this number, of a site's mirror at its former backup: at that site it is
    /// sent no more, and at the backup it is not taken any more.
    EndMirror { of: SiteId, number: u64 },
    /// A step of the mirror of another site, kept here.
    Mirror { from: SiteId, number: u64, step: MirrorStep },
    /// Takes this registry over, if it is newer, and returns the site's records of all slots: in
    /// the failover of `lost` that this version opened, or without one.
    /// [`crate::Answer::Inventory`].
    Inventory { registry: Box<Registry>, lost: SiteId, failover: Option<Ballot> },
    /// The owner of these slots reports that a copy of each is complete at another site, with this
    /// generation and position: copies that are void by that go.
    Supersede { slots: SlotEpochs, generation: u64, position: u64 },
    /// The same of an owner that is named. One that was lost since, and has not returned or is gone,
    /// reports nothing: the site with that copy may own the slot by now, with these very records.
    SupersedeBy { slots: SlotEpochs, generation: u64, position: u64, by: SiteId },
    /// Throws away the copies of what a site owned, by an operator's order that names the site.
    DiscardCopies { of: SiteId },
    /// A step of the loan of groups.
    Lending(Lending),
}

/// A step of the loan of groups. The rules decide of each group by itself; what a command states
/// about others counts all the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lending {
    /// The owner of their slots lends groups to a site.
    Lend { to: SiteId, groups: Vec<Group> },
    /// The borrower has answered the owner's offer.
    Answered { by: SiteId, parts: Vec<LoanTaken> },
    /// A borrower states its parts to the owner of their slots, as of a revision and a log time of
    /// its own. [`crate::Answer::Lent`].
    Report { by: SiteId, revision: Revision, log_time_ms: u64, parts: Vec<LoanReport> },
    /// Loans for this site, with the records of the groups, from an owner with that revision and
    /// log time. [`crate::Answer::Borrowed`].
    Offer { from: SiteId, revision: Revision, log_time_ms: u64, offers: Vec<LoanOffer> },
    /// The borrower stops serving groups, to give them back. [`crate::Answer::Borrowed`].
    GiveBack { loans: Vec<(Group, Loan)> },
    /// The site may take slots in the open failover that this version opened: these sites have
    /// parts in groups of them, as they have reported.
    Prepare { opened: Ballot, claims: Vec<(Group, LoanClaim)> },
    /// The owner of their slots has answered a report, at a revision of its own.
    Follow { owner: SiteId, revision: Revision, states: Vec<LoanState> },
}

/// A step of a handover, taken by the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceStep {
    /// Begins to hand to a site what this one holds of these slots; the command's number counts for
    /// nothing, the move gets its own.
    /// [`crate::Answer::Done`] with that number as revision.
    Begin { slots: SlotSet, to: SiteId, pinned: bool },
    /// An operator's order, which bears a number: what this site holds of these slots goes to a
    /// site. A repetition returns what came of it so far. [`crate::Answer::Ordered`], the
    /// destination's too.
    Order { id: RequestId, slots: SlotSet, to: SiteId },
    /// The slots are not served here any more.
    Freeze,
    /// The destination serves them: what is here is read no more, but kept until the destination's
    /// mirror has it, too.
    Release,
    /// The slots are served here again: the destination has refused for ever, or they were never
    /// frozen.
    Abort { refused: bool },
    /// The slots are served here again, at these epochs: the destination has left, and no site owns
    /// them. A move that has no slot left is over.
    Reclaim { slots: SlotEpochs },
    /// Stops copying for the time being, or goes on.
    Pause(bool),
}

impl GlobalCommand {
    pub(super) fn properties(&self) -> Properties {
        match self {
            GlobalCommand::Register { .. }
            | GlobalCommand::Inventory { .. }
            | GlobalCommand::DiscardCopies { .. }
            | GlobalCommand::Destination { .. }
            | GlobalCommand::Mirror { .. } => Properties::new(true, true)
                .carrying(self.items().iter().map(StagedItem::size_bytes).sum()),
            GlobalCommand::Source { step, .. } => match step {
                SourceStep::Order { .. } => Properties::new(true, true),
                SourceStep::Begin { .. } | SourceStep::Pause(_) => Properties::new(false, true),
                SourceStep::Freeze
                | SourceStep::Release
                | SourceStep::Abort { .. }
                | SourceStep::Reclaim { .. } => Properties::new(false, false),
            },
            GlobalCommand::SetMirror { .. } => Properties::new(false, false),
            GlobalCommand::Lending(step) => step.properties(),
            GlobalCommand::EndMirror { .. }
            | GlobalCommand::Supersede { .. }
            | GlobalCommand::SupersedeBy { .. } => Properties::new(true, false),
        }
    }

    /// What a chunk brings.
    fn items(&self) -> &[StagedItem] {
        match self {
            GlobalCommand::Destination { step: DestinationStep::Chunk { items, .. }, .. }
            | GlobalCommand::Mirror { step: MirrorStep::Chunk { items, .. }, .. } => items,
            _ => &[],
        }
    }
}

impl Lending {
    fn properties(&self) -> Properties {
        let crosses = match self {
            Lending::Lend { .. } | Lending::Answered { .. } | Lending::Follow { .. } => false,
            Lending::Report { .. }
            | Lending::Offer { .. }
            | Lending::GiveBack { .. }
            | Lending::Prepare { .. } => true,
        };
        let items =
            |items: &[StagedItem]| -> usize { items.iter().map(StagedItem::size_bytes).sum() };
        let bytes: usize = match self {
            Lending::Lend { groups, .. } => groups.iter().map(|group| group.tag.len()).sum(),
            Lending::Answered { parts, .. } => parts.iter().map(|one| one.group.tag.len()).sum(),
            Lending::Follow { states, .. } => states.iter().map(|one| one.group.tag.len()).sum(),
            Lending::GiveBack { loans } => loans.iter().map(|(group, _)| group.tag.len()).sum(),
            Lending::Prepare { claims, .. } => {
                claims.iter().map(|(group, _)| group.tag.len()).sum()
            }
            Lending::Report { parts, .. } => {
                let bytes = |one: &LoanReport| {
                    one.group.tag.len() + one.records.as_deref().map_or(0, items)
                };
                parts.iter().map(bytes).sum()
            }
            Lending::Offer { offers, .. } => {
                offers.iter().map(|one| one.group.tag.len() + items(&one.records)).sum()
            }
        };
        // A repeated offer is below the number that the first one brought, and a repeated report
        // brings nothing that is newer. A lend that is repeated would lend again what has come
        // back.
        Properties::new(!matches!(self, Lending::Lend { .. }), crosses).carrying(bytes)
    }
}

/// How many groups of a command are named in a trace.
const NAMED_MAX: usize = 4;

/// The groups that a command is about, each with what it has of it, for traces.
fn named<T: fmt::Display>(groups: impl ExactSizeIterator<Item = (Group, T)>) -> String {
    let more = groups.len().saturating_sub(NAMED_MAX);
    let groups = groups.take(NAMED_MAX).map(|(group, what)| format!("{group}{what}"));
    let mut named = groups.collect::<Vec<_>>().join(", ");
    if more > 0 {
        named.push_str(&format!(" and {more} more"));
    }
    named
}

impl fmt::Display for Lending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Lending::Lend { to, groups } => {
                write!(f, "lend {to}: {}", named(groups.iter().map(|one| (one.clone(), ""))))
            }
            Lending::Answered { by, parts } => {
                let of = |one: &LoanTaken| {
                    (one.group.clone(), format!(" is {:?} of {}", one.part, one.loan))
                };
                write!(f, "{by} has answered offers: {}", named(parts.iter().map(of)))
            }
            Lending::Report { by, parts, .. } => {
                let of = |one: &LoanReport| {
                    (one.group.clone(), format!(" is {:?} of {}", one.part, one.loan))
                };
                write!(f, "{by} reports: {}", named(parts.iter().map(of)))
            }
            Lending::Offer { from, offers, .. } => {
                let of = |one: &LoanOffer| {
                    (one.group.clone(), format!(" as {} at {}", one.row.loan, one.epoch))
                };
                write!(f, "borrow of {from}: {}", named(offers.iter().map(of)))
            }
            Lending::GiveBack { loans } => {
                let of = |(group, loan): &(Group, Loan)| (group.clone(), format!(" of {loan}"));
                write!(f, "give back: {}", named(loans.iter().map(of)))
            }
            Lending::Prepare { claims, .. } => {
                let of = |(group, claim): &(Group, LoanClaim)| {
                    let LoanClaim { loan, to, confirmed } = claim;
                    (group.clone(), format!(" at {to} as {loan} confirmed by {confirmed}"))
                };
                write!(f, "prepare for claims: {}", named(claims.iter().map(of)))
            }
            Lending::Follow { owner, states, .. } => {
                let of = |one: &LoanState| {
                    let stands = if one.stands { "stands" } else { "is over" };
                    (one.group.clone(), format!(" {stands} as {} at {}", one.loan, one.epoch))
                };
                write!(f, "{owner} has answered parts: {}", named(states.iter().map(of)))
            }
        }
    }
}

impl fmt::Display for GlobalCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GlobalCommand::Lending(step) => write!(f, "{step}"),
            GlobalCommand::Source { number, step } => match step {
                SourceStep::Begin { slots, to, .. } => write!(f, "give {slots} to {to}"),
                SourceStep::Order { slots, to, .. } => write!(f, "give {slots} to {to} as ordered"),
                SourceStep::Pause(true) => write!(f, "give {number} pause"),
                SourceStep::Pause(false) => write!(f, "give {number} go on"),
                SourceStep::Freeze => write!(f, "give {number} freeze"),
                SourceStep::Release => write!(f, "give {number} release"),
                SourceStep::Abort { refused: true } => {
                    write!(f, "give {number} abort, refused")
                }
                SourceStep::Abort { refused: false } => write!(f, "give {number} abort"),
                SourceStep::Reclaim { slots } => {
                    write!(f, "give {number} reclaim {}", slots.slots())
                }
            },
            GlobalCommand::Register { owner, slots } => {
                let slots = slots.iter().map(|(slot, epoch)| format!("{slot} at {epoch}"));
                write!(f, "register {owner}: {}", slots.collect::<Vec<_>>().join(", "))
            }
            GlobalCommand::Mirror {
                from,
                number,
                step: MirrorStep::Chunk { sequence, items, .. },
            } => {
                write!(f, "mirror {from}/{number} chunk {sequence}, {} items", items.len())
            }
            GlobalCommand::Destination { id: MoveId { from, number }, step } => match step {
                DestinationStep::Chunk { sequence, items, .. } => {
                    write!(f, "receive {from}/{number} chunk {sequence}, {} items", items.len())
                }
                DestinationStep::Begin { slots, .. } => {
                    write!(f, "receive {from}/{number} begin {}", slots.slots())
                }
                DestinationStep::Install { .. } => write!(f, "receive {from}/{number} install"),
                DestinationStep::Refuse => write!(f, "receive {from}/{number} refuse"),
                DestinationStep::Decline => write!(f, "receive {from}/{number} decline"),
                DestinationStep::BeginCopies(slots) => {
                    write!(f, "receive {from} begin copies {slots}")
                }
                DestinationStep::TakeCopies { .. } => write!(f, "receive {from} take copies"),
            },
            other => write!(f, "{other:?}"),
        }
    }
}
