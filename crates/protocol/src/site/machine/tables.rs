//! Where everything lies in the state: one ordered map, divided by the first byte of its keys.
//!
//! ```text
//! k keyspace                       → generation, id and spec of a keyspace       (keyspaces.rs)
//! c keyspace                       → how many keys it holds
//! g generation                     → nothing: records of a cleared generation    (garbage.rs)
//! r generation key                 → record                                      (records.rs)
//! e expires_ms generation key      → nothing: the record expires then            (expiry.rs)
//! l keyspace                       → what its change log still holds             (changes.rs)
//! u keyspace name                  → position of a consumer's cursor
//! h keyspace revision ordinal      → change
//! q client                         → what is known of a client                   (requests.rs)
//! a client sequence                → the answer it got
//! z a                              → head: how far the state has come            (head.rs)
//! z m                              → the site's members, opaque here
//! ```
//!
//! The head comes last in byte order, which is the order in which a snapshot is loaded: a state
//! whose loading was cut short has no head, and counts as one that nothing was applied to.
//!
//! Keyspaces, clients, revisions and moments are big-endian and of fixed length, so that byte order
//! is numeric order. A *generation* is a varint: varints are prefix-free, so that each generation's
//! records are one range, and a young site's keys are two bytes longer than its users' keys.

use model::{Bytes, ClientId, KeyspaceId};
use wire::entry::{put_varint, take_varint, varint_bytes};

/// The key of the head.
pub(super) const HEAD: &[u8] = b"za";
/// The key of the members.
pub(super) const MEMBERS: &[u8] = b"zm";

/// The first bytes of the tables' keys.
pub(super) const KEYSPACES: u8 = b'k';
pub(super) const COUNTS: u8 = b'c';
pub(super) const GARBAGE: u8 = b'g';
pub(super) const RECORDS: u8 = b'r';
pub(super) const EXPIRIES: u8 = b'e';
pub(super) const LOGS: u8 = b'l';
pub(super) const CURSORS: u8 = b'u';
pub(super) const CHANGES: u8 = b'h';
pub(super) const CLIENTS: u8 = b'q';
pub(super) const ANSWERS: u8 = b'a';

/// The keys of a table from `.0` (inclusive) to `.1` (exclusive).
pub(super) fn whole(table: u8) -> ([u8; 1], [u8; 1]) {
    ([table], [table + 1])
}

/// The key of what a table says about a keyspace.
pub(super) fn of_keyspace(table: u8, keyspace: KeyspaceId) -> Vec<u8> {
    let mut key = Vec::with_capacity(5);
    key.push(table);
    key.extend_from_slice(&keyspace.0.to_be_bytes());
    key
}

/// The key of a garbage mark.
pub(super) fn garbage(generation: u64) -> Vec<u8> {
    let mut key = vec![GARBAGE];
    put_varint(generation, &mut key);
    key
}

/// The key of a record.
pub(super) fn record(generation: u64, key: &[u8]) -> Bytes {
    // Exactly as long as it gets: a longer one would cost a second allocation when it is shared.
    let mut out = Vec::with_capacity(1 + varint_bytes(generation) + key.len());
    out.push(RECORDS);
    put_varint(generation, &mut out);
    out.extend_from_slice(key);
    out.into()
}

/// Where a generation's records begin and where they end.
pub(super) fn records(generation: u64) -> (Vec<u8>, Vec<u8>) {
    let from = record(generation, b"").to_vec();
    let mut until = from.clone();
    // The last byte of a varint is below 0x80.
    *until.last_mut().expect("a table byte comes first") += 1;
    (from, until)
}

/// How many bytes come before the user's key in the key of a record.
pub(super) fn record_prefix_bytes(generation: u64) -> usize {
    1 + varint_bytes(generation)
}

/// The key of an expiry.
pub(super) fn expiry(expires_ms: u64, generation: u64, key: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(9 + varint_bytes(generation) + key.len());
    out.push(EXPIRIES);
    out.extend_from_slice(&expires_ms.to_be_bytes());
    put_varint(generation, &mut out);
    out.extend_from_slice(key);
    out
}

