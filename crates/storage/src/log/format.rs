//! The bytes of a segment, format 1. All numbers are little-endian.
//!
//! A segment is a file `<sequence, 20 digits>.log`: a header of 128 bytes, then records one after
//! the other, each begun at a multiple of 8, then zeros: at least [`RECORD_HEADER_BYTES`] of them,
//! or the end of the file.
//!
//! ```text
//! segment header                              record header
//!   0  8  "PTLNLOG\0"                           0  4  length of the payload
//!   8  4  format version                        4  4  CRC-32 of the payload
//!  12  4  zero                                  8  8  index of the first entry
//!  16  8  sequence number                      16  4  bytes of this segment known durable when
//!  24  8  end of the segment before this one,         this record was written
//!         0: the log begins anew here          20  4  number of entries
//!  32  8  index that the next entry would have 24  1  kind: 1 append, 2 start
//!  40 16  index and term of the log's start    25  3  zero
//!  56 24  hard state: term, vote, commit       28  4  CRC-32 of the sequence number, the record's
//!  80 44  zero                                        offset, and bytes 0..28
//! 124  4  CRC-32 of bytes 0..124
//!
//! payload of an append: 1 byte (1: a hard state follows), hard state (24 bytes) if so, and for each
//!                       entry its term (8), kind (1), length (4) and bytes
//! payload of a start:   index (8) and term (8) of the log's new start
//! ```
//!
//! Two of these make recovery certain. The checksum of a record's header takes in
//! the segment's sequence number and the record's offset, so bytes of an earlier life of a recycled
//! file are never valid, nor are bytes that were moved. And each record contains how much of the
//! segment was durable before it was written: a bad record below such a mark of a later record is
//! damage; any other one is a torn tail, however its sectors reached the disk.
//!
//! The first 16 bytes and the checksum of a segment's header stay as they are in every version.

use crate::little_endian::{u32_at, u64_at};
use crate::log::{Append, Entry, HardState, LogStart};
use model::Bytes;
use model::limits::ENTRY_BYTES_MAX;

/// The newest supported format.
pub(super) const FORMAT: u32 = 1;
pub(super) const SEGMENT_HEADER_BYTES: u64 = 128;
pub(super) const RECORD_HEADER_BYTES: usize = 32;
pub(super) const ALIGNMENT: u64 = 8;

/// The limit of a record's length; a larger length is invalid.
pub(super) const PAYLOAD_BYTES_MAX: usize = 1 << 30;

/// No log comes this far; arithmetic on indexes up to it does not overflow.
const INDEX_MAX: u64 = 1 << 62;

const _: () = assert!(ENTRY_BYTES_MAX < PAYLOAD_BYTES_MAX);

const MAGIC: [u8; 8] = *b"PTLNLOG\0";
const ENTRY_HEADER_BYTES: usize = 13;

/// A segment's properties and its place in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SegmentHeader {
    pub(super) sequence: u64,
    /// The end of the previous segment; 0: earlier segments do not belong to the log.
    pub(super) previous_end: u64,
    /// The index that the next entry would have.
    pub(super) next_index: u64,
    pub(super) start: LogStart,
    pub(super) hard_state: HardState,
}

/// Why a segment's header is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeaderError {
    Version(u32),
    Damaged,
}

