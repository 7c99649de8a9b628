//! Each key behaves as one copy, in real time.
//!
//! **Judged**: for each key there is an order of its operations such that each returned what a
//! single copy would have returned, taking them one after the other in this order, and an operation
//! that returned before another was called comes before it (Herlihy and Wing, *Linearizability: a
//! correctness condition for concurrent objects*, 1990). A history is linearizable if and only if
//! each of its keys is, so each is judged alone. What touches in time (one returns in the
//! microsecond in which the other is called) overlaps.
//!
//! The copy holds nothing, or a string. An add takes nothing as 0 and leaves a number as text; on
//! another text it cannot succeed. An operation that `failed` never happened. One that is
//! `unknown`, or never returned, happened at some time after its call, or never. Stale reads are
//! left out.
//!
//! [`model`] defines what operations do, [`search`] looks for the order. If there is none, the
//! history is cut to the shortest beginning that has none. The operation that returned last in it
//! is the one that cannot be: without its answer all others can be explained, and the violation
//! names what it could have found instead.
//!
//! Deciding this is NP-complete in general (Gibbons and Korach, *Testing shared memories*, 1997).
//! The search is quick where values are distinct, and gives up after [`Options::search_steps_max`]
//! where it is not.

mod model;
mod search;

use std::collections::{BTreeMap, BTreeSet};

use self::model::{Held, KeyHistory, Part};
use self::search::{Found, Search};
use super::{Options, Verdict, Violation, answered, describe, shown};
use crate::history::{Action, History, Outcome, Promise};

/// Most values to name that an operation could have found.
const COULD_FIND_MAX: usize = 4;

/// Judges a history; counts its operations.
#[must_use]
pub fn judge(history: &History, options: &Options) -> Verdict {
    judge_counting(history, options).0
}

/// The verdict, and the steps it took.
fn judge_counting(history: &History, options: &Options) -> (Verdict, u64) {
    let mut keys: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (index, operation) in history.operations.iter().enumerate() {
        keys.entry(&operation.key).or_default().push(index);
    }
    let (mut steps, mut undecided) = (0, None);
    for (name, operations) in &keys {
        let key = Key { history, name, operations, steps_max: options.search_steps_max };
        match key.decide(Part::ALL, &mut steps) {
            Found::Order => {}
            Found::NoOrder => return (Verdict::Broken(key.explain()), steps),
            Found::OutOfSteps => undecided = undecided.or(Some(name)),
        }
    }
    let verdict = match undecided {
        None => Verdict::Holds { examined: history.operations.len() as u64 },
        Some(name) => Verdict::Undecided {
            why: format!(
                "key {name:?}: no order was found in {} steps, nor that there is none; it may need \
                 more steps, fewer unknown answers or values that differ",
                options.search_steps_max
            ),
        },
    };
    (verdict, steps)
}

/// One key's operations.
#[derive(Debug)]
struct Key<'h> {
    history: &'h History,
    name: &'h str,
    operations: &'h [usize],
    steps_max: u64,
}

