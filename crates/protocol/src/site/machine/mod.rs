//! What a site has of its modes: the deployment, global keys and causal keys. `Modes` composes it
//! for the state machine (`crate::machine`), which names none of them.
//!
//! | file | idea |
//! | --- | --- |
//! | [`deployment`] | this site's place in its deployment, the registry, and this site's part in holding it |
//! | [`global`] | global keys: slots, their owners, copies and moves, groups that are lent |
//! | [`causal`] | causal keys: this site's part in its region's order |
//! | `modes` | the composition: which family of commands is whose |
//! | `reader`, `published` | what is read on any thread |
//! | `elsewhere` | times that come from another site |
//! | `store`, `slot_rows` | where some records lie; rows of values by slot |
//!
//! The tables of one mode name nothing of another's. Both use the deployment's: which sites there
//! are, and who is who.

pub mod causal;
pub mod deployment;
mod elsewhere;
pub mod global;
mod modes;
mod published;
mod reader;
mod slot_rows;
mod store;
#[cfg(test)]
mod tests;

pub use crate::machine::{Applied, Committed, MachineError, Stopped, head_of};
pub use modes::Modes;
pub use reader::Reader;

use crate::global::accesses::Accesses;
use crate::machine::{
    apply, changes, expiry, head, keys, keyspaces, lineage, overlay, query, records, rows, tables,
};
use deployment::DeploymentMember;
use global::destination::Arrival;
use global::source::Move;
use global::tokens::Token;
use model::{Bytes, Epoch, MoveId, SiteId, Slot, SlotEpochs, SlotRun, SlotSet};
use std::collections::{BTreeMap, BTreeSet};
use storage::state::State;

/// The state machine of one replica, with the modes of a site.
pub type Machine<S> = crate::machine::Machine<S, Modes>;

/// A batch under way, with the modes of a site.
type Applying<'a, S> = apply::Applying<'a, S, Modes>;

impl From<model::MoveError> for Stopped {
    fn from(error: model::MoveError) -> Stopped {
        Stopped::Refused(error.into())
    }
}

impl<S: State> Machine<S> {
    /// This site's place in its deployment, if it belongs to one.
    pub fn membership(&self) -> Option<&DeploymentMember> {
        self.modes.deployment.member.as_ref()
    }

    /// Whether the site was restored from a backup and has not confirmed what it owns.
    pub fn is_restored(&self) -> bool {
        self.modes.deployment.is_restored()
    }

    /// Whether the site serves no slot until other sites have stated what they own: it was restored
    /// from a backup, or the registry was recovered without it.
    pub fn is_unconfirmed(&self) -> bool {
        self.modes.deployment.unconfirmed.is_some()
    }

    /// The ring's pointers as they were last kept; empty: never.
    pub fn ring(&self) -> &Bytes {
        &self.modes.deployment.ring
    }

    /// This site's record of its right to a slot.
    pub fn token(&self, slot: Slot) -> Token {
        self.modes.slots.token(slot)
    }

    /// The owner of a slot in this site's records: itself, the destination of its own handover, or
    /// a site that registered the slot here.
    pub fn owner(&self, slot: Slot) -> Option<(SiteId, Epoch)> {
        self.modes.owner(slot)
    }

    /// A slot up to which all have the same owner in these records as this one.
    pub fn same_owner_until(&self, slot: Slot) -> Slot {
        self.modes.same_owner_until(slot)
    }

    /// The token of a slot, and a slot up to which all have the same.
    pub fn token_run(&self, slot: Slot) -> (Slot, Token) {
        self.modes.slots.token_run(slot)
    }

    /// These slots in runs that have one token, ascending.
    pub fn tokens<'a>(
        &'a self,
        slots: impl Iterator<Item = SlotRun> + 'a,
    ) -> impl Iterator<Item = (SlotRun, Token)> + 'a {
        let alike = slots.flat_map(|run| run.cut(|slot| self.token_run(slot).0));
        alike.map(|run| (run, self.token(run.first)))
    }

    /// The slots that stay here whatever their preferred owner.
    pub fn pinned(&self) -> &SlotSet {
        &self.modes.deployment.pinned
    }

    /// The moves that give slots away, by number.
    pub fn outgoing(&self) -> &BTreeMap<u64, Move> {
        &self.modes.outgoing
    }

    /// The lowest number of a move of which its destination must remember how it ended.
    pub fn open_from(&self) -> Option<u64> {
        self.modes.outgoing.keys().next().copied()
    }

    /// The epochs that a move's slots are going to have with their destination.
    pub fn epochs_to_give(&self, number: u64, one: &Move) -> SlotEpochs {
        self.modes.epochs_to_give(number, one)
    }

    /// The slots that a move still gives.
    pub fn slots_to_give(&self, number: u64, one: &Move) -> SlotSet {
        self.modes.slots_to_give(number, one)
    }

    /// The moves that bring slots.
    pub fn arrivals(&self) -> &BTreeMap<MoveId, Arrival> {
        &self.modes.arrivals.under_way
    }

    /// The slots whose tokens changed since this was asked last.
    pub fn take_changed_tokens(&mut self) -> SlotSet {
        std::mem::take(&mut self.modes.changed_tokens)
    }

    /// The slots with groups that came here on loan since this was asked last.
    pub(crate) fn take_borrowed_slots(&mut self) -> SlotSet {
        std::mem::take(&mut self.modes.borrowed_slots)
    }

    /// The slots in which something lies here, whether this site may serve them or not.
    pub fn used_slots(&self) -> BTreeSet<Slot> {
        let stores = self.modes.slots.stores().filter(|(_, store)| store.count > 0);
        stores.map(|((_, slot), _)| slot).collect()
    }

    /// How many keys each slot holds here, of all its keyspaces; those that hold none are left out.
    pub fn keys_by_slot(&self) -> BTreeMap<Slot, u64> {
        let mut keys = BTreeMap::new();
        for ((_, slot), store) in self.modes.slots.stores() {
            *keys.entry(slot).or_default() += store.count;
        }
        keys
    }

    /// How many keys a slot's keyspaces hold here.
    pub fn keys_in(&self, slots: &SlotSet) -> u64 {
        let stores = self.modes.slots.stores().filter(|((_, slot), _)| slots.contains(*slot));
        stores.map(|(_, store)| store.count).sum()
    }

    /// What threads note of accesses.
    pub(crate) fn accesses(&self) -> &Accesses {
        &self.published.accesses
    }

    /// A handle that answers queries.
    pub fn reader(&self) -> Reader<S> {
        Reader::new(self.state.clone(), self.published.clone())
    }
}
