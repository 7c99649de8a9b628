//! The search for an order of one key's operations that explains what they returned.
//!
//! It tries orders from their beginning, one operation after the other (Wing and Gong, *Testing and
//! verifying concurrent objects*, 1993). What may come next is whatever was called before the first
//! return among those that are left: a *candidate*. Calls and returns are a doubly linked list in
//! order of time, so taking an operation out and putting it back costs nothing. A *configuration*,
//! which operations are in the order and what the key holds then, is not looked into twice (Lowe,
//! *Testing for linearizability*, 2017). All operations called later than the first return that is
//! left are left too, so the candidates identify the configuration: a handful of numbers, however
//! long the history is.
//!
//! Four rules keep the tree narrow. Each states why no explanation is lost.
//!
//! 1. **A candidate that only reads, and finds what it needs, goes first.** In any order that goes
//!    on from here it can be moved to the front: it changes nothing.
//! 2. **A state that is still needed and that nothing left can make again is not left** but by an
//!    operation that needs it.
//! 3. **A write that can be finished is not reconsidered**, as long as there are no conflicts and
//!    no open operations that act on what they find. Let a candidate put or delete lead, by reads
//!    and compare-and-sets that are candidates then, to a state such that no operation left needs
//!    any of the states on that way; and let no candidate act on what the key holds now. Take an
//!    order that goes on from here. By rule 1 it begins with a blind write. Take the operations of
//!    that way out of it and put them in front. What needs a state of the way is on the way, so
//!    what is left needs other states, and the operations that made those, and that stood before,
//!    are still there; whatever follows the gaps writes blindly. So it is an order that explains
//!    the same. Where the premise fails, the rule still guides the search, and a search without it
//!    decides.
//! 4. **Of open operations that do the same, the one called first is taken first**: an order that
//!    takes another one could exchange the two.
//!
//! For a key that is only written with values of its own and read, rules 2 and 3 leave nothing to
//! choose: each write is either finished at once or a dead end at once.

use std::collections::{BTreeMap, HashSet};

use super::model::{ABSENT, Certain, Effect, Held, KeyHistory, State, ZERO};

/// What came of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// An order that explains everything.
    Order,
    /// There is none.
    NoOrder,
    /// The steps were used up.
    OutOfSteps,
}

/// An entry of the list of calls and returns: 0 is its head, the others are in order of time.
type Entry = u32;

/// What may come next: a certain operation, or the first one left of a class of open ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Choice {
    Certain(u32),
    Open(u32),
}

/// Open operations that do the same, in order of their calls.
#[derive(Debug)]
struct Class {
    effect: Effect,
    calls_us: Vec<u64>,
    used: usize,
}

/// A place where there was a choice.
#[derive(Debug)]
struct Fork {
    /// How long the order was.
    order: usize,
    choices: Vec<Choice>,
    next: usize,
}

#[derive(Debug)]
pub(super) struct Search<'k, 'h> {
    key: &'k mut KeyHistory<'h>,
    certain: Vec<Certain>,
    /// In order of their first calls.
    classes: Vec<Class>,
    finish: bool,
    /// Whether numbers only grow, or only shrink, so that none comes back.
    one_way: bool,
    /// Whether there is something that may act on any state, so that rule 3 is only a guide and
    /// every open operation may matter.
    restless: bool,

    times_us: Vec<u64>,
    operation: Vec<u32>,
    next: Vec<Entry>,
    previous: Vec<Entry>,
    call: Vec<Entry>,
    back: Vec<Entry>,

    /// By state: how many operations that are left need it, the last call of all that do, and how
    /// many that are left make it.
    needs: Vec<u32>,
    last_need: Vec<Entry>,
    makes: Vec<u32>,

    state: State,
    /// The order so far, and the state before each.
    order: Vec<(Choice, State)>,
    steps: u64,
}

