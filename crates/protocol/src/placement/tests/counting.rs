//! What owners count, and how the latencies of clients vary.

use super::super::sampler::COUNTED_PER_S_MAX;
use super::super::sketch::ACCURACY;
use super::*;
use model::limits::SKETCH_BUCKETS_MAX;
use std::collections::BTreeMap;

const TAU_S: f32 = 10.0;

fn seconds(second: usize) -> Tick {
    Tick::from_ms(second as u64 * 1_000)
}

fn key(number: usize) -> GroupKey {
    let hash = (number as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    GroupKey::new(number as u16 % 16_384, hash ^ hash >> 29)
}

fn counter(groups: usize) -> Counter {
    Counter::new(groups, TAU_S)
}

fn rates(profile: &Profile) -> BTreeMap<u16, f32> {
    let mut rates = BTreeMap::new();
    for (origin, rate) in profile.rates(TAU_S) {
        *rates.entry(origin.0).or_insert(0.0) += rate;
    }
    rates
}

#[test]
fn a_client_that_moves_takes_all_its_counts_along() {
    let mut counter = counter(16);
    for second in 0..60 {
        for _ in 0..4 {
            counter.count(seconds(second), key(1), Client(7), site(1), 1.0);
        }
    }
    counter.count(seconds(60), key(1), Client(7), site(2), 1.0);
    let profile = counter.profile(seconds(60), key(1)).expect("followed");
    assert!(!profile.is_by_site());
    let rates = rates(profile);
    assert_eq!(rates.len(), 1);
    assert!((3.5..4.5).contains(&rates[&2]), "{rates:?}");
}

#[test]
fn counts_fade_and_a_rate_is_count_by_tau() {
    let mut counter = counter(16);
    for tick in 0..2_000 {
        let now = Tick::from_ms(tick * 50);
        counter.count(now, key(1), Client(7), site(1), 1.0);
    }
    let now = Tick::from_ms(100_000);
    let rate = rates(counter.profile(now, key(1)).expect("followed"))[&1];
    assert!((19.5..20.5).contains(&rate), "{rate} of 20 a second");
    let later = Tick::from_ms(110_000);
    let rate = rates(counter.profile(later, key(1)).expect("followed"))[&1];
    assert!((rate - 20.0 / std::f32::consts::E).abs() < 0.3, "{rate} after τ");
}

#[test]
fn many_clients_count_by_site_with_a_remainder() {
    let mut dice = Dice::new(1);
    let mut counter = counter(16);
    // Half of 40 clients are at one site, the others at twelve more.
    for second in 0..40 {
        for _ in 0..20 {
            let client = dice.below(40);
            let at = if client < 20 { 3 } else { 4 + client % 12 };
            counter.count(seconds(second), key(1), Client(client as u32), site(at), 1.0);
        }
    }
    let profile = counter.profile(seconds(40), key(1)).expect("followed");
    assert!(profile.is_by_site());
    let rates = rates(profile);
    assert!(rates.len() <= 9 && (7.0..12.0).contains(&rates[&3]), "{rates:?}");
    let total = profile.total() / TAU_S;
    assert!((16.0..22.0).contains(&total), "{total} a second in all");
    // Of two clients alone, after a while, it is by client again.
    for second in 40..240 {
        for client in 0..2 {
            for _ in 0..5 {
                let at = site(3);
                counter.count(seconds(second), key(1), Client(client), at, 1.0);
            }
        }
    }
    let profile = counter.profile(seconds(240), key(1)).expect("followed");
    assert!(!profile.is_by_site());
    let heavy = profile.rates(TAU_S).filter(|(_, rate)| *rate > 4.0).count();
    assert_eq!(heavy, 2, "{:?}", profile.rates(TAU_S).collect::<Vec<_>>());
}

#[test]
fn a_new_client_replaces_one_that_has_gone() {
    let mut counter = counter(16);
    for second in 0..300 {
        // Four clients at a time; each second minute another four.
        for client in 0..4 {
            let client = Client(client + 4 * (second as u32 / 120));
            counter.count(seconds(second), key(1), client, site(1), 1.0);
        }
    }
    let profile = counter.profile(seconds(300), key(1)).expect("followed");
    assert!((3.0..5.0).contains(&rates(profile)[&1]));
}

#[test]
fn a_fifth_client_gets_the_entry_of_the_lightest() {
    let mut counter = counter(16);
    for second in 0..60 {
        for client in 0..4 {
            let at = site(client);
            counter.count(seconds(second), key(1), Client(client as u32), at, 1.0 + client as f32);
        }
    }
    for second in 60..90 {
        counter.count(seconds(second), key(1), Client(3), site(3), 4.0);
        for client in [1, 2, 5] {
            counter.count(seconds(second), key(1), Client(client), site(4), 3.0);
        }
    }
    let rates = rates(counter.profile(seconds(90), key(1)).expect("followed"));
    assert!(rates[&4] > 6.0 && !rates.contains_key(&0), "{rates:?}");
}

#[test]
fn a_group_of_many_sites_stays_by_site() {
    let mut dice = Dice::new(3);
    let mut counter = counter(16);
    // Half of them at one of six sites, the others at one of 19 more.
    for second in 0..400 {
        for _ in 0..20 {
            let at = if dice.is(0.5) { dice.below(6) } else { 6 + dice.below(19) };
            let client = Client(dice.below(90) as u32);
            counter.count(seconds(second), key(1), client, site(at), 1.0);
        }
        let profile = counter.profile(seconds(second), key(1)).expect("followed");
        assert!(second < 20 || profile.is_by_site() && rates(profile).len() >= 7, "{second}");
    }
    // The six are found: each has twelve times the rate of one of the others.
    let rates = rates(counter.profile(seconds(400), key(1)).expect("followed"));
    let found = (0..6).filter(|at| rates.get(at).is_some_and(|rate| *rate > 0.8)).count();
    assert!(found >= 5, "{rates:?}");
}

#[test]
fn sites_with_few_accesses_count_beside_one_with_many() {
    let mut counter = counter(16);
    let mut client = 0;
    for tick in 0..4_000 {
        let now = Tick::from_ms(tick * 10);
        for (at, count, weight) in [(1, 20, 1_000.0), (2, 20, 1.0), (3, 2, 5.0), (4, 1, 10.0)] {
            for _ in 0..count {
                client = (client + 1) % 100;
                counter.count(now, key(1), Client(client), site(at), weight);
            }
        }
    }
    let profile = counter.profile(Tick::from_ms(40_000), key(1)).expect("followed");
    assert!(profile.is_by_site());
    let rates = rates(profile);
    for (at, rate) in [(1, 2e6), (2, 2e3), (3, 1e3), (4, 1e3)] {
        assert!((0.8 * rate..1.2 * rate).contains(&rates[&at]), "{rates:?}");
    }
}

/// The votes of each group: honest clients of it make two accesses a second, and liars, elsewhere,
/// claim a million of each.
fn votes_of(honest: usize, liars: usize, named: usize) -> Vec<BTreeMap<u16, f32>> {
    let mut counter = counter(4_096).with_votes();
    for second in 0..30 {
        for group in 0..named {
            for liar in 0..liars {
                let liar = Client(1_000_000 + liar as u32);
                counter.count(seconds(second), key(group), liar, site(2), 1e6);
            }
            for client in 0..honest {
                let client = Client((group * honest + client) as u32);
                counter.count(seconds(second), key(group), client, site(1), 2.0);
            }
        }
    }
    let votes = |group: usize| counter.profile(seconds(30), key(group)).map(|it| rates(it));
    (0..named).filter_map(votes).collect()
}

#[test]
fn clients_that_count_alike_have_one_vote_each() {
    for honest in 1..=4 {
        for named in [1, 500] {
            let votes = votes_of(honest, honest, named);
            assert!(votes.len() * 10 > named * 9, "{} of {named} followed", votes.len());
            let both = BTreeMap::from([(1, honest as f32), (2, honest as f32)]);
            let other = votes.iter().find(|one| **one != both);
            assert_eq!(other, None, "{honest} honest clients, {named} groups");
        }
    }
    // Of more than eight, eight are drawn, and not by how loud they are.
    let votes = votes_of(20, 20, 200);
    let liars: f32 = votes.iter().filter_map(|one| one.get(&2)).sum();
    let share = liars / (8 * votes.len()) as f32;
    assert!((0.4..0.6).contains(&share), "{share} of the votes are of liars");
}

#[test]
fn a_vote_follows_its_client_and_ends_after_it_has_gone() {
    let mut counter = counter(16).with_votes();
    counter.count(seconds(1), key(1), Client(7), site(1), 1.0);
    counter.count(seconds(2), key(1), Client(7), site(2), 1.0);
    for (second, votes) in [(2, 1.0), (39, 1.0), (40, 0.0)] {
        let profile = counter.profile(seconds(second), key(1)).expect("followed");
        assert_eq!(profile.total(), votes, "after {second} s");
        assert!(rates(profile).keys().all(|at| *at == 2));
    }
}

#[test]
fn what_gives_way_counts_for_its_slot() {
    // One pair of places.
    let mut counter = counter(2);
    for (group, count) in [(1, 3), (2, 5), (3, 4)] {
        for _ in 0..count {
            counter.count(seconds(1), key(group), Client(1), site(1), 1.0);
        }
    }
    // The third took from the first one three times less one, and then its place.
    assert!(counter.profile(seconds(1), key(1)).is_none());
    assert_eq!(counter.profile(seconds(1), key(2)).map(|profile| profile.total()), Some(5.0));
    assert_eq!(counter.profile(seconds(1), key(3)).map(|profile| profile.total()), Some(2.0));
    let slots = [1, 3].map(|slot| counter.slot(seconds(1), slot).total());
    assert_eq!(slots, [1.0, 2.0]);
}

#[test]
fn heavy_groups_are_followed_and_the_rest_counts_by_slot() {
    let mut dice = Dice::new(2);
    let (groups, accesses) = (20_000, 400_000);
    let mut counter = counter(1_024);
    assert_eq!(counter.memory_bytes(), (1_024 + 16_384) * 64 + 1_024 / 8);
    // A few take most: the rate of a group falls with the inverse of its number.
    let draw = |dice: &mut Dice| ((groups as f32).powf(dice.part()) as usize).min(groups - 1);
    let mut counts = vec![0.0; groups];
    for access in 0..accesses {
        let group = draw(&mut dice);
        counts[group] += 1.0;
        let now = Tick::from_ms(access / 1_000);
        counter.count(now, key(group), Client(1), site(1), 1.0);
    }
    let now = Tick::from_ms(400);
    // A few of them share their two places with two that are heavier.
    let followed = (0..100).filter(|group| {
        let count = counter.profile(now, key(*group)).map_or(0.0, |profile| profile.total());
        count > 0.5 * counts[*group]
    });
    let followed = followed.count();
    assert!(followed >= 90, "{followed} of the hundred heaviest groups are followed");
    let slots: f32 = (0..16_384).map(|slot| counter.slot(now, slot).total()).sum();
    let all: f32 = counter.groups().map(|(_, profile)| profile.total()).sum::<f32>() + slots;
    let share = all / accesses as f32;
    assert!((0.5..=1.0).contains(&share), "{share} of all accesses are counted");
}

#[test]
fn two_hundred_thousand_groups_are_followed_in_twenty_megabytes() {
    let counter = counter(200_000);
    assert!(counter.memory_bytes() < 20_000_000);
}

#[test]
fn samples_weigh_what_they_stand_for() {
    for load in [0, 10_000, 99_999, 800_000, 5_000_000] {
        let sampler = Sampler::new(7);
        sampler.set_load(load);
        let accesses = 400_000;
        let taken: Vec<f32> = (0..accesses).filter_map(|_| sampler.take()).collect();
        let weight: f32 = taken.iter().sum();
        assert!((weight / accesses as f32 - 1.0).abs() < 0.05, "{weight} for {accesses} at {load}");
        let most = accesses as f32 * (2 * COUNTED_PER_S_MAX) as f32 / load.max(1) as f32;
        assert!(taken.len() as f32 <= most.max(0.0) || load < 2 * COUNTED_PER_S_MAX);
        // A client that makes each sixteenth access is counted as often as any other.
        let sampler = Sampler::new(3);
        sampler.set_load(load);
        let own = |access: &usize| access.is_multiple_of(16);
        let counted: f32 =
            (0..accesses).filter_map(|access| sampler.take().filter(|_| own(&access))).sum();
        let share = counted * 16.0 / accesses as f32;
        assert!((0.8..1.2).contains(&share), "{share} at {load}");
    }
}

#[test]
fn a_distribution_has_quantiles_within_its_accuracy() {
    for seed in 0..20 {
        let mut dice = Dice::new(seed);
        let values: Vec<f32> = (0..2_000).map(|_| 0.5 * 400_f32.powf(dice.part())).collect();
        let mut parts = [Distribution::default(), Distribution::default()];
        for (index, value) in values.iter().enumerate() {
            assert!(parts[index % 2].add(*value));
        }
        let [mut all, other] = parts;
        all.merge(&other);
        assert_eq!(all.count(), 2_000);
        let mut sorted = values.clone();
        sorted.sort_by(f32::total_cmp);
        for quantile in [0.01, 0.5, 0.9, 0.95, 0.99, 1.0] {
            let exact = sorted[((2_000.0 * quantile) as usize).max(1) - 1];
            let about = all.quantile_ms(quantile).expect("values");
            assert!((about / exact - 1.0).abs() <= ACCURACY * 1.01, "{about} for {exact}");
        }
        let above = all.share_above(20.0).expect("values");
        let exact = sorted.iter().filter(|ms| **ms > 20.0).count() as f32 / 2_000.0;
        assert!((above - exact).abs() < 0.02, "{above} for {exact}");
        let shares: f32 = all.shares().map(|(_, share)| share).sum();
        assert!((shares - 1.0).abs() < 1e-3, "{shares}");
        let longer = all.stretched(1.5).quantile_ms(0.9).expect("values");
        let factor = longer / all.quantile_ms(0.9).expect("values");
        assert!((factor / 1.5 - 1.0).abs() <= ACCURACY * 1.1, "{factor}");
        let rows = all.rows().to_vec();
        assert_eq!(Distribution::from_rows(&rows), Some(all));
    }
}

#[test]
fn a_distribution_is_bounded_and_refuses_what_cannot_be() {
    let mut all = Distribution::default();
    for ms in [-1.0, f32::NAN, f32::INFINITY, 60_000.0] {
        assert!(!all.add(ms));
    }
    assert_eq!((all.count(), all.quantile_ms(0.5), all.share_above(1.0)), (0, None, None));
    for step in 0..60_000 {
        all.add(0.001 * 1.0003_f32.powi(step));
    }
    assert!(all.rows().len() <= SKETCH_BUCKETS_MAX);
    // The lowest went to the next one.
    assert_eq!(all.rows()[0].0 + 1, all.rows()[1].0);
    let most = all.quantile_ms(1.0).expect("values");
    assert!((most / 0.001 / 1.0003_f32.powi(59_698) - 1.0).abs() < 0.05, "{most}");
    assert_eq!(Distribution::from_rows(&[(3, 1), (3, 1)]), None);
    assert_eq!(Distribution::from_rows(&[(4, 1), (3, 1)]), None);
    assert_eq!(Distribution::from_rows(&[(4, 0)]), None);
    assert_eq!(Distribution::from_rows(&[(i16::MAX, 1)]), None);
    assert_eq!(Distribution::from_rows(&[(i16::MIN, 1)]), None);
    let many: Vec<(i16, u32)> = (0..=SKETCH_BUCKETS_MAX as i16).map(|index| (index, 1)).collect();
    assert_eq!(Distribution::from_rows(&many), None);
}

#[test]
fn all_groups_are_seen_that_are_followed_and_no_other() {
    let (now, mut counter) = (seconds(0), counter(300));
    for number in 0..200 {
        counter.count(now, key(number), Client(3), site(1), 1.0);
    }
    let seen = |counter: &Counter| {
        let mut groups: Vec<u64> = counter.groups().map(|(group, _)| group.number()).collect();
        groups.sort_unstable();
        groups
    };
    let followed = (0..200).filter(|number| counter.profile(now, key(*number)).is_some());
    let mut followed: Vec<u64> = followed.map(|number| key(number).number()).collect();
    followed.sort_unstable();
    assert!(followed.len() > 100 && seen(&counter) == followed);
    for number in followed.iter().step_by(2) {
        assert!(counter.remove(now, GroupKey::of_number(*number)).is_some());
    }
    let rest: Vec<u64> = followed.iter().skip(1).step_by(2).copied().collect();
    assert_eq!(seen(&counter), rest);
    // What was counted for it has faded.
    let faded = counter.profile(seconds(1_000), GroupKey::of_number(rest[0]));
    assert_eq!(faded.map(|profile| profile.total()), Some(0.0));
    assert_eq!(seen(&counter), rest[1..]);
}
