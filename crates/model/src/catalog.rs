//! The keyspaces there are, and which of them a key belongs to.

use crate::{Keyspace, KeyspaceId, KeyspaceSpec};
use std::sync::Arc;

/// All keyspaces of a deployment, as one value that is replaced when one is made or dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Catalog {
    /// Longest prefix first; the default keyspace, whose prefix is empty, comes last.
    keyspaces: Vec<Arc<Keyspace>>,
}

impl Catalog {
    /// A catalog of these keyspaces and the default one, whether it is among them or not.
    pub fn new(mut keyspaces: Vec<Keyspace>) -> Catalog {
        if !keyspaces.iter().any(|k| k.id == KeyspaceId::DEFAULT) {
            let spec = KeyspaceSpec::default_keyspace();
            keyspaces.push(Keyspace { id: KeyspaceId::DEFAULT, spec });
        }
        keyspaces.sort_by(|a, b| {
            let longer_first = b.spec.prefix.len().cmp(&a.spec.prefix.len());
            longer_first.then_with(|| a.spec.prefix.cmp(&b.spec.prefix))
        });
        Catalog { keyspaces: keyspaces.into_iter().map(Arc::new).collect() }
    }

    /// Which keyspace a Redis key belongs to: the one with the longest prefix that it starts with.
    pub fn of_key(&self, key: &[u8]) -> &Keyspace {
        self.keyspaces
            .iter()
            .find(|keyspace| key.starts_with(&keyspace.spec.prefix))
            .expect("the default keyspace's empty prefix begins every key")
    }

    /// The keyspace of this name.
    pub fn by_name(&self, name: &str) -> Option<&Arc<Keyspace>> {
        self.keyspaces.iter().find(|keyspace| keyspace.spec.name == name)
    }

    /// The keyspace of this id.
    pub fn by_id(&self, id: KeyspaceId) -> Option<&Keyspace> {
        self.keyspaces.iter().map(Arc::as_ref).find(|keyspace| keyspace.id == id)
    }

    /// All of them, ordered by id.
    pub fn all(&self) -> Vec<&Keyspace> {
        let mut all: Vec<_> = self.keyspaces.iter().map(Arc::as_ref).collect();
        all.sort_by_key(|keyspace| keyspace.id);
        all
    }
}

impl Default for Catalog {
    fn default() -> Catalog {
        Catalog::new(Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keyspace(id: u32, name: &str, prefix: &'static str) -> Keyspace {
        Keyspace { id: KeyspaceId(id), spec: KeyspaceSpec::linearizable_site(name, prefix) }
    }

    #[test]
    fn the_longest_prefix_wins() {
        let catalog =
            Catalog::new(vec![keyspace(1, "cars", "car:"), keyspace(2, "own", "car:own:")]);
        assert_eq!(catalog.of_key(b"car:own:7").spec.name, "own");
        assert_eq!(catalog.of_key(b"car:7").spec.name, "cars");
        assert_eq!(catalog.of_key(b"ca").spec.name, "default");
        assert_eq!(catalog.of_key(b"").id, KeyspaceId::DEFAULT);
        assert_eq!(catalog.all().iter().map(|k| k.id.0).collect::<Vec<_>>(), [0, 1, 2]);
    }
}
