//! The file beside the state's folder that exists while the state must not be used.
//!
//! It exists during an opening and a clear, and from the moment damage was found. An opening that
//! finds it reports damage, so the owner removes the state and rebuilds it:
//!
//! - Not every damage is an error. The engine takes a damaged length from a file, allocates more
//!   memory than there is, and the process ends; or only a block that is rarely read is damaged,
//!   and the state opens without an error.
//! - A clear is not one step of the engine. Its empty list of files is durable at once, its mark in
//!   the journal is not; between them the journal's last batches would come back over nothing, with
//!   the row that names how far the log is applied.

use super::super::StateError;
use crate::disk::real::RealDisk;
use crate::disk::{AnyDisk, DiskError, DiskErrorKind};
use std::path::{Path, PathBuf};

/// More of a cause is not read.
const CAUSE_BYTES_MAX: usize = 4 << 10;

pub(super) struct Doubt {
    disk: AnyDisk,
    path: PathBuf,
}

impl Doubt {
    /// That of the state in this folder.
    pub(super) fn of(folder: &Path) -> Doubt {
        let mut path = folder.as_os_str().to_owned();
        path.push(".rebuild");
        Doubt { disk: RealDisk::shared(), path: path.into() }
    }

    /// Why the state must not be used, if it must not.
    pub(super) fn found(&self) -> Result<Option<String>, StateError> {
        let read = || {
            let file = self.disk.open(&self.path)?;
            let mut cause = vec![0; CAUSE_BYTES_MAX];
            let count = file.read_at(0, &mut cause)?;
            cause.truncate(count);
            Ok(String::from_utf8_lossy(&cause).into_owned())
        };
        match read() {
            Err(DiskError { kind: DiskErrorKind::Absent, .. }) => Ok(None),
            cause => cause.map(Some).map_err(|error| self.failed(error)),
        }
    }

    /// Before an opening. Where there is no room for the file nothing is opened, and none is left:
    /// the next opening would report a good state as damaged.
    pub(super) fn begin_opening(&self) -> Result<(), StateError> {
        self.begin("an opening of it did not end").inspect_err(|_| {
            // The first error is the one to report.
            let _ = self.end();
        })
    }

    /// Durable when it returns. On an error the file may be there, perhaps empty: that is doubt
    /// enough.
    pub(super) fn begin(&self, cause: &str) -> Result<(), StateError> {
        let write = || {
            let file = self.disk.create(&self.path)?;
            file.write_at(0, cause.as_bytes())?;
            file.sync_data()?;
            let folder = self.path.parent().filter(|parent| !parent.as_os_str().is_empty());
            self.disk.sync_dir(folder.unwrap_or(Path::new(".")))
        };
        write().map_err(|error| self.failed(error))
    }

    /// Not durable at once: after a power cut the state may be rebuilt once more, without need.
    pub(super) fn end(&self) -> Result<(), StateError> {
        match self.disk.remove(&self.path) {
            Err(error) if error.kind != DiskErrorKind::Absent => Err(self.failed(error)),
            _ => Ok(()),
        }
    }

    fn failed(&self, error: DiskError) -> StateError {
        StateError::Io { path: self.path.display().to_string(), cause: error.cause }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::memory::MemoryDisk;

    fn doubt(disk: &MemoryDisk) -> Doubt {
        Doubt { disk: disk.shared(), path: "/state.rebuild".into() }
    }

    #[test]
    fn only_an_opening_without_room_leaves_no_doubt() {
        let disk = MemoryDisk::new();
        disk.set_capacity(Some(0));
        let doubt = doubt(&disk);
        doubt.begin_opening().expect_err("no room");
        assert_eq!(doubt.found().expect("read"), None);
        doubt.begin("damage").expect_err("no room");
        assert_eq!(doubt.found().expect("read"), Some(String::new()));
    }
}
