//! Where everything lies in the state: one ordered map, divided by the first byte of its keys.
//!
//! ```text
//! k keyspace                       → generation, id and spec of a keyspace       (keyspaces.rs)
//! c keyspace                       → how many keys it holds
//! g generation                     → nothing: records of a cleared generation    (keyspaces.rs)
//! r generation key                 → record                                      (records.rs)
//! e expires_ms generation key      → nothing: the record expires then            (expiry.rs)
//! E generation                     → how many records of it expire
//! l keyspace                       → what its change log still holds             (changes.rs)
//! u keyspace name                  → position of a consumer's cursor
//! h keyspace revision ordinal      → change
//! q client                         → what is remembered of a client              (requests.rs)
//! a client sequence                → the answer it got
//! s keyspace slot                  → where a global keyspace's slot lies             (stores.rs)
//! T bucket                         → the right to serve each of 128 slots           (tokens.rs, slot_rows.rs)
//! o number                         → a move that gives slots away                   (source.rs)
//! O client sequence                → what came of an operator's order of a move     (orders.rs)
//! B bucket                         → the copies of 128 slots that other sites own    (copies.rs)
//! S keyspace slot                  → where such a copy lies
//! i from number                    → a move that brings slots                       (destination.rs)
//! j from number keyspace slot      → where what it brought lies
//! x from number                    → how a move that brought slots ended
//! Y bucket                         → the owner of each of 128 slots, for other sites   (deployment.rs)
//! m from part                      → a mirror of another site                   (mirrors.rs)
//! n from keyspace slot             → where what it mirrors lies
//! d m                              → the sites that keep this one's mirror: now, and before    (mirroring.rs)
//! d d, d f, d p, d r, d u, d x     → the deployment; the ring's pointers; restored from a backup
//! R                                → what it promised and accepted of the registry  (registrar.rs)
//! W bucket                         → until when keys of it were written that are gone  (removals.rs)
//! Q [whose] slot client            → what is remembered of a client, about a slot   (requests.rs)
//! A slot client sequence           → revision ‖ the answer it got
//! A whose slot client sequence     → the same of copies and of what comes            (lineage.rs)
//! K part [place]                   → the region's order of causal keys, and writes on their way to it  (causal/rows.rs)
//! L [whose] slot keyspace tag      → the row of a lent group                       (loans.rs)
//! N [whose] slot                   → the count of loans of a slot's records
//! P slot keyspace tag              → this site's part in a group of another site's slot
//! F slot                           → the highest loan of its groups that is over here   (floors.rs)
//! X slot keyspace tag              → the part of another site, for a failover      (claims.rs)
//! f failover page                  → writes that a failover lost                    (lost_writes.rs)
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

use super::lineage::Whose;
use super::requests::ClientKey;
use model::{Ballot, Bytes, ClientId, Group, KeyspaceId, MoveId, SiteId, Slot};
use wire::entry::{put_varint, take_varint, varint_bytes};

/// The key of the head.
pub(crate) const HEAD: &[u8] = b"za";
/// The key of the members.
pub(crate) const MEMBERS: &[u8] = b"zm";

/// The key of the deployment.
pub(crate) const DEPLOYMENT: &[u8] = b"dd";
/// The key that marks that this site began the deployment.
pub(crate) const FOUNDER: &[u8] = b"df";
/// The key of the slots that stay here whatever their preferred owner.
pub(crate) const PINNED: &[u8] = b"dp";
/// The key that marks that this site is fenced: it serves no slot.
pub(crate) const FENCED: &[u8] = b"dx";
/// The key that marks that the slots of this site are not confirmed, and why.
pub(crate) const UNCONFIRMED: &[u8] = b"du";
/// The key of the ring's pointers.
pub(crate) const RING: &[u8] = b"dr";

/// The key of what this site promised and accepted of the registry.
pub(crate) const REGISTRAR: &[u8] = b"R";

