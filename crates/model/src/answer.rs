//! What comes back when all went well.

use crate::{
    Ballot, Bytes, Epoch, Group, GroupExplained, Inventory, JobStatus, Keyspace, LoanClaim,
    LoanState, LoanTaken, LoansLedger, Loss, LostWrites, Ordered, PlacementExplained,
    PlacementLedger, Position, ReadPoint, Refusal, Registry, RegistryView, Revision, SiteId, Slot,
    SlotEpochs, Taken,
};

/// The answer to a request. Which variant belongs to which request is stated at each
/// [`crate::Query`] and each [`crate::Write`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Done; the revision it was done at.
    Done(Revision),
    /// A causal keyspace is cleared, or a retried write was made, at this place of its region's
    /// order.
    Placed(Position),
    /// A string with its version, or none.
    Value(Option<Versioned>),
    /// Several strings, in the order asked.
    Values(Vec<Option<Bytes>>),
    /// A number.
    Integer(i64),
    /// Yes or no.
    Flag(bool),
    /// Fields and values of a hash, ordered by field.
    Fields(Vec<(Bytes, Bytes)>),
    /// What a key holds, or none.
    Kind(Option<Kind>),
    /// When a key expires.
    Expiry(Expiring),
    /// Versions of keys, in the order asked; revision 0 for an absent one.
    Versions(Vec<Revision>),
    /// Versions of keys as [`Answer::Versions`], and the state in which they had them.
    Watched {
        /// One a key.
        versions: Vec<Revision>,
        /// When.
        point: ReadPoint,
    },
    /// The outcome of a put.
    Put {
        /// Whether its condition held.
        applied: bool,
        /// The key's version now (0 when it is absent).
        version: Revision,
        /// The string before, if it was asked for and there was one.
        old: Option<Bytes>,
    },
    /// A page of a scan.
    Page {
        /// What it found, in byte order of the keys.
        items: Vec<Item>,
        /// Where the next page starts; `None`: there is no more.
        next: Option<Bytes>,
    },
    /// A transaction was done; one answer a step.
    Steps(Vec<Result<Answer, Refusal>>),
    /// A transaction was not done: a guard no longer held.
    Aborted,
    /// The keyspace that was made.
    Keyspace(Box<Keyspace>),
    /// The registry was changed, or is as was asked for.
    Registered {
        /// The site it was about.
        site: SiteId,
        /// The registry now.
        registry: Box<Registry>,
    },
    /// How far a move has come at its destination.
    Staged {
        /// How many chunks it has.
        chunks: u64,
        /// What the last of them stated about where to resume.
        resume: Bytes,
    },
    /// The slots are the destination's.
    Installed,
    /// A stale read was answered by the backup of a site that cannot be reached.
    FromBackup {
        /// The answer.
        outcome: Box<Result<Answer, Refusal>>,
        /// When the mirror was last known to be caught up, milliseconds since 1970.
        caught_up_ms: u64,
    },
    /// How far a mirror has come.
    Mirrored {
        /// How many chunks it has.
        chunks: u64,
        /// What the last of them stated about where to resume.
        resume: Bytes,
        /// The slots that are whole.
        complete: SlotEpochs,
    },
    /// What a site has recorded of all slots.
    Inventory(Box<Inventory>),
    /// What may be lost by a promotion, or was.
    Loss(Box<Loss>),
    /// What a promotion would lose, and what it would take.
    Foretold {
        /// What would be lost.
        loss: Box<Loss>,
        /// Who would take which slots, and from where each goes on.
        taken: Vec<Taken>,
    },
    /// What came of a step of a registrar.
    Registrar(RegistrarAnswer),
    /// What came of an operator's order to hand slots over.
    Ordered(Box<Ordered>),
    /// Who holds the registry, and how they are.
    RegistryView(Box<RegistryView>),
    /// The jobs of the site's leader.
    Jobs(Vec<JobStatus>),
    /// Why a key is where it is.
    Placement(Box<PlacementExplained>),
    /// What a site advises.
    PlacementLedger(Box<PlacementLedger>),
    /// Why a group that may be lent is where it is.
    GroupPlacement(Box<GroupExplained>),
    /// What a site advises, and what it lends and has borrowed.
    LedgerOfLoans(Box<PlacementLedger>, Box<LoansLedger>),
    /// The same of a site with parts in groups of other sites' slots.
    InventoryOfLoans(Box<Inventory>, Vec<(Group, LoanClaim)>),
    /// The lists of writes that failovers lost of a site, and a page of one.
    LostWrites(Box<LostWrites>),
    /// What a borrower has of groups.
    Borrowed(Vec<LoanTaken>),
    /// What the owner of their slots has of lent groups.
    Lent {
        /// The owner's revision.
        revision: Revision,
        /// The groups of slots that it owns.
        states: Vec<LoanState>,
        /// The owners of the others, as far as they are known.
        elsewhere: Vec<(Slot, (SiteId, Epoch))>,
    },
}

impl Answer {
    /// How many bytes of fields and values it carries, of what may be large and is asked for often.
    pub fn payload_bytes(&self) -> usize {
        match self {
            Answer::Value(found) => found.as_ref().map_or(0, |found| found.value.len()),
            Answer::Values(values) => values.iter().flatten().map(Bytes::len).sum(),
            Answer::Fields(fields) => {
                fields.iter().map(|(field, value)| field.len() + value.len()).sum()
            }
            Answer::Put { old, .. } => old.as_ref().map_or(0, Bytes::len),
            _ => 0,
        }
    }
}

/// What came of a [`crate::RegistrarStep`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegistrarAnswer {
    /// The ballot that was written down.
    Reserved(Ballot),
    /// The ballot that begins the next term, and what the site had accepted.
    TermReserved(Ballot, Box<Registry>),
    /// It has promised; what it had accepted.
    Promised(Box<Registry>),
    /// It has accepted.
    Accepted,
    /// It has promised this higher ballot before.
    Refused(Ballot),
}

/// A string and the version it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Versioned {
    /// The string.
    pub value: Bytes,
    /// The revision that wrote it.
    pub version: Revision,
}

/// What a key can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A string of bytes.
    String,
    /// Fields with values, one record altogether.
    Hash,
}

/// When a key expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiring {
    /// There is no such key.
    Absent,
    /// It does not.
    Never,
    /// At this log time (milliseconds since 1970): what a state contains, and what earlier versions
    /// answered.
    AtMs(u64),
    /// As the leader there sends it to other sites, which may have other clocks.
    At {
        /// The moment by the wall clock there, milliseconds since 1970.
        wall_ms: u64,
        /// How much later than the answer that is, milliseconds.
        left_ms: u64,
    },
}

/// One key of a scan's page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The key.
    pub key: Bytes,
    /// What it holds.
    pub kind: Kind,
    /// Its version.
    pub version: Revision,
    /// Its string, if values were asked for and it holds one.
    pub value: Option<Bytes>,
}
