//! Reading beside the thread that applies.
//!
//! A point read looks at one row of the state as it is, and at what the machine has published
//! beside it (the log time, the keyspaces' generations). The machine counts up before and after
//! each commit: a read that saw the same even count before and after itself saw all of that at one
//! moment, and any other one is done again, with all of it from the state while that stands still.

use super::causal::{NOT_HELD, is_held};
use super::global::stores::EMPTY;
use super::global::tokens::Token;
use super::global::{loans, stores};
use super::head::Head;
use super::published::Published;
use super::query::{self, DueBy, Extent, ReadContext, Served};
use super::{MachineError, Stopped, changes, deployment, expiry, keyspaces, tables};
use crate::global::accesses::Accessed;
use crate::global::ownership::lending::Part;
use crate::machine::keys::check_key;
use crate::origin::Caller;
use crate::origin::ServedUnder;
use crate::replica::{Pace, Readable};
use model::{
    Answer, Bytes, Catalog, Change, ChangeKind, DeploymentId, Epoch, Group, KeySlots, KeyspaceId,
    Query, ReadPoint, Refusal, Revision, Slot,
};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use storage::state::{Read, State};

/// A handle that answers queries on any thread while the machine goes on.
///
/// It sees at least everything that [`super::Machine::apply`] had returned from when the query
/// began, each entry whole or not at all. Whether that is fresh enough is not decided here.
#[derive(Clone, Debug)]
pub struct Reader<S> {
    state: S,
    published: Arc<Published>,
}

/// Answers a query from a state that does not change.
pub(super) fn answer_at(
    read: &impl Read,
    keyspace: KeyspaceId,
    query: &Query,
    due_by: DueBy<'_>,
) -> Result<Answer, Stopped> {
    let Head { log_time_ms, revision, .. } = Head::load(read)?;
    let Some((generation, is_global)) = keyspaces::look(read, keyspace)? else {
        return Err(Refusal::NoKeyspace(keyspace.to_string()).into());
    };
    if !is_global {
        let count = match query {
            Query::Count => Some(keyspaces::tally(read, keyspace)?.count),
            _ => None,
        };
        let point = ReadPoint { revision, epoch: Epoch::counted(0) };
        return query::answer(
            &ReadContext { read, generation, log_time_ms, count, point, due_by },
            query,
            &mut 0,
        );
    }
    let holds_all = deployment::is_founder(read)?;
    let slot = match query.key_slots() {
        KeySlots::One(slot) => slot,
        KeySlots::Several => return Err(Refusal::CrossSlot.into()),
        KeySlots::Nowhere => {
            let (served, count) = served(read, keyspace, holds_all)?;
            let point = ReadPoint::default();
            return match query {
                Query::Count => {
                    let count = Some(count);
                    let context =
                        ReadContext { read, generation: EMPTY, log_time_ms, count, point, due_by };
                    query::answer(&context, query, &mut 0)
                }
                _ => query::scan_slots(read, log_time_ms, due_by, &served, query),
            };
        }
    };
    query.keys().iter().try_for_each(|key| check_key(key))?;
    let (generation, epoch) = look(read, (keyspace, slot), query, holds_all)?;
    let point = ReadPoint { revision, epoch };
    let context = ReadContext { read, generation, log_time_ms, count: None, point, due_by };
    query::answer(&context, query, &mut 0)
}

/// Where the records of one slot, or of one group of it, lie that are served, and at which epoch.
fn look(
    read: &impl Read,
    (keyspace, slot): (KeyspaceId, Slot),
    query: &Query,
    holds_all: bool,
) -> Result<(u64, Epoch), Stopped> {
    if deployment::is_fenced(read)? {
        return Err(Refusal::NotHeld(slot).into());
    }
    if keyspaces::lends(read, keyspace)? {
        let tag = query.one_tag().ok_or(Refusal::CrossSlot)?;
        let group = Group { keyspace, tag };
        if let Some(part) = loans::find_part(read, slot, &group)?
            && part.borrowed.part == Part::Held
        {
            return Ok((part.generation, part.served_under()));
        }
        if loans::find_lent(read, slot, &group)?.is_some() {
            return Err(Refusal::NotHeld(slot).into());
        }
    }
    let (token, store) = stores::look(read, keyspace, slot, holds_all)?;
    match token.serves() {
        true => Ok((store.map_or(EMPTY, |store| store.generation), token.epoch())),
        false => Err(Refusal::NotHeld(slot).into()),
    }
}

