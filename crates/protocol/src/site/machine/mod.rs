//! The state machine: applies commands to the state and answers queries from it.
//!
//! Every replica of a site applies the same log entries in the same order, and this is what makes
//! their states the same, byte for byte: what a command does depends on the state and on the log
//! time that came with it, and on nothing else. No clock, no chance, no iteration over anything
//! unordered, and nothing that depends on how entries were grouped into batches.
//!
//! | file | idea |
//! | --- | --- |
//! | `apply` | one entry: time does its share, then the commands, each with its answer |
//! | `keys` | one key under change, and everything that depends on it |
//! | `strings`, `hashes`, `expiry` | the families of writes, as Redis does them |
//! | `removals` | whether an absent key has been there meanwhile |
//! | `keyspaces` | generations: clearing a million keys is one small command |
//! | [`deployment`] | this site's place in its deployment, and the registry |
//! | [`registrar`] | this site's part in holding the registry |
//! | [`tokens`], `stores` | the right to serve slots of global keyspaces, and where they lie |
//! | [`giving`], [`receiving`], [`copying`] | slots that leave and slots that come |
//! | [`copies`], `kept` | copies of slots that others own; those of earlier versions |
//! | `elsewhere` | times that come from another site |
//! | `orders` | operators' orders to hand slots over, by their numbers |
//! | [`mirrors`], [`mirroring`] | the streams that feed them, here and at others |
//! | `ownership` | the owners of slots: the rules, failovers |
//! | `changes` | the change log and its cursors |
//! | `requests` | a retried request is applied once |
//! | `lineage` | what is remembered for that goes with the records that it is about |
//! | `query`, `reader`, `published` | questions, on any thread |
//! | `tables`, `slot_rows`, `records`, `head`, `overlay` | where it all lies in the state |
//!
//! Left out: what is linearizable. The replica decides whether a state is new enough to answer
//! from; expiry aside, a state has no time.

mod apply;
mod changes;
pub mod copies;
pub mod copying;
pub mod deployment;
mod elsewhere;
mod expiry;
pub mod giving;
pub(crate) mod handing_on;
mod hashes;
mod head;
mod integer;
mod kept;
mod keys;
mod keyspaces;
mod lineage;
pub mod mirroring;
pub mod mirrors;
mod orders;
mod overlay;
mod ownership;
mod published;
mod query;
mod reader;
pub mod receiving;
mod records;
pub mod registrar;
mod removals;
mod requests;
mod slot_rows;
mod stores;
mod strings;
mod tables;
#[cfg(test)]
mod tests;
pub mod tokens;

pub use head::Applied;
pub use published::Pace;
pub use reader::Reader;

use super::trial::{Bug, Planted};
use apply::Applying;
use changes::Logs;
use copies::Copies;
use deployment::{Deployment, Membership};
use expiry::{Expiring, NextExpiry};
use giving::Move;
use head::Head;
use keyspaces::Keyspaces;
use mirroring::OwnMirror;
use mirrors::Mirrors;
use model::{
    Answer, Bytes, Epoch, KeyspaceId, KeyspaceSpec, MoveId, Refusal, Revision, SiteId, Slot,
    SlotEpochs, SlotRun, SlotSet,
};
use orders::Orders;
use published::Published;
use receiving::{Arrival, Arrivals};
use removals::Removals;
use requests::Clients;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use storage::state::{Read, State, StateError};
use stores::Slots;
use tokens::Token;
use wire::entry;

/// Why a machine cannot go on. It must be opened again, from a state that can be read.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// The state's engine failed.
    #[error(transparent)]
    State(#[from] StateError),
    /// The engine gave back what was never written.
    #[error("table {table:?} of the state holds what this version cannot read; it must be rebuilt")]
    Damaged {
        /// The table, as in the list of the tables.
        table: char,
    },
    /// The entry is not the one after the last one applied.
    #[error("the state has applied the log up to {applied}; entry {found} cannot be next")]
    Gap {
        /// The last index applied.
        applied: u64,
        /// The entry's index.
        found: u64,
    },
}

