//! Sites of several nodes in a deployment, a site that comes back after it has left, and moves that
//! an operator brakes.

use std::path::Path;
use std::time::{Duration, Instant};

use field::resp::Client;
use field::{Node, NodeOptions, eventually};
use serde_json::Value;

const DEADLINE: Duration = Duration::from_secs(15);
const LIMIT: Duration = Duration::from_secs(300);

fn options(folder: &Path, site: &str, node: u64, join: Option<&Node>) -> NodeOptions {
    let mut options = NodeOptions::new(&folder.join(site), node);
    site.clone_into(&mut options.site);
    options.join = join.map(|node| node.options.peer);
    options
}

fn json(node: &Node, words: &[&str]) -> Result<Value, String> {
    serde_json::from_str(&node.cli(words)?).map_err(|error| error.to_string())
}

fn keyspace(nodes: &[&Node]) {
    let create = ["keyspace", "create", "cars", "--prefix", "car:", "--scope", "global"];
    eventually(LIMIT, || nodes[0].cli(&create)).unwrap();
    for node in nodes {
        eventually(LIMIT, || match node.cli(&["keyspace", "list"])? {
            list if list.contains("cars") => Ok(()),
            list => Err(list),
        })
        .unwrap();
    }
}

/// Until a site has so many nodes, by the registry of a node of another site.
fn wait_for_nodes(node: &Node, site: &str, count: usize) {
    eventually(LIMIT, || match json(node, &["site", "show", site, "--json"])? {
        shown if shown["nodes"].as_array().map(Vec::len) == Some(count) => Ok(()),
        shown => Err(shown.to_string()),
    })
    .unwrap();
}

fn set(node: &Node, key: &str, value: &str) {
    eventually(LIMIT, || {
        let mut client =
            Client::connect(node.options.redis, DEADLINE).map_err(|e| e.to_string())?;
        client.call(&["SET", key, value]).map(|_| ()).map_err(|error| format!("{error:?}"))
    })
    .unwrap();
}

fn get(node: &Node, key: &str) -> Vec<u8> {
    eventually(LIMIT, || {
        let mut client =
            Client::connect(node.options.redis, DEADLINE).map_err(|e| e.to_string())?;
        let found = client.call(&["GET", key]).map_err(|error| format!("{error:?}"))?;
        found.bytes().map(<[u8]>::to_vec).ok_or_else(|| format!("{key} is not there"))
    })
    .unwrap()
}

#[test]
fn a_site_of_three_nodes_joins_by_its_own_nodes_or_by_others() {
    let folder = tempfile::tempdir().unwrap();
    let a = options(folder.path(), "a", 1, None).start();
    let mut b1 = options(folder.path(), "b", 1, Some(&a)).start();
    // By their first node, as in the guide; and by any other node.
    let b2 = options(folder.path(), "b", 2, Some(&b1)).start();
    wait_for_nodes(&a, "b", 2);
    let b3 = options(folder.path(), "b", 3, Some(&a)).start();
    wait_for_nodes(&a, "b", 3);
    eventually(LIMIT, || match b3.status()? {
        status if status.voters() == 3 => Ok(()),
        status => Err(format!("{status:?}")),
    })
    .unwrap();
    keyspace(&[&a, &b2, &b3]);
    for key in 0..20 {
        set(&b3, &format!("car:{key}"), &format!("v{key}"));
    }
    eventually(LIMIT, || match json(&a, &["site", "show", "b", "--json"])? {
        shown if shown["slots"].as_u64() > Some(0) => Ok(()),
        shown => Err(shown.to_string()),
    })
    .unwrap();
    // What the site holds survives its first node, and the other site finds it.
    b1.kill();
    for key in 0..20 {
        assert_eq!(get(&a, &format!("car:{key}")), format!("v{key}").into_bytes());
        set(&b2, &format!("car:{key}"), "after");
    }
    b1.restart();
    wait_for_nodes(&a, "b", 3);
    assert_eq!(get(&b1, "car:7"), b"after");
}

#[test]
fn a_site_that_has_left_comes_back_on_an_empty_directory_only() {
    let folder = tempfile::tempdir().unwrap();
    let a = options(folder.path(), "a", 1, None).start();
    let b = options(folder.path(), "b", 1, Some(&a)).start();
    let mut c = options(folder.path(), "c", 1, Some(&a)).start();
    keyspace(&[&a, &b, &c]);
    for key in 0..20 {
        set(&c, &format!("car:{key}"), "kept");
    }
    let said = a.cli(&["site", "leave", "c"]).unwrap();
    assert!(said.contains("empty data directories"), "{said}");
    // It is notified of that, and prints what to do.
    eventually(LIMIT, || match c.log() {
        log if log.contains("has left its deployment") => Ok(()),
        log => Err(log),
    })
    .unwrap();
    c.kill();
    c.respawn();
    let ended = c.wait_exit(LIMIT).unwrap();
    assert!(!ended.success());
    assert!(c.log().contains("start it on an empty data directory"), "{}", c.log());
    // A new site of the old name, at the old addresses.
    let mut anew = c.options.clone();
    anew.data = folder.path().join("c").join("anew");
    let c = anew.start();
    eventually(LIMIT, || match json(&a, &["site", "list", "--json"])? {
        listed if listed["sites"].as_array().map(Vec::len) == Some(3) => Ok(()),
        listed => Err(listed.to_string()),
    })
    .unwrap();
    for key in 0..20 {
        assert_eq!(get(&c, &format!("car:{key}")), b"kept");
    }
}

