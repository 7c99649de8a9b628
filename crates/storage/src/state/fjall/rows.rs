//! Values that were read lately, in front of the engine.
//!
//! A point read of an LSM tree looks into several tables and blocks, and costs some microseconds
//! even when all of them are in memory: as much as all else that a GET takes. Programs read few of
//! their keys most of the time, so those are kept as they are.
//!
//! What must never happen is that a reader puts back a value that a commit has just replaced, nor
//! that one reader sees the new value and a later one the old. So commits are counted, before and
//! after: while one is under way its keys are not in here and everybody reads the engine, and a
//! reader may only add what it read if no commit has begun since it asked for a [`Ticket`].

use model::Bytes;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use std::hash::RandomState;
use std::sync::RwLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Larger values are cheap to read for what they are, and would push out many others.
const VALUE_BYTES_MAX: usize = 64 << 10;
/// What an item takes beside its bytes: two handles, their counts, its place in the table.
const ITEM_BYTES: u64 = 160;

/// The cache.
pub(super) struct Rows {
    items: Cache<Bytes, Bytes, Weight, RandomState>,
    /// Even: no commit is under way.
    commits: AtomicU64,
    /// Held for writing while the items of a commit are changed, for reading while one is added.
    gate: RwLock<()>,
}

/// The right to add a value that is about to be read.
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

    /// To be taken before the engine is read.
    pub(super) fn ticket(&self) -> Ticket {
        Ticket(self.commits.load(Ordering::Acquire))
    }

    /// Adds what was read, unless it may be out of date or somebody is busy here.
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
            // Copied, as a slice would keep alive the log entry or block that it lies in.
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
        // Nothing that panics runs under it, and it guards no value.
        let _closed = self.gate.write().unwrap_or_else(|poisoned| poisoned.into_inner());
        self.commits.fetch_add(1, Ordering::AcqRel);
        body();
    }
}
