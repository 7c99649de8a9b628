//! A client's connection with a permit, and with TLS where the port has it.

use crate::listener::Accepted;
use crate::permits::{Permit, Permits};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

/// A client that has not finished its TLS handshake by then is disconnected.
pub(crate) const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(10);
/// Connections that wait for their front to take them.
const WELCOMED_MAX: usize = 64;

/// What the connections of a port have in common.
pub(crate) struct Terms {
    /// The limit of connections.
    pub(crate) permits: Arc<Permits>,
    /// The idle time after which a connection is probed.
    pub(crate) keepalive: Option<Duration>,
    /// The accepting side of TLS; `None`: the port has none.
    pub(crate) tls: Option<TlsAcceptor>,
}

/// On the worker's own runtime: turns accepted sockets into connections, with concurrent
/// handshakes, until the receiver is dropped. A connection that finds no free permit is closed at
/// once, which is clearer to its client than silence.
pub(crate) fn welcome(
    mut accepted: mpsc::Receiver<Accepted>,
    terms: Terms,
) -> mpsc::Receiver<Connection> {
    let (welcomed, connections) = mpsc::channel(WELCOMED_MAX);
    tokio::spawn(async move {
        while let Some(accepted) = accepted.recv().await {
            let from = accepted.from;
            let Some(permit) = terms.permits.take(from.ip()) else {
                tracing::warn!("{from} was disconnected: all connections of the port are taken");
                continue;
            };
            let stream = match accepted.open(terms.keepalive) {
                Ok(stream) => stream,
                Err(error) => {
                    tracing::warn!("a connection was lost before it was served: {error}");
                    continue;
                }
            };
            let Some(tls) = terms.tls.clone() else {
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
