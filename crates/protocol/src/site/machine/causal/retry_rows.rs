//! Where numbered and retried writes lie in the state. The keys are listed in `rows`.

use super::super::tables::CAUSAL;
use super::MachineError;
use super::retries::{Number, Open, Placed, Retries};
use super::rows::{DAMAGED, number_of, numbered};
use super::settled;
use model::{ClientId, Position};
use std::collections::BTreeMap;
use storage::state::Read;
use wire::row;

/// The key of where the known numbers begin.
pub(super) const KNOWN_AFTER: [u8; 2] = [CAUSAL, b'l'];
const NUMBERS: u8 = b'n';
const RETRIES: u8 = b'p';
pub(super) const STAGED_RETRIES: u8 = b'q';

/// The key of the number of a write at a place.
pub(super) fn of_number(at: Position) -> Vec<u8> {
    numbered(NUMBERS, at.0).to_vec()
}

fn number_at(key: &[u8]) -> Option<Position> {
    Some(Position(number_of(key)?))
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

row!(Open { at, closed, tried, keyspace, keys, over });

fn open_of(key: &[u8]) -> Option<Number> {
    let sequence = u64::from_be_bytes(key.get(10..)?.try_into().ok()?);
    let client = u64::from_be_bytes(key.get(2..10)?.try_into().ok()?);
    Some((ClientId(client), sequence))
}

/// The retried writes of this part.
pub(super) fn load_open(
    read: &impl Read,
    part: u8,
) -> Result<BTreeMap<Number, Open>, MachineError> {
    let (mut all, mut is_damaged) = (BTreeMap::new(), false);
    read.scan(&[CAUSAL, part], Some(&[CAUSAL, part + 1]), &mut |key, row| {
        match open_of(&key).zip(row::decode(&row)) {
            Some((number, open)) => drop(all.insert(number, open)),
            None => is_damaged = true,
        }
        !is_damaged
    })?;
    if is_damaged { Err(DAMAGED) } else { Ok(all) }
}

/// What is known of numbered writes, without own ones that have no place.
pub(super) fn load_retries(read: &impl Read) -> Result<Retries, MachineError> {
    let (open, settled) = (load_open(read, RETRIES)?, settled::load(read)?);
    let mut retries = Retries { open, settled, ..Retries::default() };
    if let Some(row) = read.get(&KNOWN_AFTER)? {
        retries.known_after = row::decode(&row).ok_or(DAMAGED)?;
    }
    let mut is_damaged = false;
    read.scan(&[CAUSAL, NUMBERS], Some(&[CAUSAL, NUMBERS + 1]), &mut |key, row| {
        match number_at(&key).zip(row::decode(&row)) {
            Some((at, (number, version))) => {
                retries.placed.insert(number, Placed { at, version });
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
    use model::{KeyspaceId, Revision, SiteId};

    #[test]
    fn the_rows_stay_as_they_are() {
        let number = (ClientId(5), 300);
        let (at, row) = (of_number(Position(7)), row::encode(&(number, Revision(9))));
        assert_eq!(at, b"Kn\0\0\0\0\0\0\0\x07");
        assert_eq!(row, b"\x01\x05\xac\x02\x09");
        assert_eq!(number_at(&at), Some(Position(7)));
        assert_eq!(row::encode(&Position(300)), b"\x01\xac\x02");
        let open = Open {
            at: Position(300),
            closed: Some(Position(301)),
            tried: SiteId(2),
            keyspace: KeyspaceId(1),
            keys: vec!["k".into(), "".into()],
            over: Revision(9),
        };
        let (at, row) = (of_open(number), row::encode(&open));
        assert_eq!(at, b"Kp\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\x01\x2c");
        assert_eq!(row, b"\x01\xac\x02\x01\xad\x02\x02\x01\x02\x01k\x00\x09");
        assert_eq!(open_of(&at), Some(number));
    }
}
