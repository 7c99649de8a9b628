//! Requests for causal keyspaces that this site does not hold: other sites do, and one of them
//! carries them out.
//!
//! A request goes whole or not at all. Where it is carried out it is admitted by the token of its
//! session as any request there is; the token of its answer names what it has seen and written
//! there. So the session's next request, at this site or any other, waits for that.
//!
//! It goes to the root: that holds all, and shows a session's writes soonest. If the root cannot be
//! reached, another site that holds the keyspace takes its place; but not of what may be repeated
//! under the number of its client, or depends on versions: sites know neither of each other's. Of
//! keyspaces whose keys are held on demand such requests go there that are about more than some
//! keys, or whose keys do not come soon (`causal::fetching`). A request that came from another site
//! goes no further, so that none travels in circles.

use super::causal::may_move;
use super::machine::causal::NOT_HELD;
use super::{Origin, Site};
use crate::admission::{Sender, Target};
use model::{Body, Bytes, Command, Failure, KeyspaceId, Miss, Query, SiteId, Step, limits};
use std::time::Duration;
use storage::log::LogReader;
use storage::snapshot::Snapshots;
use storage::state::State;

/// What a request needs that is not here.
#[derive(Debug, PartialEq)]
pub(super) enum Missing {
    /// Nothing.
    Nothing,
    /// A keyspace of which this site holds nothing, or not all that the request is about.
    Keyspace(Miss),
    /// Keys that it could hold on demand.
    Keys(Vec<(KeyspaceId, Bytes)>),
}

/// The keys of a keyspace that a request names; `None`: it is about more than those.
fn keys_of(body: &Body, keyspace: KeyspaceId) -> Option<Vec<Bytes>> {
    let named = |query: &Query| (!query.keys().is_empty()).then(|| query.keys().to_vec());
    match body {
        Body::Read { query, .. } => named(query),
        Body::Write(Command::Write { write, .. }) => Some(write.keys().cloned().collect()),
        Body::Write(Command::Transaction { keyspace: of, guards, steps, .. }) => {
            let is_broad = |step: &Step| match step {
                Step::ReadIn { keyspace: of, .. } => *of == keyspace,
                Step::Read(query) => *of == keyspace && query.keys().is_empty(),
                Step::Write(_) => false,
            };
            if steps.iter().any(is_broad) {
                return None;
            }
            let of_steps = steps.iter().flat_map(Step::keys);
            let all = guards.iter().map(|guard| &guard.key).chain(of_steps);
            Some(if *of == keyspace { all.cloned().collect() } else { Vec::new() })
        }
        _ => None,
    }
}

/// Whether a request asks for nothing but to be admitted.
fn is_empty(body: &Body) -> bool {
    matches!(body, Body::Read { query: Query::GetMany { keys }, .. } if keys.is_empty())
}

/// The keyspaces that a request is about.
fn keyspaces_of(body: &Body) -> Vec<KeyspaceId> {
    let steps = match body {
        Body::Write(Command::Transaction { steps, .. }) => &steps[..],
        _ => &[],
    };
    let others = steps.iter().filter_map(|step| match step {
        Step::ReadIn { keyspace, .. } => Some(*keyspace),
        Step::Read(_) | Step::Write(_) => None,
    });
    body.keyspace().into_iter().chain(others).collect()
}

