//! How a replica moves on: leadership followed, batches proposed, entries applied.

use super::jobs::When;
use super::machine;
use super::{Origin, Output, ReadGate, Site};
use crate::admission::{Target, target_of};
use crate::bugs::Bug;
use crate::origin::Served;
use crate::replica::membership;
use crate::replica::moments;
use crate::replica::raft::{Committed, EntryContent};
use crate::replica::reads::LEASE_MARGIN;
use crate::replica::writes::Waiting;
use bytes::Bytes;
use model::{Body, Command, Failure, NodeId, OperatorCommand, limits};
use prost::Message as _;
use storage::log::LogReader;
use storage::snapshot::Snapshots;
use storage::state::State;
use wire::entry;
use wire::peer::{self, Content};

impl<S: State, R: LogReader, N: Snapshots> Site<S, R, N> {
    /// What a tick of time brings beside raft's own part.
    pub(super) fn on_tick(&mut self) {
        let now = self.now.monotonic;
        self.replica.contact.tick(&self.replica.members);
        let mut settled = Vec::new();
        self.replica.writes.give_up(now, &mut settled);
        self.replica.forwarding.give_up(now, &mut settled);
        self.replica.membership.give_up(now, self.options.node, self.leads(), &mut settled);
        self.replica.leader_transfer.give_up(now, &mut settled);
        for origin in self.replica.reads.give_up(now) {
            settled.push((origin, Err(Failure::NoLeader)));
        }
        self.settle(settled);
        self.tick_deployment();
        self.tick_causal();
        if self.leads() {
            self.offer_again();
            let may_write = !self.snapshots.is_writing && !self.snapshots.is_loading();
            if self.rare.happens() && may_write && !self.options.witness {
                self.write_snapshot();
            }
        }
        if self.rare.happens() {
            // As if the link to the leader had broken: what was sent is sent again.
            let mut settled = Vec::new();
            self.replica.forwarding.lost(&mut settled);
            self.settle(settled);
        }
        // Others have room for what this one has not: under one of them the site goes on.
        self.replica.count_stuck_ticks();
        let is_loading = self.snapshots.is_loading();
        if self.leads() && (self.options.witness || is_loading || self.is_behind_by_full_disk()) {
            self.transfer_leadership();
        }
    }

    /// A witness that had to lead, or a leader that is to be removed, has no room or loads a
    /// snapshot, transfers its leadership to the data node that holds most of the log, or to the next one where
    /// that one did not take over.
    pub(super) fn transfer_leadership(&mut self) {
        if self.replica.raft.is_transferring() {
            return;
        }
        let own = self.options.node.0;
        let others = self.replica.members.nodes.iter().filter(|member| member.node != own);
        let able = others.filter(|member| !member.witness);
        let able = able.filter(|member| self.replica.members.voters.contains(&member.node));
        let reached = able.filter_map(|member| {
            let (matched, active) = self.replica.raft.progress(NodeId(member.node))?;
            active.then_some((matched, NodeId(member.node)))
        });
        let term = self.replica.raft.term();
        if let Some(node) = self.replica.leader_transfer.choose(term, reached) {
            self.transfer_to(node);
        }
    }

    pub(super) fn transfer_to(&mut self, node: NodeId) {
        if !self.options.planted.is(Bug::LeaseThroughTransfer) {
            self.replica.lease_until = None;
            self.replica.lease_barred_term = self.replica.raft.term();
        }
        self.replica.raft.transfer_to(node);
    }

    /// Everything that can happen now happens; what must be done outside goes to `outputs`.
    pub(super) fn advance(&mut self) {
        self.follow_leadership();
        self.drive_membership();
        self.take_waiting_messages();
        self.drive_changes();
        self.route_due();
        self.run_jobs(When::Input);
        self.run_causal_jobs();
        self.propose_writes();
        self.begin_reads();
        while let Some(effects) = self.replica.raft.ready() {
            // What goes to others leaves first: their disks and ours then work at the same time.
            for message in effects.send {
                let to = NodeId(message.to);
                self.send(to, Content::Raft(message));
            }
            self.outputs.extend(effects.persist.map(Box::new).map(Output::Persist));
            for (round, index) in effects.reads {
                self.round_confirmed(round, index);
            }
            self.apply(effects.committed);
            if self.failed {
                return;
            }
        }
        self.admit_sessions();
        while let Some(reads) = self.replica.reads.take_ready(self.replica.applied) {
            reads.into_iter().for_each(|read| self.answer_read(read));
        }
        self.hand_out_answers();
        let due = self.replica.reads.take_due(self.machine.log_time_ms());
        due.into_iter().for_each(|read| self.answer_read(read));
        // Until a snapshot is loaded the state has parts of it.
        let is_whole = !self.snapshots.is_loading();
        if is_whole && self.replica.raft.take_snapshot_wanted() && !self.snapshots.is_writing {
            self.write_snapshot();
        }
        self.want_chunk();
        self.move_gate();
        self.move_pace();
        self.route_due();
        self.send_replies();
        self.flush_inter_site();
    }

