//! The ordered map that a site's commands are applied to.
//!
//! Keys and values are bytes; [`Batch`]es are atomic: all of a batch is visible, and after a crash
//! all of it or nothing of it is there. A batch that was committed may be lost in a crash together
//! with everything after it, but never one from the middle: the state remembers how far it has
//! applied by a key of its own in the same batch, and the log repeats the rest.

mod batch;
pub mod fjall;
pub mod memory;
mod over;

pub use batch::Batch;
use model::Bytes;
pub use over::scan_over;

/// The longest key of any engine (a key has at least one byte). Committing another panics: whoever
/// lets keys in has its own, lower limit.
pub const KEY_BYTES_MAX: usize = u16::MAX as usize;

/// Why a state cannot go on. All are fatal for the engine: the owner rebuilds it from snapshot and
/// log.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StateError {
    /// The engine found its files damaged.
    #[error("the state in {path} is damaged ({cause}); it must be rebuilt from snapshot and log")]
    Damaged {
        /// The engine's folder.
        path: String,
        /// What the engine said.
        cause: String,
    },
    /// The engine could not read or write its files.
    #[error("the state in {path} cannot be read or written: {cause}")]
    Io {
        /// The engine's folder.
        path: String,
        /// What the system said.
        cause: String,
    },
}

/// What can be read, from the newest state or from a view of an older one.
pub trait Read {
    /// The value of a key.
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StateError>;

    /// Looks at the value of a key where it lies. `at` must not ask the state itself.
    fn look<T>(&self, key: &[u8], at: impl FnOnce(Option<&[u8]>) -> T) -> Result<T, StateError> {
        Ok(at(self.get(key)?.as_deref()))
    }

    /// Visits keys in byte order from `from` (inclusive) to `until` (exclusive; `None`: to the
    /// end) until `visit` answers `false`.
    fn scan(
        &self,
        from: &[u8],
        until: Option<&[u8]>,
        visit: &mut dyn FnMut(Bytes, Bytes) -> bool,
    ) -> Result<(), StateError>;
}

/// An ordered state. Clones are handles to the same state: one commits, any may read from any
/// thread. What [`State::commit`] returned from is seen by every later read of every handle.
pub trait State: Read + Clone + Send + Sync + 'static {
    /// The state at one moment, for a few reads: commits may have to wait until it is dropped, and
    /// its holder must not ask the state itself meanwhile.
    type Now<'a>: Read;
    /// A view that stays as it is while commits go on.
    type View: Read + Send + 'static;

    /// Makes a batch's changes visible together. Not durable by itself. What it was given is kept as
    /// it is: of bytes that are a slice of something long, put a copy.
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
