//! When a group stays.

use super::super::plan::moves;
use super::super::trial::{Bug, Planted};
use super::super::weights::{Use, equal};
use super::*;

/// Two sites 20 ms apart, and a user at each.
fn two_sites() -> Latencies {
    table(&[[1.0, 20.0], [20.0, 1.0]])
}

/// Moves of one group in an hour, its users' waiting above the best, and what moves cost them, in
/// ms.
struct Hour {
    moves: usize,
    waited_ms: f64,
    paid_ms: f64,
}

/// A group with four accesses a second, counted with a memory of two seconds. The rate of each
/// origin comes from the second; latencies are noisy as they are asked for.
fn hour(
    stability: &Stability,
    latencies: &Latencies,
    noise: f32,
    seed: u64,
    rates: impl Fn(usize) -> [f32; 2],
) -> Hour {
    let mut dice = Dice::new(seed);
    let (mut owner, mut counts, mut regrets) = (site(0), [0.0_f32; 2], Regrets::new(1));
    let mut hour = Hour { moves: 0, waited_ms: 0.0, paid_ms: 0.0 };
    let decay = (-1.0 / stability.memory_s).exp();
    let rules = Rules::none(2);
    for second in 0..3_600 {
        let now = rates(second);
        let mut measured = Latencies::unknown(2, 2);
        for from in 0..2 {
            counts[from] = counts[from] * decay + poisson(now[from], &mut dice);
            for to in 0..2 {
                let ms = latencies.mean().cost(origin(from), site(to));
                let around = (0..6).map(|_| dice.part()).sum::<f32>() / 3.0 - 1.0;
                measured.learn(origin(from), site(to), ms * (1.0 + noise * around));
            }
        }
        let mut groups = Groups::new(2, 2);
        let per_second = |from: usize| (origin(from), counts[from] / stability.memory_s);
        groups.push(owner, 1_000, (0..2).map(per_second).filter(|(_, rate)| *rate > 0.01));
        let near = Near::new(measured.mean(), 2);
        let solver = Solver::new(measured.mean(), &near, &rules);
        let solution = solver.solve(&groups, u64::MAX);
        let cost = |at: Site| -> f64 {
            let of = |from: usize| now[from] * latencies.mean().cost(origin(from), at);
            f64::from(of(0) + of(1))
        };
        hour.waited_ms += cost(owner) - cost(site(0)).min(cost(site(1)));
        if regrets.ready(stability, &solver, &groups, &solution, 1.0)[0] {
            let rate = groups.accesses(0).rate();
            hour.moves += 1;
            let pause_ms = stability.pause_ms(measured.mean(), owner, solution.site(0));
            let paid_ms = stability.cost_of_move_ms(rate, groups.bytes(0), pause_ms);
            hour.paid_ms += f64::from(paid_ms);
            regrets.moved(stability, 0);
            owner = solution.site(0);
        }
    }
    hour
}

fn poisson(mean: f32, dice: &mut Dice) -> f32 {
    let (mut count, mut product) = (0.0, dice.part());
    let end = (-mean).exp();
    while product > end {
        count += 1.0;
        product *= dice.part();
    }
    count
}

fn rule(byte_ms: f32, planted: Planted) -> Stability {
    Stability { memory_s: 2.0, byte_ms, planted, ..Stability::default() }
}

#[test]
fn equal_sites_with_noisy_rows_keep_their_groups() {
    // Both are 10 ms from two users: alike but for the noise.
    let latencies = table(&[[10.0, 10.0], [10.0, 10.0]]);
    let moves = |planted| -> usize {
        let stability = Stability { sites_are_origins: false, ..rule(0.0, planted) };
        (0..4).map(|seed| hour(&stability, &latencies, 0.1, seed, |_| [2.0, 2.0]).moves).sum()
    };
    let quiet = moves(Planted::none());
    assert!(quiet <= 4, "{quiet} moves in four hours");
    if Planted::is_possible() {
        assert!(moves(Planted::of(Bug::NoMargin)) > 1_000);
    }
}