/// What the key of an expiry says: when, in which generation, and the user's key.
pub(super) fn parse_expiry(key: &Bytes) -> Option<(u64, u64, Bytes)> {
    let expires_ms = u64::from_be_bytes(key.get(1..9)?.try_into().ok()?);
    let (generation, len) = take_varint(&key[9..])?;
    Some((expires_ms, generation, key.slice(9 + len..)))
}

/// The key of a cursor.
pub(super) fn cursor(keyspace: KeyspaceId, name: &str) -> Vec<u8> {
    let mut key = of_keyspace(CURSORS, keyspace);
    key.extend_from_slice(name.as_bytes());
    key
}

/// The key of a change, or of the first one of a revision when `ordinal` is 0.
pub(super) fn change(keyspace: KeyspaceId, revision: u64, ordinal: u32) -> Vec<u8> {
    let mut key = Vec::with_capacity(17);
    key.push(CHANGES);
    key.extend_from_slice(&keyspace.0.to_be_bytes());
    key.extend_from_slice(&revision.to_be_bytes());
    key.extend_from_slice(&ordinal.to_be_bytes());
    key
}

/// The revision in the key of a change.
pub(super) fn parse_change(key: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(key.get(5..13)?.try_into().ok()?))
}

/// The key of a client.
pub(super) fn client(client: ClientId) -> Vec<u8> {
    let mut key = Vec::with_capacity(9);
    key.push(CLIENTS);
    key.extend_from_slice(&client.0.to_be_bytes());
    key
}

/// The client in the key of one.
pub(super) fn parse_client(key: &[u8]) -> Option<ClientId> {
    Some(ClientId(u64::from_be_bytes(key.get(1..9)?.try_into().ok()?)))
}

/// The key of a remembered answer.
pub(super) fn answer(client: ClientId, sequence: u64) -> Vec<u8> {
    let mut key = Vec::with_capacity(17);
    key.push(ANSWERS);
    key.extend_from_slice(&client.0.to_be_bytes());
    key.extend_from_slice(&sequence.to_be_bytes());
    key
}

/// The client and the sequence in the key of a remembered answer.
pub(super) fn parse_answer(key: &[u8]) -> Option<(ClientId, u64)> {
    let client = u64::from_be_bytes(key.get(1..9)?.try_into().ok()?);
    let sequence = u64::from_be_bytes(key.get(9..17)?.try_into().ok()?);
    Some((ClientId(client), sequence))
}

/// The keyspace in a key that has it behind the table's byte.
pub(super) fn parse_keyspace(key: &[u8]) -> Option<KeyspaceId> {
    Some(KeyspaceId(u32::from_be_bytes(key.get(1..5)?.try_into().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::limits;

    #[test]
    fn generations_are_ranges_that_do_not_overlap() {
        let generations = [0, 1, 127, 128, 129, 16_383, 16_384, u64::from(u32::MAX), u64::MAX];
        for a in generations {
            let (from, until) = records(a);
            assert_eq!(from.len(), record_prefix_bytes(a));
            for b in generations {
                for key in [&b""[..], b"\0", &[0xff; 40]] {
                    let key = record(b, key);
                    let inside = key[..] >= from[..] && key[..] < until[..];
                    assert_eq!(inside, a == b, "{a} {b} {key:?}");
                }
            }
        }
    }

    #[test]
    fn no_key_outgrows_the_engine() {
        let key = vec![0; limits::KEY_BYTES_MAX];
        assert!(expiry(u64::MAX, u64::MAX, &key).len() <= u16::MAX as usize);
        assert!(record(u64::MAX, &key).len() <= u16::MAX as usize);
    }

    #[test]
    fn keys_say_what_they_were_made_of() {
        let expiry = Bytes::from(expiry(7, 300, b"car"));
        assert_eq!(parse_expiry(&expiry), Some((7, 300, Bytes::from("car"))));
        assert_eq!(parse_change(&change(KeyspaceId(3), 9, 1)), Some(9));
        assert_eq!(parse_keyspace(&change(KeyspaceId(3), 9, 1)), Some(KeyspaceId(3)));
        assert_eq!(parse_client(&client(ClientId(8))), Some(ClientId(8)));
        assert_eq!(parse_answer(&answer(ClientId(8), 2)), Some((ClientId(8), 2)));
        assert_eq!(parse_expiry(&Bytes::from_static(b"e123")), None);
    }
}
