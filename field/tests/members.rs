//! Disks and ids that are not what they seem: an old disk that comes back, an id that two machines
//! have, a data directory that has lost a part. Each is refused with an error that names the
//! remedy, and nothing acknowledged is lost by it.

use std::fs;
use std::time::Duration;

use field::keys::{read, write};
use field::{Node, NodeOptions, Site, eventually};

const LIMIT: Duration = Duration::from_secs(300);

#[test]
fn an_old_disk_is_refused_and_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut site = Site::start(folder.path(), 3, |_| {});
    write(&site.nodes[0], "before", "1");
    // Not the leader, so that the leader has the new life before the first request.
    let lost = (site.leader().unwrap() + 1) % 3;
    let (one, other) = ((lost + 1) % 3, (lost + 2) % 3);
    site.nodes[lost].kill();
    let data = site.nodes[lost].options.data.clone();
    let (old, new) = (folder.path().join("old"), folder.path().join("new"));
    fs::rename(&data, &old).unwrap();
    site.nodes[lost].options.join = Some(site.nodes[one].options.peer);
    site.nodes[lost].restart();
    site.wait_voters(3);
    // Acknowledged by the new disk and one other.
    site.nodes[other].kill();
    write(&site.nodes[one], "acknowledged", "2");

    site.nodes[lost].kill();
    fs::rename(&data, &new).unwrap();
    fs::rename(&old, &data).unwrap();
    site.nodes[other].respawn();
    site.nodes[lost].respawn();
    let status = site.nodes[lost].wait_exit(LIMIT).unwrap();
    assert!(!status.success());
    let log = site.nodes[lost].log();
    assert!(log.contains("earlier life") && log.contains("--join"), "{log}");
    site.nodes[lost].kill();
    site.wait_writable();
    assert_eq!(read(&site.nodes[other], "acknowledged"), Some("2".into()));

    // The right disk is put back.
    fs::rename(&data, &old).unwrap();
    fs::rename(&new, &data).unwrap();
    site.nodes[lost].restart();
    site.wait_voters(3);
    assert_eq!(read(&site.nodes[lost], "acknowledged"), Some("2".into()));
}

#[test]
fn a_second_machine_with_an_id_in_use_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut site = Site::start(folder.path(), 3, |_| {});
    let follower = (site.leader().unwrap() + 1) % 3;
    // The leader's id, too: it is the one that would have to be asked.
    for taken in [follower, site.leader().unwrap()] {
        let number = site.nodes[taken].options.node;
        let mut options =
            NodeOptions::new(&folder.path().join(format!("second of {number}")), number);
        options.join = Some(site.nodes[(taken + 1) % 3].options.peer);
        let mut second = options.spawn();
        let status = second.wait_exit(LIMIT).unwrap();
        assert!(!status.success());
        let log = second.log();
        assert!(log.contains("give this node another --node"), "{log}");
        assert!(site.nodes[taken].exited().is_none());
        site.wait_voters(3);
    }
    write(&site.nodes[follower], "key", "1");

    // Of two that answer none is removed while the third does not.
    let third = (follower + 1) % 3;
    let (one, lost) = match site.leader().unwrap() {
        leader if leader == third => ((follower + 2) % 3, follower),
        leader => (leader, third),
    };
    let lives = (0..3).find(|node| *node != one && *node != lost).unwrap();
    let (lives_id, lost_id) =
        (site.nodes[lives].options.node.to_string(), site.nodes[lost].options.node.to_string());
    site.nodes[lost].kill();
    // At once: that it answered a moment ago does not count. Until there is a leader, none of them
    // can be asked.
    let refused =
        eventually(LIMIT, || match site.nodes[lives].cli(&["member", "remove", &lives_id]) {
            Err(refused) if refused.contains("no majority") => Ok(refused),
            Err(other) => Err(other),
            Ok(_) => panic!("it was removed"),
        });
    let refused = refused.unwrap();
    assert!(refused.contains("no majority") && refused.contains("--force"), "{refused}");
    site.nodes[lives].cli(&["member", "remove", &lost_id]).unwrap();
    write(&site.nodes[lives], "key", "2");
}

#[test]
fn a_directory_that_lost_a_part_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut site = Site::start(folder.path(), 3, |_| {});
    write(&site.nodes[0], "key", "1");
    let node = (site.leader().unwrap() + 1) % 3;
    let data = site.nodes[node].options.data.clone();
    let identity = data.join("identity.toml");
    site.nodes[node].kill();

    let kept = fs::read(&identity).unwrap();
    fs::remove_file(&identity).unwrap();
    refuses(&mut site.nodes[node], "identity.toml");
    fs::write(&identity, kept).unwrap();

    for part in ["log", "state", "snapshots"] {
        let _ = fs::remove_dir_all(data.join(part));
    }
    refuses(&mut site.nodes[node], "its log is gone");

    // The remedy that it names helps.
    fs::rename(&data, folder.path().join("away")).unwrap();
    site.nodes[node].options.join = Some(site.nodes[(node + 1) % 3].options.peer);
    site.nodes[node].restart();
    site.wait_voters(3);
    assert_eq!(read(&site.nodes[node], "key"), Some("1".into()));
}

/// It ends at once, with an error that has the cause and the remedy.
fn refuses(node: &mut Node, why: &str) {
    node.respawn();
    assert!(!node.wait_exit(LIMIT).unwrap().success());
    let log = node.log();
    assert!(log.contains(why) && log.contains("--join"), "{log}");
    node.kill();
}
