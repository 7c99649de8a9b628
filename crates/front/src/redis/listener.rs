//! The port, with its options, and how a connection becomes a session.

use super::cluster::ClusterPort;
use super::connection::Connection;
use super::session::Session;
use super::thread::{Numbered, Shared, Thread};
use crate::connection::HANDSHAKE_DEADLINE;
use crate::listener::{Accepted, Inbox, Listener, OpenError, Port, tls_acceptor};
use model::limits;
use server::Node;
use server::config::{ClusterView, Config, FrontConfig, TlsConfig};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::AsyncWriteExt as _;
use tokio_rustls::TlsAcceptor;

/// A thread's helpers for calls that block: no command has one.
const BLOCKING_THREADS_MAX: usize = 1;

/// The options of the Redis front.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where to listen.
    pub address: SocketAddr,
    /// Threads that serve connections.
    pub threads: usize,
    /// Connections at once, at most [`limits::CONNECTIONS_MAX`].
    pub connections_max: usize,
    /// If set, the port accepts only TLS.
    pub tls: Option<TlsConfig>,
    /// If set, the port uses the Redis Cluster protocol; its address for clients (`host:port`).
    pub cluster: Option<String>,
    /// The site that such a port shows for a slot.
    pub cluster_view: ClusterView,
}

impl Options {
    /// The options in a configuration; `None`: it opens no Redis port.
    pub fn of(config: &Config) -> Option<Options> {
        config.ports.redis.map(|address| Options::at(address, config))
    }

    /// The same for the port of the Redis Cluster protocol.
    pub fn of_cluster(config: &Config) -> Option<Options> {
        let address = config.ports.redis_cluster?;
        let advertised = config.ports.advertise_redis_cluster.clone();
        let cluster = Some(advertised.unwrap_or_else(|| address.to_string()));
        Some(Options { cluster, ..Options::at(address, config) })
    }

    fn at(address: SocketAddr, config: &Config) -> Options {
        let FrontConfig { threads, connections_max, cluster_view } = config.front;
        let tls = config.tls.redis.clone();
        Options { address, threads, connections_max, tls, cluster: None, cluster_view }
    }

    /// The port's flag without its dashes.
    fn flag(&self) -> &'static str {
        if self.cluster.is_some() { "redis-cluster" } else { "redis" }
    }
}

/// An open Redis port. It closes when this is dropped: connections are closed where they are.
#[derive(Debug)]
pub struct RedisFront(Port);

impl RedisFront {
    /// Opens the port of a node.
    pub fn open(node: &Node, options: Options) -> Result<RedisFront, OpenError> {
        let flag = options.flag();
        let tls = tls_acceptor(flag, options.tls.as_ref(), &[])?;
        let listener = Listener::bind(flag, options.address)?;
        let port = listener.address().port();
        let connections_max = options.connections_max.min(limits::CONNECTIONS_MAX);
        let salt = RandomState::new().hash_one(listener.address());
        let view = options.cluster_view;
        let mut cluster = options.cluster.map(|at| ClusterPort::new(&at, tls.is_some(), view));
        let mut shared = None::<Arc<Shared>>;
        let served = listener.serve(options.threads, BLOCKING_THREADS_MAX, |inbox, mut stop| {
            let handle = node.handle();
            let shared = shared.get_or_insert_with(|| {
                Arc::new(Shared::new(port, connections_max, salt, cluster.take(), &handle))
            });
            let thread = Arc::new(Thread::new(handle, shared.clone()));
            let tls = tls.clone();
            async move {
                tokio::select! {
                    () = take_in(thread, inbox, tls) => {}
                    () = stop.wait() => {}
                }
            }
        });
        served.map(RedisFront)
    }

    /// The address it listens on; with the actual port if port 0 was requested.
    pub fn address(&self) -> SocketAddr {
        self.0.address()
    }
}

/// Serves the connections of this thread.
async fn take_in(thread: Arc<Thread>, mut inbox: Inbox, tls: Option<TlsAcceptor>) {
    while let Some(accepted) = inbox.recv().await {
        let (thread, tls, from) = (thread.clone(), tls.clone(), accepted.from);
        tokio::spawn(async move {
            if let Err(error) = serve(thread, accepted, tls).await {
                tracing::debug!("the Redis connection from {from} ended: {error}");
            }
        });
    }
}

async fn serve(
    thread: Arc<Thread>,
    accepted: Accepted,
    tls: Option<TlsAcceptor>,
) -> io::Result<()> {
    let peer = accepted.from;
    let mut stream = accepted.open(thread.handle.clients().keepalive)?;
    let Some(numbered) = Numbered::take(&thread, peer.ip()) else {
        return stream.write_all(b"-ERR max number of clients reached\r\n").await;
    };
    let permit = numbered.permit.clone();
    let session = Session::new(thread, numbered, peer);
    let serving = async {
        match tls {
            None => Connection::new(stream, session).serve().await,
            Some(tls) => {
                let handshake = tokio::time::timeout(HANDSHAKE_DEADLINE, tls.accept(stream));
                Connection::new(handshake.await??, session).serve().await
            }
        }
    };
    tokio::select! {
        biased;
        served = serving => served,
        () = permit.evicted() => {
            Err(io::Error::new(io::ErrorKind::TimedOut, "closed while pending"))
        }
    }
}
