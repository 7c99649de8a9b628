//! The changes that one site's leader makes to the registry, one attempt after the other.
//!
//! The driver emits effects ([`Effect`]) and receives their results ([`Answered`]). An attempt that
//! is refused or times out is repeated after a pause, which grows with each attempt and differs
//! from site to site. Waiting work has a deadline. All of it is volatile: a change has an id, so it
//! can be requested again from the next leader.

use super::trial::Planted;
use super::{Asked, Outcome, Proposer, Value, Work};
use model::{Ballot, SiteId, Term};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// An attempt that takes longer is replaced by another one.
const ATTEMPT: Duration = Duration::from_millis(3_000);
/// The pause after the first refused attempt. It doubles with each further one.
const PAUSE: Duration = Duration::from_millis(40);
/// How often the pause doubles.
const DOUBLED_MAX: u32 = 6;

/// A step of an acceptor, to be appended to the log of a site.
#[derive(Clone, Debug, PartialEq)]
pub enum Step<V> {
    /// [`super::Acceptor::reserve`].
    Reserve(Ballot),
    /// [`super::Acceptor::reserve_term`].
    ReserveTerm,
    /// [`super::Acceptor::prepare`].
    Prepare(Ballot),
    /// [`super::Acceptor::accept`].
    Accept(Ballot, V),
    /// [`super::Acceptor::learn`].
    Learn(V),
}

/// What the site must do. The result is returned under the same number.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect<V: Value, O> {
    /// Run a step at a site, perhaps this one.
    Take {
        /// The number of the step.
        id: u64,
        /// The site.
        site: SiteId,
        /// The step.
        step: Step<V>,
    },
    /// Reports the outcome to the origin of the work.
    Settle(O, Result<Outcome<V>, Ended>),
}

/// Why there is no outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The deadline passed, and no site has accepted anything.
    NoMajority,
    /// The deadline passed, and the work may still take effect.
    Unknown,
    /// The same as [`Ended::NoMajority`], while a recovery that has ended half-way blocks all
    /// changes ([`Driver::blocked_since`]).
    Blocked,
}

/// The result of a step.
#[derive(Clone, Debug, PartialEq)]
pub enum Answered<V> {
    /// The reserved ballot.
    Reserved(Ballot),
    /// The ballot that begins the next term, and the accepted value of this site.
    TermReserved(Ballot, V),
    /// The site has promised; this is its accepted value.
    Promised(V),
    /// The site has accepted.
    Accepted,
    /// The site has promised this higher ballot.
    Refused(Ballot),
    /// The site has the copy.
    Learned,
    /// The result is unknown.
    Failed,
}

#[derive(Debug)]
struct Waiting<V: Value, O> {
    origin: O,
    work: Work<V>,
    deadline: Duration,
    /// Some site may have been asked to accept a value.
    is_open: bool,
}

#[derive(Debug)]
enum Stage<V: Value> {
    Idle,
    /// This site promises the ballot that refused it, so that its next ballot is higher.
    Raising(u64),
    Reserving(u64),
    Balloting {
        proposer: Box<Proposer<V>>,
        asked: BTreeMap<u64, SiteId>,
        /// Sites that have promised a higher ballot: the attempt continues without them if
        /// possible.
        refused: BTreeSet<SiteId>,
    },
    /// The value is chosen; this site's own copy is updated first.
    Learning {
        id: u64,
        outcome: Outcome<V>,
    },
}

/// What the driver needs from its site.
#[derive(Debug)]
pub struct Context<'a, V> {
    /// This site.
    pub own: SiteId,
    /// The time.
    pub now: Duration,
    /// Its copy.
    pub copy: &'a V,
    /// The highest ballot that it has promised.
    pub promised: Ballot,
}

/// The changes that wait at one site, and the attempt at the first of them.
#[derive(Debug)]
pub struct Driver<V: Value, O> {
    waiting: VecDeque<Waiting<V, O>>,
    stage: Stage<V>,
    /// The highest ballot that refused an attempt.
    above: Ballot,
    /// Since when a higher term has refused changes, and which.
    blocked: Option<(Duration, Term)>,
    not_before: Duration,
    until: Duration,
    tries: u32,
    random: u64,
    last_id: u64,
    planted: Planted,
}

impl<V: Value, O: Clone> Driver<V, O> {
    /// An idle driver. `seed` makes the pauses of sites differ.
    pub fn new(seed: u64, planted: Planted) -> Driver<V, O> {
        Driver {
            waiting: VecDeque::new(),
            stage: Stage::Idle,
            above: Ballot::default(),
            blocked: None,
            not_before: Duration::ZERO,
            until: Duration::ZERO,
            tries: 0,
            random: seed,
            last_id: 0,
            planted,
        }
    }

    /// The highest ballot that refused an attempt.
    pub fn above(&self) -> Ballot {
        self.above
    }

    /// Since when no change has been possible, as so many registrars have promised a term that has
    /// no value: the recovery that began it has ended half-way, or is under way elsewhere.
    pub fn blocked_since(&self, copy: &V) -> Option<Duration> {
        let (since, term) = self.blocked?;
        (term > copy.version().term).then_some(since)
    }

