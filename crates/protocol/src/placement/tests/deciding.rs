//! The decision of one owner about all its groups.

use super::*;
use crate::placement::plan as planned;
use crate::placement::plan::moves;

const TAU_S: f32 = 10.0;

fn stability() -> Stability {
    Stability { memory_s: TAU_S, sites_are_origins: true, ..Stability::default() }
}

/// A group, its bytes and who accesses it how often.
type Accessed = (GroupKey, u32, Vec<(Origin, f32)>);

/// Groups of the first site, each with up to four of the sites as users, by their keys.
fn groups(count: usize, sites: usize, dice: &mut Dice) -> Vec<Accessed> {
    let one = |index: usize, dice: &mut Dice| {
        let rate = |dice: &mut Dice| (origin(dice.below(sites)), 0.1 + 20.0 * dice.part());
        let accesses = (0..=dice.below(4)).map(|_| rate(dice)).collect();
        (GroupKey::lendable((index % 16_384) as u16, dice.next()), 100, accesses)
    };
    (0..count).map(|index| one(index, dice)).collect()
}

fn plane(sites: usize, dice: &mut Dice) -> Latencies {
    let places: Vec<(f32, f32)> = (0..sites).map(|_| (dice.part(), dice.part())).collect();
    let mut latencies = Latencies::unknown(sites, sites);
    for (i, a) in places.iter().enumerate() {
        for (j, b) in places.iter().enumerate() {
            let ms = 50.0 * ((a.0 - b.0).powi(2) + (a.1 - b.1).powi(2)).sqrt();
            latencies.learn(origin(i), site(j), ms);
        }
    }
    latencies
}

fn limits(moves_max: usize) -> Limits {
    Limits { moves_max, ..Limits::NONE }
}

#[test]
fn batches_decide_as_all_at_once_does() {
    let (mut dice, stability) = (Dice::new(3), stability());
    let latencies = plane(20, &mut dice);
    let (near, rules) = (Near::new(latencies.mean(), 8), Rules::none(20));
    let groups = groups(10_000, 20, &mut dice);
    let decision = Decision {
        stability: &stability,
        matrix: latencies.mean(),
        near: &near,
        rules: &rules,
        at: site(0),
        operations_max: u64::MAX >> 32,
        groups: groups.len(),
        limits: limits(300),
        elapsed_s: 0.01,
    };
    let solver = Solver::new(latencies.mean(), &near, &rules);
    let mut all = Groups::new(20, 20);
    for (_, bytes, accesses) in &groups {
        all.push(site(0), *bytes, accesses.iter().copied());
    }
    let solution = solver.solve(&all, u64::MAX);
    let mut regrets = Regrets::new(all.len());
    let mut waiting = Waiting::default();
    for second in 0..3 {
        let ready = regrets.ready(&stability, &solver, &all, &solution, 0.01);
        let wanted = Assignment::of_ready(&all, &solution, &ready);
        let plan = planned(&moves(&solver, &all, &wanted), &all, None, limits(300));
        let expected =
            plan.moves.iter().map(|one| (groups[one.group as usize].0, one.to, one.gain));
        let chosen = decision.choose(groups.iter().cloned(), &mut waiting);
        let chosen: Vec<_> = chosen.iter().map(|one| (one.group, one.to, one.gain)).collect();
        assert_eq!(chosen, expected.collect::<Vec<_>>(), "{second}");
        for (index, (key, ..)) in groups.iter().enumerate() {
            assert_eq!(waiting.of(*key), regrets.of(index));
        }
    }
    assert!(!waiting.is_empty());
    // Those that are not looked at any more are forgotten.
    decision.choose(groups.iter().take(10).cloned(), &mut waiting);
    assert!(waiting.len() <= 10);
}

#[test]
fn a_decision_about_two_hundred_thousand_groups_keeps_to_twenty_megabytes() {
    let (mut dice, stability) = (Dice::new(4), stability());
    let sites = 64;
    let latencies = plane(sites, &mut dice);
    let (near, rules) = (Near::new(latencies.mean(), 8), Rules::none(sites));
    let groups = groups(200_000, sites, &mut dice);
    let decision = Decision {
        stability: &stability,
        matrix: latencies.mean(),
        near: &near,
        rules: &rules,
        at: site(0),
        operations_max: 20_000_000,
        groups: groups.len(),
        limits: limits(256),
        elapsed_s: 0.01,
    };
    let profiles =
        Counter::new(site(0), groups.len(), TAU_S, trial::Planted::none()).memory_bytes();
    let mut waiting = Waiting::default();
    for _ in 0..3 {
        let (chosen, bytes) = decision.choose_counted(groups.iter().cloned(), &mut waiting);
        assert!(chosen.len() <= 256 && bytes > 0);
        let all = profiles + waiting.memory_bytes() + bytes;
        assert!(all < 20_000_000, "{all} bytes, {bytes} of them a batch");
    }
    assert_eq!(waiting.len(), Waiting::GROUPS_MAX, "more would wait");
}
