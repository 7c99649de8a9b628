//! A change of the members that only the leader goes by.
//!
//! A leader goes by a change when it applies it. The others go by the list of before until they learn, by
//! its next message, that the change is committed. A leader whose disk is lost in between leaves nodes
//! behind of which only a majority of the voters of before elects: a site of a node and a witness that has
//! just been given its second node would stand still. So a leader shows a list once a majority of its voters
//! knows that it holds, and an operator who waits for that may take any one machine away.

use super::Replica;
use model::NodeId;
use storage::log::LogReader;
use wire::peer::Members;

/// The last change that this leader has applied.
#[derive(Debug)]
pub(crate) struct Changing {
    /// Its index.
    index: u64,
    /// The list that a majority knew last.
    before: Members,
}

impl<R: LogReader> Replica<R> {
    /// The list is about to change, by the entry of that index.
    pub(crate) fn note_change(&mut self, index: u64) {
        self.forget_known_change();
        if self.leads() {
            let before = self.members.clone();
            self.changing.get_or_insert(Changing { index, before }).index = index;
        }
    }

    /// Drops what is not needed any more.
    pub(crate) fn forget_known_change(&mut self) {
        if self.shows_last_list() {
            self.changing = None;
        }
    }

    /// The members that this node shows.
    pub(crate) fn shown_members(&self) -> &Members {
        match &self.changing {
            Some(changing) if !self.shows_last_list() => &changing.before,
            _ => &self.members,
        }
    }

    fn shows_last_list(&self) -> bool {
        let Some(changing) = self.changing.as_ref().filter(|_| self.leads()) else { return true };
        let voters = &self.members.voters;
        let knows = |voter: &&u64| self.raft.committed_at(NodeId(**voter)) >= changing.index;
        voters.iter().filter(knows).count() > voters.len() / 2
    }
}
