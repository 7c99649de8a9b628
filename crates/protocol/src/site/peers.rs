//! Messages of the site's other nodes.

use super::{Origin, Site};
use crate::origin::ServedUnder;
use crate::replica::{lives, membership};
use model::{Body, Failure, NodeId, Position, limits};
use std::time::Duration;
use storage::log::LogReader;
use storage::snapshot::Snapshots;
use storage::state::State;
use wire::entry;
use wire::peer::{self, Content};

/// etcd's number for the message that brings a snapshot.
const MSG_SNAPSHOT: u32 = 7;
/// Those that ask for a vote, and for a vote before the vote.
const MSG_REQUEST_VOTES: [u32; 2] = [5, 17];
/// What such a message contains when the leader itself has asked its sender to stand for election.
const CONTEXT_TRANSFER: &[u8] = b"CampaignTransfer";

impl<S: State, R: LogReader, N: Snapshots> Site<S, R, N> {
    pub(super) fn take_message(&mut self, from: NodeId, message: peer::Message) {
        if !self.is_of_member(from, &message) {
            return;
        }
        if !lives::only_joins(&message) {
            self.replica.contact.record(from);
        }
        let clock = message.clock;
        match message.content {
            Some(Content::Raft(message)) if self.has_lost_what_it_acknowledged(&message) => {}
            Some(Content::Replaced(by)) => self.learn_of_later_life(by),
            Some(Content::Raft(message)) if message.kind == MSG_SNAPSHOT => {
                self.take_snapshot_offer(from, message);
            }
            Some(Content::Raft(message)) => {
                let asks_for_vote = MSG_REQUEST_VOTES.contains(&message.kind);
                // A leader that hands over has given up its lease before it asks for votes.
                let forced = message.context == CONTEXT_TRANSFER;
                if asks_for_vote && !forced && self.now.monotonic < self.replica.silent_until {
                    return;
                }
                let term = message.term;
                self.replica.raft.step(message);
                self.receive_clock(from, term, clock);
            }
            Some(Content::Forward(forward)) => {
                for request in forward.requests {
                    self.take_forwarded(from, request);
                }
            }
            Some(Content::Answered(answered)) => {
                let mut settled = Vec::new();
                for answer in answered.answers {
                    let Ok(outcome) = entry::decode_reply(answer.outcome) else { continue };
                    if let Some(origin) = self.replica.forwarding.origin(answer.id) {
                        self.session_answered(origin, answer.token);
                    }
                    // One that does not lead has done nothing, and knows nothing of the loans here.
                    if let Some(served) = answer.served
                        && outcome != Err(Failure::NoLeader)
                    {
                        self.served_by_leader(answer.id, ServedUnder::of_wire(&served));
                    }
                    let timeout = self.options.heartbeat();
                    let now = self.now.monotonic;
                    self.replica.forwarding.answered(
                        answer.id,
                        outcome,
                        now,
                        timeout,
                        &mut settled,
                    );
                }
                self.settle(settled);
            }
            Some(Content::SnapshotWanted(wanted)) => self.serve_chunk(from, wanted),
            Some(Content::SnapshotChunk(chunk)) => self.take_chunk(from, chunk),
            Some(Content::Map(message)) => self.take_map_of_node(from, message),
            Some(Content::Accesses(counted)) => self.take_accesses(&counted),
            Some(Content::OrderAwaited(awaited)) if self.leads() => {
                self.jobs.import.awaited(Position(awaited.upto), self.now.monotonic);
            }
            // The shell distinguishes messages of other sites by their connection.
            Some(Content::OrderAwaited(_) | Content::InterSite(_)) | None => {}
        }
    }

    /// The leader answers a request of this node: what it has served that under goes along with the
    /// answer, if that is for another site.
    fn served_by_leader(&mut self, id: u64, under: ServedUnder) {
        match self.replica.forwarding.origin(id) {
            Some(Origin::Routed { id, .. }) => self.global.routing.served_by_leader(id, under),
            Some(_) => self.replica.forwarding.served(id, under),
            None => {}
        }
    }

    pub(super) fn take_forwarded(&mut self, from: NodeId, request: peer::ForwardedRequest) {
        let decoded = entry::decode_request(request.request);
        let served = self.served_by(decoded.as_ref().ok());
        let origin = Origin::Node { node: from, id: request.id, served };
        if let Err(failure) = self.session_begins(origin, request.token) {
            return self.settle(vec![(origin, Err(failure))]);
        }
        if !self.leads() {
            return self.settle(vec![(origin, Err(Failure::NoLeader))]);
        }
        if let Some(member) = request.join {
            let deadline = self.now.monotonic + limits::REQUEST_DEADLINE;
            return self.take_join(origin, member, (false, None), deadline);
        }
        let Some(member) = membership::find(&self.replica.members, from) else {
            let failure = Failure::NotServing("it was removed from its site");
            return self.settle(vec![(origin, Err(failure))]);
        };
        let is_witness = member.witness;
        // A request that does not decode is of a newer version.
        let Ok(request) = decoded else {
            let failure = Failure::NotServing("its version does not know this request");
            return self.settle(vec![(origin, Err(failure))]);
        };
        let deadline = request.deadline_ms.map_or(limits::REQUEST_DEADLINE, Duration::from_millis);
        let deadline = self.now.monotonic + deadline;
        // A witness has no keyspaces, and so not the site of a write. A node that has no state yet
        // has none either, and did not look at the token of a session.
        let is_write = matches!(request.body, Body::Write(_));
        match is_witness && is_write || self.is_of_session(origin, &request.body) {
            true => self.take_any(origin, request.body, deadline),
            false => self.take_for_leader(origin, request.body, deadline),
        }
    }

    pub(super) fn link_lost(&mut self, node: NodeId) {
        self.replica.raft.unreachable(node);
        if self.replica.raft.wants_snapshot(node) {
            self.replica.raft.snapshot_sent(node, false);
        }
        if self.replica.raft.leader() == Some(node) {
            let mut settled = Vec::new();
            self.replica.forwarding.lost(&mut settled);
            self.settle(settled);
        }
    }

    pub(super) fn disk_is_full(&mut self, why: String) {
        let mut settled = Vec::new();
        self.replica.writes.refuse_waiting(&Failure::DiskFull(why.clone()), &mut settled);
        if self.replica.raft.is_persisting() {
            self.replica.writes.doubt_proposed(&mut settled);
        }
        self.replica.disk_full = Some(why);
        self.replica.tick_proposed = false;
        self.settle(settled);
        self.wait_for_no_tick();
    }
}
