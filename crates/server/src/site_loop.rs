//! The thread that runs a site's core: events in, outputs performed.

use crate::chores::Chore;
use crate::desk::{Desk, Outcome, desk_of, lock};
use crate::disk_loop::DiskJob;
use crate::handle::Shared;
use crate::links::Links;
use crate::node::{Desks, Event, Stopped};
use protocol::Core;
use protocol::site::{Input, Output, Site, Ticket};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use storage::log::Reader as LogReader;
use storage::snapshot::Folder;
use storage::state::fjall::{FjallState, FjallView};

/// Events taken in before their outputs are performed.
const EVENTS_PER_ROUND_MAX: usize = 1_024;
/// How old a published status may be while something happens.
const STATUS_INTERVAL: Duration = Duration::from_millis(50);

/// The core as a real node runs it.
pub(crate) type RealSite = Site<FjallState, LogReader, Folder>;

pub(crate) struct SiteLoop {
    pub(crate) site: RealSite,
    pub(crate) events: mpsc::Receiver<Event>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) desks: Desks,
    pub(crate) links: Links,
    pub(crate) disk: mpsc::Sender<DiskJob>,
    pub(crate) chores: mpsc::Sender<Chore>,
    pub(crate) stopped: tokio::sync::watch::Sender<Option<Stopped>>,
}

impl SiteLoop {
    /// Runs until told to stop, or until the replica cannot go on.
    pub(crate) fn run(mut self) {
        let mut answers: Vec<Vec<(Ticket, Outcome)>> = Vec::new();
        let mut published = Duration::ZERO;
        let mut stale_status = true;
        let end = loop {
            let now = self.shared.clock.now();
            let mut deadline = self.site.deadline();
            if stale_status {
                let at = published + STATUS_INTERVAL;
                deadline = Some(deadline.map_or(at, |deadline| deadline.min(at)));
            }
            let first = match deadline {
                None => self.events.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(at) => self.events.recv_timeout(at.saturating_sub(now.monotonic)),
            };
            let now = self.shared.clock.now();
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
                end = end.or(self.take(now, event));
            }
            self.site.timeout(now);
            let mut applied = false;
            while let Some(output) = self.site.poll() {
                if let Some(failed) = self.perform(output, &mut answers, &mut applied) {
                    end = Some(failed);
                }
            }
            self.links.flush();
            self.deliver(&mut answers);
            if applied && self.shared.applied.receiver_count() > 0 {
                self.shared.applied.send_modify(|rounds| *rounds += 1);
            }
            stale_status = true;
            if published + STATUS_INTERVAL <= now.monotonic {
                self.publish();
                published = now.monotonic;
                stale_status = false;
            }
            if let Some(end) = end {
                break end;
            }
        };
        self.shared.gate.set(protocol::site::ReadGate::Closed);
        if let Stopped::Failed(why) = &end {
            tracing::error!("this node cannot go on: {why}");
        }
        let _ = self.disk.send(DiskJob::Stop);
        self.stopped.send_replace(Some(end));
    }

    fn take(&mut self, now: model::Time, event: Event) -> Option<Stopped> {
        let input = match event {
            Event::Requests(requests) => {
                self.shared.requests_waiting.fetch_sub(requests.len(), Ordering::Relaxed);
                for (ticket, request) in requests {
                    self.site.handle(now, Input::Request { ticket, request });
                }
                return None;
            }
            Event::Message { from, message } => {
                self.links.taken();
                Input::Message { from, message }
            }
            Event::LinkLost(node) => Input::LinkLost(node),
            Event::Across { site, node, message } => {
                self.links.taken();
                Input::Across { site, node, message }
            }
            Event::AcrossLost { site, node } => Input::AcrossLost { site, node },
            Event::SlotMap(asker) => {
                // Whoever asked may have gone.
                let _ = asker.send((self.site.slot_map(), self.site.leaders()));
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
                let _ = self.chores.send(Chore::PrepareSpare(spare));
                return None;
            }
            Event::Failed(why) => return Some(Stopped::Failed(why)),
            Event::Stop => return Some(Stopped::Asked),
        };
        self.site.handle(now, input);
        None
    }

    fn perform(
        &mut self,
        output: Output<FjallView>,
        answers: &mut Vec<Vec<(Ticket, Outcome)>>,
        applied: &mut bool,
    ) -> Option<Stopped> {
        match output {
            Output::Persist(persist) => drop(self.disk.send(DiskJob::Persist(*persist))),
            Output::CutLog(start) => drop(self.disk.send(DiskJob::Cut(start))),
            Output::Send { to, message } => self.links.send(to, &message),
            Output::SendAcross { site, node, message } => {
                self.links.send_across(site, node, *message);
            }
            Output::Deployment { own, registry } => {
                if registry.site(own).is_none() {
                    tracing::warn!(
                        site = %self.shared.site,
                        "this site has left its deployment: stop it when nobody uses its own keys any \
                         more; to have it join again, start it on an empty data directory"
                    );
                }
                self.links.set_deployment(own, &registry);
            }
            Output::Holds(slots) => {
                for (slots, epoch) in &slots.0 {
                    tracing::debug!(%slots, %epoch, "this site holds slots");
                }
            }
            Output::Answer { ticket, outcome } => {
                let desk = desk_of(ticket);
                if answers.len() <= desk {
                    answers.resize_with(desk + 1, Vec::new);
                }
                answers[desk].push((ticket, outcome));
            }
            Output::Gate(gate) => self.shared.gate.set(gate),
            Output::Applied => *applied = true,
            Output::Members(members) => self.links.set_members(&members),
            Output::WriteSnapshot { head, view } => {
                drop(self.chores.send(Chore::WriteSnapshot { head, view }));
            }
            Output::InstallSnapshot { index } => {
                drop(self.chores.send(Chore::InstallSnapshot { index }));
            }
            Output::Fatal(why) => return Some(Stopped::Failed(why)),
        }
        None
    }

    fn deliver(&self, answers: &mut [Vec<(Ticket, Outcome)>]) {
        if answers.iter().all(Vec::is_empty) {
            return;
        }
        let desks: Vec<Arc<Desk>> = lock(&self.desks).clone();
        for (desk, answers) in desks.iter().zip(answers) {
            if !answers.is_empty() {
                desk.deliver(answers);
            }
        }
    }

    fn publish(&self) {
        let status = Arc::new(self.site.status());
        *self.shared.status.write().unwrap_or_else(PoisonError::into_inner) = status;
    }
}
