//! The groups of a slot that this site serves, by their names.

use super::lineage::Whose;
use super::{Machine, MachineError, tables};
use crate::global::ownership::lending::Part;
use model::{Group, KeyspaceId, KeyspaceSpec, Loan, SiteId, Slot, SlotRun, limits, tag};
use std::collections::BTreeMap;
use storage::state::State;

/// How this site comes to serve a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    /// It owns the slot.
    AtHome { bytes: u64 },
    /// It has borrowed the group from the owner of the slot.
    Borrowed { owner: SiteId, loan: Loan, bytes: u64 },
}

impl<S: State> Machine<S> {
    /// Whether a keyspace has too many keys in a slot of this site for its groups to be lent.
    pub(crate) fn has_many_keys(&self, keyspace: KeyspaceId, slot: Slot) -> bool {
        let store = self.modes.slots.store(keyspace, slot);
        store.is_some_and(|store| store.count > limits::LOANS_KEYS_EXAMINED_MAX)
    }

    /// The groups with records of a slot that are served here and may be lent, if that is found by
    /// looking at no more than `keys_left` keys; those that were looked at are taken off. Of a slot
    /// with more keys than are ever looked at there are none.
    ///
    /// # Errors
    /// When the state cannot be read.
    pub(crate) fn groups_of(
        &self,
        slot: Slot,
        keys_left: &mut u64,
    ) -> Result<Option<BTreeMap<Group, Held>>, MachineError> {
        let mut groups = BTreeMap::new();
        for (group, part) in self.modes.loans.parts_of(SlotRun::one(slot)) {
            if part.borrowed.part == Part::Held && !self.modes.is_fenced() {
                let (from, until) = tables::records(part.generation);
                let mut bytes = 0;
                self.state.scan(&from, Some(&until), &mut |key, row| {
                    bytes += (key.len() + row.len()) as u64;
                    true
                })?;
                let (owner, loan) = (self.lender(group, part), part.borrowed.loan);
                groups.insert(group.clone(), Held::Borrowed { owner, loan, bytes });
            }
        }
        if !self.modes.slots.serves(slot) {
            return Ok(Some(groups));
        }
        let stores = self.known.keyspaces.each_global().filter_map(|keyspace| {
            let spec =
                self.known.keyspaces.spec(keyspace).filter(|spec| KeyspaceSpec::is_adaptive(spec));
            spec.and_then(|_| Some((keyspace, self.modes.slots.store(keyspace, slot)?)))
        });
        let stores: Vec<_> = stores.collect();
        let keys: u64 = stores.iter().map(|(_, store)| store.count).sum();
        if keys > limits::LOANS_KEYS_EXAMINED_MAX {
            return Ok(Some(groups));
        }
        let Some(left) = keys_left.checked_sub(keys) else { return Ok(None) };
        *keys_left = left;
        for (keyspace, store) in stores {
            let (from, until) = tables::records(store.generation);
            let prefix_bytes = tables::record_prefix_bytes(store.generation);
            self.state.scan(&from, Some(&until), &mut |at, row| {
                let key = at.slice(prefix_bytes..);
                let size = (key.len() + row.len()) as u64;
                let group = Group { keyspace, tag: key.slice_ref(tag(&key)) };
                let held = groups.entry(group).or_insert(Held::AtHome { bytes: 0 });
                if let Held::AtHome { bytes } = held {
                    *bytes += size;
                }
                true
            })?;
        }
        groups.retain(|group, _| self.modes.loans.row(Whose::Own, slot, group).is_none());
        Ok(Some(groups))
    }

    /// Whether clients were answered more about a slot than may go along with a group of it.
    pub(crate) fn has_many_answers(&self, slot: Slot) -> bool {
        let bytes = self.known.clients.sent_bytes(Whose::Own, slot);
        bytes > limits::LOAN_ANSWERS_BYTES_MAX
    }

    /// The groups that this site serves for the owners of their slots, with these.
    pub(crate) fn borrowed_groups(&self) -> impl Iterator<Item = (&Group, SiteId)> + '_ {
        let is_fenced = self.modes.is_fenced();
        let held = self.modes.loans.parts();
        let held = held.filter(move |(_, part)| part.borrowed.part == Part::Held && !is_fenced);
        held.map(|(group, part)| (group, self.lender(group, part)))
    }
}
