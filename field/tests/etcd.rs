//! Sites that keep their keys in a real etcd of three members: nothing acknowledged is lost,
//! whatever is killed; of two processes one serves, and one that slept through its lease answers
//! nothing more; sites of both engines are one deployment.

use std::path::Path;
use std::time::Duration;

use field::ledger::Writers;
use field::resp::{Client, Error, Value};
use field::{Etcd, Ledger, Node, NodeOptions, eventually};

const DEADLINE: Duration = Duration::from_secs(15);
const LIMIT: Duration = Duration::from_secs(300);

fn on_etcd(folder: &Path, site: &str, etcd: &Etcd) -> NodeOptions {
    let mut options = NodeOptions::new(folder, 1);
    options.data = folder.join(site);
    site.split('-').next().unwrap().clone_into(&mut options.site);
    let more = ["--engine", "etcd", "--etcd-lease-ttl-s", "3", "--etcd-endpoints"];
    options.more.extend(more.map(str::to_owned));
    options.more.push(etcd.endpoints());
    options
}

fn client(node: &Node) -> Client {
    Client::connect(node.options.redis, DEADLINE).unwrap()
}

fn check(ledgers: Vec<Ledger>, nodes: &[&Node]) {
    for mut ledger in ledgers {
        assert!(ledger.counted > 0, "a writer wrote nothing");
        for node in nodes {
            eventually(LIMIT, || {
                let mut client = Client::connect(node.options.redis, DEADLINE);
                let client = client.as_mut().map_err(|error| error.to_string())?;
                ledger.check(client).map_err(|error| error.to_string())?.map_err(|e| e.to_string())
            })
            .unwrap();
        }
    }
}

#[test]
fn nothing_acknowledged_is_lost_whoever_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut etcd) = Etcd::start(folder.path()) else { return };
    let mut node = on_etcd(folder.path(), "pier", &etcd).start();
    // Longer than etcd takes: in parts.
    let long = "0123456789abcdef".repeat(200_000);
    client(&node).call(&["SET", "long", &long]).unwrap();
    let mut many = vec!["MSET".to_owned()];
    many.extend((0..1_000).flat_map(|n| [format!("many:{n}"), n.to_string()]));
    client(&node).call(&many).unwrap();

    let writers = (0..8).map(Ledger::new).collect();
    let writers = Writers::start(writers, &[node.options.redis], DEADLINE);
    for round in 0..6 {
        std::thread::sleep(Duration::from_millis(500));
        match round % 3 {
            0 => node.kill(),
            _ => etcd.kill(round % 3),
        }
        std::thread::sleep(Duration::from_millis(1_000));
        match round % 3 {
            0 => node.restart(),
            _ => etcd.restart(round % 3),
        }
    }
    let ledgers = writers.stop().unwrap();
    node.kill();
    // Nothing is needed of the data directory but its identity.
    for copy in ["state", "log"] {
        std::fs::remove_dir_all(node.options.data.join(copy)).unwrap();
    }
    node.restart();
    check(ledgers, &[&node]);
    let mut client = client(&node);
    assert_eq!(client.call(&["GET", "long"]).unwrap().bytes(), Some(long.as_bytes()));
    for n in [0, 500, 999] {
        let found = client.call(&["GET", &format!("many:{n}")]).unwrap();
        assert_eq!(found.int(), Some(n));
    }
    let (_, status) = node.admin("/status").unwrap();
    assert!(status.contains("\"engine\": \"etcd\""), "{status}");
    assert!(node.cli(&["status"]).unwrap().contains("in etcd at http://127.0.0.1"));
    assert!(node.admin("/metrics").unwrap().1.contains("portolan_etcd_transaction_duration"));
}

