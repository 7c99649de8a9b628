//! Which site is the backup of which, and what a node has of mirrors beside its state.
//!
//! Unless an operator chose another one, a site's backup is the next site on the ring: of all sites
//! that stay, the one with the first virtual node next behind its own first one. So every site has
//! one other to keep a mirror for, and the registry alone determines which. Where sites have
//! failure domains it is the next one in another domain, if there is one: a site may then keep
//! mirrors for several others, or for none.

use super::ring::Point;
use crate::site::machine::Machine;
use model::{BackupChoice, Registry, SiteId};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use storage::state::State;

/// What a node has of mirrors beside its state.
#[derive(Debug, Default)]
pub(crate) struct Backups {
    /// By original, from its messages: which mirror, when it was last caught up (log time, ms), and
    /// how far it was behind by the last message.
    pub(crate) reported: BTreeMap<SiteId, (u64, u64, u64)>,
    pub(crate) next_gossip: Duration,
}

impl Backups {
    /// When a mirror was last caught up, by this node's wall clock; 0: never.
    pub(crate) fn caught_up_ms<S: State>(
        &self,
        from: SiteId,
        machine: &Machine<S>,
        log_now_ms: u64,
        wall_ms: u64,
    ) -> u64 {
        let Some(mirror) = machine.mirrors().get(&from) else { return 0 };
        let reported = self.reported.get(&from).filter(|reported| reported.0 == mirror.number);
        match reported.map_or(0, |reported| reported.1).max(mirror.caught_up_ms) {
            0 => 0,
            at_ms => wall_ms.saturating_sub(log_now_ms.saturating_sub(at_ms)).max(1),
        }
    }
}

fn place(site: SiteId) -> (u64, SiteId) {
    (Point::of_virtual(site, 0).0, site)
}

/// The sites that may be backups.
#[derive(Debug)]
pub(crate) struct Ring {
    /// In its order.
    sites: Vec<(u64, SiteId)>,
    /// Whether they are in several failure domains, and one of these has a name.
    has_domains: bool,
}

pub(crate) fn ring(registry: &Registry) -> Ring {
    let mut sites: Vec<_> = registry.staying().map(|site| place(site.id)).collect();
    sites.sort_unstable();
    let mut domains = registry.staying().map(|site| &site.failure_domain);
    let first = domains.next();
    let has_domains = domains.any(|domain| Some(domain) != first);
    Ring { sites, has_domains }
}

/// The backup of a site that is listed.
pub(crate) fn chosen(registry: &Registry, ring: &Ring, site: SiteId) -> Option<SiteId> {
    let Ring { sites: ring, has_domains } = ring;
    match registry.backups.choice(site) {
        BackupChoice::Off => return None,
        BackupChoice::At(at) if at != site && ring.binary_search(&place(at)).is_ok() => {
            return Some(at);
        }
        BackupChoice::At(_) | BackupChoice::Next => {}
    }
    let behind = ring.partition_point(|other| *other <= place(site));
    let mut others = ring[behind..].iter().chain(&ring[..behind]).map(|(_, other)| *other);
    let next = others.clone().next().filter(|next| *next != site)?;
    let elsewhere = || others.find(|other| !registry.fail_together(site, *other));
    has_domains.then(elsewhere).flatten().or(Some(next))
}

/// A site's backup.
pub fn backup_of(registry: &Registry, site: SiteId) -> Option<SiteId> {
    registry.site(site)?;
    chosen(registry, &ring(registry), site)
}