    /// Moves requests to where the leader is now.
    pub(super) fn follow_leadership(&mut self) {
        let led_by = (self.replica.raft.leader(), self.replica.raft.term());
        if led_by != self.replica.led_by {
            self.replica.led_by = led_by;
            self.jobs.begin();
            self.causal.begin_leading(self.leads(), self.replica.raft.last_index());
            self.replica.lease_until = None;
            self.replica.tick_proposed = false;
            let mut settled = Vec::new();
            self.replica.forwarding.lost(&mut settled);
            if !self.leads() {
                self.ask_next_leader_to_remove_us();
            }
            self.replica.membership.give_up(
                self.now.monotonic,
                self.options.node,
                self.leads(),
                &mut settled,
            );
            self.settle(settled);
            self.replica.reads.ask_again();
            self.replica.contact.begin();
        }
        let transferring = self.replica.raft.is_transferring();
        let mut settled = Vec::new();
        self.replica.leader_transfer.follow(self.replica.raft.leader(), transferring, &mut settled);
        self.settle(settled);
        if self.leads() {
            for (origin, body, deadline) in self.replica.forwarding.take_all() {
                // It may have come when this node had no state, and did not look at the token of a
                // session.
                match self.is_of_session(origin, &body) {
                    true => self.take_any(origin, body, deadline),
                    false => self.take_for_leader(origin, body, deadline),
                }
            }
            return;
        }
        if self.replica.writes.is_idle() {
            self.replica.forwarding.nothing_taken();
        }
        for (node, id) in self.replica.writes.take_foreign() {
            self.settle(vec![(
                Origin::Node { node, id, served: Served::NONE },
                Err(Failure::NoLeader),
            )]);
        }
        for write in self.replica.writes.take_all() {
            if write.origin == Origin::Discard {
                continue;
            }
            let is_numbered = write.is_numbered_by(self.options.client);
            let Waiting { origin, command, deadline, .. } = write;
            let body = Body::Write(command);
            match (origin, target_of(&body, self)) {
                // It leaves this node now: see [`Site::goes_straight`].
                (Origin::Client { .. }, Ok(target @ Target::Slot(_))) if !is_numbered => {
                    self.route(origin, body, target, deadline);
                }
                _ => {
                    let refused = self.replica.forwarding.push(origin, body, deadline).err();
                    self.settle(refused.into_iter().collect());
                }
            }
        }
        let (Some(leader), term) = self.replica.led_by else { return };
        let (sessions, routing) = (&self.sessions, &self.global.routing);
        let token_of = |origin| {
            let requester = routing.requester(origin);
            sessions.came(requester).map(|token| Bytes::copy_from_slice(token.bytes()))
        };
        let now = self.now.monotonic;
        let requests = self.replica.forwarding.take_unsent(leader, term, now, token_of);
        for requests in peer::in_parts(requests) {
            self.send(leader, Content::Forward(peer::Forward { requests }));
        }
    }

    /// It was for that that leadership was handed over.
    fn ask_next_leader_to_remove_us(&mut self) {
        let own = self.options.node;
        let mut settled = Vec::new();
        for (origin, (force, id), deadline) in self.replica.membership.take_leaving(own) {
            // That leader finds for itself whether it may go.
            let body = Body::Operator(OperatorCommand::RemoveNode { node: own, force, id });
            settled.extend(self.replica.forwarding.push(origin, body, deadline).err());
        }
        self.settle(settled);
    }

    pub(super) fn drive_membership(&mut self) {
        let is_pending = self.replica.raft.members_change_pending();
        if !self.leads() || is_pending || !self.replica.is_settled() {
            return;
        }
        let mut settled = Vec::new();
        let ticks = self.replica.contact.ticks();
        let mut membership = std::mem::take(&mut self.replica.membership);
        let context = membership::Context {
            members: &self.replica.members,
            ticks,
            is_lost: &|node| self.replica.is_lost(&self.options, node),
            contact_tick: &|node| self.replica.contact_tick(&self.options, node),
        };
        let wanted = membership.next(&context, &mut settled);
        self.replica.membership = membership;
        self.settle(settled);
        if wanted.as_ref().is_some_and(|change| membership::removes(change, self.options.node)) {
            return self.transfer_leadership();
        }
        let change = wanted.or_else(|| {
            membership::promotion(&self.replica.members, |node| {
                let committed = self.replica.raft.committed_index();
                self.replica.raft.progress(node).is_some_and(|(matched, active)| {
                    active && matched > 0 && matched + membership::CAUGHT_UP_ENTRIES >= committed
                })
            })
        });
        if let Some(change) = change {
            self.replica.raft.propose_members(&change);
        }
    }