    /// This node leads no more: what it was refused may be over when it leads again.
    pub fn forget_block(&mut self) {
        self.blocked = None;
    }

    /// The number of waiting items.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Whether there is nothing to do.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether matching work waits already.
    pub fn has(&self, is_it: impl Fn(&Work<V>) -> bool) -> bool {
        self.waiting.iter().any(|one| is_it(&one.work))
    }

    /// Queues work. A recovery goes before changes, which may be impossible without it, and aborts
    /// the current attempt at a change.
    pub fn want(&mut self, origin: O, work: Work<V>, deadline: Duration) {
        let is_recovery = |work: &Work<V>| matches!(work, Work::Recover { .. });
        let at = match is_recovery(&work) {
            true => self.waiting.iter().take_while(|one| is_recovery(&one.work)).count(),
            false => self.waiting.len(),
        };
        if at == 0 && !self.waiting.is_empty() {
            self.stage = Stage::Idle;
            self.not_before = Duration::ZERO;
            self.tries = 0;
        }
        self.waiting.insert(at, Waiting { origin, work, deadline, is_open: false });
    }

    /// Returns all waiting work to its origins: this node no longer leads its site.
    pub fn drop_all(&mut self) -> Vec<(O, Work<V>, Duration, bool)> {
        self.stage = Stage::Idle;
        let all = std::mem::take(&mut self.waiting).into_iter();
        all.map(|one| (one.origin, one.work, one.deadline, one.is_open)).collect()
    }

    /// The time at which [`Driver::advance`] is next needed without other input.
    pub fn next_due(&self) -> Option<Duration> {
        let due = match self.stage {
            Stage::Idle => self.not_before,
            _ => self.until,
        };
        self.waiting.iter().map(|one| one.deadline).min().map(|deadline| deadline.min(due))
    }

    /// Advances the current attempt, or begins the next one.
    pub fn advance(&mut self, context: &Context<'_, V>) -> Vec<Effect<V, O>> {
        let mut effects = Vec::new();
        self.give_up(context, &mut effects);
        if !matches!(self.stage, Stage::Idle) && self.until <= context.now {
            self.pause(context.now);
        }
        if matches!(self.stage, Stage::Idle) && self.not_before <= context.now {
            self.begin(context, &mut effects);
        }
        effects
    }

    fn give_up(&mut self, context: &Context<'_, V>, effects: &mut Vec<Effect<V, O>>) {
        let (now, blocked) = (context.now, self.blocked_since(context.copy));
        if self.waiting.front().is_some_and(|one| one.deadline <= now) {
            self.stage = Stage::Idle;
        }
        let waiting = std::mem::take(&mut self.waiting);
        for one in waiting {
            if one.deadline > now {
                self.waiting.push_back(one);
                continue;
            }
            let ended = match (one.is_open, blocked) {
                (true, _) => Ended::Unknown,
                (false, Some(_)) => Ended::Blocked,
                (false, None) => Ended::NoMajority,
            };
            effects.push(Effect::Settle(one.origin, Err(ended)));
        }
    }

    fn begin(&mut self, context: &Context<'_, V>, effects: &mut Vec<Effect<V, O>>) {
        while let Some(first) = self.waiting.front() {
            match &first.work {
                Work::Change { id, .. } => {
                    // Another site's attempt has already made sure of this change.
                    let Some(known) = context.copy.outcome(*id) else { break };
                    let first = self.waiting.pop_front().expect("it is there");
                    effects.push(Effect::Settle(first.origin, Ok(Outcome::Done(known))));
                }
                // It only ends one that has begun, and none has, or that one has ended.
                Work::Recover { without } if without.is_empty() && !self.has_begun(context) => {
                    let first = self.waiting.pop_front().expect("it is there");
                    effects.push(Effect::Settle(first.origin, Ok(Outcome::Recovered)));
                }
                _ => break,
            }
        }
        let Some(first) = self.waiting.front() else { return };
        let is_recovery = matches!(first.work, Work::Recover { .. });
        // No site could promise anything.
        if context.copy.registrars().set.is_empty() && !is_recovery {
            return self.pause(context.now);
        }
        self.until = context.now + ATTEMPT;
        let id = self.next_id();
        let step = match is_recovery {
            true if self.above.term > context.copy.version().term => {
                self.stage = Stage::Raising(id);
                Step::Prepare(self.above)
            }
            true => {
                self.stage = Stage::Reserving(id);
                Step::ReserveTerm
            }
            false => {
                self.stage = Stage::Reserving(id);
                Step::Reserve(self.above)
            }
        };
        effects.push(Effect::Take { id, site: context.own, step });
    }

    /// Whether a term is known here that has begun and has no value yet.
    fn has_begun(&self, context: &Context<'_, V>) -> bool {
        // Without registrars a recovery alone can change anything.
        context.copy.registrars().set.is_empty()
            || self.above.max(context.promised).term > context.copy.version().term
    }

    fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// Schedules the next attempt after a pause.
    fn pause(&mut self, now: Duration) {
        self.stage = Stage::Idle;
        let pause = PAUSE * (1 << self.tries.min(DOUBLED_MAX));
        self.tries = self.tries.saturating_add(1);
        self.random =
            self.random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        let share = 500 + (self.random >> 33) % 1_000;
        self.not_before = now + pause.mul_f64(share as f64 / 1_000.0);
    }

    /// Handles the result of a step.
    pub fn answered(
        &mut self,
        id: u64,
        answered: Answered<V>,
        context: &Context<'_, V>,
    ) -> Vec<Effect<V, O>> {
        let mut effects = Vec::new();
        let Some(first) = self.waiting.front_mut() else { return effects };
        match (&mut self.stage, answered) {
            (Stage::Raising(own), _) if *own == id => {
                let id = self.next_id();
                self.stage = Stage::Reserving(id);
                effects.push(Effect::Take { id, site: context.own, step: Step::ReserveTerm });
            }
            (Stage::Reserving(own), answered) if *own == id => {
                let (ballot, accepted) = match answered {
                    Answered::Reserved(ballot) => (ballot, None),
                    Answered::TermReserved(ballot, accepted) => (ballot, Some(accepted)),
                    _ => {
                        self.pause(context.now);
                        return effects;
                    }
                };
                let (copy, work) = (context.copy.clone(), first.work.clone());
                let mut proposer = Proposer::new(ballot, copy, work, self.planted);
                if let Some(accepted) = accepted {
                    proposer.promised(context.own, accepted);
                }
                let (proposer, asked) = (Box::new(proposer), BTreeMap::new());
                self.stage = Stage::Balloting { proposer, asked, refused: BTreeSet::new() };
                self.ask(context.own, &mut effects);
            }
            (Stage::Balloting { proposer, asked, refused }, answered) => {
                let Some(site) = asked.remove(&id) else { return effects };
                match answered {
                    Answered::Promised(accepted) => {
                        // A newer copy may have come since the attempt began.
                        proposer.learn(context.copy);
                        proposer.promised(site, accepted);
                        if matches!(proposer.asked().0, Asked::Accept(_)) {
                            first.is_open = true;
                            // Outstanding requests are of the previous stage.
                            asked.clear();
                        }
                        if proposer.is_refused() || !proposer.can_do_without(refused) {
                            self.pause(context.now);
                        }
                        self.ask(context.own, &mut effects);
                    }
                    Answered::Accepted => {
                        if let Some((value, outcome)) = proposer.accepted(site) {
                            let id = self.next_id();
                            self.stage = Stage::Learning { id, outcome };
                            let step = Step::Learn(value);
                            effects.push(Effect::Take { id, site: context.own, step });
                        }
                    }
                    Answered::Refused(ballot) => {
                        self.above = self.above.max(ballot);
                        refused.insert(site);
                        if !proposer.can_do_without(refused) {
                            let is_change = !matches!(first.work, Work::Recover { .. });
                            if is_change && ballot.term > context.copy.version().term {
                                let since = self.blocked_since(context.copy);
                                self.blocked =
                                    Some((since.unwrap_or(context.now), self.above.term));
                            }
                            self.pause(context.now);
                        }
                    }
                    // The next attempt repeats the request.
                    _ => {}
                }
            }
            (Stage::Learning { id: own, outcome }, answered) if *own == id => {
                let outcome = outcome.clone();
                self.stage = Stage::Idle;
                self.blocked = None;
                if answered != Answered::Learned {
                    self.pause(context.now);
                } else if outcome != Outcome::Again {
                    let first = self.waiting.pop_front().expect("it is there");
                    self.tries = 0;
                    self.not_before = context.now;
                    effects.push(Effect::Settle(first.origin, Ok(outcome)));
                }
                effects.extend(self.advance(context));
            }
            _ => {}
        }
        effects
    }

    /// Sends the requests of the current stage that are not yet sent.
    fn ask(&mut self, own: SiteId, effects: &mut Vec<Effect<V, O>>) {
        let Stage::Balloting { proposer, asked, refused } = &mut self.stage else { return };
        let ballot = proposer.ballot();
        let (wanted, sites) = proposer.asked();
        let step = match wanted {
            Asked::Prepare => Step::Prepare(ballot),
            Asked::Accept(value) => Step::Accept(ballot, value),
            Asked::Nothing => return,
        };
        let under_way: Vec<SiteId> = asked.values().copied().collect();
        let is_left = |site: &SiteId| !under_way.contains(site) && !refused.contains(site);
        let mut sites: Vec<SiteId> = sites.into_iter().filter(is_left).collect();
        // Requests to other sites take longer, so they are sent first.
        sites.sort_by_key(|site| *site == own);
        for site in sites {
            self.last_id += 1;
            asked.insert(self.last_id, site);
            effects.push(Effect::Take { id: self.last_id, site, step: step.clone() });
        }
    }
}

#[cfg(test)]
mod tests;
