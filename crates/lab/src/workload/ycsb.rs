//! The six core workloads of YCSB.
//!
//! Cooper, Silberstein, Tam, Ramakrishnan and Sears, *Benchmarking cloud serving systems with YCSB*
//! (SoCC 2010):
//!
//! | variant | mix | keys |
//! | --- | --- | --- |
//! | a | half reads, half updates | zipfian |
//! | b | 95 % reads, 5 % updates | zipfian |
//! | c | reads | zipfian |
//! | d | 95 % reads, 5 % inserts | latest |
//! | e | 95 % scans of 1 to 100 keys, 5 % inserts | zipfian |
//! | f | half reads, half reads followed by a write | zipfian |
//!
//! A value is one string and is written whole; YCSB's ten fields of 100 bytes are 1,000 bytes here.
//! An insert counts as done when it is asked: `d` may read a key that is still on its way.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    Operation, Step, check_keys, check_value_bytes,
    choice::{Choice, Chooser},
    weighted,
};
use crate::random::Random;

/// Most keys of one scan.
const SCAN_MAX: u64 = 100;

/// One of the core workloads.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Ycsb {
    /// Which.
    pub variant: Variant,
    /// How many keys are loaded before the start.
    #[serde(default = "thousand")]
    pub records: u64,
    /// Size of a value in bytes.
    #[serde(default = "kilobyte")]
    pub value_bytes: usize,
    /// Which key; without it the variant's own.
    #[serde(default)]
    pub choice: Option<Choice>,
}

/// Which of the core workloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Variant {
    /// Half reads, half updates.
    A,
    /// 95 % reads, 5 % updates.
    B,
    /// Reads only.
    C,
    /// 95 % reads of the latest, 5 % inserts.
    D,
    /// 95 % scans of 1 to 100 keys, 5 % inserts.
    E,
    /// Half reads, half reads followed by a write of the same key.
    F,
}

fn thousand() -> u64 {
    1_000
}

fn kilobyte() -> usize {
    1_000
}

impl Ycsb {
    pub(super) fn check(&self) -> Result<(), String> {
        check_keys("ycsb", "records", self.records)?;
        check_value_bytes("ycsb", self.value_bytes)?;
        self.choice
            .map_or(Ok(()), |choice| choice.check())
            .map_err(|error| format!("ycsb: {error}"))
    }

    pub(super) fn keys_to_load(&self) -> impl Iterator<Item = String> + use<> {
        (0..self.records).map(key)
    }
}

/// The key of a record: as wide as the most there can be, so that keys sort as their numbers do.
fn key(record: u64) -> String {
    format!("user{record:010}")
}

/// A workload under way.
#[derive(Debug, Clone)]
pub(super) struct Running {
    spec: Ycsb,
    records: u64,
    chooser: Chooser,
}

impl Running {
    pub(super) fn new(spec: &Ycsb) -> Running {
        let usual = if spec.variant == Variant::D { Choice::Latest } else { Choice::Zipfian };
        let chooser = Chooser::new(spec.choice.unwrap_or(usual), spec.records);
        Running { spec: *spec, records: spec.records, chooser }
    }

    pub(super) fn next(&mut self, random: &mut Random) -> Step {
        let value_bytes = self.spec.value_bytes;
        let common_percent = match self.spec.variant {
            Variant::A | Variant::F => 50,
            Variant::B | Variant::D | Variant::E => 95,
            Variant::C => 100,
        };
        let common = weighted([common_percent, 100 - common_percent], random) == 0;
        let operation = match (self.spec.variant, common) {
            (Variant::E, true) => Operation::Scan { count: 1 + random.below(SCAN_MAX) as usize },
            (_, true) => Operation::Get,
            (Variant::F, false) => Operation::ReadModifyWrite { value_bytes },
            (_, false) => Operation::Put { value_bytes },
        };
        let insert = !common && matches!(self.spec.variant, Variant::D | Variant::E);
        let record = if insert {
            self.chooser.grow();
            self.records += 1;
            self.records - 1
        } else {
            self.chooser.next(random)
        };
        Step { key: key(record), operation }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::tests::{HERE, STEPS, assert_mix, assert_share, spec, steps},
        *,
    };

