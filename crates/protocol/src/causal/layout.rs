//! The sites of a region, what each of them holds, and the other regions, by one registry.

use super::interest::Interest;
use model::{Position, RegionId, Registry, SiteId};
use std::sync::Arc;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// All sites of the region.
    pub(crate) sites: Vec<SiteId>,
    /// Those of them that can be its root: they do not leave, and hold all keyspaces.
    pub(crate) can_order: Vec<SiteId>,
    /// Which sites hold what.
    pub(crate) interest: Interest,
    /// The other regions, and their roots.
    pub(crate) regions: Vec<(RegionId, SiteId)>,
    /// `None` in tests without one.
    pub(crate) registry: Option<Arc<Registry>>,
}

impl Layout {
    /// That of a site's region; without one it is of all sites.
    pub(crate) fn of(registry: &Arc<Registry>, own: SiteId) -> Layout {
        let region = registry.region_of(own);
        let (sites, can_order) = match region {
            Some(region) => (
                registry.sites_of(region).map(|site| site.id).collect(),
                registry.full_replicas(region).map(|site| site.id).collect(),
            ),
            None => (registry.sites.iter().map(|site| site.id).collect(), Vec::new()),
        };
        let others =
            registry.regions.iter().filter(|one| region.is_some_and(|own| own.id != one.id));
        Layout {
            sites,
            can_order,
            interest: Interest::of(registry),
            regions: others.map(|region| (region.id, region.root)).collect(),
            registry: Some(registry.clone()),
        }
    }

    /// The epoch of another region's root.
    pub(crate) fn epoch_of(&self, id: RegionId) -> u16 {
        let registry = self.registry.as_ref();
        registry.and_then(|registry| registry.region(id)).map_or(1, |region| region.epoch)
    }

    /// Whether a place of another region's order is lost.
    pub(crate) fn is_lost(&self, id: RegionId, position: Position) -> bool {
        let registry = self.registry.as_ref();
        let region = registry.and_then(|registry| registry.region(id));
        region.is_some_and(|region| region.lacks(position))
    }

    /// Whether the end of another region's order is looked for.
    pub(crate) fn is_rebuilding(&self, id: RegionId) -> bool {
        let registry = self.registry.as_ref();
        let region = registry.and_then(|registry| registry.region(id));
        region.is_some_and(|region| region.is_rebuilding())
    }

    /// Whether another region's root is the first one since the end of its order was looked for: a
    /// part of it may be lost.
    pub(crate) fn is_cut(&self, id: RegionId) -> bool {
        let registry = self.registry.as_ref();
        let region = registry.and_then(|registry| registry.region(id));
        region.is_some_and(|region| {
            let rebuilt = region.rebuilt;
            rebuilt.is_some_and(|rebuilt| rebuilt.is_open || rebuilt.end.until == region.epoch)
        })
    }

    /// Whether it is of this registry, and not of an equal one.
    pub(crate) fn is_of(&self, registry: &Arc<Registry>) -> bool {
        self.registry.as_ref().is_some_and(|own| Arc::ptr_eq(own, registry))
    }

    /// Of sites that all stay, and can be the root.
    #[cfg(test)]
    pub(crate) fn with(sites: Vec<SiteId>, interest: Interest) -> Arc<Layout> {
        let can_order = sites.clone();
        Arc::new(Layout { sites, can_order, interest, regions: Vec::new(), registry: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{DeploymentId, KeyspaceSpec, RegistryChange, SiteEntry, SiteName};

    #[test]
    fn a_region_has_its_own_sites_and_the_roots_of_the_others() {
        let mut registry = Registry::empty(DeploymentId(7), 1);
        for (name, region) in [("a", None), ("b", Some("west")), ("c", None), ("d", Some("west"))] {
            let entry = SiteEntry {
                id: SiteId(0),
                name: SiteName::new(name).unwrap(),
                incarnation: 1,
                capacity_percent: 100,
                leaving: false,
                failure_domain: None,
                borrowed_bytes_max: None,
                region: region.map(|region| SiteName::new(region).unwrap()),
                nodes: Vec::new(),
            };
            registry.change(&RegistryChange::Join(entry)).unwrap();
        }
        let sites = [1, 2, 4].map(SiteId).to_vec();
        let spec = KeyspaceSpec { sites, ..KeyspaceSpec::causal_region("cars", "car:") };
        let too_few = registry.change(&RegistryChange::CreateKeyspace(spec.clone()));
        assert_eq!(too_few, Err(model::RegistryError::TooFewHold));
        registry.change(&RegistryChange::Leave(SiteId(3))).unwrap();
        registry.change(&RegistryChange::CreateKeyspace(spec)).unwrap();
        let registry = Arc::new(registry);
        for (own, sites, can_order, other) in
            [(1, [1, 3], &[1][..], (2, 2)), (4, [2, 4], &[2, 4], (1, 1))]
        {
            let layout = Layout::of(&registry, SiteId(own));
            assert_eq!(layout.sites, sites.map(SiteId));
            let can: Vec<u32> = layout.can_order.iter().map(|site| site.0).collect();
            assert_eq!(can, can_order);
            assert_eq!(layout.regions, [(RegionId(other.0), SiteId(other.1))]);
            assert!(layout.is_of(&registry));
        }
    }
}
