//! A failover, driven by the leader of the site that an operator asked.
//!
//! ```text
//! call        the lost site and all others: a site that answers is not lost, a silent one must be
//!             named
//! preview     every other site reports what it has: what would be taken, and what lost
//! open        the registry fences the lost site and those that are named (the operator accepts)
//! inventory   every other site reports what it has, in the command that learns of the failover
//! decide      the registry lists which site takes which slots; each site follows when it learns
//!             of it
//! ```
//!
//! All of this can be lost on the way: until the decision only the fences have changed, and they
//! end when the failover is called off. A leader that finds an open failover without progress calls
//! it off.

mod closing;
mod plan;

use super::inventories::{self, Inventories};
use super::ownership::trial::Planted;
use crate::job::{Effect, Job, Progress, View};
use crate::origin::Origin;
use closing::Closing;
use model::{
    Answer, BackupError, Ballot, Command, Epoch, Failure, GlobalCommand, Group, Lending, LoanClaim,
    Loss, Refusal, Registry, RegistryChange, RegistryError, RequestId, SiteId, Slot, Taken, limits,
};
use plan::{by_slot, count_taken, is_worse, plan};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use storage::state::State;

/// How long sites that are called have to answer.
const CALL: Duration = Duration::from_millis(1_500);

/// How many may wait for one failover.
const WAITING_MAX: usize = 64;
/// Claims of one command.
pub(crate) const CLAIMS_MAX: usize = 4_096;

#[derive(Debug)]
enum Stage {
    /// Until then sites may answer the call.
    Calling { since: Duration, until: Duration },
    /// The inventories of `missing` have not come.
    Gathering { opened: Option<Ballot>, missing: BTreeSet<SiteId>, inventories: Inventories },
    /// The sites that are to take slots get the claims to groups of these; so many have no answer.
    Preparing { opened: Ballot, taken: Vec<Taken>, missing: usize },
    /// It is to be opened.
    Opening,
    /// The decision is on its way.
    Deciding { opened: Ballot },
}

#[derive(Debug)]
struct Failover {
    /// The requests that wait for it; one operator may have several, if the answer took long.
    origins: Vec<Origin>,
    loss: Loss,
    without: Vec<SiteId>,
    accept: bool,
    /// What came of it is remembered under this number.
    request: Option<RequestId>,
    deadline: Duration,
    stage: Stage,
    /// What the operator was shown would be taken.
    reported: Option<Vec<Taken>>,
    /// From what each slot goes on at least: by what the operator was shown, or else by the reports
    /// from before it was opened.
    accepted: BTreeMap<Slot, Option<(Epoch, u64)>>,
}

/// What an operator asks for.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub(crate) origin: Origin,
    pub(crate) lost: SiteId,
    /// The site that takes the slots without a copy.
    pub(crate) by: SiteId,
    pub(crate) without: Vec<SiteId>,
    pub(crate) accept: bool,
    /// What the operator was shown would be taken; `None`: whatever the reports before it is opened
    /// contain is accepted.
    pub(crate) reported: Option<Vec<Taken>>,
    /// The operator's number for it: a repetition under it returns the outcome.
    pub(crate) id: Option<RequestId>,
    pub(crate) deadline: Duration,
}

/// What a step reads of the site.
pub(crate) struct Context<'a> {
    pub(crate) now: Duration,
    pub(crate) own: SiteId,
    pub(crate) registry: &'a Registry,
    /// When this site's copies of the lost one were last caught up, ms since 1970.
    pub(crate) caught_up_ms: u64,
    /// Whether a message of a site has come since then.
    pub(crate) contact_since: &'a dyn Fn(SiteId, Duration) -> bool,
}

/// The failovers that this site's leader drives: one at a time for each lost site.
#[derive(Debug, Default)]
pub(crate) struct FailoverJobs {
    under_way: BTreeMap<SiteId, Failover>,
    asked: BTreeMap<u64, (SiteId, SiteId)>,
    last_id: u64,
    closing: Closing,
    /// A bug to be found.
    planted: Planted,
}

