//! Several steps at one moment.

use super::*;
use model::{Expiring, Guard, ReadPoint, Step, Versioned, limits};

fn transaction(guards: Vec<(&'static str, u64)>, steps: Vec<Step>) -> Command {
    let guards = guards
        .into_iter()
        .map(|(key, version)| Guard {
            key: key.into(),
            version: Revision(version),
            absent_since: None,
        })
        .collect();
    Command::Transaction { keyspace: SPACE, guards, steps, request: None }
}

#[test]
fn steps_see_those_before_them_and_a_refused_one_undoes_nothing() {
    let mut site = Site::new();
    let steps = vec![
        Step::Write(put("a", "x")),
        Step::Write(Write::Add { key: "a".into(), delta: 1 }),
        Step::Write(put("b", "1")),
        Step::Read(Query::Get { key: "b".into() }),
        Step::Read(Query::Count),
        Step::Write(Write::Clear),
        Step::Read(Query::Exists { keys: vec!["a".into(), "b".into()] }),
        Step::Write(put("c", "2")),
    ];
    let put_at_1 = Ok(Answer::Put { applied: true, version: Revision(1), old: None });
    let read = Versioned { value: "1".into(), version: Revision(1) };
    let expected = Answer::Steps(vec![
        put_at_1.clone(),
        Err(Refusal::NotAnInteger),
        put_at_1.clone(),
        Ok(Answer::Value(Some(read))),
        Ok(Answer::Integer(2)),
        Ok(Answer::Done(Revision(1))),
        Ok(Answer::Integer(0)),
        put_at_1,
    ]);
    assert_eq!(site.run(transaction(vec![], steps)), Ok(expected));
    assert_eq!(site.text("a"), None);
    assert_eq!(site.text("c").as_deref(), Some("2"));
}

#[test]
fn a_guard_that_fails_stops_all_of_it() {
    let mut site = Site::new();
    site.write(put("a", "1")).unwrap();
    let step = || vec![Step::Write(put("b", "2"))];
    assert_eq!(site.run(transaction(vec![("a", 9)], step())), Ok(Answer::Aborted));
    assert_eq!(site.run(transaction(vec![("a", 1), ("b", 7)], step())), Ok(Answer::Aborted));
    assert_eq!(site.text("b"), None);
    let done = site.run(transaction(vec![("a", 1), ("b", 0)], step()));
    assert!(matches!(done, Ok(Answer::Steps(_))));
    assert_eq!(site.text("b").as_deref(), Some("2"));
}

#[test]
fn a_guard_takes_an_expired_key_for_absent() {
    let mut site = Site::new();
    site.write(put_with("a", "1", Condition::Always, Expiry::AfterMs(5))).unwrap();
    site.now_ms += 5;
    let steps = vec![Step::Read(Query::Expiry { key: "a".into() })];
    let expected = Answer::Steps(vec![Ok(Answer::Expiry(Expiring::Absent))]);
    assert_eq!(site.run(transaction(vec![("a", 0)], steps)), Ok(expected));
}

#[test]
fn a_scan_inside_sees_what_is_not_committed_yet() {
    let mut site = Site::new();
    for key in ["a", "c", "e"] {
        site.write(put(key, "1")).unwrap();
    }
    let scan = Query::Scan {
        from: Bytes::new(),
        until: None,
        examine_max: 3,
        filter: model::ScanFilter::default(),
        with_values: false,
    };
    let steps = vec![
        Step::Write(put("b", "1")),
        Step::Write(Write::Delete { keys: vec!["c".into()] }),
        Step::Write(put("f", "1")),
        Step::Read(scan),
    ];
    let Ok(Answer::Steps(answers)) = site.run(transaction(vec![], steps)) else { panic!() };
    let Some(Ok(Answer::Page { items, next })) = answers.last() else { panic!() };
    let keys: Vec<_> = items.iter().map(|item| &item.key[..]).collect();
    assert_eq!(keys, [b"a", b"b", b"e"]);
    assert_eq!(next.as_deref(), Some(&b"f"[..]));
}

#[test]
fn there_is_a_limit_on_steps_and_on_what_they_answer() {
    let mut site = Site::new();
    let step = Step::Read(Query::Count);
    let refused = site.run(transaction(vec![], vec![step; limits::TRANSACTION_STEPS_MAX + 1]));
    let max = limits::TRANSACTION_STEPS_MAX;
    assert_eq!(refused, Err(Refusal::TooMany { what: "steps of one transaction", max }));

    let value = Bytes::from(vec![0; limits::VALUE_BYTES_MAX]);
    let (condition, expiry) = (Condition::Always, Expiry::Never);
    let put = Write::Put { key: "big".into(), value, condition, expiry, return_old: false };
    site.write(put).unwrap();
    let steps = vec![
        Step::Read(Query::Get { key: "big".into() }),
        Step::Write(Write::Take { key: "big".into() }),
        Step::Read(Query::Exists { keys: vec!["big".into()] }),
    ];
    let Ok(Answer::Steps(answers)) = site.run(transaction(vec![], steps)) else { panic!() };
    assert!(answers[0].is_ok());
    assert_eq!(answers[1], Err(Refusal::AnswerTooLong));
    assert_eq!(answers[2], Ok(Answer::Integer(1)), "what is refused changes nothing");
}

/// What a read of these keys gives for a transaction's guards.
fn watch(site: &mut Site, keys: &[&'static str]) -> Vec<Guard> {
    let names: Vec<Bytes> = keys.iter().map(|key| Bytes::from(*key)).collect();
    let Ok(Answer::Watched { versions, point }) = site.ask(Query::Watch { keys: names.clone() })
    else {
        panic!("a watch returns what it saw")
    };
    let guard = |(key, version)| Guard {
        key,
        version,
        absent_since: (version == Revision(0)).then_some(point),
    };
    names.into_iter().zip(versions).map(guard).collect()
}

/// Whether guards hold now.
fn hold(site: &mut Site, guards: &[Guard]) -> bool {
    let (guards, steps) = (guards.to_vec(), vec![Step::Read(Query::Count)]);
    let command = Command::Transaction { keyspace: SPACE, guards, steps, request: None };
    match site.run(command) {
        Ok(Answer::Steps(_)) => true,
        Ok(Answer::Aborted) => false,
        other => panic!("{other:?}"),
    }
}

fn delete(key: &'static str) -> Write {
    Write::Delete { keys: vec![key.into()] }
}

#[test]
fn a_key_that_was_made_and_removed_meanwhile_is_not_still_absent() {
    let gone = [
        vec![put("k", "1"), delete("k")],
        vec![put("k", "1"), Write::Take { key: "k".into() }],
        vec![put("k", "1"), Write::Clear],
        vec![put_with("k", "1", Condition::Always, Expiry::AtMs(1))],
        vec![
            put("k", "1"),
            Write::SetExpiry {
                key: "k".into(),
                expiry: Expiry::AtMs(1),
                condition: model::ExpiryCondition::Always,
            },
        ],
        vec![
            Write::HashSet { key: "k".into(), fields: vec![("f".into(), "1".into())] },
            Write::HashDelete { key: "k".into(), fields: vec!["f".into()] },
        ],
    ];
    for writes in gone {
        let mut site = Site::new();
        site.write(put("other", "1")).unwrap();
        let guards = watch(&mut site, &["k"]);
        assert!(hold(&mut site, &guards));
        for write in &writes {
            site.write(write.clone()).unwrap();
        }
        assert_eq!(site.text("k"), None);
        assert!(!hold(&mut site, &guards), "{writes:?}");
        site.reopen();
        assert!(!hold(&mut site, &guards), "{writes:?}, after a restart");
        let guards = watch(&mut site, &["k"]);
        assert!(hold(&mut site, &guards), "{writes:?} was before");
    }
}

#[test]
fn a_key_that_expired_meanwhile_is_not_still_absent() {
    let mut site = Site::new();
    let guards = watch(&mut site, &["k"]);
    site.write(put_with("k", "1", Condition::Always, Expiry::AfterMs(5))).unwrap();
    site.now_ms += 5;
    assert!(!hold(&mut site, &guards));
}

#[test]
fn what_others_remove_does_not_disturb_an_absent_key() {
    let mut site = Site::new();
    site.write(put("other", "1")).unwrap();
    site.write(put("k", "1")).unwrap();
    site.write(delete("k")).unwrap();
    let guards = watch(&mut site, &["k"]);
    site.write(put("another", "1")).unwrap();
    site.write(delete("another")).unwrap();
    site.write(delete("k")).unwrap();
    assert!(hold(&mut site, &guards));
    // Nothing was made since the keyspace's last key was seen, so nothing of it was the watched
    // one.
    let guards = watch(&mut site, &["k"]);
    site.write(Write::Clear).unwrap();
    assert!(hold(&mut site, &guards));
}

#[test]
fn a_point_that_the_log_has_not_reached_proves_nothing() {
    let mut site = Site::new();
    let mut guards = watch(&mut site, &["k"]);
    for guard in &mut guards {
        guard.absent_since = Some(ReadPoint { revision: Revision(99), ..ReadPoint::default() });
    }
    assert!(!hold(&mut site, &guards));
}

#[test]
fn what_is_kept_of_removed_keys_does_not_grow_with_removals() {
    let mut site = Site::new();
    let keys: Vec<Bytes> = (0..1_000u32).map(|i| i.to_string().into()).collect();
    let kept = |site: &Site| {
        let rows = dump(site.machine.state()).into_keys();
        rows.filter(|key| key[0] == tables::REMOVALS).count()
    };
    let mut before = None;
    for _ in 0..3 {
        let pairs = keys.iter().map(|key| (key.clone(), Bytes::new())).collect();
        site.write(Write::PutMany { pairs, if_all_absent: false }).unwrap();
        site.write(Write::Delete { keys: keys.clone() }).unwrap();
        let rows = kept(&site);
        assert!((1..=keys.len()).contains(&rows) && before.is_none_or(|before| before == rows));
        before = Some(rows);
    }
}
