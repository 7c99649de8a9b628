//! The sites of a world, in this process: one deployment of real nodes with real disks and sockets.
//!
//! Every node has a relay before its peer port and advertises that address, so that
//! messages within a site and between sites take as long as on the world's links
//! ([`super::distance`]). Clients bring their own relay, since their distance changes.
//!
//! ```text
//! vehicle ── its relay ──► redis port ┐
//!                                     node ── peer port ◄── its relay ◄── all other nodes
//! ```
//!
//! The first site begins the deployment, the others join it; one may be kept back to join later,
//! and one may leave. Data goes to a temporary directory that is removed at the end.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    sync::Arc,
    time::Duration,
};

use front::redis::{self, RedisFront};
use lab::{relay::Relay, world::World};
use model::{
    Answer, Body, Bytes, Command, DeploymentCommand, Failure, KeyspaceSpec, LoansLedger, NodeId,
    RegistryChange, Request, SiteId, SiteName, limits,
};
use server::{
    Handle, Node, StartError,
    config::{ClusterView, Config, MemoryConfig, Ports},
};
use tokio::{
    task::{JoinError, JoinHandle, JoinSet, spawn_blocking},
    time::{Instant, sleep, timeout},
};

use super::{distance, picture::Role, records::Kind, roster::Endpoint, trips};

/// How long a site may take to have all its nodes as voters and a leader, and to have the
/// deployment.
const READY_TIMEOUT: Duration = Duration::from_secs(180);
/// How long sites may take to have shared out the slots, for all sites together.
const WHOLE_TIMEOUT: Duration = Duration::from_secs(300);
/// No slot must move for so long before the slots are shared out.
const QUIET: Duration = Duration::from_secs(1);
/// How often to look whether it has.
const READY_POLL: Duration = Duration::from_millis(20);
/// How long a site may take to state what it lends; one without a leader does not.
const LEDGER_TIMEOUT: Duration = Duration::from_millis(300);
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
        /// The system's error.
        source: io::Error,
    },
    /// A node's Redis port did not open.
    #[error("{site}: {source}")]
    Front {
        /// Its site.
        site: SiteName,
        /// Its error.
        source: front::OpenError,
    },
    /// A node did not start.
    #[error("node {node} of {site}: {source}")]
    Node {
        /// Its site.
        site: SiteName,
        /// Its number.
        node: u64,
        /// Its error.
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
    /// The sites did not come together in time.
    #[error("the sites have not shared out the slots of global keys in {WHOLE_TIMEOUT:?}")]
    NotWhole,
    /// A thread ended in a panic.
    #[error("a node's thread ended: {0}")]
    Thread(#[from] JoinError),
}

impl CityError {
    fn io(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { what, source }
    }
}

/// All sites that are there.
pub(super) struct City {
    world: Arc<World>,
    seed: u64,
    /// By their index in the world; empty: not there.
    sites: Vec<Nodes>,
    data: tempfile::TempDir,
}

/// The nodes of one site.
#[derive(Default)]
pub(super) struct Nodes(Vec<Running>);

/// One node, until it is stopped.
struct Running {
    redis: SocketAddr,
    peer: SocketAddr,
    handle: Handle,
    up: Option<Up>,
}

/// What a node needs while it is up.
struct Up {
    node: Node,
    front: RedisFront,
    peers: Relay,
}

/// The part of a site in global keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Holding {
    /// Slots that it holds.
    pub(super) slots: usize,
    /// Of these, slots on their way to other sites.
    pub(super) going: usize,
    /// In so many moves.
    pub(super) moves: usize,
}

impl City {
    /// Starts every node of every site but `later`, and waits until each site is whole and has a
    /// leader, and all together have shared out the slots.
    pub(super) async fn start(
        world: &World,
        seed: u64,
        later: Option<usize>,
    ) -> Result<Self, CityError> {
        let directory = tempfile::Builder::new().prefix("portolan-demo-").tempdir();
        let data = directory.map_err(CityError::io("cannot make a directory for the data"))?;
        let world = Arc::new(world.clone());
        let sites = world.sites.iter().map(|_| Nodes::default()).collect();
        let mut city = Self { world, seed, sites, data };
        city.sites[0] = city.starting(0).await??;
        let others = (1..city.sites.len()).filter(|site| Some(*site) != later);
        let mut starting = JoinSet::new();
        for site in others {
            let started = city.starting(site);
            starting.spawn(async move { (site, started.await) });
        }
        while let Some(started) = starting.join_next().await {
            let (site, nodes) = started?;
            city.sites[site] = nodes??;
        }
        city.wait_until_whole().await?;
        Ok(city)
    }

