//! Changes of the registry, as this site's leader makes them, and what is seen of its registrars.
//!
//! Any site can be asked for a change; the leader of the asked one makes it
//! ([`crate::deployment::registry::Driver`]). A step of another registrar is a request to its site,
//! one of this site's own a command, and an outcome is returned when this site's copy has it. By
//! itself a leader
//! - offers its site as a registrar where one is missing;
//! - hands in what its site has kept of another term;
//! - finishes what its site has accepted and no site makes known: its proposer may be gone;
//! - repeats a recovery that ended half-way and blocks all changes, once every listed site answers.

use super::{Origin, Site};
use crate::admission::Target;
use crate::bugs::Bug;
use crate::deployment::registry::trial::{Bug as RegistryBug, Planted};
use crate::deployment::registry::{
    Acceptor, Answered, Context, Driver, Effect, Ended, Outcome, Step, Value as _, Work, to_answer,
};
use crate::replica::writes::Settled;
use model::{
    Answer, Ballot, Body, Changed, ClientId, Command, DeploymentCommand, Failure, Keyspace,
    Refusal, RegistrarAnswer, RegistrarStep, RegistrarView, Registry, RegistryChange,
    RegistryError, RegistryView, RequestId, Retained, SiteId, limits,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use storage::log::LogReader;
use storage::snapshot::Snapshots;
use storage::state::State;

/// How long a site that is called has to answer.
const CALL: Duration = Duration::from_millis(1_500);
/// Each further site that could be a registrar waits so much longer before it offers itself.
const OFFER_NEXT: Duration = Duration::from_secs(3);
/// How long the proposer may take to make known what was accepted.
const FINISH: Duration = Duration::from_secs(3);
/// How long a recovery that has ended half-way may block changes. Each further site waits so much
/// longer before it repeats it, and twice as long after each attempt: each has a term of its own.
const REPEAT: Duration = Duration::from_secs(3);
/// How often that doubles.
const REPEAT_DOUBLED_MAX: u32 = 7;
/// How many may wait to be shown the registry.
const VIEWS_MAX: usize = 64;

#[derive(Debug)]
struct Viewing {
    origin: Origin,
    without: Vec<SiteId>,
    accept: bool,
    deadline: Duration,
    since: Duration,
}

/// The numbers of changes that came without one.
#[derive(Debug)]
struct Numbers {
    client: ClientId,
    last: u64,
    /// Those that may be asked for again, perhaps by another leader that this one gave them to, and
    /// until when.
    open: BTreeMap<u64, Duration>,
}

impl Numbers {
    fn new(client: ClientId) -> Numbers {
        Numbers { client, last: 0, open: BTreeMap::new() }
    }

    fn next(&mut self, now: Duration, deadline: Duration) -> RequestId {
        self.last += 1;
        self.open.retain(|_, until| *until > now);
        // An attempt that was begun before its deadline may end after it.
        self.open.insert(self.last, deadline + limits::REQUEST_DEADLINE);
        if self.open.len() > limits::REGISTRY_CHANGES_WAITING_MAX {
            self.open.pop_first();
        }
        let lowest = self.open.keys().next().copied().unwrap_or(self.last);
        RequestId { client: self.client, sequence: self.last, acknowledged_below: lowest }
    }
}

/// The repetition of a recovery that has ended half-way.
#[derive(Debug, Default)]
struct Repeating {
    /// Since when the other sites have been called.
    called: Option<Duration>,
    /// The last attempt.
    last: Duration,
    attempts: u32,
}

/// A leader's changes of the registry.
pub(super) struct Changes {
    driver: Driver<Arc<Registry>, Origin>,
    numbers: Numbers,
    /// Since when registrars have been missing.
    lacking: Option<Duration>,
    /// What was accepted here and is not known as chosen, and since when.
    unfinished: Option<(Ballot, Duration)>,
    repeating: Repeating,
    views: Vec<Viewing>,
}

impl Changes {
    pub(super) fn new(process: ClientId, seed: u64, planted: crate::bugs::Planted) -> Changes {
        let planted = match planted.is(Bug::SpreadUnchosen) {
            true => Planted::of(RegistryBug::SpreadUnchosen),
            false => Planted::none(),
        };
        Changes {
            driver: Driver::new(seed, planted),
            // Another one than forwarding and routing use.
            numbers: Numbers::new(ClientId(process.0.rotate_left(16) ^ 0x5851_f42d_4c95_7f2d)),
            lacking: None,
            unfinished: None,
            repeating: Repeating::default(),
            views: Vec::new(),
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.driver.is_idle() && self.views.is_empty()
    }

    pub(super) fn next_due(&self) -> Option<Duration> {
        self.driver.next_due()
    }

    /// Changes that wait here.
    pub(super) fn waiting(&self) -> usize {
        self.driver.waiting()
    }
}

/// A request that changes the registry, in whichever form.
pub(super) fn as_change(body: Body, is_member: bool) -> Body {
    let change = match body {
        Body::Write(Command::Deployment(DeploymentCommand::ChangeRegistry(change))) => change,
        Body::Write(Command::CreateKeyspace(spec)) if is_member => {
            RegistryChange::CreateKeyspace(spec)
        }
        Body::Write(Command::DropKeyspace { name }) if is_member => {
            RegistryChange::DropKeyspace(name)
        }
        body => return body,
    };
    Body::Registry { change: Box::new(change), id: None }
}

impl<S: State, R: LogReader, N: Snapshots> Site<S, R, N> {
    /// A change that this leader is asked for.
    pub(super) fn take_change(
        &mut self,
        origin: Origin,
        change: RegistryChange,
        id: Option<RequestId>,
        deadline: Duration,
    ) {
        if self.machine.membership().is_none() {
            return self.settle(vec![(origin, Err(self.why_no_member()))]);
        }
        let now = self.now.monotonic;
        let id = id.unwrap_or_else(|| self.deployment.changes.numbers.next(now, deadline));
        self.want(origin, Work::Change { id, change }, deadline);
    }

    /// A change of this site's own, unless it waits already.
    pub(super) fn change_registry(
        &mut self,
        origin: Origin,
        change: RegistryChange,
        deadline: Duration,
    ) {
        let is_it =
            |work: &Work<_>| matches!(work, Work::Change { change: one, .. } if *one == change);
        if origin != Origin::Discard || !self.deployment.changes.driver.has(is_it) {
            self.take_change(origin, change, None, deadline);
        }
    }

    /// A witness has no data; the next leader can answer.
    fn why_no_member(&self) -> Failure {
        match self.options.witness {
            true => Failure::NoLeader,
            false => Refusal::NoDeployment.into(),
        }
    }

    fn want(&mut self, origin: Origin, work: Work<Arc<Registry>>, deadline: Duration) {
        // However many changes wait for it, a recovery has room.
        let more = if matches!(work, Work::Recover { .. }) { VIEWS_MAX } else { 0 };
        if self.deployment.changes.driver.waiting() >= limits::REGISTRY_CHANGES_WAITING_MAX + more {
            let what = "changes of the registry";
            return self.settle(vec![(origin, Err(Failure::Overloaded { what }))]);
        }
        self.deployment.changes.driver.want(origin, work, deadline);
    }

    /// Goes on with what waits.
    pub(super) fn drive_changes(&mut self) {
        if self.deployment.changes.is_idle() {
            return;
        }
        if !self.leads() {
            return self.give_changes_back();
        }
        self.with_driver(|driver, context| driver.advance(context));
    }

    fn with_driver(
        &mut self,
        act: impl FnOnce(
            &mut Driver<Arc<Registry>, Origin>,
            &Context<'_, Arc<Registry>>,
        ) -> Vec<Effect<Arc<Registry>, Origin>>,
    ) {
        let Some(member) = self.machine.membership() else { return };
        let promised = self.machine.acceptor().map(Acceptor::promised).unwrap_or_default();
        let (own, now, copy) = (member.own, self.now.monotonic, &member.registry);
        let context = Context { own, now, copy, promised };
        let effects = act(&mut self.deployment.changes.driver, &context);
        effects.into_iter().for_each(|effect| self.perform_change(own, effect));
    }

    fn perform_change(&mut self, own: SiteId, effect: Effect<Arc<Registry>, Origin>) {
        let now = self.now.monotonic;
        match effect {
            Effect::Take { id, site, step } => {
                let deadline = now + CALL * 2;
                let command = command_of(step);
                match site == own {
                    true => self.take_registrar_step(Origin::Registrar(id), command, deadline),
                    false => {
                        let body = Body::Write(command);
                        self.route(Origin::Registrar(id), body, Target::Site(site), deadline);
                    }
                }
            }
            Effect::Settle(origin, outcome) => {
                let outcome = self.reported(outcome);
                self.settle(vec![(origin, outcome)]);
            }
        }
    }

    /// A step of this site's, into its log.
    pub(super) fn take_registrar_step(
        &mut self,
        origin: Origin,
        command: Command,
        deadline: Duration,
    ) {
        if self.options.planted.is(Bug::PromiseUnlogged)
            && let Command::Deployment(DeploymentCommand::Registrar(step)) = &command
            && let Some(acceptor) = self.machine.acceptor()
        {
            let mut acceptor = acceptor.clone();
            let none = Planted::none();
            let answer = match step {
                RegistrarStep::Prepare(ballot) => acceptor
                    .prepare(*ballot, none)
                    .map(|accepted| RegistrarAnswer::Promised(Box::new((*accepted).clone()))),
                RegistrarStep::Accept(ballot, registry) => acceptor
                    .accept(*ballot, Arc::new((**registry).clone()))
                    .map(|()| RegistrarAnswer::Accepted),
                _ => return self.take_write(origin, command, deadline),
            };
            let answer = answer.unwrap_or_else(RegistrarAnswer::Refused);
            return self.settle(vec![(origin, Ok(Answer::Registrar(answer)))]);
        }
        self.take_write(origin, command, deadline);
    }

    /// Something came of a step.
    pub(super) fn registrar_answered(&mut self, id: u64, outcome: Result<Answer, Failure>) {
        let answered = match outcome {
            Ok(Answer::Registrar(RegistrarAnswer::Reserved(ballot))) => Answered::Reserved(ballot),
            Ok(Answer::Registrar(RegistrarAnswer::TermReserved(ballot, accepted))) => {
                Answered::TermReserved(ballot, Arc::new(*accepted))
            }
            Ok(Answer::Registrar(RegistrarAnswer::Promised(accepted))) => {
                Answered::Promised(Arc::new(*accepted))
            }
            Ok(Answer::Registrar(RegistrarAnswer::Accepted)) => Answered::Accepted,
            Ok(Answer::Registrar(RegistrarAnswer::Refused(ballot))) => Answered::Refused(ballot),
            Ok(Answer::Done(_)) => Answered::Learned,
            _ => Answered::Failed,
        };
        self.with_driver(|driver, context| driver.answered(id, answered, context));
    }

    fn reported(&self, outcome: Result<Outcome<Arc<Registry>>, Ended>) -> Result<Answer, Failure> {
        let registry = self.machine.registry().cloned().ok_or(Refusal::NoDeployment)?;
        match outcome {
            Ok(Outcome::Done(Ok(Changed::Site(site)))) => {
                Ok(Answer::Registered { site, registry: Box::new((*registry).clone()) })
            }
            Ok(Outcome::Done(Ok(Changed::Keyspace(id)))) => {
                let made = registry.keyspaces.iter().find(|keyspace| keyspace.id == id);
                let gone = || Failure::Unknown { why: "the keyspace was dropped again meanwhile" };
                Ok(Answer::Keyspace(Box::new(Keyspace::clone(made.ok_or_else(gone)?))))
            }
            Ok(Outcome::Recovered) => {
                let mut view = self.view(&[], Duration::ZERO);
                view.recovered = true;
                Ok(Answer::RegistryView(Box::new(view)))
            }
            Ok(
                Outcome::Done(Ok(Changed::Dropped(_) | Changed::Failovers))
                | Outcome::HandedIn
                | Outcome::Again,
            ) => Ok(Answer::Done(self.machine.revision())),
            Ok(Outcome::Done(Err(error))) => Err(Refusal::from(error).into()),
            Err(Ended::Unknown) => Err(Failure::Unknown {
                why: "most registrars of the deployment did not answer in time; `portolan registry show` names them",
            }),
            Err(Ended::Blocked) => Err(Failure::NotServing(
                "a recovery of the registry has ended half-way: it is repeated once all listed sites answer, or by `portolan registry recover`",
            )),
            Err(Ended::NoMajority) => Err(Failure::NotServing(
                "most registrars of the deployment do not answer; `portolan registry show` names them",
            )),
        }
    }

    /// Another node leads now: it is asked for what waits here.
    fn give_changes_back(&mut self) {
        let mut settled = Vec::new();
        for (origin, work, deadline, is_open) in self.deployment.changes.driver.drop_all() {
            let body = match work {
                Work::Change { id, change } => {
                    Body::Registry { change: Box::new(change), id: Some(id) }
                }
                Work::Recover { without } => Body::RecoverRegistry { without, accept: true },
                Work::HandIn(_) => continue,
            };
            match origin {
                // Its node asks the next leader.
                Origin::Node { .. } => settled.extend(given_back(origin, is_open)),
                Origin::Discard => {}
                origin => {
                    let origin = if is_open { origin.in_doubt() } else { origin };
                    settled.extend(self.replica.forwarding.push(origin, body, deadline).err());
                }
            }
        }
        for one in std::mem::take(&mut self.deployment.changes.views) {
            settled.push((one.origin, Err(Failure::NoLeader)));
        }
        self.settle(settled);
    }

    /// What a leader does by itself.
    pub(super) fn tend_registry(&mut self) {
        let Some(member) = self.machine.membership().filter(|_| self.leads()) else {
            let changes = &mut self.deployment.changes;
            (changes.lacking, changes.repeating) = (None, Repeating::default());
            changes.driver.forget_block();
            return;
        };
        let (own, registry) = (member.own, member.registry.clone());
        if let Some(kept) = self.machine.to_hand_in().cloned() {
            self.hand_in(kept);
        }
        self.offer(own, &registry);
        self.finish();
        self.repeat_recovery(own, &registry);
    }

    fn hand_in(&mut self, kept: Retained) {
        if !self.deployment.changes.driver.has(|work| matches!(work, Work::HandIn(_))) {
            let deadline = self.now.monotonic + limits::REQUEST_DEADLINE;
            self.want(Origin::Discard, Work::HandIn(kept), deadline);
        }
    }

    /// Offers this site as a registrar, if one is missing and it is this one's turn.
    fn offer(&mut self, own: SiteId, registry: &Registry) {
        let now = self.now.monotonic;
        let missing = registry.registrars_missing();
        if missing == 0 {
            self.deployment.changes.lacking = None;
            return;
        }
        let lacking = now - *self.deployment.changes.lacking.get_or_insert(now);
        let able = registry.staying().map(|site| site.id);
        let able: Vec<SiteId> =
            able.filter(|site| !registry.registrars.set.contains(*site)).collect();
        let Some(place) = able.iter().position(|site| *site == own) else { return };
        if place < missing || lacking >= OFFER_NEXT * (place - missing + 1) as u32 {
            let deadline = now + limits::REQUEST_DEADLINE;
            let change = RegistryChange::Registrar(own);
            self.change_registry(Origin::Discard, change, deadline);
        }
    }

    /// Makes known what was accepted here long ago.
    fn finish(&mut self) {
        let now = self.now.monotonic;
        let Some(acceptor) = self.machine.acceptor() else { return };
        let (accepted, copy) = (acceptor.accepted().version(), acceptor.copy().version());
        // A value of another term is finished by a recovery only.
        if accepted <= copy || accepted.term != copy.term {
            self.deployment.changes.unfinished = None;
            return;
        }
        match self.deployment.changes.unfinished {
            Some((of, since)) if of == accepted => {
                if since + FINISH <= now {
                    self.deployment.changes.unfinished = Some((of, now));
                    self.hand_in(Retained::default());
                }
            }
            _ => self.deployment.changes.unfinished = Some((accepted, now)),
        }
    }

    /// Repeats a recovery that blocks all changes, without excluding a site: all must answer, so no
    /// change is lost that was chosen in the last term.
    fn repeat_recovery(&mut self, own: SiteId, registry: &Arc<Registry>) {
        let now = self.now.monotonic;
        let changes = &mut self.deployment.changes;
        let Some(since) = changes.driver.blocked_since(registry) else {
            changes.repeating = Repeating::default();
            return;
        };
        let Repeating { called, last, attempts } = changes.repeating;
        let turn = registry.sites.iter().take_while(|site| site.id != own).count() as u32 + 1;
        let backoff = REPEAT * turn * (1 << attempts.min(REPEAT_DOUBLED_MAX));
        if since.max(last) + backoff > now
            || changes.driver.has(|work| matches!(work, Work::Recover { .. }))
        {
            return;
        }
        let others = || registry.sites.iter().map(|site| site.id).filter(|site| *site != own);
        let Some(called) = called else {
            changes.repeating.called = Some(now);
            return others().for_each(|site| self.ask_alive(site));
        };
        if called + CALL > now {
            return;
        }
        changes.repeating.called = None;
        // What was heard long ago is no answer.
        let is_late = called + CALL * 2 <= now;
        if !is_late
            && others().all(|site| self.deployment.failure_detector.had_contact_since(site, called))
        {
            let attempts = attempts + 1;
            self.deployment.changes.repeating = Repeating { called: None, last: now, attempts };
            self.recover_registry(Vec::new(), now + CALL * 2);
        }
    }

    // ---- what people see and ask ----------------------------------------------------------------

    pub(super) fn take_view(
        &mut self,
        origin: Origin,
        without: Vec<SiteId>,
        accept: bool,
        deadline: Duration,
    ) {
        let Some(member) = self.machine.membership() else {
            return self.settle(vec![(origin, Err(self.why_no_member()))]);
        };
        if self.deployment.changes.views.len() >= VIEWS_MAX {
            let what = "questions about the registry";
            return self.settle(vec![(origin, Err(Failure::Overloaded { what }))]);
        }
        let own = member.own;
        let sites: Vec<SiteId> = member.registry.sites.iter().map(|site| site.id).collect();
        let since = self.now.monotonic;
        self.deployment.changes.views.push(Viewing { origin, without, accept, deadline, since });
        sites.into_iter().filter(|site| *site != own).for_each(|site| self.ask_alive(site));
    }

    pub(super) fn tick_views(&mut self) {
        let now = self.now.monotonic;
        let Some(member) = self.machine.membership() else { return };
        let own = member.own;
        let sites: Vec<SiteId> = member.registry.sites.iter().map(|site| site.id).collect();
        let mut due = Vec::new();
        let views = std::mem::take(&mut self.deployment.changes.views);
        for one in views {
            let all = sites.iter().all(|site| {
                *site == own || self.deployment.failure_detector.had_contact_since(*site, one.since)
            });
            match all || one.since + CALL <= now {
                true => due.push(one),
                false => self.deployment.changes.views.push(one),
            }
        }
        for Viewing { origin, without, accept, deadline, since } in due {
            let view = self.view(&without, since);
            if !accept {
                let answer = Answer::RegistryView(Box::new(view));
                self.settle(vec![(origin, Ok(answer))]);
            } else if self.is_recovered(&without, &view) {
                let answer =
                    Answer::RegistryView(Box::new(RegistryView { recovered: true, ..view }));
                self.settle(vec![(origin, Ok(answer))]);
            } else if let Some(error) = self.objection(&without, &view) {
                self.settle(vec![(origin, Err(Refusal::from(error).into()))]);
            } else {
                self.want(origin, Work::Recover { without }, deadline);
            }
        }
    }

    /// Whether the registry goes on without these sites already, by a recovery: the operator's
    /// command is repeated if its outcome was lost.
    fn is_recovered(&self, without: &[SiteId], view: &RegistryView) -> bool {
        let Some(registry) = self.machine.registry() else { return false };
        let set = registry.registrars.set;
        let is_other_term = registry.version.term != Ballot::FIRST.term;
        let is_without = !without.is_empty() && !without.iter().any(|site| set.contains(*site));
        let is_over = view.has_majority && !self.has_begun_a_term(registry);
        is_other_term && is_without && is_over && view.answering.is_empty()
    }

    /// Whether a recovery is known here to have begun that has not come to its end.
    fn has_begun_a_term(&self, registry: &Registry) -> bool {
        let promised = self.machine.acceptor().map(|acceptor| acceptor.promised().term);
        promised.max(Some(self.deployment.changes.driver.above().term))
            > Some(registry.version.term)
    }

    /// Why the registry is not to be recovered so.
    fn objection(&self, without: &[SiteId], view: &RegistryView) -> Option<RegistryError> {
        let member = self.machine.membership()?;
        let registry = &member.registry;
        let set = registry.registrars.set;
        // One that ended half-way holds changes up for good, whichever sites are back by now: it
        // may be asked for again.
        let is_begun = self.has_begun_a_term(registry);
        let has_majority = set.has_majority(|site| !without.contains(&site));
        if !is_begun && has_majority {
            return Some(RegistryError::NoRecovery);
        }
        let named = |id: &SiteId| registry.site(*id).map(|site| site.name.clone());
        if let Some(name) = view.answering.first().and_then(named).filter(|_| !is_begun) {
            return Some(RegistryError::Answers(name));
        }
        let shown = |id: &SiteId| named(id).map_or_else(|| id.to_string(), |name| name.to_string());
        let silent: Vec<String> = view.silent.iter().map(shown).collect();
        (!silent.is_empty()).then(|| RegistryError::Silent(silent.join(", ")))
    }

    /// The registry, for people, with the sites that have sent a message since then.
    fn view(&self, without: &[SiteId], since: Duration) -> RegistryView {
        let member = self.machine.membership().expect("who looks is a member");
        let (own, registry) = (member.own, &member.registry);
        let answers = |site: SiteId| {
            site == own || self.deployment.failure_detector.had_contact_since(site, since)
        };
        let set = registry.registrars.set;
        let registrars = set.sites().iter();
        let listed = registry.sites.iter().map(|site| site.id);
        // A value that was accepted here and is not known as chosen may list more that a recovery
        // must ask.
        let accepted = self.machine.acceptor().map(|acceptor| acceptor.accepted());
        let wanted = accepted.map(|accepted| to_answer(accepted, registry, without));
        let unlisted = wanted.into_iter().flatten().filter(|site| registry.site(*site).is_none());
        let (answering, silent): (BTreeSet<SiteId>, BTreeSet<SiteId>) =
            listed.chain(unlisted).partition(|site| answers(*site));
        let named = |site: &SiteId| without.contains(site);
        let kept = self.machine.to_hand_in();
        let to_hand_in = kept.map_or(0, Retained::len);
        RegistryView {
            version: registry.version,
            changes: registry.changes,
            registrars: registrars
                .map(|site| RegistrarView { site: *site, answers: answers(*site) })
                .collect(),
            waiting: self.deployment.changes.waiting() as u32,
            to_hand_in: to_hand_in as u32,
            silent: silent.into_iter().filter(|site| !named(site)).collect(),
            answering: answering.into_iter().filter(named).collect(),
            has_majority: !set.is_empty() && set.has_majority(answers),
            recovered: false,
        }
    }

    /// The registry goes on without lost sites.
    pub(super) fn recover_registry(&mut self, without: Vec<SiteId>, deadline: Duration) {
        self.want(Origin::Discard, Work::Recover { without }, deadline);
    }
}

/// The answer to another node's request for a change, at a node that leads no more: nothing was
/// done. If some registrar was asked to accept the change, that is not certain, and there is no
/// answer: the node asks the next leader, and counts the change as possibly made before.
fn given_back(origin: Origin, is_open: bool) -> Option<Settled> {
    (!is_open).then_some((origin, Err(Failure::NoLeader)))
}

fn command_of(step: Step<Arc<Registry>>) -> Command {
    Command::Deployment(DeploymentCommand::Registrar(match step {
        Step::Reserve(above) => RegistrarStep::Reserve(above),
        Step::ReserveTerm => RegistrarStep::ReserveTerm,
        Step::Prepare(ballot) => RegistrarStep::Prepare(ballot),
        Step::Accept(ballot, value) => RegistrarStep::Accept(ballot, Box::new((*value).clone())),
        Step::Learn(value) => {
            return Command::Deployment(DeploymentCommand::LearnRegistry(Box::new(
                (*value).clone(),
            )));
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::origin::Served;
    use model::NodeId;

    #[test]
    fn a_change_that_may_be_asked_for_again_is_not_below_what_is_acknowledged() {
        let mut numbers = Numbers::new(ClientId(1));
        let deadline = Duration::from_secs(10);
        numbers.next(Duration::ZERO, deadline);
        // The first one was given to the next leader, which made it and was lost; this one leads
        // again.
        let second = numbers.next(Duration::from_secs(1), deadline);
        assert_eq!((second.sequence, second.acknowledged_below), (2, 1));
        let later = deadline + limits::REQUEST_DEADLINE;
        let third = numbers.next(later, later + deadline);
        assert_eq!((third.sequence, third.acknowledged_below), (3, 3));
    }

    #[test]
    fn a_change_that_may_be_chosen_is_not_told_as_left_undone() {
        let origin = Origin::Node { node: NodeId(2), id: 7, served: Served::NONE };
        assert_eq!(given_back(origin, true), None);
        assert_eq!(given_back(origin, false), Some((origin, Err(Failure::NoLeader))));
    }
}
