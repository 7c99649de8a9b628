//! What the log promises, on a disk that behaves: the same suite over memory and over files.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test drives real engines, from several threads"
)]

use model::Bytes;
use std::path::Path;
use storage::disk::AnyDisk;
use storage::disk::memory::{MemoryDisk, Survival};
use storage::disk::real::RealDisk;
use storage::log::{
    Append, Entry, HardState, LogError, LogReader, LogStart, LogWriter, Options, Reader, Recovered,
    Writer, open_with,
};

const SMALL: Options = Options { segment_bytes: 4096, grow_bytes: 512, reserve_bytes: 0 };

fn entry(index: u64, term: u64, len: usize) -> Entry {
    Entry { index, term, kind: 7, payload: Bytes::from(vec![index as u8; len]) }
}

fn entries(indexes: std::ops::RangeInclusive<u64>, term: u64, len: usize) -> Append {
    Append { hard_state: None, entries: indexes.map(|index| entry(index, term, len)).collect() }
}

fn all(reader: &Reader) -> Vec<(u64, u64)> {
    let found = reader.entries(1, u64::MAX, usize::MAX).expect("entries");
    found.iter().map(|entry| (entry.index, entry.term)).collect()
}

fn open(disk: &AnyDisk, folder: &Path) -> (Recovered, Writer, Reader) {
    open_with(disk, folder, SMALL).expect("open")
}

fn all_from(reader: &Reader, low: u64) -> Vec<Entry> {
    reader.entries(low, u64::MAX, usize::MAX).expect("entries")
}

/// Runs a test over both disks.
fn on_both(test: impl Fn(&AnyDisk, &Path)) {
    test(&MemoryDisk::new().shared(), Path::new("/log"));
    let folder = tempfile::tempdir().expect("a folder");
    test(&RealDisk::shared(), &folder.path().join("a/log"));
}

#[test]
fn an_empty_log_is_empty_and_stays_so() {
    on_both(|disk, folder| {
        for _ in 0..3 {
            let (recovered, writer, reader) = open(disk, folder);
            assert_eq!(recovered, Recovered::default());
            assert_eq!(writer.size_bytes(), 0);
            assert_eq!(reader.entries(1, 10, 100).expect("entries"), []);
        }
    });
}

#[test]
fn what_was_synced_is_there_after_opening_again() {
    on_both(|disk, folder| {
        let hard_state = HardState { term: 2, vote: 3, commit: 4 };
        {
            let (_, mut writer, reader) = open(disk, folder);
            writer.write(&entries(1..=3, 1, 100)).expect("write");
            let append = Append { hard_state: Some(hard_state), ..entries(4..=60, 2, 300) };
            writer.write(&append).expect("write");
            writer.sync().expect("sync");
            for index in 61..=200 {
                writer.write(&entries(index..=index, 2, 90)).expect("write");
                writer.sync().expect("sync");
            }
            assert_eq!(all(&reader).len(), 200);
        }
        let (recovered, writer, reader) = open(disk, folder);
        assert_eq!(recovered.hard_state, hard_state);
        assert_eq!((recovered.last_index, recovered.torn_bytes), (200, 0));
        let runs = [(1, 1), (4, 2)].map(|(index, term)| LogStart { index, term });
        assert_eq!(recovered.terms, runs);
        let found = reader.entries(1, 201, usize::MAX).expect("entries");
        for (index, found) in (1..=200).zip(&found) {
            let (term, len) = match index {
                1..=3 => (1, 100),
                4..=60 => (2, 300),
                _ => (2, 90),
            };
            assert_eq!(*found, entry(index, term, len));
        }
        assert!(writer.size_bytes() > 57 * 300 + 140 * 90);
    });
}

#[test]
fn entries_come_in_portions() {
    on_both(|disk, folder| {
        let (_, mut writer, reader) = open(disk, folder);
        writer.write(&entries(1..=100, 1, 100)).expect("write");
        let count = |low, high, bytes_max| {
            let found = reader.entries(low, high, bytes_max).expect("entries");
            assert!(found.iter().zip(low..).all(|(entry, index)| entry.index == index));
            found.len()
        };
        assert_eq!(count(1, 101, 1000), 10);
        assert_eq!(count(50, 101, 1), 1);
        assert_eq!(count(50, 101, 0), 1);
        assert_eq!(count(50, 53, 1000), 3);
        assert_eq!(count(99, 200, 1000), 2);
        assert_eq!(count(101, 200, 1000), 0);
        assert_eq!(count(60, 60, 1000), 0);
    });
}

