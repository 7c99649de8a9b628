//! Copies of slots that this site does not own: mirrors, and what it has retained of what it owned.
//!
//! A copy is complete: all that its owner had at one moment of an epoch, or all of the epoch. It lies
//! under generations of its own and is not served, stale reads apart. The backup stream of the owner
//! may *feed* it ([`super::mirrors`]); then its position is the stream's. What it is a copy of, and
//! when it may go, is decided in [`crate::global::ownership`].
//!
//! ```text
//! B bucket        → (0 | 1 ‖ epoch ‖ generation ‖ origin ‖ position, varints) of each slot (slot_rows.rs)
//! S keyspace slot → generation of the records (varint) ‖ how many keys (varint)
//! ```

use super::apply::Applying;
use super::keyspaces::Owner;
use super::lineage::Whose;
use super::slot_rows::{self, Stale, Value};
use super::stores::Store;
use super::{MachineError, tables};
use model::{BySlot, KeyspaceId, SiteId, Slot, SlotCopy, SlotSet, Tag};
use std::collections::{BTreeMap, BTreeSet};
use storage::state::{Read, State};
use wire::entry::{put_epoch, put_varint, take_epoch, take_varint};

/// What comes before a copy in a row; 0: there is none.
const FORMAT: u8 = 1;

/// A copy, and where it lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyHere {
    /// What it is; of one that is fed the position is behind.
    pub copy: SlotCopy,
    pub(super) stores: BTreeMap<KeyspaceId, Store>,
}

/// All copies.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Copies {
    pub(super) by_slot: BySlot<CopyHere>,
    /// Those that no stream feeds.
    pub(super) unfed: SlotSet,
    /// Those that a version without copies wrote, and that have no rows of their own yet.
    pub(super) unwritten: BTreeSet<Slot>,
    rows: Stale,
}

impl Copies {
    pub(super) fn load(state: &impl Read) -> Result<Copies, MachineError> {
        let damaged = || MachineError::Damaged { table: tables::COPIED as char };
        let mut all = Copies::default();
        all.rows = slot_rows::load(state, |slot, copy: &Option<SlotCopy>| {
            if let Some(copy) = *copy {
                all.by_slot.insert(slot, CopyHere { copy, stores: BTreeMap::new() });
                all.unfed.insert(slot);
            }
        })?;
        for (key, row) in super::rows(state, tables::COPIED)? {
            let read = (|| {
                let (keyspace, slot) = tables::parse_store(&key)?;
                let (generation, len) = take_varint(&row)?;
                let (count, _) = take_varint(&row[len..])?;
                let here = all.by_slot.get_mut(slot)?;
                here.stores.insert(keyspace, Store { generation, count });
                Some(())
            })();
            read.ok_or_else(damaged)?;
        }
        Ok(all)
    }

    /// The generations under which copies lie, and their owners.
    pub(super) fn owners(&self) -> impl Iterator<Item = (u64, Owner)> + '_ {
        self.by_slot.iter().flat_map(|(slot, here)| {
            let owner = move |keyspace| Owner::Copied { keyspace, slot };
            here.stores.iter().map(move |(at, store)| (store.generation, owner(*at)))
        })
    }
}

impl Value for Option<SlotCopy> {
    const TABLE: u8 = tables::COPIES;
    const OLDER: u8 = tables::COPIES_OLDER;

    fn put(&self, row: &mut Vec<u8>) {
        let Some(SlotCopy { tag: Tag { epoch, generation }, origin, position }) = self else {
            return row.push(0);
        };
        row.push(FORMAT);
        put_epoch(*epoch, row);
        put_varint(*generation, row);
        put_varint(u64::from(origin.0), row);
        put_varint(*position, row);
    }

    fn parse(row: &[u8]) -> Option<(Option<SlotCopy>, usize)> {
        let (format, rest) = row.split_first()?;
        match *format {
            0 => return Some((None, 1)),
            FORMAT => {}
            _ => return None,
        }
        let (epoch, mut len) = take_epoch(rest)?;
        let mut take = || -> Option<u64> {
            let (number, number_len) = take_varint(&rest[len..])?;
            len += number_len;
            Some(number)
        };
        let tag = Tag { epoch, generation: take()? };
        let origin = SiteId(u32::try_from(take()?).ok()?);
        let copy = SlotCopy { tag, origin, position: take()? };
        Some((Some(copy), 1 + len))
    }
}

