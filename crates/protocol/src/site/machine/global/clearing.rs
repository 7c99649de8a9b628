//! Clearing a keyspace with loans.
//!
//! A site clears what it serves. Of the groups that it lends the copy stays, as their borrowers
//! have them still; the groups that it has borrowed become empty, which the owners of their slots
//! get in the next report.

use super::Applying;
use super::lending::group_records;
use super::lineage::Whose;
use super::store::Store;
use super::{MachineError, Stopped};
use crate::global::ownership::lending::Part;
use model::{Bytes, Group, KeyspaceId, Refusal, SlotRun, limits};
use storage::state::State;

/// Records by their group.
type Copies = Vec<(Group, Vec<(Bytes, Bytes)>)>;

impl<S: State> Applying<'_, S> {
    /// Whether a keyspace may be cleared, as far as its loans are concerned. A group that changes
    /// hands is served by no site, so no site would clear it.
    pub(in crate::site::machine) fn check_clear_loans(
        &mut self,
        keyspace: KeyspaceId,
    ) -> Result<(), Refusal> {
        let loans = &self.modes.loans;
        let of_keyspace = |group: &Group| group.keyspace == keyspace;
        let mut rows = loans.own_rows().filter(|(group, _)| of_keyspace(group));
        let leaves =
            rows.any(|(group, row)| !row.is_taken && self.modes.slots.serves(group.slot()));
        let mut parts = loans.parts().filter(|(group, _)| of_keyspace(group));
        let goes_back =
            parts.any(|(_, part)| matches!(part.borrowed.part, Part::Frozen | Part::Unconfirmed));
        if leaves || goes_back {
            return Err(Refusal::NotGlobal(
                "be cleared while groups of it change hands; try again",
            ));
        }
        let copies = match self.copies_of_lent(keyspace) {
            Ok(copies) => copies,
            Err(error) => {
                self.failed = Some(error);
                return Ok(());
            }
        };
        let records = copies.iter().flat_map(|(_, records)| records);
        let bytes: usize = records.map(|(key, row)| key.len() + row.len()).sum();
        if bytes > limits::LENT_BYTES_CLEARED_MAX {
            return Err(Refusal::NotGlobal(
                "be cleared while so much of it is lent; clear it at its borrowers first, or drop it",
            ));
        }
        Ok(())
    }

    /// Throws away what this site serves of a global keyspace.
    pub(in crate::site::machine) fn clear_served(
        &mut self,
        keyspace: KeyspaceId,
    ) -> Result<(), MachineError> {
        let copies = self.copies_of_lent(keyspace)?;
        self.clear_slots(keyspace);
        for (group, records) in copies {
            let at = (keyspace, group.slot());
            self.place_in_slot(keyspace, group.slot());
            for (key, row) in records {
                self.put_at_home(at, &key, Some(&row))?;
            }
        }
        self.clear_borrowed(keyspace)
    }

    fn copies_of_lent(&self, keyspace: KeyspaceId) -> Result<Copies, MachineError> {
        let mut copies = Vec::new();
        for (group, _) in self.modes.loans.rows_of(Whose::Own, SlotRun::ALL) {
            let slot = group.slot();
            if group.keyspace != keyspace || !self.modes.slots.serves(slot) {
                continue;
            }
            let Some(store) = self.modes.slots.store(keyspace, slot) else { continue };
            let records = group_records(&self.overlay, store.generation, &group.tag)?;
            copies.push((group.clone(), records.into_iter().collect()));
        }
        Ok(copies)
    }

    fn clear_borrowed(&mut self, keyspace: KeyspaceId) -> Result<(), MachineError> {
        let parts = self.modes.loans.parts().map(|(group, part)| (group.clone(), *part));
        let parts: Vec<_> = parts.filter(|(group, _)| group.keyspace == keyspace).collect();
        for (group, part) in parts {
            if !self.modes.serves_part(&group) || part.keys == 0 {
                continue;
            }
            let generation = part.generation;
            let mut store = Store { generation, count: part.keys };
            for key in group_records(&self.overlay, generation, &group.tag)?.into_keys() {
                store.count = match self.stage(store, &key, None) {
                    Ok(count) => count,
                    Err(Stopped::Failed(error)) => return Err(error),
                    Err(_) => store.count,
                };
            }
            self.modes.loans.change_part(&group, |part| (part.keys, part.bytes) = (store.count, 0));
            self.touch(&group);
        }
        Ok(())
    }
}
