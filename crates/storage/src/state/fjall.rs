//! The real state: an LSM tree of the crate `fjall`.
//!
//! One database a node, one fjall keyspace in it, and no fsync of our own: the log is the truth.
//! fjall's journal is written through its own small buffer without a system call a batch, so a
//! killed process loses at most the last few kilobytes of it and a power cut some more; each time a
//! clean prefix of the batches is left, and the owner applies the rest from the log.
//!
//! Memory is bounded by three numbers: [`Options::memtable_bytes`] (at most five of them: one being
//! filled, four waiting to be flushed), [`Options::block_cache_bytes`] and
//! [`Options::row_cache_bytes`].
//!
//! fjall was written to stop at trouble: after a failed write it refuses all others, and on some
//! kinds of damage it panics. Here a panic inside it becomes [`StateError::Damaged`], as damage
//! that it finds itself does, and the owner rebuilds.
//!
//! What is left out: a point read through [`FjallState`] itself (not through a view) may see a
//! batch's change a moment before the commit has returned, because a snapshot for every point read
//! would cost more than the read. Scans and views see batches whole.

use super::rows::Rows;
use super::{Batch, KEY_BYTES_MAX, Read, State, StateError};
use fjall::compaction::Leveled;
use fjall::config::{BlockSizePolicy, HashRatioPolicy};
use fjall::{Database, Keyspace, KeyspaceCreateOptions, Readable, Snapshot};
use model::Bytes;
use std::fmt;
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

/// The only fjall keyspace.
const NAME: &str = "state";

/// A sorted file's length. Compaction needs room for what it merges before what was merged is
/// removed, and a disk that fills up under it is an end for fjall: so whoever lets writes in keeps
/// a reserve. With these files 256 MiB were enough under load, and 96 MiB were not; with fjall's own
/// of 64 MiB more is taken at a time.
const TABLE_BYTES: u64 = 8 << 20;

/// What may be tuned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Blocks of files kept in memory.
    pub block_cache_bytes: u64,
    /// Values kept in memory as they are, because they were read.
    pub row_cache_bytes: u64,
    /// New changes kept in memory before they are written to a sorted file.
    pub memtable_bytes: u64,
    /// Threads that flush and compact. With one, commits wait while it compacts; with more, one of
    /// them only flushes.
    pub workers: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            block_cache_bytes: 16 << 20,
            row_cache_bytes: 48 << 20,
            memtable_bytes: 8 << 20,
            workers: 2,
        }
    }
}

/// The state. Clones are handles to the same one; the last one closes it.
#[derive(Clone)]
pub struct FjallState(Arc<Inner>);

struct Inner {
    database: Database,
    keyspace: Keyspace,
    rows: Rows,
    /// Held for a commit or a clear.
    changing: Mutex<()>,
    path: String,
}

/// The state as it was when the view was made. Files that it needs are kept until it is dropped.
#[derive(Clone)]
pub struct FjallView {
    snapshot: Snapshot,
    state: FjallState,
}

impl FjallState {
    /// Opens the state in a folder of its own, or creates it.
    ///
    /// [`StateError::Damaged`]: call [`FjallState::remove`] and open again, then rebuild.
    pub fn open(path: &Path, options: Options) -> Result<Self, StateError> {
        let shown = path.display().to_string();
        let (database, keyspace) = guard(&shown, || {
            let database = Database::builder(path)
                .cache_size(options.block_cache_bytes)
                .manual_journal_persist(true)
                .worker_threads(options.workers.max(1))
                .open()?;
            let keyspace = database.keyspace(NAME, || {
                KeyspaceCreateOptions::default()
                    .manual_journal_persist(true)
                    .max_memtable_size(options.memtable_bytes)
                    .compaction_strategy(Arc::new(
                        Leveled::default().with_table_target_size(TABLE_BYTES),
                    ))
                    .data_block_size_policy(BlockSizePolicy::all(4 << 10))
                    .data_block_hash_ratio_policy(HashRatioPolicy::all(0.75))
            })?;
            Ok((database, keyspace))
        })?;
        let rows = Rows::new(options.row_cache_bytes);
        let changing = Mutex::new(());
        Ok(Self(Arc::new(Inner { database, keyspace, rows, changing, path: shown })))
    }

    /// Removes the folder of a damaged state. No handle to it may be left.
    #[allow(
        clippy::disallowed_methods,
        reason = "fjall has its own files, which are not seen through Disk"
    )]
    pub fn remove(path: &Path) -> Result<(), StateError> {
        match std::fs::remove_dir_all(path) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            Err(error) => {
                Err(StateError::Io { path: path.display().to_string(), cause: error.to_string() })
            }
        }
    }

    fn change(&self) -> MutexGuard<'_, ()> {
        // It guards no value.
        let changing = self.0.changing.lock();
        changing.unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn guard<T>(&self, body: impl FnOnce() -> Result<T, fjall::Error>) -> Result<T, StateError> {
        guard(&self.0.path, body)
    }
}

