//! A node: its threads, how they start and how they stop.
//!
//! | thread | purpose |
//! | --- | --- |
//! | `site` | runs the core; the only one that changes the state |
//! | `disk` | writes and fsyncs the log |
//! | `background` | writes and loads snapshots, prepares log segments |
//! | `links` | a runtime of its own for the connections to other nodes |
//! | `etcd` | writes rounds to etcd, where that is a site's engine ([`crate::engine`]) |
//!
//! Fronts bring their own threads; each takes a [`Handle`].
//!
//! | file | idea |
//! | --- | --- |
//! | `start` | from a configuration to running threads, step by step |
//! | `join` | how a node with an empty data directory becomes a member |
//! | `files` | the files in the data directory |
//! | `inbound` | what the links' threads do with what other nodes send |
//! | `tasks` | what is repeated beside the site until it is done |
//! | `error` | why a node does not start |

mod error;
mod files;
mod inbound;
mod join;
mod start;
mod tasks;

pub use error::StartError;
pub(crate) use files::{Files, open_state};

use crate::batcher::{BATCHERS_MAX, Batcher, lock};
use crate::config::Config;
use crate::handle::{Handle, Shared};
use crate::links::Links;
use crate::proxy_reads::SharedProxyReads;
use inbound::Here;
use model::{NodeId, Request, SiteEntry, SiteId};
use protocol::global::proxy_reads::Moved;
use protocol::placement::Sampler;
use protocol::site::{MapView, NotInstalled, Ticket};
use std::fs::File;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use storage::log::Spare;
use storage::snapshot::SnapshotHead;
use wire::inter_site::InterSiteMessage;
use wire::peer;

/// An event for the site's thread.
pub(crate) enum Event {
    Requests(Vec<(Ticket, Request)>),
    Message {
        from: NodeId,
        message: peer::Message,
    },
    LinkLost(NodeId),
    InterSite {
        site: SiteId,
        node: NodeId,
        message: InterSiteMessage,
    },
    InterSiteLost {
        site: SiteId,
        node: NodeId,
    },
    /// A site does not own a slot for which a read was sent to it directly.
    Moved(Moved),
    /// A request for the map of slots, the sites' leaders, and the sites that answer.
    SlotMap(tokio::sync::oneshot::Sender<MapView>),
    Persisted(u64),
    DiskFull(String),
    DiskHasRoom,
    SnapshotWritten(Result<SnapshotHead, String>),
    SnapshotInstalled(Result<SnapshotHead, NotInstalled>),
    SpareDue(Spare),
    /// The round on its way to etcd is durable.
    Flushed,
    /// This process no longer owns the site.
    Deposed(String),
    Failed(String),
    Stop,
}

/// The batchers of a node, by number.
pub(crate) type Batchers = Arc<Mutex<Vec<Arc<Batcher>>>>;

/// Why a node has stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// It was asked to.
    Asked,
    /// The process no longer owns its site, for this reason. The node is intact: started again, it
    /// waits for its turn.
    Deposed(String),
    /// It failed; the reason was logged.
    Failed(String),
}

/// A running node.
pub struct Node {
    shared: Arc<Shared>,
    batchers: Batchers,
    links: Links,
    /// `None`: no read may pass the core.
    proxy_reads: Option<Arc<SharedProxyReads>>,
    stopped: tokio::sync::watch::Receiver<Option<Stopped>>,
    threads: Vec<JoinHandle<()>>,
    runtime: Option<tokio::runtime::Runtime>,
    peer_address: SocketAddr,
    _lock: File,
}

impl Node {
    /// Starts a node on its data directory: recovers it, creates a site, or joins one (which waits
    /// until the site has added it). The fronts' ports are not opened here.
    pub fn start(config: &Config) -> Result<Node, StartError> {
        start::start(config)
    }

    /// Starts the tasks that run beside the site.
    fn start_drivers(&self, config: &Config, entering: Option<(Links, SiteEntry)>) {
        let Some(runtime) = &self.runtime else { return };
        let handle = runtime.block_on(async { self.handle() });
        let proxy_reads = self.proxy_reads.clone();
        self.links.set_inbound(Box::new(Here { handle: handle.clone(), proxy_reads }));
        if let Some(reads) = &self.proxy_reads {
            runtime.spawn(reads.clone().fail_over_from_silent());
        }
        let enters = entering.is_some();
        if let Some((links, site)) = entering {
            runtime.spawn(tasks::enter_deployment(
                handle.clone(),
                links,
                config.join.clone(),
                site,
            ));
        }
        runtime.spawn(handle.clone().keep_cursors());
        if let Some(region) = config.region.clone() {
            runtime.spawn(tasks::report_other_region(handle.clone(), region));
        }
        let (keyspaces, lend_to) = (config.keyspaces.clone(), config.lend_to.clone());
        let wanted = tasks::Wanted { keyspaces, lend_to };
        runtime.spawn(tasks::learn_keyspaces(handle, wanted, enters));
    }

    /// A handle for a front. A task on the current runtime hands its answers out.
    ///
    /// # Panics
    /// Outside of a tokio runtime, or when there are [`BATCHERS_MAX`] already.
    pub fn handle(&self) -> Handle {
        let mut batchers = lock(&self.batchers);
        assert!(batchers.len() < BATCHERS_MAX, "a node has at most {BATCHERS_MAX} front threads");
        let batcher = Batcher::new(batchers.len());
        let sampler = Arc::new(Sampler::new(batchers.len() as u64));
        batchers.push(batcher.clone());
        let (links, reads) = (self.links.clone(), self.proxy_reads.clone());
        let proxy = move |requests: &mut Vec<_>| {
            if let Some(reads) = &reads {
                reads.send(&links, requests);
            }
        };
        tokio::spawn(batcher.clone().run(self.shared.events.clone(), proxy));
        Handle { shared: self.shared.clone(), batcher, sampler }
    }

    /// Where the peer port is bound.
    pub fn peer_address(&self) -> SocketAddr {
        self.peer_address
    }

    /// Waits until the node has stopped by itself or on request.
    pub async fn stopped(&self) -> Stopped {
        let mut stopped = self.stopped.clone();
        match stopped.wait_for(Option::is_some).await {
            Ok(end) => end.clone().unwrap_or(Stopped::Asked),
            Err(_) => Stopped::Failed("its thread panicked".into()),
        }
    }

    /// Stops the node and waits for its threads. Nothing needs to be flushed: acknowledged writes
    /// are durable, so to other nodes a stop and a crash are the same. Must not be called on a
    /// thread of a runtime.
    pub fn stop(mut self) {
        let _ = self.shared.events.send(Event::Stop);
        for thread in self.threads.drain(..) {
            // A panic has been reported by the thread itself.
            let _ = thread.join();
        }
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(Duration::from_secs(1));
        }
    }
}