impl<'k, 'h> Search<'k, 'h> {
    /// A search for an order; `finish`: whether rule 3 is followed.
    pub(super) fn new(key: &'k mut KeyHistory<'h>, finish: bool) -> Search<'k, 'h> {
        let certain = std::mem::take(&mut key.certain);
        let mut classes: BTreeMap<Effect, Class> = BTreeMap::new();
        for open in &key.open {
            let class = classes.entry(open.effect).or_insert_with(|| Class {
                effect: open.effect,
                calls_us: Vec::new(),
                used: 0,
            });
            class.calls_us.push(open.call_us);
        }
        let mut classes: Vec<Class> = classes.into_values().collect();
        classes.sort_by_key(|class| class.calls_us.first().copied());
        let mut search = Search {
            certain,
            classes,
            finish,
            one_way: false,
            restless: false,
            times_us: Vec::new(),
            operation: Vec::new(),
            next: Vec::new(),
            previous: Vec::new(),
            call: Vec::new(),
            back: Vec::new(),
            needs: vec![0; key.states()],
            last_need: vec![0; key.states()],
            makes: vec![0; key.states()],
            state: ABSENT,
            order: Vec::new(),
            steps: 0,
            key,
        };
        search.link();
        search.count();
        search
    }

    /// Whether an answer of "no order" under rule 3 is certain.
    pub(super) fn is_exact(&self) -> bool {
        !self.finish || !self.restless
    }

    /// Whether there are compare-and-sets that found something else.
    pub(super) fn has_conflicts(&self) -> bool {
        self.certain.iter().any(|certain| matches!(certain.effect, Effect::Differs(_)))
    }

    /// Steps taken so far.
    pub(super) fn steps(&self) -> u64 {
        self.steps
    }

    /// Makes the list of calls and returns. Of what happens at one time, calls are first: what
    /// touches overlaps.
    fn link(&mut self) {
        let count = self.certain.len();
        let mut entries: Vec<(u64, bool, u32)> = Vec::with_capacity(2 * count);
        for (index, certain) in self.certain.iter().enumerate() {
            entries.push((certain.call_us, false, index as u32));
            entries.push((certain.return_us, true, index as u32));
        }
        entries.sort_unstable();
        let size = entries.len() + 1;
        self.times_us = vec![0; size];
        self.operation = vec![0; size];
        (self.call, self.back) = (vec![0; count], vec![0; count]);
        for (at, &(at_us, is_return, index)) in (1..).zip(&entries) {
            self.times_us[at as usize] = at_us;
            self.operation[at as usize] = index;
            let place = if is_return { &mut self.back } else { &mut self.call };
            place[index as usize] = at;
        }
        // The head's neighbours close the ring.
        self.next = (0..size as u32).map(|at| (at + 1) % size as u32).collect();
        self.previous = (0..size as u32).map(|at| (at + size as u32 - 1) % size as u32).collect();
    }

    fn count(&mut self) {
        let (mut growing, mut shrinking) = (true, true);
        for index in 0..self.certain.len() {
            let effect = self.certain[index].effect;
            self.count_needs(effect, 1);
            for state in needed(effect) {
                let last = &mut self.last_need[state as usize];
                *last = self.call[index].max(*last);
            }
            if let Some(to) = effect.makes() {
                self.makes[to as usize] += 1;
            }
            match effect {
                Effect::Read(_) | Effect::Impossible => {}
                Effect::Swap(from, to) => match (self.key.held(from), self.key.held(to)) {
                    (Held::Number(before), Held::Number(after)) => {
                        growing &= after > before;
                        shrinking &= after < before;
                    }
                    _ => (growing, shrinking) = (false, false),
                },
                Effect::Begin(to) => match self.key.held(to) {
                    Held::Number(after) => {
                        growing &= after > 0;
                        shrinking &= after < 0;
                    }
                    _ => (growing, shrinking) = (false, false),
                },
                Effect::Differs(_) => {
                    self.restless = true;
                    (growing, shrinking) = (false, false);
                }
                _ => (growing, shrinking) = (false, false),
            }
        }
        for class in &self.classes {
            if let Some(to) = class.effect.makes() {
                self.makes[to as usize] += class.calls_us.len() as u32;
            }
            match class.effect {
                Effect::Add(delta) => {
                    self.restless = true;
                    growing &= delta > 0;
                    shrinking &= delta < 0;
                }
                Effect::Swap(..) => {
                    self.restless = true;
                    (growing, shrinking) = (false, false);
                }
                _ => (growing, shrinking) = (false, false),
            }
        }
        self.one_way = growing || shrinking;
    }