#[test]
fn another_leaders_entries_replace_ours() {
    on_both(|disk, folder| {
        let expected: Vec<_> = (1..=4)
            .map(|index| (index, 1))
            .chain((5..=6).map(|index| (index, 3)))
            .chain([(7, 4), (8, 4)])
            .collect();
        {
            let (_, mut writer, reader) = open(disk, folder);
            writer.write(&entries(1..=9, 1, 700)).expect("write");
            writer.write(&entries(10..=20, 2, 700)).expect("write");
            writer.write(&entries(5..=8, 3, 10)).expect("write");
            writer.write(&entries(7..=8, 4, 10)).expect("write");
            writer.sync().expect("sync");
            assert_eq!(all(&reader), expected);
        }
        let (recovered, _, reader) = open(disk, folder);
        assert_eq!(all(&reader), expected);
        assert_eq!(recovered.last_index, 8);
        let runs = [(1, 1), (5, 3), (7, 4)].map(|(index, term)| LogStart { index, term });
        assert_eq!(recovered.terms, runs);
    });
}

#[test]
fn a_cut_drops_whole_segments_and_hides_the_rest() {
    on_both(|disk, folder| {
        let start = LogStart { index: 50, term: 2 };
        let files = {
            let (_, mut writer, reader) = open(disk, folder);
            for index in 1..=100 {
                writer.write(&entries(index..=index, 2, 500)).expect("write");
                writer.sync().expect("sync");
            }
            let files = disk.list(folder).expect("list").len();
            let size = writer.size_bytes();
            writer.cut(start).expect("cut");
            assert!(writer.size_bytes() < size * 6 / 10);
            assert_eq!(reader.bytes_after(10), reader.bytes_after(50), "both are cut");
            // A record of an entry takes 552 bytes; places are exact to 4 KiB.
            let between = reader.bytes_after(60) - reader.bytes_after(90);
            assert!(between.abs_diff(30 * 552) <= 4096 + 552, "{between}");
            assert!(reader.bytes_after(100) <= 4096 + 552);
            assert!(matches!(reader.entries(50, 60, 1), Err(LogError::Cut { index: 50 })));
            let found = reader.entries(51, 101, usize::MAX).expect("entries");
            assert_eq!(found.len(), 50);
            // Older than what is cut already: nothing happens.
            writer.cut(LogStart { index: 3, term: 1 }).expect("cut");
            files
        };
        assert!(disk.list(folder).expect("list").len() < files * 7 / 10);
        let (recovered, mut writer, reader) = open(disk, folder);
        assert_eq!(recovered.start, start);
        assert_eq!(recovered.last_index, 100);
        assert_eq!(recovered.terms, [LogStart { index: 51, term: 2 }]);
        assert!(matches!(reader.entries(50, 60, 1), Err(LogError::Cut { .. })));
        writer.cut(LogStart { index: 100, term: 2 }).expect("cut");
        assert_eq!(writer.size_bytes(), 0);
        writer.write(&entries(101..=101, 2, 5)).expect("write");
        assert_eq!(reader.entries(101, 200, 1).expect("entries"), [entry(101, 2, 5)]);
    });
}

#[test]
fn a_restart_forgets_everything_but_the_vote() {
    on_both(|disk, folder| {
        let start = LogStart { index: 500, term: 9 };
        {
            let (_, mut writer, reader) = open(disk, folder);
            let append = Append {
                hard_state: Some(HardState { term: 9, vote: 2, commit: 10 }),
                ..entries(1..=30, 2, 500)
            };
            writer.write(&append).expect("write");
            writer.sync().expect("sync");
            writer.restart(start).expect("restart");
            assert!(matches!(reader.entries(20, 30, 1), Err(LogError::Cut { .. })));
            assert_eq!(reader.entries(501, 502, 1).expect("entries"), []);
        }
        for last_index in 500..503 {
            let (recovered, mut writer, _) = open(disk, folder);
            assert_eq!((recovered.start, recovered.last_index), (start, last_index));
            let hard_state = HardState { term: 9, vote: 2, commit: 500 };
            assert_eq!(recovered.hard_state, hard_state);
            writer.write(&entries(last_index + 1..=last_index + 1, 9, 5)).expect("write");
            writer.sync().expect("sync");
        }
    });
}