    /// Begins to start the nodes of a site; they join the deployment, if there is one yet.
    pub(super) fn starting(&self, site: usize) -> JoinHandle<Result<Nodes, CityError>> {
        let (world, data, seed) = (self.world.clone(), self.data.path().to_owned(), self.seed);
        let up = self.sites.iter().flat_map(|nodes| &nodes.0).filter(|node| node.up.is_some());
        let join = up.map(|node| node.peer.to_string()).collect();
        tokio::spawn(async move { start_site(world, site, &data, seed, join).await })
    }

    /// A site that was started is part of the city from here on.
    pub(super) fn admit(&mut self, site: usize, nodes: Nodes) {
        self.sites[site] = nodes;
    }

    /// Where a site's nodes that are up listen for Redis clients, and what they hold.
    pub(super) fn endpoints(&self, site: usize) -> Vec<Endpoint> {
        self.sites[site].0.iter().filter(|node| node.up.is_some()).map(Running::endpoint).collect()
    }

    /// What each site's nodes are doing.
    pub(super) fn roles(&self) -> Vec<Vec<Role>> {
        let each = self.sites.iter().zip(&self.world.sites);
        let roles = each.map(|(nodes, site)| match nodes.0.as_slice() {
            [] => vec![Role::Absent; site.nodes],
            nodes => nodes.iter().map(Running::role).collect(),
        });
        roles.collect()
    }

    /// What each site holds of the global keys.
    pub(super) fn holdings(&self) -> Vec<Holding> {
        let of_site = |nodes: &Nodes| nodes.speaker().map(Running::holding).unwrap_or_default();
        self.sites.iter().map(of_site).collect()
    }

    /// Groups that each node of each site has moved as a leader; none: it does not lead.
    pub(super) fn moves_made(&self) -> Vec<Vec<Option<u64>>> {
        let of_node =
            |node: &Running| node.handle.status().placement.map(|placement| placement.moves);
        self.sites.iter().map(|nodes| nodes.0.iter().map(of_node).collect()).collect()
    }

    /// What each site lends and has borrowed; none: it does not answer now.
    pub(super) async fn ledgers(&self) -> Vec<Option<LoansLedger>> {
        let mut ledgers = Vec::new();
        for nodes in &self.sites {
            ledgers.push(match nodes.speaker() {
                Some(node) => node.ledger().await,
                None => Some(LoansLedger::default()),
            });
        }
        ledgers
    }

    /// How many other sites count this one among the deployment's.
    pub(super) fn known_by(&self, site: usize) -> usize {
        let name = self.world.sites[site].name.as_str();
        let others = self.sites.iter().enumerate().filter(|(other, _)| *other != site);
        let knows = |node: &Running| {
            let status = node.handle.status();
            let member = status.deployment.as_ref();
            member.is_some_and(|member| member.registry.site_named(name).is_some())
        };
        others.filter(|(_, nodes)| nodes.speaker().is_some_and(knows)).count()
    }

    /// Tells a site to hand everything over and leave.
    pub(super) async fn leave(&self, site: usize) -> Result<(), Failure> {
        let node = self.sites[site].speaker();
        let node = node.ok_or(Failure::Overloaded { what: "nodes that are not there" })?;
        let status = node.handle.status();
        let own = status.deployment.as_ref().map_or(SiteId(0), |member| member.own);
        let body = Body::Write(Command::Deployment(DeploymentCommand::ChangeRegistry(
            RegistryChange::Leave(own),
        )));
        let deadline = Instant::now() + READY_TIMEOUT;
        loop {
            match node.handle.call(Request::new(body.clone())).await {
                // Nothing was done. On a busy machine registrars may not answer for a while.
                Err(Failure::NotServing(_)) if Instant::now() < deadline => sleep(QUIET).await,
                answered => return answered.map(|_| ()),
            }
        }
    }

    /// Stops a node as a crash would: nothing is sent, handed over or flushed, and its ports close.
    pub(super) async fn stop_node(&mut self, site: usize, node: usize) {
        self.sites[site].0[node].stop().await;
    }

    /// Stops all nodes of a site, for good.
    pub(super) async fn stop_site(&mut self, site: usize) {
        stop_all(std::mem::take(&mut self.sites[site]).0).await;
    }

    /// Stops them all.
    pub(super) async fn stop(mut self) {
        stop_all(self.sites.drain(..).flat_map(|nodes| nodes.0).collect()).await;
    }

