//! What the consensus library reads back: terms, recent entries from memory, older ones from disk.

use super::convert;
use prost::Message as _;
use raft::eraftpb::{ConfState, Entry, HardState, Snapshot};
use raft::{GetEntriesContext, RaftState, StorageError};
use std::cell::Cell;
use std::collections::VecDeque;
use storage::log::{LogReader, LogStart, Recovered};
use wire::peer;

/// The library's `Storage`. Entries from `cached_from` on are in memory; those before, back to the
/// start of the log, are read from disk when a follower lags so far.
pub(super) struct Store<R> {
    reader: R,
    initial: RaftState,
    start: LogStart,
    /// The first index of each term, ordered; covers the whole log.
    terms: Vec<LogStart>,
    last_index: u64,
    cached: VecDeque<Entry>,
    cached_bytes: usize,
    cached_bytes_max: usize,
    /// What a follower behind the log's start is sent; the content travels in chunks.
    snapshot: Snapshot,
    serves_snapshots: bool,
    /// The members as they are now.
    members: peer::Members,
    /// A follower needs a snapshot and this one will not do.
    snapshot_wanted: Cell<bool>,
}

impl<R: LogReader> Store<R> {
    pub(super) fn new(
        reader: R,
        recovered: &Recovered,
        members: ConfState,
        applied: u64,
        cached_bytes_max: usize,
    ) -> Store<R> {
        let mut hard_state = HardState::default();
        hard_state.term = recovered.hard_state.term;
        hard_state.vote = recovered.hard_state.vote;
        // The commit index on disk is a hint that may lag behind what the state has applied.
        hard_state.commit = recovered.hard_state.commit.max(applied).max(recovered.start.index);
        hard_state.commit = hard_state.commit.min(recovered.last_index);
        Store {
            reader,
            initial: RaftState { hard_state, conf_state: members },
            start: recovered.start,
            terms: recovered.terms.clone(),
            last_index: recovered.last_index,
            cached: VecDeque::new(),
            cached_bytes: 0,
            cached_bytes_max,
            snapshot: Snapshot::default(),
            serves_snapshots: true,
            members: peer::Members::default(),
            snapshot_wanted: Cell::new(false),
        }
    }

    /// Takes in entries that are about to be written; they replace whatever follows.
    pub(super) fn append(&mut self, entries: &[Entry]) {
        let Some(first) = entries.first() else { return };
        while self.cached.back().is_some_and(|entry| entry.index >= first.index) {
            let entry = self.cached.pop_back().expect("just looked at");
            self.cached_bytes -= entry.data.len();
        }
        while self.terms.last().is_some_and(|run| run.index >= first.index) {
            self.terms.pop();
        }
        for entry in entries {
            if self.terms.last().is_none_or(|run| run.term != entry.term) {
                self.terms.push(LogStart { index: entry.index, term: entry.term });
            }
            self.cached_bytes += entry.data.len();
            self.cached.push_back(entry.clone());
        }
        self.last_index = entries.last().expect("not empty").index;
    }

    /// Lets go of cached entries past the limit, but only of those that are on disk.
    pub(super) fn shrink(&mut self, persisted_index: u64) {
        while self.cached_bytes > self.cached_bytes_max
            && self.cached.front().is_some_and(|entry| entry.index <= persisted_index)
        {
            let entry = self.cached.pop_front().expect("just looked at");
            self.cached_bytes -= entry.data.len();
        }
    }

    /// The log was cut behind a snapshot.
    pub(super) fn cut(&mut self, start: LogStart) {
        while self.cached.front().is_some_and(|entry| entry.index <= start.index) {
            let entry = self.cached.pop_front().expect("just looked at");
            self.cached_bytes -= entry.data.len();
        }
        let covering = self.terms.partition_point(|run| run.index <= start.index + 1);
        self.terms.drain(..covering.saturating_sub(1));
        if let Some(first) = self.terms.first_mut() {
            first.index = first.index.max(start.index + 1);
        }
        if self.last_index <= start.index {
            self.terms.clear();
            self.last_index = start.index;
        }
        self.start = start;
    }

