//! Groups of keys that are to be at one site, wherever they are used.

use super::{Changed, Registry, RegistryError};
use crate::{Bytes, Group, KeyspaceId, KeyspaceSpec, SiteId, limits};

/// A group that stays at a site, or goes there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pin {
    /// The keyspace of its keys.
    pub keyspace: KeyspaceId,
    /// Their tag.
    pub tag: Bytes,
    /// The site.
    pub site: SiteId,
}

impl Pin {
    /// The group that it is about.
    pub fn group(&self) -> Group {
        Group { keyspace: self.keyspace, tag: self.tag.clone() }
    }

    fn is_of(&self, keyspace: KeyspaceId, tag: &Bytes) -> bool {
        (self.keyspace, &self.tag) == (keyspace, tag)
    }
}

impl Registry {
    /// Where a group is pinned.
    pub fn pinned(&self, group: &Group) -> Option<SiteId> {
        let of = |pin: &Pin| (pin.keyspace, &pin.tag).cmp(&(group.keyspace, &group.tag));
        self.pins.binary_search_by(of).ok().map(|at| self.pins[at].site)
    }

    /// Whether the keyspace is lent to the site is looked at where it is asked, as the home, which
    /// the registry does not know, always has its groups.
    pub(super) fn pin(&mut self, pin: &Pin) -> Result<Changed, RegistryError> {
        if pin.keyspace == KeyspaceId::DEFAULT {
            return Err(RegistryError::PinPlacement(KeyspaceSpec::default_keyspace().name));
        }
        let found = self.keyspaces.iter().find(|one| one.id == pin.keyspace);
        let unknown = || RegistryError::NoKeyspace(format!("with the id {}", pin.keyspace));
        let spec = &found.ok_or_else(unknown)?.spec;
        if self.site(pin.site).is_none() {
            return Err(RegistryError::NoSite(pin.site.to_string()));
        }
        if !spec.is_adaptive() {
            return Err(RegistryError::PinPlacement(spec.name.clone()));
        }
        if pin.tag.len() > limits::LOANS_TAG_BYTES_MAX {
            return Err(RegistryError::PinTag);
        }
        let at = self.pins.iter().position(|one| one.is_of(pin.keyspace, &pin.tag));
        match at {
            Some(at) if self.pins[at] == *pin => return Ok(Changed::Keyspace(pin.keyspace)),
            Some(at) => self.pins[at] = pin.clone(),
            None if self.pins.len() >= limits::PINS_MAX => return Err(RegistryError::TooManyPins),
            None => {
                self.pins.push(pin.clone());
                self.pins.sort_unstable();
            }
        }
        self.changes += 1;
        Ok(Changed::Keyspace(pin.keyspace))
    }

    pub(super) fn unpin(
        &mut self,
        keyspace: KeyspaceId,
        tag: &Bytes,
    ) -> Result<Changed, RegistryError> {
        let at = self.pins.iter().position(|one| one.is_of(keyspace, tag));
        self.pins.remove(at.ok_or(RegistryError::NoPin)?);
        self.changes += 1;
        Ok(Changed::Keyspace(keyspace))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Alteration, DeploymentId, Keyspace, KeyspaceError, Placement, RegistryChange, SiteEntry,
        SiteName,
    };

    const CARS: KeyspaceId = KeyspaceId(1);

    /// Two sites, an adaptive keyspace and one that is not.
    fn registry() -> Registry {
        let entry = |id| SiteEntry::new(SiteId(id), SiteName::new(format!("s{id}")).unwrap());
        let cars = KeyspaceSpec::linearizable_global("cars", "car:");
        let cars = KeyspaceSpec { placement: Placement::Adaptive, ..cars };
        let depots = KeyspaceSpec::linearizable_global("depots", "depot:");
        Registry {
            sites: vec![entry(1), entry(2)],
            site_next: 3,
            keyspaces: vec![
                Keyspace { id: CARS, spec: cars },
                Keyspace { id: KeyspaceId(2), spec: depots },
            ],
            keyspace_next: 3,
            ..Registry::empty(DeploymentId(7), 1)
        }
    }

    fn pin(keyspace: KeyspaceId, tag: &str, site: u32) -> Pin {
        Pin { keyspace, tag: Bytes::copy_from_slice(tag.as_bytes()), site: SiteId(site) }
    }

    fn change(registry: &mut Registry, pin: Pin) -> Result<Changed, RegistryError> {
        registry.change(&RegistryChange::Pin(pin))
    }

