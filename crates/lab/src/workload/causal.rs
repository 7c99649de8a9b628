//! A workload of sessions of causal keys: reads and writes of several registers, and moves between
//! sites.
//!
//! What breaks causality is met on few registers that many sessions read and write, right before
//! and right after they change sites. So there are few keys and few hashes, requests of all shapes,
//! and the token of a session goes along: by the next request at another site, or by an attach,
//! which asks for nothing else. Now and then a session ends and another begins, which has seen
//! nothing.
//!
//! Its steps are not those of the other workloads ([`super::Step`]), which are about one key each.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{check_keys, check_value_bytes, weighted};
use crate::random::Random;

const WEIGHT_MAX: u32 = 1_000_000;
/// A key expires after so many milliseconds, at least and at most.
const EXPIRES_AFTER_MS: (u64, u64) = (20, 2_500);
/// Most keys, hashes, and fields of a hash: all of them are read at once.
const KEYS_MAX: u64 = 1_000;

/// How many keys, and how often which request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Causal {
    /// How many keys hold strings.
    pub keys: u64,
    /// How many further keys hold hashes.
    pub hashes: u64,
    /// How many fields a hash has.
    pub fields: u64,
    /// How many keys or fields a request about several names, at most.
    pub several: u64,
    /// Size of a value in bytes; a run makes it larger where a unique one needs more.
    pub value_bytes: usize,
    /// Weight of reads of a string.
    pub get: u32,
    /// Weight of reads of several strings.
    pub get_many: u32,
    /// Weight of reads of a hash: a field, some fields, or all of it.
    pub hash_get: u32,
    /// Weight of reads of all keys.
    pub scan: u32,
    /// Weight of writes of a string.
    pub put: u32,
    /// Weight of writes of several strings.
    pub put_many: u32,
    /// Weight of removals of keys.
    pub delete: u32,
    /// Weight of writes of fields.
    pub hash_set: u32,
    /// Weight of removals of fields.
    pub hash_delete: u32,
    /// Weight of transactions that read, write, and remove.
    pub transaction: u32,
    /// Weight of writes of a string that answer with what was there before; for keyspaces with
    /// `rmw` local.
    pub swap: u32,
    /// Weight of writes of a string that expires soon.
    pub put_expiring: u32,
    /// Weight of requests that let a key expire soon, or not any more.
    pub expire: u32,
    /// Weight of reads of when a key expires.
    pub expiry: u32,
    /// Weight of requests that remove all keys of the keyspace.
    pub clear: u32,
    /// Weight of attaches: the token, and nothing else.
    pub attach: u32,
    /// Weight of moves to a site drawn at random; the next request follows at once.
    pub go: u32,
    /// Weight of new sessions; the next request follows at once.
    pub renew: u32,
    /// Of the puts of whole strings so many have a number, by which they are sent to another site
    /// if they get no answer: where all sites hold the keyspace.
    pub numbered_permille: u64,
}

impl Default for Causal {
    fn default() -> Causal {
        Causal {
            keys: 6,
            hashes: 2,
            fields: 3,
            several: 3,
            value_bytes: 16,
            get: 20,
            get_many: 15,
            hash_get: 8,
            scan: 2,
            put: 20,
            put_many: 5,
            delete: 4,
            hash_set: 6,
            hash_delete: 2,
            transaction: 8,
            swap: 0,
            put_expiring: 0,
            expire: 0,
            expiry: 0,
            clear: 0,
            attach: 3,
            go: 12,
            renew: 1,
            numbered_permille: 0,
        }
    }
}

