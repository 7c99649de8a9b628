//! A node: its threads, how they start and how they stop.
//!
//! | thread | purpose |
//! | --- | --- |
//! | `site` | runs the core; the only one that changes the state |
//! | `disk` | writes and fsyncs the log |
//! | `chores` | writes and loads snapshots, prepares log segments |
//! | `links` | a runtime of its own for the connections to other nodes |
//! | `etcd` | writes rounds to etcd, where that is a site's engine ([`crate::engine`]) |
//!
//! Fronts bring their own threads; each takes a [`Handle`].

use crate::chores;
use crate::clock::Clock;
use crate::config::{Config, Engine};
use crate::desk::{DESKS_MAX, Desk, lock};
use crate::disk_loop::DiskLoop;
use crate::engine::SiteState;
use crate::engine::begin;
use crate::engine::etcd::EtcdError;
use crate::engine::etcd::health::Health;
use crate::engine::fenced::Ended;
use crate::handle::{Gate, Handle, Shared};
use crate::identity::{self, Identity, IdentityError};
use crate::links::enter::{self, Found};
use crate::links::{self, Links, Porter, StraightReads, join};
use crate::logins::Logins;
use crate::metrics::Metrics;
use crate::peers::{self, PeerAuth, PeersError};
use crate::site_loop::{RealSite, SiteLoop};
use crate::tls::{self, PeerTls, TlsError};
use crate::users::Users;
use crate::watch::Watched;
use model::{
    ClientId, Command, DeploymentId, Failure, NodeEntry, NodeId, Refusal, Request, SiteEntry,
    SiteId, SiteName,
};
use protocol::global::straight::Moved;
use protocol::site::raft::Ticks;
use protocol::site::recovery::{self, RecoveryError};
use protocol::site::{MapView, Options, Ticket};
use std::fs::File;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, RwLock, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;
use storage::disk::real::RealDisk;
use storage::log::{LogError, Spare};
use storage::snapshot::{Folder, SnapshotError, SnapshotHead};
use storage::state::StateError;
use storage::state::fjall::{self, FjallState};
use tokio::net::TcpListener;
use wire::across::Across;
use wire::peer::{self, Member};

/// An event for the site's thread.
#[expect(clippy::large_enum_variant, reason = "nearly all events are the large one, a message")]
pub(crate) enum Event {
    Requests(Vec<(Ticket, Request)>),
    Message {
        from: NodeId,
        message: peer::Message,
    },
    LinkLost(NodeId),
    Across {
        site: SiteId,
        node: NodeId,
        message: Across,
    },
    AcrossLost {
        site: SiteId,
        node: NodeId,
    },
    /// A site does not own a slot for which a read was sent to it directly.
    Moved(Moved),
    /// A request for the map of slots, the sites' leaders, and the sites that answer.
    SlotMap(tokio::sync::oneshot::Sender<MapView>),
    Persisted(u64),
    DiskFull(String),
    DiskHasRoom,
    SnapshotWritten(Result<SnapshotHead, String>),
    SnapshotInstalled(Result<SnapshotHead, String>),
    SpareDue(Spare),
    /// The round on its way to etcd is durable.
    Flushed,
    /// This process no longer owns the site.
    Deposed(String),
    Failed(String),
    Stop,
}

/// The desks of a node, by number.
pub(crate) type Desks = Arc<Mutex<Vec<Arc<Desk>>>>;

/// Why a node has stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// It was asked to.
    Asked,
    /// The process no longer owns its site, for this reason. The node is intact: started again, it
    /// waits for its turn.
    Deposed(String),
    /// It failed; the reason was logged.
    Failed(String),
}

