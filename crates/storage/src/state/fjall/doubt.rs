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
use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

pub(super) struct Doubt(PathBuf);

#[allow(
    clippy::disallowed_methods,
    reason = "fjall has its own files, which are not seen through Disk; so has this one"
)]
impl Doubt {
    /// That of the state in this folder.
    pub(super) fn of(folder: &Path) -> Doubt {
        let mut path = folder.as_os_str().to_owned();
        path.push(".rebuild");
        Doubt(path.into())
    }

    /// Why the state must not be used, if it must not.
    pub(super) fn found(&self) -> Result<Option<String>, StateError> {
        match fs::read(&self.0) {
            Ok(why) => Ok(Some(String::from_utf8_lossy(&why).into_owned())),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.failed(&error)),
        }
    }

    /// Durable when it returns.
    pub(super) fn begin(&self, why: &str) -> Result<(), StateError> {
        let write = || {
            let mut file = File::create(&self.0)?;
            file.write_all(why.as_bytes())?;
            file.sync_all()?;
            let folder = self.0.parent().filter(|parent| !parent.as_os_str().is_empty());
            File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
        };
        write().map_err(|error| self.failed(&error))
    }

    /// Not durable at once: after a power cut the state may be rebuilt once more, without need.
    pub(super) fn end(&self) -> Result<(), StateError> {
        match fs::remove_file(&self.0) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(self.failed(&error)),
            _ => Ok(()),
        }
    }

    fn failed(&self, error: &std::io::Error) -> StateError {
        StateError::Io { path: self.0.display().to_string(), cause: error.to_string() }
    }
}
