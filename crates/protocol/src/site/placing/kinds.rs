//! The rules of keyspaces and failure domains as the solver has them: by kinds of groups.
//!
//! A count knows the class of a group's keyspace, and not the group. So the stricter rules of all keyspaces of a class
//! hold for each: the sites that all of them are lent to, and the highest priority. Which sites are beside all other
//! copies depends on the home. That of the groups which this site has borrowed is known by their names.

use super::sites::Sites;
use crate::global::borrowers::Borrowers;
use crate::job::View;
use crate::placement::{Bar, ByKey, GroupKey, Kind};
use model::{Group, Keyspace, KeyspaceId, Registry, SiteId, limits};
use std::collections::BTreeMap;
use storage::state::State;

/// What the keyspaces of a class state.
#[derive(Clone, Debug, PartialEq)]
struct Stated {
    /// Empty: all, unless that is what is left of several lists.
    lend_to: Option<Vec<SiteId>>,
    priority: u16,
}

impl Stated {
    fn of(keyspace: &Keyspace) -> Stated {
        let spec = &keyspace.spec;
        let lend_to = (!spec.lend_to.is_empty()).then(|| spec.lend_to.clone());
        Stated { lend_to, priority: spec.priority }
    }

    fn with(self, other: Stated) -> Stated {
        let lend_to = match (self.lend_to, other.lend_to) {
            (Some(mut these), Some(those)) => {
                these.retain(|site| those.contains(site));
                Some(these)
            }
            (these, those) => these.or(those),
        };
        Stated { lend_to, priority: self.priority.max(other.priority) }
    }

    fn is_anything(&self) -> bool {
        self.lend_to.is_some() || self.priority != limits::PRIORITY_DEFAULT
    }
}

/// What holds for all groups that follow their users.
pub(super) struct Kinds {
    /// Of classes that state anything.
    classes: BTreeMap<u16, Stated>,
    has_domains: bool,
}

impl Kinds {
    /// By the keyspaces that are adaptive.
    pub(super) fn of<'a>(
        registry: &Registry,
        keyspaces: impl Iterator<Item = &'a Keyspace>,
    ) -> Kinds {
        let mut classes: BTreeMap<u16, Stated> = BTreeMap::new();
        for keyspace in keyspaces.filter(|one| one.spec.is_adaptive()) {
            let class = GroupKey::class_of(keyspace.id.0);
            let stated = Stated::of(keyspace);
            let stated = match classes.remove(&class) {
                Some(before) => before.with(stated),
                None => stated,
            };
            classes.insert(class, stated);
        }
        classes.retain(|_, stated| stated.is_anything());
        let has_domains = registry.sites.iter().any(|site| site.failure_domain.is_some());
        Kinds { classes, has_domains }
    }

    fn are_any(&self) -> bool {
        self.has_domains || !self.classes.is_empty()
    }

    fn kind(&self, class: u16, home: SiteId, borrowers: &Borrowers<'_>, sites: &Sites) -> Kind {
        let stated = self.classes.get(&class);
        let lend_to = stated.and_then(|stated| stated.lend_to.as_deref());
        let bar = |site: SiteId| match lend_to {
            _ if site == home => None,
            Some(lend_to) if !lend_to.contains(&site) => Some(Bar::LendTo),
            _ => borrowers.is_beside_copies(site).then_some(Bar::Domain),
        };
        let priority = stated.map_or(limits::PRIORITY_DEFAULT, |stated| stated.priority);
        let priority = f32::from(priority) / f32::from(limits::PRIORITY_DEFAULT);
        Kind::new(sites.all().map(bar).collect(), priority)
    }

    /// The kind of one group with this home.
    pub(super) fn of_group(
        &self,
        registry: &Registry,
        sites: &Sites,
        (keyspace, home): (KeyspaceId, SiteId),
    ) -> Kind {
        let borrowers = Borrowers::of(registry, home);
        self.kind(GroupKey::class_of(keyspace.0), home, &borrowers, sites)
    }

    /// The kinds of all groups that this site serves. None, if there are no rules.
    pub(super) fn by_key<S: State>(
        &self,
        view: &View<'_, S>,
        (own, registry): (SiteId, &Registry),
        sites: &Sites,
    ) -> ByKey {
        let mut by_key = ByKey::default();
        if !self.are_any() {
            return by_key;
        }
        let at_home = Borrowers::of(registry, own);
        // A class that states nothing: there are fewer keyspaces than classes, or it is one of several.
        let other = (0..).find(|class| !self.classes.contains_key(class)).unwrap_or_default();
        let all = by_key.add(self.kind(other, own, &at_home, sites));
        by_key.set_all(all);
        for class in self.classes.keys() {
            let kind = by_key.add(self.kind(*class, own, &at_home, sites));
            by_key.set_class(*class, kind);
        }
        let accesses = view.machine.accesses();
        let mut homes: BTreeMap<SiteId, Borrowers<'_>> = BTreeMap::new();
        let mut kinds: BTreeMap<(SiteId, Option<u16>), u16> = BTreeMap::new();
        for (Group { keyspace, tag }, home) in view.machine.borrowed_groups() {
            let borrowers = homes.entry(home).or_insert_with(|| Borrowers::of(registry, home));
            let class = Some(GroupKey::class_of(keyspace.0));
            let class = class.filter(|class| self.classes.contains_key(class));
            let kind = kinds.entry((home, class)).or_insert_with(|| {
                by_key.add(self.kind(class.unwrap_or(other), home, borrowers, sites))
            });
            by_key.set_key(accesses.group_of(*keyspace, true, tag), *kind);
        }
        by_key
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{DeploymentId, KeyspaceSpec, Placement};

    fn keyspace(id: u32, lend_to: &[u32], priority: u16) -> Keyspace {
        let spec = KeyspaceSpec::linearizable_global(format!("k{id}"), format!("k{id}:"));
        let lend_to = lend_to.iter().map(|site| SiteId(*site)).collect();
        let placement = Placement::Adaptive;
        let spec = KeyspaceSpec { lend_to, priority, placement, ..spec };
        Keyspace { id: KeyspaceId(id), spec }
    }

    #[test]
    fn keyspaces_of_a_class_have_the_stricter_rules() {
        let registry = Registry::empty(DeploymentId(7), 1);
        let off = Keyspace {
            spec: KeyspaceSpec { placement: Placement::Off, ..keyspace(3, &[9], 700).spec },
            ..keyspace(3, &[], 100)
        };
        let all = [
            keyspace(1, &[1, 2], 200),
            keyspace(1_025, &[2, 3], 300),
            keyspace(2_049, &[], 100),
            keyspace(2, &[], 100),
            off,
            keyspace(4, &[5], 50),
            keyspace(1_028, &[6], 100),
        ];
        let kinds = Kinds::of(&registry, all.iter());
        let stated = |lend_to: &[u32], priority| Stated {
            lend_to: Some(lend_to.iter().map(|site| SiteId(*site)).collect()),
            priority,
        };
        let expected = BTreeMap::from([(1, stated(&[2], 300)), (4, stated(&[], 100))]);
        assert_eq!(kinds.classes, expected);
        assert!(!Kinds::of(&registry, all[3..5].iter()).are_any());
    }
}
