//! The Redis Cluster port: which requests are redirected where.

use crate::sites::{Deployment, until};
use crate::support::{Client, Site};
use model::Slot;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use wire::resp::Reply;

fn moved(key: &str, deployment: &Deployment, to: usize) -> String {
    format!("-MOVED {} {}", Slot::of_key(key.as_bytes()), deployment.address(to))
}

const CROSS_SLOT: &str = "-CROSSSLOT Keys in request don't hash to the same slot";

#[test]
fn a_request_at_the_wrong_site_is_redirected_to_the_owner() {
    let deployment = Deployment::start(&[true, true]);
    let (mut a, mut b) = (deployment.connect(0), deployment.connect(1));
    let key = "car:{t}1";
    deployment.give(key, 0);
    assert_eq!(a.raw(&format!("SET {key} v")), "+OK");
    assert_eq!(b.raw(&format!("SET {key} w")), moved(key, &deployment, 0));
    deployment.give(key, 1);
    assert_eq!(a.raw(&format!("SET {key} w")), moved(key, &deployment, 1));
    assert_eq!(a.raw(&format!("GET {key}")), moved(key, &deployment, 1));
    assert_eq!(b.raw(&format!("GET {key}")), "$1 v");

    // Stale reads too are of what this site has.
    assert_eq!(a.raw("READONLY"), "+OK");
    assert_eq!(a.raw(&format!("GET {key}")), moved(key, &deployment, 1));
    assert_eq!(a.raw("READWRITE"), "+OK");

    // ASKING is about one command, or one transaction.
    assert_eq!(a.raw("ASKING"), "+OK");
    assert_eq!(a.raw(&format!("GET {key}")), "$1 v");
    assert_eq!(a.raw(&format!("GET {key}")), moved(key, &deployment, 1));
    for (command, answer) in [
        ("ASKING", "+OK"),
        ("MULTI", "+OK"),
        ("SET car:{t}2 x", "+QUEUED"),
        ("GET car:{t}1", "+QUEUED"),
        ("EXEC", "*2 +OK $1 v"),
    ] {
        assert_eq!(a.raw(command), answer, "{command}");
    }
    assert_eq!(a.raw("GET car:{t}2"), moved(key, &deployment, 1));

    // In a pipeline each command has its own answer.
    deployment.give("car:{here}", 0);
    a.send(b"SET car:{here} 1\r\nSET car:{t}1 2\r\nINCR car:{here}\r\nPING\r\n");
    assert_eq!(a.reply().1, "+OK");
    assert_eq!(a.reply().1, moved(key, &deployment, 1));
    assert_eq!(a.reply().1, ":2");
    assert_eq!(a.reply().1, "+PONG");
}

#[test]
fn a_transaction_is_of_one_slot_that_is_here() {
    let deployment = Deployment::start(&[true, true]);
    let mut a = deployment.connect(0);
    for here in ["{here}", "{too}"] {
        deployment.give(here, 0);
    }
    deployment.give("{there}", 1);
    let elsewhere = moved("{there}", &deployment, 1);
    let cases: &[&[(&str, &str)]] = &[
        &[
            ("MULTI", "+OK"),
            ("SET car:{here} 1", "+QUEUED"),
            ("INCR car:{here}", "+QUEUED"),
            ("EXEC", "*2 +OK :2"),
        ],
        &[
            ("MULTI", "+OK"),
            ("SET car:{there} 1", &elsewhere),
            ("SET car:{here} 1", "+QUEUED"),
            ("EXEC", "-EXECABORT Transaction discarded because of previous errors."),
        ],
        &[
            ("MULTI", "+OK"),
            ("SET car:{here} 1", "+QUEUED"),
            ("SET car:{too} 1", "+QUEUED"),
            ("EXEC", CROSS_SLOT),
            ("EXEC", "-ERR EXEC without MULTI"),
        ],
        &[
            ("WATCH car:{there}", &elsewhere),
            ("WATCH car:{here} car:{too}", CROSS_SLOT),
            ("WATCH car:{here}", "+OK"),
            ("SET car:{here} 3", "+OK"),
            ("MULTI", "+OK"),
            ("GET car:{here}", "+QUEUED"),
            ("EXEC", "*-1"),
        ],
    ];
    for (command, answer) in cases.iter().copied().flatten() {
        assert_eq!(a.raw(command), *answer, "{command}");
    }

    // What was here when it was queued may have gone.
    assert_eq!(a.raw("WATCH car:{here}"), "+OK");
    assert_eq!(a.raw("MULTI"), "+OK");
    assert_eq!(a.raw("SET car:{here} 9"), "+QUEUED");
    deployment.give("{here}", 1);
    assert_eq!(a.raw("EXEC"), moved("{here}", &deployment, 1));
    assert_eq!(deployment.connect(1).raw("GET car:{here}"), "$1 3");
}

