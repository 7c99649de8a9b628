//! What snapshots promise: whole or not there, over memory and over files.

use model::Bytes;
use std::cell::Cell;
use std::path::Path;
use storage::disk::AnyDisk;
use storage::disk::memory::{Fault, MemoryDisk, Survival};
use storage::disk::real::RealDisk;
use storage::snapshot::{
    Chunk, Folder, SnapshotError, SnapshotFile, SnapshotHead, Snapshots, write_file,
    write_file_while,
};
use storage::state::memory::MemoryState;
use storage::state::{Batch, Read, State};

fn head(index: u64) -> SnapshotHead {
    SnapshotHead { index, term: 3, members: Bytes::from_static(b"one, two and a witness") }
}

fn state(keys: u32, len: usize) -> MemoryState {
    let state = MemoryState::new();
    let mut batch = Batch::default();
    for key in 0..keys {
        batch.put(key.to_be_bytes().to_vec(), vec![key as u8; len + key as usize % 7]);
    }
    state.commit(batch).expect("commit");
    state
}

fn content(read: &impl Read) -> Vec<(Bytes, Bytes)> {
    let mut found = Vec::new();
    read.scan(b"", None, &mut |key, value| {
        found.push((key, value));
        true
    })
    .expect("scan");
    found
}

fn open(disk: &AnyDisk, folder: &Path) -> Folder {
    Folder::open(disk, folder, 0).expect("open")
}

fn loaded(folder: &Folder, index: u64) -> Vec<(Bytes, Bytes)> {
    let target = state(3, 1);
    folder.load(index, &target).expect("load");
    content(&target)
}

fn on_both(test: impl Fn(&AnyDisk, &Path)) {
    test(&MemoryDisk::new().shared(), Path::new("/snapshots"));
    let folder = tempfile::tempdir().expect("a folder");
    test(&RealDisk::shared(), &folder.path().join("snapshots"));
}

/// Sends snapshot `index` in chunks of `bytes_max`.
fn send(
    from: &Folder,
    to: &Folder,
    index: u64,
    bytes_max: usize,
) -> Result<SnapshotHead, SnapshotError> {
    send_over(from, to, index, bytes_max, 0)
}

/// The same, to a node with a state of `state_bytes`.
fn send_over(
    from: &Folder,
    to: &Folder,
    index: u64,
    bytes_max: usize,
    state_bytes: u64,
) -> Result<SnapshotHead, SnapshotError> {
    let mut offset = 0;
    loop {
        let chunk = from.read_chunk(index, offset, bytes_max)?;
        offset = to.receive(index, &chunk, state_bytes)?;
        if offset == chunk.total_bytes {
            return to.finish(index);
        }
    }
}

#[test]
fn what_is_written_is_loaded() {
    on_both(|disk, folder| {
        let snapshots = open(disk, folder);
        assert_eq!(snapshots.latest().expect("latest"), None);
        for (index, keys, len) in [(5, 0, 0), (6, 1, 10), (9, 20_000, 20), (12, 3, 300_000)] {
            let source = state(keys, len);
            snapshots.write(&head(index), &source.view()).expect("write");
            assert_eq!(snapshots.latest().expect("latest"), Some(head(index)));
            assert_eq!(loaded(&snapshots, index), content(&source));
            assert_eq!(disk.list(folder).expect("list").len(), 1, "older ones are gone");
            let again = open(disk, folder);
            assert_eq!(again.latest().expect("latest"), Some(head(index)));
            assert_eq!(loaded(&again, index), content(&source));
        }
        let gone = snapshots.load(9, &MemoryState::new());
        assert!(matches!(gone, Err(SnapshotError::Absent { index: 9 })));
    });
}

#[test]
fn a_snapshot_travels_in_pieces() {
    on_both(|disk, folder| {
        let from = open(disk, &folder.join("from"));
        let to = open(disk, &folder.join("to"));
        let source = state(500, 50);
        from.write(&head(7), &source.view()).expect("write");
        for bytes_max in [1 << 20, 1000, 7] {
            assert_eq!(send(&from, &to, 7, bytes_max).expect("send"), head(7));
            assert_eq!(loaded(&to, 7), content(&source));
        }
    });
}

