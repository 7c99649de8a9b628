//! What the conformance script cannot show: order in pipelines, several connections, limits, users.

use crate::support::{Client, Site};
use model::{KeyspaceSpec, limits};
use server::config::Config;
use server::users::{Grant, Right, UserConfig, hash_password};
use std::time::Duration;
use wire::resp::Reply;

fn bulk(text: &str) -> Reply {
    Reply::Bulk(text.to_owned().into())
}

#[test]
fn a_pipeline_is_answered_in_order_and_reads_see_the_writes_before_them() {
    let site = Site::start();
    let mut client = site.connect();
    let mut request = String::new();
    for n in 0..200 {
        request += &format!("SET k {n}\r\nINCR sum\r\nGET k\r\nPING\r\nGET sum\r\nNOSUCH\r\n");
    }
    client.send(request.as_bytes());
    for n in 0..200 {
        assert_eq!(client.reply().1, "+OK");
        assert_eq!(client.reply().0, Reply::Integer(n + 1));
        assert_eq!(client.reply().0, bulk(&n.to_string()));
        assert_eq!(client.reply().1, "+PONG");
        assert_eq!(client.reply().0, bulk(&(n + 1).to_string()));
        assert!(client.reply().1.starts_with("-ERR unknown command"));
    }
}

#[test]
fn a_large_value_passes_in_pieces() {
    let site = Site::start();
    let mut client = site.connect();
    let value = "x".repeat(5 << 20);
    assert_eq!(client.ask(&["SET", "big", &value]), Reply::Simple("OK".into()));
    assert_eq!(client.ask(&["GET", "big"]), bulk(&value));
}

#[test]
fn long_answers_of_a_pipeline_come_in_order() {
    let site = Site::start();
    let mut client = site.connect();
    let value = "x".repeat(100 << 10);
    client.ask(&["SET", "big", &value]);
    // GETEX with an option is a write: all of them are sent to the site, in one run.
    let mut request = String::new();
    (0..200).for_each(|_| request += "GETEX big PERSIST\r\nINCR sum\r\n");
    client.send(request.as_bytes());
    for n in 0..200 {
        assert_eq!(client.reply().0, bulk(&value));
        assert_eq!(client.reply().0, Reply::Integer(n + 1));
    }
}

#[test]
fn notifications_come_from_the_change_log() {
    let site = Site::start();
    let (mut listener, mut writer) = (site.connect(), site.connect());
    listener.ask(&["HELLO", "3"]);
    assert!(listener.raw("PSUBSCRIBE __key*__:*").contains("psubscribe"));
    writer.raw("SET k v");
    writer.raw("HSET h f 1");
    writer.raw("DEL k");
    let expect = [
        ("__keyspace@0__:k", "set"),
        ("__keyevent@0__:set", "k"),
        ("__keyspace@0__:h", "hset"),
        ("__keyevent@0__:hset", "h"),
        ("__keyspace@0__:k", "del"),
        ("__keyevent@0__:del", "k"),
    ];
    for (channel, payload) in expect {
        let message = vec![bulk("pmessage"), bulk("__key*__:*"), bulk(channel), bulk(payload)];
        assert_eq!(listener.reply().0, Reply::Push(message));
    }
    assert_eq!(listener.ask(&["GET", "h"]).clone(), {
        let text = "WRONGTYPE Operation against a key holding the wrong kind of value";
        Reply::Error(text.into())
    });
}

#[test]
fn an_expiry_is_reported() {
    let site = Site::start();
    let (mut listener, mut writer) = (site.connect(), site.connect());
    listener.raw("SUBSCRIBE __keyevent@0__:expired");
    writer.raw("SET soon v PX 30");
    let message = vec![bulk("message"), bulk("__keyevent@0__:expired"), bulk("soon")];
    assert_eq!(listener.reply().0, Reply::Array(message));
}

fn two_keyspaces(config: &mut Config) {
    config.keyspaces.push(KeyspaceSpec::linearizable_site("cars", "car:"));
}