#[test]
fn the_ring_successor_learns_slots_not_at_their_preferred_owner() {
    let deployment = Deployment::start(&[true, true, true]);
    let owner = |site: usize, key: &str| deployment.owner(site, Slot::of_key(key.as_bytes()));
    let to = deployment.own_id(1);
    // Slots of one site whose move to another is missing in the third site's map.
    let mut missing = Vec::new();
    for key in (0..20).map(|nth| format!("{{{nth}}}")) {
        let holds = |site: &usize| owner(*site, &key) == deployment.own_id(*site);
        until(|| (0..3).filter(holds).count() == 1);
        let from = (0..3).find(holds).unwrap_or(1);
        if from == 1 || owner(2 - from, &key) == to {
            continue;
        }
        deployment.give(&key, 1);
        missing.push((2 - from, key));
    }
    // Without a request it receives some: those that are registered with it on the ring.
    until(|| missing.iter().any(|(other, key)| owner(*other, key) == to));
}

#[test]
fn a_command_has_keys_of_one_slot_in_global_keyspaces() {
    let deployment = Deployment::start(&[true]);
    let mut client = deployment.connect(0);
    assert_eq!(client.raw("MSET car:{x}1 a car:{x}2 b"), "+OK");
    assert_eq!(client.raw("MSET car:1 a car:2 b"), CROSS_SLOT);
    assert_eq!(client.raw("DEL car:1 car:2"), CROSS_SLOT);
    let refused = "-ERR keyspace 'default' is of one site; use the Redis port, or a keyspace of \
                   scope global";
    assert_eq!(client.raw("SET bus:1 a"), refused);
    assert_eq!(client.raw("WATCH bus:1"), refused);
    assert_eq!(client.raw("SELECT 0"), "+OK");
    assert_eq!(client.raw("SELECT 1"), "-ERR SELECT is not allowed in cluster mode");
    assert!(client.raw("HELLO 3").contains("$4 mode $7 cluster "));
    let info = client.raw("INFO");
    assert!(info.contains("redis_mode:cluster ") && info.contains("cluster_enabled:1"), "{info}");
    assert!(client.raw("CLIENT MAINT_NOTIFICATIONS ON").starts_with("-ERR "));
}

/// What CLUSTER SLOTS answers: each slot's site, as `host:port` of its first node.
fn slots(client: &mut Client) -> BTreeMap<u16, String> {
    let Reply::Array(ranges) = client.ask(&["CLUSTER", "SLOTS"]) else { panic!("no array") };
    let mut found = BTreeMap::new();
    for range in ranges {
        let Reply::Array(range) = range else { panic!("{range:?}") };
        let [Reply::Integer(first), Reply::Integer(last), Reply::Array(node), ..] = &range[..]
        else {
            panic!("{range:?}");
        };
        let [Reply::Bulk(host), Reply::Integer(port), ..] = &node[..] else { panic!("{node:?}") };
        let address = format!("{}:{port}", String::from_utf8_lossy(host));
        for slot in *first..=*last {
            let twice = found.insert(slot as u16, address.clone());
            assert_eq!(twice, None, "{slot} is there twice");
        }
    }
    found
}

