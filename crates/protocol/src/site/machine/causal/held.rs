//! Keys that this site holds on demand, of keyspaces that other sites hold whole.
//!
//! > held(key) ⇒ the key's registers are the order up to `applied` under this site's pending
//! > writes, as those of any key that every site holds. Not held: its record is what is pending on
//! > it, and nothing is answered from that.
//!
//! A key is held from the place on at which the root has ordered what it holds
//! ([`model::Mark::Fetched`], `fetch`), absent or not. What comes before that place is in it, and
//! what comes behind is imported: so nothing is missing and nothing comes twice, whatever is lost,
//! repeated or late between the sites. Of a place that touches no held key the content is not
//! needed.
//!
//! A held key has a row, as an absent one has no other, with the bytes that it counts. A key is
//! evicted by a command, and not while a write of this site to it has no position here: that lies
//! on top of what the order has.
//!
//! ```text
//! not held ── Fetched is imported ──▶ held ── Evict ──▶ not held
//!                                      └── the keyspaces are got anew (`resync`), or the keyspace is dropped ──▶ not held
//! ```
//!
//! Left out: which keys are fetched and evicted, and when (`crate::causal::fetch`).

use super::super::keys::Place;
use super::super::records::{Record, fields};
use super::super::tables;
use super::super::{Applying, Machine};
use super::assign::Source;
use super::bridging::Keeps;
use super::{MachineError, Stopped, rows};
use crate::machine::records::SEVERAL;
use model::{
    Answer, Bytes, CausalWrite, ChangeKind, Effect, HeldSize, KeyspaceId, Kind, NO_SITE, Position,
    Refusal, Revision, key_hash, limits,
};
use std::collections::BTreeMap;
use storage::state::{Read as _, State};
use wire::row;

/// See the module.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Held {
    keys: BTreeMap<(KeyspaceId, Bytes), u64>,
    /// How many of the keys have a hash.
    hashes: BTreeMap<(KeyspaceId, u32), u32>,
    sizes: BTreeMap<KeyspaceId, HeldSize>,
}

impl Held {
    /// A key is held, and counts so many bytes.
    pub(super) fn insert(&mut self, keyspace: KeyspaceId, key: &[u8], bytes: u64) {
        // A slice would keep all that it was read with.
        let at = (keyspace, Bytes::copy_from_slice(key));
        let size = self.sizes.entry(keyspace).or_default();
        size.bytes += bytes;
        match self.keys.insert(at, bytes) {
            Some(before) => size.bytes -= before,
            None => {
                size.keys += 1;
                *self.hashes.entry((keyspace, key_hash(key))).or_default() += 1;
            }
        }
    }

    fn remove(&mut self, keyspace: KeyspaceId, key: &Bytes) -> bool {
        let Some(bytes) = self.keys.remove(&(keyspace, key.clone())) else { return false };
        let hash = (keyspace, key_hash(key));
        let size = self.sizes.entry(keyspace).or_default();
        (size.keys, size.bytes) = (size.keys - 1, size.bytes - bytes);
        if *size == HeldSize::default() {
            self.sizes.remove(&keyspace);
        }
        match self.hashes.get_mut(&hash) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(self.hashes.remove(&hash)),
        }
        true
    }

    fn bytes_of(&self, keyspace: KeyspaceId, key: &Bytes) -> Option<u64> {
        if self.keys.is_empty() {
            return None;
        }
        self.keys.get(&(keyspace, key.clone())).copied()
    }

    fn of(&self, keyspace: KeyspaceId) -> impl Iterator<Item = (&Bytes, u64)> {
        let first = (keyspace, Bytes::new());
        let all = self.keys.range(first..).take_while(move |((of, _), _)| *of == keyspace);
        all.map(|((_, key), bytes)| (key, *bytes))
    }
}

impl super::Causal {
    /// Whether this site holds a key on demand.
    pub fn holds_key(&self, keyspace: KeyspaceId, key: &Bytes) -> bool {
        self.held.bytes_of(keyspace, key).is_some()
    }

    /// Whether it holds one with this hash.
    pub fn holds_hash(&self, keyspace: KeyspaceId, hash: u32) -> bool {
        self.held.hashes.contains_key(&(keyspace, hash))
    }