impl SegmentHeader {
    pub(super) fn encode(&self) -> [u8; SEGMENT_HEADER_BYTES as usize] {
        let mut bytes = [0; SEGMENT_HEADER_BYTES as usize];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        let numbers = [
            self.sequence,
            self.previous_end,
            self.next_index,
            self.start.index,
            self.start.term,
            self.hard_state.term,
            self.hard_state.vote,
            self.hard_state.commit,
        ];
        for (place, number) in bytes[16..80].chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        let crc = crc32fast::hash(&bytes[..124]);
        bytes[124..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, HeaderError> {
        if bytes.len() < SEGMENT_HEADER_BYTES as usize
            || bytes[..8] != MAGIC
            || u32_at(bytes, 124) != crc32fast::hash(&bytes[..124])
        {
            return Err(HeaderError::Damaged);
        }
        let version = u32_at(bytes, 8);
        if version != FORMAT {
            return Err(HeaderError::Version(version));
        }
        let header = Self {
            sequence: u64_at(bytes, 16),
            previous_end: u64_at(bytes, 24),
            next_index: u64_at(bytes, 32),
            start: LogStart { index: u64_at(bytes, 40), term: u64_at(bytes, 48) },
            hard_state: hard_state_at(bytes, 56),
        };
        // The log never starts behind its end, and arithmetic on indexes must not overflow.
        if header.start.index >= header.next_index || header.next_index > INDEX_MAX {
            return Err(HeaderError::Damaged);
        }
        Ok(header)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    Append = 1,
    Start = 2,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecordHeader {
    pub(super) payload_bytes: u32,
    pub(super) payload_crc: u32,
    pub(super) first_index: u64,
    /// How much of the segment was durable when this record was written.
    pub(super) durable_before: u32,
    pub(super) entries: u32,
    pub(super) kind: Kind,
}

impl RecordHeader {
    pub(super) fn encode(&self, sequence: u64, offset: u64) -> [u8; RECORD_HEADER_BYTES] {
        let mut bytes = [0; RECORD_HEADER_BYTES];
        bytes[..4].copy_from_slice(&self.payload_bytes.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.payload_crc.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.first_index.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.durable_before.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.entries.to_le_bytes());
        bytes[24] = self.kind as u8;
        let crc = record_crc(&bytes, sequence, offset);
        bytes[28..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// `None`: there is no record at this place.
    pub(super) fn decode(bytes: &[u8], sequence: u64, offset: u64) -> Option<Self> {
        let bytes = bytes.get(..RECORD_HEADER_BYTES)?;
        let kind = match bytes[24..28] {
            [1, 0, 0, 0] => Kind::Append,
            [2, 0, 0, 0] => Kind::Start,
            _ => return None,
        };
        if u32_at(bytes, 28) != record_crc(bytes, sequence, offset) {
            return None;
        }
        let payload_bytes = u32_at(bytes, 0);
        (payload_bytes as usize <= PAYLOAD_BYTES_MAX).then_some(Self {
            payload_bytes,
            payload_crc: u32_at(bytes, 4),
            first_index: u64_at(bytes, 8),
            durable_before: u32_at(bytes, 16),
            entries: u32_at(bytes, 20),
            kind,
        })
    }

    /// The record's length with its header and the padding after it.
    pub(super) fn span_bytes(&self) -> u64 {
        span_bytes(self.payload_bytes as usize)
    }
}

pub(super) fn span_bytes(payload_bytes: usize) -> u64 {
    ((RECORD_HEADER_BYTES + payload_bytes) as u64).next_multiple_of(ALIGNMENT)
}

fn record_crc(header: &[u8], sequence: u64, offset: u64) -> u32 {
    let mut salted = [0; 44];
    salted[..8].copy_from_slice(&sequence.to_le_bytes());
    salted[8..16].copy_from_slice(&offset.to_le_bytes());
    salted[16..].copy_from_slice(&header[..28]);
    crc32fast::hash(&salted)
}

/// The length of an append's payload.
pub(super) fn append_bytes(append: &Append) -> usize {
    let hard_state = if append.hard_state.is_some() { 24 } else { 0 };
    let entries = append.entries.iter();
    1 + hard_state + entries.map(|entry| ENTRY_HEADER_BYTES + entry.payload.len()).sum::<usize>()
}

/// Adds an append's payload to `buffer`.
pub(super) fn encode_append(append: &Append, buffer: &mut Vec<u8>) {
    buffer.push(u8::from(append.hard_state.is_some()));
    if let Some(HardState { term, vote, commit }) = append.hard_state {
        for number in [term, vote, commit] {
            buffer.extend_from_slice(&number.to_le_bytes());
        }
    }
    for entry in &append.entries {
        buffer.extend_from_slice(&entry.term.to_le_bytes());
        buffer.push(entry.kind);
        let len = u32::try_from(entry.payload.len()).expect("appends are limited to 1 GiB");
        buffer.extend_from_slice(&len.to_le_bytes());
        buffer.extend_from_slice(&entry.payload);
    }
}

/// Reads an append's payload: its hard state, and passes each entry to `visit`. The entries share
/// the payload's memory. `None`: the payload is invalid, though its checksum fits.
pub(super) fn decode_append(
    header: &RecordHeader,
    payload: &Bytes,
    mut visit: impl FnMut(Entry),
) -> Option<Option<HardState>> {
    let (hard_state, mut at) = match *payload.first()? {
        0 => (None, 1),
        1 if payload.len() >= 25 => (Some(hard_state_at(payload, 1)), 25),
        _ => return None,
    };
    for number in 0..u64::from(header.entries) {
        let fixed = payload.get(at..at + ENTRY_HEADER_BYTES)?;
        let from = at + ENTRY_HEADER_BYTES;
        let until = from + u32_at(fixed, 9) as usize;
        if until > payload.len() {
            return None;
        }
        visit(Entry {
            index: header.first_index.checked_add(number)?,
            term: u64_at(fixed, 0),
            kind: fixed[8],
            payload: payload.slice(from..until),
        });
        at = until;
    }
    (at == payload.len()).then_some(hard_state)
}

pub(super) fn encode_start(start: LogStart) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&start.index.to_le_bytes());
    bytes[8..].copy_from_slice(&start.term.to_le_bytes());
    bytes
}

pub(super) fn decode_start(payload: &[u8]) -> Option<LogStart> {
    (payload.len() == 16).then(|| LogStart { index: u64_at(payload, 0), term: u64_at(payload, 8) })
}

fn hard_state_at(bytes: &[u8], at: usize) -> HardState {
    HardState {
        term: u64_at(bytes, at),
        vote: u64_at(bytes, at + 8),
        commit: u64_at(bytes, at + 16),
    }
}
