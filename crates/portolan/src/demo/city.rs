//! The sites of a world, in this process: real nodes with real disks and sockets.
//!
//! Every node has a relay before its peer port and tells the others that address, so that what the
//! nodes of a site say to each other takes as long as the world's links say. Clients bring their own
//! relay, since their distance changes.
//!
//! ```text
//! vehicle ── its relay ──► redis port ┐
//!                                     node ── peer port ◄── its relay ◄── the site's other nodes
//! ```
//!
//! Data goes to a temporary directory that is removed at the end.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    sync::Arc,
    time::Duration,
};

use front::redis::{self, RedisFront};
use lab::{relay::Relay, world::World};
use model::{NodeId, SiteName, limits};
use server::{
    Handle, Node, StartError,
    config::{Config, MemoryConfig, Ports},
};
use tokio::{
    task::{JoinError, JoinSet, spawn_blocking},
    time::{Instant, sleep},
};

use super::picture::Role;

/// How long a site may take to have all its nodes as voters and a leader.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
/// How often to look whether it has.
const READY_POLL: Duration = Duration::from_millis(20);
/// Many nodes share this machine, and each site holds little.
const MEMTABLE_BYTES: u64 = 4 << 20;

/// Why the city did not start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CityError {
    /// No temporary directory, or no relay.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// A node's Redis port did not open.
    #[error("{site}: {source}")]
    Front {
        /// Its site.
        site: SiteName,
        /// What it said.
        source: redis::StartError,
    },
    /// A node did not start.
    #[error("node {node} of {site}: {source}")]
    Node {
        /// Its site.
        site: SiteName,
        /// Its number.
        node: u64,
        /// What it said.
        source: Box<StartError>,
    },
    /// A site did not gather its nodes in time.
    #[error("{site} has not gathered its {nodes} nodes behind a leader in {READY_TIMEOUT:?}")]
    NotReady {
        /// The site.
        site: SiteName,
        /// How many it should have.
        nodes: usize,
    },
    /// A thread ended in a panic.
    #[error("a node's thread ended: {0}")]
    Thread(#[from] JoinError),
}

impl CityError {
    fn io(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { what, source }
    }
}

/// All sites, running.
pub(super) struct City {
    sites: Vec<Vec<Running>>,
    _data: tempfile::TempDir,
}

/// One node, until it is stopped.
struct Running {
    redis: SocketAddr,
    handle: Handle,
    up: Option<Up>,
}

/// What a node needs while it is up.
struct Up {
    node: Node,
    front: RedisFront,
    peers: Relay,
}

impl City {
    /// Starts every node of every site, and waits until each site is whole and has a leader.
    pub(super) async fn start(world: &World, seed: u64) -> Result<Self, CityError> {
        let directory = tempfile::Builder::new().prefix("portolan-demo-").tempdir();
        let data = directory.map_err(CityError::io("cannot make a directory for the data"))?;
        let world = Arc::new(world.clone());
        let mut starting = JoinSet::new();
        for site in 0..world.sites.len() {
            let (world, path) = (world.clone(), data.path().to_owned());
            starting.spawn(async move { (site, start_site(&world, site, &path, seed).await) });
        }
        let mut sites: Vec<Vec<Running>> = world.sites.iter().map(|_| Vec::new()).collect();
        while let Some(started) = starting.join_next().await {
            let (site, nodes) = started?;
            sites[site] = nodes?;
        }
        Ok(Self { sites, _data: data })
    }

    /// Where each site's nodes listen for Redis clients.
    pub(super) fn addresses(&self) -> Vec<Vec<SocketAddr>> {
        self.sites.iter().map(|nodes| nodes.iter().map(|node| node.redis).collect()).collect()
    }

    /// What each site's nodes are doing.
    pub(super) fn roles(&self) -> Vec<Vec<Role>> {
        self.sites.iter().map(|nodes| nodes.iter().map(Running::role).collect()).collect()
    }

    /// Stops a node as a crash would: nothing is said, handed over or flushed, and its ports close.
    pub(super) async fn stop_node(&mut self, site: usize, node: usize) {
        self.sites[site][node].stop().await;
    }

