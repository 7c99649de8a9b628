//! A connection to a node that makes it certain whether a request can have been sent.
//!
//! The process that accepts a connection may not be a node: a server of another protocol reads a
//! request, does not parse it and closes, and the outcome of a write would have to be reported as
//! unknown. So the client sends only the HTTP/2 preface until the server has sent its own. Every
//! server sends that at once, so this waits for one round trip at most. Under TLS the handshake
//! settles the same question (ALPN), and nothing waits here.
//!
//! Connections are also counted: if there is none and none has been made since, nothing was sent.

use hyper_util::rt::TokioIo;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tonic::codegen::Service;
use tonic::transport::Uri;

/// The time limit for making a connection.
pub(crate) const CONNECT_DEADLINE: Duration = Duration::from_secs(2);
/// The client's preface (RFC 9113, 3.4).
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The length of a frame header; the server's first frame must be SETTINGS.
const HEAD_BYTES: usize = 9;
const SETTINGS: u8 = 4;

/// Why there is no connection. Nothing was sent.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoConnection {
    /// The network or the other machine refuses it.
    #[error("{0}")]
    Refused(String),
    /// The port belongs to another kind of server; repeating does not help.
    #[error("this is no gRPC port: {0}")]
    NotGrpc(&'static str),
}

/// The connections to one node.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    open: AtomicU64,
    made: AtomicU64,
}

/// A moment without a connection: the number of connections made until then.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WasCut(u64);

impl Connections {
    /// Whether there is no connection now.
    pub(crate) fn are_cut(&self) -> Option<WasCut> {
        // In this order, a connection made in between counts as open.
        let made = self.made.load(Ordering::SeqCst);
        (self.open.load(Ordering::SeqCst) == 0).then_some(WasCut(made))
    }

    /// Whether there has been no connection since then.
    pub(crate) fn are_cut_since(&self, then: WasCut) -> bool {
        self.made.load(Ordering::SeqCst) == then.0
    }
}

/// Makes connections to one node.
#[derive(Clone)]
pub(crate) struct Connector {
    pub(crate) connections: Arc<Connections>,
    /// Whether TLS follows.
    pub(crate) is_tls: bool,
}

impl Service<Uri> for Connector {
    type Response = TokioIo<Connection>;
    type Error = NoConnection;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, NoConnection>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), NoConnection>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let Connector { connections, is_tls } = self.clone();
        Box::pin(async move {
            let mut stream =
                timeout(CONNECT_DEADLINE, connect(&uri)).await.map_err(|_| silent())??;
            let mut received = Received::default();
            if !is_tls {
                let greeting = timeout(CONNECT_DEADLINE, received.greeting(&mut stream));
                greeting.await.map_err(|_| mute())??;
            }
            Ok(TokioIo::new(Connection::new(stream, received, is_tls, connections)))
        })
    }
}

async fn connect(uri: &Uri) -> Result<TcpStream, NoConnection> {
    let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    let refused = |error: io::Error| {
        NoConnection::Refused(match error.kind() {
            io::ErrorKind::ConnectionRefused => "nothing listens there".to_owned(),
            _ => format!("cannot connect: {error}"),
        })
    };
    let port = uri.port_u16().unwrap_or_default();
    let stream = TcpStream::connect((host, port)).await.map_err(refused)?;
    stream.set_nodelay(true).map_err(refused)?;
    Ok(stream)
}

fn silent() -> NoConnection {
    NoConnection::Refused(format!("no answer for {} s", CONNECT_DEADLINE.as_secs()))
}

fn mute() -> NoConnection {
    let seconds = CONNECT_DEADLINE.as_secs();
    NoConnection::Refused(format!("it accepts connections and sends nothing for {seconds} s"))
}

/// The bytes that the server has sent before the first request.
#[derive(Default)]
struct Received {
    bytes: [u8; HEAD_BYTES],
    len: usize,
    /// How many of them were passed on.
    read: usize,
}

