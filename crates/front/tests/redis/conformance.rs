//! Every command answers byte for byte as Redis 7 does.
//!
//! `redis7.txt` holds commands and what Redis answered. To record it again from a running Redis
//! (7.0, empty, without a password):
//! `RECORD_FROM=127.0.0.1:6379 cargo test -p front --test redis record -- --ignored`.

use crate::support::{Client, Site};
use std::collections::BTreeMap;
use std::net::SocketAddr;

const SCRIPT: &str = include_str!("redis7.txt");

/// Where we answer otherwise on purpose, and with what.
const DIFFERENCES: &[(&str, &str)] = &[];

/// Whether a line is a connection's letter and a command, and no reply or comment.
fn is_command(line: &str) -> bool {
    line.get(1..3) == Some("> ")
}

struct Connections {
    address: SocketAddr,
    open: BTreeMap<String, Client>,
}

impl Connections {
    /// What a line of the script is answered; `None`: it is no command.
    fn answer(&mut self, line: &str) -> Option<String> {
        let (name, command) = line.split_once("> ").filter(|_| is_command(line))?;
        let address = self.address;
        let client = self.open.entry(name.to_owned()).or_insert_with(|| Client::connect(address));
        let answer = client.raw(command);
        // What HELLO goes on with differs between versions and connections.
        let answer = answer.split(" $7 version").next().unwrap_or_default();
        let mut replies = vec![answer.to_owned()];
        // Subscribing to several channels is answered once for each.
        let words: Vec<&str> = command.split(' ').collect();
        if words[0].ends_with("SUBSCRIBE") && replies[0].contains("subscribe") {
            replies.extend((2..words.len()).map(|_| client.reply().1));
        }
        Some(replies.join("\n"))
    }
}

#[test]
fn every_command_answers_as_redis_does() {
    let site = Site::start();
    let mut connections = Connections { address: site.address(), open: BTreeMap::new() };
    let mut wrong = Vec::new();
    let mut lines = SCRIPT.lines().peekable();
    let mut count = 0;
    while let Some(line) = lines.next() {
        let Some(answer) = connections.answer(line) else { continue };
        let mut expect = Vec::new();
        while let Some(next) = lines.peek()
            && !next.is_empty()
            && !is_command(next)
        {
            expect.push(lines.next().unwrap());
        }
        assert!(!expect.is_empty(), "nothing is recorded for {line}");
        let ours = DIFFERENCES.iter().find(|(command, _)| *command == line);
        let expect = ours.map_or(expect.join("\n"), |(_, ours)| (*ours).to_owned());
        count += 1;
        if answer != expect {
            wrong.push(format!("{line}\n  redis {expect}\n  ours  {answer}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {count} differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
#[ignore = "needs a running Redis"]
fn record() {
    let address = std::env::var("RECORD_FROM").expect("RECORD_FROM states where Redis is");
    let address = address.parse().expect("an address and a port");
    let mut connections = Connections { address, open: BTreeMap::new() };
    let mut recorded = String::new();
    for line in SCRIPT.lines() {
        let is_recorded_reply = !line.is_empty() && !line.starts_with('#') && !is_command(line);
        if is_recorded_reply {
            continue;
        }
        recorded += line;
        recorded += "\n";
        if let Some(answer) = connections.answer(line) {
            recorded += &answer;
            recorded += "\n";
        }
    }
    std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/redis/redis7.txt"), recorded)
        .expect("the script can be written");
}
