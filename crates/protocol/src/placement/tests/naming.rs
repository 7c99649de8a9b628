//! Names that are not of one client in one place.

use super::super::profile::{Client, Tick};
use super::super::{Counter, GroupKey, Site};
use std::collections::BTreeMap;

const HOME: Site = Site(1);
const AWAY: Site = Site(2);
const TAU_S: f32 = 10.0;

fn counter() -> Counter {
    Counter::new(16, TAU_S)
}

fn group() -> GroupKey {
    GroupKey::new(7, 99 << 20)
}

fn tick(second: u64) -> Tick {
    Tick::from_ms(second * 1_000)
}

fn rates(counter: &mut Counter, second: u64) -> BTreeMap<u16, f32> {
    let profile = counter.profile(tick(second), group()).expect("followed");
    let mut rates = BTreeMap::new();
    profile.rates(TAU_S).for_each(|(from, rate)| *rates.entry(from.0).or_default() += rate);
    rates
}

/// In how many of two hundred seconds a profile finds a client, with two accesses each second, at
/// one site alone. It changes between two sites after so many seconds each.
fn followed(stays_s: [u64; 2]) -> usize {
    let mut counter = counter();
    let period = stays_s[0] + stays_s[1];
    let at_one = |second: &u64| {
        let site = if second % period < stays_s[0] { HOME } else { AWAY };
        counter.count(tick(*second), group(), Client(7), site, 2.0);
        let rates = rates(&mut counter, *second);
        rates.len() == 1 && rates.contains_key(&site.0)
    };
    (0..200).filter(at_one).count()
}

#[test]
fn a_client_that_moves_is_followed_and_a_name_at_two_places_counts_by_site() {
    for stays_s in [[20, 20], [4, 4], [3, 10], [10, 1]] {
        assert_eq!(followed(stays_s), 200, "{stays_s:?}");
    }
    // It is tried by client again each 80 seconds.
    for (stays_s, most) in [([1, 1], 12), ([2, 1], 20), ([2, 2], 30)] {
        let found = followed(stays_s);
        assert!(found <= most, "{stays_s:?}: {found}");
    }
}

/// In how many of three hundred seconds most accesses of a group seem to come from elsewhere, and
/// its rates then: so many honest clients of it ask once a second at home each, and a liar
/// elsewhere so many times, each time under the next of its names.
fn with_liar(honest: u32, liar_per_s: u32, names: u32) -> (u32, BTreeMap<u16, f32>) {
    let (mut counter, mut number, mut led) = (counter(), 0, 0);
    for second in 0..300 {
        for client in 0..honest {
            counter.count(tick(second), group(), Client(client), HOME, 1.0);
        }
        for _ in 0..liar_per_s {
            number += 1;
            let name = Client(1_000_000 + number % names);
            counter.count(tick(second), group(), name, AWAY, 1.0);
        }
        let rates = rates(&mut counter, second);
        led += u32::from(rates.get(&AWAY.0) > rates.get(&HOME.0));
    }
    (led, rates(&mut counter, 300))
}

#[test]
fn a_liar_weighs_what_it_asks_whatever_names_it_makes_up() {
    for honest in 2..=12 {
        for names in [1, 5, 5_000] {
            let (led, _) = with_liar(honest, honest / 2, names);
            assert_eq!(led, 0, "half as much: {honest} honest clients, {names} names");
            // A profile by site is tried by client again each 80 seconds: what has no entry then
            // has no place.
            let (led, _) = with_liar(honest, honest - 1, names);
            assert!(led <= 30, "less: {honest} honest clients, {names} names: {led} seconds");
        }
    }
    for names in [1, 5, 5_000] {
        let (_, rates) = with_liar(4, 40, names);
        assert!(rates[&2] > 5.0 * rates[&1], "it asks ten times as much: {names} names, {rates:?}");
        assert!(rates[&2] < 42.0, "and no more than that: {rates:?}");
    }
}

/// The share of two hundred seconds in which most of a group's accesses seem to come from
/// elsewhere: one client asks at home each second, but in those, each so many, in which a liar
/// elsewhere asks that has taken its name. (What both ask in one second counts by site.)
fn taken_name(each_s: u64) -> f32 {
    let mut counter = counter();
    let mut away = 0;
    for second in 0..200 {
        let (site, weight) = if second % each_s == each_s - 1 { (AWAY, 1.0) } else { (HOME, 2.0) };
        counter.count(tick(second), group(), Client(7), site, weight);
        let rates = rates(&mut counter, second);
        away += u32::from(rates.get(&AWAY.0) > rates.get(&HOME.0));
    }
    away as f32 / 200.0
}

#[test]
fn one_that_takes_a_name_has_little_of_it() {
    for each_s in [2, 3, 4, 8, 20] {
        let share = taken_name(each_s);
        assert!(share <= 0.1, "each {each_s} s: {share}");
    }
}