    /// Makes entries of the writes that wait, unless one is on its way to disk: then they gather.
    pub(super) fn propose_writes(&mut self) {
        if !self.leads() || self.options.witness {
            return;
        }
        self.propose_tick();
        // The leader before may have let more time into the log than was applied here: until that
        // is known, a moment by the wall clock would become one that has passed.
        if self.machine.applied().term != self.replica.raft.term()
            && self.replica.writes.name_moments()
        {
            return;
        }
        while self.replica.writes.waiting() > 0 && !self.replica.raft.is_persisting() {
            let count_max = if self.rare.happens() { 1 } else { limits::BATCH_COMMANDS_MAX };
            let wall_ahead_ms = self.replica.log_clock.wall_ahead_ms();
            let (mut batch, encoder) = self.replica.writes.take_batch(count_max, wall_ahead_ms);
            let log_time_ms = self.replica.log_clock.now_ms();
            let Some((index, term)) = self.replica.raft.propose(encoder.finish(log_time_ms)) else {
                return self.replica.writes.put_back(batch);
            };
            self.replica.log_clock.reached(log_time_ms);
            batch.batch.log_time_ms = log_time_ms;
            if self.options.planted.is(Bug::AcknowledgeBeforeQuorum) {
                let mut settled = Vec::new();
                batch.acknowledge_puts(index, &mut settled);
                self.settle(settled);
            }
            self.replica.writes.proposed(index, term, batch);
            if self.replica.writes.waiting() < count_max {
                return;
            }
        }
    }

    /// Lets time into the log when a key's time has come, or something waits to be trimmed, or
    /// nothing has been in it for long.
    pub(super) fn propose_tick(&mut self) {
        let at = [self.machine.tick_due_ms(), self.replica.log_clock.idle_until_ms()];
        let due = at.into_iter().flatten().any(|at| at <= self.replica.log_clock.now_ms());
        if !due || self.replica.tick_proposed || self.replica.disk_full.is_some() {
            return;
        }
        self.replica.tick_proposed = true;
        let deadline = self.now.monotonic + limits::REQUEST_DEADLINE;
        self.take_write(Origin::Discard, Command::Tick, deadline);
    }

    pub(super) fn begin_reads(&mut self) {
        if self.rare.happens() {
            self.replica.reads.ask_again();
        }
        if self.leads() && !self.replica.raft.committed_in_term() {
            return;
        }
        let timeout = self.options.heartbeat();
        if let Some(round) = self.replica.reads.next_round(self.now.monotonic, timeout) {
            self.replica.raft.read_index(round);
        }
    }

    pub(super) fn round_confirmed(&mut self, round: u64, index: u64) {
        let Some(started) = self.replica.reads.confirmed(round, index) else { return };
        if self.leads() && self.replica.lease_barred_term != self.replica.raft.term() {
            // A follower may count the rest of a tick as a whole one.
            let refused = self.options.election_timeout().saturating_sub(self.options.tick);
            let span = match self.options.planted.is(Bug::LeaseWithoutMargin) {
                true => self.options.election_timeout(),
                false => refused.mul_f64(1.0 - LEASE_MARGIN),
            };
            self.replica.lease_until = Some(started + span);
        }
    }

    pub(super) fn apply(&mut self, committed: Vec<Committed>) {
        if self.snapshots.is_loading() {
            return self.replica.held.extend(committed);
        }
        let (covered, committed): (Vec<_>, Vec<_>) =
            committed.into_iter().partition(|entry| entry.index <= self.replica.applied);
        self.reconfigure(&covered);
        if let Some(last) = covered.last() {
            self.replica.raft.applied(last.index);
        }
        let Some(last) = committed.last() else { return };
        let last = last.index;
        if let Err(error) = self.apply_to_machine(committed) {
            return self.fail(error);
        }
        self.replica.applied = last;
        self.replica.raft.applied(last);
        if self.snapshots.incoming.as_ref().is_some_and(|incoming| incoming.index <= last) {
            // The entries came after all, by another leader perhaps: the snapshot is old.
            self.snapshots.incoming = None;
        }
        self.outputs.push_back(Output::Applied);
        self.follow_deployment();
        self.snapshot_if_long();
    }

