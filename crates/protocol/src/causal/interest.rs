//! Which sites hold which causal keyspaces: what a site does not hold takes its place there,
//! without content.
//!
//! A keyspace names the sites that hold it when it is made ([`model::KeyspaceSpec::sites`]), and
//! never others. So such a site holds the keyspace from its first place on or not at all, and needs
//! nothing to begin: that place lies behind the registry which has the keyspace, for a site imports
//! no place of a keyspace that it does not know.
//!
//! ```text
//! place 31: keyspace 2      place 32: keyspace 3       held: {2}
//! its write is waited for   is covered without one     applied: 32, which a token may name
//! ```
//!
//! *Coverage.* Each site goes through the whole order, so that one position states what it has,
//! whatever it holds. The root names the keyspace of each place as soon as any keyspace is held by
//! some sites only ([`wire::causal::Places`]), and the site decides by that: the root cannot be
//! wrong about what a site holds. Where the keyspace is not named, the write is waited for.
//!
//! *Who sends content.* The origin sends a write to the sites that hold its keyspace, the root what
//! no site has written, and of a resync the records and entries that the site holds. This spares
//! bytes and decides nothing: what a site lacks it asks for, and what it got in vain changes
//! nothing.
//!
//! *On demand.* Of a keyspace with [`model::Miss::Fetch`] the other sites hold some keys
//! ([`super::fetch`]). The root names the keys of each place by their hashes, and the site decides
//! by those: it needs the content if it holds a key with one of them.
//!
//! The root and its standby hold all keyspaces: the registry sees to that.

use model::{CausalWrite, Effect, KeyspaceId, Mark, Miss, Position, Registry, Revision, SiteId};
use std::collections::BTreeMap;

/// The keyspaces that some sites hold, and which do. All others are held by all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Interest {
    some: BTreeMap<KeyspaceId, Vec<SiteId>>,
    /// Those of which the other sites hold keys on demand, and how many bytes.
    on_demand: BTreeMap<KeyspaceId, u64>,
}

impl Interest {
    pub(crate) fn of(registry: &Registry) -> Interest {
        let some = registry.keyspaces.iter().filter(|one| !one.spec.sites.is_empty());
        let some = some.map(|one| (one.id, one.spec.sites.clone())).collect();
        let on_demand = registry.keyspaces.iter().filter_map(|one| match one.spec.miss {
            Miss::Fetch { held_bytes_max } => Some((one.id, held_bytes_max)),
            Miss::Forward | Miss::Refuse => None,
        });
        Interest { some, on_demand: on_demand.collect() }
    }

    #[cfg(test)]
    pub(crate) fn of_rules(rules: &[(u32, &[u32])]) -> Interest {
        let rule = |(keyspace, sites): &(u32, &[u32])| {
            (KeyspaceId(*keyspace), sites.iter().copied().map(SiteId).collect())
        };
        let some = rules.iter().map(rule).collect();
        Interest { some, ..Interest::default() }
    }

    #[cfg(test)]
    pub(crate) fn fetched(mut self, keyspace: u32, held_bytes_max: u64) -> Interest {
        self.on_demand.insert(KeyspaceId(keyspace), held_bytes_max);
        self
    }

    /// Whether all sites hold all keyspaces.
    pub(crate) fn is_everywhere(&self) -> bool {
        self.some.is_empty()
    }

    /// Whether a site holds a keyspace.
    pub(crate) fn holds(&self, site: SiteId, keyspace: KeyspaceId) -> bool {
        self.some.get(&keyspace).is_none_or(|sites| sites.contains(&site))
    }

    /// Whether a site holds all of them.
    pub(crate) fn holds_all(&self, site: SiteId) -> bool {
        self.some.values().all(|sites| sites.contains(&site))
    }

    /// How many bytes of a keyspace's keys a site holds on demand; `None`: it holds all of them, or
    /// none.
    pub(crate) fn on_demand(&self, site: SiteId, keyspace: KeyspaceId) -> Option<u64> {
        self.on_demand.get(&keyspace).copied().filter(|_| !self.holds(site, keyspace))
    }

    /// The same of all keyspaces of which it does.
    pub(crate) fn all_on_demand(&self, site: SiteId) -> impl Iterator<Item = (KeyspaceId, u64)> {
        let all = self.on_demand.iter().filter(move |(id, _)| !self.holds(site, **id));
        all.map(|(id, bytes_max)| (*id, *bytes_max))
    }

    /// Of these writes the ones of keyspaces that a site holds.
    pub(crate) fn select(&self, site: SiteId, writes: &[CausalWrite]) -> Vec<CausalWrite> {
        writes.iter().filter(|write| self.holds(site, write.keyspace)).cloned().collect()
    }

    /// A write as a site needs it that gets all keys anew: without effects, if it does not hold the
    /// keyspace. What it held on demand it holds no more then.
    pub(crate) fn for_site(&self, site: SiteId, write: CausalWrite) -> CausalWrite {
        let mut effects = write.effects;
        match self.holds(site, write.keyspace) {
            true => effects.retain(|effect| !matches!(effect, Effect::Mark(Mark::Fetched { .. }))),
            false => effects.clear(),
        }
        CausalWrite { effects, ..write }
    }
}

/// What is imported in the place of a write of a keyspace that is not held here.
pub(crate) fn coverage(keyspace: KeyspaceId, revision: Revision) -> CausalWrite {
    CausalWrite { revision, seen: Position::default(), keyspace, effects: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_keyspace_without_a_rule_is_everywhere() {
        let interest = Interest::of_rules(&[(3, &[1, 2]), (4, &[1])]);
        let holds = |site, keyspace| interest.holds(SiteId(site), KeyspaceId(keyspace));
        assert!(holds(1, 3) && holds(2, 3) && !holds(3, 3) && holds(3, 2));
        assert_eq!([1, 2, 3].map(|site| interest.holds_all(SiteId(site))), [true, false, false]);
        assert!(Interest::default().is_everywhere() && !interest.is_everywhere());
        let effects = vec![Effect::Clear];
        let write = |keyspace| CausalWrite {
            effects: effects.clone(),
            ..coverage(KeyspaceId(keyspace), Revision(7))
        };
        assert_eq!(
            interest.select(SiteId(2), &[write(3), write(4), write(5)]),
            [write(3), write(5)]
        );
        assert_eq!(interest.for_site(SiteId(2), write(3)), write(3));
        assert_eq!(
            interest.for_site(SiteId(2), write(4)),
            coverage(KeyspaceId(4), Revision(7)),
            "its place stays"
        );
    }
}
