//! Copies of slots that this site does not own: mirrors, and what it has retained of what it owned.
//!
//! A copy is complete: all that its owner had at one moment of an epoch, or all of the epoch. It
//! lies under generations of its own and is not served, stale reads apart. The backup stream of the
//! owner may *feed* it ([`super::mirrors`]); then its position is the stream's. What it is a copy
//! of, and when it may go, is decided in [`crate::global::ownership`].
//!
//! ```text
//! B bucket        → (0 | 1 ‖ epoch ‖ generation ‖ origin ‖ position, varints) of each slot (slot_rows.rs)
//! S keyspace slot → row of a [`Store`]   (wire::row)
//! ```

use super::Applying;
use super::Owner;
use super::lineage::Whose;
use super::slot_rows::{self, Stale, Value};
use super::store::Store;
use super::stores::Stores;
use super::{MachineError, tables};
use model::{BySlot, KeyspaceId, SiteId, Slot, SlotCopy, SlotRun, SlotSet};
use storage::state::{Read, State};
use wire::row;

/// All copies.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::site::machine) struct Copies {
    /// What they are; of those that are fed the position is behind.
    pub(in crate::site::machine) by_slot: BySlot<SlotCopy>,
    /// Where their records lie.
    pub(in crate::site::machine) stores: Stores,
    /// Those that no stream feeds.
    pub(super) unfed: SlotSet,
    rows: Stale,
}

impl Copies {
    pub(in crate::site::machine) fn load(state: &impl Read) -> Result<Copies, MachineError> {
        let damaged = || MachineError::Damaged { table: tables::COPIED as char };
        let mut all = Copies::default();
        slot_rows::load(state, |run, copy: &Option<SlotCopy>| {
            all.by_slot.set(run, *copy);
            match copy {
                Some(_) => all.unfed.insert_run(run),
                None => all.unfed.remove_run(run),
            }
        })?;
        for (key, row) in super::rows(state, tables::COPIED)? {
            let read = (|| {
                let (keyspace, slot) = tables::parse_store(&key)?;
                all.by_slot.get(slot)?;
                all.stores.insert((slot, keyspace), row::decode(&row)?);
                Some(())
            })();
            read.ok_or_else(damaged)?;
        }
        Ok(all)
    }

    /// The generations under which copies lie, and their owners.
    pub(in crate::site::machine) fn owners(&self) -> impl Iterator<Item = (u64, Owner)> + '_ {
        let owner = |keyspace, slot| Owner::Copied { keyspace, slot };
        self.stores.iter().map(move |((slot, id), store)| (store.generation, owner(*id, *slot)))
    }

    /// Where the records of some copies lie.
    pub(super) fn stores_of(
        &self,
        run: SlotRun,
    ) -> impl Iterator<Item = ((Slot, KeyspaceId), Store)> + '_ {
        let all = (run.first, KeyspaceId(0))..=(run.last, KeyspaceId(u32::MAX));
        self.stores.range(all).map(|(at, store)| (*at, *store))
    }

    /// How many keys some copies have.
    pub(in crate::site::machine) fn keys_of(&self, run: SlotRun) -> u64 {
        self.stores_of(run).map(|(_, store)| store.count).sum()
    }
}

impl Value for Option<SlotCopy> {
    const TABLE: u8 = tables::COPIES;
}

impl super::Modes {
    /// The copy of a slot, as far as it has come.
    pub(in crate::site::machine) fn copy_of(&self, slot: Slot) -> Option<SlotCopy> {
        let mut copy = *self.copies.by_slot.get(slot)?;
        if !self.copies.unfed.contains(slot)
            && let Some(mirror) = self.mirrors.0.get(&copy.origin)
        {
            copy.position = mirror.revision;
        }
        Some(copy)
    }

    /// A slot up to which all have the same copy as this one, or none.
    pub(super) fn same_copy_until(&self, slot: Slot) -> Slot {
        self.copies.by_slot.run_at(slot).0.min(self.copies.unfed.run_at(slot).0)
    }
}