    /// Looks for an order.
    pub(super) fn run(&mut self, steps_max: u64) -> Found {
        let mut forks: Vec<Fork> = Vec::new();
        let mut seen: HashSet<Box<[u32]>> = HashSet::new();
        let mut choices = Vec::new();
        loop {
            if self.steps > steps_max {
                return Found::OutOfSteps;
            }
            self.read();
            if self.next[0] == 0 {
                return Found::Order;
            }
            choices.clear();
            if self.choose(&mut choices) {
                continue;
            }
            match choices.as_slice() {
                [] => {}
                &[only] => {
                    self.take(only);
                    continue;
                }
                several if seen.insert(self.configuration()) => {
                    let (order, choices) = (self.order.len(), several.to_vec());
                    forks.push(Fork { order, choices, next: 0 });
                }
                _ => {}
            }
            loop {
                let Some(fork) = forks.last_mut() else {
                    return Found::NoOrder;
                };
                let (order, choice) = (fork.order, fork.choices.get(fork.next).copied());
                fork.next += 1;
                self.undo(order);
                match choice {
                    Some(choice) => {
                        self.take(choice);
                        break;
                    }
                    None => drop(forks.pop()),
                }
            }
        }
    }

    /// Rule 1: takes every candidate that only reads and finds what it needs.
    fn read(&mut self) {
        let mut at = self.next[0];
        while at != 0 && !self.is_return(at) {
            let (index, next) = (self.operation[at as usize], self.next[at as usize]);
            let fits = match self.certain[index as usize].effect {
                Effect::Read(state) => state == self.state,
                Effect::Differs(state) => state != self.state,
                _ => false,
            };
            // Its return may be what comes next, and is taken out with it.
            let next = if fits && next == self.back[index as usize] {
                self.next[next as usize]
            } else {
                next
            };
            if fits {
                self.take(Choice::Certain(index));
            }
            at = next;
        }
    }

    /// Finds what may come next. `true` if rule 3 decided, and it is taken already.
    fn choose(&mut self, choices: &mut Vec<Choice>) -> bool {
        let (due, mut all_blind) = (self.due(), true);
        let mut at = self.next[0];
        while !self.is_return(at) {
            let index = self.operation[at as usize];
            let effect = self.certain[index as usize].effect;
            if let Some(to) = self.after(effect)
                && !self.abandons(effect.needs(self.state), to)
            {
                all_blind &= matches!(effect, Effect::Write(_));
                choices.push(Choice::Certain(index));
            }
            at = self.next[at as usize];
        }
        if all_blind {
            if self.finish
                && let Some(at) = choices.iter().position(|&choice| self.needs_of(choice) == 0)
            {
                self.take(choices[at]);
                return true;
            }
            let (mut kept, order) = (0, self.order.len());
            for at in 0..choices.len() {
                let choice = choices[at];
                let end = self.try_finish(choice, due);
                if end == End::Finished && self.finish {
                    return true;
                }
                self.undo(order);
                if end != End::Dead {
                    choices[kept] = choice;
                    kept += 1;
                }
            }
            choices.truncate(kept);
        }
        // What returns first has the least time left.
        choices.sort_by_key(|&choice| match choice {
            Choice::Certain(index) => self.back[index as usize],
            Choice::Open(_) => Entry::MAX,
        });
        self.follow_versions(choices);
        self.choose_open(choices, due);
        false
    }

    /// Puts the choices whose versions are known in the order of these, in the places of such.
    fn follow_versions(&self, choices: &mut [Choice]) {
        let version = |choice: &Choice| match choice {
            Choice::Certain(index) => self.certain[*index as usize].version,
            Choice::Open(_) => None,
        };
        let places: Vec<usize> =
            (0..choices.len()).filter(|at| version(&choices[*at]).is_some()).collect();
        let mut known: Vec<Choice> = places.iter().map(|at| choices[*at]).collect();
        known.sort_by_key(version);
        places.into_iter().zip(known).for_each(|(at, choice)| choices[at] = choice);
    }

