//! What every state engine promises: one suite over all of them, and what is particular to each.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test drives real engines, from several threads"
)]

use model::Bytes;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use storage::state::fjall::{FjallState, Options};
use storage::state::memory::MemoryState;
use storage::state::{Batch, KEY_BYTES_MAX, Read, State, StateError};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

fn fjall(path: &Path) -> FjallState {
    FjallState::open(path, Options::default()).expect("open")
}

/// A state that flushes and compacts all the time.
fn tiny(path: &Path) -> Result<FjallState, StateError> {
    let options = Options {
        memtable_bytes: 16 << 10,
        block_cache_bytes: 64 << 10,
        row_cache_bytes: 64 << 10,
        ..Options::default()
    };
    FjallState::open(path, options)
}

fn scan(
    read: &impl Read,
    from: &[u8],
    until: Option<&[u8]>,
    count_max: usize,
) -> Vec<(Bytes, Bytes)> {
    let mut found = Vec::new();
    read.scan(from, until, &mut |key, value| {
        found.push((key, value));
        found.len() < count_max
    })
    .expect("scan");
    found
}

fn content(read: &impl Read) -> Map {
    let all = scan(read, b"", None, usize::MAX).into_iter();
    all.map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

fn batch(changes: &[(&str, Option<&str>)]) -> Batch {
    let mut batch = Batch::default();
    for (key, value) in changes {
        match value {
            Some(value) => batch.put(key.to_string(), value.to_string()),
            None => batch.remove(key.to_string()),
        }
    }
    batch
}

fn suite(state: &impl State) {
    assert_eq!(state.get(b"a").expect("get"), None);
    assert_eq!(content(state), Map::new());
    state.commit(Batch::default()).expect("an empty batch");

    // Later changes of one batch win.
    state
        .commit(batch(&[
            ("a", Some("1")),
            ("b", Some("2")),
            ("a", Some("3")),
            ("c", Some("4")),
            ("c", None),
            ("d", None),
            ("d", Some("")),
        ]))
        .expect("commit");
    let get = |key: &str| state.get(key.as_bytes()).expect("get");
    assert_eq!(get("a").as_deref(), Some(&b"3"[..]));
    assert_eq!(get("b").as_deref(), Some(&b"2"[..]));
    assert_eq!(get("c"), None);
    assert_eq!(get("d").as_deref(), Some(&b""[..]));

    // A view stays as it is.
    let view = state.view();
    state.commit(batch(&[("a", None), ("b", Some("9")), ("e", Some("5"))])).expect("commit");
    assert_eq!(view.get(b"a").expect("get").as_deref(), Some(&b"3"[..]));
    assert_eq!(view.get(b"e").expect("get"), None);
    let keys =
        |found: Vec<(Bytes, Bytes)>| found.into_iter().map(|(key, _)| key).collect::<Vec<_>>();
    assert_eq!(keys(scan(&view, b"", None, 9)), ["a", "b", "d"]);
    assert_eq!(keys(scan(state, b"", None, 9)), ["b", "d", "e"]);

    // The ends of a range, and stopping.
    assert_eq!(keys(scan(state, b"b", Some(b"e"), 9)), ["b", "d"]);
    assert_eq!(keys(scan(state, b"b\0", Some(b"e\0"), 9)), ["d", "e"]);
    assert_eq!(keys(scan(state, b"", None, 1)), ["b"]);
    assert_eq!(keys(scan(state, b"x", None, 9)), [""; 0]);
    assert_eq!(keys(scan(state, b"e", Some(b"b"), 9)), [""; 0]);
    assert_eq!(keys(scan(state, b"b", Some(b"b"), 9)), [""; 0]);

    // Another handle is the same state, on another thread too.
    let other = state.clone();
    std::thread::scope(|scope| {
        scope.spawn(move || other.commit(batch(&[("f", Some("6"))])).expect("commit"));
    });
    assert_eq!(get("f").as_deref(), Some(&b"6"[..]));
    assert!(state.size_bytes() > 0);

    // Long keys, long values, and order by bytes.
    let long_key = vec![0xFF; KEY_BYTES_MAX];
    let long_value = vec![7; 3 << 20];
    let mut long = Batch::default();
    long.put(long_key.clone(), long_value.clone());
    long.put(vec![0], vec![0]);
    state.commit(long).expect("commit");
    assert_eq!(state.get(&long_key).expect("get").as_deref(), Some(&long_value[..]));
    assert_eq!(keys(scan(state, b"", None, 2)), [&b"\0"[..], b"b"]);
    assert_eq!(keys(scan(state, b"g", None, 2)), [long_key]);

    state.clear().expect("clear");
    assert_eq!(content(state), Map::new());
    assert_eq!(state.get(b"b").expect("get"), None);
    state.commit(batch(&[("z", Some("1"))])).expect("commit");
    assert_eq!(keys(scan(state, b"", None, 9)), ["z"]);
}

#[test]
fn memory_passes_the_suite() {
    suite(&MemoryState::new());
}

#[test]
fn fjall_passes_the_suite() {
    let folder = tempfile::tempdir().expect("a folder");
    suite(&fjall(folder.path()));
    // What was left is found again, and passes again.
    let state = fjall(folder.path());
    assert_eq!(scan(&state, b"", None, 9).len(), 1);
    state.clear().expect("clear");
    suite(&state);
}

#[test]
fn a_key_longer_than_any_is_absent_and_bounds_a_scan() {
    let folder = tempfile::tempdir().expect("a folder");
    let state = fjall(folder.path());
    longer_than_any(&MemoryState::new(), || {});
    // From the changes that wait in memory, and from the tree.
    longer_than_any(&state, || {});
    longer_than_any(&state, || state.flush().expect("flush"));
    drop(state);
    assert_eq!(scan(&fjall(folder.path()), b"", None, 9).len(), 3, "it is not damaged");
}

fn longer_than_any(state: &impl State, settle: impl Fn()) {
    let longest = vec![b'm'; KEY_BYTES_MAX];
    let longer = vec![b'm'; KEY_BYTES_MAX + 2];
    let between = &longer[..KEY_BYTES_MAX + 1];
    let mut all = Batch::default();
    for key in [&b"a"[..], &longest, b"z"] {
        all.put(key.to_vec(), b"1".to_vec());
    }
    state.commit(all).expect("commit");
    settle();

    assert_eq!(state.get(&longer).expect("get"), None);
    assert_eq!(state.now().get(&longer).expect("get"), None);
    assert_eq!(state.view().get(&longer).expect("get"), None);
    let keys = |from: &[u8], until: Option<&[u8]>| -> Vec<Bytes> {
        scan(state, from, until, 9).into_iter().map(|(key, _)| key).collect()
    };
    assert_eq!(keys(&longer, None), ["z"]);
    assert_eq!(keys(&longer, Some(b"z")), [""; 0]);
    assert_eq!(keys(b"", Some(&longer)), [&b"a"[..], &longest]);
    assert_eq!(keys(&longest, Some(&longer)), [&longest]);
    assert_eq!(keys(between, Some(&longer)), [""; 0]);
    assert_eq!(keys(&longer, Some(between)), [""; 0]);
}

/// What is seen is the same whether changes wait in memory, are on their way to the tree, or there.
#[test]
fn the_way_of_a_change_cannot_be_seen() {
    let folder = tempfile::tempdir().expect("a folder");
    let state = fjall(folder.path());
    let mut expected = Map::new();
    for round in 0..6_u16 {
        let mut batch = Batch::default();
        for number in (round..3_000).step_by(usize::from(round) + 1) {
            let key = format!("key {number:04}").into_bytes();
            match (number + round) % 5 {
                0 => {
                    expected.remove(&key);
                    batch.remove(key);
                }
                _ => {
                    expected.insert(key.clone(), round.to_be_bytes().to_vec());
                    batch.put(key, round.to_be_bytes().to_vec());
                }
            }
        }
        state.commit(batch).expect("commit");
        if round == 2 {
            state.flush().expect("flush");
        }
        let from = format!("key {:04}", round * 100).into_bytes();
        let page = scan(&state.now(), &from, None, 50);
        let wanted = expected.range(from..).take(50);
        assert!(
            page.iter().map(|(k, v)| (&k[..], &v[..])).eq(wanted.map(|(k, v)| (&k[..], &v[..])))
        );
        assert_eq!(content(&state.view()), expected, "round {round}");
        for (key, value) in expected.iter().step_by(7) {
            assert_eq!(state.now().get(key).expect("get").as_deref(), Some(&value[..]));
        }
    }
    drop(state);
    assert_eq!(content(&fjall(folder.path())), expected, "a state that is closed keeps everything");
}

#[test]
fn readers_see_each_batch_whole() {
    let folder = tempfile::tempdir().expect("a folder");
    whole_batches(&MemoryState::new());
    whole_batches(&tiny(folder.path()).expect("open"));
}

fn whole_batches(state: &impl State) {
    const ROUNDS: u64 = 300;
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(std::sync::atomic::Ordering::Acquire) {
                    let view = state.view();
                    let found = scan(&view, b"", None, usize::MAX);
                    assert!(found.is_empty() || found.len() == 40);
                    assert!(found.windows(2).all(|pair| pair[0].1 == pair[1].1));
                    let again = scan(&view, b"", None, usize::MAX);
                    assert_eq!(found, again);
                }
            });
        }
        for round in 0..ROUNDS {
            let mut batch = Batch::default();
            for key in 0..40_u8 {
                batch.put(vec![key], vec![round as u8; 100]);
            }
            state.commit(batch).expect("commit");
        }
        done.store(true, std::sync::atomic::Ordering::Release);
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    /// Engines agree with a map, over batches, reopenings and clears.
    #[test]
    fn engines_agree_with_a_map(
        steps in prop::collection::vec(
            prop::collection::vec((0..60_u8, prop::option::of(0..400_usize)), 0..40),
            1..40,
        ),
    ) {
        let folder = tempfile::tempdir().expect("a folder");
        let mut fjall = tiny(folder.path()).expect("open");
        let memory = MemoryState::new();
        let mut map = Map::new();
        for (number, changes) in steps.iter().enumerate() {
            let mut batch = Batch::default();
            for (key, value) in changes {
                let key = vec![b'k', *key];
                match value {
                    Some(len) => {
                        let value = vec![number as u8; *len];
                        map.insert(key.clone(), value.clone());
                        batch.put(key, value);
                    }
                    None => {
                        map.remove(&key);
                        batch.remove(key);
                    }
                }
            }
            fjall.commit(batch.clone()).expect("commit");
            memory.commit(batch).expect("commit");
            match number % 13 {
                5 => {
                    drop(fjall);
                    fjall = tiny(folder.path()).expect("reopen");
                }
                11 => {
                    fjall.clear().expect("clear");
                    memory.clear().expect("clear");
                    map.clear();
                }
                _ => {}
            }
            prop_assert_eq!(content(&fjall), map.clone());
            prop_assert_eq!(content(&memory), map.clone());
        }
    }
}

