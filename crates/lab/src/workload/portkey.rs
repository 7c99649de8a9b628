//! The six workloads of Portkey: clients that move, and keys that belong to a client, a region, a
//! group or all.
//!
//! From Noor, Srivastava and Netravali, *Portkey: adaptive key-value placement over dynamic edge
//! networks* (SoCC 2021), and its published traces. 32 clients make 20,000 requests each; keys are
//! of four classes, and inside what a client may touch of a class each key is as likely as any
//! other. Clients are numbered c from 1, keys of a class from 0.
//!
//! | class | keys | clients |
//! | --- | --- | --- |
//! | per-client | 512 | client c: those ≡ c − 1 modulo 32, 16 each |
//! | regional | 128 | those at site r: those ≡ r modulo 16; with the original's 15 sites 120 are used |
//! | group | 128 | clients with c − 1 ≡ g modulo 8, four of them: those ≡ g modulo 8, 16 each |
//! | global | 128 | all |
//!
//! | variant | classes | reads |
//! | --- | --- | --- |
//! | a, b, c, d | per-client; regional; group; global | 90 % |
//! | e | 40 % per-client, 20 % each other | half in the paper, none in the published traces |
//! | f | as e | all |
//!
//! With other than 32 clients the rules stay: client 33 shares the keys of client 1.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{Operation, Place, Step, weighted};
use crate::random::Random;

/// Size of a value, in bytes.
pub const VALUE_BYTES: usize = 1_024;
/// How many clients the original has.
pub const CLIENTS: usize = 32;

const REGIONS: u64 = 16;
const GROUPS: u64 = 8;

/// One of Portkey's workloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Portkey {
    /// Which.
    pub variant: Variant,
    /// Where paper and published traces differ (in variant e), which of them to follow.
    #[serde(default)]
    pub after: After,
}

/// Which of Portkey's workloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Variant {
    /// Each client's own keys, 90 % reads.
    A,
    /// The keys of the region a client is in, 90 % reads.
    B,
    /// The keys of a client's group, 90 % reads.
    C,
    /// Keys of all clients, 90 % reads.
    D,
    /// All classes, many updates.
    E,
    /// All classes, reads only.
    F,
}

/// What to follow where the paper and its published traces differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum After {
    /// Variant e is half reads and half updates.
    #[default]
    Paper,
    /// Variant e is all updates.
    Traces,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Client,
    Region,
    Group,
    Global,
}

impl Class {
    const ALL: [Class; 4] = [Class::Client, Class::Region, Class::Group, Class::Global];

    fn keys(self) -> u64 {
        if self == Class::Client { 512 } else { 128 }
    }

    fn key(self, id: u64) -> String {
        let name = match self {
            Class::Client => "client",
            Class::Region => "region",
            Class::Group => "group",
            Class::Global => "global",
        };
        format!("{name}-{id:03}")
    }

    /// The keys that a client may touch there are those ≡ remainder modulo modulus.
    fn share(self, place: &Place) -> (u64, u64) {
        let (client, site) = (place.client as u64, place.site as u64);
        let modulus = match self {
            Class::Client => CLIENTS as u64,
            Class::Region => REGIONS,
            Class::Group => GROUPS,
            Class::Global => 1,
        };
        let of = if self == Class::Region { site } else { client };
        (of % modulus, modulus)
    }
}

impl Portkey {
    /// The classes that it uses, by weight, in the order of [`Class::ALL`].
    fn classes(self) -> [u32; 4] {
        match self.variant {
            Variant::A => [1, 0, 0, 0],
            Variant::B => [0, 1, 0, 0],
            Variant::C => [0, 0, 1, 0],
            Variant::D => [0, 0, 0, 1],
            Variant::E | Variant::F => [40, 20, 20, 20],
        }
    }

    fn reads_percent(self) -> u32 {
        match (self.variant, self.after) {
            (Variant::A | Variant::B | Variant::C | Variant::D, _) => 90,
            (Variant::E, After::Paper) => 50,
            (Variant::E, After::Traces) => 0,
            (Variant::F, _) => 100,
        }
    }

    pub(super) fn keys_to_load(self) -> impl Iterator<Item = String> + use<> {
        let used = Class::ALL.into_iter().zip(self.classes()).filter(|(_, weight)| *weight > 0);
        used.flat_map(|(class, _)| (0..class.keys()).map(move |id| class.key(id)))
    }