    fn choose_open(&mut self, choices: &mut Vec<Choice>, due: Entry) {
        for index in 0..self.classes.len() {
            let class = &self.classes[index];
            let (effect, call_us) = (class.effect, class.calls_us.get(class.used));
            if class.calls_us.first() > Some(&self.times_us[due as usize]) {
                break;
            }
            if call_us.is_none_or(|&call_us| call_us > self.times_us[due as usize]) {
                continue;
            }
            let Some(to) = self.after(effect) else { continue };
            let matters = self.restless || self.needs[to as usize] > 0;
            if to != self.state && matters && !self.abandons(false, to) {
                choices.push(Choice::Open(index as u32));
            }
        }
    }

    /// Goes the way of rule 3 as far as it leads.
    fn try_finish(&mut self, first: Choice, due: Entry) -> End {
        let Choice::Certain(index) = first else { return End::Unclear };
        let to = self.certain[index as usize].effect.makes().unwrap_or(self.state);
        let due_index = self.operation[due as usize];
        let elsewhere = due_index != index
            && !match self.certain[due_index as usize].effect {
                Effect::Differs(at) => at != to,
                effect => effect.needs(to),
            };
        if elsewhere && self.last_need[to as usize] > due && self.needs[to as usize] > 0 {
            // The last that needs it can be no candidate before the key holds something else.
            let others = self.makes[to as usize] - 1;
            return if self.comes_back(to, others) { End::Unclear } else { End::Dead };
        }
        self.take(first);
        let mut forced = true;
        loop {
            self.read();
            let needs = self.needs[self.state as usize];
            if needs == 0 {
                return End::Finished;
            }
            forced &= !self.comes_back(self.state, self.makes[self.state as usize]);
            match self.only_swap() {
                Swaps::One(index) if needs == 1 => self.take(Choice::Certain(index)),
                Swaps::None if forced => return End::Dead,
                _ => return End::Unclear,
            }
        }
    }

    /// The candidates that need what the key holds and change it.
    fn only_swap(&self) -> Swaps {
        let mut found = Swaps::None;
        let mut at = self.next[0];
        while at != 0 && !self.is_return(at) {
            let index = self.operation[at as usize];
            let effect = self.certain[index as usize].effect;
            if effect.needs(self.state) && effect.makes().is_some() {
                found = if found == Swaps::None { Swaps::One(index) } else { Swaps::More };
            }
            at = self.next[at as usize];
        }
        let acts = |class: &Class| {
            let left = class.used < class.calls_us.len();
            left && (class.effect.needs(self.state) || matches!(class.effect, Effect::Add(_)))
        };
        if self.classes.iter().any(acts) { Swaps::More } else { found }
    }

    /// How many of what is left need the state that a choice leads to.
    fn needs_of(&self, choice: Choice) -> u32 {
        let Choice::Certain(index) = choice else { return u32::MAX };
        let to = self.certain[index as usize].effect.makes();
        to.map_or(u32::MAX, |to| self.needs[to as usize])
    }

    /// The state after an effect; none if it does not find what it needs.
    fn after(&mut self, effect: Effect) -> Option<State> {
        match effect {
            Effect::Read(at) => (at == self.state).then_some(at),
            Effect::Differs(at) => (at != self.state).then_some(self.state),
            Effect::Write(to) => Some(to),
            Effect::Swap(from, to) => (from == self.state).then_some(to),
            Effect::Begin(to) => (self.state == ABSENT || self.state == ZERO).then_some(to),
            Effect::Impossible => None,
            Effect::Add(delta) => {
                let number = match self.key.held(self.state) {
                    Held::Absent => 0,
                    Held::Number(number) => number,
                    Held::Text(_) => return None,
                };
                let to = self.key.state(Held::Number(number.checked_add(delta)?));
                if to as usize == self.needs.len() {
                    self.needs.push(0);
                    self.last_need.push(0);
                    self.makes.push(0);
                }
                Some(to)
            }
        }
    }

    /// Rule 2: whether the key would leave a state for good that something left needs, besides
    /// `own` needs of the operation that leaves it.
    fn abandons(&self, own: bool, to: State) -> bool {
        let needs = self.needs[self.state as usize] - u32::from(own);
        let makes = self.makes[self.state as usize];
        to != self.state && needs > 0 && !self.comes_back(self.state, makes)
    }