#[test]
fn pieces_out_of_order_are_refused_with_the_right_place() {
    let disk = MemoryDisk::new().shared();
    let from = open(&disk, Path::new("/from"));
    let to = open(&disk, Path::new("/to"));
    from.write(&head(7), &state(500, 50).view()).expect("write");
    let chunk = |offset| from.read_chunk(7, offset, 1000).expect("chunk");
    let expected = |result: Result<u64, SnapshotError>| match result {
        Err(SnapshotError::OutOfOrder { expected, .. }) => expected,
        other => panic!("{other:?}"),
    };
    assert_eq!(expected(to.receive(7, &chunk(1000), 0)), 0);
    assert_eq!(to.receive(7, &chunk(0), 0).expect("first"), 1000);
    assert_eq!(expected(to.receive(7, &chunk(2000), 0)), 1000);
    assert_eq!(expected(to.receive(8, &chunk(1000), 0)), 0);
    assert!(matches!(to.finish(7), Err(SnapshotError::Absent { index: 7 })));
    assert_eq!(to.receive(7, &chunk(1000), 0).expect("second"), 2000);
    // From the front again: another leader sends.
    assert_eq!(to.receive(7, &chunk(0), 0).expect("first"), 1000);
    assert_eq!(send(&from, &to, 7, 5000).expect("send"), head(7));
}

#[test]
fn a_transfer_outlives_its_snapshot() {
    on_both(|disk, folder| {
        let from = open(disk, &folder.join("from"));
        let to = open(disk, &folder.join("to"));
        let source = state(500, 50);
        from.write(&head(7), &source.view()).expect("write");
        let first = from.read_chunk(7, 0, 1000).expect("chunk");
        let mut offset = to.receive(7, &first, 0).expect("receive");
        from.write(&head(8), &state(1, 1).view()).expect("write");
        while offset < first.total_bytes {
            let chunk = from.read_chunk(7, offset, 1000).expect("chunk");
            offset = to.receive(7, &chunk, 0).expect("receive");
        }
        to.finish(7).expect("finish");
        assert_eq!(loaded(&to, 7), content(&source));
        let gone = from.read_chunk(7, 0, 1000);
        assert!(matches!(gone, Err(SnapshotError::Absent { index: 7 })));
    });
}

#[test]
fn a_damaged_transfer_is_refused_and_leaves_the_old_snapshot() {
    let disk = MemoryDisk::new().shared();
    let from = open(&disk, Path::new("/from"));
    let to = open(&disk, Path::new("/to"));
    from.write(&head(7), &state(50, 50).view()).expect("write");
    to.write(&head(3), &state(2, 5).view()).expect("write");
    let whole = from.read_chunk(7, 0, usize::MAX).expect("chunk");
    for place in 0..whole.bytes.len() {
        let mut bytes = whole.bytes.to_vec();
        bytes[place] ^= 0x10;
        let chunk = Chunk { bytes: bytes.into(), ..whole.clone() };
        to.receive(7, &chunk, 0).expect("receive");
        let error = to.finish(7).expect_err("a flipped bit");
        assert!(
            matches!(error, SnapshotError::Damaged { .. } | SnapshotError::Version { .. }),
            "{place}: {error}"
        );
        assert_eq!(to.latest().expect("latest"), Some(head(3)));
    }
    // A snapshot of another index than announced.
    to.receive(8, &whole, 0).expect("receive");
    assert!(matches!(to.finish(8), Err(SnapshotError::Damaged { .. })));
    assert_eq!(send(&from, &to, 7, 100).expect("send"), head(7));
}

#[test]
fn every_flip_and_every_truncation_of_a_file_is_found() {
    let memory = MemoryDisk::new();
    let disk = memory.shared();
    let path = Path::new("/backup");
    write_file(&disk, path, &head(7), &state(300, 400).view(), 0).expect("write");
    let bytes = memory.read(path).expect("the file");
    let whole = SnapshotFile::open(&disk, path).expect("open").verify().expect("verify");
    assert_eq!((whole.rows, whole.total_bytes), (300, bytes.len() as u64));
    let check = |bytes: Vec<u8>| {
        memory.plant(path, bytes);
        SnapshotFile::open(&disk, path).and_then(|file| file.verify())
    };
    // Every byte of the first blocks' headers and the footer, and every 97th of the rest.
    let places = (0..bytes.len())
        .filter(|place| place % 97 == 0 || *place < 200 || *place + 80 > bytes.len());
    for place in places {
        let mut flipped = bytes.clone();
        flipped[place] ^= 1;
        let error = check(flipped).expect_err("a flipped bit");
        match error {
            SnapshotError::Damaged { offset, .. } => assert!(offset <= place as u64),
            SnapshotError::Version { .. } => assert!((8..12).contains(&place)),
            other => panic!("{other}"),
        }
        let cut = check(bytes[..place].to_vec()).expect_err("a truncation");
        assert!(matches!(cut, SnapshotError::Damaged { .. }), "{cut}");
    }
    let mut longer = bytes.clone();
    longer.push(0);
    assert!(matches!(check(longer), Err(SnapshotError::Damaged { .. })));
    check(bytes).expect("the file as it was");
}

