//! A node's configuration: one checked value, from four layers.
//!
//! Flags win over the environment, the environment over the file, the file over the defaults. The
//! command line reads flags and environment into a [`Layer`], [`file::parse`] reads the TOML file
//! into another, and [`Config::resolve`] lays them over the defaults and checks the result. It is a
//! pure function: the same layers give the same configuration or the same error. Certificates and
//! the data directory are opened later, by the parts that use them.
//!
//! Each setting is defined once, as a field of the file's form ([`mod@file`]). A table of the file
//! is a part of [`Config`] itself, with its defaults; layers are TOML tables, so that no source
//! needs a list of the settings, and [`Config::to_toml`] serialises the same form.
//!
//! [`check`] contains the main safety rule: a port that can be reached from another machine does
//! not open without credentials unless the operator allows it explicitly.

mod check;
mod clients;
mod engine;
mod error;
pub mod file;
mod forms;
mod layer;
mod listen;
mod peers;
mod placement;

pub use check::is_host_and_port;
pub(crate) use check::is_remote;
pub use clients::ClientsConfig;
pub use engine::{Engine, EngineWord, EtcdConfig};
pub use error::ConfigError;
pub use layer::Layer;
pub use listen::{Listen, Ports};
pub use peers::{PeersConfig, Secrets};
pub use placement::{PlacementConfig, Weights};

use crate::users::UserConfig;
use model::{KeyspaceSpec, NodeId, SiteName};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The value of the setting `insecure` that opens a remote port without credentials.
pub const INSECURE_WORDS: &str = "allow-remote-without-credentials";

/// The least and the most threads of a front, unless configured.
const FRONT_THREADS_DEFAULT: (usize, usize) = (2, 4);

/// The checked configuration of a node. The module's documentation describes its sources.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The site this node belongs to.
    pub site: SiteName,
    /// The site's share of the deployment's slots, relative to other sites; hundredths.
    pub capacity_percent: u32,
    /// What the site can fail together with: all sites of that name; `none`: it fails alone.
    /// `None`: as the registry has it.
    pub failure_domain: Option<SiteName>,
    /// The region that the site is of from when it joins or founds; `none`: that without a name.
    /// `None`: the same then, and as the registry has it later.
    pub region: Option<SiteName>,
    /// Bytes per second that handovers to other sites may use; 0: unlimited.
    pub handover_bytes_per_s_max: u64,
    /// This node's id in its site.
    pub node: NodeId,
    /// The directory that holds its log, state and snapshots. Made if absent.
    pub data: PathBuf,
    /// Peer addresses (`host:port`) of nodes of the site to join, or of any site of the deployment
    /// to join. Empty: the first start of an empty data directory makes a new site of one node, and
    /// a deployment of that site.
    pub join: Vec<String>,
    /// Whether the node votes and keeps the log's order but no data.
    pub witness: bool,
    /// Where the site's keys are kept.
    pub engine: Engine,
    /// Where it listens.
    pub ports: Ports,
    /// TLS on those ports.
    pub tls: PortsTls,
    /// The credentials for other nodes, and what other nodes must prove.
    pub peers: PeersConfig,
    /// The users. Empty: every client may do everything.
    pub users: Vec<UserConfig>,
    /// Whether a port that other machines reach may be open without credentials.
    pub insecure: bool,
    /// Keyspaces to create when the site does not have them yet.
    pub keyspaces: Vec<KeyspaceSpec>,
    /// The sites that groups of some of them may be lent to, by the keyspaces' names. Such a
    /// keyspace is created when these sites have joined.
    pub lend_to: BTreeMap<String, Vec<SiteName>>,
    /// Timeouts of the site's consensus.
    pub raft: RaftConfig,
    /// Limits on its use of the disk.
    pub disk: DiskConfig,
    /// Limits on its use of memory.
    pub memory: MemoryConfig,
    /// The threads and connections of its fronts.
    pub front: FrontConfig,
    /// The timeouts of its clients.
    pub clients: ClientsConfig,
    /// How it measures latencies to other sites, and how accesses are weighed.
    pub placement: PlacementConfig,
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsConfig {
    /// The certificate chain, the port's own certificate first.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The CA that signs the certificates of connecting clients. `None`: clients need no
    /// certificate. On the peer port it is required, in both directions.
    pub ca: Option<PathBuf>,
}

