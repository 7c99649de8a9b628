//! Where it lies in the state.
//!
//! ```text
//! K h           → row of the [`Head`]   (wire::row)
//! K u revision  → an own write without a position (wire::entry)
//! K o position  → site (varint) ‖ its write (wire::entry)            at the root
//! K e moment generation key → nothing: a key expires then, if the order contains that (`expires`)
//! K s site      → row of its last revision with a position, and that
//! K g keyspace key → bytes that a key counts which is held on demand (varint)
//! K r           → row of the [`Resync`] under way
//! K m           → row of the [`Root`]
//! K y           → row of what a root and its standby commit to ([`Committed`])
//! K v           → row of the last own write whose position a resync brings
//! K w site       → as K s: what a resync has brought of that
//! K z           → row of what a restored site lacks ([`Restored`])
//! K n position  → row of the client and sequence of a numbered write
//! K k revision  → row of the same of an own one whose place is not known (`settled`)
//! K l           → row of the place behind which all numbers are known
//! K i           → row of the place behind which the order is kept whole, beside other regions (`bridging`)
//! K j region    → row of what is known of another region (`bridging`)
//! K p client sequence → row of a retried write (`retries`)
//! K q client sequence → as K p: what a resync has brought of that
//! K t keyspace  → row of a [`Store`]: where what it has brought lies
//! ```
//!
//! The rows of numbered writes are read and written in `retry_rows`. Revisions, positions and sites
//! in keys are big-endian, so that byte order is their order.

use super::super::tables::CAUSAL;
use super::bridging::Bridging;
use super::held::Held;
use super::restored::Restored;
use super::resync::Resync;
use super::retry_rows::{STAGED_RETRIES, load_open, load_retries};
use super::roots::Root;
use super::standby::Committed;
use super::{Causal, MachineError, Pending};
use model::{Bytes, CausalWrite, KeyspaceId, Position, RegionId, Revision, SiteId};
use std::collections::BTreeMap;
use storage::state::Read;
use wire::entry::{decode_causal_write, encode_causal_write, put_varint, take_varint};
use wire::row;

pub(super) const DAMAGED: MachineError = MachineError::Damaged { table: CAUSAL as char };

/// The key of the head.
pub(super) const HEAD: [u8; 2] = [CAUSAL, b'h'];
const EXPIRIES: u8 = b'e';
const HELD: u8 = b'g';
const UNORDERED: u8 = b'u';
const ORDER: u8 = b'o';
const SITES: u8 = b's';
/// The key of a resync under way.
pub(super) const RESYNC: [u8; 2] = [CAUSAL, b'r'];
/// The key of the last own write whose position a resync brings.
pub(super) const OWN_BROUGHT: [u8; 2] = [CAUSAL, b'v'];
/// The key of where the order is whole.
pub(super) const WHOLE: [u8; 2] = [CAUSAL, b'i'];
const OTHERS: u8 = b'j';
const STAGED: u8 = b't';
/// The key of what a site keeps of being the root.
pub(super) const ROOT: [u8; 2] = [CAUSAL, b'm'];
const STAGED_SITES: u8 = b'w';
/// The key of what a root and its standby commit to.
pub(super) const COMMITTED: [u8; 2] = [CAUSAL, b'y'];
/// The key of what is known of a life before a backup was restored.
pub(super) const RESTORED: [u8; 2] = [CAUSAL, b'z'];
/// What the keys begin with of where a resync has the records of keyspaces.
#[cfg(test)]
pub(in crate::site::machine) const STAGED_ROWS: [u8; 2] = [CAUSAL, STAGED];

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

row!(Head { region, applied, own_ordered, last, order_last, trimmed_upto, order_bytes });

pub(super) fn numbered(part: u8, number: u64) -> [u8; 10] {
    let mut key = [CAUSAL, part, 0, 0, 0, 0, 0, 0, 0, 0];
    key[2..].copy_from_slice(&number.to_be_bytes());
    key
}

/// The key of a moment at which a key expires.
pub(in crate::site::machine) fn of_expiry(ms: u64, generation: u64, key: &[u8]) -> Vec<u8> {
    let mut at = numbered(EXPIRIES, ms).to_vec();
    put_varint(generation, &mut at);
    at.extend_from_slice(key);
    at
}