/// Why a query has no answer.
#[derive(Debug, thiserror::Error)]
pub enum Stopped {
    /// It would have none on any replica.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A key that it meets is due: gone once this log time is applied, and not before. Only of
    /// queries that ask so.
    #[error("a key is due at log time {0} ms, which is not applied yet")]
    Due(u64),
    /// The state cannot be read.
    #[error(transparent)]
    Failed(#[from] MachineError),
}

impl From<model::MoveError> for Stopped {
    fn from(error: model::MoveError) -> Stopped {
        Stopped::Refused(error.into())
    }
}

/// A committed log entry.
#[derive(Clone, Debug)]
pub struct Committed<'a> {
    /// Its index: one more than that of the entry before.
    pub index: u64,
    /// Its term.
    pub term: u64,
    /// Its commands, if it has any.
    pub batch: Option<&'a entry::Batch>,
    /// The site's members from here on, if it changes them: opaque, kept for [`Machine::members`].
    pub members: Option<Bytes>,
}

/// The state machine of one replica. It alone writes to its state.
#[derive(Debug)]
pub struct Machine<S> {
    state: S,
    known: Known,
    published: Arc<Published>,
    planted: Planted,
    /// The slots with a changed token since [`Machine::take_changed_tokens`].
    changed_tokens: SlotSet,
    /// Log time, which may have gone on since the last entry. No command depends on it.
    now_ms: u64,
}

/// What is kept at hand of the state. All of it can be read from there again.
#[derive(Debug, PartialEq, Eq)]
struct Known {
    head: Head,
    keyspaces: Keyspaces,
    removals: Removals,
    expiry: NextExpiry,
    expiring: Expiring,
    logs: Logs,
    clients: Clients,
    deployment: Deployment,
    slots: Slots,
    giving: BTreeMap<u64, Move>,
    copies: Copies,
    /// What an earlier version kept of moves, until the next entry.
    kept: BTreeMap<u64, SlotEpochs>,
    orders: Orders,
    arrivals: Arrivals,
    mirrors: Mirrors,
    own_mirror: Option<OwnMirror>,
}

impl Known {
    fn load(state: &impl Read) -> Result<Known, MachineError> {
        let deployment = Deployment::load(state)?;
        let holds_all = deployment.member.as_ref().map(|member| member.founder);
        let mut slots = Slots::load(state, holds_all)?;
        slots.fence(deployment::is_fenced(state)?);
        let arrivals = Arrivals::load(state)?;
        let mut keyspaces = Keyspaces::load(state)?;
        for ((keyspace, slot), store) in slots.stores() {
            keyspaces.own(store.generation, keyspaces::Owner::Slot(keyspace, slot));
        }
        for (generation, owner) in arrivals.owners() {
            keyspaces.own(generation, owner);
        }
        let mut mirrors = Mirrors::load(state)?;
        let mut copies = Copies::load(state)?;
        mirrors.bind(&mut copies);
        for (generation, owner) in mirrors.owners().chain(copies.owners()) {
            keyspaces.own(generation, owner);
        }
        Ok(Known {
            head: Head::load(state)?,
            keyspaces,
            removals: Removals::load(state)?,
            deployment,
            slots,
            giving: giving::load(state)?,
            copies,
            kept: kept::load(state)?,
            orders: orders::load(state)?,
            arrivals,
            mirrors,
            own_mirror: mirroring::load(state)?,
            expiry: NextExpiry::load(state)?,
            expiring: Expiring::load(state)?,
            logs: Logs::load(state)?,
            clients: Clients::load(state)?,
        })
    }

    /// How many keys a keyspace holds here.
    fn count(&self, keyspace: KeyspaceId) -> u64 {
        match self.keyspaces.is_global(keyspace) {
            true => self.slots.count(keyspace),
            false => self.keyspaces.count(keyspace),
        }
    }
}

impl<S: State> Machine<S> {
    /// The machine of a state, as far as it has come. An empty state has applied nothing.
    ///
    /// # Errors
    /// When the state cannot be read or makes no sense: it must then be rebuilt.
    pub fn open(state: S) -> Result<Machine<S>, MachineError> {
        let mut known = Known::load(&state)?;
        let published = Arc::new(Published::default());
        let changed_tokens = published.publish(&mut known);
        let planted = Planted::default();
        Ok(Machine { state, known, published, planted, changed_tokens, now_ms: 0 })
    }

    /// Looks at its state anew, after a snapshot replaced it. Its readers stay valid; between the
    /// beginning of the replacement and the end of this they must not be asked.
    ///
    /// # Errors
    /// As [`Machine::open`].
    pub fn reload(&mut self) -> Result<(), MachineError> {
        self.known = Known::load(&self.state)?;
        self.plant(self.planted);
        self.changed_tokens = self.published.publish(&mut self.known);
        Ok(())
    }

