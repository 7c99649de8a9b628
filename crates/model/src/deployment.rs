//! A deployment: the sites that keep global keys together, and what all of them must agree on.

use crate::backup::{BackupChoice, Backups, Promotion};
use crate::{Keyspace, NodeId, Revision, SiteId, SiteName, Slot, limits};

/// Which deployment. Drawn at random by the site that began it: two of them never mix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeploymentId(pub u64);

/// What every site of a deployment knows: which sites there are and where, and the keyspaces.
///
/// Whoever holds [`Registry::SLOT`] may change it, so there is one order of its versions; every site
/// keeps a copy of the latest version it has heard of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registry {
    /// Which deployment.
    pub deployment: DeploymentId,
    /// One more with each change.
    pub version: u64,
    /// The sites, ordered by id.
    pub sites: Vec<SiteEntry>,
    /// The keyspaces besides the default one, ordered by id.
    pub keyspaces: Vec<Keyspace>,
    /// The id of the next site to join.
    pub site_next: u32,
    /// The id of the next keyspace to be made.
    pub keyspace_next: u32,
    /// Which sites are whose backups, and what was promoted.
    pub backups: Backups,
}

/// A site, as the others know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteEntry {
    /// Its id.
    pub id: SiteId,
    /// Its name, unique while it is there.
    pub name: SiteName,
    /// Which site of that name: drawn when it began, so that asking to join twice joins once.
    pub incarnation: u64,
    /// How much of the slots it should hold: 100 is one share.
    pub capacity_percent: u32,
    /// Whether it is handing everything over, to leave.
    pub leaving: bool,
    /// Its nodes, ordered by id.
    pub nodes: Vec<NodeEntry>,
}

/// A node of a site, as the other sites know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeEntry {
    /// Its id in its site.
    pub node: NodeId,
    /// Its peer port, `host:port`.
    pub peer: String,
    /// Where clients of the Redis Cluster protocol find it, `host:port`; empty: nowhere.
    pub cluster: String,
}

/// A change of the registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegistryChange {
    /// A site joins. Its id is given to it; asked again by the same incarnation, it is the same one.
    Join(SiteEntry),
    /// A site says what it is like now.
    Update(SiteEntry),
    /// A node of a site says where it is.
    Node(SiteId, NodeEntry),
    /// A site is going to leave: nothing more is handed to it.
    Leave(SiteId),
    /// A site has handed everything over and is gone.
    Remove(SiteId),
    /// An operator says which site is to be a site's backup.
    Backup(SiteId, BackupChoice),
    /// A site was lost, and its backup takes over.
    Promote(Promotion),
    /// A site that was lost has heard of that promotion, and holds nothing of before; what it begins
    /// from this revision on counts.
    Return(SiteId, u64, Revision),
}

/// Why the registry cannot be changed so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegistryError {
    /// The name is taken.
    #[error(
        "there is a site {0} already; give the new one another --site, or join that site with --node"
    )]
    NameTaken(SiteName),
    /// There is no such site.
    #[error("there is no site {0}; `portolan site list` shows those there are")]
    NoSite(String),
    /// There are as many as there may be.
    #[error("a deployment has at most {max} sites", max = limits::SITES_MAX)]
    TooManySites,
    /// Nobody would be left.
    #[error("{0} is the last site that stays; it cannot leave")]
    LastSite(SiteName),
    /// It would be its own.
    #[error("{0} cannot be its own backup; name another site")]
    OwnBackup(SiteName),
}

impl Registry {
    /// Whoever holds this slot may change the registry.
    pub const SLOT: u16 = 0;

    /// The slot of that number.
    pub fn slot() -> Slot {
        Slot::new(Registry::SLOT).expect("a slot's number")
    }

    /// A site by its id.
    pub fn site(&self, id: SiteId) -> Option<&SiteEntry> {
        let at = self.sites.binary_search_by_key(&id, |site| site.id).ok()?;
        Some(&self.sites[at])
    }

    /// A site by its name.
    pub fn site_named(&self, name: &str) -> Option<&SiteEntry> {
        self.sites.iter().find(|site| site.name.as_str() == name)
    }

