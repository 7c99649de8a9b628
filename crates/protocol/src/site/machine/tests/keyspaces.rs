//! Keyspaces and what becomes of their records.

use super::*;
use model::{Consistency, Keyspace, KeyspaceError, KeyspaceSpec, limits};

fn create(site: &mut Site, name: &str, prefix: &'static str) -> Result<Keyspace, Refusal> {
    let spec = KeyspaceSpec::linearizable_site(name, prefix);
    match site.run(Command::CreateKeyspace(spec))? {
        Answer::Keyspace(keyspace) => Ok(*keyspace),
        other => panic!("{other:?}"),
    }
}

fn drop(site: &mut Site, name: &str) -> Result<Answer, Refusal> {
    site.run(Command::DropKeyspace { name: name.to_string() })
}

#[test]
fn keyspaces_keep_the_same_key_apart() {
    let mut site = Site::new();
    let cars = create(&mut site, "cars", "car:").unwrap();
    assert_eq!(cars.id, KeyspaceId(1));
    site.write(put("k", "default")).unwrap();
    site.write_in(cars.id, put("k", "cars")).unwrap();
    assert_eq!(site.text("k").as_deref(), Some("default"));
    let Ok(Answer::Value(Some(found))) = site.ask_in(cars.id, Query::Get { key: "k".into() })
    else {
        panic!("it was put")
    };
    assert_eq!(&found.value[..], b"cars");
    assert_eq!(site.machine.reader().catalog().of_key(b"car:7").spec.name, "cars");
}

#[test]
fn names_and_prefixes_are_taken_once() {
    let mut site = Site::new();
    create(&mut site, "cars", "car:").unwrap();
    let exists = |name: &str| Refusal::KeyspaceExists { name: name.to_string() };
    assert_eq!(create(&mut site, "cars", "c:"), Err(exists("cars")));
    assert_eq!(create(&mut site, "autos", "car:"), Err(exists("cars")));
    assert_eq!(create(&mut site, "default", "d:"), Err(exists("default")));
    let mut spec = KeyspaceSpec::linearizable_site("own", "o:");
    spec.consistency = Consistency::Causal;
    let refused = site.run(Command::CreateKeyspace(spec));
    assert!(matches!(refused, Err(Refusal::Keyspace(KeyspaceError::NotServed { .. }))));
}

#[test]
fn there_are_only_so_many_keyspaces() {
    let mut site = Site::new();
    let specs = (1..limits::KEYSPACES_MAX).map(|i| {
        Command::CreateKeyspace(KeyspaceSpec::linearizable_site(format!("k{i}"), format!("{i}:")))
    });
    assert!(site.entry(specs.collect()).iter().all(Result::is_ok));
    let refusal = Refusal::TooMany { what: "keyspaces", max: limits::KEYSPACES_MAX };
    assert_eq!(create(&mut site, "more", "more:"), Err(refusal));
}

#[test]
fn ids_are_never_used_again() {
    let mut site = Site::new();
    create(&mut site, "cars", "car:").unwrap();
    drop(&mut site, "cars").unwrap();
    site.reopen();
    assert_eq!(create(&mut site, "cars", "car:").unwrap().id, KeyspaceId(2));
    let gone = site.write_in(KeyspaceId(1), put("k", "v"));
    assert_eq!(gone, Err(Refusal::NoKeyspace("k1".to_string())));
    let gone = site.ask_in(KeyspaceId(1), Query::Get { key: "k".into() });
    assert_eq!(gone, Err(Refusal::NoKeyspace("k1".to_string())));
}

#[test]
fn the_default_keyspace_stays() {
    let mut site = Site::new();
    assert_eq!(drop(&mut site, "default"), Err(Refusal::DefaultKeyspace));
    assert_eq!(drop(&mut site, "cars"), Err(Refusal::NoKeyspace("cars".to_string())));
}

