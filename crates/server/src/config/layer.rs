//! One layer of configuration: the settings of one source; the others are unset.

use super::{
    ClientsLayer, Config, ConfigError, EngineWord, EtcdLayer, INSECURE_WORDS, KeyspaceSpec,
    PeersConfig, Ports, PortsTls, UserConfig,
};
use model::{NodeId, SiteName};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The settings of one source. `None` and an empty list: not set.
#[derive(Clone, Debug, Default, PartialEq)]
#[expect(missing_docs, reason = "the fields are those of Config and its parts, which say it")]
pub struct Layer {
    pub site: Option<String>,
    pub node: Option<u64>,
    pub data: Option<PathBuf>,
    pub join: Vec<String>,
    pub witness: Option<bool>,
    pub engine: Option<EngineWord>,
    pub etcd: EtcdLayer,
    pub redis: Option<Listen>,
    pub grpc: Option<Listen>,
    pub peer: Option<Listen>,
    pub admin: Option<Listen>,
    pub advertise: Option<String>,
    pub redis_cluster: Option<Listen>,
    pub advertise_redis_cluster: Option<String>,
    pub capacity: Option<f64>,
    pub handover_bytes_per_s_max: Option<u64>,
    pub tls: PortsTls,
    pub peers: PeersConfig,
    pub users: Vec<UserConfig>,
    pub insecure: Option<String>,
    pub keyspaces: Vec<KeyspaceSpec>,
    pub election_timeout_ms: Option<u64>,
    pub heartbeat_ms: Option<u64>,
    pub reserve_bytes: Option<u64>,
    pub log_bytes_before_snapshot: Option<u64>,
    pub cache_bytes: Option<u64>,
    pub memtable_bytes: Option<u64>,
    pub threads: Option<usize>,
    pub connections_max: Option<usize>,
    pub clients: ClientsLayer,
}

/// Where one port listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listen {
    /// The port is closed (`off`).
    Off,
    /// At this address.
    At(SocketAddr),
}

impl std::str::FromStr for Listen {
    type Err = String;

    /// `off`, `ADDRESS:PORT` or `localhost:PORT`.
    fn from_str(text: &str) -> Result<Listen, String> {
        if text == "off" {
            return Ok(Listen::Off);
        }
        let numeric = match text.strip_prefix("localhost:") {
            Some(port) => format!("127.0.0.1:{port}"),
            None => text.to_owned(),
        };
        numeric.parse().map(Listen::At).map_err(|_| {
            format!(
                "{text:?} is no address to listen on: use IP:PORT (like 127.0.0.1:7379), or off to \
                 keep the port closed"
            )
        })
    }
}

impl Layer {
    /// This layer's settings, and those of `below` where this one has none.
    pub fn over(self, below: Layer) -> Layer {
        fn list<T>(above: Vec<T>, below: Vec<T>) -> Vec<T> {
            if above.is_empty() { below } else { above }
        }
        Layer {
            site: self.site.or(below.site),
            node: self.node.or(below.node),
            data: self.data.or(below.data),
            join: list(self.join, below.join),
            witness: self.witness.or(below.witness),
            engine: self.engine.or(below.engine),
            etcd: self.etcd.over(below.etcd),
            redis: self.redis.or(below.redis),
            grpc: self.grpc.or(below.grpc),
            peer: self.peer.or(below.peer),
            admin: self.admin.or(below.admin),
            advertise: self.advertise.or(below.advertise),
            redis_cluster: self.redis_cluster.or(below.redis_cluster),
            advertise_redis_cluster: self.advertise_redis_cluster.or(below.advertise_redis_cluster),
            capacity: self.capacity.or(below.capacity),
            handover_bytes_per_s_max: self
                .handover_bytes_per_s_max
                .or(below.handover_bytes_per_s_max),
            tls: PortsTls {
                redis: self.tls.redis.or(below.tls.redis),
                grpc: self.tls.grpc.or(below.tls.grpc),
                peer: self.tls.peer.or(below.tls.peer),
                admin: self.tls.admin.or(below.tls.admin),
            },
            peers: self.peers.over(below.peers),
            users: list(self.users, below.users),
            insecure: self.insecure.or(below.insecure),
            keyspaces: list(self.keyspaces, below.keyspaces),
            election_timeout_ms: self.election_timeout_ms.or(below.election_timeout_ms),
            heartbeat_ms: self.heartbeat_ms.or(below.heartbeat_ms),
            reserve_bytes: self.reserve_bytes.or(below.reserve_bytes),
            log_bytes_before_snapshot: self
                .log_bytes_before_snapshot
                .or(below.log_bytes_before_snapshot),
            cache_bytes: self.cache_bytes.or(below.cache_bytes),
            memtable_bytes: self.memtable_bytes.or(below.memtable_bytes),
            threads: self.threads.or(below.threads),
            connections_max: self.connections_max.or(below.connections_max),
            clients: self.clients.over(below.clients),
        }
    }

