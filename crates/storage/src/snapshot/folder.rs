//! The snapshots of one replica, in a folder of their own.
//!
//! A complete snapshot is called `<index, 20 digits>.snapshot`. It is written, or received, under
//! another name, made durable, and only then renamed; older ones are removed after that. So the
//! newest complete one exists at every moment, whenever the power fails.

use super::file::{SnapshotFile, write_file};
use super::{Chunk, SnapshotError, SnapshotHead, Snapshots};
use crate::disk::{AnyDisk, AnyFile, DiskErrorKind, check_room};
use crate::state::{Batch, Read, State};
use model::Bytes;
use model::limits::{BATCH_BYTES_MAX, SNAPSHOT_CHUNK_BYTES_MAX};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

const WRITING: &str = "writing";
const RECEIVING: &str = "receiving";

/// The snapshots of a replica over any disk. Clones are handles to the same folder.
#[derive(Clone, Debug)]
pub struct Folder(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    disk: AnyDisk,
    folder: PathBuf,
    /// Bytes of the disk that are left free, for the state.
    reserve_bytes: u64,
    /// One snapshot is written at a time.
    writing: Mutex<()>,
    receiving: Mutex<Option<Receiving>>,
    /// The file that chunks were last read from. It stays readable after a newer snapshot has
    /// replaced it, so that a slow transfer can finish.
    serving: Mutex<Option<(u64, SnapshotFile)>>,
}

#[derive(Debug)]
struct Receiving {
    index: u64,
    file: AnyFile,
    next: u64,
    total_bytes: u64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The value is consistent even after a panic: it is replaced in one step.
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn file_name(index: u64) -> String {
    format!("{index:020}.snapshot")
}

fn parse_file_name(name: &str) -> Option<u64> {
    let index = name.strip_suffix(".snapshot")?.parse().ok()?;
    (name == file_name(index)).then_some(index)
}

impl Folder {
    /// Opens the folder, or creates it, and removes partial files of a crash. What is received
    /// leaves `reserve_bytes` of the disk free. What is written leaves half of that: the log is cut
    /// behind it, which may be the only way to room.
    pub fn open(disk: &AnyDisk, folder: &Path, reserve_bytes: u64) -> Result<Self, SnapshotError> {
        let opened = Self(Arc::new(Inner {
            disk: disk.clone(),
            folder: folder.to_owned(),
            reserve_bytes,
            writing: Mutex::default(),
            receiving: Mutex::default(),
            serving: Mutex::default(),
        }));
        let fail = |error| SnapshotError::disk(folder, error);
        disk.create_dir(folder).map_err(fail)?;
        for name in disk.list(folder).map_err(fail)? {
            if name == WRITING || name == RECEIVING {
                opened.remove(&folder.join(name))?;
            }
        }
        if let Some(newest) = opened.indexes()?.last() {
            opened.remove_older(*newest)?;
        }
        Ok(opened)
    }

    /// Imports a snapshot or backup file as the latest snapshot. Slow.
    pub fn import(&self, source: &SnapshotFile) -> Result<SnapshotHead, SnapshotError> {
        let index = source.head().index;
        let mut offset = 0;
        while offset < source.total_bytes() {
            let chunk = chunk_of(source, offset, SNAPSHOT_CHUNK_BYTES_MAX)
                .map_err(|error| SnapshotError::disk(&self.0.folder, error))?;
            offset = self.receive(index, &chunk, 0)?;
        }
        self.finish(index)
    }

    /// The indexes of the whole snapshots, in order.
    fn indexes(&self) -> Result<Vec<u64>, SnapshotError> {
        let names = self.0.disk.list(&self.0.folder);
        let names = names.map_err(|error| SnapshotError::disk(&self.0.folder, error))?;
        // The names have a fixed width, so they are in the order of their indexes.
        Ok(names.iter().filter_map(|name| parse_file_name(name)).collect())
    }

    fn path(&self, index: u64) -> PathBuf {
        self.0.folder.join(file_name(index))
    }

    fn open_file(&self, index: u64) -> Result<SnapshotFile, SnapshotError> {
        let path = self.path(index);
        match self.0.disk.open(&path) {
            Ok(file) => SnapshotFile::of(&path, file),
            Err(error) if error.kind == DiskErrorKind::Absent => {
                Err(SnapshotError::Absent { index })
            }
            Err(error) => Err(SnapshotError::disk(&path, error)),
        }
    }

    /// Renames a durable file to its final name, durably, and removes those it replaces.
    fn publish(&self, from: &Path, index: u64) -> Result<(), SnapshotError> {
        let path = self.path(index);
        let fail = |error| SnapshotError::disk(&path, error);
        self.0.disk.rename(from, &path).map_err(fail)?;
        self.0.disk.sync_dir(&self.0.folder).map_err(fail)?;
        self.remove_older(index)
    }

    fn remove_older(&self, index: u64) -> Result<(), SnapshotError> {
        for older in self.indexes()?.into_iter().filter(|older| *older < index) {
            self.remove(&self.path(older))?;
        }
        Ok(())
    }

    /// The room that taking in a snapshot of this length needs: for its file, and then for the
    /// state that is made of it. The older snapshots and the present state are removed in between.
    fn bytes_to_take_in(&self, total_bytes: u64, state_bytes: u64) -> Result<u64, SnapshotError> {
        // Their content does not matter. One that was removed in between, or cannot be opened, has
        // no room to give.
        let len_bytes = |index| {
            let file = self.0.disk.open(&self.path(index));
            file.and_then(|file| file.len_bytes()).unwrap_or(0)
        };
        let older_bytes: u64 = self.indexes()?.into_iter().map(len_bytes).sum();
        let freed_bytes = older_bytes.saturating_add(state_bytes);
        Ok(total_bytes.max(total_bytes.saturating_mul(2).saturating_sub(freed_bytes)))
    }

