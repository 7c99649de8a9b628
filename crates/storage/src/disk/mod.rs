//! The disk operations that the log and the snapshots need, and two implementations.
//!
//! [`real`] is the system's file system and the only place of this crate that touches files.
//! [`memory`] keeps everything in memory and fails on demand as real disks may: it loses unsynced
//! data, tears a write, fills up, flips bits, fails an fsync. The log and the snapshots are written
//! once against this contract, so the in-memory engines encode and decode every byte that the real
//! ones do.
//!
//! The guarantees are those of POSIX:
//! - written data is durable after [`File::sync_data`] returned, not before, and parts of it may
//!   survive a crash in any combination;
//! - a new name, a rename or a removal is durable after [`Disk::sync_dir`] of its folder;
//! - a rename replaces its target atomically.

pub mod memory;
pub mod real;

use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// A shared disk.
pub type AnyDisk = Arc<dyn Disk>;

/// An open file. Clones of the handle are the same file; it stays readable after a rename or
/// removal.
pub type AnyFile = Arc<dyn File>;

/// Why a disk operation failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskError {
    /// The kind of failure, as far as callers distinguish it.
    pub kind: DiskErrorKind,
    /// The operation and the system's error: `open: permission denied`.
    pub cause: String,
}

/// The kinds of failure that callers distinguish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskErrorKind {
    /// No room, or over the quota. It may work later.
    Full,
    /// There is no such file.
    Absent,
    /// Anything else.
    Other,
}

impl fmt::Display for DiskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.cause)
    }
}

impl std::error::Error for DiskError {}

/// A place for files.
pub trait Disk: Send + Sync + fmt::Debug {
    /// Creates an empty file, or empties the one that is there.
    fn create(&self, path: &Path) -> Result<AnyFile, DiskError>;

    /// Opens a file that is there, for reading and writing.
    fn open(&self, path: &Path) -> Result<AnyFile, DiskError>;

    /// Renames a file and replaces the target.
    fn rename(&self, from: &Path, to: &Path) -> Result<(), DiskError>;

    /// Removes a file.
    fn remove(&self, path: &Path) -> Result<(), DiskError>;

    /// The names of the files in a folder, in order.
    fn list(&self, folder: &Path) -> Result<Vec<String>, DiskError>;

    /// Creates a folder and those above it, durably. Fine if it is there.
    fn create_dir(&self, folder: &Path) -> Result<(), DiskError>;

    /// Makes the names in a folder durable.
    fn sync_dir(&self, folder: &Path) -> Result<(), DiskError>;

    /// The number of bytes that can still be written under this folder.
    fn free_bytes(&self, folder: &Path) -> Result<u64, DiskError>;
}

/// Refuses a write of so many bytes that would leave less than `reserve_bytes` free.
pub(crate) fn check_room(
    disk: &AnyDisk,
    folder: &Path,
    bytes: u64,
    reserve_bytes: u64,
) -> Result<(), DiskError> {
    let free_bytes = disk.free_bytes(folder)?;
    if free_bytes >= reserve_bytes.saturating_add(bytes) {
        return Ok(());
    }
    let cause = format!(
        "{free_bytes} bytes are free, {bytes} are needed and {reserve_bytes} are kept for the state"
    );
    Err(DiskError { kind: DiskErrorKind::Full, cause })
}

/// A file.
pub trait File: Send + Sync + fmt::Debug {
    /// Reads up to `buffer.len()` bytes; fewer only at the end of the file. Returns how many.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, DiskError>;

    /// Writes all bytes. On an error some of them may have been written.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError>;

    /// Makes the content durable.
    fn sync_data(&self) -> Result<(), DiskError>;

    /// Cuts the file, or extends it by zeros, to this length.
    fn truncate(&self, len_bytes: u64) -> Result<(), DiskError>;

    /// Its length.
    fn len_bytes(&self) -> Result<u64, DiskError>;
}
