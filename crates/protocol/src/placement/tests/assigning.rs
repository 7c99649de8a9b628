//! Order, capacities, and the moves of a window.

use super::super::order::{by_utility, descending};
use super::super::plan::moves;
use super::*;

#[test]
fn groups_are_ordered_by_falling_value_and_then_by_index() {
    let mut dice = Dice::new(3);
    for count in [0, 1, 2, 5_000] {
        let values: Vec<f32> = (0..count)
            .map(|_| match dice.below(4) {
                0 => 0.0,
                1 => dice.part() * 1e30,
                2 => dice.part() * 1e-30,
                _ => dice.below(10) as f32,
            })
            .collect();
        let mut plainly: Vec<u32> = (0..count as u32).collect();
        plainly.sort_by(|a, b| values[*b as usize].total_cmp(&values[*a as usize]));
        assert_eq!(descending(count, |index| values[index]), plainly);
    }
}

/// Rules for so many groups and two sites, by which a millisecond of this group's users counts so
/// much.
fn with_priority(groups: usize, group: usize, priority: f32) -> Rules {
    let keys: Vec<GroupKey> = (0..groups).map(|slot| GroupKey::new(slot as u16, 0)).collect();
    let mut by_key = ByKey::default();
    let kind = by_key.add(Kind::new(Vec::new(), priority));
    by_key.set_key(keys[group], kind);
    let mut rules = Rules::none(2);
    rules.set_kinds(by_key);
    rules.of_batch(&keys).expect("a kind has rules")
}

#[test]
fn utility_is_gain_by_byte_times_priority() {
    let latencies = table(&[[10.0, 1.0]]);
    let mut groups = Groups::new(1, 2);
    for bytes in [100, 10, 1_000] {
        groups.push(site(0), bytes, [(origin(0), 5.0)]);
    }
    let near = Near::new(latencies.mean(), 2);
    let order = |rules: &Rules| {
        let solver = Solver::new(latencies.mean(), &near, rules);
        by_utility(&solver, &groups, &solver.solve(&groups, u64::MAX))
    };
    assert_eq!(order(&Rules::none(2)), [1, 0, 2]);
    assert_eq!(order(&with_priority(3, 2, 1_000.0)), [2, 1, 0]);
}

#[test]
fn no_site_gets_more_than_it_holds() {
    for seed in 0..60 {
        let mut dice = Dice::new(seed);
        let latencies = plane(12, &mut dice);
        let groups = groups(400, 5, &latencies, &mut dice);
        let (near, rules) = (Near::new(latencies.mean(), 4), Rules::none(12));
        let solver = Solver::new(latencies.mean(), &near, &rules);
        let solution = solver.solve(&groups, u64::MAX);
        let bytes: u64 = groups.held().iter().sum();
        for slack in [1.05, 1.2, 2.0] {
            let capacities = vec![(bytes as f64 * slack / 12.0) as u64; 12];
            let anew = greedy(&solver, &groups, &solution, &capacities);
            assert_eq!(anew.unplaced, 0);
            assert!(anew.held(&groups).iter().zip(&capacities).all(|(held, most)| held <= most));
            assert!(anew.total(&solver, &groups) >= solution.total() * 0.999);
        }
    }
}

#[test]
fn a_group_that_fits_nowhere_stays_and_is_counted() {
    let latencies = table(&[[10.0, 1.0]]);
    let mut groups = Groups::new(1, 2);
    groups.push(site(0), 100, [(origin(0), 5.0)]);
    groups.push(site(0), 60, [(origin(0), 5.0)]);
    let (near, rules) = (Near::new(latencies.mean(), 2), Rules::none(2));
    let solver = Solver::new(latencies.mean(), &near, &rules);
    let solution = solver.solve(&groups, u64::MAX);
    let assignment = greedy(&solver, &groups, &solution, &vec![70, 70]);
    assert_eq!((assignment.site(0), assignment.site(1)), (site(0), site(1)));
    assert_eq!(assignment.unplaced, 1);
}

#[test]
fn pinned_groups_have_their_place_before_all_others() {
    let latencies = table(&[[10.0, 1.0]]);
    let mut groups = Groups::new(1, 2);
    groups.push(site(0), 100, [(origin(0), 5.0)]);
    groups.push(site(0), 100, [(origin(0), 1.0)]);
    let (near, mut rules) = (Near::new(latencies.mean(), 2), Rules::none(2));
    rules.pin(1, site(1));
    let solver = Solver::new(latencies.mean(), &near, &rules);
    let solution = solver.solve(&groups, u64::MAX);
    let assignment = greedy(&solver, &groups, &solution, &vec![100, 100]);
    assert_eq!((assignment.site(0), assignment.site(1)), (site(0), site(1)));
}

