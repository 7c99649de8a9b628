//! Causal keyspaces: a connection is a session, and its token moves to others.

use crate::sites::{Deployment, until};
use crate::support::Client;
use front::redis::RedisFront;
use model::KeyspaceSpec;

/// Sites with the causal keyspace `cars` (`car:`), and a plain port of each.
pub(crate) fn sites(count: usize) -> (Vec<RedisFront>, Deployment) {
    let spec = KeyspaceSpec::causal_region("cars", "car:");
    let deployment = Deployment::start_with(&vec![false; count], spec);
    ((0..count).map(|site| deployment.open_plain(site)).collect(), deployment)
}

/// What PORTOLAN.TOKEN returns.
pub(crate) fn token(client: &mut Client) -> String {
    let raw = client.raw("PORTOLAN.TOKEN");
    let token = raw.strip_prefix("$71 ").unwrap_or_else(|| panic!("{raw}"));
    token.to_owned()
}

#[test]
fn a_pipeline_reads_what_it_has_written() {
    let (fronts, _deployment) = sites(1);
    let mut client = Client::connect(fronts[0].address());
    let mut pipeline = String::new();
    for round in 0..50 {
        pipeline += &format!("SET car:1 {round}\r\nGET car:1\r\nHSET car:2 a {round}\r\n");
        pipeline += "HGET car:2 a\r\nGET car:1\r\nGET other\r\nDEL car:1\r\nGET car:1\r\n";
    }
    client.send(pipeline.as_bytes());
    for round in 0..50 {
        let value = format!("${} {round}", round.to_string().len());
        let replies: Vec<String> = (0..8).map(|_| client.reply().1).collect();
        let added = if round == 0 { ":1" } else { ":0" };
        assert_eq!(replies, ["+OK", &value, added, &value, &value, "$-1", ":1", "$-1"], "{round}");
    }
}

#[test]
fn commands_of_a_causal_keyspace() {
    let (fronts, _deployment) = sites(1);
    let mut client = Client::connect(fronts[0].address());
    for (command, reply) in [
        ("MSET car:1 one car:2 two", "+OK"),
        ("MGET car:1 car:2 car:3", "*3 $3 one $3 two $-1"),
        ("EXISTS car:1 car:3", ":1"),
        ("STRLEN car:2", ":3"),
        ("READONLY", "+OK"),
        ("GET car:1", "$3 one"),
        ("READWRITE", "+OK"),
        ("MULTI", "+OK"),
        ("SET car:3 three", "+QUEUED"),
        ("GET car:3", "+QUEUED"),
        ("EXEC", "*2 +OK $5 three"),
        ("DBSIZE", ":3"),
        ("SET other 1", "+OK"),
    ] {
        assert_eq!(client.raw(command), reply, "{command}");
    }
    for refused in
        ["INCR car:1", "APPEND car:1 x", "SET car:1 x NX", "GETSET car:1 x", "EXPIRE car:1 9 NX"]
    {
        let reply = client.raw(refused);
        assert!(reply.starts_with("-ERR a causal keyspace cannot "), "{refused}: {reply}");
    }
    assert_eq!(client.raw("GET car:1"), "$3 one");
    // Steps over all keyspaces are of no session.
    assert_eq!(client.raw("MULTI"), "+OK");
    assert!(client.raw("DBSIZE").starts_with("-ERR") || client.raw("EXEC").contains("session"));
}

