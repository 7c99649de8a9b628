//! The guarantee of the log on a failing disk.
//!
//! Whatever fails, after another opening the log holds everything that was synced, in
//! the order written, then perhaps more of what was written, and nothing else; or opening
//! fails with the place of the damage.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test drives real engines, from several threads"
)]

mod life;

use life::{Life, Model, Step, folder, open};
use model::Bytes;
use proptest::prelude::*;
use std::path::{Path, PathBuf};
use storage::disk::Disk;
use storage::disk::memory::{Fault, MemoryDisk, Survival};
use storage::log::{Append, Entry, HardState, LogError, LogReader, LogStart, LogWriter};

/// A life with something of everything.
fn script() -> Vec<Step> {
    let append =
        |entries, len, replaces| Step::Append { entries, len, replaces, hard_state: len % 2 == 0 };
    vec![
        append(1, 40, 0),
        Step::Sync,
        append(3, 101, 0),
        append(2, 50, 0),
        Step::Sync,
        append(0, 2, 0),
        append(4, 200, 0),
        Step::Sync,
        append(2, 60, 3),
        Step::Sync,
        append(6, 190, 0),
        Step::Spare,
        append(1, 700, 0),
        Step::Sync,
        append(1, 2500, 0),
        Step::Sync,
        Step::Cut { before_end: 4 },
        append(3, 300, 2),
        Step::Sync,
        append(3, 400, 0),
        append(3, 400, 0),
        Step::Sync,
        Step::Cut { before_end: 1 },
        append(5, 150, 0),
        Step::Sync,
        Step::Restart { behind_end: 9 },
        append(2, 33, 0),
        Step::Sync,
        append(1, 30, 0),
    ]
}

fn survivals() -> Vec<Survival> {
    let mut all = vec![Survival::Nothing, Survival::Everything];
    all.extend([1, 31, 32, 33, 100, 500, 513].map(Survival::Bytes));
    let patterns: [&[bool]; 5] = [
        &[true, false],
        &[false, true],
        &[false, false, true],
        &[true, true, false],
        &[false, true, true, true],
    ];
    all.extend(patterns.map(|pattern| Survival::Sectors(pattern.to_vec())));
    all
}

/// The power goes before each operation on the disk in turn; what was unsynced survives in each of
/// many ways; and the log continues with the rest.
#[test]
fn power_cuts_between_any_two_operations() {
    let script = script();
    for survival in survivals() {
        for operation in 0.. {
            let disk = MemoryDisk::new();
            disk.fail_at(operation, Fault::Stop);
            let mut life = Life::new(Model::default());
            let mut stopped = false;
            match open(&disk) {
                Err(_) => stopped = true,
                Ok((_, mut writer, _)) => {
                    for step in &script {
                        if life.step(&mut writer, step).is_err() {
                            stopped = true;
                            break;
                        }
                    }
                }
            }
            disk.crash(&survival);
            let context = format!("{survival:?} before operation {operation}");
            let found = life.check(&disk, &context);
            // What was found is durable now, and can be built upon.
            disk.crash(&Survival::Nothing);
            let mut life = Life::new(found);
            life.check(&disk, &format!("{context}, again"));
            let (_, mut writer, _) = open(&disk).expect("open");
            for step in script.iter().take(6) {
                life.step(&mut writer, step).expect("it goes on");
            }
            disk.crash(&Survival::Nothing);
            life.check(&disk, &format!("{context}, and went on"));
            if !stopped {
                assert!(operation > 50, "{operation}");
                break;
            }
        }
    }
}

/// What is left of a torn batch never becomes part of a later one, though both have records of the
/// same length at the same places, and whichever sectors of either reach the disk.
#[test]
fn leftovers_of_a_torn_batch_stay_out() {
    let record = |len| Step::Append { entries: 1, len, replaces: 0, hard_state: false };
    let pattern = |bits: u32| Survival::Sectors((0..6).map(|bit| bits >> bit & 1 == 1).collect());
    for first in 0..64 {
        for second in 0..64 {
            let disk = MemoryDisk::new();
            let (_, mut writer, _) = open(&disk).expect("open");
            let mut life = Life::new(Model::default());
            // Records begin at sectors from here on.
            for step in [record(337), Step::Sync, record(464), record(463), record(462)] {
                life.step(&mut writer, &step).expect("step");
            }
            assert_eq!(end_of_log(&disk).1, 2048);
            disk.crash(&pattern(first));
            let context = format!("sectors {first:b}, then {second:b}");
            let mut life = Life::new(life.check(&disk, &context));
            let (_, mut writer, _) = open(&disk).expect("open");
            life.number = 40;
            for step in [record(460), record(460)] {
                life.step(&mut writer, &step).expect("step");
            }
            disk.crash(&pattern(second));
            life.check(&disk, &context);
        }
    }
}

