//! Opens a log and distinguishes torn writes from damage.
//!
//! Every segment but the last must be complete up to the end that the next header gives for it. In
//! the last one records count as long as they are valid. The bytes after the last valid one are a
//! torn tail, which is cut, unless a later record shows that they were durable: then they are
//! damage.

use super::format::{
    ALIGNMENT, HeaderError, Kind, RECORD_HEADER_BYTES, RecordHeader, SEGMENT_HEADER_BYTES,
    SegmentHeader, decode_append, decode_start,
};
use super::index::{Index, Mark, Segment};
use super::reader::Reader;
use super::writer::{NEXT, SPARE, SpareSlot, Writer, create_segment};
use super::{Options, parse_segment_name, segment_name};
use crate::disk::{AnyDisk, DiskErrorKind};
use crate::log::{LogError, LogStart, Recovered};
use model::Bytes;
use std::path::Path;
use std::sync::{Arc, Mutex, RwLock};

/// Opens the log in a folder of its own, or creates it, with other than the usual sizes.
pub fn open_with(
    disk: &AnyDisk,
    folder: &Path,
    options: Options,
) -> Result<(Recovered, Writer, Reader), LogError> {
    let fail = |error| LogError::disk(folder, error);
    disk.create_dir(folder).map_err(fail)?;
    let names = disk.list(folder).map_err(fail)?;
    let mut segments = find_segments(disk, folder, &names)?;
    if segments.is_empty() {
        let header = SegmentHeader { sequence: 1, next_index: 1, ..SegmentHeader::default() };
        let (segment, _) = create_segment(disk, folder, &header, None, NEXT, options.grow_bytes)?;
        segments.push((segment, header));
    }

    let mut replay = Replay::new(&segments[0]);
    for position in 0..segments.len() {
        let expected_end = segments.get(position + 1).map(|(_, next)| next.previous_end);
        let (segment, header) = &segments[position];
        replay.segment(segment.clone(), header, expected_end)?;
    }
    replay.check_start(&segments[0].0)?;

    let Replay { mut index, recovered, .. } = replay;
    let active = index.segments.back().expect("there is one").clone();
    // Unsynced writes of a killed process are in the system's memory only, and are about to count
    // as durable.
    let fail = |error| LogError::disk(&active.path, error);
    if recovered.torn_bytes > 0 {
        active.file.truncate(active.end).map_err(fail)?;
    }
    active.file.sync_data().map_err(fail)?;
    let allocated = active.file.len_bytes().map_err(fail)?;
    index.cut(recovered.start);

    let spare = find_spare(disk, folder, &names, options)?;
    disk.sync_dir(folder).map_err(fail)?;
    let index = Arc::new(RwLock::new(index));
    let writer = Writer {
        disk: disk.clone(),
        folder: folder.to_owned(),
        options,
        index: index.clone(),
        hard_state: recovered.hard_state,
        allocated,
        durable: active.end,
        active,
        spare: Arc::new(Mutex::new(spare)),
        unasked_bytes: u64::MAX / 2,
        broken: None,
        buffer: Vec::new(),
    };
    Ok((recovered, writer, Reader::new(index)))
}

/// The segments that count, with their headers, in order. Those left over from before a cut or a
/// restart that a crash interrupted are removed.
fn find_segments(
    disk: &AnyDisk,
    folder: &Path,
    names: &[String],
) -> Result<Vec<(Segment, SegmentHeader)>, LogError> {
    let mut found: Vec<(Segment, SegmentHeader)> = Vec::new();
    for name in names {
        let Some(sequence) = parse_segment_name(name) else {
            continue;
        };
        let path = folder.join(name);
        let fail = |error| LogError::disk(&path, error);
        let file = disk.open(&path).map_err(fail)?;
        let mut bytes = [0; SEGMENT_HEADER_BYTES as usize];
        let count = file.read_at(0, &mut bytes).map_err(fail)?;
        let header = SegmentHeader::decode(&bytes[..count])
            .and_then(|header| match header.sequence == sequence {
                true => Ok(header),
                false => Err(HeaderError::Damaged),
            })
            .map_err(|error| match error {
                HeaderError::Version(found) => LogError::Version {
                    path: path.display().to_string(),
                    found,
                    known: super::format::FORMAT,
                },
                // Headers are durable before a segment gets its name, so this one was valid once.
                HeaderError::Damaged => LogError::damaged(&path, 0, "its header is not valid"),
            })?;
        let segment = Segment {
            sequence,
            path,
            file,
            next_index: header.next_index,
            end: SEGMENT_HEADER_BYTES,
        };
        found.push((segment, header));
    }
    let anew = found.iter().rposition(|(_, header)| header.previous_end == 0);
    let gap = found
        .windows(2)
        .rposition(|pair| pair[0].0.sequence + 1 != pair[1].0.sequence)
        .map(|position| position + 1);
    let first = anew.max(gap).unwrap_or(0);
    if let (Some(gap), true) = (gap, gap > anew) {
        // Valid only if a cut was removing the segments before the gap; then this segment contains
        // a start at or after its own first entry.
        let (segment, header) = &found[gap];
        if header.next_index > header.start.index + 1 && !cut_later(&found[gap..])? {
            let missing = folder.join(segment_name(segment.sequence - 1));
            return Err(LogError::damaged(&missing, 0, "the file is missing"));
        }
    }
    for (segment, _) in found.drain(..first) {
        disk.remove(&segment.path).map_err(|error| LogError::disk(&segment.path, error))?;
    }
    Ok(found)
}

