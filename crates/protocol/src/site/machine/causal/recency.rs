//! When keys were read last that this site holds on demand: what was not read for longest is
//! evicted first.
//!
//! Reads are answered on many threads, so that each only leaves the number of the read in a table,
//! at the place of the key's hash. Two keys of one place keep each other: that makes one of them
//! stay longer, and nothing wrong. A node has the reads that it has answered, and the leader
//! decides by those.
//!
//! Left out: which keys there are (`held`).

use model::{Bytes, KeyspaceId, key_hash};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// 512 KiB, once there is a keyspace with such keys.
const PLACES: usize = 65_536;

/// See the module.
#[derive(Debug, Default)]
pub(in crate::site::machine) struct Recency {
    reads: AtomicU64,
    last: OnceLock<Box<[AtomicU64]>>,
}

fn place(keyspace: KeyspaceId, key: &Bytes) -> usize {
    (key_hash(key) ^ keyspace.0.wrapping_mul(0x9e37_79b9)) as usize % PLACES
}

impl Recency {
    /// A key is read, or asked for.
    pub(in crate::site::machine) fn touch(&self, keyspace: KeyspaceId, key: &Bytes) {
        let new = || (0..PLACES).map(|_| AtomicU64::new(0)).collect();
        let number = self.reads.fetch_add(1, Ordering::Relaxed) + 1;
        self.last.get_or_init(new)[place(keyspace, key)].store(number, Ordering::Relaxed);
    }

    /// The number of the last read of a key, or of another one in its place; 0: there was none.
    pub(in crate::site::machine) fn last(&self, keyspace: KeyspaceId, key: &Bytes) -> u64 {
        self.last.get().map_or(0, |last| last[place(keyspace, key)].load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_read_counts() {
        let recency = Recency::default();
        let (keyspace, one, other) = (KeyspaceId(2), "one".into(), "other".into());
        assert_eq!(recency.last(keyspace, &one), 0);
        [&one, &other, &one].into_iter().for_each(|key| recency.touch(keyspace, key));
        assert_eq!((recency.last(keyspace, &one), recency.last(keyspace, &other)), (3, 2));
    }
}
