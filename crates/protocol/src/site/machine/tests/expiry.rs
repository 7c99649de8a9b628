//! Expiry, by log time.

use super::*;
use model::{Expiring, ExpiryCondition, limits};
use storage::state::State as _;

fn put_for(key: &'static str, ms: u64) -> Write {
    put_with(key, "v", Condition::Always, Expiry::AfterMs(ms))
}

fn set_expiry(expiry: Expiry, condition: ExpiryCondition) -> Write {
    Write::SetExpiry { key: "k".into(), expiry, condition }
}

fn expiring(site: &Site) -> Expiring {
    match site.ask(Query::Expiry { key: "k".into() }).unwrap() {
        Answer::Expiry(expiring) => expiring,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_key_goes_when_log_time_reaches_its_moment() {
    let mut site = Site::new();
    site.write(put_for("k", 100)).unwrap();
    assert_eq!(site.machine.next_expiry_ms(), Some(1_100));
    assert_eq!(site.machine.tick_due_ms(), Some(1_100));
    site.now_ms = 1_099;
    site.tick();
    assert_eq!(site.text("k").as_deref(), Some("v"));
    site.now_ms = 1_100;
    site.tick();
    assert_eq!(site.text("k"), None);
    assert_eq!((site.count(), site.rows(tables::RECORDS)), (0, 0));
    assert_eq!(site.machine.next_expiry_ms(), None);
}

#[test]
fn log_time_never_goes_back() {
    let mut site = Site::new();
    site.now_ms = 5_000;
    site.tick();
    site.now_ms = 3_000;
    site.write(put_for("k", 100)).unwrap();
    assert_eq!(site.machine.log_time_ms(), 5_000);
    assert_eq!(expiring(&site), Expiring::AtMs(5_100));
}

#[test]
fn an_expired_key_is_absent_before_it_is_removed() {
    let mut site = Site::new();
    let many = limits::EXPIRED_PER_ENTRY_MAX + 10;
    let puts = (0..many).map(|i| {
        let (key, value) = (Bytes::from(format!("{i:05}")), Bytes::from("v"));
        let (condition, expiry) = (Condition::Always, Expiry::AtMs(2_000));
        write(Write::Put { key, value, condition, expiry, return_old: false })
    });
    site.entry(puts.collect());
    site.now_ms = 2_000;
    site.tick();
    assert_eq!(site.count(), 10, "an entry removes its share");
    assert_eq!(site.machine.tick_due_ms(), Some(2_000), "there is more to do");
    let last = Bytes::from(format!("{:05}", many - 1));
    assert_eq!(site.ask(Query::Get { key: last.clone() }), Ok(Answer::Value(None)));
    let exists = Query::Exists { keys: vec![last.clone(), last.clone()] };
    assert_eq!(site.ask(exists), Ok(Answer::Integer(0)));
    let scan = Query::Scan {
        from: Bytes::new(),
        until: None,
        examine_max: 100,
        filter: model::ScanFilter::default(),
        with_values: false,
    };
    assert_eq!(site.ask(scan), Ok(Answer::Page { items: vec![], next: None }));
    site.tick();
    assert_eq!(site.count(), 0);
    assert_eq!(site.machine.tick_due_ms(), None);
}

#[test]
fn a_write_finds_an_expired_key_absent() {
    let mut site = Site::new();
    // More than one entry removes lie before it.
    let puts = (0..limits::EXPIRED_PER_ENTRY_MAX).map(|i| {
        let (key, value) = (Bytes::from(format!("{i:05}")), Bytes::from("v"));
        let (condition, expiry) = (Condition::Always, Expiry::AtMs(1_500));
        write(Write::Put { key, value, condition, expiry, return_old: false })
    });
    site.entry(puts.collect());
    site.write(put_with("k", "7", Condition::Always, Expiry::AtMs(1_600))).unwrap();
    site.now_ms = 2_000;
    let answer = site.write(Write::Add { key: "k".into(), delta: 1 });
    assert_eq!(answer, Ok(Answer::Integer(1)), "it starts from nothing");
    assert_eq!(expiring(&site), Expiring::Never);
    assert_eq!(site.count(), 1);
}

#[test]
fn a_new_expiry_replaces_the_old_one() {
    let mut site = Site::new();
    site.write(put_for("k", 100)).unwrap();
    let answer = site.write(set_expiry(Expiry::AfterMs(500), ExpiryCondition::Always));
    assert_eq!(answer, Ok(Answer::Flag(true)));
    assert_eq!(site.rows(tables::EXPIRIES), 1);
    site.now_ms = 1_200;
    site.tick();
    assert_eq!(site.text("k").as_deref(), Some("v"));
    assert_eq!(site.machine.next_expiry_ms(), Some(1_500));
}

#[test]
fn persisting_clears_the_expiry_once() {
    let mut site = Site::new();
    site.write(put_for("k", 100)).unwrap();
    let persist = set_expiry(Expiry::Never, ExpiryCondition::Always);
    assert_eq!(site.write(persist.clone()), Ok(Answer::Flag(true)));
    assert_eq!(site.write(persist), Ok(Answer::Flag(false)));
    assert_eq!(expiring(&site), Expiring::Never);
    site.now_ms = 9_000;
    site.tick();
    assert_eq!(site.text("k").as_deref(), Some("v"));
}

#[test]
fn a_moment_that_has_passed_deletes() {
    let mut site = Site::new();
    site.write(put("k", "v")).unwrap();
    let answer = site.write(set_expiry(Expiry::AtMs(1_000), ExpiryCondition::Always));
    assert_eq!(answer, Ok(Answer::Flag(true)));
    assert_eq!(expiring(&site), Expiring::Absent);
    site.write(put("k", "v")).unwrap();
    let answer = site.write(put_with("k", "w", Condition::Always, Expiry::AtMs(1)));
    assert_eq!(answer, Ok(Answer::Put { applied: true, version: Revision(0), old: None }));
    assert_eq!(site.count(), 0);
}

#[test]
fn conditions_of_an_expiry_follow_redis() {
    use ExpiryCondition::*;
    let cases = [
        // The key's expiry, the condition, and whether 2,000 is then set.
        (None, IfNone, true),
        (Some(1_500), IfNone, false),
        (None, IfSome, false),
        (Some(1_500), IfSome, true),
        (None, IfLater, false),
        (Some(1_500), IfLater, true),
        (Some(2_500), IfLater, false),
        (Some(2_000), IfLater, false),
        (None, IfEarlier, true),
        (Some(2_500), IfEarlier, true),
        (Some(1_500), IfEarlier, false),
        (Some(2_000), IfEarlier, false),
    ];
    for (before, condition, is_set) in cases {
        let mut site = Site::new();
        let expiry = before.map_or(Expiry::Never, Expiry::AtMs);
        site.write(put_with("k", "v", Condition::Always, expiry)).unwrap();
        let answer = site.write(set_expiry(Expiry::AtMs(2_000), condition));
        assert_eq!(answer, Ok(Answer::Flag(is_set)), "{before:?} {condition:?}");
        let after = if is_set { Some(2_000) } else { before };
        assert_eq!(expiring(&site), after.map_or(Expiring::Never, Expiring::AtMs));
    }
}

#[test]
fn an_absent_key_has_no_expiry_to_set() {
    let mut site = Site::new();
    let answer = site.write(set_expiry(Expiry::AfterMs(5), ExpiryCondition::Always));
    assert_eq!(answer, Ok(Answer::Flag(false)));
    assert_eq!(expiring(&site), Expiring::Absent);
}

#[test]
fn the_next_expiry_is_found_again_after_a_restart() {
    let mut site = Site::new();
    site.write(put_for("k", 300)).unwrap();
    site.write(put_for("j", 200)).unwrap();
    site.reopen();
    assert_eq!(site.machine.next_expiry_ms(), Some(1_200));
}

#[test]
fn a_state_of_before_expiring_keys_were_counted_is_counted_when_it_is_opened() {
    let mut site = Site::new();
    for key in ["a", "b", "c"] {
        site.write(put_with(key, "1", Condition::Always, Expiry::AfterMs(1_000))).unwrap();
    }
    site.write(put("d", "1")).unwrap();
    site.write(put("a", "2")).unwrap();
    assert_eq!(site.machine.reader().expiring_count(SPACE).unwrap(), 2);
    let mut batch = storage::state::Batch::default();
    let generations = dump(site.machine.state()).into_keys();
    generations.filter(|key| key[0] == tables::EXPIRING).for_each(|key| batch.remove(key));
    site.machine.state().commit(batch).unwrap();
    site.machine = Machine::open(site.machine.state().clone()).unwrap();
    site.write(Write::Delete { keys: vec!["b".into()] }).unwrap();
    assert_eq!(site.machine.reader().expiring_count(SPACE).unwrap(), 1);
}

#[test]
fn who_asks_so_is_not_shown_what_is_due() {
    let mut site = Site::new();
    site.write(put_with("k", "v", Condition::Always, Expiry::AtMs(5_000))).unwrap();
    site.write(put("l", "v")).unwrap();
    let key = || vec![Bytes::from_static(b"k")];
    let scan = Query::Scan {
        from: Bytes::new(),
        until: None,
        examine_max: 10,
        filter: model::ScanFilter::default(),
        with_values: false,
    };
    let queries = [
        Query::Get { key: "k".into() },
        Query::GetMany { keys: vec!["l".into(), "k".into()] },
        Query::Exists { keys: key() },
        Query::Expiry { key: "k".into() },
        Query::Versions { keys: key() },
        Query::Watch { keys: key() },
        Query::Count,
        scan,
    ];
    let ask = |site: &Site, query: &Query, by_ms: u64| {
        site.machine.reader().query_by(SPACE, query, Some(&|| by_ms))
    };
    for query in &queries {
        assert!(ask(&site, query, 4_999).is_ok(), "{query:?}");
        assert!(matches!(ask(&site, query, 5_000), Err(Stopped::Due(5_000))), "{query:?}");
        assert!(site.ask(query.clone()).is_ok(), "a stale read does not wait");
    }
    assert!(ask(&site, &Query::Get { key: "l".into() }, 9_000).is_ok());
    site.now_ms = 5_000;
    site.tick();
    for query in &queries {
        assert!(ask(&site, query, 9_000).is_ok(), "{query:?}");
    }
}
