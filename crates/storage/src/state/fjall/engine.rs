//! The adapter to the crate `fjall`.

use super::super::{KEY_BYTES_MAX, StateError};
use super::Options;
use super::doubt::Doubt;
use super::recent::Leaving;
use super::rows::Rows;
use fjall::Snapshot;
use fjall::compaction::Leveled;
use fjall::config::{BlockSizePolicy, HashRatioPolicy};
use fjall::{AbstractTree as _, Database, Keyspace, KeyspaceCreateOptions, PersistMode, Readable};
use model::Bytes;
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

/// The only fjall keyspace.
const NAME: &str = "state";

/// The length of a sorted file. Compaction needs space for its output before its input is removed,
/// and a disk that fills up meanwhile stops fjall for good: so writes are admitted only above a
/// reserve. With files of this size 256 MiB of reserve were enough under load, and 96 MiB were not;
/// fjall's own size of 64 MiB would need more at a time.
const TABLE_BYTES: u64 = 8 << 20;

/// How many memtables' bytes gather in one while the engine's thread compacts, which can take it
/// long: it seals none meanwhile.
const UNSEALED_MEMTABLES: u64 = 16;

/// The tree, and the rows in front of it.
pub(super) struct Engine {
    database: Database,
    keyspace: Keyspace,
    rows: Rows,
    doubt: Doubt,
    /// More than this is not put into one memtable.
    unsealed_bytes_max: u64,
    path: String,
}