    /// Whether something left can make this state, which so many operations make.
    fn comes_back(&self, state: State, makes: u32) -> bool {
        if self.one_way {
            return false;
        }
        // What needs one of these two may be content with the other.
        let other = match state {
            ABSENT => self.makes[ZERO as usize],
            ZERO => self.makes[ABSENT as usize],
            _ => 0,
        };
        let number = !matches!(self.key.held(state), Held::Text(_));
        let adds = |class: &Class| {
            matches!(class.effect, Effect::Add(_)) && class.used < class.calls_us.len()
        };
        makes > 0 || other > 0 || (number && self.classes.iter().any(adds))
    }

    /// Puts an operation at the end of the order.
    fn take(&mut self, choice: Choice) {
        self.steps += 1;
        self.order.push((choice, self.state));
        let effect = match choice {
            Choice::Certain(index) => {
                for at in [self.call[index as usize], self.back[index as usize]] {
                    let (next, previous) = (self.next[at as usize], self.previous[at as usize]);
                    self.next[previous as usize] = next;
                    self.previous[next as usize] = previous;
                }
                self.certain[index as usize].effect
            }
            Choice::Open(class) => {
                let class = &mut self.classes[class as usize];
                class.used += 1;
                class.effect
            }
        };
        if let Choice::Certain(_) = choice {
            self.count_needs(effect, u32::MAX);
        }
        if let Some(to) = effect.makes() {
            self.makes[to as usize] -= 1;
        }
        self.state = self.after(effect).unwrap_or(self.state);
    }

    /// Takes operations off the order's end until it is so long.
    fn undo(&mut self, length: usize) {
        while self.order.len() > length {
            let Some((choice, before)) = self.order.pop() else { return };
            self.state = before;
            let effect = match choice {
                Choice::Certain(index) => {
                    for at in [self.back[index as usize], self.call[index as usize]] {
                        let (next, previous) = (self.next[at as usize], self.previous[at as usize]);
                        self.next[previous as usize] = at;
                        self.previous[next as usize] = at;
                    }
                    let effect = self.certain[index as usize].effect;
                    self.count_needs(effect, 1);
                    effect
                }
                Choice::Open(class) => {
                    let class = &mut self.classes[class as usize];
                    class.used -= 1;
                    class.effect
                }
            };
            if let Some(to) = effect.makes() {
                self.makes[to as usize] += 1;
            }
        }
    }

    /// Counts what an operation needs; by `u32::MAX`, which wraps, to take it off again.
    fn count_needs(&mut self, effect: Effect, by: u32) {
        for state in needed(effect) {
            let needs = &mut self.needs[state as usize];
            *needs = needs.wrapping_add(by);
        }
    }

    fn is_return(&self, at: Entry) -> bool {
        self.back[self.operation[at as usize] as usize] == at
    }

    /// The first return that is left.
    fn due(&self) -> Entry {
        let mut at = self.next[0];
        while at != 0 && !self.is_return(at) {
            at = self.next[at as usize];
        }
        at
    }

    /// What distinguishes this configuration from others.
    fn configuration(&self) -> Box<[u32]> {
        let mut reported = vec![self.state];
        let mut at = self.next[0];
        while !self.is_return(at) {
            reported.push(self.operation[at as usize]);
            at = self.next[at as usize];
        }
        for (class, number) in self.classes.iter().zip(0..) {
            if class.used > 0 {
                reported.extend([u32::MAX, number, class.used as u32]);
            }
        }
        reported.into()
    }
}

/// How far the way of rule 3 leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// To a state that nothing left needs.
    Finished,
    /// Nowhere: no explanation begins with it.
    Dead,
    /// Undecided.
    Unclear,
}

/// Operations that change what the key holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Swaps {
    None,
    One(u32),
    More,
}

/// The states that an effect needs, one of them at least.
fn needed(effect: Effect) -> impl Iterator<Item = State> {
    let (first, second) = match effect {
        Effect::Read(at) | Effect::Swap(at, _) => (Some(at), None),
        Effect::Begin(_) => (Some(ABSENT), Some(ZERO)),
        _ => (None, None),
    };
    first.into_iter().chain(second)
}
