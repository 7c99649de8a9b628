//! How a replica moves on: requests in, entries applied, answers out.

use super::machine;
use super::membership::{self, Wanted};
use super::raft::{Committed, Content, Role};
use super::reads::{LEASE_MARGIN, WaitingRead};
use super::transfer::{Incoming, Taking};
use super::writes::{self, Settled, Waiting};
use super::{Origin, Output, ReadGate, Site, Ticket};
use bytes::Bytes;
use model::{
    Answer, Body, Command, Failure, KeyspaceId, NodeId, Query, ReadConsistency, Request, limits,
};
use prost::Message as _;
use std::time::Duration;
use storage::log::{LogReader, LogStart};
use storage::snapshot::{Chunk, SnapshotError, SnapshotHead, Snapshots};
use storage::state::State;
use wire::entry::{self, BatchEncoder};
use wire::peer::{self, Say};

/// etcd's number for the message that brings a snapshot.
const MSG_SNAPSHOT: u32 = 7;
/// A snapshot that somebody has taken a piece of so lately is not replaced by a newer one.
const SNAPSHOT_IN_USE: Duration = Duration::from_secs(10);

impl<S: State, R: LogReader, N: Snapshots> Site<S, R, N> {
    pub(super) fn take_request(&mut self, ticket: Ticket, request: Request) {
        let deadline = request.deadline_ms.map_or(limits::REQUEST_DEADLINE, Duration::from_millis);
        let deadline = self.now.monotonic + deadline;
        let origin = Origin::Client(ticket);
        if self.removed {
            let failure = Failure::NotServing("it was removed from its site");
            return self.settle(vec![(origin, Err(failure))]);
        }
        match request.body {
            Body::Read { keyspace, query, consistency } => {
                self.take_read(WaitingRead { ticket, keyspace, query, deadline }, consistency);
            }
            body if self.leads() => self.take_for_leader(origin, body, deadline),
            body => {
                if let Err(refused) = self.forwarding.push(ticket, body, deadline) {
                    self.settle(vec![refused]);
                }
            }
        }
    }

    fn take_read(&mut self, read: WaitingRead, consistency: ReadConsistency) {
        if self.options.witness {
            let failure = Failure::NotServing("it is a witness and holds no data");
            return self.settle(vec![(Origin::Client(read.ticket), Err(failure))]);
        }
        let lease = matches!(self.gate, ReadGate::Lease(until) if until > self.now.monotonic);
        let here = match self.gate {
            ReadGate::Open => true,
            ReadGate::Closed => false,
            _ if consistency == ReadConsistency::Stale => true,
            _ => lease && self.reads_by_lease(read.keyspace),
        };
        if here {
            return self.answer_read(read);
        }
        let ticket = read.ticket;
        if !self.reads.push(read) {
            let failure = Failure::Overloaded { what: "linearizable reads" };
            self.settle(vec![(Origin::Client(ticket), Err(failure))]);
        }
    }

    fn reads_by_lease(&self, keyspace: KeyspaceId) -> bool {
        let catalog = self.machine.reader().catalog();
        catalog.by_id(keyspace).is_some_and(|keyspace| keyspace.spec.lease_reads)
    }

    fn answer_read(&mut self, read: WaitingRead) {
        let outcome = self.query(read.keyspace, &read.query);
        self.outputs.push_back(Output::Answer { ticket: read.ticket, outcome });
    }

    fn query(&mut self, keyspace: KeyspaceId, query: &Query) -> Result<Answer, Failure> {
        match self.machine.reader().query(keyspace, query) {
            Ok(answer) => Ok(answer),
            Err(machine::Stopped::Refused(refusal)) => Err(Failure::Refused(refusal)),
            Err(machine::Stopped::Failed(error)) => {
                self.fail(error);
                Err(Failure::NotServing("its state cannot be read"))
            }
        }
    }