/// The key of the site that keeps this one's mirror.
pub(crate) const OWN_MIRROR: &[u8] = b"dm";

/// Names the first byte of each table's keys. No two tables have one byte: the program does not
/// compile otherwise.
macro_rules! tables {
    ($($table:ident = $letter:literal;)*) => {
        $(pub(crate) const $table: u8 = $letter;)*
        const LETTERS: &[u8] = &[HEAD[0], DEPLOYMENT[0], REGISTRAR[0], $($letter),*];
    };
}

tables! {
    KEYSPACES = b'k';
    COUNTS = b'c';
    GARBAGE = b'g';
    RECORDS = b'r';
    EXPIRIES = b'e';
    LOGS = b'l';
    CURSORS = b'u';
    CHANGES = b'h';
    CLIENTS = b'q';
    ANSWERS = b'a';
    STORES = b's';
    TOKENS = b'T';
    SOURCE = b'o';
    ORDERS = b'O';
    ARRIVALS = b'i';
    STAGED = b'j';
    SETTLED = b'x';
    REGISTERED = b'Y';
    MIRRORS = b'm';
    MIRRORED = b'n';
    COPIES = b'B';
    COPIED = b'S';
    EXPIRING = b'E';
    REMOVALS = b'W';
    SLOT_CLIENTS = b'Q';
    SLOT_ANSWERS = b'A';
    CAUSAL = b'K';
    LENT = b'L';
    LOANS = b'N';
    PARTS = b'P';
    FLOORS = b'F';
    CLAIMS = b'X';
    LOST_WRITES = b'f';
}

const _: () = {
    let mut one = 0;
    while one < LETTERS.len() {
        let mut other = 0;
        while other < one {
            assert!(LETTERS[one] != LETTERS[other], "two tables have one letter");
            other += 1;
        }
        one += 1;
    }
};

/// The keys of a table from `.0` (inclusive) to `.1` (exclusive).
pub(crate) fn whole(table: u8) -> ([u8; 1], [u8; 1]) {
    ([table], [table + 1])
}

/// The key of a table's row about a keyspace.
pub(crate) fn of_keyspace(table: u8, keyspace: KeyspaceId) -> Vec<u8> {
    let mut key = Vec::with_capacity(5);
    key.push(table);
    key.extend_from_slice(&keyspace.0.to_be_bytes());
    key
}

/// The key of a bucket of removals.
pub(crate) fn removals(bucket: u16) -> Vec<u8> {
    let [high, low] = bucket.to_be_bytes();
    vec![REMOVALS, high, low]
}

/// The key of a garbage mark.
pub(crate) fn garbage(generation: u64) -> Vec<u8> {
    let mut key = vec![GARBAGE];
    put_varint(generation, &mut key);
    key
}

/// The key of a page of the writes that a failover lost; 0: of the list itself.
pub(crate) fn lost_writes(failover: Ballot, page: u32) -> Vec<u8> {
    let mut key = vec![LOST_WRITES];
    key.extend_from_slice(&failover.term.number.to_be_bytes());
    key.extend_from_slice(&failover.term.site.0.to_be_bytes());
    key.extend_from_slice(&failover.round.to_be_bytes());
    key.extend_from_slice(&failover.site.0.to_be_bytes());
    key.extend_from_slice(&page.to_be_bytes());
    key
}

/// Whether this is the key of such a list itself.
pub(crate) fn is_lost_list(key: &[u8]) -> bool {
    key.first() == Some(&LOST_WRITES) && key.ends_with(&[0; 4])
}

/// The key of how many records of a generation expire.
pub(crate) fn expiring(generation: u64) -> Vec<u8> {
    let mut key = vec![EXPIRING];
    put_varint(generation, &mut key);
    key
}

/// The key of a record.
pub(crate) fn record(generation: u64, key: &[u8]) -> Bytes {
    // Exactly as long as it gets: a longer one would cost a second allocation when it is shared.
    let mut out = Vec::with_capacity(1 + varint_bytes(generation) + key.len());
    out.push(RECORDS);
    put_varint(generation, &mut out);
    out.extend_from_slice(key);
    out.into()
}

