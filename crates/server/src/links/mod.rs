//! Links to the other nodes: one connection per pair, frames in order, nothing kept across a break.
//!
//! Of two nodes the one with the higher id dials; the other accepts. Either way the connection
//! attaches to the pair's [`Link`], whose outgoing frames wait in one bounded buffer: the site's
//! thread appends to it, the connection's writer sends whatever has gathered with one system call.
//! `inter_site` has the connections to nodes of other sites; `join` and `enter` let a node join a
//! site and a site join a deployment, at the other end of which `join_service` answers. `peers` is
//! the border to the rest of the node. Where proof is required, `prove` runs before any of this;
//! `unproved` limits the number of connections that are not proved yet.
//!
//! When the buffer is full, or there is no connection, messages are dropped: Raft repeats what
//! matters, and every waiting request has a deadline.

mod connection;
pub(crate) mod enter;
mod incarnations;
mod inter_site;
pub(crate) mod join;
mod join_service;
mod peers;
mod prove;
mod unproved;

pub(crate) use inter_site::Remote;
pub(crate) use peers::{Inbound, Peers};

use crate::batcher::lock;
use crate::node::Event;
use crate::peers::judge::NotProved;
use crate::peers::{PeerAuth, SecretError, TokenError};
use crate::tls::{PeerTls, Session, peer_name};
use bytes::{Bytes, BytesMut};
use connection::{Connection, tuned};
use incarnations::Incarnations;
use inter_site::Others;
use model::{NodeId, Registry, SiteId, SiteName, limits};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use unproved::Unproved;
use wire::inter_site::InterSiteMessage;
use wire::peer::{self, Hello, Members};
use wire::proof::CHALLENGE_BYTES;

/// The pause before dialling again: doubled from the first to the second.
const REDIAL: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// This node's identity in greetings.
#[derive(Clone)]
pub(crate) struct Identity {
    pub(crate) site: SiteName,
    pub(crate) node: NodeId,
    pub(crate) incarnation: u64,
}

impl Identity {
    fn hello(&self) -> Hello {
        Hello {
            protocol: peer::PROTOCOL_WITHOUT_PROOF,
            site: self.site.to_string(),
            node: self.node.0,
            incarnation: self.incarnation,
            rules: peer::RULES,
            ..Hello::default()
        }
    }
}

/// The outgoing messages for one node.
#[derive(Default)]
pub(crate) struct Link {
    outgoing: Mutex<Outgoing>,
    wake: Notify,
}

#[derive(Default)]
struct Outgoing {
    frames: BytesMut,
    /// The connection that sends them; 0: none, and frames are dropped.
    connection: u64,
    connections: u64,
    /// A connection is being made, and messages wait for it.
    dialling: bool,
}

impl Link {
    /// Appends a message, or drops it: there is no connection, or the buffer is full.
    fn push(&self, message: &peer::Message) {
        let mut outgoing = lock(&self.outgoing);
        if outgoing.connection != 0 && outgoing.frames.len() < limits::PEER_BACKLOG_BYTES_MAX {
            peer::encode_frame(message, &mut outgoing.frames);
        }
    }

    /// The same, but messages sent while a connection is being made wait for it.
    fn push_while_dialling(&self, message: &peer::Message) {
        let mut outgoing = lock(&self.outgoing);
        let goes = outgoing.connection != 0 || outgoing.dialling;
        if goes && outgoing.frames.len() < limits::PEER_BACKLOG_BYTES_MAX {
            peer::encode_frame(message, &mut outgoing.frames);
        }
    }

    /// Whether the caller must make a connection: there is none, and none is being made.
    fn begin_dialling(&self) -> bool {
        let mut outgoing = lock(&self.outgoing);
        outgoing.connection == 0 && !std::mem::replace(&mut outgoing.dialling, true)
    }

    /// The connection failed: the messages that wait for it are dropped.
    fn end_dialling(&self) {
        let mut outgoing = lock(&self.outgoing);
        outgoing.dialling = false;
        outgoing.frames = BytesMut::new();
    }

    /// The connection was made and sends the messages that wait for it.
    fn attach_keeping(&self) -> u64 {
        let mut outgoing = lock(&self.outgoing);
        outgoing.dialling = false;
        outgoing.connections += 1;
        outgoing.connection = outgoing.connections;
        self.wake.notify_one();
        outgoing.connection
    }

