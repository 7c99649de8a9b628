//! What every disk promises, and the faults of the one in memory.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test drives real engines, from several threads"
)]

use std::path::Path;
use storage::disk::memory::{Fault, MemoryDisk, Survival};
use storage::disk::real::RealDisk;
use storage::disk::{AnyDisk, Disk, DiskErrorKind};

fn suite(disk: &AnyDisk, folder: &Path) {
    let (a, b) = (folder.join("a"), folder.join("b"));
    disk.create_dir(folder).expect("folder");
    disk.create_dir(folder).expect("again");
    assert_eq!(disk.list(folder).expect("list"), [""; 0]);
    assert_eq!(disk.open(&a).expect_err("absent").kind, DiskErrorKind::Absent);
    assert_eq!(disk.remove(&a).expect_err("absent").kind, DiskErrorKind::Absent);
    assert_eq!(disk.rename(&a, &b).expect_err("absent").kind, DiskErrorKind::Absent);
    assert!(disk.free_bytes(folder).expect("free") > 0);

    let file = disk.create(&a).expect("create");
    file.write_at(3, b"hello").expect("write");
    file.sync_data().expect("sync");
    assert_eq!(file.len_bytes().expect("length"), 8);
    let mut buffer = [9; 10];
    assert_eq!(file.read_at(1, &mut buffer).expect("read"), 7);
    assert_eq!(&buffer, b"\0\0hello\x09\x09\x09");
    assert_eq!(file.read_at(8, &mut buffer).expect("at the end"), 0);
    assert_eq!(file.read_at(99, &mut buffer).expect("behind it"), 0);
    file.truncate(5).expect("cut");
    file.truncate(7).expect("extend");
    assert_eq!(file.read_at(0, &mut buffer).expect("read"), 7);
    assert_eq!(&buffer[..7], b"\0\0\0he\0\0");

    // A rename replaces; an open handle still reads the replaced file.
    let other = disk.create(&b).expect("create");
    other.write_at(0, b"other").expect("write");
    disk.rename(&a, &b).expect("rename");
    disk.sync_dir(folder).expect("sync");
    assert_eq!(disk.list(folder).expect("list"), ["b"]);
    assert_eq!(disk.open(&b).expect("open").len_bytes().expect("length"), 7);
    assert_eq!(other.read_at(0, &mut buffer).expect("read"), 5);
    disk.remove(&b).expect("remove");
    disk.sync_dir(folder).expect("sync");
    assert_eq!(file.read_at(3, &mut buffer[..2]).expect("read"), 2);
    assert_eq!(&buffer[..2], b"he");

    disk.create(&a).expect("create").write_at(0, b"123").expect("write");
    assert_eq!(disk.create(&a).expect("create").len_bytes().expect("emptied"), 0);
}

#[test]
fn both_pass_the_suite() {
    suite(&MemoryDisk::new().shared(), Path::new("/folder"));
    let folder = tempfile::tempdir().expect("a folder");
    suite(&RealDisk::shared(), &folder.path().join("some/where"));
}

const FILE: &str = "/file";

/// A disk with a durable file of eight `a`, then two writes that are not: `bbbb` in front, and 1024
/// `c` behind.
fn unsynced() -> MemoryDisk {
    let disk = MemoryDisk::new();
    let file = disk.create(Path::new(FILE)).expect("create");
    file.write_at(0, &[b'a'; 8]).expect("write");
    file.sync_data().expect("sync");
    disk.sync_dir(Path::new("/")).expect("sync");
    file.write_at(0, b"bbbb").expect("write");
    file.write_at(8, &[b'c'; 1024]).expect("write");
    disk
}

fn left(survival: &Survival) -> Vec<u8> {
    let disk = unsynced();
    disk.crash(survival);
    disk.read(Path::new(FILE)).expect("the file")
}