/// Where a generation's records begin and where they end.
pub(crate) fn records(generation: u64) -> (Vec<u8>, Vec<u8>) {
    let from = record(generation, b"").to_vec();
    let mut until = from.clone();
    // The last byte of a varint is below 0x80.
    *until.last_mut().expect("a table byte comes first") += 1;
    (from, until)
}

/// How many bytes come before the user's key in the key of a record.
pub(crate) fn record_prefix_bytes(generation: u64) -> usize {
    1 + varint_bytes(generation)
}

/// The key of an expiry.
pub(crate) fn expiry(expires_ms: u64, generation: u64, key: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(9 + varint_bytes(generation) + key.len());
    out.push(EXPIRIES);
    out.extend_from_slice(&expires_ms.to_be_bytes());
    put_varint(generation, &mut out);
    out.extend_from_slice(key);
    out
}

/// Where the expiries at a moment begin.
pub(crate) fn first_expiry(expires_ms: u64) -> [u8; 9] {
    let mut out = [EXPIRIES; 9];
    out[1..].copy_from_slice(&expires_ms.to_be_bytes());
    out
}

/// What the key of an expiry contains: when, in which generation, and the user's key.
pub(crate) fn parse_expiry(key: &Bytes) -> Option<(u64, u64, Bytes)> {
    let expires_ms = u64::from_be_bytes(key.get(1..9)?.try_into().ok()?);
    let (generation, len) = take_varint(&key[9..])?;
    Some((expires_ms, generation, key.slice(9 + len..)))
}

/// The key of a cursor.
pub(crate) fn cursor(keyspace: KeyspaceId, name: &str) -> Vec<u8> {
    let mut key = of_keyspace(CURSORS, keyspace);
    key.extend_from_slice(name.as_bytes());
    key
}

/// The key of a change, or of the first one of a revision when `ordinal` is 0.
pub(crate) fn change(keyspace: KeyspaceId, revision: u64, ordinal: u32) -> Vec<u8> {
    let mut key = Vec::with_capacity(17);
    key.push(CHANGES);
    key.extend_from_slice(&keyspace.0.to_be_bytes());
    key.extend_from_slice(&revision.to_be_bytes());
    key.extend_from_slice(&ordinal.to_be_bytes());
    key
}

/// The revision in the key of a change.
pub(crate) fn parse_change(key: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(key.get(5..13)?.try_into().ok()?))
}

/// The key of a client.
pub(crate) fn client(client_key: ClientKey) -> Vec<u8> {
    let mut key = Vec::with_capacity(24);
    match client_key.slot {
        None => key.push(CLIENTS),
        Some(slot) => {
            key.push(SLOT_CLIENTS);
            put_whose(client_key.whose, &mut key);
            key.extend_from_slice(&slot.number().to_be_bytes());
        }
    }
    key.extend_from_slice(&client_key.client.0.to_be_bytes());
    key
}

/// The client in the key of one.
pub(crate) fn parse_client(key: &[u8]) -> Option<ClientKey> {
    let (whose, slot, rest) = parse_scope(key)?;
    let client = ClientId(u64::from_be_bytes(rest.get(..8)?.try_into().ok()?));
    Some(ClientKey { whose, slot, client })
}

/// The key of a remembered answer.
pub(crate) fn answer(client_key: ClientKey, sequence: u64) -> Vec<u8> {
    let mut key = client(client_key);
    key[0] = if client_key.slot.is_some() { SLOT_ANSWERS } else { ANSWERS };
    key.extend_from_slice(&sequence.to_be_bytes());
    key
}

/// The client and the sequence in the key of a remembered answer.
pub(crate) fn parse_answer(key: &[u8]) -> Option<(ClientKey, u64)> {
    let (_, _, rest) = parse_scope(key)?;
    let sequence = u64::from_be_bytes(rest.get(8..16)?.try_into().ok()?);
    Some((parse_client(key)?, sequence))
}

