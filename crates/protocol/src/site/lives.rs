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
//! The refused node receives the reason and stops: see [`Site::hear_of_later_life`]. One that still
//! receives entries reads in them that a later life is the member: see [`Site::check_own_life`].

use super::membership::find;
use super::trial::Bug;
use super::{Output, Site};
use model::NodeId;
use storage::log::LogReader;
use storage::snapshot::Snapshots;
use storage::state::State;
use wire::peer::{self, Life, Member, Members, Say};

/// etcd's number for a leader's heartbeat, which carries the commit index for the follower: at most
/// the last entry that the follower has acknowledged.
const MSG_HEARTBEAT: u32 = 8;

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
pub(super) fn since(known: Option<&Member>, member: &Member, index: u64) -> u64 {
    let same = known.filter(|known| known.incarnation == member.incarnation);
    same.map_or(index, |known| known.since)
}

/// Whether a message only asks to add its sender to the site.
#[must_use]
pub fn only_joins(message: &peer::Message) -> bool {
    let Some(Say::Forward(forward)) = &message.say else { return false };
    forward.requests.iter().all(|request| request.join.is_some())
}

impl<S: State, R: LogReader, N: Snapshots> Site<S, R, N> {
    /// This node's life, as messages carry it.
    pub(super) fn own_life(&self) -> Option<Life> {
        let incarnation = self.options.incarnation;
        let since = since_of(&self.replica.members, self.options.node, incarnation);
        (incarnation != 0).then_some(Life { incarnation, since })
    }

    /// Whether a message is accepted. If not, its sender is notified.
    pub(super) fn is_of_member(&mut self, from: NodeId, message: &peer::Message) -> bool {
        let is_word_to_us = matches!(message.say, Some(Say::Replaced(_)));
        if is_word_to_us || only_joins(message) || self.options.planted.is(Bug::TrustOldDisks) {
            return true;
        }
        // A node of an earlier version does not send its life; the greeting of its link was
        // checked.
        let Some(life) = message.life else { return true };
        let Some(by) = replaced(&self.replica.members, from, life) else { return true };
        self.send(from, Say::Replaced(by));
        false
    }

    /// Another node has recorded a later life of this one: this disk is no longer part of the site.
    pub(super) fn hear_of_later_life(&mut self, by: Life) {
        let Some(own) = self.own_life() else { return };
        let is_listed = find(&self.replica.members, self.options.node)
            .is_some_and(|member| member.incarnation == own.incarnation);
        if by.incarnation == own.incarnation || by.since <= own.since || !is_listed {
            return;
        }
        self.fail(outlived(self.options.node));
    }

    /// At the start: this life may have been removed or replaced already.
    pub(super) fn begin_own_life(&mut self) {
        let has_list = !self.replica.members.nodes.is_empty();
        let is_listed = find(&self.replica.members, self.options.node).is_some();
        self.replica.removed = has_list && !is_listed && self.replica.member_since.is_some();
        if let Err(why) = self.check_own_life() {
            self.fail(why);
        }
    }

    /// Fails if the members list a later life of this node than the one that was a member so far. A new
    /// life has not been one before: it may read of earlier lives in the entries that it catches up on.
    pub(super) fn check_own_life(&mut self) -> Result<(), String> {
        let node = self.options.node;
        let Some(listed) = find(&self.replica.members, node) else { return Ok(()) };
        if listed.incarnation == self.options.incarnation
            && self.replica.member_since != Some(listed.since)
        {
            self.replica.member_since = Some(listed.since);
            self.outputs.push_back(Output::MemberSince(listed.since));
        }
        // An incarnation of 0 is that of a node that an operator has announced.
        let is_other = ![0, self.options.incarnation].contains(&listed.incarnation);
        let is_later = self.replica.member_since.is_some_and(|since| listed.since > since);
        if is_other && is_later && !self.options.planted.is(Bug::TrustOldDisks) {
            return Err(outlived(node));
        }
        Ok(())
    }

    /// Whether the leader has recorded acknowledgements of entries that this log lacks. The disk
    /// was then restored to an earlier state, under the same incarnation.
    pub(super) fn has_lost_what_it_acknowledged(&mut self, message: &peer::Raft) -> bool {
        let last = self.replica.raft.last_index();
        let has_lost = message.kind == MSG_HEARTBEAT
            && message.term >= self.replica.raft.term()
            && message.commit > last;
        if has_lost {
            let (node, commit) = (self.options.node, message.commit);
            self.fail(format!(
                "this disk is an earlier state of itself: {node} has acknowledged entry {commit}, and its \
                 log ends at {last}. If an old copy of it was put back, put the newer one in; otherwise \
                 start {node} on an empty --data directory with --join, and the site takes it in again"
            ));
        }
        has_lost
    }
}

/// Why a node whose id belongs to a later life stops, and what to do.
fn outlived(node: NodeId) -> String {
    format!(
        "this disk is of an earlier life of {node}: the site has taken in another disk as {node} since, \
         and what is on this one is no longer part of it. If it was put in by mistake, put the newer one \
         back; otherwise start {node} on an empty --data directory with --join, and the site takes it in \
         again"
    )
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
        assert!(is_refused((6, 0), (7, 50)), "which is the later one cannot be told");
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
