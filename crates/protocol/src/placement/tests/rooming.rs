//! Sites that take only so many bytes.

use super::super::room::{Bid, Incumbent, admit, next_price};
use super::super::{Decision, GroupKey, Near, Rules, Waiting};
use super::deciding::{decision, stability};
use super::{origin, site, table};

const MARGIN: (f32, f32) = (0.1, 2.0);

fn bid(bytes: u64, value: f32) -> Bid {
    Bid { bytes, value }
}

/// Counted so often that its error is small.
fn incumbent(bytes: u64, value: f32) -> Incumbent {
    Incumbent { bid: bid(bytes, value), counted: 1e6 }
}

#[test]
fn what_is_worth_less_makes_room_and_no_more_than_is_needed() {
    let incumbents = [incumbent(10, 5.0), incumbent(10, 1.0), incumbent(10, 2.0)];
    let evicted = |bids: &[Bid], limit_bytes| {
        let admitted = admit(&incumbents, bids.to_vec(), (limit_bytes, 30), MARGIN);
        (admitted.evicted, admitted.refused)
    };
    assert_eq!(evicted(&[bid(10, 9.0)], 40), (vec![], 0.0), "there is room");
    assert_eq!(evicted(&[bid(10, 9.0)], 30), (vec![1], 0.0));
    assert_eq!(evicted(&[bid(15, 9.0)], 35), (vec![1], 0.0));
    assert_eq!(evicted(&[bid(5, 1.5), bid(10, 9.0)], 30), (vec![1], 1.5), "the higher one first");
    assert_eq!(evicted(&[bid(10, 1.0)], 30), (vec![], 1.0), "not for as much");
    assert_eq!(evicted(&[bid(10, 1.05)], 30), (vec![], 1.05), "nor for a little more");
    assert_eq!(evicted(&[], 15), (vec![1, 2], 0.0), "they have grown");
    assert_eq!(evicted(&[], 0), (vec![1, 2, 0], 0.0));
    // One that was counted four times is worth twice as much, at most.
    let uncertain = Incumbent { counted: 3.0, ..incumbent(10, 1.0) };
    assert_eq!(admit(&[uncertain], vec![bid(10, 2.0)], (10, 10), MARGIN).evicted, [0_usize; 0]);
    assert_eq!(admit(&[uncertain], vec![bid(10, 2.2)], (10, 10), MARGIN).evicted, [0]);
}

#[test]
fn none_goes_for_a_bid_that_finds_no_room_all_the_same() {
    let incumbents = [incumbent(40, 1.0), incumbent(60, 10.0)];
    let admitted = admit(&incumbents, vec![bid(50, 2.0)], (100, 100), MARGIN);
    assert_eq!((admitted.evicted, admitted.refused), (vec![], 2.0));
    let larger_than_the_limit = admit(&incumbents, vec![bid(101, 90.0)], (100, 100), MARGIN);
    assert_eq!(larger_than_the_limit.evicted, [0_usize; 0]);
    // A small group is worth more a byte than a large one, and less than all of that.
    let admitted = admit(&incumbents, vec![bid(10, 3.0)], (100, 100), MARGIN);
    assert_eq!((admitted.evicted, admitted.refused), (vec![], 3.0));
    let admitted = admit(&incumbents, vec![bid(10, 5.0)], (100, 100), MARGIN);
    assert_eq!((admitted.evicted, admitted.free_bytes), (vec![0], 30));
}

#[test]
fn a_price_rises_to_what_is_refused_and_falls_to_what_a_place_costs() {
    let incumbents = [incumbent(10, 1.0), incumbent(10, 5.0)];
    let full = |bids: &[Bid]| admit(&incumbents, bids.to_vec(), (20, 20), MARGIN);
    let refused = full(&[bid(10, 0.8)]);
    assert_eq!(next_price(0.5, &refused, 20, false), 0.8, "at once");
    assert_eq!(next_price(2.0, &refused, 20, false), 2.0, "until the window ends");
    assert_eq!(next_price(2.0, &refused, 20, true), 1.5);
    assert_eq!(next_price(0.0, &full(&[]), 20, true), 0.5, "the least of those that have a place");
    let has_room = admit(&incumbents[..1], vec![bid(15, 9.0)], (20, 10), MARGIN);
    assert_eq!(has_room.evicted, [0], "it is worth more");
    let has_room = admit(&incumbents[1..], vec![bid(15, 4.0)], (20, 10), MARGIN);
    assert_eq!(has_room.refused, 4.0);
    assert_eq!(next_price(2.0, &has_room, 20, true), 1.0, "small ones find room");
    let price = (0..100).fold(2.0, |price, _| next_price(price, &has_room, 20, true));
    assert_eq!(price, 0.0);
}

/// Which group goes where.
type Goes = (u16, u16);
/// And what each byte of it would spare.
type Would = (u16, u16, f32);

/// Four groups of the first site with users at the second one: what moves where, and what would.
fn decide((prices, room): (&[f32], &[u64]), homes: &[(GroupKey, u16)]) -> (Vec<Goes>, Vec<Would>) {
    let latencies = table(&[[0.0, 20.0, 30.0], [20.0, 0.0, 5.0], [30.0, 5.0, 0.0]]);
    let (near, rules, stability) = (Near::new(latencies.mean(), 3), Rules::none(3), stability());
    let homes = homes.iter().map(|(key, home)| (*key, site(usize::from(*home)))).collect();
    let decision = Decision {
        groups: 4,
        prices,
        room,
        homes: &homes,
        ..decision(&stability, (&latencies, &near), &rules)
    };
    let accesses = |number: u16| vec![(origin(1), f32::from(number) * 10.0)];
    let groups = (1..=4).map(|number| (key(number), 100, accesses(number)));
    let choice = decision.choose(groups, &mut Waiting::default());
    let wanted = choice.wanted.iter().map(|one| (one.group.slot(), one.to.0, one.value));
    let moves = choice.moves.iter().map(|one| (one.group.slot(), one.to.0));
    (moves.collect(), wanted.collect())
}

fn key(number: u16) -> GroupKey {
    GroupKey::lendable(number, 1, 7 << 20)
}

#[test]
fn what_is_too_dear_goes_to_the_next_best_site() {
    assert_eq!(decide((&[], &[]), &[]).0, [(4, 1), (3, 1), (2, 1), (1, 1)]);
    // Three groups gain less than 175 ms a second over the next best site.
    let prices = [0.0, 1.75, 0.0];
    assert_eq!(decide((&prices, &[]), &[]).0, [(4, 1), (3, 2), (2, 2), (1, 2)]);
    // At home nothing is paid.
    let at_home = decide((&prices, &[]), &[(key(1), 1), (key(2), 1)]);
    assert_eq!(at_home.0[2..], [(2, 1), (1, 1)]);
}

#[test]
fn what_finds_no_room_is_wanted_there_and_goes_to_the_next_best_site() {
    let room = [u64::MAX, 99, u64::MAX];
    let (moves, wanted) = decide((&[], &room), &[(key(1), 1)]);
    assert_eq!(moves, [(4, 2), (3, 2), (2, 2), (1, 1)], "home has room");
    assert_eq!(wanted, [(4, 1, 8.0), (3, 1, 6.0), (2, 1, 4.0)], "800 ms of 100 bytes");
    let (moves, wanted) = decide((&[], &[u64::MAX, 99, 99]), &[]);
    assert_eq!((moves.len(), wanted.len()), (0, 4), "none has");
}