/// Whether the log was cut at or behind the first of these segments.
fn cut_later(segments: &[(Segment, SegmentHeader)]) -> Result<bool, LogError> {
    let mut replay = Replay::new(&segments[0]);
    for position in 0..segments.len() {
        let expected_end = segments.get(position + 1).map(|(_, next)| next.previous_end);
        let (segment, header) = &segments[position];
        replay.segment(segment.clone(), header, expected_end)?;
    }
    Ok(segments[0].1.next_index <= replay.recovered.start.index + 1)
}

fn find_spare(
    disk: &AnyDisk,
    folder: &Path,
    names: &[String],
    options: Options,
) -> Result<SpareSlot, LogError> {
    let mut slot = SpareSlot::Empty;
    for name in names {
        let path = folder.join(name);
        let fail = |error| LogError::disk(&path, error);
        if name == SPARE {
            let file = disk.open(&path).map_err(fail)?;
            if options.fits_spare(file.len_bytes().map_err(fail)?) {
                slot = SpareSlot::Ready(file);
                continue;
            }
        }
        if name == SPARE || name == NEXT {
            match disk.remove(&path) {
                Err(error) if error.kind != DiskErrorKind::Absent => return Err(fail(error)),
                _ => {}
            }
        }
    }
    Ok(slot)
}

/// The result of the records read so far.
struct Replay {
    index: Index,
    recovered: Recovered,
}

impl Replay {
    fn new((_, header): &(Segment, SegmentHeader)) -> Self {
        let mut index = Index::new(header.start);
        index.last_index = header.next_index - 1;
        let recovered = Recovered {
            hard_state: header.hard_state,
            start: header.start,
            ..Recovered::default()
        };
        Self { index, recovered }
    }

    /// Reads the records of the next segment, up to `expected_end` if it is not the last.
    fn segment(
        &mut self,
        segment: Segment,
        header: &SegmentHeader,
        expected_end: Option<u64>,
    ) -> Result<(), LogError> {
        if header.next_index != self.index.last_index + 1 {
            let what = format!(
                "it continues at entry {}, but the segments before it end with entry {}",
                header.next_index, self.index.last_index
            );
            return Err(LogError::damaged(&segment.path, 0, &what));
        }
        let mut window = Window::new(&segment)?;
        let mut offset = SEGMENT_HEADER_BYTES;
        self.index.segments.push_back(segment.clone());
        while expected_end != Some(offset) {
            let Some((record, payload)) = window.record(offset)? else {
                if expected_end.is_some() {
                    let what = "there is no valid record, though later segments follow";
                    return Err(LogError::damaged(&segment.path, offset, what));
                }
                self.recovered.torn_bytes = window.torn_bytes(offset)?;
                break;
            };
            self.record(&segment, offset, &record, &payload)?;
            offset += record.span_bytes();
        }
        if let Some(last) = self.index.segments.back_mut() {
            last.end = offset;
        }
        Ok(())
    }

    fn record(
        &mut self,
        segment: &Segment,
        offset: u64,
        record: &RecordHeader,
        payload: &Bytes,
    ) -> Result<(), LogError> {
        let damaged = |what: &str| LogError::damaged(&segment.path, offset, what);
        if record.kind == Kind::Start {
            self.recovered.start = decode_start(payload)
                .filter(|start| start.index <= self.index.last_index)
                .ok_or_else(|| damaged("a malformed start"))?;
            return Ok(());
        }
        if record.entries > 0 {
            let last = self.index.last_index;
            if record.first_index > last + 1 || record.first_index == 0 {
                let what = format!("entry {} follows entry {last}", record.first_index);
                return Err(damaged(&what));
            }
            let mark = Mark { index: record.first_index, sequence: segment.sequence, offset };
            self.index.add(mark, u64::from(record.entries));
        }
        let terms = &mut self.recovered.terms;
        let hard_state = decode_append(record, payload, |entry| {
            while terms.last().is_some_and(|run| run.index >= entry.index) {
                terms.pop();
            }
            if terms.last().is_none_or(|run| run.term != entry.term) {
                terms.push(LogStart { index: entry.index, term: entry.term });
            }
        })
        .ok_or_else(|| damaged("a malformed append"))?;
        if let Some(hard_state) = hard_state {
            self.recovered.hard_state = hard_state;
        }
        Ok(())
    }