impl<S: State> Job<S> for FailoverJobs {
    fn poll(&mut self, view: &View<'_, S>) -> Vec<Effect> {
        let mut effects = self.drive(view);
        effects.extend(self.closing.poll(view, self.planted));
        effects
    }

    /// Operators wait for those that are under way; and a site that is back is parted from the
    /// others until the registry has its return.
    fn poll_paused(&mut self, view: &View<'_, S>) -> Vec<Effect> {
        let mut effects = self.drive(view);
        effects.extend(self.closing.poll_paused(view));
        effects
    }

    fn answered(
        &mut self,
        id: u64,
        outcome: Result<Answer, Failure>,
        view: &View<'_, S>,
    ) -> Vec<Effect> {
        let Some((lost, _)) = self.asked.get(&id) else { return Vec::new() };
        with_context(view, *lost, |context| self.take_answer(id, outcome, context))
    }

    /// This node leads no more: its operators retry at the next leader.
    fn stop(&mut self) -> Vec<Effect> {
        self.asked.clear();
        self.closing.stop();
        let why = "the leader that saw to the failover was lost; `portolan site list` shows what came of it";
        let all = std::mem::take(&mut self.under_way).into_values();
        let origins = all.flat_map(|one| one.origins);
        origins.map(|origin| Effect::Settle(origin, Err(Failure::Unknown { why }))).collect()
    }

    fn progress(&self, _view: &View<'_, S>) -> Progress {
        Progress { left: self.under_way.len() as u64, sent_bytes: 0 }
    }
}

