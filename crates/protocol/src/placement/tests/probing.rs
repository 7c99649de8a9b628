//! Who is probed when.

use super::Dice;
use crate::placement::probing::{Measured, Prober, Rule};
use model::SiteId;
use std::collections::{BTreeMap, BTreeSet};

/// Site n is n × 10 ms away, as far as it is known; nothing is fresh.
fn world(sites: u32) -> BTreeMap<SiteId, Measured> {
    let known = |site| Measured { ms: Some(site as f32 * 10.0), ..Measured::default() };
    (1..=sites).map(|site| (SiteId(site), known(site))).collect()
}

fn ids(sites: impl IntoIterator<Item = u32>) -> BTreeSet<SiteId> {
    sites.into_iter().map(SiteId).collect()
}

fn taken(prober: &mut Prober) -> BTreeSet<SiteId> {
    prober.take(usize::MAX, |_| false).into_iter().collect()
}

/// The probes of a window.
fn window(
    prober: &mut Prober,
    known: &BTreeMap<SiteId, Measured>,
    random: u64,
) -> BTreeSet<SiteId> {
    prober.window(&Rule::default(), known, random);
    taken(prober)
}

/// A prober whose first full round is over.
fn settled(known: &BTreeMap<SiteId, Measured>) -> Prober {
    let mut prober = Prober::default();
    assert_eq!(window(&mut prober, known, 0), known.keys().copied().collect(), "all at first");
    window(&mut prober, known, 0);
    prober
}

#[test]
fn the_nearest_are_probed_and_one_at_random() {
    let known = world(40);
    let mut prober = settled(&known);
    let mut dice = Dice::new(1);
    let mut drawn = BTreeSet::new();
    for _ in 0..25 {
        let probed = window(&mut prober, &known, dice.next());
        assert!(probed.is_superset(&ids(1..=5)) && probed.len() <= 6, "{probed:?}");
        drawn.extend(probed);
    }
    assert!(drawn.len() > 18, "others by chance: {drawn:?}");
}

#[test]
fn a_site_whose_way_is_in_doubt_is_probed_each_window() {
    let mut known = world(40);
    let mut prober = settled(&known);
    known.get_mut(&SiteId(30)).unwrap().doubtful = true;
    for random in 0..9 {
        let probed = window(&mut prober, &known, random);
        assert!(probed.is_superset(&ids([1, 2, 3, 4, 5, 30])) && probed.len() <= 7, "{probed:?}");
    }
}

#[test]
fn what_requests_have_measured_is_not_probed() {
    let mut known = world(40);
    let mut prober = settled(&known);
    for site in [1, 2, 4] {
        known.get_mut(&SiteId(site)).unwrap().fresh = true;
    }
    prober.window(&Rule::default(), &known, 0);
    // One more is measured before its probe leaves.
    let probed: BTreeSet<_> = prober.take(9, |site| site == SiteId(3)).into_iter().collect();
    assert_eq!(&probed & &ids(1..=5), ids([5]));
    known.values_mut().for_each(|one| one.fresh = true);
    assert_eq!(window(&mut prober, &known, 7), ids([]), "requests have measured all");
}

#[test]
fn a_change_of_the_nearest_beyond_the_share_has_all_measured_once() {
    for (site, ms, moves) in [
        (1, 11.9, false),
        (1, 12.1, true),
        (5, 39.0, true),
        // Beyond the five nearest, and still there.
        (9, 60.0, false),
        // One that was drawn comes nearer.
        (9, 15.0, true),
    ] {
        let mut known = world(40);
        let mut prober = settled(&known);
        known.get_mut(&SiteId(site)).unwrap().ms = Some(ms);
        let is_round = window(&mut prober, &known, 0).len() == 40;
        assert_eq!(is_round, moves, "site {site} is {ms} ms away");
        assert!(window(&mut prober, &known, 0).len() <= 6, "once");
    }
}

