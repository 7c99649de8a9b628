//! Puts that a client sends to several sites: each has one effect.

use crate::causal::{sites, token};
use crate::sites::{Deployment, until};
use crate::support::{Client, Site};
use model::KeyspaceSpec;
use wire::resp::Reply;

/// Asks until the answer is no other than that the site lacks what a session has seen: how fast the
/// machine is makes no difference.
fn asked_until_served(client: &mut Client, command: &str) -> String {
    let mut answer = String::new();
    until(|| {
        answer = client.raw(command);
        !["-BEHIND", "-UNORDERED"].iter().any(|late| answer.starts_with(late))
    });
    answer
}

#[test]
fn what_its_first_site_has_made_is_not_made_again() {
    let (fronts, _deployment) = sites(3);
    let mut at: Vec<Client> = fronts.iter().map(|front| Client::connect(front.address())).collect();
    let begins = token(&mut at[1]);
    assert_eq!(at[1].raw("PORTOLAN.ONCE 7-1 s2 FIRST SET car:1 once"), "+OK");
    assert_eq!(at[1].raw("GET car:1"), "$4 once", "behind it in its session");
    assert_eq!(at[1].raw("PORTOLAN.ONCE 7-2 s2 FIRST MSET car:2 a car:3 b"), "+OK");
    assert_eq!(at[1].raw("SET car:1 later"), "+OK");
    assert_eq!(at[1].raw("MSET car:2 later car:3 later"), "+OK");
    let seen = token(&mut at[1]);
    for site in [1, 0, 2] {
        // With the session as it was at the first attempt, on a connection that has none yet.
        let mut client = Client::connect(fronts[site].address());
        assert_eq!(client.raw(&format!("PORTOLAN.ATTACH {begins} LATER")), "+OK");
        for put in ["7-1 s2 AGAIN SET car:1 once", "7-2 s2 again mset car:2 a car:3 b"] {
            let again = asked_until_served(&mut client, &format!("PORTOLAN.ONCE {put}"));
            assert_eq!(again, "+OK", "site {site}: {put}");
        }
        // All that the other session has done, too.
        let attach = format!("PORTOLAN.ATTACH {seen} WITHIN 10000");
        assert_eq!(asked_until_served(&mut client, &attach), "+OK");
        assert_eq!(client.raw("MGET car:1 car:2 car:3"), "*3 $5 later $5 later $5 later");
    }
}

#[test]
fn what_came_to_another_site_first_is_not_made_at_its_own() {
    let (fronts, _deployment) = sites(3);
    let mut at: Vec<Client> = fronts.iter().map(|front| Client::connect(front.address())).collect();
    // The first attempt is lost on its way to s2.
    let again = "PORTOLAN.ONCE 9-1 s2 AGAIN SET car:1 once";
    assert_eq!(asked_until_served(&mut at[2], again), "+OK");
    assert_eq!(asked_until_served(&mut at[2], "GET car:1"), "$4 once");
    assert_eq!(at[2].raw("SET car:1 later"), "+OK");
    let seen = token(&mut at[2]);
    let attach = format!("PORTOLAN.ATTACH {seen} WITHIN 10000");
    assert_eq!(asked_until_served(&mut at[1], &attach), "+OK");
    // Now it comes.
    assert_eq!(at[1].raw("PORTOLAN.ONCE 9-1 s2 FIRST SET car:1 once"), "+OK");
    assert_eq!(at[1].raw("SET car:2 behind"), "+OK");
    let seen = token(&mut at[1]);
    for client in &mut at {
        let attach = format!("PORTOLAN.ATTACH {seen} WITHIN 10000");
        assert_eq!(asked_until_served(client, &attach), "+OK");
        assert_eq!(client.raw("MGET car:1 car:2"), "*2 $5 later $6 behind");
    }
}

#[test]
fn attempts_of_a_pipeline_are_answered_in_their_order() {
    let (fronts, _deployment) = sites(2);
    let mut client = Client::connect(fronts[1].address());
    let mut pipeline = String::new();
    for put in 1..=100 {
        pipeline += &format!("PORTOLAN.ONCE 3-{put} s2 FIRST SET car:1 {put}\r\n");
        pipeline += &format!("PORTOLAN.ONCE 4-{put} s2 OPTIONAL SET car:2 {put}\r\n");
        if put % 10 == 0 {
            pipeline += "GET car:1\r\nSET car:3 x\r\nPORTOLAN.ONCE 3-1 s2 AGAIN SET car:1 1\r\n";
            pipeline += "GET car:1\r\nGET car:2\r\n";
        }
    }
    client.send(pipeline.as_bytes());
    for put in 1..=100 {
        assert_eq!([client.reply().1, client.reply().1], ["+OK", "+OK"], "{put}");
        if put % 10 == 0 {
            let shown = format!("${} {put}", put.to_string().len());
            let replies: Vec<String> = (0..5).map(|_| client.reply().1).collect();
            assert_eq!(replies, [&shown, "+OK", "+OK", &shown, &shown]);
        }
    }
}

