//! Which sites are of which region.
//!
//! A site names its region when it joins, and never another one. A region has no name of its own:
//! it has that of its root, which is one of its sites. So names and roots cannot contradict each
//! other.
//!
//! Regions are named before the first causal keyspace is made. A region that came later would begin
//! without what the others have ordered.

use super::{Registry, RegistryError, SiteEntry};
use crate::{Region, SiteId, SiteName, limits};

impl Registry {
    /// The region of a site's causal keyspaces; `None`: there was never such a keyspace.
    pub fn region_of(&self, site: SiteId) -> Option<&Region> {
        // It is asked for at every step, by all sites: most have no causal keys.
        if self.regions.is_empty() {
            return None;
        }
        let site = self.site(site)?;
        self.regions.iter().find(|region| self.is_in(site, region))
    }

    /// The region of that name; `None` is a name, too.
    pub fn region_named(&self, name: Option<&SiteName>) -> Option<&Region> {
        self.regions.iter().find(|region| match self.site(region.root) {
            Some(root) => root.region.as_ref() == name,
            None => self.is_only(region) && name.is_none(),
        })
    }

    /// The name of a region; `None`: it has none.
    pub fn region_name(&self, region: &Region) -> Option<&SiteName> {
        self.site(region.root)?.region.as_ref()
    }

    /// The sites of a region.
    pub fn sites_of(&self, region: &Region) -> impl Iterator<Item = &SiteEntry> {
        let region = *region;
        self.sites.iter().filter(move |site| self.is_in(site, &region))
    }

    /// Those of them that stay.
    pub fn staying_of(&self, region: &Region) -> impl Iterator<Item = &SiteEntry> {
        let region = *region;
        self.staying().filter(move |site| self.is_in(site, &region))
    }

    /// Whether there are several regions.
    pub fn has_regions(&self) -> bool {
        self.regions.len() > 1
    }

    /// Whether a site is of a region. The only one is that of all sites while its root is gone.
    pub(crate) fn is_in(&self, site: &SiteEntry, region: &Region) -> bool {
        match self.site(region.root) {
            Some(root) => root.region == site.region,
            None => self.is_only(region),
        }
    }

    fn is_only(&self, region: &Region) -> bool {
        self.regions.len() == 1 && self.regions[0].id == region.id
    }

    /// Whether a site can be the root of a region, or its standby: it is of the region and holds
    /// all causal keyspaces.
    pub fn can_order(&self, site: SiteId, region: &Region) -> bool {
        let is_in = self.site(site).is_some_and(|site| self.is_in(site, region));
        is_in && self.holds_all_causal(site)
    }

    pub(crate) fn has_causal(&self) -> bool {
        self.keyspaces.iter().any(|keyspace| keyspace.spec.is_causal())
    }

    pub(crate) fn stays(&self, id: SiteId) -> bool {
        self.staying().any(|site| site.id == id)
    }

    /// What the sites that stay name as their regions, ordered by the first site that does.
    pub(crate) fn names_staying(&self) -> Vec<Option<SiteName>> {
        let mut names = Vec::new();
        for site in self.staying() {
            if !names.contains(&site.region) {
                names.push(site.region.clone());
            }
        }
        names
    }

    /// A site that joins is of a region that there is, once there is a causal keyspace.
    pub(crate) fn check_region(&self, name: Option<&SiteName>) -> Result<(), RegistryError> {
        let mut names: Vec<Option<&SiteName>> = match self.has_causal() {
            true => self.regions.iter().map(|region| self.region_name(region)).collect(),
            false => Vec::new(),
        };
        let is_fixed = !names.is_empty();
        if !is_fixed {
            names = self.sites.iter().map(|site| site.region.as_ref()).collect();
        }
        names.sort_unstable();
        names.dedup();
        if names.is_empty() || names.contains(&name) {
            return Ok(());
        }
        if is_fixed {
            let all = names.into_iter().map(|name| name.map_or("none", SiteName::as_str));
            let all = all.collect::<Vec<_>>().join(", ");
            return Err(RegistryError::NewRegion { name: described(name), all });
        }
        match names.len() < limits::REGIONS_MAX {
            true => Ok(()),
            false => Err(RegistryError::TooManyRegions),
        }
    }
}

/// A region in a sentence.
pub(crate) fn described(name: Option<&SiteName>) -> String {
    name.map_or_else(|| "the region without a name".to_owned(), |name| format!("region {name}"))
}

#[cfg(test)]
mod tests;