#[test]
fn memory_loses_what_was_not_persisted() {
    let state = MemoryState::new();
    state.commit(batch(&[("a", Some("1"))])).expect("commit");
    state.persist();
    state.commit(batch(&[("a", Some("2")), ("b", Some("3"))])).expect("commit");
    let size = state.size_bytes();
    state.crash();
    assert_eq!(content(&state).len(), 1);
    assert_eq!(state.get(b"a").expect("get").as_deref(), Some(&b"1"[..]));
    assert!(state.size_bytes() < size);
}

#[test]
fn damaged_memory_refuses_until_it_is_cleared() {
    let state = MemoryState::new();
    state.damage("a test asks for that");
    assert!(matches!(state.get(b"a"), Err(StateError::Damaged { .. })));
    assert!(matches!(state.commit(Batch::default()), Err(StateError::Damaged { .. })));
    state.clear().expect("clear");
    assert_eq!(state.get(b"a").expect("get"), None);
}

#[test]
fn a_second_handle_to_the_files_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let _held = fjall(folder.path());
    let second = FjallState::open(folder.path(), Options::default());
    let error = second.expect_err("it is locked");
    assert!(error.to_string().contains("has it open"), "{error}");
}

#[test]
fn an_opening_that_did_not_end_is_reported_until_the_state_is_removed() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("state");
    fjall(&path).commit(batch(&[("a", Some("1"))])).expect("commit");
    std::fs::write(folder.path().join("state.rebuild"), "a power cut").expect("write");
    for _ in 0..2 {
        let error = tiny(&path).expect_err("it must be rebuilt");
        assert!(matches!(&error, StateError::Damaged { cause, .. } if cause == "a power cut"));
    }
    FjallState::remove(&path).expect("remove");
    assert_eq!(content(&tiny(&path).expect("open")), Map::new());
}

