//! Which decisions of failovers any node has taken over, and when each site has. They may be over, and out
//! of the registry, before anybody looks.

use super::Simulation;
use model::{Ballot, DecidedFailover, Registry, SiteId};
use std::collections::BTreeMap;
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
    /// When a node of each site first had a version that is as new as the decision.
    pub heard: BTreeMap<SiteId, Duration>,
}

impl Promoted {
    /// Whether it takes a site for lost: the lost one, and those that were not asked.
    #[must_use]
    pub fn fences(&self, site: SiteId) -> bool {
        self.failover.lost == site || self.failover.without.contains(&site)
    }
}

impl<C> Simulation<C> {
    /// A node of this site has this registry now.
    pub(super) fn note_promotions(&mut self, own: SiteId, registry: &Registry) {
        for failover in &registry.failovers.decided {
            let is_this = |one: &&mut Promoted| one.failover.decided == failover.decided;
            match self.promoted.iter_mut().find(is_this) {
                Some(one) if !failover.returned => one.version = one.version.max(registry.version),
                Some(_) => {}
                None => self.promoted.push(Promoted {
                    at: self.now,
                    failover: failover.clone(),
                    version: registry.version,
                    heard: BTreeMap::new(),
                }),
            }
        }
        for one in &mut self.promoted {
            if registry.version >= one.failover.decided {
                one.heard.entry(own).or_insert(self.now);
            }
        }
    }

    /// All decisions that were heard of, in that order.
    pub fn promotions(&self) -> &[Promoted] {
        &self.promoted
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
