//! What a node is told before it starts: one checked value, from four layers.
//!
//! Flags win over the environment, the environment over the file, the file over the defaults. The
//! command line reads flags and environment into a [`Layer`], [`file::parse`] reads the TOML file
//! into another, and [`Config::resolve`] lays them over the defaults and checks the result. It is a
//! pure function: the same layers give the same configuration or the same sentence about what is
//! wrong with it. Certificates and the data directory are only opened later, by whoever uses them.
//!
//! The rule with teeth is in [`check`]: a port that can be reached from another machine does not
//! open without credentials unless the operator says so in so many words.

mod check;
mod clients;
mod engine;
mod error;
pub mod file;
mod layer;
mod peers;
mod shown;

pub use check::is_host_and_port;
pub(crate) use check::is_remote;
pub use clients::{ClientsConfig, ClientsLayer};
pub use engine::{Engine, EngineWord, EtcdConfig, EtcdLayer};
pub use error::ConfigError;
pub use layer::{Layer, Listen};
pub use peers::PeersConfig;

use crate::users::UserConfig;
use model::{KeyspaceSpec, NodeId, SiteName};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The words that open a remote port without credentials: the value of the setting `insecure`.
pub const INSECURE_WORDS: &str = "allow-remote-without-credentials";

/// Threads of a front at least and at most, unless it is told.
const FRONT_THREADS_DEFAULT: (usize, usize) = (2, 4);

/// Everything a node is told, checked. See the module for where it comes from.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The site this node belongs to.
    pub site: SiteName,
    /// How much of the deployment's slots the site should hold, relative to others; hundredths.
    pub capacity_percent: u32,
    /// Bytes a second that slots on their way to other sites may take; 0: as many as go.
    pub handover_bytes_per_s_max: u64,
    /// This node's id in it.
    pub node: NodeId,
    /// The directory that holds its log, state and snapshots. Made if absent.
    pub data: PathBuf,
    /// Peer addresses (`host:port`) of nodes of the site to join, or of any site of the deployment to
    /// join. Empty: the first start of an empty data directory makes a new site of one node, and a
    /// deployment of that site.
    pub join: Vec<String>,
    /// Whether the node votes and keeps the log's order but no data.
    pub witness: bool,
    /// Where the site's keys are kept.
    pub engine: Engine,
    /// Where it listens.
    pub ports: Ports,
    /// TLS on those ports.
    pub tls: PortsTls,
    /// What it proves itself to other nodes with, and what it asks of them.
    pub peers: PeersConfig,
    /// Who may come in. Empty: everybody may do everything.
    pub users: Vec<UserConfig>,
    /// Whether a port that other machines reach may be open without credentials.
    pub insecure: bool,
    /// Keyspaces to make when the site does not have them yet.
    pub keyspaces: Vec<KeyspaceSpec>,
    /// Timeouts of the site's consensus.
    pub raft: RaftConfig,
    /// What it may take of the disk, and what it must leave.
    pub disk: DiskConfig,
    /// What it may take of the memory.
    pub memory: MemoryConfig,
    /// How it serves its clients.
    pub front: FrontConfig,
    /// How it bears with them.
    pub clients: ClientsConfig,
}

/// Where a node listens. A port that is `None` is closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ports {
    /// The Redis protocol.
    pub redis: Option<SocketAddr>,
    /// The Redis Cluster protocol.
    pub redis_cluster: Option<SocketAddr>,
    /// gRPC.
    pub grpc: Option<SocketAddr>,
    /// The other nodes of the site.
    pub peer: SocketAddr,
    /// Health, metrics and status over HTTP.
    pub admin: Option<SocketAddr>,
    /// How other nodes reach the peer port (`host:port`); `None`: as it is bound.
    pub advertise: Option<String>,
    /// How clients reach the Redis Cluster port (`host:port`); `None`: as it is bound.
    pub advertise_redis_cluster: Option<String>,
}

/// TLS of each port. `None`: the port speaks plain TCP.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortsTls {
    /// Of the Redis port.
    pub redis: Option<TlsConfig>,
    /// Of the gRPC port.
    pub grpc: Option<TlsConfig>,
    /// Of the peer port, mutual: always with a `ca`.
    pub peer: Option<TlsConfig>,
    /// Of the admin port.
    pub admin: Option<TlsConfig>,
}

/// The PEM files of one port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsConfig {
    /// The certificate chain, the port's own certificate first.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Who signs the certificates of those who connect. `None`: they show none. On the peer port
    /// it is required, in both directions.
    pub ca: Option<PathBuf>,
}

/// Timeouts of the site's consensus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RaftConfig {
    /// A follower that hears nothing for this long, or up to twice as long, starts an election.
    pub election_timeout: Duration,
    /// How often a leader says that it is there. At most a third of the election timeout.
    pub heartbeat: Duration,
}

