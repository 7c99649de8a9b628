//! The site that a slot belongs to, and the site that registers its owner; both follow from the
//! registry.
//!
//! A slot's *preferred owner* is the site that should have it; its token has who *has* it. Slots
//! have it in runs of 32, so that a map of them stays short. A run belongs to the site with the
//! highest ticket for it (highest random weight: Thaler and Ravishankar 1998), and a site has as
//! many tickets as its capacity. So a site that joins takes runs from all others, one that leaves
//! gives to all others, and no run moves between two that stay. Sites that are about to leave have
//! none.
//!
//! The ring's few virtual nodes would give three equal sites very unequal shares; they *register*
//! slots instead: the ring's successor of a slot has its owner if that is not the preferred one,
//! and a lookup on the ring ends there (docs/adr/0021).

use super::ring::{Point, ticket, virtual_count};
use model::{Ballot, Registry, SiteEntry, SiteId, Slot};
use std::collections::BTreeSet;

/// Slots that have one preferred owner together.
const RUN_SLOTS: u16 = 32;
const RUNS: u16 = Slot::COUNT / RUN_SLOTS;

/// The preferred owners of all slots, by one version of the registry.
#[derive(Debug, Default)]
pub(crate) struct PreferredOwners {
    version: Ballot,
    /// Of each run; empty: all sites are about to leave.
    preferred_owners: Vec<SiteId>,
    /// The sites that stay, and how many tickets each has.
    staying: Vec<(SiteId, u32)>,
    /// The ring's virtual nodes, ascending by point.
    points: Vec<(Point, SiteId)>,
}

impl PreferredOwners {
    /// Follows the registry.
    pub(crate) fn follow(&mut self, registry: &Registry) {
        if self.version == registry.version {
            return;
        }
        self.version = registry.version;
        let staying: Vec<_> = registry.staying().map(|site| (site.id, tickets(site))).collect();
        // Most versions do not change it.
        if staying == self.staying {
            return;
        }
        let of_site = |&(site, tickets): &(SiteId, u32)| {
            (0..tickets).map(move |index| (Point::of_virtual(site, index), site))
        };
        self.points = staying.iter().flat_map(of_site).collect();
        self.points.sort_unstable_by_key(|(point, site)| (point.0, *site));
        let before = std::mem::replace(&mut self.staying, staying);
        self.preferred_owners =
            (0..RUNS).filter_map(|run| self.next_preferred(run, &before)).collect();
    }

    /// The preferred owner of a run. No run moves between two sites that stay, so only a site that
    /// is new can take it from one of these.
    fn next_preferred(&self, run: u16, before: &[(SiteId, u32)]) -> Option<SiteId> {
        let preferred = self.preferred_owners.get(usize::from(run));
        let stays = |site: &&(SiteId, u32)| before.contains(site);
        match self.staying.iter().filter(stays).find(|(site, _)| preferred == Some(site)) {
            Some(preferred) => {
                let new = self.staying.iter().filter(|site| !before.contains(site));
                highest(run, new.chain([preferred]))
            }
            None => highest(run, &self.staying),
        }
    }

    fn preferred_of(&self, run: u16, is_able: impl Fn(SiteId) -> bool) -> Option<SiteId> {
        highest(run, self.staying.iter().filter(|(site, _)| is_able(*site)))
    }

    /// The site a slot belongs to; `None`: all sites are about to leave.
    pub(crate) fn of(&self, slot: Slot) -> Option<SiteId> {
        self.preferred_owners.get(usize::from(slot.number() / RUN_SLOTS)).copied()
    }

    /// The site a slot would belong to without those; `None`: no other site stays.
    pub(crate) fn without(&self, slot: Slot, out: &BTreeSet<SiteId>) -> Option<SiteId> {
        let preferred = self.of(slot)?;
        match out.contains(&preferred) {
            false => Some(preferred),
            true => self.preferred_of(slot.number() / RUN_SLOTS, |site| !out.contains(&site)),
        }
    }

    /// The site that a lookup of a slot ends at, on a ring at rest.
    pub(crate) fn registrar(&self, slot: Slot) -> Option<SiteId> {
        let point = Point::of_slot(slot).0;
        let at = self.points.partition_point(|(other, _)| other.0 < point);
        let found = self.points.get(at).or(self.points.first());
        found.map(|(_, site)| *site)
    }
}

/// The site with the highest ticket for a run.
fn highest<'a>(run: u16, sites: impl IntoIterator<Item = &'a (SiteId, u32)>) -> Option<SiteId> {
    let best = |&&(site, tickets): &&(SiteId, u32)| {
        let highest = (0..tickets).map(|index| ticket(run, site, index)).max();
        (highest, site)
    };
    sites.into_iter().max_by_key(best).map(|(site, _)| *site)
}