#[test]
fn the_order_of_equals_is_noise_unless_it_is_beyond_the_share() {
    let mut known = world(40);
    let set = |known: &mut BTreeMap<SiteId, Measured>, one: f32, two: f32| {
        known.get_mut(&SiteId(1)).unwrap().ms = Some(one);
        known.get_mut(&SiteId(2)).unwrap().ms = Some(two);
    };
    set(&mut known, 10.0, 10.1);
    let mut prober = settled(&known);
    set(&mut known, 11.0, 9.5);
    assert!(window(&mut prober, &known, 0).len() <= 6, "they have changed places");
    // Each changed by less than the share, and they are farther apart than that.
    set(&mut known, 11.5, 8.5);
    assert_eq!(window(&mut prober, &known, 0).len(), 40);
}

#[test]
fn a_slow_drift_is_seen_since_the_last_round() {
    let mut known = world(40);
    let mut prober = settled(&known);
    let mut rounds = 0;
    for step in 1..=10 {
        known.get_mut(&SiteId(3)).unwrap().ms = Some(30.0 + step as f32);
        rounds += u32::from(window(&mut prober, &known, 0).len() == 40);
    }
    assert_eq!(rounds, 1, "a third in steps of a thirtieth");
}

#[test]
fn neighbours_that_move_together_are_found_out_by_a_full_round() {
    let mut known = world(40);
    let mut prober = settled(&known);
    // The five nearest stay as near as they were.
    known.iter_mut().skip(5).for_each(|(_, one)| one.ms = Some(1_000.0));
    let rounds: Vec<usize> =
        (1..=60).filter(|_| window(&mut prober, &known, 0).len() == 40).collect();
    assert_eq!(rounds.len(), 2, "each thirty windows: {rounds:?}");
    assert_eq!(rounds[1] - rounds[0], 30);
}

#[test]
fn a_site_that_never_answers_is_probed_by_turns() {
    let mut known = world(10);
    for silent in 8..=10 {
        known.insert(SiteId(silent), Measured::default());
    }
    let mut prober = settled(&known);
    let mut dice = Dice::new(2);
    let mut drawn = BTreeSet::new();
    for _ in 0..20 {
        let probed = window(&mut prober, &known, dice.next());
        assert_eq!((&probed & &ids(8..=10)).len(), 1, "{probed:?}");
        drawn.extend(&probed & &ids(8..=10));
    }
    assert_eq!(drawn, ids(8..=10));
}

#[test]
fn a_long_round_leaves_by_and_by_with_the_nearest_first() {
    let known = world(100);
    let mut prober = settled(&known);
    let mut moved = known.clone();
    moved.get_mut(&SiteId(1)).unwrap().ms = Some(20.5);
    prober.window(&Rule::default(), &moved, 0);
    let mut probed: Vec<SiteId> = prober.take(30, |_| false);
    assert_eq!(probed[..5].iter().copied().collect::<BTreeSet<_>>(), ids(1..=5));
    // Another change in mid-round begins none anew: the nearest are probed again, before the rest.
    moved.get_mut(&SiteId(1)).unwrap().ms = Some(40.5);
    prober.window(&Rule::default(), &moved, 0);
    let second = prober.take(usize::MAX, |_| false);
    assert_eq!(second[..5].iter().copied().collect::<BTreeSet<_>>(), ids(1..=5));
    probed.extend(&second);
    assert_eq!(probed.len(), 105);
    assert_eq!(probed.into_iter().collect::<BTreeSet<_>>(), ids(1..=100));
    assert!(window(&mut prober, &moved, 0).len() <= 6, "the round has seen both changes");
}

#[test]
fn sites_that_have_left_are_not_probed() {
    let known = world(20);
    let mut prober = settled(&known);
    prober.window(&Rule { full_windows: 1, ..Rule::default() }, &known, 0);
    let left = world(3);
    prober.window(&Rule::default(), &left, 0);
    assert_eq!(taken(&mut prober), ids(1..=3));
    prober.window(&Rule::default(), &BTreeMap::new(), 5);
    assert_eq!(taken(&mut prober), ids([]));
}

#[test]
fn a_site_that_is_listed_again_has_no_round_trip_at_first() {
    let mut known = world(3);
    let mut prober = settled(&known);
    known.insert(SiteId(1), Measured::default());
    assert!(window(&mut prober, &known, 0).contains(&SiteId(1)));
}
