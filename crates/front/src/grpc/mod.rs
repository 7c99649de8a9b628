//! The gRPC front: `portolan.v1` over a node's [`server::Handle`].
//!
//! | module | purpose |
//! | --- | --- |
//! | [`call`] | common to all calls: caller, rights, deadline, outcome |
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
mod cluster;
mod deployment;
mod failovers;
mod kv;
mod orders;
mod placement;
mod regions;
mod registry;
mod retries;
mod session;
mod watch;

use crate::listener::{self, Acceptor, OpenError};
use crate::permits::Permits;
use call::Callee;
use model::limits;
use server::Node;
use server::config::TlsConfig;
use std::net::SocketAddr;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch as stop;
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
/// Threads for backups, per worker.
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

/// An open gRPC port. It closes when this is dropped.
pub struct Grpc {
    address: SocketAddr,
    stop: stop::Sender<bool>,
    threads: Vec<JoinHandle<()>>,
}

impl Grpc {
    /// Opens the port of a node.
    pub fn open(node: &Node, options: &Options) -> Result<Grpc, OpenError> {
        let tls = listener::tls_acceptor(FLAG, options.tls.as_ref(), &[b"h2"])?;
        let refused = |cause| OpenError::Thread { flag: FLAG, cause };
        let runtimes =
            (0..options.threads.max(1)).map(|_| runtime()).collect::<Result<Vec<_>, _>>();
        let runtimes = runtimes.map_err(refused)?;
        let listener = runtimes[0].block_on(listener::bind(FLAG, options.address))?;
        let address = listener.local_addr().map_err(refused)?;
        let (stop, stopped) = stop::channel(false);
        let (senders, inboxes): (Vec<_>, Vec<_>) =
            runtimes.iter().map(|_| listener::inbox()).unzip();

        let of_node = handle(node, &runtimes[0]);
        let permits = Permits::new(FLAG, options.connections_max, &of_node);
        let keepalive = of_node.clients().keepalive;
        let mut acceptor = Some(Acceptor { listener, permits, keepalive });
        let mut threads = Vec::new();
        for (runtime, inbox) in runtimes.into_iter().zip(inboxes) {
            let callee = Callee::new(handle(node, &runtime));
            let acceptor = acceptor.take().map(|acceptor| acceptor.run(senders.clone()));
            let (tls, stopped) = (tls.clone(), stopped.clone());
            let worker = async move {
                if let Some(acceptor) = acceptor {
                    tokio::spawn(acceptor);
                }
                serve(callee, listener::welcome(inbox, tls), stopped).await;
            };
            let thread = std::thread::Builder::new().name(FLAG.to_owned());
            let thread = thread.spawn(move || {
                runtime.block_on(worker);
                runtime.shutdown_background();
            });
            threads.push(thread.map_err(refused)?);
        }
        Ok(Grpc { address, stop, threads })
    }

    /// The address it listens on; with the actual port if port 0 was requested.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Grpc {
    /// Gives running calls a moment to end. Blocks for no longer than that.
    fn drop(&mut self) {
        let _ = self.stop.send(true);
        for thread in self.threads.drain(..) {
            // A panic has been reported by the thread itself.
            let _ = thread.join();
        }
    }
}

fn runtime() -> std::io::Result<Runtime> {
    Builder::new_current_thread().enable_all().max_blocking_threads(BLOCKING_THREADS_MAX).build()
}

/// A handle whose answers arrive on this runtime.
fn handle(node: &Node, runtime: &Runtime) -> server::Handle {
    let _on_it = runtime.enter();
    node.handle()
}

async fn serve(
    callee: Callee,
    connections: tokio::sync::mpsc::Receiver<listener::Connection>,
    mut stopped: stop::Receiver<bool>,
) {
    let bytes_max = limits::COMMAND_BYTES_MAX;
    let kv = KvServer::new(callee.clone())
        .max_decoding_message_size(bytes_max)
        .max_encoding_message_size(bytes_max);
    let cluster = ClusterServer::new(callee.clone());
    let deployment = DeploymentServer::new(callee);
    let mut stop_soon = stopped.clone();
    let incoming = ReceiverStream::new(connections).map(Ok::<_, std::io::Error>);
    let served = Server::builder()
        .max_concurrent_streams(limits::PIPELINE_MAX as u32)
        .initial_stream_window_size(1 << 20)
        .initial_connection_window_size(4 << 20)
        .http2_keepalive_interval(Some(KEEP_ALIVE))
        .http2_keepalive_timeout(Some(KEEP_ALIVE))
        .add_service(kv)
        .add_service(cluster)
        .add_service(deployment)
        .serve_with_incoming_shutdown(incoming, async move {
            // An error means that the front was dropped, which is a stop too.
            let _ = stop_soon.wait_for(|stop| *stop).await;
        });
    let too_late = async {
        let _ = stopped.wait_for(|stop| *stop).await;
        tokio::time::sleep(STOP_DEADLINE).await;
    };
    tokio::select! {
        served = served => if let Err(error) = served {
            tracing::error!("the gRPC port failed: {error}");
        },
        () = too_late => {}
    }
}
