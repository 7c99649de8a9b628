//! The streams of the sites that have this one as their backup.
//!
//! A mirror is a handover that never ends: what another site owns of global keyspaces comes in
//! chunks, each a command, and then what changes behind them. A slot *grows* apart until everything
//! of it has come once; then it is a copy ([`super::copies`]) in the place of what copy there was,
//! and the stream feeds it. After a chunk with that mark the mirror is *caught up*: every slot that
//! it feeds is as it was at one revision of the original, which is the position of these copies.
//!
//! The stream's number is the generation of its copies. What it feeds no more stays as it is. When
//! the original has another backup, its stream goes on here until the original ends it, or until it
//! feeds nothing more: the new backup does not have everything at once.
//!
//! ```text
//! m from 0             → row of a [`Mirror`]   (wire::row)
//! m from 1             → row of the slots that are fed, with their epochs
//! n from keyspace slot → row of a [`Store`], of slots that grow
//! ```

use super::Applying;
use super::Owner;
use super::copies::Copies;
use super::elsewhere::Elsewhere;
use super::lineage::Whose;
use super::ownership::FAILOVER_OPEN;
use super::query::{self, ReadContext};
use super::receiving::Received;
use super::store::Store;
use super::stores::{EMPTY, Stores, stores_in};
use super::{Machine, MachineError, Stopped, tables};
use crate::bugs::Bug;
use crate::global::ownership::Records;
use crate::stream::receiver::numbered_anew;
use model::{
    Answer, BackupError, BySlot, Bytes, Epoch, KeySlots, KeyspaceId, MirrorStep, Query, Reached,
    Refusal, SiteId, Slot, SlotCopy, SlotEpochs, SlotRun, SlotSet, StagedItem, Tag,
};
use std::collections::{BTreeMap, BTreeSet};
use storage::state::{Read, State};
use wire::row;

/// The mirror of one site.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mirror {
    /// Its number: later ones are higher.
    pub number: u64,
    /// How many chunks have come.
    pub chunks: u64,
    /// The original's revision that it was last caught up with; 0: never.
    pub revision: u64,
    /// When that was, by this site's log time.
    pub caught_up_ms: u64,
    /// How many slots the original held then.
    pub holds: u32,
    /// The slots that it feeds, at the original's epochs.
    pub complete: BySlot<Epoch>,
    resume: Bytes,
    /// Where slots grow.
    pub(in crate::site::machine) stores: BTreeMap<(KeyspaceId, Slot), Store>,
}

row!(Mirror { number, chunks, revision, caught_up_ms, holds, resume; complete, stores });

impl Mirror {
    /// Whether it has all that its site holds.
    pub(crate) fn is_complete(&self) -> bool {
        self.complete.len() == self.holds as usize
    }

    fn complete(&self) -> SlotEpochs {
        SlotEpochs::of_runs(self.complete.runs().map(|(run, epoch)| (run, *epoch)))
    }
}

/// The mirrors of all sites that have this one as their backup, and the sites with old rows of fed
/// slots.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::site::machine) struct Mirrors(
    pub(in crate::site::machine) BTreeMap<SiteId, Mirror>,
    pub(in crate::site::machine) BTreeSet<SiteId>,
);

impl Mirrors {
    pub(in crate::site::machine) fn load(state: &impl Read) -> Result<Mirrors, MachineError> {
        let damaged = |table: u8| MachineError::Damaged { table: table as char };
        let mut all = BTreeMap::<SiteId, Mirror>::new();
        for (key, row) in super::rows(state, tables::MIRRORS)? {
            let read = (|| {
                let (from, part) = tables::parse_mirror(&key)?;
                match part {
                    0 => drop(all.insert(from, row::decode(&row)?)),
                    _ => {
                        let complete: SlotEpochs = row::decode(&row)?;
                        all.get_mut(&from)?.complete = complete.runs().collect();
                    }
                }
                Some(())
            })();
            read.ok_or_else(|| damaged(tables::MIRRORS))?;
        }
        for (key, row) in super::rows(state, tables::MIRRORED)? {
            let read = (|| {
                let (from, at) = tables::parse_mirrored(&key)?;
                all.get_mut(&from)?.stores.insert(at, row::decode(&row)?);
                Some(())
            })();
            read.ok_or_else(|| damaged(tables::MIRRORED))?;
        }
        Ok(Mirrors(all, BTreeSet::new()))
    }