#[test]
fn a_group_with_a_user_at_each_of_two_sites_stays() {
    let stability = Stability { memory_s: 10.0, ..rule(0.0, Planted::none()) };
    let moves: usize =
        (0..4).map(|seed| hour(&stability, &two_sites(), 0.1, seed, |_| [2.0, 2.0]).moves).sum();
    assert!(moves <= 40, "{moves} moves in four hours");
}

/// A group with a user at each of two sites, at a rate of which one access of `counted` is counted.
fn moves_of_sampled(counted: f32, one_of: f32) -> usize {
    let stability = Stability { memory_s: 10.0, one_of, ..rule(0.0, Planted::none()) };
    let sampled = |seed| {
        let mut dice = Dice::new(seed);
        let (mut owner, mut counts, mut moves) = (site(0), [0.0_f32; 2], 0);
        let (latencies, rules) = (two_sites(), Rules::none(2));
        let near = Near::new(latencies.mean(), 2);
        let solver = Solver::new(latencies.mean(), &near, &rules);
        let mut regrets = Regrets::new(1);
        for _ in 0..3_600 {
            for count in &mut counts {
                *count = *count * (-0.1_f32).exp() + counted * poisson(10.0 / counted, &mut dice);
            }
            let mut groups = Groups::new(2, 2);
            groups.push(owner, 1_000, (0..2).map(|from| (origin(from), counts[from] / 10.0)));
            let solution = solver.solve(&groups, u64::MAX);
            if regrets.ready(&stability, &solver, &groups, &solution, 1.0)[0] {
                (owner, moves) = (solution.site(0), moves + 1);
                regrets.moved(&stability, 0);
            }
        }
        moves
    };
    (0..4).map(sampled).sum()
}

#[test]
fn samples_of_few_accesses_move_nothing_to_and_fro() {
    let (known, unknown) = (moves_of_sampled(70.0, 70.0), moves_of_sampled(70.0, 1.0));
    assert!(known <= 10, "{known} moves in four hours");
    assert!(
        unknown > 10 * known.max(1),
        "{unknown} moves, if each sample is taken for 70 accesses"
    );
}

/// After how many seconds a group whose users are all elsewhere is to move, at that many accesses a
/// second of which one in `one_of` is counted.
fn follows_after(per_s: f32, one_of: f32) -> Option<usize> {
    let stability = Stability { memory_s: 10.0, one_of, ..rule(0.0, Planted::none()) };
    let (latencies, rules, mut dice) = (two_sites(), Rules::none(2), Dice::new(5));
    let near = Near::new(latencies.mean(), 2);
    let solver = Solver::new(latencies.mean(), &near, &rules);
    let (mut regrets, mut count) = (Regrets::new(1), 0.0_f32);
    (1..=60).find(|_| {
        count = count * (-0.1_f32).exp() + one_of * poisson(per_s / one_of, &mut dice);
        let mut groups = Groups::new(2, 2);
        groups.push(site(0), 1_000, [(origin(1), (count / 10.0).max(f32::MIN_POSITIVE))]);
        let solution = solver.solve(&groups, u64::MAX);
        regrets.ready(&stability, &solver, &groups, &solution, 1.0)[0]
    })
}

#[test]
fn sampled_groups_follow_their_users() {
    // Five samples or so in ten seconds stand out from noise.
    for (per_s, one_of) in [(1.0, 1.0), (10.0, 10.0), (100.0, 100.0)] {
        let seconds = follows_after(per_s, one_of);
        assert!(seconds.is_some_and(|seconds| seconds <= 15), "1 of {one_of}: {seconds:?}");
    }
}

/// A user who jumps to the other site and back.
fn jumping(every_s: usize) -> impl Fn(usize) -> [f32; 2] {
    move |second| if (second / every_s).is_multiple_of(2) { [4.0, 0.0] } else { [0.0, 4.0] }
}

