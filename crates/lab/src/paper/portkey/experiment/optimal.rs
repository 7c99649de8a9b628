//! Strategies that know the future.
//!
//! *Optimal* is given where each client will be and how often it accesses each key, but not the
//! moments: per key the cheapest way over sites and seconds (Viterbi's algorithm), with the waiting
//! that its moves make. For the tail it takes the least threshold at which at most 5 % of the
//! accesses are slower, found by bisection; by latencies of pairs, so that by what single accesses
//! take more or less another can come out lower by a little.
//!
//! *Oracle* is the paper's (§3.2): in each second each key is where the accesses of that second,
//! which it is given one by one, wait least; its moves cost nothing. No strategy that has to move
//! keys can reach it.

use super::play::{COMMIT_MS, Decide};
use super::workload::{Access, Load};
use super::world::World;

/// How much of a slow access the latency of a fast one counts: see `protocol::placement::quantile`.
const TIE: f32 = 1.0 / 1_024.0;

/// A way for each unit: the site of each second.
pub struct Optimal {
    ways: Vec<Vec<u16>>,
    unit_of_key: Vec<usize>,
}

impl Optimal {
    /// For the mean, or for the 95th percentile.
    #[must_use]
    pub fn new(world: &World, load: &Load, tail: bool) -> Optimal {
        let seconds = world.places.first().map_or(0, Vec::len);
        let by_second: Vec<_> = (0..seconds).map(|second| load.rates(world, second)).collect();
        let unit_of_key =
            load.units.iter().enumerate().flat_map(|(unit, of)| of.keys.clone().map(move |_| unit));
        let unit_of_key = unit_of_key.collect();
        let ways = |cost: &dyn Fn(f32) -> f32| -> Vec<Vec<u16>> {
            let rates = |unit: usize| by_second.iter().map(move |units| units[unit].as_slice());
            (0..load.units.len()).map(|unit| cheapest(world, rates(unit), cost)).collect()
        };
        if !tail {
            return Optimal { ways: ways(&|ms| ms), unit_of_key };
        }
        let slower = |ways: &[Vec<u16>], threshold_ms: f32| -> f64 {
            let (mut slow, mut total) = (0.0, 0.0);
            for (second, units) in by_second.iter().enumerate() {
                for (unit, rates) in units.iter().enumerate() {
                    let keys = load.units[unit].keys.len() as f64;
                    for (origin, rate) in rates {
                        let ms = world.latency_ms(*origin, ways[unit][second]);
                        total += f64::from(*rate) * keys;
                        slow += f64::from(u8::from(ms > threshold_ms)) * f64::from(*rate) * keys;
                    }
                }
            }
            slow / total.max(1e-9)
        };
        let mut thresholds = world.ms.clone();
        thresholds.sort_by(f32::total_cmp);
        let at = |threshold_ms: f32| {
            ways(&move |ms| {
                let slow = f32::from(u8::from(ms > threshold_ms));
                threshold_ms * (slow + TIE * (ms / threshold_ms).min(2.0))
            })
        };
        let (mut low, mut high) = (0, thresholds.len() - 1);
        while low < high {
            let middle = usize::midpoint(low, high);
            let threshold_ms = thresholds[middle];
            let meets = slower(&at(threshold_ms), threshold_ms) <= 0.05;
            if meets { high = middle } else { low = middle + 1 }
        }
        Optimal { ways: at(thresholds[low]), unit_of_key }
    }
}

impl Decide for Optimal {
    fn decide(&mut self, second: usize, owners: &[u16]) -> Vec<(usize, u16)> {
        let of_key = |(key, unit): (usize, &usize)| {
            let site = self.ways[*unit][second];
            (site != owners[key]).then_some((key, site))
        };
        self.unit_of_key.iter().enumerate().filter_map(of_key).collect()
    }
}

