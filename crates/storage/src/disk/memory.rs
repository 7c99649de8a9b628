//! A disk in memory that fails on demand.
//!
//! For every file it keeps the content that the system shows and the content that a power cut would
//! leave, with the writes in between; and the same for the names. [`MemoryDisk::crash`] drops what
//! was not made durable, according to a [`Survival`]. Nothing here is random: the test decides what
//! fails, when, and how much survives.

use super::{AnyDisk, AnyFile, Disk, DiskError, DiskErrorKind, File};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

/// The unsynced changes that survive a crash. Writes and changes of names are counted together, in
/// the order in which they were made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Survival {
    /// All of it, as if the system had just written it back.
    Everything,
    /// None of it.
    Nothing,
    /// This many of the first written bytes, in order: the next write is torn. A name costs
    /// nothing and survives while bytes are left.
    Bytes(u64),
    /// Those sectors of 512 bytes of the unsynced writes for which the bit of their number (modulo
    /// the length) is set, and the names.
    Sectors(Vec<bool>),
}

/// An operation that changes the disk, to be counted and made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It reports an error and did nothing.
    Fail,
    /// It reports that there is no room and does nothing, or half of a write.
    Full,
    /// It reports success and does nothing: an fsync that is lost.
    Lie,
    /// The machine stops before this operation: every call fails until [`MemoryDisk::crash`].
    Stop,
}

/// The disk. Clones are handles to the same one.
#[derive(Clone, Debug, Default)]
pub struct MemoryDisk(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    files: BTreeMap<u64, Content>,
    next_file: u64,
    names: BTreeMap<PathBuf, u64>,
    names_durable: BTreeMap<PathBuf, u64>,
    /// Changes that are not durable, in order.
    pending: Vec<Pending>,
    capacity_bytes: Option<u64>,
    /// The number of requested changing operations so far.
    operations: u64,
    /// The faults by the number of their operation.
    faults: BTreeMap<u64, Fault>,
    stopped: bool,
    /// The number of crashes; handles from before a crash are stale.
    crashes: u64,
}

#[derive(Clone, Debug, Default)]
struct Content {
    now: Vec<u8>,
    durable: Vec<u8>,
    handles: usize,
}

#[derive(Clone, Debug)]
enum Pending {
    Write { file: u64, offset: usize, bytes: Vec<u8> },
    Truncate { file: u64, len: usize },
    Name { path: PathBuf, file: Option<u64> },
}

#[derive(Debug)]
struct MemoryFile {
    disk: MemoryDisk,
    file: u64,
    crashes: u64,
}

fn other(cause: &str) -> DiskError {
    DiskError { kind: DiskErrorKind::Other, cause: cause.to_owned() }
}

fn full() -> DiskError {
    DiskError { kind: DiskErrorKind::Full, cause: "no space left on device".to_owned() }
}

fn absent(path: &Path) -> DiskError {
    DiskError { kind: DiskErrorKind::Absent, cause: format!("no such file: {}", path.display()) }
}

impl MemoryDisk {
    /// An empty disk without a limit.
    pub fn new() -> Self {
        Self::default()
    }