    /// Marks the copies that are fed.
    pub(in crate::site::machine) fn bind(&self, copies: &mut Copies) {
        for (from, mirror) in &self.0 {
            for (slots, epoch) in mirror.complete.runs() {
                let tag = Tag { epoch: *epoch, generation: mirror.number };
                let alike: Vec<SlotRun> = slots.cut(|slot| copies.by_slot.run_at(slot).0).collect();
                for run in alike {
                    let here = copies.by_slot.get(run.first);
                    if here.is_some_and(|here| here.tag == tag && here.origin == *from) {
                        copies.unfed.remove_run(run);
                    }
                }
            }
        }
    }

    /// The generations under which mirrored records lie, and their owners.
    pub(in crate::site::machine) fn owners(&self) -> impl Iterator<Item = (u64, Owner)> + '_ {
        self.0.iter().flat_map(|(from, mirror)| {
            let owner = |(keyspace, slot)| Owner::Mirrored { from: *from, keyspace, slot };
            mirror.stores.iter().map(move |(at, store)| (store.generation, owner(*at)))
        })
    }
}

impl super::Modes {
    /// The streams that come here from sites with another backup.
    fn former_originals(&self) -> impl Iterator<Item = (SiteId, &Mirror)> {
        let fed_here = &self.deployment.backs_up;
        let mirrors = self.mirrors.0.iter().map(|(site, mirror)| (*site, mirror));
        mirrors.filter(|(site, _)| !fed_here.contains(site))
    }
}