impl<S: State, R: LogReader, N: Snapshots> Site<S, R, N> {
    /// What a request needs that this site does not hold.
    pub(super) fn missing(&self, body: &Body) -> Missing {
        let Some(own) = self.machine.membership().map(|member| member.own) else {
            return Missing::Nothing;
        };
        if is_empty(body) {
            return Missing::Nothing;
        }
        let (mut keys, mut miss, mut count) = (Vec::new(), None, 0);
        for keyspace in keyspaces_of(body) {
            let Some(spec) = self.machine.spec(keyspace).filter(|spec| !spec.is_held_by(own))
            else {
                continue;
            };
            match (spec.miss, keys_of(body, keyspace)) {
                (Miss::Refuse, _) => miss = Some(Miss::Refuse),
                (Miss::Fetch { .. }, Some(named)) => {
                    count += named.len();
                    // No site holds a key that is too long: it is refused here.
                    let is_long = |key: &Bytes| key.len() > limits::KEY_BYTES_MAX;
                    let missed = named.into_iter().filter(|key| !is_long(key));
                    let missed = missed.filter(|key| !self.holds_for_long(keyspace, key));
                    keys.extend(missed.map(|key| (keyspace, key)));
                }
                (Miss::Forward | Miss::Fetch { .. }, _) => {
                    miss = miss.or(Some(Miss::Forward));
                }
            }
        }
        keys.sort_unstable();
        keys.dedup();
        match miss {
            Some(miss) => Missing::Keyspace(miss),
            // Whatever is held: a write that is sent again goes where it went before.
            None if count > limits::CAUSAL_FETCHED_KEYS_MAX => Missing::Keyspace(Miss::Forward),
            None if keys.is_empty() => Missing::Nothing,
            None => Missing::Keys(keys),
        }
    }

    /// Whether a key is held on demand, and nothing in the log evicts it, as far as that is known
    /// here.
    pub(super) fn holds_for_long(&self, keyspace: KeyspaceId, key: &Bytes) -> bool {
        self.machine.causal().holds_key(keyspace, key)
            && !self.jobs.fetch.evicts(keyspace, key)
            && self.causal.knows_evictions(self.replica.applied)
    }

    /// Whether this site holds keys of a keyspace on demand.
    pub(super) fn is_on_demand(&self, keyspace: KeyspaceId) -> bool {
        let own = self.machine.membership().map(|member| member.own);
        let spec = self.machine.spec(keyspace);
        own.zip(spec).is_some_and(|(own, spec)| spec.on_demand_at(own).is_some())
    }

    /// This site does not hold what a request is about.
    pub(super) fn take_elsewhere(
        &mut self,
        origin: Origin,
        body: Body,
        miss: Miss,
        deadline: Duration,
    ) {
        let keyspaces = keyspaces_of(&body);
        // What only this site has of a keyspace of its own is not at another one.
        let is_whole = keyspaces.iter().all(|keyspace| self.is_causal(*keyspace));
        let crosses_sites = origin.sender() == Sender::Site;
        match self.holder_of(&keyspaces, may_move(origin, &body)) {
            Some(site) if miss == Miss::Forward && is_whole && !crosses_sites => {
                self.take(origin, body, Target::Site(site), deadline);
            }
            None if miss == Miss::Forward && !crosses_sites => {
                let failure = Failure::NotServing("the site that would carry it out is not there");
                self.settle(vec![(origin, Err(failure))]);
            }
            _ => self.settle(vec![(origin, Err(NOT_HELD.into()))]),
        }
    }

    /// The site of the region that is asked for keyspaces that are not here; by a request that may
    /// go to any, or to the root only.
    fn holder_of(&self, keyspaces: &[KeyspaceId], is_any: bool) -> Option<SiteId> {
        let (member, region) = (self.machine.membership()?, self.machine.region()?);
        let lost = self.deployment.failure_detector.lost(self.now.monotonic);
        let holds = |site: &SiteId| {
            let specs = keyspaces.iter().filter_map(|keyspace| self.machine.spec(*keyspace));
            *site != member.own && specs.into_iter().all(|spec| spec.is_held_by(*site))
        };
        if !is_any {
            return Some(region.root).filter(|root| holds(root) && !lost.contains(root));
        }
        let others = member.registry.staying_of(region).map(|site| site.id).filter(holds);
        let best = others.min_by_key(|site| (lost.contains(site), *site != region.root, *site));
        best.or_else(|| Some(region.root).filter(holds))
    }
}