fn with_context<S: State>(
    view: &View<'_, S>,
    lost: SiteId,
    act: impl FnOnce(&Context<'_>) -> Vec<Effect>,
) -> Vec<Effect> {
    let Some(member) = view.machine.membership() else { return Vec::new() };
    act(&Context {
        now: view.now,
        own: member.own,
        registry: &member.registry,
        caught_up_ms: view.backups.caught_up_ms(lost, view.machine, view.log_now_ms, view.wall_ms),
        contact_since: &|site, since| view.failure_detector.had_contact_since(site, since),
    })
}

impl FailoverJobs {
    /// None yet.
    pub(crate) fn new(planted: Planted) -> FailoverJobs {
        FailoverJobs { planted, ..FailoverJobs::default() }
    }

    fn drive<S: State>(&mut self, view: &View<'_, S>) -> Vec<Effect> {
        let under_way: Vec<SiteId> = self.under_way.keys().copied().collect();
        let advance = |lost| with_context(view, lost, |context| self.advance(lost, context));
        under_way.into_iter().flat_map(advance).collect()
    }

    /// A request of an operator.
    pub(crate) fn request<S: State>(&mut self, wanted: Wanted, view: &View<'_, S>) -> Vec<Effect> {
        with_context(view, wanted.lost, |context| self.want(wanted, context))
    }

    pub(crate) fn want(&mut self, wanted: Wanted, view: &Context<'_>) -> Vec<Effect> {
        let Wanted { origin, lost, by, without, accept, reported, id: request, deadline } = wanted;
        if let Some(outcome) = known_outcome(view.registry, request, (lost, by)) {
            return vec![Effect::Settle(origin, outcome)];
        }
        if lost == view.own {
            return vec![refuse(origin, BackupError::Answers(lost))];
        }
        if let Some(one) = self.under_way.get_mut(&lost) {
            let is_same =
                (one.accept, &one.without, &one.reported) == (accept, &without, &reported);
            if !is_same || one.origins.len() >= WAITING_MAX {
                return vec![refuse(origin, BackupError::Fenced(view.own))];
            }
            one.origins.push(origin);
            return Vec::new();
        }
        let loss = Loss { caught_up_ms: view.caught_up_ms, ..Loss::of(lost, by) };
        let stage = Stage::Calling { since: view.now, until: view.now + CALL };
        let origins = vec![origin];
        let accepted = BTreeMap::new();
        let one = Failover {
            origins,
            loss,
            without,
            accept,
            request,
            deadline,
            stage,
            reported,
            accepted,
        };
        let calls = view.registry.sites.iter().map(|site| site.id);
        let calls = calls.filter(|site| *site != view.own).map(Effect::Call).collect();
        self.under_way.insert(lost, one);
        calls
    }

    /// Goes on with one.
    pub(crate) fn advance(&mut self, lost: SiteId, view: &Context<'_>) -> Vec<Effect> {
        let Some(one) = self.under_way.get_mut(&lost) else { return Vec::new() };
        if one.deadline <= view.now {
            let failure = match one.stage {
                Stage::Deciding { .. } => Failure::Unknown {
                    why: "its deadline passed before the registry's change was answered",
                },
                _ => Failure::NotServing("the failover took too long"),
            };
            return self.end(lost, view, Err(failure));
        }
        let Stage::Calling { since, until } = one.stage else { return Vec::new() };
        if view.now < until {
            return Vec::new();
        }
        one.loss.caught_up_ms = view.caught_up_ms;
        one.loss.answers = (view.contact_since)(lost, since);
        let others = asked(view, lost, &one.without).filter(|site| *site != view.own);
        one.loss.silent = others.filter(|site| !(view.contact_since)(*site, since)).collect();
        if one.accept && one.loss.answers {
            return self.end(lost, view, Err(failed(BackupError::Answers(lost))));
        }
        if one.accept && !one.loss.silent.is_empty() {
            let name = |site: &SiteId| match view.registry.site(*site) {
                Some(entry) => entry.name.to_string(),
                None => site.to_string(),
            };
            let names = one.loss.silent.iter().map(name).collect::<Vec<_>>().join(", ");
            return self.end(lost, view, Err(failed(BackupError::Silent(names))));
        }
        self.gather(lost, None, view)
    }

    /// Asks every site that is not fenced, or would not be, what it has.
    fn gather(&mut self, lost: SiteId, opened: Option<Ballot>, view: &Context<'_>) -> Vec<Effect> {
        let Some(one) = self.under_way.get_mut(&lost) else { return Vec::new() };
        let is_silent = |site: &SiteId| opened.is_none() && one.loss.silent.contains(site);
        let missing: BTreeSet<SiteId> =
            asked(view, lost, &one.without).filter(|site| !is_silent(site)).collect();
        let inventories = Inventories::default();
        one.stage = Stage::Gathering { opened, missing: missing.clone(), inventories };
        let mut effects = Vec::new();
        for site in missing {
            let command = inventories::request(view.registry, lost, opened);
            effects.push(Effect::ask(self.next_id(lost, site), site, command));
        }
        effects
    }

    fn next_id(&mut self, lost: SiteId, site: SiteId) -> u64 {
        self.last_id += 1;
        self.asked.insert(self.last_id, (lost, site));
        self.last_id
    }

    /// An answer has come.
    pub(crate) fn take_answer(
        &mut self,
        id: u64,
        outcome: Result<Answer, Failure>,
        view: &Context<'_>,
    ) -> Vec<Effect> {
        let Some((lost, site)) = self.asked.remove(&id) else { return Vec::new() };
        let Some(one) = self.under_way.get_mut(&lost) else { return Vec::new() };
        match (&mut one.stage, outcome) {
            (
                Stage::Gathering { missing, inventories, .. },
                Ok(answer @ (Answer::Inventory(_) | Answer::InventoryOfLoans(..))),
            ) => {
                missing.remove(&site);
                inventories.take(site, answer);
                if missing.is_empty() { self.gathered(lost, view) } else { Vec::new() }
            }
            (Stage::Preparing { missing, .. }, Ok(Answer::Done(_))) => {
                *missing -= 1;
                if *missing == 0 { self.decide(lost, view) } else { Vec::new() }
            }
            (Stage::Opening, Ok(_)) => match &view.registry.failovers.open {
                Some(open) if open.lost == lost && open.without == one.without => {
                    let opened = open.opened;
                    self.gather(lost, Some(opened), view)
                }
                _ => self.end(lost, view, Err(called_off())),
            },
            (Stage::Deciding { .. }, Ok(_)) => {
                one.loss.done = true;
                let answer = Answer::Loss(Box::new(one.loss.clone()));
                self.end(lost, view, Ok(answer))
            }
            (_, Err(failure)) => self.end(lost, view, Err(failure)),
            (_, Ok(_)) => {
                let failure = Failure::NotServing("a site has not reported what it has");
                self.end(lost, view, Err(failure))
            }
        }
    }

    /// The inventories of all sites that were asked are there.
    fn gathered(&mut self, lost: SiteId, view: &Context<'_>) -> Vec<Effect> {
        let Some(one) = self.under_way.get_mut(&lost) else { return Vec::new() };
        let Stage::Gathering { opened, inventories, .. } = &mut one.stage else {
            return Vec::new();
        };
        let (opened, claims) = (*opened, std::mem::take(&mut inventories.claims));
        // The decision of an earlier leader may have been chosen since this began.
        if let Some(outcome) = known_outcome(view.registry, one.request, (lost, one.loss.by)) {
            return self.end(lost, view, outcome);
        }
        let has_left = |site| view.registry.has_left(site);
        let all_asked = one.without.is_empty();
        let taken = plan(&inventories.of_sites, &mut one.loss, all_asked, has_left, self.planted);
        let Some(opened) = opened else {
            // What an earlier failover could not take, as the sites that have it were not asked,
            // may be there.
            let decided = view.registry.failovers.last_decided(lost);
            // That more were asked now, or that it is after a recovery, has to be decided all the
            // same: the lost site can be removed then.
            let term = view.registry.version.term;
            let is_news = decided.is_some_and(|last| last.is_outdone(term, &one.without));
            if taken.is_empty() && view.registry.is_lost(lost) && !is_news {
                let first = decided.and_then(|one| one.taken.first());
                let taker = first.map_or(one.loss.by, |taken| taken.by);
                return self.end(lost, view, Err(failed(BackupError::Promoted(taker))));
            }
            if !one.accept {
                let loss = Box::new(one.loss.clone());
                return self.end(lost, view, Ok(Answer::Foretold { loss, taken }));
            }
            one.accepted = by_slot(one.reported.as_ref().unwrap_or(&taken));
            if is_worse(&one.accepted, &by_slot(&taken)) {
                return self.end(lost, view, Err(failed(BackupError::Worse)));
            }
            one.stage = Stage::Opening;
            let change = RegistryChange::OpenFailover { lost, without: one.without.clone() };
            let open = change_under(self.next_id(lost, view.own), change, None);
            // Of two sites the other one is lost, with it the registrars' majority: the registry
            // goes on without it first.
            let recover = || Effect::Recover { without: vec![lost] };
            let recover = needs_recovery(view.registry, lost).then(recover);
            return recover.into_iter().chain([open]).collect();
        };
        if is_worse(&one.accepted, &by_slot(&taken)) {
            return self.end(lost, view, Err(failed(BackupError::Worse)));
        }
        self.prepare(lost, (opened, taken), claims, view)
    }

    /// Each site that is to take slots gets the claims to groups of these, before the decision.
    fn prepare(
        &mut self,
        lost: SiteId,
        (opened, taken): (Ballot, Vec<Taken>),
        claims: BTreeMap<(Slot, Group), LoanClaim>,
        view: &Context<'_>,
    ) -> Vec<Effect> {
        let mut by_taker: BTreeMap<SiteId, Vec<(Group, LoanClaim)>> = BTreeMap::new();
        for ((slot, group), claim) in claims {
            if let Some(taken) = taken.iter().find(|taken| taken.slots.contains(slot)) {
                by_taker.entry(taken.by).or_default().push((group, claim));
            }
        }
        let mut effects = Vec::new();
        for (taker, claims) in by_taker {
            for claims in claims.chunks(CLAIMS_MAX) {
                let claims = claims.to_vec();
                let command =
                    Command::Global(GlobalCommand::Lending(Lending::Prepare { opened, claims }));
                effects.push(Effect::ask(self.next_id(lost, taker), taker, command));
            }
        }
        let Some(one) = self.under_way.get_mut(&lost) else { return Vec::new() };
        one.stage = Stage::Preparing { opened, taken, missing: effects.len() };
        if effects.is_empty() { self.decide(lost, view) } else { effects }
    }

    fn decide(&mut self, lost: SiteId, view: &Context<'_>) -> Vec<Effect> {
        let Some(one) = self.under_way.get_mut(&lost) else { return Vec::new() };
        let Stage::Preparing { opened, taken, .. } = &mut one.stage else { return Vec::new() };
        let change =
            RegistryChange::DecideFailover { opened: *opened, taken: std::mem::take(taken) };
        one.stage = Stage::Deciding { opened: *opened };
        let request = one.request;
        vec![change_under(self.next_id(lost, view.own), change, request)]
    }

    /// It is over, one way or the other.
    fn end(
        &mut self,
        lost: SiteId,
        view: &Context<'_>,
        outcome: Result<Answer, Failure>,
    ) -> Vec<Effect> {
        let Some(one) = self.under_way.remove(&lost) else { return Vec::new() };
        // A late answer does not count in the next failover: it is from before that one's fences.
        self.asked.retain(|_, (of, _)| *of != lost);
        let mut effects = vec![];
        let open = view.registry.failovers.open.as_ref().filter(|open| open.lost == lost);
        let open = open.filter(|open| match &one.stage {
            Stage::Calling { .. } | Stage::Gathering { opened: None, .. } => false,
            Stage::Opening => outcome.is_err(),
            Stage::Gathering { opened: Some(opened), .. }
            | Stage::Preparing { opened, .. }
            | Stage::Deciding { opened } => *opened == open.opened,
        });
        // What failed may have been done by an earlier leader, under the same number. So was a
        // decision that is there and has not ended this failover.
        let is_known = outcome.is_err() || open.is_some();
        let known = known_outcome(view.registry, one.request, (lost, one.loss.by));
        let outcome = known.filter(|_| is_known).unwrap_or(outcome);
        // The registry orders this and a decision that may be on its way.
        if let Some(open) = open {
            let change = RegistryChange::CloseFailover(open.opened);
            effects.push(Effect::change(change, limits::REQUEST_DEADLINE));
        }
        let each = one.origins.into_iter().map(|origin| Effect::Settle(origin, outcome.clone()));
        effects.extend(each);
        effects
    }
}

/// The sites that are asked: all that are listed, but for those that are fenced.
fn asked<'a>(
    view: &'a Context<'_>,
    lost: SiteId,
    without: &'a [SiteId],
) -> impl Iterator<Item = SiteId> + 'a {
    let all = view.registry.sites.iter().map(|site| site.id);
    all.filter(move |site| *site != lost && !without.contains(site))
}

