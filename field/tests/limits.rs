//! Limits seen from outside: what is too large is refused by name, and a client that does not read
//! cannot make the server grow.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use field::resp::{Client, Error};
use field::{NodeOptions, Site};

const DEADLINE: Duration = Duration::from_secs(30);
const MIB: u64 = 1 << 20;

#[test]
fn a_slow_reader_cannot_make_memory_grow() {
    let folder = tempfile::tempdir().unwrap();
    let site = Site::start(folder.path(), 1, |_| {});
    let node = &site.nodes[0];
    let mut client = Client::connect(node.options.redis, DEADLINE).unwrap();
    client.call(&[&b"SET"[..], b"large", &vec![b'x'; MIB as usize]]).unwrap();

    // Two gigabytes of answers are asked for by clients that read none of them.
    let before = node.rss_bytes();
    let request = b"*2\r\n$3\r\nGET\r\n$5\r\nlarge\r\n".repeat(200);
    let slow: Vec<TcpStream> = (0..10)
        .map(|_| {
            let mut socket = TcpStream::connect(node.options.redis).unwrap();
            socket.set_write_timeout(Some(DEADLINE)).unwrap();
            // The server may close the connection meanwhile: that is one of the good answers.
            let _ = socket.write_all(&request);
            socket
        })
        .collect();

    let end = Instant::now() + Duration::from_secs(3);
    let mut most = before;
    while Instant::now() < end {
        most = most.max(node.rss_bytes());
        std::thread::sleep(Duration::from_millis(20));
    }
    // Each connection may have its backlog of 8 MiB waiting, and as much again in the making.
    let allowed = 10 * 2 * 8 * MIB;
    assert!(
        most - before < allowed,
        "it grew by {} MiB, of at most {} MiB",
        (most - before) / MIB,
        allowed / MIB
    );
    assert!(client.call(&["GET", "large"]).is_ok(), "others are still served");
    drop(slow);
}

#[test]
fn what_is_too_large_is_refused_and_the_rest_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let site = Site::start(folder.path(), 1, |_| {});
    let redis = site.nodes[0].options.redis;
    let mut client = Client::connect(redis, DEADLINE).unwrap();

    let long_key = vec![b'k'; 64 << 10];
    let refused = client.call(&[&b"SET"[..], &long_key, b"v"]);
    assert!(matches!(&refused, Err(Error::Refused(text)) if text.contains("key")), "{refused:?}");
    assert!(client.call(&["PING"]).is_ok(), "the connection is usable after a refused key");

    let largest = vec![b'v'; 64 << 20];
    client.call(&[&b"SET"[..], b"largest", &largest]).unwrap();
    assert_eq!(client.call(&["GET", "largest"]).unwrap().bytes().map(<[u8]>::len), Some(64 << 20));
    let refused = client.call(&["APPEND", "largest", "x"]);
    assert!(matches!(&refused, Err(Error::Refused(text)) if text.contains("value")), "{refused:?}");

    // A length that no client may send is refused before it is allocated, and ends the connection.
    let mut socket = TcpStream::connect(redis).unwrap();
    socket.set_read_timeout(Some(DEADLINE)).unwrap();
    socket.write_all(b"*2\r\n$3\r\nGET\r\n$99999999999\r\n").unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("-ERR Protocol error"), "{answer:?}");
}

#[test]
fn connections_beyond_the_limit_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = NodeOptions::new(folder.path(), 1);
    options.configure("[front]\nconnections_max = 5\n");
    let node = options.start();

    let connect = || Client::connect(node.options.redis, DEADLINE).unwrap();
    let mut clients: Vec<Client> = (0..5).map(|_| connect()).collect();
    for client in &mut clients {
        client.call(&["PING"]).unwrap();
    }
    let refused = connect().call(&["PING"]);
    let named =
        matches!(&refused, Err(Error::Refused(text)) if text.contains("max number of clients"));
    assert!(named, "{refused:?}");
    clients.pop();
    field::eventually(Duration::from_secs(10), || {
        connect().call(&["PING"]).map_err(|e| e.to_string())
    })
    .unwrap();
}
