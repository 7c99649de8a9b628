//! Decisions that look only at what the ones before have not settled.

use super::deciding::{decision, stability};
use super::*;
use std::collections::BTreeSet;

const TAU_S: f32 = 10.0;
const SITES: usize = 8;
const GROUPS: usize = 2_000;

/// The groups of one owner, which are accessed and move away.
struct World {
    counter: Counter,
    waiting: Waiting,
    carried: Carried,
    /// Whether each decision looks at all groups.
    is_whole: bool,
    looked_at: usize,
}

impl World {
    fn new(is_whole: bool) -> World {
        let (counter, waiting) = (Counter::new(4 * GROUPS, TAU_S), Waiting::default());
        World { counter, waiting, carried: Carried::default(), is_whole, looked_at: 0 }
    }

    /// A second's accesses, and the decision of that second.
    fn decide(
        &mut self,
        second: u64,
        accesses: &[(GroupKey, Site, f32)],
        decision: &Decision<'_>,
    ) -> Vec<(GroupKey, Site)> {
        let now = Tick::from_ms(second * 1_000);
        for (key, from, weight) in accesses {
            self.counter.count(now, *key, Client::of_site(*from), *from, *weight);
        }
        let basis = Basis {
            matrix: decision.matrix,
            rules: decision.rules,
            at: decision.at,
            one_of: 1.0,
            left: 1.0,
        };
        self.carried.begin(Some(basis).filter(|_| !self.is_whole));
        let seen = self.counter.groups().filter(|(key, of)| self.carried.looks_at(*key, of));
        let groups: Vec<_> = seen
            .map(|(key, profile)| {
                let mut profile = *profile;
                profile.fade(now, TAU_S);
                (key, 100, profile.rates(TAU_S).collect::<Vec<_>>())
            })
            .collect();
        self.looked_at += groups.len();
        let decision = Decision { groups: groups.len(), ..*decision };
        let choice = decision.choose(groups.into_iter(), &mut self.waiting);
        self.carried.end(now, choice.open);
        for one in &choice.moves {
            self.waiting.moved(one.group);
            self.counter.remove(now, one.group);
        }
        let mut moves: Vec<_> = choice.moves.iter().map(|one| (one.group, one.to)).collect();
        moves.sort_unstable();
        moves
    }
}

fn latencies(dice: &mut Dice, change: f32) -> Latencies {
    let mut latencies = Latencies::unknown(SITES, SITES);
    for from in 0..SITES {
        for to in 0..SITES {
            let ms = if from == to { 0.3 } else { 5.0 + 20.0 * dice.part() };
            latencies.learn(origin(from), site(to), ms * change);
        }
    }
    latencies
}

/// Most accesses are of few groups, and of these each has its times.
fn accesses(second: u64, keys: &[GroupKey], dice: &mut Dice) -> Vec<(GroupKey, Site, f32)> {
    let turn = (second / 7) as usize * 60;
    let one = |dice: &mut Dice| {
        let index = if dice.is(0.9) {
            (turn + dice.below(80)) % keys.len()
        } else {
            dice.below(keys.len())
        };
        let from = if dice.is(0.7) { site(index % SITES) } else { site(dice.below(SITES)) };
        (keys[index], from, 0.2 + 3.0 * dice.part())
    };
    (0..200).map(|_| one(dice)).collect()
}

#[test]
fn what_is_carried_on_moves_the_same_groups_in_the_same_seconds() {
    for seed in 0..12 {
        let mut dice = Dice::new(seed);
        let key = |index: usize, hash: u64| GroupKey::lendable(index as u16, 1, hash);
        let keys: Vec<GroupKey> = (0..GROUPS).map(|index| key(index, dice.next())).collect();
        // The bytes of a group take so long that most wait for their regret.
        let stability = Stability { byte_ms: 0.3, pause_ms: 10.0, ..stability() };
        let [mut whole, mut carried] = [true, false].map(World::new);
        let (mut ways, mut rules) = (latencies(&mut dice, 1.0), Rules::none(SITES));
        let mut moved = 0;
        for second in 1..120 {
            match dice.below(40) {
                0 => {
                    let change = 1.0 + dice.part();
                    ways = latencies(&mut dice, change);
                }
                1 => rules.bar(site(1 + dice.below(SITES - 1))),
                2 => rules = Rules::none(SITES),
                _ => {}
            }
            let near = Near::new(ways.mean(), 8);
            let decision = Decision {
                // Some moves wait for the budget of a later second.
                limits: Limits { moves_max: 9, ..Limits::NONE },
                ..decision(&stability, (&ways, &near), &rules)
            };
            let accesses = accesses(second, &keys, &mut dice);
            let expected = whole.decide(second, &accesses, &decision);
            assert_eq!(
                carried.decide(second, &accesses, &decision),
                expected,
                "seed {seed}, second {second}"
            );
            moved += expected.len();
        }
        assert!(moved > 100, "{moved}");
        let (all, some) = (whole.looked_at, carried.looked_at);
        assert!(2 * some < all, "{some} of {all} looks");
    }
}

/// What settles nothing for later: a basis that is another one, fewer samples, and a tenth time.
#[test]
fn another_basis_looks_at_all() {
    let mut dice = Dice::new(3);
    let ways = latencies(&mut dice, 1.0);
    let other = latencies(&mut dice, 2.0);
    let rules = Rules::none(SITES);
    fn basis<'a>(ways: &'a Latencies, rules: &'a Rules, one_of: f32) -> Basis<'a> {
        Basis { matrix: ways.mean(), rules, at: site(0), one_of, left: 0.9 }
    }
    let mut carried = Carried::default();
    let mut looks_at_all = |basis: Option<Basis<'_>>, open: Vec<GroupKey>| {
        let is_whole = carried.begin(basis);
        carried.end(Tick::from_ms(0), open);
        is_whole
    };
    assert!(looks_at_all(Some(basis(&ways, &rules, 4.0)), vec![]), "the first");
    assert!(!looks_at_all(Some(basis(&ways, &rules, 8.0)), vec![]));
    assert!(!looks_at_all(Some(basis(&ways, &rules, 7.3)), vec![]), "counts have faded as much");
    assert!(looks_at_all(Some(basis(&ways, &rules, 4.0)), vec![]), "more samples make it surer");
    assert!(looks_at_all(Some(basis(&other, &rules, 4.0)), vec![]));
    assert!(looks_at_all(None, vec![]));
    assert!(looks_at_all(Some(basis(&other, &rules, 4.0)), vec![]));
    let in_a_row = (0..20).map(|_| looks_at_all(Some(basis(&other, &rules, 4.0)), vec![]));
    let whole: BTreeSet<usize> =
        in_a_row.enumerate().filter(|(_, is_whole)| *is_whole).map(|(at, _)| at).collect();
    assert_eq!(whole, BTreeSet::from([9, 19]));
    let many = (0..=Carried::OPEN_MAX as u64).map(|one| GroupKey::lendable(7, 1, one << 20));
    looks_at_all(Some(basis(&other, &rules, 4.0)), many.collect());
    assert!(looks_at_all(Some(basis(&other, &rules, 4.0)), vec![]), "more are open than are kept");
}