    fn wake_writer(&self) {
        if !lock(&self.outgoing).frames.is_empty() {
            self.wake.notify_one();
        }
    }

    /// Replaces the previous connection, if any.
    fn attach(&self) -> u64 {
        let mut outgoing = lock(&self.outgoing);
        outgoing.connections += 1;
        outgoing.connection = outgoing.connections;
        outgoing.frames.clear();
        self.wake.notify_one();
        outgoing.connection
    }

    /// `false`: another connection has replaced this one already.
    fn detach(&self, connection: u64) -> bool {
        let mut outgoing = lock(&self.outgoing);
        let was_ours = outgoing.connection == connection;
        if was_ours {
            outgoing.connection = 0;
            outgoing.frames = BytesMut::new();
        }
        was_ours
    }
}

/// All links of a node. Clones share them.
#[derive(Clone)]
pub(crate) struct Links(Arc<Inner>);

/// A node that this node dials.
struct Dialled {
    address: String,
    /// `false`: no longer a member, and its task has not ended yet.
    is_member: bool,
}

struct Inner {
    identity: Identity,
    tls: Option<PeerTls>,
    auth: Arc<PeerAuth>,
    unproved: Arc<Unproved>,
    events: mpsc::Sender<Event>,
    /// Messages sent to the site's thread and not taken yet.
    waiting: Arc<AtomicUsize>,
    links: Mutex<BTreeMap<NodeId, Arc<Link>>>,
    incarnations: Incarnations,
    /// The nodes that this node dials, and their addresses. Each has exactly one task that dials:
    /// two would replace each other's connection without end.
    dialled: Mutex<BTreeMap<NodeId, Dialled>>,
    /// Wakes the tasks that dial when an address changes.
    moved: Notify,
    others: Others,
    /// What takes messages beside the site's thread, once the node runs.
    inbound: OnceLock<Box<dyn Inbound>>,
    runtime: tokio::runtime::Handle,
}

impl Links {
    /// Links that run on `runtime`.
    pub(crate) fn new(
        identity: Identity,
        tls: Option<PeerTls>,
        auth: Arc<PeerAuth>,
        events: mpsc::Sender<Event>,
        runtime: tokio::runtime::Handle,
    ) -> Links {
        let (waiting, links, dialled) = (Arc::default(), Mutex::default(), Mutex::default());
        Links(Arc::new(Inner {
            identity,
            tls,
            auth,
            unproved: Arc::default(),
            events,
            waiting,
            links,
            incarnations: Incarnations::default(),
            dialled,
            moved: Notify::new(),
            others: Others::default(),
            inbound: OnceLock::new(),
            runtime,
        }))
    }

    /// This node's credentials, and what it requires of other nodes.
    pub(crate) fn auth(&self) -> &Arc<PeerAuth> {
        &self.0.auth
    }

    fn link(&self, node: NodeId) -> Arc<Link> {
        lock(&self.0.links).entry(node).or_default().clone()
    }