    /// How much it holds on demand of a keyspace.
    pub fn held_size(&self, keyspace: KeyspaceId) -> HeldSize {
        self.held.sizes.get(&keyspace).copied().unwrap_or_default()
    }

    /// How much it holds on demand of all keyspaces.
    pub fn held_total(&self) -> HeldSize {
        let sizes = self.held.sizes.values();
        sizes.fold(HeldSize::default(), |all, one| HeldSize {
            keys: all.keys + one.keys,
            bytes: all.bytes + one.bytes,
        })
    }

    /// The keys that it holds on demand of a keyspace and may evict, with their bytes.
    pub fn evictable(&self, keyspace: KeyspaceId) -> impl Iterator<Item = (&Bytes, u64)> {
        let is_pinned = move |key: &Bytes| self.pending.contains_key(&(keyspace, key.clone()));
        self.held.of(keyspace).filter(move |(key, _)| !is_pinned(key))
    }
}

impl<S: State> Machine<S> {
    /// Of the keys that it holds on demand and may evict those that were read least lately here: so
    /// many bytes and so many keys at least, and no more than one command evicts.
    pub fn least_read(&self, keyspace: KeyspaceId, bytes: u64, keys: u64) -> Vec<Bytes> {
        let recency = &self.published.recency;
        let all = self.causal().evictable(keyspace);
        let mut all: Vec<_> =
            all.map(|(key, bytes)| (recency.last(keyspace, key), key, bytes)).collect();
        let max = limits::CAUSAL_FETCHED_KEYS_MAX;
        if all.len() > max {
            all.select_nth_unstable(max);
            all.truncate(max);
        }
        all.sort_unstable();
        let (mut found, mut freed) = (Vec::new(), 0);
        for (_, key, of_key) in all {
            if freed >= bytes && found.len() as u64 >= keys {
                break;
            }
            found.push(key.clone());
            freed += of_key;
        }
        found
    }

    /// A key that is held on demand is asked for at this site.
    pub(in crate::site) fn touch_held(&self, keyspace: KeyspaceId, key: &Bytes) {
        self.published.recency.touch(keyspace, key);
    }
}

fn weight(key: &[u8], row_bytes: usize) -> u64 {
    (key.len() + row_bytes) as u64 + limits::CAUSAL_HELD_KEY_OVERHEAD_BYTES
}

