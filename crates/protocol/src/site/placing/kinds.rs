//! The rules of keyspaces and failure domains as the solver has them: by kinds of groups.
//!
//! A count has the class of a group's keyspace, and not the group. So the stricter rules of all
//! keyspaces of a class hold for each: the sites that all of them are lent to, and the highest
//! priority. Which sites are beside all other copies depends on the home. That of the groups which
//! this site has borrowed is known by their names.

use super::sites::Sites;
use crate::global::borrowers::Homes;
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

    /// Wherever the home is, and in whichever failure domain.
    fn kind(&self, sites: &Sites) -> Kind {
        let is_barred = |site: SiteId| match &self.lend_to {
            Some(lend_to) if !lend_to.contains(&site) => Some(Bar::LendTo),
            _ => None,
        };
        let priority = f32::from(self.priority) / f32::from(limits::PRIORITY_DEFAULT);
        Kind::new(sites.all().map(is_barred).collect(), priority)
    }

    fn is_anything(&self) -> bool {
        self.lend_to.is_some() || self.priority != limits::PRIORITY_DEFAULT
    }
}

/// What holds for all groups that follow their users.
pub(super) struct Kinds<'a> {
    sites: &'a Sites,
    homes: Homes<'a>,
    /// Of classes that state anything, and of the others: without a home, and without failure
    /// domains.
    kinds: BTreeMap<Option<u16>, Kind>,
    has_domains: bool,
}

impl<'a> Kinds<'a> {
    /// By the keyspaces that are adaptive.
    pub(super) fn of<'k>(
        registry: &'a Registry,
        sites: &'a Sites,
        keyspaces: impl Iterator<Item = &'k Keyspace>,
    ) -> Kinds<'a> {
        let stated = stated(keyspaces);
        let none = Stated { lend_to: None, priority: limits::PRIORITY_DEFAULT };
        let classes = stated.iter().map(|(class, stated)| (Some(*class), stated));
        let kinds = classes.chain([(None, &none)]);
        let kinds = kinds.map(|(class, stated)| (class, stated.kind(sites))).collect();
        let has_domains = registry.sites.iter().any(|site| site.failure_domain.is_some());
        Kinds { sites, homes: Homes::of(registry), kinds, has_domains }
    }

    fn are_any(&self) -> bool {
        self.has_domains || self.kinds.len() > 1
    }

    /// The class of a keyspace, if it states anything.
    fn class(&self, keyspace: KeyspaceId) -> Option<u16> {
        Some(GroupKey::class_of(keyspace.0)).filter(|class| self.kinds.contains_key(&Some(*class)))
    }

    /// The kind of the groups of a class with this home.
    fn kind(&self, class: Option<u16>, home: SiteId, has_domains: bool) -> Kind {
        let of_class = &self.kinds[&class];
        let borrowers = self.homes.borrowers(home);
        let kind = match has_domains && borrowers.has_domain() {
            true => of_class.with_bars(self.sites.len(), |place| {
                let is_beside = borrowers.is_beside_copies(self.sites.site(place));
                is_beside.then_some(Bar::Domain)
            }),
            false => of_class.clone(),
        };
        self.sites.place(home).map_or(kind.clone(), |home| kind.at_home(home))
    }

    /// The kind of one group with this home. One that is pinned may be beside all other copies.
    pub(super) fn of_group(&self, keyspace: KeyspaceId, home: SiteId, is_pinned: bool) -> Kind {
        self.kind(self.class(keyspace), home, !is_pinned)
    }

    /// The kinds of all groups that this site serves. None, if there are no rules.
    pub(super) fn by_key<S: State>(&self, view: &View<'_, S>, own: SiteId) -> ByKey {
        let mut by_key = ByKey::default();
        if !self.are_any() {
            return by_key;
        }
        for class in self.kinds.keys() {
            let kind = by_key.add(self.kind(*class, own, true));
            match class {
                Some(class) => by_key.set_class(*class, kind),
                None => by_key.set_all(kind),
            }
        }
        let accesses = view.machine.accesses();
        let mut kinds: BTreeMap<(SiteId, Option<u16>), u16> = BTreeMap::new();
        for (Group { keyspace, tag }, home) in view.machine.borrowed_groups() {
            let class = self.class(*keyspace);
            let kind = kinds.entry((home, class));
            let kind = *kind.or_insert_with(|| by_key.add(self.kind(class, home, true)));
            by_key.set_key(accesses.group_of(*keyspace, true, tag), kind);
        }
        by_key
    }
}

/// What classes of adaptive keyspaces state, of those that state anything.
fn stated<'a>(keyspaces: impl Iterator<Item = &'a Keyspace>) -> BTreeMap<u16, Stated> {
    let mut classes: BTreeMap<u16, Stated> = BTreeMap::new();
    for keyspace in keyspaces.filter(|one| one.spec.is_adaptive()) {
        let (class, stated) = (GroupKey::class_of(keyspace.id.0), Stated::of(keyspace));
        let stated = match classes.remove(&class) {
            Some(before) => before.with(stated),
            None => stated,
        };
        classes.insert(class, stated);
    }
    classes.retain(|_, stated| stated.is_anything());
    classes
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{KeyspaceSpec, Placement};

    fn keyspace(id: u32, lend_to: &[u32], priority: u16) -> Keyspace {
        let spec = KeyspaceSpec::linearizable_global(format!("k{id}"), format!("k{id}:"));
        let lend_to = lend_to.iter().map(|site| SiteId(*site)).collect();
        let placement = Placement::Adaptive;
        let spec = KeyspaceSpec { lend_to, priority, placement, ..spec };
        Keyspace { id: KeyspaceId(id), spec }
    }

    #[test]
    fn keyspaces_of_a_class_have_the_stricter_rules() {
        let off = Keyspace {
            spec: KeyspaceSpec { placement: Placement::Off, ..keyspace(3, &[9], 700).spec },
            ..keyspace(3, &[], 100)
        };
        let mut like_1 = (1_024..).filter(|id| GroupKey::class_of(*id) == 1);
        let like_4 = (1_024..).find(|id| GroupKey::class_of(*id) == 4).unwrap();
        let all = [
            keyspace(1, &[1, 2], 200),
            keyspace(like_1.next().unwrap(), &[2, 3], 300),
            keyspace(like_1.next().unwrap(), &[], 100),
            keyspace(2, &[], 100),
            off,
            keyspace(4, &[5], 50),
            keyspace(like_4, &[6], 100),
        ];
        let of = |lend_to: &[u32], priority| Stated {
            lend_to: Some(lend_to.iter().map(|site| SiteId(*site)).collect()),
            priority,
        };
        assert_eq!(stated(all.iter()), BTreeMap::from([(1, of(&[2], 300)), (4, of(&[], 100))]));
        assert_eq!(stated(all[3..5].iter()), BTreeMap::new());
    }
}