    /// A request that only the leader can carry out, at the leader.
    fn take_for_leader(&mut self, origin: Origin, body: Body, deadline: Duration) {
        let refused = match body {
            Body::Write(command) => return self.take_write(origin, command, deadline),
            Body::Read { .. } => return,
            Body::AddNode { node, address, witness } => {
                let member = peer::Member { node: node.0, address, incarnation: 0, witness };
                return self.take_join(origin, member, deadline);
            }
            Body::RemoveNode { node } => membership::check_remove(&self.members, node).map(|()| {
                self.membership.want(Wanted::Leave { node, origin, deadline });
                None
            }),
            Body::TransferLeader { node } => {
                membership::check_transfer(&self.members, node).map(|()| {
                    self.raft.transfer_to(node);
                    Some(Answer::Flag(true))
                })
            }
        };
        match refused {
            Ok(None) => {}
            Ok(Some(answer)) => self.settle(vec![(origin, Ok(answer))]),
            Err(error) => self.settle(vec![(origin, Err(Failure::Membership(error)))]),
        }
    }

    fn take_join(&mut self, origin: Origin, member: peer::Member, deadline: Duration) {
        match membership::check_add(&self.members, &member) {
            Ok(()) => self.membership.want(Wanted::Join { member, origin, deadline }),
            Err(error) => self.settle(vec![(origin, Err(Failure::Membership(error)))]),
        }
    }

    fn take_write(&mut self, origin: Origin, command: Command, deadline: Duration) {
        if let Some(why) = &self.disk_full {
            return self.settle(vec![(origin, Err(Failure::DiskFull(why.clone())))]);
        }
        let size_bytes = writes::size_bytes(&command);
        let write = Waiting { origin, command, size_bytes, deadline };
        if let Err(refused) = self.writes.push(write) {
            self.settle(vec![refused]);
        }
    }

    pub(super) fn take_message(&mut self, from: NodeId, message: peer::Message) {
        match message.say {
            Some(Say::Raft(message)) if message.kind == MSG_SNAPSHOT => {
                self.take_snapshot_offer(from, message);
            }
            Some(Say::Raft(message)) => {
                self.raft.step(message);
            }
            Some(Say::Forward(forward)) => {
                for request in forward.requests {
                    self.take_forwarded(from, request);
                }
            }
            Some(Say::Answered(answered)) => {
                let mut settled = Vec::new();
                for answer in answered.answers {
                    let Ok(outcome) = entry::decode_reply(answer.outcome) else { continue };
                    let patience = self.options.heartbeat();
                    let now = self.now.monotonic;
                    self.forwarding.answered(answer.id, outcome, now, patience, &mut settled);
                }
                self.settle(settled);
            }
            Some(Say::SnapshotWanted(wanted)) => self.serve_chunk(from, wanted),
            Some(Say::SnapshotChunk(chunk)) => self.take_chunk(from, chunk),
            None => {}
        }
    }

    fn take_forwarded(&mut self, from: NodeId, request: peer::ForwardedRequest) {
        let origin = Origin::Node { node: from, id: request.id };
        if !self.leads() {
            return self.settle(vec![(origin, Err(Failure::NoLeader))]);
        }
        if let Some(member) = request.join {
            let deadline = self.now.monotonic + limits::REQUEST_DEADLINE;
            return self.take_join(origin, member, deadline);
        }
        if membership::find(&self.members, from).is_none() {
            let failure = Failure::NotServing("it was removed from its site");
            return self.settle(vec![(origin, Err(failure))]);
        }
        // A request that does not decode is of a newer version: say so by not answering it as ours.
        let Ok(request) = entry::decode_request(request.request) else {
            let failure = Failure::NotServing("its version does not know this request");
            return self.settle(vec![(origin, Err(failure))]);
        };
        let deadline = request.deadline_ms.map_or(limits::REQUEST_DEADLINE, Duration::from_millis);
        self.take_for_leader(origin, request.body, self.now.monotonic + deadline);
    }

