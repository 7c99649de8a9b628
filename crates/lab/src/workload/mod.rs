//! What clients do: which key, which operation, and when the next one.
//!
//! A workload decides what to do next and does nothing itself: the same one drives the simulator,
//! real sites, and other stores beside them. All chance comes from the generator that the caller
//! seeds. Keys come without a scope; the caller puts the site's prefix before them, or whatever its
//! world sets. Values come as a size; the caller makes them, and makes each unique where it is
//! judged.
//!
//! | kind | what it is like |
//! | --- | --- |
//! | [`ycsb`] | the six core workloads of the Yahoo! Cloud Serving Benchmark |
//! | [`portkey`] | six workloads of clients that move, whose keys are theirs, a region's, a group's, or shared by all |
//! | [`gesto`] | reads, writes and migrations between replicas |
//! | [`check`] | a few hot keys and every operation: meant to find bugs, not to be fast |
//! | [`causal`] | sessions of causal keys, which read and write several at once and move between sites |
//!
//! [`pace`] decides when: in a closed loop with think times, or in an open one at a rate.
//!
//! ```
//! use lab::{random::Random, workload::{Place, Spec, Workload}};
//!
//! let spec: Spec = toml::from_str("kind = \"ycsb\"\nvariant = \"b\"\nrecords = 500").unwrap();
//! spec.check().unwrap();
//! let mut workload = Workload::new(&spec);
//! let place = Place { client: 0, clients: 1, site: 0, sites: 1 };
//! let step = workload.next(&place, &mut Random::new(1));
//! assert!(step.key.starts_with("user"));
//! ```

pub mod causal;
pub mod check;
pub mod choice;
pub mod gesto;
pub mod pace;
pub mod portkey;
pub mod ycsb;

use schemars::JsonSchema;
use serde::Deserialize;

use self::{causal::Causal, check::Check, gesto::Gesto, portkey::Portkey, ycsb::Ycsb};
use crate::random::Random;

/// Most keys of one workload.
pub const KEYS_MAX: u64 = 10_000_000;
/// Largest value of a workload, in bytes.
pub const VALUE_BYTES_MAX: usize = model::limits::VALUE_BYTES_MAX;

/// The client, and where it is now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Which client, from 0.
    pub client: usize,
    /// How many clients there are.
    pub clients: usize,
    /// The site it is at, from 0.
    pub site: usize,
    /// How many sites there are.
    pub sites: usize,
}

/// One thing to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The key, without its scope. A [`Operation::Move`] has none: it is empty.
    pub key: String,
    /// What to do with it.
    pub operation: Operation,
}

/// What to do with a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Read it.
    Get,
    /// Write it.
    Put {
        /// Size of the value.
        value_bytes: usize,
    },
    /// Remove it.
    Delete,
    /// Add to its number.
    Add {
        /// How much.
        delta: i64,
    },
    /// Write it if it still holds what this client last saw there.
    CompareAndSet {
        /// Size of the value.
        value_bytes: usize,
    },
    /// Read it, then write it.
    ReadModifyWrite {
        /// Size of the value.
        value_bytes: usize,
    },
    /// Read it and those that follow in the order of keys.
    Scan {
        /// How many at most, the first included.
        count: usize,
    },
    /// Go to a site drawn at random.
    Move,
}

/// What clients do.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Spec {
    /// The core workloads of the Yahoo! Cloud Serving Benchmark.
    Ycsb(Ycsb),
    /// Clients that move, with keys of their own, of a region, of a group, and shared by all.
    Portkey(Portkey),
    /// Reads, writes and migrations between replicas.
    Gesto(Gesto),
    /// A few hot keys and every operation, to find bugs.
    Check(Check),
    /// Sessions of causal keys.
    Causal(Causal),
}

impl Spec {
    /// Whether the parameters make sense.
    ///
    /// # Errors
    /// They do not; a sentence names what would.
    pub fn check(&self) -> Result<(), String> {
        match self {
            Spec::Ycsb(ycsb) => ycsb.check(),
            Spec::Portkey(_) => Ok(()),
            Spec::Gesto(gesto) => gesto.check(),
            Spec::Check(check) => check.check(),
            Spec::Causal(causal) => causal.check(),
        }
    }

