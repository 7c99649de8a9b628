//! Which key of many: five ways to choose.
//!
//! *Zipfian* is the distribution of Zipf with θ = 0.99, drawn by the method of Gray, Sundaresan,
//! Englert, Baclawski and Weinberger, *Quickly generating billion-record synthetic databases*
//! (SIGMOD 1994), as YCSB draws it: exact for the two most frequent ranks, and a smooth curve
//! through the others. Ranks are then spread over the keys, so that the hot ones are not
//! neighbours. YCSB does that with a hash, where several ranks can fall on one key; here it is a
//! permutation, and the frequencies stay those of the distribution. *Latest* is the same by age:
//! the newest key first.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::random::Random;

/// The exponent of Zipf's distribution, as in YCSB.
const THETA: f64 = 0.99;
const GOLDEN: f64 = 0.618_033_988_749_895;

/// Which key of many.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Choice {
    /// Each as often as any other.
    Uniform,
    /// A few very often and most rarely (Zipf, 0.99), the frequent ones spread over all.
    Zipfian,
    /// The newest most often, older ones ever more rarely.
    Latest,
    /// One after the other, round and round.
    Sequential,
    /// Some get a stated share of the operations.
    Hotspot {
        /// Which part of the keys is hot, 0 to 1; at least one key is.
        hot_keys: f64,
        /// Which part of the operations goes to them, 0 to 1.
        hot_operations: f64,
    },
}

impl Choice {
    /// Whether the parameters make sense.
    ///
    /// # Errors
    /// They do not; a sentence names what would.
    pub fn check(&self) -> Result<(), String> {
        if let Choice::Hotspot { hot_keys, hot_operations } = self {
            for (name, part) in [("hot_keys", hot_keys), ("hot_operations", hot_operations)] {
                if !(0.0..=1.0).contains(part) {
                    return Err(format!("choice: {name} is 0 to 1, is {part}"));
                }
            }
        }
        Ok(())
    }
}

/// Chooses among keys numbered from 0; the newest has the highest number.
#[derive(Debug, Clone)]
pub struct Chooser {
    choice: Choice,
    count: u64,
    zipf: Zipf,
    multiplier: u64,
    next: u64,
}

impl Chooser {
    /// Chooses among so many, at least one.
    #[must_use]
    pub fn new(choice: Choice, count: u64) -> Chooser {
        let count = count.max(1);
        // Only two of the choices pay for the sum that Zipf's distribution needs.
        let ranks = if matches!(choice, Choice::Zipfian | Choice::Latest) { count } else { 1 };
        Chooser { choice, count, zipf: Zipf::new(ranks), multiplier: multiplier(count), next: 0 }
    }

    /// There is one more. *Zipfian* goes on choosing among those that were there at the start: to
    /// spread ranks over more keys would make other keys hot at every insert.
    pub fn grow(&mut self) {
        if self.choice == Choice::Zipfian {
            return;
        }
        self.count += 1;
        if self.choice == Choice::Latest {
            self.zipf.grow();
        }
    }

    /// The number of one.
    pub fn next(&mut self, random: &mut Random) -> u64 {
        match self.choice {
            Choice::Uniform => random.below(self.count),
            Choice::Zipfian => self.scatter(self.zipf.rank(random)),
            Choice::Latest => self.count - 1 - self.zipf.rank(random),
            Choice::Sequential => {
                let at = self.next % self.count;
                self.next = at + 1;
                at
            }
            Choice::Hotspot { hot_keys, hot_operations } => {
                let hot = ((hot_keys * self.count as f64) as u64).clamp(1, self.count);
                if random.fraction() < hot_operations || hot == self.count {
                    random.below(hot)
                } else {
                    hot + random.below(self.count - hot)
                }
            }
        }
    }

    fn scatter(&self, rank: u64) -> u64 {
        let product = u128::from(rank) * u128::from(self.multiplier);
        (product % u128::from(self.count)) as u64
    }
}

/// A number that shares no factor with the count, near its golden section: multiples of it, modulo
/// the count, visit every number once and lie far apart.
fn multiplier(count: u64) -> u64 {
    let shares_a_factor = |mut a: u64, mut b: u64| {
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a > 1
    };
    let mut candidate = (count as f64 * GOLDEN) as u64;
    while shares_a_factor(candidate, count) {
        candidate += 1;
    }
    candidate
}

/// Ranks from 0 by Zipf's distribution.
#[derive(Debug, Clone)]
struct Zipf {
    count: u64,
    /// The sum of 1/i^θ over all ranks i from 1.
    zeta: f64,
}

impl Zipf {
    fn new(count: u64) -> Zipf {
        Zipf { count, zeta: (1..=count).map(weight).sum() }
    }

    fn grow(&mut self) {
        self.count += 1;
        self.zeta += weight(self.count);
    }

    fn rank(&self, random: &mut Random) -> u64 {
        let count = self.count as f64;
        let u = random.fraction();
        let first_two = 1.0 + weight(2);
        if u * self.zeta < 1.0 || self.count == 1 {
            return 0;
        }
        if u * self.zeta < first_two || self.count == 2 {
            return 1;
        }
        let eta = (1.0 - (2.0 / count).powf(1.0 - THETA)) / (1.0 - first_two / self.zeta);
        let rank = count * (eta * u - eta + 1.0).powf(1.0 / (1.0 - THETA));
        (rank as u64).min(self.count - 1)
    }
}