    #[test]
    fn a_group_is_pinned_to_one_site() {
        let mut registry = registry();
        let group = pin(CARS, "7", 1).group();
        for (site, changes) in [(2, 2), (2, 2), (1, 3)] {
            assert_eq!(change(&mut registry, pin(CARS, "7", site)), Ok(Changed::Keyspace(CARS)));
            assert_eq!((registry.pinned(&group), registry.changes), (Some(SiteId(site)), changes));
        }
        change(&mut registry, pin(CARS, "1", 2)).unwrap();
        assert!(registry.pins.is_sorted());
        let unpin = RegistryChange::Unpin { keyspace: CARS, tag: group.tag.clone() };
        assert_eq!(registry.change(&unpin), Ok(Changed::Keyspace(CARS)));
        assert_eq!(registry.change(&unpin), Err(RegistryError::NoPin));
        assert_eq!((registry.pinned(&group), registry.pins.len()), (None, 1));
    }

    #[test]
    fn a_pin_that_cannot_hold_is_refused() {
        let mut registry = registry();
        let refused = |registry: &mut Registry, pin| change(registry, pin).unwrap_err();
        let of = refused(&mut registry, pin(KeyspaceId(2), "7", 1));
        assert_eq!(of, RegistryError::PinPlacement("depots".into()));
        assert!(matches!(
            refused(&mut registry, pin(KeyspaceId(9), "7", 1)),
            RegistryError::NoKeyspace(_)
        ));
        let of = refused(&mut registry, pin(KeyspaceId::DEFAULT, "7", 1));
        assert_eq!(of, RegistryError::PinPlacement("default".into()));
        let of = refused(&mut registry, pin(CARS, "7", 9));
        assert_eq!(of, RegistryError::NoSite("s9".into()));
        let long = "x".repeat(limits::LOANS_TAG_BYTES_MAX + 1);
        assert_eq!(refused(&mut registry, pin(CARS, &long, 1)), RegistryError::PinTag);
        for number in 0..limits::PINS_MAX {
            change(&mut registry, pin(CARS, &number.to_string(), 1)).unwrap();
        }
        assert_eq!(refused(&mut registry, pin(CARS, "more", 1)), RegistryError::TooManyPins);
        change(&mut registry, pin(CARS, "7", 2)).unwrap();
        let by = Alteration { lend_to: Some(vec![SiteId(1)]), ..Alteration::default() };
        registry.change(&RegistryChange::Alter { name: "cars".into(), by }).unwrap();
        // It may be at home there.
        registry.change(&RegistryChange::Unpin { keyspace: CARS, tag: "7".into() }).unwrap();
        assert_eq!(change(&mut registry, pin(CARS, "7", 2)), Ok(Changed::Keyspace(CARS)));
    }

    #[test]
    fn a_pin_ends_with_its_site_and_its_keyspace() {
        let mut registry = registry();
        for (tag, site) in [("1", 1), ("2", 2)] {
            change(&mut registry, pin(CARS, tag, site)).unwrap();
        }
        registry.change(&RegistryChange::Leave(SiteId(2))).unwrap();
        assert_eq!(registry.pins.len(), 2, "until it has left");
        registry.change(&RegistryChange::Remove(SiteId(2))).unwrap();
        assert_eq!(registry.pins, [pin(CARS, "1", 1)]);
        registry.change(&RegistryChange::DropKeyspace("cars".into())).unwrap();
        assert_eq!(registry.pins, []);
    }

    #[test]
    fn rules_name_sites_that_there_are_and_are_of_adaptive_keyspaces() {
        let mut registry = registry();
        let alter = |registry: &mut Registry, name: &str, by| {
            let changed = registry.change(&RegistryChange::Alter { name: name.into(), by });
            changed.map(|_| registry.changes)
        };
        let lend_to = |sites: &[u32]| Alteration {
            lend_to: Some(sites.iter().map(|site| SiteId(*site)).collect()),
            ..Alteration::default()
        };
        let unknown = alter(&mut registry, "cars", lend_to(&[1, 9]));
        assert_eq!(unknown, Err(RegistryError::NoSite("s9".into())));
        assert_eq!(alter(&mut registry, "cars", lend_to(&[2, 1])), Ok(2));
        assert_eq!(alter(&mut registry, "cars", lend_to(&[1, 2])), Ok(2), "as it is");
        assert_eq!(registry.keyspaces[0].spec.lend_to, [SiteId(1), SiteId(2)]);
        let rules =
            |name: &str| Err(RegistryError::Keyspace(KeyspaceError::RulesPlacement(name.into())));
        assert_eq!(alter(&mut registry, "depots", lend_to(&[])), rules("depots"));
        let placement = Some(Placement::Adaptive);
        let both = Alteration { placement, priority: Some(300), ..lend_to(&[2]) };
        assert_eq!(alter(&mut registry, "depots", both), Ok(3), "at once");
        let off = Alteration { placement: Some(Placement::Off), ..lend_to(&[]) };
        assert_eq!(alter(&mut registry, "depots", off), rules("depots"));
        let spec = &registry.keyspaces[1].spec;
        assert_eq!((spec.is_adaptive(), spec.priority), (true, 300));
    }
}