/// Why a node does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The data directory is not this node's, or cannot be used.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The log cannot be used.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The snapshots cannot be used.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// The state cannot be used.
    #[error(transparent)]
    State(#[from] StateError),
    /// Log, snapshot and state do not fit together.
    #[error(transparent)]
    Recovery(#[from] RecoveryError),
    /// A certificate or key cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The node has no valid credentials for other nodes, or its secret cannot be used.
    #[error(transparent)]
    Peers(#[from] PeersError),
    /// A port cannot be opened.
    #[error("--{flag} {address} cannot be opened: {cause}")]
    Port {
        /// The flag without its dashes.
        flag: &'static str,
        /// The address.
        address: SocketAddr,
        /// The system's error.
        cause: std::io::Error,
    },
    /// The etcd cluster of the site's keys cannot be used.
    #[error(transparent)]
    Etcd(#[from] EtcdError),
    /// Another process took the site over during the start; started again, this one waits.
    #[error("{0}")]
    Deposed(String),
    /// The site refuses this node.
    #[error("the site refuses this node: {0}")]
    Join(String),
    /// The site has left its deployment, and cannot come back as the same site.
    #[error(
        "site {site} has left its deployment, and {data} has its data from then: to have it join \
         again start it on an empty data directory, or without --join for the keys of its own"
    )]
    Left {
        /// The site.
        site: SiteName,
        /// Its data directory.
        data: String,
    },
    /// The system refuses a thread or random numbers.
    #[error("the system refuses {what}: {cause}")]
    System {
        /// The request to the system.
        what: &'static str,
        /// The system's error.
        cause: String,
    },
}

impl From<Ended> for StartError {
    fn from(ended: Ended) -> StartError {
        match ended {
            Ended::Lost(why) => StartError::Deposed(why),
            Ended::Failed(why) => EtcdError::Refused(why).into(),
            Ended::Stopped => StartError::Deposed("it was stopped".to_owned()),
        }
    }
}

/// A running node.
pub struct Node {
    shared: Arc<Shared>,
    desks: Desks,
    links: Links,
    stopped: tokio::sync::watch::Receiver<Option<Stopped>>,
    threads: Vec<JoinHandle<()>>,
    runtime: Option<tokio::runtime::Runtime>,
    peer_address: SocketAddr,
    _lock: File,
}

impl Node {
    /// Starts a node on its data directory: recovers it, creates a site, or joins one (which waits
    /// until the site has added it). The fronts' ports are not opened here.
    pub fn start(config: &Config) -> Result<Node, StartError> {
        let lock = identity::lock_directory(&config.data)?;
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
        let clock = Clock::start();
        let metrics = Arc::new(Metrics::default());
        let (events, inbox) = mpsc::channel();
        let health = Health::new(metrics.clone());
        let mut kept = match &config.engine {
            Engine::Embedded => None,
            Engine::Etcd(etcd) => {
                Some(begin::take_over(config, etcd, &own, random()?, health.clone())?)
            }
        };
        if let Some(kept) = &kept {
            own = kept.site().clone();
        }

        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("links")
            .enable_all()
            .build()
            .map_err(|error| system("a runtime", error))?;
        let listener = runtime.block_on(TcpListener::bind(config.ports.peer)).map_err(|cause| {
            StartError::Port { flag: "peer", address: config.ports.peer, cause }
        })?;
        let peer_address = listener.local_addr().map_err(|error| system("an address", error))?;
        let tls = config.tls.peer.as_ref().map(PeerTls::load).transpose()?;
        let auth = Arc::new(PeerAuth::open(config, clock)?);
        if let Some(tls) = &config.tls.peer {
            peers::check_certificate(config, &auth, &tls::own_roles(tls)?)?;
        }
        let who = links::Identity {
            site: config.site.clone(),
            node: config.node,
            incarnation: own.incarnation,
        };
        let links = Links::new(who, tls, auth, events.clone(), runtime.handle().clone());

        let (mut recovered, mut writer, reader, snapshots, state) = open_files(config)?;
        let state = match &mut kept {
            None => SiteState::silent(state),
            Some(kept) => kept.fill(state)?,
        };
        if recovered.torn_bytes > 0 {
            tracing::warn!(
                "the log ended in {} bytes of a torn write, which were cut; nothing acknowledged is lost",
                recovered.torn_bytes
            );
        }
        let advertised = config.ports.advertise.clone();
        let advertised = advertised.unwrap_or_else(|| peer_address.to_string());
        if !own.member {
            let member = Member {
                node: config.node.0,
                address: advertised.clone(),
                incarnation: own.incarnation,
                witness: config.witness,
                since: 0,
            };
            let (mut begins, mut site_at) = (config.join.is_empty(), Vec::new());
            if !begins {
                tracing::info!("requesting to join at {}", config.join.join(", "));
                if let Some(token) =
                    peers::join_token(config)?.filter(|_| !links.auth().has_secret())
                {
                    let enrolling = links.enrol(&config.join, &token, &config.data);
                    runtime.block_on(enrolling).map_err(StartError::Join)?;
                }
                let site = own_entry(config, &own, &member.address);
                let looking = enter::look(&links, &config.join, &site);
                match runtime.block_on(looking).map_err(StartError::Join)? {
                    Found::LetIn(id, _) => {
                        tracing::info!("joined a deployment as site {} ({id})", config.site);
                        (begins, own.let_in) = (true, true);
                    }
                    Found::OwnSite(addresses) => site_at = addresses,
                }
                site_at.extend(config.join.iter().cloned());
            }
            if let Some(kept) = &mut kept {
                if !begins {
                    return Err(StartError::Join(format!(
                        "there is a site {} already, and its keys are not below this etcd prefix; start \
                         this one with the etcd settings of that one, or with another --site",
                        config.site
                    )));
                }
                if own.let_in {
                    kept.was_let_in()?;
                }
            } else {
                let members = if begins {
                    recovery::begin_site(member.clone(), &mut writer, &snapshots, &state)?;
                    recovery::first_members(member)
                } else {
                    let joining = join::join(&links, &site_at, &member);
                    runtime.block_on(joining).map_err(StartError::Join)?
                };
                own.became_member(&config.data, &members)?;
            }
        }
        let replica = match &mut kept {
            None => {
                let mut warn = |what: String| tracing::warn!("{what}");
                recovery::recover(
                    &mut recovered,
                    &mut writer,
                    &snapshots,
                    state.clone(),
                    &mut warn,
                )?
            }
            Some(kept) => {
                let (found, replica) = kept.recover(state.clone(), &advertised, &mut writer)?;
                recovered = found;
                replica
            }
        };

        let described = own_entry(config, &own, &advertised);
        // A site that has joined a deployment must not create one of its own in the meantime.
        let founds = config.join.is_empty() && !own.let_in;
        let founding = match founds {
            true => Some((DeploymentId(random()?.max(1)), described.clone())),
            false => None,
        };
        let site = RealSite::new(
            Options {
                founding,
                incarnation: own.incarnation,
                member_since: own.since,
                ..options(config)?
            },
            clock.now(),
            &recovered,
            reader,
            snapshots.clone(),
            replica,
        );
        let status = site.status();
        let is_alone = status.members.nodes.len() == 1
            && status.deployment.as_ref().is_none_or(|own| own.registry.sites.len() <= 1);
        peers::begin_secret(config, links.auth(), is_alone && !own.let_in)?;
        links.set_members(&own.members());
        let entering = own.let_in.then(|| (links.clone(), described));
        runtime.spawn(links.clone().accept(listener));

        let (applied, _) = tokio::sync::watch::channel(0);
        let released = if kept.is_some() { site.reader().revision().0 } else { u64::MAX };
        let shared = Arc::new(Shared {
            site: config.site.clone(),
            node: config.node,
            clock,
            reader: site.reader(),
            gate: Gate::new(),
            events: events.clone(),
            requests_waiting: AtomicUsize::new(0),
            status: RwLock::new(Arc::new(site.status())),
            applied,
            released: AtomicU64::new(released),
            etcd: kept.as_ref().map(|_| health),
            watched: Watched::default(),
            logins: Logins::new(Arc::new(Users::new(&config.users, secret()?))),
            clients: config.clients,
            auth: links.auth().clone(),
            metrics: metrics.clone(),
            data: config.data.clone(),
        });
        let desks = Desks::default();
        let (disk_jobs, jobs) = mpsc::channel();
        let (chores, chores_inbox) = mpsc::channel();
        let (stop_sender, stopped) = tokio::sync::watch::channel(None);

        let disk = DiskLoop {
            writer,
            jobs,
            events: events.clone(),
            metrics,
            data: config.data.clone(),
            reserve_bytes: config.disk.reserve_bytes,
            durable: kept.is_none(),
        };
        let (kept, flusher) = kept.map(|kept| kept.run(events.clone())).unzip();
        if kept.is_none() {
            links.open_straight(StraightReads::new(site.straight(), desks.clone()));
        }
        let links_of_node = links.clone();
        let site_loop = SiteLoop {
            site,
            events: inbox,
            shared: shared.clone(),
            desks: desks.clone(),
            links,
            disk: disk_jobs,
            chores,
            stopped: stop_sender,
            kept,
            released: None,
        };
        let state = state.unrecorded().clone();
        let mut threads = vec![
            spawn("disk", move || disk.run())?,
            spawn("chores", move || chores::run(chores_inbox, snapshots, state, events))?,
            spawn("site", move || site_loop.run())?,
        ];
        if let Some(flusher) = flusher {
            threads.push(spawn("etcd", flusher)?);
        }
        let runtime = Some(runtime);
        let links = links_of_node;
        let node =
            Node { shared, desks, links, stopped, threads, runtime, peer_address, _lock: lock };
        node.start_drivers(config, entering);
        Ok(node)
    }

    /// Starts the tasks that run beside the site.
    fn start_drivers(&self, config: &Config, entering: Option<(Links, SiteEntry)>) {
        let Some(runtime) = &self.runtime else { return };
        let handle = runtime.block_on(async { self.handle() });
        self.links.post(Porter(handle.clone()));
        runtime.spawn(self.links.clone().turn_from_silent());
        if let Some((links, site)) = entering {
            runtime.spawn(enter_deployment(handle.clone(), links, config.join.clone(), site));
        }
        runtime.spawn(handle.clone().keep_cursors());
        runtime.spawn(make_keyspaces(handle, config.keyspaces.clone()));
    }

    /// A handle for a front. A task on the current runtime hands its answers out.
    ///
    /// # Panics
    /// Outside of a tokio runtime, or when there are [`DESKS_MAX`] already.
    pub fn handle(&self) -> Handle {
        let mut desks = lock(&self.desks);
        assert!(desks.len() < DESKS_MAX, "a node has at most {DESKS_MAX} front threads");
        let desk = Desk::new(desks.len());
        desks.push(desk.clone());
        let links = self.links.clone();
        let straight = move |requests: &mut Vec<_>| links.send_straight(requests);
        tokio::spawn(desk.clone().run(self.shared.events.clone(), straight));
        Handle { shared: self.shared.clone(), desk }
    }

    /// Where the peer port is bound.
    pub fn peer_address(&self) -> SocketAddr {
        self.peer_address
    }

    /// Waits until the node has stopped by itself or on request.
    pub async fn stopped(&self) -> Stopped {
        let mut stopped = self.stopped.clone();
        match stopped.wait_for(Option::is_some).await {
            Ok(end) => end.clone().unwrap_or(Stopped::Asked),
            Err(_) => Stopped::Failed("its thread panicked".into()),
        }
    }

    /// Stops the node and waits for its threads. Nothing needs to be flushed: acknowledged writes
    /// are durable, so to other nodes a stop and a crash are the same. Must not be called on a
    /// thread of a runtime.
    pub fn stop(mut self) {
        let _ = self.shared.events.send(Event::Stop);
        for thread in self.threads.drain(..) {
            // A panic has been reported by the thread itself.
            let _ = thread.join();
        }
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(Duration::from_secs(1));
        }
    }
}

