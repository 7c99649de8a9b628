//! Which decisions of failovers any node has taken over, and when each site has. They may be over,
//! and out of the registry, before the lab looks.

use super::Simulation;
use super::site_lifecycle::SiteLifecycle;
use model::{BackupChoice, Ballot, DecidedFailover, Registry, SiteId, Term};
use std::collections::BTreeMap;
use std::time::Duration;

/// A failover that is decided by a node's registry.
#[derive(Clone, Debug)]
pub struct Promoted {
    /// When the first node did, in true time.
    pub at: Duration,
    /// Which one.
    pub failover: DecidedFailover,
    /// The last version of the registry that was seen in which the lost site is not back.
    pub version: Ballot,
    /// When a node of each site first had a version that is as new as the decision.
    pub received: BTreeMap<SiteId, Duration>,
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
        if registry.version.term != Term::default() {
            self.recovered.get_or_insert(self.now);
        }
        for failover in &registry.failovers.decided {
            let is_this = |one: &&mut Promoted| one.failover.decided == failover.decided;
            match self.promoted.iter_mut().find(is_this) {
                Some(one) if !failover.returned => one.version = one.version.max(registry.version),
                Some(_) => {}
                None => self.promoted.push(Promoted {
                    at: self.now,
                    failover: failover.clone(),
                    version: registry.version,
                    received: BTreeMap::new(),
                }),
            }
        }
        for one in &mut self.promoted {
            if registry.version >= one.failover.decided {
                one.received.entry(own).or_insert(self.now);
            }
        }
        match registry.backups.choice(own) {
            BackupChoice::Off => drop(self.without_backup.insert(own, Duration::MAX)),
            _ => {
                let until = self.without_backup.get_mut(&own);
                until.into_iter().for_each(|until| *until = self.now.min(*until));
            }
        }
    }

    /// The nodes of a site are stopped for good: it serves nothing that others have taken.
    pub(super) fn note_stopped(&mut self, id: SiteId) {
        for one in &mut self.promoted {
            one.received.entry(id).or_insert(self.now);
        }
    }

    /// When a site received a decision, or stopped serving; if neither, now.
    pub fn received_by(&self, promoted: &Promoted, id: SiteId) -> Duration {
        let runs =
            |site: &super::Group| site.id == Some(id) && site.lifecycle != SiteLifecycle::Outside;
        let otherwise = if self.sites.iter().any(runs) { self.now } else { promoted.at };
        promoted.received.get(&id).copied().unwrap_or(otherwise)
    }

    /// Whether a site had an operator's order to have no backup, at that time or later.
    pub fn was_without_backup(&self, site: SiteId, since: Duration) -> bool {
        self.without_backup.get(&site).is_some_and(|until| *until >= since)
    }

    /// All decisions, in the order in which they were first seen.
    pub fn promotions(&self) -> &[Promoted] {
        &self.promoted
    }

    /// When the first failover was decided or the registry first recovered, in true time: from then
    /// on a session may have lost what it has seen. `None`: neither has happened.
    pub fn losses_since(&self) -> Option<Duration> {
        let decided = self.promoted.first().map(|one| one.at);
        decided.into_iter().chain(self.recovered).min()
    }

    /// When a node first had a registry that was recovered.
    pub fn recovered_since(&self) -> Option<Duration> {
        self.recovered
    }

    /// Decisions about a lost site that were first seen since then.
    pub fn promotions_of(
        &self,
        lost: SiteId,
        since: Duration,
    ) -> impl Iterator<Item = &Promoted> + '_ {
        let is_wanted = move |one: &&Promoted| one.failover.lost == lost && one.at >= since;
        self.promoted.iter().filter(is_wanted)
    }
}
