//! What operators see.

use super::super::ledger::FOLLOWED_WINDOWS;
use super::*;

fn explained(rules: &Rules, owner: usize, accesses: &[(Origin, f32)]) -> Explanation {
    // What cannot be stays unknown.
    let at_1 = if owner == 1 { f32::INFINITY } else { 9.5 };
    let latencies = table(&[[10.0, at_1, 2.0], [10.0, 9.5, 30.0]]);
    let mut groups = Groups::new(2, 3);
    groups.push(site(owner), 1, accesses.iter().copied());
    let near = Near::new(latencies.mean(), 3);
    let solver = Solver::new(latencies.mean(), &near, rules);
    explain(&solver, &groups, 0, 0.1)
}

#[test]
fn an_explanation_names_candidates_and_the_reason() {
    let rules = Rules::none(3);
    let both = [(origin(0), 1.0), (origin(1), 3.0)];
    let explanation = explained(&rules, 0, &both);
    assert_eq!(explanation.accesses, [(origin(1), 3.0), (origin(0), 1.0)]);
    let order: Vec<_> = explanation.candidates.iter().map(|at| (at.site.0, at.mean_ms)).collect();
    assert_eq!(order, [(1, Some(9.5)), (0, Some(10.0)), (2, Some(23.0))]);
    assert_eq!(explanation.alone_ms, (2.0 + 3.0 * 9.5) / 4.0);
    assert_eq!(explanation.why, Why::WithinMargin { to: site(1), gain_ms: 0.5, needed_ms: 1.0 });
    let one = [(origin(0), 2.0)];
    assert_eq!(explained(&rules, 0, &one).why, Why::Moves { to: site(2), gain_ms: 8.0 });
    assert_eq!(explained(&rules, 2, &one).why, Why::Best);
    assert_eq!(explained(&rules, 1, &both).why, Why::UnknownHere);
    assert_eq!(explained(&rules, 0, &[]).why, Why::Unused);
}

#[test]
fn an_explanation_names_the_rule() {
    let one = [(origin(0), 2.0)];
    let mut rules = Rules::none(3);
    rules.bar(site(2));
    let explanation = explained(&rules, 0, &one);
    assert_eq!(explanation.candidates[2].bar, Some(Bar::Barred));
    assert_eq!(explanation.why, Why::WithinMargin { to: site(1), gain_ms: 0.5, needed_ms: 1.0 });
    rules.bar(site(1));
    assert_eq!(explained(&rules, 0, &one).why, Why::Best);
    rules.bar(site(0));
    assert_eq!(explained(&rules, 0, &one).why, Why::NoCandidate);
    let mut rules = Rules::none(3);
    rules.pin(0, site(1));
    assert_eq!(explained(&rules, 0, &one).candidates[1].bar, Some(Bar::Pinned));
    assert_eq!(explained(&rules, 0, &one).why, Why::Moves { to: site(1), gain_ms: 0.5 });
    rules.pin(0, site(0));
    assert_eq!(explained(&rules, 0, &one).why, Why::Pinned);
}

#[test]
fn the_ledger_sets_what_was_saved_against_what_was_moved() {
    let latencies = table(&[[10.0, 1.0], [1.0, 10.0]]);
    let (near, rules) = (Near::new(latencies.mean(), 2), Rules::none(2));
    let solver = Solver::new(latencies.mean(), &near, &rules);
    let at = |owner: usize, from: usize| {
        let mut groups = Groups::new(2, 2);
        groups.push(site(owner), 500, [(origin(from), 2.0)]);
        groups
    };
    let mut ledger = Ledger::default();
    let a_move = Move {
        group: 0,
        from: site(0),
        to: site(1),
        bytes: 500,
        gain: 18.0,
        net: 18.0,
        priority: 1.0,
    };
    ledger.moved(&a_move, 3.0);
    let first = ledger.close(&solver, &at(1, 0), 10.0);
    let moved = (first.moves, first.bytes, first.expected_ms_per_s, first.paused_ms);
    assert_eq!((moved, first.saved_ms), ((1, 500, 18.0, 3.0), 180.0));
    // Its user has gone to the other end: the move costs now.
    let second = ledger.close(&solver, &at(1, 1), 10.0);
    assert_eq!((second.number, second.moves, second.saved_ms), (1, 0, -180.0));
    let rest: Vec<f64> = (2..FOLLOWED_WINDOWS + 2)
        .map(|_| ledger.close(&solver, &at(1, 0), 10.0).saved_ms)
        .collect();
    assert_eq!(rest, [180.0, 180.0, 180.0, 180.0, 0.0, 0.0]);
    assert_eq!(ledger.windows().count() as u64, FOLLOWED_WINDOWS + 2);
    assert_eq!(ledger.current().number, FOLLOWED_WINDOWS + 2);
    let next = Ledger::after(&ledger);
    let (total, current) = (next.total(), next.current());
    assert_eq!((total.moves, total.bytes, total.saved_ms), (1, 500, 720.0));
    assert_eq!((current.number, current.moves, next.windows().count()), (0, 0, 0));
}
