//! What the solver of placement costs: `cargo run --release -p protocol --example measure_placement
//! [ROW …]`.
//!
//! Rows: `exact`, `pruned`, `greedy`, `fallback`, `prune10m`, `count`, `decide`; without arguments
//! all. Each is measured five times; the least and the median are printed. Processor time of this
//! thread alone: other processes do not count (but they do share the caches and the memory).

#![allow(clippy::print_stdout, clippy::disallowed_methods, missing_docs)]

use protocol::placement::sampler::COUNTED_PER_S_MAX;
use protocol::placement::{
    Client, Counter, Decision, GroupKey, Groups, Latencies, Limits, Method, Near, Origin, Rules,
    Sampler, Site, Solution, Solver, Stability, Tick, Waiting, greedy, order,
};
use std::collections::BTreeMap;
use std::hint::black_box;

const SITES: usize = 1_024;

/// A generator of test data (xorshift).
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn part(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1 << 24) as f32
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() >> 20) as usize % end
    }
}

/// Time that this thread has had on a processor.
fn busy_s() -> f64 {
    let schedstat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let ns: u64 =
        schedstat.split_whitespace().next().and_then(|text| text.parse().ok()).unwrap_or(0);
    ns as f64 / 1e9
}

fn measure<T>(name: &str, mut run: impl FnMut() -> T) -> T {
    let mut times_s = Vec::new();
    let mut last = None;
    for _ in 0..5 {
        let begin_s = busy_s();
        last = Some(black_box(run()));
        times_s.push(busy_s() - begin_s);
    }
    times_s.sort_by(f64::total_cmp);
    println!("{name:<58} {:>6.3} s  (least {:.3})", times_s[2], times_s[0]);
    last.expect("it ran")
}

/// Sites on a plane: round trips grow with the distance, with detours, so they are nearly a metric.
fn latencies(dice: &mut Dice) -> Latencies {
    let places: Vec<(f32, f32)> = (0..SITES).map(|_| (dice.part(), dice.part())).collect();
    let mut latencies = Latencies::unknown(SITES, SITES);
    for (i, a) in places.iter().enumerate() {
        latencies.learn(Origin(i as u16), Site(i as u16), 0.0);
        for (j, b) in places.iter().enumerate().take(i) {
            let way = ((a.0 - b.0).powi(2) + (a.1 - b.1).powi(2)).sqrt();
            let ms = 1.0 + 50.0 * way * (1.0 + 0.3 * dice.part());
            latencies.learn(Origin(i as u16), Site(j as u16), ms);
            latencies.learn(Origin(j as u16), Site(i as u16), ms);
        }
    }
    latencies
}

/// Groups with 1–7 origins, four in the mean: with this share of them near to one another.
fn profiles(count: usize, local: f32, latencies: &Latencies, dice: &mut Dice) -> Groups {
    let mean = latencies.mean();
    let by_latency = |origin: usize| {
        let mut order: Vec<u16> = (0..SITES as u16).collect();
        let ms = |site: &u16| mean.cost(Origin(origin as u16), Site(*site));
        order.sort_by(|a, b| ms(a).total_cmp(&ms(b)));
        order.truncate(16);
        order
    };
    let near: Vec<Vec<u16>> = (0..SITES).map(by_latency).collect();
    let mut groups = Groups::with_capacity(SITES, SITES, count, count * 4 + count / 16);
    for _ in 0..count {
        let centre = dice.below(SITES);
        let is_local = dice.part() < local;
        let accesses: Vec<_> = (0..1 + dice.below(7))
            .map(|index| {
                let any =
                    if is_local { near[centre][dice.below(16)] } else { dice.below(SITES) as u16 };
                (Origin(any), (1.0 + 100.0 * dice.part()) / (1.0 + index as f32))
            })
            .collect();
        groups.push(Site(dice.below(SITES) as u16), 256 + dice.below(4_096) as u32, accesses);
    }
    groups
}

fn four_origins(count: usize, dice: &mut Dice) -> Groups {
    let mut groups = Groups::with_capacity(SITES, SITES, count, count * 4);
    for _ in 0..count {
        let accesses: Vec<_> =
            (0..4).map(|_| (Origin(dice.below(SITES) as u16), 1.0 + 100.0 * dice.part())).collect();
        groups.push(Site(dice.below(SITES) as u16), 256 + dice.below(4_096) as u32, accesses);
    }
    groups
}