impl<'h> Key<'h> {
    /// Whether there is an order for a part of the history; adds up the steps.
    fn decide(&self, part: Part<'h>, steps: &mut u64) -> Found {
        let mut run = |part: Part<'h>, finish: bool, steps_max: u64| {
            let mut key = KeyHistory::new(self.history, self.operations, part);
            let mut search = Search::new(&mut key, finish);
            let found = search.run(steps_max);
            *steps += search.steps();
            (found, search.is_exact(), search.has_conflicts())
        };
        // Most histories take little more than a step for each operation, or are not explained
        // by many more.
        let brief = self.steps_max.min(4 * self.operations.len() as u64 + 1_000);
        let (found, exact, conflicts) = run(part, true, brief);
        if found == Found::Order || (exact && found == Found::NoOrder) {
            return found;
        }
        // What breaks without the conflicts breaks with them, for leaving out what only reads
        // leaves an order an order; and without them it is more often quickly decided.
        if conflicts
            && let (Found::NoOrder, true, _) =
                run(Part { conflicts: false, ..part }, true, self.steps_max)
        {
            return Found::NoOrder;
        }
        if found == Found::OutOfSteps {
            let (found, exact, _) = run(part, true, self.steps_max);
            if exact || found == Found::Order {
                return found;
            }
        }
        run(part, false, self.steps_max).0
    }

    /// Why there is no order.
    fn explain(&self) -> Violation {
        // Each beginning that is tried is a search again: rather a longer beginning than a long
        // wait.
        let steps_max = self.steps_max.min(2 * self.operations.len() as u64 + 10_000);
        let brief = Key { steps_max, ..*self };
        let broken = |part| brief.decide(part, &mut 0) == Found::NoOrder;
        let until =
            |&(return_us, index): &(u64, usize)| Part { until: (return_us, index), ..Part::ALL };
        let mut returns: Vec<(u64, usize)> = self
            .operations
            .iter()
            .filter(|&&index| answered(&self.history.operations[index]))
            .filter_map(|&index| Some((self.history.operations[index].return_us?, index)))
            .collect();
        returns.sort_unstable();
        // Beginnings without an order go on to have none.
        let count = returns.partition_point(|at| !broken(until(at)));
        let Some(&last) = returns.get(count) else {
            return self.unexplained();
        };
        let could_find = self.could_find(until(&last), last.1, &brief);
        self.violation(last, count + 1, &could_find)
    }

    /// What the last operation of a part could have found.
    fn could_find(&self, part: Part<'h>, last: usize, brief: &Key<'h>) -> Vec<Held<'h>> {
        let key = KeyHistory::new(self.history, self.operations, part);
        let certain = key.certain.iter().map(|c| (c.call_us, c.effect));
        let open = key.open.iter().map(|o| (o.call_us, o.effect));
        let mut made: Vec<(u64, Held<'h>)> = certain
            .chain(open)
            .filter_map(|(call_us, effect)| Some((call_us, key.held(effect.makes()?))))
            .collect();
        made.sort_by_key(|&(call_us, _)| std::cmp::Reverse(call_us));
        // Each try is a search through all of it.
        let tries_max = (500_000 / self.operations.len().max(1)).clamp(4, 16);
        let mut tried: Vec<Held<'h>> = Vec::new();
        for held in made.into_iter().map(|(_, held)| held).chain([Held::Absent]) {
            if !tried.contains(&held) && tried.len() < tries_max {
                tried.push(held);
            }
        }
        let fits = |&held: &Held<'h>| {
            let part = Part { instead: Some((last, held)), ..part };
            brief.decide(part, &mut 0) == Found::Order
        };
        tried.into_iter().filter(fits).take(COULD_FIND_MAX).collect()
    }

    fn violation(&self, last: (u64, usize), count: usize, could_find: &[Held<'h>]) -> Violation {
        let (at_us, last) = last;
        let operation = &self.history.operations[last];
        let mut what = format!(
            "no order explains the first {count} answers about key {:?}, though one explains the {} \
             before the last of them, {}. ",
            self.name,
            count - 1,
            describe(operation)
        );
        let mut shows = BTreeSet::from([last]);
        let needed = match (&operation.action, &operation.outcome) {
            (Action::Get, Outcome::Value { value, .. }) => Some(value.clone()),
            (Action::CompareAndSet { expected, .. }, Outcome::Written { .. }) => {
                Some(expected.clone())
            }
            (Action::Add { delta }, Outcome::Number { value }) => {
                value.checked_sub(*delta).map(|number| Some(number.to_string()))
            }
            _ => None,
        };
        if let Some(needed) = needed {
            let makers = self.makers(needed.as_deref(), at_us);
            let found = shown(needed.as_deref());
            match makers.as_slice() {
                [] if needed.is_none() => what += "It found nothing there",
                [] => what += &format!("It found {found}, which no client had written"),
                makers => {
                    let explanations =
                        makers.iter().map(|&i| describe(&self.history.operations[i]));
                    let explanations = explanations.collect::<Vec<_>>().join("; ");
                    what += &format!("It found {found}, which comes from: {explanations}");
                    shows.extend(makers);
                }
            }
        } else {
            what += "It cannot have found what it reports";
        }
        let could: Vec<String> = could_find.iter().map(|held| held.shown()).collect();
        if !could.is_empty() {
            what += &format!("; it could have found {}", could.join(" or "));
        }
        what += ".";
        for held in could_find {
            let text = match held {
                Held::Absent => None,
                Held::Number(number) => Some(number.to_string()),
                Held::Text(text) => Some((*text).to_owned()),
            };
            shows.extend(self.makers(text.as_deref(), at_us));
        }
        Violation {
            promise: Promise::Linearizable,
            key: Some(self.name.to_owned()),
            what,
            operations: shows.into_iter().collect(),
            requests: Vec::new(),
            at_us: Some(at_us),
        }
    }

    /// The last few operations called until then that may have left this.
    fn makers(&self, text: Option<&str>, until_us: u64) -> Vec<usize> {
        const MAKERS_MAX: usize = 3;
        let makes = |index: &&usize| {
            let operation = &self.history.operations[**index];
            let made = match (&operation.action, &operation.outcome) {
                (_, Outcome::Failed { .. } | Outcome::Conflict) => return false,
                (Action::Put { value } | Action::CompareAndSet { value, .. }, _) => {
                    Some(value.as_str())
                }
                (Action::Delete, _) => None,
                (Action::Add { .. }, Outcome::Number { value }) => {
                    return text == Some(value.to_string().as_str())
                        && operation.call_us <= until_us;
                }
                _ => return false,
            };
            made == text && operation.call_us <= until_us
        };
        let mut found: Vec<usize> = self.operations.iter().filter(makes).copied().collect();
        found.sort_by_key(|&index| self.history.operations[index].call_us);
        found.split_off(found.len().saturating_sub(MAKERS_MAX))
    }

    /// For when no beginning could be shown to have no order within the steps.
    fn unexplained(&self) -> Violation {
        Violation {
            promise: Promise::Linearizable,
            key: Some(self.name.to_owned()),
            what: format!(
                "no order explains the {} operations on key {:?}; which of them is at fault would \
                 take too long to find out",
                self.operations.len(),
                self.name
            ),
            operations: Vec::new(),
            requests: Vec::new(),
            at_us: None,
        }
    }
}

#[cfg(test)]
mod tests;
