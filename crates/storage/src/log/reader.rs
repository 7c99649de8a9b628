//! Fetching entries while the writer writes.

use super::format::{
    Kind, PAYLOAD_BYTES_MAX, RECORD_HEADER_BYTES, RecordHeader, decode_append, span_bytes,
};
use super::index::{Index, Segment};
use crate::log::{Entry, LogError, LogReader};
use model::Bytes;
use std::sync::{Arc, RwLock, RwLockReadGuard};

/// The reader of a log in files. Clones read the same log.
#[derive(Clone, Debug)]
pub struct Reader {
    index: Arc<RwLock<Index>>,
}

/// The record found at a place.
enum Found {
    Record(RecordHeader, Bytes),
    /// Only its header was read: it is before the wanted entry.
    Skipped(RecordHeader),
    Nothing,
}

impl Reader {
    pub(super) fn new(index: Arc<RwLock<Index>>) -> Self {
        Self { index }
    }

    fn index(&self) -> RwLockReadGuard<'_, Index> {
        // The writer's thread panicked; the index is consistent after each of its changes.
        self.index.read().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Reads the record at `offset`; only its header if it ends before entry `wanted`.
fn read(segment: &Segment, offset: u64, wanted: u64) -> Result<Found, LogError> {
    let fail = |error| LogError::disk(&segment.path, error);
    let mut header = [0; RECORD_HEADER_BYTES];
    segment.file.read_at(offset, &mut header).map_err(fail)?;
    let Some(header) = RecordHeader::decode(&header, segment.sequence, offset) else {
        return Ok(Found::Nothing);
    };
    if header.first_index + u64::from(header.entries) <= wanted {
        return Ok(Found::Skipped(header));
    }
    debug_assert!(span_bytes(PAYLOAD_BYTES_MAX) < u64::from(u32::MAX));
    let mut payload = vec![0; header.payload_bytes as usize];
    let at = offset + RECORD_HEADER_BYTES as u64;
    let count = segment.file.read_at(at, &mut payload).map_err(fail)?;
    if count < payload.len() || crc32fast::hash(&payload) != header.payload_crc {
        return Ok(Found::Nothing);
    }
    Ok(Found::Record(header, payload.into()))
}

impl LogReader for Reader {
    fn entries(&self, low: u64, high: u64, bytes_max: usize) -> Result<Vec<Entry>, LogError> {
        let mut entries: Vec<Entry> = Vec::new();
        let mut bytes = 0;
        let mut next = low;
        let mut full = false;
        while !full {
            let (segment, mut offset, until) = {
                let index = self.index();
                if next <= index.start.index {
                    return Err(LogError::Cut { index: next });
                }
                let Some((mark, until)) =
                    index.run(next).filter(|_| next < high && next <= index.last_index)
                else {
                    return Ok(entries);
                };
                let segment = index.segment(mark.sequence);
                let segment = segment.expect("marks are of segments that are there").clone();
                (segment, mark.offset, until.min(high))
            };
            while next < until && !full {
                let found = read(&segment, offset, next)?;
                let whole = match &found {
                    Found::Skipped(_) => true,
                    Found::Nothing => false,
                    Found::Record(header, payload) if header.kind == Kind::Append => {
                        decode_append(header, payload, |entry| {
                            if entry.index != next || next >= until || full {
                                return;
                            }
                            bytes += entry.payload.len();
                            if bytes > bytes_max && !entries.is_empty() {
                                full = true;
                            } else {
                                entries.push(entry);
                                next += 1;
                            }
                        })
                        .is_some()
                    }
                    Found::Record(..) => true,
                };
                offset += match found {
                    Found::Record(header, _) | Found::Skipped(header) if whole => {
                        header.span_bytes()
                    }
                    // The file may have been recycled since the lookup.
                    _ if next <= self.index().start.index => {
                        return Err(LogError::Cut { index: next });
                    }
                    _ => {
                        return Err(LogError::Damaged {
                            path: segment.path.display().to_string(),
                            offset,
                            what: format!("there is no whole record of entry {next}"),
                        });
                    }
                };
            }
        }
        Ok(entries)
    }

    fn bytes_after(&self, index: u64) -> u64 {
        self.index().bytes_after(index)
    }
}
