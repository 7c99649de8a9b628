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
//! | `modes` | what the machine needs of the modes: they apply their own commands, and place their keys |
//! | `keys` | one key under change, and everything that depends on it |
//! | `strings`, `hashes`, `expiry` | the families of writes, as Redis does them |
//! | `removals` | whether an absent key has been there meanwhile |
//! | `keyspaces` | generations: clearing a million keys is one small command |
//! | `changes` | the change log and its cursors |
//! | `requests` | a retried request is applied once |
//! | `lineage` | what is remembered for that goes with the records that it is about |
//! | `query` | questions, on any thread |
//! | `tables`, `records`, `head`, `overlay` | where it all lies in the state |
//!
//! It names no mode and no deployment: what a site has of those is a [`ModeState`], composed by
//! `site`.
//!
//! Left out: what is linearizable. The replica decides whether a state is new enough to answer
//! from; expiry aside, a state has no time.

pub(crate) mod apply;
pub(crate) mod changes;
pub(crate) mod expiry;
pub(crate) mod hashes;
pub(crate) mod head;
pub(crate) mod integer;
pub(crate) mod keys;
pub(crate) mod keyspaces;
pub(crate) mod lineage;
pub(crate) mod modes;
pub(crate) mod overlay;
pub(crate) mod query;
pub(crate) mod records;
mod removals;
pub(crate) mod requests;
mod strings;
pub(crate) mod tables;
pub(crate) mod trial;

pub use head::Applied;
pub(crate) use modes::{ModeState, Publish};

use apply::Applying;
use changes::Logs;
use expiry::{Expiring, NextExpiry};
use head::Head;
use keyspaces::Keyspaces;
use model::{Answer, Bytes, KeyspaceId, KeyspaceSpec, Refusal, Revision};
use removals::Removals;
use requests::Clients;
use std::collections::BTreeMap;
use std::sync::Arc;
use storage::state::{Read, State, StateError};
use trial::{Bug, Planted};
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

/// The state machine of one replica, with the state of its modes. It alone writes to its state.
#[derive(Debug)]
pub struct Machine<S, M: ModeState> {
    pub(crate) state: S,
    pub(crate) known: Index,
    pub(crate) modes: M,
    pub(crate) published: Arc<M::Published>,
    planted: Planted,
    /// Log time, which may have gone on since the last entry. No command depends on it.
    pub(crate) now_ms: u64,
}

/// What is kept at hand of the state. All of it can be read from there again.
#[derive(Debug, PartialEq, Eq)]
pub struct Index {
    pub(crate) head: Head,
    pub(crate) keyspaces: Keyspaces,
    pub(crate) removals: Removals,
    pub(crate) expiry: NextExpiry,
    pub(crate) expiring: Expiring,
    pub(crate) logs: Logs,
    pub(crate) clients: Clients,
}

impl Index {
    fn load(state: &impl Read) -> Result<Index, MachineError> {
        Ok(Index {
            head: Head::load(state)?,
            keyspaces: Keyspaces::load(state)?,
            removals: Removals::load(state)?,
            expiry: NextExpiry::load(state)?,
            expiring: Expiring::load(state)?,
            logs: Logs::load(state)?,
            clients: Clients::load(state)?,
        })
    }
}

impl<S: State, M: ModeState> Machine<S, M> {
    /// The machine of a state, as far as it has come. An empty state has applied nothing.
    ///
    /// # Errors
    /// When the state cannot be read or makes no sense: it must then be rebuilt.
    pub fn open(state: S) -> Result<Machine<S, M>, MachineError> {
        let mut known = Index::load(&state)?;
        let mut modes = M::load(&state)?;
        let published = Arc::new(M::Published::default());
        published.publish(&mut known, &mut modes);
        Ok(Machine { state, known, modes, published, planted: Planted::default(), now_ms: 0 })
    }

    /// Looks at its state anew, after a snapshot replaced it. Its readers stay valid; between the
    /// beginning of the replacement and the end of this they must not be asked.
    ///
    /// # Errors
    /// As [`Machine::open`].
    pub fn reload(&mut self) -> Result<(), MachineError> {
        self.known = Index::load(&self.state)?;
        self.modes.reload(&self.state)?;
        self.plant_here(self.planted);
        self.published.publish(&mut self.known, &mut self.modes);
        Ok(())
    }

    /// Has a bug of its own from here on, in a trial.
    pub(crate) fn plant_here(&mut self, planted: Planted) {
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
        let (known, modes) = (&mut self.known, &mut self.modes);
        let mut applying = Applying::new(&self.state, known, modes, self.planted, commands);
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
        self.published.publish(&mut self.known, &mut self.modes);
        self.published.end_commit();
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
    pub(crate) fn note_time(&mut self, log_time_ms: u64) {
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
        let due = [self.known.expiry.ms, self.modes.time_due_ms()];
        due.into_iter().flatten().min()
    }

    /// The specification of a keyspace.
    pub fn spec(&self, keyspace: KeyspaceId) -> Option<&KeyspaceSpec> {
        self.known.keyspaces.spec(keyspace)
    }

    /// The specifications of all keyspaces.
    pub(crate) fn specs(&self) -> impl Iterator<Item = &KeyspaceSpec> + '_ {
        self.known.keyspaces.specs()
    }

    /// Whether a keyspace's keys belong to slots.
    pub fn is_global(&self, keyspace: KeyspaceId) -> bool {
        self.known.keyspaces.is_global(keyspace)
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

/// Whether a state holds no more than how far it has come, as a witness's does.
pub(crate) fn holds_nothing(state: &impl Read) -> Result<bool, StateError> {
    let mut holds_nothing = true;
    state.scan(b"", None, &mut |key, _| {
        holds_nothing = key == tables::HEAD || key == tables::MEMBERS;
        holds_nothing
    })?;
    Ok(holds_nothing)
}

/// The rows of a small table.
pub(crate) fn rows(state: &impl Read, table: u8) -> Result<Vec<(Bytes, Bytes)>, StateError> {
    let (from, until) = tables::whole(table);
    let mut rows = Vec::new();
    state.scan(&from, Some(&until), &mut |key, row| {
        rows.push((key, row));
        true
    })?;
    Ok(rows)
}

/// The rows of a table of moves, by their numbers.
pub(crate) fn numbered<T>(
    state: &impl Read,
    table: u8,
    decode: impl Fn(&Bytes) -> Option<T>,
) -> Result<BTreeMap<u64, T>, MachineError> {
    let read = |(key, row): (Bytes, Bytes)| {
        let found = tables::parse_number(&key).zip(decode(&row));
        found.ok_or(MachineError::Damaged { table: table as char })
    };
    rows(state, table)?.into_iter().map(read).collect()
}
