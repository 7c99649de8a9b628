//! A TCP relay between real sockets that makes them as far apart as a [`Link`] sets.
//!
//! Each chunk read from one side is stamped with the time at which the link delivers it, waits in a
//! bounded queue, and is written to the other side then: order is kept, both directions are
//! independent, and the end of a stream is delayed like its bytes. When the receiver is slow or the
//! link is full the relay stops reading, so the sender feels it, as over a real network: at most
//! [`CHUNKS_MAX`] × [`CHUNK_BYTES`] are on the way in one direction of one connection.
//!
//! A connection's first bytes come one round trip later than a plain relay's would: the three-way
//! handshake with the real target is what would have taken that long.
//!
//! Bandwidth and loss are the simulation's: both ask the same [`Pipe`] when a message leaves the
//! link, and here each chunk is a message. A lossy link loses no byte of a connection, it delays
//! them.
//!
//! The link may change while connections are open (a vehicle drives away). [`Relay::cut`] resets
//! every connection and refuses new ones until [`Relay::heal`].
//!
//! Where several callers at different distances dial one address, [`Relay::open_by_greeting`] gives
//! each connection a link of its own, by what the caller sends first.
//!
//! Left out: delays finer than the runtime's timer, which rounds up to whole milliseconds.

use std::{
    fmt, io,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{ReadHalf, WriteHalf},
    },
    sync::{Semaphore, mpsc, watch},
    task::{AbortHandle, JoinSet},
    time::{Instant, sleep_until, timeout},
};

use crate::{
    link::{Link, Pipe},
    random::Random,
};

/// Most chunks on the way in one direction of one connection.
pub const CHUNKS_MAX: usize = 64;
/// Most bytes of one chunk.
pub const CHUNK_BYTES: usize = 16 * 1024;
/// Most connections open at once through one relay; more wait in the listener's backlog.
pub const CONNECTIONS_MAX: usize = 1_024;
/// How long the real target may take to accept, and a caller to identify itself.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// The link of a connection whose first bytes are these; `None`: more of them are needed.
type ByGreeting = Box<dyn Fn(&[u8]) -> Option<Link> + Send + Sync>;

/// A listening relay; dropping it closes the port and its connections.
#[derive(Debug)]
pub struct Relay {
    addr: SocketAddr,
    shared: Arc<Shared>,
    accepting: AbortHandle,
}

struct Shared {
    target: Mutex<Option<SocketAddr>>,
    link: Mutex<Link>,
    by_greeting: Option<ByGreeting>,
    /// Counts cuts and heals: odd is cut. Connections die when it changes.
    cuts: watch::Sender<u64>,
}

/// A chunk and when it is delivered; an empty one is the end of the stream.
type Chunk = (Instant, Vec<u8>);

impl Relay {
    /// Opens a relay on a free port of 127.0.0.1. It leads nowhere, and resets every connection,
    /// until [`Relay::set_target`]. `seed` decides the jitter.
    ///
    /// # Errors
    /// No port could be opened.
    pub async fn open(link: Link, seed: u64) -> io::Result<Self> {
        Self::listen(link, None, seed).await
    }

    /// The same, for callers that send first: the first bytes of a connection determine its link,
    /// for as long as it lasts. `None` asks for more bytes, of which there are [`CHUNK_BYTES`] at
    /// most.
    ///
    /// # Errors
    /// No port could be opened.
    pub async fn open_by_greeting(
        link_of: impl Fn(&[u8]) -> Option<Link> + Send + Sync + 'static,
        seed: u64,
    ) -> io::Result<Self> {
        Self::listen(Link::constant(0.0), Some(Box::new(link_of)), seed).await
    }

    async fn listen(link: Link, by_greeting: Option<ByGreeting>, seed: u64) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let addr = listener.local_addr()?;
        let (cuts, _) = watch::channel(0);
        let (target, link) = (Mutex::new(None), Mutex::new(link));
        let shared = Arc::new(Shared { target, link, by_greeting, cuts });
        let accepting = tokio::spawn(accept(listener, shared.clone(), seed)).abort_handle();
        Ok(Self { addr, shared, accepting })
    }

    /// Where to connect.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Changes the link for bytes that enter it from now on.
    pub fn set_link(&self, link: Link) {
        *self.shared.link.lock().unwrap_or_else(PoisonError::into_inner) = link;
    }

    /// Changes the target for connections made from now on.
    pub fn set_target(&self, target: SocketAddr) {
        *self.shared.target.lock().unwrap_or_else(PoisonError::into_inner) = Some(target);
    }

    /// Resets all connections and refuses new ones until [`Relay::heal`].
    pub fn cut(&self) {
        self.shared.cuts.send_modify(|count| *count += 1 + (*count & 1));
    }

    /// Lets connections through again after [`Relay::cut`].
    pub fn heal(&self) {
        self.shared.cuts.send_if_modified(|count| {
            let was_cut = *count & 1 == 1;
            *count += u64::from(was_cut);
            was_cut
        });
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("target", &self.target).finish_non_exhaustive()
    }
}