#[test]
fn a_backup_is_imported() {
    on_both(|disk, folder| {
        let source = state(5000, 100);
        let path = folder.join("site.backup");
        disk.create_dir(folder).expect("folder");
        write_file(disk, &path, &head(70), &source.view(), 0).expect("write");
        let backup = SnapshotFile::open(disk, &path).expect("open");
        assert_eq!(*backup.head(), head(70));
        let restored = open(disk, &folder.join("restored"));
        assert_eq!(restored.import(&backup).expect("import"), head(70));
        assert_eq!(loaded(&restored, 70), content(&source));
        assert!(matches!(
            SnapshotFile::open(disk, &folder.join("none")),
            Err(SnapshotError::Io { .. })
        ));
    });
}

/// The power goes before each operation on the disk in turn, in a write and in a transfer.
#[test]
fn there_is_always_the_newest_whole_snapshot() {
    let old = state(40, 30);
    let new = state(60, 3000);
    let source = open(&MemoryDisk::new().shared(), Path::new("/from"));
    source.write(&head(9), &new.view()).expect("write");
    for transfer in [false, true] {
        for survival in [
            Survival::Nothing,
            Survival::Everything,
            Survival::Bytes(5000),
            Survival::Sectors(vec![true, false, true]),
        ] {
            let mut steps = 0;
            loop {
                let memory = MemoryDisk::new();
                let disk = memory.shared();
                let folder = open(&disk, Path::new("/s"));
                folder.write(&head(5), &old.view()).expect("write");
                memory.fail_at(memory.operations() + steps, Fault::Stop);
                let outcome = if transfer {
                    send(&source, &folder, 9, 50_000).map(|_| ())
                } else {
                    folder.write(&head(9), &new.view())
                };
                memory.crash(&survival);
                let folder = open(&disk, Path::new("/s"));
                let latest = folder.latest().expect("latest").expect("one of them");
                let expected = match latest.index {
                    5 if outcome.is_err() => &old,
                    9 => &new,
                    other => panic!("snapshot {other} after {outcome:?}"),
                };
                assert_eq!(loaded(&folder, latest.index), content(expected));
                // The transfer continues from there.
                folder.write(&head(10), &old.view()).expect("write");
                if outcome.is_ok() {
                    break;
                }
                steps += 1;
            }
            assert!(steps > 4);
        }
    }
}

#[test]
fn a_full_disk_keeps_the_old_snapshot() {
    let memory = MemoryDisk::new();
    let disk = memory.shared();
    let folder = open(&disk, Path::new("/s"));
    folder.write(&head(5), &state(10, 30).view()).expect("write");
    memory.set_capacity(Some(20_000));
    let new = state(60, 3000);
    let refused = folder.write(&head(9), &new.view());
    assert!(matches!(refused, Err(SnapshotError::Full { .. })), "{refused:?}");
    assert_eq!(folder.latest().expect("latest"), Some(head(5)));
    assert_eq!(disk.list(Path::new("/s")).expect("list").len(), 1);
    memory.set_capacity(None);
    folder.write(&head(9), &new.view()).expect("write");
    assert_eq!(loaded(&folder, 9), content(&new));
}

#[test]
fn the_reserve_is_left_to_the_state() {
    const RESERVE_BYTES: u64 = 50_000;
    let free = |disk: &AnyDisk| disk.free_bytes(Path::new("/")).expect("free");
    // More than is gathered before it is written.
    let large = state(600, 3000);
    let memory = MemoryDisk::new();
    let disk = memory.shared();
    let folder = Folder::open(&disk, Path::new("/s"), RESERVE_BYTES).expect("open");
    memory.set_capacity(Some(1_250_000));
    let refused = folder.write(&head(9), &large.view());
    assert!(matches!(refused, Err(SnapshotError::Full { .. })), "{refused:?}");
    assert!(free(&disk) >= RESERVE_BYTES / 2);
    let refused = write_file(&disk, Path::new("/b"), &head(9), &large.view(), RESERVE_BYTES);
    assert!(matches!(refused, Err(SnapshotError::Full { .. })), "{refused:?}");
    assert!(free(&disk) >= RESERVE_BYTES);
}

