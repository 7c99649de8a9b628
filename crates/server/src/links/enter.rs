//! How a new site joins a deployment: through any node of any site.
//!
//! A node that starts with an empty disk cannot tell whether the configured addresses belong to its
//! own site or to another one. The greeting of the node there names its site. At another site it
//! requests that its own site be added, under its name and incarnation: a repeated request has one
//! effect. If a site of that name exists already and has no node of this number, the node joins
//! that site instead; the answer contains the addresses of its nodes.

use super::{LinkError, Links};
use model::{
    Answer, Body, Command, DeploymentCommand, Failure, NodeEntry, Refusal, Registry,
    RegistryChange, RegistryError, Request, SiteEntry, SiteId,
};
use std::time::Duration;
use wire::entry;
use wire::peer::ForwardedRequest;

/// The pause before all addresses are tried again.
const ASK_AGAIN: Duration = Duration::from_millis(300);

/// The site that the addresses belong to.
pub(crate) enum Found {
    /// This node's own site; the addresses of its nodes.
    OwnSite(Vec<String>),
    /// Another site, which has added this one to its deployment.
    LetIn(SiteId, Box<Registry>),
}

/// Tries the addresses until their site is known; ends early only if this site is refused for good.
pub(crate) async fn look(
    links: &Links,
    addresses: &[String],
    site: &SiteEntry,
) -> Result<Found, String> {
    let mut warned = false;
    loop {
        let mut refused = None;
        for address in addresses {
            match ask(links, address, site).await {
                Ok(Some(found)) => return Ok(found),
                Ok(None) => {}
                Err(Refused::Never(why)) => return Err(why),
                Err(Refused::Link(error)) if error.is_refusal() => refused = Some(error),
                Err(Refused::Link(error)) if !warned => {
                    tracing::warn!(address, "cannot join yet; retrying: {error}");
                    warned = true;
                }
                Err(Refused::Link(error)) => tracing::debug!(address, "cannot join yet: {error}"),
            }
        }
        if let Some(refused) = refused {
            return Err(refused.to_string());
        }
        tokio::time::sleep(ASK_AGAIN).await;
    }
}

enum Refused {
    Never(String),
    Link(LinkError),
}

impl From<LinkError> for Refused {
    fn from(error: LinkError) -> Refused {
        Refused::Link(error)
    }
}

async fn ask(links: &Links, address: &str, site: &SiteEntry) -> Result<Option<Found>, Refused> {
    let mut connection = links.dial_any(address).await?;
    if connection.hello().site == site.name.as_str() {
        return Ok(Some(Found::OwnSite(vec![address.to_owned()])));
    }
    let id = site.incarnation;
    let body = Body::Write(Command::Deployment(DeploymentCommand::ChangeRegistry(
        RegistryChange::Join(site.clone()),
    )));
    let request = Request::new(body);
    let request = entry::encode_request(&request);
    let answer = connection.ask(ForwardedRequest { id, request, ..Default::default() }).await?;
    match entry::decode_reply(answer.outcome) {
        Ok(Ok(Answer::Registered { site, registry })) => Ok(Some(Found::LetIn(site, registry))),
        Ok(Err(Failure::Refused(Refusal::Registry(RegistryError::NameTaken(name))))) => {
            // Probably a node of the same site; if that number is taken there, the site is a
            // different one.
            let nodes = answer.members.map_or_else(Vec::new, |members| members.nodes);
            let is_there = |own: &NodeEntry| nodes.iter().any(|node| node.node == own.node.0);
            if !nodes.is_empty() && !site.nodes.iter().any(is_there) {
                let addresses = nodes.into_iter().map(|node| node.address).collect();
                return Ok(Some(Found::OwnSite(addresses)));
            }
            let why = format!(
                "there is a site {name} in that deployment already; give this one another --site, or \
                 let --join name a node of {name}"
            );
            Err(Refused::Never(why))
        }
        // The other site is still creating its deployment.
        Ok(Err(Failure::Refused(Refusal::NoDeployment))) => Ok(None),
        Ok(Err(Failure::Refused(refusal))) => Err(Refused::Never(refusal.to_string())),
        _ => Ok(None),
    }
}
