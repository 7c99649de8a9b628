//! The best site of each group.

use super::super::scan::Scan;
use super::super::trial::{Bug, Planted};
use super::*;

/// The least cost over the sites that the rules allow, plainly.
fn plainly(solver: &Solver<'_>, groups: &Groups, group: usize, prices: &[f32]) -> Option<f64> {
    let matrix = solver.matrix();
    let net = |to: usize| {
        let accesses = groups.accesses(group).iter();
        let cost: f64 = accesses
            .map(|(from, rate)| f64::from(rate) * f64::from(matrix.cost(from, site(to))))
            .sum();
        let price = f64::from(prices.get(to).copied().unwrap_or(0.0));
        cost + price * f64::from(groups.bytes(group))
    };
    (0..matrix.sites())
        .filter(|to| solver.rules().forbids(group, site(*to)).is_none())
        .map(net)
        .filter(|cost| cost.is_finite())
        .min_by(f64::total_cmp)
}

fn is_close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-4 * a.abs().max(b.abs()).max(1.0)
}

/// What holds of every answer, in a world of this seed.
fn check_world(seed: u64, with_prices: bool) {
    let mut dice = Dice::new(seed);
    let (origins, sites) = (1 + dice.below(40), 1 + dice.below(70));
    let latencies = noise(origins, sites, 0.05, &mut dice);
    let groups = groups(60, 9, &latencies, &mut dice);
    let rules = some_rules(sites, groups.len(), &mut dice);
    let near = Near::new(latencies.mean(), 1 + dice.below(6));
    let prices: Vec<f32> = match with_prices {
        true => (0..sites).map(|_| 0.2 * dice.part()).collect(),
        false => Vec::new(),
    };
    let solver = Solver::with_prices(latencies.mean(), &near, &rules, &prices);
    let mut scan = Scan::new(latencies.mean());
    for group in 0..groups.len() {
        let plain = plainly(&solver, &groups, group, &prices);
        let exact = solver.exact(&mut scan, &groups, group);
        let answers = [exact, solver.pruned(&groups, group), solver.dominant(&groups, group)];
        for answer in answers {
            let price = f64::from(prices.get(answer.site.0 as usize).copied().unwrap_or(0.0));
            let net = f64::from(answer.cost) + price * f64::from(groups.bytes(group));
            let place = format!("seed {seed}, group {group}: {answer:?}, the least is {plain:?}");
            if answer.method == Method::Stays {
                assert_eq!(answer.site, groups.owner(group), "{place}");
                continue;
            }
            assert_eq!(rules.forbids(group, answer.site), None, "{place}");
            let plain = plain.expect("where a group can go, there is a least cost");
            assert!(net >= plain - 1e-3 * plain, "{place}");
            if matches!(answer.method, Method::Exact | Method::Certified) {
                assert!(is_close(net, plain), "{place}");
            }
            if answer.method != Method::Dominant {
                assert!(answer.bound <= answer.cost * 1.0001, "{place}");
            }
        }
    }
}

#[test]
fn exact_and_certified_answers_are_the_least_and_keep_to_all_rules() {
    for seed in 0..200 {
        check_world(seed, false);
        check_world(seed, true);
    }
}

#[test]
fn the_scan_and_the_cost_of_one_site_have_the_same_bits() {
    let mut dice = Dice::new(1);
    let latencies = noise(50, 33, 0.0, &mut dice);
    let groups = groups(200, 11, &latencies, &mut dice);
    let (near, rules) = (Near::new(latencies.mean(), 3), Rules::none(33));
    let solver = Solver::new(latencies.mean(), &near, &rules);
    let mut scan = Scan::new(latencies.mean());
    for group in 0..groups.len() {
        solver.fill(&mut scan, &groups, group);
        for to in 0..33 {
            let cost = solver.cost(&groups, group, site(to));
            assert_eq!(scan.sums()[to].to_bits(), cost.to_bits());
        }
    }
}

#[test]
fn of_equal_sites_the_owner_wins() {
    let latencies = table(&[[5.0, 5.0, 5.0], [5.0, 5.0, 5.0], [5.0, 5.0, 5.0]]);
    let mut groups = Groups::new(3, 3);
    for owner in 0..3 {
        groups.push(site(owner), 10, [(origin(0), 1.0), (origin(1), 2.0), (origin(2), 0.5)]);
    }
    let (near, rules) = (Near::new(latencies.mean(), 1), Rules::none(3));
    let solver = Solver::new(latencies.mean(), &near, &rules);
    for operations in [0, 20, u64::MAX] {
        let solution = solver.solve(&groups, operations);
        for owner in 0..3 {
            assert_eq!(solution.site(owner), site(owner), "with {operations} operations");
            assert_eq!(solution.gain(owner), 0.0);
        }
    }
}