/// What a session does next. Keys come without the prefix of their keyspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// Reads a string.
    Get(String),
    /// Reads several strings at once.
    GetMany(Vec<String>),
    /// Reads fields of a hash at once; one alone is read as one.
    GetFields(String, Vec<String>),
    /// Reads a whole hash.
    GetHash(String),
    /// Reads all keys.
    Scan,
    /// Writes strings at once; one alone is written as one.
    Put(Vec<String>),
    /// Removes keys.
    Delete(Vec<String>),
    /// Writes fields of a hash.
    SetFields(String, Vec<String>),
    /// Removes fields of a hash.
    DeleteFields(String, Vec<String>),
    /// Does all of it at once.
    Transaction(Steps),
    /// Writes a string, and reads what was there before.
    Swap(String),
    /// Writes a string that expires after so many milliseconds.
    PutExpiring(String, u64),
    /// Lets a key expire after so many milliseconds, or not any more.
    Expire(String, Option<u64>),
    /// Reads when a key expires.
    Expiry(String),
    /// Removes all keys.
    Clear,
    /// Has its token admitted.
    Attach,
    /// Goes to another site.
    Go,
    /// Begins anew.
    Renew,
}

/// What a transaction does, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Steps {
    /// Strings that it reads.
    pub reads: Vec<String>,
    /// Strings that it writes, each as a step.
    pub puts: Vec<String>,
    /// Fields of a hash that it writes.
    pub fields: Option<(String, Vec<String>)>,
    /// A key that it removes.
    pub deletes: Option<String>,
}

impl Causal {
    fn weights(&self) -> [u32; 18] {
        [
            self.get,
            self.get_many,
            self.hash_get,
            self.scan,
            self.put,
            self.put_many,
            self.delete,
            self.hash_set,
            self.hash_delete,
            self.transaction,
            self.swap,
            self.put_expiring,
            self.expire,
            self.expiry,
            self.clear,
            self.attach,
            self.go,
            self.renew,
        ]
    }

    pub(super) fn check(&self) -> Result<(), String> {
        check_value_bytes("causal", self.value_bytes)?;
        for (name, count) in [
            ("keys", self.keys),
            ("hashes", self.hashes),
            ("fields", self.fields),
            ("several", self.several),
        ] {
            check_keys("causal", name, count)?;
            if count > KEYS_MAX {
                return Err(format!("causal: {name} is 1 to {KEYS_MAX}, is {count}"));
            }
        }
        if self.weights()[..16].iter().all(|weight| *weight == 0) {
            return Err("causal: a request must have a weight above 0".to_owned());
        }
        if self.numbered_permille > 1_000 {
            return Err("causal: numbered_permille is 0 to 1000".to_owned());
        }
        if self.weights().iter().any(|weight| *weight > WEIGHT_MAX) {
            return Err(format!("causal: a weight is at most {WEIGHT_MAX}"));
        }
        Ok(())
    }

    /// The names of all strings.
    pub fn strings(self) -> impl Iterator<Item = String> {
        (0..self.keys).map(|number| format!("k{number}"))
    }

    /// The names of all hashes.
    pub fn all_hashes(self) -> impl Iterator<Item = String> {
        (0..self.hashes).map(|number| format!("h{number}"))
    }

    /// The names of the fields of each hash.
    pub fn all_fields(self) -> impl Iterator<Item = String> {
        (0..self.fields).map(|number| format!("f{number}"))
    }

    /// What a session does next.
    pub fn next(&self, random: &mut Random) -> Act {
        match weighted(self.weights(), random) {
            0 => Act::Get(self.key(random)),
            1 => Act::GetMany(self.some(random, "k", self.keys)),
            2 => match random.below(3) {
                0 => Act::GetHash(self.hash(random)),
                _ => Act::GetFields(self.hash(random), self.some(random, "f", self.fields)),
            },
            3 => Act::Scan,
            4 => Act::Put(vec![self.key(random)]),
            5 => Act::Put(self.some(random, "k", self.keys)),
            6 => match random.below(4) {
                0 => Act::Delete(vec![self.hash(random)]),
                _ => Act::Delete(self.some(random, "k", self.keys)),
            },
            7 => Act::SetFields(self.hash(random), self.some(random, "f", self.fields)),
            8 => Act::DeleteFields(self.hash(random), self.some(random, "f", self.fields)),
            9 => Act::Transaction(self.steps(random)),
            10 => Act::Swap(self.key(random)),
            11 => Act::PutExpiring(self.key(random), expires_after_ms(random)),
            12 => {
                let key = if random.below(3) == 0 { self.hash(random) } else { self.key(random) };
                let is_for_long = random.below(4) == 0;
                Act::Expire(key, (!is_for_long).then(|| expires_after_ms(random)))
            }
            13 => Act::Expiry(self.key(random)),
            14 => Act::Clear,
            15 => Act::Attach,
            16 => Act::Go,
            _ => Act::Renew,
        }
    }

