//! Questions.

use super::loans::{CARS, sites};
use super::*;
use model::{Item, Kind, ScanFilter, Step, limits};

fn site() -> Site {
    let mut site = Site::new();
    for key in ["a:1", "a:2", "b:1", "b:2", "c"] {
        site.write(put(key, key)).unwrap();
    }
    site.write(Write::HashSet { key: "b:h".into(), fields: vec![("f".into(), "v".into())] })
        .unwrap();
    site
}

struct Scan {
    from: &'static str,
    until: Option<&'static str>,
    examine_max: usize,
    glob: Option<&'static str>,
    kind: Option<Kind>,
    with_values: bool,
}

const ALL: Scan =
    Scan { from: "", until: None, examine_max: 100, glob: None, kind: None, with_values: false };

fn scan(site: &Site, scan: Scan) -> (Vec<Item>, Option<Bytes>) {
    let query = Query::Scan {
        from: scan.from.into(),
        until: scan.until.map(Bytes::from),
        examine_max: scan.examine_max,
        filter: ScanFilter { glob: scan.glob.map(Bytes::from), kind: scan.kind },
        with_values: scan.with_values,
    };
    match site.ask(query).unwrap() {
        Answer::Page { items, next } => (items, next),
        other => panic!("{other:?}"),
    }
}

fn keys(items: &[Item]) -> Vec<&str> {
    items.iter().map(|item| std::str::from_utf8(&item.key).unwrap()).collect()
}

#[test]
fn a_scan_shows_all_keys_in_order() {
    let (items, next) = scan(&site(), ALL);
    assert_eq!(keys(&items), ["a:1", "a:2", "b:1", "b:2", "b:h", "c"]);
    assert_eq!(next, None);
    assert!(items.iter().all(|item| item.value.is_none()));
}

#[test]
fn pages_join_without_gap_or_repetition() {
    let site = site();
    let mut from = Bytes::new();
    let mut seen = Vec::new();
    loop {
        let filter = ScanFilter::default();
        let query = Query::Scan { from, until: None, examine_max: 4, filter, with_values: false };
        let Ok(Answer::Page { items, next }) = site.ask(query) else { panic!() };
        seen.extend(items);
        match next {
            Some(next) => from = next,
            None => break,
        }
    }
    assert_eq!(keys(&seen), ["a:1", "a:2", "b:1", "b:2", "b:h", "c"]);
}

#[test]
fn a_scan_has_bounds_filters_and_values() {
    let site = site();
    let (items, _) = scan(&site, Scan { from: "a:2", until: Some("b:2"), ..ALL });
    assert_eq!(keys(&items), ["a:2", "b:1"]);
    let (items, _) = scan(&site, Scan { from: "b", until: Some("a"), ..ALL });
    assert!(items.is_empty());
    let (items, next) = scan(&site, Scan { glob: Some("b:?"), examine_max: 2, ..ALL });
    assert_eq!((keys(&items), next.as_deref()), (vec!["b:1", "b:2"], Some(&b"b:h"[..])));
    let (items, next) = scan(&site, Scan { glob: Some("*:1"), examine_max: 2, ..ALL });
    assert_eq!((keys(&items), next.as_deref()), (vec!["a:1"], Some(&b"b:1"[..])));
    let (items, _) = scan(&site, Scan { from: "b:2", glob: Some("b:*"), ..ALL });
    assert_eq!(keys(&items), ["b:2", "b:h"]);
    let (items, next) = scan(&site, Scan { from: "c", glob: Some("b:*"), ..ALL });
    assert_eq!((keys(&items), next), (vec![], None));
    let hashes = Scan { kind: Some(Kind::Hash), with_values: true, ..ALL };
    let (items, _) = scan(&site, hashes);
    assert_eq!((keys(&items), items[0].kind, &items[0].value), (vec!["b:h"], Kind::Hash, &None));
    let (items, _) = scan(&site, Scan { from: "c", with_values: true, ..ALL });
    assert_eq!(items[0].value.as_deref(), Some(&b"c"[..]));
    assert_eq!(items[0].version, Revision(5));
}

#[test]
fn a_page_ends_with_its_bytes() {
    let mut site = Site::new();
    for key in ["a", "b", "c"] {
        let value = Bytes::from(vec![0; limits::SCAN_PAGE_BYTES_MAX / 2 + 1]);
        let (key, condition, expiry) = (key.into(), Condition::Always, Expiry::Never);
        site.write(Write::Put { key, value, condition, expiry, return_old: false }).unwrap();
    }
    let (items, next) = scan(&site, ALL);
    assert_eq!((keys(&items), next.as_deref()), (vec!["a", "b"], Some(&b"c"[..])));
}

#[test]
fn several_keys_are_answered_in_the_order_asked() {
    let site = site();
    let names = || ["c", "x", "b:h", "c"].map(Bytes::from).to_vec();
    let values = site.ask(Query::GetMany { keys: names() });
    assert_eq!(values, Ok(Answer::Values(vec![Some("c".into()), None, None, Some("c".into())])));
    assert_eq!(site.ask(Query::Exists { keys: names() }), Ok(Answer::Integer(3)));
    let versions = [5, 0, 6, 5].map(Revision).to_vec();
    assert_eq!(site.ask(Query::Versions { keys: names() }), Ok(Answer::Versions(versions)));
    assert_eq!(site.ask(Query::Length { key: "a:1".into() }), Ok(Answer::Integer(3)));
    assert_eq!(site.ask(Query::Length { key: "x".into() }), Ok(Answer::Integer(0)));
    let kind = |key: &'static str| site.ask(Query::Kind { key: key.into() });
    assert_eq!(kind("c"), Ok(Answer::Kind(Some(Kind::String))));
    assert_eq!(kind("b:h"), Ok(Answer::Kind(Some(Kind::Hash))));
    assert_eq!(kind("x"), Ok(Answer::Kind(None)));
}

