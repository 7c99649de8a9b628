//! Which promotions of lost sites' backups any node has heard of. They may be over, and out of the
//! registry, before anybody looks.

use super::Simulation;
use model::{Ballot, Promotion, Registry, SiteId};
use std::time::Duration;

/// A promotion that a node has heard of.
#[derive(Clone, Debug)]
pub struct Promoted {
    /// When the first node did, in true time.
    pub at: Duration,
    /// Which one.
    pub promotion: Promotion,
    /// The last version of the registry that was seen with it.
    pub version: Ballot,
}

impl<C> Simulation<C> {
    /// A node has this registry now.
    pub(super) fn note_promotions(&mut self, registry: &Registry) {
        for promotion in &registry.backups.promotions {
            let is_this = |one: &&mut Promoted| one.promotion == *promotion;
            match self.promoted.iter_mut().find(is_this) {
                Some(one) => one.version = one.version.max(registry.version),
                None => self.promoted.push(Promoted {
                    at: self.now,
                    promotion: promotion.clone(),
                    version: registry.version,
                }),
            }
        }
    }

    /// Promotions of a site's backup that were first heard of since then.
    pub fn promotions_of(
        &self,
        lost: SiteId,
        since: Duration,
    ) -> impl Iterator<Item = &Promoted> + '_ {
        let is_wanted = move |one: &&Promoted| one.promotion.lost == lost && one.at >= since;
        self.promoted.iter().filter(is_wanted)
    }
}
