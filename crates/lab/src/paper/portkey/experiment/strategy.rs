//! Strategies that go by what they have seen.
//!
//! *Accessing* and *dominant* node and *Portkey* decide at the end of each window of 10 s by the
//! accesses of that window, as the paper has it (§6.1), with the clients where they were last. They
//! know latencies exactly; so no probes err. *Ours* decides each second, as owners do: by profiles
//! of four clients or nine sites a group that fade (τ = 10 s), by latencies (the least of six
//! samples; sites publish medians), with margin, noise and regret; under capacities by prices.

use std::collections::BTreeMap;

use protocol::placement::{
    Assignment, Capacities, Client, Counter, GroupKey, Groups, Latencies, Limits, Near, Origin,
    Prices, Regrets, Rules, Site, Solver, Stability, Tail, Terms, Tick, greedy, plan, quantile,
};

use super::play::{COMMIT_MS, Decide};
use super::workload::{Access, VALUE_BYTES};
use super::world::{JITTER, WINDOW_S, World};
use crate::random::Random;

/// The time in which counts fade, in seconds.
const TAU_S: f32 = 10.0;
/// A count below this is none.
const LEAST: f32 = 0.01;
/// The objective *tail*.
const QUANTILE: f32 = 0.95;

/// Nothing moves.
pub struct Still;

impl Decide for Still {
    fn decide(&mut self, _second: usize, _owners: &[u16]) -> Vec<(usize, u16)> {
        Vec::new()
    }
}

/// What a strategy that decides by windows goes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// The site nearest to a random one of a key's clients.
    Accessing,
    /// The site nearest to the client with the most accesses.
    Dominant,
    /// Portkey's greedy.
    Portkey {
        /// For the 95th percentile in place of the mean.
        tail: bool,
    },
}

/// A strategy that decides at the end of each window.
pub struct Windowed<'a> {
    world: &'a World,
    rule: Rule,
    latencies: Latencies,
    rules: Rules,
    capacities: Capacities,
    random: Random,
    /// Of each key: the accesses of each client in this window.
    seen: Vec<BTreeMap<u16, u32>>,
    /// Where each client was last.
    last: BTreeMap<u16, u16>,
    /// Clients and keys in the sketches of all windows.
    sketched: u64,
}

impl<'a> Windowed<'a> {
    /// Nothing is seen yet. `capacities`: the bytes of each site; empty: no limit.
    #[must_use]
    pub fn new(
        world: &'a World,
        keys: usize,
        rule: Rule,
        capacities: Capacities,
        seed: u64,
    ) -> Windowed<'a> {
        let unlimited = || vec![u64::MAX; world.sites];
        Windowed {
            world,
            rule,
            latencies: latencies(world, |ms| ms),
            rules: rules(world),
            capacities: if capacities.is_empty() { unlimited() } else { capacities },
            random: Random::stream(seed, "accessing", 0),
            seen: vec![BTreeMap::new(); keys],
            last: BTreeMap::new(),
            sketched: 0,
        }
    }

    fn nearest(&self, client: u16) -> Option<u16> {
        let origin = self.last[&client];
        let open = (0..self.world.sites as u16).filter(|site| self.world.open[usize::from(*site)]);
        open.min_by(|a, b| {
            let ms = |site: &u16| self.world.latency_ms(origin, *site);
            ms(a).total_cmp(&ms(b))
        })
    }

    fn by_client(&mut self, key: usize) -> Option<u16> {
        let seen = &self.seen[key];
        let client = match self.rule {
            Rule::Accessing => seen.keys().nth(self.random.below(seen.len() as u64) as usize),
            _ => seen.iter().max_by_key(|(_, count)| **count).map(|(client, _)| client),
        };
        client.copied().and_then(|client| self.nearest(client))
    }

    fn by_solver(&self, owners: &[u16], tail: bool) -> Vec<u16> {
        let accesses = |key: usize| {
            self.seen[key]
                .iter()
                .map(|(client, count)| (Origin(self.last[client]), *count as f32 / WINDOW_S as f32))
        };
        let mut groups = Groups::new(self.world.sites, self.world.sites);
        for (key, owner) in owners.iter().enumerate() {
            groups.push(Site(*owner), VALUE_BYTES, accesses(key));
        }
        let near = Near::new(self.latencies.mean(), 1);
        let solver = Solver::new(self.latencies.mean(), &near, &self.rules);
        let wanted = if tail {
            let solution = quantile::per_group(&self.latencies, &groups, &self.rules, QUANTILE);
            Assignment::unlimited(&groups, &solution)
        } else {
            let solution = solver.solve(&groups, u64::MAX);
            greedy(&solver, &groups, &solution, &self.capacities)
        };
        (0..owners.len()).map(|key| wanted.site(key).0).collect()
    }
}

