//! Which decisions of failovers any node has taken over. They may be over, and out of the registry,
//! before anybody looks.

use super::Simulation;
use model::{Ballot, DecidedFailover, Registry, SiteId};
use std::time::Duration;

/// A failover that a node knows to be decided.
#[derive(Clone, Debug)]
pub struct Promoted {
    /// When the first node did, in true time.
    pub at: Duration,
    /// Which one.
    pub failover: DecidedFailover,
    /// The last version of the registry that was seen in which the lost site is not back.
    pub version: Ballot,
}

impl<C> Simulation<C> {
    /// A node has this registry now.
    pub(super) fn note_promotions(&mut self, registry: &Registry) {
        for failover in registry.failovers.decided.iter().filter(|one| !one.returned) {
            let is_this = |one: &&mut Promoted| one.failover.decided == failover.decided;
            match self.promoted.iter_mut().find(is_this) {
                Some(one) => one.version = one.version.max(registry.version),
                None => self.promoted.push(Promoted {
                    at: self.now,
                    failover: failover.clone(),
                    version: registry.version,
                }),
            }
        }
    }

    /// Decisions about a lost site that were first heard of since then.
    pub fn promotions_of(
        &self,
        lost: SiteId,
        since: Duration,
    ) -> impl Iterator<Item = &Promoted> + '_ {
        let is_wanted = move |one: &&Promoted| one.failover.lost == lost && one.at >= since;
        self.promoted.iter().filter(is_wanted)
    }
}
