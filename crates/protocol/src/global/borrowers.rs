//! Which sites may have a group that is at home at another one, by what operators state.
//!
//! The home asks when it decides and again when it lends; a borrower when it decides, when a loan
//! comes and while it has the group. All of them ask here, by the registry alone: where both sites
//! have the same version no group goes to and fro.

use super::backups::{Ring, chosen, ring};
use model::{Group, KeyspaceSpec, PlacementBar, Registry, SiteId, SiteName};

/// All homes: what is the same for each is found once.
#[derive(Debug)]
pub(crate) struct Homes<'a> {
    registry: &'a Registry,
    /// Where sites state failure domains.
    ring: Option<Ring>,
}

impl<'a> Homes<'a> {
    /// By this registry.
    pub(crate) fn of(registry: &'a Registry) -> Homes<'a> {
        let has_domains = registry.sites.iter().any(|site| site.failure_domain.is_some());
        Homes { registry, ring: has_domains.then(|| ring(registry)) }
    }

    /// The sites that may borrow the groups of one.
    pub(crate) fn borrowers(&self, home: SiteId) -> Borrowers<'a> {
        let domain =
            self.ring.as_ref().and_then(|ring| domain_of_copies(self.registry, ring, home));
        Borrowers { registry: self.registry, home, domain }
    }
}

/// The sites that may borrow the groups of one home.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Borrowers<'a> {
    registry: &'a Registry,
    home: SiteId,
    /// The failure domain in which the home and its backup are both, if there are sites in another
    /// one.
    domain: Option<&'a SiteName>,
}

