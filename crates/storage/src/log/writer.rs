//! Appending, making durable, and dropping what a snapshot contains.
//!
//! On most disks an fdatasync after overwriting existing blocks takes a fraction of one after the
//! file has grown, because no length or extent must be made durable. So segments are filled with
//! zeros in advance: completely by a [`Spare`] on a thread of the owner's choice, or, without one,
//! step by step in the same write as the records. A segment that a cut frees becomes the next spare
//! unchanged.

use super::format::{
    Kind, PAYLOAD_BYTES_MAX, RECORD_HEADER_BYTES, RecordHeader, SEGMENT_HEADER_BYTES,
    SegmentHeader, append_bytes, encode_append, encode_start, span_bytes,
};
use super::index::{Index, Mark, Segment};
use super::{Options, segment_name};
use crate::disk::{AnyDisk, AnyFile, DiskErrorKind, check_room};
use crate::log::{Append, HardState, LogError, LogStart, LogWriter};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, RwLock, RwLockWriteGuard};

/// The name of the file that waits to become a segment.
pub(super) const SPARE: &str = "spare";
/// The name of a file that is becoming one.
pub(super) const NEXT: &str = "next";

/// The writer of a log in files.
#[derive(Debug)]
pub struct Writer {
    pub(super) disk: AnyDisk,
    pub(super) folder: PathBuf,
    pub(super) options: Options,
    pub(super) index: Arc<RwLock<Index>>,
    pub(super) hard_state: HardState,
    /// The segment that is written to.
    pub(super) active: Segment,
    /// Its length: writes before it overwrite existing blocks.
    pub(super) allocated: u64,
    /// How much of it is durable.
    pub(super) durable: u64,
    pub(super) spare: Arc<Mutex<SpareSlot>>,
    /// Bytes written since the last check of the free space.
    pub(super) unasked_bytes: u64,
    /// The error of a failure that leaves the files in an unknown state. All further writes fail.
    pub(super) broken: Option<String>,
    pub(super) buffer: Vec<u8>,
}

#[derive(Debug, Default)]
pub(super) enum SpareSlot {
    #[default]
    Empty,
    Preparing,
    Ready(AnyFile),
}

/// The bytes between two checks of the free space.
const ASK_BYTES: u64 = 1 << 20;

impl Writer {
    /// The work that prepares the next segment, to be done on another thread. `None` if there is a
    /// spare, one is being made, or it is too early.
    pub fn spare_due(&self) -> Option<Spare> {
        let mut slot = lock(&self.spare);
        if self.active.end < self.options.segment_bytes / 2 || !matches!(*slot, SpareSlot::Empty) {
            return None;
        }
        *slot = SpareSlot::Preparing;
        Some(Spare {
            disk: self.disk.clone(),
            folder: self.folder.clone(),
            bytes: self.options.segment_bytes,
            reserve_bytes: self.options.reserve_bytes,
            slot: self.spare.clone(),
        })
    }

    fn index(&self) -> RwLockWriteGuard<'_, Index> {
        // A reader panicked; readers change nothing.
        self.index.write().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn check(&self) -> Result<(), LogError> {
        match &self.broken {
            None => Ok(()),
            Some(cause) => Err(LogError::Io {
                path: self.folder.display().to_string(),
                cause: format!("an earlier operation failed ({cause}); restart the node"),
            }),
        }
    }

    /// Records a failure that cannot be undone: it is final.
    fn fatal(&mut self, error: LogError) -> LogError {
        self.broken = Some(error.to_string());
        error
    }

    /// Refuses a write that would use the space reserved for the state.
    fn ask_for_room(&mut self, growth: u64) -> Result<(), LogError> {
        if self.unasked_bytes < ASK_BYTES && growth == 0 {
            return Ok(());
        }
        check_room(&self.disk, &self.folder, growth, self.options.reserve_bytes)
            .map_err(|error| LogError::disk(&self.folder, error))?;
        self.unasked_bytes = 0;
        Ok(())
    }

