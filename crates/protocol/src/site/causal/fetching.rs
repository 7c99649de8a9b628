//! Requests that need keys which this site is to hold on demand: each waits at its node until all
//! of them are here.
//!
//! The leader has the root order what the keys hold ([`crate::causal::fetch`]); another node asks
//! the root itself. A request whose keys do not come soon goes whole to a site that holds the
//! keyspace, like one of a keyspace that is not fetched: the root may be away while another site is
//! there. It is admitted there by its token like any other. Some are refused instead, and nothing
//! was done:
//!
//! - a write with a number of its client: it may be repeated here, and sites do not know of each
//!   other's;
//! - what depends on versions, or asks for one to depend on: they are this site's.
//!
//! A write that was sent to a leader before may have been carried out: it waits until its deadline.

use crate::origin::Origin;
use crate::site::Site;
use crate::site::interest::Missing;
use model::{
    Body, Bytes, CausalCommand, Command, Condition, Failure, KeyspaceId, Miss, Position, Query,
    Write, limits,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use storage::log::LogReader;
use storage::snapshot::Snapshots;
use storage::state::State;

/// Keys have so long to come.
const TIMEOUT: Duration = Duration::from_secs(1);
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
    /// When the first of them has waited long enough, or before that.
    until: Duration,
    bytes: usize,
    last_id: u64,
    /// When a node that does not lead has asked the root for keys.
    asked: BTreeMap<Key, Duration>,
    /// When keys are asked for again.
    again_at: Duration,
    looked_at: Option<LookedAt>,
    /// The end of the log when this node began to lead: what lies before it may evict keys.
    log_before: u64,
}

/// With what keys come to be here: how far the order is imported, how many are held, and how many
/// evictions are over.
type LookedAt = (Position, u64, u64);

/// Whether a request may go to any other site. See the module.
pub(in crate::site) fn may_move(origin: Origin, body: &Body) -> bool {
    let is_of_version = |condition: &Condition| matches!(condition, Condition::IfVersion(_));
    match body {
        Body::Read { query, .. } => !matches!(query, Query::Watch { .. }),
        Body::Write(command) => {
            let is_bound = match command {
                Command::Write { write, request, .. } => {
                    let of_version = match write {
                        Write::Put { condition, .. } => is_of_version(condition),
                        Write::DeleteIf { .. } => true,
                        _ => false,
                    };
                    of_version || request.is_some()
                }
                Command::Transaction { guards, request, .. } => {
                    !guards.is_empty() || request.is_some()
                }
                Command::Causal(CausalCommand::Numbered { .. }) => true,
                _ => false,
            };
            !is_bound && matches!(origin, Origin::Client { .. })
        }
        _ => false,
    }
}

impl Fetching {
    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn begin_leading(&mut self, log_before: u64) {
        self.log_before = log_before;
        self.looked_at = None;
    }

    pub(super) fn knows_evictions(&self, applied: u64) -> bool {
        applied >= self.log_before
    }

    /// Those keys that the root was not asked for just now, by this node.
    fn not_asked(&mut self, now: Duration, keys: Vec<Key>) -> Vec<Key> {
        self.asked.retain(|_, at| now < *at + AGAIN);
        let is_new = |key: &Key| {
            let is_new =
                self.asked.len() < limits::CAUSAL_WANTS_MAX && !self.asked.contains_key(key);
            if is_new {
                self.asked.insert(key.clone(), now);
            }
            is_new
        };
        keys.into_iter().filter(is_new).collect()
    }

    /// Whether there is room for it.
    fn push(&mut self, request: Waiting) -> bool {
        let is_full = self.waiting.len() >= limits::CAUSAL_REQUESTS_WAITING_MAX;
        if is_full || self.bytes + request.bytes > limits::WRITES_WAITING_BYTES_MAX {
            return false;
        }
        self.last_id += 1;
        self.until = if self.is_idle() { request.until } else { self.until.min(request.until) };
        self.bytes += request.bytes;
        self.waiting.insert(self.last_id, request);
        true
    }

    /// The origins of all.
    pub(super) fn take_all(&mut self) -> Vec<Origin> {
        self.take(|_| true).into_iter().map(|one| one.origin).collect()
    }

    /// Those that have waited long enough.
    fn take_late(&mut self, now: Duration) -> Vec<Waiting> {
        if now < self.until {
            return Vec::new();
        }
        let late = self.take(|one| one.until <= now);
        self.until = self.waiting.values().map(|one| one.until).min().unwrap_or_default();
        late
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
        let is_first = may_move(origin, &body) || matches!(origin, Origin::Client { .. });
        let until = if is_first { deadline.min(now + TIMEOUT) } else { deadline };
        self.wait_for_keys(origin, body, keys, (until, deadline));
    }

    /// A request waits for keys until then.
    fn wait_for_keys(
        &mut self,
        origin: Origin,
        body: Body,
        keys: Vec<Key>,
        (until, deadline): (Duration, Duration),
    ) {
        let bytes =
            body.properties().size_bytes + keys.iter().map(|(_, key)| key.len()).sum::<usize>();
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
        for (keyspace, key) in &keys {
            self.machine.touch_held(*keyspace, key);
        }
        if self.leads() {
            for (keyspace, key) in keys {
                self.jobs.fetch.want(keyspace, key, now + TIMEOUT);
            }
            return;
        }
        let mut by_keyspace: BTreeMap<KeyspaceId, Vec<Bytes>> = BTreeMap::new();
        for (keyspace, key) in self.causal.fetching.not_asked(now, keys) {
            by_keyspace.entry(keyspace).or_default().push(key);
        }
        let Some(region) = self.region_here() else { return };
        let (epoch, site) = (region.epoch, region.own);
        for (keyspace, mut keys) in by_keyspace {
            keys.truncate(limits::CAUSAL_FETCHED_KEYS_MAX);
            let fetch = Command::Causal(CausalCommand::Fetch { epoch, site, keyspace, keys });
            self.take_at_site(Origin::Discard, region.root, fetch, now + TIMEOUT);
        }
    }

