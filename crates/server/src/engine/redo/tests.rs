//! Rounds of all sizes, and an owner that is killed in any of their transactions.

use super::super::fake::{Fake, Owner};
use super::*;

/// The rows as the next owner reads them.
fn read(store: &mut Owner) -> (Changes, CutRows) {
    let (mut cut, mut rows) = (CutRows::default(), Changes::new());
    let mut take = |page: Vec<(Bytes, Bytes)>| {
        rows.extend(page.into_iter().map(|(key, value)| (key, Some(value))));
        Ok(())
    };
    cut.read(store, &mut take).unwrap();
    (rows, cut)
}

fn value(seed: u8, bytes: usize) -> Bytes {
    (0..bytes).map(|nth| seed.wrapping_add((nth / 7) as u8)).collect()
}

fn key(nth: usize) -> Bytes {
    format!("key{nth:05}").into()
}

/// Successive rounds; each overwrites and removes some rows of the previous one.
fn rounds() -> Vec<Changes> {
    let many = |seed: u8, count: usize| -> Changes {
        (0..count).map(|nth| (key(nth), Some(value(seed, nth % 90)))).collect()
    };
    let long = |bytes: usize| Some(value(9, bytes));
    let part = limits::ETCD_PART_BYTES_MAX;
    vec![
        many(1, 3),
        many(2, 400),
        // One that fits a transaction with its part, one that does not, and one with a similar key.
        [(key(1), long(limits::ETCD_ROW_BYTES_MAX + 1))].into(),
        [
            (key(1), long(5 * part + 1)),
            (key(2), None),
            (Bytes::from("key00001\0\0"), long(part + 1)),
        ]
        .into(),
        [(key(1), long(2 * part)), (key(3), long(0))].into(),
        (0..300).map(|nth| (key(nth), (nth % 3 == 0).then(|| value(4, 10)))).collect(),
        [(key(1), None), (Bytes::from("key00001\0\0"), Some(value(5, 3)))].into(),
    ]
}

fn apply(model: &mut Changes, round: &Changes) {
    for (key, change) in round {
        match change {
            Some(_) => drop(model.insert(key.clone(), change.clone())),
            None => drop(model.remove(key)),
        }
    }
}

#[test]
fn what_was_flushed_is_read() {
    let fake = Fake::default();
    let mut store = fake.own();
    let (mut cut, mut model) = (CutRows::default(), Changes::new());
    for round in rounds() {
        let mut times = 0;
        flush(&mut store, &mut cut, &round, &mut || times += 1).unwrap();
        assert_eq!(times, 1);
        apply(&mut model, &round);
        let mut next = fake.own();
        recover(&mut next).unwrap();
        let (rows, known) = read(&mut next);
        assert!(rows == model, "{} rows, not {}", rows.len(), model.len());
        assert_eq!(known.0, cut.0);
        store = next;
    }
    // Nothing remains of removed rows, nor of records.
    assert!(fake.names().iter().all(|name| name.starts_with(b"row/")));
}

#[test]
fn a_small_round_is_one_transaction_and_an_empty_one_only_looks() {
    let fake = Fake::default();
    let mut store = fake.own();
    let mut cut = CutRows::default();
    flush(&mut store, &mut cut, &rounds()[0], &mut || {}).unwrap();
    assert_eq!(fake.counts(), (1, 0));
    flush(&mut store, &mut cut, &Changes::new(), &mut || {}).unwrap();
    assert_eq!(fake.counts(), (1, 1));
}

#[test]
fn an_owner_killed_anywhere_leaves_a_round_whole_or_undone() {
    let rounds = rounds();
    for killed in 0..rounds.len() {
        for done in [false, true] {
            for commit in 1.. {
                let fake = Fake::default();
                let mut store = fake.own();
                let (mut cut, mut before) = (CutRows::default(), Changes::new());
                for round in &rounds[..killed] {
                    flush(&mut store, &mut cut, round, &mut || {}).unwrap();
                    apply(&mut before, round);
                }
                let mut after = before.clone();
                apply(&mut after, &rounds[killed]);
                fake.kill_in(commit, done);
                let mut durable = false;
                let ended = flush(&mut store, &mut cut, &rounds[killed], &mut || durable = true);

                // The next owner is killed in its own recovery as often as it takes.
                for attempt in 1.. {
                    let mut next = fake.own();
                    fake.kill_in(attempt, attempt % 2 == 0);
                    match recover(&mut next) {
                        Ok(()) => break,
                        Err(ended) => assert_eq!(ended, Ended::Stopped),
                    }
                }
                let mut next = fake.own();
                let (rows, known) = read(&mut next);
                assert!(rows == after || rows == before && !durable, "round {killed}, {commit}");
                let parts = fake.names().iter().filter(|name| name.starts_with(b"part/")).count();
                assert_eq!(parts, known.0.values().map(|parts| *parts as usize).sum::<usize>());
                assert!(!fake.names().iter().any(|name| name.starts_with(REDO)));
                if ended.is_ok() {
                    break;
                }
            }
        }
    }
}

#[test]
fn an_owner_that_was_replaced_changes_nothing() {
    let fake = Fake::default();
    let (mut old, mut new) = (fake.own(), fake.own());
    for round in rounds() {
        let mut durable = false;
        let ended = flush(&mut old, &mut CutRows::default(), &round, &mut || durable = true);
        assert!(matches!(ended, Err(Ended::Lost(_))) && !durable);
    }
    let ended = flush(&mut old, &mut CutRows::default(), &Changes::new(), &mut || {});
    assert!(matches!(ended, Err(Ended::Lost(_))), "an answer must not leave either");
    assert_eq!(read(&mut new).0, Changes::new());
}

#[test]
fn a_record_that_is_cut_anywhere_is_not_taken_for_another() {
    let round = &rounds()[1];
    let record = encode(round);
    assert_eq!(decode(&record).as_ref(), Some(round));
    for end in 0..record.len() {
        assert_ne!(decode(&record.slice(..end)).as_ref(), Some(round));
    }
}