/// The engine's list of files is durable at once, its journal is not: a clear that is visible in
/// the first one only brought the journal's batches back over nothing.
#[test]
fn a_clear_outlives_a_kill() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("state");
    let state = tiny(&path).expect("open");
    for number in 0..20_u8 {
        let mut batch = Batch::default();
        batch.put("applied", vec![number]);
        batch.put(vec![b'k', number], vec![number; 100]);
        state.commit(batch).expect("commit");
    }
    state.flush().expect("flush");
    state.clear().expect("clear");
    // What a kill leaves: nothing is closed.
    let left = folder.path().join("left");
    copy(&path, &left);
    assert_eq!(content(&tiny(&left).expect("open")), Map::new());
}

/// Batches of values that do not compress, so that most of a file is blocks of them.
fn batches() -> impl FnMut(u8) -> Batch {
    let mut random = 1_u64;
    let mut value = move || {
        let next = |_| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            random.to_be_bytes()[0]
        };
        (0..100).map(next).collect::<Vec<u8>>()
    };
    move |number| {
        let mut batch = Batch::default();
        for key in 0..10_u8 {
            batch.put(vec![b'k', number, key], value());
        }
        batch
    }
}

/// Damages a block of values in every sorted file of a state.
fn damage_tables(path: &Path) {
    let tables = files(&path.join("keyspaces"));
    let is_table = |file: &&PathBuf| file.parent().is_some_and(|at| at.ends_with("tables"));
    let mut damaged = 0;
    for table in tables.iter().filter(is_table) {
        let mut bytes = std::fs::read(table).expect("read");
        if bytes.len() > 10_000 {
            bytes[1_000] ^= 0x41;
            std::fs::write(table, bytes).expect("write");
            damaged += 1;
        }
    }
    assert!(damaged > 0, "no sorted file of values in {:?}", files(path));
}