    pub(super) fn link_lost(&mut self, node: NodeId) {
        self.raft.unreachable(node);
        if self.raft.wants_snapshot(node) {
            self.raft.snapshot_sent(node, false);
        }
        if self.raft.leader() == Some(node) {
            let mut settled = Vec::new();
            self.forwarding.lost(&mut settled);
            self.settle(settled);
        }
    }

    pub(super) fn disk_is_full(&mut self, why: String) {
        let mut settled = Vec::new();
        self.writes.refuse_waiting(&Failure::DiskFull(why.clone()), &mut settled);
        if self.raft.is_persisting() {
            self.writes.doubt_proposed(&mut settled);
        }
        self.disk_full = Some(why);
        self.tick_proposed = false;
        self.settle(settled);
    }

    /// What a tick of time brings beside raft's own part.
    pub(super) fn on_tick(&mut self) {
        let now = self.now.monotonic;
        let mut settled = Vec::new();
        self.writes.give_up(now, &mut settled);
        self.forwarding.give_up(now, &mut settled);
        self.membership.give_up(now, self.leads(), &mut settled);
        for ticket in self.reads.give_up(now) {
            settled.push((Origin::Client(ticket), Err(Failure::NoLeader)));
        }
        self.settle(settled);
        if self.options.witness && self.leads() && !self.raft.is_transferring() {
            self.hand_over();
        }
    }

    /// A witness that had to lead hands over to the data node that holds most of the log.
    fn hand_over(&mut self) {
        let able = self.members.nodes.iter().filter(|member| !member.witness);
        let able = able.filter(|member| self.members.voters.contains(&member.node));
        let reached = able.filter_map(|member| {
            let (matched, active) = self.raft.progress(NodeId(member.node))?;
            active.then_some((matched, member.node))
        });
        if let Some((_, node)) = reached.max() {
            self.raft.transfer_to(NodeId(node));
        }
    }

    /// Everything that can happen now happens; what must be done outside goes to `outputs`.
    pub(super) fn advance(&mut self) {
        self.follow_leadership();
        self.drive_membership();
        self.propose_writes();
        self.begin_reads();
        while let Some(effects) = self.raft.ready() {
            // What goes to others leaves first: their disks and ours then work at the same time.
            for message in effects.send {
                let to = NodeId(message.to);
                self.outputs.push_back(Output::Send { to, message: Say::Raft(message).into() });
            }
            self.outputs.extend(effects.persist.map(Output::Persist));
            for (round, index) in effects.reads {
                self.round_confirmed(round, index);
            }
            self.apply(effects.committed);
            if self.failed {
                return;
            }
        }
        while let Some(reads) = self.reads.take_ready(self.applied) {
            reads.into_iter().for_each(|read| self.answer_read(read));
        }
        if self.raft.take_snapshot_wanted() && !self.writing_snapshot {
            self.write_snapshot();
        }
        self.want_chunk();
        self.move_gate();
        self.send_replies();
    }

    /// Moves requests to where the leader is now.
    fn follow_leadership(&mut self) {
        let led_by = (self.raft.leader(), self.raft.term());
        if led_by != self.led_by {
            self.led_by = led_by;
            self.lease_until = None;
            self.tick_proposed = false;
            let mut settled = Vec::new();
            self.forwarding.lost(&mut settled);
            self.membership.give_up(self.now.monotonic, self.leads(), &mut settled);
            self.settle(settled);
            self.reads.ask_again();
        }
        if self.leads() {
            for (ticket, body, deadline) in self.forwarding.take_all() {
                self.take_for_leader(Origin::Client(ticket), body, deadline);
            }
            return;
        }
        for (node, id) in self.writes.take_foreign() {
            self.settle(vec![(Origin::Node { node, id }, Err(Failure::NoLeader))]);
        }
        for write in self.writes.take_all() {
            let Some(ticket) = write.origin.ticket() else { continue };
            let body = Body::Write(write.command);
            if let Err(refused) = self.forwarding.push(ticket, body, write.deadline) {
                self.settle(vec![refused]);
            }
        }
        let (Some(leader), term) = self.led_by else { return };
        let requests = self.forwarding.to_send(leader, term, self.now.monotonic);
        if !requests.is_empty() {
            let message = Say::Forward(peer::Forward { requests }).into();
            self.outputs.push_back(Output::Send { to: leader, message });
        }
    }