/// A moment, a generation and a key.
type Expiry = (u64, u64, Bytes);

fn decode_expiry(at: &Bytes) -> Option<Expiry> {
    let ms = u64::from_be_bytes(at.get(2..10)?.try_into().ok()?);
    let (generation, len) = take_varint(&at[10..])?;
    Some((ms, generation, at.slice(10 + len..)))
}

/// The first moments from one up to another, as many as `max`, and the moment after those. What
/// lies before is gone, and a scan from the beginning would pass its remains.
pub(super) fn first_expiries(
    read: &impl Read,
    from_ms: u64,
    upto_ms: u64,
    max: usize,
) -> Result<(Vec<Expiry>, Option<u64>), MachineError> {
    let (mut found, mut next, mut is_damaged) = (Vec::new(), None, false);
    read.scan(&numbered(EXPIRIES, from_ms), Some(&[CAUSAL, EXPIRIES + 1]), &mut |at, _| {
        match decode_expiry(&at) {
            Some(expiry) if expiry.0 <= upto_ms && found.len() < max => {
                found.push(expiry);
                true
            }
            Some((ms, ..)) => {
                next = Some(ms);
                false
            }
            None => {
                is_damaged = true;
                false
            }
        }
    })?;
    if is_damaged { Err(DAMAGED) } else { Ok((found, next)) }
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
    row::encode_bare(&(site, row::Rest(encode_causal_write(write))))
}

pub(super) fn decode_ordered(key: &[u8], row: Bytes) -> Option<(Position, SiteId, CausalWrite)> {
    let (site, row::Rest(write)) = row::decode_bare(&row)?;
    Some((Position(number_of(key)?), site, decode_causal_write(write).ok()?))
}

/// The site in the key of what the root has ordered of it.
fn site_of(key: &[u8]) -> Option<SiteId> {
    Some(SiteId(u32::from_be_bytes(key.get(2..)?.try_into().ok()?)))
}

/// The key of what is known of another region.
pub(super) fn of_other(region: RegionId) -> Vec<u8> {
    let mut key = vec![CAUSAL, OTHERS];
    key.extend_from_slice(&region.0.to_be_bytes());
    key
}

/// What a site's order has of other regions. What is kept of it is read whole.
fn load_bridging(read: &impl Read, trimmed_upto: Position) -> Result<Bridging, MachineError> {
    let mut bridging = Bridging::default();
    if let Some(whole) = read.get(&WHOLE)? {
        let after: Position = row::decode(&whole).ok_or(DAMAGED)?;
        bridging = Bridging::whole(after);
        for (at, _, write) in ordered(read, after.max(trimmed_upto), usize::MAX)? {
            bridging.follow(at, &write);
        }
    }
    let mut is_damaged = false;
    read.scan(&[CAUSAL, OTHERS], Some(&[CAUSAL, OTHERS + 1]), &mut |key, row| {
        let region = key.get(2..4).map(|id| RegionId(u16::from_be_bytes([id[0], id[1]])));
        match region.zip(row::decode(&row)) {
            Some((region, other)) => bridging.insert_other(region, other),
            None => is_damaged = true,
        }
        !is_damaged
    })?;
    if is_damaged { Err(DAMAGED) } else { Ok(bridging) }
}

/// The key of where a resync has a keyspace's records.
pub(super) fn of_staged(keyspace: KeyspaceId) -> Vec<u8> {
    let mut key = vec![CAUSAL, STAGED];
    key.extend_from_slice(&keyspace.0.to_be_bytes());
    key
}

fn keyspace_of(key: &[u8]) -> Option<KeyspaceId> {
    Some(KeyspaceId(u32::from_be_bytes(key.get(2..)?.try_into().ok()?)))
}

/// The key of one that is held on demand.
pub(super) fn of_held(keyspace: KeyspaceId, key: &[u8]) -> Vec<u8> {
    let mut at = vec![CAUSAL, HELD];
    at.extend_from_slice(&keyspace.0.to_be_bytes());
    at.extend_from_slice(key);
    at
}

