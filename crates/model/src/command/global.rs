//! Commands of the mode of linearizable keys of scope global: owners of slots, handovers, mirrors, failovers.

use super::Properties;
use crate::{
    Ballot, Fencing, Mirroring, MoveId, Promotion, Receiving, Registry, RequestId, SiteId,
    SlotEpochs, SlotSet, StagedItem,
};
use std::fmt;

/// A command of the mode of linearizable keys of scope global.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GlobalCommand {
    /// Registers the owner of slots, for lookups of others. Only higher epochs count.
    Register { holder: SiteId, slots: SlotEpochs },
    /// A step of slots leaving this site. [`crate::Answer::Done`].
    Giving { number: u64, step: Giving },
    /// A step of slots coming to this site.
    Receiving { id: MoveId, step: Receiving },
    /// This site's mirror is kept there from now on, beginning anew; `None`: nowhere. The site that had it
    /// is fed until [`GlobalCommand::EndMirror`].
    SetMirror { to: Option<SiteId> },
    /// Ends the stream of this number, of a site's mirror at its former backup: at that site it is sent
    /// no more, and at the backup it is not taken any more.
    EndMirror { of: SiteId, number: u64 },
    /// A step of the mirror of another site, kept here.
    Mirror { from: SiteId, number: u64, step: Mirroring },
    /// A step of a fence against a site that may be lost, for the promotion of its backup.
    Fence { lost: SiteId, by: SiteId, number: u64, step: Fencing },
    /// Takes over from a lost site that had the right to change the registry, which goes on from
    /// the latest one that any site has.
    Promote { promotion: Promotion, registry: Box<Registry> },
    /// Takes this registry over, if it is newer, and returns the site's records of all slots: in
    /// the failover of `lost` that this version opened, or without one.
    /// [`crate::Answer::Inventory`].
    Inventory { registry: Box<Registry>, lost: SiteId, failover: Option<Ballot> },
    /// The owner of these slots reports that a copy of each is complete at another site, with this
    /// generation and position: copies that are void by that go.
    Supersede { slots: SlotEpochs, generation: u64, position: u64 },
    /// Throws away the copies of what a site owned, by an operator's order that names the site.
    DiscardCopies { of: SiteId },
}

/// A step of a handover, taken by the giving site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Giving {
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
    /// The receiver serves them: what is here is read no more, but kept until the receiver's mirror
    /// has it, too.
    Release,
    /// The slots are served here again: the receiver has refused for ever, or they were never frozen.
    TakeBack { refused: bool },
    /// The slots are served here again, at these epochs: the receiver has left, and no site owns them. A move
    /// that has no slot left is over.
    Reclaim { slots: SlotEpochs },
    /// Stops copying for the time being, or goes on.
    Pause(bool),
    /// The receiver's mirror has the slots, or it has none: what was kept of them is forgotten.
    Forget,
}

impl GlobalCommand {
    pub(super) fn properties(&self) -> Properties {
        match self {
            GlobalCommand::Register { .. }
            | GlobalCommand::Inventory { .. }
            | GlobalCommand::DiscardCopies { .. }
            | GlobalCommand::Receiving { .. }
            | GlobalCommand::Mirror { .. } => Properties::new(true, true)
                .carrying(self.items().iter().map(StagedItem::payload_bytes).sum()),
            GlobalCommand::Giving { step, .. } => match step {
                Giving::Order { .. } | Giving::Forget => Properties::new(true, true),
                Giving::Begin { .. } | Giving::Pause(_) => Properties::new(false, true),
                Giving::Freeze
                | Giving::Release
                | Giving::TakeBack { .. }
                | Giving::Reclaim { .. } => Properties::new(false, false),
            },
            GlobalCommand::SetMirror { .. } => Properties::new(false, false),
            GlobalCommand::EndMirror { .. } => Properties::new(true, false),
            GlobalCommand::Fence { .. }
            | GlobalCommand::Promote { .. }
            | GlobalCommand::Supersede { .. } => Properties::new(true, false),
        }
    }

    /// What a piece brings.
    fn items(&self) -> &[StagedItem] {
        match self {
            GlobalCommand::Receiving { step: Receiving::Piece { items, .. }, .. }
            | GlobalCommand::Mirror { step: Mirroring::Piece { items, .. }, .. } => items,
            _ => &[],
        }
    }
}

impl fmt::Display for GlobalCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GlobalCommand::Giving { number, step } => match step {
                Giving::Begin { slots, to, .. } => write!(f, "give {slots} to {to}"),
                Giving::Order { slots, to, .. } => write!(f, "give {slots} to {to} as ordered"),
                Giving::Pause(true) => write!(f, "give {number} pause"),
                Giving::Pause(false) => write!(f, "give {number} go on"),
                Giving::Freeze => write!(f, "give {number} freeze"),
                Giving::Release => write!(f, "give {number} release"),
                Giving::Forget => write!(f, "give {number} forget"),
                Giving::TakeBack { refused: true } => write!(f, "give {number} take back, refused"),
                Giving::TakeBack { refused: false } => write!(f, "give {number} take back"),
                Giving::Reclaim { slots } => write!(f, "give {number} reclaim {}", slots.slots()),
            },
            GlobalCommand::Register { holder, slots } => {
                let slots = slots.iter().map(|(slot, epoch)| format!("{slot} at {epoch}"));
                write!(f, "register {holder}: {}", slots.collect::<Vec<_>>().join(", "))
            }
            GlobalCommand::Mirror {
                from,
                number,
                step: Mirroring::Piece { sequence, items, .. },
            } => {
                write!(f, "mirror {from}/{number} piece {sequence}, {} items", items.len())
            }
            GlobalCommand::Receiving { id: MoveId { from, number }, step } => match step {
                Receiving::Piece { sequence, items, .. } => {
                    write!(f, "receive {from}/{number} piece {sequence}, {} items", items.len())
                }
                Receiving::Begin { slots, .. } => {
                    write!(f, "receive {from}/{number} begin {}", slots.slots())
                }
                Receiving::Install { .. } => write!(f, "receive {from}/{number} install"),
                Receiving::Refuse => write!(f, "receive {from}/{number} refuse"),
                Receiving::Decline => write!(f, "receive {from}/{number} decline"),
                Receiving::BeginCopies(slots) => write!(f, "receive {from} begin copies {slots}"),
                Receiving::TakeCopies { .. } => write!(f, "receive {from} take copies"),
            },
            other => write!(f, "{other:?}"),
        }
    }
}