fn exact(solver: &Solver<'_>, latencies: &Latencies, dice: &mut Dice) {
    let groups = four_origins(1_000_000, dice);
    let name = "1 M groups, 4 origins each: exact over 1,024 sites";
    let solution = measure(name, || solver.solve(&groups, u64::MAX));
    assert_eq!(solution.count(Method::Exact), 1_000_000);
    for local in [1.0, 0.5] {
        let groups = profiles(1_000_000, local, latencies, dice);
        let name = format!("1 M groups, 1–7 origins, {:.0} % local: exact", local * 100.0);
        measure(&name, || solver.solve(&groups, u64::MAX));
    }
}

fn pruned(solver: &Solver<'_>, latencies: &Latencies, dice: &mut Dice) {
    for local in [1.0, 0.5, 0.0] {
        let groups = profiles(1_000_000, local, latencies, dice);
        let best = solver.solve(&groups, u64::MAX).total();
        let near = Near::new(latencies.mean(), 8);
        let solver = Solver::new(latencies.mean(), &near, solver.rules());
        let operations = pruned_operations(&groups, 8);
        let name = format!("1 M groups, {:.0} % local: pruned, k = 8", local * 100.0);
        let solution = measure(&name, || solver.solve(&groups, operations));
        state(&solution, &groups);
        println!("  really above the optimum: {:.4} %", (solution.total() / best - 1.0) * 100.0);
        let name = "  the same, and a scan where it is not certain";
        let solution = measure(name, || {
            let operations = operations + groups.accesses_count() as u64 * SITES as u64 - 1;
            solver.solve(&groups, operations.min(groups.accesses_count() as u64 * SITES as u64 - 1))
        });
        state(&solution, &groups);
    }
}

fn pruned_operations(groups: &Groups, k: u64) -> u64 {
    (0..groups.len()).map(|group| (groups.accesses(group).len() as u64).pow(2) * k).sum()
}

fn state(solution: &Solution, groups: &Groups) {
    let share = |method| solution.count(method) as f64 / groups.len() as f64 * 100.0;
    println!(
        "  exact {:.1} %, certified {:.1} %, pruned {:.1} %, dominant {:.1} %; stated: at most {:.2} % above",
        share(Method::Exact),
        share(Method::Certified),
        share(Method::Pruned),
        share(Method::Dominant),
        solution.excess_max() * 100.0
    );
}

fn sorted_greedy(solver: &Solver<'_>, latencies: &Latencies, dice: &mut Dice) {
    let groups = profiles(1_000_000, 0.5, latencies, dice);
    let solution = solver.solve(&groups, u64::MAX);
    measure("1 M groups: utility, sort", || order::by_utility(solver, &groups, &solution));
    let bytes: u64 = groups.held().iter().sum();
    for slack in [2.0, 1.2, 1.05] {
        let capacities = vec![(bytes as f64 * slack / SITES as f64) as u64; SITES];
        let name = format!("1 M groups: utility, sort, greedy, capacity {slack}");
        measure(&name, || greedy(solver, &groups, &solution, &capacities));
    }
}

fn ten_million(solver: &Solver<'_>, latencies: &Latencies, dice: &mut Dice, is_pruned: bool) {
    let groups = profiles(10_000_000, 0.5, latencies, dice);
    let near = Near::new(latencies.mean(), 4);
    let solver = Solver::new(latencies.mean(), &near, solver.rules());
    let memory = groups.memory_bytes() + groups.len() * (14 + 16);
    let each = memory as f64 / groups.len() as f64;
    println!("10 M groups: {each:.1} bytes a group with the answers and the sort");
    if is_pruned {
        let operations = pruned_operations(&groups, 4);
        let solution = measure("10 M groups: pruned, k = 4", || solver.solve(&groups, operations));
        state(&solution, &groups);
        let name = "  1 in 100 groups exactly, for an estimate";
        let excess = measure(name, || solver.excess_sampled(&groups, &solution, 100));
        println!("  estimated: {:.3} % above the optimum", excess * 100.0);
    } else {
        let solution = measure("10 M groups: fallback", || solver.solve(&groups, 0));
        state(&solution, &groups);
        measure("10 M groups: fallback, utility, sort", || {
            let solution = solver.solve(&groups, 0);
            order::by_utility(&solver, &groups, &solution)
        });
    }
}