#[test]
fn a_crash_leaves_what_the_test_chooses() {
    let all = [&b"bbbbaaaa"[..], &[b'c'; 1024]].concat();
    assert_eq!(left(&Survival::Everything), all);
    assert_eq!(left(&Survival::Nothing), b"aaaaaaaa");
    assert_eq!(left(&Survival::Bytes(3)), b"bbbaaaaa");
    assert_eq!(left(&Survival::Bytes(6)), b"bbbbaaaacc");
    assert_eq!(left(&Survival::Bytes(u64::MAX)), all);
    // The sectors: of the first write one; of the second 504 bytes, 512, and 8.
    let later = left(&Survival::Sectors(vec![false, false, true, false]));
    assert_eq!(later, [&b"aaaaaaaa"[..], &[0; 504], &[b'c'; 512]].concat());
}

#[test]
fn names_need_their_folder_synced() {
    let disk = MemoryDisk::new();
    let path = Path::new(FILE);
    disk.create(path).expect("create").sync_data().expect("sync");
    let copy = disk.fork();
    copy.crash(&Survival::Nothing);
    assert_eq!(copy.read(path), None);
    disk.sync_dir(Path::new("/")).expect("sync");
    disk.rename(path, Path::new("/other")).expect("rename");
    disk.crash(&Survival::Nothing);
    assert_eq!(disk.list(Path::new("/")).expect("list"), ["file"]);
}

#[test]
fn handles_from_before_a_crash_are_stale() {
    let disk = MemoryDisk::new();
    let file = disk.create(Path::new(FILE)).expect("create");
    file.write_at(0, b"x").expect("write");
    disk.kill();
    assert_eq!(file.write_at(0, b"y").expect_err("stale").kind, DiskErrorKind::Other);
    assert_eq!(disk.read(Path::new(FILE)).expect("the file"), b"x");
    disk.crash(&Survival::Nothing);
    assert_eq!(disk.read(Path::new(FILE)), None, "a kill makes nothing durable");
}

#[test]
fn faults_happen_when_they_are_ordered() {
    let disk = unsynced();
    let file = disk.open(Path::new(FILE)).expect("open");
    let next = disk.operations();
    disk.fail_at(next, Fault::Fail);
    disk.fail_at(next + 1, Fault::Full);
    disk.fail_at(next + 2, Fault::Lie);
    disk.fail_at(next + 4, Fault::Stop);
    assert_eq!(file.sync_data().expect_err("fails").kind, DiskErrorKind::Other);
    assert_eq!(file.write_at(0, b"dddd").expect_err("full").kind, DiskErrorKind::Full);
    assert_eq!(&disk.read(Path::new(FILE)).expect("the file")[..4], b"ddbb", "half is written");
    file.sync_data().expect("it lies");
    let copy = disk.fork();
    copy.crash(&Survival::Nothing);
    assert_eq!(copy.read(Path::new(FILE)).expect("the file"), b"aaaaaaaa");
    file.write_at(0, b"e").expect("write");
    file.sync_data().expect_err("it stopped");
    file.write_at(0, b"f").expect_err("and stays so");
    disk.crash(&Survival::Everything);
    assert_eq!(disk.read(Path::new(FILE)).expect("the file")[..2], *b"ed");
}

#[test]
fn a_full_disk_takes_what_fits() {
    let disk = MemoryDisk::new();
    disk.set_capacity(Some(10));
    let file = disk.create(Path::new(FILE)).expect("create");
    file.write_at(0, b"12345678").expect("write");
    assert_eq!(file.write_at(4, b"abcdefghij").expect_err("full").kind, DiskErrorKind::Full);
    assert_eq!(disk.read(Path::new(FILE)).expect("the file"), b"1234abcdef");
    file.write_at(0, b"over what is there").expect_err("still longer");
    file.write_at(0, b"0123456789").expect("it fits");
    file.truncate(2).expect("truncate");
    assert_eq!(disk.free_bytes(Path::new("/")).expect("free"), 8);
    assert!(disk.flip(Path::new(FILE), 1, 0xFF) && !disk.flip(Path::new(FILE), 2, 1));
    assert_eq!(disk.read(Path::new(FILE)).expect("the file"), [b'0', b'1' ^ 0xFF]);
}
