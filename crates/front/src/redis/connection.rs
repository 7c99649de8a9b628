//! One connection's loop: read what has arrived, run every complete command, write all replies at
//! once.
//!
//! Memory: an idle connection has no buffer (a read without data returns its buffer to the thread).
//! Replies are sent when there are [`REPLY_BYTES`] of them, and no further command is taken before
//! they are sent: a slow reader makes nothing grow beyond the answers that are with the site
//! ([`super::parts`]), and a client that accepts no bytes for
//! [`WRITE_STALL`] is disconnected.

use super::execution::{Answered, Run};
use super::parts::PartSize;
use super::refused;
use super::session::Session;
use super::thread::{READ_BYTES, Thread};
use bytes::{Buf, BytesMut};
use model::{Catalog, Change, Failure};
use server::admission::Closed;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use wire::resp::{Encoder, Frame, RequestParser};

/// Replies of this size are sent even when more commands wait.
pub(super) const REPLY_BYTES: usize = 256 << 10;
/// The most memory allocated at once for a large command: further memory follows the received
/// bytes.
const READ_STEP_BYTES_MAX: usize = 1 << 20;
/// The time for which a client may accept no bytes.
const WRITE_STALL: Duration = Duration::from_secs(30);

/// A connection and its state.
pub(super) struct Connection<S> {
    stream: S,
    pub(super) thread: Arc<Thread>,
    pub(super) session: Session,
    parser: RequestParser,
    received: BytesMut,
    pub(super) replies: BytesMut,
    /// Commands of this pipeline that are not answered yet.
    pub(super) run: Run,
    /// How many requests for values are sent to the site at once.
    pub(super) part_size: PartSize,
    /// The keyspaces at the arrival of the current commands, loaded on first use.
    pub(super) catalog: Option<Arc<Catalog>>,
    /// The arrival time of the current commands.
    pub(super) since: Duration,
    pub(super) answered: Answered,
}

/// The events that wake an idle connection.
enum Event {
    /// Received bytes; 0: the end of the stream.
    Received(usize),
    /// Changes to send as notifications.
    Changes(Result<Vec<Change>, Failure>),
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    pub(super) fn new(stream: S, session: Session) -> Connection<S> {
        Connection {
            stream,
            thread: session.thread().clone(),
            session,
            parser: RequestParser::new(),
            received: BytesMut::new(),
            replies: BytesMut::new(),
            run: Run::default(),
            part_size: PartSize::default(),
            catalog: None,
            since: Duration::ZERO,
            answered: Answered::default(),
        }
    }

    /// Serves until either side closes the connection.
    pub(super) async fn serve(mut self) -> io::Result<()> {
        let mut frame = Frame::default();
        loop {
            match self.wait().await? {
                Event::Received(0) => return Ok(()),
                Event::Received(_) => self.do_commands(&mut frame).await?,
                Event::Changes(changes) => self.publish(changes).await?,
            }
            self.send().await?;
            if self.session.is_closing {
                return self.stream.shutdown().await;
            }
        }
    }

    /// Runs every complete command.
    async fn do_commands(&mut self, frame: &mut Frame) -> io::Result<()> {
        self.since = self.thread.handle.clock().monotonic();
        while !self.session.is_closing {
            self.parser.set_authenticated(self.session.user.is_some());
            match self.parser.next(&mut self.received, frame) {
                Ok(true) => {
                    self.note_client();
                    if !self.do_now(frame) {
                        self.do_in_turn(frame).await?;
                    }
                    self.session.command_taken();
                }
                Ok(false) => break,
                Err(error) => {
                    self.finish_run().await?;
                    self.encoder().error(&error.to_string());
                    self.session.is_closing = true;
                }
            }
            if self.replies.len() >= REPLY_BYTES {
                self.finish_run().await?;
                self.send().await?;
            }
        }
        frame.clear();
        self.catalog = None;
        self.finish_run().await?;
        Ok(())
    }

