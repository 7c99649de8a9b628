//! The outputs of a core, performed: messages sent, logs made durable, snapshots written, clients
//! answered. The counterpart of `server`'s threads.

use super::node::{BackgroundTask, DiskJob, Process};
use super::{ASK_AGAIN, Answered, Down, Event, Held, Led, NodeIndex, Simulation, text};
use crate::link::Link;
use model::{Answer, Failure, NodeId, SessionToken};
use protocol::Core;
use protocol::bugs::Bug;
use protocol::site::{Input, NotInstalled, Output, ReadGate, Ticket};
use std::time::Duration;
use storage::log::{LogError, LogWriter};
use storage::snapshot::Snapshots;
use storage::state::memory::MemoryView;
use wire::inter_site::{InterSite, InterSiteMessage};
use wire::peer::{Content, Message};

/// What every message carries besides its content: frame and headers, in bytes.
const MESSAGE_OVERHEAD_BYTES: usize = 60;

/// etcd's number for the message that lets another node stand for election at once.
const MSG_TIMEOUT_NOW: u32 = 14;

/// The bytes of a message over a link. Only one that serialises or loses packets asks for them.
fn bytes_over(link: &Link, message: &Message) -> usize {
    match link.mbps.is_some() || link.loss > 0.0 {
        true => text::size_bytes(message) + MESSAGE_OVERHEAD_BYTES,
        false => 0,
    }
}

impl<C> Simulation<C> {
    fn process(&mut self, node: NodeIndex) -> Option<&mut Process> {
        self.nodes[node].process.as_mut()
    }

    /// Something happened to a node.
    pub(super) fn input(&mut self, node: NodeIndex, input: Input) {
        let now = self.time(node);
        if let Some(process) = self.process(node) {
            process.site.handle(now, input);
            process.site.timeout(now);
        }
        self.perform_all(node);
    }

    /// Performs a core's effects, and wakes the core in time.
    pub(super) fn perform_all(&mut self, node: NodeIndex) {
        self.note_causal(node);
        while let Some(output) = self.process(node).and_then(|process| process.site.poll()) {
            self.outputs += 1;
            let performed = self.outputs;
            if let Some((_, down, rest)) = self.crash_at.take_if(|(at, ..)| *at == performed) {
                self.note_causal(node);
                return self.bounce(node, &down, rest);
            }
            self.perform(node, output);
        }
        // What it has applied meanwhile it may have sent, and it may crash before its next event.
        self.note_causal(node);
        self.see_who_leads(node);
        self.schedule_wake(node);
    }

    fn note_causal(&mut self, node: NodeIndex) {
        if self.settings.notes_order {
            self.note_own(node);
            self.note_order(node);
        }
    }

    pub(super) fn schedule_wake(&mut self, node: NodeIndex) {
        let one = &self.nodes[node];
        let Some(process) = &one.process else { return };
        let deadlines = [process.site.deadline(), process.proxy_reads.deadline()];
        let Some(deadline) = deadlines.into_iter().flatten().min() else { return };
        let at = one.clock.when(deadline).max(self.now);
        if one.wakes_at.is_none_or(|wakes_at| at < wakes_at) {
            self.nodes[node].wakes_at = Some(at);
            self.queue.push(at, Event::Wake { node });
        }
    }

    /// A message with the token of [`super::Settings::answers_token`] beside each answer in it.
    fn with_tokens(&self, mut message: Message) -> Message {
        if let (Some(token), Some(Content::Answered(answered))) =
            (self.settings.answers_token, &mut message.content)
        {
            answered.answers.iter_mut().for_each(|one| one.token = Some(token.into()));
        }
        message
    }

    fn with_inter_site_tokens(&self, mut message: InterSiteMessage) -> InterSiteMessage {
        if let (Some(token), Some(InterSite::Answered(answered))) =
            (self.settings.answers_token, &mut message.content)
        {
            answered.answers.iter_mut().for_each(|one| one.token = Some(token.into()));
        }
        message
    }

    fn see_who_leads(&mut self, node: NodeIndex) {
        let one = &mut self.nodes[node];
        let changes = one.process.as_ref().map_or(0, |process| process.site.ring_changes());
        self.ring_changed |= std::mem::replace(&mut one.ring_changes, changes) != changes;
        let changes = one.process.as_ref().map_or(0, |process| process.site.loan_changes());
        self.loans_changed |= std::mem::replace(&mut one.loan_changes, changes) != changes;
        let Some(term) = one.process.as_ref().and_then(|process| process.site.leads_in()) else {
            return;
        };
        if one.led_term != term {
            one.led_term = term;
            self.led.push(Led { at: self.now, node, term });
        }
    }

