//! Requests that need keys which this site is to hold on demand: each waits at its node until all of them are here.
//!
//! The leader has the root order what the keys hold ([`crate::causal::fetch`]); another node asks its leader for that. A request
//! whose keys do not come soon goes whole to a site that holds the keyspace, like one of a keyspace that is not fetched: the
//! root may be away while another site is there. Then it is admitted by its token like any other, here or there.

use crate::origin::Origin;
use crate::site::Site;
use model::{Body, Bytes, Failure, KeyspaceId, Miss, Position, Revision, limits};
use std::collections::BTreeMap;
use std::time::Duration;
use storage::log::LogReader;
use storage::snapshot::Snapshots;
use storage::state::State;
use wire::causal::{CausalStep, Keys};

/// Keys have so long to come.
const PATIENCE: Duration = Duration::from_secs(1);
/// The leader is asked again after this: another node may lead by now.
const AGAIN: Duration = Duration::from_millis(250);

type Key = (KeyspaceId, Bytes);

#[derive(Debug)]
struct Waiting {
    origin: Origin,
    body: Body,
    bytes: usize,
    deadline: Duration,
    until: Duration,
    keys: Vec<Key>,
}

/// The requests that wait at a node.
#[derive(Debug, Default)]
pub(super) struct Fetching {
    /// In the order in which they came.
    waiting: BTreeMap<u64, Waiting>,
    bytes: usize,
    last_id: u64,
    asked: Duration,
    looked_at: Option<(Position, Revision)>,
}

impl Fetching {
    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty()
    }

    fn push(&mut self, request: Waiting) -> Result<(), Waiting> {
        let is_full = self.waiting.len() >= limits::CAUSAL_REQUESTS_WAITING_MAX;
        if is_full || self.bytes + request.bytes > limits::WRITES_WAITING_BYTES_MAX {
            return Err(request);
        }
        self.last_id += 1;
        self.bytes += request.bytes;
        self.waiting.insert(self.last_id, request);
        Ok(())
    }

    /// Takes those out of which this holds.
    fn take(&mut self, is_taken: impl Fn(&Waiting) -> bool) -> Vec<Waiting> {
        let ids = self.waiting.iter().filter(|(_, one)| is_taken(one)).map(|(id, _)| *id);
        let ids: Vec<u64> = ids.collect();
        let taken = ids.iter().filter_map(|id| self.waiting.remove(id));
        let taken: Vec<Waiting> = taken.collect();
        self.bytes -= taken.iter().map(|one| one.bytes).sum::<usize>();
        taken
    }
}

impl<S: State, R: LogReader, N: Snapshots> Site<S, R, N> {
    /// A request needs keys that are not here.
    pub(super) fn fetch_first(
        &mut self,
        origin: Origin,
        body: Body,
        keys: Vec<Key>,
        deadline: Duration,
    ) {
        if origin.sender() == crate::admission::Sender::Site {
            return self.take_elsewhere(origin, body, Miss::Forward, deadline);
        }
        let now = self.now.monotonic;
        let bytes = match &body {
            Body::Write(command) => command.properties().size_bytes,
            _ => 0,
        };
        let until = deadline.min(now + PATIENCE);
        let request = Waiting { origin, body, bytes, deadline, until, keys: keys.clone() };
        if let Err(Waiting { origin, .. }) = self.causal.fetching.push(request) {
            let failure = Failure::Overloaded { what: "requests of sessions" };
            return self.settle(vec![(origin, Err(failure))]);
        }
        self.want_keys(keys);
    }

    fn want_keys(&mut self, keys: Vec<Key>) {
        self.causal.fetching.asked = self.now.monotonic;
        let mut by_keyspace: BTreeMap<KeyspaceId, Vec<Bytes>> = BTreeMap::new();
        for (keyspace, key) in keys {
            by_keyspace.entry(keyspace).or_default().push(key);
        }
        let leader = self.replica.raft.leader().filter(|_| !self.leads());
        let own = self.machine.membership().map(|member| member.own);
        for (keyspace, keys) in by_keyspace {
            match leader.zip(own) {
                None => self.take_want(keyspace, keys),
                Some((leader, own)) => {
                    let keys = Keys { keyspace: keyspace.0, keys };
                    let message = super::inter_site(CausalStep::Want(keys));
                    self.send_inter_site(own, leader, message);
                }
            }
        }
    }

    /// Some node of this site waits for keys.
    pub(super) fn take_want(&mut self, keyspace: KeyspaceId, keys: Vec<Bytes>) {
        let until = self.now.monotonic + PATIENCE;
        for key in keys {
            self.machine.touch_held(keyspace, &key);
            self.jobs.fetch.want(keyspace, key, until);
        }
    }

    /// What is still waited for is asked for again.
    pub(super) fn want_again(&mut self) {
        let fetching = &self.causal.fetching;
        if fetching.is_idle() || self.now.monotonic < fetching.asked + AGAIN {
            return;
        }
        let waiting = fetching.waiting.values().flat_map(|one| one.keys.clone());
        let keys: std::collections::BTreeSet<Key> = waiting.collect();
        let held = self.machine.causal();
        let keys = keys.into_iter().filter(|(keyspace, key)| !held.holds_key(*keyspace, key));
        let keys = keys.collect();
        self.want_keys(keys);
    }

    /// Requests whose keys are here by now go on; so do those that have waited long enough, elsewhere.
    pub(super) fn admit_fetched(&mut self) {
        if self.causal.fetching.is_idle() {
            return;
        }
        let now = self.now.monotonic;
        let late = self.causal.fetching.take(|one| one.until <= now);
        let causal = self.machine.causal();
        let here = (causal.applied(), self.machine.revision());
        let mut there = Vec::new();
        if self.causal.fetching.looked_at.replace(here) != Some(here) {
            let fetch = &self.jobs.fetch;
            let is_held = |(keyspace, key): &Key| {
                causal.holds_key(*keyspace, key) && !fetch.evicts(*keyspace, key)
            };
            there = self.causal.fetching.take(|one| one.keys.iter().all(is_held));
        }
        for Waiting { origin, body, deadline, .. } in there {
            self.take_in_session(origin, body, deadline);
        }
        for Waiting { origin, body, deadline, .. } in late {
            self.take_elsewhere(origin, body, Miss::Forward, deadline);
        }
    }
}
