//! Which keys the sites hold on demand, as far as the root's leader has seen: it sends them the
//! writes to those keys with their places. A site asks for what it lacks, and needs nothing that it
//! is sent in vain. So this may be lost, or wrong.
//!
//! A site holds a key once it has fetched it; or if it asks for the content of a write to it, after
//! a change of leaders. It no longer holds what it reports as evicted.

use model::{CausalWrite, Effect, KeyspaceId, Mark, NO_SITE, SiteId, key_hash, limits};
use std::collections::{BTreeMap, BTreeSet};

type Keys = BTreeSet<(KeyspaceId, u32)>;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Hints(BTreeMap<SiteId, Keys>);

/// The keys of a write by their hashes; none: it is about all keys, or about many.
pub(super) fn hashes_of(write: &CausalWrite) -> Vec<u32> {
    let assigned = || write.effects.iter().filter(|effect| !effect.is_mark());
    let keys = || assigned().filter_map(Effect::key);
    if assigned().any(|effect| effect.key().is_none()) {
        return Vec::new();
    }
    let hashes: BTreeSet<u32> = keys().map(|key| key_hash(key)).collect();
    match hashes.len() <= limits::CAUSAL_PLACE_HASHES_MAX {
        true => hashes.into_iter().collect(),
        false => Vec::new(),
    }
}

/// The site that a write is a fetch for.
pub(super) fn fetched_for(site: SiteId, write: &CausalWrite) -> Option<SiteId> {
    write.effects.iter().find_map(|effect| match effect {
        Effect::Mark(Mark::Fetched { site: to, .. }) if site == NO_SITE => Some(*to),
        _ => None,
    })
}

impl Hints {
    /// A site holds keys from here on, it seems.
    pub(super) fn learn(
        &mut self,
        site: SiteId,
        keyspace: KeyspaceId,
        hashes: impl IntoIterator<Item = u32>,
    ) {
        let known = self.0.entry(site).or_default();
        for hash in hashes {
            if known.len() >= limits::CAUSAL_HINTS_MAX {
                // What is asked for again is known again.
                known.clear();
            }
            known.insert((keyspace, hash));
        }
    }

    /// What a fetch brings it holds.
    pub(super) fn learn_fetched(&mut self, site: SiteId, write: &CausalWrite) {
        for effect in &write.effects {
            if let Effect::Mark(Mark::Fetched { items, .. }) = effect {
                self.learn(site, write.keyspace, items.iter().map(|(key, _)| key_hash(key)));
            }
        }
    }

    /// It holds them no more.
    pub(super) fn forget(&mut self, site: SiteId, keyspace: KeyspaceId, hashes: &[u32]) {
        let Some(known) = self.0.get_mut(&site) else { return };
        for hash in hashes {
            known.remove(&(keyspace, *hash));
        }
    }

    /// Whether it holds one of them, it seems.
    pub(super) fn holds_one(&self, site: SiteId, keyspace: KeyspaceId, hashes: &[u32]) -> bool {
        let known = self.0.get(&site);
        known.is_some_and(|known| hashes.iter().any(|hash| known.contains(&(keyspace, *hash))))
    }

    /// Only these sites are there.
    pub(super) fn retain(&mut self, sites: &[SiteId]) {
        self.0.retain(|site, _| sites.contains(site));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Position, Revision};

    #[test]
    fn a_write_is_named_by_its_keys_unless_it_is_about_many() {
        let keyspace = KeyspaceId(2);
        let write =
            |effects| CausalWrite { revision: Revision(1), seen: Position(0), keyspace, effects };
        let delete = |key: String| Effect::Delete { key: key.into() };
        let of = |count: usize| {
            let effects = (0..count).map(|at| delete(format!("k{}", at % count))).collect();
            hashes_of(&write(effects)).len()
        };
        assert_eq!((of(1), of(limits::CAUSAL_PLACE_HASHES_MAX)), (1, 16));
        assert_eq!(of(limits::CAUSAL_PLACE_HASHES_MAX + 1), 0);
        assert!(hashes_of(&write(vec![delete("k".into()), Effect::Clear])).is_empty());
        let twice = write(vec![delete("k".into()), delete("k".into())]);
        assert_eq!(hashes_of(&twice), [key_hash(b"k")]);
    }

    #[test]
    fn what_is_not_known_is_asked_for() {
        let (mut hints, site, keyspace) = (Hints::default(), SiteId(3), KeyspaceId(2));
        hints.learn(site, keyspace, [5, 6]);
        assert!(hints.holds_one(site, keyspace, &[4, 6]));
        assert!(!hints.holds_one(site, KeyspaceId(3), &[6]));
        hints.forget(site, keyspace, &[6]);
        assert!(!hints.holds_one(site, keyspace, &[4, 6]));
        hints.learn(site, keyspace, 0..limits::CAUSAL_HINTS_MAX as u32 + 10);
        assert!(hints.0[&site].len() <= limits::CAUSAL_HINTS_MAX);
        hints.retain(&[SiteId(1)]);
        assert!(!hints.holds_one(site, keyspace, &[1]));
    }
}
