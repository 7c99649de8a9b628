//! The jobs of a site's leader ([`crate::job`]): when they are polled, and how their effects are
//! performed.
//!
//! A node that does not lead stops its jobs instead. Every effect of every job goes through
//! [`Site::perform`], every outcome through [`Site::job_answered`].

use super::balancing::Balancing;
use super::leaving::Leaving;
use super::raft::Role;
use super::registering::Registering;
use super::stranded::Stranded;
use super::{Origin, Site};
use crate::global::handover::Handovers;
use crate::global::map::{Fact, RunFact, Source};
use crate::global::mirroring::MirrorDriver;
use crate::job::{Effect, Job, View};
use model::{Answer, Command, Failure, JobName, SiteId, SlotEpochs, limits};
use std::time::Duration;
use storage::log::LogReader;
use storage::snapshot::Snapshots;
use storage::state::State;

/// All of them.
#[derive(Debug)]
pub(super) struct Jobs {
    pub(super) handover: Handovers,
    pub(super) mirror: MirrorDriver,
    pub(super) balance: Balancing,
    leave: Leaving,
    register: Registering,
    reclaim: Stranded,
}

impl Jobs {
    pub(super) fn new(options: &super::Options) -> Jobs {
        Jobs {
            handover: Handovers::new(options.handover_bytes_per_s_max, options.planted),
            mirror: MirrorDriver::new(options.handover_bytes_per_s_max),
            balance: Balancing::default(),
            leave: Leaving::default(),
            register: Registering::default(),
            reclaim: Stranded::default(),
        }
    }

    fn of<S: State>(&self, name: JobName) -> &dyn Job<S> {
        match name {
            JobName::Handover => &self.handover,
            JobName::Mirror => &self.mirror,
            JobName::Balance => &self.balance,
            JobName::Leave => &self.leave,
            JobName::Register => &self.register,
            JobName::Reclaim => &self.reclaim,
        }
    }

    fn of_mut<S: State>(&mut self, name: JobName) -> &mut dyn Job<S> {
        match name {
            JobName::Handover => &mut self.handover,
            JobName::Mirror => &mut self.mirror,
            JobName::Balance => &mut self.balance,
            JobName::Leave => &mut self.leave,
            JobName::Register => &mut self.register,
            JobName::Reclaim => &mut self.reclaim,
        }
    }

    /// When the first of them must be polled.
    pub(super) fn next_due<S: State>(&self, now: Duration) -> Option<Duration> {
        JobName::ALL.into_iter().filter_map(|name| self.of::<S>(name).next_due(now)).min()
    }
}

impl<S: State, R: LogReader, N: Snapshots> Site<S, R, N> {
    /// The jobs, and what they see.
    pub(super) fn jobs_and_view(&mut self) -> (&mut Jobs, View<'_, S>) {
        let view = View {
            now: self.now.monotonic,
            machine: &self.machine,
            homes: &self.homes,
            reach: &self.reach,
            backup: self.backup,
            client: self.options.client,
            leads: self.raft.role() == Role::Leader,
            disk_is_full: self.disk_full.is_some(),
        };
        (&mut self.jobs, view)
    }

    /// Lets a job take its next steps.
    pub(super) fn run_job(&mut self, name: JobName) {
        let (jobs, view) = self.jobs_and_view();
        let job = jobs.of_mut(name);
        let effects = if view.leads { job.poll(&view) } else { job.stop() };
        self.perform(name, effects);
    }

    /// What came of an effect.
    pub(super) fn job_answered(
        &mut self,
        name: JobName,
        id: u64,
        outcome: Result<Answer, Failure>,
    ) {
        let (jobs, view) = self.jobs_and_view();
        let effects = jobs.of_mut(name).answered(id, outcome, &view);
        self.perform(name, effects);
    }

    /// Performs what a job wants done, in order.
    pub(super) fn perform(&mut self, name: JobName, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Propose(command) => self.propose(command),
                Effect::Ask { id, to, command, patience } => {
                    let origin = id.map_or(Origin::Nobody, |id| Origin::Job { job: name, id });
                    self.take_at_site(origin, to, command, self.now.monotonic + patience);
                }
                Effect::Change { change, patience } => {
                    let deadline = self.now.monotonic + patience;
                    self.change_registry(Origin::Nobody, change, deadline);
                }
                Effect::Owned { slots, by } => self.slots_owned(&slots, by),
                Effect::Fail(why) => self.fail(why),
            }
        }
    }

    /// A command of this site's own; whatever comes of it.
    pub(super) fn propose(&mut self, command: Command) {
        let deadline = self.now.monotonic + limits::REQUEST_DEADLINE;
        self.take_write(Origin::Nobody, command, deadline);
    }

    /// Another site serves these slots: what waits for them is sent there.
    fn slots_owned(&mut self, slots: &SlotEpochs, by: SiteId) {
        for (slots, epoch) in &slots.0 {
            for (first, last) in slots.ranges() {
                let fact = Fact { epoch: *epoch, owner: by };
                let run = RunFact { first: *first, last: *last, fact };
                self.routing.learn(run, Source::Other, self.now.monotonic);
            }
        }
        self.routing.wake();
    }
}