    fn run(rest: &str) -> Vec<Step> {
        steps(&spec(&format!("kind = \"ycsb\"\n{rest}")), &HERE, 1)
    }

    fn record(step: &Step) -> u64 {
        step.key.strip_prefix("user").unwrap().parse().unwrap()
    }

    #[test]
    fn each_variant_has_its_mix() {
        let mixes: [(&str, &[(&str, f64)]); 6] = [
            ("a", &[("get", 0.5), ("put", 0.5)]),
            ("b", &[("get", 0.95), ("put", 0.05)]),
            ("c", &[("get", 1.0)]),
            ("d", &[("get", 0.95), ("put", 0.05)]),
            ("e", &[("scan", 0.95), ("put", 0.05)]),
            ("f", &[("get", 0.5), ("read-modify-write", 0.5)]),
        ];
        for (variant, mix) in mixes {
            assert_mix(&run(&format!("variant = \"{variant}\"")), mix);
        }
    }

    #[test]
    fn updates_stay_among_the_records_and_inserts_add_to_them() {
        for variant in ["a", "b", "f"] {
            let steps = run(&format!("variant = \"{variant}\"\nrecords = 100"));
            assert!(steps.iter().all(|step| record(step) < 100), "{variant}");
        }
        for variant in ["d", "e"] {
            let steps = run(&format!("variant = \"{variant}\"\nrecords = 100"));
            let mut next = 100;
            for step in &steps {
                if matches!(step.operation, Operation::Put { value_bytes: 1_000 }) {
                    assert_eq!(record(step), next);
                    next += 1;
                } else {
                    assert!(record(step) < next, "{variant} asks for what was never inserted");
                }
            }
        }
    }

    #[test]
    fn d_reads_what_was_inserted_last() {
        let (mut newest, mut fresh, mut reads) = (99, 0, 0);
        for step in run("variant = \"d\"\nrecords = 100") {
            if step.operation == Operation::Get {
                reads += 1;
                fresh += usize::from(newest - record(&step) < 10);
            } else {
                newest = record(&step);
            }
        }
        assert!(fresh > reads / 4, "{fresh} of {reads}");
    }

    #[test]
    fn e_scans_one_to_a_hundred_keys_evenly() {
        let counts: Vec<usize> = run("variant = \"e\"")
            .iter()
            .filter_map(|step| match step.operation {
                Operation::Scan { count } => Some(count),
                _ => None,
            })
            .collect();
        assert_eq!((counts.iter().min(), counts.iter().max()), (Some(&1), Some(&100)));
        let short = counts.iter().filter(|count| **count <= 25).count();
        assert_share(short, counts.len(), 0.25, "short scans");
    }

    #[test]
    fn another_choice_of_keys_can_be_made() {
        let steps = run("variant = \"c\"\nrecords = 7\nchoice = \"sequential\"");
        assert!(steps.iter().enumerate().all(|(index, step)| record(step) == index as u64 % 7));
        let hot = run("variant = \"c\"\n[choice.hotspot]\nhot_keys = 0.01\nhot_operations = 0.5");
        let hits = hot.iter().filter(|step| record(step) < 10).count();
        assert_share(hits, STEPS, 0.5, "hot");
    }

    #[test]
    fn what_is_loaded_is_sorted_and_whole() {
        let spec = spec("kind = \"ycsb\"\nvariant = \"a\"\nrecords = 1234");
        let keys: Vec<String> = spec.keys_to_load().collect();
        assert_eq!(keys.len(), 1_234);
        assert!(keys.is_sorted());
        assert_eq!((spec.value_bytes(), keys[17].as_str()), (1_000, "user0000000017"));
    }
}
