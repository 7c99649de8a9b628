//! An open port: connections are accepted, counted, limited, wrapped in TLS.
//!
//! One [`Acceptor`] per port accepts connections and distributes them to workers in turn. A worker
//! is a thread with a runtime of its own, so that a connection, its requests and the batcher where
//! their answers arrive stay on one thread; each turns accepted sockets into [`Connection`]s there.

use crate::permits::{Permit, Permits};
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

/// A client that has not finished its TLS handshake by then is disconnected.
const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(10);
/// Connections that wait for one worker to take them.
const ACCEPTED_MAX: usize = 64;
/// After a failed accept (for example without file descriptors) the port pauses this long.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Why a front does not start.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
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
    /// A certificate or key cannot be used.
    #[error("TLS of --{flag}: {cause}")]
    Tls {
        /// The flag without its dashes.
        flag: &'static str,
        /// What is wrong with it.
        cause: server::tls::TlsError,
    },
    /// The system refuses a thread.
    #[error("the system refuses a thread for --{flag}: {cause}")]
    Thread {
        /// The flag without its dashes.
        flag: &'static str,
        /// The system's error.
        cause: io::Error,
    },
}

/// An accepted connection, on its way to the worker that will serve it.
pub(crate) struct Accepted {
    stream: std::net::TcpStream,
    permit: Arc<Permit>,
}

/// Accepts the connections of one port.
pub(crate) struct Acceptor {
    pub(crate) listener: TcpListener,
    /// The limit of connections.
    pub(crate) permits: Arc<Permits>,
    /// The idle time after which a connection is probed.
    pub(crate) keepalive: Option<Duration>,
}

impl Acceptor {
    /// Distributes connections in turn, without end. A connection that finds no free permit is
    /// closed at once, which is clearer to its client than silence.
    pub(crate) async fn run(self, workers: Vec<mpsc::Sender<Accepted>>) {
        for worker in workers.iter().cycle() {
            let accepted = loop {
                match self.accept().await {
                    Ok(Some(accepted)) => break accepted,
                    Ok(None) => {}
                    Err(error) => {
                        tracing::warn!("a connection could not be accepted: {error}");
                        sleep(ACCEPT_PAUSE).await;
                    }
                }
            };
            if worker.send(accepted).await.is_err() {
                return;
            }
        }
    }

    async fn accept(&self) -> io::Result<Option<Accepted>> {
        let (stream, from) = self.listener.accept().await?;
        let Some(permit) = self.permits.take(from.ip()) else {
            tracing::warn!("{from} was disconnected: all connections of the port are taken");
            return Ok(None);
        };
        stream.set_nodelay(true)?;
        keep_alive(&stream, self.keepalive)?;
        Ok(Some(Accepted { stream: stream.into_std()?, permit }))
    }
}

/// Enables the system's keep-alive probes, so that a connection ends when the other side is gone
/// without closing it.
pub(crate) fn keep_alive(stream: &TcpStream, after: Option<Duration>) -> io::Result<()> {
    let Some(after) = after else { return Ok(()) };
    let probes = socket2::TcpKeepalive::new().with_time(after);
    socket2::SockRef::from(stream).set_tcp_keepalive(&probes)
}

/// The channel of connections for a worker.
pub(crate) fn inbox() -> (mpsc::Sender<Accepted>, mpsc::Receiver<Accepted>) {
    mpsc::channel(ACCEPTED_MAX)
}

/// On the worker's own runtime: turns accepted sockets into connections, with concurrent
/// handshakes, until the receiver is dropped.
pub(crate) fn welcome(
    mut accepted: mpsc::Receiver<Accepted>,
    tls: Option<TlsAcceptor>,
) -> mpsc::Receiver<Connection> {
    let (welcomed, connections) = mpsc::channel(ACCEPTED_MAX);
    tokio::spawn(async move {
        while let Some(Accepted { stream, permit }) = accepted.recv().await {
            let stream = match TcpStream::from_std(stream) {
                Ok(stream) => stream,
                Err(error) => {
                    tracing::warn!("a connection was lost before it was served: {error}");
                    continue;
                }
            };
            let Some(tls) = tls.clone() else {
                if welcomed.send(Connection::new(stream, permit)).await.is_err() {
                    return;
                }
                continue;
            };
            let welcomed = welcomed.clone();
            tokio::spawn(async move {
                let shaken = tokio::select! {
                    shaken = timeout(HANDSHAKE_DEADLINE, tls.accept(stream)) => shaken,
                    () = permit.evicted() => return,
                };
                match shaken {
                    Ok(Ok(stream)) => {
                        // The receiver is gone only when the port is being closed.
                        let _ = welcomed.send(Connection::new(stream, permit)).await;
                    }
                    Ok(Err(error)) => tracing::debug!("a TLS handshake failed: {error}"),
                    Err(_) => tracing::debug!("a TLS handshake took too long"),
                }
            });
        }
    });
    connections
}

/// A stream of bytes in both directions.
trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// A connection that can be served, with or without TLS.
pub(crate) struct Connection {
    io: Box<dyn Io>,
    pub(crate) permit: Arc<Permit>,
    /// Completes when the connection must be closed.
    evicted: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl Connection {
    fn new(io: impl Io + 'static, permit: Arc<Permit>) -> Connection {
        let sitting = permit.clone();
        let evicted = Box::pin(async move { sitting.evicted().await });
        Connection { io: Box::new(io), permit, evicted }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.permit.is_admitted() && self.evicted.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, parts)
    }
}

impl tonic::transport::server::Connected for Connection {
    type ConnectInfo = Arc<Permit>;

    fn connect_info(&self) -> Arc<Permit> {
        self.permit.clone()
    }
}

/// Binds a port.
pub(crate) async fn bind(
    flag: &'static str,
    address: SocketAddr,
) -> Result<TcpListener, OpenError> {
    TcpListener::bind(address).await.map_err(|cause| OpenError::Port { flag, address, cause })
}

/// The accepting side of a port's TLS, if it has any.
pub(crate) fn tls_acceptor(
    flag: &'static str,
    tls: Option<&server::config::TlsConfig>,
    alpn: &[&[u8]],
) -> Result<Option<TlsAcceptor>, OpenError> {
    let load = |tls| server::tls::client_port(tls, alpn);
    let config = tls.map(load).transpose().map_err(|cause| OpenError::Tls { flag, cause })?;
    Ok(config.map(TlsAcceptor::from))
}
