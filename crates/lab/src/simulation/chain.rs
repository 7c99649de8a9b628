//! Whether all nodes see one chain of registries: of two that have seen as many changes in one
//! term, each has the same content. Only registries that a majority has chosen are copies, so two
//! that differ are a fork.

use super::Simulation;
use model::{Registry, SiteId, Term};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The registries that any node has had, by their term and how many changes they had seen.
#[derive(Debug, Default)]
pub(super) struct Chain(BTreeMap<(Term, u64), Arc<Registry>>);

/// Whether two registries have the same content, apart from the ids of requests.
fn is_same(a: &Registry, b: &Registry) -> bool {
    (&a.sites, &a.keyspaces, &a.backups, a.site_next, a.registrars.set)
        == (&b.sites, &b.keyspaces, &b.backups, b.site_next, b.registrars.set)
}

impl<C> Simulation<C> {
    /// A node has this registry now.
    pub(super) fn note_registry(&mut self, own: SiteId, registry: &Arc<Registry>) {
        self.note_promotions(own, registry);
        self.note_rebuilt(registry);
        let key = (registry.version.term, registry.changes);
        let known = self.chain.0.entry(key).or_insert_with(|| registry.clone());
        if !is_same(known, registry) && self.failure.is_none() {
            let (a, b) = (known.version, registry.version);
            self.failure = Some(format!("the registry has forked: versions {a} and {b}"));
        }
    }
}
