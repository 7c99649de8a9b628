//! Slots on their way from one site to another.

use crate::{
    Bytes, ClientId, Epoch, Group, KeyspaceId, LoanRow, Revision, SiteId, Slot, SlotCopy, SlotRun,
    SlotSet,
};

/// Slots that pass from one site to another together. Numbered by the site that gives them away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MoveId {
    /// The source.
    pub from: SiteId,
    /// The revision at which it was begun there, so later moves have higher ones.
    pub number: u64,
}

/// The epochs that slots are going to have with their next owner: runs of slots that share one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlotEpochs(pub Vec<(SlotSet, Epoch)>);

impl SlotEpochs {
    /// Slots and their epochs, gathered.
    pub fn gather(slots: impl IntoIterator<Item = (Slot, Epoch)>) -> SlotEpochs {
        SlotEpochs::of_runs(slots.into_iter().map(|(slot, epoch)| (SlotRun::one(slot), epoch)))
    }

    /// Runs and their epochs, gathered.
    pub fn of_runs(runs: impl IntoIterator<Item = (SlotRun, Epoch)>) -> SlotEpochs {
        let mut runs = runs.into_iter().peekable();
        let mut by_epoch = std::collections::BTreeMap::<Epoch, SlotSet>::new();
        while let Some((mut run, epoch)) = runs.next() {
            while let Some((next, _)) =
                runs.next_if(|(next, of)| *of == epoch && run.last.next() == Some(next.first))
            {
                run.last = next.last;
            }
            by_epoch.entry(epoch).or_default().insert_run(run);
        }
        SlotEpochs(by_epoch.into_iter().map(|(epoch, slots)| (slots, epoch)).collect())
    }

    /// Each run with its epoch.
    pub fn runs(&self) -> impl Iterator<Item = (SlotRun, Epoch)> + '_ {
        self.0.iter().flat_map(|(slots, epoch)| slots.runs().map(|run| (run, *epoch)))
    }

    /// Each slot with its epoch.
    pub fn iter(&self) -> impl Iterator<Item = (Slot, Epoch)> + '_ {
        self.0.iter().flat_map(|(slots, epoch)| slots.iter().map(|slot| (slot, *epoch)))
    }

    /// All the slots.
    pub fn slots(&self) -> SlotSet {
        self.runs().map(|(run, _)| run).collect()
    }
}

/// A step of a handover, taken by the destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DestinationStep {
    /// Slots are going to come: room is made for them.
    Begin {
        /// Which ones, and the epochs they are going to have.
        slots: SlotEpochs,
        /// The source has no move open with a lower number.
        open_from: u64,
        /// An operator asked for it: the slots stay at their destination, whatever their preferred
        /// owner.
        pinned: bool,
    },
    /// A chunk of what the slots hold.
    Chunk {
        /// Chunks are taken in this order, from the number that the destination answers when it is
        /// asked.
        sequence: u64,
        /// Where the source goes on after this chunk: opaque here, given back when it asks.
        resume: Bytes,
        /// What it brings.
        items: Vec<StagedItem>,
    },
    /// That was all, and the source serves no more: the slots are the destination's.
    Install {
        /// The number after that of the last chunk.
        chunks: u64,
        /// The source's revision; the destination's never lies behind it from here on, so that no
        /// two versions of a key bear one number.
        revision: Revision,
    },
    /// The move is off, for ever: what came of it is thrown away and it will never be installed.
    Refuse,
    /// The same, without a request of the source: it may have taken the slots back before it froze
    /// them, and given them to another site at the epoch of this move. So nothing is recorded of
    /// their owner.
    Decline,
    /// Copies are going to come, from a site that leaves: chunks bring them, as with a move.
    /// Whatever else it began so is thrown away.
    BeginCopies(SlotSet),
    /// That was all: they are the destination's, where it has nothing better.
    TakeCopies {
        /// The number after that of the last chunk.
        chunks: u64,
        /// What they are copies of.
        copies: Vec<HandedOn>,
    },
}

/// Copies of slots that a leaving site hands on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandedOn {
    /// Of which slots.
    pub slots: SlotSet,
    /// What they are copies of.
    pub copy: SlotCopy,
    /// The owner of these slots and its epoch, by the leaving site's records.
    pub owner: Option<(SiteId, Epoch)>,
}

/// Something that a slot holds, on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StagedItem {
    /// A key's record, as it lies in the source's state.
    Record {
        /// Where.
        keyspace: KeyspaceId,
        /// Which key.
        key: Bytes,
        /// The record's bytes.
        row: Bytes,
    },
    /// The key is not there any more.
    Absent {
        /// Where.
        keyspace: KeyspaceId,
        /// Which key.
        key: Bytes,
    },
    /// The keyspace was cleared: nothing of it is there but what follows. (Of mirrors; no slots
    /// move while a keyspace is cleared.)
    Cleared {
        /// Which.
        keyspace: KeyspaceId,
    },
    /// The source's log time when this was sent: the times in the items that follow, up to the next
    /// one of these, count from it. They are translated where they arrive, into a log time that is
    /// another one.
    Clock {
        /// Milliseconds.
        log_time_ms: u64,
    },
    /// What a client was answered, so that its repeated request is not done twice.
    Remembered {
        /// The slot it was about.
        slot: Slot,
        /// The client that asked.
        client: ClientId,
        /// Under which number.
        sequence: u64,
        /// The client has seen its answers below this.
        floor: u64,
        /// When its last request came, by the log time of the sender of this.
        seen_ms: u64,
        /// The outcome's bytes.
        row: Bytes,
    },
    /// The slot's record of a lent group: its borrower, or that it is at home.
    Lent {
        /// The group.
        group: Group,
        /// The row, if the group is lent.
        row: Option<LoanRow>,
        /// The borrower's revision up to which the slot's records have its writes.
        fed: u64,
        /// How many keys of it the slot's records have.
        keys: u64,
    },
    /// The count of loans in the slot's records. The [`StagedItem::Lent`] of the slot that follow
    /// are all there are.
    Loans {
        /// The slot.
        slot: Slot,
        /// The count.
        count: u64,
    },
}

impl StagedItem {
    /// About how many bytes it takes: its key and row, and what describes them.
    pub(crate) fn size_bytes(&self) -> usize {
        match self {
            StagedItem::Record { key, row, .. } => 16 + key.len() + row.len(),
            StagedItem::Absent { key, .. } => 16 + key.len(),
            StagedItem::Remembered { row, .. } => 64 + row.len(),
            StagedItem::Lent { group, .. } => 64 + group.tag.len(),
            StagedItem::Cleared { .. } | StagedItem::Clock { .. } | StagedItem::Loans { .. } => 16,
        }
    }
}
