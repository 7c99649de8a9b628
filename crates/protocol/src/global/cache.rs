//! Copies of keys that other sites own, kept by a node of whatever it has asked for.
//!
//! A copy is the answer to a question about one key, together with its *validator*: the epoch of
//! the key's slot and the key's version when the owner answered. The owner of a slot numbers what
//! is done to its keys, and takes the count over along with the slot, so a version never comes
//! twice for a key; an absent key has version 0 and always the same answer. So equal validators
//! mean equal answers. The epoch would not be needed for that, as long as every slot is handed over
//! whole. It is there for a slot that comes to its next owner in any other way, and might bring an
//! older count.
//!
//! A copy is used in two ways (`model::Cache`):
//!
//! - *validated*: a read takes the validator along to the owner, which reads as usual and answers
//!   "unchanged" instead of the value. That saves bytes and no way;
//! - *stale*: a read that may be stale is answered here while the copy is young. Its age counts
//!   from when it was asked for, so it is never younger than that.
//!
//! Not copied: what depends on the clock (when a key expires), questions about several keys,
//! refusals. A write that goes to the owner through this node drops the copies of its keys when it
//! leaves and when it is answered, and what was asked before that is not kept: clients that stay at
//! a node see in its copies what they wrote. Everything here is volatile, and bounded in bytes; of
//! a keyspace's copies the one that was used longest ago goes first.

use model::{Answer, Bytes, Epoch, Failure, Keyspace, KeyspaceId, Query, Revision, Slot, limits};
use model::{Cache as Setting, Step, Write};
use std::collections::BTreeMap;
use std::time::Duration;
use wire::entry;
use wire::inter_site;

/// What a copy takes beside its bytes, about: two entries of maps.
const OVERHEAD_BYTES: u64 = 200;

/// What a key was found at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Validator {
    /// The epoch of its slot.
    pub(crate) epoch: Epoch,
    /// Its version; 0: it is absent.
    pub(crate) version: Revision,
}

impl Validator {
    /// As it travels.
    pub(crate) fn to_wire(self) -> inter_site::Validator {
        let Epoch { failover, count: epoch } = self.epoch;
        inter_site::Validator {
            epoch,
            version: self.version.0,
            failover: inter_site::put_failover(failover),
        }
    }

    /// From how it travels; `None`: the sender has no copy.
    pub(crate) fn from_wire(validator: inter_site::Validator) -> Option<Validator> {
        let failover = inter_site::take_failover(validator.failover);
        let epoch = Epoch { failover, count: validator.epoch };
        (epoch != Epoch::default())
            .then_some(Validator { epoch, version: Revision(validator.version) })
    }
}

/// Whether the node that asks for a key keeps copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Copies {
    /// No, or that is not in its request.
    None,
    /// Yes, and has one at this, or none.
    Cached(Option<Validator>),
}

/// Of which question in which keyspace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    keyspace: KeyspaceId,
    slot: Slot,
    key: Bytes,
    /// The question, encoded.
    query: Bytes,
}

/// A read that is on its way to the owner of a key that may be copied.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// What is asked.
    pub(crate) place: Place,
    /// Since when.
    pub(crate) since: Duration,
    /// Before or after which writes: [`Cache::turn`].
    pub(crate) turn: u64,
    /// Its copy went while the owner was asked about it: now for the value.
    pub(crate) anew: bool,
}

/// What was counted, since the start and now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Stale reads that were answered from a copy, without a request to another site.
    pub hits: u64,
    /// Reads that the owner answered with "unchanged".
    pub unchanged: u64,
    /// Reads of keyspaces with a cache that an owner answered with the value.
    pub misses: u64,
    /// Copies that gave way to others.
    pub evictions: u64,
    /// Copies now.
    pub copies: u64,
    /// What they take, in bytes.
    pub bytes: u64,
}

#[derive(Debug)]
struct Entry {
    validator: Validator,
    /// The answer, encoded, in memory of its own.
    reply: Bytes,
    asked_at: Duration,
    used: u64,
}

/// The copies of one keyspace.
#[derive(Debug, Default)]
struct Space {
    setting: Setting,
    entries: BTreeMap<Place, Entry>,
    by_use: BTreeMap<u64, Place>,
    bytes: u64,
}

/// The copies of one node.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    /// Of the keyspaces that have any.
    spaces: BTreeMap<KeyspaceId, Space>,
    uses: u64,
    turns: u64,
    /// The turn of the last write to each slot through this node.
    written: BTreeMap<Slot, u64>,
    counted: Counted,
}

