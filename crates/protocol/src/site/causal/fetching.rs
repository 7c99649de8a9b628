//! Requests that need keys which this site is to hold on demand: each waits at its node until all of them are here.
//!
//! The leader has the root order what the keys hold ([`crate::causal::fetch`]); another node asks the root itself. A request
//! whose keys do not come soon goes whole to a site that holds the keyspace, like one of a keyspace that is not fetched: the
//! root may be away while another site is there. But for a write that was sent to a leader before: that may have been carried
//! out. Then it is admitted by its token like any other, here or there.

use crate::origin::Origin;
use crate::site::Site;
use model::{
    Body, Bytes, CausalCommand, Command, Failure, KeyspaceId, Miss, Position, Revision, limits,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use storage::log::LogReader;
use storage::snapshot::Snapshots;
use storage::state::State;

/// Keys have so long to come.
const PATIENCE: Duration = Duration::from_secs(1);
/// Keys are asked for again after this: another node may lead by now.
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

/// Whether a request may go to another site: a write that may have been carried out here must not be carried out there, too.
fn may_move(origin: Origin, body: &Body) -> bool {
    matches!(body, Body::Read { .. }) || matches!(origin, Origin::Client { .. })
}

impl Fetching {
    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether there is room for it.
    fn push(&mut self, request: Waiting) -> bool {
        let is_full = self.waiting.len() >= limits::CAUSAL_REQUESTS_WAITING_MAX;
        if is_full || self.bytes + request.bytes > limits::WRITES_WAITING_BYTES_MAX {
            return false;
        }
        self.last_id += 1;
        self.bytes += request.bytes;
        self.waiting.insert(self.last_id, request);
        true
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
        let may_move = may_move(origin, &body);
        let until = if may_move { deadline.min(now + PATIENCE) } else { deadline };
        let request = Waiting { origin, body, bytes, deadline, until, keys: keys.clone() };
        if !self.causal.fetching.push(request) {
            let failure = Failure::Overloaded { what: "requests of sessions" };
            return self.settle(vec![(origin, Err(failure))]);
        }
        self.want_keys(keys);
    }

    /// Keys are asked for: by the leader's job, or by another node itself.
    fn want_keys(&mut self, keys: Vec<Key>) {
        let now = self.now.monotonic;
        self.causal.fetching.asked = now;
        let mut by_keyspace: BTreeMap<KeyspaceId, Vec<Bytes>> = BTreeMap::new();
        for (keyspace, key) in keys {
            self.machine.touch_held(keyspace, &key);
            match self.leads() {
                true => {
                    self.jobs.fetch.want(keyspace, key, now + PATIENCE);
                }
                false => by_keyspace.entry(keyspace).or_default().push(key),
            }
        }
        let Some(region) = self.region_here() else { return };
        let (epoch, site) = (region.epoch, region.own);
        for (keyspace, mut keys) in by_keyspace {
            keys.truncate(limits::CAUSAL_FETCHED_KEYS_MAX);
            let fetch = Command::Causal(CausalCommand::Fetch { epoch, site, keyspace, keys });
            self.take_at_site(Origin::Discard, region.root, fetch, now + PATIENCE);
        }
    }

    /// What is still waited for is asked for again.
    pub(super) fn want_again(&mut self) {
        let fetching = &self.causal.fetching;
        if fetching.is_idle() || self.now.monotonic < fetching.asked + AGAIN {
            return;
        }
        let waiting = fetching.waiting.values().flat_map(|one| one.keys.clone());
        let keys: BTreeSet<Key> = waiting.collect();
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
            self.move_on(origin, body, deadline);
        }
    }

    /// A request has waited for its keys in vain.
    pub(in crate::site) fn move_on(&mut self, origin: Origin, body: Body, deadline: Duration) {
        if may_move(origin, &body) {
            return self.take_elsewhere(origin, body, Miss::Forward, deadline);
        }
        let failure = Failure::NotServing("the root has not sent the keys that the request names");
        self.settle(vec![(origin, Err(failure))]);
    }
}