/// The move that a site has under way.
fn only_move(node: &Node) -> Result<Value, String> {
    let listed = json(node, &["slot", "list", "--json"])?;
    listed["moves"].get(0).cloned().ok_or_else(|| "no move is under way".to_owned())
}

#[test]
fn a_move_is_braked_rests_and_goes_on() {
    const BYTES_PER_S: u64 = 100_000;
    const VALUE_BYTES: usize = 50_000;
    const VALUES: usize = 40;
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join("a")).unwrap();
    let mut slow = options(folder.path(), "a", 1, None);
    slow.configure(&format!("[handover]\nbytes_per_s_max = {BYTES_PER_S}\n"));
    let a = slow.start();
    let b = options(folder.path(), "b", 1, Some(&a)).start();
    keyspace(&[&a, &b]);
    // All keys of one tag are in one slot. Once it has come by an order it stays: where it only
    // happens to be, the job that balances slots may take it along at any time.
    let tag = "car:{tag}";
    let slot = crc16(b"tag") % 16_384;
    for to in ["b", "a"] {
        let order = || a.cli(&["slot", "move", &slot.to_string(), "--to", to]);
        eventually(LIMIT, || order().map(drop)).unwrap();
    }
    eventually(LIMIT, || match json(&a, &["slot", "list", "--json"])? {
        listed if owner(&listed, slot) == Some("a".to_owned()) => Ok(()),
        listed => Err(format!("{:?}", owner(&listed, slot))),
    })
    .unwrap();
    for value in 0..VALUES {
        set(&a, &format!("{tag}{value}"), &"x".repeat(VALUE_BYTES));
    }
    let began = Instant::now();
    a.cli(&["slot", "move", &slot.to_string(), "--to", "b", "--no-wait"]).unwrap();
    let begun = eventually(LIMIT, || match only_move(&a)? {
        begun if begun["sent_bytes"].as_u64() > Some(0) => Ok(begun),
        begun => Err(begun.to_string()),
    });
    let begun = begun.unwrap_or_else(|why| panic!("{why}\n{}", a.log()));
    let number = begun["number"].to_string();
    a.cli(&["slot", "pause", &number]).unwrap();
    let rests = eventually(LIMIT, || {
        let first = only_move(&a)?;
        std::thread::sleep(Duration::from_millis(1_500));
        let second = only_move(&a)?;
        let rests = second["paused"] == true && first["sent_bytes"] == second["sent_bytes"];
        if rests { Ok(second) } else { Err(format!("{first} {second}")) }
    });
    assert_eq!(rests.unwrap()["frozen"], false);
    // It is served while it rests.
    set(&b, &format!("{tag}0"), "written while it rests");
    a.cli(&["slot", "pause", &number, "--resume"]).unwrap();
    eventually(LIMIT, || match json(&b, &["slot", "list", "--json"])? {
        listed if owner(&listed, slot) == Some("b".to_owned()) => Ok(()),
        listed => Err(format!("{:?}", owner(&listed, slot))),
    })
    .unwrap();
    // However fast the machine is, it cannot have been quicker than the brake; one piece goes at
    // once.
    let least = Duration::from_secs((VALUES * VALUE_BYTES) as u64 / BYTES_PER_S / 2);
    assert!(began.elapsed() > least, "{:?}", began.elapsed());
    assert_eq!(get(&a, &format!("{tag}0")), b"written while it rests");
    assert_eq!(get(&a, &format!("{tag}7")).len(), VALUE_BYTES);
}

fn owner(listed: &Value, slot: u64) -> Option<String> {
    let ranges = listed["owners"].as_array()?.iter();
    let mut found = ranges.filter(|range| {
        range["first"].as_u64() <= Some(slot) && range["last"].as_u64() >= Some(slot)
    });
    found.next()?["site"].as_str().map(str::to_owned)
}

/// CRC16 as Redis Cluster has it (XMODEM).
fn crc16(bytes: &[u8]) -> u64 {
    let step = |crc: u16, byte: &u8| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| match crc & 0x8000 {
            0 => crc << 1,
            _ => (crc << 1) ^ 0x1021,
        })
    };
    u64::from(bytes.iter().fold(0u16, step))
}