    pub(super) fn next(self, place: &Place, random: &mut Random) -> Step {
        let class = Class::ALL[weighted(self.classes(), random)];
        let (remainder, modulus) = class.share(place);
        let id = remainder + modulus * random.below(class.keys() / modulus);
        let reads = self.reads_percent();
        let operation = if weighted([reads, 100 - reads], random) == 0 {
            Operation::Get
        } else {
            Operation::Put { value_bytes: VALUE_BYTES }
        };
        Step { key: class.key(id), operation }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::{
        super::tests::{HERE, assert_mix, assert_share, spec, steps},
        *,
    };

    fn run(rest: &str, place: &Place) -> Vec<Step> {
        steps(&spec(&format!("kind = \"portkey\"\n{rest}")), place, 1)
    }

    fn at(client: usize, site: usize) -> Place {
        Place { client, clients: CLIENTS, site, sites: 15 }
    }

    /// The numbers of all keys touched, whose names must all begin so.
    fn ids(variant: &str, name: &str, place: &Place) -> BTreeSet<u64> {
        let number = |step: Step| step.key.strip_prefix(name).expect("its class").parse().unwrap();
        run(&format!("variant = \"{variant}\""), place).into_iter().map(number).collect()
    }

    #[test]
    fn a_client_touches_the_keys_of_its_classes_and_no_others() {
        let all = |remainder: u64, modulus: usize, keys: u64| -> BTreeSet<u64> {
            (remainder..keys).step_by(modulus).collect()
        };
        for (client, site) in [(0, 0), (31, 14), (17, 3)] {
            let (place, c) = (at(client, site), client as u64);
            assert_eq!(ids("a", "client-", &place), all(c, 32, 512));
            assert_eq!(ids("b", "region-", &place), all(site as u64, 16, 128));
            assert_eq!(ids("c", "group-", &place), all(c % 8, 8, 128));
            assert_eq!(ids("d", "global-", &place), all(0, 1, 128));
        }
        assert_eq!(ids("a", "client-", &at(0, 0)).len(), 16);
        assert_eq!(ids("c", "group-", &at(0, 0)).len(), 16);
        let regional: BTreeSet<u64> =
            (0..15).flat_map(|site| ids("b", "region-", &at(0, site))).collect();
        assert_eq!(regional.len(), 120);
        assert_eq!(ids("a", "client-", &at(32, 0)), ids("a", "client-", &at(0, 0)));
    }

    #[test]
    fn four_clients_are_a_group() {
        let mut groups: BTreeMap<BTreeSet<u64>, usize> = BTreeMap::new();
        for client in 0..CLIENTS {
            *groups.entry(ids("c", "group-", &at(client, 0))).or_default() += 1;
        }
        assert_eq!(groups.into_values().collect::<Vec<_>>(), [4; 8]);
    }

    #[test]
    fn e_and_f_use_all_classes() {
        for variant in ["e", "f"] {
            let steps = run(&format!("variant = \"{variant}\""), &at(5, 2));
            let share = |name: &str| steps.iter().filter(|step| step.key.starts_with(name)).count();
            for (name, expected) in
                [("client-", 0.4), ("region-", 0.2), ("group-", 0.2), ("global-", 0.2)]
            {
                assert_share(share(name), steps.len(), expected, name);
            }
        }
    }

    #[test]
    fn each_variant_has_its_reads() {
        for (rest, reads) in [
            ("variant = \"a\"", 0.9),
            ("variant = \"b\"", 0.9),
            ("variant = \"c\"", 0.9),
            ("variant = \"d\"", 0.9),
            ("variant = \"e\"", 0.5),
            ("variant = \"e\"\nafter = \"traces\"", 0.0),
            ("variant = \"f\"", 1.0),
        ] {
            assert_mix(&run(rest, &HERE), &[("get", reads), ("put", 1.0 - reads)]);
        }
        let updates = run("variant = \"e\"\nafter = \"traces\"", &HERE);
        assert!(updates.iter().all(|step| step.operation == Operation::Put { value_bytes: 1_024 }));
    }

    #[test]
    fn what_is_touched_was_loaded() {
        for (variant, keys) in [("a", 512), ("b", 128), ("c", 128), ("d", 128), ("e", 896)] {
            let text = format!("variant = \"{variant}\"");
            let loaded: BTreeSet<String> =
                spec(&format!("kind = \"portkey\"\n{text}")).keys_to_load().collect();
            assert_eq!(loaded.len(), keys, "{variant}");
            assert!(run(&text, &at(9, 9)).iter().all(|step| loaded.contains(&step.key)));
        }
    }
}