/// The key that a question is about, if its answer may be copied.
pub(crate) fn copied_key(query: &Query) -> Option<&Bytes> {
    match query {
        Query::Get { key }
        | Query::Kind { key }
        | Query::Length { key }
        | Query::HashGet { key, .. }
        | Query::HashGetMany { key, .. }
        | Query::HashGetAll { key }
        | Query::HashExists { key, .. }
        | Query::HashLen { key } => Some(key),
        Query::GetMany { keys } | Query::Exists { keys } => match keys.as_slice() {
            [key] => Some(key),
            _ => None,
        },
        // When a key expires is asked by the clock; a version is no longer than its validator.
        Query::Expiry { .. }
        | Query::Versions { .. }
        | Query::Watch { .. }
        | Query::Count
        | Query::Scan { .. } => None,
    }
}

fn size_bytes(place: &Place, reply: &Bytes) -> u64 {
    (2 * (place.key.len() + place.query.len()) + reply.len()) as u64 + OVERHEAD_BYTES
}

impl Cache {
    /// The keyspaces are these now: what is copied of others is forgotten.
    pub(crate) fn follow(&mut self, keyspaces: &[Keyspace]) {
        let cached = keyspaces.iter().filter(|keyspace| keyspace.spec.cache.is_on());
        let settings: BTreeMap<_, _> = cached.map(|one| (one.id, one.spec.cache)).collect();
        self.spaces.retain(|id, space| settings.get(id) == Some(&space.setting));
        for (id, setting) in settings {
            self.spaces.entry(id).or_default().setting = setting;
        }
        if self.spaces.is_empty() {
            self.written.clear();
        }
    }

    /// The number of what happens now: higher than that of anything before.
    pub(crate) fn turn(&mut self) -> u64 {
        self.turns += 1;
        self.turns
    }

    /// Where the answer to a question would be; `None`: it is not copied.
    pub(crate) fn place(&self, keyspace: KeyspaceId, query: &Query) -> Option<Place> {
        self.spaces.get(&keyspace)?;
        let key = copied_key(query)?;
        // Memory of its own: a slice would keep the whole frame that it came in.
        let query = entry::encode_query(query);
        let slot = Slot::of_key(key);
        Some(Place { keyspace, slot, key: Bytes::copy_from_slice(key), query })
    }

    /// The validator of this node's copy of a key, for its owner to compare.
    pub(crate) fn known(&self, place: &Place) -> Option<Validator> {
        let entry = self.spaces.get(&place.keyspace)?.entries.get(place)?;
        Some(entry.validator)
    }

    /// The answer to a read that may be stale, if there is a young copy.
    pub(crate) fn stale(&mut self, place: &Place, now: Duration) -> Option<Answer> {
        let space = self.spaces.get_mut(&place.keyspace)?;
        let age_max = Duration::from_millis(space.setting.age_ms_max()?);
        let entry = space.entries.get(place)?;
        if now.saturating_sub(entry.asked_at) > age_max {
            return None;
        }
        let answer = space.take(place, &mut self.uses)?;
        self.counted.hits += 1;
        Some(answer)
    }

    /// The answer that the owner has confirmed; `None`: it is not here any more.
    pub(crate) fn confirmed(&mut self, asked: &Asked, validator: Validator) -> Option<Answer> {
        let space = self.spaces.get_mut(&asked.place.keyspace)?;
        let entry = space.entries.get_mut(&asked.place)?;
        if entry.validator != validator {
            return None;
        }
        // Older than the latest write through this node it may be right, and no younger for it.
        if self.written.get(&asked.place.slot).is_none_or(|written| *written < asked.turn) {
            entry.asked_at = entry.asked_at.max(asked.since);
        }
        let answer = space.take(&asked.place, &mut self.uses)?;
        self.counted.unchanged += 1;
        Some(answer)
    }

    /// What is copied, whether or not it is right. Only a planted bug asks.
    pub(crate) fn trusted(&mut self, place: &Place) -> Option<Answer> {
        self.spaces.get_mut(&place.keyspace)?.take(place, &mut self.uses)
    }

    /// The owner answered with the value.
    pub(crate) fn missed(&mut self) {
        self.counted.misses += 1;
    }

    /// Keeps an answer as it came.
    pub(crate) fn keep(&mut self, asked: Asked, validator: Validator, reply: &Bytes) {
        let Asked { place, since, turn, .. } = asked;
        let was_written = self.written.get(&place.slot).is_some_and(|written| *written > turn);
        let Some(space) = self.spaces.get_mut(&place.keyspace) else { return };
        space.remove(&place);
        let bytes = size_bytes(&place, reply);
        if was_written || bytes > space.setting.bytes_max() {
            return;
        }
        self.uses += 1;
        let reply = Bytes::copy_from_slice(reply);
        let entry = Entry { validator, reply, asked_at: since, used: self.uses };
        space.by_use.insert(self.uses, place.clone());
        space.entries.insert(place, entry);
        space.bytes += bytes;
        while space.bytes > space.setting.bytes_max() && space.remove_oldest() {
            self.counted.evictions += 1;
        }
        while self.bytes() > limits::CACHES_BYTES_MAX && self.remove_oldest() {
            self.counted.evictions += 1;
        }
    }