    fn perform(&mut self, node: NodeIndex, output: Output<MemoryView>) {
        match output {
            Output::Persist(persist) => {
                self.note_of(node, || text::persist(&persist));
                self.disk_job(node, DiskJob::Persist(*persist));
            }
            Output::CutLog(start) => {
                self.note_of(node, || format!("cuts its log after {}", start.index));
                self.disk_job(node, DiskJob::Cut(start));
            }
            Output::Send { to, message } => {
                let lets_lead = matches!(&message.content, Some(Content::Raft(raft)) if raft.kind == MSG_TIMEOUT_NOW);
                if lets_lead {
                    self.see_gate(node, ReadGate::Stale, "lets another node lead");
                }
                let nodes = &self.sites[self.nodes[node].site].nodes;
                if let Some(to) = nodes.get((to.0 as usize).wrapping_sub(1)).copied() {
                    let message = self.with_tokens(*message);
                    self.send(node, to, message);
                }
            }
            Output::SendInterSite { site, node: other, message } => {
                let message = self.with_inter_site_tokens(*message);
                self.send_to(node, site, other, message);
            }
            Output::Deployment { own, registry, has_left } => {
                let site = self.nodes[node].site;
                self.sites[site].has_left = has_left;
                self.sites[site].id = Some(own);
                self.note_registry(own, &registry);
                self.note_of(node, || format!("is of {own}, registry {}", registry.version));
            }
            Output::Holds(slots) => {
                let site = self.nodes[node].site;
                self.note_of(node, || text::held(&slots));
                let life = self.sites[site].life;
                // A site that founds a deployment holds all slots before its id is put out.
                let id = self.sites[site].id.unwrap_or(model::SiteId(1));
                self.held.push(Held { at: self.now, site, life, id, slots });
            }
            Output::Answer { ticket, outcome, token } => {
                self.answer(node, ticket, (outcome, token))
            }
            Output::Gate(gate) => {
                if let Some(process) = self.process(node) {
                    process.gate = gate;
                }
            }
            Output::Applied => {
                if self.random.chance(self.settings.state_persist_permille) {
                    self.nodes[node].state.persist();
                }
            }
            Output::MemberSince(index) => self.nodes[node].member_since = index,
            Output::Members(members) => {
                let (voters, learners) = (&members.voters, &members.learners);
                self.note_of(node, || {
                    format!("members are voters {voters:?} learners {learners:?}")
                });
            }
            Output::WriteSnapshot { head, view } => {
                self.note_of(node, || format!("writes a snapshot of {}", head.index));
                self.in_background(node, BackgroundTask::Write { head, view });
            }
            Output::InstallSnapshot { index } => {
                self.see_gate(node, ReadGate::Closed, "has its state replaced");
                self.note_of(node, || format!("installs the snapshot of {index}"));
                self.in_background(node, BackgroundTask::Finish { index });
            }
            Output::Warn(what) => self.note_of(node, || format!("warns: {what}")),
            Output::Fatal(why) if self.is_replaced(node) && self.is_refusal(node, &why) => {
                self.note_of(node, || format!("stops: {why}"));
                self.crash(node, &Down::Killed);
                self.nodes[node].refused = Some(why);
            }
            Output::Fatal(why) => self.fail(format!("{} cannot go on: {why}", self.name(node))),
        }
    }

    /// Whether a node stops because it is not to take part. The lab's links have no greeting, so an
    /// old disk may receive the leader's first, which counts on what the later one has.
    fn is_refusal(&self, node: NodeIndex, why: &str) -> bool {
        let is_trusted = self.settings.planted.is(Bug::TrustOldDisks);
        let is_old = self.nodes[node].is_on_old_disk() && !is_trusted;
        why.contains("earlier life") || (is_old && why.contains("earlier state"))
    }

    /// Whether another node of its site lists another life of a node.
    fn is_replaced(&self, node: NodeIndex) -> bool {
        let one = &self.nodes[node];
        let others = self.sites[one.site].nodes.iter().filter_map(|other| self.status(*other));
        others
            .flat_map(|status| status.members.nodes)
            .any(|member| member.node == one.id && member.incarnation != one.incarnation)
    }

    /// A node does what reads must not pass its core in: computing takes no time here, so that no
    /// client could notice.
    fn see_gate(&mut self, node: NodeIndex, widest: ReadGate, does: &str) {
        let gate = self.process(node).map_or(ReadGate::Closed, |process| process.gate);
        if gate > widest {
            self.fail(format!("{} {does} while its gate is {gate:?}", self.name(node)));
        }
    }

