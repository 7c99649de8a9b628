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
use storage::log::LogReader;
use wire::peer::{Member, Members};

/// A member that is silent for this many election timeouts counts as lost.
const LOST_AFTER_TIMEOUTS: u32 = 2;

#[derive(Default)]
pub(crate) struct LastContact {
    /// Ticks for which each life of a member has been silent, by node and incarnation; absent: it
    /// was added, or a message of it arrived, since the last tick.
    silent_ticks: BTreeMap<(u64, u64), usize>,
    /// Ticks that this node has counted.
    ticks: u64,
}

impl LastContact {
    /// Records a message from a member.
    pub(crate) fn record(&mut self, node: NodeId) {
        self.silent_ticks.retain(|(silent, _), _| *silent != node.0);
    }

    /// Ticks that this node has counted: the time by which silence is measured.
    pub(crate) fn ticks(&self) -> u64 {
        self.ticks
    }

    /// Starts counting anew: a new leader has not yet received messages from any member.
    pub(crate) fn begin(&mut self) {
        self.silent_ticks.clear();
    }

    pub(crate) fn tick(&mut self, members: &Members) {
        self.ticks += 1;
        self.silent_ticks.retain(|life, _| members.nodes.iter().any(|one| life_of(one) == *life));
        for member in &members.nodes {
            *self.silent_ticks.entry(life_of(member)).or_default() += 1;
        }
    }

    /// The tick after which a message of a member last came.
    fn at_tick(&self, members: &Members, node: NodeId) -> u64 {
        self.ticks - self.silent_ticks(members, node) as u64
    }

    /// Of the life that is a member now: it does not begin with the silence of the one before.
    fn silent_ticks(&self, members: &Members, node: NodeId) -> usize {
        let life = membership::find(members, node).map(life_of);
        life.and_then(|life| self.silent_ticks.get(&life).copied()).unwrap_or(0)
    }
}

fn life_of(member: &Member) -> (u64, u64) {
    (member.node, member.incarnation)
}

/// How many ticks of silence make a member lost.
pub(crate) fn ticks_of_the_lost(options: &Options) -> usize {
    LOST_AFTER_TIMEOUTS as usize * options.ticks.election
}

impl<R: LogReader> Replica<R> {
    /// On a leader: whether a member is responding.
    pub(crate) fn is_alive(&self, options: &Options, node: NodeId) -> bool {
        let silent_ticks = self.contact.silent_ticks(&self.members, node);
        node == options.node || silent_ticks < ticks_of_the_lost(options)
    }

    /// On a leader: the tick after which a message of a member last came.
    pub(crate) fn contact_tick(&self, options: &Options, node: NodeId) -> u64 {
        match node == options.node {
            true => u64::MAX,
            false => self.contact.at_tick(&self.members, node),
        }
    }

    /// On a leader: whether another machine may take a member's place.
    pub(crate) fn is_lost(&self, options: &Options, node: NodeId) -> bool {
        if options.planted.is(Bug::EvictTheLiving) {
            return node != options.node;
        }
        membership::is_lost(&self.members, node, |node| self.is_alive(options, node))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_counted_in_ticks_and_ends_with_a_message() {
        let member = |node, incarnation| Member { node, incarnation, ..Member::default() };
        let list = |nodes: &[Member]| Members { nodes: nodes.to_vec(), ..Members::default() };
        let members = list(&[member(1, 11), member(2, 22)]);
        let mut contact = LastContact::default();
        for _ in 0..3 {
            contact.tick(&members);
            contact.record(NodeId(2));
        }
        let silent = |contact: &LastContact, node| contact.silent_ticks(&members, NodeId(node));
        assert_eq!((silent(&contact, 1), silent(&contact, 2), contact.ticks()), (3, 0, 3));
        assert_eq!(
            (contact.at_tick(&members, NodeId(1)), contact.at_tick(&members, NodeId(2))),
            (0, 3)
        );
        assert_eq!(silent(&contact, 9), 0, "it is only just added");
        let replaced = list(&[member(1, 12), member(2, 22)]);
        assert_eq!(contact.silent_ticks(&replaced, NodeId(1)), 0, "it was the life before");
        contact.begin();
        assert_eq!(silent(&contact, 1), 0);
    }
}
