//! A change of the voters that only its leader may go by.
//!
//! A leader goes by a change of the members when it applies it. The others go by the list of before
//! until they learn, by its next message, that the change is committed. A leader whose disk is lost
//! in between leaves nodes behind of which only a majority of the voters of before elects. A site
//! of a node and a witness that has just been given its second node would stand still; so would a
//! site of four of which one that is dead was removed: two of four. So a leader shows the list of
//! before, and does not answer that the change is done, until a majority of the voters has answered
//! that it has it committed. An operator who waits for that may take away as many machines as the
//! list can spare.
//!
//! A later leader cannot tell whether a majority knew. It waits for the same answers; one that has
//! started since, or got a snapshot, has not the list of before, and shows no other voter until
//! then. A leader proposes no further change meanwhile.
//!
//! Left out on purpose: what a node has as committed it may forget when it loses power within a few
//! milliseconds. That and the loss of the leader's disk at the same moment are two failures. A node
//! that does not lead shows the list that it goes by.

use super::Replica;
use model::NodeId;
use storage::log::LogReader;
use wire::peer::Members;

/// The last change of the voters, until a majority is known to go by it.
#[derive(Clone, Debug)]
pub(crate) struct LastChange {
    /// The list of before, if it was here.
    before: Option<Members>,
    /// The index of the change, or one behind it.
    index: u64,
}

impl LastChange {
    /// Of a node that has got the list as of that index whole: from its state, or with a snapshot.
    pub(crate) fn unknown(index: u64) -> LastChange {
        LastChange { before: None, index }
    }
}

impl<R: LogReader> Replica<R> {
    /// The list has changed, by the entry of that index, or a snapshot.
    pub(crate) fn note_change(&mut self, before: Members, index: u64) {
        if before.voters != self.members.voters {
            self.last_change = Some(LastChange { before: Some(before), index });
        }
    }

    /// Whether no leader is needed any more for the list to count. A node that does not lead never
    /// finds that out.
    pub(crate) fn is_settled(&mut self) -> bool {
        if self.leads() && self.last_change.as_ref().is_some_and(|last| self.is_known(last)) {
            self.last_change = None;
        }
        self.last_change.is_none()
    }

    /// The members as this node shows them.
    pub(crate) fn shown_members(&self) -> Members {
        match self.last_change.as_ref().filter(|last| self.leads() && !self.is_known(last)) {
            None => self.members.clone(),
            Some(LastChange { before: Some(before), .. }) => before.clone(),
            Some(LastChange { before: None, .. }) => {
                let mut members = self.members.clone();
                let own = self.raft.id();
                let (voters, others) = members.voters.iter().partition(|node| **node == own.0);
                members.voters = voters;
                members.learners.extend::<Vec<u64>>(others);
                members
            }
        }
    }

    /// Whether a majority of the voters has answered this leader that it has a change committed.
    fn is_known(&self, last: &LastChange) -> bool {
        let voters = &self.members.voters;
        let knows = |node: &&u64| self.raft.committed_at(NodeId(**node)) >= last.index;
        voters.iter().filter(knows).count() > voters.len() / 2
    }
}
