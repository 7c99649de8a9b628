//! A site's causal keyspaces anew, from the root: when the site has been away, or is new, and the
//! root keeps no more of the order that it lacks.
//!
//! What comes is *staged* under generations that no keyspace has, while the site goes on to show
//! the prefix that it has imported, under its own writes. It is the root's records, read while the
//! root goes on, and the order from before the first of them until behind the last:
//!
//! > staged(register) = the last assignment in the order from `start` to `upto`, else what its
//! > record showed.
//!
//! A record shows all that the root had imported when it was read, and no chunk has a record that
//! is older than the order before it. So an assignment is missing for a moment at most, until the
//! order comes that has it. Of the root's own writes without a position a record may show some: the
//! source switches behind them. Then what is staged is the order up to `upto`, and nothing else.
//!
//! Own writes are staged by their positions like those of others. Those which have one are kept, no
//! more pending, some with each command ([`super::own`]); the *switch* makes the rest again on top, with their revisions, and has the keyspaces hold what is staged, all in one command. A
//! keyspace of which nothing came is empty then. No position of an absent key is kept, as a read of
//! nothing counts as all that the site shows.
//!
//! What has come is numbered like chunks of a handover (`destination`): the leader that asks what
//! there is sends the rest. A resync is named by its start, so that nothing late of an earlier one
//! is taken. If the order was trimmed beyond what has come, it begins anew. Nothing is imported
//! meanwhile.

use super::super::records::Record;
use super::super::store::Store;
use super::super::{Applying, Machine, tables};
use super::assign::{Becomes, assigned, expiry_after};
use super::bridging::{Keeps, keeps};
use super::fetch::with_position;
use super::registers::Pending;
use super::retries::{self, Number, Open};
use super::{MachineError, Stopped, causals, retry_rows, rows};
use crate::bugs::Bug;
use crate::stream::receiver::numbered_anew;
use model::{
    Answer, Bytes, Effect, KeyspaceId, Kind, NO_SITE, Position, Refusal, Registers, Resync as Step,
    ResyncItem, Revision, SiteId, limits,
};
use std::collections::{BTreeMap, BTreeSet};
use storage::state::{Read as _, State};
use wire::row;

/// A resync under way at its destination.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Resync {
    /// Its name: the order has come from here on …
    pub(super) start: Position,
    /// … up to here.
    pub(super) upto: Position,
    /// The last own write with a position up to there.
    pub(super) ordered: Revision,
    /// The number that the next chunk must have.
    pub(super) chunks: u64,
    pub(super) resume: Bytes,
    pub(super) stores: BTreeMap<KeyspaceId, Store>,
    /// The last revision of each site with a position up to there, and that, of what was brought.
    pub(super) sites: BTreeMap<SiteId, (Revision, Position)>,
    /// Retried writes up to there.
    pub(super) retries: BTreeMap<Number, Open>,
}

impl Resync {
    fn staged(&self) -> Answer {
        Answer::Staged { chunks: self.chunks, resume: self.resume.clone() }
    }
}

/// A part of the records of all causal keyspaces.
#[derive(Debug, Default)]
pub struct Records {
    /// The records, with positions that are not before their own.
    pub items: Vec<ResyncItem>,
    /// The last of them; `None`: there are no more.
    pub last: Option<(KeyspaceId, Bytes)>,
}