/// What a node may take of the disk, and what it must leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskConfig {
    /// Writes are refused while fewer bytes than this are free, so that what the node needs to go
    /// on reading and to become smaller again still fits.
    pub reserve_bytes: u64,
    /// A snapshot is made, and the log cut behind it, once the log is longer than this.
    pub log_bytes_before_snapshot: u64,
}

/// What a node may take of the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryConfig {
    /// What is kept of the state in memory: a quarter blocks of its files, the rest single rows.
    pub cache_bytes: u64,
    /// New records of the state before they go to disk.
    pub memtable_bytes: u64,
}

/// How a node serves its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrontConfig {
    /// Threads that serve connections; the site itself has one more. Half the cores, unless said
    /// otherwise.
    pub threads: usize,
    /// Client connections; at most [`model::limits::CONNECTIONS_MAX`].
    pub connections_max: usize,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            site: SiteName::new("site").expect("a site name by its own rule"),
            capacity_percent: 100,
            handover_bytes_per_s_max: 0,
            node: NodeId(1),
            data: PathBuf::from("portolan-data"),
            join: Vec::new(),
            witness: false,
            engine: Engine::Embedded,
            ports: Ports::default(),
            tls: PortsTls::default(),
            peers: PeersConfig::default(),
            users: Vec::new(),
            insecure: false,
            keyspaces: Vec::new(),
            raft: RaftConfig::default(),
            disk: DiskConfig::default(),
            memory: MemoryConfig::default(),
            front: FrontConfig::default(),
            clients: ClientsConfig::default(),
        }
    }
}

impl Default for Ports {
    fn default() -> Ports {
        let loopback = |port| SocketAddr::from(([127, 0, 0, 1], port));
        Ports {
            redis: Some(loopback(7379)),
            redis_cluster: None,
            grpc: Some(loopback(7380)),
            peer: loopback(7381),
            admin: Some(loopback(7070)),
            advertise: None,
            advertise_redis_cluster: None,
        }
    }
}

impl Default for RaftConfig {
    /// With these a killed leader is replaced in about a second.
    fn default() -> RaftConfig {
        RaftConfig {
            election_timeout: Duration::from_millis(500),
            heartbeat: Duration::from_millis(50),
        }
    }
}

impl Default for DiskConfig {
    fn default() -> DiskConfig {
        DiskConfig {
            reserve_bytes: 256 << 20,
            log_bytes_before_snapshot: model::limits::LOG_BYTES_BEFORE_SNAPSHOT,
        }
    }
}

impl Default for MemoryConfig {
    fn default() -> MemoryConfig {
        MemoryConfig { cache_bytes: 64 << 20, memtable_bytes: 8 << 20 }
    }
}

impl Default for FrontConfig {
    fn default() -> FrontConfig {
        // The site's own thread and the disk's want their share. With one alone, though, clients
        // wait for each other's commands where there are two cores.
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = (cores / 2).clamp(FRONT_THREADS_DEFAULT.0, FRONT_THREADS_DEFAULT.1);
        FrontConfig { threads, connections_max: model::limits::CONNECTIONS_MAX }
    }
}

impl Config {
    /// Lays `over` (flags and environment) over `file` over the defaults, and checks the result.
    pub fn resolve(file: Layer, over: Layer) -> Result<Config, ConfigError> {
        Config::resolve_on(file, over, |_data| false)
    }

    /// The same, of a node that is there already. `has_secret`: whether a data directory has a secret in
    /// it, from when the node was let in.
    pub fn resolve_on(
        file: Layer,
        over: Layer,
        has_secret: impl FnOnce(&Path) -> bool,
    ) -> Result<Config, ConfigError> {
        let config = over.over(file).onto_defaults()?;
        check::check(&config, has_secret(&config.data))?;
        Ok(config)
    }

    /// What is allowed and still worth a word to the operator, one sentence each.
    pub fn warnings(&self) -> Vec<String> {
        check::warnings(self)
    }

    /// The configuration as a file that would give it again. Passwords are in it only as hashes.
    pub fn to_toml(&self) -> String {
        shown::to_toml(self)
    }
}

/// What must hold for any text of a configuration file: it is refused with a sentence, or it gives a
/// configuration that, shown as a file, gives the same again. For fuzzing.
pub fn check_any(text: &str) {
    let resolve = |text: &str| {
        file::parse("f", text).and_then(|file| Config::resolve(file, Layer::default()))
    };
    match resolve(text) {
        Ok(config) => {
            config.warnings();
            assert_eq!(resolve(&config.to_toml()), Ok(config));
        }
        Err(refused) => assert_ne!(refused.to_string(), ""),
    }
}

#[cfg(test)]
mod tests;
