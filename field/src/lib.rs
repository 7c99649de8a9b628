//! What tests with real processes need: nodes that are started, killed and started again, a small
//! client, a ledger of what was acknowledged, and histories for `portolan lab verdict`.
//!
//! The tests are in `field/tests`, one file a question. They run the `portolan` binary as a user
//! does, over its ports and its command line, and look at nothing inside it. The benchmarks
//! (`cargo xtask bench`) start their nodes with the same code.
//!
//! It leaves out everything that virtual time does better: interleavings, clock drift, lost
//! messages. Those are tested in `protocol` and in the lab.

pub mod binary;
pub mod deployment;
pub mod etcd;
pub mod history;
pub mod keys;
pub mod ledger;
pub mod node;
pub mod ports;
pub mod redis_cluster;
pub mod resp;
pub mod site;
pub mod tls;
pub mod toolchain;

pub use etcd::Etcd;
pub use ledger::Ledger;
pub use node::{Node, NodeOptions};
pub use redis_cluster::RedisCluster;
pub use site::Site;

use std::time::{Duration, Instant};

/// Asks `question` until it answers or `limit` has passed; its last error is the error then.
///
/// Generous limits cost nothing here: a test that passes does not wait for them. A question takes a
/// fifth of the time at most, so that on a slow machine the rest is left to who is asked.
pub fn eventually<T>(
    limit: Duration,
    mut question: impl FnMut() -> Result<T, String>,
) -> Result<T, String> {
    let began = Instant::now();
    loop {
        let asked = Instant::now();
        match question() {
            Ok(answer) => return Ok(answer),
            Err(reason) if began.elapsed() >= limit => {
                return Err(format!("still after {} s: {reason}", limit.as_secs()));
            }
            Err(_) => {
                let pause = 4 * asked.elapsed();
                std::thread::sleep(pause.clamp(Duration::from_millis(20), Duration::from_secs(1)));
            }
        }
    }
}

/// The number in an environment variable, or `default` where it is not set.
///
/// # Panics
/// When the variable is set to something else: a typo must not shorten a run unnoticed.
#[must_use]
pub fn number_from_env(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name}={text:?} is not a number")),
        Err(_) => default,
    }
}