    /// A snapshot was installed: the log begins anew behind it.
    pub(super) fn restart(&mut self, start: LogStart) {
        self.cached.clear();
        self.cached_bytes = 0;
        self.terms.clear();
        self.last_index = start.index;
        self.start = start;
    }

    pub(super) fn set_snapshot(&mut self, snapshot: Snapshot) {
        self.snapshot = snapshot;
    }

    pub(super) fn know_members(&mut self, members: &peer::Members) {
        self.members = members.clone();
    }

    /// Whether the latest snapshot is of a time when `node` was a member in its present life. An
    /// older one would give it the role of its last life: the site's only voter, perhaps.
    fn snapshot_knows(&self, node: u64) -> bool {
        let life = |members: &peer::Members| {
            let member = members.nodes.iter().find(|member| member.node == node);
            member.map(|member| member.incarnation)
        };
        let then = peer::Members::decode(self.snapshot.data.clone()).unwrap_or_default();
        life(&then).is_some_and(|then| Some(then) == life(&self.members))
    }

    pub(super) fn serve_no_snapshots(&mut self) {
        self.serves_snapshots = false;
    }

    /// Whether a newer snapshot has been wished for since the last call.
    pub(super) fn take_snapshot_wanted(&self) -> bool {
        self.snapshot_wanted.take()
    }

    pub(super) fn start(&self) -> LogStart {
        self.start
    }

    /// The bytes on disk of the entries behind `after`, up to `until`.
    pub(super) fn bytes_between(&self, after: u64, until: u64) -> u64 {
        self.reader.bytes_after(after).saturating_sub(self.reader.bytes_after(until))
    }

    pub(super) fn term_of(&self, index: u64) -> Option<u64> {
        if index == self.start.index {
            return Some(self.start.term);
        }
        if index < self.start.index || index > self.last_index {
            return None;
        }
        let run = self.terms.partition_point(|run| run.index <= index);
        run.checked_sub(1).map(|run| self.terms[run].term)
    }
}

impl<R: LogReader> raft::Storage for Store<R> {
    fn initial_state(&self) -> raft::Result<RaftState> {
        Ok(self.initial.clone())
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _: GetEntriesContext,
    ) -> raft::Result<Vec<Entry>> {
        if low <= self.start.index {
            return Err(StorageError::Compacted.into());
        }
        if high > self.last_index + 1 {
            return Err(StorageError::Unavailable.into());
        }
        let bytes_max = max_size.into().unwrap_or(u64::MAX) as usize;
        let cached_from = self.cached.front().map_or(self.last_index + 1, |entry| entry.index);
        if low < cached_from {
            let entries = self
                .reader
                .entries(low, high.min(cached_from), bytes_max)
                .map_err(|error| StorageError::Other(Box::new(error)))?;
            return Ok(entries.into_iter().map(convert::entry_from_log).collect());
        }
        let mut bytes = 0;
        let from = (low - cached_from) as usize;
        let wanted = self.cached.iter().skip(from).take((high - low) as usize);
        let fitting = wanted.enumerate().take_while(|(nth, entry)| {
            bytes += entry.data.len();
            *nth == 0 || bytes <= bytes_max
        });
        Ok(fitting.map(|(_, entry)| entry.clone()).collect())
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        match self.term_of(index) {
            Some(term) => Ok(term),
            None if index < self.start.index => Err(StorageError::Compacted.into()),
            None => Err(StorageError::Unavailable.into()),
        }
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.start.index + 1)
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.last_index)
    }

    fn snapshot(&self, request_index: u64, to: u64) -> raft::Result<Snapshot> {
        if !self.serves_snapshots {
            return Err(StorageError::SnapshotTemporarilyUnavailable.into());
        }
        let metadata = self.snapshot.get_metadata();
        let index = metadata.index;
        let too_old = index == 0 || index < request_index || index < self.start.index;
        if too_old || !self.snapshot_knows(to) {
            self.snapshot_wanted.set(true);
            return Err(StorageError::SnapshotTemporarilyUnavailable.into());
        }
        Ok(self.snapshot.clone())
    }
}
