//! The objective quantile.

use super::super::quantile::{measure, per_group};
use super::*;

/// The least quantile of all placements, by trying each.
fn by_trying(latencies: &Latencies, groups: &Groups, rules: &Rules, quantile: f32) -> f32 {
    let sites = latencies.mean().sites();
    let placements = sites.pow(groups.len() as u32);
    let at = |placement: usize, group: usize| site(placement / sites.pow(group as u32) % sites);
    (0..placements)
        .filter(|placement| {
            (0..groups.len()).all(|group| rules.forbids(group, at(*placement, group)).is_none())
        })
        .filter_map(|placement| measure(latencies, groups, quantile, |group| at(placement, group)))
        .fold(f32::INFINITY, f32::min)
}

fn users(count: usize, latencies: &Latencies, dice: &mut Dice) -> Groups {
    let (origins, sites) = (latencies.mean().origins(), latencies.mean().sites());
    let mut groups = Groups::new(origins, sites);
    for _ in 0..count {
        let accesses: Vec<_> = (0..1 + dice.below(4))
            .map(|_| (origin(dice.below(origins)), 0.1 + 10.0 * dice.part()))
            .collect();
        groups.push(site(dice.below(sites)), 1, accesses);
    }
    groups
}

/// Half of the latencies vary.
fn spread(latencies: &mut Latencies, dice: &mut Dice) {
    let (origins, sites) = (latencies.mean().origins(), latencies.mean().sites());
    for (origin, site) in
        (0..origins).flat_map(|at| (0..sites).map(move |to| (origin(at), site(to))))
    {
        let Some(mean_ms) = latencies.get(origin, site).filter(|_| dice.is(0.5)) else { continue };
        let mut varying = Distribution::default();
        for _ in 0..20 {
            varying.add(mean_ms * (0.5 + 2.0 * dice.part()));
        }
        latencies.learn_spread(origin, site, varying);
    }
}

#[test]
fn the_least_threshold_is_the_best_quantile_of_all_placements() {
    for seed in 0..60 {
        let mut dice = Dice::new(seed);
        let mut latencies = noise(6, 4, 0.0, &mut dice);
        if seed % 2 == 0 {
            spread(&mut latencies, &mut dice);
        }
        let groups = users(4, &latencies, &mut dice);
        let mut rules = Rules::none(4);
        if dice.is(0.3) {
            rules.bar(site(dice.below(4)));
        }
        for quantile in [0.5, 0.8, 0.95] {
            let tail = Tail::find(&latencies, &groups, &rules, quantile).expect("users");
            let best = by_trying(&latencies, &groups, &rules, quantile);
            assert_eq!(tail.threshold_ms, best, "seed {seed}, quantile {quantile}");
            let matrix = latencies.slower_than(best);
            let near = Near::new(&matrix, 2);
            let solution = Solver::new(&matrix, &near, &rules).solve(&groups, u64::MAX);
            let reached = measure(&latencies, &groups, quantile, |group| solution.site(group));
            assert!(reached.is_some_and(|ms| ms <= best), "seed {seed}: {reached:?} above {best}");
        }
    }
}

#[test]
fn the_tail_is_shorter_than_by_the_mean_or_by_groups() {
    let (mut by_tail, mut by_mean, mut by_group) = (0.0, 0.0, 0.0);
    for seed in 0..20 {
        let mut dice = Dice::new(seed);
        let latencies = plane(25, &mut dice);
        let groups = users(300, &latencies, &mut dice);
        let rules = Rules::none(25);
        let p95 =
            |site: &dyn Fn(usize) -> Site| measure(&latencies, &groups, 0.95, site).expect("users");
        let solve = |matrix: &Matrix| {
            let near = Near::new(matrix, 4);
            Solver::new(matrix, &near, &rules).solve(&groups, u64::MAX)
        };
        let tail = Tail::find(&latencies, &groups, &rules, 0.95).expect("users");
        let ours = solve(&tail.matrix(&latencies));
        let mean = solve(latencies.mean());
        let portkey = per_group(&latencies, &groups, &rules, 0.95);
        let ours = p95(&|group| ours.site(group));
        assert!(ours <= tail.threshold_ms * 1.02, "seed {seed}: {ours} above {tail:?}");
        by_tail += ours;
        by_mean += p95(&|group| mean.site(group));
        by_group += p95(&|group| portkey.site(group));
    }
    eprintln!("p95 by the tail {by_tail:.0}, by the mean {by_mean:.0}, by groups {by_group:.0}");
    assert!(by_tail <= by_group && by_tail < by_mean);
}

#[test]
fn without_users_there_is_no_tail() {
    let latencies = plane(3, &mut Dice::new(1));
    let mut groups = Groups::new(3, 3);
    groups.push(site(0), 1, []);
    assert_eq!(Tail::find(&latencies, &groups, &Rules::none(3), 0.95), None);
}

#[test]
fn a_group_that_is_alike_at_the_threshold_goes_where_its_mean_is_less() {
    let latencies = table(&[[30.0, 20.0, 200.0], [20.0, 15.0, 5.0]]);
    let mut groups = Groups::new(2, 3);
    groups.push(site(0), 1, [(origin(0), 1.0), (origin(1), 1.0)]);
    let tail = Tail { quantile: 0.95, threshold_ms: 50.0 };
    let matrix = tail.matrix(&latencies);
    let (near, rules) = (Near::new(&matrix, 3), Rules::none(3));
    let solution = Solver::new(&matrix, &near, &rules).solve(&groups, u64::MAX);
    assert_eq!(solution.site(0), site(1));
}

/// One server takes 10 ms and one time in ten 110 ms, the other one takes 25 ms: the first one's
/// mean is less.
#[test]
fn a_server_that_stalls_is_far_by_the_quantile_only() {
    let mut latencies = Latencies::unknown(1, 2);
    let (stalling, steady) = (site(0), site(1));
    latencies.learn(origin(0), stalling, 20.0);
    latencies.learn(origin(0), steady, 25.0);
    let mut varying = Distribution::default();
    for nth in 0..100 {
        varying.add(if nth % 10 == 0 { 110.0 } else { 10.0 });
    }
    let mut groups = Groups::new(1, 2);
    groups.push(stalling, 1, [(origin(0), 1.0)]);
    let rules = Rules::none(2);
    let goes_to = |latencies: &Latencies| {
        let tail = Tail::find(latencies, &groups, &rules, 0.95).expect("users");
        let matrix = tail.matrix(latencies);
        let near = Near::new(&matrix, 2);
        let solution = Solver::new(&matrix, &near, &rules).solve(&groups, u64::MAX);
        (tail.threshold_ms, solution.site(0))
    };
    assert_eq!(goes_to(&latencies), (20.0, stalling), "by means alone");
    latencies.learn_spread(origin(0), stalling, varying.clone());
    assert_eq!(goes_to(&latencies), (25.0, steady));
    let p95 = |at: Site| measure(&latencies, &groups, 0.95, |_| at).expect("users");
    assert_eq!(p95(steady), 25.0);
    assert!((p95(stalling) / 110.0 - 1.0).abs() < 0.03, "{}", p95(stalling));
    // A cell without a mean has no spread, and an empty one is none.
    latencies.learn_spread(origin(0), steady, Distribution::default());
    let mut unknown = Latencies::unknown(1, 2);
    unknown.learn_spread(origin(0), stalling, varying);
    assert_eq!((latencies.dropped(), unknown.dropped()), (1, 1));
    unknown.learn(origin(0), stalling, 20.0);
    unknown.learn(origin(0), steady, 25.0);
    assert_eq!(goes_to(&unknown), (20.0, stalling), "by means alone");
}
