//! Ports for servers that are started by tests.
//!
//! Test processes run side by side, so a port that is free at this moment may be one that another
//! process has just chosen. Each process therefore takes blocks of ports: it listens on the first
//! port of a block for as long as it runs, and hands out the others.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Mutex;

/// Below the range from which the system takes ports for outgoing connections, so that a client
/// never sits on a port that a killed server is about to open again.
const FIRST: u16 = 10_100;
const BLOCKS: u16 = 400;
/// The first one is the block's guard.
const PORTS_PER_BLOCK: u16 = 50;

/// The blocks of this process.
#[derive(Debug)]
struct Blocks {
    guards: Vec<TcpListener>,
    /// What the newest block has left.
    next: u16,
    end: u16,
}

static BLOCKS_TAKEN: Mutex<Blocks> = Mutex::new(Blocks { guards: Vec::new(), next: 0, end: 0 });

/// A loopback address that no server listens on, and that no other process and no later call gets
/// while this process runs.
///
/// # Panics
/// When every block is taken.
#[must_use]
pub fn free() -> SocketAddr {
    let mut blocks = BLOCKS_TAKEN.lock().expect("no holder panics");
    loop {
        if blocks.next == blocks.end {
            blocks.take_one();
        }
        let address = loopback(blocks.next);
        blocks.next += 1;
        // A server that outlived its test may sit there.
        if TcpListener::bind(address).is_ok() {
            return address;
        }
    }
}

impl Blocks {
    fn take_one(&mut self) {
        let taken = (0..BLOCKS).find_map(|block| {
            let first = FIRST + block * PORTS_PER_BLOCK;
            TcpListener::bind(loopback(first)).ok().map(|guard| (first, guard))
        });
        let (first, guard) = taken.expect("no free block of ports on loopback");
        self.guards.push(guard);
        (self.next, self.end) = (first + 1, first + PORTS_PER_BLOCK);
    }
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}