fn encode_store(store: Store) -> Vec<u8> {
    let mut row = Vec::new();
    put_varint(store.generation, &mut row);
    put_varint(store.count, &mut row);
    row
}

impl super::Known {
    /// The copy of a slot, as far as it has come.
    pub(super) fn copy_of(&self, slot: Slot) -> Option<SlotCopy> {
        let mut copy = self.copies.by_slot.get(slot)?.copy;
        if !self.copies.unfed.contains(slot)
            && let Some(mirror) = self.mirrors.0.get(&copy.origin)
        {
            copy.position = mirror.revision;
        }
        Some(copy)
    }
}

impl<S: State> Applying<'_, S> {
    /// A copy comes into the place of what copy there is. What is remembered with it is moved separately.
    pub(super) fn put_copy(
        &mut self,
        slot: Slot,
        copy: SlotCopy,
        stores: BTreeMap<KeyspaceId, Store>,
        is_fed: bool,
    ) {
        self.drop_copy(slot);
        for (keyspace, store) in &stores {
            let owner = Owner::Copied { keyspace: *keyspace, slot };
            self.known.keyspaces.own(store.generation, owner);
            self.overlay.put(tables::copied(*keyspace, slot), encode_store(*store));
        }
        self.known.copies.rows.note(slot);
        self.known.copies.by_slot.insert(slot, CopyHere { copy, stores });
        if !is_fed {
            self.known.copies.unfed.insert(slot);
        }
    }

    /// No stream feeds these copies any more: they stay as they are.
    pub(super) fn unfeed(&mut self, slots: impl IntoIterator<Item = Slot>) {
        for slot in slots {
            let Some(copy) = self.known.copy_of(slot) else { continue };
            if !self.known.copies.unfed.contains(slot) {
                self.known.copies.unfed.insert(slot);
                self.known.copies.rows.note(slot);
                if let Some(here) = self.known.copies.by_slot.get_mut(slot) {
                    here.copy = copy;
                }
                if let Some(mirror) = self.known.mirrors.0.get_mut(&copy.origin)
                    && mirror.whole.remove(slot).is_some()
                {
                    self.known.mirrors.1.insert(copy.origin);
                }
            }
        }
    }

    /// Brings what an older version wrote into rows of this one.
    pub(super) fn copy_mirrored(&mut self) {
        for slot in std::mem::take(&mut self.known.copies.unwritten) {
            let Some(CopyHere { copy, stores }) = self.known.copies.by_slot.get(slot).cloned()
            else {
                continue;
            };
            self.known.copies.rows.note(slot);
            for (keyspace, store) in stores {
                self.overlay.remove(tables::mirrored(copy.origin, keyspace, slot));
                self.overlay.put(tables::copied(keyspace, slot), encode_store(store));
            }
        }
    }

    /// Brings the copies that changed into the state.
    pub(super) fn write_copies(&mut self) {
        let Copies { rows, by_slot, .. } = &mut self.known.copies;
        rows.write(&mut self.overlay, None, |slot| by_slot.get(slot).map(|here| here.copy));
    }

    /// Takes a copy away, without its records and what is remembered with them.
    pub(super) fn remove_copy(&mut self, slot: Slot) -> BTreeMap<KeyspaceId, Store> {
        let Some(here) = self.known.copies.by_slot.remove(slot) else { return BTreeMap::new() };
        if self.known.copies.unfed.contains(slot) {
            self.known.copies.unfed.remove(slot);
        } else if let Some(mirror) = self.known.mirrors.0.get_mut(&here.copy.origin)
            && mirror.whole.remove(slot).is_some()
        {
            self.known.mirrors.1.insert(here.copy.origin);
        }
        self.known.copies.rows.note(slot);
        for (keyspace, store) in &here.stores {
            self.overlay.remove(tables::copied(*keyspace, slot));
            self.known.keyspaces.disown(store.generation);
        }
        here.stores
    }

    /// Throws a copy away.
    pub(super) fn drop_copy(&mut self, slot: Slot) {
        let stores = self.remove_copy(slot);
        stores.into_values().for_each(|store| self.discard(store.generation));
        self.drop_answers(slot, Whose::Copied);
    }

    /// Where a fed copy has a keyspace's records.
    pub(super) fn copied_store(&self, keyspace: KeyspaceId, slot: Slot) -> Option<Store> {
        self.known.copies.by_slot.get(slot)?.stores.get(&keyspace).copied()
    }

    /// Gives a keyspace's records of a copy another place, or none, or counts them anew.
    pub(super) fn set_copied_store(
        &mut self,
        keyspace: KeyspaceId,
        slot: Slot,
        store: Option<Store>,
    ) {
        let Some(here) = self.known.copies.by_slot.get_mut(slot) else { return };
        let old = match store {
            Some(store) => here.stores.insert(keyspace, store),
            None => here.stores.remove(&keyspace),
        };
        let is_other = old.map(|old| old.generation) != store.map(|store| store.generation);
        if let Some(old) = old.filter(|_| is_other) {
            self.known.keyspaces.disown(old.generation);
            self.discard(old.generation);
        }
        match store {
            Some(store) => {
                self.known.keyspaces.own(store.generation, Owner::Copied { keyspace, slot });
                self.overlay.put(tables::copied(keyspace, slot), encode_store(store));
            }
            None => self.overlay.remove(tables::copied(keyspace, slot)),
        }
    }

    /// A copied record expires here. Only the slot's owner reports that to other sites.
    pub(super) fn expire_copied(&mut self, keyspace: KeyspaceId, slot: Slot, key: &[u8]) {
        if let Some(store) = self.copied_store(keyspace, slot) {
            self.overlay.remove(tables::record(store.generation, key));
            let store = Store { count: store.count.saturating_sub(1), ..store };
            self.set_copied_store(keyspace, slot, Some(store));
        }
    }

    /// A keyspace is dropped.
    pub(super) fn drop_copied(&mut self, keyspace: KeyspaceId) {
        let with = |(_, here): &(Slot, &CopyHere)| here.stores.contains_key(&keyspace);
        let slots: Vec<Slot> =
            self.known.copies.by_slot.iter().filter(with).map(|(slot, _)| slot).collect();
        slots.into_iter().for_each(|slot| self.set_copied_store(keyspace, slot, None));
    }
}

