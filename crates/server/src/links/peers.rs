//! What the links are to the rest of a node: it sends through [`Peers`], and takes what other nodes
//! send as an [`Inbound`].
//!
//! Most messages are events for the site's thread. What need not pass that thread, the links give
//! to the node's [`Inbound`] on their own threads. So the links know neither the handle nor the
//! reads that pass the core.

use super::Links;
use super::inter_site::Remote;
use crate::batcher::Outcome;
use model::{NodeId, Registry, Request, SiteId};
use std::pin::Pin;
use std::sync::Arc;
use wire::inter_site::InterSiteMessage;
use wire::peer::{Members, Message};

/// The other nodes, for all threads that send to them: the fronts' and the site's.
pub(crate) trait Peers: Send + Sync {
    /// Queues a message to a node of this site. It may be lost. Sent at the next [`Peers::flush`].
    fn send(&self, to: NodeId, message: &Message);

    /// Queues a message to a node of another site. It may be lost. Sent at the next
    /// [`Peers::flush_inter_site`].
    fn send_inter_site(&self, to: Remote, message: InterSiteMessage);

    /// Sends all that is queued.
    fn flush(&self);

    /// Sends what is queued for other sites.
    fn flush_inter_site(&self);

    /// Records that the site's thread has taken a message: while too many wait, none is read.
    fn taken(&self);

    /// The members of this site and their addresses.
    fn set_members(&self, members: &Members);

    /// The deployment's sites and this site's id there.
    fn set_deployment(&self, own: SiteId, registry: &Registry);
}

/// What a node does on the links' threads with what other nodes send.
pub(crate) trait Inbound: Send + Sync {
    /// Takes a message of another site's node; returns what is left for the site's thread.
    fn receive(
        &self,
        peers: &dyn Peers,
        from: Remote,
        message: InterSiteMessage,
    ) -> Option<InterSiteMessage>;

    /// The connection to a node of another site broke.
    fn lost(&self, remote: Remote);

    /// Carries out the request of a site that joins the deployment.
    fn join(&self, request: Request) -> Pin<Box<dyn Future<Output = Outcome> + Send + '_>>;

    /// The deployment's sites; `None`: there is no deployment yet.
    fn registry(&self) -> Option<Arc<Registry>>;
}

impl Links {
    /// From now on `inbound` takes what need not pass the site's thread.
    pub(crate) fn set_inbound(&self, inbound: Box<dyn Inbound>) {
        let _ = self.0.inbound.set(inbound);
    }

    pub(super) fn inbound(&self) -> Option<&dyn Inbound> {
        self.0.inbound.get().map(|inbound| &**inbound)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Identity, enter};
    use super::*;
    use crate::peers::PeerAuth;
    use model::{
        Answer, Body, Command, DeploymentCommand, DeploymentId, Failure, RegistryChange, SiteEntry,
        SiteName,
    };
    use std::sync::mpsc;
    use tokio::net::TcpListener;
    use wire::peer::ForwardedRequest;

    /// A node of a deployment of which it has nothing but what a joining site asks.
    struct Joins;

    impl Inbound for Joins {
        fn receive(
            &self,
            _: &dyn Peers,
            _: Remote,
            message: InterSiteMessage,
        ) -> Option<InterSiteMessage> {
            Some(message)
        }

        fn lost(&self, _: Remote) {}

        fn join(&self, request: Request) -> Pin<Box<dyn Future<Output = Outcome> + Send + '_>> {
            let Body::Write(Command::Deployment(DeploymentCommand::ChangeRegistry(change))) =
                request.body
            else {
                panic!("not filtered: {:?}", request.body);
            };
            let RegistryChange::Join(site) = change else { panic!("not filtered: {change:?}") };
            let mut registry = Registry::empty(DeploymentId(7), 1);
            registry.sites.push(site);
            let registered = Answer::Registered { site: SiteId(2), registry: Box::new(registry) };
            Box::pin(std::future::ready(Ok(registered)))
        }

        fn registry(&self) -> Option<Arc<Registry>> {
            None
        }
    }

    fn links(site: &str) -> Links {
        let site = SiteName::new(site).expect("a site name");
        let identity = Identity { site: site.clone(), node: NodeId(1), incarnation: 9 };
        let (events, _) = mpsc::channel();
        let auth = Arc::new(PeerAuth::open_to_all(site));
        Links::new(identity, None, auth, events, tokio::runtime::Handle::current())
    }

    #[tokio::test]
    async fn a_site_joins_through_what_the_node_does_with_its_request_and_may_ask_nothing_else() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let here = links("here");
        here.set_inbound(Box::new(Joins));
        tokio::spawn(here.accept(listener));
        let joining = links("joining");
        let site = SiteEntry {
            id: SiteId(0),
            name: SiteName::new("joining").unwrap(),
            incarnation: 9,
            capacity_percent: 100,
            leaving: false,
            failure_domain: None,
            region: None,
            borrowed_bytes_max: None,
            nodes: Vec::new(),
        };
        let found = enter::look(&joining, std::slice::from_ref(&address), &site).await;
        let Ok(enter::Found::LetIn(id, registry)) = found else { panic!("it was not let in") };
        assert_eq!((id, registry.deployment), (SiteId(2), DeploymentId(7)));

        let mut connection = joining.dial_any(&address).await.unwrap();
        let request = wire::entry::encode_request(&Request::write(Command::ClearAll));
        let asked = ForwardedRequest { id: 3, request, ..Default::default() };
        let answer = connection.ask(asked).await.unwrap();
        let outcome = wire::entry::decode_reply(answer.outcome).unwrap();
        assert!(matches!(outcome, Err(Failure::NotServing(_))), "{outcome:?}");
    }
}
