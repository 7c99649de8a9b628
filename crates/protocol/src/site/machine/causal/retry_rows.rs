//! Where numbered and retried writes lie in the state. The keys are listed in `rows`.

use super::super::tables::CAUSAL;
use super::MachineError;
use super::retries::{Number, Open, Retries};
use super::rows::{DAMAGED, FORMAT, number_of, numbered};
use model::{Bytes, ClientId, KeyspaceId, Position, Revision, SiteId};
use std::collections::BTreeMap;
use storage::state::Read;
use wire::entry::{put_varint, take_varint};

/// The key of where the known numbers begin.
pub(super) const KNOWN_AFTER: [u8; 2] = [CAUSAL, b'l'];
const NUMBERS: u8 = b'n';
const RETRIES: u8 = b'p';
pub(super) const STAGED_RETRIES: u8 = b'q';

/// The key of the number of a write at a place.
pub(super) fn of_number(at: Position) -> Vec<u8> {
    numbered(NUMBERS, at.0).to_vec()
}

/// The row of that.
pub(super) fn encode_number((client, sequence): Number) -> Vec<u8> {
    let mut row = Vec::new();
    put_varint(client.0, &mut row);
    put_varint(sequence, &mut row);
    row
}

fn decode_number(key: &[u8], row: &[u8]) -> Option<(Position, Number)> {
    let (client, len) = take_varint(row)?;
    let (sequence, _) = take_varint(&row[len..])?;
    Some((Position(number_of(key)?), (ClientId(client), sequence)))
}

/// The row of where the known numbers begin.
pub(super) fn encode_known_after(at: Position) -> Vec<u8> {
    let mut row = vec![FORMAT];
    put_varint(at.0, &mut row);
    row
}

fn decode_known_after(row: &[u8]) -> Option<Position> {
    let (&format, rest) = row.split_first()?;
    let (at, len) = take_varint(rest)?;
    (format == FORMAT && len == rest.len()).then_some(Position(at))
}

fn of_retry(part: u8, (client, sequence): Number) -> Vec<u8> {
    let mut key = numbered(part, client.0).to_vec();
    key.extend_from_slice(&sequence.to_be_bytes());
    key
}

/// The key of a retried write.
pub(super) fn of_open(number: Number) -> Vec<u8> {
    of_retry(RETRIES, number)
}

/// The key of what a resync has brought of one.
pub(super) fn of_staged_open(number: Number) -> Vec<u8> {
    of_retry(STAGED_RETRIES, number)
}

/// The row of both.
pub(super) fn encode_open(open: &Open) -> Vec<u8> {
    let Open { at, closed, tried, keyspace, keys, over } = open;
    let mut row = vec![FORMAT];
    let closed = closed.map_or(0, |at| at.0);
    for number in [at.0, closed, u64::from(tried.0), u64::from(keyspace.0), over.0] {
        put_varint(number, &mut row);
    }
    for key in keys {
        put_varint(key.len() as u64, &mut row);
        row.extend_from_slice(key);
    }
    row
}

fn decode_open(key: &[u8], row: &Bytes) -> Option<(Number, Open)> {
    let sequence = u64::from_be_bytes(key.get(10..)?.try_into().ok()?);
    let client = u64::from_be_bytes(key.get(2..10)?.try_into().ok()?);
    let (&format, mut rest) = row.split_first()?;
    let mut numbers = [0; 5];
    for number in &mut numbers {
        let (read, len) = take_varint(rest)?;
        *number = read;
        rest = &rest[len..];
    }
    let mut keys = Vec::new();
    while !rest.is_empty() {
        let (length, len) = take_varint(rest)?;
        let end = len.checked_add(usize::try_from(length).ok()?)?;
        keys.push(row.slice_ref(rest.get(len..end)?));
        rest = &rest[end..];
    }
    let [at, closed, tried, keyspace, over] = numbers;
    let small = |number: u64| u32::try_from(number).ok();
    let open = Open {
        at: Position(at),
        closed: (closed != 0).then_some(Position(closed)),
        tried: SiteId(small(tried)?),
        keyspace: KeyspaceId(small(keyspace)?),
        keys,
        over: Revision(over),
    };
    (format == FORMAT).then_some(((ClientId(client), sequence), open))
}

/// The retried writes of this part.
pub(super) fn load_open(
    read: &impl Read,
    part: u8,
) -> Result<BTreeMap<Number, Open>, MachineError> {
    let (mut all, mut is_damaged) = (BTreeMap::new(), false);
    read.scan(&[CAUSAL, part], Some(&[CAUSAL, part + 1]), &mut |key, row| {
        match decode_open(&key, &row) {
            Some((number, open)) => drop(all.insert(number, open)),
            None => is_damaged = true,
        }
        !is_damaged
    })?;
    if is_damaged { Err(DAMAGED) } else { Ok(all) }
}

/// What is known of numbered writes, without own ones that have no place.
pub(super) fn load_retries(read: &impl Read) -> Result<Retries, MachineError> {
    let mut retries = Retries { open: load_open(read, RETRIES)?, ..Retries::default() };
    if let Some(row) = read.get(&KNOWN_AFTER)? {
        retries.known_after = decode_known_after(&row).ok_or(DAMAGED)?;
    }
    let mut is_damaged = false;
    read.scan(&[CAUSAL, NUMBERS], Some(&[CAUSAL, NUMBERS + 1]), &mut |key, row| {
        match decode_number(&key, &row) {
            Some((at, number)) => {
                retries.placed.insert(number, at);
                retries.numbers.insert(at, number);
            }
            None => is_damaged = true,
        }
        !is_damaged
    })?;
    if is_damaged { Err(DAMAGED) } else { Ok(retries) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rows_stay_as_they_are() {
        let number = (ClientId(5), 300);
        let (at, row) = (of_number(Position(7)), encode_number(number));
        assert_eq!((&at[..], &row[..]), (&b"Kn\0\0\0\0\0\0\0\x07"[..], &b"\x05\xac\x02"[..]));
        assert_eq!(decode_number(&at, &row), Some((Position(7), number)));
        assert_eq!(encode_known_after(Position(300)), b"\x01\xac\x02");
        assert_eq!(decode_known_after(b"\x01\xac\x02"), Some(Position(300)));
        assert_eq!(decode_known_after(b"\x02\xac\x02"), None);
        let open = Open {
            at: Position(300),
            closed: Some(Position(301)),
            tried: SiteId(2),
            keyspace: KeyspaceId(1),
            keys: vec!["k".into(), "".into()],
            over: Revision(9),
        };
        let (at, row) = (of_open(number), Bytes::from(encode_open(&open)));
        assert_eq!(at, b"Kp\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\x01\x2c");
        assert_eq!(row, &b"\x01\xac\x02\xad\x02\x02\x01\x09\x01k\x00"[..]);
        assert_eq!(decode_open(&at, &row), Some((number, open)));
        assert_eq!(decode_open(&at, &row.slice(..row.len() - 2)), None, "it is cut");
    }
}