    /// The keys that must be there before the first step; each is put once, with a value of
    /// [`Spec::value_bytes`].
    #[must_use]
    pub fn keys_to_load(&self) -> Box<dyn Iterator<Item = String>> {
        match self {
            Spec::Ycsb(ycsb) => Box::new(ycsb.keys_to_load()),
            Spec::Portkey(portkey) => Box::new(portkey.keys_to_load()),
            Spec::Gesto(gesto) => Box::new(gesto.keys_to_load()),
            // A key that was never written is one of the cases to look at.
            Spec::Check(_) | Spec::Causal(_) => Box::new(std::iter::empty()),
        }
    }

    /// The size of its values.
    #[must_use]
    pub fn value_bytes(&self) -> usize {
        match self {
            Spec::Ycsb(ycsb) => ycsb.value_bytes,
            Spec::Portkey(_) => portkey::VALUE_BYTES,
            Spec::Gesto(gesto) => gesto.value_bytes,
            Spec::Check(check) => check.value_bytes,
            Spec::Causal(causal) => causal.value_bytes,
        }
    }
}

/// A workload under way. There is one for all clients of a run: what one inserts, others may read.
#[derive(Debug, Clone)]
pub struct Workload(Kind);

#[derive(Debug, Clone)]
enum Kind {
    Ycsb(ycsb::Running),
    Portkey(Portkey),
    Gesto(Gesto),
    Check(check::Running),
    /// Its steps are of another form: [`Causal::next`].
    Causal,
}

impl Workload {
    /// One that was [checked](Spec::check), at its start.
    #[must_use]
    pub fn new(spec: &Spec) -> Workload {
        Workload(match spec {
            Spec::Ycsb(ycsb) => Kind::Ycsb(ycsb::Running::new(ycsb)),
            Spec::Portkey(portkey) => Kind::Portkey(*portkey),
            Spec::Gesto(gesto) => Kind::Gesto(*gesto),
            Spec::Check(check) => Kind::Check(check::Running::new(check)),
            Spec::Causal(_) => Kind::Causal,
        })
    }

    /// What this client does next.
    pub fn next(&mut self, place: &Place, random: &mut Random) -> Step {
        match &mut self.0 {
            Kind::Ycsb(ycsb) => ycsb.next(random),
            Kind::Portkey(portkey) => portkey.next(place, random),
            Kind::Gesto(gesto) => gesto.next(random),
            Kind::Check(check) => check.next(random),
            Kind::Causal => Step { key: String::new(), operation: Operation::Move },
        }
    }
}

/// The index of one of several, each drawn in proportion to its weight. Not all are 0.
fn weighted<const N: usize>(weights: [u32; N], random: &mut Random) -> usize {
    let mut left = random.below(weights.iter().copied().map(u64::from).sum());
    for (index, weight) in weights.into_iter().enumerate() {
        if left < u64::from(weight) {
            return index;
        }
        left -= u64::from(weight);
    }
    N - 1
}

fn check_keys(kind: &str, name: &str, keys: u64) -> Result<(), String> {
    if (1..=KEYS_MAX).contains(&keys) {
        return Ok(());
    }
    Err(format!("{kind}: {name} is 1 to {KEYS_MAX}, is {keys}"))
}