    fn drive_membership(&mut self) {
        if !self.leads() || self.raft.members_change_pending() {
            return;
        }
        let mut settled = Vec::new();
        let wanted = self.membership.next(&self.members, &mut settled);
        self.settle(settled);
        let change = wanted.or_else(|| {
            membership::promotion(&self.members, |node| {
                let committed = self.raft.committed_index();
                self.raft.progress(node).is_some_and(|(matched, active)| {
                    active && matched > 0 && matched + membership::CAUGHT_UP_ENTRIES >= committed
                })
            })
        });
        if let Some(change) = change {
            self.raft.propose_members(&change);
        }
    }

    /// Makes entries of the writes that wait, unless one is on its way to disk: then they gather.
    fn propose_writes(&mut self) {
        if !self.leads() || self.options.witness {
            return;
        }
        self.propose_tick();
        while self.writes.waiting() > 0 && !self.raft.is_persisting() {
            let mut encoder = BatchEncoder::new();
            let batch = self.writes.take_batch(&mut encoder);
            let log_time_ms = self.last_log_time_ms.max(self.now.wall_ms);
            let Some((index, term)) = self.raft.propose(encoder.finish(log_time_ms)) else {
                return self.writes.put_back(batch);
            };
            self.last_log_time_ms = log_time_ms;
            self.writes.proposed(index, term, batch);
            if self.writes.waiting() < limits::BATCH_COMMANDS_MAX {
                return;
            }
        }
    }

    /// Lets time into the log when a key's time has come, or something waits to be trimmed.
    fn propose_tick(&mut self) {
        let due = self.machine.tick_due_ms().is_some_and(|at| at <= self.now.wall_ms);
        if !due || self.tick_proposed || self.disk_full.is_some() {
            return;
        }
        self.tick_proposed = true;
        let deadline = self.now.monotonic + limits::REQUEST_DEADLINE;
        self.take_write(Origin::Nobody, Command::Tick, deadline);
    }

    fn begin_reads(&mut self) {
        if self.leads() && !self.raft.committed_in_term() {
            return;
        }
        let patience = self.options.heartbeat();
        if let Some(round) = self.reads.next_round(self.now.monotonic, patience) {
            self.raft.read_index(round);
        }
    }

    fn round_confirmed(&mut self, round: u64, index: u64) {
        let Some(started) = self.reads.confirmed(round, index) else { return };
        if self.leads() && !self.raft.is_transferring() {
            let span = self.options.election_timeout().mul_f64(1.0 - LEASE_MARGIN);
            self.lease_until = Some(started + span);
        }
    }

    fn apply(&mut self, committed: Vec<Committed>) {
        if self.incoming.as_ref().is_some_and(|incoming| matches!(incoming.taking, Taking::Loading))
        {
            return self.held.extend(committed);
        }
        let committed: Vec<_> =
            committed.into_iter().filter(|entry| entry.index > self.applied).collect();
        let Some(last) = committed.last() else { return };
        let last = last.index;
        if let Err(error) = self.apply_to_machine(committed) {
            return self.fail(error);
        }
        self.applied = last;
        self.raft.applied(last);
        self.outputs.push_back(Output::Applied);
        self.snapshot_if_long();
    }