    /// Entries that a snapshot covers change nothing here but the consensus's own configuration,
    /// which only a snapshot that replaces the log brings along.
    pub(super) fn reconfigure(&mut self, covered: &[Committed]) {
        for entry in covered {
            if let EntryContent::Members(change) = &entry.content {
                self.replica.raft.apply_members(
                    &mut self.replica.members.clone(),
                    change,
                    entry.index,
                );
            }
        }
    }

    pub(super) fn apply_to_machine(&mut self, committed: Vec<Committed>) -> Result<(), String> {
        let mut decoded = Vec::with_capacity(committed.len());
        for one in committed {
            let Committed { index, term, content } = one;
            let (batch, members) = match content {
                EntryContent::Commands(payload) => {
                    self.snapshots.log_bytes += payload.len() as u64;
                    (self.read_batch(index, term, payload)?, None)
                }
                EntryContent::Members(change) => {
                    let before = self.replica.members.clone();
                    self.replica.raft.apply_members(&mut self.replica.members, &change, index);
                    if !self.options.planted.is(Bug::ShowNewVoters) {
                        self.replica.note_change(before, index);
                    }
                    // Before the change is durable: after a restart this node finds it again.
                    self.check_own_life()?;
                    self.members_changed();
                    (None, Some(Bytes::from(self.replica.members.encode_to_vec())))
                }
            };
            decoded.push((index, term, batch, members));
        }
        let entries: Vec<_> = decoded
            .iter()
            .map(|(index, term, batch, members)| machine::Committed {
                index: *index,
                term: *term,
                batch: self.replica.writes.batch_of(*index, *term).or(batch.as_ref()),
                members: members.clone(),
            })
            .collect();
        let mut answers = Vec::with_capacity(self.replica.writes.in_flight());
        self.machine.apply(&entries, &mut answers).map_err(|error| error.to_string())?;
        self.replica.log_clock.reached(self.machine.log_time_ms());
        let (now_ms, wall_ahead_ms) =
            (self.replica.log_clock.now_ms(), self.replica.log_clock.wall_ahead_ms());
        for answer in answers.iter_mut().flatten() {
            moments::for_others(answer, now_ms, wall_ahead_ms);
        }
        let of_entry = |entry: &machine::Committed<'_>| {
            let commands = entry.batch.map_or(&[][..], |batch| &batch.commands);
            (entry.index, entry.term, commands.len(), commands.contains(&Command::Tick))
        };
        let applied: Vec<_> = entries.iter().map(of_entry).collect();
        let (mut settled, mut moved) = (Vec::with_capacity(answers.len()), Vec::new());
        let mut answers = answers.into_iter();
        for (index, term, count, has_tick) in applied {
            self.replica.tick_proposed &= !has_tick;
            let mut of_entry = answers.by_ref().take(count);
            self.replica.writes.applied(index, term, &mut of_entry, (&mut settled, &mut moved));
            of_entry.for_each(drop);
        }
        self.sessions_wrote(&settled);
        let settled = self.keep_clears(settled);
        self.settle(settled);
        for (slot, Waiting { origin, command, deadline, .. }) in moved {
            self.route_later(origin, Body::Write(command), Target::Slot(slot), deadline);
        }
        Ok(())
    }

    /// What an entry carries, unless this node has it at hand or keeps no data.
    fn read_batch(
        &self,
        index: u64,
        term: u64,
        payload: Bytes,
    ) -> Result<Option<entry::Batch>, String> {
        if payload.is_empty()
            || self.options.witness
            || self.replica.writes.batch_of(index, term).is_some()
        {
            return Ok(None);
        }
        let batch = entry::decode(payload);
        batch.map(Some).map_err(|error| format!("log entry {index} is not readable: {error}"))
    }

    pub(super) fn members_changed(&mut self) {
        self.replica.raft.know_members(&self.replica.members);
        self.outputs.push_back(Output::Members(self.replica.members.clone()));
        let listed = membership::find(&self.replica.members, self.options.node).is_some();
        self.replica.removed = !listed && !self.replica.members.nodes.is_empty();
        self.move_gate();
    }

    pub(super) fn move_gate(&mut self) {
        let is_loading = self.snapshots.is_loading();
        self.replica.raft.set_loading(is_loading);
        let holds_data = !is_loading && !self.options.witness;
        let gate = if !holds_data || self.replica.removed || self.failed {
            ReadGate::Closed
        } else if self.replica.has_applied_all(&self.options) {
            self.replica.leads_for_sure(&self.options)
        } else {
            ReadGate::Stale
        };
        self.replica.gate.set(gate);
    }

    /// Whether nothing but a key's expiry can happen without an input.
    pub(super) fn is_quiet(&self) -> bool {
        self.replica.is_quiet(&self.options)
            && self.global.routing.is_idle()
            && self.is_alone()
            && self.deployment.changes.is_idle()
            && self.causal.is_idle()
    }
}