    /// Applies a change. Answers with the id of the site it was about. The version is counted up if
    /// anything is other than before.
    ///
    /// # Errors
    /// Nothing is changed then.
    pub fn change(&mut self, change: &RegistryChange) -> Result<SiteId, RegistryError> {
        match change {
            RegistryChange::Join(entry) => {
                if let Some(there) = self.site_named(entry.name.as_str()) {
                    let same = there.incarnation == entry.incarnation;
                    let taken = RegistryError::NameTaken(entry.name.clone());
                    return if same { Ok(there.id) } else { Err(taken) };
                }
                if self.sites.len() >= limits::SITES_MAX {
                    return Err(RegistryError::TooManySites);
                }
                let id = SiteId(self.site_next);
                self.site_next += 1;
                self.sites.push(SiteEntry { id, leaving: false, ..entry.clone() });
                self.version += 1;
                Ok(id)
            }
            RegistryChange::Update(entry) => {
                let site = self.site_mut(entry.id)?;
                let updated = SiteEntry {
                    name: site.name.clone(),
                    incarnation: site.incarnation,
                    leaving: site.leaving,
                    ..entry.clone()
                };
                if *site != updated {
                    *site = updated;
                    self.version += 1;
                }
                Ok(entry.id)
            }
            RegistryChange::Node(id, entry) => {
                let site = self.site_mut(*id)?;
                match site.nodes.binary_search_by_key(&entry.node, |node| node.node) {
                    Ok(at) if site.nodes[at] == *entry => return Ok(*id),
                    Ok(at) => site.nodes[at] = entry.clone(),
                    Err(at) => site.nodes.insert(at, entry.clone()),
                }
                self.version += 1;
                Ok(*id)
            }
            RegistryChange::Leave(id) => {
                let others_stay = self.sites.iter().any(|site| site.id != *id && !site.leaving);
                let site = self.site_mut(*id)?;
                if !others_stay {
                    return Err(RegistryError::LastSite(site.name.clone()));
                }
                if !std::mem::replace(&mut site.leaving, true) {
                    self.version += 1;
                }
                Ok(*id)
            }
            RegistryChange::Remove(id) => {
                let at = self.sites.iter().position(|site| site.id == *id);
                if let Some(at) = at {
                    self.sites.remove(at);
                    self.backups.forget(*id);
                    self.version += 1;
                }
                Ok(*id)
            }
            RegistryChange::Backup(id, choice) => {
                let name = self.site_mut(*id)?.name.clone();
                match choice {
                    BackupChoice::At(at) if at == id => return Err(RegistryError::OwnBackup(name)),
                    BackupChoice::At(at) => drop(self.site_mut(*at)?),
                    _ => {}
                }
                self.version += u64::from(self.backups.choose(*id, *choice));
                Ok(*id)
            }
            RegistryChange::Promote(promotion) => {
                self.site_mut(promotion.by)?;
                self.site_mut(promotion.lost)?;
                if self.backups.promotion(promotion.lost) != Some(promotion) {
                    self.backups.promote(promotion.clone());
                    self.version += 1;
                }
                Ok(promotion.lost)
            }
            RegistryChange::Return(id, number, from) => {
                self.version += u64::from(self.backups.take_back(*id, *number, *from));
                Ok(*id)
            }
        }
    }

    fn site_mut(&mut self, id: SiteId) -> Result<&mut SiteEntry, RegistryError> {
        let site = self.sites.iter_mut().find(|site| site.id == id);
        site.ok_or_else(|| RegistryError::NoSite(id.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, incarnation: u64) -> SiteEntry {
        SiteEntry {
            id: SiteId(0),
            name: SiteName::new(name).unwrap(),
            incarnation,
            capacity_percent: 100,
            leaving: false,
            nodes: Vec::new(),
        }
    }

    fn registry() -> Registry {
        Registry {
            deployment: DeploymentId(7),
            version: 1,
            sites: vec![SiteEntry { id: SiteId(1), ..entry("a", 1) }],
            keyspaces: Vec::new(),
            site_next: 2,
            keyspace_next: 1,
            backups: Backups::default(),
        }
    }

    #[test]
    fn a_site_joins_once_however_often_it_asks() {
        let mut registry = registry();
        let join = RegistryChange::Join(entry("b", 9));
        assert_eq!(registry.change(&join), Ok(SiteId(2)));
        assert_eq!(registry.change(&join), Ok(SiteId(2)));
        assert_eq!((registry.version, registry.sites.len()), (2, 2));
        let other = RegistryChange::Join(entry("b", 10));
        assert!(matches!(registry.change(&other), Err(RegistryError::NameTaken(_))));
    }

    #[test]
    fn ids_are_not_used_again() {
        let mut registry = registry();
        assert_eq!(registry.change(&RegistryChange::Join(entry("b", 9))), Ok(SiteId(2)));
        assert_eq!(registry.change(&RegistryChange::Remove(SiteId(2))), Ok(SiteId(2)));
        assert_eq!(registry.change(&RegistryChange::Join(entry("b", 9))), Ok(SiteId(3)));
    }

    #[test]
    fn the_last_site_that_stays_stays() {
        let mut registry = registry();
        registry.change(&RegistryChange::Join(entry("b", 9))).unwrap();
        assert_eq!(registry.change(&RegistryChange::Leave(SiteId(1))), Ok(SiteId(1)));
        let last = registry.change(&RegistryChange::Leave(SiteId(2)));
        assert!(matches!(last, Err(RegistryError::LastSite(_))));
        assert!(registry.change(&RegistryChange::Leave(SiteId(9))).is_err());
    }

    #[test]
    fn an_update_changes_what_a_site_says_of_itself_only() {
        let mut registry = registry();
        let nodes = vec![NodeEntry { node: NodeId(1), peer: "h:1".into(), cluster: String::new() }];
        let update = SiteEntry { id: SiteId(1), nodes: nodes.clone(), ..entry("zzz", 5) };
        let update = RegistryChange::Update(update);
        registry.change(&update).unwrap();
        registry.change(&update).unwrap();
        let site = registry.site(SiteId(1)).unwrap();
        assert_eq!((site.name.as_str(), site.incarnation, &site.nodes), ("a", 1, &nodes));
        assert_eq!(registry.version, 2);
    }
}
