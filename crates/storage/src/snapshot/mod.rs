//! A whole state as of one log index, in one checksummed file.
//!
//! The format has three uses: it allows the log to be cut, it is sent to a lagging node, and
//! `portolan backup` writes it.

mod file;
mod folder;
mod format;

pub use file::{SnapshotFile, Verified, write_file, write_file_while};
pub use folder::Folder;

use crate::disk::{DiskError, DiskErrorKind};
use crate::state::{Read, State, StateError};
use model::Bytes;
use std::path::Path;

/// The position and members that a snapshot represents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotHead {
    /// The last log entry that it contains the effect of.
    pub index: u64,
    /// That entry's term.
    pub term: u64,
    /// The site's members as of that entry, opaque here.
    pub members: Bytes,
}

/// Why a snapshot cannot be written, read or received.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// There is no room. Nothing changed; the operation may be repeated later.
    #[error("no room to write the snapshot {path}: {cause}")]
    Full {
        /// The file.
        path: String,
        /// The system's error.
        cause: String,
    },
    /// The file is damaged or incomplete.
    #[error("snapshot {path} is damaged at offset {offset}: {what}")]
    Damaged {
        /// The file.
        path: String,
        /// Where in it, in bytes.
        offset: u64,
        /// What is wrong there.
        what: String,
    },
    /// The file was written by a version that this one does not read.
    #[error("snapshot {path} has format {found}; this version reads up to {known}")]
    Version {
        /// The file.
        path: String,
        /// Its format.
        found: u32,
        /// The newest format known here.
        known: u32,
    },
    /// The requested snapshot is not here (any more).
    #[error("there is no snapshot of index {index} here")]
    Absent {
        /// The requested index.
        index: u64,
    },
    /// A chunk that does not follow the previous one.
    #[error("the next chunk must begin at {expected}, not at {offset}")]
    OutOfOrder {
        /// Where it would have to begin.
        expected: u64,
        /// Where it begins.
        offset: u64,
    },
    /// Another error of the system.
    #[error("snapshot {path} failed: {cause}")]
    Io {
        /// The file.
        path: String,
        /// The system's error.
        cause: String,
    },
    /// It was not written to its end, because it is no longer wanted.
    #[error("snapshot {path} is no longer wanted")]
    Unwanted {
        /// The file.
        path: String,
    },
    /// The state could not be read or filled.
    #[error(transparent)]
    State(#[from] StateError),
}

impl SnapshotError {
    fn disk(path: &Path, error: DiskError) -> Self {
        let path = path.display().to_string();
        let cause = error.cause;
        match error.kind {
            DiskErrorKind::Full => Self::Full { path, cause },
            DiskErrorKind::Absent | DiskErrorKind::Other => Self::Io { path, cause },
        }
    }

    fn damaged(path: &Path, offset: u64, what: &str) -> Self {
        Self::Damaged { path: path.display().to_string(), offset, what: what.to_owned() }
    }
}

/// One chunk of a snapshot file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Where in the file it begins.
    pub offset: u64,
    /// The bytes of the file from there on.
    pub bytes: Bytes,
    /// The length of the whole file.
    pub total_bytes: u64,
}

/// The snapshots of one replica. Clones are handles to the same place.
pub trait Snapshots: Clone + Send + Sync + 'static {
    /// The newest complete snapshot, if there is one. Reads its head only.
    fn latest(&self) -> Result<Option<SnapshotHead>, SnapshotError>;

    /// Writes `view` as a snapshot, durably, and only then removes older ones. Slow: call it on a
    /// thread of its own.
    fn write(&self, head: &SnapshotHead, view: &impl Read) -> Result<(), SnapshotError>;

    /// Replaces the content of `state` by that of the snapshot of `index`, checking every block. On
    /// an error the state is left cleared or half filled. Slow.
    fn load(&self, index: u64, state: &impl State) -> Result<(), SnapshotError>;

    /// A chunk of the snapshot of `index`, to be sent to another node. `bytes_max` at least 1.
    fn read_chunk(&self, index: u64, offset: u64, bytes_max: usize)
    -> Result<Chunk, SnapshotError>;

    /// Receives a chunk of another node's snapshot of `index`, in order from offset 0 (which begins
    /// anew). The state that it will replace gives `state_bytes` back when it is loaded; only the
    /// first chunk looks for the room of all. Not durable, and not a snapshot yet. Returns the
    /// offset of the next chunk.
    fn receive(&self, index: u64, chunk: &Chunk, state_bytes: u64) -> Result<u64, SnapshotError>;

    /// Checks every block of the chunks received for `index`, makes the file durable and makes it
    /// the latest snapshot. Slow.
    fn finish(&self, index: u64) -> Result<SnapshotHead, SnapshotError>;
}
