//! The real state: an LSM tree of the crate `fjall`, with recent changes in front of it.
//!
//! One database per node, one fjall keyspace in it, and no fsync of our own: the log is the truth.
//! Changes gather in memory, and a thread of this module writes them to the tree, many at a time; a
//! killed process loses those that are not written yet, a power cut some more. Each time a clean
//! prefix of the batches is left, and the owner applies the rest from the log.
//!
//! | file | idea |
//! | --- | --- |
//! | `recent` | changes on their way to the tree |
//! | `writer` | the thread that writes them |
//! | `engine` | the adapter to the crate `fjall` |
//! | `doubt` | the file that exists while the state must not be used |
//! | `rows` | recently read values |
//!
//! Memory is bounded by three numbers: [`Options::memtable_bytes`] (at most seven of them: two of
//! waiting changes, one being filled in the tree, four there waiting to be flushed; while the tree
//! compacts, the one being filled may grow to sixteen),
//! [`Options::block_cache_bytes`] and [`Options::row_cache_bytes`].
//!
//! fjall stops after errors: after a failed write it refuses all others, and on some kinds of
//! damage it panics. Here a panic inside it becomes [`StateError::Damaged`], like damage that it
//! reports, and the owner rebuilds, now or at its next start.

mod doubt;
mod engine;
mod recent;
mod rows;
mod writer;

use super::over::scan_over;
use super::{Batch, Read, State, StateError, check_keys};
use doubt::Doubt;
use engine::Engine;
use fjall::Snapshot;
use model::Bytes;
use recent::{Leaving, Recent, merge};
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLockReadGuard};
use writer::Writer;

/// Up to this many changes a view copies and sorts instead of sending them to the tree.
const CHANGES_COPIED_MAX: usize = 1_024;

/// The options of the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The size of the cache of file blocks.
    pub block_cache_bytes: u64,
    /// The size of the cache of recently read values.
    pub row_cache_bytes: u64,
    /// The size of new changes in memory: before they go to the tree, and again there before they
    /// are written to a sorted file.
    pub memtable_bytes: u64,
    /// Threads that flush and compact. With one, a flush waits while it compacts; with more, the
    /// first only flushes, but spins for as long as all the others compact, which takes a core.
    pub workers: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            block_cache_bytes: 16 << 20,
            row_cache_bytes: 48 << 20,
            memtable_bytes: 8 << 20,
            workers: 1,
        }
    }
}

/// The state. Clones are handles to the same one; the last one closes it.
#[derive(Clone)]
pub struct FjallState(Arc<Inner>);

struct Inner {
    writer: Writer,
    bytes_max: u64,
    /// Held for a commit or a clear.
    changing: Mutex<()>,
}

/// The state as it is while this is held; commits wait for it.
pub struct FjallNow<'a> {
    recent: RwLockReadGuard<'a, Recent>,
    engine: &'a Engine,
}

/// The state as it was when the view was made. Files that it needs are kept until it is dropped.
#[derive(Clone)]
pub struct FjallView {
    newest: Arc<Leaving>,
    newer: Option<Arc<Leaving>>,
    snapshot: Snapshot,
    state: FjallState,
}

impl FjallState {
    /// Opens the state in a folder of its own, or creates it.
    ///
    /// [`StateError::Damaged`]: call [`FjallState::remove`] and open again, then rebuild. That holds
    /// too if an earlier opening or clear did not end, or if an earlier handle found damage.
    pub fn open(path: &Path, options: Options) -> Result<Self, StateError> {
        let writer = Writer::start(Engine::open(path, options)?)?;
        let bytes_max = options.memtable_bytes;
        Ok(Self(Arc::new(Inner { writer, bytes_max, changing: Mutex::new(()) })))
    }

