//! Where slots are, as unmodified Redis clients and operators are shown it: sites that start one
//! after the other come to agree, after moves too, and one that fails is shown as failed.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use field::resp::{Client, Value};
use field::{Node, NodeOptions, eventually, ports, toolchain};

const TIMEOUT: Duration = Duration::from_secs(300);
const DEADLINE: Duration = Duration::from_secs(15);
const NAMES: [&str; 3] = ["a", "b", "c"];
/// Between two starts: the first site has given slots to the second when the third comes.
const APART: Duration = Duration::from_millis(1_500);

/// Starts three sites, so long apart; their nodes, and the cluster port of each.
fn started_apart(folder: &Path) -> (Vec<Node>, Vec<SocketAddr>) {
    let (mut nodes, mut ports) = (Vec::<Node>::new(), Vec::new());
    for name in NAMES {
        if !nodes.is_empty() {
            std::thread::sleep(APART);
        }
        let port = ports::free();
        let mut options = NodeOptions::new(&folder.join(name), 1);
        name.clone_into(&mut options.site);
        options.join = nodes.first().map(|node| node.options.peer);
        options.more.extend(["--redis-cluster".to_owned(), port.to_string()]);
        nodes.push(options.start());
        ports.push(port);
    }
    (nodes, ports)
}

fn ask(port: SocketAddr, words: &[&str]) -> Result<Value, String> {
    let mut client = Client::connect(port, DEADLINE).map_err(|error| error.to_string())?;
    client.call(words).map_err(|error| error.to_string())
}

/// CLUSTER SLOTS: each run of slots and the port of its master.
fn map(port: SocketAddr) -> Result<Vec<(i64, i64, i64)>, String> {
    let Value::Array(runs) = ask(port, &["CLUSTER", "SLOTS"])? else {
        return Err("no array".into());
    };
    let number = |value: &Value| match value {
        Value::Int(number) => Ok(*number),
        other => Err(format!("no number: {other:?}")),
    };
    let run = |run: &Value| match run {
        Value::Array(parts) => match &parts[..] {
            [first, last, Value::Array(master), ..] => {
                Ok((number(first)?, number(last)?, number(&master[1])?))
            }
            other => Err(format!("{other:?}")),
        },
        other => Err(format!("{other:?}")),
    };
    runs.iter().map(run).collect()
}

/// All sites show the same map, in which `owning` sites own slots and all slots are owned.
fn agree(ports: &[SocketAddr], owning: usize) -> Result<(), String> {
    let maps = ports.iter().map(|port| map(*port)).collect::<Result<Vec<_>, _>>()?;
    let slots: i64 = maps[0].iter().map(|(first, last, _)| last - first + 1).sum();
    let mut owners: Vec<i64> = maps[0].iter().map(|(.., port)| *port).collect();
    owners.sort_unstable();
    owners.dedup();
    match maps.iter().all(|map| *map == maps[0]) && slots == 16_384 && owners.len() == owning {
        true => Ok(()),
        false => Err(format!("{maps:?}")),
    }
}

/// `redis-cli --cluster check` finds nothing wrong at any of the sites.
fn check(ports: &[SocketAddr]) {
    if !toolchain::present("redis-cli", "--version") {
        return;
    }
    for port in ports {
        let checked = eventually(TIMEOUT, || {
            let output = Command::new("redis-cli")
                .args(["--cluster", "check", &port.to_string()])
                .output()
                .map_err(|error| error.to_string())?;
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            let is_well = output.status.success()
                && said.contains("[OK] All nodes agree about slots configuration.")
                && said.contains("[OK] All 16384 slots covered.")
                && !said.contains("[ERR]")
                && !said.contains("[WARNING]");
            if is_well { Ok(()) } else { Err(said) }
        });
        checked.unwrap();
    }
}

/// The line of CLUSTER NODES about the node at a port: its flags, and its link.
fn line(asked: SocketAddr, about: SocketAddr) -> Result<(String, String), String> {
    let nodes = ask(asked, &["CLUSTER", "NODES"])?;
    let text = String::from_utf8_lossy(nodes.bytes().unwrap_or_default()).into_owned();
    let found = text.lines().find(|line| line.contains(&format!(":{}@", about.port())));
    let words: Vec<&str> = found.ok_or(&text)?.split(' ').collect();
    Ok((words[2].to_owned(), words[7].to_owned()))
}

#[test]
fn sites_that_start_one_after_the_other_agree_and_a_failed_one_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    let (mut nodes, ports) = started_apart(folder.path());
    let begun = Instant::now();
    eventually(TIMEOUT, || agree(&ports, 3)).unwrap();
    eprintln!("three sites agree {:?} after the last one was ready", begun.elapsed());
    check(&ports);

    for (slots, to) in [("0-4999", "b"), ("2000-9000", "c"), ("3000-3999", "a"), ("8000", "b")] {
        nodes[1].cli(&["slot", "move", slots, "--to", to]).unwrap();
    }
    let moved = Instant::now();
    eventually(TIMEOUT, || agree(&ports, 3)).unwrap();
    eprintln!("and {:?} after the last move", moved.elapsed());
    check(&ports);

    // The asked site's own slots are confirmed, and the rest are hints.
    let listed = eventually(TIMEOUT, || {
        let listed = nodes[0].cli(&["slot", "list", "--json"])?;
        let listed: serde_json::Value = serde_json::from_str(&listed).map_err(|e| e.to_string())?;
        let ranges = listed["owners"].as_array().cloned().unwrap_or_default();
        let is_aged = |range: &serde_json::Value| match range["site"] == "a" {
            true => range["confirmed"] == true && range["age_ms"].is_null(),
            false => range["confirmed"] == false && range["age_ms"].is_u64(),
        };
        if ranges.iter().all(is_aged) { Ok(ranges) } else { Err(format!("{listed}")) }
    });
    assert!(listed.unwrap().len() >= 3);
    let shown = nodes[0].cli(&["slot", "list"]).unwrap();
    assert!(shown.contains("confirmed") && shown.contains("hint, "), "{shown}");

    nodes[2].kill();
    let state = |flags: &str, link: &str| {
        let expect = (flags.to_owned(), link.to_owned());
        eventually(TIMEOUT, || match line(ports[0], ports[2])? {
            state if state == expect => Ok(()),
            state => Err(format!("{state:?}")),
        })
        .unwrap();
    };
    state("master,fail", "disconnected");
    let sites = nodes[0].cli(&["site", "list"]).unwrap();
    assert!(sites.contains("unreachable"), "{sites}");
    // The others agree without it, and show what it owns.
    eventually(TIMEOUT, || agree(&ports[..2], 3)).unwrap();
    nodes[2].restart();
    state("master", "connected");
    eventually(TIMEOUT, || agree(&ports, 3)).unwrap();
    check(&ports);
}
