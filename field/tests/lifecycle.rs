//! A site's life as its operator sees it: nodes come and go, and the data stays.

use std::path::Path;
use std::time::Duration;

use field::keys::{read, write};
use field::resp::Client;
use field::{Ledger, NodeOptions, Site, binary, eventually, ledger::Writers};

const DEADLINE: Duration = Duration::from_secs(15);
const LIMIT: Duration = Duration::from_secs(300);

#[test]
fn one_node_grows_to_three_and_shrinks_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut site = Site::start(folder.path(), 1, |_| {});
    write(&site.nodes[0], "alone", "1");
    for number in 2..=3 {
        join(&mut site, folder.path(), number);
        assert_eq!(read(site.nodes.last().unwrap(), "alone"), Some("1".into()));
    }
    site.wait_voters(3);
    for node in &site.nodes {
        write(node, &format!("through:{}", node.options.node), "yes");
    }

    site.nodes[0].cli(&["member", "remove", "3"]).unwrap();
    site.nodes[2].kill();
    site.wait_voters(2);
    site.nodes[0].cli(&["member", "remove", "2"]).unwrap();
    site.nodes[1].kill();
    site.wait_voters(1);
    for number in 1..=3 {
        assert_eq!(read(&site.nodes[0], &format!("through:{number}")), Some("yes".into()));
    }
    write(&site.nodes[0], "alone", "again");
    let refused = site.nodes[0].cli(&["member", "remove", "1"]).unwrap_err();
    assert!(refused.contains("last voter"), "{refused}");
}

#[test]
fn leadership_is_handed_over_while_clients_write() {
    let folder = tempfile::tempdir().unwrap();
    let site = Site::start(folder.path(), 3, |_| {});
    let writers = Writers::start((0..4).map(Ledger::new).collect(), &site.redis(), DEADLINE);
    for _ in 0..2 {
        let next = (site.leader().unwrap() + 1) % 3;
        let number = site.nodes[next].options.node.to_string();
        site.nodes[0].cli(&["member", "transfer", &number]).unwrap();
        eventually(LIMIT, || match site.leader()? {
            leader if leader == next => Ok(()),
            leader => Err(format!("{leader} leads, not {next}")),
        })
        .unwrap();
    }
    let ledgers = writers.stop().unwrap();
    assert!(ledgers.iter().map(|ledger| ledger.counted).sum::<u64>() > 0);
}

#[test]
fn a_node_comes_back_with_an_empty_disk() {
    let folder = tempfile::tempdir().unwrap();
    let mut site = Site::start(folder.path(), 3, |_| {});
    write(&site.nodes[0], "before", "1");
    let lost = (site.leader().unwrap() + 1) % 3;
    site.nodes[lost].kill();
    write(&site.nodes[(lost + 1) % 3], "meanwhile", "2");
    std::fs::remove_dir_all(&site.nodes[lost].options.data).unwrap();
    let others = site.nodes[(lost + 1) % 3].options.peer;
    site.nodes[lost].options.join = Some(others);
    site.nodes[lost].restart();
    site.wait_voters(3);
    for (key, value) in [("before", "1"), ("meanwhile", "2")] {
        assert_eq!(read(&site.nodes[lost], key), Some(value.into()), "{key}");
    }
    // It counts again: with it, the site survives the loss of another.
    site.nodes[(lost + 2) % 3].kill();
    site.wait_writable();
}

#[test]
fn a_dead_node_is_replaced_by_a_new_one() {
    let folder = tempfile::tempdir().unwrap();
    let mut site = Site::start(folder.path(), 3, |_| {});
    write(&site.nodes[0], "key", "value");
    site.nodes[2].kill();
    site.nodes[0].cli(&["member", "remove", "3"]).unwrap();
    join(&mut site, folder.path(), 4);
    site.wait_voters(3);
    site.nodes[1].kill();
    site.wait_writable();
    assert_eq!(read(&site.nodes[3], "key"), Some("value".into()));
}

#[test]
fn two_nodes_and_a_witness_survive_the_loss_of_either_node() {
    let folder = tempfile::tempdir().unwrap();
    let mut site = Site::start(folder.path(), 2, |_| {});
    let mut witness = NodeOptions::new(folder.path(), 3);
    witness.join = Some(site.nodes[0].options.peer);
    witness.more.push("--witness".into());
    let witness = witness.start();
    site.wait_voters(3);
    write(&site.nodes[0], "key", "1");
    // It has no keyspaces either, and so it cannot tell of which one a key is.
    for command in [&["SET", "key", "2"][..], &["GET", "key"]] {
        let mut client = Client::connect(witness.options.redis, DEADLINE).unwrap();
        let refused = client.call(command).unwrap_err().to_string();
        assert!(refused.contains("LOADING") && refused.contains("witness"), "{refused}");
    }
    // Nor is there a state to back up.
    let file = folder.path().join("nothing.backup").display().to_string();
    let refused = witness.cli(&["backup", &file, "--quiet"]).unwrap_err();
    assert!(refused.contains("it is a witness"), "{refused}");
    for victim in [0, 1] {
        site.nodes[victim].kill();
        site.wait_writable();
        assert_eq!(read(&site.nodes[1 - victim], "key"), Some("1".into()));
        site.nodes[victim].restart();
        site.wait_writable();
    }
}

#[test]
fn a_backup_of_a_running_site_is_restored_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let site = Site::start(folder.path(), 3, |_| {});
    for number in 0..500 {
        write(&site.nodes[number % 3], &format!("kept:{number}"), &number.to_string());
    }
    let writers = Writers::start((0..4).map(Ledger::new).collect(), &site.redis(), DEADLINE);
    let file = folder.path().join("site.backup");
    let path = file.display().to_string();
    site.nodes[1].cli(&["backup", &path, "--quiet"]).unwrap();
    writers.stop().unwrap();
    drop(site);

    let mut options = NodeOptions::new(&folder.path().join("elsewhere"), 1);
    let data = options.data.display().to_string();
    let restore = ["restore", &path, "--data", &data, "--site", "field", "--quiet"];
    binary::run(binary::portolan(), &restore).unwrap();
    let again = binary::run(binary::portolan(), &restore).unwrap_err();
    assert!(again.contains("empty"), "a full folder is not overwritten: {again}");
    options.site = "field".into();
    let node = options.start();
    for number in 0..500 {
        assert_eq!(read(&node, &format!("kept:{number}")), Some(number.to_string()));
    }
    // What the writers did at that moment is there as of one moment: every pair is whole.
    let mut client = Client::connect(node.options.redis, DEADLINE).unwrap();
    for writer in 0..4 {
        let pair = ["MGET", &format!("ledger:{{{writer}}}:a"), &format!("ledger:{{{writer}}}:b")];
        let field::resp::Value::Array(halves) = client.call(&pair).unwrap() else { panic!() };
        assert!(halves[0] == halves[1], "writer {writer}: a torn pair");
    }

    let mut damaged = std::fs::read(&file).unwrap();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    std::fs::write(&file, damaged).unwrap();
    let other = folder.path().join("damaged").display().to_string();
    let restore = ["restore", &path, "--data", &other, "--site", "field", "--quiet"];
    assert!(binary::run(binary::portolan(), &restore).is_err(), "a damaged backup is restored");
}

/// Starts node `number` as a new member.
fn join(site: &mut Site, folder: &Path, number: u64) {
    let mut options = NodeOptions::new(folder, number);
    options.join = Some(site.nodes[0].options.peer);
    site.nodes.push(options.start());
}
