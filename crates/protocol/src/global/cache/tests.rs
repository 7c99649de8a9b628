//! What is kept, for how long, and what goes.

use super::*;
use model::{Expiry, KeyspaceSpec, Versioned};

const CARS: KeyspaceId = KeyspaceId(3);

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn cache(setting: Setting) -> Cache {
    let spec = KeyspaceSpec { cache: setting, ..KeyspaceSpec::linearizable_global("cars", "car:") };
    let mut cache = Cache::default();
    cache.follow(&[Keyspace { id: CARS, spec }]);
    cache
}

fn stale() -> Cache {
    cache(Setting::Stale { bytes_max: 1 << 20, age_ms_max: 100 })
}

fn get(key: &str) -> Query {
    Query::Get { key: Bytes::copy_from_slice(key.as_bytes()) }
}

fn at(epoch: u64, version: u64) -> Validator {
    Validator { epoch: Epoch::counted(epoch), version: Revision(version) }
}

fn value(text: &str, version: u64) -> Answer {
    let value = Bytes::copy_from_slice(text.as_bytes());
    Answer::Value(Some(Versioned { value, version: Revision(version) }))
}

fn asked(cache: &mut Cache, query: &Query, since: Duration) -> Asked {
    Asked { place: cache.place(CARS, query).unwrap(), since, turn: cache.turn(), anew: false }
}

fn keep(cache: &mut Cache, query: &Query, validator: Validator, answer: &Answer, since: Duration) {
    let reply = entry::encode_reply(&Ok(answer.clone()));
    let asked = asked(cache, query, since);
    cache.keep(asked, validator, &reply);
}

fn put(key: &str) -> Write {
    Write::Put {
        key: Bytes::copy_from_slice(key.as_bytes()),
        value: Bytes::new(),
        condition: model::Condition::Always,
        expiry: Expiry::Never,
        return_old: false,
    }
}

#[test]
fn a_copy_is_the_answer_while_its_validator_is_the_holders() {
    let mut cache = cache(Setting::Validated { bytes_max: 1 << 20 });
    let (query, answer) = (get("car:1"), value("here", 7));
    keep(&mut cache, &query, at(2, 7), &answer, ms(1));
    let asked = asked(&mut cache, &query, ms(5));
    assert_eq!(cache.known(&asked.place), Some(at(2, 7)));
    assert_eq!(cache.confirmed(&asked, at(2, 7)), Some(answer));
    // The slot was moved, or something was written.
    assert_eq!(cache.confirmed(&asked, at(3, 7)), None);
    assert_eq!(cache.confirmed(&asked, at(2, 8)), None);
    // It is not for stale reads, however young.
    assert_eq!(cache.stale(&asked.place, ms(5)), None);
    let Counted { hits, unchanged, copies, .. } = cache.counted();
    assert_eq!((hits, unchanged, copies), (0, 1, 1));
}

#[test]
fn a_copy_answers_stale_reads_while_it_is_young() {
    let mut cache = stale();
    let (query, answer) = (get("car:1"), value("here", 7));
    keep(&mut cache, &query, at(2, 7), &answer, ms(10));
    let asked = asked(&mut cache, &query, ms(60));
    assert_eq!(cache.stale(&asked.place, ms(110)), Some(answer.clone()));
    assert_eq!(cache.stale(&asked.place, ms(111)), None);
    // The owner confirms that it is still right: as of when it was asked.
    assert_eq!(cache.confirmed(&asked, at(2, 7)), Some(answer.clone()));
    assert_eq!(cache.stale(&asked.place, ms(160)), Some(answer));
    assert_eq!(cache.stale(&asked.place, ms(161)), None);
    assert_eq!(cache.counted().hits, 2);
}

#[test]
fn what_was_written_through_this_node_is_seen_in_its_copies() {
    let mut cache = stale();
    let (query, length) = (get("car:1"), Query::Length { key: "car:1".into() });
    keep(&mut cache, &query, at(2, 7), &value("old", 7), ms(10));
    keep(&mut cache, &length, at(2, 7), &Answer::Integer(3), ms(10));
    keep(&mut cache, &get("car:12"), at(2, 5), &value("other", 5), ms(10));
    // A read is under way when a write goes through; its answer comes afterwards.
    let before = asked(&mut cache, &query, ms(20));
    cache.written(CARS, &put("car:1"));
    assert_eq!(cache.known(&before.place), None);
    assert_eq!(cache.place(CARS, &length).and_then(|place| cache.known(&place)), None);
    let reply = entry::encode_reply(&Ok(value("old", 7)));
    cache.keep(before, at(2, 7), &reply);
    let place = cache.place(CARS, &query).unwrap();
    assert_eq!(cache.stale(&place, ms(31)), None);
    keep(&mut cache, &query, at(2, 8), &value("new", 8), ms(31));
    assert_eq!(cache.stale(&place, ms(32)), Some(value("new", 8)));
    // The neighbour in the order of keys is another key.
    let other = cache.place(CARS, &get("car:12")).unwrap();
    assert_eq!(cache.stale(&other, ms(32)), Some(value("other", 5)));
    let step = Step::Write(Write::Delete { keys: vec!["car:12".into(), "car:1".into()] });
    cache.stepped(CARS, &step);
    assert_eq!(cache.counted().copies, 0);
}