impl Engine {
    pub(super) fn open(path: &Path, options: Options) -> Result<Engine, StateError> {
        let shown = path.display().to_string();
        let doubt = Doubt::of(path);
        if let Some(cause) = doubt.found()? {
            return Err(StateError::Damaged { path: shown, cause });
        }
        doubt.begin_opening()?;
        let opened = guard(&shown, || {
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
        });
        if !matches!(opened, Err(StateError::Damaged { .. })) {
            doubt.end()?;
        }
        let (database, keyspace) = opened?;
        let rows = Rows::new(options.row_cache_bytes);
        let unsealed_bytes_max = UNSEALED_MEMTABLES * options.memtable_bytes;
        Ok(Engine { database, keyspace, rows, doubt, unsealed_bytes_max, path: shown })
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    pub(super) fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StateError> {
        if key.len() > KEY_BYTES_MAX {
            return Ok(None);
        }
        if let Some(value) = self.rows.get(key) {
            return Ok(Some(value));
        }
        let ticket = self.rows.ticket();
        let found = self.guard(|| self.keyspace.get(key))?;
        Ok(found.map(|value| {
            self.rows.add(ticket, key, &value);
            Bytes::copy_from_slice(&value)
        }))
    }

    /// Applies changes: visible together, and durable against the end of this process, though not
    /// of the machine.
    pub(super) fn write(&self, changes: &Leaving) -> Result<(), StateError> {
        let tree = || {
            let database = self.database.clone();
            let mut batch = fjall::OwnedWriteBatch::with_capacity(database, 0);
            for (key, value) in changes.all() {
                match value {
                    Some(value) => batch.insert(&self.keyspace, &key[..], &value[..]),
                    // Most removed keys never reached the engine: a lookup is cheaper than a
                    // tombstone.
                    None if self.keyspace.contains_key(&key[..])? => {
                        batch.remove(&self.keyspace, &key[..]);
                    }
                    None => {}
                }
            }
            batch.commit()?;
            self.database.persist(PersistMode::Buffer)
        };
        self.rows.commit(changes.all(), || self.guard(tree))
    }

    /// Has what is in memory written to a file, if that is too much. Returns whether it is.
    pub(super) fn seal_if_full(&self) -> Result<bool, StateError> {
        self.guard(|| {
            let is_full = self.keyspace.tree.active_memtable().size() > self.unsealed_bytes_max;
            Ok(is_full && self.keyspace.rotate_memtable()?)
        })
    }

    /// Whether anything waits to be written to a file. An error once the engine's thread has
    /// stopped, which writes it.
    pub(super) fn has_sealed(&self) -> Result<bool, StateError> {
        self.guard(|| {
            self.database.persist(PersistMode::Buffer)?;
            Ok(self.keyspace.sealed_memtable_count() > 0)
        })
    }

    /// Durable when it returns.
    pub(super) fn clear(&self) -> Result<(), StateError> {
        self.doubt.begin("a clear of it did not end")?;
        let tree = || {
            self.keyspace.clear()?;
            self.database.persist(PersistMode::SyncAll)
        };
        self.rows.clear(|| self.guard(tree))?;
        self.doubt.end()
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        self.database.snapshot()
    }

    pub(super) fn get_at(
        &self,
        snapshot: &Snapshot,
        key: &[u8],
    ) -> Result<Option<Bytes>, StateError> {
        if key.len() > KEY_BYTES_MAX {
            return Ok(None);
        }
        let found = self.guard(|| snapshot.get(&self.keyspace, key))?;
        Ok(found.map(|value| Bytes::copy_from_slice(&value)))
    }

    pub(super) fn scan_at(
        &self,
        snapshot: &Snapshot,
        from: &[u8],
        until: Option<&[u8]>,
        visit: &mut dyn FnMut(Bytes, Bytes) -> bool,
    ) -> Result<(), StateError> {
        let Some(range) = range(from, until) else { return Ok(()) };
        let mut items = self.guard(|| Ok(snapshot.range::<&[u8], _>(&self.keyspace, range)))?;
        // The visitor runs outside of the guard: its panics are not the engine's.
        while let Some((key, value)) =
            self.guard(|| items.next().map(fjall::Guard::into_inner).transpose())?
        {
            if !visit(Bytes::copy_from_slice(&key), Bytes::copy_from_slice(&value)) {
                break;
            }
        }
        Ok(())
    }

    pub(super) fn size_bytes(&self) -> u64 {
        self.guard(|| self.database.disk_space()).unwrap_or(0)
    }

    fn guard<T>(&self, body: impl FnOnce() -> Result<T, fjall::Error>) -> Result<T, StateError> {
        let mut poisoned = false;
        let mut outcome = guard(&self.path, || {
            body().inspect_err(|error| poisoned = matches!(error, fjall::Error::Poisoned))
        });
        if poisoned && let Err(found @ StateError::Damaged { .. }) = self.read_through() {
            outcome = Err(found);
        }
        if let Err(StateError::Damaged { cause, .. }) = &outcome {
            // The damage is the error that counts; it is found again if this fails.
            let _ = self.doubt.begin(cause);
        }
        outcome
    }

    /// Reads all of the tree. fjall keeps no cause of why its thread has stopped: damage that the
    /// thread found is found here again, for want of room there is none.
    fn read_through(&self) -> Result<(), StateError> {
        guard(&self.path, || {
            for item in self.keyspace.iter() {
                item.into_inner()?;
            }
            Ok(())
        })
    }
}

/// Where keys begin and end.
type Bounds<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// The keys from `from` (inclusive) to `until` (exclusive), by bounds that fjall takes: it panics
/// at one that is longer than a key may be. As no key is, those after such a bound are those after
/// its beginning. `None`: there are none.
fn range<'a>(from: &'a [u8], until: Option<&'a [u8]>) -> Option<Bounds<'a>> {
    let first = match from.get(..KEY_BYTES_MAX) {
        Some(beginning) if beginning != from => Bound::Excluded(beginning),
        _ => Bound::Included(from),
    };
    let last = match until.map(|until| (until, until.get(..KEY_BYTES_MAX))) {
        Some((until, Some(beginning))) if beginning != until => Bound::Included(beginning),
        Some((until, _)) => Bound::Excluded(until),
        None => Bound::Unbounded,
    };
    match (first, last) {
        (Bound::Excluded(first), Bound::Included(last)) if last <= first => None,
        range => Some(range),
    }
}

/// Runs a call into fjall and converts its errors and panics.
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
            // A file that is missing, short or malformed is damage, not a failing device.
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