    /// An answer came that is not to be copied: what is copied may be older.
    pub(crate) fn forget(&mut self, place: &Place) {
        if let Some(space) = self.spaces.get_mut(&place.keyspace) {
            space.remove(place);
        }
    }

    /// A write goes to its owner through this node, or was answered there.
    pub(crate) fn written(&mut self, keyspace: KeyspaceId, write: &Write) {
        let turn = self.turn();
        let Some(space) = self.spaces.get_mut(&keyspace) else { return };
        for key in write.keys() {
            let slot = Slot::of_key(key);
            self.written.insert(slot, turn);
            let first = Place { keyspace, slot, key: key.clone(), query: Bytes::new() };
            let of_key = space.entries.range(first..).map(|(place, _)| place);
            let of_key = of_key.take_while(|place| place.slot == slot && place.key == *key);
            for place in of_key.cloned().collect::<Vec<_>>() {
                space.remove(&place);
            }
        }
    }

    /// The same of a step of a transaction.
    pub(crate) fn stepped(&mut self, keyspace: KeyspaceId, step: &Step) {
        if let Step::Write(write) = step {
            self.written(keyspace, write);
        }
    }

    /// A slot is held here from now on, or a group of it.
    pub(crate) fn drop_slot(&mut self, slot: Slot) {
        // Writes here are not noted one by one: an answer that was asked for before is older.
        if !self.spaces.is_empty() {
            let turn = self.turn();
            self.written.insert(slot, turn);
        }
        for (keyspace, space) in &mut self.spaces {
            let (key, query) = (Bytes::new(), Bytes::new());
            let first = Place { keyspace: *keyspace, slot, key, query };
            let of_slot = space.entries.range(first..).map(|(place, _)| place);
            let of_slot = of_slot.take_while(|place| place.slot == slot);
            for place in of_slot.cloned().collect::<Vec<_>>() {
                space.remove(&place);
            }
        }
    }

    /// A keyspace is being cleared.
    pub(crate) fn clear(&mut self, keyspace: KeyspaceId) {
        let turn = self.turn();
        if let Some(space) = self.spaces.get_mut(&keyspace) {
            *space = Space { setting: space.setting, ..Space::default() };
            self.written = Slot::all().map(|slot| (slot, turn)).collect();
        }
    }

    /// All keyspaces are being cleared.
    pub(crate) fn clear_all(&mut self) {
        let ids: Vec<KeyspaceId> = self.spaces.keys().copied().collect();
        ids.into_iter().for_each(|id| self.clear(id));
    }

    /// What was counted.
    pub(crate) fn counted(&self) -> Counted {
        let copies = self.spaces.values().map(|space| space.entries.len() as u64).sum();
        Counted { copies, bytes: self.bytes(), ..self.counted }
    }

    fn bytes(&self) -> u64 {
        self.spaces.values().map(|space| space.bytes).sum()
    }

    fn remove_oldest(&mut self) -> bool {
        let first = |space: &&mut Space| space.by_use.first_key_value().map(|(used, _)| *used);
        let filled = self.spaces.values_mut().filter(|space| !space.by_use.is_empty());
        filled.min_by_key(first).is_some_and(Space::remove_oldest)
    }
}

impl Space {
    /// A copy's answer, used just now.
    fn take(&mut self, place: &Place, uses: &mut u64) -> Option<Answer> {
        let entry = self.entries.get_mut(place)?;
        *uses += 1;
        let own = self.by_use.remove(&entry.used)?;
        entry.used = *uses;
        self.by_use.insert(*uses, own);
        let reply: Result<Answer, Failure> = entry::decode_reply(entry.reply.clone()).ok()?;
        reply.ok()
    }

    fn remove(&mut self, place: &Place) {
        if let Some(entry) = self.entries.remove(place) {
            self.by_use.remove(&entry.used);
            self.bytes -= size_bytes(place, &entry.reply);
        }
    }

    fn remove_oldest(&mut self) -> bool {
        let Some((_, place)) = self.by_use.pop_first() else { return false };
        if let Some(entry) = self.entries.remove(&place) {
            self.bytes -= size_bytes(&place, &entry.reply);
        }
        true
    }
}

#[cfg(test)]
mod tests;