    /// Dials a node again and again, as long as it is a member.
    async fn keep_dialling(self, node: NodeId) {
        let (mut wait, mut warned) = (REDIAL.0, false);
        loop {
            let Some(address) = self.address_to_dial(node) else { return };
            match self.dial(&address, Some(node)).await {
                Ok(connection) if self.is_earlier_incarnation(&connection) => {
                    self.turn_away(connection).await;
                }
                Ok(connection) => {
                    (wait, warned) = (REDIAL.0, false);
                    self.run(connection, self.moved(node, &address)).await;
                }
                // Time does not mend a refusal, so it is logged once as a warning.
                Err(error) if error.is_refusal() && !warned => {
                    tracing::warn!(%node, address, "no link to a node of the site: {error}");
                    warned = true;
                }
                Err(error) => {
                    tracing::debug!(%node, address, "cannot reach a node of the site: {error}");
                }
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(REDIAL.1);
        }
    }

    /// The address of a node to dial; `None` for a node that is no longer a member: its task must
    /// end.
    fn address_to_dial(&self, node: NodeId) -> Option<String> {
        let mut dialled = lock(&self.0.dialled);
        let found = dialled.get(&node).filter(|found| found.is_member);
        let address = found.map(|found| found.address.clone());
        if address.is_none() {
            dialled.remove(&node);
        }
        address
    }

    /// Waits until a node that was dialled at this address is to be dialled at another one.
    async fn moved(&self, node: NodeId, address: &str) -> LinkError {
        loop {
            // Before the look, so that no change is missed.
            let changed = self.0.moved.notified();
            if lock(&self.0.dialled).get(&node).is_some_and(|found| found.address != address) {
                return LinkError::Moved;
            }
            changed.await;
        }
    }

    /// Connects to an address; `expected`: the node of this site that must be there.
    pub(crate) async fn dial(
        &self,
        address: &str,
        expected: Option<NodeId>,
    ) -> Result<Connection, LinkError> {
        let connection = self.dial_any(address).await?;
        let (found, own) = (&connection.hello().site, &self.0.identity.site);
        if found != own.as_str() {
            return Err(LinkError::OtherSite { found: found.clone(), own: own.to_string() });
        }
        match expected {
            Some(expected) if connection.node() != expected => {
                Err(LinkError::WrongNode { expected, found: connection.node() })
            }
            _ => Ok(connection),
        }
    }

    /// Connects to the node at an address, of any site.
    pub(crate) async fn dial_any(&self, address: &str) -> Result<Connection, LinkError> {
        in_time(async {
            let mut connection = self.greeted(address).await?;
            self.prove(&mut connection).await?;
            Ok(connection)
        })
        .await
    }

    /// Connects to an address and exchanges hellos.
    async fn greeted(&self, address: &str) -> Result<Connection, LinkError> {
        let stream = TcpStream::connect(address).await?;
        tuned(&stream)?;
        let mut connection = match &self.0.tls {
            None => Connection::plain(stream),
            Some(tls) => {
                let name = peer_name(address).map_err(|e| LinkError::Tls(e.to_string()))?;
                let tls = tokio_rustls::TlsConnector::from(tls.connect.clone());
                let stream = tls.connect(name, stream).await?;
                let session = Session::of(stream.get_ref().1)?;
                Connection::tls(stream, session)
            }
        };
        connection.greet(&self.hello()?).await?;
        Ok(connection)
    }

    fn hello(&self) -> Result<Hello, LinkError> {
        let (deployment, site_id) = self.0.others.own().map_or((0, 0), |(d, site)| (d.0, site.0));
        let mut challenge = [0; CHALLENGE_BYTES];
        getrandom::fill(&mut challenge).map_err(|error| LinkError::Random(error.to_string()))?;
        let hello = Hello {
            deployment,
            site_id,
            since: self.0.incarnations.since(&self.0.identity),
            challenge: Bytes::copy_from_slice(&challenge),
            asks_proof: self.0.auth.asks(),
            ..self.0.identity.hello()
        };
        // An older version ignores the challenge, but refuses this protocol with an error.
        let protocol = if self.0.auth.insists() { peer::PROTOCOL } else { hello.protocol };
        Ok(Hello { protocol, ..hello })
    }

    /// Accepts connections for as long as the runtime runs.
    pub(crate) async fn accept(self, listener: TcpListener) {
        loop {
            let Ok((stream, address)) = listener.accept().await else {
                // Out of descriptors: wait for some to be freed.
                tokio::time::sleep(REDIAL.0).await;
                continue;
            };
            let Some(place) = self.0.unproved.enter(address.ip()) else {
                tracing::debug!(%address, "too many peer connections that have proved nothing yet");
                continue;
            };
            let links = self.clone();
            tokio::spawn(async move {
                let welcomed = in_time(links.welcome(stream)).await;
                drop(place);
                match welcomed {
                    Ok(Some(connection)) => links.serve(connection).await,
                    Ok(None) => tracing::info!(%address, "a join token was accepted"),
                    Err(LinkError::Timeout) => {
                        tracing::debug!(%address, "a peer connection sent nothing");
                    }
                    Err(error) => {
                        tracing::warn!(%address, "a peer connection was refused: {error}");
                    }
                }
            });
        }
    }

    /// Greets and checks an accepted connection. `None`: it only presented a join token, and is
    /// over.
    async fn welcome(&self, stream: TcpStream) -> Result<Option<Connection>, LinkError> {
        tuned(&stream)?;
        let mut connection = match &self.0.tls {
            None => Connection::plain(stream),
            Some(tls) => {
                let acceptor = tokio_rustls::TlsAcceptor::from(tls.accept.clone());
                let stream = acceptor.accept(stream).await?;
                let session = Session::of(stream.get_ref().1)?;
                Connection::tls(stream, session)
            }
        };
        connection.greet(&self.hello()?).await?;
        self.check(connection).await
    }

    /// Serves an accepted connection according to the node that made it.
    async fn serve(&self, connection: Connection) {
        let hello = connection.hello();
        if hello.site == self.0.identity.site.as_str() {
            return match self.is_earlier_incarnation(&connection) {
                true => self.receive_joiner(connection).await,
                false => self.run(connection, std::future::pending()).await,
            };
        }
        if let Some(name) = self.0.others.name_of(SiteId(hello.site_id))
            && name.as_str() != hello.site
        {
            let (site, id) = (&hello.site, hello.site_id);
            return tracing::warn!(site, id, "a node was refused: its id is that of site {name}");
        }
        let own = self.0.others.own();
        match hello.site_id {
            0 => self.serve_joiner(connection).await,
            _ if own.is_some_and(|(deployment, _)| deployment.0 == hello.deployment) => {
                self.listen_inter_site(connection).await;
            }
            _ => {
                let (site, deployment) = (&hello.site, hello.deployment);
                tracing::debug!(site, deployment, "a node of another deployment was refused");
            }
        }
    }

    /// Carries frames both ways until the connection breaks or `over` gives a reason to end it.
    async fn run(&self, connection: Connection, over: impl Future<Output = LinkError>) {
        let node = connection.node();
        let link = self.link(node);
        let attached = link.attach();
        let (mut reader, mut writer) = connection.split();
        let event = |message| Some(Event::Message { from: node, message });
        let reading = reader.run(event, &self.0.events, &self.0.waiting);
        let writing = writer.run(&link, attached);
        let error = tokio::select! {
            error = reading => error,
            error = writing => error,
            // The writer may wait for a node that is gone.
            error = over => error,
        };
        tracing::debug!(%node, "the link broke: {error}");
        if link.detach(attached) {
            let _ = self.0.events.send(Event::LinkLost(node));
        }
    }
}

impl Peers for Links {
    fn send(&self, to: NodeId, message: &peer::Message) {
        if let Some(link) = lock(&self.0.links).get(&to) {
            link.push(message);
        }
        self.0.incarnations.answer(to, message);
    }

