//! Requests for causal keyspaces that this site does not hold: other sites do, and one of them carries them out.
//!
//! A request goes whole or not at all. Where it is carried out it is admitted by the token of its session as any request there
//! is; the token of its answer names what it has seen and written there. So the session's next request, at this site or any other,
//! waits for that.
//!
//! It goes to the root: that holds all, and shows a session's writes soonest. If the root cannot be reached, another site that holds
//! the keyspace takes its place. A request that came from another site goes no further, so that none travels in circles.

use super::machine::causal::NOT_HELD;
use super::{Origin, Site};
use crate::admission::{Sender, Target};
use model::{Body, Command, Failure, KeyspaceId, Miss, SiteId, Step};
use std::time::Duration;
use storage::log::LogReader;
use storage::snapshot::Snapshots;
use storage::state::State;

/// The keyspaces that a request is about.
fn keyspaces_of(body: &Body) -> Vec<KeyspaceId> {
    match body {
        Body::Read { keyspace, .. } | Body::Write(Command::Write { keyspace, .. }) => {
            vec![*keyspace]
        }
        Body::Write(Command::Transaction { keyspace, steps, .. }) => {
            let others = steps.iter().filter_map(|step| match step {
                Step::ReadIn { keyspace, .. } => Some(*keyspace),
                Step::Read(_) | Step::Write(_) => None,
            });
            std::iter::once(*keyspace).chain(others).collect()
        }
        _ => Vec::new(),
    }
}

impl<S: State, R: LogReader, N: Snapshots> Site<S, R, N> {
    /// What is to be done with a request, if this site does not hold all that it is about.
    pub(super) fn miss(&self, body: &Body) -> Option<Miss> {
        let own = self.machine.membership()?.own;
        let spec_of = |keyspace: KeyspaceId| self.machine.spec(keyspace);
        let all = keyspaces_of(body);
        let missed = all.iter().filter_map(|keyspace| spec_of(*keyspace));
        let missed = missed.filter(|spec| !spec.is_held_by(own));
        missed.map(|spec| spec.miss).max_by_key(|miss| *miss == Miss::Refuse)
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
        match self.holder_of(&keyspaces) {
            Some(site) if miss == Miss::Forward && is_whole && !crosses_sites => {
                self.take(origin, body, Target::Site(site), deadline);
            }
            None if miss == Miss::Forward && !crosses_sites => {
                let failure = Failure::NotServing("no site that holds the keyspace is there");
                self.settle(vec![(origin, Err(failure))]);
            }
            _ => self.settle(vec![(origin, Err(NOT_HELD.into()))]),
        }
    }

    /// The site that is asked for keyspaces that are not here.
    fn holder_of(&self, keyspaces: &[KeyspaceId]) -> Option<SiteId> {
        let (member, region) = (self.machine.membership()?, self.machine.region()?);
        let lost = self.deployment.failure_detector.lost(self.now.monotonic);
        let holds = |site: &SiteId| {
            let specs = keyspaces.iter().filter_map(|keyspace| self.machine.spec(*keyspace));
            *site != member.own && specs.into_iter().all(|spec| spec.is_held_by(*site))
        };
        let others = member.registry.staying().map(|site| site.id).filter(holds);
        let best = others.min_by_key(|site| (lost.contains(site), *site != region.root, *site));
        best.or_else(|| Some(region.root).filter(holds))
    }
}
