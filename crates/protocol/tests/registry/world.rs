//! Sites and attempts, and every step that can come next.
//!
//! A message may be late, lost or repeated: any acceptor may take what any attempt asks for at any
//! time, and its answer is read or lost. An attempt that never goes on has crashed. Any site may
//! learn at any time what any site has learned (R1).

use super::search::{Explore, Fast, hash};
use super::small::{self, Fact, Number, Small};
use model::{Ballot, SiteId};
use protocol::deployment::registry::trial::{Bug, Planted};
use protocol::deployment::registry::{Acceptor, Asked, Needs, Proposer, Value, Work};
use std::collections::HashMap;
use std::rc::Rc;

pub(crate) const SITES_MAX: usize = 5;
pub(crate) const ATTEMPTS_MAX: usize = 5;

/// How far the search goes.
#[derive(Clone, Debug)]
pub(crate) struct Bounds {
    pub(crate) sites: u32,
    pub(crate) attempts: usize,
    pub(crate) rounds: u64,
    pub(crate) recoveries: usize,
    /// The sites that make attempts.
    pub(crate) proposers: Vec<u32>,
    pub(crate) commands: Vec<Number>,
}

/// A state: numbers of acceptors, and of attempts, in order. 0: none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(crate) sites: [u32; SITES_MAX],
    pub(crate) attempts: [u32; ATTEMPTS_MAX],
}

/// Of a step for which the acceptor of the attempt's site does not matter.
const NOT_ASKED: u32 = u32::MAX;
/// One that can get no majority any more.
const DEAD: u32 = 1;
/// The same, of a recovery.
const DEAD_RECOVERY: u32 = 2;

#[derive(Clone, Debug)]
struct Attempt {
    site: SiteId,
    proposer: Proposer<Small>,
    /// Of a recovery: the sites that it does without, and the highest version that it has read.
    recovery: Option<(Vec<SiteId>, Ballot)>,
    /// The acceptors that have accepted.
    acked: u8,
    /// Its site has learned that it is chosen.
    learned: bool,
    /// A site accepted it that had a copy of a higher term.
    outlived: bool,
}

impl Attempt {
    fn new(
        site: SiteId,
        proposer: Proposer<Small>,
        recovery: Option<(Vec<SiteId>, Ballot)>,
    ) -> Attempt {
        Attempt { site, proposer, recovery, acked: 0, learned: false, outlived: false }
    }
}

/// What is known of an attempt, for judging.
struct Facts {
    ballot: Ballot,
    value: Option<Small>,
    chosen: bool,
    is_recovery: bool,
    decisions: Vec<Fact>,
    /// A fault in itself.
    fault: Option<&'static str>,
    asked: Vec<SiteId>,
    needs: Needs,
}

struct SiteFacts {
    promised: Ballot,
    decisions: Vec<Fact>,
}

impl SiteFacts {
    fn has(&self, decision: &Fact) -> bool {
        self.decisions.iter().any(|one| one.stands_for(decision))
    }
}

fn bit(site: SiteId) -> u8 {
    1 << (site.0 - 1)
}

/// What a proposer may begin with, and what it then asks: numbers of interned states.
type Starts = Rc<Vec<(u32, u32)>>;

/// A step's kind, its acceptor, its attempt, and the acceptor of the attempt's site if that
/// matters.
type Met = (u8, u32, u32, u32);

pub(crate) struct World {
    pub(crate) bounds: Bounds,
    planted: Planted,
    acceptors: Vec<(Acceptor<Small>, SiteFacts)>,
    acceptor_numbers: HashMap<String, u32>,
    attempts: Vec<(Attempt, Facts)>,
    attempt_numbers: HashMap<String, u32>,
    /// The outcome of a step of an acceptor with an attempt.
    memo: HashMap<Met, Option<(u32, u32)>, Fast>,
    /// The attempts that a site can begin, by its acceptor: that acceptor then, and the attempt.
    starts: HashMap<(u32, u32, bool), Starts>,
    pairs: HashMap<(u32, u32), Option<&'static str>, Fast>,
    /// Whether an attempt can still get what it needs, by the sites that may answer.
    alive: HashMap<(u32, u8), bool, Fast>,
}

impl Explore for World {
    type State = State;

    fn key(&self, state: &State) -> u64 {
        hash(state.sites.into_iter().chain(state.attempts))
    }