#[test]
fn a_snapshot_is_received_where_its_state_has_room_too() {
    const RESERVE_BYTES: u64 = 50_000;
    let from = open(&MemoryDisk::new().shared(), Path::new("/from"));
    from.write(&head(9), &state(60, 3000).view()).expect("write");
    let total_bytes = from.read_chunk(9, 0, 1).expect("a chunk").total_bytes;
    let receive = |capacity, old: &MemoryState, state_bytes| {
        let memory = MemoryDisk::new();
        let folder = Folder::open(&memory.shared(), Path::new("/s"), RESERVE_BYTES).expect("open");
        folder.write(&head(5), &old.view()).expect("write");
        memory.set_capacity(Some(capacity));
        let received = send_over(&from, &folder, 9, 10_000, state_bytes);
        if received.is_err() {
            assert_eq!(folder.latest().expect("latest"), Some(head(5)));
        }
        received
    };
    let (small, large) = (state(1, 1), state(60, 3000));
    let refused = receive(total_bytes * 3 / 2 + RESERVE_BYTES, &small, 0);
    assert!(matches!(refused, Err(SnapshotError::Full { .. })), "{refused:?}");
    receive(total_bytes * 2 + RESERVE_BYTES + 1_000, &small, 0).expect("room for both");
    // The older snapshot's room is the state's later.
    receive(total_bytes * 2 + RESERVE_BYTES + 1_000, &large, 0).expect("room for both");
    let refused = receive(total_bytes * 2 + RESERVE_BYTES - 1_000, &large, 0);
    assert!(matches!(refused, Err(SnapshotError::Full { .. })), "{refused:?}");
    // So is that of the state that it replaces, but not before the whole file is here.
    let capacity = total_bytes * 3 / 2 + RESERVE_BYTES + 1_000;
    receive(capacity, &small, total_bytes / 2).expect("room for the file");
    let refused = receive(total_bytes + RESERVE_BYTES - 1_000, &small, total_bytes * 2);
    assert!(matches!(refused, Err(SnapshotError::Full { .. })), "{refused:?}");
}

#[test]
fn an_older_snapshot_that_has_decayed_does_not_keep_a_newer_one_out() {
    let memory = MemoryDisk::new();
    let disk = memory.shared();
    let from = open(&disk, Path::new("/from"));
    let to = open(&disk, Path::new("/to"));
    from.write(&head(9), &state(60, 3000).view()).expect("write");
    to.write(&head(5), &state(1, 1).view()).expect("write");
    let older = &disk.list(Path::new("/to")).expect("list")[0];
    assert!(memory.flip(&Path::new("/to").join(older), 0, 1));
    assert_eq!(send(&from, &to, 9, 10_000).expect("send"), head(9));
}

#[test]
fn a_file_that_is_no_longer_wanted_is_not_written_to_its_end() {
    let memory = MemoryDisk::new();
    let (disk, path) = (memory.shared(), Path::new("/b"));
    let large = state(600, 3000);
    let blocks = Cell::new(0);
    let is_wanted = || {
        blocks.set(blocks.get() + 1);
        blocks.get() < 3
    };
    let ended = write_file_while(&disk, path, &head(9), &large.view(), 0, &is_wanted);
    assert!(matches!(ended, Err(SnapshotError::Unwanted { .. })), "{ended:?}");
    assert_eq!(blocks.get(), 3);
    assert!(SnapshotFile::open(&disk, path).and_then(|file| file.verify()).is_err());
}

#[test]
fn another_format_is_named() {
    let memory = MemoryDisk::new();
    let disk = memory.shared();
    let path = Path::new("/s");
    write_file(&disk, path, &head(1), &state(1, 1).view(), 0).expect("write");
    let mut bytes = memory.read(path).expect("the file");
    bytes[8] = 2;
    memory.plant(path, bytes);
    let error = SnapshotFile::open(&disk, path).expect_err("format 2");
    assert!(matches!(error, SnapshotError::Version { found: 2, known: 1, .. }), "{error}");
}
