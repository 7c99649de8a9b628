//! One connection to a node: greeting, reading, writing. `prove` follows the greeting.

use super::{Link, LinkError};
use crate::batcher::lock;
use crate::node::Event;
use crate::tls::Session;
use bytes::{Bytes, BytesMut};
use model::{NodeId, SiteName, limits};
use prost::Message as _;
use socket2::{SockRef, TcpKeepalive};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf, split};
use tokio::net::TcpStream;
use tokio::time::timeout;
use wire::peer::{self, Content, Forward, ForwardedAnswer, ForwardedRequest, Hello};
use wire::proof::CHALLENGE_BYTES;

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// The interval at which a reader checks whether the site's thread has caught up.
const POLL_INTERVAL: Duration = Duration::from_millis(1);
/// The size of one read.
const READ_BYTES: usize = 64 << 10;
/// The same, on a connection that is not proved yet.
const SHORT_READ_BYTES: usize = 1 << 10;

/// A connection on which nothing arrived for so long is probed.
const IDLE_MAX: Duration = Duration::from_secs(5);
/// The interval of the probes.
const PROBE_INTERVAL: Duration = Duration::from_secs(2);
/// After so many probes without an answer the connection ends.
const PROBES_MAX: u32 = 3;
/// It also ends when what was sent is not taken for so long: without this limit the system sends
/// the same bytes again for a quarter of an hour.
#[cfg(target_os = "linux")]
const NOT_TAKEN_MAX: Duration = Duration::from_secs(10);

/// Sets up a connection to a node: what is sent goes at once, and the connection ends when the
/// other end is gone without closing it.
pub(super) fn tuned(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    let probes = TcpKeepalive::new().with_time(IDLE_MAX);
    socket.set_tcp_keepalive(&probes.with_interval(PROBE_INTERVAL).with_retries(PROBES_MAX))?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(NOT_TAKEN_MAX))?;
    Ok(())
}

/// A connection during or after the exchange of hellos.
pub(crate) struct Connection {
    stream: Box<dyn Stream>,
    buffer: BytesMut,
    hello: Hello,
    /// The hellos as they were sent, this node's and the other's.
    hellos: (Bytes, Bytes),
    tls: Option<Session>,
}

impl Connection {
    pub(super) fn plain(stream: TcpStream) -> Connection {
        Connection::new(stream, None)
    }

    pub(super) fn tls(
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        session: Session,
    ) -> Connection {
        Connection::new(stream, Some(session))
    }

    fn new(
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        tls: Option<Session>,
    ) -> Connection {
        let (stream, hello) = (Box::new(stream), Hello::default());
        Connection { stream, buffer: BytesMut::new(), hello, hellos: Default::default(), tls }
    }

    /// The node at the other end.
    pub(crate) fn node(&self) -> NodeId {
        NodeId(self.hello.node)
    }

    /// The other end's hello.
    pub(crate) fn hello(&self) -> &Hello {
        &self.hello
    }

    /// The hellos, this node's and the other's, as they were sent.
    pub(super) fn hellos(&self) -> (&[u8], &[u8]) {
        (&self.hellos.0, &self.hellos.1)
    }

    /// The TLS session with the other end; `None`: there is no TLS.
    pub(super) fn session(&self) -> Option<&Session> {
        self.tls.as_ref()
    }

    /// Exchanges hellos.
    pub(super) async fn greet(&mut self, own: &Hello) -> Result<(), LinkError> {
        self.send(own).await?;
        let frame = self.next_short_frame().await?;
        self.hellos = (own.encode_to_vec().into(), frame.clone());
        let hello: Hello = peer::decode(frame)?;
        // The name is displayed and compared with certificates, so it must be valid.
        SiteName::new(hello.site.as_str()).map_err(peer::FrameError::Malformed)?;
        if ![0, CHALLENGE_BYTES].contains(&hello.challenge.len()) {
            return Err(peer::FrameError::Malformed("a challenge".into()).into());
        }
        if !(peer::PROTOCOL_OLDEST..=peer::PROTOCOL).contains(&hello.protocol) {
            return Err(LinkError::Protocol { found: hello.protocol });
        }
        if !(peer::RULES_OLDEST..=peer::RULES).contains(&hello.rules) {
            return Err(LinkError::Rules { found: hello.rules });
        }
        if hello.site == own.site && hello.node == own.node {
            return Err(LinkError::OwnId(NodeId(own.node)));
        }
        self.hello = hello;
        Ok(())
    }

    /// Reads a frame of a connection that is not proved yet.
    pub(super) async fn next_short_frame(&mut self) -> Result<Bytes, LinkError> {
        let (room, max) = (SHORT_READ_BYTES, limits::PEER_HELLO_BYTES_MAX);
        next_frame(&mut self.stream, &mut self.buffer, room, max).await
    }

    /// Closes the connection in order, so that the last messages arrive.
    pub(super) async fn close(mut self) {
        let _ = self.stream.shutdown().await;
    }

    /// Sends one message at once.
    pub(crate) async fn send(&mut self, message: &impl prost::Message) -> Result<(), LinkError> {
        let mut frame = BytesMut::new();
        peer::encode_frame(message, &mut frame);
        self.stream.write_all(&frame).await?;
        Ok(self.stream.flush().await?)
    }