impl<S: State> Applying<'_, S> {
    /// Copies come into the place of what copies there are. What is remembered with them is moved
    /// separately.
    pub(super) fn put_copy(
        &mut self,
        run: SlotRun,
        copy: SlotCopy,
        mut stores: Stores,
        is_fed: bool,
    ) {
        self.drop_copy(run);
        for ((slot, keyspace), store) in &stores {
            let owner = Owner::Copied { keyspace: *keyspace, slot: *slot };
            self.modes.owners.insert(store.generation, owner);
            self.overlay.put(tables::copied(*keyspace, *slot), row::encode(store));
        }
        let copies = &mut self.modes.copies;
        copies.rows.note(run);
        copies.by_slot.set(run, Some(copy));
        copies.stores.append(&mut stores);
        if !is_fed {
            copies.unfed.insert_run(run);
        }
    }

    /// No stream feeds these copies any more: they stay as they are.
    pub(super) fn unfeed(&mut self, slots: &SlotSet) {
        for slots in slots.runs() {
            let modes = &self.modes;
            let alike: Vec<SlotRun> = slots.cut(|slot| modes.same_copy_until(slot)).collect();
            for run in alike {
                let Some(copy) = self.modes.copy_of(run.first) else { continue };
                if self.modes.copies.unfed.contains(run.first) {
                    continue;
                }
                self.modes.copies.unfed.insert_run(run);
                self.modes.copies.rows.note(run);
                self.modes.copies.by_slot.set(run, Some(copy));
                self.starve(copy.origin, run);
            }
        }
    }

    /// The mirror of a site feeds these slots no more.
    fn starve(&mut self, origin: SiteId, run: SlotRun) {
        if let Some(mirror) = self.modes.mirrors.0.get_mut(&origin) {
            let before = mirror.complete.len();
            mirror.complete.set(run, None);
            if mirror.complete.len() != before {
                self.modes.mirrors.1.insert(origin);
            }
        }
    }

    /// Brings the copies that changed into the state.
    pub(in crate::site::machine) fn write_copies(&mut self) {
        let Copies { rows, by_slot, .. } = &mut self.modes.copies;
        rows.write(&mut self.overlay, None, |slot| {
            let (last, copy) = by_slot.run_at(slot);
            (last, copy.copied())
        });
    }

    /// Takes copies away, without their records and what is remembered with them.
    pub(super) fn remove_copy(&mut self, slots: SlotRun) -> Stores {
        let modes = &self.modes;
        let alike: Vec<SlotRun> = slots.cut(|slot| modes.same_copy_until(slot)).collect();
        for run in alike {
            let Some(copy) = self.modes.copies.by_slot.get(run.first) else { continue };
            let origin = copy.origin;
            match self.modes.copies.unfed.contains(run.first) {
                true => self.modes.copies.unfed.remove_run(run),
                false => self.starve(origin, run),
            }
            self.modes.copies.by_slot.set(run, None);
            self.modes.copies.rows.note(run);
        }
        let stores: Stores = self.modes.copies.stores_of(slots).collect();
        for (at, store) in &stores {
            self.modes.copies.stores.remove(at);
            self.overlay.remove(tables::copied(at.1, at.0));
            self.modes.owners.remove(&store.generation);
        }
        stores
    }

    /// Throws copies away.
    pub(super) fn drop_copy(&mut self, run: SlotRun) {
        let stores = self.remove_copy(run);
        stores.into_values().for_each(|store| self.discard(store.generation));
        self.drop_answers(run, Whose::Copied);
    }

    /// Where a fed copy has a keyspace's records.
    pub(super) fn copied_store(&self, keyspace: KeyspaceId, slot: Slot) -> Option<Store> {
        self.modes.copies.stores.get(&(slot, keyspace)).copied()
    }

    /// Gives a keyspace's records of a copy another place, or none, or counts them anew.
    pub(super) fn set_copied_store(
        &mut self,
        keyspace: KeyspaceId,
        slot: Slot,
        store: Option<Store>,
    ) {
        if !self.modes.copies.by_slot.contains(slot) {
            return;
        }
        let stores = &mut self.modes.copies.stores;
        let old = match store {
            Some(store) => stores.insert((slot, keyspace), store),
            None => stores.remove(&(slot, keyspace)),
        };
        let is_other = old.map(|old| old.generation) != store.map(|store| store.generation);
        if let Some(old) = old.filter(|_| is_other) {
            self.modes.owners.remove(&old.generation);
            self.discard(old.generation);
        }
        match store {
            Some(store) => {
                self.modes.owners.insert(store.generation, Owner::Copied { keyspace, slot });
                self.overlay.put(tables::copied(keyspace, slot), row::encode(&store));
            }
            None => self.overlay.remove(tables::copied(keyspace, slot)),
        }
    }

    /// A copied record expires here. Only the slot's owner reports that to other sites.
    pub(in crate::site::machine) fn expire_copied(
        &mut self,
        keyspace: KeyspaceId,
        slot: Slot,
        key: &[u8],
    ) {
        if let Some(store) = self.copied_store(keyspace, slot) {
            self.overlay.remove(tables::record(store.generation, key));
            let store = Store { count: store.count.saturating_sub(1), ..store };
            self.set_copied_store(keyspace, slot, Some(store));
        }
    }

    /// A keyspace is dropped.
    pub(super) fn drop_copied(&mut self, keyspace: KeyspaceId) {
        let of_keyspace = self.modes.copies.stores.keys().filter(|(_, id)| *id == keyspace);
        let slots: Vec<Slot> = of_keyspace.map(|(slot, _)| *slot).collect();
        slots.into_iter().for_each(|slot| self.set_copied_store(keyspace, slot, None));
    }
}

impl<S: State> super::Machine<S> {
    /// The copy of a slot.
    pub fn copy_of(&self, slot: Slot) -> Option<SlotCopy> {
        self.modes.copy_of(slot)
    }

    /// The slots of which this site has a copy that no stream feeds.
    pub fn unfed(&self) -> &SlotSet {
        &self.modes.copies.unfed
    }

    /// The copies here, and how many keys are in each.
    pub fn copies(&self) -> impl Iterator<Item = (Slot, SlotCopy, u64)> + '_ {
        self.modes.copies.by_slot.slots().filter_map(|slot| {
            let keys = self.modes.copies.keys_of(SlotRun::one(slot));
            Some((slot, self.modes.copy_of(slot)?, keys))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Epoch, Tag};
    use wire::row::Code;

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
