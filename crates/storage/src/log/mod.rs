//! The log of a replica.
//!
//! One writer appends [`Append`]s and makes them durable with one [`LogWriter::sync`] per batch;
//! any number of readers fetch entries that are no longer in memory, for followers that lag. An
//! append can do exactly what Raft needs: set the hard state, cut the log from an index on (another
//! leader's entries replace them), and add entries.

mod format;
#[doc(hidden)]
pub mod fuzz;
mod index;
mod reader;
mod recovery;
mod writer;

pub use reader::Reader;
pub use recovery::open_with;
pub use writer::{Spare, Writer};

use crate::disk::{AnyDisk, DiskError, DiskErrorKind};
use model::Bytes;
use model::limits::LOG_SEGMENT_BYTES;
use std::path::Path;

/// The sizes of a log's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// A segment's length (a larger single append makes a larger one).
    pub segment_bytes: u64,
    /// By how much a segment is extended at a time when no spare file was ready for it.
    pub grow_bytes: u64,
    /// Bytes that must stay free on the disk, for the state: below that, writes are refused as
    /// [`LogError::Full`], so that applying accepted commands does not fail.
    pub reserve_bytes: u64,
}

impl Options {
    /// Whether a file of this length is worth keeping for the next segment.
    fn fits_spare(&self, len_bytes: u64) -> bool {
        (self.segment_bytes / 2..=self.segment_bytes).contains(&len_bytes)
    }
}

impl Default for Options {
    fn default() -> Self {
        Self { segment_bytes: LOG_SEGMENT_BYTES, grow_bytes: 1 << 20, reserve_bytes: 32 << 20 }
    }
}

/// Opens the log in a folder of its own, or creates it.
pub fn open(disk: &AnyDisk, folder: &Path) -> Result<(Recovered, Writer, Reader), LogError> {
    open_with(disk, folder, Options::default())
}

fn segment_name(sequence: u64) -> String {
    format!("{sequence:020}.log")
}

fn parse_segment_name(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".log")?;
    let sequence = digits.parse().ok()?;
    (name == segment_name(sequence)).then_some(sequence)
}

/// One entry of the log. The payload is opaque here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its position: 1, 2, 3, … without gaps.
    pub index: u64,
    /// The term of the leader that proposed it.
    pub term: u64,
    /// The kind of the payload (`protocol` assigns the numbers).
    pub kind: u8,
    /// The payload; may be empty.
    pub payload: Bytes,
}

/// Raft's durable state besides the entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HardState {
    /// The latest term seen.
    pub term: u64,
    /// The node that this node voted for in this term; 0: none.
    pub vote: u64,
    /// The highest index known committed. A hint: it may lag.
    pub commit: u64,
}

/// One step of the log; durable as a whole or not at all once [`LogWriter::sync`] has returned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Append {
    /// The new hard state, if it changed.
    pub hard_state: Option<HardState>,
    /// New entries. The first one's index may lie at or below the last index: the log is cut there
    /// first. It never lies above last index + 1.
    pub entries: Vec<Entry>,
}

/// Where the log begins after it was cut behind a snapshot: the last index and term it no longer
/// holds. `(0, 0)` for a log that was never cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogStart {
    /// The index before the first entry.
    pub index: u64,
    /// Its term.
    pub term: u64,
}

/// The result of opening a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// The last hard state that was made durable.
    pub hard_state: HardState,
    /// The index and term before the first entry.
    pub start: LogStart,
    /// The last entry's index; `start.index` when there is none.
    pub last_index: u64,
    /// The terms of the entries, run-length coded: each item is the first index of a term. Ordered.
    pub terms: Vec<LogStart>,
    /// Bytes of a torn tail that were cut, for a warning.
    pub torn_bytes: u64,
}

/// Why a log operation failed.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// There is no room. Nothing was written: the same append may be tried again later.
    #[error("no room to write the log in {path}: {cause}")]
    Full {
        /// The segment.
        path: String,
        /// The system's error.
        cause: String,
    },
    /// Damage before the tail: entries that were durable are gone. Fatal.
    #[error(
        "log segment {path} is damaged at offset {offset}: {what}. Entries after it are intact, so \
         this is no torn tail; the log will not be used. Restore the file, or remove this node and \
         let it join again with an empty disk"
    )]
    Damaged {
        /// The segment.
        path: String,
        /// Where in it, in bytes.
        offset: u64,
        /// What is wrong there.
        what: String,
    },
    /// The file was written by a version that this one does not read. Fatal.
    #[error("log segment {path} has format {found}; this version reads up to {known}")]
    Version {
        /// The segment.
        path: String,
        /// Its format.
        found: u32,
        /// The newest format known here.
        known: u32,
    },
    /// Another error of the system. Fatal: after a failed fsync the content of the disk is unknown.
    #[error("the log in {path} failed: {cause}")]
    Io {
        /// The segment or folder.
        path: String,
        /// The system's error.
        cause: String,
    },
    /// The requested entries lie before the start of the log.
    #[error("entry {index} was cut from the log; a snapshot holds it")]
    Cut {
        /// The first of them.
        index: u64,
    },
}

impl LogError {
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

/// The one writer of a log.
pub trait LogWriter: Send {
    /// Writes one step. Not durable before the next [`LogWriter::sync`].
    fn write(&mut self, append: &Append) -> Result<(), LogError>;

    /// Makes everything written durable. An error other than none is fatal.
    fn sync(&mut self) -> Result<(), LogError>;

    /// Drops entries up to and including `start.index`, of term `start.term`, durably. May keep
    /// some of them on disk (whole segments are removed), but never returns them again.
    fn cut(&mut self, start: LogStart) -> Result<(), LogError>;

    /// Drops all entries and begins anew behind `start`, durably: a snapshot was installed. The
    /// hard state stays as it was, with `commit` at least `start.index`.
    fn restart(&mut self, start: LogStart) -> Result<(), LogError>;

    /// The size of the entries from the start on.
    fn size_bytes(&self) -> u64;
}

/// Reads entries that were written, from any thread.
pub trait LogReader: Clone + Send + Sync + 'static {
    /// Entries `low..high`, at least one if there is one, and then only as many as fit `bytes_max`.
    fn entries(&self, low: u64, high: u64, bytes_max: usize) -> Result<Vec<Entry>, LogError>;

    /// The length of the log behind entry `index`, to within 4 KiB and a record: both ends of a
    /// stretch are rounded alike, so that the difference of two lengths is as exact.
    fn bytes_after(&self, index: u64) -> u64;
}
