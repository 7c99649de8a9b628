//! From a configuration to running threads, step by step.
//!
//! The order matters: the data directory is locked before anything is read, an etcd cluster's site
//! is owned before its rows are, the peer port is open before a site adds this node, and the node
//! is a member, durably, before its core runs.

use super::error::system;
use super::files::Files;
use super::join::{become_member, cluster_address, own_entry};
use super::{Batchers, Event, Node, StartError};
use crate::background;
use crate::clock::Clock;
use crate::config::{Config, Engine, Weights};
use crate::disk_loop::DiskLoop;
use crate::engine::Opened;
use crate::handle::{Gate, Shared};
use crate::identity::{self, Identity};
use crate::links::{self, Links, Peers as _};
use crate::logins::Logins;
use crate::metrics::Metrics;
use crate::peers::{self, PeerAuth};
use crate::proxy_reads::SharedProxyReads;
use crate::site_loop::{RealSite, SiteLoop};
use crate::tls::{self, PeerTls};
use crate::users::Users;
use crate::watch::Watched;
use model::{ClientId, DeploymentId, NodeId, SiteEntry, SiteName};
use protocol::replica::raft::Ticks;
use protocol::site::Options;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, RwLock, mpsc};
use std::thread::JoinHandle;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use wire::peer::Members;

/// A node is reached at the address under which it became a member, and nowhere else.
fn warn_of_other_address(members: &Members, node: NodeId, advertised: &str) {
    let listed = members.nodes.iter().find(|member| member.node == node.0);
    if let Some(listed) = listed.filter(|listed| listed.address != advertised) {
        tracing::warn!(
            "{node} is a member of its site at {}, where others try to reach it, and has started at {advertised}: start it \
             at the listed address (--peer, --advertise), or have it join as a new node and remove this one",
            listed.address
        );
    }
}

