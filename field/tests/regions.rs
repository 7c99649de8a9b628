//! Causal keys in three regions of real sites: each orders the writes of its own, and all come to
//! the same, though nodes are killed; a session goes on in another region.

use std::time::Duration;

use field::deployment::{self, LIMIT, json};
use field::resp::{Client, Value};
use field::{Node, eventually};

const DEADLINE: Duration = Duration::from_secs(15);
/// Sites and their regions. The last two are one region.
const SITES: [(&str, &str); 4] = [("a", "east"), ("b", "west"), ("c", "south"), ("d", "south")];

fn start(folder: &std::path::Path) -> Vec<Node> {
    let mut nodes: Vec<Node> = Vec::new();
    for (name, region) in SITES {
        let mut options = deployment::options(folder, name, nodes.last());
        options.more.extend(["--region".to_owned(), region.to_owned()]);
        nodes.push(options.start());
    }
    deployment::create_causal(&nodes);
    nodes
}

fn connect(node: &Node) -> Result<Client, String> {
    Client::connect(node.options.redis, DEADLINE).map_err(|error| error.to_string())
}

fn call(client: &mut Client, words: &[&str]) -> Result<Value, String> {
    client.call(words).map_err(|error| format!("{words:?}: {error:?}"))
}

fn get(node: &Node, key: &str) -> Result<Option<String>, String> {
    let value = call(&mut connect(node)?, &["GET", key])?;
    Ok(value.bytes().map(|bytes| String::from_utf8_lossy(bytes).into_owned()))
}

fn all_show(nodes: &[Node], key: &str, wanted: &str) {
    for node in nodes {
        let same = eventually(LIMIT, || match get(node, key)? {
            Some(found) if found == wanted => Ok(()),
            other => Err(format!("{} has {other:?} at {key}", node.options.site)),
        });
        same.unwrap();
    }
}

/// Waits until a region has ordered its writes, by itself. A write has its stamp from then on.
fn wait_ordered(node: &Node) {
    let ordered = eventually(LIMIT, || {
        let region = json(node, &["region", "show", "--json"])?;
        match region["last_revision"] == region["ordered_revision"] {
            true => Ok(()),
            false => Err(region.to_string()),
        }
    });
    ordered.expect("a region orders by itself");
}

#[test]
fn regions_come_to_the_same_and_sessions_go_from_one_to_another() {
    let folder = tempfile::tempdir().unwrap();
    let mut nodes = start(folder.path());
    let shows_all = || {
        let shown = nodes[3].cli(&["region", "show"])?;
        let has_all = ["east", "west", "south"].iter().all(|region| shown.contains(region));
        if has_all { Ok(()) } else { Err(shown) }
    };
    // The site may not have the registry yet that the first causal keyspace changed.
    eventually(LIMIT, shows_all).unwrap();
    let mut client = connect(&nodes[0]).unwrap();
    let mut carried = call(&mut client, &["PORTOLAN.TOKEN"]).unwrap();
    for round in 0..24_usize {
        match round {
            // The only site of a region, right after the session has written there.
            9 => {
                nodes[0].kill();
                nodes[0].restart();
            }
            // The site that orders, of two.
            15 => {
                nodes[2].kill();
                nodes[2].restart();
            }
            _ => {}
        }
        let token = String::from_utf8_lossy(carried.bytes().unwrap()).into_owned();
        let attach = || {
            let mut client = connect(&nodes[round % 4])?;
            call(&mut client, &["PORTOLAN.ATTACH", &token, "WITHIN", "5000"])?;
            Ok::<_, String>(client)
        };
        let mut client = eventually(LIMIT, attach).unwrap();
        if round > 0 {
            let seen = call(&mut client, &["GET", "car:1"]).unwrap();
            assert_eq!(seen.bytes(), Some((round - 1).to_string().as_bytes()), "round {round}");
        }
        call(&mut client, &["SET", "car:1", &round.to_string()]).unwrap();
        call(&mut client, &["HSET", "car:2", &format!("f{round}"), "1"]).unwrap();
        carried = call(&mut client, &["PORTOLAN.TOKEN"]).unwrap();
    }
    all_show(&nodes, "car:1", "23");
    for node in &nodes {
        // The last field was written after what all show by now.
        let has_all = eventually(LIMIT, || match call(&mut connect(node)?, &["HLEN", "car:2"])? {
            Value::Int(24) => Ok(()),
            other => Err(format!("{} has {other:?} fields", node.options.site)),
        });
        has_all.unwrap();
    }

    // Two regions that cannot reach each other write the same key. Which write stays depends on how long
    // the second region was down, as its clock did not go on; all regions show the same one.
    nodes[1].kill();
    call(&mut connect(&nodes[0]).unwrap(), &["SET", "car:3", "first"]).unwrap();
    wait_ordered(&nodes[0]);
    nodes[0].kill();
    nodes[1].restart();
    let put = || call(&mut connect(&nodes[1])?, &["SET", "car:3", "second"]);
    eventually(LIMIT, put).unwrap();
    wait_ordered(&nodes[1]);
    nodes[0].restart();
    let same = eventually(LIMIT, || {
        let shown: Vec<_> =
            nodes.iter().map(|node| get(node, "car:3")).collect::<Result<_, _>>()?;
        let is_one = |found: &Option<String>| found.is_some() && *found == shown[0];
        if shown.iter().all(is_one) { Ok(()) } else { Err(format!("{shown:?}")) }
    });
    same.unwrap();

    // A key expires everywhere.
    call(&mut connect(&nodes[1]).unwrap(), &["SET", "car:4", "short", "PX", "700"]).unwrap();
    for node in &nodes {
        let gone = eventually(LIMIT, || match get(node, "car:4")? {
            None => Ok(()),
            Some(found) => Err(found),
        });
        gone.unwrap();
    }
}