/// What counting adds to an operation.
fn count(dice: &mut Dice) {
    const OPERATIONS: usize = 10_000_000;
    for keys in [10_000_u64, 1_000_000] {
        // The rate of a key falls with the inverse of its rank.
        let draw = |dice: &mut Dice| (keys as f32).powf(dice.part()) as u64;
        let accesses: Vec<(GroupKey, u16)> = (0..1_000_000)
            .map(|_| {
                let hash = (draw(dice) + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
                (GroupKey::new((hash >> 50) as u16, hash), dice.below(4) as u16)
            })
            .collect();
        let nothing = measure(&format!("{keys} keys: 10 M operations, none counted"), || {
            accesses.iter().cycle().take(OPERATIONS).map(|(_, site)| u64::from(*site)).sum::<u64>()
        });
        for one_of in [1, 16, 64] {
            let mut counter = Counter::new(200_000, 10.0);
            let sampler = Sampler::new(nothing);
            sampler.set_load(COUNTED_PER_S_MAX * one_of);
            measure(&format!("{keys} keys: 10 M operations, 1 in {one_of} counted"), || {
                let mut sum = 0;
                for (index, (group, site)) in accesses.iter().cycle().take(OPERATIONS).enumerate() {
                    sum += u64::from(*site);
                    if let Some(weight) = sampler.take() {
                        let now = Tick::from_ms(index as u64 / 1_000);
                        let (client, site) = (Client(u32::from(*site)), Site(*site));
                        counter.count(now, *group, client, site, weight);
                    }
                }
                sum
            });
        }
    }
}

/// One decision of an owner of 200,000 groups with four origins each, as it makes one each second:
/// with the operations of a site's leader, from profiles. A quarter of the groups would be better
/// elsewhere.
fn decide(latencies: &Latencies, dice: &mut Dice) {
    const GROUPS: usize = 200_000;
    let stability = Stability { memory_s: 10.0, sites_are_origins: true, ..Stability::default() };
    let (rules, near) = (Rules::none(SITES), Near::new(latencies.mean(), 8));
    let mut counter = Counter::new(GROUPS, stability.memory_s);
    let now = Tick::from_ms(0);
    for group in 0..GROUPS {
        let key = GroupKey::lendable((group % 16_384) as u16, 1, dice.next());
        let is_elsewhere = group % 4 == 0;
        for origin in 0..4 {
            let (site, weight) = match origin {
                0 if !is_elsewhere => (0, 200.0),
                _ => (dice.below(SITES) as u16, 10.0),
            };
            counter.count(now, key, Client(u32::from(site)), Site(site), weight);
        }
    }
    let decision = Decision {
        stability: &stability,
        matrix: latencies.mean(),
        near: &near,
        rules: &rules,
        at: Site(0),
        operations_max: 20_000_000,
        groups: GROUPS,
        limits: Limits { moves_max: 256, bytes_max: 64 << 20, site_bytes_max: 64 << 20 },
        elapsed_s: 1.0,
        prices: &[],
        room: &[],
        homes: &BTreeMap::new(),
    };
    let mut waiting = Waiting::default();
    let choice = measure("a decision about 200,000 groups", || {
        let groups = counter.groups().map(|(key, profile)| (key, 100, profile.rates(10.0)));
        decision.choose(groups, &mut waiting)
    });
    let bytes = choice.memory_bytes_max;
    let (profiles, waits) = (counter.memory_bytes(), waiting.memory_bytes());
    let all = profiles + waits + bytes;
    println!("{} groups are followed, {} move", counter.groups().count(), choice.moves.len());
    println!(
        "{all} bytes: profiles {profiles}, {} that wait {waits}, batch {bytes}",
        waiting.len()
    );
}

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let wants = |row: &str| wanted.is_empty() || wanted.iter().any(|name| name == row);
    let mut dice = Dice(88_172_645_463_325_252);
    let latencies = latencies(&mut dice);
    let near = measure("lists of the 8 nearest of 1,024 sites", || Near::new(latencies.mean(), 8));
    let rules = Rules::none(SITES);
    let solver = Solver::new(latencies.mean(), &near, &rules);
    if wants("exact") {
        exact(&solver, &latencies, &mut dice);
    }
    if wants("pruned") {
        pruned(&solver, &latencies, &mut dice);
    }
    if wants("greedy") {
        sorted_greedy(&solver, &latencies, &mut dice);
    }
    if wants("fallback") {
        ten_million(&solver, &latencies, &mut dice, false);
    }
    if wants("prune10m") {
        ten_million(&solver, &latencies, &mut dice, true);
    }
    if wants("count") {
        count(&mut dice);
    }
    if wants("decide") {
        decide(&latencies, &mut dice);
    }
}
