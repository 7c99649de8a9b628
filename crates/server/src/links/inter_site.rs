//! Connections to nodes of other sites.
//!
//! A connection is made when there is a message to send, and kept until it breaks. Each carries
//! messages one way: a node sends over connections that it has dialled and receives over those that
//! it has accepted, so two nodes that dial each other at once do not interfere. The exception is a
//! node that cannot be dialled because the registry does not have its address (its site has just
//! joined, or has left): it is answered over the connection that it made. Messages sent while a
//! connection is being made wait for it, within the limit of all links; when it cannot be made, or
//! breaks, the site is notified and uses another node.

use super::connection::Connection;
use super::{Link, LinkError, Links};
use crate::batcher::lock;
use crate::node::Event;
use model::{DeploymentId, NodeId, Registry, SiteId, SiteName};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use wire::inter_site::InterSiteMessage;
use wire::peer::{self, Content};

/// The time for which an unreachable node is not dialled again.
const BACKOFF: Duration = Duration::from_millis(200);

/// A node of another site.
pub(crate) type Remote = (SiteId, NodeId);

/// The other sites of the deployment, and the connections to them.
#[derive(Default)]
pub(super) struct Others {
    /// This site's deployment and its id there.
    own: Mutex<Option<(DeploymentId, SiteId)>>,
    addresses: Mutex<BTreeMap<Remote, String>>,
    /// The other sites' names, which their nodes must prove.
    names: Mutex<BTreeMap<SiteId, SiteName>>,
    links: Mutex<BTreeMap<Remote, Arc<Link>>>,
    /// Links over accepted connections, to answer nodes that have dialled this one.
    back: Mutex<BTreeMap<Remote, Arc<Link>>>,
}

impl Others {
    /// This site's deployment and id there.
    pub(super) fn own(&self) -> Option<(DeploymentId, SiteId)> {
        *lock(&self.own)
    }

    /// The name of another site, if it is known.
    pub(super) fn name_of(&self, site: SiteId) -> Option<SiteName> {
        lock(&self.names).get(&site).cloned()
    }
}

impl Links {
    pub(super) fn set_sites(&self, own: SiteId, registry: &Registry) {
        *lock(&self.0.others.own) = Some((registry.deployment, own));
        let others = registry.sites.iter().filter(|site| site.id != own);
        *lock(&self.0.others.names) =
            others.clone().map(|site| (site.id, site.name.clone())).collect();
        let nodes = others.flat_map(|site| site.nodes.iter().map(move |node| (site.id, node)));
        let addresses = nodes.map(|(site, node)| ((site, node.node), node.peer.clone()));
        *lock(&self.0.others.addresses) = addresses.collect();
    }

    pub(super) fn queue_inter_site(&self, remote: Remote, message: InterSiteMessage) {
        if !lock(&self.0.others.addresses).contains_key(&remote)
            && let Some(back) = lock(&self.0.others.back).get(&remote)
        {
            return back.push(&Content::InterSite(message).into());
        }
        let link = lock(&self.0.others.links).entry(remote).or_default().clone();
        if link.begin_dialling() {
            self.0.runtime.spawn(self.clone().carry(remote, link.clone()));
        }
        link.push_while_dialling(&Content::InterSite(message).into());
    }

    pub(super) fn wake_inter_site(&self) {
        for links in [&self.0.others.links, &self.0.others.back] {
            lock(links).values().for_each(|link| link.wake_writer());
        }
    }

    /// Connects to a node of another site and sends its queued messages until the connection
    /// breaks.
    async fn carry(self, remote: Remote, link: Arc<Link>) {
        let error = match self.dial_inter_site(remote).await {
            Ok(connection) => {
                let attached = link.attach_keeping();
                let (mut reader, mut writer) = connection.split();
                let event = |message| self.event_of(remote, message);
                let error = tokio::select! {
                    // Few messages arrive here; the connection ends when the other side closes it.
                    error = reader.run(event, &self.0.events, &self.0.waiting) => error,
                    error = writer.run(&link, attached) => error,
                };
                link.detach(attached);
                error
            }
            Err(error) => {
                tokio::time::sleep(BACKOFF).await;
                link.end_dialling();
                error
            }
        };
        let (site, node) = remote;
        tracing::debug!(%site, %node, "no connection to another site: {error}");
        if let Some(inbound) = self.inbound() {
            inbound.lost(remote);
        }
        let _ = self.0.events.send(Event::InterSiteLost { site, node });
    }

    async fn dial_inter_site(&self, (site, node): Remote) -> Result<Connection, LinkError> {
        let address = lock(&self.0.others.addresses).get(&(site, node)).cloned();
        let address = address.ok_or(LinkError::Closed)?;
        let connection = self.dial_any(&address).await?;
        let found = connection.hello();
        let name = self.0.others.name_of(site);
        let is_named = name.is_none_or(|name| found.site == name.as_str());
        if (found.site_id, found.node) != (site.0, node.0) || !is_named {
            return Err(LinkError::OtherSite { found: found.site.clone(), own: site.to_string() });
        }
        Ok(connection)
    }

    /// Receives from a node of another site until the connection breaks.
    pub(super) async fn listen_inter_site(&self, connection: Connection) {
        let hello = connection.hello();
        let (site, node) = (SiteId(hello.site_id), NodeId(hello.node));
        let (mut reader, mut writer) = connection.split();
        let event = |message| self.event_of((site, node), message);
        let (back, attached) = self.begin_way_back((site, node));
        let error = tokio::select! {
            error = reader.run(event, &self.0.events, &self.0.waiting) => error,
            error = writer.run(&back, attached) => error,
        };
        self.end_way_back((site, node), &back, attached);
        tracing::debug!(%site, %node, "a connection from another site broke: {error}");
    }

    /// Turns a message from a node of another site into an event for this site.
    fn event_of(&self, (site, node): Remote, message: peer::Message) -> Option<Event> {
        let Some(Content::InterSite(message)) = message.content else { return None };
        let message = match self.inbound() {
            Some(inbound) => inbound.receive(self, (site, node), message)?,
            None => message,
        };
        Some(Event::InterSite { site, node, message })
    }

    fn begin_way_back(&self, remote: Remote) -> (Arc<Link>, u64) {
        let mut all = lock(&self.0.others.back);
        let back = all.entry(remote).or_default().clone();
        let attached = back.attach();
        (back, attached)
    }

    fn end_way_back(&self, remote: Remote, back: &Link, attached: u64) {
        let mut all = lock(&self.0.others.back);
        if back.detach(attached) {
            all.remove(&remote);
        }
    }
}