impl<S: State> Applying<'_, S> {
    /// Whether this site holds keys of a keyspace on demand.
    pub(in crate::site::machine) fn is_on_demand(&self, keyspace: KeyspaceId) -> bool {
        let Ok(own) = self.member().map(|member| member.own) else { return false };
        let spec = self.known.keyspaces.spec(keyspace);
        spec.is_some_and(|spec| spec.on_demand_at(own).is_some())
    }

    /// Whether all of some keys of a keyspace are held.
    pub(super) fn check_held<'a>(
        &self,
        keyspace: KeyspaceId,
        keys: impl IntoIterator<Item = &'a Bytes>,
    ) -> Result<(), Refusal> {
        // One that is too long is refused for that.
        let is_held = |key: &Bytes| {
            key.len() > limits::KEY_BYTES_MAX || self.modes.causal.holds_key(keyspace, key)
        };
        match !self.is_on_demand(keyspace) || keys.into_iter().all(is_held) {
            true => Ok(()),
            false => Err(super::NOT_HELD),
        }
    }

    /// What keys hold as of a place has come: they are held from here on.
    pub(super) fn take_items(
        &mut self,
        place: Place,
        at: Position,
        items: &[(Bytes, Option<Bytes>)],
    ) -> Result<(), Stopped> {
        for (key, row) in items {
            if self.modes.causal.holds_key(place.keyspace, key) {
                continue;
            }
            self.modes.causal.held.insert(place.keyspace, key, 0);
            if let Some(row) = row {
                self.take_item(place, at, key, Record::decode(row.clone())?)?;
            }
            self.weigh(place, key)?;
        }
        Ok(())
    }

    /// The record of a key lies under what is pending on it.
    fn take_item(
        &mut self,
        place: Place,
        at: Position,
        key: &Bytes,
        record: Record,
    ) -> Result<(), Stopped> {
        let position = match record.position {
            0 | SEVERAL => at,
            position => Position(position),
        };
        let none = Keeps::new();
        let (source, expiry) = (Source::Other(position, &none), record.agreed());
        let value = match record.kind {
            _ if record.is_vacant => None,
            Kind::String => Some(Effect::Put { key: key.clone(), value: record.payload }),
            Kind::Hash => {
                let mut all = Vec::new();
                for field in fields(&record.payload) {
                    let field = field?;
                    let bytes = |part: &[u8]| Bytes::copy_from_slice(part);
                    all.push((bytes(field.name), bytes(field.value)));
                }
                Some(Effect::SetFields { key: key.clone(), fields: all })
            }
        };
        if let Some(value) = value {
            self.assign(place, &value, (NO_SITE, Revision(at.0)), source)?;
        }
        if let Some(expiry) = expiry {
            let set = Effect::SetExpiry { key: key.clone(), at_ms: Some(expiry.ms) };
            self.assign(place, &set, expiry.of, source)?;
        }
        Ok(())
    }

    /// A key may hold more or less than before.
    pub(super) fn weigh(&mut self, place: Place, key: &Bytes) -> Result<(), MachineError> {
        let keyspace = place.keyspace;
        let Some(before) = self.modes.causal.held.bytes_of(keyspace, key) else { return Ok(()) };
        let len = |row: Option<&[u8]>| row.map_or(0, <[u8]>::len);
        let now = weight(key, self.overlay.look(&tables::record(place.generation, key), len)?);
        if now != before {
            self.modes.causal.held.insert(keyspace, key, now);
            self.overlay.put(rows::of_held(keyspace, key), row::encode_bare(&now));
        }
        Ok(())
    }

    /// The same of all keys of a keyspace, which was cleared.
    pub(super) fn weigh_all(&mut self, keyspace: KeyspaceId) -> Result<(), MachineError> {
        let Some(place) = self.causal_place(keyspace) else { return Ok(()) };
        let keys: Vec<Bytes> =
            self.modes.causal.held.of(keyspace).map(|(key, _)| key.clone()).collect();
        keys.iter().try_for_each(|key| self.weigh(place, key))
    }

    /// Keys are held no more, but for those that have a pending write.
    pub(super) fn evict(
        &mut self,
        keyspace: KeyspaceId,
        keys: &[Bytes],
    ) -> Result<Answer, Stopped> {
        let place = self.causal_place(keyspace).filter(|_| self.is_on_demand(keyspace));
        let Some(place) = place else { return Ok(self.done_now()) };
        self.next_revision();
        for key in keys {
            let is_pinned = self.modes.causal.pending.contains_key(&(keyspace, key.clone()));
            if is_pinned || !self.modes.causal.held.remove(keyspace, key) {
                continue;
            }
            self.overlay.remove(rows::of_held(keyspace, key));
            self.drop_record(place, key)?;
        }
        Ok(self.done_now())
    }

    fn drop_record(&mut self, place: Place, key: &Bytes) -> Result<(), Stopped> {
        let cell = self.cell_unread(place, key)?;
        let expiry = cell.expiry;
        self.erase_agreed(cell, None, ChangeKind::Delete);
        self.move_expiry(place.generation, key, expiry, None)?;
        Ok(())
    }

    /// A write of this site is pending no more: of its keys that are not held nothing is left then.
    pub(super) fn drop_unheld(&mut self, write: &CausalWrite) -> Result<(), Stopped> {
        if !self.is_on_demand(write.keyspace) {
            return Ok(());
        }
        let Some(place) = self.causal_place(write.keyspace) else { return Ok(()) };
        for key in write.effects.iter().filter_map(Effect::key) {
            let causal = &self.modes.causal;
            let at = (write.keyspace, key.clone());
            if !causal.holds_key(write.keyspace, key) && !causal.pending.contains_key(&at) {
                self.drop_record(place, key)?;
            }
        }
        Ok(())
    }

    /// A keyspace ends, or its keys come anew: nothing of it is held on demand.
    pub(super) fn forget_held(&mut self, keyspace: KeyspaceId) {
        let keys: Vec<Bytes> =
            self.modes.causal.held.of(keyspace).map(|(key, _)| key.clone()).collect();
        for key in keys {
            self.modes.causal.held.remove(keyspace, &key);
            self.overlay.remove(rows::of_held(keyspace, &key));
        }
    }
}