fn wait_for_keyspace(client: &mut Client) {
    while client.raw("MGET car:1 other").starts_with('*') {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

#[test]
fn keyspaces_are_kept_apart_and_scanned_together() {
    let site = Site::with(two_keyspaces, |_| {});
    let mut client = site.connect();
    wait_for_keyspace(&mut client);
    let refused = client.raw("MSET car:1 a other b");
    assert!(refused.starts_with("-CROSSSLOT keys of keyspaces 'cars' and 'default'"), "{refused}");
    for n in 0..25 {
        client.raw(&format!("SET car:{n} v"));
        client.raw(&format!("SET other:{n} v"));
    }
    assert_eq!(client.ask(&["DBSIZE"]), Reply::Integer(50));

    // Each page on another connection, as a pool would do it.
    let (mut cursor, mut found) = ("0".to_owned(), Vec::new());
    loop {
        let Reply::Array(page) = site.connect().ask(&["SCAN", &cursor, "COUNT", "7"]) else {
            panic!("a scan is answered by an array");
        };
        let [Reply::Bulk(next), Reply::Array(keys)] = &page[..] else { panic!("{page:?}") };
        found.extend(keys.iter().cloned());
        cursor = String::from_utf8(next.to_vec()).unwrap();
        if cursor == "0" {
            break;
        }
    }
    assert_eq!(found.len(), 50);
    found.sort_by_key(|key| format!("{key:?}"));
    found.dedup();
    assert_eq!(found.len(), 50, "no key twice");
    let unknown = client.raw("SCAN 12345");
    assert!(unknown.starts_with("-ERR this cursor is unknown"), "{unknown}");
    assert_eq!(client.raw("FLUSHALL"), "+OK");
    assert_eq!(client.ask(&["DBSIZE"]), Reply::Integer(0));
}

#[test]
fn users_may_do_what_they_were_granted() {
    let user = |name: &str, keyspace: &str, allow: &[Right]| UserConfig {
        name: name.into(),
        password_hash: hash_password(b"secret", [1; 16]).unwrap(),
        rights: vec![Grant { keyspace: keyspace.into(), allow: allow.to_vec() }],
    };
    let site = Site::with(
        |config| {
            two_keyspaces(config);
            config.users = vec![
                user("fleet", "cars", &[Right::Read, Right::Write]),
                user("root", "*", &[Right::Read, Right::Write, Right::Admin]),
            ];
        },
        |_| {},
    );
    let mut root = site.connect();
    assert_eq!(root.raw("GET k"), "-NOAUTH Authentication required.");
    assert_eq!(root.raw("SET k v"), "-NOAUTH Authentication required.");
    assert!(root.raw("AUTH root wrong").starts_with("-WRONGPASS"));
    assert!(root.raw("HELLO 3").starts_with("-NOAUTH HELLO must be called"));
    assert_eq!(root.raw("AUTH root secret"), "+OK");
    wait_for_keyspace(&mut root);
    root.raw("SET car:1 v");
    root.raw("SET other v");

    let mut fleet = site.connect();
    assert!(fleet.raw("HELLO 3 AUTH fleet secret").starts_with("%7"));
    assert_eq!(fleet.raw("SET car:1 w"), "+OK");
    let refused = "-NOPERM User fleet has no permission to read in keyspace 'default'";
    assert_eq!(fleet.raw("GET other"), refused);
    let refused = "-NOPERM User fleet has no permission to admin in every keyspace";
    assert_eq!(fleet.raw("FLUSHALL"), refused);
    assert_eq!(fleet.ask(&["KEYS", "*"]), Reply::Array(vec![bulk("car:1")]));
    assert_eq!(fleet.ask(&["DBSIZE"]), Reply::Integer(1));

    // A cursor of another user's scan, in `default`.
    root.raw("SET other:2 v");
    let Reply::Array(page) = root.ask(&["SCAN", "0", "COUNT", "1"]) else { panic!("no page") };
    let [Reply::Bulk(cursor), Reply::Array(_)] = &page[..] else { panic!("{page:?}") };
    let cursor = String::from_utf8(cursor.to_vec()).unwrap();
    let refused = fleet.raw(&format!("SCAN {cursor}"));
    assert!(refused.starts_with("-ERR this cursor is unknown"), "{refused}");
    fleet.raw("MULTI");
    fleet.raw(&format!("SCAN {cursor}"));
    let refused = fleet.raw("EXEC");
    assert!(refused.contains("this cursor is unknown"), "{refused}");
    assert!(root.raw(&format!("SCAN {cursor}")).contains("other"), "it goes on");

    // The name of a channel contains a key.
    let mut listener = site.connect();
    listener.raw("AUTH root secret");
    listener.raw("SUBSCRIBE __keyspace@0__:other");
    listener.raw("SUBSCRIBE __keyspace@0__:car:1");
    let shown = vec![bulk("__keyspace@0__:car:1")];
    assert_eq!(fleet.ask(&["PUBSUB", "CHANNELS"]), Reply::Array(shown));
    let all = vec![bulk("__keyspace@0__:car:1"), bulk("__keyspace@0__:other")];
    assert_eq!(root.ask(&["PUBSUB", "CHANNELS"]), Reply::Array(all));

    // A large command before login is refused before it is read.
    let mut pending = site.connect();
    pending.send(b"*2\r\n$3\r\nGET\r\n$1000000\r\n");
    assert_eq!(pending.reply().1, "-ERR Protocol error: unauthenticated bulk length");
    assert_eq!(pending.read(), 0, "and the connection closed");
}

#[test]
fn connections_are_limited() {
    let site = Site::with(|_| {}, |options| options.connections_max = 2);
    let mut clients: Vec<Client> = (0..2).map(|_| site.connect()).collect();
    // The connection that waited for the node to be ready may not be gone yet.
    for client in &mut clients {
        while client.raw_or_closed("PING") != "+PONG" {
            *client = site.connect();
        }
    }
    let mut one_more = site.connect();
    assert_eq!(one_more.reply().1, "-ERR max number of clients reached");
    assert_eq!(one_more.read(), 0);
    for client in &mut clients {
        assert_eq!(client.raw("PING"), "+PONG");
    }
}

#[test]
fn a_broken_protocol_ends_the_connection_after_the_replies_before_it() {
    let site = Site::start();
    let mut client = site.connect();
    client.send(b"SET k v\r\nGET k\r\n*1\r\n:1\r\nGET k\r\n");
    assert_eq!(client.reply().1, "+OK");
    assert_eq!(client.reply().0, bulk("v"));
    assert_eq!(client.reply().1, "-ERR Protocol error: expected '$', got ':'");
    assert_eq!(client.read(), 0);
    assert_eq!(client.received(), b"");
}

#[test]
fn keys_and_values_are_limited() {
    let site = Site::start();
    let mut client = site.connect();
    let long = "k".repeat(limits::KEY_BYTES_MAX + 1);
    let Reply::Error(text) = client.ask(&["SET", &long, "v"]) else { panic!("it was taken") };
    let expect = format!("ERR a key must have at most {} bytes", limits::KEY_BYTES_MAX);
    assert!(text.starts_with(expect.as_bytes()), "{text:?}");
}

#[test]
fn a_dropped_transaction_does_nothing() {
    let site = Site::start();
    let (mut client, mut other) = (site.connect(), site.connect());
    client.raw("MULTI");
    client.raw("SET k v");
    drop(client);
    assert_eq!(other.ask(&["GET", "k"]), Reply::Null);
}

#[test]
fn a_transaction_goes_over_all_keyspaces_at_one_moment() {
    let site = Site::with(two_keyspaces, |_| {});
    let mut client = site.connect();
    wait_for_keyspace(&mut client);
    client.raw("FLUSHALL");
    client.raw("SET a 1");
    client.raw("SET car:1 x");
    let mut in_transaction = |commands: &[&str]| {
        assert_eq!(client.raw("MULTI"), "+OK");
        for command in commands {
            assert_eq!(client.raw(command), "+QUEUED", "{command}");
        }
        client.raw("EXEC")
    };
    let found = in_transaction(&["SET car:2 y", "DBSIZE", "KEYS *", "KEYS car:*", "KEYS a*"]);
    assert_eq!(found, "*5 +OK :3 *3 $1 a $5 car:1 $5 car:2 *2 $5 car:1 $5 car:2 *1 $1 a");
    let found = in_transaction(&["SET b 1", "FLUSHALL", "DBSIZE", "SET b 2", "DBSIZE", "KEYS *"]);
    assert_eq!(found, "*6 +OK +OK :0 +OK :1 *1 $1 b");
    // A scan that begins in a transaction goes on outside of it.
    assert_eq!(client.raw("SET car:3 z"), "+OK");
    client.raw("MULTI");
    client.raw("SCAN 0 COUNT 10");
    let Reply::Array(replies) = client.ask(&["EXEC"]) else { panic!("EXEC answers with an array") };
    let Reply::Array(page) = &replies[0] else { panic!("{replies:?}") };
    let Reply::Bulk(cursor) = &page[0] else { panic!("{page:?}") };
    assert_eq!(page[1], Reply::Array(vec![bulk("b")]));
    let cursor = String::from_utf8(cursor.to_vec()).unwrap();
    assert_eq!(client.raw(&format!("SCAN {cursor}")), "*2 $1 0 *1 $5 car:3");
}

#[test]
fn clients_are_listed_as_they_are() {
    let site = Site::start();
    let (mut client, mut listener, mut gone) = (site.connect(), site.connect(), site.connect());
    gone.raw("PING");
    listener.raw("SUBSCRIBE __keyspace@0__:a __keyspace@0__:b");
    client.raw("CLIENT SETNAME me");
    client.raw("CLIENT SETINFO LIB-NAME lib");
    client.raw("CLIENT SETINFO LIB-VER 1.2");
    drop(gone);
    let mut shown = client.raw("CLIENT LIST");
    while shown.matches(" addr=127.0.0.1:").count() != 2 {
        shown = client.raw("CLIENT LIST");
    }
    assert!(shown.contains(" name=me db=0 sub=0 multi=-1 "), "{shown}");
    assert!(shown.contains(" flags=P name= db=0 sub=2 "), "{shown}");
    let pubsub = client.raw("CLIENT LIST TYPE pubsub");
    assert!(pubsub.contains("sub=2") && !pubsub.contains("name=me"), "{pubsub}");
    let Reply::Integer(id) = client.ask(&["CLIENT", "ID"]) else { panic!("an id is a number") };
    let own = client.raw(&format!("CLIENT LIST ID {id} 777"));
    assert!(own.contains("name=me") && !own.contains("sub=2"), "{own}");

    assert_eq!(client.raw("RESET"), "+RESET");
    let own = client.raw("CLIENT INFO");
    assert!(own.contains(" name= ") && own.contains("lib-name=lib lib-ver=1.2"), "{own}");
    for command in ["CLIENT", "COMMAND", "CONFIG", "PUBSUB"] {
        let help = client.raw(&format!("{command} HELP"));
        let head = format!("+{command} <subcommand> [<arg> [value] [opt] ...]. Subcommands are: ");
        assert!(help.contains(&head) && help.ends_with("+HELP +    Print this help."), "{help}");
    }
}

#[test]
fn the_keys_that_expire_are_counted() {
    let site = Site::start();
    let mut client = site.connect();
    for command in ["SET a 1 EX 100", "SET b 1", "SET c 1", "PEXPIRE c 100000", "SET d 1 EX 100"] {
        client.raw(command);
    }
    let mut counted = |keys: &str| {
        let info = client.raw("INFO keyspace");
        assert!(info.contains(keys), "{info}");
    };
    counted("db0:keys=4,expires=3,avg_ttl=0");
    site.connect().raw("PERSIST a");
    site.connect().raw("DEL d");
    counted("db0:keys=3,expires=1,avg_ttl=0");
    site.connect().raw("FLUSHALL");
    site.connect().raw("SET a 1");
    counted("db0:keys=1,expires=0,avg_ttl=0");
}

#[test]
fn a_key_whose_time_has_come_is_gone_for_every_read() {
    let site = Site::start();
    let (mut client, mut other) = (site.connect(), site.connect());
    // Nothing else happens on this site, and a tick of time comes every 50 ms at most.
    for read in
        ["GET soon", "TTL soon", "PTTL soon", "EXISTS soon", "DBSIZE", "TYPE soon", "MGET soon x"]
    {
        for _ in 0..4 {
            client.raw("SET soon v PX 20");
            std::thread::sleep(Duration::from_millis(25));
            let found = other.raw(read);
            let gone = ["$-1", ":-2", ":0", "+none", "*2 $-1 $-1"];
            assert!(gone.contains(&found.as_str()), "{read}: {found}");
        }
    }
}

#[test]
fn an_expiry_time_is_reported_in_its_own_unit() {
    let site = Site::start();
    let mut client = site.connect();
    for command in ["SET k v PXAT 33000000000123", "PEXPIREAT k 33000000000123"] {
        client.raw(command);
        assert_eq!(client.raw("PEXPIRETIME k"), ":33000000000123");
        assert_eq!(client.raw("EXPIRETIME k"), ":33000000000");
    }
    client.raw("MULTI");
    client.raw("PEXPIRETIME k");
    assert_eq!(client.raw("EXEC"), "*1 :33000000000123");
}