    /// A handle to the disk as a trait object.
    pub fn shared(&self) -> AnyDisk {
        Arc::new(self.clone())
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // A poisoned lock means that a test panicked while it held it; the content is plain data.
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Cuts the power: unsynced changes survive according to `survival`, open files become stale,
    /// and planned faults are dropped.
    pub fn crash(&self, survival: &Survival) {
        let inner = &mut *self.inner();
        let pending = std::mem::take(&mut inner.pending);
        if *survival == Survival::Everything {
            for content in inner.files.values_mut() {
                content.durable.clone_from(&content.now);
            }
            inner.names_durable.clone_from(&inner.names);
        } else if *survival != Survival::Nothing {
            let mut bytes_left = match survival {
                Survival::Bytes(bytes) => *bytes,
                _ => u64::MAX,
            };
            let mut sector = 0;
            for change in pending {
                match change {
                    Pending::Name { path, file } => set_name(&mut inner.names_durable, path, file),
                    Pending::Truncate { file, len } => {
                        if let Some(content) = inner.files.get_mut(&file) {
                            content.durable.resize(len, 0);
                        }
                    }
                    Pending::Write { file, offset, mut bytes } => {
                        bytes.truncate(usize::try_from(bytes_left).unwrap_or(usize::MAX));
                        bytes_left -= bytes.len() as u64;
                        let Some(content) = inner.files.get_mut(&file) else {
                            continue;
                        };
                        let Survival::Sectors(kept) = survival else {
                            write(&mut content.durable, offset, &bytes);
                            if bytes_left == 0 {
                                break;
                            }
                            continue;
                        };
                        let mut at = 0;
                        while at < bytes.len() {
                            let until = bytes.len().min(at + 512 - (offset + at) % 512);
                            if kept.is_empty() || kept[sector % kept.len()] {
                                write(&mut content.durable, offset + at, &bytes[at..until]);
                            }
                            sector += 1;
                            at = until;
                        }
                    }
                }
            }
        }
        inner.names.clone_from(&inner.names_durable);
        inner.files.retain(|file, _| inner.names.values().any(|named| named == file));
        for content in inner.files.values_mut() {
            content.now.clone_from(&content.durable);
        }
        inner.forget_process();
    }

    /// Kills the process, not the system: written data is still there, and still not durable. Open
    /// files become stale, and planned faults are dropped.
    pub fn kill(&self) {
        self.inner().forget_process();
    }

    /// The number of requested operations so far that change the disk (create, write, sync,
    /// truncate, rename, remove, sync of a folder).
    pub fn operations(&self) -> u64 {
        self.inner().operations
    }

    /// Plans a fault for the operation with this number (from 0; see [`MemoryDisk::operations`]).
    pub fn fail_at(&self, operation: u64, fault: Fault) {
        self.inner().faults.insert(operation, fault);
    }

    /// Limits the disk, or lifts the limit.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.inner().capacity_bytes = bytes;
    }

    /// Flips the bits of `mask` in one byte of a file, durably. `false` if there is no such byte.
    pub fn flip(&self, path: &Path, offset: u64, mask: u8) -> bool {
        let inner = &mut *self.inner();
        let Some(content) = inner.names.get(path).and_then(|file| inner.files.get_mut(file)) else {
            return false;
        };
        let Ok(offset) = usize::try_from(offset) else {
            return false;
        };
        if let Some(byte) = content.durable.get_mut(offset) {
            *byte ^= mask;
        }
        match content.now.get_mut(offset) {
            Some(byte) => *byte ^= mask,
            None => return false,
        }
        true
    }

    /// The bytes of a file as they are now.
    pub fn read(&self, path: &Path) -> Option<Vec<u8>> {
        let inner = self.inner();
        let file = inner.names.get(path)?;
        Some(inner.files.get(file)?.now.clone())
    }

    /// Creates a file, durably.
    pub fn plant(&self, path: &Path, bytes: Vec<u8>) {
        let inner = &mut *self.inner();
        let file = inner.next_file;
        inner.next_file += 1;
        let content = Content { now: bytes.clone(), durable: bytes, handles: 0 };
        inner.files.insert(file, content);
        inner.names.insert(path.to_owned(), file);
        inner.names_durable.insert(path.to_owned(), file);
    }

    /// An independent copy of the disk as it is now.
    pub fn fork(&self) -> Self {
        let inner = self.inner();
        let copy = Inner {
            files: inner.files.clone(),
            next_file: inner.next_file,
            names: inner.names.clone(),
            names_durable: inner.names_durable.clone(),
            pending: inner.pending.clone(),
            capacity_bytes: inner.capacity_bytes,
            operations: inner.operations,
            faults: inner.faults.clone(),
            stopped: inner.stopped,
            crashes: inner.crashes,
        };
        Self(Arc::new(Mutex::new(copy)))
    }
}