#[test]
fn an_origin_with_half_of_the_rate_is_optimal_in_a_metric() {
    for seed in 0..100 {
        let mut dice = Dice::new(seed);
        let latencies = plane(40, &mut dice);
        let (near, rules) = (Near::new(latencies.mean(), 2), Rules::none(40));
        let solver = Solver::new(latencies.mean(), &near, &rules);
        let groups = groups(50, 6, &latencies, &mut dice);
        let mut scan = Scan::new(latencies.mean());
        for group in 0..groups.len() {
            let exact = solver.exact(&mut scan, &groups, group);
            let dominant = solver.dominant(&groups, group);
            let (rate, heaviest) = groups.accesses(group).rate_and_heaviest();
            if heaviest.is_some_and(|(_, heaviest)| heaviest * 2.0 >= rate) {
                assert!(
                    is_close(exact.cost.into(), dominant.cost.into()),
                    "{exact:?} {dominant:?}"
                );
            }
            assert!(dominant.bound <= exact.cost * 1.0001 + 1e-3, "{exact:?} {dominant:?}");
        }
    }
}

#[test]
fn a_solution_states_by_how_much_it_can_be_worse() {
    for seed in 0..30 {
        let mut dice = Dice::new(seed);
        let latencies = plane(60, &mut dice);
        let (near, rules) = (Near::new(latencies.mean(), 4), Rules::none(60));
        let solver = Solver::new(latencies.mean(), &near, &rules);
        let groups = groups(300, 6, &latencies, &mut dice);
        let best = solver.solve(&groups, u64::MAX);
        assert_eq!(best.excess_max(), 0.0);
        let mut last = f64::INFINITY;
        for operations in [0, 1_000, 10_000, 20_000, 40_000, 60_000] {
            let solution = solver.solve(&groups, operations);
            let really = solution.total() / best.total() - 1.0;
            assert!(
                really <= solution.excess_max() + 1e-4,
                "{really} with {operations} operations"
            );
            assert!(really <= last + 1e-6, "more operations, a worse solution");
            last = really;
            let sampled = solver.excess_sampled(&groups, &solution, 1);
            assert!((sampled - really).abs() < 1e-3, "{sampled} is no estimate of {really}");
        }
    }
}

#[test]
fn a_short_budget_goes_to_the_most_shared_groups() {
    let mut dice = Dice::new(4);
    let latencies = plane(50, &mut dice);
    let (near, rules) = (Near::new(latencies.mean(), 50), Rules::none(50));
    let solver = Solver::new(latencies.mean(), &near, &rules);
    let mut groups = Groups::new(50, 50);
    for users in [1, 3, 5, 4, 2] {
        groups.push(site(0), 1, (0..users).map(|index| (origin(7 * index + 3), 1.0)));
    }
    // 5 and 4 users: 450 operations. In a pair each has half, so the dominant site is optimal.
    let solution = solver.solve(&groups, 15 + 450 + 10);
    assert_eq!(solution.count(Method::Exact), 2);
    let mut scan = Scan::new(latencies.mean());
    for group in [0, 2, 3, 4] {
        assert_eq!(solution.cost(group), solver.exact(&mut scan, &groups, group).cost);
    }
}

/// Whether a site with an unknown latency is left alone, by latencies with this bug.
fn excludes_unknown(planted: Planted) -> bool {
    let mut latencies = Latencies::planted(2, 2, planted);
    latencies.learn(origin(0), site(0), 50.0);
    latencies.learn(origin(1), site(0), 50.0);
    latencies.learn(origin(0), site(1), 1.0);
    let mut groups = Groups::new(2, 2);
    groups.push(site(0), 1, [(origin(0), 5.0), (origin(1), 1.0)]);
    let near = Near::new(latencies.mean(), 1);
    let stays = |rules: &Rules| {
        let solver = Solver::new(latencies.mean(), &near, rules);
        [0, 6, u64::MAX].iter().all(|most| solver.solve(&groups, *most).site(0) == site(0))
    };
    let mut drained = Rules::none(2);
    drained.bar(site(0));
    stays(&Rules::none(2)) && stays(&drained)
}

#[test]
fn an_unknown_latency_excludes_a_site() {
    assert!(excludes_unknown(Planted::none()));
    if Planted::is_possible() {
        assert!(!excludes_unknown(Planted::of(Bug::UnknownIsZero)));
        assert!(!excludes_unknown(Planted::of(Bug::UnknownIsHuge)));
    }
}

