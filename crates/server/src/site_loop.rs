//! The thread that runs a site's core: events in, outputs performed.

use crate::background::BackgroundTask;
use crate::batcher::{Batcher, Reply, batcher_of, lock};
use crate::disk_loop::DiskJob;
use crate::engine::{Publish, Released, Shell, SiteState};
use crate::handle::Shared;
use crate::identity::Identity;
use crate::links::Peers;
use crate::node::{Batchers, Event, Stopped};
use crate::proxy_reads::SharedProxyReads;
use protocol::Core;
use protocol::site::{Input, Output, Site, Status, Ticket};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use storage::log::Reader as LogReader;
use storage::snapshot::Folder;
use storage::state::fjall::FjallView;

/// Events taken in before their outputs are performed.
const EVENTS_PER_ROUND_MAX: usize = 1_024;
/// How old a published status may be while something happens.
const STATUS_INTERVAL: Duration = Duration::from_millis(50);

/// The core as a real node runs it.
pub(crate) type RealSite = Site<SiteState, LogReader, Folder>;

pub(crate) struct SiteLoop {
    pub(crate) site: RealSite,
    pub(crate) events: mpsc::Receiver<Event>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) batchers: Batchers,
    pub(crate) peers: Arc<dyn Peers>,
    /// `None`: no read may pass the core.
    pub(crate) proxy_reads: Option<Arc<SharedProxyReads>>,
    pub(crate) disk: mpsc::Sender<DiskJob>,
    pub(crate) background: mpsc::Sender<BackgroundTask>,
    pub(crate) stopped: tokio::sync::watch::Sender<Option<Stopped>>,
    /// What lies between the core and all else.
    pub(crate) shell: Shell,
}

