//! Which members a leader has recently received messages from.
//!
//! The leader counts its own ticks: a pause of the leader counts as one tick, so members do not
//! count as lost because the leader could not receive. The consensus library's own mark is not
//! used: it is cleared at every election timeout, and for a moment after that all members appear
//! silent.

use super::{Replica, membership};
use crate::bugs::Bug;
use crate::options::Options;
use model::NodeId;
use std::collections::BTreeMap;
use std::time::Duration;
use storage::log::LogReader;
use wire::peer::Members;

/// A member that is silent for this many election timeouts counts as lost.
const LOST_AFTER_TIMEOUTS: u32 = 2;

#[derive(Default)]
pub(crate) struct Heard {
    /// Ticks for which each member has been silent; absent: a message arrived since the last tick.
    silent_ticks: BTreeMap<u64, usize>,
}

impl Heard {
    /// Records a message from a member.
    pub(crate) fn of(&mut self, node: NodeId) {
        self.silent_ticks.remove(&node.0);
    }

    /// Starts counting anew: a new leader has not yet received messages from any member.
    pub(crate) fn begin(&mut self) {
        self.silent_ticks.clear();
    }

    pub(crate) fn tick(&mut self, members: &Members) {
        self.silent_ticks.retain(|node, _| members.nodes.iter().any(|one| one.node == *node));
        for member in &members.nodes {
            *self.silent_ticks.entry(member.node).or_default() += 1;
        }
    }

    fn silent_ticks(&self, node: NodeId) -> usize {
        self.silent_ticks.get(&node.0).copied().unwrap_or(0)
    }
}

impl<R: LogReader> Replica<R> {
    /// On a leader: whether a member is responding.
    pub(crate) fn is_alive(&self, options: &Options, node: NodeId) -> bool {
        let lost = LOST_AFTER_TIMEOUTS as usize * options.ticks.election;
        node == options.node || self.heard.silent_ticks(node) < lost
    }

    /// On a leader: whether another machine may take a member's place.
    pub(crate) fn is_lost(&self, options: &Options, node: NodeId) -> bool {
        if options.planted.is(Bug::EvictTheLiving) {
            return node != options.node;
        }
        membership::is_lost(&self.members, node, |node| self.is_alive(options, node))
    }
}

/// The silence after which a member counts as lost.
pub(crate) fn silence_of_the_lost(options: &Options) -> Duration {
    LOST_AFTER_TIMEOUTS * options.election_timeout()
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::peer::Member;

    #[test]
    fn silence_is_counted_in_ticks_and_ends_with_a_word() {
        let member = |node| Member { node, ..Member::default() };
        let members = Members { nodes: vec![member(1), member(2)], ..Members::default() };
        let mut heard = Heard::default();
        for _ in 0..3 {
            heard.tick(&members);
            heard.of(NodeId(2));
        }
        assert_eq!((heard.silent_ticks(NodeId(1)), heard.silent_ticks(NodeId(2))), (3, 0));
        assert_eq!(heard.silent_ticks(NodeId(9)), 0, "it is only just added");
        heard.begin();
        assert_eq!(heard.silent_ticks(NodeId(1)), 0);
    }
}
