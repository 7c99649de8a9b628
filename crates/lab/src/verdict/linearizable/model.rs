//! What a key does, as the search sees it: states as small numbers, operations as effects on them.
//!
//! Operations whose answers came back are *certain*: they took effect between their call and their
//! return. The others are *open*: they may have, at any time after their call. Open operations are
//! what makes a search long, since each doubles the number of things that may have happened, so as
//! many as possible are settled before it begins ([`KeyHistory::settle_open`]).

use std::collections::HashMap;

use crate::history::{Action, History, Outcome};
use crate::verdict::{answered, failed, shown};

/// A state of a key: an index into [`KeyHistory::states`].
pub(super) type State = u32;

/// The state of a key that no operation has written.
pub(super) const ABSENT: State = 0;
/// The state in which an absent key is when 0 is added to it.
pub(super) const ZERO: State = 1;

/// What a key can hold. A text that is how a number is written is that number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Held<'h> {
    /// Nothing.
    Absent,
    /// A number.
    Number(i64),
    /// Any other text.
    Text(&'h str),
}

impl<'h> Held<'h> {
    fn of(text: Option<&'h str>) -> Held<'h> {
        let Some(text) = text else { return Held::Absent };
        match text.parse::<i64>() {
            // `+5` and `007` are texts.
            Ok(number) if number.to_string() == text => Held::Number(number),
            _ => Held::Text(text),
        }
    }

    pub(super) fn shown(self) -> String {
        match self {
            Held::Absent => shown(None),
            Held::Number(number) => format!("\"{number}\""),
            Held::Text(text) => shown(Some(text)),
        }
    }
}

/// What an operation needs to find, and leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Effect {
    /// Finds this state and leaves it.
    Read(State),
    /// Finds any state but this one, and leaves it.
    Differs(State),
    /// Finds whatever there is and leaves this one.
    Write(State),
    /// Finds the first and leaves the second.
    Swap(State, State),
    /// Finds nothing or the number 0, and leaves this state.
    Begin(State),
    /// Adds to whatever number it finds; only of open operations, since an answer contains the
    /// number.
    Add(i64),
    /// Can never have happened: the number that came back is none that adding can give.
    Impossible,
}

impl Effect {
    /// Whether it finds this one state, and perhaps one other, and nothing else.
    pub(super) fn needs(self, state: State) -> bool {
        match self {
            Effect::Read(at) | Effect::Swap(at, _) => at == state,
            Effect::Begin(_) => state == ABSENT || state == ZERO,
            _ => false,
        }
    }

    /// The state it leaves whenever it happens, if it changes anything.
    pub(super) fn makes(self) -> Option<State> {
        match self {
            Effect::Write(to) | Effect::Swap(_, to) | Effect::Begin(to) => Some(to),
            _ => None,
        }
    }
}

/// An operation that took effect between its call and its return.
#[derive(Debug, Clone, Copy)]
pub(super) struct Certain {
    pub(super) call_us: u64,
    pub(super) return_us: u64,
    pub(super) effect: Effect,
    /// The place in the key's order that the answer states. It is no evidence, and guides the search.
    pub(super) version: Option<u64>,
}

/// An operation that may have taken effect at any time after its call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Open {
    pub(super) call_us: u64,
    pub(super) effect: Effect,
}

/// Which part of a key's history is looked at.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part<'h> {
    /// What had been seen by the return of this operation, identified by its time and its index:
    /// what returned later is open, what was called later is not there.
    pub(super) until: (u64, usize),
    /// Instead of what this operation did, let it have read this.
    pub(super) instead: Option<(usize, Held<'h>)>,
    /// With the compare-and-sets that found something else?
    pub(super) conflicts: bool,
}

impl Part<'_> {
    pub(super) const ALL: Part<'static> =
        Part { until: (u64::MAX, usize::MAX), instead: None, conflicts: true };
}

/// The history of one key.
#[derive(Debug)]
pub(super) struct KeyHistory<'h> {
    states: Vec<Held<'h>>,
    ids: HashMap<Held<'h>, State>,
    /// In any order.
    pub(super) certain: Vec<Certain>,
    /// In order of their calls.
    pub(super) open: Vec<Open>,
}