/// Where a global keyspace's records lie that the state serves, and how many keys that are.
fn served(
    read: &impl Read,
    keyspace: KeyspaceId,
    holds_all: bool,
) -> Result<(Vec<Served>, u64), MachineError> {
    let (mut served, mut count) = (Vec::new(), 0);
    if deployment::is_fenced(read)? {
        return Ok((served, count));
    }
    let lends = keyspaces::lends(read, keyspace)?;
    for (slot, store) in stores::of_keyspace(read, keyspace)? {
        let token: Token = stores::token(read, slot, holds_all)?;
        if !token.serves() {
            continue;
        }
        let lent = if lends { loans::lent_of(read, slot, keyspace)? } else { Vec::new() };
        let keys: u64 = lent.iter().map(|(_, lent)| lent.keys).sum();
        count += store.count.saturating_sub(keys);
        let away = lent.into_iter().map(|(group, _)| group.tag).collect();
        served.push(Served { slot, tag: None, away, generation: store.generation });
    }
    if lends {
        for (group, part) in loans::parts_of_keyspace(read, keyspace)? {
            count += part.keys;
            let (slot, tag) = (group.slot(), Some(group.tag));
            let generation = part.generation;
            served.push(Served { slot, tag, away: Default::default(), generation });
        }
        served.sort_by(|one, other| (one.slot, &one.tag).cmp(&(other.slot, &other.tag)));
    }
    Ok((served, count))
}

impl<S: State> Readable for Reader<S> {
    fn catalog(&self) -> Arc<Catalog> {
        Reader::catalog(self)
    }

    fn pace(&self) -> Pace {
        Reader::pace(self)
    }

    fn query_by(
        &self,
        keyspace: KeyspaceId,
        query: &Query,
        due_by: Option<&dyn Fn() -> u64>,
    ) -> Result<Answer, Stopped> {
        Reader::query_by(self, keyspace, query, due_by)
    }

    #[inline]
    fn note_read(&self, caller: Caller<'_>, keyspace: KeyspaceId, query: &Query) {
        self.published.accesses.note(caller, || {
            let catalog = self.catalog();
            let spec = catalog.by_id(keyspace).map(|one| &one.spec);
            Accessed::of(keyspace, spec, (query.first_key()?, 0))
        });
    }
}

impl<S: State> Reader<S> {
    pub(super) fn new(state: S, published: Arc<Published>) -> Reader<S> {
        Reader { state, published }
    }

    /// Answers a query. Several keys are seen at one moment.
    ///
    /// # Errors
    /// [`Stopped::Refused`] with what is wrong with the query; [`Stopped::Failed`] if the state
    /// cannot be read.
    pub fn query(&self, keyspace: KeyspaceId, query: &Query) -> Result<Answer, Stopped> {
        self.query_by(keyspace, query, None)
    }

    /// The same for a read that must not see keys that are due by this log time, though no entry
    /// has removed them yet. Asked only for keys that expire.
    ///
    /// # Errors
    /// [`Stopped::Due`] if there is such a key; as [`Reader::query`].
    pub fn query_by(
        &self,
        keyspace: KeyspaceId,
        query: &Query,
        due_by: Option<&dyn Fn() -> u64>,
    ) -> Result<Answer, Stopped> {
        let extent = query::extent(query);
        if matches!(extent, Extent::Row)
            && let Some(answer) = self.query_undisturbed(keyspace, query, due_by)
        {
            return answer;
        }
        if matches!(extent, Extent::Range) {
            self.check_held(keyspace)?;
            return answer_at(&self.state.view(), keyspace, query, due_by);
        }
        let now = self.state.now();
        self.check_keys(&now, keyspace, query)?;
        answer_at(&now, keyspace, query, due_by)
    }