#[test]
fn clients_are_sent_to_the_leader_and_others_of_its_site_answer_too() {
    let mut deployment = Deployment::start(&[true, true]);
    deployment.add_node(0);
    deployment.add_node(0);
    deployment.give("{t}", 0);
    let number = Slot::of_key(b"t").number();
    deployment.wait_until_quiet();
    let mut elsewhere = deployment.connect(1);
    for leader in [3, 2] {
        deployment.let_lead(0, leader);
        let address = deployment.address_of(0, leader as usize).to_string();
        let moved = format!("-MOVED {number} {address}");
        until(|| elsewhere.raw("GET car:{t}") == moved);
        until(|| slots(&mut elsewhere)[&number] == address);
    }
    for node in 1..=3 {
        let address = deployment.address_of(0, node);
        let mut client = Client::connect(address);
        assert_eq!(client.raw(&format!("SET car:{{t}} {node}")), "+OK");
        assert_eq!(client.raw("GET car:{t}"), format!("$1 {node}"));
        // It reports of itself what others report of it.
        let mut id = client.raw("CLUSTER MYID");
        let id = id.split_off("$40 ".len());
        let myself = format!("{id} {address}@");
        let nodes = elsewhere.raw("CLUSTER NODES");
        let role = if node == 2 { "master" } else { "slave" };
        let line = nodes.split_once(&myself).unwrap().1.split_once(" connected").unwrap().0;
        assert!(line.contains(&format!(" {role} ")), "{myself} in {nodes}");
        until(|| client.raw("CLUSTER NODES").contains(&format!("myself,{role}")));
    }
    // The others receive the new leader, without any request to the lost one.
    let left: Vec<SocketAddr> = [1, 3].map(|node| deployment.address_of(0, node)).to_vec();
    let leader = deployment.stop(0, 2);
    let address = left[leader / 2].to_string();
    until(|| slots(&mut elsewhere)[&number] == address);
    assert_eq!(elsewhere.raw("GET car:{t}"), format!("-MOVED {number} {address}"));
}

#[test]
fn a_map_shows_every_slot_where_it_is() {
    let deployment = Deployment::start(&[true, true]);
    deployment.give("{t}", 1);
    let number = Slot::of_key(b"t").number();
    let expect = deployment.address(1).to_string();
    for site in 0..2 {
        let mut client = deployment.connect(site);
        // A map may be a moment old.
        loop {
            let slots = slots(&mut client);
            assert_eq!(slots.len(), usize::from(Slot::COUNT));
            if slots[&number] == expect {
                break;
            }
        }
        let mut id = client.raw("CLUSTER MYID");
        let id = id.split_off("$40 ".len());
        let nodes = client.raw("CLUSTER NODES");
        let own = deployment.address(site);
        assert!(nodes.contains(&format!("{id} {own}@")), "{nodes}");
        assert_eq!(nodes.matches(" connected ").count(), 2, "{nodes}");
        assert_eq!(nodes.matches("myself,master").count(), 1, "{nodes}");
        assert_eq!(client.raw(&format!("CLUSTER REPLICAS {id}")), "*0");
        assert_eq!(client.raw(&format!("CLUSTER COUNT-FAILURE-REPORTS {id}")), ":0");
        let info = client.raw("CLUSTER INFO");
        assert!(info.contains("cluster_state:ok") && info.contains("cluster_size:2"), "{info}");
        let Reply::Array(shards) = client.ask(&["CLUSTER", "SHARDS"]) else { panic!("no array") };
        assert_eq!(shards.len(), 2);
    }
}

