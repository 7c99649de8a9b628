//! The gRPC front: `portolan.v1` over a node's [`server::Handle`].
//!
//! | module | purpose |
//! | --- | --- |
//! | [`caller`] | who calls, before a message is received |
//! | [`receiving`] | how much a connection may hold of requests that are not whole |
//! | [`call`] | common to all calls: rights, deadline, outcome |
//! | [`kv`] | keys |
//! | [`session`] | what a call's session has seen of causal keyspaces |
//! | [`watch`] | changes as a stream |
//! | [`cluster`] | members, keyspaces, status |
//! | `deployment`, [`orders`] | sites and slots; slots that an operator moves |
//! | [`backup`] | a site as a stream of chunks |
//!
//! `wire::grpc` converts requests to the model's types; nothing here depends on how a keyspace
//! keeps its guarantees. Streams are pulled: a slow reader holds one page, never a queue of them.

mod backup;
mod call;
mod caller;
mod cluster;
mod deployment;
mod failovers;
mod kv;
mod orders;
mod placement;
mod receiving;
mod regions;
mod registry;
mod retries;
mod session;
mod watch;

use crate::connection::{Connection, Terms, welcome};
use crate::listener::{self, Listener, OpenError, Port, Stop};
use crate::permits::Permits;
use call::Callee;
use caller::Identified;
use model::limits;
use server::Node;
use server::config::TlsConfig;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Server;
use wire::grpc::v1::cluster_server::ClusterServer;
use wire::grpc::v1::deployment_server::DeploymentServer;
use wire::grpc::v1::kv_server::KvServer;

const FLAG: &str = "grpc";
/// An idle connection is pinged after this, and must answer within the same time.
const KEEP_ALIVE: Duration = Duration::from_secs(20);
/// The time that running calls have to end when the front stops.
const STOP_DEADLINE: Duration = Duration::from_secs(2);
/// A thread's helpers for backups.
const BLOCKING_THREADS_MAX: usize = 4;

/// The options of the front.
#[derive(Clone, Debug)]
pub struct Options {
    /// The address to listen on.
    pub address: SocketAddr,
    /// TLS of the port.
    pub tls: Option<TlsConfig>,
    /// Threads that serve it.
    pub threads: usize,
    /// The limit of connections.
    pub connections_max: usize,
}

/// An open gRPC port. It closes when this is dropped, and gives running calls
/// [a moment](STOP_DEADLINE) to end.
pub struct Grpc(Port);

impl Grpc {
    /// Opens the port of a node.
    pub fn open(node: &Node, options: &Options) -> Result<Grpc, OpenError> {
        let tls = listener::tls_acceptor(FLAG, options.tls.as_ref(), &[b"h2"])?;
        let listener = Listener::bind(FLAG, options.address)?;
        let mut permits = None;
        let port = listener.serve(options.threads, BLOCKING_THREADS_MAX, |inbox, stop| {
            let handle = node.handle();
            let permits = permits
                .get_or_insert_with(|| Permits::new(FLAG, options.connections_max, &handle))
                .clone();
            let keepalive = handle.clients().keepalive;
            let terms = Terms { permits, keepalive, tls: tls.clone() };
            let callee = Callee::new(handle);
            async move { serve(callee, welcome(inbox, terms), stop).await }
        });
        port.map(Grpc)
    }

    /// The address it listens on; with the actual port if port 0 was requested.
    pub fn address(&self) -> SocketAddr {
        self.0.address()
    }
}

async fn serve(callee: Callee, connections: mpsc::Receiver<Connection>, mut stop: Stop) {
    let bytes_max = limits::COMMAND_BYTES_MAX;
    let handle = callee.handle.clone();
    let kv = KvServer::new(callee.clone())
        .max_decoding_message_size(bytes_max)
        .max_encoding_message_size(bytes_max);
    let cluster = ClusterServer::new(callee.clone());
    let deployment = DeploymentServer::new(callee);
    let mut stop_soon = stop.clone();
    let incoming = ReceiverStream::new(connections).map(Ok::<_, std::io::Error>);
    let served = Server::builder()
        .max_concurrent_streams(limits::PIPELINE_MAX as u32)
        .initial_stream_window_size(1 << 20)
        .initial_connection_window_size(4 << 20)
        .http2_keepalive_interval(Some(KEEP_ALIVE))
        .http2_keepalive_timeout(Some(KEEP_ALIVE))
        .add_service(Identified::new(kv, handle.clone()))
        .add_service(Identified::new(cluster, handle.clone()))
        .add_service(Identified::new(deployment, handle))
        .serve_with_incoming_shutdown(incoming, async move {
            stop_soon.wait().await;
        });
    let too_late = async {
        stop.wait().await;
        tokio::time::sleep(STOP_DEADLINE).await;
    };
    tokio::select! {
        served = served => if let Err(error) = served {
            tracing::error!("the gRPC port failed: {error}");
        },
        () = too_late => {}
    }
}