/// Whether a key is held on demand.
pub(in crate::site::machine) fn is_held(
    read: &impl Read,
    keyspace: KeyspaceId,
    key: &[u8],
) -> Result<bool, MachineError> {
    Ok(read.get(&of_held(keyspace, key))?.is_some())
}

fn load_held(read: &impl Read) -> Result<Held, MachineError> {
    let (mut held, mut is_damaged) = (Held::default(), false);
    read.scan(&[CAUSAL, HELD], Some(&[CAUSAL, HELD + 1]), &mut |at, row| {
        match keyspace_of(at.get(..6).unwrap_or_default()).zip(row::decode_bare(&row)) {
            Some((keyspace, bytes)) => held.insert(keyspace, &at[6..], bytes),
            None => is_damaged = true,
        }
        !is_damaged
    })?;
    if is_damaged { Err(DAMAGED) } else { Ok(held) }
}

row!(Resync { start, upto, ordered, chunks, resume; stores, sites, retries });

/// The key of what a resync has brought of a site.
pub(super) fn of_staged_site(site: SiteId) -> Vec<u8> {
    let mut key = vec![CAUSAL, STAGED_SITES];
    key.extend_from_slice(&site.0.to_be_bytes());
    key
}

row!(Root { begun, stopped, given, given_to });
row!(Committed { held, frozen });
row!(Restored { after, upto, is_open });

/// What a restored site lacks.
pub(super) fn restored(read: &impl Read) -> Result<Option<Restored>, MachineError> {
    read.get(&RESTORED)?.map(|row| row::decode(&row).ok_or(DAMAGED)).transpose()
}

/// The last revisions of sites with a position, of this part.
fn load_sites(
    read: &impl Read,
    part: u8,
) -> Result<BTreeMap<SiteId, (Revision, Position)>, MachineError> {
    let (mut sites, mut is_damaged) = (BTreeMap::new(), false);
    read.scan(&[CAUSAL, part], Some(&[CAUSAL, part + 1]), &mut |key, row| {
        match site_of(&key).zip(row::decode(&row)) {
            Some((site, ordered)) => drop(sites.insert(site, ordered)),
            None => is_damaged = true,
        }
        !is_damaged
    })?;
    if is_damaged { Err(DAMAGED) } else { Ok(sites) }
}

fn load_resync(read: &impl Read) -> Result<Option<Resync>, MachineError> {
    let Some(row) = read.get(&RESYNC)? else { return Ok(None) };
    let mut resync = row::decode::<Resync>(&row).ok_or(DAMAGED)?;
    let mut is_damaged = false;
    read.scan(&[CAUSAL, STAGED], Some(&[CAUSAL, STAGED + 1]), &mut |key, row| {
        match keyspace_of(&key).zip(row::decode(&row)) {
            Some((keyspace, store)) => drop(resync.stores.insert(keyspace, store)),
            None => is_damaged = true,
        }
        !is_damaged
    })?;
    resync.sites = load_sites(read, STAGED_SITES)?;
    resync.retries = load_open(read, STAGED_RETRIES)?;
    if is_damaged { Err(DAMAGED) } else { Ok(Some(resync)) }
}

pub(super) fn number_of(key: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(key.get(2..)?.try_into().ok()?))
}

/// The rows of a part after a number, as many as fit so many bytes, and the first one whatever it
/// takes.
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

/// Own writes after a revision, as many as fit so many bytes, and the first one whatever it takes.
pub(super) fn own(
    read: &impl Read,
    after: Revision,
    bytes_max: usize,
) -> Result<Vec<CausalWrite>, MachineError> {
    let rows = page(read, UNORDERED, after.0, bytes_max)?.into_iter();
    rows.map(|(_, row)| decode_causal_write(row).map_err(|_| DAMAGED)).collect()
}