fn tickets(site: &SiteEntry) -> u32 {
    virtual_count(f64::from(site.capacity_percent) / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{DeploymentId, SiteName};
    use std::collections::BTreeMap;

    fn registry(version: u64, sites: &[(u32, u32, bool)]) -> Registry {
        let entry = |&(id, capacity_percent, leaving): &(u32, u32, bool)| SiteEntry {
            id: SiteId(id),
            name: SiteName::new(format!("s{id}")).unwrap(),
            incarnation: 1,
            capacity_percent,
            leaving,
            failure_domain: None,
            region: None,
            borrowed_bytes_max: None,
            nodes: Vec::new(),
        };
        Registry {
            sites: sites.iter().map(entry).collect(),
            site_next: 99,
            ..Registry::empty(DeploymentId(1), version)
        }
    }

    fn preferred_owners(version: u64, sites: &[(u32, u32, bool)]) -> PreferredOwners {
        let mut preferred_owners = PreferredOwners::default();
        preferred_owners.follow(&registry(version, sites));
        preferred_owners
    }

    fn counts(preferred_owners: &PreferredOwners) -> BTreeMap<SiteId, usize> {
        let mut counts: BTreeMap<SiteId, usize> = BTreeMap::new();
        for slot in Slot::all() {
            *counts.entry(preferred_owners.of(slot).unwrap()).or_default() += 1;
        }
        counts
    }

    #[test]
    fn without_a_site_slots_are_where_they_would_be_had_it_left() {
        let with = preferred_owners(1, &[(1, 100, false), (2, 200, false), (3, 100, false)]);
        let left = preferred_owners(2, &[(1, 100, false), (2, 200, true), (3, 100, false)]);
        let out = BTreeSet::from([SiteId(2)]);
        assert!(Slot::all().all(|slot| with.without(slot, &out) == left.of(slot)));
        let all = (1..=3).map(SiteId).collect();
        assert_eq!(with.without(Slot::new(0).unwrap(), &all), None);
    }

    #[test]
    fn slots_move_only_to_who_joins_and_from_who_leaves() {
        let before = preferred_owners(1, &[(1, 100, false), (2, 100, false), (3, 100, false)]);
        let joined = preferred_owners(
            2,
            &[(1, 100, false), (2, 100, false), (3, 100, false), (4, 100, false)],
        );
        let left = preferred_owners(3, &[(1, 100, false), (2, 100, true), (3, 100, false)]);
        for slot in Slot::all() {
            let (was, is) = (before.of(slot), joined.of(slot));
            assert!(is == was || is == Some(SiteId(4)), "{slot} went from {was:?} to {is:?}");
            let is = left.of(slot);
            assert!(is == was || was == Some(SiteId(2)), "{slot} went from {was:?} to {is:?}");
            assert_ne!(is, Some(SiteId(2)));
        }
        assert_eq!(preferred_owners(4, &[(1, 100, true)]).of(Slot::new(5).unwrap()), None);
        assert_eq!(preferred_owners(4, &[(1, 100, true)]).registrar(Slot::new(5).unwrap()), None);
    }

    #[test]
    fn homes_do_not_depend_on_what_was_before() {
        let mut preferred_owners = PreferredOwners::default();
        let versions: [&[(u32, u32, bool)]; 5] = [
            &[(1, 100, false)],
            &[(1, 100, false), (2, 300, false), (3, 100, false)],
            &[(1, 100, false), (2, 100, false), (4, 100, false)],
            &[(1, 100, true), (2, 100, true)],
            &[(2, 200, false), (3, 100, false)],
        ];
        for (version, sites) in (1..).zip(versions) {
            preferred_owners.follow(&registry(version, sites));
            assert_eq!(
                preferred_owners.preferred_owners,
                self::preferred_owners(version, sites).preferred_owners,
                "{version}"
            );
        }
    }

    #[test]
    fn shares_are_as_the_capacities() {
        let is_about = |count: usize, due: usize| (due * 4 / 5..=due * 6 / 5).contains(&count);
        let all = usize::from(Slot::COUNT);
        for first in 1..20 {
            let few = [(first, 100, false), (first + 1, 100, false), (first + 2, 100, false)];
            let counts = counts(&preferred_owners(1, &few));
            assert!(counts.values().all(|count| is_about(*count, all / 3)), "{counts:?}");
        }
        let uneven = counts(&preferred_owners(1, &[(1, 300, false), (2, 100, false)]));
        assert!(is_about(uneven[&SiteId(1)], all * 3 / 4), "{uneven:?}");
    }

    #[test]
    fn homes_come_in_runs() {
        let preferred_owners = preferred_owners(1, &[(1, 100, false), (2, 100, false)]);
        let mut slots = Slot::all().map(|slot| preferred_owners.of(slot));
        let mut changes = 0;
        let mut last = slots.next().unwrap();
        for preferred in slots {
            changes += usize::from(preferred != last);
            last = preferred;
        }
        assert!(changes < usize::from(RUNS), "{changes}");
    }
}