#[test]
fn an_owner_that_slept_through_its_lease_sends_nothing_more() {
    let folder = tempfile::tempdir().unwrap();
    let Some(etcd) = Etcd::start(folder.path()) else { return };
    let first = on_etcd(folder.path(), "pier", &etcd).start();
    client(&first).call(&["SET", "key", "old"]).unwrap();
    let mut second = on_etcd(folder.path(), "pier-standby", &etcd).spawn();
    eventually(LIMIT, || match second.log() {
        log if log.contains("served by another process") => Ok(()),
        log => Err(log),
    })
    .unwrap();
    assert!(second.admin("/readyz").is_err(), "a standby does not serve");

    // What its clients asked while it slept lies in its sockets.
    let (mut reads, mut writes) = (client(&first), client(&first));
    for one in [&mut reads, &mut writes] {
        one.call(&["PING"]).unwrap();
    }
    first.sleep(true);
    reads.send(&["GET", "key"]).unwrap();
    writes.send(&["SET", "key", "late"]).unwrap();
    second.wait_ready();
    let found = client(&second).call(&["GET", "key"]).unwrap();
    assert_eq!(found.bytes(), Some(&b"old"[..]));
    client(&second).call(&["SET", "key", "new"]).unwrap();
    first.sleep(false);
    for (what, one) in [("a read", &mut reads), ("a write", &mut writes)] {
        match one.receive() {
            Err(Error::Refused(said)) => {
                // Of what came as it gave the site up nothing is done, either.
                let honest = ["UNKNOWN", "CLUSTERDOWN", "LOADING"];
                let honest = honest.iter().any(|start| said.starts_with(start));
                assert!(honest, "{what}: {said}");
            }
            Err(Error::Unknown(_)) => {}
            Ok(answer) => {
                panic!("{what} was answered by a process that is not the owner: {answer:?}")
            }
        }
    }
    let found = client(&second).call(&["GET", "key"]).unwrap();
    assert_eq!(found.bytes(), Some(&b"new"[..]));

    // It waits for its turn, in the same process.
    eventually(LIMIT, || match first.log() {
        log if log.contains("waits for its turn") => Ok(()),
        log => Err(log),
    })
    .unwrap();
    second.stop();
    let mut first = first;
    first.wait_ready();
    let found = client(&first).call(&["GET", "key"]).unwrap();
    assert_eq!(found.bytes(), Some(&b"new"[..]));
    first.stop();
}

#[test]
fn sites_of_both_engines_are_one_deployment() {
    let folder = tempfile::tempdir().unwrap();
    let Some(etcd) = Etcd::start(folder.path()) else { return };
    let mut a = on_etcd(folder.path(), "a", &etcd).start();
    let mut b = NodeOptions::new(&folder.path().join("b"), 1);
    (b.site, b.join) = ("b".into(), Some(a.options.peer));
    let b = b.start();
    // One that joins, by the prefix of its own name in the same cluster.
    let mut c = on_etcd(folder.path(), "c", &etcd);
    c.join = Some(b.options.peer);
    let mut c = c.start();
    eventually(LIMIT, || {
        // Where the answer does not show whether it was made, the list does.
        let made =
            c.cli(&["keyspace", "create", "ledger", "--prefix", "ledger:", "--scope", "global"]);
        match c.cli(&["keyspace", "list"])? {
            list if list.contains("ledger") => Ok(()),
            list => Err(format!("{made:?}, {list}")),
        }
    })
    .unwrap();
    for node in [&a, &b, &c] {
        eventually(LIMIT, || match node.cli(&["keyspace", "list"])? {
            list if list.contains("ledger") => Ok(()),
            list => Err(list),
        })
        .unwrap();
    }
    let redis = [a.options.redis, b.options.redis, c.options.redis];
    let writers = Writers::start((0..6).map(Ledger::new).collect(), &redis, DEADLINE);
    for to in ["a", "b", "c", "b", "a"] {
        // On a busy machine each of these takes its time.
        eventually(LIMIT, || b.cli(&["slot", "move", "all", "--to", to, "--deadline", "60s"]))
            .unwrap();
    }
    a.kill();
    c.kill();
    a.restart();
    c.restart();
    let ledgers = writers.stop().unwrap();
    check(ledgers, &[&a, &b, &c]);
    // Each keeps its own keys, too.
    for (node, value) in [(&a, "1"), (&b, "2"), (&c, "3")] {
        client(node).call(&["SET", "own", value]).unwrap();
    }
    for (node, value) in [(&a, "1"), (&b, "2"), (&c, "3")] {
        assert_eq!(client(node).call(&["GET", "own"]).unwrap(), Value::Bytes(value.into()));
    }
}