    pub(super) fn answer(
        &mut self,
        node: NodeIndex,
        ticket: Ticket,
        (outcome, token): (Result<Answer, Failure>, Option<SessionToken>),
    ) {
        self.note_of(node, || {
            let of_session = token.as_ref().map(|token| format!(", {}", text::session(token)));
            let of_session = of_session.unwrap_or_default();
            format!("answers #{} {}{of_session}", ticket.0, text::outcome(&outcome))
        });
        let expected =
            self.process(node).is_some_and(|process| process.tickets.remove(&ticket).is_some());
        if !expected {
            return self.fail(format!("{} answers #{} twice", self.name(node), ticket.0));
        }
        self.judge_order(ticket, &outcome);
        if let Some(outcome) = self.receive(ticket, outcome) {
            self.answered.push(Answered { ticket, outcome, token });
        }
    }

    pub(super) fn send(&mut self, from: NodeIndex, to: NodeIndex, message: Message) {
        let (sender, receiver) = (self.nodes[from].id, self.nodes[to].id);
        let network = &mut self.sites[self.nodes[from].site].network;
        let bytes = bytes_over(&network.link, &message);
        match network.send(sender, receiver, self.now, bytes, &mut self.random) {
            Some((arrival, connection)) => {
                let message = Box::new(message);
                self.queue.push(arrival, Event::Deliver { from, to, connection, message });
            }
            None => self.note_message(from, "✗", to, &message),
        }
    }

    /// A line about a message, unless the message contains nothing new.
    pub(super) fn note_message(
        &mut self,
        from: NodeIndex,
        arrow: &str,
        to: NodeIndex,
        message: &Message,
    ) {
        if self.trace.is_some()
            && let Some(line) = text::message(message)
        {
            let line = format!("{} {arrow} {}  {line}", self.nodes[from].name, self.nodes[to].name);
            self.note(|| line);
        }
    }

    // ---- other sites ----------------------------------------------------------------------------

    /// Sends a message to a node of another site.
    pub(super) fn send_inter_site(&mut self, from: NodeIndex, to: NodeIndex, message: Message) {
        if let Some(message) = self.hold_back(from, to, message) {
            self.send_now(from, to, message);
        }
    }

    pub(super) fn send_now(&mut self, from: NodeIndex, to: NodeIndex, message: Message) {
        let (sender, receiver) = ((from, self.nodes[from].site), (to, self.nodes[to].site));
        debug_assert_ne!(sender.1, receiver.1, "nodes of one site have links of their own");
        let link = self.between.link(sender.1, receiver.1);
        let bytes = bytes_over(&link, &message);
        self.inter_site_bytes += bytes as u64;
        match self.between.send(sender, receiver, self.now, bytes, &link) {
            Some((arrival, connection)) => {
                let message = Box::new(message);
                self.queue.push(arrival, Event::DeliverInterSite { from, to, connection, message });
            }
            None => self.note_message(from, "✗", to, &message),
        }
    }

    /// A message from a node of another site is there.
    pub(super) fn deliver_inter_site(&mut self, from: NodeIndex, to: NodeIndex, message: Message) {
        self.note_message(from, "⇒", to, &message);
        let site = self.sites[self.nodes[from].site].id;
        if let (Some(site), Some(Content::InterSite(message))) = (site, message.content) {
            let node = NodeId(self.nodes[from].id);
            if let Some(message) = self.receive_inter_site(to, (site, node), message) {
                self.input(to, Input::InterSite { site, node, message });
            }
        }
    }

    /// A node is notified that its connection to a node of another site is broken.
    pub(super) fn inter_site_lost(&mut self, node: NodeIndex, other: NodeIndex) {
        if self.trace.is_some() {
            let line = format!("{} has lost {}", self.nodes[node].name, self.nodes[other].name);
            self.note(|| line);
        }
        if let Some(site) = self.sites[self.nodes[other].site].id {
            let other = NodeId(self.nodes[other].id);
            self.proxy_reads_lost(node, (site, other));
            self.input(node, Input::InterSiteLost { site, node: other });
        }
    }

    // ---- the log's thread -----------------------------------------------------------------------

    fn disk_job(&mut self, node: NodeIndex, job: DiskJob) {
        let Some(process) = self.process(node) else { return };
        process.jobs.push_back(job);
        if !std::mem::replace(&mut process.disk_busy, true) {
            self.write_jobs(node);
        }
    }