    /// Whether this site can answer a query about keys of a keyspace, by the state that it is
    /// answered from: of a causal one some of them may be held on demand.
    ///
    /// # Errors
    /// [`Stopped::Refused`] if it cannot.
    pub(super) fn check_keys(
        &self,
        read: &impl Read,
        keyspace: KeyspaceId,
        query: &Query,
    ) -> Result<(), Stopped> {
        // What asks for nothing is answered anywhere: a session is admitted so.
        if matches!(query, Query::GetMany { keys } if keys.is_empty()) {
            return Ok(());
        }
        if !self.published.is_on_demand(keyspace) || query.keys().is_empty() {
            return self.check_held(keyspace);
        }
        for key in query.keys() {
            check_key(key)?;
            if !is_held(read, keyspace, key)? {
                return Err(NOT_HELD.into());
            }
            self.published.recency.touch(keyspace, key);
        }
        Ok(())
    }

    /// Whether this site can answer for a keyspace: a causal one may be at other sites.
    ///
    /// # Errors
    /// [`Stopped::Refused`] if it is.
    pub fn check_held(&self, keyspace: KeyspaceId) -> Result<(), Stopped> {
        if self.published.is_elsewhere(keyspace) { Err(NOT_HELD.into()) } else { Ok(()) }
    }

    /// Under which failover a query is answered. Read it before the answer: it is then never a
    /// later one.
    pub fn served_under(&self, keyspace: KeyspaceId, query: &Query) -> ServedUnder {
        self.published.served_under(keyspace, query)
    }

    /// Answers a query from the state as it is, unless a commit comes in between.
    fn query_undisturbed(
        &self,
        keyspace: KeyspaceId,
        query: &Query,
        due_by: DueBy<'_>,
    ) -> Option<Result<Answer, Stopped>> {
        self.undisturbed(|| self.answer_published(&self.state, keyspace, query, due_by))
    }

    /// What was read, unless a commit came in between.
    pub(super) fn undisturbed<T>(&self, read: impl FnOnce() -> T) -> Option<T> {
        let before = self.published.commits.load(Ordering::Acquire);
        if before % 2 == 1 {
            return None;
        }
        let read = read();
        fence(Ordering::SeqCst);
        let after = self.published.commits.load(Ordering::Acquire);
        (before == after).then_some(read)
    }

    /// Answers a query from the state as it is and from what is published beside it.
    pub(super) fn answer_published(
        &self,
        read: &impl Read,
        keyspace: KeyspaceId,
        query: &Query,
        due_by: DueBy<'_>,
    ) -> Result<Answer, Stopped> {
        let (generation, is_on_demand) = self.published.generation(keyspace, query)?;
        if is_on_demand {
            self.check_keys(read, keyspace, query)?;
        }
        let (log_time_ms, point) = (self.log_time_ms(), ReadPoint::default());
        let context = ReadContext { read, generation, log_time_ms, count: None, point, due_by };
        query::answer(&context, query, &mut 0)
    }

    pub(super) fn state(&self) -> &S {
        &self.state
    }

    pub(super) fn published(&self) -> &Published {
        &self.published
    }

    /// The changes of a keyspace after a revision, oldest first: `max` (at least 1) and as many
    /// more as belong to the last one's revision, so that the next call can go on after it. Empty
    /// when there are no more.
    ///
    /// # Errors
    /// [`Refusal::ChangesTrimmed`] when changes after that revision are no longer kept, or never
    /// were: a keyspace keeps them while it has a cursor.
    pub fn changes(
        &self,
        keyspace: KeyspaceId,
        after: Revision,
        max: usize,
    ) -> Result<Vec<Change>, Stopped> {
        self.check_held(keyspace)?;
        let view = self.state.view();
        if keyspaces::look(&view, keyspace)?.is_none() {
            return Err(Refusal::NoKeyspace(keyspace.to_string()).into());
        }
        let (mut after, upto) = (after, Head::load(&view)?.revision);
        loop {
            let mut changes = changes::read(&view, keyspace, after, upto, max)?;
            let Some(last) = changes.last().map(|change| change.revision) else {
                return Ok(changes);
            };
            // That a group was lent is for other sites only.
            changes.retain(|change| change.kind != ChangeKind::Loan);
            if !changes.is_empty() {
                return Ok(changes);
            }
            after = last;
        }
    }