/// Whether moves cost no more than waiting, whatever the period of the jumps.
fn moves_pay(planted: Planted) -> bool {
    // A move costs 2 s of waiting.
    let stability = rule(2.0, planted);
    [1, 2, 3, 5, 10, 30].iter().all(|every_s| {
        let hour = hour(&stability, &two_sites(), 0.0, 3, jumping(*every_s));
        eprintln!(
            "jumps every {every_s} s: {} moves, {:.0} s waited, {:.0} s paid",
            hour.moves,
            hour.waited_ms / 1_000.0,
            hour.paid_ms / 1_000.0
        );
        hour.paid_ms <= hour.waited_ms * 1.05
    })
}

#[test]
fn moves_cost_no_more_than_the_waiting_before_them() {
    assert!(moves_pay(Planted::none()));
    if Planted::is_possible() {
        assert!(!moves_pay(Planted::of(Bug::RegretKept)));
    }
}

#[test]
fn constant_inputs_lead_to_finitely_many_moves() {
    // In the last one prices fell and rose for ever, before they waited for what was refused.
    for seed in (0..30).chain([225]) {
        let mut dice = Dice::new(seed);
        let latencies = plane(15, &mut dice);
        let mut groups = groups(200, 5, &latencies, &mut dice);
        let (near, rules) = (Near::new(latencies.mean(), 4), Rules::none(15));
        let stability = Stability { byte_ms: 0.1, pause_ms: 5.0, ..Stability::default() };
        let mut regrets = Regrets::new(groups.len());
        let all: u64 = groups.held().iter().sum();
        let capacities = vec![all / 15 * 12 / 10; 15];
        let mut prices = Prices::none(15);
        let mut moves_in = Vec::new();
        for _ in 0..300 {
            let solver = Solver::with_prices(latencies.mean(), &near, &rules, prices.per_byte());
            let solution = solver.solve(&groups, u64::MAX);
            let ready = regrets.ready(&stability, &solver, &groups, &solution, 1.0);
            let terms = Terms {
                matrix: latencies.mean(),
                near: &near,
                rules: &rules,
                capacities: &capacities,
                margin: stability.margin,
                ready: &ready,
                bids_max: 100_000,
            };
            let assignment = prices.auction(&terms, &groups);
            let moves = moves(&solver, &groups, &assignment);
            for a_move in &moves {
                regrets.moved(&stability, a_move.group as usize);
                groups.set_owner(a_move.group as usize, a_move.to);
            }
            moves_in.push(moves.len());
        }
        let last: usize = moves_in[200..].iter().sum();
        assert_eq!(last, 0, "seed {seed}: {moves_in:?}");
    }
}

#[test]
fn a_group_waits_until_its_users_have_paid() {
    let latencies = two_sites();
    let mut groups = Groups::new(2, 2);
    groups.push(site(0), 1_000, [(origin(1), 10.0)]);
    let (near, rules) = (Near::new(latencies.mean(), 2), Rules::none(2));
    let solver = Solver::new(latencies.mean(), &near, &rules);
    let solution = solver.solve(&groups, u64::MAX);
    // 1,000 ms for the bytes, and 10 accesses a second wait 20 ms on average for 40 ms, with the
    // way: 8 ms more.
    let stability = Stability { byte_ms: 1.0, pause_ms: 20.0, ..rule(1.0, Planted::none()) };
    assert_eq!(stability.pause_ms(latencies.mean(), site(0), site(1)), 40.0);
    let of_clients = Stability { sites_are_origins: false, ..stability };
    assert_eq!(of_clients.pause_ms(latencies.mean(), site(0), site(1)), 20.0);
    assert_eq!(stability.cost_of_move_ms(10.0, 1_000, 40.0), 1_008.0);
    let mut regrets = Regrets::new(1);
    let mut waits = 0;
    while regrets.ready(&stability, &solver, &groups, &solution, 1.0) == [false] {
        waits += 1;
        let why = regrets.explain(&stability, &solver, &groups, 0).why;
        assert!(matches!(why, Why::Waits { needed_ms: 1_008.0, .. }), "{why:?}");
    }
    // A little less than 190 ms a second, with one access more at the owner.
    assert_eq!(waits, 5);
    assert!(matches!(regrets.explain(&stability, &solver, &groups, 0).why, Why::Moves { .. }));
    regrets.moved(&stability, 0);
    assert_eq!(regrets.of(0), 0.0);
}

