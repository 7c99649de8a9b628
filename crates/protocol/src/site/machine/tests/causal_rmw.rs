//! Writes that depend on what they overwrite, in a causal keyspace that lets each site decide.

use super::causal::{A, B, CARTS, three_sites};
use super::*;
use model::{Effect, Guard, KeyspaceSpec, Rmw, Step};

const TALLIES: KeyspaceId = KeyspaceId(2);

/// Two sites with such a keyspace; the first is the root.
fn two_sites() -> [Site; 2] {
    let [mut a, mut b, _] = three_sites();
    let spec = KeyspaceSpec::causal_region("tallies", "t:");
    a.run(Command::CreateKeyspace(KeyspaceSpec { rmw: Rmw::Local, ..spec })).unwrap();
    b.learn(&a.copy_of_registry());
    assert_eq!((a.own(), b.own()), (A, B));
    [a, b]
}

fn add(key: &'static str, delta: i64) -> Write {
    Write::Add { key: key.into(), delta }
}

fn swap(key: &'static str, value: &'static str, condition: Condition) -> Write {
    let (key, value) = (key.into(), value.into());
    Write::Put { key, value, condition, expiry: Expiry::Never, return_old: true }
}

/// The effects of its last write that waits for the order.
fn last_effects(site: &Site) -> Vec<Effect> {
    let after = site.machine.causal().own_ordered();
    site.machine.unordered(after, usize::MAX).unwrap().pop().unwrap().effects
}

fn puts(key: &'static str, value: &'static str) -> Vec<Effect> {
    vec![Effect::Put { key: key.into(), value: value.into() }]
}

#[test]
fn what_comes_of_it_is_an_assignment() {
    let [mut a, _] = two_sites();
    assert_eq!(a.write_in(TALLIES, add("n", 5)), Ok(Answer::Integer(5)));
    assert_eq!(a.write_in(TALLIES, add("n", -7)), Ok(Answer::Integer(-2)));
    let replaces =
        |value: &'static str| vec![Effect::Replace { key: "n".into(), value: value.into() }];
    assert_eq!(last_effects(&a), replaces("-2"));
    let append = Write::Append { key: "n".into(), suffix: "5".into() };
    assert_eq!(a.write_in(TALLIES, append), Ok(Answer::Integer(3)));
    assert_eq!(last_effects(&a), replaces("-25"));
    match a.write_in(TALLIES, swap("n", "x", Condition::IfPresent)) {
        Ok(Answer::Put { applied: true, old: Some(old), .. }) => assert_eq!(old, "-25"),
        other => panic!("{other:?}"),
    }
    assert_eq!(last_effects(&a), puts("n", "x"));
    assert_eq!(a.write_in(TALLIES, add("n", 1)), Err(Refusal::NotAnInteger));
    let before = a.machine.causal().last_revision();
    match a.write_in(TALLIES, swap("n", "y", Condition::IfAbsent)) {
        Ok(Answer::Put { applied: false, old: Some(old), version }) => {
            assert_eq!((old, version), ("x".into(), before));
        }
        other => panic!("{other:?}"),
    }
    let pairs = |key: &'static str| vec![("m".into(), "1".into()), (key.into(), "2".into())];
    let absent = |key| Write::PutMany { pairs: pairs(key), if_all_absent: true };
    assert_eq!(a.write_in(TALLIES, absent("n")), Ok(Answer::Flag(false)));
    let gone = Write::DeleteIf { key: "n".into(), version: Revision(1) };
    assert_eq!(a.write_in(TALLIES, gone), Ok(Answer::Flag(false)));
    let never_there = Write::DeleteIf { key: "z".into(), version: Revision(0) };
    assert_eq!(a.write_in(TALLIES, never_there), Ok(Answer::Flag(false)));
    assert_eq!(a.write_in(TALLIES, Write::Take { key: "z".into() }), Ok(Answer::Value(None)));
    assert_eq!(a.machine.causal().last_revision(), before, "nothing was assigned");
    assert_eq!(a.write_in(TALLIES, absent("o")), Ok(Answer::Flag(true)));
    match a.write_in(TALLIES, Write::Take { key: "n".into() }) {
        Ok(Answer::Value(Some(taken))) => {
            assert_eq!((taken.value, taken.version), ("x".into(), before));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(last_effects(&a), [Effect::Delete { key: "n".into() }]);
}

#[test]
fn fields_are_assigned_one_by_one() {
    let [mut a, _] = two_sites();
    let add = |delta| Write::HashAdd { key: "h".into(), field: "f".into(), delta };
    let absent = |value: &'static str| {
        let (key, field, value) = ("h".into(), "g".into(), value.into());
        Write::HashSetIfAbsent { key, field, value }
    };
    assert_eq!(a.write_in(TALLIES, add(4)), Ok(Answer::Integer(4)));
    assert_eq!(a.write_in(TALLIES, absent("1")), Ok(Answer::Flag(true)));
    assert_eq!(a.write_in(TALLIES, absent("2")), Ok(Answer::Flag(false)));
    assert_eq!(a.write_in(TALLIES, add(4)), Ok(Answer::Integer(8)));
    let set = Effect::SetFields { key: "h".into(), fields: vec![("f".into(), "8".into())] };
    assert_eq!(last_effects(&a), [set], "the other field is not touched");
    a.write_in(TALLIES, put("s", "1")).unwrap();
    let wrong = Write::HashAdd { key: "s".into(), field: "f".into(), delta: 1 };
    assert_eq!(a.write_in(TALLIES, wrong), Err(Refusal::WrongType));
}

#[test]
fn guards_look_at_what_the_site_shows() {
    let [mut a, _] = two_sites();
    a.write_in(TALLIES, put("x", "1")).unwrap();
    let version = a.machine.causal().last_revision();
    let guarded = |value: &'static str| Command::Transaction {
        keyspace: TALLIES,
        guards: vec![Guard { key: "x".into(), version, absent_since: None }],
        steps: vec![Step::Write(put("x", value)), Step::Write(add("n", 1))],
        request: None,
    };
    assert!(matches!(a.run(guarded("2")), Ok(Answer::Steps(_))));
    assert_eq!(last_effects(&a).len(), 2, "one write");
    let last = a.machine.causal().last_revision();
    assert_eq!(a.run(guarded("3")), Ok(Answer::Aborted));
    assert_eq!(a.machine.causal().last_revision(), last);
}

/// Both add to what they show; the addition that is ordered last stays, at both sites.
#[test]
fn of_two_sites_the_one_that_is_ordered_last_stays() {
    let [mut a, mut b] = two_sites();
    a.write_in(TALLIES, add("n", 1)).unwrap();
    b.write_in(TALLIES, add("n", 10)).unwrap();
    super::causal::order(&mut a, &b);
    super::causal::order_own(&mut a);
    a.import_from(&a.twin()).unwrap();
    b.import_from(&a).unwrap();
    for site in [&a, &b] {
        match site.ask_in(TALLIES, Query::Get { key: "n".into() }) {
            Ok(Answer::Value(Some(found))) => assert_eq!(found.value, "1"),
            other => panic!("{other:?}"),
        }
    }
    // What follows counts on from there.
    assert_eq!(b.write_in(TALLIES, add("n", 10)), Ok(Answer::Integer(11)));
    assert_eq!(CARTS, KeyspaceId(1));
}
