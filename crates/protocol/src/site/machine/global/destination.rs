//! Slots that another site hands to this one: the destination's side of a handover.
//!
//! What a move brings is *staged*: it lies under generations that no slot has, so that no read
//! finds it, and a move that comes to nothing is forgotten by one small command. Chunks are taken
//! in their order and once each. *Install* makes the slots this site's, whatever they hold, in one
//! command that does nothing when it was done before; *refuse*, which the source asks for, and
//! *decline* make sure that it never will be.
//!
//! The leader that asks what has come is going to send the rest, and from then on chunks are
//! numbered anew. So no chunk of an earlier leader of the source, which may have cut its chunks
//! elsewhere, is taken among them: between its chunks and those of the next leader something might
//! be missing.
//!
//! How a move ended is remembered until its source reports that it has none open with so low a
//! number, and keeps nothing of one, so that no late message can begin or install it again.
//!
//! ```text
//! i from number                → row of an [`Arrival`]   (wire::row)
//! j from number keyspace slot  → row of a [`Store`]
//! x from number                → 1: installed, 0: refused
//! x from 0                     → (varint) every move of lower numbers has ended
//! ```

use super::Applying;
use super::Owner;
use super::elsewhere::Elsewhere;
use super::lineage::Whose;
use super::ownership::FAILOVER_OPEN;
use super::receiving::Received;
use super::store::Store;
use super::stores::stores_in;
use super::{MachineError, Stopped, tables};
use crate::global::ownership::Records;
use crate::stream::receiver::numbered_anew;
use model::{
    Answer, Bytes, DestinationStep, Epoch, KeyspaceId, MoveError, MoveId, SiteId, Slot, SlotEpochs,
    SlotRun, SlotSet, StagedItem,
};
use std::collections::{BTreeMap, BTreeSet};
use storage::state::{Read, State};
use wire::row;

/// Slots on their way to this site.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arrival {
    /// What comes, and the epochs it is going to have.
    pub slots: SlotEpochs,
    /// Whether they stay here whatever their preferred owner.
    pub pinned: bool,
    /// The number that the next chunk must have.
    pub chunks: u64,
    pub(in crate::site::machine) resume: Bytes,
    pub(in crate::site::machine) stores: BTreeMap<(KeyspaceId, Slot), Store>,
}

row!(Arrival { slots, pinned, chunks, resume; stores });

/// How moves that brought slots ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Settled {
    /// All with lower numbers have.
    floor: u64,
    /// Which were installed, and which refused.
    installed: BTreeMap<u64, bool>,
}

/// The moves that bring slots, and those that did.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::site::machine) struct Arrivals {
    pub(in crate::site::machine) under_way: BTreeMap<MoveId, Arrival>,
    settled: BTreeMap<SiteId, Settled>,
}

impl Arrivals {
    pub(in crate::site::machine) fn load(state: &impl Read) -> Result<Arrivals, MachineError> {
        let damaged = |table: u8| MachineError::Damaged { table: table as char };
        let mut all = Arrivals::default();
        for (key, row) in super::rows(state, tables::ARRIVALS)? {
            let read = tables::parse_move(&key).zip(row::decode(&row));
            let (id, arrival) = read.ok_or_else(|| damaged(tables::ARRIVALS))?;
            all.under_way.insert(id, arrival);
        }
        for (key, row) in super::rows(state, tables::STAGED)? {
            let read = (|| {
                let arrival = all.under_way.get_mut(&tables::parse_move(&key)?)?;
                arrival.stores.insert(tables::parse_staged(&key)?, row::decode(&row)?);
                Some(())
            })();
            read.ok_or_else(|| damaged(tables::STAGED))?;
        }
        for (key, row) in super::rows(state, tables::SETTLED)? {
            let read = tables::parse_move(&key).zip(row::decode_bare(&row));
            let (id, value) = read.ok_or_else(|| damaged(tables::SETTLED))?;
            let settled = all.settled.entry(id.from).or_default();
            match id.number {
                0 => settled.floor = value,
                number => drop(settled.installed.insert(number, value == 1)),
            }
        }
        Ok(all)
    }

