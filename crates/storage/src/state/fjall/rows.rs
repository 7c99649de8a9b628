//! Recently read values, in front of the engine.
//!
//! A point read of an LSM tree searches several tables and blocks, and costs some microseconds even
//! when all of them are in memory: as much as the rest of a GET. Programs mostly read a few of
//! their keys, so those values are cached.
//!
//! A reader must never put back a value that a commit has just replaced, and no reader may see the
//! old value after another has seen the new one. So commits are counted, before and after: during a
//! commit its keys are not cached and all readers use the engine, and a reader may add a value only
//! if no commit has begun since it took a [`Ticket`].

use model::Bytes;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use std::hash::RandomState;
use std::sync::RwLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Larger values are relatively cheap to read, and would displace many others.
const VALUE_BYTES_MAX: usize = 64 << 10;
/// The overhead of an item beside its bytes: two handles, their counts, its place in the table.
const ITEM_BYTES: u64 = 160;

/// The cache.
pub(super) struct Rows {
    items: Cache<Bytes, Bytes, Weight, RandomState>,
    /// Even: no commit is under way.
    commits: AtomicU64,
    /// Held for writing while the items of a commit are changed, for reading while one is added.
    gate: RwLock<()>,
}

/// The right to add a value that will be read.
#[derive(Clone, Copy)]
pub(super) struct Ticket(u64);

#[derive(Clone)]
struct Weight;

impl Weighter<Bytes, Bytes> for Weight {
    fn weight(&self, key: &Bytes, value: &Bytes) -> u64 {
        ITEM_BYTES + (key.len() + value.len()) as u64
    }
}

impl Rows {
    pub(super) fn new(bytes_max: u64) -> Self {
        let items_estimated = usize::try_from(bytes_max / (2 * ITEM_BYTES)).unwrap_or(0);
        #[expect(
            clippy::disallowed_methods,
            reason = "clients choose the keys; what is evicted is not seen"
        )]
        let hasher = RandomState::new();
        Self {
            items: Cache::with(items_estimated, bytes_max, Weight, hasher, Default::default()),
            commits: AtomicU64::new(0),
            gate: RwLock::new(()),
        }
    }

    pub(super) fn get(&self, key: &[u8]) -> Option<Bytes> {
        self.items.get(key)
    }

    /// Taken before the engine is read.
    pub(super) fn ticket(&self) -> Ticket {
        Ticket(self.commits.load(Ordering::Acquire))
    }

    /// Adds a read value, unless it may be outdated or the cache is locked.
    pub(super) fn add(&self, ticket: Ticket, key: &[u8], value: &[u8]) {
        if ticket.0 % 2 == 1 {
            return;
        }
        let Ok(_open) = self.gate.try_read() else {
            return;
        };
        if self.commits.load(Ordering::Acquire) == ticket.0 {
            self.put(key, value);
        }
    }

    fn put(&self, key: &[u8], value: &[u8]) {
        if value.len() <= VALUE_BYTES_MAX {
            // Copied, as a slice would keep its log entry or block in memory.
            let value = Bytes::copy_from_slice(value);
            self.items.insert(Bytes::copy_from_slice(key), value);
        }
    }

    /// Runs a commit of the engine, with each key once. One at a time.
    pub(super) fn commit<'a, E>(
        &self,
        changes: impl Iterator<Item = (&'a Bytes, &'a Option<Bytes>)>,
        commit: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        let mut cached = Vec::new();
        self.change(|| {
            for (key, value) in changes {
                if self.items.remove(&key[..]).is_some() {
                    cached.push((key, value));
                }
            }
        });
        let done = commit();
        self.change(|| {
            for (key, value) in cached {
                if let Some(value) = value.as_ref().filter(|_| done.is_ok()) {
                    self.put(key, value);
                }
            }
        });
        done
    }

    /// Runs a clear of the engine.
    pub(super) fn clear<E>(&self, clear: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        self.change(|| self.items.clear());
        let done = clear();
        self.change(|| ());
        done
    }

    fn change(&self, body: impl FnOnce()) {
        // No code that panics runs under the lock, and it guards no value.
        let _closed = self.gate.write().unwrap_or_else(|poisoned| poisoned.into_inner());
        self.commits.fetch_add(1, Ordering::AcqRel);
        body();
    }
}
