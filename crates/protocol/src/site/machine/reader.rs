//! Reading beside the thread that applies.
//!
//! A point read looks at one row of the state as it is, and at what the machine has published beside
//! it (the log time, the keyspaces' generations). The machine counts up before and after each commit:
//! a read that saw the same even count before and after itself saw all of that at one moment, and any
//! other one is done again, with all of it from the state while that stands still.

use super::head::Head;
use super::query::{self, Reach, Sight};
use super::{Known, Stopped, changes, keys};
use model::{Answer, Catalog, Change, KeyspaceId, Query, Refusal, Revision};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, RwLock};
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

/// What the machine tells its readers after every commit.
#[derive(Debug, Default)]
pub(super) struct Published {
    /// Odd while a commit is under way.
    commits: AtomicU64,
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
    /// From now until [`Published::end_commit`], rows may change.
    pub(super) fn begin_commit(&self) {
        self.commits.fetch_add(1, Ordering::AcqRel);
        fence(Ordering::SeqCst);
    }

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

    /// The commit and what came with it are seen by every reader.
    pub(super) fn end_commit(&self) {
        self.commits.fetch_add(1, Ordering::AcqRel);
    }
}

/// Answers a query from a state that does not change.
fn answer_at(read: &impl Read, keyspace: KeyspaceId, query: &Query) -> Result<Answer, Stopped> {
    let sight = Sight {
        generation: keys::generation(read, keyspace)?,
        log_time_ms: Head::load(read)?.log_time_ms,
        read,
        keyspace,
        count: None,
    };
    query::answer(&sight, query, &mut 0)
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
        match query::reach(query) {
            Reach::Row => match self.query_undisturbed(keyspace, query) {
                Some(answer) => answer,
                None => answer_at(&self.state.now(), keyspace, query),
            },
            Reach::Rows => answer_at(&self.state.now(), keyspace, query),
            Reach::Range => answer_at(&self.state.view(), keyspace, query),
        }
    }

    /// Answers a query from the state as it is, unless a commit comes in between.
    fn query_undisturbed(
        &self,
        keyspace: KeyspaceId,
        query: &Query,
    ) -> Option<Result<Answer, Stopped>> {
        let before = self.published.commits.load(Ordering::Acquire);
        if before % 2 == 1 {
            return None;
        }
        let answer = self.generation(keyspace).and_then(|generation| {
            let log_time_ms = self.log_time_ms();
            let read = &self.state;
            let sight = Sight { read, keyspace, generation, log_time_ms, count: None };
            query::answer(&sight, query, &mut 0)
        });
        fence(Ordering::SeqCst);
        let after = self.published.commits.load(Ordering::Acquire);
        (before == after).then_some(answer)
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
        match self.query(keyspace, &Query::Count)? {
            Answer::Integer(count) => Ok(count as u64),
            other => unreachable!("a count is an integer, not {other:?}"),
        }
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