    /// Waits until all running sites have each other in their registry, own slots, and move none.
    async fn wait_until_whole(&self) -> Result<(), CityError> {
        let deadline = Instant::now() + WHOLE_TIMEOUT;
        let mut quiet_since = None;
        loop {
            let there: Vec<usize> =
                (0..self.sites.len()).filter(|site| !self.sites[*site].0.is_empty()).collect();
            let holdings = self.holdings();
            let is_whole = there.iter().all(|site| {
                let Holding { slots, moves, .. } = holdings[*site];
                slots > 0 && moves == 0 && self.known_by(*site) == there.len() - 1
            });
            quiet_since = is_whole.then(|| quiet_since.unwrap_or_else(Instant::now));
            if quiet_since.is_some_and(|since| since.elapsed() >= QUIET) {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(CityError::NotWhole);
            }
            sleep(READY_POLL).await;
        }
    }
}

async fn stop_all(nodes: Vec<Running>) {
    let mut stopping = JoinSet::new();
    for mut node in nodes {
        stopping.spawn(async move { node.stop().await });
    }
    while stopping.join_next().await.is_some() {}
}

impl Nodes {
    /// The node to ask about the site: its leader, or any node that is up; `None`: it does not run.
    fn speaker(&self) -> Option<&Running> {
        let leader = self.0.iter().find(|node| node.role() == Role::Leader);
        leader.or_else(|| self.0.iter().find(|node| node.up.is_some()))
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

    fn endpoint(&self) -> Endpoint {
        let handle = self.handle.clone();
        let holds = move |key: &str| {
            let key = Bytes::copy_from_slice(key.as_bytes());
            handle.serves_key(handle.catalog().of_key(&key).id, &key)
        };
        Endpoint { address: self.redis, holds: Arc::new(holds) }
    }

    fn holding(&self) -> Holding {
        let status = self.handle.status();
        let own = status.shares.iter().find(|share| share.is_confirmed);
        Holding {
            slots: own.map_or(0, |own| own.slots as usize),
            going: status.moves.iter().map(|one| one.what.slots.len()).sum(),
            moves: status.moves.len(),
        }
    }

    async fn ledger(&self) -> Option<LoansLedger> {
        let request = Request::new(Body::ShowPlacementLedger);
        match timeout(LEDGER_TIMEOUT, self.handle.call(request)).await {
            Ok(Ok(Answer::LedgerOfLoans(_, loans))) => Some(*loans),
            _ => None,
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

/// The keyspaces of what vehicles keep beside the hazards.
fn keyspaces() -> Vec<KeyspaceSpec> {
    Kind::BOTH.map(Kind::keyspace).into_iter().chain([trips::keyspace()]).collect()
}

/// Starts the nodes of one site one after the other: the first joins by the peer ports given, or
/// begins a deployment if there are none; the others join through it.
async fn start_site(
    world: Arc<World>,
    site: usize,
    data: &Path,
    seed: u64,
    mut join: Vec<String>,
) -> Result<Nodes, CityError> {
    let lab::world::Site { name, nodes, capacity, .. } = &world.sites[site];
    let keyspaces = if join.is_empty() { keyspaces() } else { Vec::new() };
    let mut running = Vec::new();
    for number in 1..=*nodes as u64 {
        let seed = seed.wrapping_add((site as u64) << 8 | number);
        let peers = Relay::open_by_greeting(distance::link_to(world.clone(), site), seed);
        let peers = peers.await.map_err(CityError::io("cannot open a relay"))?;
        let address = peers.addr().to_string();
        let config = Config {
            site: name.clone(),
            node: NodeId(number),
            capacity_percent: (capacity * 100.0).round() as u32,
            data: data.join(name.as_str()).join(number.to_string()),
            join: join.clone(),
            ports: ports(peers.addr()),
            memory: MemoryConfig { memtable_bytes: MEMTABLE_BYTES, ..MemoryConfig::default() },
            keyspaces: keyspaces.clone(),
            ..Config::default()
        };
        if number == 1 {
            join = vec![address];
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
    Ok(Nodes(running))
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
            cluster_view: ClusterView::default(),
        };
        let front =
            RedisFront::open(&node, options).map_err(|source| CityError::Front { site, source })?;
        let handle = node.handle();
        let (redis, peer) = (front.address(), peers.addr());
        Ok(Running { redis, peer, handle, up: Some(Up { node, front, peers }) })
    });
    started.await?
}

/// Whether all nodes vote, agree on the leader, and have the deployment and the vehicles'
/// keyspaces.
fn is_ready(nodes: &[Running]) -> bool {
    let knows = |node: &Running| {
        let catalog = node.handle.catalog();
        let has_all = keyspaces().iter().all(|spec| catalog.by_name(&spec.name).is_some());
        has_all && node.handle.status().deployment.is_some()
    };
    if !nodes.iter().all(knows) {
        return false;
    }
    let statuses: Vec<_> = nodes.iter().map(|node| node.handle.status()).collect();
    let leader = statuses.first().and_then(|status| status.leader);
    leader.is_some()
        && statuses
            .iter()
            .all(|status| status.leader == leader && status.members.voters.len() == nodes.len())
}
