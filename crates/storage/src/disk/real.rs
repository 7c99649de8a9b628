//! The file system.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "this is the one place of the crate that touches files; everything else goes through Disk"
)]

use super::{AnyFile, Disk, DiskError, DiskErrorKind, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// The system's own files. Stateless.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk;

impl RealDisk {
    /// The disk as a handle to be passed around.
    pub fn shared() -> super::AnyDisk {
        Arc::new(Self)
    }
}

#[derive(Debug)]
struct RealFile(std::fs::File);

/// Makes the error of one operation, whose cause names it: `open: permission denied`.
fn failed(operation: &'static str) -> impl FnOnce(io::Error) -> DiskError {
    move |error| {
        let kind = match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => DiskErrorKind::Full,
            io::ErrorKind::NotFound => DiskErrorKind::Absent,
            _ => DiskErrorKind::Other,
        };
        DiskError { kind, cause: format!("{operation}: {error}") }
    }
}

impl Disk for RealDisk {
    fn create(&self, path: &Path) -> Result<AnyFile, DiskError> {
        let file = std::fs::File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(path)
            .map_err(failed("create"))?;
        Ok(Arc::new(RealFile(file)))
    }

    fn open(&self, path: &Path) -> Result<AnyFile, DiskError> {
        let file = std::fs::File::options().read(true).write(true).open(path);
        let file = file.map_err(failed("open"))?;
        Ok(Arc::new(RealFile(file)))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), DiskError> {
        std::fs::rename(from, to).map_err(failed("rename"))
    }

    fn remove(&self, path: &Path) -> Result<(), DiskError> {
        std::fs::remove_file(path).map_err(failed("remove"))
    }

    fn list(&self, folder: &Path) -> Result<Vec<String>, DiskError> {
        let mut names = Vec::new();
        for item in std::fs::read_dir(folder).map_err(failed("list"))? {
            let item = item.map_err(failed("list"))?;
            // A name that is not UTF-8 is not a file of this crate.
            let is_file = item.file_type().map_err(failed("list"))?.is_file();
            if let (true, Ok(name)) = (is_file, item.file_name().into_string()) {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn create_dir(&self, folder: &Path) -> Result<(), DiskError> {
        if std::fs::metadata(folder).is_ok_and(|found| found.is_dir()) {
            return Ok(());
        }
        if let Some(parent) = folder.parent().filter(|path| !path.as_os_str().is_empty()) {
            self.create_dir(parent)?;
            std::fs::create_dir(folder).map_err(failed("create folder"))?;
            return self.sync_dir(parent);
        }
        std::fs::create_dir(folder).map_err(failed("create folder"))?;
        self.sync_dir(Path::new("."))
    }

    fn sync_dir(&self, folder: &Path) -> Result<(), DiskError> {
        let opened = std::fs::File::open(folder).map_err(failed("open folder"))?;
        opened.sync_all().map_err(failed("sync folder"))
    }

    fn free_bytes(&self, folder: &Path) -> Result<u64, DiskError> {
        let found =
            rustix::fs::statvfs(folder).map_err(io::Error::from).map_err(failed("free room"))?;
        Ok(found.f_bavail.saturating_mul(found.f_frsize))
    }
}

impl File for RealFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, DiskError> {
        let mut done = 0;
        while done < buffer.len() {
            match self.0.read_at(&mut buffer[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed("read")(error)),
            }
        }
        Ok(done)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.0.write_all_at(bytes, offset).map_err(failed("write"))
    }

    fn sync_data(&self) -> Result<(), DiskError> {
        self.0.sync_data().map_err(failed("sync"))
    }

    fn truncate(&self, len_bytes: u64) -> Result<(), DiskError> {
        self.0.set_len(len_bytes).map_err(failed("truncate"))
    }

    fn len_bytes(&self) -> Result<u64, DiskError> {
        Ok(self.0.metadata().map_err(failed("look up"))?.len())
    }
}