    /// Stops them all.
    pub(super) async fn stop(mut self) {
        let mut stopping = JoinSet::new();
        for mut node in self.sites.drain(..).flatten() {
            stopping.spawn(async move { node.stop().await });
        }
        while stopping.join_next().await.is_some() {}
    }
}

impl Running {
    fn role(&self) -> Role {
        match self.up {
            None => Role::Down,
            Some(_) if self.handle.status().role == server::Role::Leader => Role::Leader,
            Some(_) => Role::Follower,
        }
    }

    async fn stop(&mut self) {
        let Some(up) = self.up.take() else { return };
        if let Err(panic) = spawn_blocking(move || up.stop()).await {
            tracing::error!("a node did not stop: {panic}");
        }
    }
}

impl Drop for Running {
    /// A city that is given up stops its nodes without waiting for them.
    fn drop(&mut self) {
        if let Some(up) = self.up.take() {
            std::thread::spawn(move || up.stop());
        }
    }
}

impl Up {
    /// Waits for the node's threads, which a thread of a runtime must not do.
    fn stop(self) {
        let Self { node, front, peers } = self;
        drop((peers, front));
        node.stop();
    }
}

/// Starts the nodes of one site one after the other; all but the first join through it.
async fn start_site(
    world: &World,
    site: usize,
    data: &Path,
    seed: u64,
) -> Result<Vec<Running>, CityError> {
    let lab::world::Site { name, nodes, .. } = &world.sites[site];
    let mut running = Vec::new();
    let mut join = Vec::new();
    for number in 1..=*nodes as u64 {
        let link = world.node_link(site);
        let seed = seed.wrapping_add((site as u64) << 8 | number);
        let peers = Relay::open(link, seed).await.map_err(CityError::io("cannot open a relay"))?;
        let config = Config {
            site: name.clone(),
            node: NodeId(number),
            data: data.join(name.as_str()).join(number.to_string()),
            join: join.clone(),
            ports: ports(peers.addr()),
            memory: MemoryConfig { memtable_bytes: MEMTABLE_BYTES, ..MemoryConfig::default() },
            ..Config::default()
        };
        if join.is_empty() {
            join.push(peers.addr().to_string());
        }
        running.push(start_node(config, peers).await?);
    }
    let deadline = Instant::now() + READY_TIMEOUT;
    while !is_ready(&running) {
        if Instant::now() > deadline {
            return Err(CityError::NotReady { site: name.clone(), nodes: *nodes });
        }
        sleep(READY_POLL).await;
    }
    Ok(running)
}

/// A free peer port on loopback; the Redis port is opened by its front.
fn ports(advertise: SocketAddr) -> Ports {
    let free = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let advertise = Some(advertise.to_string());
    Ports { redis: None, grpc: None, peer: free, admin: None, advertise, ..Ports::default() }
}

async fn start_node(config: Config, peers: Relay) -> Result<Running, CityError> {
    // Joining waits for the site, and waiting must not hold up a thread of this runtime.
    let started = spawn_blocking(move || {
        let site = config.site.clone();
        let node = Node::start(&config).map_err(|source| CityError::Node {
            site: site.clone(),
            node: config.node.0,
            source: Box::new(source),
        })?;
        peers.set_target(node.peer_address());
        let options = redis::Options {
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            threads: 1,
            connections_max: limits::CONNECTIONS_MAX,
            tls: None,
            cluster: None,
        };
        let front = RedisFront::start(&node, options)
            .map_err(|source| CityError::Front { site, source })?;
        let handle = node.handle();
        Ok(Running { redis: front.address(), handle, up: Some(Up { node, front, peers }) })
    });
    started.await?
}

/// Whether all nodes vote and agree on who leads.
fn is_ready(nodes: &[Running]) -> bool {
    let statuses: Vec<_> = nodes.iter().map(|node| node.handle.status()).collect();
    let leader = statuses.first().and_then(|status| status.leader);
    leader.is_some()
        && statuses
            .iter()
            .all(|status| status.leader == leader && status.members.voters.len() == nodes.len())
}