impl Decide for Windowed<'_> {
    fn decide(&mut self, second: usize, owners: &[u16]) -> Vec<(usize, u16)> {
        if second == 0 || !second.is_multiple_of(WINDOW_S) {
            return Vec::new();
        }
        let wanted = match self.rule {
            Rule::Portkey { tail } => self.by_solver(owners, tail),
            _ => (0..owners.len()).map(|key| self.by_client(key).unwrap_or(owners[key])).collect(),
        };
        self.sketched += self.seen.iter().map(|seen| seen.len() as u64).sum::<u64>();
        self.seen.iter_mut().for_each(BTreeMap::clear);
        changed(owners, &wanted)
    }

    fn saw(&mut self, access: &Access) {
        *self.seen[usize::from(access.key)].entry(access.client).or_default() += 1;
        self.last.insert(access.client, access.origin);
    }

    /// Each window each client sends 8 bytes for each site and 16 for each key that it has
    /// accessed.
    fn overhead_bytes(&self, seconds: f64, _accesses: u64) -> f64 {
        let windows = seconds / WINDOW_S as f64;
        let all_windows = (self.world.places.first().map_or(0, Vec::len) / WINDOW_S) as f64;
        let keys = self.sketched as f64 / all_windows.max(1.0);
        windows * (self.last.len() as f64 * 8.0 * self.world.sites as f64 + 16.0 * keys)
    }
}

fn changed(owners: &[u16], wanted: &[u16]) -> Vec<(usize, u16)> {
    let both = owners.iter().zip(wanted).enumerate();
    both.filter(|(_, (is, to))| is != to).map(|(key, (_, to))| (key, *to)).collect()
}

fn rules(world: &World) -> Rules {
    let mut rules = Rules::none(world.sites);
    let closed = (0..world.sites).filter(|site| !world.open[*site]);
    closed.for_each(|site| rules.bar(Site(site as u16)));
    rules
}

fn latencies(world: &World, mut measure: impl FnMut(f32) -> f32) -> Latencies {
    let mut latencies = Latencies::unknown(world.sites, world.sites);
    for (cell, ms) in world.ms.iter().enumerate() {
        let (origin, site) = ((cell / world.sites) as u16, (cell % world.sites) as u16);
        latencies.learn(Origin(origin), Site(site), measure(*ms));
    }
    latencies
}

/// What ours may do.
#[derive(Debug, Clone, Default)]
pub struct Goal {
    /// For the 95th percentile in place of the mean.
    pub tail: bool,
    /// The bytes of each site; empty: no limit.
    pub capacities: Capacities,
    /// Moves a window, at most; 0: no limit.
    pub moves_max: usize,
    /// Each client of a group weighs the same, whatever it claims.
    pub equal: bool,
    /// All clients of a group are counted, in place of four: what the bounded profile costs.
    pub whole: bool,
    /// The sites of a group's clients are counted, in place of these, as owners do where clients
    /// have no names.
    pub by_site: bool,
}

/// Where a client was last, what it has accessed and until when that has faded.
type Count = (u16, f32, u64);

/// As owners decide, each second.
pub struct Ours {
    goal: Goal,
    sites: usize,
    latencies: Latencies,
    rules: Rules,
    near: Near,
    tail: Option<(Tail, protocol::placement::Matrix, Near)>,
    stability: Stability,
    counter: Counter,
    keys: Vec<GroupKey>,
    whole: Vec<BTreeMap<u16, Count>>,
    regrets: Regrets,
    prices: Prices,
    moves_left: usize,
}

