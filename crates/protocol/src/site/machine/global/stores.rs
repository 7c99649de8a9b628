//! Where the records of global keyspaces lie: one generation a keyspace and slot.
//!
//! A global keyspace has no generation of its own. Each of its slots has one, made when something
//! is first put there, so that a slot's records are one range: it can be copied, taken over from a
//! move that brought it, and forgotten, each by one small command whatever it holds. What a move
//! brings lies under generations that no slot has yet, until the slots are installed.
//!
//! ```text
//! s keyspace slot → row of a [`Store`]   (wire::row)
//! T bucket        → tokens                          (tokens.rs, slot_rows.rs)
//! ```

use super::Applying;
use super::Owner;
use super::keys::Place;
use super::slot_rows::{self, Stale};
use super::store::Store;
use super::tokens::{Token, Tokens};
use super::{MachineError, tables};
use model::{KeyspaceId, Slot, SlotRun, SlotSet};
use std::collections::{BTreeMap, BTreeSet};
use storage::state::{Read, State};
use wire::row;

/// A generation under which nothing lies: of a slot that nothing was put in.
pub(in crate::site::machine) const EMPTY: u64 = u64::MAX;

/// Where the records of some slots lie.
pub(super) type Stores = BTreeMap<(Slot, KeyspaceId), Store>;

/// Of some stores those of a keyspace's slots.
pub(super) fn stores_in(
    stores: &BTreeMap<(KeyspaceId, Slot), Store>,
    keyspace: KeyspaceId,
    run: SlotRun,
) -> Vec<((KeyspaceId, Slot), Store)> {
    let in_run = stores.range((keyspace, run.first)..=(keyspace, run.last));
    in_run.map(|(at, store)| (*at, *store)).collect()
}

/// The tokens and stores of a site.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::site::machine) struct Slots {
    tokens: Tokens,
    token_rows: Stale,
    stores: BTreeMap<(KeyspaceId, Slot), Store>,
    /// Whether a failover takes this site for lost: then it serves none of them.
    fenced: bool,
    /// Whose rows are older than they are.
    recounted: BTreeSet<(KeyspaceId, Slot)>,
    /// What readers do not know yet.
    pub(in crate::site::machine) dirty: Dirty,
}

/// What changed since it was last published to readers.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::site::machine) struct Dirty {
    /// They know nothing: the state is another one.
    pub(in crate::site::machine) everything: bool,
    pub(in crate::site::machine) tokens: SlotSet,
    pub(in crate::site::machine) stores: BTreeSet<(KeyspaceId, Slot)>,
}

impl Slots {
    /// `holds_all`: whether this site began its deployment; `None`: it belongs to none.
    pub(in crate::site::machine) fn load(
        state: &impl Read,
        holds_all: Option<bool>,
    ) -> Result<Slots, MachineError> {
        let damaged = |table: u8| MachineError::Damaged { table: table as char };
        let mut slots = Slots::default();
        slots.dirty.everything = true;
        if let Some(holds_all) = holds_all {
            slots.tokens = Tokens::all_first(holds_all);
            slots.dirty.tokens = SlotSet::all();
        }
        slot_rows::load(state, |run, token| slots.tokens.set(run, *token))?;
        for (key, row) in super::rows(state, tables::STORES)? {
            let at = tables::parse_store(&key);
            let (at, store) = at.zip(row::decode(&row)).ok_or_else(|| damaged(tables::STORES))?;
            slots.stores.insert(at, store);
            slots.dirty.stores.insert(at);
        }
        Ok(slots)
    }

    /// The tokens of the site that began the deployment, or of one that has entered it.
    pub(in crate::site::machine) fn begin(&mut self, holds_all: bool) {
        self.tokens = Tokens::all_first(holds_all);
        self.token_rows.note(SlotRun::ALL);
        self.dirty.tokens = SlotSet::all();
    }

    pub(in crate::site::machine) fn token(&self, slot: Slot) -> Token {
        self.tokens.get(slot)
    }