impl Shared {
    /// The link a connection has for itself, if it has one, with the bytes that showed it. `Err`:
    /// the caller ended, or did not send enough in time.
    async fn greeted(&self, client: &mut TcpStream) -> io::Result<(Option<Link>, Vec<u8>)> {
        let Some(link_of) = &self.by_greeting else { return Ok((None, Vec::new())) };
        let mut said = Vec::new();
        let reading = async {
            loop {
                if client.read_buf(&mut said).await? == 0 || said.len() > CHUNK_BYTES {
                    return Err(io::Error::from(io::ErrorKind::InvalidData));
                }
                if let Some(link) = link_of(&said) {
                    return Ok(link);
                }
            }
        };
        let link = timeout(CONNECT_TIMEOUT, reading).await.map_err(io::Error::from)??;
        Ok((Some(link), said))
    }

    fn link(&self) -> Link {
        *self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn target(&self) -> Option<SocketAddr> {
        *self.target.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Accepts until aborted; connections live in a set that dies with this task.
async fn accept(listener: TcpListener, shared: Arc<Shared>, seed: u64) {
    let mut connections = JoinSet::new();
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    for serial in 0.. {
        let Ok(slot) = slots.clone().acquire_owned().await else {
            return;
        };
        let Ok((client, _)) = listener.accept().await else {
            continue;
        };
        while connections.try_join_next().is_some() {}
        let (shared, seed) = (shared.clone(), seed.wrapping_add(serial));
        connections.spawn(async move {
            let _slot = slot;
            carry(client, &shared, seed).await;
        });
    }
}

/// Carries one connection until both directions have ended, one has failed, or the relay is cut.
async fn carry(mut client: TcpStream, shared: &Shared, seed: u64) {
    let mut cuts = shared.cuts.subscribe();
    let is_cut = *cuts.borrow_and_update() & 1 == 1;
    let target = shared.target().filter(|_| !is_cut);
    let greeted = match target {
        Some(_) => shared.greeted(&mut client).await.ok(),
        None => None,
    };
    let (Some((own, greeting)), Some(mut target)) = (greeted, connected(target).await) else {
        let _ = client.set_zero_linger();
        return;
    };
    // Waiting to fill a segment would add to the link's delay. Failing here costs only time.
    let _ = (client.set_nodelay(true), target.set_nodelay(true));
    let start = Instant::now();
    let mean_ms = own.unwrap_or_else(|| shared.link()).latency.mean_ms();
    let handshake = Duration::from_secs_f64(3.0 * mean_ms / 1_000.0);
    let orderly = {
        let (client_read, client_write) = client.split();
        let (target_read, target_write) = target.split();
        let up = Transit {
            shared,
            own,
            start,
            pipe: Pipe::opening(handshake),
            random: Random::stream(seed, "up", 0),
        };
        let down = Transit {
            shared,
            own,
            start,
            pipe: Pipe::default(),
            random: Random::stream(seed, "down", 0),
        };
        let both = async {
            tokio::try_join!(
                up.run(greeting, client_read, target_write),
                down.run(Vec::new(), target_read, client_write)
            )
        };
        tokio::select! {
            ended = both => ended.is_ok(),
            _ = cuts.changed() => false,
        }
    };
    if !orderly {
        // What ends before its time must look like it: a reset, not an orderly end.
        let _ = (client.set_zero_linger(), target.set_zero_linger());
    }
}

async fn connected(target: Option<SocketAddr>) -> Option<TcpStream> {
    timeout(CONNECT_TIMEOUT, TcpStream::connect(target?)).await.ok()?.ok()
}

/// One direction of one connection.
struct Transit<'a> {
    shared: &'a Shared,
    /// The connection's own link, if it has one.
    own: Option<Link>,
    start: Instant,
    pipe: Pipe,
    random: Random,
}

impl Transit<'_> {
    /// Carries what was read already, and then the rest.
    async fn run(self, begun: Vec<u8>, from: ReadHalf<'_>, to: WriteHalf<'_>) -> io::Result<()> {
        let (queue, arriving) = mpsc::channel(CHUNKS_MAX);
        tokio::try_join!(self.depart(begun, from, queue), deliver(arriving, to))?;
        Ok(())
    }

    async fn depart(
        mut self,
        begun: Vec<u8>,
        mut from: ReadHalf<'_>,
        queue: mpsc::Sender<Chunk>,
    ) -> io::Result<()> {
        if !begun.is_empty() && queue.send(self.stamped(begun)).await.is_err() {
            return Ok(());
        }
        let mut buffer = vec![0; CHUNK_BYTES];
        loop {
            let count = from.read(&mut buffer).await?;
            let sent = queue.send(self.stamped(buffer[..count].to_vec())).await;
            if count == 0 || sent.is_err() {
                return Ok(());
            }
        }
    }

    fn stamped(&mut self, bytes: Vec<u8>) -> Chunk {
        let link = self.own.unwrap_or_else(|| self.shared.link());
        let due = self.pipe.due(self.start.elapsed(), bytes.len(), &link, &mut self.random);
        (self.start + due, bytes)
    }
}

async fn deliver(mut arriving: mpsc::Receiver<Chunk>, mut to: WriteHalf<'_>) -> io::Result<()> {
    while let Some((due, chunk)) = arriving.recv().await {
        sleep_until(due).await;
        if chunk.is_empty() {
            return to.shutdown().await;
        }
        to.write_all(&chunk).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::{Latency, RETRANSMIT_MIN};

    /// A server that sends back what it gets, and ends when its client does.
    async fn echo() -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let addr = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut read, mut write) = stream.split();
                    let _ = tokio::io::copy(&mut read, &mut write).await;
                });
            }
        });
        addr
    }

    async fn relay(target: SocketAddr, link: Link) -> Relay {
        let relay = Relay::open(link, 1).await.unwrap();
        relay.set_target(target);
        relay
    }

    async fn round_trip(stream: &mut TcpStream) -> Duration {
        round_trip_of(stream, b"ping", b"ping").await
    }

    async fn round_trip_of(stream: &mut TcpStream, sent: &[u8], expected: &[u8]) -> Duration {
        let start = Instant::now();
        stream.write_all(sent).await.unwrap();
        let mut reply = vec![0; expected.len()];
        stream.read_exact(&mut reply).await.unwrap();
        assert_eq!(reply, expected);
        start.elapsed()
    }

    // Lower bounds only: a loaded machine may be slower than the link, never faster.

    #[tokio::test]
    async fn bytes_take_the_links_time_and_the_first_ones_a_handshake_more() {
        let relay = relay(echo().await, Link::constant(20.0)).await;
        let mut stream = TcpStream::connect(relay.addr()).await.unwrap();
        assert!(round_trip(&mut stream).await >= Duration::from_millis(75));
        assert!(round_trip(&mut stream).await >= Duration::from_millis(40));
        relay.set_link(Link::constant(60.0));
        assert!(round_trip(&mut stream).await >= Duration::from_millis(120));
    }

    #[tokio::test]
    async fn the_first_bytes_of_a_caller_choose_its_delay() {
        let link_of = |said: &[u8]| match said {
            [] => None,
            [b'a'..=b'm', ..] => Some(Link::constant(1.0)),
            // One byte is not enough to distinguish those.
            [_, rest @ ..] => (rest.len() > 1).then(|| Link::constant(30.0)),
        };
        let relay = Relay::open_by_greeting(link_of, 1).await.unwrap();
        let mut refused = TcpStream::connect(relay.addr()).await.unwrap();
        assert!(!matches!(refused.read(&mut [0; 1]).await, Ok(1..)));
        relay.set_target(echo().await);
        let mut far = TcpStream::connect(relay.addr()).await.unwrap();
        far.write_all(b"z").await.unwrap();
        tokio::task::yield_now().await;
        far.write_all(b"y").await.unwrap();
        assert!(round_trip_of(&mut far, b"xpin", b"zyxpin").await >= Duration::from_millis(60));
        assert!(round_trip(&mut far).await >= Duration::from_millis(60));
        // What others send first, and what is set for all, is nothing to a connection that has its
        // own.
        let mut near = TcpStream::connect(relay.addr()).await.unwrap();
        round_trip_of(&mut near, b"a", b"a").await;
        relay.set_link(Link::constant(1e9));
        round_trip(&mut near).await;
    }

    /// Sends so many bytes, reads them back, and returns how long that took.
    async fn echoed(relay: &Relay, bytes: usize) -> Duration {
        let start = Instant::now();
        let (mut read, mut write) = TcpStream::connect(relay.addr()).await.unwrap().into_split();
        let sent: Vec<u8> = (0..bytes).map(|index| (index / 7) as u8).collect();
        let copy = sent.clone();
        tokio::spawn(async move {
            write.write_all(&copy).await.unwrap();
            write.shutdown().await.unwrap();
        });
        let mut received = Vec::new();
        read.read_to_end(&mut received).await.unwrap();
        assert!(received == sent, "{} of {bytes} bytes, or not in order", received.len());
        start.elapsed()
    }

    #[tokio::test]
    async fn bytes_take_as_long_as_the_bandwidth_requires() {
        // 8 Mbit/s are 1,000 bytes a millisecond; there is nothing else that takes time.
        let link = Link { mbps: Some(8.0), ..Link::constant(0.0) };
        let relay = relay(echo().await, link).await;
        assert!(echoed(&relay, 300_000).await >= Duration::from_millis(300));
        // Half of it takes twice as long; a message at a time, as the simulation has them.
        relay.set_link(Link { mbps: Some(4.0), ..link });
        let mut stream = TcpStream::connect(relay.addr()).await.unwrap();
        let start = Instant::now();
        for _ in 0..5 {
            stream.write_all(&[7; 10_000]).await.unwrap();
            stream.read_exact(&mut [0; 10_000]).await.unwrap();
        }
        // There alone; the way back can be on the same time but for its last chunk.
        assert!(start.elapsed() >= Duration::from_millis(5 * 20));
    }

    #[tokio::test]
    async fn a_lossy_link_is_late_and_keeps_order() {
        let link = Link { loss: 0.02, ..Link::constant(0.0) };
        let relay = relay(echo().await, link).await;
        echoed(&relay, 100_000).await;
        // Small messages are late as often as chance draws it, and the pipe draws the same from
        // this seed.
        let link = Link { loss: 0.5, ..link };
        relay.set_link(link);
        let mut random = Random::stream(1 + 1, "up", 0);
        let mut pipe = Pipe::default();
        let mut expected = Duration::ZERO;
        let mut stream = TcpStream::connect(relay.addr()).await.unwrap();
        let start = Instant::now();
        for _ in 0..4 {
            expected = pipe.due(expected, 4, &link, &mut random);
            round_trip(&mut stream).await;
        }
        assert!(expected >= RETRANSMIT_MIN, "a seed with which nothing is lost proves nothing");
        assert!(start.elapsed() >= expected, "{:?} is less than {expected:?}", start.elapsed());
    }

    #[tokio::test]
    async fn a_long_stream_arrives_whole_in_order_and_its_end_with_it() {
        let jittery = Link::of(Latency::Uniform { from_ms: 0.0, to_ms: 6.0 });
        let relay = relay(echo().await, jittery).await;
        echoed(&relay, 3_000_000).await;
    }

    #[tokio::test]
    async fn a_receiver_that_does_not_read_stops_the_sender() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let target = listener.local_addr().unwrap();
        let relay = relay(target, Link::constant(1.0)).await;
        let mut sender = TcpStream::connect(relay.addr()).await.unwrap();
        let (_deaf, _) = listener.accept().await.unwrap();
        let chunk = vec![0; 1 << 20];
        let mut sent_mib = 0;
        // Socket buffers take some MiB, the relay at most one; 256 MiB must never fit.
        while timeout(Duration::from_millis(500), sender.write_all(&chunk)).await.is_ok() {
            sent_mib += 1;
            assert!(sent_mib < 256, "nothing holds the sender back");
        }
    }

    #[tokio::test]
    async fn a_cut_resets_and_refuses_until_healed() {
        let relay = relay(echo().await, Link::constant(1.0)).await;
        let mut stream = TcpStream::connect(relay.addr()).await.unwrap();
        round_trip(&mut stream).await;
        relay.cut();
        relay.cut();
        assert!(stream.read(&mut [0; 1]).await.is_err(), "a reset, not an orderly end");
        let mut refused = TcpStream::connect(relay.addr()).await.unwrap();
        let _ = refused.write_all(b"ping").await;
        assert!(!matches!(refused.read(&mut [0; 4]).await, Ok(1..)));
        relay.heal();
        let mut again = TcpStream::connect(relay.addr()).await.unwrap();
        round_trip(&mut again).await;
    }

    #[tokio::test]
    async fn a_target_that_is_not_there_closes_the_client() {
        let nowhere = Relay::open(Link::constant(1.0), 1).await.unwrap();
        let mut stream = TcpStream::connect(nowhere.addr()).await.unwrap();
        assert!(!matches!(stream.read(&mut [0; 1]).await, Ok(1..)));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let gone = listener.local_addr().unwrap();
        drop(listener);
        let relay = relay(gone, Link::constant(1.0)).await;
        let mut stream = TcpStream::connect(relay.addr()).await.unwrap();
        assert!(!matches!(stream.read(&mut [0; 1]).await, Ok(1..)));
        relay.set_target(echo().await);
        let mut stream = TcpStream::connect(relay.addr()).await.unwrap();
        round_trip(&mut stream).await;
    }
}
