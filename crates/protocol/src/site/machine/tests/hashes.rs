//! Hashes, as Redis does them.

use super::*;
use model::{Expiring, ExpiryCondition};

fn set(fields: &[(&'static str, &'static str)]) -> Write {
    let fields = fields.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    Write::HashSet { key: "h".into(), fields }
}

fn delete(names: &[&'static str]) -> Write {
    Write::HashDelete { key: "h".into(), fields: names.iter().map(|n| (*n).into()).collect() }
}

fn all(site: &Site) -> Vec<(String, String)> {
    let text = |bytes: Bytes| String::from_utf8(bytes.to_vec()).unwrap();
    match site.ask(Query::HashGetAll { key: "h".into() }).unwrap() {
        Answer::Fields(fields) => fields.into_iter().map(|(n, v)| (text(n), text(v))).collect(),
        other => panic!("{other:?}"),
    }
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
}

#[test]
fn setting_counts_new_fields_and_orders_all() {
    let mut site = Site::new();
    assert_eq!(site.write(set(&[("b", "1"), ("d", "2"), ("b", "3")])), Ok(Answer::Integer(2)));
    assert_eq!(site.write(set(&[("e", "5"), ("a", "0"), ("d", "4")])), Ok(Answer::Integer(2)));
    assert_eq!(all(&site), pairs(&[("a", "0"), ("b", "3"), ("d", "4"), ("e", "5")]));
    assert_eq!(site.ask(Query::HashLen { key: "h".into() }), Ok(Answer::Integer(4)));
    assert_eq!(site.count(), 1);
}

#[test]
fn setting_nothing_makes_no_hash() {
    let mut site = Site::new();
    assert_eq!(site.write(set(&[])), Ok(Answer::Integer(0)));
    assert_eq!(site.count(), 0);
}

#[test]
fn fields_are_read_singly_and_together() {
    let mut site = Site::new();
    site.write(set(&[("a", "1"), ("c", "")])).unwrap();
    let get = |field: &'static str| match site
        .ask(Query::HashGet { key: "h".into(), field: field.into() })
        .unwrap()
    {
        Answer::Value(value) => value.map(|v| (v.value, v.version.0)),
        other => panic!("{other:?}"),
    };
    assert_eq!(get("a"), Some(("1".into(), 1)));
    assert_eq!(get("c"), Some(("".into(), 1)));
    assert_eq!(get("b"), None);
    let fields = ["c", "b", "a", "c"].map(Bytes::from).to_vec();
    let values = site.ask(Query::HashGetMany { key: "h".into(), fields }).unwrap();
    let expected = vec![Some("".into()), None, Some("1".into()), Some("".into())];
    assert_eq!(values, Answer::Values(expected));
    let exists = |field: &'static str| Query::HashExists { key: "h".into(), field: field.into() };
    assert_eq!(site.ask(exists("a")), Ok(Answer::Flag(true)));
    assert_eq!(site.ask(exists("b")), Ok(Answer::Flag(false)));
}

#[test]
fn a_field_is_set_only_if_absent() {
    let mut site = Site::new();
    let mut set_if = |value: &'static str| {
        let (key, field, value) = ("h".into(), "f".into(), value.into());
        site.write(Write::HashSetIfAbsent { key, field, value })
    };
    assert_eq!(set_if("1"), Ok(Answer::Flag(true)));
    assert_eq!(set_if("2"), Ok(Answer::Flag(false)));
    assert_eq!(all(&site), pairs(&[("f", "1")]));
}

#[test]
fn a_hash_goes_with_its_last_field() {
    let mut site = Site::new();
    site.write(set(&[("a", "1"), ("b", "2"), ("c", "3")])).unwrap();
    assert_eq!(site.write(delete(&["a", "x", "a"])), Ok(Answer::Integer(1)));
    assert_eq!(site.write(delete(&["b", "c"])), Ok(Answer::Integer(2)));
    assert_eq!(site.ask(Query::Kind { key: "h".into() }), Ok(Answer::Kind(None)));
    assert_eq!(site.count(), 0);
    assert_eq!(site.write(delete(&["a"])), Ok(Answer::Integer(0)));
}

#[test]
fn a_hash_that_expires_may_lose_its_last_field() {
    let mut site = Site::new();
    site.write(set(&[("a", "1")])).unwrap();
    let (expiry, condition) = (Expiry::AfterMs(100), ExpiryCondition::Always);
    site.write(Write::SetExpiry { key: "h".into(), expiry, condition }).unwrap();
    site.write(set(&[("b", "1")])).unwrap();
    let expiring = site.ask(Query::Expiry { key: "h".into() });
    assert_eq!(expiring, Ok(Answer::Expiry(Expiring::AtMs(1_100))), "a set keeps it");
    assert_eq!(site.write(delete(&["a", "b"])), Ok(Answer::Integer(2)));
    assert_eq!(site.rows(tables::EXPIRIES), 0);
}

#[test]
fn adding_to_a_field_follows_redis() {
    let mut site = Site::new();
    let add = |delta| Write::HashAdd { key: "h".into(), field: "n".into(), delta };
    assert_eq!(site.write(add(3)), Ok(Answer::Integer(3)));
    assert_eq!(site.write(add(-4)), Ok(Answer::Integer(-1)));
    site.write(set(&[("n", "9223372036854775807")])).unwrap();
    assert_eq!(site.write(add(1)), Err(Refusal::Overflow));
    site.write(set(&[("n", "x")])).unwrap();
    assert_eq!(site.write(add(1)), Err(Refusal::NotAnInteger));
    assert_eq!(all(&site), pairs(&[("n", "x")]));
}

#[test]
fn a_hash_is_no_string() {
    let mut site = Site::new();
    site.write(set(&[("a", "1")])).unwrap();
    assert_eq!(site.ask(Query::Get { key: "h".into() }), Err(Refusal::WrongType));
    assert_eq!(site.ask(Query::Length { key: "h".into() }), Err(Refusal::WrongType));
    let many = site.ask(Query::GetMany { keys: vec!["h".into()] });
    assert_eq!(many, Ok(Answer::Values(vec![None])), "but only absent to MGET");
    assert_eq!(site.write(Write::Add { key: "h".into(), delta: 1 }), Err(Refusal::WrongType));
    assert_eq!(site.write(Write::Take { key: "h".into() }), Err(Refusal::WrongType));
    let append = Write::Append { key: "h".into(), suffix: "x".into() };
    assert_eq!(site.write(append), Err(Refusal::WrongType));
}