    fn remove(&self, path: &Path) -> Result<(), SnapshotError> {
        match self.0.disk.remove(path) {
            Err(error) if error.kind != DiskErrorKind::Absent => {
                Err(SnapshotError::disk(path, error))
            }
            _ => Ok(()),
        }
    }
}

fn chunk_of(
    source: &SnapshotFile,
    offset: u64,
    bytes_max: usize,
) -> Result<Chunk, crate::disk::DiskError> {
    let total_bytes = source.total_bytes();
    let len = total_bytes.saturating_sub(offset).min(bytes_max as u64);
    let mut bytes = vec![0; len as usize];
    let count = source.file().read_at(offset, &mut bytes)?;
    bytes.truncate(count);
    Ok(Chunk { offset, bytes: Bytes::from(bytes), total_bytes })
}

impl Snapshots for Folder {
    fn latest(&self) -> Result<Option<SnapshotHead>, SnapshotError> {
        loop {
            let Some(newest) = self.indexes()?.pop() else {
                return Ok(None);
            };
            match self.open_file(newest) {
                Ok(found) => return Ok(Some(found.head().clone())),
                // Replaced by a newer one in between.
                Err(SnapshotError::Absent { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn write(&self, head: &SnapshotHead, view: &impl Read) -> Result<(), SnapshotError> {
        let _alone = lock(&self.0.writing);
        let path = self.0.folder.join(WRITING);
        if let Err(error) = write_file(&self.0.disk, &path, head, view, self.0.reserve_bytes / 2) {
            self.remove(&path)?;
            return Err(error);
        }
        self.publish(&path, head.index)?;
        // One of the same index is another file now.
        lock(&self.0.serving).take_if(|(index, _)| *index == head.index);
        Ok(())
    }

    fn load(&self, index: u64, state: &impl State) -> Result<(), SnapshotError> {
        let file = self.open_file(index)?;
        state.clear()?;
        let mut batch = Batch::default();
        let mut bytes = 0;
        file.blocks(&mut |rows| {
            for (key, value) in rows {
                bytes += key.len() + value.len();
                batch.put(key, value);
            }
            if bytes >= BATCH_BYTES_MAX {
                bytes = 0;
                state.commit(std::mem::take(&mut batch))?;
            }
            Ok(())
        })?;
        Ok(state.commit(batch)?)
    }

    fn read_chunk(
        &self,
        index: u64,
        offset: u64,
        bytes_max: usize,
    ) -> Result<Chunk, SnapshotError> {
        let mut serving = lock(&self.0.serving);
        let source = match &*serving {
            Some((found, source)) if *found == index => source.clone(),
            _ => {
                let source = self.open_file(index)?;
                *serving = Some((index, source.clone()));
                source
            }
        };
        let chunk = chunk_of(&source, offset, bytes_max)
            .map_err(|error| SnapshotError::disk(&self.path(index), error))?;
        if offset + chunk.bytes.len() as u64 >= chunk.total_bytes {
            // A file that was replaced meanwhile may be removed now.
            *serving = None;
        }
        Ok(chunk)
    }

    fn receive(&self, index: u64, chunk: &Chunk, state_bytes: u64) -> Result<u64, SnapshotError> {
        let path = self.0.folder.join(RECEIVING);
        let fail = |error| SnapshotError::disk(&path, error);
        let mut slot = lock(&self.0.receiving);
        if chunk.offset == 0 {
            *slot = Some(Receiving {
                index,
                file: self.0.disk.create(&path).map_err(fail)?,
                next: 0,
                total_bytes: chunk.total_bytes,
            });
        }
        let offset = chunk.offset;
        let out_of_order = |expected| SnapshotError::OutOfOrder { expected, offset };
        let receiving = slot
            .as_mut()
            .filter(|receiving| {
                (receiving.index, receiving.total_bytes) == (index, chunk.total_bytes)
            })
            .ok_or(out_of_order(0))?;
        if offset != receiving.next {
            return Err(out_of_order(receiving.next));
        }
        let bytes = match offset {
            0 => self.bytes_to_take_in(chunk.total_bytes, state_bytes)?,
            _ => chunk.bytes.len() as u64,
        };
        let written = check_room(&self.0.disk, &self.0.folder, bytes, self.0.reserve_bytes)
            .and_then(|()| receiving.file.write_at(offset, &chunk.bytes));
        if let Err(error) = written {
            // The received part would only fill the disk.
            *slot = None;
            self.remove(&path)?;
            return Err(fail(error));
        }
        receiving.next += chunk.bytes.len() as u64;
        Ok(receiving.next)
    }

    fn finish(&self, index: u64) -> Result<SnapshotHead, SnapshotError> {
        let path = self.0.folder.join(RECEIVING);
        let mut slot = lock(&self.0.receiving);
        let receiving = slot
            .take_if(|receiving| {
                receiving.index == index && receiving.next == receiving.total_bytes
            })
            .ok_or(SnapshotError::Absent { index })?;
        let check = || {
            let file = SnapshotFile::of(&path, receiving.file.clone())?;
            file.verify()?;
            if file.head().index != index {
                let what = format!("it is of index {}, not {index}", file.head().index);
                return Err(SnapshotError::damaged(&path, 16, &what));
            }
            let synced = receiving.file.sync_data();
            synced.map_err(|error| SnapshotError::disk(&path, error))?;
            Ok(file.head().clone())
        };
        let head = match check() {
            Ok(head) => head,
            Err(error) => {
                self.remove(&path)?;
                return Err(error);
            }
        };
        self.publish(&path, index)?;
        Ok(head)
    }
}
