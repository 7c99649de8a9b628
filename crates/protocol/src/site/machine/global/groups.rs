//! The groups of a slot that this site serves, by their names.

use super::lineage::Whose;
use super::store::Store;
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

/// The groups that may change hands yet: on its way a group is served nowhere, so no more are than
/// arrive soon.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    groups: usize,
    bytes: u64,
}

impl Room {
    /// What is left when these are on their way: as much as the commands under way at a time take.
    pub(crate) fn beside(on_the_way: impl Iterator<Item = u64>) -> Room {
        let mut room = Room {
            groups: limits::LOANS_INFLIGHT_MAX * limits::LOANS_PER_COMMAND_MAX,
            bytes: (limits::LOANS_INFLIGHT_MAX * limits::LOANS_BYTES_MAX) as u64,
        };
        for bytes in on_the_way {
            room.takes(bytes);
        }
        room
    }

    /// Whether there is room for one more, with so many bytes, which is on its way then. The last
    /// one may be larger than what is left.
    pub(crate) fn takes(&mut self, bytes: u64) -> bool {
        let has_room = self.groups > 0 && self.bytes > 0;
        self.groups = self.groups.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
        has_room
    }
}

impl<S: State> Machine<S> {
    /// How many keys a keyspace has in a slot of this site.
    pub(crate) fn keyspace_keys(&self, keyspace: KeyspaceId, slot: Slot) -> u64 {
        self.modes.slots.store(keyspace, slot).map_or(0, |store| store.count)
    }

    /// Whether adaptive keyspaces have too many keys in a slot of this site for its groups to be
    /// lent.
    pub(crate) fn has_many_keys(&self, slot: Slot) -> bool {
        let keys: u64 = self.adaptive_stores(slot).map(|(_, store)| store.count).sum();
        keys > limits::LOANS_KEYS_EXAMINED_MAX
    }

    /// What adaptive keyspaces have in a slot of this site.
    fn adaptive_stores(&self, slot: Slot) -> impl Iterator<Item = (KeyspaceId, Store)> + '_ {
        self.known.keyspaces.each_global().filter_map(move |keyspace| {
            let spec = self.known.keyspaces.spec(keyspace);
            spec.filter(|spec| KeyspaceSpec::is_adaptive(spec))?;
            Some((keyspace, self.modes.slots.store(keyspace, slot)?))
        })
    }

    /// Room for groups on their way home.
    pub(crate) fn room_home(&self) -> Room {
        // A frozen part is served nowhere until its owner has it, and is due to be reported.
        let due = self.parts_due().filter_map(|(_, group)| self.part(group));
        let frozen = due.filter(|part| part.borrowed.part == Part::Frozen);
        Room::beside(frozen.map(|part| part.bytes))
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
        let stores: Vec<_> = self.adaptive_stores(slot).collect();
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

    /// What groups take that this site has borrowed, and those that it has given back lately.
    pub(crate) fn borrowed_bytes(&self) -> u64 {
        self.modes.loans.parts_bytes()
    }

    /// The groups that this site serves for the owners of their slots, with these.
    pub(crate) fn borrowed_groups(&self) -> impl Iterator<Item = (&Group, SiteId)> + '_ {
        let is_fenced = self.modes.is_fenced();
        let held = self.modes.loans.parts();
        let held = held.filter(move |(_, part)| part.borrowed.part == Part::Held && !is_fenced);
        held.map(|(group, part)| (group, self.lender(group, part)))
    }
}