    /// What is still waited for is asked for again.
    pub(super) fn want_again(&mut self) {
        let now = self.now.monotonic;
        let fetching = &mut self.causal.fetching;
        if fetching.is_idle() || now < fetching.again_at {
            return;
        }
        fetching.again_at = now + AGAIN;
        let waiting = fetching.waiting.values().flat_map(|one| one.keys.clone());
        let keys: BTreeSet<Key> = waiting.collect();
        let held = self.machine.causal();
        let keys = keys.into_iter().filter(|(keyspace, key)| !held.holds_key(*keyspace, key));
        let keys = keys.collect();
        self.want_keys(keys);
    }

    /// Requests whose keys are here by now go on; so do those that have waited long enough,
    /// elsewhere.
    pub(super) fn admit_fetched(&mut self) {
        if self.causal.fetching.is_idle() {
            return;
        }
        let now = self.now.monotonic;
        let late = self.causal.fetching.take_late(now);
        let causal = self.machine.causal();
        let fetch = &self.jobs.fetch;
        let here = (causal.applied(), causal.held_total().keys, fetch.evictions_over());
        let mut there = Vec::new();
        if self.causal.knows_evictions(self.replica.applied)
            && self.causal.fetching.looked_at.replace(here) != Some(here)
        {
            let is_held = |(keyspace, key): &Key| {
                causal.holds_key(*keyspace, key) && !fetch.evicts(*keyspace, key)
            };
            there = self.causal.fetching.take(|one| one.keys.iter().all(is_held));
        }
        for Waiting { origin, body, deadline, until, .. } in there {
            // What was held when it came may have been evicted since: of many keys some may be
            // missing at any time.
            match self.missing(&body) {
                Missing::Keys(keys) => self.wait_for_keys(origin, body, keys, (until, deadline)),
                _ => self.take_in_session(origin, body, deadline),
            }
        }
        for Waiting { origin, body, deadline, .. } in late {
            self.move_on(origin, body, deadline);
        }
    }

    /// A key of a request was evicted while it waited for something else. It does not wait for that
    /// once more, unless it must be carried out here.
    pub(super) fn go_on_without(
        &mut self,
        origin: Origin,
        body: Body,
        keys: Vec<Key>,
        deadline: Duration,
    ) {
        match may_move(origin, &body) {
            true => self.move_on(origin, body, deadline),
            false => self.fetch_first(origin, body, keys, deadline),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::origin::Ticket;
    use model::{ClientId, Guard, ReadConsistency, RequestId, Revision};

    const KEYSPACE: KeyspaceId = KeyspaceId(2);

    #[test]
    fn what_may_be_repeated_here_or_is_about_versions_goes_to_no_other_site() {
        let client = Origin::client(Ticket(1));
        let number = Some(RequestId { client: ClientId(7), sequence: 1, acknowledged_below: 0 });
        let put = |condition| Write::Put {
            key: "k".into(),
            value: "1".into(),
            condition,
            expiry: model::Expiry::Never,
            return_old: false,
        };
        let write =
            |write, request| Body::Write(Command::Write { keyspace: KEYSPACE, write, request });
        let read = |query| {
            let consistency = ReadConsistency::Linearizable;
            Body::Read { keyspace: KEYSPACE, query, consistency }
        };
        let transaction = |guards| {
            let (keyspace, steps) = (KEYSPACE, Vec::new());
            Body::Write(Command::Transaction { keyspace, guards, steps, request: None })
        };
        let guard = Guard { key: "k".into(), version: Revision(5), absent_since: None };
        for (body, may) in [
            (read(Query::Get { key: "k".into() }), true),
            (read(Query::Watch { keys: vec!["k".into()] }), false),
            (write(put(Condition::Always), None), true),
            (write(put(Condition::Always), number), false),
            (write(put(Condition::IfVersion(Revision(5))), None), false),
            (write(Write::DeleteIf { key: "k".into(), version: Revision(5) }, None), false),
            (write(Write::Add { key: "k".into(), delta: 1 }, None), true),
            (transaction(Vec::new()), true),
            (transaction(vec![guard]), false),
        ] {
            assert_eq!(may_move(client, &body), may, "{body:?}");
        }
        let doubtful = Origin::Doubtful(Ticket(1));
        assert!(!may_move(doubtful, &write(put(Condition::Always), None)), "it may be done");
    }

    #[test]
    fn a_node_asks_once_for_a_key_that_many_requests_wait_for() {
        let mut fetching = Fetching::default();
        let keys = |names: &[&'static str]| -> Vec<Key> {
            names.iter().map(|name| (KEYSPACE, Bytes::from(*name))).collect()
        };
        let now = Duration::from_secs(1);
        assert_eq!(fetching.not_asked(now, keys(&["a", "b"])), keys(&["a", "b"]));
        assert_eq!(fetching.not_asked(now + AGAIN / 2, keys(&["a", "c"])), keys(&["c"]));
        assert_eq!(fetching.not_asked(now + AGAIN, keys(&["a", "c"])), keys(&["a"]));
    }
}