#[test]
fn an_optional_number_is_left_out_where_there_is_none() {
    let (fronts, _deployment) = sites(2);
    let mut client = Client::connect(fronts[0].address());
    assert_eq!(client.raw("PORTOLAN.ONCE 5-1 s1 OPTIONAL SET bus:1 x"), "+OK");
    assert_eq!(client.raw("PORTOLAN.ONCE 5-2 s1 OPTIONAL MSET bus:2 y bus:3 z"), "+OK");
    assert_eq!(client.raw("MGET bus:1 bus:2 bus:3"), "*3 $1 x $1 y $1 z");
    for word in ["FIRST", "AGAIN"] {
        let refused = client.raw(&format!("PORTOLAN.ONCE 5-1 s1 {word} SET bus:1 x"));
        assert!(refused.starts_with("-NOTONCE "), "{refused}");
        assert!(refused.contains("keyspace 'default'"), "{refused}");
    }
    // Where there is one, it counts.
    assert_eq!(client.raw("PORTOLAN.ONCE 5-3 s1 OPTIONAL SET car:1 x"), "+OK");
    assert_eq!(client.raw("SET car:1 later"), "+OK");
    assert_eq!(client.raw("PORTOLAN.ONCE 5-3 s1 AGAIN SET car:1 x"), "+OK");
    assert_eq!(client.raw("GET car:1"), "$5 later");
}

#[test]
fn what_cannot_be_sent_to_several_sites_is_refused() {
    let (fronts, _deployment) = sites(1);
    let mut client = Client::connect(fronts[0].address());
    assert_eq!(client.raw("SET car:1 before"), "+OK");
    for (command, why) in [
        ("1-1 s1 FIRST SET car:1 x EX 9", "-ERR PORTOLAN.ONCE goes with SET key value"),
        ("1-1 s1 FIRST SET car:1 x NX", "-ERR PORTOLAN.ONCE goes with SET key value"),
        ("1-1 s1 FIRST APPEND car:1 x", "-ERR PORTOLAN.ONCE goes with SET key value"),
        ("1-1 s1 FIRST MSET car:1 x car:2", "-ERR PORTOLAN.ONCE goes with SET key value"),
        ("1-1 s1 FIRST MSET car:1 x bus:1 y", "-CROSSSLOT keys of keyspaces"),
        ("1-0 s1 FIRST SET car:1 x", "-ERR the number of a put is CLIENT-PUT"),
        ("1-1 s1 SET SET car:1 x", "-ERR behind the name of the site comes"),
        ("1-1 pier FIRST SET car:1 x", "-ERR "),
        ("1-1 s1 FIRST SET car:1", "-ERR wrong number of arguments"),
    ] {
        let refused = client.raw(&format!("PORTOLAN.ONCE {command}"));
        assert!(refused.starts_with(why), "{command}: {refused}");
    }
    let long = format!("car:{}", "k".repeat(5_000));
    let refused = client.ask(&["PORTOLAN.ONCE", "1-1", "", "FIRST", "SET", &long, "x"]);
    assert!(matches!(&refused, Reply::Error(_)), "{refused:?}");
    // An empty name is the asked site.
    let put = client.ask(&["PORTOLAN.ONCE", "1-1", "", "FIRST", "SET", "car:2", "x"]);
    assert!(matches!(&put, Reply::Simple(_)), "{put:?}");
    assert_eq!(client.raw("MGET car:1 car:2"), "*2 $6 before $1 x");
    assert_eq!(client.raw("MULTI"), "+OK");
    let refused = client.raw("PORTOLAN.ONCE 1-2 s1 FIRST SET car:1 x");
    assert_eq!(refused, "-ERR Command not allowed inside a transaction");
    assert!(client.raw("EXEC").starts_with("-EXECABORT"));
    assert_eq!(client.raw("GET car:1"), "$6 before");
}

#[test]
fn it_is_listed_and_its_keys_are_found() {
    let site = Site::start();
    let mut client = site.connect();
    let info = client.raw("COMMAND INFO portolan.once");
    assert!(info.contains("$13 portolan.once :-7") && info.contains("+no_multi"), "{info}");
    assert!(info.contains(":5 :-1 :2"), "{info}");
    assert!(client.raw("COMMAND DOCS portolan.once").contains("several sites"));
    let keys = client.raw("COMMAND GETKEYS PORTOLAN.ONCE 1-1 s FIRST MSET a 1 b 2");
    assert_eq!(keys, "*2 $1 a $1 b");
    // A site without a deployment has no causal keyspace.
    let refused = client.raw("PORTOLAN.ONCE 1-1 s FIRST SET a 1");
    assert!(refused.starts_with("-NOTONCE "), "{refused}");
    assert_eq!(client.raw("PORTOLAN.ONCE 1-1 s OPTIONAL SET a 1"), "+OK");
}

#[test]
fn the_port_of_the_cluster_protocol_has_none() {
    let spec = KeyspaceSpec::linearizable_global("cars", "car:");
    let deployment = Deployment::start_with(&[true], spec);
    let mut client = deployment.connect(0);
    let refused = client.raw("PORTOLAN.ONCE 1-1 s1 FIRST SET car:1 x");
    assert!(refused.starts_with("-NOTONCE "), "{refused}");
}

#[test]
fn an_attached_session_need_not_be_waited_for() {
    let (fronts, _deployment) = sites(2);
    let mut one = Client::connect(fronts[0].address());
    assert_eq!(one.raw("SET car:1 x"), "+OK");
    let seen = token(&mut one);
    let mut other = Client::connect(fronts[1].address());
    assert_eq!(other.raw(&format!("PORTOLAN.ATTACH {seen} LATER")), "+OK");
    assert_eq!(token(&mut other).len(), seen.len());
    assert_eq!(asked_until_served(&mut other, "GET car:1"), "$1 x", "the read waits for it");
    let refused = other.raw(&format!("PORTOLAN.ATTACH {seen} LATER"));
    assert!(refused.starts_with("-ERR this connection has a session already"), "{refused}");
    assert_eq!(other.raw("RESET"), "+RESET");
    assert_eq!(other.raw(&format!("PORTOLAN.ATTACH {seen} LATER")), "+OK");
    assert!(other.raw("PORTOLAN.ATTACH AQID LATER").starts_with("-BADTOKEN"));
}