    /// The token of a slot, and a slot up to which all have the same.
    pub(in crate::site::machine) fn token_run(&self, slot: Slot) -> (Slot, Token) {
        self.tokens.run_at(slot)
    }

    /// Whether a slot is served here.
    pub(in crate::site::machine) fn serves(&self, slot: Slot) -> bool {
        !self.fenced && self.token(slot).serves()
    }

    /// Whether a failover takes this site for lost, from now on. Whether that is dirty.
    pub(in crate::site::machine) fn fence(&mut self, fenced: bool) -> bool {
        let is_news = std::mem::replace(&mut self.fenced, fenced) != fenced;
        if is_news {
            self.dirty.tokens = SlotSet::all();
        }
        is_news
    }

    pub(in crate::site::machine) fn store(
        &self,
        keyspace: KeyspaceId,
        slot: Slot,
    ) -> Option<Store> {
        self.stores.get(&(keyspace, slot)).copied()
    }

    /// The stores of some of a keyspace's slots.
    pub(super) fn stores_of(
        &self,
        keyspace: KeyspaceId,
        run: SlotRun,
    ) -> Vec<((KeyspaceId, Slot), Store)> {
        stores_in(&self.stores, keyspace, run)
    }

    /// Each store with its keyspace and slot.
    pub(in crate::site::machine) fn stores(
        &self,
    ) -> impl Iterator<Item = ((KeyspaceId, Slot), Store)> + '_ {
        self.stores.iter().map(|(at, store)| (*at, *store))
    }

    /// How many keys of a keyspace lie in slots that are served here.
    pub(in crate::site::machine) fn count(&self, keyspace: KeyspaceId) -> u64 {
        let of_keyspace = self.stores.iter().filter(|((id, _), _)| *id == keyspace);
        let served = of_keyspace.filter(|((_, slot), _)| self.serves(*slot));
        served.map(|(_, store)| store.count).sum()
    }

    /// One key more or less.
    pub(in crate::site::machine) fn recount(&mut self, keyspace: KeyspaceId, slot: Slot, by: i64) {
        if let Some(store) = self.stores.get_mut(&(keyspace, slot)) {
            store.count = store.count.saturating_add_signed(by);
            self.recounted.insert((keyspace, slot));
        }
    }
}

/// A token by the state.
pub(in crate::site::machine) fn token(
    state: &impl Read,
    slot: Slot,
    holds_all: bool,
) -> Result<Token, MachineError> {
    Ok(slot_rows::find(state, slot)?.unwrap_or_else(|| Tokens::first(holds_all)))
}

/// A token and where a keyspace's records of the slot lie, by the state.
pub(in crate::site::machine) fn look(
    state: &impl Read,
    keyspace: KeyspaceId,
    slot: Slot,
    holds_all: bool,
) -> Result<(Token, Option<Store>), MachineError> {
    let store = match state.get(&tables::store(keyspace, slot))? {
        Some(row) => {
            let damaged = MachineError::Damaged { table: tables::STORES as char };
            Some(row::decode(&row).ok_or(damaged)?)
        }
        None => None,
    };
    Ok((token(state, slot, holds_all)?, store))
}

/// All stores of a keyspace, by the state, in the order of their slots.
pub(in crate::site::machine) fn of_keyspace(
    state: &impl Read,
    keyspace: KeyspaceId,
) -> Result<Vec<(Slot, Store)>, MachineError> {
    let from = tables::of_keyspace(tables::STORES, keyspace);
    let mut until = from.clone();
    until.extend_from_slice(&[0xff, 0xff]);
    let mut stores = Vec::new();
    let mut is_damaged = false;
    state.scan(&from, Some(&until), &mut |key, row| {
        let store = tables::parse_store(&key).zip(row::decode(&row));
        is_damaged |= store.is_none();
        stores.extend(store.map(|((_, slot), store)| (slot, store)));
        !is_damaged
    })?;
    match is_damaged {
        true => Err(MachineError::Damaged { table: tables::STORES as char }),
        false => Ok(stores),
    }
}