impl<S: State> super::Machine<S> {
    /// The copy of a slot.
    pub fn copy_of(&self, slot: Slot) -> Option<SlotCopy> {
        self.known.copy_of(slot)
    }

    /// The slots of which this site has a copy that no stream feeds.
    pub fn unfed(&self) -> &SlotSet {
        &self.known.copies.unfed
    }

    /// The copies here, and how many keys are in each.
    pub fn copies(&self) -> impl Iterator<Item = (Slot, SlotCopy, u64)> + '_ {
        self.known.copies.by_slot.iter().filter_map(|(slot, here)| {
            let keys = here.stores.values().map(|store| store.count).sum();
            Some((slot, self.known.copy_of(slot)?, keys))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Epoch;

    #[test]
    fn format_1_stays_as_it_is() {
        let tag = Tag { epoch: Epoch::counted(3), generation: 300 };
        let copy = SlotCopy { tag, origin: SiteId(5), position: 9 };
        let encode = |copy: Option<SlotCopy>| {
            let mut row = Vec::new();
            copy.put(&mut row);
            row
        };
        assert_eq!(encode(Some(copy)), [1, 3, 0xac, 2, 5, 9]);
        let retained = SlotCopy::retained(Epoch::counted(3), SiteId(5));
        for copy in [None, Some(copy), Some(retained)] {
            let row = encode(copy);
            assert_eq!(Option::<SlotCopy>::parse(&row), Some((copy, row.len())));
        }
        assert_eq!(Option::<SlotCopy>::parse(&[2, 3, 1, 5, 9]), None);
        assert_eq!(Option::<SlotCopy>::parse(&[1, 3, 1, 5]), None);
    }
}