/// The sites that have this one as their backup.
pub(crate) fn kept_at(registry: &Registry, own: SiteId) -> BTreeSet<SiteId> {
    let ring = ring(registry);
    let sites = registry.sites.iter().map(|site| site.id);
    sites.filter(|site| chosen(registry, &ring, *site) == Some(own)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Ballot, DeploymentId, RegistryChange, SiteEntry, SiteName};

    fn registry(sites: u32) -> Registry {
        let entry = |id: u32| SiteEntry {
            id: SiteId(id),
            name: SiteName::new(format!("s{id}")).unwrap(),
            incarnation: 1,
            capacity_percent: 100,
            leaving: false,
            failure_domain: None,
            region: None,
            borrowed_bytes_max: None,
            nodes: Vec::new(),
        };
        Registry {
            sites: (1..=sites).map(entry).collect(),
            site_next: 99,
            ..Registry::empty(DeploymentId(1), 1)
        }
    }

    #[test]
    fn by_default_every_site_keeps_one_mirror_in_one_round() {
        let registry = registry(9);
        let mut at = SiteId(1);
        let mut seen = BTreeSet::new();
        while seen.insert(at) {
            let next = backup_of(&registry, at).unwrap();
            assert_eq!(kept_at(&registry, next), [at].into());
            at = next;
        }
        assert_eq!((at, seen.len()), (SiteId(1), 9));
    }

    #[test]
    fn nobody_is_its_own_backup_and_whoever_goes_is_none() {
        assert_eq!(backup_of(&registry(1), SiteId(1)), None);
        let mut registry = registry(3);
        let first = backup_of(&registry, SiteId(1)).unwrap();
        registry.change(&RegistryChange::Leave(first)).unwrap();
        let second = backup_of(&registry, SiteId(1)).unwrap();
        assert!(second != first && second != SiteId(1));
        registry.failovers.open(Ballot::FIRST, second, &[]).unwrap();
        assert!(registry.failovers.decide(Ballot::FIRST, Ballot::FIRST, Vec::new()));
        assert_eq!(backup_of(&registry, SiteId(1)), None);
        assert_eq!(backup_of(&registry, SiteId(7)), None, "there is no such site");
    }

    #[test]
    fn the_next_site_in_another_failure_domain_is_the_backup_if_there_is_one() {
        let mut registry = registry(4);
        let domain = |name: &str| Some(SiteName::new(name).unwrap());
        let next = backup_of(&registry, SiteId(1)).unwrap();
        let place =
            |registry: &Registry, id| registry.sites.iter().position(|site| site.id == id).unwrap();
        let (own, beside) = (place(&registry, SiteId(1)), place(&registry, next));
        registry.sites[own].failure_domain = domain("hall");
        registry.sites[beside].failure_domain = domain("hall");
        let other = backup_of(&registry, SiteId(1)).unwrap();
        assert!(![SiteId(1), next].contains(&other), "{other:?}");
        assert!(kept_at(&registry, other).contains(&SiteId(1)));
        // A site that fails alone is in no domain with another one that does.
        for id in (1..=4).map(SiteId) {
            let backup = backup_of(&registry, id).unwrap();
            assert!(!registry.fail_together(id, backup), "{id:?} {backup:?}");
        }
        let choice = RegistryChange::Backup(SiteId(1), BackupChoice::At(next));
        registry.change(&choice).unwrap();
        assert_eq!(backup_of(&registry, SiteId(1)), Some(next), "an operator's choice goes first");
        registry.change(&RegistryChange::Backup(SiteId(1), BackupChoice::Next)).unwrap();
        registry.sites.iter_mut().for_each(|site| site.failure_domain = domain("hall"));
        assert_eq!(backup_of(&registry, SiteId(1)), Some(next), "there is no other domain");
    }

    #[test]
    fn an_operator_chooses_otherwise() {
        let mut registry = registry(3);
        let next = backup_of(&registry, SiteId(1)).unwrap();
        let other = SiteId(if next == SiteId(2) { 3 } else { 2 });
        let mut choose = |choice| {
            registry.change(&RegistryChange::Backup(SiteId(1), choice)).unwrap();
            backup_of(&registry, SiteId(1))
        };
        assert_eq!(choose(BackupChoice::At(other)), Some(other));
        assert_eq!(choose(BackupChoice::Off), None);
        assert_eq!(choose(BackupChoice::Next), Some(next));
        let own = RegistryChange::Backup(SiteId(1), BackupChoice::At(SiteId(1)));
        assert!(registry.change(&own).is_err());
        let absent = RegistryChange::Backup(SiteId(1), BackupChoice::At(SiteId(9)));
        assert!(registry.change(&absent).is_err());
    }
}