/// A batch is torn at each of its bytes.
#[test]
fn a_batch_torn_at_every_byte() {
    let before = MemoryDisk::new();
    let mut life = Life::new(Model::default());
    let (_, mut writer, _) = open(&before).expect("open");
    for step in &script()[..8] {
        life.step(&mut writer, step).expect("step");
    }
    let durable = life.now.clone();
    for step in &script()[2..4] {
        life.step(&mut writer, step).expect("step");
    }
    let mut last = 0;
    let mut torn = 0;
    for bytes in 0.. {
        let disk = before.fork();
        disk.crash(&Survival::Bytes(bytes));
        let found = life.check(&disk.fork(), &format!("{bytes} bytes"));
        let (recovered, ..) = open(&disk).expect("open");
        torn += u32::from(recovered.torn_bytes > 0);
        assert!(found.entries.len() >= last, "more bytes never show less");
        last = found.entries.len();
        if found == life.now {
            break;
        }
        assert_eq!(found.entries[..durable.entries.len()], durable.entries);
    }
    assert!(torn > 400, "{torn} of them were noticed as torn");
}

/// Every bit of every byte of a small log is flipped. It is damage with the right place, or, in
/// what was last synced, a torn tail; or it lies where nothing is, or in a spare.
#[test]
fn every_flipped_byte_is_noticed() {
    let disk = MemoryDisk::new();
    let mut life = Life::new(Model::default());
    let (_, mut writer, _) = open(&disk).expect("open");
    let mut before_last = Model::default();
    let mut last_place = (String::new(), 0);
    for step in &script()[..19] {
        if matches!(step, Step::Append { .. }) && life.possible.len() == 1 {
            before_last = life.now.clone();
            last_place = end_of_log(&disk);
        }
        life.step(&mut writer, step).expect("step");
    }
    drop(writer);
    disk.crash(&Survival::Nothing);
    let (mut damaged, mut torn, mut unused) = (0, 0, 0);
    for name in disk.list(folder()).expect("list") {
        let path = folder().join(&name);
        for (offset, byte) in disk.read(&path).expect("a file").iter().enumerate() {
            // Every bit where it decides most, one bit elsewhere.
            let masks: &[u8] =
                if offset % 256 < 48 { &[1, 2, 4, 8, 16, 32, 64, 128] } else { &[0x20] };
            for mask in masks {
                let copy = disk.fork();
                assert!(copy.flip(&path, offset as u64, *mask));
                let context = format!("bit {mask:#x} of byte {offset} ({byte:#x}) of {name}");
                match open(&copy) {
                    Ok((recovered, _, reader)) => {
                        let found = Model::read(&recovered, &reader).expect("it was just checked");
                        if found == life.now {
                            unused += 1;
                            let at_end = (name.clone(), offset as u64) >= end_of_log(&disk);
                            assert!(
                                at_end || name == "spare" || alignment(&disk, &path, offset),
                                "{context}"
                            );
                        } else {
                            torn += 1;
                            assert!((name.clone(), offset as u64) >= last_place, "{context}");
                            assert!(recovered.torn_bytes > 0, "{context}");
                            assert_eq!(found.entries.len(), before_last.entries.len(), "{context}");
                        }
                    }
                    Err(LogError::Damaged { path: place, offset: found, .. }) => {
                        damaged += 1;
                        assert_eq!(PathBuf::from(place), path, "{context}");
                        assert!(found <= offset as u64, "{context}: found at {found}");
                    }
                    Err(other) => panic!("{context}: {other}"),
                }
            }
        }
    }
    assert!(damaged > 1000 && torn > 100 && unused > 100, "{damaged} {torn} {unused}");
}

/// Where the zeros behind the last record begin, to eight bytes.
fn end_of_log(disk: &MemoryDisk) -> (String, u64) {
    let names = disk.list(folder()).expect("list");
    let last = names.into_iter().rfind(|name| name.ends_with(".log")).expect("a segment");
    let bytes = disk.read(&folder().join(&last)).expect("a file");
    let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |found| found + 1);
    (last, (used as u64).next_multiple_of(8))
}

