//! The two workloads of Gesto: many small values, all alike, and clients that change replicas.
//!
//! From Afonso, Bravo and Rodrigues, *Combining high throughput and low migration latency for
//! consistent data storage on the edge* (ICCCN 2020). 10,000 keys are equally likely, values are
//! two bytes. *Steady* is 90 % reads and 10 % writes; in *moving* 20 % of what a client does is to
//! migrate to a replica drawn at random, beside 70 % reads and 10 % writes.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{Operation, Step, check_keys, check_value_bytes, weighted};
use crate::random::Random;

/// One of Gesto's workloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Gesto {
    /// Which.
    pub mix: Mix,
    /// How many keys are loaded before the start.
    #[serde(default = "ten_thousand")]
    pub keys: u64,
    /// Size of a value in bytes.
    #[serde(default = "two")]
    pub value_bytes: usize,
}

/// Which of Gesto's workloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Mix {
    /// 90 % reads, 10 % writes.
    Steady,
    /// 70 % reads, 10 % writes, 20 % moves to a random site.
    Moving,
}

fn ten_thousand() -> u64 {
    10_000
}

fn two() -> usize {
    2
}

impl Gesto {
    pub(super) fn check(&self) -> Result<(), String> {
        check_keys("gesto", "keys", self.keys)?;
        check_value_bytes("gesto", self.value_bytes)
    }

    pub(super) fn keys_to_load(&self) -> impl Iterator<Item = String> + use<> {
        (0..self.keys).map(key)
    }

    pub(super) fn next(self, random: &mut Random) -> Step {
        let percent = match self.mix {
            Mix::Steady => [90, 10, 0],
            Mix::Moving => [70, 10, 20],
        };
        let operation = match weighted(percent, random) {
            0 => Operation::Get,
            1 => Operation::Put { value_bytes: self.value_bytes },
            _ => return Step { key: String::new(), operation: Operation::Move },
        };
        Step { key: key(random.below(self.keys)), operation }
    }
}

fn key(number: u64) -> String {
    format!("k{number}")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{
        super::tests::{HERE, STEPS, assert_mix, assert_share, spec, steps},
        *,
    };

    #[test]
    fn each_mix_has_its_shares() {
        let steady = steps(&spec("kind = \"gesto\"\nmix = \"steady\""), &HERE, 1);
        assert_mix(&steady, &[("get", 0.9), ("put", 0.1)]);
        let moving = steps(&spec("kind = \"gesto\"\nmix = \"moving\""), &HERE, 1);
        assert_mix(&moving, &[("get", 0.7), ("put", 0.1), ("move", 0.2)]);
        for step in &moving {
            assert_eq!(step.key.is_empty(), step.operation == Operation::Move);
        }
    }

    #[test]
    fn keys_are_even_and_loaded() {
        let spec = spec("kind = \"gesto\"\nmix = \"steady\"\nkeys = 100");
        let loaded: BTreeSet<String> = spec.keys_to_load().collect();
        let steps = steps(&spec, &HERE, 1);
        assert!(steps.iter().all(|step| loaded.contains(&step.key)));
        for key in ["k0", "k50", "k99"] {
            let count = steps.iter().filter(|step| step.key == key).count();
            assert_share(count, STEPS, 0.01, key);
        }
        assert_eq!((loaded.len(), spec.value_bytes()), (100, 2));
    }
}