/// The cheapest site of each second. A move costs what the accesses of its pause wait.
fn cheapest<'a>(
    world: &World,
    seconds: impl Iterator<Item = &'a [(u16, f32)]>,
    cost: &dyn Fn(f32) -> f32,
) -> Vec<u16> {
    let sites = world.sites;
    let mut best: Vec<f32> =
        world.open.iter().map(|open| if *open { 0.0 } else { f32::INFINITY }).collect();
    let mut came_from: Vec<u16> = Vec::new();
    for rates in seconds {
        let rate: f32 = rates.iter().map(|(_, rate)| rate).sum();
        let mut next = vec![f32::INFINITY; sites];
        for to in (0..sites).filter(|site| world.open[*site]) {
            let (mut least, mut from_site) = (best[to], to);
            for from in (0..sites).filter(|from| *from != to) {
                let pause_ms = world.ms[from * sites + to] + 2.0 * COMMIT_MS as f32;
                let moved = best[from] + rate * pause_ms * pause_ms / 2_000.0;
                if moved < least {
                    (least, from_site) = (moved, from);
                }
            }
            came_from.push(from_site as u16);
            let here =
                |(origin, rate): &(u16, f32)| rate * cost(world.latency_ms(*origin, to as u16));
            next[to] = least + rates.iter().map(here).sum::<f32>();
        }
        // Closed sites have no row of their own above; their places are filled so that rows stay
        // aligned.
        let open = world.open.iter().filter(|open| **open).count();
        if open < sites {
            let row = came_from.split_off(came_from.len() - open);
            let mut row = row.into_iter();
            came_from.extend(
                world.open.iter().map(|open| if *open { row.next().unwrap_or(0) } else { 0 }),
            );
        }
        // Costs of hours in one float lose digits: only differences count.
        let least = next.iter().copied().fold(f32::INFINITY, f32::min);
        best = next.into_iter().map(|cost| cost - least).collect();
    }
    let mut at = (0..sites).min_by(|a, b| best[*a].total_cmp(&best[*b])).unwrap_or(0) as u16;
    let mut way = Vec::with_capacity(came_from.len() / sites);
    for row in came_from.chunks(sites).rev() {
        way.push(at);
        at = row[usize::from(at)];
    }
    way.reverse();
    way
}

/// Sees the accesses of a second before they are made.
pub struct Oracle<'a> {
    world: &'a World,
    accesses: &'a [Access],
    next: usize,
    tail: bool,
}

impl<'a> Oracle<'a> {
    /// For the mean, or for the 95th percentile of each key's accesses.
    #[must_use]
    pub fn new(world: &'a World, accesses: &'a [Access], tail: bool) -> Oracle<'a> {
        Oracle { world, accesses, next: 0, tail }
    }

    fn best(&self, seen: &[&Access], owner: u16) -> u16 {
        let latencies = |site: u16| {
            seen.iter()
                .map(move |access| self.world.latency_ms(access.origin, site) * access.factor())
        };
        let cost = |site: u16| -> f32 {
            if !self.tail {
                return latencies(site).sum();
            }
            let mut sorted: Vec<f32> = latencies(site).collect();
            sorted.sort_by(f32::total_cmp);
            sorted[(sorted.len() * 95).div_ceil(100).max(1) - 1]
        };
        let open = (0..self.world.sites as u16).filter(|site| self.world.open[usize::from(*site)]);
        let costs = open.map(|site| (cost(site), site != owner, site));
        costs.min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1))).map_or(owner, |best| best.2)
    }
}

impl Decide for Oracle<'_> {
    fn decide(&mut self, second: usize, owners: &[u16]) -> Vec<(usize, u16)> {
        let accesses = &self.accesses[self.next..];
        let count = accesses.partition_point(|access| access.second() <= second);
        let mut of_key: Vec<Vec<&Access>> = vec![Vec::new(); owners.len()];
        for access in &accesses[..count] {
            of_key[usize::from(access.key)].push(access);
        }
        self.next += count;
        let keys = of_key.iter().enumerate().filter(|(_, seen)| !seen.is_empty());
        let best = keys.map(|(key, seen)| (key, self.best(seen, owners[key])));
        best.filter(|(key, site)| owners[*key] != *site).collect()
    }

    fn pays(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two_sites() -> World {
        let range = |origin, site| if origin == site { (1.0, 1.0) } else { (41.0, 41.0) };
        World::new(2, 1, range)
    }

    /// The sites of a key with 10 accesses a second that come from these origins.
    fn way(origins: &[u16]) -> Vec<u16> {
        let rates: Vec<Vec<(u16, f32)>> =
            origins.iter().map(|origin| vec![(*origin, 10.0)]).collect();
        cheapest(&two_sites(), rates.iter().map(Vec::as_slice), &|ms| ms)
    }

    #[test]
    fn it_follows_whoever_stays_and_not_who_only_passes() {
        assert_eq!(way(&[0, 0, 1, 1]), [0, 0, 1, 1]);
        // A move costs 10 × 43²/2 = 9.2 access-ms a second, two of them 18; a second elsewhere 400.
        assert_eq!(way(&[0, 1, 0]), [0, 1, 0]);
        let rare: Vec<Vec<(u16, f32)>> = [0, 1, 0].map(|origin| vec![(origin, 0.0)]).into();
        assert_eq!(cheapest(&two_sites(), rare.iter().map(Vec::as_slice), &|ms| ms), [0, 0, 0]);
    }

    #[test]
    fn closed_sites_are_on_no_way() {
        let mut world = two_sites();
        world.open[0] = false;
        let rates = [[(0, 5.0)], [(0, 5.0)]];
        assert_eq!(cheapest(&world, rates.iter().map(<[_; 1]>::as_slice), &|ms| ms), [1, 1]);
    }
}