    /// Writes a record; its payload is in `self.buffer`, after the space for its header. One that
    /// frees room is not limited by the reserve, and extends the segment by no more than itself.
    fn write_record(&mut self, mut header: RecordHeader, frees: bool) -> Result<Mark, LogError> {
        let grow_bytes = if frees { 0 } else { self.options.grow_bytes };
        let payload_bytes = self.buffer.len() - RECORD_HEADER_BYTES;
        assert!(payload_bytes <= PAYLOAD_BYTES_MAX, "an append has at most 1 GiB");
        let span = span_bytes(payload_bytes);
        let room = span + RECORD_HEADER_BYTES as u64;
        if self.active.end + room > self.options.segment_bytes
            && self.active.end > SEGMENT_HEADER_BYTES
        {
            self.sync()?;
            if !frees {
                self.ask_for_room(grow_bytes)?;
            }
            let start = self.index().start;
            self.begin_segment(self.active.end, start, self.hard_state, grow_bytes)?;
        }
        let at = self.active.end;
        let mut until = at + room;
        if until > self.allocated {
            until = (at + room + grow_bytes).min(self.options.segment_bytes).max(at + room);
        }
        if !frees {
            self.ask_for_room(until.saturating_sub(self.allocated))?;
        }

        header.payload_bytes = payload_bytes as u32;
        header.payload_crc = crc32fast::hash(&self.buffer[RECORD_HEADER_BYTES..]);
        header.durable_before = self.durable as u32;
        let encoded = header.encode(self.active.sequence, at);
        self.buffer[..RECORD_HEADER_BYTES].copy_from_slice(&encoded);
        self.buffer.resize((until - at) as usize, 0);

        if let Err(error) = self.active.file.write_at(at, &self.buffer) {
            let error = LogError::disk(&self.active.path, error);
            if !matches!(error, LogError::Full { .. }) {
                return Err(self.fatal(error));
            }
            // Remove the partial record.
            if let Err(worse) = self.active.file.truncate(at) {
                let worse = LogError::disk(&self.active.path, worse);
                return Err(self.fatal(worse));
            }
            self.allocated = at;
            return Err(error);
        }
        self.allocated = self.allocated.max(until);
        self.unasked_bytes += span;
        self.active.end += span;
        Ok(Mark { index: header.first_index, sequence: self.active.sequence, offset: at })
    }

    /// Begins a segment; its header and name are durable when this returns. Nothing has changed if
    /// it fails for lack of room.
    fn begin_segment(
        &mut self,
        previous_end: u64,
        start: LogStart,
        hard_state: HardState,
        grow_bytes: u64,
    ) -> Result<(), LogError> {
        let next_index =
            if previous_end == 0 { start.index + 1 } else { self.index().last_index + 1 };
        let header = SegmentHeader {
            sequence: self.active.sequence + 1,
            previous_end,
            next_index,
            start,
            hard_state,
        };
        let spare = std::mem::take(&mut *lock(&self.spare));
        let (name, file) = match spare {
            SpareSlot::Ready(file) => (SPARE, Some(file)),
            other => {
                // Its thread finds the slot unchanged.
                *lock(&self.spare) = other;
                (NEXT, None)
            }
        };
        let made = create_segment(&self.disk, &self.folder, &header, file, name, grow_bytes);
        let (segment, allocated) = match made {
            Ok(made) => made,
            Err(error @ LogError::Full { .. }) => return Err(error),
            Err(error) => return Err(self.fatal(error)),
        };
        self.index().segments.push_back(segment.clone());
        self.active = segment;
        self.allocated = allocated;
        self.durable = SEGMENT_HEADER_BYTES;
        Ok(())
    }

    /// Removes the oldest segments without entries behind the start; keeps one as a spare.
    fn drop_segments(&mut self) -> Result<(), LogError> {
        loop {
            let oldest = {
                let mut index = self.index();
                let droppable = index
                    .segments
                    .get(1)
                    .is_some_and(|second| second.next_index <= index.start.index + 1);
                if !droppable {
                    break;
                }
                index.segments.pop_front().expect("there are two")
            };
            self.drop_segment(&oldest)?;
        }
        self.sync_folder()
    }

