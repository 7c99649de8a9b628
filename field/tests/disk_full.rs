//! A full disk: writes are refused with the reason, reads go on, and writes resume when there is
//! room.
//!
//! It needs a small file system to fill, and therefore root to mount one; otherwise it is skipped.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use field::NodeOptions;
use field::resp::{Client, Error};

const DEADLINE: Duration = Duration::from_secs(30);
const DISK: &str = "size=160m";
const BALLAST_BYTES: usize = 64 << 20;
const VALUE_BYTES: usize = 64 << 10;

/// A file system in memory, gone with the value.
struct SmallDisk(PathBuf);

impl SmallDisk {
    /// `None` where mounting is not allowed.
    fn mount(at: &Path) -> Option<Self> {
        fs::create_dir_all(at).unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", DISK, "portolan-field"])
            .arg(at)
            .stderr(Stdio::null())
            .status();
        mounted.is_ok_and(|status| status.success()).then(|| Self(at.to_owned()))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a process that is about to be killed may still have files open.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn writes_are_refused_reads_go_on_and_writes_resume() {
    let folder = tempfile::tempdir().unwrap();
    let Some(disk) = SmallDisk::mount(&folder.path().join("disk")) else {
        eprintln!("SKIPPED: a small disk cannot be mounted here (it needs root)");
        return;
    };
    let ballast = disk.0.join("ballast");
    fs::write(&ballast, vec![1; BALLAST_BYTES]).unwrap();

    let mut options = NodeOptions::new(folder.path(), 1);
    options.data = disk.0.join("data");
    options.configure("[disk]\nreserve_bytes = 16777216\n");
    let mut node = options.start();
    let mut client = Client::connect(options.redis, DEADLINE).unwrap();

    let (written, text) = fill(&mut client);
    assert!(written > 100, "only {written} values fitted");
    assert!(text.contains("disk"), "the refusal does not state why: {text}");
    for number in [0, written / 2, written - 1] {
        expect(&mut client, number);
    }
    let small = client.call(&["SET", "small", "x"]);
    assert!(matches!(small, Err(Error::Refused(_))), "small ones are refused too: {small:?}");

    fs::remove_file(&ballast).unwrap();
    field::eventually(Duration::from_secs(30), || {
        client.call(&["SET", "again", "yes"]).map_err(|e| e.to_string())
    })
    .expect("writes resume");

    // Full again, and killed: with room again it starts and still has everything. (On a disk that
    // is still full it has no leader, since a term cannot begin without an entry on disk.)
    fs::write(&ballast, vec![1; BALLAST_BYTES / 2]).unwrap();
    let (again, _) = fill(&mut client);
    assert!(again > 0);
    node.kill();
    fs::remove_file(&ballast).unwrap();
    node.restart();
    let mut client = Client::connect(options.redis, DEADLINE).unwrap();
    for number in [0, again - 1, written - 1] {
        expect(&mut client, number);
    }
    assert_eq!(client.call(&["GET", "again"]).unwrap().bytes(), Some(&b"yes"[..]));
}

/// Writes values 0, 1, 2, … until one is refused; how many were written, and the text of the
/// refusal.
fn fill(client: &mut Client) -> (usize, String) {
    for number in 0..10_000 {
        match client.call(&[&b"SET"[..], key(number).as_bytes(), &value(number)]) {
            Ok(_) => {}
            Err(Error::Refused(text)) => return (number, text),
            Err(error) => panic!("value {number}: {error}"),
        }
    }
    panic!("ten thousand values did not fill the disk");
}

fn expect(client: &mut Client, number: usize) {
    let seen = client.call(&["GET", &key(number)]).unwrap();
    assert!(
        seen.bytes() == Some(value(number).as_slice()),
        "value {number} is not what was written"
    );
}

fn key(number: usize) -> String {
    format!("fill:{number}")
}

/// Differs in every number and does not compress.
fn value(number: usize) -> Vec<u8> {
    let mut state = number as u64 + 1;
    let mut step = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..VALUE_BYTES).map(|_| step()).collect()
}
