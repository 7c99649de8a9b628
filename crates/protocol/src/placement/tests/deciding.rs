//! The decision of one owner about all its groups.

use super::*;
use crate::placement::plan as planned;
use crate::placement::plan::moves;
use std::collections::BTreeMap;

const TAU_S: f32 = 10.0;

pub(super) fn stability() -> Stability {
    Stability { memory_s: TAU_S, sites_are_origins: true, ..Stability::default() }
}

static NO_HOMES: BTreeMap<GroupKey, Site> = BTreeMap::new();

/// A decision of the first site once a second, with as many operations as it takes.
pub(super) fn decision<'a>(
    stability: &'a Stability,
    (latencies, near): (&'a Latencies, &'a Near),
    rules: &'a Rules,
) -> Decision<'a> {
    Decision {
        stability,
        matrix: latencies.mean(),
        near,
        rules,
        at: site(0),
        operations_max: u64::MAX >> 32,
        groups: 1,
        limits: Limits::NONE,
        elapsed_s: 1.0,
        prices: &[],
        room: &[],
        homes: &NO_HOMES,
    }
}

/// A group, its bytes and who accesses it how often.
type Accessed = (GroupKey, u32, Vec<(Origin, f32)>);

/// Groups of the first site, each with up to four of the sites as users, by their keys.
fn groups(count: usize, sites: usize, dice: &mut Dice) -> Vec<Accessed> {
    let one = |index: usize, dice: &mut Dice| {
        let rate = |dice: &mut Dice| (origin(dice.below(sites)), 0.1 + 20.0 * dice.part());
        let accesses = (0..=dice.below(4)).map(|_| rate(dice)).collect();
        let keyspace = (index % 3) as u32;
        (GroupKey::lendable((index % 16_384) as u16, keyspace, dice.next()), 100, accesses)
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
        groups: groups.len(),
        limits: limits(300),
        elapsed_s: 0.01,
        ..decision(&stability, (&latencies, &near), &rules)
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
        let chosen = decision.choose(groups.iter().cloned(), &mut waiting).moves;
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
        operations_max: 20_000_000,
        groups: groups.len(),
        limits: limits(256),
        elapsed_s: 0.01,
        ..decision(&stability, (&latencies, &near), &rules)
    };
    let profiles = Counter::new(groups.len(), TAU_S).memory_bytes();
    let mut waiting = Waiting::default();
    for _ in 0..3 {
        let choice = decision.choose(groups.iter().cloned(), &mut waiting);
        let bytes = choice.memory_bytes_max;
        assert!(choice.moves.len() <= 256 && bytes > 0);
        let all = profiles + waiting.memory_bytes() + bytes;
        assert!(all < 20_000_000, "{all} bytes, {bytes} of them a batch");
    }
    assert_eq!(waiting.len(), Waiting::GROUPS_MAX, "more would wait");
}

#[test]
fn a_group_that_loses_nothing_any_more_makes_room_for_others() {
    let latencies = table(&[[1.0, 20.0, 20.0], [20.0, 1.0, 20.0], [20.0, 20.0, 1.0]]);
    let (near, rules) = (Near::new(latencies.mean(), 3), Rules::none(3));
    let stability = Stability { byte_ms: 1e9, ..stability() };
    let decision = Decision {
        operations_max: 20_000_000,
        groups: 2,
        limits: limits(256),
        ..decision(&stability, (&latencies, &near), &rules)
    };
    let [one, other] = [1, 2].map(|slot| GroupKey::lendable(slot, 1, 7 << 20));
    let accessed = |key, from| (key, 100, vec![(origin(from), 5.0)]);
    let mut waiting = Waiting::default();
    for _ in 0..2 * Waiting::DECISIONS_MAX {
        let groups = [accessed(one, 1), accessed(other, 2)];
        assert!(decision.choose(groups.into_iter(), &mut waiting).moves.is_empty());
    }
    assert_eq!(waiting.len(), 2, "both lose on");
    // The users of one are at home now.
    for decided in 0..Waiting::DECISIONS_MAX {
        assert!(waiting.of(one) > 0.0, "after {decided}");
        decision.choose([accessed(one, 0), accessed(other, 2)].into_iter(), &mut waiting);
    }
    assert_eq!(waiting.of(one), 0.0);
    assert!(waiting.of(other) > 0.0);
}

/// Groups of the first site with users at the second one and the third, alike in all but their
/// keyspaces.
fn of_keyspaces(keyspaces: &[u32], rate: f32) -> Vec<Accessed> {
    let one = |(slot, keyspace): (usize, &u32)| {
        let key = GroupKey::lendable(slot as u16, *keyspace, 7 << 20);
        (key, 100, vec![(origin(1), rate), (origin(2), rate / 2.0)])
    };
    keyspaces.iter().enumerate().map(one).collect()
}

