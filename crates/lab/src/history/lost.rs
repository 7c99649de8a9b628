//! What was lost with a site whose backup was promoted.
//!
//! A promotion loses what the lost site had acknowledged and its backup had not received; the
//! operator sees that before and accepts it. The writer of a history declares it by a line: from
//! when to when, and of which keys. A judge then trusts no answer about those keys in that time: a
//! write that was answered may have been done or not, and what was read counts for nothing.
//! Everything else is judged as ever: all keys before and after, and all other keys.

use serde::{Deserialize, Serialize};

use super::{Action, History, Operation, Outcome};

/// What was answered in this time about these keys may have been lost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lost {
    /// The backup had everything up to here.
    pub from_us: u64,
    /// By this time the lost site had learned of its failover.
    pub until_us: u64,
    /// The keys that it may have held.
    pub keys: Vec<String>,
    /// Whether each request is lost whole or not at all: nothing of it is left in part.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub whole: bool,
}

impl Lost {
    /// Whether an operation was under way in this time.
    #[must_use]
    pub fn covers_time(&self, operation: &Operation) -> bool {
        let began = operation.call_us <= self.until_us;
        let ended = operation.return_us.is_none_or(|at_us| at_us >= self.from_us);
        began && ended
    }

    /// Whether it is about an operation's key.
    #[must_use]
    pub fn names(&self, operation: &Operation) -> bool {
        self.keys.contains(&operation.key)
    }

    /// Where the keys are in order.
    fn covers(&self, operation: &Operation) -> bool {
        self.covers_time(operation) && self.keys.binary_search(&operation.key).is_ok()
    }
}

impl History {
    /// This history without the answers that do not count; `None`: nothing was lost.
    #[must_use]
    pub fn without_lost(&self) -> Option<History> {
        self.without(|_, _| None)
    }

    /// The same, and an addition that was answered was done as answered or not at all.
    ///
    /// An order that explains this history explains the one of [`History::without_lost`], and is
    /// found in fewer steps: an addition that fits one state is in few orders. If there is none,
    /// nothing follows: a repetition may have been done at another site, from another state. It is
    /// for [`super::Promise::Linearizable`] alone: other judges cannot evaluate a swapped counter.
    #[must_use]
    pub fn without_lost_as_answered(&self) -> Option<History> {
        self.without(|action, outcome| match (action, outcome) {
            // From nothing to a number: from an absent key, or from a zero.
            (Action::Add { delta }, Outcome::Number { value }) if value != delta => {
                let expected = Some(value.checked_sub(*delta)?.to_string());
                Some(Action::CompareAndSet { expected, value: value.to_string() })
            }
            _ => None,
        })
    }

    /// `as_answered`: the write that was done, if it was, as it differs from what was asked.
    fn without(
        &self,
        as_answered: impl Fn(&Action, &Outcome) -> Option<Action>,
    ) -> Option<History> {
        if self.lost.is_empty() {
            return None;
        }
        let mut history = self.clone();
        for lost in &mut history.lost {
            lost.keys.sort_unstable();
        }
        let lost = std::mem::take(&mut history.lost);
        for operation in &mut history.operations {
            if !lost.iter().any(|lost| lost.covers(operation)) {
                continue;
            }
            let why = || "its site was lost".to_owned();
            let done = as_answered(&operation.action, &operation.outcome);
            operation.outcome = match (&operation.action, &operation.outcome) {
                (Action::Get, _) | (_, Outcome::Conflict | Outcome::Failed { .. }) => {
                    Outcome::Failed { why: why() }
                }
                _ => Outcome::Unknown { why: why() },
            };
            if let Some(done) = done {
                operation.action = done;
            }
        }
        Some(history)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Promise;
    use crate::verdict::{self, Verdict};

    fn operation(key: &str, at_us: (u64, u64), action: Action, outcome: Outcome) -> Operation {
        Operation {
            client: format!("c{}", at_us.0),
            site: None,
            key: key.to_owned(),
            call_us: at_us.0,
            waited_us: 0,
            return_us: Some(at_us.1),
            action,
            outcome,
            stale: false,
            together: None,
        }
    }

    fn put(key: &str, at_us: (u64, u64), value: &str) -> Operation {
        let action = Action::Put { value: value.to_owned() };
        operation(key, at_us, action, Outcome::Written { version: None })
    }

    fn get(key: &str, at_us: (u64, u64), value: &str) -> Operation {
        let found = Outcome::Value { value: Some(value.to_owned()), version: None };
        operation(key, at_us, Action::Get, found)
    }

    /// A write at 20 is seen at 30 and is not there at 50.
    fn history(key: &str, lost: Vec<Lost>) -> History {
        let operations = vec![
            put(key, (0, 10), "old"),
            put(key, (20, 25), "new"),
            get(key, (30, 35), "new"),
            get(key, (50, 55), "old"),
        ];
        History { operations, lost, ..History::default() }
    }

    fn holds(history: &History) -> bool {
        let promises = [Promise::Linearizable, Promise::Durable];
        let judged = verdict::judge(history, &promises, &verdict::Options::default());
        judged.iter().all(|judged| matches!(judged.verdict, Verdict::Holds { .. }))
    }

    fn lost(from_us: u64, until_us: u64) -> Vec<Lost> {
        vec![Lost { from_us, until_us, keys: vec!["k".to_owned()], whole: false }]
    }

    #[test]
    fn a_lost_addition_was_done_as_answered_or_not_at_all() {
        let add = |at_us, delta, value| {
            operation("k", at_us, Action::Add { delta }, Outcome::Number { value })
        };
        let lost = History {
            operations: vec![
                add((0, 10), 1, 1),
                add((20, 25), 2, 3),
                add((50, 55), 4, 5),
                get("k", (60, 65), "5"),
            ],
            lost: lost(15, 40),
            ..History::default()
        };
        assert!(holds(&lost));
        let strict = lost.without_lost_as_answered().unwrap();
        let swap = Action::CompareAndSet { expected: Some("1".to_owned()), value: "3".to_owned() };
        assert_eq!(strict.operations[1].action, swap);
        assert!(matches!(strict.operations[1].outcome, Outcome::Unknown { .. }));
        assert_eq!(strict.operations[2], lost.operations[2], "after the loss");
        let judged = verdict::one(&strict, Promise::Linearizable, &verdict::Options::default());
        assert_eq!(judged, Verdict::Holds { examined: 4 });
    }

    #[test]
    fn what_was_declared_lost_may_be_lost_and_nothing_else() {
        assert!(!holds(&history("k", Vec::new())));
        assert!(holds(&history("k", lost(15, 40))));
        assert!(!holds(&history("other", lost(15, 40))), "another key");
        assert!(!holds(&history("k", lost(26, 40))), "it was acknowledged before");
        assert!(!holds(&history("k", lost(15, 28))), "it was read after");
        let mut late = history("k", lost(15, 40));
        late.operations[0] = put("k", (0, 10), "older");
        assert!(!holds(&late), "what is there in the end was never written");
    }
}
