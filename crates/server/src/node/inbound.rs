//! What a node does on the links' threads: it answers reads of other sites, hands out the answers
//! to its own, and lets sites join.

use crate::batcher::Outcome;
use crate::handle::Handle;
use crate::links::{Inbound, Peers, Remote};
use crate::proxy_reads::SharedProxyReads;
use model::{Registry, Request};
use std::pin::Pin;
use std::sync::Arc;
use wire::inter_site::InterSiteMessage;

/// See the module.
pub(super) struct Here {
    pub(super) handle: Handle,
    pub(super) proxy_reads: Option<Arc<SharedProxyReads>>,
}

impl Inbound for Here {
    fn receive(
        &self,
        peers: &dyn Peers,
        from: Remote,
        message: InterSiteMessage,
    ) -> Option<InterSiteMessage> {
        match &self.proxy_reads {
            Some(reads) => reads.receive(peers, from, message),
            None => Some(message),
        }
    }

    fn lost(&self, remote: Remote) {
        if let Some(reads) = &self.proxy_reads {
            reads.lost(remote);
        }
    }

    fn join(&self, request: Request) -> Pin<Box<dyn Future<Output = Outcome> + Send + '_>> {
        Box::pin(self.handle.call(request))
    }

    fn registry(&self) -> Option<Arc<Registry>> {
        let status = self.handle.status();
        status.deployment.as_ref().map(|deployment| deployment.registry.clone())
    }
}