    fn expand(&mut self, state: &State, emit: &mut dyn FnMut(State, &'static str)) {
        self.steps(state, emit);
    }

    fn reduce(&mut self, state: &mut State) {
        self.clear(state);
    }

    fn fault(&mut self, state: &State) -> Option<&'static str> {
        self.fault_in(state)
    }

    fn show(&self, state: &State) -> String {
        self.text_of(state)
    }
}

impl World {
    pub(crate) fn new(bounds: Bounds, planted: Planted) -> World {
        World {
            bounds,
            planted,
            acceptors: Vec::new(),
            acceptor_numbers: HashMap::default(),
            attempts: Vec::new(),
            attempt_numbers: HashMap::default(),
            memo: HashMap::default(),
            starts: HashMap::default(),
            pairs: HashMap::default(),
            alive: HashMap::default(),
        }
    }

    pub(crate) fn begin(&mut self, acceptors: Vec<Acceptor<Small>>) -> State {
        let mut state = State { sites: [0; SITES_MAX], attempts: [0; ATTEMPTS_MAX] };
        for (at, acceptor) in acceptors.into_iter().enumerate() {
            state.sites[at] = self.keep_acceptor(acceptor);
        }
        state
    }

    fn keep_acceptor(&mut self, acceptor: Acceptor<Small>) -> u32 {
        let key = format!("{acceptor:?}");
        if let Some(number) = self.acceptor_numbers.get(&key) {
            return *number;
        }
        let mut decisions = acceptor.copy().facts();
        decisions.extend(small::facts_kept(acceptor.kept()));
        let facts = SiteFacts { promised: acceptor.promised(), decisions };
        let number = self.acceptors.len() as u32;
        self.acceptors.push((acceptor, facts));
        self.acceptor_numbers.insert(key, number);
        number
    }

    fn keep_attempt(&mut self, attempt: Attempt) -> u32 {
        let key = format!("{attempt:?}");
        if let Some(number) = self.attempt_numbers.get(&key) {
            return *number;
        }
        let (asked, sites) = attempt.proposer.asked();
        let needs = attempt.proposer.needs_now();
        let value = if let Asked::Accept(value) = asked { Some(value) } else { None };
        let acked = attempt.acked;
        let has = |site: SiteId| acked & bit(site) != 0;
        let chosen = value.is_some() && (attempt.learned || needs.are_met(has));
        let outlived = "a site that has learned of a higher term accepts in a lower one";
        let mut fault = attempt.outlived.then_some(outlived);
        let mut decisions = Vec::new();
        if let Some(value) = value.filter(|_| chosen) {
            fault = fault.or(value.fault());
            if attempt.learned {
                decisions = value.facts();
            }
        }
        let facts = Facts {
            ballot: attempt.proposer.ballot(),
            value,
            chosen,
            is_recovery: attempt.recovery.is_some(),
            decisions,
            fault,
            asked: sites,
            needs,
        };
        // 0 to 2 stand for none and for dead attempts.
        let number = self.attempts.len() as u32 + DEAD_RECOVERY + 1;
        self.attempts.push((attempt, facts));
        self.attempt_numbers.insert(key, number);
        number
    }

    fn attempt(&self, number: u32) -> Option<&(Attempt, Facts)> {
        self.attempts.get((number.checked_sub(DEAD_RECOVERY + 1)?) as usize)
    }

    fn sites(&self) -> impl Iterator<Item = (usize, SiteId)> + use<> {
        (0..self.bounds.sites as usize).map(|at| (at, SiteId(at as u32 + 1)))
    }

    // ---- steps ----------------------------------------------------------------------------------

