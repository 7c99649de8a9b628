//! A workload meant to find bugs: few keys, every operation, much contention.
//!
//! A store breaks where operations meet: two writes of one key at a time, a delete under a
//! compare-and-set, a read after a fault. So there are few keys, and some of them are asked for far
//! more often than others. Numbers live on keys of their own, because an add and a put of one key
//! show little about each other; reads go to both in proportion to their writes.
//!
//! Nothing is loaded: that a key was never written is one of the cases. The caller makes every
//! value unique, so that a verdict can determine which write a read saw.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    Operation, Step, check_keys, check_value_bytes,
    choice::{Choice, Chooser},
    weighted,
};
use crate::random::Random;

const WEIGHT_MAX: u32 = 1_000_000;

/// How many keys, and how often which operation.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Check {
    /// How many keys hold values, in each scope.
    pub keys: u64,
    /// How many further keys hold numbers, in each scope.
    pub counters: u64,
    /// Which of them.
    pub choice: Choice,
    /// Size of a value in bytes; a run that is judged makes it larger where a unique one needs
    /// more.
    pub value_bytes: usize,
    /// Weight of reads.
    pub get: u32,
    /// Weight of writes.
    pub put: u32,
    /// Weight of removals.
    pub delete: u32,
    /// Weight of writes that depend on what was last seen.
    pub compare_and_set: u32,
    /// Weight of additions of 1 to 9.
    pub add: u32,
}

impl Default for Check {
    fn default() -> Check {
        Check {
            keys: 8,
            counters: 2,
            choice: Choice::Zipfian,
            value_bytes: 16,
            get: 40,
            put: 30,
            delete: 5,
            compare_and_set: 15,
            add: 10,
        }
    }
}

impl Check {
    fn weights(&self) -> [u32; 5] {
        [self.get, self.put, self.delete, self.compare_and_set, self.add]
    }

    pub(super) fn check(&self) -> Result<(), String> {
        check_keys("check", "keys", self.keys)?;
        check_keys("check", "counters", self.counters)?;
        check_value_bytes("check", self.value_bytes)?;
        self.choice.check().map_err(|error| format!("check: {error}"))?;
        if self.weights().iter().all(|weight| *weight == 0) {
            return Err("check: one of get, put, delete, compare_and_set and add must be above 0"
                .to_owned());
        }
        if self.weights().iter().any(|weight| *weight > WEIGHT_MAX) {
            return Err(format!("check: a weight is at most {WEIGHT_MAX}"));
        }
        Ok(())
    }
}

/// A workload under way.
#[derive(Debug, Clone)]
pub(super) struct Running {
    spec: Check,
    values: Chooser,
    counters: Chooser,
}

impl Running {
    pub(super) fn new(spec: &Check) -> Running {
        Running {
            spec: *spec,
            values: Chooser::new(spec.choice, spec.keys),
            counters: Chooser::new(spec.choice, spec.counters),
        }
    }

    pub(super) fn next(&mut self, random: &mut Random) -> Step {
        let Check { value_bytes, put, delete, compare_and_set, add, .. } = self.spec;
        let operation = match weighted(self.spec.weights(), random) {
            0 => Operation::Get,
            1 => Operation::Put { value_bytes },
            2 => Operation::Delete,
            3 => Operation::CompareAndSet { value_bytes },
            _ => Operation::Add { delta: 1 + random.below(9) as i64 },
        };
        let writes = put + delete + compare_and_set;
        let counter = match operation {
            Operation::Get if writes + add > 0 => weighted([writes, add], random) == 1,
            Operation::Add { .. } => true,
            _ => false,
        };
        let key = if counter {
            format!("n{}", self.counters.next(random))
        } else {
            format!("v{}", self.values.next(random))
        };
        Step { key, operation }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::{
        super::tests::{HERE, assert_mix, assert_share, spec, steps},
        *,
    };

    #[test]
    fn operations_come_by_their_weights() {
        let usual =
            [("get", 0.4), ("put", 0.3), ("delete", 0.05), ("compare-and-set", 0.15), ("add", 0.1)];
        assert_mix(&steps(&spec("kind = \"check\""), &HERE, 1), &usual);
        let adds =
            spec("kind = \"check\"\nget = 1\nput = 0\ndelete = 0\ncompare_and_set = 0\nadd = 3");
        let steps = steps(&adds, &HERE, 1);
        assert_mix(&steps, &[("get", 0.25), ("add", 0.75)]);
        assert!(steps.iter().all(|step| step.key.starts_with('n')), "reads follow the writes");
    }

    #[test]
    fn numbers_have_keys_of_their_own() {
        let mut keys: BTreeMap<bool, BTreeSet<String>> = BTreeMap::new();
        let (mut gets, mut of_numbers) = (0, 0);
        for step in steps(&spec("kind = \"check\"\nkeys = 3\ncounters = 4"), &HERE, 1) {
            match step.operation {
                Operation::Get => {
                    gets += 1;
                    of_numbers += usize::from(step.key.starts_with('n'));
                }
                Operation::Add { delta } => {
                    assert!((1..=9).contains(&delta));
                    keys.entry(true).or_default().insert(step.key);
                }
                _ => {
                    keys.entry(false).or_default().insert(step.key);
                }
            }
        }
        let listed = |numbers: bool| keys[&numbers].iter().cloned().collect::<Vec<_>>().join(" ");
        assert_eq!((listed(false).as_str(), listed(true).as_str()), ("v0 v1 v2", "n0 n1 n2 n3"));
        assert_share(of_numbers, gets, 10.0 / 60.0, "reads of numbers");
    }

    #[test]
    fn some_keys_are_hot() {
        let steps = steps(&spec("kind = \"check\""), &HERE, 1);
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for step in steps.iter().filter(|step| step.key.starts_with('v')) {
            *counts.entry(&step.key).or_default() += 1;
        }
        let (most, least) = (counts.values().max().unwrap(), counts.values().min().unwrap());
        assert!(counts.len() == 8 && *most > 4 * least, "{counts:?}");
    }

    #[test]
    fn nothing_is_loaded() {
        assert_eq!(spec("kind = \"check\"").keys_to_load().count(), 0);
    }
}