impl Ours {
    /// Nothing is counted yet.
    #[must_use]
    pub fn new(world: &World, keys: usize, goal: Goal, seed: u64) -> Ours {
        let mut random = Random::stream(seed, "probes", 0);
        let mut sample = |ms: f32| ms * (1.0 + JITTER * (2.0 * random.fraction() as f32 - 1.0));
        let latencies =
            latencies(world, |ms| (0..6).map(|_| sample(ms)).fold(f32::INFINITY, f32::min));
        let mut hash = Random::stream(seed, "groups", 0);
        let counter = Counter::new(8 * keys, TAU_S);
        Ours {
            sites: world.sites,
            near: Near::new(latencies.mean(), 8),
            latencies,
            rules: rules(world),
            tail: None,
            stability: Stability {
                memory_s: TAU_S,
                pause_ms: 2.0 * COMMIT_MS as f32,
                ..Stability::default()
            },
            counter: if goal.equal { counter.with_votes() } else { counter },
            keys: (0..keys).map(|key| GroupKey::new(key as u16, hash.draw())).collect(),
            whole: vec![BTreeMap::new(); keys],
            regrets: Regrets::new(keys),
            prices: Prices::none(world.sites),
            moves_left: 0,
            goal,
        }
    }

    /// Counts an access, or what a client claims.
    pub fn count(&mut self, at_ms: u64, key: usize, client: u16, origin: u16, weight: f32) {
        if self.goal.whole {
            let (at, count, then) = self.whole[key].entry(client).or_default();
            let kept = (-((at_ms - *then) as f32) / (1_000.0 * TAU_S)).exp();
            (*at, *count, *then) = (origin, *count * kept + weight, at_ms);
            return;
        }
        let site = Site(origin);
        let client = match self.goal.by_site {
            true => Client::of_site(site),
            false => Client(u32::from(client)),
        };
        self.counter.count(Tick::from_ms(at_ms), self.keys[key], client, site, weight);
    }

    /// The profiles of all groups, as they are now.
    fn groups(&mut self, second: usize, owners: &[u16]) -> Groups {
        let now = Tick::from_ms(second as u64 * 1_000);
        let mut groups = Groups::new(self.sites, self.sites);
        for (key, owner) in owners.iter().enumerate() {
            if self.goal.whole {
                let rate = |(at, count, then): &Count| {
                    let faded = second as f32 - *then as f32 / 1_000.0;
                    (Origin(*at), count * (-faded / TAU_S).exp() / TAU_S)
                };
                // As profiles do: bids for what nothing accesses any more would rise by next to
                // nothing each.
                let is_used = |(_, rate): &(Origin, f32)| *rate > LEAST / TAU_S;
                groups.push(
                    Site(*owner),
                    VALUE_BYTES,
                    self.whole[key].values().map(rate).filter(is_used),
                );
                continue;
            }
            let profile = self.counter.profile(now, self.keys[key]).copied();
            let rates: Vec<(Origin, f32)> = match &profile {
                None => Vec::new(),
                Some(profile) => profile.rates(TAU_S).collect(),
            };
            groups.push(Site(*owner), VALUE_BYTES, rates);
        }
        groups
    }

    fn find_tail(&mut self, groups: &Groups) {
        let tail = Tail::find(&self.latencies, groups, &self.rules, QUANTILE);
        self.tail = tail.map(|tail| {
            let matrix = tail.matrix(&self.latencies);
            let near = Near::new(&matrix, 8);
            (tail, matrix, near)
        });
    }
}

impl Decide for Ours {
    fn decide(&mut self, second: usize, owners: &[u16]) -> Vec<(usize, u16)> {
        let groups = self.groups(second, owners);
        if second.is_multiple_of(WINDOW_S) {
            self.moves_left =
                if self.goal.moves_max == 0 { usize::MAX } else { self.goal.moves_max };
        }
        if self.goal.tail && (second.is_multiple_of(WINDOW_S) || self.tail.is_none()) {
            self.find_tail(&groups);
        }
        let (matrix, near) = match &self.tail {
            Some((_, matrix, near)) => (matrix, near),
            None => (self.latencies.mean(), &self.near),
        };
        let capacities = Some(&self.goal.capacities).filter(|capacities| !capacities.is_empty());
        let solver = Solver::with_prices(matrix, near, &self.rules, self.prices.per_byte());
        let solution = solver.solve(&groups, u64::MAX);
        let ready = self.regrets.ready(&self.stability, &solver, &groups, &solution, 1.0);
        let wanted = match capacities {
            None => Assignment::of_ready(&groups, &solution, &ready),
            Some(capacities) => {
                let terms = Terms {
                    matrix,
                    near,
                    rules: &self.rules,
                    capacities,
                    margin: self.stability.margin,
                    ready: &ready,
                    bids_max: 1_000_000,
                };
                self.prices.auction(&terms, &groups)
            }
        };
        let all = plan::moves(&solver, &groups, &wanted);
        let limits = Limits { moves_max: self.moves_left, ..Limits::NONE };
        // 5 % of headroom above what is sold.
        let room = capacities.map(|all| all.iter().map(|bytes| bytes + bytes / 20).collect());
        let plan = plan(&all, &groups, room.as_ref(), limits);
        self.moves_left -= plan.moves.len();
        for a_move in &plan.moves {
            self.regrets.moved(&self.stability, a_move.group as usize);
        }
        plan.moves.iter().map(|a_move| (a_move.group as usize, a_move.to.0)).collect()
    }