    /// The generations under which staged records lie, and their owners.
    pub(in crate::site::machine) fn owners(&self) -> impl Iterator<Item = (u64, Owner)> + '_ {
        self.under_way.iter().flat_map(|(id, arrival)| {
            let owner = |(keyspace, slot)| Owner::Staged { id: *id, keyspace, slot };
            arrival.stores.iter().map(move |(at, store)| (store.generation, owner(*at)))
        })
    }
}

impl<S: State> Applying<'_, S> {
    pub(in crate::site::machine) fn step_at_destination(
        &mut self,
        id: MoveId,
        step: &DestinationStep,
    ) -> Result<Answer, Stopped> {
        self.member()?;
        let settled = self.modes.arrivals.settled.get(&id.from);
        let ended = settled.and_then(|settled| match settled.installed.get(&id.number) {
            Some(installed) => Some(*installed),
            None => (id.number < settled.floor).then_some(false),
        });
        match (ended, step) {
            (Some(true), _) => return Ok(Answer::Installed),
            (Some(false), DestinationStep::Refuse | DestinationStep::Decline) => {
                return Ok(self.refused());
            }
            (Some(false), _) => return Err(MoveError::Refused.into()),
            (None, _) => {}
        }
        match step {
            DestinationStep::Begin { slots, open_from, pinned } => {
                return self.begin_receiving(id, slots, *open_from, *pinned);
            }
            DestinationStep::BeginCopies(slots) => return self.begin_copies(id, slots),
            DestinationStep::TakeCopies { chunks, copies } => {
                return self.take_copies(id, *chunks, copies);
            }
            _ => {}
        }
        if matches!(
            step,
            DestinationStep::Refuse | DestinationStep::Decline | DestinationStep::Install { .. }
        ) && self.is_parted_from(id.from)
        {
            return Err(FAILOVER_OPEN.into());
        }
        if *step == DestinationStep::Refuse {
            let slots = self.modes.arrivals.under_way.get(&id).map(|one| one.slots.clone());
            for (slots, epoch) in slots.unwrap_or_default().0 {
                for run in self.alike(&slots) {
                    self.step(run, |holding, fences| {
                        holding.refuse(epoch, id.from, fences);
                        Records::Stay
                    });
                }
            }
        }
        if matches!(step, DestinationStep::Refuse | DestinationStep::Decline) {
            self.refuse_arrival(id);
            return Ok(self.refused());
        }
        let Some(mut arrival) = self.modes.arrivals.under_way.remove(&id) else {
            return Err(MoveError::NotReady("the move was not begun there").into());
        };
        let outcome = match step {
            DestinationStep::Chunk { sequence, resume, items } if *sequence == arrival.chunks => {
                let taken = self.take_chunk(id, &mut arrival, items);
                taken.map(|()| {
                    arrival.chunks += 1;
                    arrival.resume = resume.clone();
                    self.overlay.put(tables::of_move(tables::ARRIVALS, id), row::encode(&arrival));
                    staged(&arrival)
                })
            }
            DestinationStep::Install { chunks, .. } if *chunks != arrival.chunks => {
                Err(MoveError::NotReady("chunks are missing").into())
            }
            DestinationStep::Install { revision, .. } => {
                let head = &mut self.known.head;
                head.revision = head.revision.max(*revision);
                self.next_revision();
                self.install(id, &arrival);
                return Ok(Answer::Installed);
            }
            // It came before, or one before it is missing.
            _ => Ok(staged(&arrival)),
        };
        self.modes.arrivals.under_way.insert(id, arrival);
        outcome
    }

    fn refused(&self) -> Answer {
        Answer::Done(self.known.head.revision)
    }

    fn begin_receiving(
        &mut self,
        id: MoveId,
        slots: &SlotEpochs,
        open_from: u64,
        pinned: bool,
    ) -> Result<Answer, Stopped> {
        self.close_below(id.from, open_from);
        if self.has_left(id.from) {
            self.refuse_arrival(id);
            return Err(MoveError::Refused.into());
        }
        if self.is_parted_from(id.from) {
            return Err(FAILOVER_OPEN.into());
        }
        self.learn_source(id.from, slots);
        if let Some(arrival) = self.modes.arrivals.under_way.get_mut(&id) {
            arrival.chunks = numbered_anew(arrival.chunks);
            self.overlay.put(tables::of_move(tables::ARRIVALS, id), row::encode(arrival));
            return Ok(staged(arrival));
        }
        let member = self.member()?;
        let own = member.registry.site(member.own);
        let is_new_to_us = |(slots, epoch): &(SlotSet, Epoch)| {
            let newer = |run: &SlotRun| self.modes.slots.token(run.first).epoch() < *epoch;
            self.alike(slots).iter().all(newer)
        };
        if own.is_none_or(|own| own.leaving) || !slots.0.iter().all(is_new_to_us) {
            return Err(MoveError::NoDestination.into());
        }
        let arrival = Arrival { slots: slots.clone(), pinned, ..Arrival::default() };
        self.overlay.put(tables::of_move(tables::ARRIVALS, id), row::encode(&arrival));
        let answer = staged(&arrival);
        self.modes.arrivals.under_way.insert(id, arrival);
        Ok(answer)
    }

    /// The source of a handover owned the slots at the epochs before: this site may be a stale
    /// owner that has not learned of a failover yet.
    fn learn_source(&mut self, source: SiteId, slots: &SlotEpochs) {
        let is_stale = |(run, epoch): (SlotRun, Epoch)| {
            let token = self.modes.holding(run.first).token;
            let before = epoch.before().filter(|before| token.is_own() && token.epoch() < *before);
            before.map(|before| (run, before))
        };
        let runs = slots.0.iter();
        let runs =
            runs.flat_map(|(slots, epoch)| self.alike(slots).into_iter().map(|run| (run, *epoch)));
        let stale = SlotEpochs::of_runs(runs.filter_map(is_stale));
        if !stale.0.is_empty() {
            self.learn_owner(source, &stale);
        }
    }

    fn take_chunk(
        &mut self,
        id: MoveId,
        arrival: &mut Arrival,
        items: &[StagedItem],
    ) -> Result<(), Stopped> {
        self.check_chunk(items)?;
        let mut touched = BTreeSet::new();
        let mut elsewhere = Elsewhere::default();
        for item in items {
            let received = self.receive(item, &mut elsewhere, |_, _| Whose::Staged(id))?;
            let Some(Received { at, key, row }) = received else { continue };
            let owner = Owner::Staged { id, keyspace: at.0, slot: at.1 };
            let store = arrival.stores.get(&at).copied();
            let store = store.unwrap_or_else(|| self.new_store(owner));
            let count = self.stage(store, key, row.as_ref())?;
            arrival.stores.insert(at, Store { count, ..store });
            touched.insert(at);
        }
        for at in touched {
            self.write_staged(id, at, arrival.stores[&at]);
        }
        Ok(())
    }

    /// A staged record's time has come.
    pub(in crate::site::machine) fn expire_staged(
        &mut self,
        id: MoveId,
        keyspace: KeyspaceId,
        slot: Slot,
        key: &[u8],
    ) {
        let Some(mut arrival) = self.modes.arrivals.under_way.remove(&id) else { return };
        if let Some(store) = arrival.stores.get_mut(&(keyspace, slot)) {
            store.count = store.count.saturating_sub(1);
            self.overlay.remove(tables::record(store.generation, key));
            self.write_staged(id, (keyspace, slot), *store);
        }
        self.modes.arrivals.under_way.insert(id, arrival);
    }

    fn write_staged(&mut self, id: MoveId, (keyspace, slot): (KeyspaceId, Slot), store: Store) {
        self.overlay.put(tables::staged(id, keyspace, slot), row::encode(&store));
    }

    /// Whether a site was listed and has left for good.
    pub(in crate::site::machine) fn has_left(&self, site: SiteId) -> bool {
        let member = self.modes.deployment.member.as_ref();
        member.is_some_and(|member| member.registry.has_left(site))
    }

    /// A move is off, for ever.
    pub(super) fn refuse_arrival(&mut self, id: MoveId) {
        self.forget_arrival(id);
        self.settle_move(id, false);
    }

    fn install(&mut self, id: MoveId, arrival: &Arrival) {
        self.learn_source(id.from, &arrival.slots);
        for (slots, epoch) in &arrival.slots.0 {
            for run in self.alike(slots) {
                self.install_run(id, arrival, run, *epoch);
            }
        }
        self.pin(&arrival.slots.slots(), arrival.pinned);
        let globals = self.known.keyspaces.globals();
        for ((keyspace, slot), store) in &arrival.stores {
            self.overlay.remove(tables::staged(id, *keyspace, *slot));
            // It was dropped on the way.
            if !globals.contains(keyspace) {
                self.modes.owners.remove(&store.generation);
                self.discard(store.generation);
            }
        }
        self.overlay.remove(tables::of_move(tables::ARRIVALS, id));
        self.settle_move(id, true);
    }

    fn install_run(&mut self, id: MoveId, arrival: &Arrival, run: SlotRun, epoch: Epoch) {
        let mut is_taken = false;
        let was_own = self.modes.holding(run.first).token.is_own();
        self.step(run, |holding, fences| {
            let records = holding.install(epoch, id.from, fences);
            is_taken = records.is_some();
            records.unwrap_or(Records::Stay)
        });
        let globals = self.known.keyspaces.globals();
        let staged = |id: &KeyspaceId| stores_in(&arrival.stores, *id, run);
        let staged: BTreeMap<_, _> = globals.iter().flat_map(staged).collect();
        // A failover has given it away at a higher epoch.
        if !is_taken {
            for store in staged.into_values() {
                self.modes.owners.remove(&store.generation);
                self.discard(store.generation);
            }
            return self.drop_answers(run, Whose::Staged(id));
        }
        for keyspace in globals {
            for ((_, slot), _) in self.modes.slots.stores_of(keyspace, run) {
                if !staged.contains_key(&(keyspace, slot)) {
                    self.set_store(keyspace, slot, None);
                }
            }
        }
        for ((keyspace, slot), store) in staged {
            self.set_store(keyspace, slot, Some(store));
        }
        self.serve_answers(run, Whose::Staged(id), was_own);
        if let Err(error) = self.recount_lent(run) {
            self.failed = Some(error);
        }
        self.settle_loans(run);
    }

    /// Throws away what a move has brought.
    pub(super) fn forget_arrival(&mut self, id: MoveId) {
        let Some(arrival) = self.modes.arrivals.under_way.remove(&id) else { return };
        for ((keyspace, slot), store) in arrival.stores {
            self.overlay.remove(tables::staged(id, keyspace, slot));
            self.modes.owners.remove(&store.generation);
            self.discard(store.generation);
        }
        self.drop_all_answers(Whose::Staged(id), |_| true);
        self.overlay.remove(tables::of_move(tables::ARRIVALS, id));
    }

    fn settle_move(&mut self, id: MoveId, installed: bool) {
        let settled = self.modes.arrivals.settled.entry(id.from).or_default();
        settled.installed.insert(id.number, installed);
        self.overlay.put(tables::of_move(tables::SETTLED, id), vec![u8::from(installed)]);
    }

    /// The source has no move open with a lower number: whatever is left of such came to nothing.
    fn close_below(&mut self, from: SiteId, number: u64) {
        let old: Vec<MoveId> = self.modes.arrivals.under_way.keys().copied().collect();
        for id in old.into_iter().filter(|id| id.from == from && id.number < number) {
            self.forget_arrival(id);
        }
        let settled = self.modes.arrivals.settled.entry(from).or_default();
        if settled.floor >= number {
            return;
        }
        settled.floor = number;
        let open = settled.installed.split_off(&number);
        let ended = std::mem::replace(&mut settled.installed, open);
        for number in ended.into_keys() {
            self.overlay.remove(tables::of_move(tables::SETTLED, MoveId { from, number }));
        }
        let row = row::encode_bare(&number);
        self.overlay.put(tables::of_move(tables::SETTLED, MoveId { from, number: 0 }), row);
    }
}

pub(in crate::site::machine) fn staged(arrival: &Arrival) -> Answer {
    Answer::Staged { chunks: arrival.chunks, resume: arrival.resume.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn format_1_stays_as_it_is() {
        let arrival = Arrival {
            slots: SlotEpochs(vec![("0-3,9".parse().unwrap(), Epoch::counted(2))]),
            pinned: true,
            chunks: 5,
            resume: Bytes::from_static(b"xy"),
            stores: BTreeMap::new(),
        };
        let row = row::encode(&arrival);
        assert_eq!(row, [1, 1, 2, 0, 3, 9, 9, 2, 1, 5, 2, b'x', b'y']);
    }
}
