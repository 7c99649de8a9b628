//! Clients that ask for more than they take.

use crate::support::{Site, tcp};
use std::io::Write as _;
use wire::resp::Reply;

/// Bytes of this process's memory that are in use, where the system reports it.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? << 10)
}

#[test]
fn a_reader_that_takes_nothing_makes_nothing_grow() {
    const ASKED: usize = 2_000;
    let site = Site::start();
    let mut client = site.connect();
    let value = "x".repeat(1 << 20);
    client.ask(&["SET", "big", &value]);
    let before = resident_bytes();
    let mut greedy: Vec<_> = (0..4).map(|_| tcp(site.address())).collect();
    for stream in &mut greedy {
        stream.write_all("GET big\r\n".repeat(ASKED).as_bytes()).unwrap();
    }
    // The others are served meanwhile, and when they have been the greedy ones are stuck.
    for _ in 0..50 {
        assert!(matches!(client.ask(&["INCR", "n"]), Reply::Integer(_)));
    }
    if let (Some(before), Some(after)) = (before, resident_bytes()) {
        let grown = after.saturating_sub(before);
        let asked_for = (4 * ASKED) as u64 * (1 << 20);
        assert!(grown < asked_for / 20, "{grown} bytes more of {asked_for} asked for");
    }
}