fn fill(site: &mut Site, keyspace: KeyspaceId, count: usize, expiry: Expiry) {
    let puts = (0..count).map(|i| {
        let (key, value) = (Bytes::from(format!("{i:05}")), Bytes::from("v"));
        let condition = Condition::Always;
        let write = Write::Put { key, value, condition, expiry, return_old: false };
        Command::Write { keyspace, write, request: None }
    });
    site.entry(puts.collect());
}

#[test]
fn clearing_is_done_at_once_and_tidied_up_later() {
    let mut site = Site::new();
    let share = limits::GARBAGE_PER_TICK_MAX;
    fill(&mut site, SPACE, 2 * share + 1, Expiry::AtMs(1_000_000));
    let before = site.rows(tables::RECORDS);
    assert!(matches!(site.write(Write::Clear), Ok(Answer::Done(_))));
    assert_eq!(site.count(), 0);
    assert_eq!(site.text("00000"), None);
    assert_eq!(site.rows(tables::RECORDS), before, "nothing was removed yet");
    assert_eq!(site.machine.tick_due_ms(), Some(0));
    site.write(put("new", "v")).unwrap();
    site.tick();
    assert_eq!(site.rows(tables::RECORDS), before + 1 - share);
    site.reopen();
    site.tick();
    site.tick();
    assert_eq!(site.rows(tables::RECORDS), 1);
    assert_eq!((site.rows(tables::EXPIRIES), site.rows(tables::GARBAGE)), (0, 0));
    assert_eq!(site.text("new").as_deref(), Some("v"));
    assert_eq!(site.machine.tick_due_ms(), Some(1_000_000), "as was expected once");
}

#[test]
fn what_expires_after_a_clear_is_of_no_interest() {
    let mut site = Site::new();
    fill(&mut site, SPACE, 10, Expiry::AtMs(2_000));
    site.write(Write::Clear).unwrap();
    let revision = site.machine.revision();
    site.now_ms = 2_000;
    site.entry(vec![]);
    assert_eq!(site.machine.revision(), revision, "nothing that anybody has went");
    assert_eq!(site.rows(tables::EXPIRIES), 0);
    site.tick();
    assert_eq!(site.rows(tables::RECORDS), 0);
}

#[test]
fn an_empty_keyspace_is_cleared_without_garbage() {
    let mut site = Site::new();
    site.write(Write::Clear).unwrap();
    assert_eq!(site.rows(tables::GARBAGE), 0);
}

#[test]
fn all_are_cleared_together() {
    let mut site = Site::new();
    let cars = create(&mut site, "cars", "car:").unwrap().id;
    site.write(put("a", "1")).unwrap();
    site.write_in(cars, put("a", "1")).unwrap();
    assert_eq!(site.run(Command::ClearAll), Ok(Answer::Done(Revision(3))));
    assert_eq!(site.count(), 0);
    assert_eq!(site.ask_in(cars, Query::Count), Ok(Answer::Integer(0)));
    site.tick();
    assert_eq!(site.rows(tables::RECORDS), 0);
}

#[test]
fn a_dropped_keyspace_leaves_nothing_behind() {
    let mut site = Site::new();
    let before = site.rows(tables::KEYSPACES);
    let cars = create(&mut site, "cars", "car:").unwrap().id;
    let name = "watcher".to_string();
    site.run(Command::SetCursor { name, keyspace: cars, position: Revision(0) }).unwrap();
    fill(&mut site, cars, 5, Expiry::AtMs(9_000));
    drop(&mut site, "cars").unwrap();
    site.tick();
    site.tick();
    assert_eq!(site.rows(tables::KEYSPACES), before);
    for table in [
        tables::COUNTS,
        tables::RECORDS,
        tables::EXPIRIES,
        tables::GARBAGE,
        tables::LOGS,
        tables::CURSORS,
        tables::CHANGES,
    ] {
        assert_eq!(site.rows(table), 0, "table {:?}", table as char);
    }
}