/// What came of a failover that the registry remembers under the operator's number.
fn known_outcome(
    registry: &Registry,
    request: Option<RequestId>,
    (lost, by): (SiteId, SiteId),
) -> Option<Result<Answer, Failure>> {
    Some(match registry.outcome(request?)? {
        Ok(_) => {
            let mut loss = Loss { done: true, ..Loss::of(lost, by) };
            let decided = registry.failovers.last_decided(lost);
            decided.iter().for_each(|one| count_taken(&mut loss, &one.taken));
            Ok(Answer::Loss(Box::new(loss)))
        }
        Err(error) => Err(Refusal::from(error.clone()).into()),
    })
}

fn change_under(id: u64, change: RegistryChange, request: Option<RequestId>) -> Effect {
    Effect::Change { id: Some(id), change, request, timeout: limits::REQUEST_DEADLINE }
}

/// Whether no change can be made before the registry goes on without a site.
fn needs_recovery(registry: &Registry, lost: SiteId) -> bool {
    registry.sites.len() == 2 && !registry.registrars.set.has_majority(|site| site != lost)
}

fn failed(error: BackupError) -> Failure {
    Failure::Refused(Refusal::Backup(error))
}

fn called_off() -> Failure {
    Failure::Refused(Refusal::Registry(RegistryError::NoFailover))
}

fn refuse(origin: Origin, error: BackupError) -> Effect {
    Effect::Settle(origin, Err(failed(error)))
}

#[cfg(test)]
mod tests;
