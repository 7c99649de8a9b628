//! The registry as the value that registrars agree on. [`model::Registry`] documents its parts.

use super::Value;
use model::{
    Ballot, Changed, RegistrarSet, Registrars, Registry, RegistryChange, RegistryError, RequestId,
    Retained, SiteId,
};
use std::sync::Arc;

impl Value for Arc<Registry> {
    type Id = RequestId;
    type Change = RegistryChange;
    type Outcome = Result<Changed, RegistryError>;
    type Retained = Retained;

    fn version(&self) -> Ballot {
        self.version
    }

    fn count(&self) -> u64 {
        self.changes
    }

    fn registrars(&self) -> Registrars {
        self.registrars
    }

    fn sites(&self) -> Vec<SiteId> {
        self.sites.iter().map(|site| site.id).collect()
    }

    fn stamp(&mut self, version: Ballot) {
        Arc::make_mut(self).version = version;
    }

    fn set_registrars(&mut self, registrars: Registrars) {
        Arc::make_mut(self).registrars = registrars;
    }

    fn outcome(&self, id: RequestId) -> Option<Self::Outcome> {
        Registry::outcome(self, id).cloned()
    }

    fn change(&mut self, id: RequestId, change: &RegistryChange, version: Ballot) -> Self::Outcome {
        Arc::make_mut(self).change_once(id, change, version)
    }

    fn recover(&mut self, version: Ballot, known: &Self) {
        Arc::make_mut(self).recover(version, known);
    }

    fn choose(&self, there: &[SiteId]) -> RegistrarSet {
        self.choose_registrars(there)
    }

    fn keep(&self, next: &Self, kept: &mut Retained) {
        Registry::keep(self, next, kept);
    }

    fn has_kept(&self, kept: &mut Retained) {
        Registry::has_kept(self, kept);
    }

    fn is_nothing(kept: &Retained) -> bool {
        kept.is_empty()
    }

    fn hand_in(&mut self, kept: &Retained, _: Ballot) {
        Arc::make_mut(self).hand_in(kept);
    }
}
