//! Which loans of a slot's groups a site has seen and has no part in any more.
//!
//! A borrower takes a loan only above the highest that it has seen of the group. All groups of a
//! slot share the count of loans, so one number for each slot remembers those that are over, of any
//! number of groups: it is the highest of them. A loan below it that was on its way is refused, and
//! its owner keeps the group.
//!
//! ```text
//! F slot → row of the [`Loan`]   (wire::row)
//! ```

use super::{Applying, MachineError, tables};
use crate::global::ownership::lending::Loan;
use model::Slot;
use std::collections::{BTreeMap, BTreeSet};
use storage::state::{Read, State};
use wire::row;

/// The highest loan of each slot that is over here.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Floors {
    by_slot: BTreeMap<Slot, Loan>,
    stale: BTreeSet<Slot>,
}

impl Floors {
    pub(in crate::site::machine) fn load(state: &impl Read) -> Result<Floors, MachineError> {
        let mut all = Floors::default();
        for (key, row) in super::rows(state, tables::FLOORS)? {
            let read = tables::parse_slot(&key[1..]).zip(row::decode(&row));
            let damaged = MachineError::Damaged { table: tables::FLOORS as char };
            let (slot, loan) = read.ok_or(damaged)?;
            all.by_slot.insert(slot, loan);
        }
        Ok(all)
    }

    pub(in crate::site::machine) fn of(&self, slot: Slot) -> Loan {
        self.by_slot.get(&slot).copied().unwrap_or_default()
    }

    pub(super) fn raise(&mut self, slot: Slot, loan: Loan) {
        if self.of(slot) < loan {
            self.by_slot.insert(slot, loan);
            self.stale.insert(slot);
        }
    }
}

impl<S: State> Applying<'_, S> {
    /// Brings what changed into the state.
    pub(super) fn write_floors(&mut self) {
        let floors = &mut self.modes.loans.floors;
        for slot in std::mem::take(&mut floors.stale) {
            self.overlay.put(tables::of_slot(tables::FLOORS, slot), row::encode(&floors.of(slot)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Epoch;

    #[test]
    fn format_1_stays_as_it_is() {
        let loan = Loan { epoch: Epoch::counted(3), count: 300 };
        assert_eq!(row::encode(&loan), [1, 3, 0xac, 2]);
    }
}