/// A site is of the region that it joined in, so that all its nodes are of one.
fn check_region(config: &Config, site: &RealSite) -> Result<(), StartError> {
    let (Some(stated), Some(own)) = (&config.region, site.status().deployment.clone()) else {
        return Ok(());
    };
    match own.registry.site(own.own).and_then(|entry| other_region(entry, stated)) {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

/// What is wrong if a node of a site states another region.
pub(super) fn other_region(entry: &SiteEntry, stated: &SiteName) -> Option<StartError> {
    let is_same = entry.region == SiteEntry::stated_region(Some(stated));
    let region = entry.region.as_ref().map_or_else(|| "none".to_owned(), SiteName::to_string);
    let (site, stated) = (entry.name.clone(), stated.clone());
    (!is_same).then_some(StartError::OtherRegion { site, region, stated })
}

/// See [`Node::start`].
pub(super) fn start(config: &Config) -> Result<Node, StartError> {
    let lock = identity::lock_directory(&config.data)?;
    let mut own = identity_of(config)?;
    // etcd, if the site's keys are there, does not have these.
    let has_entered = own.entered || own.left;
    let clock = Clock::start();
    let metrics = Arc::new(Metrics::default());
    let (events, inbox) = mpsc::channel();
    let mut engine = Opened::open(config, &mut own, random()?, metrics.clone())?;
    let peers = PeerPort::open(config, own.incarnation, clock, events.clone())?;
    let mut files = Files::open(config, &mut engine)?;
    if !own.member {
        become_member(config, &mut own, &mut engine, &peers, &mut files)?;
    }
    let replica = engine.recover(&mut files, &peers.advertised)?;
    let described = own_entry(config, &own, &peers.advertised);
    let options = options(config, &own, &described)?;
    let Files { recovered, writer, reader, snapshots, state } = files;
    let site = RealSite::new(options, clock.now(), &recovered, reader, snapshots.clone(), replica);
    check_region(config, &site)?;
    warn_of_other_address(&site.status().members, config.node, &peers.advertised);
    let peers = peers.serve(config, &own, &site)?;

    let is_embedded = matches!(engine, Opened::Embedded);
    let shared = Arc::new(Shared {
        site: config.site.clone(),
        node: config.node,
        clock,
        reader: site.reader(),
        gate: Gate::new(),
        events: events.clone(),
        requests_waiting: AtomicUsize::new(0),
        status: RwLock::new(Arc::new(site.status())),
        is_current: AtomicBool::new(false),
        applied: tokio::sync::watch::channel(0).0,
        released: AtomicU64::new(if is_embedded { u64::MAX } else { site.reader().revision().0 }),
        etcd: engine.health(),
        watched: Watched::default(),
        logins: Logins::new(Arc::new(Users::new(&config.users, secret()?))),
        clients: config.clients,
        auth: peers.links.auth().clone(),
        metrics: metrics.clone(),
        data: config.data.clone(),
        reserve_bytes: config.disk.reserve_bytes,
    });
    let batchers = Batchers::default();
    let proxy_reads = is_embedded.then(|| {
        let reads = site.proxy_reads();
        Arc::new(SharedProxyReads::new(reads, shared.clone(), batchers.clone()))
    });
    let (disk_jobs, jobs) = mpsc::channel();
    let (background, background_tasks) = mpsc::channel();
    let (stop_sender, stopped) = tokio::sync::watch::channel(None);
    let disk = DiskLoop {
        writer,
        jobs,
        events: events.clone(),
        metrics,
        data: config.data.clone(),
        reserve_bytes: config.disk.reserve_bytes,
        durable: is_embedded,
    };
    let (shell, flusher) = engine.run(events.clone());
    let site_loop = SiteLoop {
        site,
        events: inbox,
        shared: shared.clone(),
        batchers: batchers.clone(),
        peers: Arc::new(peers.links.clone()),
        proxy_reads: proxy_reads.clone(),
        disk: disk_jobs,
        background,
        stopped: stop_sender,
        shell,
    };
    let state = state.unrecorded().clone();
    let mut threads = vec![
        spawn("disk", move || disk.run())?,
        spawn("background", move || background::run(background_tasks, snapshots, state, events))?,
        spawn("site", move || site_loop.run())?,
    ];
    if let Some(flusher) = flusher {
        threads.push(spawn("etcd", flusher)?);
    }
    let Serving { links, runtime, address: peer_address } = peers;
    let entering = (own.let_in && !has_entered).then(|| (links.clone(), described));
    let node = Node {
        shared,
        batchers,
        links,
        proxy_reads,
        stopped,
        threads,
        runtime: Some(runtime),
        peer_address,
        _lock: lock,
    };
    node.start_drivers(config, entering);
    Ok(node)
}

/// The identity in the data directory; an empty directory gets one.
fn identity_of(config: &Config) -> Result<Identity, StartError> {
    if matches!(config.engine, Engine::Embedded) {
        identity::check_whole(&config.data)?;
    }
    let incarnation = random()?.max(1);
    let mut own =
        Identity::open(&config.data, &config.site, config.node, config.witness, incarnation)?;
    own.keep_to(&config.data, &config.engine)?;
    if own.left && !config.join.is_empty() {
        let (site, data) = (config.site.clone(), config.data.display().to_string());
        return Err(StartError::Left { site, data });
    }
    Ok(own)
}

/// The way to other nodes, before this one accepts their connections.
pub(super) struct PeerPort {
    pub(super) links: Links,
    pub(super) runtime: Runtime,
    /// The address that other nodes are given.
    pub(super) advertised: String,
    address: SocketAddr,
    listener: TcpListener,
}

/// The same, once it does.
struct Serving {
    links: Links,
    runtime: Runtime,
    address: SocketAddr,
}

impl PeerPort {
    /// Binds the peer port and reads the credentials.
    fn open(
        config: &Config,
        incarnation: u64,
        clock: Clock,
        events: mpsc::Sender<Event>,
    ) -> Result<PeerPort, StartError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("links")
            .enable_all()
            .build()
            .map_err(|error| system("a runtime", error))?;
        let listener = runtime.block_on(TcpListener::bind(config.ports.peer)).map_err(|cause| {
            StartError::Port { flag: "peer", address: config.ports.peer, cause }
        })?;
        let address = listener.local_addr().map_err(|error| system("an address", error))?;
        let tls = config.tls.peer.as_ref().map(PeerTls::load).transpose()?;
        let auth = Arc::new(PeerAuth::open(config, clock)?);
        if let Some(tls) = &config.tls.peer {
            peers::check_certificate(config, &auth, &tls::own_roles(tls)?)?;
        }
        let who = links::Identity { site: config.site.clone(), node: config.node, incarnation };
        let links = Links::new(who, tls, auth, events, runtime.handle().clone());
        let advertised = config.ports.advertise.clone().unwrap_or_else(|| address.to_string());
        Ok(PeerPort { links, runtime, advertised, address, listener })
    }

    /// Accepts connections of the site's members, and of other sites.
    fn serve(
        self,
        config: &Config,
        own: &Identity,
        site: &RealSite,
    ) -> Result<Serving, StartError> {
        let PeerPort { links, runtime, address, listener, .. } = self;
        let status = site.status();
        let is_alone = status.members.nodes.len() == 1
            && status.deployment.as_ref().is_none_or(|own| own.registry.sites.len() <= 1);
        peers::begin_secret(config, links.auth(), is_alone && !own.let_in)?;
        links.set_members(&own.members());
        runtime.spawn(links.clone().accept(listener));
        Ok(Serving { links, runtime, address })
    }
}

/// The core's options. `described`: the site's entry, should it found a deployment.
fn options(config: &Config, own: &Identity, described: &SiteEntry) -> Result<Options, StartError> {
    // A site that has joined a deployment must not create one of its own in the meantime.
    let founds = config.join.is_empty() && !own.let_in;
    let founding = match founds {
        true => Some((DeploymentId(random()?.max(1)), described.clone())),
        false => None,
    };
    let heartbeats = config.raft.election_timeout.as_nanos() / config.raft.heartbeat.as_nanos();
    Ok(Options {
        founding,
        incarnation: own.incarnation,
        member_since: own.since,
        witness: config.witness,
        tick: config.raft.heartbeat,
        ticks: Ticks { heartbeat: 1, election: heartbeats as usize },
        log_bytes_before_snapshot: config.disk.log_bytes_before_snapshot,
        failure_domain: config.failure_domain.clone(),
        cluster_address: cluster_address(config),
        handover_bytes_per_s_max: config.handover_bytes_per_s_max,
        probing: config.placement.rule(),
        equal_clients: config.placement.weights == Weights::Clients,
        borrowed_bytes_max: config.placement.borrowed_bytes_max,
        link_mbit_per_s: config.placement.link_mbit_per_s,
        ..Options::new(config.node, ClientId(random()?), random()?)
    })
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, StartError> {
    let thread = std::thread::Builder::new().name(name.into()).spawn(run);
    thread.map_err(|error| system("a thread", error))
}

fn random() -> Result<u64, StartError> {
    getrandom::u64().map_err(|error| system("random numbers", error))
}

fn secret() -> Result<[u8; 32], StartError> {
    let mut secret = [0; 32];
    getrandom::fill(&mut secret).map_err(|error| system("random numbers", error))?;
    Ok(secret)
}