#[test]
fn a_judgement_counts_one_access_more_at_the_owner() {
    let latencies = two_sites();
    let mut groups = Groups::new(2, 2);
    groups.push(site(0), 1, [(origin(1), 1.5)]);
    let (near, rules) = (Near::new(latencies.mean(), 2), Rules::none(2));
    let solver = Solver::new(latencies.mean(), &near, &rules);
    // Three accesses in two seconds, from 20 ms away, and one at the owner.
    let judgement = rule(0.0, Planted::none()).judge(&solver, &groups, 0, site(1));
    assert!((judgement.gain_ms - 9.5).abs() < 1e-4 && (judgement.margin_ms - 1.525).abs() < 1e-4);
    // Differences of 19, 19, 19 and −19: a variance of 270.75, over four.
    assert!((judgement.noise_ms - 2.0 * (270.75_f32 / 4.0).sqrt()).abs() < 1e-3);
    assert!(!judgement.is_clear());
    let elsewhere = Stability { sites_are_origins: false, ..rule(0.0, Planted::none()) };
    let judgement = elsewhere.judge(&solver, &groups, 0, site(1));
    assert!((judgement.gain_ms - 14.25).abs() < 1e-4, "an access more, and no gain for it");
}

#[test]
fn few_accesses_are_no_reason_to_move() {
    let latencies = two_sites();
    let (near, rules) = (Near::new(latencies.mean(), 2), Rules::none(2));
    let solver = Solver::new(latencies.mean(), &near, &rules);
    let why = |accesses: &[(Origin, f32)]| {
        let mut groups = Groups::new(2, 2);
        groups.push(site(0), 1, accesses.iter().copied());
        Regrets::new(1).explain(&rule(0.0, Planted::none()), &solver, &groups, 0).why
    };
    assert!(matches!(why(&[(origin(0), 1.0), (origin(1), 2.5)]), Why::WithinNoise { .. }));
    // It is clear, and waits only until its users have paid for the way.
    assert!(matches!(why(&[(origin(0), 100.0), (origin(1), 150.0)]), Why::Waits { .. }));
    assert!(matches!(why(&[(origin(0), 1_000.0), (origin(1), 1_050.0)]), Why::WithinMargin { .. }));
}

#[test]
fn what_a_gain_is_said_to_lack_is_more_than_the_gain() {
    let (mut margins, mut noises) = (0, 0);
    for own in [0.0, 0.5, 1.0, 2.0, 5.0, 100.0] {
        for other in [0.01, 0.1, 0.5, 1.0, 2.0, 5.0, 105.0] {
            for far in [1.01, 1.12, 2.0, 20.0] {
                let latencies = table(&[[1.0, far], [far, 1.0]]);
                let (near, rules) = (Near::new(latencies.mean(), 2), Rules::none(2));
                let solver = Solver::new(latencies.mean(), &near, &rules);
                let mut groups = Groups::new(2, 2);
                groups.push(site(0), 1, [(origin(0), own), (origin(1), other)]);
                let stability = rule(0.0, Planted::none());
                let solution = solver.solve(&groups, u64::MAX);
                let is_ready =
                    Regrets::new(1).ready(&stability, &solver, &groups, &solution, 1.0)[0];
                let why = Regrets::new(1).explain(&stability, &solver, &groups, 0).why;
                let (gain_ms, more_ms) = match why {
                    Why::WithinMargin { gain_ms, needed_ms, .. } => (gain_ms, needed_ms),
                    Why::WithinNoise { gain_ms, noise_ms, .. } => (gain_ms, noise_ms),
                    _ => continue,
                };
                assert!(gain_ms < more_ms && !is_ready, "{why:?} of {own}, {other} at {far} ms");
                margins += usize::from(matches!(why, Why::WithinMargin { .. }));
                noises += usize::from(matches!(why, Why::WithinNoise { .. }));
            }
        }
    }
    assert!(margins > 3 && noises > 3, "{margins} and {noises}");
}