type Files =
    (storage::log::Recovered, storage::log::Writer, storage::log::Reader, Folder, FjallState);

fn open_files(config: &Config) -> Result<Files, StartError> {
    let disk = RealDisk::shared();
    let (recovered, writer, reader) = storage::log::open(&disk, &config.data.join("log"))?;
    let snapshots = Folder::open(&disk, &config.data.join("snapshots"))?;
    let state = open_state(&config.data, state_options(config))?;
    Ok((recovered, writer, reader, snapshots, state))
}

fn state_options(config: &Config) -> fjall::Options {
    // Reading a cached row costs a quarter of reading it from a cached block.
    let block_cache_bytes = config.memory.cache_bytes / 4;
    fjall::Options {
        block_cache_bytes,
        row_cache_bytes: config.memory.cache_bytes - block_cache_bytes,
        memtable_bytes: config.memory.memtable_bytes,
        ..fjall::Options::default()
    }
}

/// Opens the state, or begins a new one if it is damaged: it is rebuilt from snapshot and log.
///
/// Some damage is not reported as an error: the engine reads a damaged length from a file,
/// allocates more memory than there is, and the process ends. So a marker file exists during an
/// opening; a start that finds it begins the state anew.
pub(crate) fn open_state(data: &Path, options: fjall::Options) -> Result<FjallState, StateError> {
    let (path, opening) = (data.join("state"), data.join("state.opening"));
    let io = |cause: std::io::Error| StateError::Io {
        path: opening.display().to_string(),
        cause: cause.to_string(),
    };
    if opening.exists() {
        tracing::warn!("the last opening of the state did not end; it is rebuilt");
        FjallState::remove(&path)?;
    }
    File::create(&opening).map_err(io)?;
    let state = match FjallState::open(&path, options) {
        Err(StateError::Damaged { path: at, cause }) => {
            tracing::warn!("the state in {at} is damaged and will be rebuilt: {cause}");
            FjallState::remove(&path)?;
            FjallState::open(&path, options)?
        }
        opened => opened?,
    };
    std::fs::remove_file(&opening).map_err(io)?;
    Ok(state)
}