fn write(content: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    let end = offset + bytes.len();
    if content.len() < end {
        content.resize(end, 0);
    }
    content[offset..end].copy_from_slice(bytes);
}

fn set_name(names: &mut BTreeMap<PathBuf, u64>, path: PathBuf, file: Option<u64>) {
    match file {
        Some(file) => names.insert(path, file),
        None => names.remove(&path),
    };
}

impl Inner {
    /// Counts an operation. `Ok(false)`: pretend it was done.
    fn begin(&mut self) -> Result<bool, DiskError> {
        let operation = self.operations;
        self.operations += 1;
        if self.stopped {
            return Err(other("the machine has stopped"));
        }
        match self.faults.remove(&operation) {
            None => Ok(true),
            Some(Fault::Lie) => Ok(false),
            Some(Fault::Fail) => Err(other("input/output error")),
            Some(Fault::Full) => Err(full()),
            Some(Fault::Stop) => {
                self.stopped = true;
                Err(other("the machine has stopped"))
            }
        }
    }

    fn used_bytes(&self) -> u64 {
        self.files.values().map(|found| found.now.len() as u64).sum()
    }

    fn free_bytes(&self) -> u64 {
        self.capacity_bytes.map_or(u64::MAX, |capacity| capacity.saturating_sub(self.used_bytes()))
    }

    fn name(&mut self, path: &Path, file: Option<u64>) {
        set_name(&mut self.names, path.to_owned(), file);
        self.pending.push(Pending::Name { path: path.to_owned(), file });
    }

    fn content(&mut self, handle: &MemoryFile) -> Result<&mut Content, DiskError> {
        self.files
            .get_mut(&handle.file)
            .filter(|_| handle.crashes == self.crashes)
            .ok_or_else(|| other("the file was opened before a crash"))
    }

    fn forget_process(&mut self) {
        for content in self.files.values_mut() {
            content.handles = 0;
        }
        self.crashes += 1;
        self.faults.clear();
        self.stopped = false;
    }

    /// Drops files that no name or handle refers to.
    fn forget_unreachable(&mut self) {
        let Self { files, names, names_durable, .. } = self;
        files.retain(|file, content| {
            content.handles > 0
                || names.values().any(|named| named == file)
                || names_durable.values().any(|named| named == file)
        });
    }
}

impl MemoryDisk {
    fn handle(&self, inner: &mut Inner, file: u64) -> AnyFile {
        if let Some(content) = inner.files.get_mut(&file) {
            content.handles += 1;
        }
        Arc::new(MemoryFile { disk: self.clone(), file, crashes: inner.crashes })
    }
}

impl Drop for MemoryFile {
    fn drop(&mut self) {
        if let Ok(content) = self.disk.inner().content(self) {
            content.handles -= 1;
        }
    }
}

impl Disk for MemoryDisk {
    fn create(&self, path: &Path) -> Result<AnyFile, DiskError> {
        let inner = &mut *self.inner();
        inner.begin()?;
        let file = inner.next_file;
        inner.next_file += 1;
        inner.files.insert(file, Content::default());
        inner.name(path, Some(file));
        Ok(self.handle(inner, file))
    }

    fn open(&self, path: &Path) -> Result<AnyFile, DiskError> {
        let inner = &mut *self.inner();
        let file = *inner.names.get(path).ok_or_else(|| absent(path))?;
        Ok(self.handle(inner, file))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), DiskError> {
        let inner = &mut *self.inner();
        if !inner.begin()? {
            return Ok(());
        }
        let file = *inner.names.get(from).ok_or_else(|| absent(from))?;
        // One step: a crash shows the old names or the new ones.
        inner.name(to, Some(file));
        inner.name(from, None);
        Ok(())
    }

    fn remove(&self, path: &Path) -> Result<(), DiskError> {
        let inner = &mut *self.inner();
        if !inner.begin()? {
            return Ok(());
        }
        if !inner.names.contains_key(path) {
            return Err(absent(path));
        }
        inner.name(path, None);
        Ok(())
    }

