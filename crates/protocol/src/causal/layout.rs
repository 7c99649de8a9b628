//! The sites of a region, and what each of them holds, by one registry.

use super::interest::Interest;
use model::{Registry, SiteId};
use std::sync::Arc;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// All sites.
    pub(crate) sites: Vec<SiteId>,
    /// Those of them that can be the root: they do not leave, and hold all keyspaces.
    pub(crate) can_order: Vec<SiteId>,
    /// Which sites hold what.
    pub(crate) interest: Interest,
    /// `None` in tests without one.
    pub(crate) registry: Option<Arc<Registry>>,
}

impl Layout {
    pub(crate) fn of(registry: &Arc<Registry>) -> Layout {
        let staying = registry.staying().map(|site| site.id);
        Layout {
            sites: registry.sites.iter().map(|site| site.id).collect(),
            can_order: staying.filter(|site| registry.holds_all_causal(*site)).collect(),
            interest: Interest::of(registry),
            registry: Some(registry.clone()),
        }
    }

    /// Whether it is of this registry, and not of an equal one.
    pub(crate) fn is_of(&self, registry: &Arc<Registry>) -> bool {
        self.registry.as_ref().is_some_and(|own| Arc::ptr_eq(own, registry))
    }

    /// Of sites that all stay, and can be the root.
    #[cfg(test)]
    pub(crate) fn with(sites: Vec<SiteId>, interest: Interest) -> Arc<Layout> {
        let can_order = sites.clone();
        Arc::new(Layout { sites, can_order, interest, registry: None })
    }
}