    /// Has a bug from here on, in a trial.
    pub(super) fn plant(&mut self, planted: Planted) {
        self.planted = planted;
        if planted.is(Bug::ForgetRequests) {
            self.known.clients = Clients::default();
        }
    }

    /// Applies the next entries, in order, as one batch of the state. `answers` gets one for each
    /// command, in order. When this returns, readers see all of it.
    ///
    /// # Errors
    /// All are fatal: the machine is torn and must be opened again. Nothing was committed.
    pub fn apply(
        &mut self,
        entries: &[Committed<'_>],
        answers: &mut Vec<Result<Answer, Refusal>>,
    ) -> Result<(), MachineError> {
        if entries.is_empty() {
            return Ok(());
        }
        let commands = entries.iter().filter_map(|entry| Some(entry.batch?.commands.len())).sum();
        let mut applying = Applying::new(&self.state, &mut self.known, self.planted, commands);
        for entry in entries {
            let applied = applying.known.head.applied.index;
            if entry.index != applied + 1 {
                return Err(MachineError::Gap { applied, found: entry.index });
            }
            if let Some(batch) = entry.batch {
                applying.entry(batch, answers)?;
            }
            if let Some(members) = &entry.members {
                applying.overlay.put(tables::MEMBERS, members.clone());
            }
            applying.known.head.applied = Applied { index: entry.index, term: entry.term };
        }
        let batch = applying.finish();
        self.published.begin_commit();
        self.state.commit(batch)?;
        let changed = self.published.publish(&mut self.known);
        self.published.end_commit();
        changed.runs().for_each(|run| self.changed_tokens.insert_run(run));
        Ok(())
    }

    /// Goes on from `applied` without what lies before: a witness, which keeps no data, takes no
    /// more of a snapshot than what it is of.
    ///
    /// # Errors
    /// As [`Machine::apply`].
    pub fn skip_to(&mut self, applied: Applied, members: Bytes) -> Result<(), MachineError> {
        self.known.head.applied = applied;
        let mut batch = storage::state::Batch::default();
        batch.put(tables::HEAD, self.known.head.encode());
        batch.put(tables::MEMBERS, members);
        Ok(self.state.commit(batch)?)
    }

    /// The last entry that was applied.
    pub fn applied(&self) -> Applied {
        self.known.head.applied
    }

    /// The revision of the last command applied.
    pub fn revision(&self) -> Revision {
        self.known.head.revision
    }

    /// The latest log time applied, milliseconds since 1970. The leader proposes none before it.
    pub fn log_time_ms(&self) -> u64 {
        self.known.head.log_time_ms
    }

    /// Sets the time, for what is sent to other sites.
    pub(super) fn note_time(&mut self, log_time_ms: u64) {
        self.now_ms = log_time_ms;
    }

    /// The site's members, as the last entry that changed them left them.
    ///
    /// # Errors
    /// When the state cannot be read.
    pub fn members(&self) -> Result<Option<Bytes>, MachineError> {
        Ok(self.state.get(tables::MEMBERS)?)
    }

    /// The earliest expiry there may be; its key may have another one by now.
    pub fn next_expiry_ms(&self) -> Option<u64> {
        self.known.expiry.ms
    }

    /// When the leader should propose an entry if no write does, and a [`model::Command::Tick`]
    /// with it: something expires then, or (a moment that has passed) something waits to be trimmed
    /// or removed.
    pub fn tick_due_ms(&self) -> Option<u64> {
        if self.known.keyspaces.has_garbage() || self.known.logs.has_trims() {
            return Some(0);
        }
        self.known.expiry.ms
    }

    /// This site's place in its deployment, if it belongs to one.
    pub fn membership(&self) -> Option<&Membership> {
        self.known.deployment.member.as_ref()
    }

    /// The specification of a keyspace.
    pub fn spec(&self, keyspace: KeyspaceId) -> Option<&KeyspaceSpec> {
        self.known.keyspaces.spec(keyspace)
    }

    /// Whether a keyspace's keys belong to slots.
    pub fn is_global(&self, keyspace: KeyspaceId) -> bool {
        self.known.keyspaces.is_global(keyspace)
    }

    /// The ring's pointers as they were last kept; empty: never.
    pub fn ring(&self) -> &Bytes {
        &self.known.deployment.ring
    }

    /// This site's record of its right to a slot.
    pub fn token(&self, slot: Slot) -> Token {
        self.known.slots.token(slot)
    }

    /// The owner of a slot in this site's records: itself, the destination of its own handover, or
    /// a site that registered the slot here.
    pub fn holder(&self, slot: Slot) -> Option<(SiteId, Epoch)> {
        self.known.holder(slot)
    }

    /// A slot up to which all have the same owner in these records as this one.
    pub fn same_holder_until(&self, slot: Slot) -> Slot {
        self.known.same_holder_until(slot)
    }

    /// The token of a slot, and a slot up to which all have the same.
    pub fn token_run(&self, slot: Slot) -> (Slot, Token) {
        self.known.slots.token_run(slot)
    }

    /// These slots in runs that have one token, ascending.
    pub fn tokens<'a>(
        &'a self,
        slots: impl Iterator<Item = SlotRun> + 'a,
    ) -> impl Iterator<Item = (SlotRun, Token)> + 'a {
        let alike = slots.flat_map(|run| run.cut(|slot| self.token_run(slot).0));
        alike.map(|run| (run, self.token(run.first)))
    }

    /// The slots that stay here whatever their home.
    pub fn pinned(&self) -> &SlotSet {
        &self.known.deployment.pinned
    }

    /// The moves that give slots away, by number.
    pub fn giving(&self) -> &BTreeMap<u64, Move> {
        &self.known.giving
    }

    /// The lowest number of a move of which its receiver must remember how it ended.
    pub fn open_from(&self) -> Option<u64> {
        self.known.giving.keys().next().copied()
    }

    /// The epochs that a move's slots are going to have with their receiver.
    pub fn epochs_to_give(&self, number: u64, one: &Move) -> SlotEpochs {
        self.known.epochs_to_give(number, one)
    }

    /// The slots that a move still gives.
    pub fn slots_to_give(&self, number: u64, one: &Move) -> SlotSet {
        self.known.slots_to_give(number, one)
    }

    /// The moves that bring slots.
    pub fn arrivals(&self) -> &BTreeMap<MoveId, Arrival> {
        &self.known.arrivals.under_way
    }

    /// The slots whose tokens changed since this was asked last.
    pub fn take_changed_tokens(&mut self) -> SlotSet {
        std::mem::take(&mut self.changed_tokens)
    }

    /// The slots in which something lies here, whether this site may serve them or not.
    pub fn used_slots(&self) -> BTreeSet<Slot> {
        let stores = self.known.slots.stores().filter(|(_, store)| store.count > 0);
        stores.map(|((_, slot), _)| slot).collect()
    }

    /// How many keys a slot's keyspaces hold here.
    pub fn keys_in(&self, slots: &SlotSet) -> u64 {
        let stores = self.known.slots.stores().filter(|((_, slot), _)| slots.contains(*slot));
        stores.map(|(_, store)| store.count).sum()
    }

    /// A handle that answers queries.
    pub fn reader(&self) -> Reader<S> {
        Reader::new(self.state.clone(), self.published.clone())
    }

    /// The state, for snapshots of it.
    pub fn state(&self) -> &S {
        &self.state
    }
}

/// How far a view has come, its revision, and the site's members then.
///
/// # Errors
/// When the view cannot be read.
pub fn head_of(view: &impl Read) -> Result<(Applied, Revision, Option<Bytes>), MachineError> {
    let head = Head::load(view)?;
    Ok((head.applied, head.revision, view.get(tables::MEMBERS)?))
}

/// The rows of a small table.
fn rows(state: &impl Read, table: u8) -> Result<Vec<(Bytes, Bytes)>, StateError> {
    let (from, until) = tables::whole(table);
    let mut rows = Vec::new();
    state.scan(&from, Some(&until), &mut |key, row| {
        rows.push((key, row));
        true
    })?;
    Ok(rows)
}

/// The rows of a table of moves, by their numbers.
fn numbered<T>(
    state: &impl Read,
    table: u8,
    decode: impl Fn(&[u8]) -> Option<T>,
) -> Result<BTreeMap<u64, T>, MachineError> {
    let read = |(key, row): (Bytes, Bytes)| {
        let found = tables::parse_number(&key).zip(decode(&row));
        found.ok_or(MachineError::Damaged { table: table as char })
    };
    rows(state, table)?.into_iter().map(read).collect()
}