#[test]
fn a_group_in_a_forbidden_place_leaves_at_once() {
    let latencies = two_sites();
    let mut groups = Groups::new(2, 2);
    groups.push(site(0), 1_000_000, [(origin(0), 10.0)]);
    let (near, mut rules) = (Near::new(latencies.mean(), 2), Rules::none(2));
    rules.bar(site(0));
    let solver = Solver::new(latencies.mean(), &near, &rules);
    let solution = solver.solve(&groups, u64::MAX);
    let mut regrets = Regrets::new(1);
    let ready = regrets.ready(&rule(1.0, Planted::none()), &solver, &groups, &solution, 1.0);
    let assignment = Assignment::of_ready(&groups, &solution, &ready);
    assert_eq!((ready, assignment.site(0)), (vec![true], site(1)));
}

/// Whether a liar that names one group moves it away from an honest client that uses sixteen.
fn a_liar_moves_it(planted: Planted, claimed_rate: f32) -> bool {
    let latencies = two_sites();
    let honest = Use { origin: origin(0), rate: 5.0, share: 1.0 / 16.0 };
    let liar = Use { origin: origin(1), rate: claimed_rate, share: 1.0 };
    let mut groups = Groups::new(2, 2);
    groups.push(site(0), 1, equal(&[honest, liar], planted));
    let (near, rules) = (Near::new(latencies.mean(), 2), Rules::none(2));
    let solution = Solver::new(latencies.mean(), &near, &rules).solve(&groups, u64::MAX);
    solution.site(0) != site(0)
}

#[test]
fn liars_move_no_group_from_a_site_with_as_many_honest_clients() {
    for claimed in [0.01, 5.0, 1e6, 1e9] {
        assert!(!a_liar_moves_it(Planted::none(), claimed));
        if Planted::is_possible() {
            assert!(a_liar_moves_it(Planted::of(Bug::VotesOverGroups), claimed));
        }
    }
    for seed in 0..200 {
        let mut dice = Dice::new(seed);
        let latencies = plane(20, &mut dice);
        let home = dice.below(20);
        let honest = 1 + dice.below(5);
        let uses: Vec<Use> = (0..2 * honest)
            .map(|index| {
                let at = if index < honest { home } else { dice.below(20) };
                Use { origin: origin(at), rate: 100.0 * dice.part(), share: 1.0 }
            })
            .collect();
        let mut groups = Groups::new(20, 20);
        groups.push(site(home), 1, equal(&uses, Planted::none()));
        let (near, rules) = (Near::new(latencies.mean(), 4), Rules::none(20));
        let solver = Solver::new(latencies.mean(), &near, &rules);
        let at_best = solver.solve(&groups, u64::MAX).cost(0);
        let at_home = solver.cost(&groups, 0, site(home));
        assert!(at_home <= at_best * 1.0001, "seed {seed}");
    }
}

#[test]
fn a_liar_makes_no_group_more_important() {
    let use_of = |rate: f32| Use { origin: origin(0), rate, share: 1.0 };
    let weight = |rates: &[f32]| -> f32 {
        let uses: Vec<Use> = rates.iter().map(|rate| use_of(*rate)).collect();
        equal(&uses, Planted::none()).iter().map(|(_, weight)| weight).sum()
    };
    assert_eq!(weight(&[]), 0.0);
    assert_eq!(weight(&[4.0, 1e9]), 8.0);
    assert_eq!(weight(&[4.0, 5.0, 1e9]), 15.0);
}