#[test]
fn causal_keys_expire_and_are_cleared() {
    let (fronts, _deployment) = sites(2);
    let mut client = Client::connect(fronts[1].address());
    let left = |client: &mut Client, command: &str| -> i64 {
        client.raw(command)[1..].parse().unwrap_or_else(|_| panic!("{command}"))
    };
    for (command, reply) in [
        ("SET car:1 one EX 10000", "+OK"),
        ("SET car:1 two KEEPTTL", "+OK"),
        ("EXPIRE car:2 10000", ":0"),
        ("HSET car:h f 1", ":1"),
        ("EXPIRE car:h 10000", ":1"),
        ("PERSIST car:h", ":1"),
        ("PERSIST car:h", ":0"),
        ("TTL car:h", ":-1"),
        ("TTL car:2", ":-2"),
        ("GETEX car:1 PX 20000000", "$3 two"),
    ] {
        assert_eq!(client.raw(command), reply, "{command}");
    }
    assert!((10_001..=20_000).contains(&left(&mut client, "TTL car:1")));
    assert!(left(&mut client, "PEXPIRETIME car:1") > 1_700_000_000_000);
    assert_eq!(client.raw("SET car:3 x PX 1"), "+OK");
    let mut other = Client::connect(fronts[0].address());
    until(|| client.raw("GET car:3") == "$-1" && other.raw("TTL car:3") == ":-2");
    assert_eq!(client.raw("SET other 1"), "+OK");
    assert_eq!(client.raw("MULTI"), "+OK");
    assert_eq!(client.raw("FLUSHALL"), "+QUEUED");
    assert!(client.raw("EXEC").contains("clear each keyspace"));
    // It waits for its own writes to be ordered, and is seen by its session.
    assert_eq!(client.raw("SET car:4 x"), "+OK");
    assert_eq!(client.raw("FLUSHALL"), "+OK");
    assert_eq!(client.raw("MGET car:1 car:4 car:h"), "*3 $-1 $-1 $-1");
    assert_eq!(client.raw("DBSIZE"), ":0");
    until(|| other.raw("DBSIZE") == ":0");
}

#[test]
fn tokens_are_sealed_for_one_deployment() {
    let (fronts, _deployment) = sites(1);
    let (others, _other) = sites(1);
    let mut client = Client::connect(fronts[0].address());
    let nothing = token(&mut client);
    assert_eq!(client.raw("SET car:1 x"), "+OK");
    let seen = token(&mut client);
    assert_ne!(nothing, seen);
    let mut again = Client::connect(fronts[0].address());
    for token in [&nothing, &seen] {
        assert_eq!(again.raw(&format!("PORTOLAN.ATTACH {token} WITHIN 5000")), "+OK");
        assert_eq!(again.raw("GET car:1"), "$1 x");
    }
    assert_eq!(again.raw("RESET"), "+RESET");
    let mut elsewhere = Client::connect(others[0].address());
    let refused = elsewhere.raw(&format!("PORTOLAN.ATTACH {seen}"));
    assert!(refused.starts_with("-BADTOKEN this is no token"), "{refused}");
    let changed = format!("{}A", &seen[..70]);
    let refused = client.raw(&format!("PORTOLAN.ATTACH {changed}"));
    assert!(refused.starts_with("-BADTOKEN") || changed == seen, "{refused}");
    assert!(client.raw("PORTOLAN.ATTACH").starts_with("-ERR wrong number of arguments"));
}

#[test]
fn a_site_without_causal_keyspaces_attaches_nothing() {
    let spec = KeyspaceSpec::linearizable_global("cars", "car:");
    let deployment = Deployment::start_with(&[true], spec);
    let plain = deployment.open_plain(0);
    let mut client = Client::connect(plain.address());
    let token = token(&mut client);
    let refused = client.raw(&format!("PORTOLAN.ATTACH {token}"));
    assert!(refused.starts_with("-ERR there is no causal keyspace"), "{refused}");
    let refused = deployment.connect(0).raw("PORTOLAN.TOKEN");
    assert!(refused.contains("Redis Cluster"), "{refused}");
}

#[test]
fn a_session_moves_among_sites() {
    let (fronts, _deployment) = sites(3);
    let mut at: Vec<Client> = fronts.iter().map(|front| Client::connect(front.address())).collect();
    let mut carried = token(&mut at[0]);
    for round in 0..30 {
        let (here, before) = (round % 3, (round + 2) % 3);
        let attach = format!("PORTOLAN.ATTACH {carried} WITHIN 10000");
        until(|| match at[here].raw(&attach).as_str() {
            "+OK" => true,
            // How fast the machine is makes no difference.
            late if late.starts_with("-BEHIND") || late.starts_with("-UNORDERED") => false,
            other => panic!("{other}"),
        });
        if round > 0 {
            let number = (round - 1).to_string();
            let shown = format!("${} {number}", number.len());
            assert_eq!(at[here].raw("GET car:1"), shown, "round {round}");
            assert_eq!(at[here].raw(&format!("HGET car:h {before}")), shown, "round {round}");
        }
        assert_eq!(at[here].raw(&format!("SET car:1 {round}")), "+OK");
        assert!(at[here].raw(&format!("HSET car:h {here} {round}")).starts_with(':'));
        carried = token(&mut at[here]);
    }
}
