//! Where it lies in the state.
//!
//! ```text
//! K h           → format 1 ‖ region ‖ applied ‖ own_ordered ‖ last own revision
//!                 ‖ order's last position ‖ trimmed up to ‖ bytes of the order (varints)
//! K u revision  → an own write without a position (wire::entry)
//! K o position  → site (varint) ‖ its write (wire::entry)            at the root
//! K s site      → its last revision with a position ‖ that (varints)  at the root
//! ```
//!
//! Revisions, positions and sites in keys are big-endian, so that byte order is their order.

use super::super::tables::CAUSAL;
use super::{Causal, MachineError, Pending};
use model::{Bytes, CausalWrite, Position, RegionId, Revision, SiteId};
use storage::state::Read;
use wire::entry::{decode_causal_write, encode_causal_write, put_varint, take_varint};

const FORMAT: u8 = 1;
pub(super) const DAMAGED: MachineError = MachineError::Damaged { table: CAUSAL as char };

/// The key of the head.
pub(super) const HEAD: [u8; 2] = [CAUSAL, b'h'];
const UNORDERED: u8 = b'u';
const ORDER: u8 = b'o';
const SITES: u8 = b's';

/// What is kept in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) region: RegionId,
    pub(super) applied: Position,
    pub(super) own_ordered: Revision,
    /// The revision of the last own write.
    pub(super) last: Revision,
    pub(super) order_last: Position,
    pub(super) trimmed_upto: Position,
    pub(super) order_bytes: u64,
}

impl Head {
    pub(super) fn encode(&self) -> Vec<u8> {
        let Head { region, applied, own_ordered, last, order_last, trimmed_upto, order_bytes } =
            *self;
        let mut row = vec![FORMAT];
        for number in [
            u64::from(region.0),
            applied.0,
            own_ordered.0,
            last.0,
            order_last.0,
            trimmed_upto.0,
            order_bytes,
        ] {
            put_varint(number, &mut row);
        }
        row
    }

    fn decode(row: &[u8]) -> Option<Head> {
        let (&format, mut rest) = row.split_first()?;
        let mut numbers = [0; 7];
        for number in &mut numbers {
            let (read, len) = take_varint(rest)?;
            *number = read;
            rest = &rest[len..];
        }
        let [region, applied, own_ordered, last, order_last, trimmed_upto, order_bytes] = numbers;
        (format == FORMAT && rest.is_empty()).then_some(Head {
            region: RegionId(u16::try_from(region).ok()?),
            applied: Position(applied),
            own_ordered: Revision(own_ordered),
            last: Revision(last),
            order_last: Position(order_last),
            trimmed_upto: Position(trimmed_upto),
            order_bytes,
        })
    }
}

fn numbered(part: u8, number: u64) -> [u8; 10] {
    let mut key = [CAUSAL, part, 0, 0, 0, 0, 0, 0, 0, 0];
    key[2..].copy_from_slice(&number.to_be_bytes());
    key
}

/// The key of an own write without a position.
pub(super) fn of_unordered(revision: Revision) -> Vec<u8> {
    numbered(UNORDERED, revision.0).to_vec()
}

/// The key of an entry of the order.
pub(super) fn of_position(position: Position) -> Vec<u8> {
    numbered(ORDER, position.0).to_vec()
}

/// The key of what the root has ordered of a site.
pub(super) fn of_site(site: SiteId) -> Vec<u8> {
    let mut key = vec![CAUSAL, SITES];
    key.extend_from_slice(&site.0.to_be_bytes());
    key
}

/// The row of an entry of the order.
pub(super) fn encode_ordered(site: SiteId, write: &CausalWrite) -> Vec<u8> {
    let mut row = Vec::new();
    put_varint(u64::from(site.0), &mut row);
    row.extend_from_slice(&encode_causal_write(write));
    row
}

fn decode_ordered(key: &[u8], row: Bytes) -> Option<(Position, SiteId, CausalWrite)> {
    let (site, len) = take_varint(&row)?;
    let write = decode_causal_write(row.slice(len..)).ok()?;
    Some((Position(number_of(key)?), SiteId(u32::try_from(site).ok()?), write))
}

/// The row of what the root has ordered of a site.
pub(super) fn encode_site(revision: Revision, position: Position) -> Vec<u8> {
    let mut row = Vec::new();
    put_varint(revision.0, &mut row);
    put_varint(position.0, &mut row);
    row
}

fn decode_site(key: &[u8], row: &[u8]) -> Option<(SiteId, (Revision, Position))> {
    let site = SiteId(u32::from_be_bytes(key.get(2..)?.try_into().ok()?));
    let (revision, len) = take_varint(row)?;
    let (position, _) = take_varint(&row[len..])?;
    Some((site, (Revision(revision), Position(position))))
}

fn number_of(key: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(key.get(2..)?.try_into().ok()?))
}

/// The rows of a part after a number, as many as fit so many bytes, and the first one whatever it takes.
fn page(
    read: &impl Read,
    part: u8,
    after: u64,
    bytes_max: usize,
) -> Result<Vec<(Bytes, Bytes)>, MachineError> {
    let Some(first) = after.checked_add(1) else { return Ok(Vec::new()) };
    let (mut rows, mut bytes) = (Vec::new(), 0_usize);
    read.scan(&numbered(part, first), Some(&[CAUSAL, part + 1]), &mut |key, row| {
        bytes = bytes.saturating_add(row.len());
        let fits = rows.is_empty() || bytes <= bytes_max;
        if fits {
            rows.push((key, row));
        }
        fits
    })?;
    Ok(rows)
}