/// The records and the slot before a client, where they are, and what follows.
fn parse_scope(key: &[u8]) -> Option<(Whose, Option<Slot>, &[u8])> {
    let (table, rest) = key.split_first()?;
    match *table {
        SLOT_CLIENTS | SLOT_ANSWERS => {
            let (whose, rest) = parse_whose(rest)?;
            Some((whose, Some(parse_slot(rest)?), &rest[2..]))
        }
        _ => Some((Whose::Own, None, rest)),
    }
}

/// The first byte of a slot is below 64: these are none.
const OF_COPIES: u8 = 210;
const OF_MIRRORS: u8 = 211;
const OF_ARRIVALS: u8 = 212;
const OF_LOANS: u8 = 213;

fn put_whose(whose: Whose, key: &mut Vec<u8>) {
    match whose {
        Whose::Own => {}
        Whose::Copied => key.push(OF_COPIES),
        Whose::Mirrored(from) => key.extend_from_slice(&of_site(OF_MIRRORS, from)),
        Whose::Staged(id) => key.extend_from_slice(&of_move(OF_ARRIVALS, id)),
        Whose::Borrowed(generation) => key.extend_from_slice(&numbered(OF_LOANS, generation)),
    }
}

fn parse_whose(key: &[u8]) -> Option<(Whose, &[u8])> {
    Some(match *key.first()? {
        OF_COPIES => (Whose::Copied, &key[1..]),
        OF_MIRRORS => (Whose::Mirrored(parse_site(key)?), &key[5..]),
        OF_ARRIVALS => (Whose::Staged(parse_move(key)?), &key[13..]),
        OF_LOANS => (Whose::Borrowed(parse_number(key)?), &key[9..]),
        _ => (Whose::Own, key),
    })
}

/// The key of a lent group's row.
pub(crate) fn lent(whose: Whose, slot: Slot, group: &Group) -> Vec<u8> {
    let mut key = loans(whose, slot);
    key[0] = LENT;
    put_group(group, &mut key);
    key
}

/// What is in the key of one.
pub(crate) fn parse_lent(key: &Bytes) -> Option<(Whose, Slot, Group)> {
    let (whose, rest) = parse_whose(key.get(1..)?)?;
    Some((whose, parse_slot(rest)?, parse_group(key, rest.get(2..)?)?))
}

/// The key of the count of loans of some records of a slot.
pub(crate) fn loans(whose: Whose, slot: Slot) -> Vec<u8> {
    let mut key = vec![LOANS];
    put_whose(whose, &mut key);
    key.extend_from_slice(&slot.number().to_be_bytes());
    key
}

/// The records and the slot in the key of one.
pub(crate) fn parse_loans(key: &[u8]) -> Option<(Whose, Slot)> {
    let (whose, rest) = parse_whose(key.get(1..)?)?;
    Some((whose, parse_slot(rest)?))
}

/// The key of a part in a group.
pub(crate) fn part(slot: Slot, group: &Group) -> Vec<u8> {
    let mut key = of_slot(PARTS, slot);
    put_group(group, &mut key);
    key
}

/// The key of a claim to a group.
pub(crate) fn claim(slot: Slot, group: &Group) -> Vec<u8> {
    let mut key = part(slot, group);
    key[0] = CLAIMS;
    key
}

/// The slot and the group in the key of one, or of a claim.
pub(crate) fn parse_part(key: &Bytes) -> Option<(Slot, Group)> {
    Some((parse_slot(key.get(1..)?)?, parse_group(key, key.get(3..)?)?))
}

fn put_group(group: &Group, key: &mut Vec<u8>) {
    key.extend_from_slice(&group.keyspace.0.to_be_bytes());
    key.extend_from_slice(&group.tag);
}

