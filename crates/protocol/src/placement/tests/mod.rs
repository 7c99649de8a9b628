//! Worlds for the tests, drawn from a seed, and what the solver does in them.

mod assigning;
mod bidding;
mod carrying;
mod counting;
mod deciding;
mod explaining;
mod finding;
mod naming;
mod probing;
mod rooming;
mod staying;
mod trailing;

use super::*;

/// A generator of test data (xorshift).
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Dice {
        let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        (0..8).for_each(|_| _ = dice.next());
        dice
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// In [0, 1).
    pub(super) fn part(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1 << 24) as f32
    }

    pub(super) fn below(&mut self, end: usize) -> usize {
        (self.next() >> 20) as usize % end
    }

    pub(super) fn is(&mut self, chance: f32) -> bool {
        self.part() < chance
    }
}

pub(super) fn site(index: usize) -> Site {
    Site(index as u16)
}

pub(super) fn origin(index: usize) -> Origin {
    Origin(index as u16)
}

/// Latencies from a table.
pub(super) fn table<const N: usize>(rows: &[[f32; N]]) -> Latencies {
    let mut latencies = Latencies::unknown(rows.len(), N);
    for (from, row) in rows.iter().enumerate() {
        for (to, ms) in row.iter().enumerate() {
            latencies.learn(origin(from), site(to), *ms);
        }
    }
    latencies
}

/// Sites on a plane: a metric.
pub(super) fn plane(sites: usize, dice: &mut Dice) -> Latencies {
    let places: Vec<_> = (0..sites).map(|_| (dice.part(), dice.part())).collect();
    let mut latencies = Latencies::unknown(sites, sites);
    for (from, a) in places.iter().enumerate() {
        for (to, b) in places.iter().enumerate() {
            let way = ((a.0 - b.0).powi(2) + (a.1 - b.1).powi(2)).sqrt();
            latencies.learn(origin(from), site(to), 50.0 * way);
        }
    }
    latencies
}

/// Latencies that are no metric, of which so many are unknown.
pub(super) fn noise(origins: usize, sites: usize, unknown: f32, dice: &mut Dice) -> Latencies {
    let mut latencies = Latencies::unknown(origins, sites);
    for from in 0..origins {
        for to in 0..sites {
            if !dice.is(unknown) {
                latencies.learn(origin(from), site(to), 1.0 + 50.0 * dice.part());
            }
        }
    }
    latencies
}

/// Groups with no more than that many origins, somewhere.
pub(super) fn groups(
    count: usize,
    accesses_max: usize,
    latencies: &Latencies,
    dice: &mut Dice,
) -> Groups {
    let (origins, sites) = (latencies.mean().origins(), latencies.mean().sites());
    let mut groups = Groups::new(origins, sites);
    for _ in 0..count {
        let accesses: Vec<_> = (0..dice.below(accesses_max + 1))
            .map(|_| (origin(dice.below(origins)), 0.1 + 10.0 * dice.part()))
            .collect();
        groups.push(site(dice.below(sites)), 100 + dice.below(1_000) as u32, accesses);
    }
    groups
}

/// Rules of every sort, for some.
pub(super) fn some_rules(sites: usize, count: usize, dice: &mut Dice) -> Rules {
    let mut rules = Rules::none(sites);
    for index in 0..sites {
        if dice.is(0.1) {
            rules.bar(site(index));
        }
    }
    for group in 0..count {
        if dice.is(0.1) {
            rules.pin(group, site(dice.below(sites)));
        }
    }
    // Three of ten keyspaces exclude sites.
    let mut by_key = ByKey::default();
    for keyspace in 0..3 {
        let bars = (0..sites).map(|_| dice.is(0.3).then_some(Bar::Domain)).collect();
        let kind = by_key.add(Kind::new(bars, 1.0).at_home(site(dice.below(sites))));
        by_key.set_class(GroupKey::class_of(keyspace), kind);
    }
    rules.set_kinds(by_key);
    let key = |_| GroupKey::lendable(0, dice.below(10) as u32, 0);
    let keys: Vec<GroupKey> = (0..count).map(key).collect();
    rules.of_batch(&keys).expect("kinds have rules")
}