/// Whether the byte only fills up to a multiple of eight.
fn alignment(disk: &MemoryDisk, path: &Path, offset: usize) -> bool {
    let bytes = disk.read(path).expect("a file");
    let until = offset.next_multiple_of(8).min(bytes.len());
    bytes[offset..until].iter().all(|byte| *byte == 0)
}

fn written(disk: &MemoryDisk, batches: u64) {
    let (_, mut writer, _) = open(disk).expect("open");
    for index in 1..=batches {
        let payload = Bytes::from(vec![index as u8; 300]);
        let entries = vec![Entry { index, term: 1, kind: 0, payload }];
        writer.write(&Append { hard_state: None, entries }).expect("write");
        writer.sync().expect("sync");
    }
}

fn refusal(disk: &MemoryDisk) -> LogError {
    open(disk).map(|(recovered, ..)| recovered).expect_err("a refusal")
}

#[test]
fn a_missing_segment_is_named() {
    let disk = MemoryDisk::new();
    written(&disk, 40);
    let names = disk.list(folder()).expect("list");
    assert!(names.len() > 5);
    for name in &names[..names.len() - 1] {
        let copy = disk.fork();
        copy.remove(&folder().join(name)).expect("remove");
        let LogError::Damaged { path, .. } = refusal(&copy) else { panic!("{name}") };
        let next = names.iter().skip_while(|found| *found != name).nth(1).expect("a next");
        assert!(path.ends_with(name) || path.ends_with(next), "{name} is missing: {path}");
    }
}

#[test]
fn a_segment_of_another_log_is_refused() {
    let (disk, other) = (MemoryDisk::new(), MemoryDisk::new());
    written(&disk, 40);
    written(&other, 3);
    let names = disk.list(folder()).expect("list");
    let (first, second) = (folder().join(&names[0]), folder().join(&names[1]));
    // One segment under the name of another, and a shorter one in place of a whole one.
    let copy = disk.fork();
    copy.plant(&second, disk.read(&first).expect("a file"));
    assert!(matches!(refusal(&copy), LogError::Damaged { offset: 0, .. }));
    disk.plant(&first, other.read(&first).expect("a file"));
    assert!(matches!(refusal(&disk), LogError::Damaged { .. }));
}

#[test]
fn a_newer_format_is_named() {
    let disk = MemoryDisk::new();
    written(&disk, 3);
    let path = folder().join(&disk.list(folder()).expect("list")[0]);
    let mut bytes = disk.read(&path).expect("a file");
    bytes[8] = 2;
    let crc = crc32fast::hash(&bytes[..124]);
    bytes[124..128].copy_from_slice(&crc.to_le_bytes());
    disk.plant(&path, bytes);
    assert!(matches!(refusal(&disk), LogError::Version { found: 2, known: 1, .. }));
}

#[test]
fn a_failed_fsync_is_final() {
    let disk = MemoryDisk::new();
    let (_, mut writer, _) = open(&disk).expect("open");
    let append =
        Append { hard_state: Some(HardState { term: 1, vote: 1, commit: 0 }), entries: Vec::new() };
    writer.write(&append).expect("write");
    disk.fail_at(disk.operations(), Fault::Fail);
    assert!(matches!(writer.sync(), Err(LogError::Io { .. })));
    // The next fsync would succeed, and would mean nothing.
    assert!(matches!(writer.sync(), Err(LogError::Io { .. })));
    assert!(matches!(writer.write(&append), Err(LogError::Io { .. })));
    assert!(matches!(writer.cut(LogStart { index: 1, term: 1 }), Err(LogError::Io { .. })));
}

#[test]
fn an_fsync_that_lied_shows_as_a_shorter_log_never_a_wrong_one() {
    for operation in 0..60 {
        let disk = MemoryDisk::new();
        let mut life = Life::new(Model::default());
        disk.fail_at(operation, Fault::Lie);
        let Ok((_, mut writer, _)) = open(&disk) else { continue };
        let mut every = vec![Model::default()];
        for step in &script()[..11] {
            if life.step(&mut writer, step).is_err() {
                break;
            }
            every.push(life.now.clone());
        }
        disk.crash(&Survival::Nothing);
        // Acknowledged writes may be gone: that is what a lie costs. What is shown is some past.
        if let Ok((recovered, _, reader)) = open(&disk) {
            let found = Model::read(&recovered, &reader).expect("entries");
            assert!(every.contains(&found), "operation {operation}: {found:?}");
        }
    }
}

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..6_usize, 0..600_usize, prop_oneof![3 => Just(0), 1 => 0..8_usize], any::<bool>()).prop_map(
            |(entries, len, replaces, hard_state)| Step::Append {
                entries,
                len,
                replaces: if entries == 0 { 0 } else { replaces },
                hard_state,
            }
        ),
        4 => Just(Step::Sync),
        1 => (0..12_usize).prop_map(|before_end| Step::Cut { before_end }),
        1 => Just(Step::Spare),
        1 => (0..9_u64).prop_map(|behind_end| Step::Restart { behind_end }),
    ]
}