/// The first own writes after a revision, with the bytes of their rows.
pub(super) fn first_own(
    read: &impl Read,
    after: Revision,
    max: usize,
) -> Result<Vec<(CausalWrite, usize)>, MachineError> {
    let mut rows = Vec::new();
    if max > 0 {
        read.scan(
            &numbered(UNORDERED, after.0.saturating_add(1)),
            Some(&[CAUSAL, UNORDERED + 1]),
            &mut |_, row| {
                rows.push(row);
                rows.len() < max
            },
        )?;
    }
    let decode = |row: Bytes| {
        let bytes = row.len();
        Ok((decode_causal_write(row).map_err(|_| DAMAGED)?, bytes))
    };
    rows.into_iter().map(decode).collect()
}

/// The key of a row, and how many bytes the row has.
type Row = (Bytes, usize);

/// The oldest own writes from one on up to another, until their rows take so many bytes: their
/// keys, with the bytes of each; and the own write behind them.
pub(super) fn oldest_own(
    read: &impl Read,
    from: Revision,
    upto: Revision,
    bytes_min: u64,
) -> Result<(Vec<Row>, Option<Revision>), MachineError> {
    let (mut found, mut bytes, mut next, mut is_damaged) = (Vec::new(), 0_u64, None, false);
    let end = [CAUSAL, UNORDERED + 1];
    read.scan(&numbered(UNORDERED, from.0), Some(&end), &mut |key, row| {
        let Some(revision) = number_of(&key).map(Revision) else {
            is_damaged = true;
            return false;
        };
        if bytes >= bytes_min || revision > upto {
            next = Some(revision);
            return false;
        }
        bytes += row.len() as u64;
        found.push((key, row.len()));
        true
    })?;
    if is_damaged { Err(DAMAGED) } else { Ok((found, next)) }
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

/// The keys of the entries of the order after a position up to another, the first `max` of them,
/// with the bytes of their rows.
pub(super) fn ordered_between(
    read: &impl Read,
    after: Position,
    upto: Position,
    max: usize,
) -> Result<Vec<(Position, Bytes, usize)>, MachineError> {
    let mut found = Vec::new();
    let until = numbered(ORDER, upto.0.saturating_add(1));
    let first = numbered(ORDER, after.0.saturating_add(1));
    if first >= until {
        return Ok(found);
    }
    read.scan(&first, Some(&until), &mut |key, row| {
        let position = Position(number_of(&key).unwrap_or(0));
        found.push((position, key, row.len()));
        found.len() < max
    })?;
    Ok(found)
}

/// The keys of all rows but the head, and those that belong to records.
pub(super) fn all(read: &impl Read) -> Result<Vec<Bytes>, MachineError> {
    let mut keys = Vec::new();
    read.scan(&[CAUSAL, HELD], Some(&[CAUSAL + 1]), &mut |key, _| {
        if key[..] != HEAD {
            keys.push(key);
        }
        true
    })?;
    Ok(keys)
}

/// What a state has in numbers.
pub(super) fn head(read: &impl Read) -> Result<Head, MachineError> {
    match read.get(&HEAD)? {
        Some(row) => row::decode(&row).ok_or(DAMAGED),
        None => Ok(Head::default()),
    }
}

/// What a state has of it.
pub(super) fn load(read: &impl Read) -> Result<Causal, MachineError> {
    let mut causal = Causal { head: head(read)?, resync: load_resync(read)?, ..Causal::default() };
    causal.retries = load_retries(read)?;
    if let Some(row) = read.get(&OWN_BROUGHT)? {
        causal.own_brought = row::decode(&row).ok_or(DAMAGED)?;
    }
    let kept_upto = causal.kept_upto().0;
    let mut is_damaged = false;
    read.scan(&numbered(UNORDERED, 0), Some(&[CAUSAL, UNORDERED + 1]), &mut |key, row| {
        causal.oldest_own = causal.oldest_own.or(number_of(&key).map(Revision));
        if number_of(&key).is_some_and(|revision| revision <= kept_upto) {
            causal.kept_bytes += row.len() as u64;
            return true;
        }
        causal.unordered_bytes += row.len() as u64;
        causal.unordered += 1;
        match decode_causal_write(row) {
            Ok(write) => {
                Pending::note(&mut causal.pending, &write);
                causal.retries.note_own(&write);
            }
            Err(_) => is_damaged = true,
        }
        !is_damaged
    })?;
    causal.retries.cover(&mut causal.pending);
    causal.next_expiry = first_expiries(read, 0, 0, 0)?.1;
    causal.bridging = load_bridging(read, causal.head.trimmed_upto)?;
    causal.held = load_held(read)?;
    causal.ordered = load_sites(read, SITES)?;
    if let Some(row) = read.get(&ROOT)? {
        causal.root = row::decode(&row).ok_or(DAMAGED)?;
    }
    if let Some(row) = read.get(&COMMITTED)? {
        causal.committed = row::decode(&row).ok_or(DAMAGED)?;
    }
    causal.restored = restored(read)?;
    if is_damaged { Err(DAMAGED) } else { Ok(causal) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site::machine::store::Store;
    use model::{Ballot, Effect, Term};

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
        let row = row::encode(&head);
        assert_eq!(row, b"\x01\x01\xac\x02\x02\x03\x85\x80\x80\x80\x80\x80@\x04\x06");

        assert_eq!(of_unordered(Revision(258)), b"Ku\0\0\0\0\0\0\x01\x02");
        assert_eq!(of_position(Position::new(1, 2)), b"Ko\0\x01\0\0\0\0\0\x02");
        let expiry = of_expiry(258, 300, b"k");
        assert_eq!(expiry, b"Ke\0\0\0\0\0\0\x01\x02\xac\x02k");
        assert_eq!(decode_expiry(&expiry.into()), Some((258, 300, "k".into())));
        assert_eq!(of_site(SiteId(3)), b"Ks\0\0\0\x03");
        assert_eq!(row::encode(&(Revision(300), Position(2))), b"\x01\xac\x02\x02");
        let write = CausalWrite {
            revision: Revision(9),
            seen: Position(8),
            keyspace: KeyspaceId(7),
            effects: vec![Effect::Delete { key: "k".into() }],
        };
        let row = encode_ordered(SiteId(2), &write);
        assert_eq!(row, b"\x02\x01\x09\x08\x07\x01\x02\x01k");
        let resync = Resync {
            start: Position(300),
            upto: Position(301),
            ordered: Revision(2),
            chunks: 3,
            resume: "r".into(),
            stores: BTreeMap::new(),
            sites: BTreeMap::new(),
            retries: BTreeMap::new(),
        };
        assert_eq!(row::encode(&resync), b"\x01\xac\x02\xad\x02\x02\x03\x01r");
        let root = Root { begun: Position(300), stopped: 7, given: true, given_to: None };
        let row_of_root = row::encode(&root);
        assert_eq!((&ROOT[..], &row_of_root[..]), (&b"Km"[..], &b"\x01\xac\x02\x07\x01\x00"[..]));
        let given = Root { given_to: Some(SiteId(300)), ..root };
        assert_eq!(row::encode(&given), b"\x01\xac\x02\x07\x01\x01\xac\x02");
        let version =
            Ballot { term: Term { number: 1, site: SiteId(2) }, round: 300, site: SiteId(3) };
        let committed = Committed { held: Some(version), frozen: None };
        assert_eq!(row::encode(&committed), b"\x01\x01\x01\x02\xac\x02\x03\x00");
        let restored = Restored { after: Revision(300), upto: Revision(301), is_open: true };
        assert_eq!(row::encode(&restored), b"\x01\xac\x02\xad\x02\x01");
        assert_eq!((COMMITTED, RESTORED), (*b"Ky", *b"Kz"));
        assert_eq!(of_staged_site(SiteId(3)), b"Kw\0\0\0\x03");
        let store = Store { generation: 300, count: 1 };
        let (key, staged) = (of_staged(KeyspaceId(2)), row::encode(&store));
        assert_eq!((&key[..], &staged[..]), (&b"Kt\0\0\0\x02"[..], &b"\x01\xac\x02\x01"[..]));
        assert_eq!(keyspace_of(&key), Some(KeyspaceId(2)));
        let position = Position(5);
        let decoded = decode_ordered(&of_position(position), row.into());
        assert_eq!(decoded, Some((position, SiteId(2), write)));
    }
}
