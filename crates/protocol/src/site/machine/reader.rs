//! Reading beside the thread that applies.

use super::head::Head;
use super::query::{self, Sight};
use super::{Known, MachineError, Stopped, changes, keys};
use model::{Answer, Catalog, Change, KeyspaceId, Query, Refusal, Revision};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};
use storage::state::State;

/// A handle that answers queries on any thread while the machine goes on.
///
/// It sees at least everything that [`super::Machine::apply`] had returned from when the query
/// began, and nothing that is not committed. Whether that is fresh enough is not decided here.
#[derive(Clone, Debug)]
pub struct Reader<S> {
    state: S,
    published: Arc<Published>,
}

/// What the machine tells its readers after every commit.
#[derive(Debug, Default)]
pub(super) struct Published {
    revision: AtomicU64,
    log_time_ms: AtomicU64,
    directory: RwLock<Directory>,
}

#[derive(Debug, Default)]
struct Directory {
    catalog: Arc<Catalog>,
    generations: BTreeMap<KeyspaceId, u64>,
}

impl Published {
    /// Shows readers what is known now.
    pub(super) fn publish(&self, known: &mut Known) {
        if std::mem::take(&mut known.keyspaces.changed) {
            let directory = Directory {
                catalog: Arc::new(known.keyspaces.catalog()),
                generations: known.keyspaces.generations(),
            };
            *self.directory.write().expect("no reader panics with the lock") = directory;
        }
        self.revision.store(known.head.revision.0, Ordering::Release);
        self.log_time_ms.store(known.head.log_time_ms, Ordering::Release);
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
        let mut answer_bytes = 0;
        if query::needs_view(query) {
            let view = self.state.view();
            let sight = Sight {
                generation: keys::generation(&view, keyspace)?,
                log_time_ms: Head::load(&view)?.log_time_ms,
                read: &view,
                keyspace,
                count: None,
            };
            return query::answer(&sight, query, &mut answer_bytes);
        }
        // Log time before the row: a row may be newer than the moment it is judged by, but then
        // no one was told yet that the moment had come.
        let log_time_ms = self.log_time_ms();
        let sight = Sight {
            generation: self.generation(keyspace)?,
            log_time_ms,
            read: &self.state,
            keyspace,
            count: None,
        };
        query::answer(&sight, query, &mut answer_bytes)
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
        let view = self.state.view();
        keys::generation(&view, keyspace)?;
        changes::read(&view, keyspace, after, Head::load(&view)?.revision, max)
    }

    /// The keyspaces there are.
    pub fn catalog(&self) -> Arc<Catalog> {
        let directory = self.published.directory.read();
        directory.expect("the writer does not panic with the lock").catalog.clone()
    }

    /// The revision of the last command applied.
    pub fn revision(&self) -> Revision {
        Revision(self.published.revision.load(Ordering::Acquire))
    }

    /// The moment that expiry is judged by, milliseconds since 1970.
    pub fn log_time_ms(&self) -> u64 {
        self.published.log_time_ms.load(Ordering::Acquire)
    }

    /// How many keys a keyspace holds. One that has expired counts until it is removed.
    ///
    /// # Errors
    /// As [`Reader::query`].
    pub fn count(&self, keyspace: KeyspaceId) -> Result<u64, Stopped> {
        self.generation(keyspace)?;
        super::keyspaces::count(&self.state, keyspace).map_err(Stopped::from)
    }

    /// The whole state as it is now, for a backup of it.
    pub fn view(&self) -> S::View {
        self.state.view()
    }

    /// Bytes that the state takes.
    pub fn size_bytes(&self) -> u64 {
        self.state.size_bytes()
    }

    fn generation(&self, keyspace: KeyspaceId) -> Result<u64, Stopped> {
        let directory = self.published.directory.read();
        let directory = directory.expect("the writer does not panic with the lock");
        match directory.generations.get(&keyspace) {
            Some(generation) => Ok(*generation),
            None => Err(Refusal::NoKeyspace(keyspace.to_string()).into()),
        }
    }
}

impl From<storage::state::StateError> for Stopped {
    fn from(error: storage::state::StateError) -> Stopped {
        Stopped::Failed(MachineError::State(error))
    }
}