fn version_of(outcome: &Outcome) -> Option<u64> {
    match outcome {
        Outcome::Value { version, .. } | Outcome::Written { version, .. } => *version,
        _ => None,
    }
}

impl<'h> KeyHistory<'h> {
    /// The part of the history that these operations, all of one key, make up.
    pub(super) fn new(
        history: &'h History,
        operations: &[usize],
        part: Part<'h>,
    ) -> KeyHistory<'h> {
        let (states, ids) = (Vec::new(), HashMap::new());
        let mut key = KeyHistory { states, ids, certain: Vec::new(), open: Vec::new() };
        key.state(Held::Absent);
        key.state(Held::Number(0));
        for &index in operations {
            key.take_up(history, index, part);
        }
        key.open.sort_by_key(|open| open.call_us);
        key.settle_open();
        key
    }

    /// The number of a state.
    pub(super) fn state(&mut self, held: Held<'h>) -> State {
        let states = &mut self.states;
        *self.ids.entry(held).or_insert_with(|| {
            states.push(held);
            (states.len() - 1) as State
        })
    }

    /// What a state is.
    pub(super) fn held(&self, state: State) -> Held<'h> {
        self.states[state as usize]
    }

    /// How many states have a number.
    pub(super) fn states(&self) -> usize {
        self.states.len()
    }

    fn take_up(&mut self, history: &'h History, index: usize, part: Part<'h>) {
        let operation = &history.operations[index];
        let call_us = operation.call_us;
        let stale_read = operation.stale && operation.action == Action::Get;
        if stale_read || failed(operation) || call_us > part.until.0 {
            return;
        }
        let returned = |&at_us: &u64| answered(operation) && (at_us, index) <= part.until;
        match operation.return_us.filter(returned) {
            Some(return_us) => {
                let effect = match part.instead {
                    Some((at, held)) if at == index => Effect::Read(self.state(held)),
                    _ => self.certain_effect(&operation.action, &operation.outcome),
                };
                if part.conflicts || !matches!(effect, Effect::Differs(_)) {
                    let version = version_of(&operation.outcome);
                    self.certain.push(Certain { call_us, return_us, effect, version });
                }
            }
            None => {
                if let Some(effect) = self.open_effect(&operation.action) {
                    self.open.push(Open { call_us, effect });
                }
            }
        }
    }

    fn certain_effect(&mut self, action: &'h Action, outcome: &'h Outcome) -> Effect {
        match (action, outcome) {
            (Action::Get, Outcome::Value { value, .. }) => {
                Effect::Read(self.state(Held::of(value.as_deref())))
            }
            (Action::Put { value }, Outcome::Written { .. }) => {
                Effect::Write(self.state(Held::of(Some(value))))
            }
            (Action::Delete, Outcome::Written { .. }) => Effect::Write(ABSENT),
            (Action::CompareAndSet { expected, .. }, Outcome::Conflict) => {
                Effect::Differs(self.state(Held::of(expected.as_deref())))
            }
            (Action::CompareAndSet { expected, value }, Outcome::Written { .. }) => {
                let from = self.state(Held::of(expected.as_deref()));
                swap(from, self.state(Held::of(Some(value))))
            }
            (Action::Add { delta }, Outcome::Number { value }) => match value.checked_sub(*delta) {
                Some(0) => Effect::Begin(self.state(Held::Number(*value))),
                Some(before) => {
                    swap(self.state(Held::Number(before)), self.state(Held::Number(*value)))
                }
                None => Effect::Impossible,
            },
            // The judge has refused answers of another kind.
            _ => Effect::Impossible,
        }
    }

    /// None for what changes nothing.
    fn open_effect(&mut self, action: &'h Action) -> Option<Effect> {
        match action {
            Action::Get => None,
            Action::Put { value } => Some(Effect::Write(self.state(Held::of(Some(value))))),
            Action::Delete => Some(Effect::Write(ABSENT)),
            Action::Add { delta } => Some(Effect::Add(*delta)),
            Action::CompareAndSet { expected, value } => {
                let from = self.state(Held::of(expected.as_deref()));
                let to = self.state(Held::of(Some(value)));
                (from != to).then_some(Effect::Swap(from, to))
            }
        }
    }

    /// Drops open operations that cannot matter, and makes those certain that must have happened.
    ///
    /// **Dropped** is an open put, delete or compare-and-set after which the key holds `v`, if no
    /// other operation could observe it: none that needs `v`, no conflict that allows it, no other
    /// open operation that acts on it. In any order with it, the next operation after it that is
    /// not itself without effect writes blindly or is not there at all, for every other kind would
    /// find `v`. So the order without it explains the same history; and an order without it is one
    /// in which it did not happen.
    ///
    /// **Certain** becomes an open put or compare-and-set after which the key holds `v`, if nothing
    /// else can make `v` and some certain operation needs it: in every order it happened, and
    /// before the first of those returned.
    ///
    /// Each can make way for the other, so both are repeated until nothing changes.
    fn settle_open(&mut self) {
        loop {
            let before = self.open.len();
            self.drop_unnoticed();
            self.make_certain();
            if self.open.len() == before {
                return;
            }
        }
    }

    fn drop_unnoticed(&mut self) {
        let mut noticed = vec![false; self.states.len()];
        let (mut conflicts, mut conflicts_with) = (0_u32, vec![0_u32; self.states.len()]);
        for certain in &self.certain {
            match certain.effect {
                Effect::Read(at) | Effect::Swap(at, _) => noticed[at as usize] = true,
                Effect::Begin(_) => {
                    noticed[ABSENT as usize] = true;
                    noticed[ZERO as usize] = true;
                }
                Effect::Differs(at) => {
                    conflicts += 1;
                    conflicts_with[at as usize] += 1;
                }
                Effect::Write(_) | Effect::Add(_) | Effect::Impossible => {}
            }
        }
        for open in &self.open {
            match open.effect {
                Effect::Swap(at, _) => noticed[at as usize] = true,
                Effect::Add(_) => {
                    for (state, held) in self.states.iter().enumerate() {
                        noticed[state] |= !matches!(held, Held::Text(_));
                    }
                }
                _ => {}
            }
        }
        self.open.retain(|open| match open.effect.makes() {
            Some(to) => noticed[to as usize] || conflicts > conflicts_with[to as usize],
            None => true,
        });
    }

    fn make_certain(&mut self) {
        let mut makers = vec![0_u32; self.states.len()];
        makers[ABSENT as usize] = 1;
        let effects =
            self.certain.iter().map(|c| c.effect).chain(self.open.iter().map(|o| o.effect));
        let mut adds = false;
        for effect in effects {
            match effect.makes() {
                Some(to) => makers[to as usize] += 1,
                None => adds |= matches!(effect, Effect::Add(_)),
            }
        }
        if adds {
            for (state, held) in self.states.iter().enumerate() {
                makers[state] += u32::from(matches!(held, Held::Number(_)));
            }
        }
        let mut needed_by_us = vec![None::<u64>; self.states.len()];
        for certain in &self.certain {
            let mut need = |state: State| {
                let first = needed_by_us[state as usize].get_or_insert(certain.return_us);
                *first = certain.return_us.min(*first);
            };
            match certain.effect {
                Effect::Read(at) | Effect::Swap(at, _) => need(at),
                // Either will do, so neither is needed.
                Effect::Begin(_) => {}
                _ => {}
            }
        }
        let certain = &mut self.certain;
        self.open.retain(|open| {
            let to = open.effect.makes().filter(|&to| makers[to as usize] == 1);
            match to.and_then(|to| needed_by_us[to as usize]) {
                // What was seen before it was called was never made; the search will report it.
                Some(return_us) if return_us >= open.call_us => {
                    let Open { call_us, effect } = *open;
                    certain.push(Certain { call_us, return_us, effect, version: None });
                    false
                }
                _ => true,
            }
        });
    }
}

/// A compare-and-set that changes nothing is a read.
fn swap(from: State, to: State) -> Effect {
    if from == to { Effect::Read(from) } else { Effect::Swap(from, to) }
}