impl Received {
    /// Sends the client's preface and waits for the server's.
    async fn greeting(&mut self, stream: &mut TcpStream) -> Result<(), NoConnection> {
        let broken =
            |error: io::Error| NoConnection::Refused(format!("the connection broke: {error}"));
        stream.write_all(PREFACE).await.map_err(broken)?;
        while self.len < HEAD_BYTES {
            match stream.read(&mut self.bytes[self.len..]).await.map_err(broken)? {
                0 if self.len == 0 => {
                    let what = "it closes the connection without an answer";
                    return Err(NoConnection::Refused(what.to_owned()));
                }
                0 => return Err(NoConnection::NotGrpc(kind_of(&self.bytes[..self.len]))),
                read => self.len += read,
            }
            if !is_server(&self.bytes[..self.len]) {
                return Err(NoConnection::NotGrpc(kind_of(&self.bytes[..self.len])));
            }
        }
        Ok(())
    }
}

/// Whether this can be the beginning of the head of the frame SETTINGS: a length below 64 KiB, the
/// type, no flags, no stream.
fn is_server(received: &[u8]) -> bool {
    let of_settings =
        [Some(0), None, None, Some(SETTINGS), Some(0), Some(0), Some(0), Some(0), Some(0)];
    received.iter().zip(of_settings).all(|(byte, expected)| expected.is_none_or(|one| one == *byte))
}

/// The kind of server that starts with these bytes.
fn kind_of(received: &[u8]) -> &'static str {
    const TLS_RECORDS: [u8; 2] = [0x15, 0x16];
    match received {
        [b'-' | b'+', ..] => "it answers as a Redis port does",
        received if received.starts_with(b"HTTP") => "it answers as an HTTP port does",
        [first, ..] if TLS_RECORDS.contains(first) => "it speaks TLS, which was not asked for",
        _ => "it does not answer as HTTP/2 does",
    }
}

/// A connection that a request may be sent on.
pub(crate) struct Connection {
    stream: TcpStream,
    received: Received,
    /// Bytes of the preface that the HTTP/2 layer has yet to write; they were sent already.
    unsent: usize,
    connections: Arc<Connections>,
}

impl Connection {
    fn new(
        stream: TcpStream,
        received: Received,
        is_tls: bool,
        connections: Arc<Connections>,
    ) -> Connection {
        connections.open.fetch_add(1, Ordering::SeqCst);
        connections.made.fetch_add(1, Ordering::SeqCst);
        let unsent = if is_tls { 0 } else { PREFACE.len() };
        Connection { stream, received, unsent, connections }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.connections.open.fetch_sub(1, Ordering::SeqCst);
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let received = &mut self.received;
        if received.read < received.len {
            let more = &received.bytes[received.read..received.len];
            let taken = more.len().min(into.remaining());
            into.put_slice(&more[..taken]);
            received.read += taken;
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.unsent > 0 {
            let written = self.unsent.min(bytes.len());
            self.unsent -= written;
            return Poll::Ready(Ok(written));
        }
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.unsent > 0 {
            let first =
                parts.iter().find(|part| !part.is_empty()).map_or(&[][..], |part| &part[..]);
            return self.poll_write(context, first);
        }
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_known_by_its_first_frame() {
        let settings = [0, 0, 36, SETTINGS, 0, 0, 0, 0, 0];
        for len in 0..=settings.len() {
            assert!(is_server(&settings[..len]), "{len}");
        }
        assert!(!is_server(b"-ERR unkn") && !is_server(b"H") && !is_server(&[0, 0, 4, 7]));
        assert_eq!(kind_of(b"-ERR unkn"), "it answers as a Redis port does");
        assert_eq!(kind_of(b"HTTP/1.1 "), "it answers as an HTTP port does");
        assert_eq!(kind_of(&[0x15, 3, 3]), "it speaks TLS, which was not asked for");
    }
}