impl<S: State> Applying<'_, S> {
    pub(in crate::site::machine) fn mirror(
        &mut self,
        from: SiteId,
        number: u64,
        step: &MirrorStep,
    ) -> Result<Answer, Stopped> {
        self.member()?;
        if self.has_left(from) {
            return Err(Refusal::from(BackupError::Outdated).into());
        }
        if self.is_parted_from(from) {
            return Err(FAILOVER_OPEN.into());
        }
        let known = self.modes.mirrors.0.get(&from).map(|mirror| mirror.number);
        if !self.modes.deployment.backs_up.contains(&from) && known != Some(number) {
            return Err(Refusal::from(BackupError::NotTheBackup).into());
        }
        if known.is_some_and(|known| known > number) {
            return Err(Refusal::from(BackupError::Outdated).into());
        }
        match step {
            MirrorStep::Begin => {
                if known == Some(number) {
                    self.forget_parts(from, |_| true);
                    // None of an earlier leader is taken among those that come now.
                    if let Some(mirror) = self.modes.mirrors.0.get_mut(&from) {
                        mirror.chunks = numbered_anew(mirror.chunks);
                    }
                    self.write_mirror(from, false);
                } else {
                    self.forget_mirror(from);
                    let mirror = Mirror { number, ..Mirror::default() };
                    self.modes.mirrors.0.insert(from, mirror);
                    self.write_mirror(from, true);
                }
                Ok(self.mirrored(from, true))
            }
            MirrorStep::Chunk { .. } if known != Some(number) => {
                Err(Refusal::from(BackupError::NotTheBackup).into())
            }
            MirrorStep::Chunk { sequence, resume, gone, items, reached } => {
                if self.modes.mirrors.0[&from].chunks == *sequence {
                    self.take_mirror_chunk(from, gone, items, reached.as_ref(), resume)?;
                }
                Ok(self.mirrored(from, false))
            }
        }
    }

    fn mirrored(&self, from: SiteId, with_slots: bool) -> Answer {
        let mirror = &self.modes.mirrors.0[&from];
        let complete = if with_slots { mirror.complete() } else { SlotEpochs::default() };
        Answer::Mirrored { chunks: mirror.chunks, resume: mirror.resume.clone(), complete }
    }

    fn take_mirror_chunk(
        &mut self,
        from: SiteId,
        gone: &SlotSet,
        items: &[StagedItem],
        reached: Option<&Reached>,
        resume: &Bytes,
    ) -> Result<(), Stopped> {
        self.check_chunk(items)?;
        if !gone.is_empty() {
            self.forget_parts(from, |slot| gone.contains(slot));
            let complete = &self.modes.mirrors.0[&from].complete;
            let alike = gone.runs().flat_map(|run| run.cut(|slot| complete.run_at(slot).0));
            let fed: SlotSet = alike.filter(|run| complete.contains(run.first)).collect();
            self.unfeed(&fed);
        }
        let mut touched = BTreeSet::new();
        let mut elsewhere = Elsewhere::default();
        for item in items {
            self.take_mirror_item(from, item, &mut elsewhere, &mut touched)?;
        }
        for at in touched {
            self.write_mirrored(from, at);
        }
        let own_log_time_ms = self.known.head.log_time_ms;
        let mirror = self.modes.mirrors.0.get_mut(&from).expect("it was found just now");
        mirror.chunks += 1;
        mirror.resume = resume.clone();
        if let Some(reached) = reached {
            mirror.revision = reached.revision.0;
            mirror.holds = reached.holds;
            for (slots, epoch) in &reached.complete.0 {
                for run in self.alike(slots) {
                    self.complete(from, run, *epoch);
                }
            }
            // Slots that are still to be copied are older than the changes of the others.
            let mirror = self.modes.mirrors.0.get_mut(&from).expect("it was found just now");
            if mirror.is_complete() {
                mirror.caught_up_ms = own_log_time_ms;
            }
        }
        self.write_mirror(from, !gone.is_empty());
        Ok(())
    }

    /// Everything of slots that are alike has come once: they are copies, if the rules take them.
    fn complete(&mut self, from: SiteId, run: SlotRun, epoch: Epoch) {
        let Some(mirror) = self.modes.mirrors.0.get(&from) else { return };
        let tag = Tag { epoch, generation: mirror.number };
        let copy = SlotCopy { tag, origin: from, position: mirror.revision };
        let mut is_taken = false;
        self.step(run, |holding, fences| {
            is_taken = holding.may_be_fed(tag, from, fences);
            match is_taken {
                true => holding.fed(tag, from, fences),
                false => Records::Stay,
            }
        });
        if !is_taken {
            for at in self.growing(from, run) {
                self.forget_mirrored(from, at);
            }
            return self.drop_answers(run, Whose::Mirrored(from));
        }
        // It is fed already: what was sent of it came into the copy itself. (What is fed is
        // distinguished from what is not by the copy, so slots that are alike are all fed or none
        // is.)
        let mirror = self.modes.mirrors.0.get(&from);
        if mirror.is_some_and(|mirror| mirror.complete.get(run.first) == Some(&epoch)) {
            return;
        }
        let mut stores = Stores::new();
        for at in self.growing(from, run) {
            if let Some(store) = self.take_mirrored(from, at) {
                self.modes.owners.remove(&store.generation);
                stores.insert((at.1, at.0), store);
            }
        }
        self.put_copy(run, copy, stores, true);
        self.move_answers(run, Whose::Mirrored(from), Whose::Copied);
        let mirror = self.modes.mirrors.0.get_mut(&from).expect("it was found just now");
        mirror.complete.set(run, Some(epoch));
        self.modes.mirrors.1.insert(from);
    }

    /// Where records of slots grow in a mirror.
    fn growing(&self, from: SiteId, run: SlotRun) -> Vec<(KeyspaceId, Slot)> {
        let Some(mirror) = self.modes.mirrors.0.get(&from) else { return Vec::new() };
        let globals = self.known.keyspaces.globals().into_iter();
        let stores = globals.flat_map(|id| stores_in(&mirror.stores, id, run));
        stores.map(|(at, _)| at).collect()
    }

    fn take_mirror_item(
        &mut self,
        from: SiteId,
        item: &StagedItem,
        elsewhere: &mut Elsewhere,
        touched: &mut BTreeSet<(KeyspaceId, Slot)>,
    ) -> Result<(), Stopped> {
        if let StagedItem::Cleared { keyspace } = item {
            self.forget_keyspace_of(from, *keyspace);
            touched.retain(|(of, _)| of != keyspace);
            return Ok(());
        }
        let whose = |at: &Self, slot| match at.modes.mirrors.0[&from].complete.contains(slot) {
            true => Whose::Copied,
            false => Whose::Mirrored(from),
        };
        let Some(Received { at, key, row }) = self.receive(item, elsewhere, whose)? else {
            return Ok(());
        };
        if self.modes.mirrors.0[&from].complete.contains(at.1) {
            return self.take_fed_item(at, key, row.as_ref());
        }
        let owner = Owner::Mirrored { from, keyspace: at.0, slot: at.1 };
        let store = self.modes.mirrors.0[&from].stores.get(&at).copied();
        let store = store.unwrap_or_else(|| self.new_store(owner));
        let count = self.stage(store, key, row.as_ref())?;
        let mirror = self.modes.mirrors.0.get_mut(&from).expect("it was found just now");
        mirror.stores.insert(at, Store { count, ..store });
        touched.insert(at);
        Ok(())
    }

    fn take_fed_item(
        &mut self,
        (keyspace, slot): (KeyspaceId, Slot),
        key: &[u8],
        row: Option<&Bytes>,
    ) -> Result<(), Stopped> {
        let store = match self.copied_store(keyspace, slot) {
            Some(store) => store,
            None if row.is_none() => return Ok(()),
            None => Store { generation: self.next_generation(), count: 0 },
        };
        let count = self.stage(store, key, row)?;
        self.set_copied_store(keyspace, slot, Some(Store { count, ..store }));
        Ok(())
    }

    /// The time has come of a record that grows.
    pub(in crate::site::machine) fn expire_mirrored(
        &mut self,
        from: SiteId,
        at: (KeyspaceId, Slot),
        key: &[u8],
    ) {
        let Some(mirror) = self.modes.mirrors.0.get_mut(&from) else { return };
        if let Some(store) = mirror.stores.get_mut(&at) {
            store.count = store.count.saturating_sub(1);
            self.overlay.remove(tables::record(store.generation, key));
            self.write_mirrored(from, at);
        }
    }

    /// A keyspace is dropped.
    pub(in crate::site::machine) fn drop_mirrored(&mut self, keyspace: KeyspaceId) {
        self.drop_copied(keyspace);
        let sites: Vec<SiteId> = self.modes.mirrors.0.keys().copied().collect();
        for from in sites {
            self.forget_keyspace_of(from, keyspace);
        }
    }

    fn forget_keyspace_of(&mut self, from: SiteId, keyspace: KeyspaceId) {
        let Some(mirror) = self.modes.mirrors.0.get(&from) else { return };
        let stores: Vec<_> =
            mirror.stores.keys().filter(|(of, _)| *of == keyspace).copied().collect();
        let copied = mirror.complete.runs().flat_map(|(run, _)| self.modes.copies.stores_of(run));
        let copied: Vec<_> = copied.map(|(at, _)| at).filter(|(_, of)| *of == keyspace).collect();
        stores.into_iter().for_each(|at| self.forget_mirrored(from, at));
        copied.into_iter().for_each(|(slot, _)| self.set_copied_store(keyspace, slot, None));
    }

    fn forget_parts(&mut self, from: SiteId, is_one: impl Fn(Slot) -> bool) {
        let Some(mirror) = self.modes.mirrors.0.get(&from) else { return };
        let stores: Vec<_> = mirror.stores.keys().filter(|at| is_one(at.1)).copied().collect();
        stores.into_iter().for_each(|at| self.forget_mirrored(from, at));
        self.drop_all_answers(Whose::Mirrored(from), is_one);
    }

    fn forget_mirrored(&mut self, from: SiteId, at: (KeyspaceId, Slot)) {
        if let Some(store) = self.take_mirrored(from, at) {
            self.modes.owners.remove(&store.generation);
            self.discard(store.generation);
        }
    }

    /// Takes a store out of a mirror.
    pub(super) fn take_mirrored(&mut self, from: SiteId, at: (KeyspaceId, Slot)) -> Option<Store> {
        let store = self.modes.mirrors.0.get_mut(&from)?.stores.remove(&at)?;
        self.overlay.remove(tables::mirrored(from, at.0, at.1));
        Some(store)
    }

    /// Ends a stream: what it fed stays, what grew goes.
    pub(super) fn forget_mirror(&mut self, from: SiteId) {
        let Some(mirror) = self.modes.mirrors.0.get(&from) else { return };
        let fed: SlotSet = mirror.complete.runs().map(|(run, _)| run).collect();
        self.unfeed(&fed);
        self.forget_parts(from, |_| true);
        self.modes.mirrors.0.remove(&from);
        self.overlay.remove(tables::mirror(from, 0));
        self.overlay.remove(tables::mirror(from, 1));
    }

    /// Ends the streams of sites that have another backup now, and of which nothing here is fed.
    pub(super) fn follow_backups(&mut self) {
        let others = self.modes.former_originals();
        let others: Vec<_> = others.map(|(site, mirror)| (site, mirror.complete.clone())).collect();
        for (site, complete) in others {
            let drops = self.modes.planted.is(Bug::DropMirror);
            if complete.is_empty() || drops || self.has_left(site) {
                self.forget_mirror(site);
            }
            if drops {
                complete.runs().for_each(|(run, _)| self.drop_copy(run));
            }
        }
    }

    /// Brings the rows of fed slots into the state.
    pub(in crate::site::machine) fn write_mirrors(&mut self) {
        for from in std::mem::take(&mut self.modes.mirrors.1) {
            self.write_mirror(from, true);
        }
    }

    fn write_mirror(&mut self, from: SiteId, with_slots: bool) {
        let Some(mirror) = self.modes.mirrors.0.get(&from) else { return };
        self.overlay.put(tables::mirror(from, 0), row::encode(mirror));
        if with_slots {
            self.overlay.put(tables::mirror(from, 1), row::encode(&mirror.complete()));
        }
    }

    fn write_mirrored(&mut self, from: SiteId, at: (KeyspaceId, Slot)) {
        let Some(mirror) = self.modes.mirrors.0.get(&from) else { return };
        let Some(store) = mirror.stores.get(&at) else { return };
        self.overlay.put(tables::mirrored(from, at.0, at.1), row::encode(store));
    }
}

