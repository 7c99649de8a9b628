//! The regions of causal keyspaces, as operators name them and see them.

use super::registry::name_of;
use model::{Refusal, Region, Registry, RegistryError, SiteName, StandbyChoice};
use tonic::Status;
use wire::grpc::{status, v1};

/// The region of that name; `none`: the one without a name; empty: that of this site.
pub(super) fn asked(registry: &Registry, own: &SiteName, name: &str) -> Result<Region, Status> {
    let refused = |error| status(&Refusal::Registry(error).into());
    let found = match SiteName::new(name) {
        Ok(name) => {
            let stated = model::SiteEntry::stated_region(Some(&name));
            registry.region_named(stated.as_ref())
        }
        Err(_) if !name.is_empty() => None,
        Err(_) if registry.has_regions() => {
            let site = registry.site_named(own.as_str());
            site.and_then(|site| registry.region_of(site.id))
        }
        Err(_) => registry.regions.first(),
    };
    let none = match name {
        "" => RegistryError::NoRegion,
        name => RegistryError::NoRegionNamed(name.to_owned()),
    };
    found.copied().ok_or_else(|| refused(none))
}

/// A region without what a node has of its order.
pub(super) fn shown(registry: &Registry, region: &Region) -> v1::ShowRegionResponse {
    let (standby, rule) = (region.standby, region.standby_rule);
    v1::ShowRegionResponse {
        id: u32::from(region.id.0),
        epoch: u32::from(region.epoch),
        root: name_of(registry, region.root),
        next: region.next.map(|next| name_of(registry, next)).unwrap_or_default(),
        rebuilt: region.rebuilt.map(|rebuilt| v1::RebuiltRegion {
            is_open: rebuilt.is_open,
            until_epoch: u32::from(rebuilt.end.until),
            above_epoch: u32::from(rebuilt.end.above.epoch()),
            above_count: rebuilt.end.above.count(),
        }),
        standby: standby.map(|one| name_of(registry, one.site)).unwrap_or_default(),
        standby_in_sync: standby.is_some_and(|one| one.in_sync),
        standby_by_hand: rule.by_hand,
        standby_nearest: rule.choice == StandbyChoice::Nearest,
        name: registry.region_name(region).map(SiteName::to_string).unwrap_or_default(),
        ..v1::ShowRegionResponse::default()
    }
}
