//! The ordered map that a site's commands are applied to.
//!
//! Keys and values are bytes; [`Batch`]es are atomic: all of a batch is visible, and after a crash
//! all of it or nothing of it is there. A crash may lose a committed batch together with everything
//! after it, but never one from the middle: a key in the same batch records how far the log is
//! applied, and the rest is applied again from the log.

mod batch;
pub mod fjall;
pub mod memory;
mod over;

pub use batch::Batch;
use model::Bytes;
pub use over::scan_over;

/// The longest key of any engine (a key has at least one byte). Committing a longer one panics:
/// callers have a lower limit of their own. Reads take a longer one: it is absent, and bounds a
/// scan like any other.
pub const KEY_BYTES_MAX: usize = u16::MAX as usize;

fn check_keys(batch: &Batch) {
    for key in batch.keys() {
        assert!(
            (1..=KEY_BYTES_MAX).contains(&key.len()),
            "a state's key has 1 to {KEY_BYTES_MAX} bytes, not {}",
            key.len()
        );
    }
}

/// Why a state cannot continue. All errors are fatal for the engine: the owner rebuilds it from
/// snapshot and log.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StateError {
    /// The engine found its files damaged.
    #[error("the state in {path} is damaged ({cause}); it must be rebuilt from snapshot and log")]
    Damaged {
        /// The engine's folder.
        path: String,
        /// The engine's error.
        cause: String,
    },
    /// The engine could not read or write its files.
    #[error("the state in {path} failed: {cause}")]
    Io {
        /// The engine's folder.
        path: String,
        /// The system's error.
        cause: String,
    },
}

/// Reads of the newest state or of a view of an older one.
pub trait Read {
    /// The value of a key.
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StateError>;

    /// Reads the value of a key without copying it. `at` must not use the state itself.
    fn look<T>(&self, key: &[u8], at: impl FnOnce(Option<&[u8]>) -> T) -> Result<T, StateError> {
        Ok(at(self.get(key)?.as_deref()))
    }

    /// Visits keys in byte order from `from` (inclusive) to `until` (exclusive; `None`: to the end)
    /// until `visit` returns `false`.
    fn scan(
        &self,
        from: &[u8],
        until: Option<&[u8]>,
        visit: &mut dyn FnMut(Bytes, Bytes) -> bool,
    ) -> Result<(), StateError>;
}

/// An ordered state. Clones are handles to the same state: one commits, any may read from any
/// thread. Every read of any handle that begins after [`State::commit`] returned sees its changes.
pub trait State: Read + Clone + Send + Sync + 'static {
    /// The state at one moment, for a few reads: commits may have to wait until it is dropped, and
    /// its holder must not use the state itself meanwhile.
    type Now<'a>: Read;
    /// A view that stays unchanged during further commits.
    type View: Read + Send + 'static;

    /// Makes a batch's changes visible together. Not durable by itself. The given bytes are kept
    /// unchanged: put a copy instead of a slice of a long buffer.
    fn commit(&self, batch: Batch) -> Result<(), StateError>;

    /// The state now, for reads that must see one moment.
    fn now(&self) -> Self::Now<'_>;

    /// The state as it is now, for as long as it takes.
    fn view(&self) -> Self::View;

    /// Removes everything, before a rebuild.
    fn clear(&self) -> Result<(), StateError>;

    /// Bytes on disk (or in memory), for metrics.
    fn size_bytes(&self) -> u64;
}