fn check_value_bytes(kind: &str, value_bytes: usize) -> Result<(), String> {
    if value_bytes <= VALUE_BYTES_MAX {
        return Ok(());
    }
    Err(format!("{kind}: value_bytes is at most {VALUE_BYTES_MAX}, is {value_bytes}"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    pub(super) const HERE: Place = Place { client: 0, clients: 1, site: 0, sites: 1 };
    pub(super) const STEPS: usize = 50_000;

    pub(super) fn spec(text: &str) -> Spec {
        let spec: Spec = toml::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        spec.check().unwrap();
        spec
    }

    /// The steps of one client in one place.
    pub(super) fn steps(spec: &Spec, place: &Place, seed: u64) -> Vec<Step> {
        let mut workload = Workload::new(spec);
        let mut random = Random::new(seed);
        (0..STEPS).map(|_| workload.next(place, &mut random)).collect()
    }

    /// A share is what is expected, within five standard errors.
    pub(super) fn assert_share(count: usize, of: usize, expected: f64, what: &str) {
        let share = count as f64 / of as f64;
        let error = (expected * (1.0 - expected) / of as f64).sqrt();
        assert!((share - expected).abs() <= 5.0 * error, "{what}: {share} for {expected}");
    }

    /// The operations of some steps by their names, counted.
    pub(super) fn operations(steps: &[Step]) -> BTreeMap<&'static str, usize> {
        let mut counts = BTreeMap::new();
        for step in steps {
            let name = match step.operation {
                Operation::Get => "get",
                Operation::Put { .. } => "put",
                Operation::Delete => "delete",
                Operation::Add { .. } => "add",
                Operation::CompareAndSet { .. } => "compare-and-set",
                Operation::ReadModifyWrite { .. } => "read-modify-write",
                Operation::Scan { .. } => "scan",
                Operation::Move => "move",
            };
            *counts.entry(name).or_default() += 1;
        }
        counts
    }

    /// Operations come in these shares and no others.
    pub(super) fn assert_mix(steps: &[Step], expected: &[(&str, f64)]) {
        let counts = operations(steps);
        for (name, share) in expected {
            assert_share(counts.get(name).copied().unwrap_or(0), steps.len(), *share, name);
        }
        let known = |name: &&str| expected.iter().any(|(known, _)| known == name);
        assert!(counts.keys().all(known), "{counts:?}");
    }

    const ALL: [&str; 4] = [
        "kind = \"ycsb\"\nvariant = \"d\"\nrecords = 1000\nvalue_bytes = 100",
        "kind = \"portkey\"\nvariant = \"e\"",
        "kind = \"gesto\"\nmix = \"moving\"",
        "kind = \"check\"",
    ];

    #[test]
    fn the_same_seed_gives_the_same_steps_and_another_seed_others() {
        for text in ALL {
            let spec = spec(text);
            assert_eq!(steps(&spec, &HERE, 1), steps(&spec, &HERE, 1), "{text}");
            assert_ne!(steps(&spec, &HERE, 1), steps(&spec, &HERE, 2), "{text}");
        }
    }

    #[test]
    fn what_is_unknown_is_refused() {
        for text in ALL {
            let bad = toml::from_str::<Spec>(&format!("{text}\nvalue_kb = 1")).unwrap_err();
            assert!(bad.message().contains("unknown field `value_kb`"), "{text}: {bad}");
        }
        let bad = toml::from_str::<Spec>("kind = \"tpcc\"").unwrap_err();
        assert!(bad.message().contains("unknown variant `tpcc`"), "{bad}");
    }

    #[test]
    fn bad_parameters_are_refused_with_the_workloads_name() {
        let bad = [
            ("kind = \"ycsb\"\nvariant = \"a\"\nrecords = 0", "ycsb: records is 1 to"),
            ("kind = \"ycsb\"\nvariant = \"a\"\nvalue_bytes = 999999999", "ycsb: value_bytes"),
            ("kind = \"gesto\"\nmix = \"steady\"\nkeys = 99999999", "gesto: keys is 1 to"),
            (
                "kind = \"check\"\nget = 0\nput = 0\ndelete = 0\ncompare_and_set = 0\nadd = 0",
                "check:",
            ),
            ("kind = \"check\"\nadd = 1000001", "check: a weight"),
            (
                "kind = \"ycsb\"\nvariant = \"a\"\n[choice.hotspot]\nhot_keys = 1.5\nhot_operations = 0.5",
                "ycsb: choice: hot_keys",
            ),
        ];
        for (text, words) in bad {
            let sentence = toml::from_str::<Spec>(text).unwrap().check().unwrap_err();
            assert!(sentence.starts_with(words), "{sentence}");
        }
    }

    #[test]
    fn weights_are_kept_and_zero_is_never() {
        let mut random = Random::new(1);
        let mut counts = [0; 4];
        for _ in 0..STEPS {
            counts[weighted([3, 0, 1, 0], &mut random)] += 1;
        }
        assert_share(counts[0], STEPS, 0.75, "first");
        assert_eq!((counts[1], counts[3]), (0, 0));
    }

    #[test]
    fn the_schema_explains_its_fields() {
        let schema = serde_json::to_string(&schemars::schema_for!(Spec)).unwrap();
        for words in ["\"const\":\"portkey\"", "How many keys are loaded", "hot_operations"] {
            assert!(schema.contains(words), "{words}: {schema}");
        }
    }
}