    fn saw(&mut self, access: &Access) {
        let (key, at_ms) = (usize::from(access.key), u64::from(access.at_us) / 1_000);
        self.count(at_ms, key, access.client, access.origin, 1.0);
    }

    /// Nine bytes in each access name its client, if clients are counted; each window each site
    /// probes five others (64 bytes) and publishes its row.
    fn overhead_bytes(&self, seconds: f64, accesses: u64) -> f64 {
        let windows = seconds / WINDOW_S as f64;
        let sites = self.sites as f64;
        let names = if self.goal.by_site { 0.0 } else { 9.0 };
        accesses as f64 * names + windows * sites * (5.0 * 64.0 + 2.0 * sites)
    }
}

#[cfg(test)]
mod tests {
    use super::super::play::{Measured, Rules, by_hash, play};
    use super::super::workload::{Load, Workload};
    use super::super::world::TIERS;
    use super::*;

    fn measured(of: impl Fn(&World, usize) -> Box<dyn Decide + '_>) -> Measured {
        let world = World::grid(TIERS, 8, 60, 1);
        let load = Load::new(Workload::PerClient, &world, 4, 10.0);
        let rules = Rules { warm_s: 20, starts_s: 0, mbps: 1_000.0 };
        let owners = by_hash(&world, load.keys(), 1);
        let accesses = load.accesses(&world, 1);
        let mut decider = of(&world, load.keys());
        play(&world, &accesses, owners, &mut *decider, rules, &mut |_, _| {})
    }

    #[test]
    fn each_moves_keys_to_their_clients() {
        let hash = measured(|_, _| Box::new(Still)).mean_ms;
        assert!((30.0..42.0).contains(&hash), "{hash}");
        for rule in [
            Rule::Accessing,
            Rule::Dominant,
            Rule::Portkey { tail: false },
            Rule::Portkey { tail: true },
        ] {
            let one =
                measured(|world, keys| Box::new(Windowed::new(world, keys, rule, Vec::new(), 1)));
            assert!(one.mean_ms < hash / 3.0 && one.moves > 0, "{rule:?} {one:?}");
        }
        for tail in [false, true] {
            for by_site in [false, true] {
                let terms = Goal { tail, by_site, ..Goal::default() };
                let one =
                    measured(|world, keys| Box::new(Ours::new(world, keys, terms.clone(), 1)));
                assert!(one.mean_ms < hash / 3.0, "{tail} {by_site} {one:?}");
                assert!(one.overhead < 0.05);
            }
        }
    }

    #[test]
    fn capacities_and_budgets_hold() {
        let world = World::grid(TIERS, 8, 60, 1);
        let mut ours = Ours::new(
            &world,
            32,
            Goal { capacities: vec![2 * 1_024; 25], moves_max: 3, ..Goal::default() },
            1,
        );
        let mut owners: Vec<u16> = (0..32).map(|key| key % 25).collect();
        for second in 0..30 {
            // All from one place.
            for key in 0..32 {
                ours.count(second * 1_000, key, 1, 12, 5.0);
            }
            let moves = ours.decide(second as usize, &owners);
            assert!(moves.len() <= 3);
            moves.into_iter().for_each(|(key, to)| owners[key] = to);
            let at = |site: u16| owners.iter().filter(|owner| **owner == site).count();
            assert!((0..25).all(|site| at(site) <= 2), "{owners:?}");
        }
        assert!(owners.iter().filter(|owner| **owner == 12).count() == 2);
    }
}
