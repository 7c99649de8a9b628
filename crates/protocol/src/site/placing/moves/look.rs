//! Which groups a decision looks at ([`Carried`]), and where these are accessed from.

use super::super::sites::Picture;
use crate::placement::GroupKey;
use crate::placement::{Basis, Carried, Site as Place, Tick};
use crate::site::counting::{Counting, MEMORY_S, Users};
use model::SiteId;
use std::collections::BTreeSet;
use std::time::Duration;

/// See the module.
#[derive(Debug, Default)]
pub(in crate::site::placing) struct Look {
    carried: Carried,
    /// How many groups are looked at.
    pub(in crate::site::placing) count: usize,
    /// Where the groups are accessed from that were looked at since all were.
    pub(in crate::site::placing) origins: BTreeSet<SiteId>,
}

impl Look {
    /// A decision of a site begins.
    pub(super) fn begin(
        &mut self,
        (now, elapsed): (Duration, Duration),
        (own, at): (SiteId, Place),
        counting: &Counting,
        picture: &Picture,
    ) {
        let is_free = picture.room.is_empty() && picture.prices.is_empty();
        let basis = (is_free && counting.fades_alike()).then(|| Basis {
            matrix: picture.latencies.mean(),
            rules: &picture.rules,
            at,
            one_of: picture.stability.one_of,
            left: (-elapsed.as_secs_f32() / MEMORY_S).exp(),
        });
        if self.carried.begin(basis) {
            self.origins.clear();
        }
        self.see(now, own, counting);
    }

    /// Counts the groups, and where they are accessed from.
    pub(super) fn see(&mut self, now: Duration, own: SiteId, counting: &Counting) {
        let (mut count, mut origins) = (0, std::mem::take(&mut self.origins));
        for (_, users) in self.groups(now, own, counting) {
            origins.extend(users.rates.keys().copied());
            count += 1;
        }
        (self.count, self.origins) = (count, origins);
    }

    /// The groups that are looked at, without those that only the site itself accesses.
    pub(super) fn groups<'a>(
        &'a self,
        now: Duration,
        own: SiteId,
        counting: &'a Counting,
    ) -> impl Iterator<Item = (GroupKey, Users)> + 'a {
        counting.lendable_if(now, Some(own), |key, profile| self.carried.looks_at(key, profile))
    }

    /// The decision was made. `open`: groups that it has not settled.
    pub(super) fn end(&mut self, now: Duration, open: Vec<GroupKey>) {
        self.carried.end(Tick::of(now), open);
    }
}