#[test]
fn a_group_stays_where_its_cost_is_unknown() {
    // What cannot be stays unknown.
    let latencies = table(&[[f32::INFINITY, 1.0]]);
    let mut groups = Groups::new(1, 2);
    groups.push(site(0), 1, [(origin(0), 5.0)]);
    groups.push(site(1), 1, [(origin(0), 5.0)]);
    let (near, mut rules) = (Near::new(latencies.mean(), 2), Rules::none(2));
    let solution = Solver::new(latencies.mean(), &near, &rules).solve(&groups, u64::MAX);
    assert_eq!((solution.site(0), solution.gain(0)), (site(0), 0.0));
    assert_eq!(solution.count(Method::Stays), 1);
    rules.pin(0, site(1));
    let solution = Solver::new(latencies.mean(), &near, &rules).solve(&groups, u64::MAX);
    assert_eq!((solution.site(0), solution.gain(0)), (site(1), 0.0));
}

#[test]
fn absurd_values_are_dropped_and_counted() {
    let mut latencies = table(&[[10.0, 1.0]]);
    for ms in [-1.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 60_001.0] {
        latencies.learn(origin(0), site(0), ms);
    }
    latencies.learn(origin(1), site(0), 1.0);
    latencies.learn(origin(0), site(2), 1.0);
    assert_eq!((latencies.dropped(), latencies.get(origin(0), site(0))), (7, Some(10.0)));
    let mut groups = Groups::new(1, 2);
    let rates = [-1.0, 0.0, f32::NAN, f32::INFINITY, 2e9, 7.0];
    assert_eq!(groups.push(site(0), 1, rates.map(|rate| (origin(0), rate))), Some(0));
    assert_eq!(groups.push(site(0), 1, [(origin(1), 1.0)]), Some(1));
    assert_eq!(groups.push(site(2), 1, []), None);
    assert_eq!((groups.accesses(0).rate(), groups.accesses(1).len(), groups.len()), (7.0, 0, 2));
}

#[test]
fn a_group_goes_where_its_rules_let_it() {
    let latencies = table(&[[10.0, 1.0, 2.0, 3.0]]);
    let near = Near::new(latencies.mean(), 4);
    let mut groups = Groups::new(1, 4);
    groups.push(site(0), 1, [(origin(0), 5.0)]);
    let solve = |rules: &Rules| {
        let solver = Solver::new(latencies.mean(), &near, rules);
        [0, 10, u64::MAX].map(|most| solver.solve(&groups, most).site(0).0)
    };
    let mut rules = Rules::none(4);
    assert_eq!(solve(&rules), [1; 3]);
    rules.bar(site(1));
    assert_eq!(solve(&rules), [2; 3]);
    // Its kind may not be at site 2.
    let kind = Kind::new(vec![None, None, Some(Bar::Domain), None], 1.0);
    let of_kind = |rules: &Rules, kind: Kind| {
        let (mut rules, mut by_key) = (rules.clone(), ByKey::default());
        let kind = by_key.add(kind);
        by_key.set_all(kind);
        rules.set_kinds(by_key);
        rules.of_batch(&[GroupKey::new(0, 0)]).expect("a kind has rules")
    };
    assert_eq!(solve(&of_kind(&rules, kind.clone())), [3; 3]);
    rules.pin(0, site(2));
    assert_eq!(solve(&of_kind(&rules, kind.clone())), [0; 3], "its pin is excluded: it stays");
    assert_eq!(solve(&of_kind(&rules, kind.at_home(site(2)))), [2; 3], "it may be at home");
}

#[test]
fn the_bound_is_the_first_site_after_the_lists() {
    let latencies = table(&[[1.0, 5.0, 9.0, 20.0], [20.0, 30.0, 40.0, 50.0]]);
    let mut groups = Groups::new(2, 4);
    groups.push(site(0), 1, [(origin(0), 2.0), (origin(1), 1.0)]);
    for (k, bound) in [(1, 2.0 * 5.0 + 30.0), (2, 2.0 * 9.0 + 40.0), (4, f32::INFINITY)] {
        let near = Near::new(latencies.mean(), k);
        let best = near.best(latencies.mean(), groups.accesses(0), |_| 0.0).expect("known");
        assert_eq!((best.site, best.cost, best.bound), (0, 22.0, bound));
        assert_eq!(near.floor(groups.accesses(0)), 22.0);
    }
}