    /// Removes the folder of a damaged state. No handle to it may be left.
    #[allow(
        clippy::disallowed_methods,
        reason = "fjall has its own files, which are not seen through Disk"
    )]
    pub fn remove(path: &Path) -> Result<(), StateError> {
        match std::fs::remove_dir_all(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(StateError::Io { path: path.display().to_string(), cause: error.to_string() })
            }
            // Last, so that a removal that did not end is ended by the next one.
            _ => Doubt::of(path).end(),
        }
    }

    /// Waits until everything that was committed is in the engine's files, so that an owner that is
    /// killed after that finds it there. Not an fsync.
    ///
    /// # Errors
    /// As [`State::commit`].
    pub fn flush(&self) -> Result<(), StateError> {
        {
            let _alone = self.change();
            self.0.writer.send()?;
        }
        self.0.writer.wait()
    }

    fn engine(&self) -> &Engine {
        self.0.writer.engine()
    }

    fn change(&self) -> MutexGuard<'_, ()> {
        // The lock guards no value.
        self.0.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Read for FjallState {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StateError> {
        // The engine may have to read a file: not under the lock, as commits wait for it.
        let recent = self.0.writer.recent().get(key).cloned();
        recent.map_or_else(|| self.engine().get(key), Ok)
    }

    fn look<T>(&self, key: &[u8], at: impl FnOnce(Option<&[u8]>) -> T) -> Result<T, StateError> {
        if let Some(change) = self.0.writer.recent().get(key) {
            return Ok(at(change.as_deref()));
        }
        Ok(at(self.engine().get(key)?.as_deref()))
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
    type Now<'a> = FjallNow<'a>;
    type View = FjallView;

    fn commit(&self, batch: Batch) -> Result<(), StateError> {
        check_keys(&batch);
        let _alone = self.change();
        let is_full = {
            let mut recent = self.0.writer.recent_mut();
            for (key, value) in batch.into_changes() {
                recent.filling.put(key, value);
            }
            recent.filling.changes().is_full(self.0.bytes_max)
        };
        if is_full { self.0.writer.send() } else { self.0.writer.check() }
    }

    fn now(&self) -> FjallNow<'_> {
        FjallNow { recent: self.0.writer.recent(), engine: self.engine() }
    }

    fn view(&self) -> FjallView {
        self.0.writer.send_if(|recent| recent.filling.changes().len() > CHANGES_COPIED_MAX);
        let recent = self.0.writer.recent();
        FjallView {
            newest: Arc::new(recent.filling.copied()),
            newer: recent.leaving.clone(),
            snapshot: self.engine().snapshot(),
            state: self.clone(),
        }
    }

    fn clear(&self) -> Result<(), StateError> {
        let _alone = self.change();
        self.0.writer.discard();
        self.engine().clear()
    }

    fn size_bytes(&self) -> u64 {
        self.engine().size_bytes()
    }
}

impl Read for FjallNow<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StateError> {
        match self.recent.get(key) {
            Some(change) => Ok(change.clone()),
            None => self.engine.get(key),
        }
    }

    fn scan(
        &self,
        from: &[u8],
        until: Option<&[u8]>,
        visit: &mut dyn FnMut(Bytes, Bytes) -> bool,
    ) -> Result<(), StateError> {
        let range = (from, until);
        let newest = |(from, until)| self.recent.filling.range(from, until);
        let newer = self.recent.leaving.as_deref();
        scan(self.engine, newest, newer, &self.engine.snapshot(), range, visit)
    }
}

impl FjallView {
    /// Waits until everything the view shows is in the engine's files: see [`FjallState::flush`].
    ///
    /// # Errors
    /// As [`State::commit`].
    pub fn flush(&self) -> Result<(), StateError> {
        self.state.flush()
    }
}

impl Read for FjallView {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StateError> {
        let newer = || self.newer.as_ref().and_then(|newer| newer.get(key));
        match self.newest.get(key).or_else(newer) {
            Some(change) => Ok(change.clone()),
            None => self.state.engine().get_at(&self.snapshot, key),
        }
    }

    fn scan(
        &self,
        from: &[u8],
        until: Option<&[u8]>,
        visit: &mut dyn FnMut(Bytes, Bytes) -> bool,
    ) -> Result<(), StateError> {
        let newest = |(from, until)| self.newest.range(from, until);
        let newer = self.newer.as_deref();
        scan(self.state.engine(), newest, newer, &self.snapshot, (from, until), visit)
    }
}

type Range<'a> = (&'a [u8], Option<&'a [u8]>);

fn scan<'a, I: Iterator<Item = (Bytes, Option<Bytes>)>>(
    engine: &Engine,
    newest: impl FnOnce(Range<'a>) -> I,
    newer: Option<&Leaving>,
    snapshot: &Snapshot,
    (from, until): Range<'a>,
    visit: &mut dyn FnMut(Bytes, Bytes) -> bool,
) -> Result<(), StateError> {
    if until.is_some_and(|until| until <= from) {
        return Ok(());
    }
    let newer = newer.into_iter().flat_map(|newer| newer.range(from, until));
    let changes = merge(newest((from, until)), newer);
    scan_over(changes, |visit| engine.scan_at(snapshot, from, until, visit), visit)
}

impl fmt::Debug for FjallState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FjallState").field(&self.engine().path()).finish()
    }
}

impl fmt::Debug for FjallView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FjallView").field(&self.state.engine().path()).finish()
    }
}
