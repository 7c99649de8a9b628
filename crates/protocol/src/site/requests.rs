//! What comes in: requests of this node's clients and messages of other nodes. And the answers to
//! them.

use super::backups::Promotion;
use super::machine;
use super::registrars::as_change;
use super::{Origin, Output, Site, Ticket};
use crate::admission::{Admission, Arrival, Target, Wait, admit, group_of, target_of};
use crate::bugs::Bug;
use crate::replica::heard::ticks_of_the_lost;
use crate::replica::leader_transfer::Asked;
use crate::replica::lives;
use crate::replica::membership::{self, Wanted};
use crate::replica::moments;
use crate::replica::reads::{Due, WaitingRead};
use crate::replica::writes::{self, Settled, Waiting};
use model::{
    Answer, Body, Bytes, CausalCommand, Command, DeploymentCommand, Failure, KeyspaceId,
    MembershipError, NodeId, OperatorCommand, Query, ReadConsistency, Refusal, Request, RequestId,
    SessionToken, SiteId, Write, limits,
};
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
    pub(super) fn take_request(&mut self, ticket: Ticket, request: Request) {
        let deadline = request.deadline_ms.map_or(limits::REQUEST_DEADLINE, Duration::from_millis);
        let deadline = self.now.monotonic + deadline;
        let origin = Origin::Client(ticket);
        self.sessions.begin(origin, request.token);
        if self.replica.removed {
            let failure = Failure::NotServing("it was removed from its site");
            return self.settle(vec![(origin, Err(failure))]);
        }
        match request.redirect {
            true => self.take_or_redirect(origin, request.body, deadline),
            false => self.take_any(origin, request.body, deadline),
        }
    }

    /// A request of any origin: it goes where its keys are.
    pub(super) fn take_any(&mut self, origin: Origin, body: Body, deadline: Duration) {
        let body = match as_change(body, self.machine.membership().is_some()) {
            Body::AtSite { site, command } => {
                return self.take_at_site(origin, site, *command, deadline);
            }
            Body::Write(Command::Write { keyspace, write: Write::Clear, .. })
                if self.is_causal(keyspace) =>
            {
                return self.take_clear(origin, keyspace, deadline);
            }
            body @ Body::Write(Command::Causal(CausalCommand::Retry { .. })) => {
                return self.take_retry(origin, body, deadline);
            }
            body if self.causal_keyspace(&body).is_some() => {
                return self.take_in_session(origin, body, deadline);
            }
            body => body,
        };
        match target_of(&body, self) {
            Ok(target) => self.take(origin, body, target, deadline),
            Err(refusal) => self.settle(vec![(origin, Err(Failure::Refused(refusal)))]),
        }
    }

    /// A command that a site is to carry out, this one perhaps.
    pub(super) fn take_at_site(
        &mut self,
        origin: Origin,
        site: SiteId,
        mut command: Command,
        deadline: Duration,
    ) {
        self.narrow_order(site, &mut command);
        self.take(origin, Body::Write(command), Target::Site(site), deadline);
    }

    pub(super) fn take(&mut self, origin: Origin, body: Body, target: Target, deadline: Duration) {
        let group = group_of(&body, self);
        let arrival = Arrival { group, ..Arrival::new(target, &body, origin.sender()) };
        match admit(&arrival, self) {
            Admission::Refuse(failure) if target == Target::Own => {
                self.settle(vec![(origin, Err(failure))]);
            }
            here @ (Admission::Here | Admission::Wait(Wait::Index | Wait::Applied))
                if self.goes_straight(origin, &body, target) =>
            {
                if target == Target::Own {
                    self.clear_copies(&body);
                }
                self.carry_out(origin, body, here, deadline);
            }
            _ if self.answer_from_copy(origin, &body) => {}
            _ => self.route(origin, body, target, deadline),
        }
    }

    /// Whether a request that is carried out here goes without [`crate::global::routing`], which keeps
    /// what another node may have to be sent: a write that leaves this node, or names a moment, which
    /// the log turns into one of this site's own. A read, and a leader's write, come back with all
    /// that is needed if their slot has moved meanwhile ([`Site::route_back`]).
    fn goes_straight(&self, origin: Origin, body: &Body, target: Target) -> bool {
        match (target, origin, body) {
            (Target::Own | Target::Site(_), ..) => true,
            (_, Origin::Client(_) | Origin::Site { .. }, Body::Read { .. }) => true,
            (_, Origin::Client(_) | Origin::Site { .. }, Body::Write(command)) => {
                self.leads() && !moments::names_one(command)
            }
            _ => false,
        }
    }

    /// A request that this site carries out.
    pub(super) fn take_here(&mut self, origin: Origin, body: Body, deadline: Duration) {
        let here = admit(&Arrival::new(Target::Own, &body, origin.sender()), self);
        self.carry_out(origin, body, here, deadline);
    }

    /// A request that was admitted here.
    pub(super) fn carry_out(
        &mut self,
        origin: Origin,
        body: Body,
        here: Admission,
        deadline: Duration,
    ) {
        self.note_access(origin, &body);
        match body {
            Body::Read { keyspace, query, consistency } => {
                let due = match consistency {
                    ReadConsistency::Linearizable => Due::NotSettled,
                    ReadConsistency::Stale | ReadConsistency::Backup => Due::Applied,
                };
                let read = WaitingRead { origin, keyspace, query, consistency, deadline, due };
                self.take_read(read, here);
            }
            body if self.leads() => self.take_for_leader(origin, body, deadline),
            body => {
                if let Err(refused) = self.replica.forwarding.push(origin, body, deadline) {
                    self.settle(vec![refused]);
                }
            }
        }
    }

    fn take_read(&mut self, read: WaitingRead, here: Admission) {
        let origin = read.origin;
        let is_taken = match here {
            Admission::Here => return self.answer_read(read),
            Admission::Refuse(failure) => return self.settle(vec![(origin, Err(failure))]),
            Admission::Wait(Wait::Applied) => {
                let index = self.replica.raft.committed_index();
                self.replica.reads.push_confirmed(read, index)
            }
            Admission::Wait(_) | Admission::At(_) => {
                !self.rare.happens() && self.replica.reads.push(read)
            }
        };
        if !is_taken {
            let failure = Failure::Overloaded { what: "linearizable reads" };
            self.settle(vec![(origin, Err(failure))]);
        }
    }

    pub(super) fn answer_read(&mut self, mut read: WaitingRead) {
        if read.due == Due::NotSettled {
            read.due = Due::By(self.replica.due_by_ms(&self.options));
        }
        if self.answer_by_validator(&read) {
            return;
        }
        let in_session = self.answer_in_session(&read).map(Ok);
        let outcome =
            in_session.unwrap_or_else(|| self.query(read.keyspace, &read.query, read.due));
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(at_ms) => match self.replica.reads.wait_for(at_ms, read) {
                None => return,
                Some(refused) => {
                    read = refused;
                    Err(Failure::Overloaded { what: "linearizable reads" })
                }
            },
        };
        match (read.origin, outcome) {
            (origin @ Origin::Client(_), Err(Failure::Refused(Refusal::NotHeld(slot)))) => {
                let WaitingRead { keyspace, query, consistency, deadline, .. } = read;
                let body = Body::Read { keyspace, query, consistency };
                self.route_back(origin, body, slot, deadline);
            }
            (origin @ Origin::Client(ticket), outcome) => {
                let token = self.sessions.end(origin);
                self.outputs.push_back(Output::Answer { ticket, outcome, token });
            }
            (origin, outcome) => self.settle(vec![(origin, outcome)]),
        }
    }

    /// No tick can come now: what was applied must do for the reads that wait for one.
    pub(super) fn wait_for_no_tick(&mut self) {
        for mut read in self.replica.reads.take_due(u64::MAX) {
            read.due = Due::By(None);
            self.answer_read(read);
        }
    }

    /// What the state answers; or the log time for which the query must wait.
    pub(super) fn query(
        &mut self,
        keyspace: KeyspaceId,
        query: &Query,
        due: Due,
    ) -> Result<Result<Answer, Failure>, u64> {
        let by_ms = match due {
            Due::By(by_ms) => by_ms,
            Due::Applied | Due::NotSettled => None,
        };
        let due_by = || by_ms.unwrap_or_default();
        let due_by = by_ms.is_some().then_some(&due_by as &dyn Fn() -> u64);
        match self.machine.reader().query_by(keyspace, query, due_by) {
            Ok(mut answer) => {
                let (now_ms, ahead) =
                    (self.replica.log_clock.now_ms(), self.replica.log_clock.wall_ahead_ms());
                moments::for_others(&mut answer, now_ms, ahead);
                Ok(Ok(answer))
            }
            Err(machine::Stopped::Refused(refusal)) => Ok(Err(Failure::Refused(refusal))),
            Err(machine::Stopped::Due(at_ms)) => Err(at_ms),
            Err(machine::Stopped::Failed(error)) => {
                self.fail(error);
                Ok(Err(Failure::NotServing("its state cannot be read")))
            }
        }
    }

    /// A request that only the leader can carry out, at the leader.
    pub(super) fn take_for_leader(&mut self, origin: Origin, body: Body, deadline: Duration) {
        let refused = match body {
            Body::Write(command @ Command::Deployment(DeploymentCommand::Registrar(_))) => {
                return self.take_registrar_step(origin, command, deadline);
            }
            Body::Write(command) => return self.take_write(origin, command, deadline),
            Body::Registry { change, id } => return self.take_change(origin, change, id, deadline),
            Body::ExplainPlacement { keyspace, key } => {
                return self.explain_placement(origin, keyspace, &key);
            }
            Body::ShowPlacementLedger => return self.show_placement_ledger(origin),
            Body::ListJobs => return self.show_jobs(origin),
            Body::ListLostWrites { failover, page, .. } => {
                return self.show_lost_writes(origin, failover, page);
            }
            Body::SwitchJob { job, paused } => return self.switch_job(origin, job, paused),
            Body::ShowRegistry => return self.take_view(origin, Vec::new(), false, deadline),
            Body::RecoverRegistry { without, accept } => {
                return self.take_view(origin, without, accept, deadline);
            }
            // No node forwards these.
            Body::Read { .. } | Body::AtSite { .. } => {
                self.sessions.end(origin);
                return;
            }
            Body::AddNode { node, address, witness } => {
                let member = peer::Member { node: node.0, address, witness, ..Default::default() };
                return self.take_join(origin, member, (false, None), deadline);
            }
            Body::ForceAddNode { node, address, witness } => {
                let member = peer::Member { node: node.0, address, witness, ..Default::default() };
                return self.take_join(origin, member, (true, None), deadline);
            }
            Body::Promote { lost, by, without, accept } => {
                let promotion = Promotion { lost, by, without, accept, reported: None, id: None };
                return self.take_promotion(origin, promotion, deadline);
            }
            Body::Operator { id, command } => match command {
                OperatorCommand::AddNode { node, address, witness, force } => {
                    let member =
                        peer::Member { node: node.0, address, witness, ..Default::default() };
                    return self.take_join(origin, member, (force, Some(id)), deadline);
                }
                OperatorCommand::RemoveNode { node, force } => {
                    self.take_removal(origin, node, (force, Some(id)), deadline)
                }
                OperatorCommand::Promote { lost, by, without } => {
                    let (accept, reported, id) = (true, None, Some(id));
                    let promotion = Promotion { lost, by, without, accept, reported, id };
                    return self.take_promotion(origin, promotion, deadline);
                }
                OperatorCommand::PromoteAsReported { lost, by, without, reported } => {
                    let (accept, reported, id) = (true, Some(reported), Some(id));
                    let promotion = Promotion { lost, by, without, accept, reported, id };
                    return self.take_promotion(origin, promotion, deadline);
                }
            },
            Body::RemoveNode { node } => self.take_removal(origin, node, (false, None), deadline),
            Body::ForceRemoveNode { node } => {
                self.take_removal(origin, node, (true, None), deadline)
            }
            Body::TransferLeader { node } => {
                membership::check_transfer(&self.replica.members, node).map(|()| {
                    self.transfer_to(node);
                    self.replica.leader_transfer.want(Asked { node, origin, deadline });
                })
            }
        };
        if let Err(error) = refused {
            self.settle(vec![(origin, Err(Failure::Membership(error)))]);
        }
    }

    /// Another node asks for something that the next leader is to do. The answer leaves before
    /// anything that would make that node doubt what became of its request.
    fn send_on_to_next_leader(&mut self, asker: Origin) {
        self.settle(vec![(asker, Err(Failure::NoLeader))]);
        self.send_replies();
        self.hand_over();
    }

    /// The tick that it is now, and the one by which it is known that a member is lost, `times` over; before a request's
    /// deadline, so that its sender receives the reason.
    fn patience(&self, times: u64, deadline: Duration) -> (u64, u64) {
        let ticks = self.replica.heard.ticks();
        let left = deadline.saturating_sub(self.now.monotonic);
        let ticks_left = (left.as_nanos() / self.options.tick.as_nanos()) as u64;
        (ticks, ticks + (times * ticks_of_the_lost(&self.options) as u64).min(ticks_left))
    }

    fn take_removal(
        &mut self,
        origin: Origin,
        node: NodeId,
        (force, id): (bool, Option<RequestId>),
        deadline: Duration,
    ) -> Result<(), MembershipError> {
        // Until a majority goes by it, nothing is answered of the last change.
        if self.replica.is_settled() {
            if membership::is_done(&self.replica.members, id) {
                self.settle(vec![(origin, Ok(Answer::Flag(true)))]);
                return Ok(());
            }
            membership::check_remove(&self.replica.members, node)?;
        }
        if matches!(origin, Origin::Node { .. }) && node == self.options.node {
            self.send_on_to_next_leader(origin);
            return Ok(());
        }
        let (asked_at_tick, refuse_at_tick) = self.patience(2, deadline);
        self.replica.membership.want(Wanted::Leave {
            node,
            force,
            asked_at_tick,
            refuse_at_tick,
            id,
            origin,
            deadline,
        });
        Ok(())
    }

    pub(super) fn take_join(
        &mut self,
        origin: Origin,
        member: peer::Member,
        (force, id): (bool, Option<RequestId>),
        deadline: Duration,
    ) {
        if self.replica.is_settled() && membership::is_done(&self.replica.members, id) {
            return self.settle(vec![(origin, Ok(Answer::Flag(true)))]);
        }
        let (_, refuse_at_tick) = self.patience(3, deadline);
        match membership::check_add(&self.replica.members, &member, force) {
            Ok(()) => {
                let asked_in_silence = self.replica.is_lost(&self.options, NodeId(member.node));
                self.replica.membership.want(Wanted::Join {
                    member,
                    force,
                    asked_in_silence,
                    refuse_at_tick,
                    id,
                    origin,
                    deadline,
                });
            }
            Err(error) => self.settle(vec![(origin, Err(Failure::Membership(error)))]),
        }
    }

    pub(super) fn take_write(&mut self, origin: Origin, command: Command, deadline: Duration) {
        if let Some(why) = &self.replica.disk_full {
            return self.settle(vec![(origin, Err(Failure::DiskFull(why.clone())))]);
        }
        if self.rare.happens() && origin != Origin::Discard {
            let failure = Failure::Overloaded { what: "writes" };
            return self.settle(vec![(origin, Err(failure))]);
        }
        self.note_session_write(origin, &command);
        let size_bytes = command.properties().size_bytes;
        let write = Waiting { origin, command, size_bytes, deadline };
        if let Err(refused) = self.replica.writes.push(write) {
            self.settle(vec![refused]);
        }
    }

    pub(super) fn take_message(&mut self, from: NodeId, message: peer::Message) {
        if !self.is_of_member(from, &message) {
            return;
        }
        if !lives::only_joins(&message) {
            self.replica.heard.of(from);
        }
        let clock = message.clock;
        match message.content {
            Some(Content::Raft(message)) if self.has_lost_what_it_acknowledged(&message) => {}
            Some(Content::Replaced(by)) => self.hear_of_later_life(by),
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
                self.hear_clock(from, term, clock);
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
                    let patience = self.options.heartbeat();
                    let now = self.now.monotonic;
                    self.replica.forwarding.answered(
                        answer.id,
                        outcome,
                        now,
                        patience,
                        &mut settled,
                    );
                }
                self.settle(settled);
            }
            Some(Content::SnapshotWanted(wanted)) => self.serve_chunk(from, wanted),
            Some(Content::SnapshotChunk(chunk)) => self.take_chunk(from, chunk),
            Some(Content::Map(message)) => self.take_map_of_node(from, message),
            Some(Content::Accesses(counted)) => self.take_accesses(&counted),
            // The shell distinguishes these by their connection.
            Some(Content::InterSite(_)) | None => {}
        }
    }

    pub(super) fn take_forwarded(&mut self, from: NodeId, request: peer::ForwardedRequest) {
        let origin = Origin::Node { node: from, id: request.id };
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
        let Ok(request) = entry::decode_request(request.request) else {
            let failure = Failure::NotServing("its version does not know this request");
            return self.settle(vec![(origin, Err(failure))]);
        };
        let deadline = request.deadline_ms.map_or(limits::REQUEST_DEADLINE, Duration::from_millis);
        let deadline = self.now.monotonic + deadline;
        // A witness has no keyspaces, and so not the site of a write. A node that has no state yet has none
        // either, and did not look at the token of a session.
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

    /// A request of another node has come, with this token.
    pub(super) fn session_begins(
        &mut self,
        origin: Origin,
        token: Option<Bytes>,
    ) -> Result<(), Failure> {
        let Some(token) = token else { return Ok(()) };
        let too_long = Failure::NotServing("the token of the session is too long");
        self.sessions.begin(origin, Some(SessionToken::new(token).ok_or(too_long)?));
        Ok(())
    }

    /// Another node's answer to a request brings this token.
    pub(super) fn session_answered(&mut self, origin: Origin, token: Option<Bytes>) {
        let asker = self.global.routing.asker(origin);
        self.sessions.answered(asker, token.and_then(SessionToken::new));
    }

    /// The token that goes along with a request to another node.
    pub(super) fn session_asked(&self, origin: Origin) -> Option<Bytes> {
        self.sessions.asked(self.global.routing.asker(origin)).map(|token| token.bytes().clone())
    }

    pub(super) fn settle(&mut self, settled: Vec<Settled>) {
        let mut settled = std::collections::VecDeque::from(settled);
        while let Some((origin, outcome)) = settled.pop_front() {
            let token = self.sessions.end(origin);
            match origin {
                Origin::Client(ticket) => {
                    self.outputs.push_back(Output::Answer { ticket, outcome, token });
                }
                Origin::Doubtful(ticket) => {
                    let outcome = match self.options.planted.is(Bug::DenyDoubt) {
                        true => outcome.map_err(|_| Failure::NoLeader),
                        false => outcome.map_err(doubted),
                    };
                    self.outputs.push_back(Output::Answer { ticket, outcome, token });
                }
                Origin::Node { node, id } => {
                    let reports_members = matches!(
                        outcome,
                        Ok(Answer::Flag(true)) | Err(Failure::NoLeader | Failure::Membership(_))
                    );
                    let members = reports_members.then(|| self.replica.members.clone());
                    let outcome = entry::encode_reply(&outcome);
                    let token = token.map(SessionToken::into_bytes);
                    let answer = peer::ForwardedAnswer { id, outcome, members, token };
                    self.replica.replies.entry(node).or_default().push(answer);
                }
                Origin::Site { site, node, id, in_doubt, slot, lent } => {
                    let outcome = if in_doubt { outcome.map_err(doubted) } else { outcome };
                    let token = token.map(SessionToken::into_bytes);
                    self.answer_site((site, node), (id, slot, lent), outcome, token);
                }
                Origin::Routed { id, in_doubt } => {
                    let outcome = if in_doubt { outcome.map_err(doubted) } else { outcome };
                    let now = self.now.monotonic;
                    match self.global.routing.came_back(id, in_doubt, outcome, now) {
                        Some(one) => settled.push_back(one),
                        None => self.session_answered(origin, None),
                    }
                }
                Origin::Job { job, id } => self.job_answered(job, id, outcome),
                Origin::Registrar(id) => self.registrar_answered(id, outcome),
                // A tick that was refused or given up is proposed again when it is due.
                Origin::Discard => self.replica.tick_proposed = false,
            }
        }
    }

    pub(super) fn send_replies(&mut self) {
        for (to, answers) in std::mem::take(&mut self.replica.replies) {
            self.send(to, Content::Answered(peer::Answered { answers }));
        }
    }
}

/// A failure under which nothing was done, for a request that an earlier leader may have done.
fn doubted(failure: Failure) -> Failure {
    match failure {
        Failure::NoLeader
        | Failure::Overloaded { .. }
        | Failure::DiskFull(_)
        | Failure::NotServing(_) => writes::unknown(
            "a leader was lost that may have carried it out, and no other could tell",
        ),
        known => known,
    }
}