impl<'a> Borrowers<'a> {
    /// Of the groups of this home.
    pub(crate) fn of(registry: &'a Registry, home: SiteId) -> Borrowers<'a> {
        Homes::of(registry).borrowers(home)
    }

    /// Whether some sites would be beside all other copies.
    pub(crate) fn has_domain(&self) -> bool {
        self.domain.is_some()
    }

    /// Why a site must not have a group, whatever sites answer. The home may always have it, unless
    /// it is pinned to another one.
    pub(crate) fn bar(
        &self,
        spec: &KeyspaceSpec,
        group: &Group,
        to: SiteId,
    ) -> Option<PlacementBar> {
        let pinned = self.registry.pinned(group);
        if to == self.home {
            return pinned.filter(|pin| *pin != to).map(|_| PlacementBar::Pinned);
        }
        let is_there = self.registry.site(to).is_some_and(|site| !site.leaving);
        if !is_there || self.registry.is_lost(to) {
            return Some(PlacementBar::Leaves);
        }
        if !spec.may_lend_to(to) {
            return Some(PlacementBar::LendTo);
        }
        match pinned {
            // The operator has named the site.
            Some(pin) if pin == to => None,
            Some(_) => Some(PlacementBar::Pinned),
            None => self.is_beside_copies(to).then_some(PlacementBar::Domain),
        }
    }

    /// Whether a group goes home from a site that has it, wherever it is used.
    pub(crate) fn sends_home(&self, spec: &KeyspaceSpec, group: &Group, from: SiteId) -> bool {
        let bar = self.bar(spec, group, from);
        matches!(bar, Some(PlacementBar::LendTo | PlacementBar::Domain))
    }

    /// Whether the home, its backup and this site would be all in one failure domain, and there are
    /// others.
    pub(crate) fn is_beside_copies(&self, to: SiteId) -> bool {
        let domain = |site: &'a model::SiteEntry| site.failure_domain.as_ref();
        let at = self.registry.site(to).and_then(domain);
        to != self.home && self.domain.is_some() && at == self.domain
    }
}

/// The failure domain that all copies of a site's groups are in, if some sites are in no such
/// domain.
fn domain_of_copies<'a>(registry: &'a Registry, ring: &Ring, home: SiteId) -> Option<&'a SiteName> {
    let domain = registry.site(home)?.failure_domain.as_ref()?;
    let backup = || chosen(registry, ring, home);
    let has_backup_elsewhere =
        || backup().is_some_and(|backup| !registry.fail_together(home, backup));
    let is_elsewhere = |site: &model::SiteEntry| site.failure_domain.as_ref() != Some(domain);
    let has_choice = registry.staying().any(is_elsewhere);
    (has_choice && !has_backup_elsewhere()).then_some(domain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::global::backups::backup_of;
    use model::{
        BackupChoice, Bytes, DeploymentId, Keyspace, KeyspaceId, Pin, Placement, RegistryChange,
        SiteEntry,
    };

    const CARS: KeyspaceId = KeyspaceId(1);
    const HOME: SiteId = SiteId(1);
    const BESIDE: SiteId = SiteId(2);
    const THIRD: SiteId = SiteId(3);
    const AWAY: SiteId = SiteId(4);

    /// Three sites in one hall, and one elsewhere; an adaptive keyspace.
    fn registry() -> Registry {
        let entry = |id| SiteEntry {
            failure_domain: (id < 4).then(|| SiteName::new("hall").unwrap()),
            ..SiteEntry::new(SiteId(id), SiteName::new(format!("s{id}")).unwrap())
        };
        let spec = KeyspaceSpec::linearizable_global("cars", "car:");
        let spec = KeyspaceSpec { placement: Placement::Adaptive, ..spec };
        Registry {
            sites: (1..=4).map(entry).collect(),
            site_next: 5,
            keyspaces: vec![Keyspace { id: CARS, spec }],
            keyspace_next: 2,
            ..Registry::empty(DeploymentId(7), 1)
        }
    }

    fn group() -> Group {
        Group { keyspace: CARS, tag: Bytes::from_static(b"7") }
    }

    fn bars(registry: &Registry) -> [Option<PlacementBar>; 4] {
        let (spec, borrowers) = (&registry.keyspaces[0].spec, Borrowers::of(registry, HOME));
        [HOME, BESIDE, THIRD, AWAY].map(|site| borrowers.bar(spec, &group(), site))
    }

    #[test]
    fn a_site_beside_all_other_copies_has_no_group() {
        let mut registry = registry();
        assert_eq!(backup_of(&registry, HOME), Some(AWAY));
        assert_eq!(bars(&registry), [None; 4], "the backup is elsewhere");
        let beside = Some(PlacementBar::Domain);
        for choice in [BackupChoice::Off, BackupChoice::At(BESIDE)] {
            registry.change(&RegistryChange::Backup(HOME, choice)).unwrap();
            assert_eq!(bars(&registry), [None, beside, beside, None]);
        }
        let spec = &registry.keyspaces[0].spec;
        let borrowers = Borrowers::of(&registry, HOME);
        assert!(borrowers.sends_home(spec, &group(), BESIDE));
        assert!(!borrowers.sends_home(spec, &group(), HOME));
        // There is no other choice.
        registry.sites[3].failure_domain = SiteName::new("hall").ok();
        assert_eq!(bars(&registry), [None; 4]);
        registry.sites[3].failure_domain = None;
        registry.sites[3].leaving = true;
        assert_eq!(bars(&registry), [None, None, None, Some(PlacementBar::Leaves)]);
    }

    #[test]
    fn a_keyspace_is_lent_to_the_sites_that_it_names_and_a_group_to_its_pin() {
        let mut registry = registry();
        registry.keyspaces[0].spec.lend_to = vec![BESIDE, AWAY];
        let elsewhere = Some(PlacementBar::LendTo);
        assert_eq!(bars(&registry), [None, None, elsewhere, None]);
        let Group { keyspace, tag } = group();
        let pin = |site| RegistryChange::Pin(Pin { keyspace, tag: tag.clone(), site });
        registry.change(&pin(BESIDE)).unwrap();
        let pinned = Some(PlacementBar::Pinned);
        assert_eq!(bars(&registry), [pinned, None, elsewhere, pinned]);
        // An operator who names the site has regarded its failure domain.
        registry.change(&RegistryChange::Backup(HOME, BackupChoice::Off)).unwrap();
        assert_eq!(bars(&registry), [pinned, None, elsewhere, pinned]);
        // What users of the data are promised goes before a pin.
        registry.keyspaces[0].spec.lend_to = vec![AWAY];
        assert_eq!(bars(&registry), [pinned, elsewhere, elsewhere, pinned]);
    }
}
