//! What a node repeats beside its site until it is done.

use super::start::other_region;
use crate::handle::Handle;
use crate::links::Links;
use crate::links::enter::{self, Found};
use model::{
    Command, DeploymentCommand, Failure, KeyspaceSpec, Refusal, Registry, Request, Scope,
    SiteEntry, SiteId, SiteName,
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

/// Reports that this node states another region than its site is of, as soon as that is known: the
/// first start of a node in a site cannot know it before.
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

/// Learns which keyspaces there are, and creates those that the configuration names and the site
/// does not have; existing keyspaces are not changed.
///
/// The node counts as current once it has caught up and has asked once for each keyspace that needs
/// no deployment. If its site `enters` a deployment, it must have that one's keyspaces first: until
/// then a key of theirs would be one of `default`. What fails then is repeated beside the requests
/// of clients: a full disk must not keep them from what they have.
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
    let lend_to = lend_to.into_iter().map(|(name, sites)| (name, (sites, Vec::new())));
    let mut lend_to: LendTo = lend_to.collect();
    let (here, mut left): (Vec<_>, Vec<_>) =
        keyspaces.into_iter().partition(|spec| spec.scope == Scope::Site);
    let has_asked = !here.is_empty();
    for spec in here {
        if !is_made(&handle, &spec, &mut lend_to).await {
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
            if !is_made(&handle, &spec, &mut lend_to).await {
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

/// By the names of keyspaces: the sites that their groups may be lent to, and those that were
/// reported as absent.
type LendTo = BTreeMap<String, (Vec<SiteName>, Vec<SiteName>)>;

/// The ids of sites, or those names that no site has (yet).
fn ids_of(registry: &Registry, names: &[SiteName]) -> Result<Vec<SiteId>, Vec<SiteName>> {
    let id_of = |name: &SiteName| registry.site_named(name.as_str()).map(|site| site.id);
    let absent: Vec<_> = names.iter().filter(|name| id_of(name).is_none()).cloned().collect();
    if !absent.is_empty() {
        return Err(absent);
    }
    let mut ids: Vec<_> = names.iter().filter_map(id_of).collect();
    ids.sort_unstable();
    ids.dedup();
    Ok(ids)
}

/// The same for a keyspace. `None`: this site is in no deployment, or some sites have not joined,
/// which is logged when their names have changed.
fn lend_to_of(handle: &Handle, name: &str, wanted: &mut LendTo) -> Option<Vec<SiteId>> {
    let Some((names, reported)) = wanted.get_mut(name) else { return Some(Vec::new()) };
    let deployment = handle.status().deployment.clone()?;
    let absent = match ids_of(&deployment.registry, names) {
        Ok(ids) => return Some(ids),
        Err(absent) => absent,
    };
    if *reported != absent {
        let list = absent.iter().map(SiteName::as_str).collect::<Vec<_>>().join(", ");
        tracing::warn!(
            "keyspace {name:?} of the configuration is made when these sites of its lend_to have joined: {list} \
             (`portolan site list` shows those there are)"
        );
        *reported = absent;
    }
    None
}

/// Asks for a keyspace, unless it exists. `false`: to be tried again.
async fn is_made(handle: &Handle, spec: &KeyspaceSpec, lend_to: &mut LendTo) -> bool {
    let ids = lend_to_of(handle, &spec.name, lend_to);
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