    fn apply_to_machine(&mut self, committed: Vec<Committed>) -> Result<(), String> {
        let mut decoded = Vec::with_capacity(committed.len());
        for one in committed {
            let Committed { index, term, content } = one;
            let (batch, members) = match content {
                Content::Commands(payload) => {
                    self.log_bytes += payload.len() as u64;
                    let holds_commands = !payload.is_empty() && !self.options.witness;
                    let batch = holds_commands.then(|| entry::decode(payload)).transpose();
                    (
                        batch.map_err(|error| {
                            format!("log entry {index} is not readable: {error}")
                        })?,
                        None,
                    )
                }
                Content::Members(change) => {
                    self.raft.apply_members(&mut self.members, &change);
                    self.members_changed();
                    (None, Some(Bytes::from(self.members.encode_to_vec())))
                }
            };
            decoded.push((index, term, batch, members));
        }
        let entries: Vec<_> = decoded
            .iter()
            .map(|(index, term, batch, members)| machine::Committed {
                index: *index,
                term: *term,
                batch: batch.as_ref(),
                members: members.clone(),
            })
            .collect();
        let mut answers = Vec::new();
        self.machine.apply(&entries, &mut answers).map_err(|error| error.to_string())?;
        self.last_log_time_ms = self.last_log_time_ms.max(self.machine.log_time_ms());
        let mut settled = Vec::with_capacity(answers.len());
        let mut answers = answers.into_iter();
        for (index, term, batch, _) in &decoded {
            let commands = batch.as_ref().map_or(&[][..], |batch| &batch.commands);
            let count = commands.len();
            self.tick_proposed &= !commands.contains(&Command::Tick);
            let mut of_entry = answers.by_ref().take(count);
            self.writes.applied(*index, *term, &mut of_entry, &mut settled);
            of_entry.for_each(drop);
        }
        self.settle(settled);
        Ok(())
    }

    fn members_changed(&mut self) {
        self.outputs.push_back(Output::Members(self.members.clone()));
        let listed = membership::find(&self.members, self.options.node).is_some();
        self.removed = !listed && !self.members.nodes.is_empty();
        self.move_gate();
    }

    fn snapshot_if_long(&mut self) {
        let in_use =
            self.last_chunk_served.is_some_and(|at| at + SNAPSHOT_IN_USE > self.now.monotonic);
        if self.log_bytes < self.snapshot_at_bytes || self.writing_snapshot || in_use {
            return;
        }
        let state_bytes = self.state.size_bytes();
        if self.log_bytes < state_bytes {
            self.snapshot_at_bytes = state_bytes;
            return;
        }
        self.write_snapshot();
    }

    fn write_snapshot(&mut self) {
        self.writing_snapshot = true;
        self.log_bytes = 0;
        self.snapshot_at_bytes = self.options.log_bytes_before_snapshot;
        let head = SnapshotHead {
            index: self.applied,
            term: self.machine.applied().term,
            members: self.members.encode_to_vec().into(),
        };
        self.outputs.push_back(Output::WriteSnapshot { head, view: self.state.view() });
    }

    pub(super) fn snapshot_written(&mut self, written: Result<SnapshotHead, String>) {
        self.writing_snapshot = false;
        // A snapshot that failed is tried again when the log has grown as much once more.
        let Ok(head) = written else { return };
        if self.finish_witness_snapshot(&head) {
            return;
        }
        let start = self.raft.start();
        let kept = head.index.saturating_sub(limits::LOG_ENTRIES_KEPT_BEHIND_SNAPSHOT);
        let cut = kept.max(start.index);
        let term = if cut == start.index {
            start.term
        } else {
            self.raft.term_of(cut).unwrap_or(head.term)
        };
        let members = decode_members(&head.members);
        let at = LogStart { index: head.index, term: head.term };
        self.raft.snapshot_written(at, &members, LogStart { index: cut, term });
        self.snapshot = Some(head);
        if cut > start.index {
            self.outputs.push_back(Output::CutLog(LogStart { index: cut, term }));
        }
    }