    fn send_inter_site(&self, to: Remote, message: InterSiteMessage) {
        self.queue_inter_site(to, message);
    }

    fn flush(&self) {
        for link in lock(&self.0.links).values() {
            link.wake_writer();
        }
        self.wake_inter_site();
    }

    fn flush_inter_site(&self) {
        self.wake_inter_site();
    }

    fn taken(&self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    /// Dials the nodes that this node has to dial, at the members' present addresses.
    fn set_members(&self, members: &Members) {
        let own = self.0.identity.node;
        self.0.incarnations.set_members(members);
        let mut dialled = lock(&self.0.dialled);
        for (node, found) in dialled.iter_mut() {
            found.is_member = members.nodes.iter().any(|member| member.node == node.0);
        }
        for member in &members.nodes {
            let node = NodeId(member.node);
            if node >= own {
                continue;
            }
            let address = member.address.clone();
            match dialled.insert(node, Dialled { address, is_member: true }) {
                None => drop(self.0.runtime.spawn(self.clone().keep_dialling(node))),
                // The old one may be that of a machine that is gone, whose connection stays open.
                Some(before) if before.address != member.address => self.0.moved.notify_waiters(),
                Some(_) => {}
            }
        }
    }

    fn set_deployment(&self, own: SiteId, registry: &Registry) {
        self.set_sites(own, registry);
    }
}

/// Why a link could not be made or broke.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LinkError {
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("{0}")]
    Tls(String),
    #[error("no answer within {} s", limits::PEER_PROOF_DEADLINE.as_secs())]
    Timeout,
    #[error("{0}")]
    Frame(#[from] peer::FrameError),
    #[error("it closed the connection")]
    Closed,
    #[error("another connection took over")]
    Replaced,
    #[error("the node is at another address now")]
    Moved,
    #[error("this node is stopping")]
    Stopping,
    #[error("it speaks protocol {found}; this node speaks {oldest} to {newest}", oldest = peer::PROTOCOL_OLDEST, newest = peer::PROTOCOL)]
    Protocol { found: u32 },
    #[error(
        "it uses rules {found} for the owners of slots, this node uses rules {oldest} to {newest}: they would \
         misread each other; run one version at both ends",
        oldest = peer::RULES_OLDEST,
        newest = peer::RULES
    )]
    Rules { found: u32 },
    #[error("it belongs to site {found:?}, not {own:?}; check --site and --join")]
    OtherSite { found: String, own: String },
    #[error(transparent)]
    NotProved(#[from] NotProved),
    #[error("it refuses this node: {0}")]
    RefusedBy(String),
    #[error(transparent)]
    Token(#[from] TokenError),
    #[error(
        "the node there does not have the secret that the join token was made with: it is of another \
         deployment, or none at all"
    )]
    TokenNotKnown,
    #[error(transparent)]
    Secret(#[from] SecretError),
    #[error("the system refuses random numbers: {0}")]
    Random(String),
    #[error("it has this node's own id {0}; give every node of a site its own --node")]
    OwnId(NodeId),
    #[error("{found} answers there, not {expected}")]
    WrongNode { expected: NodeId, found: NodeId },
}