    /// Writes all that waits; [`Self::disk_done`] makes it durable.
    fn write_jobs(&mut self, node: NodeIndex) {
        let life = self.nodes[node].life;
        let Some(process) = self.process(node) else { return };
        while let Some(job) = process.jobs.front() {
            let written = match job {
                DiskJob::Cut(start) => process.writer.cut(*start),
                DiskJob::Persist(persist) => {
                    let restarted =
                        persist.restart.map_or(Ok(()), |start| process.writer.restart(start));
                    restarted.and_then(|()| process.writer.write(&persist.append))
                }
            };
            match written {
                Ok(()) => {
                    if let Some(DiskJob::Persist(persist)) = process.jobs.pop_front() {
                        process.syncing = Some(persist.number);
                    }
                }
                Err(LogError::Full { .. }) => {
                    // Cuts make room.
                    let waits = |job: &DiskJob| !matches!(job, DiskJob::Cut(_));
                    process.jobs.make_contiguous().sort_by_key(waits);
                    let was_full = std::mem::replace(&mut process.disk_full, true);
                    self.after(ASK_AGAIN, Event::Disk { node, life });
                    if !was_full {
                        self.note_of(node, || "its disk is full".to_owned());
                        self.input(node, Input::DiskFull("it is full".to_owned()));
                    }
                    return;
                }
                Err(error) => return self.fail(format!("{}: {error}", self.name(node))),
            }
        }
        let sync = self.random.between(self.settings.sync) + self.nodes[node].slow;
        self.after(sync, Event::Disk { node, life });
        if self.settings.planted.is(Bug::AnswerBeforeSync)
            && let Some(number) = self.process(node).and_then(|process| process.syncing.take())
        {
            self.input(node, Input::Persisted(number));
        }
    }

    pub(super) fn disk_done(&mut self, node: NodeIndex) {
        let lies = std::mem::take(&mut self.nodes[node].lies);
        let disk = self.nodes[node].disk.clone();
        let skips = self.settings.planted.is(Bug::SkipSync);
        let Some(process) = self.process(node) else { return };
        if lies {
            disk.fail_at(disk.operations(), storage::disk::memory::Fault::Lie);
        }
        if !skips && let Err(error) = process.writer.sync() {
            return self.fail(format!("{}: {error}", self.name(node)));
        }
        let synced = process.syncing.take();
        let had_room = process.jobs.is_empty() && std::mem::take(&mut process.disk_full);
        if let Some(number) = synced {
            self.input(node, Input::Persisted(number));
        }
        if had_room {
            self.note_of(node, || "its disk has room".to_owned());
            self.input(node, Input::DiskHasRoom);
        }
        let Some(process) = self.process(node) else { return };
        match process.jobs.is_empty() {
            true => process.disk_busy = false,
            false => self.write_jobs(node),
        }
    }

    // ---- long work ------------------------------------------------------------------------------

    fn in_background(&mut self, node: NodeIndex, task: BackgroundTask) {
        let Some(process) = self.process(node) else { return };
        process.background.push_back(task);
        if !std::mem::replace(&mut process.background_busy, true) {
            self.begin_background(node);
        }
    }

    fn begin_background(&mut self, node: NodeIndex) {
        let life = self.nodes[node].life;
        let delay: Duration = self.random.between(self.settings.background);
        self.after(delay, Event::BackgroundTask { node, life });
    }

    pub(super) fn background_done(&mut self, node: NodeIndex) {
        let persist_state = self.random.chance(self.settings.state_persist_permille);
        let Some(process) = self.process(node) else { return };
        let Some(task) = process.background.pop_front() else { return };
        let input = match task {
            BackgroundTask::Write { head, view } => {
                let written = process.snapshots.write(&head, &view);
                Some(Input::SnapshotWritten(
                    written.map(|()| head).map_err(|error| error.to_string()),
                ))
            }
            BackgroundTask::Finish { index } => match process.snapshots.finish(index) {
                Ok(head) => {
                    process.background.push_front(BackgroundTask::Load { head });
                    None
                }
                Err(error) => Some(Input::SnapshotInstalled(Err(NotInstalled::of_finish(&error)))),
            },
            BackgroundTask::Load { head } => {
                let state = process.site.state().clone();
                let loaded = process.snapshots.load(head.index, &state);
                if persist_state {
                    state.persist();
                }
                Some(Input::SnapshotInstalled(
                    loaded.map(|()| head).map_err(|error| NotInstalled::Failed(error.to_string())),
                ))
            }
        };
        match process.background.is_empty() {
            true => process.background_busy = false,
            false => self.begin_background(node),
        }
        if let Some(input) = input {
            self.input(node, input);
        }
    }
}