    /// The defaults, with this layer's settings applied.
    pub(super) fn onto_defaults(self) -> Result<Config, ConfigError> {
        let mut config = Config::default();
        if let Some(site) = self.site {
            config.site = SiteName::new(site).map_err(|what| value("--site", what))?;
        }
        config.node = self.node.map_or(config.node, NodeId);
        config.data = self.data.unwrap_or(config.data);
        config.join = self.join;
        config.witness = self.witness.unwrap_or(false);
        config.engine = self.etcd.onto(self.engine.unwrap_or_default(), &config.site)?;
        config.ports = ports(config.ports, [self.redis, self.grpc, self.peer, self.admin])?;
        config.ports.advertise = self.advertise;
        if let Some(Listen::At(address)) = self.redis_cluster {
            config.ports.redis_cluster = Some(address);
        }
        config.ports.advertise_redis_cluster = self.advertise_redis_cluster;
        if let Some(capacity) = self.capacity {
            if !(0.01..=100.0).contains(&capacity) {
                return Err(value("--capacity", "must be 0.01 to 100"));
            }
            config.capacity_percent = (capacity * 100.0).round() as u32;
        }
        set(&mut config.handover_bytes_per_s_max, self.handover_bytes_per_s_max);
        config.tls = self.tls;
        config.peers = self.peers;
        config.users = self.users;
        config.insecure = match self.insecure.as_deref() {
            None => false,
            Some(INSECURE_WORDS) => true,
            Some(other) => {
                let what =
                    format!("{other:?} is not understood; the only value is {INSECURE_WORDS:?}");
                return Err(value("--insecure", what));
            }
        };
        config.keyspaces = self.keyspaces;
        let raft = &mut config.raft;
        set(&mut raft.election_timeout, self.election_timeout_ms.map(Duration::from_millis));
        set(&mut raft.heartbeat, self.heartbeat_ms.map(Duration::from_millis));
        set(&mut config.disk.reserve_bytes, self.reserve_bytes);
        set(&mut config.disk.log_bytes_before_snapshot, self.log_bytes_before_snapshot);
        set(&mut config.memory.cache_bytes, self.cache_bytes);
        set(&mut config.memory.memtable_bytes, self.memtable_bytes);
        set(&mut config.front.threads, self.threads);
        set(&mut config.front.connections_max, self.connections_max);
        config.clients = self.clients.onto_defaults();
        Ok(config)
    }
}

fn set<T>(setting: &mut T, said: Option<T>) {
    if let Some(said) = said {
        *setting = said;
    }
}

fn ports(defaults: Ports, said: [Option<Listen>; 4]) -> Result<Ports, ConfigError> {
    let choose = |said: Option<Listen>, default: Option<SocketAddr>| match said {
        None => default,
        Some(Listen::Off) => None,
        Some(Listen::At(address)) => Some(address),
    };
    let [redis, grpc, peer, admin] = said;
    Ok(Ports {
        redis: choose(redis, defaults.redis),
        grpc: choose(grpc, defaults.grpc),
        peer: choose(peer, Some(defaults.peer)).ok_or_else(|| {
            value("--peer", "the peer port cannot be off: a site can always be joined")
        })?,
        admin: choose(admin, defaults.admin),
        redis_cluster: None,
        advertise: None,
        advertise_redis_cluster: None,
    })
}

fn value(setting: &str, what: impl Into<String>) -> ConfigError {
    ConfigError::Value { setting: setting.to_owned(), what: what.into() }
}
