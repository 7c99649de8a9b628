//! Sites that take only so many bytes of others' groups.

use super::adaptive::{OF_WEST, group, part};
use super::pair::{EAST, MS, Sites, WEST};
use lab::simulation::Settings;
use model::{
    Answer, Body, Command, DeploymentCommand, GlobalCommand, Group, GroupExplained, KeyspaceSpec,
    Lending, LoanPart, Pin, Placement, PlacementBar, RegistryChange,
};

const VALUE_BYTES: usize = 1_000;
/// For three groups of that size, with their keys and rows.
const ROOM_BYTES: u64 = 3_500;

/// Two sites, of which the second takes only so much, and some keys of the first.
fn sites(keys: usize) -> (Sites, Vec<String>) {
    limited(keys, |site| (site == EAST).then_some(ROOM_BYTES))
}

fn limited(keys: usize, limit: impl Fn(usize) -> Option<u64>) -> (Sites, Vec<String>) {
    let spec = KeyspaceSpec::linearizable_global("cars", "car:");
    let spec = KeyspaceSpec { placement: Placement::Adaptive, ..spec };
    let mut sites = Sites::limited(2, Settings::default(), spec, limit);
    let keys: Vec<String> =
        (0..keys).map(|number| sites.key_at(WEST, &format!("a{number}-"))).collect();
    for key in &keys {
        sites.put(WEST, key, &"x".repeat(VALUE_BYTES));
    }
    (sites, keys)
}

/// Reads keys at the second site, one after the other; a key that comes several times is read as
/// often.
fn read(sites: &mut Sites, keys: &[&String], seconds: u32) {
    let rounds = seconds * 10 / keys.len() as u32;
    for _ in 0..rounds {
        for key in keys {
            sites.get(EAST, key);
            sites.lab.run(MS * 80);
            assert!(borrowed_bytes(sites) <= ROOM_BYTES);
        }
    }
}

fn borrowed_bytes(sites: &Sites) -> u64 {
    sites.lab.parts(EAST).map(|(_, part)| part.bytes).sum()
}

fn held(sites: &Sites, keys: &[String]) -> Vec<bool> {
    keys.iter().map(|key| part(&sites.lab, EAST, &group(sites, key)) == LoanPart::Held).collect()
}

fn explained(sites: &mut Sites, key: &str) -> GroupExplained {
    super::adaptive::explained(sites, WEST, key)
}

#[test]
fn a_site_has_what_is_worth_the_most_there() {
    let (mut sites, keys) = sites(5);
    // The last three are read twice as often as the others; these come first.
    let [a, b, c, d, e] = [&keys[0], &keys[1], &keys[2], &keys[3], &keys[4]];
    read(&mut sites, &[a, b, a, b], 30);
    assert_eq!(held(&sites, &keys), [true, true, false, false, false]);
    read(&mut sites, &[c, d, e, a, c, d, e, b, c, d, e], 200);
    assert_eq!(held(&sites, &keys), [false, false, true, true, true]);
    let found = explained(&mut sites, a);
    assert_eq!((found.placed.owner, found.home), (OF_WEST, OF_WEST));
    let bar = found.placed.candidates.iter().find(|one| one.site != OF_WEST).unwrap().bar;
    assert_eq!(bar, Some(PlacementBar::NoRoom));
    // And so it stays.
    let moves = |sites: &mut Sites| {
        super::adaptive::moves(sites, EAST) + super::adaptive::moves(sites, WEST)
    };
    let before = moves(&mut sites);
    for _ in 0..4 {
        read(&mut sites, &[c, d, e, a, c, d, e, b, c, d, e], 60);
        assert_eq!(held(&sites, &keys), [false, false, true, true, true]);
    }
    assert!(moves(&mut sites) <= before, "windows end");
    // Others are used by now.
    read(&mut sites, &[a, b, a, b, c], 200);
    assert_eq!(held(&sites, &keys)[..3], [true, true, true]);
}

#[test]
fn what_is_used_no_more_makes_room() {
    let (mut sites, keys) = sites(6);
    let (some, others) = keys.split_at(3);
    read(&mut sites, &some.iter().collect::<Vec<_>>(), 60);
    assert_eq!(held(&sites, &keys), [true, true, true, false, false, false]);
    read(&mut sites, &others.iter().collect::<Vec<_>>(), 120);
    assert_eq!(held(&sites, &keys), [false, false, false, true, true, true]);
}

/// Whatever its lender goes by.
#[test]
fn what_exceeds_the_limit_is_refused_as_it_comes() {
    let (mut sites, keys) = sites(6);
    let groups = keys.iter().map(|key| group(&sites, key)).collect();
    let to = sites.lab.sites[EAST].id.unwrap();
    let lend = GlobalCommand::Lending(Lending::Lend { to, groups });
    let answer = sites.ask(WEST, Body::Write(Command::Global(lend))).0;
    assert!(matches!(answer, Answer::Done(_)), "{answer:?}");
    sites.lab.run(MS * 3_000);
    assert_eq!(held(&sites, &keys).iter().filter(|is_held| **is_held).count(), 3);
    assert!(borrowed_bytes(&sites) <= ROOM_BYTES);
    for key in &keys {
        assert_eq!(sites.get(EAST, key).0, Some("x".repeat(VALUE_BYTES)));
    }
}

