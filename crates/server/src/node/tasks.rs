//! What a node repeats beside its site until it is done.

use crate::handle::Handle;
use crate::links::Links;
use crate::links::enter::{self, Found};
use model::{Command, DeploymentCommand, Failure, Refusal, Request, SiteEntry};
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

/// Creates the keyspaces that the configuration names and the site does not have. Repeats until
/// done; existing keyspaces are not changed.
pub(super) async fn make_keyspaces(handle: Handle, wanted: Vec<model::KeyspaceSpec>) {
    const TRY_AGAIN: Duration = Duration::from_millis(200);
    for spec in wanted {
        while handle.catalog().by_name(&spec.name).is_none() {
            match handle.call(Request::write(Command::CreateKeyspace(spec.clone()))).await {
                Ok(_) | Err(Failure::Refused(Refusal::KeyspaceExists { .. })) => break,
                // The deployment is still being created or joined.
                Err(Failure::Refused(Refusal::NoDeployment)) => {
                    tokio::time::sleep(TRY_AGAIN).await;
                }
                Err(Failure::Refused(refusal)) => {
                    tracing::error!("keyspace {:?} of the configuration: {refusal}", spec.name);
                    break;
                }
                Err(_) => tokio::time::sleep(TRY_AGAIN).await,
            }
        }
        if let Some(found) = handle.catalog().by_name(&spec.name)
            && found.spec != spec
        {
            tracing::warn!(
                "keyspace {:?} exists with other properties than the configuration gives it; the existing ones stay",
                spec.name
            );
        }
    }
}
