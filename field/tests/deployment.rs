//! Several sites as one deployment, as their operators see it: sites join and leave, slots move, a
//! site is killed, and clients that write notice nothing but a wait.

use std::time::Duration;

use field::deployment::{self, LIMIT, options, slots};
use field::ledger::Writers;
use field::resp::Client;
use field::{Ledger, Node, eventually};

const DEADLINE: Duration = Duration::from_secs(15);

fn check(mut ledgers: Vec<Ledger>, nodes: &[Node]) {
    for ledger in &mut ledgers {
        assert!(ledger.counted > 0, "a writer wrote nothing");
        for node in nodes {
            let mut client = Client::connect(node.options.redis, DEADLINE).unwrap();
            eventually(LIMIT, || {
                ledger.check(&mut client).unwrap().map_err(|error| error.to_string())
            })
            .unwrap();
        }
    }
}

#[test]
fn sites_join_and_leave_while_clients_write() {
    let folder = tempfile::tempdir().unwrap();
    let [mut a, b, c] = deployment::start(folder.path(), ["a", "b", "c"]);
    let redis = [b.options.redis, c.options.redis];
    let writers = Writers::start((0..4).map(Ledger::new).collect(), &redis, DEADLINE);
    let d = options(folder.path(), "d", Some(&c)).start();
    eventually(LIMIT, || match slots(&d)? {
        all if all.iter().any(|(site, slots)| site == "d" && *slots > 0) => Ok(()),
        all => Err(format!("{all:?}")),
    })
    .unwrap();
    b.cli(&["site", "leave", "a"]).unwrap();
    let left = eventually(LIMIT, || match slots(&c)? {
        left if left.len() == 3 => Ok(left),
        more => Err(format!("{more:?}")),
    });
    let left = left.unwrap();
    assert_eq!(left.iter().map(|(site, _)| site.as_str()).collect::<Vec<_>>(), ["b", "c", "d"]);
    a.kill();
    let ledgers = writers.stop().unwrap();
    check(ledgers, &[b, c, d]);
}

#[test]
fn slots_move_to_and_fro_and_a_site_is_killed_meanwhile() {
    let folder = tempfile::tempdir().unwrap();
    let mut nodes = deployment::start(folder.path(), ["a", "b", "c"]);
    let redis: Vec<_> = nodes.iter().map(|node| node.options.redis).collect();
    let writers = Writers::start((0..4).map(Ledger::new).collect(), &redis, DEADLINE);
    for to in ["a", "b", "c", "b"] {
        // On a slow machine that takes longer than a command waits by default.
        nodes[0].cli(&["slot", "move", "all", "--to", to, "--deadline", "300s"]).unwrap();
    }
    nodes[0].cli(&["slot", "move", "all", "--to", "c", "--no-wait"]).unwrap();
    nodes[1].kill();
    nodes[1].restart();
    eventually(LIMIT, || match slots(&nodes[2])? {
        all if all.iter().all(|(site, slots)| *slots > 0 || site != "c") => Ok(()),
        all => Err(format!("{all:?}")),
    })
    .unwrap();
    let ledgers = writers.stop().unwrap();
    check(ledgers, &nodes);
}

/// The output of `slot move … --json`, and its exit code.
fn moved(node: &Node, slots: &str, to: &str) -> (serde_json::Value, Option<i32>) {
    let words = ["slot", "move", slots, "--to", to, "--json", "--deadline", "3s"];
    let grpc = node.options.grpc.to_string();
    let output = std::process::Command::new(&node.options.program)
        .args(words)
        .args(["--server", &grpc])
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let printed = serde_json::from_str(&printed)
        .unwrap_or_else(|_| panic!("{printed}{}", String::from_utf8_lossy(&output.stderr)));
    (printed, output.status.code())
}

#[test]
fn a_move_asks_the_owners_and_reports_what_stays() {
    let folder = tempfile::tempdir().unwrap();
    let [a, b, mut c] = deployment::start(folder.path(), ["a", "b", "c"]);
    // Back and forth, asked at sites that have learned of no move.
    for (asked, to) in [(&a, "b"), (&a, "c"), (&b, "a"), (&c, "b"), (&a, "c"), (&b, "a")] {
        let (printed, code) = moved(asked, "0-300", to);
        assert_eq!(code, Some(0), "{printed}");
        assert_eq!(
            (&printed["there"], &printed["left"]),
            (&"0-300".into(), &0.into()),
            "{printed}"
        );
    }
    let (printed, code) = moved(&c, "0-300", "a");
    assert!(
        code == Some(0)
            && printed["before"] == "0-300"
            && printed["moves"] == serde_json::json!([])
    );
    // A part is with a site that is away: it stays, and is named.
    assert_eq!(moved(&a, "100-200", "c").1, Some(0));
    c.kill();
    let (printed, code) = moved(&b, "0-300", "b");
    assert_eq!(code, Some(5), "{printed}");
    assert_eq!(
        (&printed["there"], &printed["left"]),
        (&"0-99,201-300".into(), &101.into()),
        "{printed}"
    );
    let elsewhere = &printed["elsewhere"][0];
    assert_eq!(
        (&elsewhere["slots"], &elsewhere["site"], &elsewhere["confirmed"]),
        (&"100-200".into(), &"c".into(), &false.into()),
        "{printed}"
    );
    c.restart();
    let (printed, code) = moved(&b, "0-300", "b");
    assert!(code == Some(0) && printed["there"] == "0-300", "{printed}");
}