#[test]
fn a_cut_behind_the_end_is_a_restart() {
    on_both(|disk, folder| {
        let start = LogStart { index: 7, term: 2 };
        {
            let (_, mut writer, _) = open(disk, folder);
            writer.write(&entries(1..=5, 1, 5)).expect("write");
            writer.cut(start).expect("cut");
        }
        let (recovered, _, _) = open(disk, folder);
        assert_eq!((recovered.start, recovered.last_index), (start, 7));
    });
}

#[test]
fn spares_are_used_and_recycled() {
    on_both(|disk, folder| {
        let (_, mut writer, reader) = open(disk, folder);
        assert!(writer.spare_due().is_none(), "too early");
        let mut prepared = 0;
        for index in 1..=100 {
            writer.write(&entries(index..=index, 1, 500)).expect("write");
            writer.sync().expect("sync");
            if let Some(spare) = writer.spare_due() {
                assert!(writer.spare_due().is_none(), "one is on its way");
                spare.prepare().expect("spare");
                prepared += 1;
            }
            if index > 20 {
                let start = LogStart { index: index - 20, term: 1 };
                writer.cut(start).expect("cut");
            }
        }
        assert!((1..=5).contains(&prepared), "{prepared} spares: the rest is recycled");
        assert_eq!(reader.entries(81, 101, usize::MAX).expect("entries").len(), 20);
        drop((writer, reader));
        let (recovered, _, reader) = open(disk, folder);
        assert_eq!((recovered.last_index, recovered.torn_bytes), (100, 0));
        assert_eq!(all_from(&reader, 81).len(), 20);
    });
}

#[test]
fn an_append_larger_than_a_segment_is_whole() {
    on_both(|disk, folder| {
        {
            let (_, mut writer, _) = open(disk, folder);
            writer.write(&entries(1..=1, 1, 10)).expect("write");
            writer.write(&entries(2..=3, 1, 50_000)).expect("write");
            writer.write(&entries(4..=4, 1, 10)).expect("write");
            writer.sync().expect("sync");
        }
        let (_, _, reader) = open(disk, folder);
        let found = reader.entries(1, 5, usize::MAX).expect("entries");
        let lengths: Vec<_> = found.iter().map(|entry| entry.payload.len()).collect();
        assert_eq!(lengths, [10, 50_000, 50_000, 10]);
    });
}

#[test]
fn a_killed_process_loses_nothing_that_the_system_has() {
    let memory = MemoryDisk::new();
    let disk = memory.shared();
    let (_, mut writer, _) = open(&disk, Path::new("/log"));
    writer.write(&entries(1..=50, 1, 100)).expect("write");
    memory.kill();
    let (recovered, _, _) = open(&disk, Path::new("/log"));
    assert_eq!(recovered.last_index, 50);
    // Now it was taken for durable, so it must be.
    memory.crash(&Survival::Nothing);
    let (recovered, _, _) = open(&disk, Path::new("/log"));
    assert_eq!(recovered.last_index, 50);
}

