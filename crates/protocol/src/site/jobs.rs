//! The jobs of a site's leader ([`crate::job`]): when they are polled, and how their effects are
//! performed.
//!
//! A node that does not lead stops its jobs instead. An operator can pause a job at the leader: it
//! begins nothing more until it is resumed, while answers to what it has asked are still taken in.
//! The switch is volatile: whenever leadership changes all jobs go on. Every effect of every job
//! goes through [`Site::perform`], every outcome through [`Site::job_answered`].

use super::balancing::Balancing;
use super::confirming::Confirming;
use super::leaving::Leaving;
use super::lending::Loans;
use super::placing::Placing;
use super::registering::Registering;
use super::release::Release;
use super::stranded::Stranded;
use super::{Origin, Site};
use crate::bugs::{of_causal, of_rules};
use crate::causal::bridge::Bridge;
use crate::causal::distribute::Distribute;
use crate::causal::export::Export;
use crate::causal::fetch::Fetch;
use crate::causal::import::Import;
use crate::causal::resync::{Resync, Sizes};
use crate::causal::roots::Roots;
use crate::causal::standby::Standbys;
use crate::global::failover::FailoverJobs;
use crate::global::handover::Handovers;
use crate::global::map::{Fact, RunFact, Source};
use crate::global::mirroring::MirrorDriver;
use crate::job::{Effect, Job};
use model::{Answer, Command, Failure, JobName, JobStatus, SiteId, SlotEpochs, limits};
use std::collections::BTreeMap;
use std::time::Duration;
use storage::log::LogReader;
use storage::snapshot::Snapshots;
use storage::state::State;

/// The span over which a rate is counted.
const WINDOW: Duration = Duration::from_secs(10);

/// What a job has done under this leader.
#[derive(Debug, Default)]
struct Meter {
    paused: bool,
    steps: u64,
    errors: u64,
    last_error: Option<(String, Duration)>,
    window_began: Duration,
    /// Steps in this window, and in the one before.
    in_window: u64,
    in_last: u64,
}

impl Meter {
    fn step(&mut self, now: Duration) {
        if self.window_began + WINDOW <= now {
            let is_next = now < self.window_began + 2 * WINDOW;
            self.in_last = if is_next { self.in_window } else { 0 };
            (self.window_began, self.in_window) = (now, 0);
        }
        self.steps += 1;
        self.in_window += 1;
    }

    fn failed(&mut self, failure: &Failure, now: Duration) {
        self.errors += 1;
        self.last_error = Some((failure.to_string(), now));
    }

    fn steps_per_min(&self, now: Duration) -> u64 {
        let steps = match now.saturating_sub(self.window_began) {
            age if age < WINDOW => self.in_last.max(self.in_window),
            age if age < 2 * WINDOW => self.in_window,
            _ => 0,
        };
        steps * (60 / WINDOW.as_secs())
    }
}

/// When a job is polled.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    /// At each input.
    Input,
    /// At each input of a site in a region, behind those: the jobs of causal keys
    /// ([`Site::run_causal_jobs`]).
    Causal,
    /// At each tick, when what fronts have noted of accesses is counted.
    Counted,
    /// At each tick, when the sites that do not answer are known.
    Tick,
    /// Each second, ahead of what other sites are sent about mirrors.
    Gossip,
    /// Twice a second, behind a look at the registry.
    Look,
}

/// Declares [`Jobs`] from a table of all jobs: one line each.
macro_rules! jobs {
    ($options:ident; $($when:ident: $name:ident, $field:ident: $job:ty = $new:expr;)*) => {
        /// All of them.
        #[derive(Debug)]
        pub(super) struct Jobs {
            meters: BTreeMap<JobName, Meter>,
            $(pub(super) $field: $job,)*
        }

        impl Jobs {
            /// In the order in which they are polled.
            const POLLED: [(JobName, When); JobName::ALL.len()] =
                [$((JobName::$name, When::$when)),*];

            pub(super) fn new($options: &super::Options) -> Jobs {
                Jobs { meters: BTreeMap::new(), $($field: $new,)* }
            }

            fn of<S: State>(&self, name: JobName) -> &dyn Job<S> {
                match name { $(JobName::$name => &self.$field,)* }
            }

            fn of_mut<S: State>(&mut self, name: JobName) -> &mut dyn Job<S> {
                match name { $(JobName::$name => &mut self.$field,)* }
            }
        }
    };
}

