//! A snapshot on its way to a node that lags.
//!
//! Raft only determines that a follower needs one and of which index; the content is pulled by the
//! follower, piece after piece, each asked for when the one before is on its disk. So one slow
//! receiver holds one piece in memory, a broken link costs one piece, and a leader that has made a
//! newer snapshot meanwhile answers that the old one is gone and starts over.

use model::NodeId;
use std::time::Duration;
use wire::peer;

/// Where taking in a snapshot stands.
#[derive(Debug)]
pub(super) enum Taking {
    /// Pieces are arriving.
    Pieces { offset: u64, ask_again: Duration },
    /// It is complete; it is being checked and loaded.
    Loading,
}

/// A snapshot that this node takes in.
#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) from: NodeId,
    pub(super) index: u64,
    /// Raft's message, which takes effect when the content is in.
    pub(super) message: peer::Raft,
    pub(super) taking: Taking,
}

impl Incoming {
    /// The next piece to ask for, if it is time to ask (again).
    pub(super) fn next_wanted(
        &mut self,
        now: Duration,
        patience: Duration,
    ) -> Option<peer::SnapshotWanted> {
        match &mut self.taking {
            Taking::Pieces { offset, ask_again } if *ask_again <= now => {
                *ask_again = now + patience;
                Some(peer::SnapshotWanted { index: self.index, offset: *offset })
            }
            _ => None,
        }
    }

    /// What was received is lost; the first piece is asked for again then.
    pub(super) fn begin_anew(&mut self, then: Duration) {
        self.taking = Taking::Pieces { offset: 0, ask_again: then };
    }

    /// A piece is on disk; the next begins at `next`.
    pub(super) fn took(&mut self, next: u64, total_bytes: u64) {
        self.taking = if next >= total_bytes {
            Taking::Loading
        } else {
            Taking::Pieces { offset: next, ask_again: Duration::ZERO }
        };
    }
}