    fn list(&self, folder: &Path) -> Result<Vec<String>, DiskError> {
        let inner = self.inner();
        Ok(inner
            .names
            .keys()
            .filter(|path| path.parent() == Some(folder))
            .filter_map(|path| path.file_name()?.to_str().map(str::to_owned))
            .collect())
    }

    fn create_dir(&self, _folder: &Path) -> Result<(), DiskError> {
        Ok(())
    }

    fn sync_dir(&self, folder: &Path) -> Result<(), DiskError> {
        let inner = &mut *self.inner();
        if !inner.begin()? {
            return Ok(());
        }
        let mut kept = Vec::new();
        for change in std::mem::take(&mut inner.pending) {
            match change {
                Pending::Name { path, file } if path.parent() == Some(folder) => {
                    set_name(&mut inner.names_durable, path, file);
                }
                other => kept.push(other),
            }
        }
        inner.pending = kept;
        inner.forget_unreachable();
        Ok(())
    }

    fn free_bytes(&self, _folder: &Path) -> Result<u64, DiskError> {
        Ok(self.inner().free_bytes())
    }
}

impl File for MemoryFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, DiskError> {
        let inner = &mut *self.disk.inner();
        let content = inner.content(self)?;
        let offset = usize::try_from(offset).map_err(|_| other("offset out of range"))?;
        let found = content.now.get(offset..).unwrap_or_default();
        let count = found.len().min(buffer.len());
        buffer[..count].copy_from_slice(&found[..count]);
        Ok(count)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        let inner = &mut *self.disk.inner();
        let offset = usize::try_from(offset).map_err(|_| other("offset out of range"))?;
        let (bytes, outcome) = match inner.begin() {
            Ok(true) => {
                let len = inner.content(self)?.now.len();
                let growth = (offset + bytes.len()).saturating_sub(len) as u64;
                match growth.checked_sub(inner.free_bytes()) {
                    None | Some(0) => (bytes, Ok(())),
                    // Writes as much as fits, like a file system.
                    Some(lack) => {
                        let fits = (bytes.len() as u64).saturating_sub(lack);
                        (&bytes[..usize::try_from(fits).unwrap_or(0)], Err(full()))
                    }
                }
            }
            Ok(false) => return Ok(()),
            Err(error) if error.kind == DiskErrorKind::Full => {
                (&bytes[..bytes.len() / 2], Err(error))
            }
            Err(error) => return Err(error),
        };
        write(&mut inner.content(self)?.now, offset, bytes);
        inner.pending.push(Pending::Write { file: self.file, offset, bytes: bytes.to_vec() });
        outcome
    }

    fn sync_data(&self) -> Result<(), DiskError> {
        let inner = &mut *self.disk.inner();
        if !inner.begin()? {
            return Ok(());
        }
        let mut pending = std::mem::take(&mut inner.pending);
        let content = inner.content(self)?;
        pending.retain(|change| match change {
            Pending::Write { file, offset, bytes } if *file == self.file => {
                write(&mut content.durable, *offset, bytes);
                false
            }
            Pending::Truncate { file, len } if *file == self.file => {
                content.durable.resize(*len, 0);
                false
            }
            _ => true,
        });
        inner.pending = pending;
        Ok(())
    }

    fn truncate(&self, len_bytes: u64) -> Result<(), DiskError> {
        let inner = &mut *self.disk.inner();
        if !inner.begin()? {
            return Ok(());
        }
        let len = usize::try_from(len_bytes).map_err(|_| other("length out of range"))?;
        inner.content(self)?.now.resize(len, 0);
        inner.pending.push(Pending::Truncate { file: self.file, len });
        Ok(())
    }

    fn len_bytes(&self) -> Result<u64, DiskError> {
        Ok(self.disk.inner().content(self)?.now.len() as u64)
    }
}