fn parse_group(key: &Bytes, rest: &[u8]) -> Option<Group> {
    let keyspace = KeyspaceId(u32::from_be_bytes(rest.get(..4)?.try_into().ok()?));
    Some(Group { keyspace, tag: key.slice_ref(&rest[4..]) })
}

/// The slot that bytes begin with.
pub(crate) fn parse_slot(bytes: &[u8]) -> Option<Slot> {
    Slot::new(u16::from_be_bytes(bytes.get(..2)?.try_into().ok()?))
}

/// The key of what a table has of neighbouring slots.
pub(crate) fn of_bucket(table: u8, bucket: u8) -> Vec<u8> {
    vec![table, bucket]
}

/// The bucket in the key of one.
pub(crate) fn parse_bucket(key: &[u8]) -> Option<u8> {
    match *key {
        [_, bucket] if bucket < 128 => Some(bucket),
        _ => None,
    }
}

/// The key of what a table has of one slot.
pub(crate) fn of_slot(table: u8, slot: Slot) -> Vec<u8> {
    let [high, low] = slot.number().to_be_bytes();
    vec![table, high, low]
}

/// The key of a store.
pub(crate) fn store(keyspace: KeyspaceId, slot: Slot) -> Vec<u8> {
    let mut key = of_keyspace(STORES, keyspace);
    key.extend_from_slice(&slot.number().to_be_bytes());
    key
}

/// The keyspace and slot in the key of a store.
pub(crate) fn parse_store(key: &[u8]) -> Option<(KeyspaceId, Slot)> {
    Some((parse_keyspace(key)?, parse_slot(key.get(5..)?)?))
}

/// The key of a move that gives slots away.
pub(crate) fn outgoing(number: u64) -> Vec<u8> {
    numbered(SOURCE, number)
}

/// The key of an operator's order.
pub(crate) fn order(client: ClientId, sequence: u64) -> Vec<u8> {
    let mut key = numbered(ORDERS, client.0);
    key.extend_from_slice(&sequence.to_be_bytes());
    key
}

/// The client and the sequence in the key of one.
pub(crate) fn parse_order(key: &[u8]) -> Option<(ClientId, u64)> {
    let sequence = u64::from_be_bytes(key.get(9..17)?.try_into().ok()?);
    Some((ClientId(parse_number(key)?), sequence))
}

/// The key of where a copy's records of a keyspace lie.
pub(crate) fn copied(keyspace: KeyspaceId, slot: Slot) -> Vec<u8> {
    let mut key = of_keyspace(COPIED, keyspace);
    key.extend_from_slice(&slot.number().to_be_bytes());
    key
}

fn numbered(table: u8, number: u64) -> Vec<u8> {
    let mut key = vec![table];
    key.extend_from_slice(&number.to_be_bytes());
    key
}

/// The number in the key of one.
pub(crate) fn parse_number(key: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(key.get(1..9)?.try_into().ok()?))
}

/// The key of a table's row about a move that brings slots.
pub(crate) fn of_move(table: u8, id: MoveId) -> Vec<u8> {
    let mut key = Vec::with_capacity(19);
    key.push(table);
    key.extend_from_slice(&id.from.0.to_be_bytes());
    key.extend_from_slice(&id.number.to_be_bytes());
    key
}

/// The move in a key that has it behind the table's byte.
pub(crate) fn parse_move(key: &[u8]) -> Option<MoveId> {
    let from = SiteId(u32::from_be_bytes(key.get(1..5)?.try_into().ok()?));
    Some(MoveId { from, number: u64::from_be_bytes(key.get(5..13)?.try_into().ok()?) })
}

/// The key of where a move's records of a keyspace and slot lie.
pub(crate) fn staged(id: MoveId, keyspace: KeyspaceId, slot: Slot) -> Vec<u8> {
    let mut key = of_move(STAGED, id);
    key.extend_from_slice(&keyspace.0.to_be_bytes());
    key.extend_from_slice(&slot.number().to_be_bytes());
    key
}