fn options(config: &Config) -> Result<Options, StartError> {
    let heartbeats = config.raft.election_timeout.as_nanos() / config.raft.heartbeat.as_nanos();
    Ok(Options {
        witness: config.witness,
        tick: config.raft.heartbeat,
        ticks: Ticks { heartbeat: 1, election: heartbeats as usize },
        log_bytes_before_snapshot: config.disk.log_bytes_before_snapshot,
        cluster_address: cluster_address(config),
        handover_bytes_per_s_max: config.handover_bytes_per_s_max,
        ..Options::new(config.node, ClientId(random()?), random()?)
    })
}

/// This site's entry in the registry.
fn own_entry(config: &Config, own: &Identity, peer_address: &str) -> SiteEntry {
    let node = NodeEntry {
        node: config.node,
        peer: peer_address.to_owned(),
        cluster: cluster_address(config),
    };
    SiteEntry {
        id: SiteId(0),
        name: config.site.clone(),
        incarnation: own.incarnation,
        capacity_percent: config.capacity_percent,
        leaving: false,
        nodes: vec![node],
    }
}

/// The address for clients of the Redis Cluster port; empty: none.
fn cluster_address(config: &Config) -> String {
    let advertised = config.ports.advertise_redis_cluster.clone();
    let bound = || config.ports.redis_cluster.map(|address| address.to_string());
    advertised.or_else(bound).unwrap_or_default()
}