impl SiteLoop {
    /// Runs until it is stopped, or until the replica fails.
    pub(crate) fn run(mut self) {
        let mut answers: Vec<Vec<(Ticket, Reply)>> = Vec::new();
        let mut published = Duration::ZERO;
        let mut stale_status = true;
        let end = loop {
            let now = self.shared.clock.now();
            let mut deadline = self.site.deadline();
            if stale_status {
                let at = published + STATUS_INTERVAL;
                deadline = Some(deadline.map_or(at, |deadline| deadline.min(at)));
            }
            if let Some(due) = self.shell.next_due() {
                deadline = Some(deadline.map_or(due, |deadline| deadline.min(due)));
            }
            let first = match deadline {
                None => self.events.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(at) => self.events.recv_timeout(at.saturating_sub(now.monotonic)),
            };
            let mut now = self.shared.clock.now();
            match first {
                Ok(event) => {
                    if let Some(end) = self.take(now, event) {
                        break end;
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break Stopped::Asked,
            }
            let mut end = None;
            for _ in 1..EVENTS_PER_ROUND_MAX {
                let Ok(event) = self.events.try_recv() else { break };
                // Read after the event arrived: with an older time, a lease that had ended when a
                // read arrived could still count.
                now = self.shared.clock.now();
                end = end.or(self.take(now, event));
            }
            self.site.timeout(now);
            let mut applied = false;
            for output in self.take_released() {
                if let Some(failed) = self.perform(output, &mut answers, &mut applied) {
                    end = Some(failed);
                }
            }
            while let Some(output) = self.site.poll() {
                let Some(output) = self.hold_back(now, output) else { continue };
                if let Some(failed) = self.perform(output, &mut answers, &mut applied) {
                    end = Some(failed);
                }
            }
            self.end_round(now, &mut answers);
            self.peers.flush();
            self.deliver(&mut answers);
            if applied && self.shared.applied.receiver_count() > 0 {
                self.shared.applied.send_modify(|rounds| *rounds += 1);
            }
            stale_status = true;
            if published + STATUS_INTERVAL <= now.monotonic {
                self.publish(now);
                published = now.monotonic;
                stale_status = self.shell.is_behind();
            }
            if let Some(end) = end {
                break end;
            }
        };
        self.shared.gate.set(protocol::site::ReadGate::Closed);
        if let Stopped::Failed(why) = &end {
            tracing::error!("this node cannot go on: {why}");
        }
        for (ticket, outcome) in self.shell.stop() {
            answer(&mut answers, ticket, outcome.into());
        }
        self.deliver(&mut answers);
        let _ = self.disk.send(DiskJob::Stop);
        self.stopped.send_replace(Some(end));
    }

    fn take(&mut self, now: model::Time, event: Event) -> Option<Stopped> {
        let input = match event {
            Event::Requests(requests) => {
                self.shared.requests_waiting.fetch_sub(requests.len(), Ordering::Relaxed);
                for (ticket, request) in requests {
                    let admitted = self.shell.admit(now.monotonic, ticket, &request);
                    let Some(ticket) = admitted else { continue };
                    self.site.handle(now, Input::Request { ticket, request });
                }
                return None;
            }
            Event::Message { from, message } => {
                self.peers.taken();
                if let Some(refusal) = self.shell.refusal(&message) {
                    self.peers.send(from, &refusal);
                    return None;
                }
                Input::Message { from, message }
            }
            Event::LinkLost(node) => Input::LinkLost(node),
            Event::InterSite { site, node, message } => {
                self.peers.taken();
                if self.shell.is_full() {
                    return None;
                }
                Input::InterSite { site, node, message }
            }
            Event::InterSiteLost { site, node } => Input::InterSiteLost { site, node },
            Event::Moved(moved) => Input::Moved(moved),
            Event::SlotMap(caller) => {
                // Moves are shown beside it and must be as new.
                self.publish(now);
                // The asking task may have gone.
                let _ = caller.send(self.site.map_view());
                return None;
            }
            Event::Persisted(number) => Input::Persisted(number),
            Event::DiskFull(why) => {
                tracing::warn!("writes are refused until there is room: {why}");
                Input::DiskFull(why)
            }
            Event::DiskHasRoom => {
                tracing::info!("there is room on the disk again; writes are taken");
                Input::DiskHasRoom
            }
            Event::SnapshotWritten(written) => Input::SnapshotWritten(written),
            Event::SnapshotInstalled(installed) => Input::SnapshotInstalled(installed),
            Event::SpareDue(spare) => {
                let _ = self.background.send(BackgroundTask::PrepareSpare(spare));
                return None;
            }
            Event::Flushed => {
                self.shell.flushed();
                return None;
            }
            Event::Deposed(why) => return Some(Stopped::Deposed(why)),
            Event::Failed(why) => return Some(Stopped::Failed(why)),
            Event::Stop => return Some(Stopped::Asked),
        };
        self.site.handle(now, input);
        None
    }

    fn perform(
        &mut self,
        output: Output<FjallView>,
        answers: &mut Vec<Vec<(Ticket, Reply)>>,
        applied: &mut bool,
    ) -> Option<Stopped> {
        match output {
            Output::Persist(persist) => drop(self.disk.send(DiskJob::Persist(*persist))),
            Output::CutLog(start) => drop(self.disk.send(DiskJob::Cut(start))),
            Output::Send { to, message } => self.peers.send(to, &message),
            Output::SendInterSite { site, node, message } => {
                self.peers.send_inter_site((site, node), *message);
            }
            Output::Deployment { own, registry, has_left } => {
                // A site that is not listed and has not left is about to join.
                if (has_left || registry.site(own).is_some())
                    && let Err(error) = Identity::has_left(&self.shared.data, has_left)
                {
                    tracing::warn!("cannot record whether this site has left: {error}");
                }
                if has_left {
                    tracing::warn!(
                        site = %self.shared.site,
                        "this site has left its deployment: stop it when its own keys are not in use any \
                         more; to have it join again, start it on an empty data directory"
                    );
                }
                self.peers.set_deployment(own, &registry);
            }
            Output::Holds(slots) => {
                for (slots, epoch) in &slots.0 {
                    tracing::debug!(%slots, %epoch, "this site holds slots");
                }
            }
            Output::Answer { ticket, outcome, token } => {
                answer(answers, ticket, Reply { outcome, token });
            }
            Output::Gate(gate) => self.shared.gate.set(gate),
            Output::Applied => *applied = true,
            Output::Members(members) => self.peers.set_members(&members),
            Output::MemberSince(index) => {
                let recorded = Identity::is_member_since(&self.shared.data, index);
                return recorded.err().map(|error| Stopped::Failed(error.to_string()));
            }
            Output::WriteSnapshot { head, view } => {
                drop(self.background.send(BackgroundTask::WriteSnapshot { head, view }));
            }
            Output::InstallSnapshot { index } => {
                drop(self.background.send(BackgroundTask::InstallSnapshot { index }));
            }
            Output::Warn(what) => tracing::warn!("{what}"),
            Output::Fatal(why) => return Some(Stopped::Failed(why)),
        }
        None
    }

    fn deliver(&self, answers: &mut [Vec<(Ticket, Reply)>]) {
        if answers.iter().all(Vec::is_empty) {
            return;
        }
        let batchers: Vec<Arc<Batcher>> = lock(&self.batchers).clone();
        for (batcher, answers) in batchers.iter().zip(answers) {
            if !answers.is_empty() {
                batcher.deliver(answers);
            }
        }
    }

    fn publish(&self, now: model::Time) {
        let status = match self.shell.publish(now.monotonic) {
            Publish::Later => return,
            Publish::NotReady => {
                let last = self.shared.status.read().unwrap_or_else(PoisonError::into_inner);
                Status { ready: false, ..Status::clone(&last) }
            }
            Publish::Current => {
                let mut status = self.site.status();
                // The core counts each read that came back as one that begins there.
                let (answered, came_back) =
                    self.proxy_reads.as_ref().map_or((0, 0), |reads| reads.counts());
                let (direct, redirected) = &mut status.routed_direct;
                *direct = (*direct + answered).saturating_sub(came_back);
                *redirected += came_back;
                status
            }
        };
        self.set_status(Arc::new(status));
    }

    fn set_status(&self, status: Arc<Status>) {
        *self.shared.status.write().unwrap_or_else(PoisonError::into_inner) = status;
    }

    /// The outputs that may be performed because their round is durable.
    fn take_released(&mut self) -> Vec<Output<FjallView>> {
        let Some(Released { outputs, status }) = self.shell.take_released() else {
            return Vec::new();
        };
        self.shared.released.store(status.revision.0, Ordering::SeqCst);
        self.set_status(status);
        outputs
    }

    /// Holds an output back; returns those that need not wait.
    fn hold_back(
        &mut self,
        now: model::Time,
        output: Output<FjallView>,
    ) -> Option<Output<FjallView>> {
        match self.shell.hold_back(output)? {
            Output::WriteSnapshot { head, .. } if self.shell.needs_no_snapshots() => {
                self.site.handle(now, Input::SnapshotWritten(Ok(head)));
                None
            }
            output => Some(output),
        }
    }

    /// Begins the next round if it is due, and answers requests that have waited too long.
    fn end_round(&mut self, now: model::Time, answers: &mut Vec<Vec<(Ticket, Reply)>>) {
        self.shell.begin_round(now.monotonic, || self.site.status());
        for (ticket, outcome) in self.shell.late(now.monotonic) {
            answer(answers, ticket, outcome.into());
        }
    }
}

fn answer(answers: &mut Vec<Vec<(Ticket, Reply)>>, ticket: Ticket, reply: Reply) {
    let batcher = batcher_of(ticket);
    if answers.len() <= batcher {
        answers.resize_with(batcher + 1, Vec::new);
    }
    answers[batcher].push((ticket, reply));
}