// When the job is polled, its name, its field, and how it begins. Of one moment they are polled in
// this order.
jobs! { options;
    Input: Handover, handover: Handovers = Handovers::new(options.handover_bytes_per_s_max, options.planted);
    Input: Mirror, mirror: MirrorDriver = MirrorDriver::new(options.handover_bytes_per_s_max);
    Input: Lend, lend: Loans = Loans::default();
    Causal: Export, export: Export = Export::new(of_causal(options.planted));
    Causal: Distribute, distribute: Distribute = Distribute::new(of_causal(options.planted));
    Causal: Import, import: Import = Import::new(of_causal(options.planted));
    Causal: Bridge, bridge: Bridge = Bridge::default();
    Causal: Fetch, fetch: Fetch = Fetch::default();
    Causal: Resync, resync: Resync = Resync::new(sizes_of(options), of_causal(options.planted));
    Causal: Root, roots: Roots = Roots::new(of_causal(options.planted));
    Causal: Standby, standby: Standbys = Standbys::new(of_causal(options.planted));
    Counted: Place, place: Placing = Placing::new(options);
    Tick: Failover, failover: FailoverJobs = FailoverJobs::new(of_rules(options.planted));
    Gossip: Release, release: Release = Release::default();
    Gossip: Reclaim, reclaim: Stranded = Stranded::default();
    Gossip: Confirm, confirm: Confirming = Confirming::default();
    Look: Balance, balance: Balancing = Balancing::default();
    Look: Leave, leave: Leaving = Leaving::default();
    Look: Register, register: Registering = Registering::default();
}

/// How much of the order is kept, and how much one message of it carries.
fn sizes_of(options: &super::Options) -> Sizes {
    Sizes {
        kept_bytes_max: options.causal_kept_bytes_max,
        chunk_bytes_max: options.causal_resync_bytes_max,
    }
}

impl Jobs {
    /// Another leader, or another term: nothing is paused, and counts begin anew.
    pub(super) fn begin(&mut self) {
        self.meters.clear();
    }

    fn meter(&mut self, name: JobName) -> &mut Meter {
        self.meters.entry(name).or_default()
    }

    fn is_paused(&self, name: JobName) -> bool {
        self.meters.get(&name).is_some_and(|meter| meter.paused)
    }

    /// When the first of them must be polled.
    pub(super) fn next_due<S: State>(&self, now: Duration) -> Option<Duration> {
        JobName::ALL.into_iter().filter_map(|name| self.of::<S>(name).next_due(now)).min()
    }
}

/// What the jobs see of a site: its other fields, so that they can be borrowed beside it.
macro_rules! view {
    ($site:expr) => {
        $crate::job::View {
            now: $site.now.monotonic,
            machine: &$site.machine,
            preferred_owners: &$site.global.preferred_owners,
            failure_detector: &$site.deployment.failure_detector,
            round_trips: $site.global.routing.round_trips(),
            versions: &$site.deployment.versions,
            standby_has: $site.jobs.standby.acknowledged(),
            layout: $site.causal.layout.as_ref(),
            backup: $site.global.backup,
            backups: &$site.global.backups,
            log_now_ms: $site.replica.log_clock.now_ms(),
            wall_ms: $site.now.wall_ms,
            client: $site.options.client,
            leads: $site.runs_jobs(),
            disk_is_full: $site.replica.disk_full.is_some(),
        }
    };
}
pub(super) use view;

impl<S: State, R: LogReader, N: Snapshots> Site<S, R, N> {
    /// What the jobs do, at the leader; none elsewhere.
    pub(super) fn job_list(&self) -> Vec<JobStatus> {
        let view = view!(self);
        if !view.leads {
            return Vec::new();
        }
        let none = Meter::default();
        let status = |name| {
            let progress = self.jobs.of(name).progress(&view);
            let meter = self.jobs.meters.get(&name).unwrap_or(&none);
            let waits_for = self.jobs.of(name).waits_for(&view).map(|why| (why, view.now));
            let last_error = waits_for.or_else(|| meter.last_error.clone());
            let (last_error, at) = last_error.unwrap_or_default();
            let is_none = last_error.is_empty();
            JobStatus {
                name,
                paused: meter.paused,
                left: progress.left,
                sent_bytes: progress.sent_bytes,
                steps: meter.steps,
                steps_per_min: meter.steps_per_min(view.now),
                errors: meter.errors,
                last_error,
                last_error_ago_ms: match is_none {
                    true => 0,
                    false => view.now.saturating_sub(at).as_millis() as u64,
                },
            }
        };
        JobName::ALL.into_iter().map(status).collect()
    }

    /// An operator pauses a job, or resumes it.
    pub(super) fn switch_job(&mut self, origin: Origin, job: JobName, paused: bool) {
        self.jobs.meter(job).paused = paused;
        self.show_jobs(origin);
    }

