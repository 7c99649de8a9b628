//! A node's snapshots: its own, those that followers take from it, and the one that it takes in.
//!
//! Raft only determines that a follower needs one and of which index; the content is pulled by the
//! follower, chunk after chunk, each asked for when the one before is on its disk. So one slow
//! receiver holds one chunk in memory, a broken link costs one chunk, and a leader that has made a
//! newer snapshot meanwhile answers that the old one is gone and starts over.

use crate::options::Options;
use model::NodeId;
use std::collections::BTreeMap;
use std::time::Duration;
use storage::snapshot::{SnapshotError, SnapshotHead, Snapshots};
use wire::peer;

/// A snapshot that a node has taken a chunk of so lately is not replaced by a newer one.
const SNAPSHOT_IN_USE: Duration = Duration::from_secs(10);

/// A node's snapshots: its own, those that followers take from it, and the one that it takes in.
pub(crate) struct OwnSnapshots<N> {
    pub(crate) store: N,
    /// The latest one that is durable.
    pub(crate) latest: Option<SnapshotHead>,
    pub(crate) is_writing: bool,
    /// How much the log has grown since the last one, as far as it is applied.
    pub(crate) log_bytes: u64,
    /// The next one is made at this growth.
    pub(crate) due_at_bytes: u64,
    pub(crate) incoming: Option<Incoming>,
    /// The last chunk that came had no room.
    pub(crate) lacks_room: bool,
    pub(crate) last_chunk_served: Option<Duration>,
    /// For a leader: since when a node that needs a snapshot has not asked for a chunk of it.
    pub(crate) offered: BTreeMap<NodeId, Duration>,
}

impl<N: Snapshots> OwnSnapshots<N> {
    /// `log_bytes`: of the applied entries that the log was found to hold behind the latest one.
    pub(crate) fn new(
        store: N,
        latest: Option<SnapshotHead>,
        log_bytes: u64,
        options: &Options,
    ) -> OwnSnapshots<N> {
        OwnSnapshots {
            store,
            latest,
            is_writing: false,
            log_bytes,
            due_at_bytes: options.log_bytes_before_snapshot,
            incoming: None,
            lacks_room: false,
            last_chunk_served: None,
            offered: BTreeMap::new(),
        }
    }

    /// Whether the log has grown by enough, also for a state of this size.
    pub(crate) fn is_due(&mut self, now: Duration, state_bytes: impl Fn() -> u64) -> bool {
        let in_use = self.last_chunk_served.is_some_and(|at| at + SNAPSHOT_IN_USE > now);
        if self.log_bytes < self.due_at_bytes || self.is_writing || in_use {
            return false;
        }
        let state_bytes = state_bytes();
        let is_due = self.log_bytes >= state_bytes;
        if !is_due {
            self.due_at_bytes = state_bytes;
        }
        is_due
    }

    /// Whether the node takes in the snapshot of this index.
    pub(crate) fn takes_in(&self, index: u64) -> bool {
        self.incoming.as_ref().is_some_and(|incoming| incoming.index == index)
    }

    /// Whether a snapshot is being loaded into the state.
    pub(crate) fn is_loading(&self) -> bool {
        let incoming = self.incoming.as_ref();
        incoming.is_some_and(|incoming| matches!(incoming.taking, Taking::Loading))
    }
}

/// Why a snapshot is not installed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotInstalled {
    /// What was received is damaged, and gone. The state is as it was.
    Damaged(String),
    /// What was received is gone, for want of room perhaps. The state is as it was.
    Gone(String),
    /// It is not known what the state holds. The next start rebuilds it.
    Failed(String),
}

impl NotInstalled {
    /// What an error of [`Snapshots::finish`] means.
    pub fn of_finish(error: &SnapshotError) -> NotInstalled {
        let why = error.to_string();
        match error {
            SnapshotError::Damaged { .. } => NotInstalled::Damaged(why),
            SnapshotError::Full { .. } | SnapshotError::Absent { .. } => NotInstalled::Gone(why),
            _ => NotInstalled::Failed(why),
        }
    }
}

/// Where taking in a snapshot stands.
#[derive(Debug)]
pub(crate) enum Taking {
    /// Chunks are arriving.
    Chunks { offset: u64, ask_again: Duration },
    /// It is complete; it is being checked and loaded.
    Loading,
}

/// A snapshot that this node takes in.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(crate) from: NodeId,
    pub(crate) index: u64,
    /// Raft's message, which takes effect when the content is in.
    pub(crate) message: peer::Raft,
    pub(crate) taking: Taking,
    /// All of it came once, and was damaged.
    pub(crate) is_damaged: bool,
}

impl Incoming {
    /// The next chunk to ask for, if it is time to ask (again).
    pub(crate) fn next_wanted(
        &mut self,
        now: Duration,
        timeout: Duration,
    ) -> Option<peer::SnapshotWanted> {
        match &mut self.taking {
            Taking::Chunks { offset, ask_again } if *ask_again <= now => {
                *ask_again = now + timeout;
                let is_damaged = self.is_damaged;
                Some(peer::SnapshotWanted { index: self.index, offset: *offset, is_damaged })
            }
            _ => None,
        }
    }

    /// What was received is lost; the first chunk is asked for again then.
    pub(crate) fn begin_anew(&mut self, then: Duration) {
        self.taking = Taking::Chunks { offset: 0, ask_again: then };
    }

    /// A chunk is on disk; the next begins at `next`.
    pub(crate) fn took(&mut self, next: u64, total_bytes: u64) {
        self.taking = if next >= total_bytes {
            Taking::Loading
        } else {
            Taking::Chunks { offset: next, ask_again: Duration::ZERO }
        };
    }
}
