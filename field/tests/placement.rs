//! Advice about placement, as operators are shown it: a client at one site reads a key that another
//! site owns.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use field::deployment::{json, start};
use field::resp::Client;
use field::{Node, eventually};

const TIMEOUT: Duration = Duration::from_secs(300);
const DEADLINE: Duration = Duration::from_secs(15);
/// Between two reads.
const APART: Duration = Duration::from_millis(20);

/// A key of the keyspace `car:` that a site owns.
fn key_at(node: &Node, site: &str) -> String {
    let owned_there = |key: &String| {
        let explained = json(node, &["placement", "explain", key, "--json"]);
        explained.is_ok_and(|explained| explained["owner"] == site)
    };
    (0..100).map(|number| format!("car:{number}")).find(owned_there).expect("a key of each site")
}

#[test]
fn a_key_that_is_read_elsewhere_is_explained() {
    let folder = tempfile::tempdir().expect("a folder");
    let nodes = start(folder.path(), ["a", "b", "c"]);
    let [a, _, c] = &nodes;
    let refused = a.cli(&["placement", "explain", "ledger:1"]).unwrap_err();
    assert!(refused.contains("placement off"), "{refused}");
    let create = ["keyspace", "create", "cars", "--prefix", "car:", "--scope", "global"];
    let create = [&create[..], &["--placement", "advise"]].concat();
    eventually(TIMEOUT, || a.cli(&create)).expect("a keyspace with advice");
    for node in &nodes {
        let knows = || json(node, &["keyspace", "show", "cars", "--json"]);
        let shown = eventually(TIMEOUT, knows).expect("a keyspace gets about");
        assert_eq!(shown["placement"], "advise");
    }
    let key = key_at(c, "a");
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut client = Client::connect(c.options.redis, DEADLINE).expect("a client");
            client.call(&["SET", &key, "x"]).expect("a write");
            while !ends.load(Ordering::Relaxed) {
                client.call(&["GET", &key]).expect("a read");
                std::thread::sleep(APART);
            }
        });
        // Asked anywhere, the owner answers.
        let advised = eventually(TIMEOUT, || {
            let explained = json(c, &["placement", "explain", &key, "--json"])?;
            match explained["reason"].as_str() {
                Some("advised") => Ok(explained),
                _ => Err(explained.to_string()),
            }
        });
        let ledger = eventually(TIMEOUT, || {
            let ledger = json(a, &["placement", "ledger", "--json"])?;
            let windows = ledger["windows"].as_array().map_or(0, Vec::len);
            if windows > 0 { Ok(ledger) } else { Err(ledger.to_string()) }
        });
        let texts = [&["placement", "explain", key.as_str()][..], &["placement", "ledger"]];
        let texts = texts.map(|words| a.cli(words));
        ends.store(true, Ordering::Relaxed);
        let (advised, ledger) = (advised.expect("advice"), ledger.expect("a window of the ledger"));
        assert_eq!((&advised["owner"], &advised["better"]), (&"a".into(), &"c".into()));
        assert_eq!(advised["candidates"][0]["site"], "c");
        assert_eq!(advised["key_users"][0]["site"], "c");
        assert!(advised["gain_ms"].as_f64().is_some_and(|ms| ms > 0.0), "{advised}");
        let moves = ledger["advised"].as_array().expect("moves");
        let of_key = moves.iter().find(|one| one["slot"] == advised["slot"]).expect("its slot");
        assert_eq!((&of_key["from"], &of_key["to"]), (&"a".into(), &"c".into()));
        let [explained, ledger] = texts.map(|text| text.expect("a table"));
        assert!(explained.contains("a move to c is advised"), "{explained}");
        assert!(ledger.contains("by `portolan slot move` alone"), "{ledger}");
    });
    let jobs = a.cli(&["job", "list"]).expect("jobs");
    assert!(jobs.contains("place"), "{jobs}");
}