/// Own writes without a position after a revision.
pub(super) fn unordered(
    read: &impl Read,
    after: Revision,
    bytes_max: usize,
) -> Result<Vec<CausalWrite>, MachineError> {
    let rows = page(read, UNORDERED, after.0, bytes_max)?.into_iter();
    rows.map(|(_, row)| decode_causal_write(row).map_err(|_| DAMAGED)).collect()
}

/// The first own writes without a position, with the bytes of their rows.
pub(super) fn first_unordered(
    read: &impl Read,
    max: usize,
) -> Result<Vec<(CausalWrite, usize)>, MachineError> {
    let mut rows = Vec::new();
    if max > 0 {
        read.scan(&numbered(UNORDERED, 0), Some(&[CAUSAL, UNORDERED + 1]), &mut |_, row| {
            rows.push(row);
            rows.len() < max
        })?;
    }
    let decode = |row: Bytes| {
        let bytes = row.len();
        Ok((decode_causal_write(row).map_err(|_| DAMAGED)?, bytes))
    };
    rows.into_iter().map(decode).collect()
}

/// The order after a position.
pub(super) fn ordered(
    read: &impl Read,
    after: Position,
    bytes_max: usize,
) -> Result<Vec<(Position, SiteId, CausalWrite)>, MachineError> {
    let rows = page(read, ORDER, after.0, bytes_max)?.into_iter();
    rows.map(|(key, row)| decode_ordered(&key, row).ok_or(DAMAGED)).collect()
}

/// The keys of the entries of the order up to a position, the first `max` of them, with the bytes of their rows.
pub(super) fn ordered_upto(
    read: &impl Read,
    upto: Position,
    max: usize,
) -> Result<Vec<(Position, Bytes, usize)>, MachineError> {
    let mut found = Vec::new();
    let until = numbered(ORDER, upto.0.saturating_add(1));
    read.scan(&numbered(ORDER, 0), Some(&until), &mut |key, row| {
        let position = Position(number_of(&key).unwrap_or(0));
        found.push((position, key, row.len()));
        found.len() < max
    })?;
    Ok(found)
}

/// The keys of all rows but the head.
pub(super) fn all(read: &impl Read) -> Result<Vec<Bytes>, MachineError> {
    let mut keys = Vec::new();
    read.scan(&[CAUSAL, b'i'], Some(&[CAUSAL + 1]), &mut |key, _| {
        keys.push(key);
        true
    })?;
    Ok(keys)
}

/// What a state has in numbers.
pub(super) fn head(read: &impl Read) -> Result<Head, MachineError> {
    match read.get(&HEAD)? {
        Some(row) => Head::decode(&row).ok_or(DAMAGED),
        None => Ok(Head::default()),
    }
}

/// What a state has of it.
pub(super) fn load(read: &impl Read) -> Result<Causal, MachineError> {
    let mut causal = Causal { head: head(read)?, ..Causal::default() };
    let mut is_damaged = false;
    read.scan(&numbered(UNORDERED, 0), Some(&[CAUSAL, UNORDERED + 1]), &mut |_, row| {
        causal.unordered_bytes += row.len() as u64;
        causal.unordered += 1;
        match decode_causal_write(row) {
            Ok(write) => Pending::note(&mut causal.pending, &write),
            Err(_) => is_damaged = true,
        }
        !is_damaged
    })?;
    read.scan(&[CAUSAL, SITES], Some(&[CAUSAL, SITES + 1]), &mut |key, row| {
        match decode_site(&key, &row) {
            Some((site, ordered)) => drop(causal.ordered.insert(site, ordered)),
            None => is_damaged = true,
        }
        !is_damaged
    })?;
    if is_damaged { Err(DAMAGED) } else { Ok(causal) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Effect, KeyspaceId};

    #[test]
    fn format_1_stays_as_it_is() {
        let head = Head {
            region: RegionId(1),
            applied: Position(300),
            own_ordered: Revision(2),
            last: Revision(3),
            order_last: Position::new(1, 5),
            trimmed_upto: Position(4),
            order_bytes: 6,
        };
        let row = head.encode();
        assert_eq!(row, b"\x01\x01\xac\x02\x02\x03\x85\x80\x80\x80\x80\x80@\x04\x06");
        assert_eq!(Head::decode(&row), Some(head));
        assert_eq!(Head::decode(b"\x02\x01\x01\x01\x01\x01\x01\x01"), None);

        assert_eq!(of_unordered(Revision(258)), b"Ku\0\0\0\0\0\0\x01\x02");
        assert_eq!(of_position(Position::new(1, 2)), b"Ko\0\x01\0\0\0\0\0\x02");
        assert_eq!(of_site(SiteId(3)), b"Ks\0\0\0\x03");
        assert_eq!(encode_site(Revision(300), Position(2)), b"\xac\x02\x02");
        let write = CausalWrite {
            revision: Revision(9),
            seen: Position(8),
            keyspace: KeyspaceId(7),
            effects: vec![Effect::Delete { key: "k".into() }],
        };
        let row = encode_ordered(SiteId(2), &write);
        assert_eq!(row, b"\x02\x01\x09\x08\x07\x01\x02\x01k");
        let position = Position(5);
        let decoded = decode_ordered(&of_position(position), row.into());
        assert_eq!(decoded, Some((position, SiteId(2), write)));
    }
}
