//! Prices: the auction over all sites.

use super::super::plan::moves;
use super::*;

const SITES: usize = 64;

/// Groups with four origins each, more of them at some sites than at others.
struct Users {
    popular: Vec<f32>,
    accesses: Vec<Vec<(Origin, f32)>>,
}

impl Users {
    fn new(count: usize, dice: &mut Dice) -> Users {
        let mut sum = 0.0;
        let popular = (0..SITES).map(|_| {
            sum -= (1.0 - dice.part()).ln();
            sum
        });
        let mut users = Users { popular: popular.collect(), accesses: Vec::new() };
        users.accesses = (0..count).map(|_| users.draw(dice)).collect();
        users
    }

    fn draw(&self, dice: &mut Dice) -> Vec<(Origin, f32)> {
        let sum = self.popular.last().copied().unwrap_or(0.0);
        let mut one = || {
            let point = dice.part() * sum;
            let index = self.popular.partition_point(|end| *end <= point).min(SITES - 1);
            (origin(index), 100.0 * (1.0 - dice.part()))
        };
        (0..4).map(|_| one()).collect()
    }

    fn groups(&self, sites: &[Site], bytes: &[u32]) -> Groups {
        let mut groups = Groups::new(SITES, SITES);
        for (index, accesses) in self.accesses.iter().enumerate() {
            groups.push(sites[index], bytes[index], accesses.iter().copied());
        }
        groups
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Rule {
    Portkey,
    Prices,
}

/// What a rule comes to after six windows, in each of which 2 % of the groups get other users: by
/// how many per cent it is above D(λ), and how many per cent of the other groups it moves in a
/// window.
fn six_windows(rule: Rule, slack: f64, sizes: u32) -> (f64, f64) {
    const COUNT: usize = 4_000;
    let mut dice = Dice::new(9);
    let latencies = plane(SITES, &mut dice);
    let (near, rules) = (Near::new(latencies.mean(), 8), Rules::none(SITES));
    let mut users = Users::new(COUNT, &mut dice);
    let bytes: Vec<u32> = (0..COUNT).map(|_| 100 + dice.below(sizes as usize) as u32).collect();
    let all: u64 = bytes.iter().map(|bytes| u64::from(*bytes)).sum();
    let capacities = vec![(all as f64 * slack / SITES as f64) as u64; SITES];
    let mut sites: Vec<Site> = (0..COUNT).map(|_| site(dice.below(SITES))).collect();
    let mut prices = Prices::none(SITES);
    let mut moved = 0;
    let terms = |margin| Terms {
        matrix: latencies.mean(),
        near: &near,
        rules: &rules,
        capacities: &capacities,
        margin,
        ready: &[],
        bids_max: 1_000_000,
    };
    let mut groups = users.groups(&sites, &bytes);
    for window in 0..6 {
        let mut is_new = vec![window == 0; COUNT];
        for (group, is_new) in is_new.iter_mut().enumerate() {
            if window > 0 && dice.is(0.02) {
                *is_new = true;
                users.accesses[group] = users.draw(&mut dice);
            }
        }
        groups = users.groups(&sites, &bytes);
        let solver = Solver::new(latencies.mean(), &near, &rules);
        let solution = solver.solve(&groups, u64::MAX);
        let assignment = match rule {
            Rule::Portkey => greedy(&solver, &groups, &solution, &capacities),
            Rule::Prices => prices.auction(&terms(0.1), &groups),
        };
        assert_eq!(assignment.unplaced, 0, "{rule:?} at {slack}");
        let held = assignment.held(&groups);
        assert!(held.iter().zip(&capacities).all(|(held, most)| held <= most));
        for group in 0..COUNT {
            moved += usize::from(!is_new[group] && assignment.site(group) != sites[group]);
            sites[group] = assignment.site(group);
        }
    }
    let groups_now = users.groups(&sites, &bytes);
    let solver = Solver::new(latencies.mean(), &near, &rules);
    let cost = |group| f64::from(solver.cost(&groups_now, group, sites[group]));
    let cost: f64 = (0..COUNT).map(cost).sum();
    // The tightest certificate: prices that an auction with little margin finds.
    let mut fine = prices.clone();
    fine.auction(&terms(0.002), &groups);
    let bound = fine.bound(&terms(0.0), &groups).max(prices.bound(&terms(0.0), &groups));
    ((cost / bound - 1.0) * 100.0, moved as f64 / 5.0 / COUNT as f64 * 100.0)
}

#[test]
fn prices_are_near_the_bound_and_move_little() {
    for (slack, above_max, moved_max) in [(1.05, 1.0, 5.0), (1.2, 1.0, 5.0), (2.0, 1.0, 1.0)] {
        let rows = [Rule::Portkey, Rule::Prices].map(|rule| six_windows(rule, slack, 1));
        let [portkey, (above, moved)] = rows;
        eprintln!(
            "capacity {slack}: % above D, % unchanged moved: Portkey {portkey:.2?}, prices {:.2?}",
            (above, moved)
        );
        assert!(above >= 0.0 && above <= above_max, "{above} % above the bound at {slack}");
        assert!(moved <= moved_max, "{moved} % of unchanged groups moved at {slack}");
        assert!(above < portkey.0.max(1.1) && moved < portkey.1);
    }
}

#[test]
fn prices_bear_groups_of_unequal_sizes() {
    let (above, moved) = six_windows(Rule::Prices, 1.05, 1_000);
    eprintln!("capacity 1.05, sizes 100–1,100: {above:.2} % above D, {moved:.2} % unchanged moved");
    assert!((0.0..=3.0).contains(&above) && moved <= 10.0, "{above} % above, {moved} % moved");
}

#[test]
fn an_auction_moves_within_capacities_step_by_step() {
    for seed in 0..20 {
        let mut dice = Dice::new(seed);
        let latencies = plane(10, &mut dice);
        let mut groups = groups(300, 4, &latencies, &mut dice);
        let (near, rules) = (Near::new(latencies.mean(), 4), some_rules(10, 0, &mut dice));
        let held = groups.held();
        let all: u64 = held.iter().sum();
        let capacities: Vec<u64> = held.iter().map(|held| (*held).max(all / 6)).collect();
        let mut prices = Prices::none(10);
        for _ in 0..3 {
            let terms = Terms {
                matrix: latencies.mean(),
                near: &near,
                rules: &rules,
                capacities: &capacities,
                margin: 0.1,
                ready: &[],
                bids_max: 100_000,
            };
            let assignment = prices.auction(&terms, &groups);
            let solver = Solver::with_prices(latencies.mean(), &near, &rules, prices.per_byte());
            let bound = prices.bound(&terms, &groups);
            assert!(
                assignment.total(&solver, &groups) >= bound - 1e-3 * bound.abs(),
                "seed {seed}"
            );
            let limits: Vec<u64> = capacities.iter().map(|bytes| bytes + bytes / 20).collect();
            let moves = moves(&solver, &groups, &assignment);
            let plan = plan(&moves, &groups, Some(&limits), Limits::NONE);
            for a_move in &plan.moves {
                assert_eq!(rules.forbids(a_move.group as usize, a_move.to), None);
                groups.set_owner(a_move.group as usize, a_move.to);
                let held = groups.held();
                assert!(held.iter().zip(&limits).all(|(held, most)| held <= most), "seed {seed}");
            }
        }
    }
}

#[test]
fn without_room_an_auction_ends_and_names_what_has_no_place() {
    let latencies = table(&[[10.0, 1.0, 5.0]]);
    let mut groups = Groups::new(1, 3);
    for owner in [0, 0, 0, 1] {
        groups.push(site(owner), 100, [(origin(0), 5.0)]);
    }
    // The last has no users: it never outbids.
    groups.push(site(0), 100, []);
    let (near, rules) = (Near::new(latencies.mean(), 3), Rules::none(3));
    let capacities = vec![50, 100, 100];
    let terms = Terms {
        matrix: latencies.mean(),
        near: &near,
        rules: &rules,
        capacities: &capacities,
        margin: 0.1,
        ready: &[],
        bids_max: 1_000,
    };
    let assignment = Prices::none(3).auction(&terms, &groups);
    assert_eq!(assignment.unplaced, 3);
    let arrives = |to: usize| {
        let is_new = |group: &usize| assignment.site(*group) != groups.owner(*group);
        (0..5).filter(is_new).filter(|group| assignment.site(*group) == site(to)).count()
    };
    // The fourth keeps its place: all gain as much from it.
    assert_eq!([arrives(0), arrives(1), arrives(2)], [0, 0, 1]);
}

#[test]
fn a_price_falls_when_the_group_that_was_refused_would_fit() {
    let latencies = table(&[[10.0, 1.0]]);
    let mut groups = Groups::new(1, 2);
    for (bytes, rate) in [(100, 9.0), (60, 1.0)] {
        groups.push(site(0), bytes, [(origin(0), rate)]);
    }
    let (near, rules) = (Near::new(latencies.mean(), 2), Rules::none(2));
    let capacities = vec![200, 120];
    let terms = Terms {
        matrix: latencies.mean(),
        near: &near,
        rules: &rules,
        capacities: &capacities,
        margin: 0.1,
        ready: &[],
        bids_max: 100,
    };
    let mut prices = Prices::none(2);
    let assignment = prices.auction(&terms, &groups);
    assert_eq!((assignment.site(0), assignment.site(1)), (site(1), site(0)));
    let price = prices.per_byte()[1];
    assert!(price > 0.0);
    // 60 bytes were refused, and 20 are left.
    groups.set_owner(0, site(1));
    prices.auction(&terms, &groups);
    assert!(prices.per_byte()[1] >= price, "its place is worth more than that");
    groups.set_owner(0, site(0));
    let none = vec![false; 2];
    let mut fall = |auctions: usize| {
        let terms = Terms { ready: &none, ..terms };
        (0..auctions).for_each(|_| _ = prices.auction(&terms, &groups));
        prices.per_byte()[1]
    };
    let before = fall(1);
    assert_eq!((fall(1), fall(60)), (before / 2.0, 0.0));
}

#[test]
fn a_group_that_is_not_ready_outbids_none_and_can_be_outbid() {
    let latencies = table(&[[10.0, 1.0, 4.0]]);
    let mut groups = Groups::new(1, 3);
    for (owner, rate) in [(0, 9.0), (1, 1.0)] {
        groups.push(site(owner), 100, [(origin(0), rate)]);
    }
    let (near, rules) = (Near::new(latencies.mean(), 2), Rules::none(3));
    let capacities = vec![100; 3];
    let sites = |ready: [bool; 2]| {
        let terms = Terms {
            matrix: latencies.mean(),
            near: &near,
            rules: &rules,
            capacities: &capacities,
            margin: 0.1,
            ready: &ready,
            bids_max: 100,
        };
        let assignment = Prices::none(3).auction(&terms, &groups);
        [assignment.site(0).0, assignment.site(1).0]
    };
    assert_eq!(sites([false, true]), [0, 1]);
    assert_eq!(sites([true, false]), [1, 2]);
}