/// An opening reads no block of values. The read that finds one damaged fails, and so does every
/// opening after it.
#[test]
fn damage_that_was_found_once_is_reported_by_every_opening() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("state");
    let state = tiny(&path).expect("open");
    let mut next = batches();
    for number in 0..200_u8 {
        state.commit(next(number)).expect("commit");
    }
    state.flush().expect("flush");
    drop(state);
    damage_tables(&path);

    let state = tiny(&path).expect("no block of values is read at an opening");
    let damage = state.scan(b"", None, &mut |_, _| true).expect_err("a block is damaged");
    assert!(matches!(damage, StateError::Damaged { .. }), "{damage}");
    drop(state);
    let again = tiny(&path).expect_err("it must be rebuilt");
    assert!(matches!(again, StateError::Damaged { .. }), "{again}");
    FjallState::remove(&path).expect("remove");
    assert_eq!(content(&tiny(&path).expect("open")), Map::new());
}

/// The engine's own thread finds it and keeps no cause: calls only report that it has stopped.
#[test]
fn damage_that_compaction_finds_is_reported_by_the_next_opening() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("state");
    let mut next = batches();
    let state = tiny(&path).expect("open");
    for number in 0..200_u8 {
        state.commit(next(number)).expect("commit");
    }
    state.flush().expect("flush");
    drop(state);
    damage_tables(&path);

    let state = tiny(&path).expect("no block of values is read at an opening");
    let ended = (0..5_000_u16).find_map(|number| {
        let written = state.commit(next(number as u8 % 200)).and_then(|()| state.flush());
        written.err()
    });
    assert!(ended.is_some(), "compaction reads every file in time");
    drop(state);
    let again = tiny(&path).expect_err("it must be rebuilt");
    assert!(matches!(again, StateError::Damaged { .. }), "{again}");
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for item in std::fs::read_dir(folder).expect("list") {
        let item = item.expect("item");
        if item.file_type().expect("type").is_dir() {
            found.extend(files(&item.path()));
        } else if item.metadata().expect("metadata").len() > 0 {
            found.push(item.path());
        }
    }
    found.sort();
    found
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("folder");
    for item in std::fs::read_dir(from).expect("list") {
        let item = item.expect("item");
        let target = to.join(item.file_name());
        if item.file_type().expect("type").is_dir() {
            copy(&item.path(), &target);
        } else {
            std::fs::copy(item.path(), target).expect("copy");
        }
    }
}