#[test]
fn cluster_answers_as_redis_does() {
    let deployment = Deployment::start(&[true]);
    let mut client = deployment.connect(0);
    assert_eq!(client.raw("SET car:{foo} 1"), "+OK");
    for (command, answer) in [
        ("CLUSTER", "-ERR wrong number of arguments for 'cluster' command"),
        ("CLUSTER NOSUCH", "-ERR unknown subcommand 'NOSUCH'. Try CLUSTER HELP."),
        ("CLUSTER KEYSLOT foo", ":12182"),
        ("CLUSTER KEYSLOT", "-ERR wrong number of arguments for 'cluster|keyslot' command"),
        ("CLUSTER SLOTS x", "-ERR wrong number of arguments for 'cluster|slots' command"),
        ("CLUSTER MEET", "-ERR wrong number of arguments for 'cluster|meet' command"),
        ("CLUSTER COUNTKEYSINSLOT 20000", "-ERR Invalid slot"),
        ("CLUSTER COUNTKEYSINSLOT x", "-ERR value is not an integer or out of range"),
        ("CLUSTER COUNTKEYSINSLOT 12182", ":1"),
        ("CLUSTER COUNTKEYSINSLOT 1", ":0"),
        ("CLUSTER GETKEYSINSLOT 1 -1", "-ERR Invalid slot or number of keys"),
        ("CLUSTER GETKEYSINSLOT 1 x", "-ERR value is not an integer or out of range"),
        ("CLUSTER GETKEYSINSLOT 12182 5", "*1 $9 car:{foo}"),
        ("CLUSTER GETKEYSINSLOT 12182 0", "*0"),
        ("CLUSTER COUNT-FAILURE-REPORTS nope", "-ERR Unknown node nope"),
        ("CLUSTER REPLICAS nope", "-ERR Unknown node nope"),
    ] {
        assert_eq!(client.raw(command), answer, "{command}");
    }
    for (command, see) in [
        ("CLUSTER MEET 127.0.0.1 1", "portolan site"),
        ("CLUSTER RESET HARD", "portolan site"),
        ("CLUSTER SETSLOT 1 NODE x", "portolan slot move"),
    ] {
        let answer = client.raw(command);
        assert!(answer.starts_with("-ERR ") && answer.contains(see), "{command}: {answer}");
    }
    assert!(client.raw("CLUSTER HELP").starts_with("*"));
    assert!(client.raw("COMMAND INFO cluster asking").contains("asking"));
}

#[test]
fn the_other_port_is_no_cluster() {
    let site = Site::start();
    let mut client = site.connect();
    let disabled = "-ERR This instance has cluster support disabled";
    for (command, answer) in [
        ("CLUSTER SLOTS", disabled),
        ("CLUSTER HELP", disabled),
        ("CLUSTER NOPE", "-ERR unknown subcommand 'NOPE'. Try CLUSTER HELP."),
        ("CLUSTER KEYSLOT", "-ERR wrong number of arguments for 'cluster|keyslot' command"),
        ("ASKING", disabled),
        ("ASKING x", "-ERR wrong number of arguments for 'asking' command"),
    ] {
        assert_eq!(client.raw(command), answer, "{command}");
    }
    assert!(client.raw("HELLO 3").contains("$4 mode $10 standalone "));
}

#[test]
fn what_is_about_all_keys_is_about_the_global_ones_of_this_site() {
    let deployment = Deployment::start(&[true, true]);
    deployment.give("{a}", 0);
    deployment.give("{b}", 1);
    let (mut a, mut b) = (deployment.connect(0), deployment.connect(1));
    for n in 0..5 {
        assert_eq!(a.raw(&format!("SET car:{n}{{a}} v")), "+OK");
        assert_eq!(b.raw(&format!("SET car:{n}{{b}} v")), "+OK");
    }
    assert_eq!(a.raw("DBSIZE"), ":5");
    let Reply::Array(keys) = b.ask(&["KEYS", "*"]) else { panic!("no array") };
    assert_eq!(keys.len(), 5);
    // At this port not in a transaction, whose keys may be at another site.
    assert_eq!(a.raw("MULTI"), "+OK");
    assert_eq!(a.raw("DBSIZE"), "-ERR Command not allowed inside a transaction");
    assert_eq!(a.raw("DISCARD"), "+OK");
    // A slot on its way cannot be cleared: this waits for those that go to where they belong.
    while a.raw("FLUSHALL") != "+OK" {}
    assert_eq!(a.raw("DBSIZE"), ":0");
    assert_eq!(b.raw("DBSIZE"), ":5");
}

#[test]
fn a_site_that_clients_cannot_go_to_is_asked_for_them() {
    let deployment = Deployment::start(&[true, false]);
    deployment.give("{far}", 1);
    let mut client = deployment.connect(0);
    assert_eq!(client.raw("SET car:{far} v"), "+OK");
    assert_eq!(client.raw("GET car:{far}"), "$1 v");
    assert_eq!(client.raw("WATCH car:{far}"), "+OK");
    assert_eq!(client.raw("MULTI"), "+OK");
    assert_eq!(client.raw("APPEND car:{far} w"), "+QUEUED");
    assert_eq!(client.raw("EXEC"), "*1 :2");
    let own = deployment.address(0).to_string();
    assert!(slots(&mut client).into_values().all(|address| address == own));
}
