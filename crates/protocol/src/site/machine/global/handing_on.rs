//! Copies that a leaving site hands on: read where they lie, and taken in.
//!
//! They come like what a move brings ([`super::destination`]): in chunks, staged under generations
//! of their own. What arrives so has epoch 0, at which no site owns a slot, so that it can never be
//! installed as a slot that is owned. One command then makes copies of all that is staged, where
//! the rules ([`crate::global::ownership::leaving`]) find nothing better here; the rest is thrown
//! away. Nothing of it is remembered: the leaving site looks at the inventories again.

use super::Applying;
use super::copying::{Gathered, SlotPlace};
use super::destination::{self, Arrival};
use super::lineage::Whose;
use super::stores::{Stores, stores_in};
use super::{Machine, MachineError, Stopped, tables};
use crate::global::ownership::{Records, Token as Right};
use model::{
    Answer, Epoch, HandedOn, MoveError, MoveId, SiteId, Slot, SlotEpochs, SlotRun, SlotSet,
    StagedItem,
};
use storage::state::State;

/// The slot at which copies go on, and where in it.
pub(crate) type Place = (Slot, SlotPlace);

fn is_of_copies(arrival: &Arrival) -> bool {
    arrival.slots.0.iter().all(|(_, epoch)| *epoch == Epoch::default())
}

impl<S: State> Applying<'_, S> {
    pub(super) fn begin_copies(&mut self, id: MoveId, slots: &SlotSet) -> Result<Answer, Stopped> {
        self.forget_copies_of(|from| from == id.from);
        let member = self.member()?;
        let stays = member.registry.staying().any(|site| site.id == member.own);
        if !stays || self.has_left(id.from) {
            return Err(MoveError::NoDestination.into());
        }
        if self.is_parted_from(id.from) {
            return Err(super::ownership::FAILOVER_OPEN.into());
        }
        let slots = SlotEpochs(vec![(slots.clone(), Epoch::default())]);
        let arrival = Arrival { slots, ..Arrival::default() };
        self.overlay.put(tables::of_move(tables::ARRIVALS, id), wire::row::encode(&arrival));
        let answer = destination::staged(&arrival);
        self.modes.arrivals.under_way.insert(id, arrival);
        Ok(answer)
    }

    pub(super) fn take_copies(
        &mut self,
        id: MoveId,
        chunks: u64,
        copies: &[HandedOn],
    ) -> Result<Answer, Stopped> {
        let arrival = self.modes.arrivals.under_way.get(&id).filter(|one| is_of_copies(one));
        if arrival.is_none_or(|one| one.chunks != chunks) {
            return Err(MoveError::NotReady("chunks are missing").into());
        }
        let mut arrival = self.modes.arrivals.under_way.remove(&id).expect("it was found just now");
        let globals = self.known.keyspaces.globals();
        for one in copies {
            for run in self.alike(&one.slots) {
                let known = match one.owner {
                    Some((to, epoch)) => Right::Gone { epoch, to },
                    None => Right::Never,
                };
                let mut is_taken = false;
                self.step(run, |holding, fences| {
                    is_taken = holding.take_copy(one.copy, known, id.from, fences);
                    Records::Stay
                });
                if !is_taken {
                    continue;
                }
                let mut stores = Stores::new();
                for keyspace in &globals {
                    for (at, store) in stores_in(&arrival.stores, *keyspace, run) {
                        arrival.stores.remove(&at);
                        self.overlay.remove(tables::staged(id, *keyspace, at.1));
                        self.modes.owners.remove(&store.generation);
                        stores.insert((at.1, *keyspace), store);
                    }
                }
                self.put_copy(run, one.copy, stores, false);
                self.move_answers(run, Whose::Staged(id), Whose::Copied);
            }
        }
        // What was not taken.
        self.modes.arrivals.under_way.insert(id, arrival);
        self.forget_arrival(id);
        Ok(Answer::Installed)
    }

    /// Throws away copies that have not come to their end.
    pub(super) fn forget_copies_of(&mut self, is_one: impl Fn(SiteId) -> bool) {
        let all = self.modes.arrivals.under_way.iter();
        let of_copies = all.filter(|(id, one)| is_one(id.from) && is_of_copies(one));
        let ids: Vec<MoveId> = of_copies.map(|(id, _)| *id).collect();
        ids.into_iter().for_each(|id| self.forget_arrival(id));
    }
}

impl<S: State> Machine<S> {
    /// A chunk of the copies of some slots, from a place on, and where to go on; `None`: that was
    /// all.
    ///
    /// # Errors
    /// When the state cannot be read.
    pub(crate) fn copied_chunk(
        &self,
        slots: &SlotSet,
        from: Option<Place>,
    ) -> Result<(Vec<StagedItem>, Option<Place>), MachineError> {
        let mut gathered = Gathered::default();
        let first = from.as_ref().map(|(slot, _)| *slot);
        for slot in slots.iter().filter(|slot| first.is_none_or(|first| *slot >= first)) {
            if !self.modes.copies.by_slot.contains(slot) {
                continue;
            }
            let at = from.as_ref().filter(|(of, _)| *of == slot).map(|(_, at)| at);
            if at.is_none() {
                let rows = self.modes.loans.items_of(Whose::Copied, slot);
                rows.into_iter().for_each(|item| gathered.push(item));
            }
            let kinds = [Whose::Copied];
            let stopped_at = match at {
                None => self.copy_answers(slot, &kinds, None, &mut gathered)?,
                Some(SlotPlace::Answer(whose, at)) => {
                    self.copy_answers(slot, &kinds, Some((*whose, *at)), &mut gathered)?
                }
                Some(SlotPlace::Record(..)) => None,
            };
            if let Some(at) = stopped_at {
                self.send_time(&mut gathered.items);
                return Ok((gathered.items, Some((slot, at))));
            }
            for ((_, keyspace), store) in self.modes.copies.stores_of(SlotRun::one(slot)) {
                let key = match at {
                    Some(SlotPlace::Record(of, _)) if *of > keyspace => continue,
                    Some(SlotPlace::Record(of, key)) if *of == keyspace => &key[..],
                    _ => b"",
                };
                let (_, until) = tables::records(store.generation);
                let prefix_bytes = tables::record_prefix_bytes(store.generation);
                let mut stopped_at = None;
                self.state.scan(
                    &tables::record(store.generation, key),
                    Some(&until),
                    &mut |at, row| {
                        let key = at.slice(prefix_bytes..);
                        if gathered.is_full() {
                            stopped_at = Some(key);
                            return false;
                        }
                        gathered.push(StagedItem::Record { keyspace, key, row });
                        true
                    },
                )?;
                if let Some(key) = stopped_at {
                    self.send_time(&mut gathered.items);
                    return Ok((gathered.items, Some((slot, SlotPlace::Record(keyspace, key)))));
                }
            }
        }
        self.send_time(&mut gathered.items);
        Ok((gathered.items, None))
    }
}