impl LinkError {
    /// Whether the cause is the two nodes' configuration, not the network.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(
            self,
            LinkError::Rules { .. }
                | LinkError::NotProved(_)
                | LinkError::RefusedBy(_)
                | LinkError::Token(_)
                | LinkError::TokenNotKnown
                | LinkError::Secret(_)
        )
    }
}

/// Bounds the work before a connection is proved.
async fn in_time<T>(
    connecting: impl Future<Output = Result<T, LinkError>>,
) -> Result<T, LinkError> {
    let in_time = tokio::time::timeout(limits::PEER_PROOF_DEADLINE, connecting).await;
    in_time.unwrap_or(Err(LinkError::Timeout))
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::peer::Member;

    fn links(node: u64) -> (Links, mpsc::Receiver<Event>) {
        let site = SiteName::new("site").expect("a site name");
        let identity = Identity { site, node: NodeId(node), incarnation: node };
        let (events, inbox) = mpsc::channel();
        let auth = Arc::new(PeerAuth::open_to_all(identity.site.clone()));
        (Links::new(identity, None, auth, events, tokio::runtime::Handle::current()), inbox)
    }

    /// A membership that lacks a node for a moment (recovery begins with an empty one) must not
    /// leave two tasks that dial it: they would break each other's connection without end, and
    /// messages would be lost each time.
    #[tokio::test]
    async fn a_node_that_leaves_and_comes_back_is_dialled_by_one_task() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (accepting, _accepted) = links(1);
        tokio::spawn(accepting.accept(listener));
        let (dialling, _events) = links(2);
        let member = Member { node: 1, address, incarnation: 1, ..Member::default() };
        let here = Members { nodes: vec![member], ..Members::default() };
        dialling.set_members(&here);
        let link = dialling.link(NodeId(1));
        while lock(&link.outgoing).connection == 0 {
            tokio::task::yield_now().await;
        }
        dialling.set_members(&Members::default());
        dialling.set_members(&here);
        tokio::time::sleep(REDIAL.0 * 4).await;
        assert_eq!(lock(&link.outgoing).connections, 1);
    }

    /// The machine at the old address may be gone without having closed its connection.
    #[tokio::test]
    async fn a_node_at_another_address_is_dialled_there() {
        let (dialling, _events) = links(2);
        let link = dialling.link(NodeId(1));
        let mut open = Vec::new();
        for connections in 1..=2 {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap().to_string();
            let (accepting, accepted) = links(1);
            tokio::spawn(accepting.accept(listener));
            open.push(accepted);
            let member = Member { node: 1, address, incarnation: 1, ..Member::default() };
            dialling.set_members(&Members { nodes: vec![member], ..Members::default() });
            let dialled = async {
                while lock(&link.outgoing).connections < connections {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            tokio::time::timeout(Duration::from_secs(30), dialled).await.expect("it is dialled");
        }
    }
}