#[test]
fn a_group_goes_home_whatever_room_there_is_for_others() {
    let (mut sites, keys) = limited(1, |_| Some(ROOM_BYTES));
    // The other site's groups fill the home.
    let others = (0..3).map(|number| sites.key_at(EAST, &format!("b{number}-")));
    let others: Vec<String> = others.collect();
    others.iter().for_each(|key| {
        sites.put(EAST, key, &"x".repeat(VALUE_BYTES));
    });
    let lend = |sites: &mut Sites, from: usize, to: usize, keys: &[String]| {
        let groups = keys.iter().map(|key| group(sites, key)).collect();
        let to = sites.lab.sites[to].id.unwrap();
        let lend = GlobalCommand::Lending(Lending::Lend { to, groups });
        sites.ask(from, Body::Write(Command::Global(lend)));
        sites.lab.run(MS * 1_000);
    };
    lend(&mut sites, WEST, EAST, &keys);
    lend(&mut sites, EAST, WEST, &others);
    assert_eq!(held(&sites, &keys), [true]);
    for _ in 0..300 {
        for key in others.iter().chain(&keys) {
            sites.get(WEST, key);
        }
        sites.lab.run(MS * 60);
    }
    assert_eq!(held(&sites, &keys), [false]);
    let of_others = |key: &String| part(&sites.lab, WEST, &group(&sites, key)) == LoanPart::Held;
    assert!(others.iter().all(of_others));
}

#[test]
fn what_is_written_there_counts_once() {
    let (mut sites, keys) = sites(3);
    read(&mut sites, &keys.iter().collect::<Vec<_>>(), 60);
    assert_eq!(held(&sites, &keys), [true; 3]);
    let before = borrowed_bytes(&sites);
    for round in 0..100 {
        for key in &keys {
            sites.put(EAST, key, &"y".repeat(VALUE_BYTES));
            sites.lab.run(MS * 50);
        }
        // Higher revisions are longer.
        assert!(borrowed_bytes(&sites).abs_diff(before) < 20, "round {round}");
    }
    assert_eq!(held(&sites, &keys), [true; 3]);
    sites.put(EAST, &keys[0], "");
    assert!(borrowed_bytes(&sites).abs_diff(before - VALUE_BYTES as u64) < 20);
    // What grows beyond the limit goes home.
    sites.put(EAST, &keys[0], &"z".repeat(3 * VALUE_BYTES));
    for _ in 0..100 {
        keys[1..].iter().for_each(|key| drop(sites.get(EAST, key)));
        sites.lab.run(MS * 100);
    }
    assert_eq!(held(&sites, &keys), [false, true, true]);
}

#[test]
fn a_pin_to_a_full_site_waits_for_room() {
    let (mut sites, keys) = sites(4);
    let (used, pinned) = (&keys[..3], &keys[3]);
    let used: Vec<&String> = used.iter().collect();
    read(&mut sites, &used, 60);
    let Group { keyspace, tag } = group(&sites, pinned);
    let pin = Pin { keyspace, tag, site: sites.lab.sites[EAST].id.unwrap() };
    sites.write(
        WEST,
        Command::Deployment(DeploymentCommand::ChangeRegistry(RegistryChange::Pin(pin))),
    );
    read(&mut sites, &used, 60);
    assert_eq!(held(&sites, &keys), [true, true, true, false]);
    let found = explained(&mut sites, pinned);
    let bar = found.placed.candidates.iter().find(|one| one.site != OF_WEST).unwrap().bar;
    assert_eq!(bar, Some(PlacementBar::NoRoom));
    sites.put(EAST, &keys[0], "");
    read(&mut sites, &used, 20);
    assert_eq!(held(&sites, &keys), [true; 4]);
}

/// Counts begin anew where a group comes: what has just come looks worth less than it is.
#[test]
fn of_two_that_are_always_used_the_better_one_stays() {
    let (mut sites, keys) = limited(2, |site| (site == EAST).then_some(1_500));
    let second = |sites: &mut Sites| {
        let until = sites.lab.now() + MS * 1_000;
        for turn in 0..30 {
            sites.get(EAST, &keys[0]);
            // The other one four times of five.
            if turn % 5 > 0 {
                sites.get(EAST, &keys[1]);
            }
        }
        sites.lab.run(until.saturating_sub(sites.lab.now()));
    };
    (0..120).for_each(|_| second(&mut sites));
    let moved = |sites: &mut Sites| super::adaptive::moves(sites, WEST);
    let before = moved(&mut sites);
    assert!(before < 5, "{before} moves");
    for _ in 0..60 {
        second(&mut sites);
        assert!(held(&sites, &keys).iter().any(|is_held| *is_held));
    }
    assert!(moved(&mut sites) <= before, "it goes to and fro");
}

/// A lender counts what it has sent until it is answered with that.
#[test]
fn more_than_there_is_room_for_is_not_sent() {
    let (mut sites, keys) = sites(12);
    for _ in 0..40 {
        for key in &keys {
            sites.get(EAST, key);
        }
        sites.lab.run(MS * 100);
        let refused = keys.iter().filter(|key| {
            let part = sites.lab.part(EAST, &group(&sites, key));
            part.is_some_and(|part| part.borrowed.part == LoanPart::Never)
        });
        assert_eq!(refused.count(), 0);
    }
    assert_eq!(held(&sites, &keys).iter().filter(|is_held| **is_held).count(), 3);
    assert_eq!(super::adaptive::moves(&mut sites, WEST), 3);
}