/// The keyspace and slot in the key of one.
pub(crate) fn parse_staged(key: &[u8]) -> Option<(KeyspaceId, Slot)> {
    let keyspace = KeyspaceId(u32::from_be_bytes(key.get(13..17)?.try_into().ok()?));
    Some((keyspace, parse_slot(key.get(17..)?)?))
}

fn of_site(table: u8, site: SiteId) -> Vec<u8> {
    let mut key = Vec::with_capacity(11);
    key.push(table);
    key.extend_from_slice(&site.0.to_be_bytes());
    key
}

fn parse_site(key: &[u8]) -> Option<SiteId> {
    Some(SiteId(u32::from_be_bytes(key.get(1..5)?.try_into().ok()?)))
}

/// The key of a part of a mirror: 0 for its head, 1 for its whole slots.
pub(crate) fn mirror(from: SiteId, part: u8) -> Vec<u8> {
    let mut key = of_site(MIRRORS, from);
    key.push(part);
    key
}

/// The site and the part in the key of one.
pub(crate) fn parse_mirror(key: &[u8]) -> Option<(SiteId, u8)> {
    Some((parse_site(key)?, *key.get(5)?))
}

/// The key of where a mirror's records of a keyspace and slot lie.
pub(crate) fn mirrored(from: SiteId, keyspace: KeyspaceId, slot: Slot) -> Vec<u8> {
    let mut key = of_site(MIRRORED, from);
    key.extend_from_slice(&keyspace.0.to_be_bytes());
    key.extend_from_slice(&slot.number().to_be_bytes());
    key
}

/// The site, keyspace and slot in the key of one.
pub(crate) fn parse_mirrored(key: &[u8]) -> Option<(SiteId, (KeyspaceId, Slot))> {
    let keyspace = KeyspaceId(u32::from_be_bytes(key.get(5..9)?.try_into().ok()?));
    Some((parse_site(key)?, (keyspace, parse_slot(key.get(9..)?)?)))
}

/// The keyspace in a key that has it behind the table's byte.
pub(crate) fn parse_keyspace(key: &[u8]) -> Option<KeyspaceId> {
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
        let arrival = MoveId { from: SiteId(2), number: 77 };
        let whose = [Whose::Own, Whose::Copied, Whose::Mirrored(SiteId(2)), Whose::Staged(arrival)];
        let of_slots = whose.map(|whose| (whose, Slot::new(300)));
        for (whose, slot) in of_slots.into_iter().chain([(Whose::Own, None)]) {
            let client_key = ClientKey { whose, slot, client: ClientId(8) };
            assert_eq!(parse_client(&client(client_key)), Some(client_key));
            assert_eq!(parse_answer(&answer(client_key, 2)), Some((client_key, 2)));
        }
        // As it was before copies had answers.
        let client_key = ClientKey::own(Slot::new(300), ClientId(8));
        assert_eq!(client(client_key), [b'Q', 1, 44, 0, 0, 0, 0, 0, 0, 0, 8]);
        let slot = Slot::new(300).unwrap();
        assert_eq!(parse_store(&store(KeyspaceId(3), slot)), Some((KeyspaceId(3), slot)));
        let id = MoveId { from: SiteId(2), number: 77 };
        assert_eq!(parse_move(&of_move(ARRIVALS, id)), Some(id));
        assert_eq!(parse_move(&staged(id, KeyspaceId(3), slot)), Some(id));
        assert_eq!(parse_staged(&staged(id, KeyspaceId(3), slot)), Some((KeyspaceId(3), slot)));
        let at = (KeyspaceId(3), slot);
        assert_eq!(parse_mirrored(&mirrored(SiteId(2), at.0, at.1)), Some((SiteId(2), at)));
        assert_eq!(parse_mirror(&mirror(SiteId(2), 1)), Some((SiteId(2), 1)));
        assert_eq!(parse_expiry(&Bytes::from_static(b"e123")), None);
    }
}