/// Makes durable that this site has joined a deployment. Repeats the request, as the last start may
/// have ended in between: repeated requests have one effect.
async fn enter_deployment(handle: Handle, links: Links, addresses: Vec<String>, site: SiteEntry) {
    const TRY_AGAIN: Duration = Duration::from_millis(200);
    while handle.status().deployment.is_none() {
        match enter::look(&links, &addresses, &site).await {
            Ok(Found::LetIn(site, registry)) => {
                let entering = Request::write(Command::Enter { site, registry });
                if let Err(failure) = handle.call(entering).await {
                    tracing::debug!("not in the deployment yet: {failure}");
                }
            }
            Ok(Found::OwnSite(_)) => {}
            Err(why) => tracing::error!("the deployment refuses this site: {why}"),
        }
        tokio::time::sleep(TRY_AGAIN).await;
    }
}

/// Creates the keyspaces that the configuration names and the site does not have. Repeats until
/// done; existing keyspaces are not changed.
async fn make_keyspaces(handle: Handle, wanted: Vec<model::KeyspaceSpec>) {
    const TRY_AGAIN: Duration = Duration::from_millis(200);
    for spec in wanted {
        while handle.catalog().by_name(&spec.name).is_none() {
            match handle.call(Request::write(Command::CreateKeyspace(spec.clone()))).await {
                Ok(_) | Err(Failure::Refused(Refusal::KeyspaceExists { .. })) => break,
                // The deployment is still being created or joined.
                Err(Failure::Refused(Refusal::NoDeployment)) => {
                    tokio::time::sleep(TRY_AGAIN).await;
                }
                Err(Failure::Refused(refusal)) => {
                    tracing::error!("keyspace {:?} of the configuration: {refusal}", spec.name);
                    break;
                }
                Err(_) => tokio::time::sleep(TRY_AGAIN).await,
            }
        }
        if let Some(found) = handle.catalog().by_name(&spec.name)
            && found.spec != spec
        {
            tracing::warn!(
                "keyspace {:?} exists with other properties than the configuration gives it; the existing ones stay",
                spec.name
            );
        }
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, StartError> {
    let thread = std::thread::Builder::new().name(name.into()).spawn(run);
    thread.map_err(|error| system("a thread", error))
}

fn system(what: &'static str, cause: impl ToString) -> StartError {
    StartError::System { what, cause: cause.to_string() }
}

fn random() -> Result<u64, StartError> {
    getrandom::u64().map_err(|error| system("random numbers", error))
}

fn secret() -> Result<[u8; 32], StartError> {
    let mut secret = [0; 32];
    getrandom::fill(&mut secret).map_err(|error| system("random numbers", error))?;
    Ok(secret)
}
