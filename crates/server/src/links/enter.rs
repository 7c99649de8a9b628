//! How a new site becomes part of a deployment: any node of any site lets it in.
//!
//! A node that starts with an empty disk does not know yet whether the addresses it was given lead to
//! its own site or to another one. Whoever answers says so in its greeting. At another site it asks
//! for its own site to be let in, under the name and the incarnation that it has: asked twice, that
//! happens once. Where a site of that name is there already, and has no node of this number, it is
//! joined instead, as one of its nodes: whoever answers says where they are.

use super::{LinkError, Links};
use model::{
    Answer, Body, Command, Failure, NodeEntry, Refusal, Registry, RegistryChange, RegistryError,
    Request, SiteEntry, SiteId,
};
use std::time::Duration;
use wire::entry;
use wire::peer::ForwardedRequest;

/// How long to wait before asking everybody again.
const ASK_AGAIN: Duration = Duration::from_millis(300);

/// What the addresses lead to.
pub(crate) enum Found {
    /// To this node's own site, whose nodes are at these addresses.
    OwnSite(Vec<String>),
    /// To another one, which has let this site in.
    LetIn(SiteId, Box<Registry>),
}

/// Asks around until it is known what the addresses lead to; ends early only when this site is not
/// going to be let in.
pub(crate) async fn look(
    links: &Links,
    addresses: &[String],
    site: &SiteEntry,
) -> Result<Found, String> {
    let mut told = false;
    loop {
        let mut refused = None;
        for address in addresses {
            match ask(links, address, site).await {
                Ok(Some(found)) => return Ok(found),
                Ok(None) => {}
                Err(Refused::Never(why)) => return Err(why),
                Err(Refused::Link(error)) if error.is_refusal() => refused = Some(error),
                Err(Refused::Link(error)) if !told => {
                    tracing::warn!(address, "cannot join yet, and goes on trying: {error}");
                    told = true;
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
    let body = Body::Write(Command::ChangeRegistry(RegistryChange::Join(site.clone())));
    let request = Request { body, deadline_ms: None, redirect: false };
    let request = entry::encode_request(&request);
    let answer = connection.ask(ForwardedRequest { id, request, ..Default::default() }).await?;
    match entry::decode_reply(answer.outcome) {
        Ok(Ok(Answer::Registered { site, registry })) => Ok(Some(Found::LetIn(site, registry))),
        Ok(Err(Failure::Refused(Refusal::Registry(RegistryError::NameTaken(name))))) => {
            // Of the same site, as it seems; a node that it has already would be another site's.
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
        // It is only just beginning its deployment.
        Ok(Err(Failure::Refused(Refusal::NoDeployment))) => Ok(None),
        Ok(Err(Failure::Refused(refusal))) => Err(Refused::Never(refusal.to_string())),
        _ => Ok(None),
    }
}