/// Four groups, all better at site 1, by 9, 90, 18 and 45 ms a second.
fn four() -> (Latencies, Groups) {
    let latencies = table(&[[10.0, 1.0]]);
    let mut groups = Groups::new(1, 2);
    for (rate, bytes) in [(1.0, 20), (10.0, 100), (2.0, 10), (5.0, 1_000)] {
        groups.push(site(0), bytes, [(origin(0), rate)]);
    }
    (latencies, groups)
}

fn planned(limits: Limits, capacities: Option<&Capacities>) -> Vec<u32> {
    let (latencies, groups) = four();
    let (near, rules) = (Near::new(latencies.mean(), 2), Rules::none(2));
    let solver = Solver::new(latencies.mean(), &near, &rules);
    let assignment = Assignment::unlimited(&groups, &solver.solve(&groups, u64::MAX));
    let moves = moves(&solver, &groups, &assignment);
    let plan = plan(&moves, &groups, capacities, limits);
    assert_eq!(plan.moves.len() + plan.left.len(), 4);
    plan.moves.iter().map(|a_move| a_move.group).collect()
}

#[test]
fn moves_end_with_the_budget_and_the_largest_gain_a_byte_is_first() {
    assert_eq!(planned(Limits::NONE, None), [2, 1, 0, 3]);
    assert_eq!(planned(Limits { moves_max: 2, ..Limits::NONE }, None), [2, 1]);
    // The second does not fit, the ones behind it do.
    assert_eq!(planned(Limits { bytes_max: 35, ..Limits::NONE }, None), [2, 0]);
    assert_eq!(planned(Limits { bytes_max: 1_015, ..Limits::NONE }, None), [2, 1, 0]);
    assert_eq!(planned(Limits { site_bytes_max: 115, ..Limits::NONE }, None), [2, 1]);
    assert_eq!(planned(Limits::NONE, Some(&vec![2_000, 115])), [2, 1]);
}

#[test]
fn a_move_waits_until_its_target_has_room() {
    let latencies = table(&[[10.0, 1.0, 20.0], [10.0, 20.0, 1.0]]);
    let mut groups = Groups::new(2, 3);
    groups.push(site(0), 100, [(origin(0), 9.0)]);
    groups.push(site(1), 100, [(origin(1), 1.0)]);
    let (near, rules) = (Near::new(latencies.mean(), 3), Rules::none(3));
    let solver = Solver::new(latencies.mean(), &near, &rules);
    let assignment = Assignment::unlimited(&groups, &solver.solve(&groups, u64::MAX));
    let moves = moves(&solver, &groups, &assignment);
    let plan = plan(&moves, &groups, Some(&vec![100, 100, 100]), Limits::NONE);
    let order: Vec<u32> = plan.moves.iter().map(|a_move| a_move.group).collect();
    assert_eq!(order, [1, 0], "the second is worth more, and must wait for the first");
}

#[test]
fn a_group_without_priority_never_moves() {
    let (latencies, groups) = four();
    let (near, rules) = (Near::new(latencies.mean(), 2), with_priority(4, 2, 0.0));
    let solver = Solver::new(latencies.mean(), &near, &rules);
    let assignment = Assignment::unlimited(&groups, &solver.solve(&groups, u64::MAX));
    let moving: Vec<u32> =
        moves(&solver, &groups, &assignment).iter().map(|a_move| a_move.group).collect();
    assert_eq!(moving, [0, 1, 3]);
}

#[test]
fn what_one_site_sends_in_a_window_is_limited() {
    let latencies = table(&[[10.0, 1.0, 9.0], [10.0, 9.0, 1.0]]);
    let mut groups = Groups::new(2, 3);
    groups.push(site(0), 100, [(origin(0), 5.0)]);
    groups.push(site(0), 100, [(origin(1), 4.0)]);
    let (near, rules) = (Near::new(latencies.mean(), 3), Rules::none(3));
    let solver = Solver::new(latencies.mean(), &near, &rules);
    let assignment = Assignment::unlimited(&groups, &solver.solve(&groups, u64::MAX));
    let moves = moves(&solver, &groups, &assignment);
    let plan = plan(&moves, &groups, None, Limits { site_bytes_max: 150, ..Limits::NONE });
    assert_eq!((plan.moves.len(), plan.left.len()), (1, 1));
    assert_eq!((plan.gain(), plan.bytes()), (45.0, 100));
}