    /// Waits for one message.
    pub(crate) async fn receive(&mut self) -> Result<peer::Message, LinkError> {
        let (room, max) = (READ_BYTES, limits::PEER_FRAME_BYTES_MAX);
        Ok(peer::decode(next_frame(&mut self.stream, &mut self.buffer, room, max).await?)?)
    }

    /// Sends a request and waits for its answer.
    pub(super) async fn ask(
        &mut self,
        request: ForwardedRequest,
    ) -> Result<ForwardedAnswer, LinkError> {
        let id = request.id;
        let message: peer::Message = Content::Forward(Forward { requests: vec![request] }).into();
        self.send(&message).await?;
        let in_time = timeout(limits::REQUEST_DEADLINE, self.answer(id)).await;
        in_time.unwrap_or(Err(LinkError::Timeout))
    }

    /// Sends a request that is harmless to repeat, and again each time an interval has passed
    /// without its answer: the other end learns from it that this one still waits.
    pub(super) async fn keep_asking(
        &mut self,
        request: ForwardedRequest,
        interval: Duration,
    ) -> Result<ForwardedAnswer, LinkError> {
        let id = request.id;
        let message: peer::Message = Content::Forward(Forward { requests: vec![request] }).into();
        let answer = async {
            loop {
                self.send(&message).await?;
                // A frame that has arrived in part stays in the buffer.
                if let Ok(answer) = timeout(interval, self.answer(id)).await {
                    return answer;
                }
            }
        };
        let in_time = timeout(limits::REQUEST_DEADLINE, answer).await;
        in_time.unwrap_or(Err(LinkError::Timeout))
    }

    async fn answer(&mut self, id: u64) -> Result<ForwardedAnswer, LinkError> {
        loop {
            if let Some(Content::Answered(answered)) = self.receive().await?.content
                && let Some(answer) = answered.answers.into_iter().find(|one| one.id == id)
            {
                return Ok(answer);
            }
        }
    }

    pub(super) fn split(self) -> (Reader, Writer) {
        let (stream, sink) = split(self.stream);
        (Reader { stream, buffer: self.buffer }, Writer { sink })
    }
}

async fn next_frame(
    stream: &mut (impl AsyncRead + Unpin),
    buffer: &mut BytesMut,
    room: usize,
    bytes_max: usize,
) -> Result<Bytes, LinkError> {
    loop {
        if let Some(frame) = peer::split_frame_up_to(buffer, bytes_max)? {
            return Ok(frame);
        }
        buffer.reserve(room);
        if stream.read_buf(buffer).await? == 0 {
            return Err(LinkError::Closed);
        }
    }
}

pub(super) struct Reader {
    stream: ReadHalf<Box<dyn Stream>>,
    buffer: BytesMut,
}

impl Reader {
    /// Passes messages to the site until the connection breaks. While too many wait there it does
    /// not read, which slows the sender.
    pub(super) async fn run(
        &mut self,
        event: impl Fn(peer::Message) -> Option<Event>,
        events: &mpsc::Sender<Event>,
        waiting: &AtomicUsize,
    ) -> LinkError {
        loop {
            while waiting.load(Ordering::Relaxed) >= limits::PEER_MESSAGES_WAITING_MAX {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
            let (room, max) = (READ_BYTES, limits::PEER_FRAME_BYTES_MAX);
            let message = match next_frame(&mut self.stream, &mut self.buffer, room, max).await {
                Ok(frame) => peer::decode(frame),
                Err(error) => return error,
            };
            match message {
                Ok(message) => {
                    let Some(event) = event(message) else { continue };
                    waiting.fetch_add(1, Ordering::Relaxed);
                    if events.send(event).is_err() {
                        return LinkError::Stopping;
                    }
                }
                Err(error) => return error.into(),
            }
        }
    }
}

pub(super) struct Writer {
    sink: WriteHalf<Box<dyn Stream>>,
}

impl Writer {
    /// Sends the link's queued messages until the connection breaks.
    pub(super) async fn run(&mut self, link: &Link, connection: u64) -> LinkError {
        loop {
            let frames = {
                let mut outgoing = lock(&link.outgoing);
                if outgoing.connection != connection {
                    return LinkError::Replaced;
                }
                outgoing.frames.split()
            };
            if frames.is_empty() {
                link.wake.notified().await;
                continue;
            }
            if let Err(error) = self.sink.write_all(&frames).await {
                return error.into();
            }
            if let Err(error) = self.sink.flush().await {
                return error.into();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn a_connection_is_set_up_to_notice_that_the_other_end_is_gone() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        tuned(&stream).unwrap();
        let socket = SockRef::from(&stream);
        assert!(stream.nodelay().unwrap() && socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), IDLE_MAX);
        assert_eq!(socket.tcp_keepalive_interval().unwrap(), PROBE_INTERVAL);
        assert_eq!(socket.tcp_keepalive_retries().unwrap(), PROBES_MAX);
        #[cfg(target_os = "linux")]
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(NOT_TAKEN_MAX));
    }
}