/// Runs a call into fjall, with its errors and panics put into our words.
fn guard<T>(path: &str, body: impl FnOnce() -> Result<T, fjall::Error>) -> Result<T, StateError> {
    // Unwind safety: after a panic the owner only clears, drops or removes the state.
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(translate(path, &error)),
        Err(panic) => {
            let cause = panic
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| panic.downcast_ref::<&str>().copied())
                .unwrap_or("no message");
            Err(StateError::Damaged {
                path: path.to_owned(),
                cause: format!("the engine panicked: {cause}"),
            })
        }
    }
}

fn translate(path: &str, error: &fjall::Error) -> StateError {
    use std::io::ErrorKind;
    let path = path.to_owned();
    let cause = error.to_string();
    match error {
        fjall::Error::Io(io) | fjall::Error::Storage(fjall::LsmError::Io(io)) => match io.kind() {
            // A file that is missing, short or senseless is damage, not a failing device.
            ErrorKind::NotFound
            | ErrorKind::UnexpectedEof
            | ErrorKind::InvalidData
            | ErrorKind::InvalidInput
            | ErrorKind::AlreadyExists
            | ErrorKind::Other => StateError::Damaged { path, cause },
            _ => StateError::Io { path, cause },
        },
        fjall::Error::Locked => StateError::Io {
            path,
            cause: "another process (or another handle of this one) has it open".to_owned(),
        },
        fjall::Error::Poisoned => StateError::Io {
            path,
            cause: "an earlier write to it failed; it must be opened again".to_owned(),
        },
        _ => StateError::Damaged { path, cause },
    }
}

impl Read for FjallState {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StateError> {
        let Inner { keyspace, rows, .. } = &*self.0;
        if let Some(value) = rows.get(key) {
            return Ok(Some(value));
        }
        let ticket = rows.ticket();
        let found = self.guard(|| keyspace.get(key))?;
        Ok(found.map(|value| {
            rows.add(ticket, key, &value);
            Bytes::copy_from_slice(&value)
        }))
    }

    fn scan(
        &self,
        from: &[u8],
        until: Option<&[u8]>,
        visit: &mut dyn FnMut(Bytes, Bytes) -> bool,
    ) -> Result<(), StateError> {
        self.view().scan(from, until, visit)
    }
}

impl State for FjallState {
    type View = FjallView;

    fn commit(&self, batch: Batch) -> Result<(), StateError> {
        let Inner { database, keyspace, rows, .. } = &*self.0;
        for (key, _) in &batch.changes {
            assert!(
                (1..=KEY_BYTES_MAX).contains(&key.len()),
                "a state's key has 1 to {KEY_BYTES_MAX} bytes, not {}",
                key.len()
            );
        }
        let engine = || {
            let mut changes =
                fjall::OwnedWriteBatch::with_capacity(database.clone(), batch.changes.len());
            for (key, value) in &batch.changes {
                // Copied, because a slice would keep the whole log entry it lies in alive.
                match value {
                    Some(value) => changes.insert(keyspace, &key[..], &value[..]),
                    None => changes.remove(keyspace, &key[..]),
                }
            }
            changes.commit()
        };
        let _alone = self.change();
        rows.commit(&batch, || self.guard(engine))
    }

    fn view(&self) -> FjallView {
        FjallView { snapshot: self.0.database.snapshot(), state: self.clone() }
    }

    fn clear(&self) -> Result<(), StateError> {
        let _alone = self.change();
        let engine = || self.0.keyspace.clear();
        self.0.rows.clear(|| self.guard(engine))
    }

    fn size_bytes(&self) -> u64 {
        self.guard(|| self.0.database.disk_space()).unwrap_or(0)
    }
}

impl Read for FjallView {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StateError> {
        self.state.guard(|| {
            let found = self.snapshot.get(&self.state.0.keyspace, key)?;
            Ok(found.map(|value| Bytes::copy_from_slice(&value)))
        })
    }

    fn scan(
        &self,
        from: &[u8],
        until: Option<&[u8]>,
        visit: &mut dyn FnMut(Bytes, Bytes) -> bool,
    ) -> Result<(), StateError> {
        if until.is_some_and(|until| until <= from) {
            return Ok(());
        }
        let range = (Bound::Included(from), until.map_or(Bound::Unbounded, Bound::Excluded));
        let keyspace = &self.state.0.keyspace;
        let mut items =
            self.state.guard(|| Ok(self.snapshot.range::<&[u8], _>(keyspace, range)))?;
        // The visitor is called outside of the guard: its panics are not the engine's.
        while let Some((key, value)) =
            self.state.guard(|| items.next().map(fjall::Guard::into_inner).transpose())?
        {
            if !visit(Bytes::copy_from_slice(&key), Bytes::copy_from_slice(&value)) {
                break;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for FjallState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FjallState").field(&self.0.path).finish()
    }
}

impl fmt::Debug for FjallView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FjallView").field(&self.state.0.path).finish()
    }
}