    /// Before a command runs: a connection that may run commands keeps its permit from now on.
    fn note_client(&self) {
        let permit = self.session.permit();
        if permit.is_admitted() {
            return;
        }
        match self.session.user {
            Some(_) => permit.admit(),
            None => permit.touch(),
        }
    }

    pub(super) fn encoder(&mut self) -> Encoder<'_> {
        Encoder::new(&mut self.replies, self.session.version)
    }

    /// Writes notifications of changes, and sends them before they become many: each subscription
    /// may have one of each change.
    async fn publish(&mut self, changes: Result<Vec<Change>, Failure>) -> io::Result<()> {
        let changes = match changes {
            Ok(changes) => changes,
            Err(failure) => {
                self.encoder().error(&refused::failure_text(&failure));
                self.session.is_closing = true;
                return Ok(());
            }
        };
        for change in &changes {
            let Some(subscriptions) = &self.session.subscriptions else { break };
            let mut out = Encoder::new(&mut self.replies, self.session.version);
            subscriptions.write_change(change, &mut out);
            if self.replies.len() >= REPLY_BYTES {
                self.send().await?;
            }
        }
        Ok(())
    }

    /// Waits for an event, at most for the idle timeout.
    async fn wait(&mut self) -> io::Result<Event> {
        let is_listening = self.session.subscriptions.as_ref().is_some_and(|s| s.len() > 0);
        let idle_timeout = self.thread.handle.clients().idle_timeout.filter(|_| !is_listening);
        let Some(idle_timeout) = idle_timeout else { return self.wait_for_ever().await };
        match tokio::time::timeout(idle_timeout, self.wait_for_ever()).await {
            Ok(event) => event,
            Err(_) => {
                self.session.permit().count(Closed::Idle);
                Ok(Event::Received(0))
            }
        }
    }

    async fn wait_for_ever(&mut self) -> io::Result<Event> {
        let Connection { stream, thread, session, parser, received, replies, .. } = self;
        let read = read(stream, thread, parser, received, replies);
        let watch = session.subscriptions.as_mut().and_then(|s| s.watch.as_mut());
        let Some(watch) = watch else { return Ok(Event::Received(read.await?)) };
        tokio::select! {
            received = read => Ok(Event::Received(received?)),
            changes = watch.next() => Ok(Event::Changes(changes)),
        }
    }

    /// Sends all pending replies.
    pub(super) async fn send(&mut self) -> io::Result<()> {
        self.note_answered();
        while !self.replies.is_empty() {
            let mut sending = pin!(self.stream.write(&self.replies));
            // Usually the socket has room at once, and no timer is needed.
            let sent = match poll_fn(|context| Poll::Ready(sending.as_mut().poll(context))).await {
                Poll::Ready(sent) => sent?,
                Poll::Pending => tokio::time::timeout(WRITE_STALL, sending).await??,
            };
            if sent == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            self.replies.advance(sent);
        }
        self.stream.flush().await
    }
}

/// Reads when bytes have arrived, and allocates the buffer only then.
async fn read<S: AsyncRead + Unpin>(
    stream: &mut S,
    thread: &Thread,
    parser: &RequestParser,
    received: &mut BytesMut,
    replies: &mut BytesMut,
) -> io::Result<usize> {
    let room = parser.missing_bytes(received).clamp(READ_BYTES, READ_STEP_BYTES_MAX);
    poll_fn(|context| {
        if received.capacity() == 0 {
            *received = thread.take_buffer();
        }
        received.reserve(room);
        match pin!(stream.read_buf(received)).poll(context) {
            Poll::Ready(read) => {
                if replies.capacity() == 0 {
                    *replies = thread.take_buffer();
                }
                Poll::Ready(read)
            }
            Poll::Pending => {
                if received.is_empty() {
                    thread.give_buffer(std::mem::take(received));
                }
                thread.give_buffer(std::mem::take(replies));
                Poll::Pending
            }
        }
    })
    .await
}