/// How often rank i (from 1) comes, not yet divided by the sum.
fn weight(rank: u64) -> f64 {
    (rank as f64).powf(-THETA)
}

#[cfg(test)]
mod tests {
    use super::{super::tests::assert_share, *};

    const DRAWS: usize = 200_000;

    fn counts(choice: Choice, count: u64) -> Vec<usize> {
        let mut chooser = Chooser::new(choice, count);
        let mut random = Random::new(7);
        let mut counts = vec![0; count as usize];
        for _ in 0..DRAWS {
            counts[chooser.next(&mut random) as usize] += 1;
        }
        counts
    }

    #[test]
    fn uniform_is_even() {
        let counts = counts(Choice::Uniform, 50);
        let expected = DRAWS as f64 / 50.0;
        let chi_square: f64 =
            counts.iter().map(|count| (*count as f64 - expected).powi(2) / expected).sum();
        // 49 degrees of freedom: the mean is 49, and 1 of 1,000 is above 85.4.
        assert!((20.0..85.4).contains(&chi_square), "{chi_square}");
    }

    #[test]
    fn zipfian_has_the_frequencies_of_zipf() {
        for keys in [100_u64, 10_000] {
            let mut counts = counts(Choice::Zipfian, keys);
            counts.sort_unstable_by(|a, b| b.cmp(a));
            let zeta: f64 = (1..=keys).map(weight).sum();
            assert_share(counts[0], DRAWS, 1.0 / zeta, "first");
            if keys == 10_000 {
                // Computed apart from this code: the sum over 10,000 ranks is 10.2244.
                assert!((zeta - 10.2244).abs() < 1e-3, "{zeta}");
            }
            assert_share(counts[1], DRAWS, weight(2) / zeta, "second");
            // The method's curve runs through the others, not exactly on them.
            for top in [10, keys / 10, keys / 2] {
                let share = counts[..top as usize].iter().sum::<usize>() as f64 / DRAWS as f64;
                let expected = (1..=top).map(weight).sum::<f64>() / zeta;
                assert!((share - expected).abs() < 0.025, "{keys}, {top}: {share} {expected}");
            }
        }
    }

    #[test]
    fn hot_keys_are_spread_and_each_rank_has_its_own() {
        for keys in [1_u64, 2, 3, 10, 1_000, 4_096] {
            let chooser = Chooser::new(Choice::Zipfian, keys);
            let mut all: Vec<u64> = (0..keys).map(|rank| chooser.scatter(rank)).collect();
            let hot = all.clone();
            all.sort_unstable();
            assert!(all.into_iter().eq(0..keys), "{keys}");
            if keys >= 1_000 {
                let near = |pair: &[u64]| pair[0].abs_diff(pair[1]) < keys / 4;
                assert!(!hot[..20].windows(2).any(near), "{:?}", &hot[..20]);
            }
        }
    }

    #[test]
    fn latest_favours_the_newest_also_while_it_grows() {
        let mut chooser = Chooser::new(Choice::Latest, 1);
        for _ in 1..1_000 {
            chooser.grow();
        }
        let mut random = Random::new(7);
        let mut counts = vec![0_usize; 1_000];
        for _ in 0..DRAWS {
            counts[chooser.next(&mut random) as usize] += 1;
        }
        let zeta: f64 = (1..=1_000).map(weight).sum();
        assert_share(counts[999], DRAWS, 1.0 / zeta, "newest");
        assert_share(counts[998], DRAWS, weight(2) / zeta, "second newest");
        let newest_tenth: usize = counts[900..].iter().sum();
        let oldest_tenth: usize = counts[..100].iter().sum();
        assert!(newest_tenth > 20 * oldest_tenth, "{newest_tenth} {oldest_tenth}");
        let grown = Chooser::new(Choice::Latest, 1_000).zipf.zeta;
        assert!((chooser.zipf.zeta / grown - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_hotspot_gets_its_share_and_is_even_inside() {
        let choice = Choice::Hotspot { hot_keys: 0.2, hot_operations: 0.7 };
        let counts = counts(choice, 100);
        assert_share(counts[..20].iter().sum(), DRAWS, 0.7, "hot");
        assert_share(counts[0], DRAWS, 0.7 / 20.0, "one hot");
        assert_share(counts[99], DRAWS, 0.3 / 80.0, "one cold");
        let all = Choice::Hotspot { hot_keys: 1.0, hot_operations: 0.1 };
        let mut chooser = Chooser::new(all, 3);
        assert!((0..100).all(|_| chooser.next(&mut Random::new(1)) < 3));
    }

    #[test]
    fn sequential_goes_round() {
        let mut chooser = Chooser::new(Choice::Sequential, 3);
        let mut random = Random::new(1);
        let first: Vec<u64> = (0..4).map(|_| chooser.next(&mut random)).collect();
        assert_eq!(first, [0, 1, 2, 0]);
        chooser.grow();
        let then: Vec<u64> = (0..4).map(|_| chooser.next(&mut random)).collect();
        assert_eq!(then, [1, 2, 3, 0]);
    }

    #[test]
    fn one_key_is_always_the_one() {
        let hotspot = Choice::Hotspot { hot_keys: 0.0, hot_operations: 0.0 };
        for choice in
            [Choice::Uniform, Choice::Zipfian, Choice::Latest, Choice::Sequential, hotspot]
        {
            let mut chooser = Chooser::new(choice, 1);
            let mut random = Random::new(1);
            assert!((0..100).all(|_| chooser.next(&mut random) == 0), "{choice:?}");
        }
    }
}