/// Each file of a database is truncated, and flipped at places all over it. Opening and reading
/// then either reports damage, or shows the state after some number of its batches: never
/// anything else, and never a panic.
#[test]
fn damaged_files_are_found_or_shorten_history() {
    const BATCHES: u8 = 60;
    let folder = tempfile::tempdir().expect("a folder");
    let good = folder.path().join("good");
    let state = tiny(&good).expect("open");
    for number in 1..=BATCHES {
        let mut batch = Batch::default();
        batch.put("applied", vec![number]);
        for key in 0..10_u8 {
            batch.put(vec![b'k', number % 7, key], vec![number; 100]);
        }
        state.commit(batch).expect("commit");
    }
    drop(state);
    let mut histories = vec![Map::new()];
    for number in 1..=BATCHES {
        let mut next = histories[number as usize - 1].clone();
        next.insert(b"applied".to_vec(), vec![number]);
        for key in 0..10_u8 {
            next.insert(vec![b'k', number % 7, key], vec![number; 100]);
        }
        histories.push(next);
    }

    // The journal has room for later at its end, which takes long to copy.
    for file in files(&good).iter().filter(|file| file.extension().is_some()) {
        let bytes = std::fs::read(file).expect("read");
        let used = bytes.iter().rposition(|byte| *byte != 0).map_or(1, |last| last + 1);
        std::fs::write(file, &bytes[..used]).expect("write");
    }

    let control = folder.path().join("control");
    copy(&good, &control);
    assert_eq!(content(&tiny(&control).expect("open")), histories[usize::from(BATCHES)]);

    let mut found_damage = 0;
    let mut shortened = 0;
    for file in files(&good) {
        let bytes = std::fs::read(&file).expect("read");
        let places = (0..bytes.len()).step_by((bytes.len() / 4).max(1));
        for (place, cut) in places.flat_map(|place| [(place, true), (place, false)]) {
            // The engine trusts the lengths in its files: a flipped one may request more memory
            // than there is, which ends a process and no test can catch. The opening after one that
            // did not end reports damage.
            if !cut {
                continue;
            }
            let bad = folder.path().join("bad");
            copy(&good, &bad);
            let mut bytes = bytes.clone();
            if cut {
                bytes.truncate(place);
            } else {
                bytes[place] ^= 0x41;
            }
            let target = bad.join(file.strip_prefix(&good).expect("inside"));
            std::fs::write(&target, bytes).expect("write");
            let outcome = tiny(&bad).and_then(|state| {
                let mut found = Map::new();
                state.scan(b"", None, &mut |key, value| {
                    found.insert(key.to_vec(), value.to_vec());
                    true
                })?;
                for (key, value) in &found {
                    assert_eq!(state.get(key)?.as_deref(), Some(&value[..]));
                }
                Ok(found)
            });
            match outcome {
                Ok(found) => {
                    let applied = found.get(&b"applied"[..]).map_or(0, |number| number[0]);
                    assert_eq!(found, histories[applied as usize], "{target:?} at {place}, {cut}");
                    shortened += u32::from(applied < BATCHES);
                }
                Err(StateError::Damaged { .. }) => found_damage += 1,
                Err(other) => panic!("{target:?} at {place}, {cut}: {other}"),
            }
            FjallState::remove(&bad).expect("remove");
        }
    }
    assert!(found_damage > 5, "{found_damage} found, {shortened} shortened");
}