fn choose(rules: &Rules, moves_max: usize, groups: &[Accessed]) -> Vec<(u16, Site)> {
    let latencies = table(&[[0.0, 20.0, 20.0], [20.0, 0.0, 20.0], [20.0, 20.0, 0.0]]);
    let (near, stability) = (Near::new(latencies.mean(), 3), stability());
    let decision = Decision {
        groups: groups.len(),
        limits: limits(moves_max),
        ..decision(&stability, (&latencies, &near), rules)
    };
    let chosen = decision.choose(groups.iter().cloned(), &mut Waiting::default()).moves;
    chosen.iter().map(|one| (one.group.class(), one.to)).collect()
}

fn kinds(classes: &[(u16, Kind)]) -> Rules {
    let mut by_key = ByKey::default();
    for (class, kind) in classes {
        let kind = by_key.add(kind.clone());
        by_key.set_class(*class, kind);
    }
    let mut rules = Rules::none(3);
    rules.set_kinds(by_key);
    rules
}

#[test]
fn the_keyspace_of_the_highest_priority_goes_first_when_the_budget_is_short() {
    let groups = of_keyspaces(&[1, 2, 3, 1, 2, 3], 10.0);
    let of = |priorities: [f32; 3]| {
        let kind = |priority| Kind::new(Vec::new(), priority);
        kinds(&[1, 2, 3].map(|class| (class, kind(priorities[usize::from(class) - 1]))))
    };
    let classes = |rules: &Rules, most| -> Vec<u16> {
        choose(rules, most, &groups).into_iter().map(|(class, _)| class).collect()
    };
    assert_eq!(classes(&of([1.0, 3.0, 0.5]), 2), [2, 2]);
    assert_eq!(classes(&of([1.0, 3.0, 5.0]), 3), [3, 3, 2]);
    // It does not change what is worth moving.
    assert_eq!(classes(&of([0.01, 1.0, 10.0]), 6).len(), 6);
    let stays = of_keyspaces(&[1], 0.1);
    assert_eq!(choose(&of([10.0, 1.0, 1.0]), 6, &stays), choose(&Rules::none(3), 6, &stays));
}

#[test]
fn the_first_keyspaces_after_a_recovery_have_classes_of_their_own() {
    // Each recovery by a site begins at another multiple of 2^10.
    let first: Vec<u16> = (1..20).map(GroupKey::class_of).collect();
    let shares = |block: u32| {
        let mut classes = (block..block + 20).map(GroupKey::class_of);
        classes.any(|class| first.contains(&class))
    };
    let blocks = (1..=100).flat_map(|site| [1, 2, 3].map(|term| term << 23 | site << 10));
    let count = blocks.filter(|block| shares(*block)).count();
    assert!(count <= 15, "{count} of 300, where 12 are to be expected by chance");
}

#[test]
fn groups_that_a_site_takes_now_go_though_more_wait_for_one_that_does_not() {
    let groups: Vec<Accessed> = (0..310_u16)
        .map(|slot| {
            let (users, rate) = if slot < 300 { (1, 50.0) } else { (2, 10.0) };
            (GroupKey::lendable(slot, 1, 7 << 20), 100, vec![(origin(users), rate)])
        })
        .collect();
    let mut rules = Rules::none(3);
    rules.refuse(site(1));
    assert_eq!(choose(&rules, 256, &groups), vec![(1, site(2)); 10]);
}

#[test]
fn groups_of_a_kind_go_where_it_may_be() {
    let bars = [(1, None), (2, Some(Bar::LendTo))];
    let lists = |bar| Kind::new(vec![None, bar, None], 1.0);
    let rules = kinds(&bars.map(|(class, bar)| (class, lists(bar))));
    let groups = of_keyspaces(&[1, 2, 3], 10.0);
    let mut chosen = choose(&rules, 9, &groups);
    chosen.sort_unstable();
    assert_eq!(chosen, [(1, site(1)), (2, site(2)), (3, site(1))]);
    // One that is in a place where its kind may not be leaves it, whatever that gains.
    let mut by_key = ByKey::default();
    let kind = by_key.add(Kind::new(vec![Some(Bar::LendTo), None, None], 1.0));
    by_key.set_key(groups[0].0, kind);
    let mut rules = Rules::none(3);
    rules.set_kinds(by_key);
    let few = vec![(groups[0].0, 100, vec![(origin(0), 0.1)])];
    assert_eq!(choose(&rules, 9, &few).len(), 1);
    assert_eq!(choose(&Rules::none(3), 9, &few), []);
}
