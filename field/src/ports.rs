//! Ports for servers that are started by tests.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};

/// Below the range from which the system takes ports for outgoing connections, so that a client
/// never sits on a port that a killed server is about to open again.
const FIRST: u16 = 10_100;
const COUNT: u16 = 20_000;

/// A loopback address that nobody listens on, and that this process hands out only once.
///
/// # Panics
/// When every port is taken.
#[must_use]
pub fn free() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Processes that run side by side start at different places.
    let start = (std::process::id() % 193) as u16 * 101;
    for _ in 0..COUNT {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = FIRST + (u32::from(start) + u32::from(step)).rem_euclid(COUNT.into()) as u16;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        if TcpListener::bind(address).is_ok() {
            return address;
        }
    }
    panic!("no free port on loopback");
}