impl<S: State> Machine<S> {
    /// The mirrors that are kept here.
    pub fn mirrors(&self) -> &BTreeMap<SiteId, Mirror> {
        &self.modes.mirrors.0
    }

    /// The slots with copies that this site does not keep as a backup: no stream feeds them, or one
    /// of a site that has another backup by now.
    pub fn spare_copies(&self) -> SlotSet {
        let mut spare = self.modes.copies.unfed.clone();
        for (_, mirror) in self.modes.former_originals() {
            mirror.complete.runs().for_each(|(run, _)| spare.insert_run(run));
        }
        spare
    }

    /// The streams that feed copies of some of these slots, by their number.
    pub fn streams_of(&self, slots: &SlotSet) -> Vec<(SiteId, u64)> {
        let feeds = |Mirror { complete, .. }: &Mirror| {
            let mut alike = slots.runs().flat_map(|run| run.cut(|slot| complete.run_at(slot).0));
            alike.any(|run| complete.contains(run.first))
        };
        let mirrors = self.modes.mirrors.0.iter().filter(|(_, mirror)| feeds(mirror));
        mirrors.map(|(site, mirror)| (*site, mirror.number)).collect()
    }

    /// The origin of this site's copy of a slot, unless another site is known to own it at a later
    /// epoch.
    pub fn mirror_of(&self, slot: Slot) -> Option<SiteId> {
        let copy = self.modes.copy_of(slot)?;
        let own = self.modes.deployment.member.as_ref()?.own;
        let later = self.modes.owner(slot).filter(|(_, known)| *known > copy.tag.epoch);
        (later.is_none() && copy.origin != own).then_some(copy.origin)
    }