    /// A follower asks for a piece of a snapshot of ours.
    fn serve_chunk(&mut self, from: NodeId, wanted: peer::SnapshotWanted) {
        self.last_chunk_served = Some(self.now.monotonic);
        let bytes_max = limits::SNAPSHOT_CHUNK_BYTES_MAX;
        let chunk = match self.snapshots.read_chunk(wanted.index, wanted.offset, bytes_max) {
            Ok(chunk) => chunk,
            Err(SnapshotError::Absent { .. }) => {
                self.raft.snapshot_sent(from, false);
                Chunk { offset: wanted.offset, bytes: Bytes::new(), total_bytes: 0 }
            }
            Err(error) => return self.fail(error),
        };
        let Chunk { offset, bytes, total_bytes } = chunk;
        let chunk = peer::SnapshotChunk { index: wanted.index, offset, total_bytes, bytes };
        self.outputs
            .push_back(Output::Send { to: from, message: Say::SnapshotChunk(chunk).into() });
    }

    /// The leader says that we need a snapshot.
    fn take_snapshot_offer(&mut self, from: NodeId, message: peer::Raft) {
        let Some(index) = message.snapshot.as_ref().map(|head| head.index) else { return };
        if self.incoming.as_ref().is_some_and(|incoming| {
            incoming.index == index || matches!(incoming.taking, Taking::Loading)
        }) {
            return;
        }
        if index <= self.applied {
            self.raft.step(message);
            return;
        }
        let taking = Taking::Pieces { offset: 0, ask_again: Duration::ZERO };
        self.incoming = Some(Incoming { from, index, message, taking });
        if self.options.witness {
            self.take_witness_snapshot();
        }
    }

    fn want_chunk(&mut self) {
        let patience = self.options.election_timeout();
        let now = self.now.monotonic;
        let Some(incoming) = &mut self.incoming else { return };
        let to = incoming.from;
        if let Some(wanted) = incoming.next_wanted(now, patience) {
            let message = Say::SnapshotWanted(wanted).into();
            self.outputs.push_back(Output::Send { to, message });
        }
    }

    fn take_chunk(&mut self, from: NodeId, piece: peer::SnapshotChunk) {
        let Some(incoming) = &mut self.incoming else { return };
        let asked =
            matches!(incoming.taking, Taking::Pieces { offset, .. } if offset == piece.offset);
        if incoming.from != from || incoming.index != piece.index || !asked {
            return;
        }
        if piece.total_bytes == 0 {
            self.incoming = None;
            return;
        }
        let chunk =
            Chunk { offset: piece.offset, bytes: piece.bytes, total_bytes: piece.total_bytes };
        match self.snapshots.receive(piece.index, &chunk) {
            Ok(next) => incoming.took(next, chunk.total_bytes),
            // Asked for again after a while, perhaps with room.
            Err(SnapshotError::Full { .. }) => return,
            Err(error) => return self.fail(error),
        }
        if matches!(incoming.taking, Taking::Loading) {
            self.outputs.push_back(Output::InstallSnapshot { index: piece.index });
            self.move_gate();
        }
    }

    pub(super) fn snapshot_installed(&mut self, installed: Result<SnapshotHead, String>) {
        let head = match installed {
            Ok(head) => head,
            // What the state holds now is not known; at the next start it is rebuilt.
            Err(why) => return self.fail(format!("a snapshot could not be installed: {why}")),
        };
        match self.machine.reload() {
            Ok(()) => self.take_effect(head),
            Err(error) => self.fail(error),
        }
    }

