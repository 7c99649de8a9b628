//! Strings, as Redis does them.

use super::*;
use model::{Versioned, limits};

fn get(site: &Site, key: &'static str) -> Option<Versioned> {
    match site.ask(Query::Get { key: key.into() }).unwrap() {
        Answer::Value(value) => value,
        other => panic!("{other:?}"),
    }
}

fn put_old(key: &'static str, value: &'static str, condition: Condition) -> Write {
    let (key, value, expiry) = (key.into(), value.into(), Expiry::Never);
    Write::Put { key, value, condition, expiry, return_old: true }
}

#[test]
fn a_put_is_read_back_with_its_revision_as_version() {
    let mut site = Site::new();
    let answer = site.write(put("a", "1")).unwrap();
    assert_eq!(answer, Answer::Put { applied: true, version: Revision(1), old: None });
    site.write(put("b", "2")).unwrap();
    let expected = Versioned { value: "1".into(), version: Revision(1) };
    assert_eq!(get(&site, "a"), Some(expected));
    assert_eq!(site.version("b"), Revision(2));
    assert_eq!(get(&site, "c"), None);
    assert_eq!(site.count(), 2);
}

#[test]
fn conditions_decide_whether_a_put_is_done() {
    let mut site = Site::new();
    let mut applied =
        |condition| match site.write(put_with("k", "v", condition, Expiry::Never)).unwrap() {
            Answer::Put { applied, version, .. } => (applied, version.0),
            other => panic!("{other:?}"),
        };
    assert_eq!(applied(Condition::IfPresent), (false, 0));
    assert_eq!(applied(Condition::IfVersion(Revision(9))), (false, 0));
    assert_eq!(applied(Condition::IfVersion(Revision(0))), (true, 3));
    assert_eq!(applied(Condition::IfAbsent), (false, 3));
    assert_eq!(applied(Condition::IfVersion(Revision(0))), (false, 3));
    assert_eq!(applied(Condition::IfVersion(Revision(3))), (true, 6));
    assert_eq!(applied(Condition::IfPresent), (true, 7));
}

