//! The bytes of a snapshot file, format 1. All numbers are little-endian.
//!
//! ```text
//! head                               block                                footer
//!   0  8  "PTLNSNP\0"                  0  4  rows, at least 1               0  4  zero
//!   8  4  format version               4  4  length of the payload          4  4  20
//!  12  4  length of the members        8  4  CRC-32 of the payload          8  4  CRC-32 of the payload
//!  16  8  index                       12  4  CRC-32 of the block's offset  12  4  as in a block
//!  24  8  term                               and bytes 0..12               16  8  rows in all
//!  32  …  members                     16  …  payload: for each row the     24  8  length of all before
//!   …  4  CRC-32 of all before               lengths of key (4) and value  32  4  CRC-32 of all before
//!                                            (4), key and value
//! ```
//!
//! One head, any number of blocks of about [`BLOCK_BYTES`], one footer, and nothing behind it. Keys
//! ascend through the whole file. The first 12 bytes stay as they are in every version.

use super::SnapshotHead;
use crate::little_endian::{u32_at, u64_at};
use model::Bytes;

/// The newest supported format.
pub(super) const FORMAT: u32 = 1;
pub(super) const HEAD_FIXED_BYTES: usize = 32;
pub(super) const BLOCK_HEADER_BYTES: usize = 16;
pub(super) const FOOTER_PAYLOAD_BYTES: u32 = 20;
/// A block ends with the row that exceeds this.
pub(super) const BLOCK_BYTES: usize = 64 << 10;
/// A larger length is invalid.
pub(super) const PAYLOAD_BYTES_MAX: u32 = 1 << 30;
pub(super) const MEMBERS_BYTES_MAX: usize = 1 << 20;

const MAGIC: [u8; 8] = *b"PTLNSNP\0";

pub(super) fn encode_head(head: &SnapshotHead) -> Vec<u8> {
    assert!(head.members.len() <= MEMBERS_BYTES_MAX, "seven members do not take a megabyte");
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&FORMAT.to_le_bytes());
    bytes.extend_from_slice(&(head.members.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&head.index.to_le_bytes());
    bytes.extend_from_slice(&head.term.to_le_bytes());
    bytes.extend_from_slice(&head.members);
    bytes.extend_from_slice(&crc32fast::hash(&bytes).to_le_bytes());
    bytes
}

/// The content of the first bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum HeadStart {
    /// The length of the head.
    Bytes(usize),
    Version(u32),
    Damaged,
}

/// Looks at the first [`HEAD_FIXED_BYTES`].
pub(super) fn head_start(bytes: &[u8]) -> HeadStart {
    if bytes.len() < HEAD_FIXED_BYTES || bytes[..8] != MAGIC {
        return HeadStart::Damaged;
    }
    let members = u32_at(bytes, 12) as usize;
    match u32_at(bytes, 8) {
        FORMAT if members <= MEMBERS_BYTES_MAX => HeadStart::Bytes(HEAD_FIXED_BYTES + members + 4),
        FORMAT => HeadStart::Damaged,
        version => HeadStart::Version(version),
    }
}

/// Reads a head of the length that [`head_start`] gave.
pub(super) fn decode_head(bytes: &[u8]) -> Option<SnapshotHead> {
    let (covered, crc) = bytes.split_at_checked(bytes.len().checked_sub(4)?)?;
    (u32_at(crc, 0) == crc32fast::hash(covered)).then(|| SnapshotHead {
        index: u64_at(covered, 16),
        term: u64_at(covered, 24),
        members: Bytes::copy_from_slice(&covered[HEAD_FIXED_BYTES..]),
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockHeader {
    /// 0: this is the footer.
    pub(super) rows: u32,
    pub(super) payload_bytes: u32,
    pub(super) payload_crc: u32,
}

impl BlockHeader {
    pub(super) fn of(rows: u32, payload: &[u8]) -> Self {
        Self { rows, payload_bytes: payload.len() as u32, payload_crc: crc32fast::hash(payload) }
    }

    pub(super) fn encode(&self, offset: u64) -> [u8; BLOCK_HEADER_BYTES] {
        let mut bytes = [0; BLOCK_HEADER_BYTES];
        bytes[..4].copy_from_slice(&self.rows.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.payload_bytes.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.payload_crc.to_le_bytes());
        let crc = block_crc(&bytes, offset);
        bytes[12..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8], offset: u64) -> Option<Self> {
        let bytes = bytes.get(..BLOCK_HEADER_BYTES)?;
        let header = Self {
            rows: u32_at(bytes, 0),
            payload_bytes: u32_at(bytes, 4),
            payload_crc: u32_at(bytes, 8),
        };
        (u32_at(bytes, 12) == block_crc(bytes, offset)
            && header.payload_bytes <= PAYLOAD_BYTES_MAX
            && (header.rows > 0 || header.payload_bytes == FOOTER_PAYLOAD_BYTES))
            .then_some(header)
    }
}

fn block_crc(header: &[u8], offset: u64) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&offset.to_le_bytes());
    hasher.update(&header[..12]);
    hasher.finalize()
}

pub(super) fn encode_row(key: &[u8], value: &[u8], payload: &mut Vec<u8>) {
    for len in [key.len(), value.len()] {
        let len = u32::try_from(len).expect("keys and values have less than 4 GiB");
        payload.extend_from_slice(&len.to_le_bytes());
    }
    payload.extend_from_slice(key);
    payload.extend_from_slice(value);
}

/// The rows of a block, sharing its memory. `None`: the payload is invalid, though its checksum
/// fits.
pub(super) fn decode_rows(rows: u32, payload: &Bytes) -> Option<Vec<(Bytes, Bytes)>> {
    let mut found = Vec::new();
    let mut at = 0;
    for _ in 0..rows {
        let lengths = payload.get(at..at + 8)?;
        let key = at + 8..at + 8 + u32_at(lengths, 0) as usize;
        let value = key.end..key.end + u32_at(lengths, 4) as usize;
        if value.end > payload.len() {
            return None;
        }
        at = value.end;
        found.push((payload.slice(key), payload.slice(value)));
    }
    (at == payload.len()).then_some(found)
}

/// Totals that the whole file must match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Footer {
    pub(super) rows: u64,
    pub(super) bytes_before: u64,
    pub(super) crc_before: u32,
}

impl Footer {
    pub(super) fn encode(&self) -> [u8; FOOTER_PAYLOAD_BYTES as usize] {
        let mut bytes = [0; FOOTER_PAYLOAD_BYTES as usize];
        bytes[..8].copy_from_slice(&self.rows.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.bytes_before.to_le_bytes());
        bytes[16..].copy_from_slice(&self.crc_before.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        (bytes.len() == FOOTER_PAYLOAD_BYTES as usize).then(|| Self {
            rows: u64_at(bytes, 0),
            bytes_before: u64_at(bytes, 8),
            crc_before: u32_at(bytes, 16),
        })
    }
}