    pub(super) fn show_jobs(&mut self, origin: Origin) {
        let jobs = Answer::Jobs(self.job_list());
        self.settle(vec![(origin, Ok(jobs))]);
    }

    /// Lets the jobs of a moment take their next steps.
    /// Whether this node's jobs work: it leads, and its state is whole.
    pub(super) fn runs_jobs(&self) -> bool {
        self.leads() && !self.snapshots.is_loading()
    }

    pub(super) fn run_jobs(&mut self, when: When) {
        for (name, _) in Jobs::POLLED.into_iter().filter(|(_, at)| *at == when) {
            self.run_job(name);
        }
    }

    fn run_job(&mut self, name: JobName) {
        let (view, jobs) = (view!(self), &mut self.jobs);
        let is_paused = jobs.is_paused(name);
        let job = jobs.of_mut(name);
        let effects = match (view.leads, is_paused) {
            (false, _) => job.stop(),
            (true, true) => job.poll_paused(&view),
            (true, false) => job.poll(&view),
        };
        self.perform(name, effects);
    }

    /// What came of an effect.
    pub(super) fn job_answered(
        &mut self,
        name: JobName,
        id: u64,
        outcome: Result<Answer, Failure>,
    ) {
        self.causal.stopped_under = None;
        let (view, jobs) = (view!(self), &mut self.jobs);
        if let Err(failure) = &outcome {
            jobs.meter(name).failed(failure, view.now);
        }
        let effects = jobs.of_mut(name).answered(id, outcome, &view);
        self.perform(name, effects);
    }

    /// Performs what a job wants done, in order.
    pub(super) fn perform(&mut self, name: JobName, effects: Vec<Effect>) {
        for effect in effects {
            let is_step = !matches!(
                effect,
                Effect::Owned { .. } | Effect::Fail(_) | Effect::Call(_) | Effect::Settle(..)
            );
            if is_step {
                self.jobs.meter(name).step(self.now.monotonic);
            }
            let now = self.now.monotonic;
            let origin_of =
                |id: Option<u64>| id.map_or(Origin::Discard, |id| Origin::Job { job: name, id });
            match effect {
                Effect::Propose(command) => self.propose(command),
                Effect::Ask { id, to, command, timeout } => {
                    self.take_at_site(origin_of(id), to, command, now + timeout);
                }
                Effect::Send { to, message, awaited } => {
                    if awaited {
                        self.deployment.failure_detector.asked(to, now);
                    }
                    self.send_to_site(to, message);
                }
                Effect::SendNode { site, node, message } => {
                    self.send_inter_site(site, node, message)
                }
                Effect::SendAll { to, message } => self.send_to_all(to, message),
                Effect::Call(site) => self.ask_alive(site),
                Effect::Change { id, change, request, timeout } => {
                    let (origin, deadline) = (origin_of(id), now + timeout);
                    match request {
                        Some(_) => self.take_change(origin, change, request, deadline),
                        None => self.change_registry(origin, change, deadline),
                    }
                }
                Effect::Recover { without } => {
                    self.recover_registry(without, now + limits::REQUEST_DEADLINE);
                }
                Effect::Settle(origin, outcome) => self.settle(vec![(origin, outcome)]),
                Effect::Owned { slots, by } => self.slots_owned(&slots, by),
                Effect::Fail(why) => self.fail(why),
            }
        }
    }

    /// A command of this site's own; whatever comes of it.
    pub(super) fn propose(&mut self, command: Command) {
        let deadline = self.now.monotonic + limits::REQUEST_DEADLINE;
        self.take_write(Origin::Discard, command, deadline);
    }

    /// Another site serves these slots: what waits for them is sent there.
    fn slots_owned(&mut self, slots: &SlotEpochs, by: SiteId) {
        for (slots, epoch) in &slots.0 {
            for (first, last) in slots.ranges() {
                let fact = Fact { epoch: *epoch, owner: by };
                let run = RunFact { first: *first, last: *last, fact };
                self.global.routing.learn(run, Source::Other, self.now.monotonic);
            }
        }
        self.global.routing.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_of_the_last_seconds() {
        let mut meter = Meter::default();
        let at = Duration::from_secs;
        assert_eq!(meter.steps_per_min(at(100)), 0);
        (100..110).for_each(|second| meter.step(at(second)));
        assert_eq!(meter.steps_per_min(at(109)), 60);
        meter.step(at(111));
        assert_eq!(meter.steps_per_min(at(112)), 60, "of the window before");
        assert_eq!(meter.steps_per_min(at(122)), 6);
        assert_eq!(meter.steps_per_min(at(140)), 0);
        assert_eq!(meter.steps, 11);
    }
}
