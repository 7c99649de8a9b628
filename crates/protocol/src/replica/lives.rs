//! Which life of a node sent a message.
//!
//! A node that lost its disk has lost its votes and its entries; with an empty disk it is a new
//! member under the same id. The lost disk may return, for example in a repaired machine or an old
//! copy of a virtual one. Its messages must not count as the member's: the new life has
//! acknowledged entries that this disk never had.
//!
//! So every message between the nodes of a site names the life of its sender, and so does the
//! greeting of a link. An incarnation distinguishes two lives but does not order them, and a node
//! that lags must not refuse a life that it has not learned of yet: the two may form the majority
//! that elects. The log entry that made a life a member orders the lives.
//!
//! The refused node receives the reason and stops: see `site::own_life`. One that still
//! receives entries reads in them that a later life is the member: see there.

use super::Replica;
use super::membership::find;
use crate::options::Options;
use model::NodeId;
use storage::log::LogReader;
use wire::peer::{self, Content, Life, Member, Members};

/// The life that is a member, if `life` of `node` is an earlier one. `None`: `life` is the member,
/// or is not in `members` yet, or `node` is not a member.
#[must_use]
pub fn replaced(members: &Members, node: NodeId, life: Life) -> Option<Life> {
    let member = find(members, node)?;
    let known = Life { incarnation: member.incarnation, since: member.since };
    // A list that only contains addresses has no lives.
    let is_unknown = known == Life::default();
    let is_later = known.since > 0 && life.since > known.since;
    (!is_unknown && known.incarnation != life.incarnation && !is_later).then_some(known)
}

/// The log index since which a life is a member, according to `members`; 0: not yet a member.
#[must_use]
pub fn since_of(members: &Members, node: NodeId, incarnation: u64) -> u64 {
    let own = find(members, node).filter(|member| member.incarnation == incarnation);
    own.map_or(0, |member| member.since)
}

/// The log index since which a member's life is one; `index` is the entry that adds or promotes it.
pub(crate) fn since(known: Option<&Member>, member: &Member, index: u64) -> u64 {
    let same = known.filter(|known| known.incarnation == member.incarnation);
    same.map_or(index, |known| known.since)
}

/// Whether a message only asks to add its sender to the site.
#[must_use]
pub fn only_joins(message: &peer::Message) -> bool {
    let Some(Content::Forward(forward)) = &message.content else { return false };
    forward.requests.iter().all(|request| request.join.is_some())
}

impl<R: LogReader> Replica<R> {
    /// This node's life, as messages carry it.
    pub(crate) fn own_life(&self, options: &Options) -> Option<Life> {
        let incarnation = options.incarnation;
        let since = since_of(&self.members, options.node, incarnation);
        (incarnation != 0).then_some(Life { incarnation, since })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(incarnation: u64, since: u64) -> Members {
        let member = Member { node: 3, incarnation, since, ..Member::default() };
        Members { nodes: vec![member], ..Members::default() }
    }

    fn is_refused(known: (u64, u64), life: (u64, u64)) -> bool {
        let life = Life { incarnation: life.0, since: life.1 };
        replaced(&members(known.0, known.1), NodeId(3), life).is_some()
    }

    #[test]
    fn the_member_is_heard_and_earlier_lives_are_not() {
        assert!(!is_refused((7, 50), (7, 50)));
        assert!(!is_refused((7, 50), (7, 0)), "it has yet to read in the log that it is a member");
        assert!(is_refused((7, 50), (6, 4)));
        assert!(is_refused((7, 50), (6, 0)));
        assert!(is_refused((0, 50), (6, 4)), "another one is announced in its place");
    }

    #[test]
    fn a_later_life_is_heard_by_a_node_that_lags() {
        assert!(!is_refused((6, 4), (7, 50)));
        assert!(is_refused((6, 0), (7, 50)), "which is the later one is not known");
    }

    #[test]
    fn who_is_no_member_is_not_a_matter_of_lives() {
        let life = Life { incarnation: 7, since: 3 };
        assert_eq!(replaced(&members(6, 4), NodeId(2), life), None);
        assert!(!is_refused((0, 0), (7, 3)), "a list of addresses");
    }

    #[test]
    fn a_life_is_a_member_since_it_was_added() {
        let known = members(7, 50).nodes.remove(0);
        assert_eq!(since(Some(&known), &known, 60), 50, "it becomes a voter");
        let later = Member { incarnation: 8, ..known.clone() };
        assert_eq!((since(Some(&known), &later, 60), since(None, &later, 70)), (60, 70));
    }
}