    fn drop_segment(&mut self, segment: &Segment) -> Result<(), LogError> {
        let mut slot = lock(&self.spare);
        let len = segment.file.len_bytes();
        let fits = len.is_ok_and(|len| self.options.fits_spare(len));
        let done = if fits && matches!(*slot, SpareSlot::Empty) {
            *slot = SpareSlot::Ready(segment.file.clone());
            self.disk.rename(&segment.path, &self.folder.join(SPARE))
        } else {
            self.disk.remove(&segment.path)
        };
        drop(slot);
        done.map_err(|error| {
            let error = LogError::disk(&segment.path, error);
            self.fatal(error)
        })
    }

    fn sync_folder(&mut self) -> Result<(), LogError> {
        self.disk.sync_dir(&self.folder).map_err(|error| {
            let error = LogError::disk(&self.folder, error);
            self.fatal(error)
        })
    }
}

impl LogWriter for Writer {
    fn write(&mut self, append: &Append) -> Result<(), LogError> {
        self.check()?;
        let first_index = append.entries.first().map_or(0, |entry| entry.index);
        if first_index > 0 {
            let index = self.index();
            assert!(
                first_index > index.start.index && first_index <= index.last_index + 1,
                "entry {first_index} does not follow a log of {}..={}",
                index.start.index + 1,
                index.last_index
            );
        } else if append.hard_state.is_none() {
            return Ok(());
        }
        debug_assert!(
            (first_index..).zip(&append.entries).all(|(index, entry)| entry.index == index),
            "the entries of an append follow each other"
        );
        self.buffer.clear();
        self.buffer.reserve(RECORD_HEADER_BYTES + append_bytes(append));
        self.buffer.resize(RECORD_HEADER_BYTES, 0);
        encode_append(append, &mut self.buffer);
        let entries = append.entries.len() as u64;
        let header = RecordHeader {
            payload_bytes: 0,
            payload_crc: 0,
            first_index,
            durable_before: 0,
            entries: entries as u32,
            kind: Kind::Append,
        };
        let mark = self.write_record(header, false)?;
        if let Some(hard_state) = append.hard_state {
            self.hard_state = hard_state;
        }
        let end = self.active.end;
        let mut index = self.index();
        if let Some(active) = index.segments.back_mut() {
            active.end = end;
        }
        if entries > 0 {
            index.add(mark, entries);
        }
        drop(index);
        if self.buffer.capacity() > BUFFER_BYTES_KEPT {
            self.buffer = Vec::new();
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<(), LogError> {
        self.check()?;
        if self.durable == self.active.end {
            return Ok(());
        }
        if let Err(error) = self.active.file.sync_data() {
            // Even for a lack of room: earlier writes may be lost.
            let error =
                LogError::Io { path: self.active.path.display().to_string(), cause: error.cause };
            return Err(self.fatal(error));
        }
        self.durable = self.active.end;
        Ok(())
    }

    fn cut(&mut self, start: LogStart) -> Result<(), LogError> {
        self.check()?;
        let (now, last_index) = {
            let index = self.index();
            (index.start, index.last_index)
        };
        if start.index <= now.index {
            return Ok(());
        }
        if start.index > last_index {
            return self.restart(start);
        }
        self.buffer.clear();
        self.buffer.resize(RECORD_HEADER_BYTES, 0);
        self.buffer.extend_from_slice(&encode_start(start));
        let header = RecordHeader {
            payload_bytes: 0,
            payload_crc: 0,
            first_index: 0,
            durable_before: 0,
            entries: 0,
            kind: Kind::Start,
        };
        self.write_record(header, true)?;
        self.sync()?;
        let end = self.active.end;
        {
            let mut index = self.index();
            if let Some(active) = index.segments.back_mut() {
                active.end = end;
            }
            index.cut(start);
        }
        self.drop_segments()
    }

    fn restart(&mut self, start: LogStart) -> Result<(), LogError> {
        self.check()?;
        let hard_state =
            HardState { commit: self.hard_state.commit.max(start.index), ..self.hard_state };
        self.begin_segment(0, start, hard_state, self.options.grow_bytes)?;
        self.hard_state = hard_state;
        let old = {
            let mut index = self.index();
            let active = index.segments.pop_back().expect("it was just begun");
            let old = std::mem::take(&mut index.segments);
            *index = Index::new(start);
            index.segments.push_back(active);
            old
        };
        for segment in old {
            self.drop_segment(&segment)?;
        }
        self.sync_folder()
    }

    fn size_bytes(&self) -> u64 {
        self.index().size_bytes()
    }
}

/// The encoding buffer is released after an append larger than this.
const BUFFER_BYTES_KEPT: usize = 4 << 20;

fn lock(slot: &Mutex<SpareSlot>) -> MutexGuard<'_, SpareSlot> {
    // The slot is consistent even after a panic: each value is stored whole.
    slot.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Makes a durable segment out of a spare file, or of a new one called `name`.
pub(super) fn create_segment(
    disk: &AnyDisk,
    folder: &Path,
    header: &SegmentHeader,
    spare: Option<AnyFile>,
    name: &str,
    grow_bytes: u64,
) -> Result<(Segment, u64), LogError> {
    let from = folder.join(name);
    let path = folder.join(segment_name(header.sequence));
    let fail = |error| LogError::disk(&path, error);
    let make = || {
        let file = match &spare {
            Some(file) => file.clone(),
            None => disk.create(&from)?,
        };
        // The zeros behind the header show that no record follows, whatever the file contained
        // before.
        let least = SEGMENT_HEADER_BYTES as usize + RECORD_HEADER_BYTES;
        let len = match &spare {
            Some(_) => least,
            None => least.max(usize::try_from(grow_bytes).unwrap_or(least)),
        };
        let mut bytes = header.encode().to_vec();
        bytes.resize(len, 0);
        file.write_at(0, &bytes)?;
        file.sync_data()?;
        let allocated = file.len_bytes()?;
        Ok((file, allocated))
    };
    let (file, allocated) = match make() {
        Ok(made) => made,
        Err(error) => {
            let error: crate::disk::DiskError = error;
            // The remaining file is unused; the next attempt empties it.
            if error.kind == DiskErrorKind::Full && spare.is_none() {
                disk.remove(&from).map_err(fail)?;
            }
            return Err(fail(error));
        }
    };
    disk.rename(&from, &path).map_err(fail)?;
    disk.sync_dir(folder).map_err(fail)?;
    let segment = Segment {
        sequence: header.sequence,
        path,
        file,
        next_index: header.next_index,
        end: SEGMENT_HEADER_BYTES,
    };
    Ok((segment, allocated))
}

/// The work of preparing a file for the next segment. If it is dropped, it becomes due again.
#[derive(Debug)]
pub struct Spare {
    disk: AnyDisk,
    folder: PathBuf,
    bytes: u64,
    reserve_bytes: u64,
    slot: Arc<Mutex<SpareSlot>>,
}

impl Spare {
    /// Writes the file, durably, with the length of a segment. An error is harmless; the log then
    /// grows its segments step by step.
    pub fn prepare(self) -> Result<(), LogError> {
        let path = self.folder.join(SPARE);
        let zeros = vec![0; 1 << 20];
        let make = || {
            check_room(&self.disk, &self.folder, self.bytes, self.reserve_bytes)?;
            let file = self.disk.create(&path)?;
            let mut at = 0;
            while at < self.bytes {
                let count = (self.bytes - at).min(zeros.len() as u64);
                file.write_at(at, &zeros[..count as usize])?;
                at += count;
            }
            file.sync_data()?;
            Ok(file)
        };
        match make() {
            Ok(file) => {
                *lock(&self.slot) = SpareSlot::Ready(file);
                Ok(())
            }
            Err(error) => {
                let error: crate::disk::DiskError = error;
                // If even this fails, the next opening or spare removes the file.
                let _ = self.disk.remove(&path);
                Err(LogError::disk(&path, error))
            }
        }
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        let mut slot = lock(&self.slot);
        if matches!(*slot, SpareSlot::Preparing) {
            *slot = SpareSlot::Empty;
        }
    }
}
