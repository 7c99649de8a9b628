//! New voters that only the leader goes by.
//!
//! A leader goes by a change of the members when it applies it. The others go by the list of before until
//! they learn, by its next message, that the change is committed. A leader whose disk is lost in between
//! leaves nodes behind of which only a majority of the voters of before elects: a site of a node and a
//! witness that has just been given its second node would stand still. So a leader that makes a voter shows
//! it as a learner until a majority of the voters has answered that it knows. An operator who waits for
//! that may take away any one machine that the list can spare.
//!
//! Left out on purpose: what a node knows to be committed it may forget when it loses power within a few
//! milliseconds. That and the loss of the leader's disk at the same moment are two failures.

use super::Replica;
use model::NodeId;
use storage::log::LogReader;
use wire::peer::Members;

/// A node that this leader has made a voter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewVoter {
    node: u64,
    /// The index of the change.
    index: u64,
}

impl<R: LogReader> Replica<R> {
    /// The list has changed, by the entry of that index.
    pub(crate) fn note_new_voters(&mut self, before: &[u64], index: u64) {
        self.forget_known_voters();
        if self.leads() {
            let new = self.members.voters.iter().filter(|node| !before.contains(node));
            self.new_voters.extend(new.map(|node| NewVoter { node: *node, index }));
        }
    }

    /// Drops those that are voters for a majority.
    pub(crate) fn forget_known_voters(&mut self) {
        let mut new = std::mem::take(&mut self.new_voters);
        new.retain(|voter| self.is_new(voter));
        self.new_voters = new;
    }

    /// The members as this node shows them.
    pub(crate) fn shown_members(&self) -> Members {
        let mut members = self.members.clone();
        for voter in self.new_voters.iter().filter(|voter| self.is_new(voter)) {
            let voters = members.voters.len();
            members.voters.retain(|node| *node != voter.node);
            if members.voters.len() < voters {
                members.learners.push(voter.node);
            }
        }
        members
    }

    /// Whether a leader may be the only one that counts it as a voter.
    fn is_new(&self, voter: &NewVoter) -> bool {
        let voters = &self.members.voters;
        let knows = |node: &&u64| self.raft.committed_at(NodeId(**node)) >= voter.index;
        self.leads() && voters.iter().filter(knows).count() <= voters.len() / 2
    }
}