    /// How many keys are in the copies that a mirror feeds.
    pub fn mirrored_keys(&self, from: SiteId) -> u64 {
        let Some(mirror) = self.modes.mirrors.0.get(&from) else { return 0 };
        mirror.complete.runs().map(|(run, _)| self.modes.copies.keys_of(run)).sum()
    }

    /// Answers a query from the copy of a slot that a site owned.
    ///
    /// # Errors
    /// [`Refusal::NotHeld`] if there is no copy of it.
    pub fn ask_mirror(
        &self,
        from: SiteId,
        keyspace: KeyspaceId,
        query: &Query,
    ) -> Result<Answer, Stopped> {
        let slot = match query.key_slots() {
            KeySlots::One(slot) => slot,
            KeySlots::Several => return Err(Refusal::CrossSlot.into()),
            KeySlots::Nowhere => {
                return Err(Refusal::NotGlobal("do this without naming a key").into());
            }
        };
        let copy = self.modes.copies.by_slot.get(slot);
        copy.filter(|copy| copy.origin == from).ok_or(Refusal::NotHeld(slot))?;
        let store = self.modes.copies.stores.get(&(slot, keyspace));
        let context = ReadContext {
            read: &self.state,
            generation: store.map_or(EMPTY, |store| store.generation),
            log_time_ms: self.known.head.log_time_ms,
            count: None,
            // A mirror is behind its site, so nothing can be built on what it lacks.
            point: model::ReadPoint::default(),
            due_by: None,
        };
        query::answer(&context, query, &mut 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn format_1_stays_as_it_is() {
        let mirror = Mirror {
            number: 5,
            chunks: 6,
            revision: 300,
            caught_up_ms: 8,
            holds: 9,
            resume: Bytes::from_static(b"xy"),
            complete: [1, 2, 9]
                .map(|slot| (Slot::new(slot).unwrap(), Epoch::counted(3)))
                .into_iter()
                .collect(),
            stores: BTreeMap::new(),
        };
        let row = row::encode(&mirror);
        assert_eq!(row, [1, 5, 6, 0xac, 2, 8, 9, 2, b'x', b'y']);
        let read: Mirror = row::decode(&row.into()).unwrap();
        assert_eq!(Mirror { complete: mirror.complete.clone(), ..read }, mirror);
        assert_eq!(row::encode(&mirror.complete()), [1, 1, 2, 1, 2, 9, 9, 3]);
    }
}