    /// Calls `emit` with every state that can come next, and what happened.
    fn steps(&mut self, state: &State, emit: &mut dyn FnMut(State, &'static str)) {
        let used: Vec<u32> = state.attempts.iter().copied().filter(|one| *one != 0).collect();
        let is_recovery = |number: &&u32| match self.attempt(**number) {
            Some((_, facts)) => facts.is_recovery,
            None => **number == DEAD_RECOVERY,
        };
        let recoveries = used.iter().filter(is_recovery).count();
        if used.len() - recoveries < self.bounds.attempts {
            self.start(state, used.len(), false, emit);
        }
        if recoveries < self.bounds.recoveries {
            self.start(state, used.len(), true, emit);
        }
        for at in 0..used.len() {
            self.go_on(state, at, emit);
        }
    }

    /// A proposer takes up the attempt `at`: a change, or a recovery.
    fn start(
        &mut self,
        state: &State,
        at: usize,
        is_recovery: bool,
        emit: &mut dyn FnMut(State, &'static str),
    ) {
        for proposer in self.bounds.proposers.clone() {
            let index = proposer as usize - 1;
            let key = (proposer, state.sites[index], is_recovery);
            if !self.starts.contains_key(&key) {
                let (own, acceptor) = (SiteId(proposer), state.sites[index]);
                let found = match is_recovery {
                    false => self.starts_of(own, acceptor),
                    true => self.recoveries_of(own, acceptor),
                };
                self.starts.insert(key, Rc::new(found));
            }
            for (acceptor, attempt) in self.starts[&key].clone().iter() {
                let mut next = *state;
                next.sites[index] = *acceptor;
                next.attempts[at] = *attempt;
                match is_recovery {
                    // Together with its first message: what was not sent is not there.
                    false => self.prepare(&next, at, emit),
                    true => emit(next, "a recovery begins"),
                }
            }
        }
    }

    fn starts_of(&mut self, own: SiteId, acceptor: u32) -> Vec<(u32, u32)> {
        let acceptor = self.acceptors[acceptor as usize].0.clone();
        let copy = *acceptor.copy();
        let no_ids = self.planted.is(Bug::NoIds);
        let commands = self.bounds.commands.iter().copied();
        let commands = commands.filter(|number| no_ids || !copy.has(*number));
        let mut works: Vec<Work<Small>> =
            commands.map(|id| Work::Change { id, change: own }).collect();
        if !Small::is_nothing(acceptor.kept()) {
            works.push(Work::HandIn(acceptor.kept().clone()));
        }
        let mut ballots: Vec<Ballot> = Vec::new();
        let mut found = Vec::new();
        for round in 0..self.bounds.rounds {
            let mut acceptor = acceptor.clone();
            let above = Ballot { round, ..copy.version() };
            let ballot = acceptor.reserve(own, above, self.planted);
            if ballot.round > self.bounds.rounds || ballots.contains(&ballot) {
                continue;
            }
            ballots.push(ballot);
            let acceptor = self.keep_acceptor(acceptor);
            for work in &works {
                let proposer = Proposer::new(ballot, copy, work.clone(), self.planted);
                found.push((acceptor, self.keep_attempt(Attempt::new(own, proposer, None))));
            }
        }
        found
    }

    fn recoveries_of(&mut self, own: SiteId, acceptor: u32) -> Vec<(u32, u32)> {
        let acceptor = self.acceptors[acceptor as usize].0.clone();
        let copy = *acceptor.copy();
        let mut found = Vec::new();
        // Without a site that is excluded it repeats one that has ended half-way.
        for mask in 0u8..1 << self.bounds.sites {
            let is_without = |site: SiteId| mask & bit(site) != 0;
            let has_majority = copy.registrars().set.has_majority(|site| !is_without(site));
            if is_without(own) || (mask != 0 && has_majority) {
                continue;
            }
            let mut acceptor = acceptor.clone();
            let (ballot, accepted) = acceptor.reserve_term(own, self.planted);
            if ballot.term.number > 2 {
                continue;
            }
            let without: Vec<SiteId> =
                self.sites().map(|(_, site)| site).filter(|site| is_without(*site)).collect();
            let work = Work::Recover { without: without.clone() };
            let mut proposer = Proposer::new(ballot, copy, work, self.planted);
            proposer.promised(own, accepted);
            let read = accepted.version().max(copy.version());
            let attempt = Attempt::new(own, proposer, Some((without, read)));
            found.push((self.keep_acceptor(acceptor), self.keep_attempt(attempt)));
        }
        found
    }

    fn go_on(&mut self, state: &State, at: usize, emit: &mut dyn FnMut(State, &'static str)) {
        let number = state.attempts[at];
        let Some((attempt, facts)) = self.attempt(number) else { return };
        if facts.value.is_none() {
            return self.prepare(state, at, emit);
        }
        let (learned, own) = (attempt.learned, attempt.site);
        let acked = attempt.acked;
        for site in facts.asked.clone() {
            if acked & bit(site) == 0 {
                self.step(state, at, (Step::Accept, site), "a site accepts", emit);
            }
        }
        if !learned {
            self.step(state, at, (Step::Chosen, own), "a proposer has its value chosen", emit);
        } else {
            for (_, site) in self.sites() {
                self.step(state, at, (Step::Learn, site), "a site takes a copy over", emit);
            }
        }
    }

    fn prepare(&mut self, state: &State, at: usize, emit: &mut dyn FnMut(State, &'static str)) {
        let Some((_, facts)) = self.attempt(state.attempts[at]) else { return };
        for site in facts.asked.clone() {
            self.step(state, at, (Step::Prepare, site), "a site promises", emit);
            self.step(state, at, (Step::Lose, site), "a site promises, its answer is lost", emit);
        }
    }

    fn step(
        &mut self,
        state: &State,
        at: usize,
        (step, site): (Step, SiteId),
        what: &'static str,
        emit: &mut dyn FnMut(State, &'static str),
    ) {
        let index = site.0 as usize - 1;
        let recovers = self.attempt(state.attempts[at]).filter(|(one, _)| one.recovery.is_some());
        let own = match (step, recovers) {
            (Step::Prepare, Some((attempt, _))) => state.sites[attempt.site.0 as usize - 1],
            _ => NOT_ASKED,
        };
        let key = (step as u8 * 8 + index as u8, state.sites[index], state.attempts[at], own);
        let next = match self.memo.get(&key) {
            Some(next) => *next,
            None => {
                let next = self.take(step, site, (state.sites[index], own), state.attempts[at]);
                self.memo.insert(key, next);
                next
            }
        };
        if let Some((acceptor, attempt)) = next {
            let mut next = *state;
            next.sites[index] = acceptor;
            next.attempts[at] = attempt;
            emit(next, what);
        }
    }

    fn take(
        &mut self,
        step: Step,
        site: SiteId,
        (acceptor, own): (u32, u32),
        attempt: u32,
    ) -> Option<(u32, u32)> {
        let planted = self.planted;
        let mut acceptor = self.acceptors[acceptor as usize].0.clone();
        let mut attempt_now = self.attempt(attempt)?.0.clone();
        let ballot = attempt_now.proposer.ballot();
        match step {
            Step::Prepare => {
                let accepted = acceptor.prepare(ballot, planted).ok()?;
                if let Some((_, read)) = &mut attempt_now.recovery {
                    // What its site has learned meanwhile.
                    let copy = *self.acceptors[own as usize].0.copy();
                    attempt_now.proposer.learn(&copy);
                    *read = (*read).max(accepted.version()).max(copy.version());
                }
                attempt_now.proposer.promised(site, accepted);
            }
            Step::Lose => {
                let before = acceptor.promised();
                acceptor.prepare(ballot, planted).ok()?;
                if acceptor.promised() == before {
                    return None;
                }
            }
            Step::Accept => {
                let (Asked::Accept(value), _) = attempt_now.proposer.asked() else { return None };
                acceptor.accept(ballot, value).ok()?;
                attempt_now.outlived = acceptor.copy().version().term > ballot.term;
                attempt_now.acked |= bit(site);
            }
            Step::Chosen => {
                let mut proposer = attempt_now.proposer.clone();
                let acked = self.sites().filter(|(_, site)| attempt_now.acked & bit(*site) != 0);
                let (value, _) = acked.filter_map(|(_, site)| proposer.accepted(site)).last()?;
                if !acceptor.learn(value, planted) {
                    return None;
                }
                attempt_now.learned = true;
            }
            Step::Learn => {
                let (Asked::Accept(value), _) = attempt_now.proposer.asked() else { return None };
                if !acceptor.learn(value, planted) {
                    return None;
                }
            }
        }
        Some((self.keep_acceptor(acceptor), self.keep_attempt(attempt_now)))
    }

    // ---- what can no longer matter --------------------------------------------------------------

    /// Clears attempts that can get no majority any more, and orders the rest.
    fn clear(&mut self, state: &mut State) {
        for at in 0..ATTEMPTS_MAX {
            let number = state.attempts[at];
            let Some((_, facts)) = self.attempt(number) else { continue };
            let (ballot, is_recovery) = (facts.ballot, facts.is_recovery);
            let open = self
                .sites()
                .filter(|(at, _)| self.acceptors[state.sites[*at] as usize].1.promised <= ballot);
            let open = open.fold(0, |open, (_, site)| open | bit(site));
            let alive = match self.alive.get(&(number, open)) {
                Some(alive) => *alive,
                None => {
                    let alive = self.is_alive(number, open);
                    self.alive.insert((number, open), alive);
                    alive
                }
            };
            if !alive {
                state.attempts[at] = if is_recovery { DEAD_RECOVERY } else { DEAD };
            }
        }
        // The unused ones stay behind.
        state.attempts.sort_unstable_by_key(|number| if *number == 0 { u32::MAX } else { *number });
    }

    fn is_alive(&self, number: u32, open: u8) -> bool {
        let Some((attempt, facts)) = self.attempt(number) else { return false };
        let is_open = |site: SiteId| open & bit(site) != 0;
        if facts.value.is_some() {
            let may = |site| is_open(site) || attempt.acked & bit(site) != 0;
            return attempt.learned
                || facts.needs.are_met(may)
                || self.planted.is(Bug::SpreadUnchosen);
        }
        match attempt.recovery.is_some() {
            true => facts.asked.iter().all(|site| is_open(*site)),
            // A site that has answered is not asked again.
            false => facts.needs.are_met(|site| is_open(site) || !facts.asked.contains(&site)),
        }
    }

    /// A state, for people.
    fn text_of(&self, state: &State) -> String {
        let mut text = String::new();
        for (at, site) in self.sites() {
            text += &format!("{site}: {:?}\n", self.acceptors[state.sites[at] as usize].0);
        }
        for (attempt, _) in state.attempts.iter().filter_map(|number| self.attempt(*number)) {
            let (asked, _) = attempt.proposer.asked();
            let value = if let Asked::Accept(value) = asked { Some(value.content()) } else { None };
            text += &format!("{attempt:?} {value:?}\n");
        }
        text
    }

    // ---- what must hold -------------------------------------------------------------------------

    /// What is wrong with a state.
    fn fault_in(&mut self, state: &State) -> Option<&'static str> {
        for (at, one) in state.attempts.iter().enumerate() {
            let Some((_, facts)) = self.attempt(*one) else { continue };
            if facts.fault.is_some() {
                return facts.fault;
            }
            let is_there = |decision: &Fact| {
                self.sites().any(|(at, _)| self.acceptors[state.sites[at] as usize].1.has(decision))
            };
            if !facts.decisions.iter().all(is_there) {
                return Some("a decision that was acted on is named nowhere");
            }
            if !facts.chosen {
                continue;
            }
            for (other_at, other) in state.attempts.iter().enumerate() {
                if at == other_at || self.attempt(*other).is_none_or(|(_, facts)| !facts.chosen) {
                    continue;
                }
                let fault = match self.pairs.get(&(*one, *other)) {
                    Some(fault) => *fault,
                    None => {
                        let fault = self.fault_of(*one, *other);
                        self.pairs.insert((*one, *other), fault);
                        fault
                    }
                };
                if fault.is_some() {
                    return fault;
                }
            }
        }
        None
    }

    /// What is wrong with two chosen values. Asked for both orders.
    fn fault_of(&self, one: u32, other: u32) -> Option<&'static str> {
        let ((a, one), (b, other)) = (self.attempt(one)?, self.attempt(other)?);
        let (v, w) = (one.value?, other.value?);
        if one.ballot.term == other.ballot.term {
            if one.ballot <= other.ballot && !v.begins(w) {
                return Some("two chosen values of one term are no chain");
            }
            if one.ballot < other.ballot && v.version() > w.version() {
                return Some("a later value has the lower version");
            }
        }
        if let Some(fault) = v.fault_with(w) {
            return Some(fault);
        }
        if let Some((without, read)) = &a.recovery
            && read.term != one.ballot.term
            && other.ballot.term == read.term
            && !w.begins(v)
        {
            let named = without.iter().fold(0, |named, site| named | bit(*site));
            if b.acked & !named != 0 {
                return Some("a recovery lost a change that a site not named took part in");
            }
        }
        None
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Step {
    Prepare,
    Lose,
    Accept,
    Chosen,
    Learn,
}