impl<S: State> Applying<'_, S> {
    /// Where a write to a slot of a global keyspace works; room is made for it.
    pub(in crate::site::machine) fn place_in_slot(
        &mut self,
        keyspace: KeyspaceId,
        slot: Slot,
    ) -> Place {
        let generation = match self.modes.slots.store(keyspace, slot) {
            Some(store) => store.generation,
            None => {
                let generation = self.next_generation();
                self.set_store(keyspace, slot, Some(Store { generation, count: 0 }));
                generation
            }
        };
        Place { keyspace, slot: Some(slot), generation }
    }

    /// Gives a slot's records another place, or none; what was there before has no owner.
    pub(super) fn set_store(&mut self, keyspace: KeyspaceId, slot: Slot, store: Option<Store>) {
        let slots = &mut self.modes.slots;
        slots.dirty.stores.insert((keyspace, slot));
        let old = match store {
            Some(store) => {
                slots.recounted.insert((keyspace, slot));
                slots.stores.insert((keyspace, slot), store)
            }
            None => {
                slots.recounted.remove(&(keyspace, slot));
                self.overlay.remove(tables::store(keyspace, slot));
                slots.stores.remove(&(keyspace, slot))
            }
        };
        if let Some(old) = old {
            self.modes.owners.remove(&old.generation);
            if old.count > 0 {
                self.discard(old.generation);
            }
        }
        if let Some(store) = store {
            self.modes.owners.insert(store.generation, Owner::Slot(keyspace, slot));
        }
    }

    /// Takes away where the records of slots lie, without them.
    pub(super) fn take_stores(&mut self, run: SlotRun) -> Stores {
        let mut stores = Stores::new();
        for keyspace in self.known.keyspaces.globals() {
            let slots = &mut self.modes.slots;
            for (at, store) in stores_in(&slots.stores, keyspace, run) {
                slots.stores.remove(&at);
                slots.dirty.stores.insert(at);
                slots.recounted.remove(&at);
                self.overlay.remove(tables::store(keyspace, at.1));
                self.modes.owners.remove(&store.generation);
                stores.insert((at.1, keyspace), store);
            }
        }
        stores
    }

    /// Changes tokens.
    pub(in crate::site::machine) fn set_token(&mut self, run: SlotRun, token: Token) {
        self.modes.slots.tokens.set(run, token);
        self.modes.slots.dirty.tokens.insert_run(run);
        self.modes.slots.token_rows.note(run);
    }

    /// Brings the tokens that changed into the state.
    pub(in crate::site::machine) fn write_tokens(&mut self) {
        let founder = self.modes.deployment.member.as_ref().is_some_and(|member| member.founder);
        let Slots { token_rows, tokens, .. } = &mut self.modes.slots;
        token_rows.write(&mut self.overlay, Tokens::first(founder), |slot| tokens.run_at(slot));
    }

    /// Throws away what the served slots of a keyspace hold.
    pub(super) fn clear_slots(&mut self, keyspace: KeyspaceId) {
        let stores: Vec<_> =
            self.modes.slots.stores().filter(|((id, _), _)| *id == keyspace).collect();
        for ((_, slot), _) in stores {
            if self.modes.slots.serves(slot) {
                self.set_store(keyspace, slot, None);
            }
        }
    }

    /// Throws away all that a dropped keyspace held.
    pub(in crate::site::machine) fn drop_stores(&mut self, keyspace: KeyspaceId) {
        let stores: Vec<_> =
            self.modes.slots.stores().filter(|((id, _), _)| *id == keyspace).collect();
        for ((_, slot), _) in stores {
            self.set_store(keyspace, slot, None);
        }
    }

    /// Brings the counts that changed into the state.
    pub(in crate::site::machine) fn write_stores(&mut self) {
        for (keyspace, slot) in std::mem::take(&mut self.modes.slots.recounted) {
            let Some(store) = self.modes.slots.store(keyspace, slot) else { continue };
            self.overlay.put(tables::store(keyspace, slot), row::encode(&store));
        }
    }
}