    /// The keyspaces there are.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.published.catalog()
    }

    /// The site's deployment, once it belongs to one.
    pub fn deployment(&self) -> Option<DeploymentId> {
        self.published.deployment()
    }

    /// The revision of the last command applied.
    pub fn revision(&self) -> Revision {
        Revision(self.published.revision.load(Ordering::Acquire))
    }

    /// The moment that expiry is judged by, milliseconds since 1970.
    pub fn log_time_ms(&self) -> u64 {
        self.published.log_time_ms.load(Ordering::Acquire)
    }

    /// How the clocks of this site go, as its core last reported.
    pub fn pace(&self) -> Pace {
        *self.published.pace.read().expect("the writer does not panic with the lock")
    }

    /// Reports how the clocks of this site go.
    pub(crate) fn set_pace(&self, pace: Pace) {
        *self.published.pace.write().expect("no reader panics with the lock") = pace;
    }

    /// How many keys a keyspace holds. One that has expired counts until it is removed.
    ///
    /// # Errors
    /// As [`Reader::query`].
    pub fn count(&self, keyspace: KeyspaceId) -> Result<u64, Stopped> {
        match self.query(keyspace, &Query::Count)? {
            Answer::Integer(count) => Ok(count as u64),
            other => unreachable!("a count is an integer, not {other:?}"),
        }
    }

    /// How many keys of a keyspace expire.
    ///
    /// # Errors
    /// As [`Reader::query`].
    pub fn expiring_count(&self, keyspace: KeyspaceId) -> Result<u64, Stopped> {
        let view = self.state.view();
        let Some((generation, is_global)) = keyspaces::look(&view, keyspace)? else {
            return Err(Refusal::NoKeyspace(keyspace.to_string()).into());
        };
        if !is_global {
            return Ok(expiry::count(&view, generation)?);
        }
        let mut all = 0;
        for one in served(&view, keyspace, deployment::is_founder(&view)?)?.0 {
            all += expiry::count(&view, one.generation)?;
        }
        Ok(all)
    }

    /// The whole state as it is now, for a backup of it.
    pub fn view(&self) -> S::View {
        self.state.view()
    }

    /// Bytes that the state takes.
    pub fn size_bytes(&self) -> u64 {
        self.state.size_bytes()
    }

    /// Whether a slot of global keyspaces is served here.
    pub fn serves(&self, slot: Slot) -> bool {
        self.published.serves(slot)
    }

    /// Whether a key of a global keyspace is served here: its group may be lent.
    pub fn serves_key(&self, keyspace: KeyspaceId, key: &Bytes) -> bool {
        self.published.serves_key(keyspace, key)
    }

    /// How many keys of a global keyspace lie in a slot, and up to so many of them; nothing, if the
    /// slot is not served here.
    ///
    /// # Errors
    /// As [`Reader::query`].
    pub fn in_slot(
        &self,
        keyspace: KeyspaceId,
        slot: Slot,
        keys_max: usize,
    ) -> Result<(u64, Vec<Bytes>), Stopped> {
        let view = self.state.view();
        let (token, store) = stores::look(&view, keyspace, slot, deployment::is_founder(&view)?)?;
        let Some(store) = store.filter(|_| token.serves()) else { return Ok((0, Vec::new())) };
        let lent = loans::lent_of(&view, slot, keyspace)?;
        let lent_keys: u64 = lent.iter().map(|(_, lent)| lent.keys).sum();
        let away: BTreeSet<Bytes> = lent.into_iter().map(|(group, _)| group.tag).collect();
        let (from, until) = tables::records(store.generation);
        let prefix_bytes = tables::record_prefix_bytes(store.generation);
        let mut keys = Vec::new();
        let scanned = view.scan(&from, Some(&until), &mut |key, _| {
            let key = key.slice(prefix_bytes..);
            if keys.len() < keys_max && !away.contains(model::tag(&key)) {
                keys.push(key);
            }
            keys.len() < keys_max
        });
        scanned.map_err(MachineError::from)?;
        Ok((store.count.saturating_sub(lent_keys), keys))
    }
}