#[test]
fn other_nodes_and_other_engines_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let Some(etcd) = Etcd::start(folder.path()) else { return };
    let mut node = on_etcd(folder.path(), "pier", &etcd).start();
    for command in [&["member", "add", "2", "127.0.0.1:1"][..], &["member", "remove", "1"]] {
        let refused = node.cli(command).unwrap_err();
        assert!(refused.contains("keeps its keys in etcd"), "{refused}");
    }
    let ends = |options: &NodeOptions, word: &str| {
        let mut process = options.spawn();
        let status = process.wait_exit(LIMIT).unwrap();
        let log = process.log();
        assert!(!status.success() && log.contains(word), "{log}");
    };
    let mut second = NodeOptions::new(folder.path(), 2);
    "pier".clone_into(&mut second.site);
    second.join = Some(node.options.peer);
    ends(&second, "keeps its keys in etcd");

    node.kill();
    let mut embedded = node.options.clone();
    embedded.more.clear();
    ends(&embedded, "--engine");
    // The prefix is another node's.
    let mut stranger = on_etcd(folder.path(), "pier-other", &etcd);
    stranger.node = 7;
    // It owns the site before it looks, when the lease of the one that was killed is over.
    ends(&stranger, "belongs to node 1");
    // etcd is refused where the site has its keys already.
    let mut grown = NodeOptions::new(&folder.path().join("grown"), 1);
    let mut grown_node = grown.start();
    grown_node.kill();
    grown.more.extend(["--engine", "etcd", "--etcd-endpoints"].map(str::to_owned));
    grown.more.push(etcd.endpoints());
    ends(&grown, "in this directory");
}

#[test]
fn an_etcd_with_certificates_and_users_is_used() {
    let folder = tempfile::tempdir().unwrap();
    let certificates = field::tls::certificates(folder.path());
    let Some(mut etcd) = Etcd::start_with(folder.path(), Some(certificates.clone())) else {
        return;
    };
    for words in [
        &["user", "add", "root:secret"][..],
        &["user", "grant-role", "root", "root"],
        &["user", "add", "portolan:harbour"],
        &["role", "add", "site"],
        &["role", "grant-permission", "site", "--prefix=true", "readwrite", "/portolan/pier/"],
        &["user", "grant-role", "portolan", "site"],
        &["auth", "enable"],
    ] {
        etcd.ctl(words).unwrap_or_else(|error| panic!("{words:?}: {error}"));
    }
    let password = folder.path().join("password");
    std::fs::write(&password, "harbour\n").unwrap();
    let mut options = on_etcd(folder.path(), "pier", &etcd);
    let files = [
        ("--etcd-ca", &certificates.ca),
        ("--etcd-cert", &certificates.cert),
        ("--etcd-key", &certificates.key),
        ("--etcd-password-file", &password),
    ];
    for (flag, file) in files {
        options.more.extend([flag.to_owned(), file.display().to_string()]);
    }
    options.more.extend(["--etcd-user", "portolan"].map(str::to_owned));
    let mut node = options.start();
    // A process that is slow can lose the site in etcd for a while.
    let set = |value| {
        let set = || client(&node).call(&["SET", "key", value]).map_err(|error| error.to_string());
        eventually(LIMIT, set).unwrap();
    };
    set("value");
    etcd.kill(0);
    set("again");
    etcd.restart(0);
    // A password that was changed: the token is good for a while, a new login is not.
    node.kill();
    std::fs::write(&password, "wrong").unwrap();
    let mut refused = options.spawn();
    assert!(!refused.wait_exit(LIMIT).unwrap().success());
    assert!(refused.log().contains("--etcd-password-file"), "{}", refused.log());
    std::fs::write(&password, "harbour").unwrap();
    node.restart();
    let found = client(&node).call(&["GET", "key"]).unwrap();
    assert_eq!(found.bytes(), Some(&b"again"[..]));
    node.kill();
    // Another prefix is not this user's.
    let mut elsewhere = options;
    elsewhere.more.extend(["--etcd-prefix", "/other"].map(str::to_owned));
    let mut refused = elsewhere.spawn();
    assert!(!refused.wait_exit(LIMIT).unwrap().success());
    assert!(refused.log().contains("--etcd-prefix"), "{}", refused.log());
}