    fn steps(&self, random: &mut Random) -> Steps {
        let reads = self.some(random, "k", self.keys);
        // One of ten only reads.
        if random.below(10) == 0 {
            return Steps { reads, puts: Vec::new(), fields: None, deletes: None };
        }
        let puts = self.some(random, "k", self.keys);
        let with_fields = random.below(2) == 0;
        let fields = with_fields.then(|| (self.hash(random), self.some(random, "f", self.fields)));
        let deletes = (random.below(4) == 0).then(|| self.key(random));
        let deletes = deletes.filter(|key| !puts.contains(key));
        Steps { reads, puts, fields, deletes }
    }

    fn key(&self, random: &mut Random) -> String {
        format!("k{}", random.below(self.keys))
    }

    fn hash(&self, random: &mut Random) -> String {
        format!("h{}", random.below(self.hashes))
    }

    /// Some of the names with this letter, one at least, each once.
    fn some(&self, random: &mut Random, letter: &str, count: u64) -> Vec<String> {
        let wanted = 1 + random.below(self.several.min(count)) as usize;
        let mut numbers: Vec<u64> = (0..count).collect();
        while numbers.len() > wanted {
            let gone = random.below(numbers.len() as u64) as usize;
            numbers.swap_remove(gone);
        }
        numbers.into_iter().map(|number| format!("{letter}{number}")).collect()
    }
}

fn expires_after_ms(random: &mut Random) -> u64 {
    let (least, most) = EXPIRES_AFTER_MS;
    least + random.below(most - least + 1)
}

#[cfg(test)]
mod tests {
    use super::super::Spec;
    use super::*;
    use std::collections::BTreeSet;

    fn spec(text: &str) -> Causal {
        let spec: Spec = toml::from_str(&format!("kind = \"causal\"\n{text}")).unwrap();
        spec.check().unwrap();
        let Spec::Causal(causal) = spec else { panic!("{spec:?}") };
        causal
    }

    #[test]
    fn names_are_distinct_and_every_request_comes() {
        let causal = spec(
            "keys = 4\nseveral = 9\nswap = 5\nput_expiring = 5\nexpire = 5\nexpiry = 5\nclear = 5",
        );
        let mut random = Random::new(1);
        let mut kinds = BTreeSet::new();
        for _ in 0..5_000 {
            let act = causal.next(&mut random);
            let named = match &act {
                Act::GetMany(keys) | Act::Put(keys) | Act::Delete(keys) => keys.clone(),
                Act::GetFields(_, fields) | Act::SetFields(_, fields) => fields.clone(),
                Act::Transaction(steps) => {
                    let deletes = steps.deletes.iter().cloned();
                    steps.puts.iter().cloned().chain(deletes).collect()
                }
                _ => Vec::new(),
            };
            assert!(named.len() <= 5);
            let once: BTreeSet<&String> = named.iter().collect();
            assert_eq!(once.len(), named.len(), "{act:?}");
            kinds.insert(format!("{:?}", std::mem::discriminant(&act)));
        }
        assert_eq!(kinds.len(), 18);
    }

    #[test]
    fn a_weight_of_zero_is_never() {
        let causal = spec("go = 0\nrenew = 0\nscan = 0");
        let mut random = Random::new(2);
        for _ in 0..2_000 {
            let act = causal.next(&mut random);
            assert!(!matches!(act, Act::Go | Act::Renew | Act::Scan), "{act:?}");
        }
    }
}