impl<S: State> Machine<S> {
    /// At the root: the records of causal keyspaces behind one, of those that are asked for, as
    /// many as fit so many bytes, and the first one whatever it takes.
    ///
    /// # Errors
    /// When the state cannot be read.
    pub fn causal_records(
        &self,
        after: Option<&(KeyspaceId, Bytes)>,
        bytes_max: usize,
        is_asked_for: &dyn Fn(KeyspaceId) -> bool,
    ) -> Result<Records, MachineError> {
        let first = after.map_or(KeyspaceId(0), |(keyspace, _)| *keyspace);
        let (mut found, mut bytes) = (Records::default(), 0_usize);
        let all = causals(&self.known.keyspaces).into_iter();
        for keyspace in all.filter(|id| *id >= first && is_asked_for(*id)) {
            let Some(generation) = self.known.keyspaces.generation(keyspace) else { continue };
            let (mut from, until) = tables::records(generation);
            if let Some((_, key)) = after.filter(|(of, _)| *of == keyspace) {
                from = tables::record(generation, key).to_vec();
                from.push(0);
            }
            let prefix = tables::record_prefix_bytes(generation);
            let (mut rows, mut is_full) = (Vec::new(), false);
            self.state.scan(&from, Some(&until), &mut |key, row| {
                is_full = bytes > 0 && bytes + row.len() > bytes_max;
                if !is_full {
                    bytes += key.len() + row.len();
                    rows.push((key.slice(prefix..), row));
                }
                !is_full
            })?;
            for (key, row) in rows {
                let row = with_position(row, self.causal().applied())?;
                found.last = Some((keyspace, key.clone()));
                found.items.push(ResyncItem::Record { keyspace, key, row });
            }
            if is_full {
                return Ok(found);
            }
        }
        found.last = None;
        Ok(found)
    }

    /// How many keys the causal keyspaces hold.
    pub fn causal_keys(&self) -> u64 {
        let keyspaces = &self.known.keyspaces;
        causals(keyspaces).into_iter().map(|id| keyspaces.count(id)).sum()
    }
}

/// The row of a record after an assignment that leaves some registers as they are, where nothing is
/// pending; `None`: it is the same.
pub(super) fn row_after(
    old: Option<Record>,
    effect: &Effect,
    of: (SiteId, Revision),
    kept: Option<&Registers>,
    (version, position): (Revision, u64),
) -> Result<Option<Option<Bytes>>, MachineError> {
    let (expiry, kept) = (old.as_ref().and_then(Record::agreed), Pending::default().and(kept));
    let new_expiry = expiry_after(expiry, effect, of, &kept);
    let old = old.filter(|record| !record.is_vacant);
    let becomes = assigned(old.as_ref(), effect, &kept)?.becomes;
    let row_of = |kind, payload: &[u8]| {
        Record::encode_agreed(kind, version, new_expiry, position, &[payload])
    };
    Ok(Some(match (becomes, &old) {
        (Becomes::Same, _) if expiry == new_expiry => return Ok(None),
        (Becomes::Same, Some(record)) => Some(row_of(record.kind, &record.payload)),
        (Becomes::Record(kind, payload, _), _) => Some(row_of(kind, &payload)),
        (Becomes::Absent(_), _) | (Becomes::Same, None) => {
            new_expiry.map(|_| row_of(Kind::Hash, &[]))
        }
    }))
}