#[test]
fn answers_and_keys_have_a_limit() {
    let mut site = Site::new();
    let value = Bytes::from(vec![0; limits::VALUE_BYTES_MAX]);
    let (key, condition, expiry) = (Bytes::from("k"), Condition::Always, Expiry::Never);
    let put = Write::Put { key: key.clone(), value, condition, expiry, return_old: false };
    site.write(put).unwrap();
    let twice = Query::GetMany { keys: vec![key.clone(), key] };
    assert_eq!(site.ask(twice), Err(Refusal::AnswerTooLong));
    let key = Bytes::from(vec![0; limits::KEY_BYTES_MAX + 1]);
    let refusal = Refusal::KeyTooLong(limits::KEY_BYTES_MAX + 1);
    assert_eq!(site.ask(Query::Get { key }), Err(refusal));
}

fn page(from: &Bytes, until: Option<&Bytes>, glob: Option<&Bytes>) -> Query {
    let filter = ScanFilter { glob: glob.cloned(), kind: None };
    let (from, until) = (from.clone(), until.cloned());
    Query::Scan { from, until, examine_max: 9, filter, with_values: false }
}

#[test]
fn a_scan_takes_no_bound_longer_than_a_key() {
    let mut site = site();
    let (none, long) = (Bytes::new(), Bytes::from(vec![b'b'; 70_000]));
    let refusal = || Err(Refusal::KeyTooLong(70_000));
    assert_eq!(site.ask(page(&long, None, None)), refusal());
    assert_eq!(site.ask(page(&none, Some(&long), None)), refusal());
    // A glob is no key: none matches it.
    let empty = Answer::Page { items: Vec::new(), next: None };
    assert_eq!(site.ask(page(&none, None, Some(&long))), Ok(empty.clone()));
    // The same in a transaction, which every replica applies.
    let read_in = |query| Step::ReadIn { keyspace: SPACE, query };
    let steps = vec![read_in(page(&long, None, None)), read_in(page(&none, None, Some(&long)))];
    let both = Command::Transaction { keyspace: SPACE, guards: vec![], steps, request: None };
    assert_eq!(site.run(both), Ok(Answer::Steps(vec![refusal(), Ok(empty)])));
}

#[test]
fn a_long_key_is_refused_before_its_group_is_looked_for() {
    let (_, b, _) = sites();
    let keys = vec![Bytes::from(vec![b'x'; 70_000]); 2];
    let refusal = || Err(Refusal::KeyTooLong(70_000));
    assert_eq!(b.ask_in(CARS, Query::GetMany { keys: keys.clone() }), refusal());
    assert_eq!(b.ask_in(CARS, Query::Watch { keys }), refusal());
}

#[test]
fn a_reader_goes_on_while_the_machine_does() {
    let mut site = site();
    let reader = site.machine.reader();
    assert_eq!(reader.revision(), Revision(6));
    site.now_ms = 5_000;
    site.write(put("new", "1")).unwrap();
    assert_eq!((reader.revision(), reader.log_time_ms()), (Revision(7), 5_000));
    assert_eq!(reader.count(SPACE).unwrap(), 7);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "readers are on threads of their own")]
fn reads_beside_commits_see_each_entry_whole() {
    let mut site = Site::new();
    let reader = site.machine.reader();
    let is_done = std::sync::atomic::AtomicBool::new(false);
    let number =
        |key: &'static str| match reader.query(SPACE, &Query::Get { key: key.into() }).unwrap() {
            Answer::Value(value) => {
                value.map_or(0, |v| std::str::from_utf8(&v.value).unwrap().parse::<u64>().unwrap())
            }
            other => panic!("{other:?}"),
        };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(std::sync::atomic::Ordering::Relaxed) {
                // Both are put together, so the one read later is never behind.
                let (first, second) = (number("a"), number("b"));
                assert!(first <= second, "{first} then {second}");
            }
        });
        for i in 1..2_000 {
            let value = Bytes::from(i.to_string());
            let pairs = vec![("a".into(), value.clone()), ("b".into(), value)];
            let write = Write::PutMany { pairs, if_all_absent: false };
            let batch = Batch {
                log_time_ms: 1_000,
                commands: vec![Command::Write { keyspace: SPACE, write, request: None }],
            };
            let entry = Committed { index: i, term: 1, batch: Some(&batch), members: None };
            site.machine.apply(&[entry], &mut Vec::new()).unwrap();
        }
        is_done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

#[test]
fn members_and_position_are_kept_with_the_state() {
    let mut site = Site::new();
    assert_eq!(site.machine.members().unwrap(), None);
    let members = Some(Bytes::from("three"));
    let entry = |index| Committed { index, term: 4, batch: None, members: members.clone() };
    site.machine.apply(&[entry(1)], &mut Vec::new()).unwrap();
    site.reopen();
    assert_eq!(site.machine.members().unwrap(), members);
    assert_eq!(site.machine.applied(), super::super::Applied { index: 1, term: 4 });
    let gap = site.machine.apply(&[entry(3)], &mut Vec::new()).unwrap_err();
    assert_eq!(gap.to_string(), "the state has applied the log up to 1; entry 3 cannot be next");
}