#[test]
fn what_was_used_longest_ago_goes_first() {
    let answer = value(&"x".repeat(1_000), 7);
    let mut cache = cache(Setting::Validated { bytes_max: 4 << 10 });
    for key in ["car:1", "car:2", "car:3"] {
        keep(&mut cache, &get(key), at(2, 7), &answer, ms(1));
    }
    assert_eq!(cache.counted().copies, 3);
    let first = asked(&mut cache, &get("car:1"), ms(2));
    assert!(cache.confirmed(&first, at(2, 7)).is_some());
    keep(&mut cache, &get("car:4"), at(2, 7), &answer, ms(3));
    let is_there = |key: &str| cache.known(&cache.place(CARS, &get(key)).unwrap()).is_some();
    assert_eq!(["car:1", "car:2", "car:3", "car:4"].map(is_there), [true, false, true, true]);
    let Counted { evictions, bytes, .. } = cache.counted();
    assert!(evictions == 1 && bytes <= 4 << 10 && bytes > 3_000, "{bytes}");
    // What is larger than the whole is not kept, and nothing goes for it.
    keep(&mut cache, &get("car:5"), at(2, 7), &value(&"x".repeat(5_000), 7), ms(4));
    assert_eq!(cache.counted().copies, 3);
    // The count of bytes is that of what is there.
    cache.clear(CARS);
    assert_eq!((cache.counted().copies, cache.counted().bytes), (0, 0));
}

#[test]
fn copies_go_with_their_slot_and_their_keyspace() {
    let mut cache = stale();
    let keys = ["car:1", "car:{1}", "car:2"];
    for key in keys {
        keep(&mut cache, &get(key), at(2, 7), &value("v", 7), ms(1));
    }
    cache.drop_slot(Slot::of_key(b"car:{1}"));
    let known = |cache: &Cache, key| cache.known(&cache.place(CARS, &get(key)).unwrap());
    assert_eq!(keys.map(|key| known(&cache, key).is_some()), [true, false, true]);
    // Another setting is another cache.
    let spec = KeyspaceSpec {
        cache: Setting::Validated { bytes_max: 1 << 20 },
        ..KeyspaceSpec::linearizable_global("cars", "car:")
    };
    cache.follow(&[Keyspace { id: CARS, spec }]);
    assert_eq!(cache.counted().copies, 0);
    keep(&mut cache, &get("car:1"), at(2, 7), &value("v", 7), ms(1));
    cache.follow(&[]);
    assert_eq!((cache.counted().copies, cache.place(CARS, &get("car:1"))), (0, None));
}

#[test]
fn only_answers_about_one_key_that_stay_right_are_copied() {
    let key = || Bytes::from_static(b"car:1");
    let cache = stale();
    let copied = |query: Query| cache.place(CARS, &query).is_some();
    assert!(copied(Query::GetMany { keys: vec![key()] }));
    assert!(copied(Query::HashGetAll { key: key() }));
    assert!(!copied(Query::GetMany { keys: vec![key(), key()] }));
    assert!(!copied(Query::Expiry { key: key() }));
    assert!(!copied(Query::Count));
    assert_eq!(cache.place(KeyspaceId(9), &get("car:1")), None);
}

/// The slot was here between the question and its late answer, and its keys were written.
#[test]
fn an_answer_from_before_a_slot_was_here_is_not_kept() {
    let mut cache = stale();
    let query = get("car:1");
    let late = asked(&mut cache, &query, ms(1));
    cache.drop_slot(Slot::of_key(b"car:1"));
    let reply = entry::encode_reply(&Ok(value("old", 7)));
    cache.keep(late, at(2, 7), &reply);
    let place = cache.place(CARS, &query).unwrap();
    assert_eq!(cache.stale(&place, ms(2)), None);
}