#[test]
fn two_puts_of_one_entry_have_two_versions() {
    let mut site = Site::new();
    let answers = site.entry(vec![write(put("k", "1")), write(put("k", "2"))]);
    let versions: Vec<_> = answers
        .into_iter()
        .map(|answer| match answer {
            Ok(Answer::Put { version, .. }) => version.0,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(versions, [1, 2]);
}

#[test]
fn the_old_string_comes_back_when_asked_for() {
    let mut site = Site::new();
    site.write(put("k", "old")).unwrap();
    let answer = site.write(put_old("k", "new", Condition::IfAbsent)).unwrap();
    let old = Some("old".into());
    assert_eq!(answer, Answer::Put { applied: false, version: Revision(1), old: old.clone() });
    let answer = site.write(put_old("k", "new", Condition::Always)).unwrap();
    assert_eq!(answer, Answer::Put { applied: true, version: Revision(3), old });
    site.write(Write::HashSet { key: "h".into(), fields: vec![("f".into(), "v".into())] }).unwrap();
    let answer = site.write(put_old("h", "new", Condition::Always));
    assert_eq!(answer, Err(Refusal::WrongType));
    assert!(site.write(put("h", "new")).is_ok(), "a plain put overwrites any kind");
    assert_eq!(site.text("h").as_deref(), Some("new"));
}

#[test]
fn many_are_put_together_or_not_at_all() {
    let mut site = Site::new();
    let pairs = |pairs: &[(&'static str, &'static str)]| -> Vec<(Bytes, Bytes)> {
        pairs.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect()
    };
    let all = pairs(&[("a", "1"), ("b", "2"), ("a", "3")]);
    let put_many = |pairs, if_all_absent| Write::PutMany { pairs, if_all_absent };
    assert_eq!(site.write(put_many(all, false)), Ok(Answer::Flag(true)));
    assert_eq!(site.text("a").as_deref(), Some("3"), "the last of equal keys stays");
    assert_eq!(site.count(), 2);
    let some_new = pairs(&[("c", "1"), ("b", "9")]);
    assert_eq!(site.write(put_many(some_new, true)), Ok(Answer::Flag(false)));
    assert_eq!(site.text("c"), None);
    let all_new = pairs(&[("c", "1"), ("d", "2")]);
    assert_eq!(site.write(put_many(all_new, true)), Ok(Answer::Flag(true)));
    let long =
        vec![("e".into(), "1".into()), (vec![0; limits::KEY_BYTES_MAX + 1].into(), "".into())];
    let refusal = Refusal::KeyTooLong(limits::KEY_BYTES_MAX + 1);
    assert_eq!(site.write(put_many(long, false)), Err(refusal));
    assert_eq!(site.text("e"), None, "what is refused changes nothing");
}

#[test]
fn appending_keeps_the_expiry_and_putting_clears_it() {
    let mut site = Site::new();
    let append = |suffix: &'static str| Write::Append { key: "k".into(), suffix: suffix.into() };
    assert_eq!(site.write(append("ab")), Ok(Answer::Integer(2)));
    site.write(put_with("k", "x", Condition::Always, Expiry::AtMs(9_000))).unwrap();
    assert_eq!(site.write(append("yz")), Ok(Answer::Integer(3)));
    let expiry = |site: &Site| site.ask(Query::Expiry { key: "k".into() }).unwrap();
    assert_eq!(expiry(&site), Answer::Expiry(model::Expiring::AtMs(9_000)));
    site.write(put_with("k", "x", Condition::Always, Expiry::Keep)).unwrap();
    assert_eq!(expiry(&site), Answer::Expiry(model::Expiring::AtMs(9_000)));
    site.write(put("k", "x")).unwrap();
    assert_eq!(expiry(&site), Answer::Expiry(model::Expiring::Never));
}

#[test]
fn adding_follows_redis() {
    let mut site = Site::new();
    let add = |delta| Write::Add { key: "n".into(), delta };
    assert_eq!(site.write(add(5)), Ok(Answer::Integer(5)));
    assert_eq!(site.write(add(-7)), Ok(Answer::Integer(-2)));
    assert_eq!(site.text("n").as_deref(), Some("-2"));
    site.write(put("n", "9223372036854775807")).unwrap();
    assert_eq!(site.write(add(1)), Err(Refusal::Overflow));
    assert_eq!(site.write(add(-1)), Ok(Answer::Integer(i64::MAX - 1)));
    for text in ["", " 1", "+1", "01", "1.5", "9223372036854775808"] {
        site.write(put("n", text)).unwrap();
        assert_eq!(site.write(add(1)), Err(Refusal::NotAnInteger), "{text:?}");
        assert_eq!(site.text("n").as_deref(), Some(text));
    }
}

#[test]
fn deleting_counts_what_was_there() {
    let mut site = Site::new();
    site.write(put("a", "1")).unwrap();
    site.write(put("b", "1")).unwrap();
    let keys = vec!["a".into(), "a".into(), "x".into(), "b".into()];
    assert_eq!(site.write(Write::Delete { keys }), Ok(Answer::Integer(2)));
    assert_eq!(site.count(), 0);
    assert_eq!(site.rows(tables::RECORDS), 0);
}

#[test]
fn a_delete_may_depend_on_the_version() {
    let mut site = Site::new();
    site.write(put("k", "1")).unwrap();
    let delete = |version| Write::DeleteIf { key: "k".into(), version: Revision(version) };
    assert_eq!(site.write(delete(7)), Ok(Answer::Flag(false)));
    assert_eq!(site.write(delete(1)), Ok(Answer::Flag(true)));
    assert_eq!(site.write(delete(0)), Ok(Answer::Flag(false)), "nothing was there to delete");
}

#[test]
fn taking_answers_and_removes() {
    let mut site = Site::new();
    site.write(put("k", "1")).unwrap();
    let take = Write::Take { key: "k".into() };
    let value = Versioned { value: "1".into(), version: Revision(1) };
    assert_eq!(site.write(take.clone()), Ok(Answer::Value(Some(value))));
    assert_eq!(site.write(take), Ok(Answer::Value(None)));
}

#[test]
fn reading_may_set_the_expiry() {
    let mut site = Site::new();
    let read = |expiry| Write::GetAndExpire { key: "k".into(), expiry };
    assert_eq!(site.write(read(Expiry::AfterMs(5))), Ok(Answer::Value(None)));
    site.write(put("k", "1")).unwrap();
    let value = Versioned { value: "1".into(), version: Revision(2) };
    assert_eq!(site.write(read(Expiry::AfterMs(5))), Ok(Answer::Value(Some(value))));
    let expiring = site.ask(Query::Expiry { key: "k".into() });
    assert_eq!(expiring, Ok(Answer::Expiry(model::Expiring::AtMs(1_005))));
    site.write(Write::HashSet { key: "k2".into(), fields: vec![("f".into(), "v".into())] })
        .unwrap();
    let refused = site.write(Write::GetAndExpire { key: "k2".into(), expiry: Expiry::AtMs(1) });
    assert_eq!(refused, Err(Refusal::WrongType));
    assert_eq!(site.count(), 2, "what is refused changes nothing");
}

#[test]
fn a_string_is_no_hash_and_a_long_one_no_value() {
    let mut site = Site::new();
    site.write(put("k", "1")).unwrap();
    let set = Write::HashSet { key: "k".into(), fields: vec![("f".into(), "v".into())] };
    assert_eq!(site.write(set), Err(Refusal::WrongType));
    let value = Bytes::from(vec![0; limits::VALUE_BYTES_MAX + 1]);
    let (key, condition, expiry) = ("k".into(), Condition::Always, Expiry::Never);
    let long = Write::Put { key, value, condition, expiry, return_old: false };
    assert_eq!(site.write(long), Err(Refusal::ValueTooLong(limits::VALUE_BYTES_MAX + 1)));
    let suffix = Bytes::from(vec![0; limits::VALUE_BYTES_MAX]);
    let refusal = Refusal::ValueTooLong(limits::VALUE_BYTES_MAX + 1);
    assert_eq!(site.write(Write::Append { key: "k".into(), suffix }), Err(refusal));
    assert_eq!(site.text("k").as_deref(), Some("1"));
}
