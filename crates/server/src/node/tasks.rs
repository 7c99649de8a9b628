//! What a node repeats beside its site until it is done.

use super::start::other_region;
use crate::handle::Handle;
use crate::links::Links;
use crate::links::enter::{self, Found};
use model::{
    Command, DeploymentCommand, Failure, KeyspaceSpec, Refusal, Request, Scope, SiteEntry, SiteId,
    SiteName,
};
use std::collections::BTreeMap;
use std::time::Duration;

/// Makes durable that this site has joined a deployment. Repeats the request, as the last start may
/// have ended in between: repeated requests have one effect.
pub(super) async fn enter_deployment(
    handle: Handle,
    links: Links,
    addresses: Vec<String>,
    site: SiteEntry,
) {
    const TRY_AGAIN: Duration = Duration::from_millis(200);
    // It may be in the deployment already: the record of that is made after the fact.
    handle.catch_up().await;
    // What was published last may be of before that.
    handle.slot_map().await;
    while handle.status().deployment.is_none() {
        match enter::look(&links, &addresses, &site).await {
            Ok(Found::LetIn(site, registry)) => {
                let entering = Request::write(Command::Deployment(DeploymentCommand::Enter {
                    site,
                    registry,
                }));
                if let Err(failure) = handle.call(entering).await {
                    tracing::debug!("not in the deployment yet: {failure}");
                }
            }
            Ok(Found::OwnSite(_)) => {}
            Err(why) => tracing::error!("the deployment refuses this site: {why}"),
        }
        tokio::time::sleep(TRY_AGAIN).await;
    }
}

/// Reports that this node states another region than its site is of, as soon as that is known: the first start of a node
/// in a site cannot know it before.
pub(super) async fn report_other_region(handle: Handle, stated: SiteName) {
    const LOOK_AGAIN: Duration = Duration::from_millis(500);
    loop {
        let deployment = handle.status().deployment.clone();
        if let Some(entry) = deployment.as_ref().and_then(|own| own.registry.site(own.own)) {
            if let Some(error) = other_region(entry, &stated) {
                tracing::error!("{error}");
            }
            return;
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// Learns which keyspaces there are, and creates those that the configuration names and the site does not
/// have; existing keyspaces are not changed.
///
/// The node counts as current once it has caught up and has asked once for each keyspace that needs no
/// deployment. If its site `enters` a deployment, it must have that one's keyspaces first: until then a key of
/// theirs would be one of `default`. What fails then is repeated beside the requests of clients: a full disk must
/// not keep them from what they have.
pub(super) async fn learn_keyspaces(handle: Handle, wanted: Wanted, enters: bool) {
    const TRY_AGAIN: Duration = Duration::from_millis(200);
    const LOOK_AGAIN: Duration = Duration::from_millis(5);
    if handle.status().witness {
        return;
    }
    handle.catch_up().await;
    if enters {
        while handle.status().deployment.is_none() {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        handle.catch_up().await;
    }
    let Wanted { keyspaces, lend_to } = wanted;
    let (here, mut left): (Vec<_>, Vec<_>) =
        keyspaces.into_iter().partition(|spec| spec.scope == Scope::Site);
    let has_asked = !here.is_empty();
    for spec in here {
        if !is_made(&handle, &spec, &lend_to).await {
            left.push(spec);
        }
    }
    if has_asked {
        handle.catch_up().await;
    }
    handle.set_current();
    // One that waits for its sites keeps no other one waiting.
    while !left.is_empty() {
        let mut waiting = Vec::new();
        for spec in left {
            if !is_made(&handle, &spec, &lend_to).await {
                waiting.push(spec);
            }
        }
        left = waiting;
        if !left.is_empty() {
            tokio::time::sleep(TRY_AGAIN).await;
        }
    }
}

/// The keyspaces of the configuration.
pub(super) struct Wanted {
    pub(super) keyspaces: Vec<KeyspaceSpec>,
    /// The sites that groups of some of them may be lent to, by the keyspaces' names.
    pub(super) lend_to: BTreeMap<String, Vec<SiteName>>,
}

/// The ids of sites; `None`: one of them has not joined yet.
fn ids_of(handle: &Handle, names: &[SiteName]) -> Option<Vec<SiteId>> {
    let deployment = handle.status().deployment.clone()?;
    let id_of = |name: &SiteName| deployment.registry.site_named(name.as_str()).map(|site| site.id);
    let mut ids = names.iter().map(id_of).collect::<Option<Vec<_>>>()?;
    ids.sort_unstable();
    ids.dedup();
    Some(ids)
}

/// Asks for a keyspace, unless it exists. `false`: to be tried again.
async fn is_made(
    handle: &Handle,
    spec: &KeyspaceSpec,
    lend_to: &BTreeMap<String, Vec<SiteName>>,
) -> bool {
    let names = lend_to.get(&spec.name).map_or(&[][..], Vec::as_slice);
    let ids = if names.is_empty() { Some(Vec::new()) } else { ids_of(handle, names) };
    if let Some(found) = handle.catalog().by_name(&spec.name) {
        let is_as_stated = |lend_to| found.spec == KeyspaceSpec { lend_to, ..spec.clone() };
        if !ids.is_some_and(is_as_stated) {
            tracing::warn!(
                "keyspace {:?} exists with other properties than the configuration gives it; the existing ones stay",
                spec.name
            );
        }
        return true;
    }
    let Some(lend_to) = ids else { return false };
    let spec = &KeyspaceSpec { lend_to, ..spec.clone() };
    match handle.call(Request::write(Command::CreateKeyspace(spec.clone()))).await {
        Ok(_) | Err(Failure::Refused(Refusal::KeyspaceExists { .. })) => true,
        // The deployment is still being created or joined.
        Err(Failure::Refused(Refusal::NoDeployment)) => false,
        Err(Failure::Refused(refusal)) => {
            tracing::error!("keyspace {:?} of the configuration: {refusal}", spec.name);
            true
        }
        Err(_) => false,
    }
}