fn crashes() -> impl Strategy<Value = Survival> {
    prop_oneof![
        Just(Survival::Nothing),
        Just(Survival::Everything),
        (0..3000_u64).prop_map(Survival::Bytes),
        prop::collection::vec(any::<bool>(), 1..9).prop_map(Survival::Sectors),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Lives of any shape, with crashes at any operation and a full disk now and then.
    #[test]
    fn any_life(
        lives in prop::collection::vec(
            (prop::collection::vec(steps(), 1..40), 0..200_u64, crashes(), prop::option::of(3_000..20_000_u64)),
            1..4,
        ),
    ) {
        let disk = MemoryDisk::new();
        let mut life = Life::new(Model::default());
        for (number, (steps, stop, survival, capacity)) in lives.into_iter().enumerate() {
            if let Ok((_, mut writer, reader)) = open(&disk) {
                disk.fail_at(disk.operations() + stop, Fault::Stop);
                disk.set_capacity(capacity);
                for step in &steps {
                    match life.step(&mut writer, step) {
                        Ok(()) => {}
                        Err(LogError::Full { .. }) => disk.set_capacity(None),
                        Err(_) => break,
                    }
                    // What is read at once is what was written.
                    let low = life.now.start.index + 1;
                    if let Ok(found) = reader.entries(low, u64::MAX, usize::MAX) {
                        prop_assert_eq!(&found, &life.now.entries);
                    }
                }
            }
            disk.set_capacity(None);
            disk.crash(&survival);
            let found = life.check(&disk, &format!("life {number}, {survival:?}"));
            life = Life::new(found);
        }
    }
}

/// A log that format 1 wrote is read unchanged by every later version.
#[test]
fn format_1_is_read() {
    const FIRST: &[u8] = include_bytes!("golden/format1.first.log");
    const SECOND: &[u8] = include_bytes!("golden/format1.second.log");
    let disk = MemoryDisk::new();
    disk.plant(&folder().join("00000000000000000001.log"), FIRST.to_vec());
    disk.plant(&folder().join("00000000000000000002.log"), SECOND.to_vec());
    let (recovered, mut writer, reader) = open(&disk).expect("open");
    let found = Model::read(&recovered, &reader).expect("entries");
    assert_eq!(found, golden().now);
    writer.restart(LogStart { index: 900, term: 90 }).expect("restart");
}

/// The life that the golden files were written in.
fn golden() -> Life {
    let disk = MemoryDisk::new();
    golden_on(&disk)
}

fn golden_on(disk: &MemoryDisk) -> Life {
    let mut life = Life::new(Model::default());
    let (_, mut writer, _) = open(disk).expect("open");
    let append =
        |entries, len, replaces| Step::Append { entries, len, replaces, hard_state: len % 2 == 0 };
    let steps = [
        append(3, 100, 0),
        Step::Sync,
        append(2, 301, 1),
        append(1, 10, 0),
        Step::Sync,
        Step::Cut { before_end: 3 },
        append(2, 700, 0),
        Step::Sync,
        append(1, 60, 0),
        Step::Sync,
    ];
    for step in &steps {
        life.step(&mut writer, step).expect("step");
    }
    life
}

/// The present output is that of format 1: a change of the format must change its number.
#[test]
fn format_1_is_written() {
    let disk = MemoryDisk::new();
    golden_on(&disk);
    let names = disk.list(folder()).expect("list");
    assert_eq!(names.len(), 2);
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    for (name, kept) in names.iter().zip(["format1.first.log", "format1.second.log"]) {
        let written = disk.read(&folder().join(name)).expect("a file");
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(golden.join(kept), &written).expect("write");
        }
        assert!(std::fs::read(golden.join(kept)).expect("read") == written, "{kept} differs");
    }
}