    /// A witness needs no more of a snapshot than what it is of.
    fn take_witness_snapshot(&mut self) {
        let Some(incoming) = &mut self.incoming else { return };
        incoming.taking = Taking::Loading;
        let Some(head) = incoming.message.snapshot.clone() else { return };
        let members: Bytes = head.members.unwrap_or_default().encode_to_vec().into();
        let applied = machine::Applied { index: head.index, term: head.term };
        if let Err(error) = self.machine.skip_to(applied, members.clone()) {
            return self.fail(error);
        }
        let head = SnapshotHead { index: head.index, term: head.term, members };
        self.outputs.push_back(Output::WriteSnapshot { head, view: self.state.view() });
    }

    fn finish_witness_snapshot(&mut self, head: &SnapshotHead) -> bool {
        let taken = self.options.witness
            && self.incoming.as_ref().is_some_and(|incoming| incoming.index == head.index);
        if taken {
            self.take_effect(head.clone());
        }
        taken
    }

    /// The state is that of a snapshot now: raft and everybody who waits are told.
    fn take_effect(&mut self, head: SnapshotHead) {
        let Some(incoming) = self.incoming.take() else { return };
        self.applied = head.index;
        self.members = decode_members(&head.members);
        self.members_changed();
        self.last_log_time_ms = self.last_log_time_ms.max(self.machine.log_time_ms());
        self.log_bytes = 0;
        let mut settled = Vec::new();
        self.writes.covered_by_snapshot(head.index, &mut settled);
        self.settle(settled);
        self.snapshot = Some(head);
        self.raft.step(incoming.message);
        let held = std::mem::take(&mut self.held);
        self.apply(held);
        self.outputs.push_back(Output::Applied);
    }

    pub(super) fn move_gate(&mut self) {
        let loading = self
            .incoming
            .as_ref()
            .is_some_and(|incoming| matches!(incoming.taking, Taking::Loading));
        let only_voter =
            self.members.voters == [self.options.node.0] && self.members.voters_outgoing.is_empty();
        let leads = self.leads() && self.raft.committed_in_term();
        let gate = if loading || self.options.witness || self.removed || self.failed {
            ReadGate::Closed
        } else if leads && only_voter && !self.raft.members_change_pending() {
            ReadGate::Open
        } else {
            match self.lease_until {
                Some(until) if leads && !self.raft.is_transferring() => ReadGate::Lease(until),
                _ => ReadGate::Stale,
            }
        };
        if gate != self.gate {
            self.gate = gate;
            self.outputs.push_back(Output::Gate(gate));
        }
    }

    pub(super) fn settle(&mut self, settled: Vec<Settled>) {
        for (origin, outcome) in settled {
            match origin {
                Origin::Client(ticket) => {
                    self.outputs.push_back(Output::Answer { ticket, outcome });
                }
                Origin::Node { node, id } => {
                    let tells_members = matches!(
                        outcome,
                        Ok(Answer::Flag(true)) | Err(Failure::NoLeader | Failure::Membership(_))
                    );
                    let members = tells_members.then(|| self.members.clone());
                    let outcome = entry::encode_reply(&outcome);
                    let answer = peer::ForwardedAnswer { id, outcome, members };
                    self.replies.entry(node).or_default().push(answer);
                }
                Origin::Nobody => {}
            }
        }
    }

    fn send_replies(&mut self) {
        for (to, answers) in std::mem::take(&mut self.replies) {
            let message = Say::Answered(peer::Answered { answers }).into();
            self.outputs.push_back(Output::Send { to, message });
        }
    }

    /// Whether nothing but a key's expiry can happen without an input.
    pub(super) fn is_quiet(&self) -> bool {
        self.raft.role() == Role::Leader
            && self.members.voters == [self.options.node.0]
            && self.members.learners.is_empty()
            && self.members.voters_outgoing.is_empty()
            && self.writes.is_idle()
            && self.reads.is_idle()
            && self.forwarding.is_idle()
            && self.membership.is_idle()
    }
}

fn decode_members(bytes: &Bytes) -> peer::Members {
    peer::Members::decode(bytes.clone()).expect("members are checked where they come in")
}
