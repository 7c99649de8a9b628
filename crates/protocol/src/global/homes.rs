//! Which site a slot belongs to: consistent hashing over the sites of the registry.
//!
//! Each site has virtual nodes on the ring, as many as its capacity says; a slot belongs to the site
//! of the first one at or behind its own point. So a site that joins takes slots from all others and
//! one that leaves gives to all others, and no slot moves between two that stay. Sites that are about
//! to leave have no place.
//!
//! This is where a slot *should* be. Where it *is*, its token says.

use super::ring::{Point, virtual_count};
use model::{Registry, SiteId, Slot};

/// The homes of all slots, by one version of the registry.
#[derive(Debug, Default)]
pub(crate) struct Homes {
    version: u64,
    /// Ascending by point.
    points: Vec<(Point, SiteId)>,
}

impl Homes {
    /// Follows the registry.
    pub(crate) fn follow(&mut self, registry: &Registry) {
        if self.version == registry.version {
            return;
        }
        let points = registry.sites.iter().filter(|site| !site.leaving).flat_map(|site| {
            let count = virtual_count(f64::from(site.capacity_percent) / 100.0);
            (0..count).map(|index| (Point::of_virtual(site.id, index), site.id))
        });
        self.points = points.collect();
        self.points.sort_unstable_by_key(|(point, site)| (point.0, *site));
        self.version = registry.version;
    }

    /// The site a slot belongs to; `None`: all sites are about to leave.
    pub(crate) fn of(&self, slot: Slot) -> Option<SiteId> {
        let point = Point::of_slot(slot).0;
        let at = self.points.partition_point(|(other, _)| other.0 < point);
        let found = self.points.get(at).or(self.points.first());
        found.map(|(_, site)| *site)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{DeploymentId, SiteEntry, SiteName};
    use std::collections::BTreeMap;

    fn registry(version: u64, sites: &[(u32, u32, bool)]) -> Registry {
        let entry = |&(id, capacity_percent, leaving): &(u32, u32, bool)| SiteEntry {
            id: SiteId(id),
            name: SiteName::new(format!("s{id}")).unwrap(),
            incarnation: 1,
            capacity_percent,
            leaving,
            nodes: Vec::new(),
        };
        Registry {
            deployment: DeploymentId(1),
            version,
            sites: sites.iter().map(entry).collect(),
            keyspaces: Vec::new(),
            site_next: 99,
            keyspace_next: 1,
        }
    }

    fn homes(version: u64, sites: &[(u32, u32, bool)]) -> Homes {
        let mut homes = Homes::default();
        homes.follow(&registry(version, sites));
        homes
    }

    #[test]
    fn slots_move_only_to_who_joins_and_from_who_leaves() {
        let before = homes(1, &[(1, 100, false), (2, 100, false), (3, 100, false)]);
        let joined =
            homes(2, &[(1, 100, false), (2, 100, false), (3, 100, false), (4, 100, false)]);
        let left = homes(3, &[(1, 100, false), (2, 100, true), (3, 100, false)]);
        for slot in Slot::all() {
            let (was, is) = (before.of(slot), joined.of(slot));
            assert!(is == was || is == Some(SiteId(4)), "{slot} went from {was:?} to {is:?}");
            let is = left.of(slot);
            assert!(is == was || was == Some(SiteId(2)), "{slot} went from {was:?} to {is:?}");
            assert_ne!(is, Some(SiteId(2)));
        }
        assert_eq!(homes(4, &[(1, 100, true)]).of(Slot::new(5).unwrap()), None);
    }

    #[test]
    fn a_site_of_twice_the_capacity_holds_about_twice_as_many() {
        let sites: Vec<_> =
            (1..=20).map(|id| (id, if id == 1 { 200 } else { 100 }, false)).collect();
        let homes = homes(1, &sites);
        let mut counts: BTreeMap<SiteId, usize> = BTreeMap::new();
        for slot in Slot::all() {
            *counts.entry(homes.of(slot).unwrap()).or_default() += 1;
        }
        let share = usize::from(Slot::COUNT) / 21;
        assert!((share..share * 4).contains(&counts[&SiteId(1)]), "{counts:?}");
    }
}
