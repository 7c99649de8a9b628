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

impl From<io::Error> for DiskError {
    fn from(error: io::Error) -> Self {
        let kind = match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => DiskErrorKind::Full,
            io::ErrorKind::NotFound => DiskErrorKind::Absent,
            _ => DiskErrorKind::Other,
        };
        Self { kind, cause: error.to_string() }
    }
}

impl Disk for RealDisk {
    fn create(&self, path: &Path) -> Result<AnyFile, DiskError> {
        let file = std::fs::File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(path)?;
        Ok(Arc::new(RealFile(file)))
    }

    fn open(&self, path: &Path) -> Result<AnyFile, DiskError> {
        let file = std::fs::File::options().read(true).write(true).open(path)?;
        Ok(Arc::new(RealFile(file)))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), DiskError> {
        Ok(std::fs::rename(from, to)?)
    }

    fn remove(&self, path: &Path) -> Result<(), DiskError> {
        Ok(std::fs::remove_file(path)?)
    }

    fn list(&self, folder: &Path) -> Result<Vec<String>, DiskError> {
        let mut names = Vec::new();
        for item in std::fs::read_dir(folder)? {
            let item = item?;
            // A name that is not UTF-8 is not a file of this crate.
            if let (true, Ok(name)) = (item.file_type()?.is_file(), item.file_name().into_string())
            {
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
            std::fs::create_dir(folder)?;
            return self.sync_dir(parent);
        }
        std::fs::create_dir(folder)?;
        self.sync_dir(Path::new("."))
    }

    fn sync_dir(&self, folder: &Path) -> Result<(), DiskError> {
        Ok(std::fs::File::open(folder)?.sync_all()?)
    }

    fn free_bytes(&self, folder: &Path) -> Result<u64, DiskError> {
        let found = rustix::fs::statvfs(folder).map_err(io::Error::from)?;
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
                Err(error) => return Err(error.into()),
            }
        }
        Ok(done)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        Ok(self.0.write_all_at(bytes, offset)?)
    }

    fn sync_data(&self) -> Result<(), DiskError> {
        Ok(self.0.sync_data()?)
    }

    fn truncate(&self, len_bytes: u64) -> Result<(), DiskError> {
        Ok(self.0.set_len(len_bytes)?)
    }

    fn len_bytes(&self) -> Result<u64, DiskError> {
        Ok(self.0.metadata()?.len())
    }
}