impl<S: State> Applying<'_, S> {
    pub(super) fn resync(&mut self, step: &Step) -> Result<Answer, Stopped> {
        if let Step::Begin { epoch, floor, start, ordered, resume } = step {
            let new = Resync {
                start: *start,
                upto: *start,
                ordered: *ordered,
                resume: resume.clone(),
                ..Resync::default()
            };
            return self.begin_resync(*epoch, *floor, new);
        }
        let Some(mut resync) = self.modes.causal.resync.take() else {
            return Err(Refusal::NotCausal("take what was not begun").into());
        };
        let outcome = match step {
            Step::Chunk { start, sequence, resume, items }
                if (*start, *sequence) == (resync.start, resync.chunks) =>
            {
                self.take_resynced(&mut resync, items).map(|()| {
                    resync.chunks += 1;
                    resync.resume = resume.clone();
                    self.overlay.put(rows::RESYNC.to_vec(), row::encode(&resync));
                    resync.staged()
                })
            }
            Step::Switch { start, chunks, upto }
                if (*start, *chunks, *upto) == (resync.start, resync.chunks, resync.upto) =>
            {
                match self.may_switch(&resync) {
                    Ok(true) => return self.switch(resync),
                    Ok(false) => Ok(resync.staged()),
                    Err(stopped) => Err(stopped),
                }
            }
            // It came before, or one before it is missing.
            _ => Ok(resync.staged()),
        };
        self.modes.causal.resync = Some(resync);
        outcome
    }

    fn begin_resync(
        &mut self,
        epoch: u16,
        floor: Position,
        new: Resync,
    ) -> Result<Answer, Stopped> {
        let (region, own) = (*self.region()?, self.member()?.own);
        if region.epoch != epoch || region.root == own {
            let what = "get its keys from another site: it is the root, or in another epoch";
            return Err(Refusal::NotCausal(what).into());
        }
        if self.is_frozen() {
            let what =
                "get its keys from another site: it is a standby that is about to be the root";
            return Err(Refusal::NotCausal(what).into());
        }
        let head = &self.modes.causal.head;
        if head.applied >= floor {
            return Ok(Answer::Installed);
        }
        // A restored site gets those that it lacks with the keys.
        let lacked = self.modes.causal.lacks_own();
        let is_lacked = lacked.is_some_and(|(_, upto)| new.ordered <= upto);
        if new.ordered > head.last && !is_lacked {
            let what =
                "go on from a state that lacks writes of this site which its region has ordered";
            return Err(Refusal::NotCausal(what).into());
        }
        let under_way = self.modes.causal.resync.take();
        let (mut resync, is_new) = match under_way {
            Some(resync) if resync.upto >= floor => (resync, false),
            old => {
                self.modes.causal.resync = old;
                self.drop_resync()?;
                (new, true)
            }
        };
        resync.chunks = numbered_anew(resync.chunks);
        if is_new && self.has_regions() {
            // What comes brings the order along.
            self.forget_kept_order()?;
        }
        self.take_back(resync.ordered)?;
        self.settle_brought(resync.ordered)?;
        self.overlay.put(rows::RESYNC.to_vec(), row::encode(&resync));
        let answer = resync.staged();
        self.modes.causal.resync = Some(resync);
        Ok(answer)
    }

    /// All of a chunk, or nothing of it.
    fn take_resynced(&mut self, resync: &mut Resync, items: &[ResyncItem]) -> Result<(), Stopped> {
        let own = self.member()?.own;
        let next = self.known.head.keyspace_next;
        for item in items {
            let (ResyncItem::Record { keyspace, .. }
            | ResyncItem::Entry { write: model::CausalWrite { keyspace, .. }, .. }) = item
            else {
                continue;
            };
            if keyspace.0 >= next {
                // The registry that has it is on its way.
                return Err(Refusal::NoKeyspace(keyspace.to_string()).into());
            }
        }
        self.next_revision();
        let mut touched = BTreeSet::new();
        for item in items {
            let keyspace = match item {
                ResyncItem::Record { keyspace, .. } => *keyspace,
                ResyncItem::Entry { write, .. } => write.keyspace,
                ResyncItem::Retried(retry) => {
                    let (number, open) = retries::brought(retry);
                    self.overlay.put(retry_rows::of_staged_open(number), row::encode(&open));
                    resync.retries.insert(number, open);
                    continue;
                }
                ResyncItem::Ordered { site, revision, position } => {
                    self.stage_ordered(resync, *site, (*revision, *position));
                    continue;
                }
                ResyncItem::Earlier { position, site, write } => {
                    if self.keeps_order() {
                        self.put_kept(*position, *site, write);
                    }
                    continue;
                }
            };
            if let ResyncItem::Entry { position, site, write } = item {
                resync.upto = resync.upto.max(*position);
                if self.keeps_order() {
                    self.put_kept(*position, *site, write);
                }
                if *site != NO_SITE {
                    self.stage_ordered(resync, *site, (write.revision, *position));
                }
                if write.effects.iter().any(retries::opens_or_closes) {
                    let before = resync.retries.clone();
                    retries::follow(&mut resync.retries, *position, write);
                    let is_new =
                        |(number, open): &(&Number, &Open)| before.get(number) != Some(*open);
                    for (number, open) in resync.retries.iter().filter(is_new) {
                        let row = row::encode(open);
                        self.overlay.put(retry_rows::of_staged_open(*number), row);
                    }
                }
                if *site == own {
                    resync.ordered = resync.ordered.max(write.revision);
                }
            }
            // It was dropped in the meantime.
            if self.causal_place(keyspace).is_none() {
                continue;
            }
            let mut store = self.store_of(resync, keyspace);
            let version = self.known.head.revision;
            match item {
                ResyncItem::Record { key, row, .. } => {
                    let record = Record::decode(row.clone())?;
                    let payload = [&record.payload[..]];
                    let (kind, expiry) = (record.kind, record.agreed());
                    let row =
                        Record::encode_agreed(kind, version, expiry, record.position, &payload);
                    store.count = self.stage_agreed(store, key, Some(row))?;
                }
                ResyncItem::Entry { position, site, write } => {
                    let keeps = keeps(write);
                    for effect in &write.effects {
                        let (of, at) = ((*site, write.revision), (version, position.0));
                        store = self.stage_effect(store, effect, of, &keeps, at)?;
                    }
                }
                ResyncItem::Ordered { .. }
                | ResyncItem::Retried(_)
                | ResyncItem::Earlier { .. } => {}
            }
            resync.stores.insert(keyspace, store);
            touched.insert(keyspace);
        }
        for keyspace in touched {
            let row = row::encode(&resync.stores[&keyspace]);
            self.overlay.put(rows::of_staged(keyspace), row);
        }
        self.settle_brought(resync.ordered)?;
        Ok(())
    }

    fn stage_ordered(&mut self, resync: &mut Resync, site: SiteId, to: (Revision, Position)) {
        if resync.sites.get(&site).is_none_or(|known| known.0 < to.0) {
            resync.sites.insert(site, to);
            self.overlay.put(rows::of_staged_site(site), row::encode(&to));
        }
    }

    fn store_of(&mut self, resync: &Resync, keyspace: KeyspaceId) -> Store {
        let store = resync.stores.get(&keyspace).copied();
        store.unwrap_or_else(|| Store { generation: self.next_generation(), count: 0 })
    }

    /// An assignment to what is staged. Where that is then, and how many keys there are.
    fn stage_effect(
        &mut self,
        store: Store,
        effect: &Effect,
        of: (SiteId, Revision),
        keeps: &Keeps<'_>,
        at: (Revision, u64),
    ) -> Result<Store, Stopped> {
        if effect.is_mark() {
            return Ok(store);
        }
        let Some(key) = effect.key() else {
            return self.stage_clear(store, of, keeps, at);
        };
        let row = self.overlay.get(&tables::record(store.generation, key));
        let old = row.map_err(MachineError::from)?.map(Record::decode).transpose()?;
        let is_removal = matches!(effect, Effect::Delete { .. } | Effect::Expire { .. });
        if is_removal && self.modes.planted.is(Bug::ResyncKeepsDeleted) {
            return Ok(store);
        }
        match row_after(old, effect, of, keeps.get(key).copied(), at)? {
            Some(row) => Ok(Store { count: self.stage_agreed(store, key, row)?, ..store }),
            None => Ok(store),
        }
    }

    /// All that is staged goes, but for what is to stay.
    fn stage_clear(
        &mut self,
        store: Store,
        of: (SiteId, Revision),
        keeps: &Keeps<'_>,
        at: (Revision, u64),
    ) -> Result<Store, Stopped> {
        let mut new = Store { generation: self.next_generation(), count: 0 };
        for (key, kept) in keeps {
            let row = self.overlay.get(&tables::record(store.generation, key));
            let Some(row) = row.map_err(MachineError::from)? else { continue };
            let delete = Effect::Delete { key: (*key).clone() };
            let left = row_after(Some(Record::decode(row.clone())?), &delete, of, Some(kept), at)?;
            new.count = self.stage_agreed(new, key, left.unwrap_or(Some(row)))?;
        }
        self.discard(store.generation);
        Ok(new)
    }

    /// Puts a record where it is staged, or removes it. How many keys there are then.
    pub(super) fn stage_agreed(
        &mut self,
        store: Store,
        key: &[u8],
        row: Option<Bytes>,
    ) -> Result<u64, Stopped> {
        let at = tables::record(store.generation, key);
        let head = |row: Option<&[u8]>| row.map(Record::decode_head).transpose();
        let old = self.overlay.look(&at, head).map_err(MachineError::from)??;
        let new = row.as_deref().map(Record::decode_head).transpose()?;
        let agreed = |record: &Option<Record>| record.as_ref().and_then(Record::agreed);
        let count = |record: &Option<Record>| {
            u64::from(record.as_ref().is_some_and(|record| !record.is_vacant))
        };
        self.move_expiry(store.generation, key, agreed(&old), agreed(&new))?;
        match row {
            Some(row) => self.overlay.put(at, row),
            None => self.overlay.remove(at),
        }
        Ok(store.count + count(&new) - count(&old))
    }

    fn may_switch(&mut self, resync: &Resync) -> Result<bool, Stopped> {
        let is_settled = self.settle_brought(resync.ordered)?;
        let left = self.modes.causal.unordered_bytes;
        Ok(is_settled && left <= limits::CAUSAL_RESYNC_UNORDERED_BYTES_MAX)
    }

    fn switch(&mut self, mut resync: Resync) -> Result<Answer, Stopped> {
        let own = self.member()?.own;
        self.next_revision();
        let brought = std::mem::take(&mut resync.retries);
        for number in brought.keys() {
            self.overlay.remove(retry_rows::of_staged_open(*number));
        }
        let retried = self.replace_retries(resync.upto, brought)?;
        for write in rows::own(&self.overlay, resync.ordered, usize::MAX)? {
            if self.causal_place(write.keyspace).is_none() {
                continue;
            }
            let mut store = self.store_of(&resync, write.keyspace);
            for effect in &self.left_of_own(&write) {
                let of = (own, write.revision);
                store = self.stage_effect(store, effect, of, &Keeps::new(), (write.revision, 0))?;
            }
            resync.stores.insert(write.keyspace, store);
        }
        for keyspace in causals(&self.known.keyspaces) {
            let store = self.store_of(&resync, keyspace);
            resync.stores.remove(&keyspace);
            self.replace_records(keyspace, store.generation, store.count);
            self.overlay.remove(rows::of_staged(keyspace));
            self.forget_held(keyspace);
        }
        let (start, upto, ordered) = (resync.start, resync.upto, resync.ordered);
        let sites = resync.sites.clone();
        self.replace_ordered(sites);
        self.show_brought(ordered);
        self.modes.causal.resync = Some(resync);
        self.drop_resync()?;
        let causal = &mut self.modes.causal;
        causal.head.applied = upto;
        causal.is_dirty = true;
        if self.has_regions() {
            self.load_kept_order(start)?;
        }
        self.mark_imported(retried);
        self.follow_root();
        Ok(Answer::Installed)
    }

    /// What the order has of each site, from here on.
    fn replace_ordered(&mut self, sites: BTreeMap<SiteId, (Revision, Position)>) {
        for site in std::mem::take(&mut self.modes.causal.ordered).into_keys() {
            self.overlay.remove(rows::of_site(site));
        }
        for (site, (last, at)) in sites {
            self.note_ordered(site, last, at);
        }
    }

    /// Throws away what a resync has brought. Own writes of which it brought the positions are
    /// pending again.
    pub(super) fn drop_resync(&mut self) -> Result<(), Stopped> {
        let Some(resync) = self.modes.causal.resync.take() else { return Ok(()) };
        self.take_back(self.modes.causal.head.own_ordered)?;
        for number in resync.retries.into_keys() {
            self.overlay.remove(retry_rows::of_staged_open(number));
        }
        for site in resync.sites.into_keys() {
            self.overlay.remove(rows::of_staged_site(site));
        }
        for (keyspace, store) in resync.stores {
            self.overlay.remove(rows::of_staged(keyspace));
            self.discard(store.generation);
        }
        self.overlay.remove(rows::RESYNC.to_vec());
        Ok(())
    }

    /// A keyspace ends here: so does what a resync has brought of it, and what is held on demand.
    pub(in crate::site::machine) fn drop_resynced(&mut self, keyspace: KeyspaceId) {
        self.forget_held(keyspace);
        let Some(resync) = &mut self.modes.causal.resync else { return };
        if let Some(store) = resync.stores.remove(&keyspace) {
            self.overlay.remove(rows::of_staged(keyspace));
            self.discard(store.generation);
        }
    }
}
