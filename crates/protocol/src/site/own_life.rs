//! Which life of this node its disk is of ([`crate::replica::lives`]), and when that ends.

use super::{Output, Site};
use crate::bugs::Bug;
use crate::replica::lives::{only_joins, replaced};
use crate::replica::membership::find;
use model::NodeId;
use storage::log::LogReader;
use storage::snapshot::Snapshots;
use storage::state::State;
use wire::peer::{self, Content, Life};

/// etcd's number for a leader's heartbeat, which carries the commit index for the follower: at most
/// the last entry that the follower has acknowledged.
const MSG_HEARTBEAT: u32 = 8;

impl<S: State, R: LogReader, N: Snapshots> Site<S, R, N> {
    /// Whether a message is accepted. If not, its sender is notified.
    pub(super) fn is_of_member(&mut self, from: NodeId, message: &peer::Message) -> bool {
        let is_word_to_us = matches!(message.content, Some(Content::Replaced(_)));
        if is_word_to_us || only_joins(message) || self.options.planted.is(Bug::TrustOldDisks) {
            return true;
        }
        // A node of an earlier version does not send its life; the greeting of its link was
        // checked.
        let Some(life) = message.life else { return true };
        let Some(by) = replaced(&self.replica.members, from, life) else { return true };
        self.send(from, Content::Replaced(by));
        false
    }

    /// Another node has recorded a later life of this one: this disk is no longer part of the site.
    pub(super) fn learn_of_later_life(&mut self, by: Life) {
        let Some(own) = self.replica.own_life(&self.options) else { return };
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

    /// Fails if the members list a later life of this node than the one that was a member so far. A
    /// new life has not been one before: it may read of earlier lives in the entries that it
    /// catches up on.
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