#[test]
fn a_site_that_is_cut_off_keeps_its_map() {
    let folder = tempfile::tempdir().unwrap();
    let [mut a, b, mut c] = deployment::start(folder.path(), ["a", "b", "c"]);
    let mut client = Client::connect(b.options.redis, DEADLINE).unwrap();
    client.call(&["SET", "own", "1"]).unwrap();
    a.kill();
    c.kill();
    // Keyspaces, sites and its own keys are still there, and go on being served.
    assert!(b.cli(&["keyspace", "list"]).unwrap().contains("ledger"));
    assert_eq!(slots(&b).unwrap().len(), 3);
    client.call(&["SET", "own", "2"]).unwrap();
    let mut b = b;
    b.kill();
    b.restart();
    let mut client = Client::connect(b.options.redis, DEADLINE).unwrap();
    let found = client.call(&["GET", "own"]).unwrap();
    assert_eq!(found.bytes(), Some(&b"2"[..]));
    assert!(b.cli(&["keyspace", "list"]).unwrap().contains("ledger"));
}

#[test]
fn a_site_is_lost_for_good_its_backup_takes_over_and_the_stale_owner_is_fenced() {
    let folder = tempfile::tempdir().unwrap();
    let [a, b, mut c] = deployment::start(folder.path(), ["a", "b", "c"]);
    b.cli(&["site", "backup", "c", "--at", "b"]).unwrap();
    let mut client = Client::connect(a.options.redis, DEADLINE).unwrap();
    let keys: Vec<String> = (0..60).map(|number| format!("ledger:{number}")).collect();
    for key in &keys {
        client.call(&["SET", key.as_str(), "before"]).unwrap();
    }
    // Everything that c holds is mirrored at b, and both show that.
    deployment::wait_mirrored("c", &[&b, &c]);
    // A site that answers is not lost.
    let refused = a.cli(&["site", "promote", "c", "--accept-loss"]).unwrap_err();
    assert!(refused.contains("not lost"), "{refused}");
    c.kill();
    // Stale reads are answered by the backup, at every site, and marked so; others are not.
    let mut from_backup = 0;
    for key in &keys {
        let found = eventually(LIMIT, || a.cli(&["get", key, "--stale", "--json", "-k", "ledger"]));
        let found: serde_json::Value = serde_json::from_str(&found.unwrap()).unwrap();
        assert_eq!(found["value"], "before", "{found}");
        from_backup += u64::from(found["backup_age_ms"].is_u64());
    }
    assert!(from_backup > 0, "c held none of the keys");
    let printed = a.cli(&["site", "promote", "c"]).unwrap_err();
    assert!(printed.contains("nothing was done"), "{printed}");
    // The site that looked for the first order may not have ended it yet.
    let done = eventually(LIMIT, || {
        let answered = a.cli(&["site", "promote", "c", "--accept-loss", "--deadline", "60s"]);
        match answered {
            Err(busy) if busy.contains("taking over from that site already") => Err(busy),
            ended => Ok(ended),
        }
    });
    let done = done.unwrap().unwrap();
    assert!(done.contains("what c acknowledged since is lost"), "{done}");
    assert!(done.contains("b has taken over"), "{done}");
    for key in &keys {
        eventually(LIMIT, || match client.call(&["GET", key.as_str()]) {
            Ok(found) if found.bytes() == Some(&b"before"[..]) => Ok(()),
            other => Err(format!("{other:?}")),
        })
        .unwrap();
        client.call(&["SET", key.as_str(), "after"]).unwrap();
    }
    // The stale owner receives it, serves nothing of what it had, and takes part again.
    c.restart();
    eventually(LIMIT, || match b.cli(&["site", "show", "c", "--json"])? {
        shown if shown.contains("\"lost_to\": null") || shown.contains("\"lost_to\":null") => {
            Ok(())
        }
        shown => Err(shown),
    })
    .unwrap();
    for node in [&a, &b, &c] {
        let mut client = Client::connect(node.options.redis, DEADLINE).unwrap();
        for key in &keys {
            eventually(LIMIT, || match client.call(&["GET", key.as_str()]) {
                Ok(found) if found.bytes() == Some(&b"after"[..]) => Ok(()),
                other => Err(format!("{other:?}")),
            })
            .unwrap();
        }
    }
    // Other sites receive it when they ask for one of its keys.
    eventually(LIMIT, || match slots(&c)? {
        all if all.iter().any(|(site, slots)| site == "c" && *slots > 0) => Ok(()),
        all => Err(format!("{all:?}")),
    })
    .unwrap();
}
