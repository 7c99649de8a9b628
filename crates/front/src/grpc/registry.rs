//! The registry as an operator's calls need it: sites by name, changes by number, and how it is
//! kept.

use super::call::Callee;
use model::{
    Answer, Body, Failure, Refusal, RegistrarView, Registry, RegistryChange, RegistryError,
    RegistryView, RequestId, SiteId,
};
use std::sync::Arc;
use tonic::Status;
use wire::grpc::{status, v1};

impl Callee {
    /// Has the registry changed. A change whose number is known is answered with its outcome,
    /// without another look at what it names: a site may be gone since.
    pub(super) async fn change_registry(
        &self,
        registry: &Registry,
        id: Option<RequestId>,
        deadline_ms: Option<u64>,
        change: impl FnOnce() -> Result<RegistryChange, Status>,
    ) -> Result<(), Status> {
        if let Some(outcome) = id.and_then(|id| outcome_of(registry, id)) {
            return outcome;
        }
        let body = Body::Registry { change: Box::new(change()?), id };
        self.ask(body, deadline_ms).await.map(drop)
    }

    /// Asks something that is answered with how the registry is.
    pub(super) async fn view(
        &self,
        body: Body,
        deadline_ms: Option<u64>,
    ) -> Result<v1::ShowRegistryResponse, Status> {
        let answer = self.ask(body, deadline_ms).await?;
        let Answer::RegistryView(view) = answer else {
            unreachable!("a registry request is answered with the registry")
        };
        let registry = self.registry().await?;
        Ok(shown(&registry, &view))
    }

    /// Whether this node's own site is the one.
    pub(super) fn is_own(&self, site: SiteId) -> bool {
        self.handle.status().deployment.as_ref().is_some_and(|member| member.own == site)
    }

    /// Has this node publish its status anew: what it published last may be of before it read its
    /// state.
    pub(super) async fn publish(&self) {
        self.handle.slot_map().await;
    }

    /// The registry that this node has.
    pub(super) async fn registry(&self) -> Result<Arc<Registry>, Status> {
        if self.handle.status().deployment.is_none() {
            self.publish().await;
        }
        let status_now = self.handle.status();
        if status_now.witness {
            return Err(status(&Failure::NotServing("it is a witness and holds no data")));
        }
        let registry = status_now.deployment.as_ref().map(|member| member.registry.clone());
        registry.ok_or_else(|| status(&Failure::Refused(Refusal::NoDeployment)))
    }
}

fn shown(registry: &Registry, view: &RegistryView) -> v1::ShowRegistryResponse {
    let names = |sites: &[SiteId]| sites.iter().map(|site| name_of(registry, *site)).collect();
    let registrar = |one: &RegistrarView| v1::Registrar {
        site: name_of(registry, one.site),
        answers: one.answers,
    };
    v1::ShowRegistryResponse {
        version: view.version.to_string(),
        changes: view.changes,
        registrars: view.registrars.iter().map(registrar).collect(),
        waiting: view.waiting,
        to_hand_in: view.to_hand_in,
        silent: names(&view.silent),
        answering: names(&view.answering),
        has_majority: view.has_majority,
        recovered: view.recovered,
    }
}

/// What came of a change that was asked for under this number before: the site it was about may be
/// gone.
pub(super) fn outcome_of(registry: &Registry, id: RequestId) -> Option<Result<(), Status>> {
    let outcome = registry.outcome(id)?.clone();
    Some(outcome.map(drop).map_err(|error| status(&Refusal::from(error).into())))
}

pub(super) fn site_named(registry: &Registry, name: &str) -> Result<SiteId, Status> {
    let missing = || {
        let error = RegistryError::NoSite(name.to_owned());
        status(&Failure::Refused(Refusal::Registry(error)))
    };
    registry.site_named(name).map(|site| site.id).ok_or_else(missing)
}

/// The same of a site that may be shown by its number, as the asked one does not list it.
pub(super) fn site_shown(registry: &Registry, name: &str) -> Result<SiteId, Status> {
    let number = || name.strip_prefix('s')?.parse().ok().map(SiteId);
    let unlisted = || number().filter(|site| registry.site(*site).is_none());
    site_named(registry, name).or_else(|missing| unlisted().ok_or(missing))
}

pub(super) fn name_of(registry: &Registry, site: SiteId) -> String {
    registry.site(site).map_or_else(|| site.to_string(), |site| site.name.to_string())
}

pub(super) fn names_of(registry: &Registry, sites: &[SiteId]) -> Vec<String> {
    sites.iter().map(|site| name_of(registry, *site)).collect()
}