/// Timeouts of the site's consensus.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RaftConfig {
    /// A follower that receives nothing for this long, or up to twice as long, starts an election.
    #[serde(rename = "election_timeout_ms", with = "forms::millis")]
    pub election_timeout: Duration,
    /// The interval of a leader's heartbeats. At most a third of the election timeout.
    #[serde(rename = "heartbeat_ms", with = "forms::millis")]
    pub heartbeat: Duration,
}

/// A node's limits on its use of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DiskConfig {
    /// Writes are refused while fewer bytes than this are free, so that the node has room to keep
    /// reading and to compact.
    pub reserve_bytes: u64,
    /// A snapshot is made, and the log cut behind it, once the log is longer than this.
    pub log_bytes_before_snapshot: u64,
}

/// A node's limits on its use of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MemoryConfig {
    /// The cache of the state: a quarter for blocks of its files, the rest for single rows.
    pub cache_bytes: u64,
    /// New records of the state before they go to disk.
    pub memtable_bytes: u64,
}

/// A node's threads and connections for clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FrontConfig {
    /// Threads that serve connections; the site itself has one more. Default: half the cores.
    pub threads: usize,
    /// Client connections; at most [`model::limits::CONNECTIONS_MAX`].
    pub connections_max: usize,
    /// The site that clients of the Redis Cluster protocol are shown for a slot.
    pub cluster_view: ClusterView,
}

/// The site that clients of the Redis Cluster protocol are shown for a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClusterView {
    /// The slot's owner, until a keyspace is adaptive; then the asked site.
    #[default]
    Auto,
    /// The slot's owner. Clients are redirected there (MOVED), and to the borrower of a lent group
    /// (ASK).
    Owners,
    /// The asked site, which sends requests where their keys are.
    Site,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            site: SiteName::new("site").expect("a site name by its own rule"),
            capacity_percent: 100,
            failure_domain: None,
            region: None,
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
            lend_to: BTreeMap::new(),
            raft: RaftConfig::default(),
            disk: DiskConfig::default(),
            memory: MemoryConfig::default(),
            front: FrontConfig::default(),
            clients: ClientsConfig::default(),
            placement: PlacementConfig::default(),
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
        // The site's own thread and the disk's thread need cores, too. On two cores one front
        // thread would serialize all clients' commands, so the minimum is two.
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = (cores / 2).clamp(FRONT_THREADS_DEFAULT.0, FRONT_THREADS_DEFAULT.1);
        let cluster_view = ClusterView::default();
        FrontConfig { threads, connections_max: model::limits::CONNECTIONS_MAX, cluster_view }
    }
}

impl Config {
    /// Lays `over` (flags and environment) over `file` over the defaults, and checks the result.
    pub fn resolve(file: Layer, over: Layer) -> Result<Config, ConfigError> {
        Config::resolve_on(file, over, |_data| false)
    }

    /// The same for a node that exists already. `has_secret`: whether its data directory contains a
    /// secret, stored when the node joined.
    pub fn resolve_on(
        file: Layer,
        over: Layer,
        has_secret: impl FnOnce(&Path) -> bool,
    ) -> Result<Config, ConfigError> {
        let config = over.over(file)?;
        check::check(&config, has_secret(&config.data))?;
        Ok(config)
    }

    /// Warnings about settings that are allowed but risky, one sentence each.
    pub fn warnings(&self) -> Vec<String> {
        check::warnings(self)
    }

    /// The configuration as file text that gives the same configuration. Passwords appear only as
    /// hashes.
    pub fn to_toml(&self) -> String {
        toml::to_string(&file::File::of(self)).expect("every setting has a form in TOML")
    }
}

/// Checks for any text of a configuration file that it is refused with an error, or gives a
/// configuration, and that the file text of this gives the same one. For fuzzing.
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