#[test]
fn a_full_disk_refuses_without_a_trace_until_there_is_room() {
    let memory = MemoryDisk::new();
    let disk = memory.shared();
    let folder = Path::new("/log");
    let (_, mut writer, reader) = open(&disk, folder);
    memory.set_capacity(Some(10_000));
    let mut last = 0;
    let refused = loop {
        match writer.write(&entries(last + 1..=last + 1, 1, 300)) {
            Ok(()) => last += 1,
            Err(error) => break error,
        }
        writer.sync().expect("sync");
    };
    assert!(matches!(refused, LogError::Full { .. }), "{refused}");
    assert!(last > 15);
    for _ in 0..3 {
        let again = writer.write(&entries(last + 1..=last + 1, 1, 300));
        assert!(matches!(again, Err(LogError::Full { .. })));
    }
    writer.sync().expect("sync");
    assert_eq!(all(&reader).len() as u64, last);
    memory.set_capacity(Some(20_000));
    writer.write(&entries(last + 1..=last + 1, 2, 300)).expect("there is room");
    writer.sync().expect("sync");
    memory.crash(&Survival::Nothing);
    let (recovered, _, _) = open(&disk, folder);
    assert_eq!((recovered.last_index, recovered.torn_bytes), (last + 1, 0));
}

#[test]
fn a_cut_needs_no_more_than_its_record_and_may_be_tried_again() {
    const CAPACITY: u64 = 1 << 20;
    let memory = MemoryDisk::new();
    let disk = memory.shared();
    let folder = Path::new("/log");
    let start = LogStart { index: 40, term: 1 };
    let last_index = {
        let (_, mut writer, reader) = open(&disk, folder);
        for index in 1..=50 {
            writer.write(&entries(index..=index, 1, 300)).expect("write");
        }
        writer.sync().expect("sync");
        memory.set_capacity(Some(CAPACITY));
        let used = CAPACITY - disk.free_bytes(folder).expect("free");
        // Fills what the active segment has grown by in advance.
        memory.set_capacity(Some(used));
        let mut last = 50;
        while writer.write(&entries(last + 1..=last + 1, 1, 1)).is_ok() {
            last += 1;
        }
        writer.sync().expect("sync");
        memory.set_capacity(Some(CAPACITY));
        let used = CAPACITY - disk.free_bytes(folder).expect("free");
        memory.set_capacity(Some(used));
        for _ in 0..3 {
            let refused = writer.cut(start);
            assert!(matches!(refused, Err(LogError::Full { .. })), "{refused:?}");
            assert_eq!(all(&reader).len() as u64, last);
        }
        // Fewer than the 512 by which a segment grows for entries.
        memory.set_capacity(Some(used + 300));
        writer.cut(start).expect("there is room for a record");
        assert_eq!(all_from(&reader, 41).len() as u64, last - 40);
        memory.set_capacity(None);
        last
    };
    memory.crash(&Survival::Nothing);
    let (recovered, ..) = open(&disk, folder);
    assert_eq!((recovered.start, recovered.last_index), (start, last_index));
}

#[test]
fn the_reserve_is_left_to_the_state() {
    let memory = MemoryDisk::new();
    memory.set_capacity(Some(100_000));
    let disk = memory.shared();
    let options = Options { reserve_bytes: 50_000, ..SMALL };
    let (_, mut writer, _) = open_with(&disk, Path::new("/log"), options).expect("open");
    let refused = (1..)
        .find_map(|index| writer.write(&entries(index..=index, 1, 300)).err())
        .expect("an error");
    assert!(matches!(refused, LogError::Full { .. }), "{refused}");
    assert!(disk.free_bytes(Path::new("/")).expect("free") >= 50_000);
}

#[test]
fn a_reader_keeps_up_with_a_writer_on_another_thread() {
    on_both(|disk, folder| {
        let (_, mut writer, reader) = open(disk, folder);
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut low = 1;
                loop {
                    let last_round = done.load(std::sync::atomic::Ordering::Acquire);
                    match reader.entries(low, u64::MAX, 5_000) {
                        Ok(found) if found.is_empty() && last_round => break,
                        Ok(found) => {
                            for found in found {
                                assert_eq!(found, entry(low, 1, 200));
                                low += 1;
                            }
                        }
                        Err(LogError::Cut { index }) => low = index + 1,
                        Err(error) => panic!("{error}"),
                    }
                }
                assert_eq!(low, 3001);
            });
            for index in 1..=3000_u64 {
                writer.write(&entries(index..=index, 1, 200)).expect("write");
                if index % 100 == 0 {
                    let start = LogStart { index: index - 90, term: 1 };
                    writer.cut(start).expect("cut");
                }
            }
            done.store(true, std::sync::atomic::Ordering::Release);
        });
    });
}
