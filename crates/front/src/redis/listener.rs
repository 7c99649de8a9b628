//! The port, and the threads behind it.
//!
//! One thread accepts connections and distributes them in turn; a connection stays with its thread,
//! which has a runtime of its own. So threads share nothing during a command except the site
//! itself.

use super::cluster::ClusterPort;
use super::connection::Connection;
use super::session::Session;
use super::thread::{Numbered, Shared, Thread};
use crate::listener::keep_alive;
use model::limits;
use server::Node;
use server::config::{ClusterView, Config, FrontConfig};
use server::tls::{self, TlsError};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::{mpsc, watch};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

/// Connections accepted and not yet taken by their thread.
const ACCEPTED_MAX: usize = 1024;
/// The time limit of a TLS handshake.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// The pause after a failed accept (for example without free file descriptors).
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

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
    pub tls: Option<Arc<ServerConfig>>,
    /// If set, the port uses the Redis Cluster protocol; its address for clients (`host:port`).
    pub cluster: Option<String>,
    /// The site that such a port shows for a slot.
    pub cluster_view: ClusterView,
}

impl Options {
    /// The options in a configuration; `None`: it opens no Redis port.
    pub fn of(config: &Config) -> Result<Option<Options>, TlsError> {
        config.ports.redis.map(|address| Options::at(address, config)).transpose()
    }

    /// The same for the port of the Redis Cluster protocol.
    pub fn of_cluster(config: &Config) -> Result<Option<Options>, TlsError> {
        let Some(address) = config.ports.redis_cluster else { return Ok(None) };
        let advertised = config.ports.advertise_redis_cluster.clone();
        let cluster = Some(advertised.unwrap_or_else(|| address.to_string()));
        Ok(Some(Options { cluster, ..Options::at(address, config)? }))
    }

    fn at(address: SocketAddr, config: &Config) -> Result<Options, TlsError> {
        let FrontConfig { threads, connections_max, cluster_view } = config.front;
        let tls = config.tls.redis.as_ref().map(|tls| tls::client_port(tls, &[])).transpose()?;
        Ok(Options { address, threads, connections_max, tls, cluster: None, cluster_view })
    }

    /// The port's flag without its dashes.
    fn flag(&self) -> &'static str {
        if self.cluster.is_some() { "redis-cluster" } else { "redis" }
    }
}

/// Why the Redis front does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The port cannot be opened.
    #[error("--{flag} {address} cannot be opened: {cause}")]
    Port {
        /// The flag without its dashes.
        flag: &'static str,
        /// The address.
        address: SocketAddr,
        /// The system's error.
        cause: io::Error,
    },
    /// The system refuses a thread.
    #[error("the system refuses a thread for the Redis front: {0}")]
    Thread(io::Error),
}

/// A running Redis front. Dropping it stops it: connections are closed where they are.
#[derive(Debug)]
pub struct RedisFront {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    threads: Vec<JoinHandle<()>>,
}

type Accepted = (TcpStream, SocketAddr);

impl RedisFront {
    /// Opens the port and serves a node's clients.
    pub fn start(node: &Node, options: Options) -> Result<RedisFront, StartError> {
        let flag = options.flag();
        let port = |cause| StartError::Port { flag, address: options.address, cause };
        let listener = TcpListener::bind(options.address).map_err(port)?;
        listener.set_nonblocking(true).map_err(port)?;
        let address = listener.local_addr().map_err(port)?;
        let connections_max = options.connections_max.min(limits::CONNECTIONS_MAX);
        let salt = RandomState::new().hash_one(address);
        let cluster = options
            .cluster
            .map(|at| ClusterPort::new(&at, options.tls.is_some(), options.cluster_view));
        let (mut cluster, mut shared) = (cluster, None::<Arc<Shared>>);
        let (stop, stopped) = watch::channel(false);
        let mut front = RedisFront { address, stop, threads: Vec::new() };
        let (mut queues, mut listener) = (Vec::new(), Some(listener));
        for number in (0..options.threads.max(1)).rev() {
            let (queue, accepted) = mpsc::channel(ACCEPTED_MAX);
            queues.push(queue);
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.map_err(StartError::Thread)?;
            let handle = {
                let _inside = runtime.enter();
                node.handle()
            };
            let shared = shared.get_or_insert_with(|| {
                let cluster = cluster.take();
                Arc::new(Shared::new(address.port(), connections_max, salt, cluster, &handle))
            });
            let thread = Arc::new(Thread::new(handle, shared.clone()));
            let acceptor = options.tls.clone().map(TlsAcceptor::from);
            // Thread 0 is created last, has the queues of all others, and accepts.
            let accepting = (number == 0).then(|| listener.take()).flatten();
            let accepting = accepting.map(|listener| (listener, std::mem::take(&mut queues)));
            let mut stopped = stopped.clone();
            let run = move || {
                runtime.block_on(async {
                    if let Some((listener, queues)) = accepting {
                        tokio::spawn(accept(listener, queues));
                    }
                    tokio::spawn(take_in(thread, accepted, acceptor));
                    let _ = stopped.wait_for(|stopped| *stopped).await;
                });
                runtime.shutdown_background();
            };
            let name = format!("{flag}-{number}");
            let spawned = std::thread::Builder::new().name(name).spawn(run);
            front.threads.push(spawned.map_err(StartError::Thread)?);
        }
        Ok(front)
    }

    /// The address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for RedisFront {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        for thread in self.threads.drain(..) {
            // A panic has been reported by the thread itself.
            let _ = thread.join();
        }
    }
}

/// Accepts connections and distributes them in turn.
async fn accept(listener: TcpListener, queues: Vec<mpsc::Sender<Accepted>>) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!("the Redis port cannot be used: {error}"),
    };
    let mut turn = 0;
    loop {
        let accepted = listener.accept().await;
        let accepted = accepted.and_then(|(stream, peer)| Ok((stream.into_std()?, peer)));
        match accepted {
            Ok(accepted) => {
                turn = (turn + 1) % queues.len();
                if queues[turn].send(accepted).await.is_err() {
                    return;
                }
            }
            Err(error) => {
                tracing::warn!("a connection cannot be accepted: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Serves the connections of this thread.
async fn take_in(
    thread: Arc<Thread>,
    mut accepted: mpsc::Receiver<Accepted>,
    acceptor: Option<TlsAcceptor>,
) {
    while let Some((stream, peer)) = accepted.recv().await {
        let (thread, acceptor) = (thread.clone(), acceptor.clone());
        tokio::spawn(async move {
            if let Err(error) = serve(thread, stream, peer, acceptor).await {
                tracing::debug!("the Redis connection from {peer} ended: {error}");
            }
        });
    }
}

async fn serve(
    thread: Arc<Thread>,
    stream: TcpStream,
    peer: SocketAddr,
    acceptor: Option<TlsAcceptor>,
) -> io::Result<()> {
    let mut stream = tokio::net::TcpStream::from_std(stream)?;
    stream.set_nodelay(true)?;
    keep_alive(&stream, thread.handle.clients().keepalive)?;
    let Some(numbered) = Numbered::take(&thread, peer.ip()) else {
        return stream.write_all(b"-ERR max number of clients reached\r\n").await;
    };
    let permit = numbered.permit.clone();
    let session = Session::new(thread, numbered, peer);
    let serving = async {
        match acceptor {
            None => Connection::new(stream, session).serve().await,
            Some(acceptor) => {
                let handshake = tokio::time::timeout(HANDSHAKE_MAX, acceptor.accept(stream));
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