    /// Determines the start, and checks that no entry after it is missing at the front.
    fn check_start(&mut self, first: &Segment) -> Result<(), LogError> {
        let start = self.recovered.start;
        if first.next_index > start.index + 1 {
            let what = format!(
                "the log starts behind entry {}, but its oldest segment begins with entry {}",
                start.index, first.next_index
            );
            return Err(LogError::damaged(&first.path, 0, &what));
        }
        self.recovered.last_index = self.index.last_index.max(start.index);
        let hard_state = &mut self.recovered.hard_state;
        hard_state.commit = hard_state.commit.max(start.index);
        let terms = &mut self.recovered.terms;
        let behind = terms.partition_point(|run| run.index <= start.index + 1);
        terms.drain(..behind.saturating_sub(1));
        match terms.first_mut() {
            Some(first) if first.index <= start.index => first.index = start.index + 1,
            _ => {}
        }
        if self.recovered.last_index == start.index {
            terms.clear();
        }
        Ok(())
    }
}

/// A segment read in large chunks.
struct Window<'a> {
    segment: &'a Segment,
    file_bytes: u64,
    from: u64,
    bytes: Bytes,
}

const WINDOW_BYTES: u64 = 256 << 10;

impl<'a> Window<'a> {
    fn new(segment: &'a Segment) -> Result<Self, LogError> {
        let len = segment.file.len_bytes();
        Ok(Self {
            segment,
            file_bytes: len.map_err(|error| LogError::disk(&segment.path, error))?,
            from: 0,
            bytes: Bytes::new(),
        })
    }

    /// The bytes at `offset`; `None` if they are not all in the file.
    fn get(&mut self, offset: u64, len: usize) -> Result<Option<Bytes>, LogError> {
        let end = offset + len as u64;
        if end > self.file_bytes {
            return Ok(None);
        }
        if offset < self.from || end > self.from + self.bytes.len() as u64 {
            let want = (len as u64).max(WINDOW_BYTES).min(self.file_bytes - offset);
            let mut bytes = vec![0; usize::try_from(want).expect("segments fit in memory")];
            let count = self.segment.file.read_at(offset, &mut bytes);
            let count = count.map_err(|error| LogError::disk(&self.segment.path, error))?;
            bytes.truncate(count);
            self.from = offset;
            self.bytes = bytes.into();
        }
        let at = usize::try_from(offset - self.from).expect("it is in the window");
        Ok((at + len <= self.bytes.len()).then(|| self.bytes.slice(at..at + len)))
    }

    fn header(&mut self, offset: u64) -> Result<Option<RecordHeader>, LogError> {
        let bytes = self.get(offset, RECORD_HEADER_BYTES)?;
        Ok(bytes.and_then(|bytes| RecordHeader::decode(&bytes, self.segment.sequence, offset)))
    }

    /// The valid record at `offset`, if there is one.
    fn record(&mut self, offset: u64) -> Result<Option<(RecordHeader, Bytes)>, LogError> {
        let Some(header) = self.header(offset)? else {
            return Ok(None);
        };
        let at = offset + RECORD_HEADER_BYTES as u64;
        let payload = self.get(at, header.payload_bytes as usize)?;
        Ok(payload
            .filter(|payload| crc32fast::hash(payload) == header.payload_crc)
            .map(|payload| (header, payload)))
    }

    /// The length of the torn write at `offset`, where no valid record is. An error if it is not a
    /// torn write, because a later record shows that this place was durable before.
    fn torn_bytes(&mut self, offset: u64) -> Result<u64, LogError> {
        let mut torn_until = match self.header(offset)? {
            Some(header) => offset + header.span_bytes(),
            None => {
                let left = self.file_bytes.saturating_sub(offset);
                let len = left.min(RECORD_HEADER_BYTES as u64);
                let bytes = self.get(offset, len as usize)?.unwrap_or_default();
                match bytes.iter().rposition(|byte| *byte != 0) {
                    Some(last) => offset + last as u64 + 1,
                    None => offset,
                }
            }
        };
        let mut at = offset + ALIGNMENT;
        while at + RECORD_HEADER_BYTES as u64 <= self.file_bytes {
            if let Some(later) = self.header(at)? {
                if u64::from(later.durable_before) > offset {
                    let what = format!("there is no valid record, though one follows at {at}");
                    return Err(LogError::damaged(&self.segment.path, offset, &what));
                }
                torn_until = torn_until.max(at + later.span_bytes());
            }
            at += ALIGNMENT;
        }
        Ok(torn_until.min(self.file_bytes) - offset.min(self.file_bytes))
    }
}
