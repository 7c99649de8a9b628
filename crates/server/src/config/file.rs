//! The configuration file: TOML, and strict. An unknown key is an error that points at its line and
//! names the nearest known key, because a setting that is silently ignored is noticed too late.
//!
//! [`File`] is the one definition of the settings: every layer has its form, and the effective
//! configuration is shown in it. The defaults are those of [`Config`] and its parts.
//!
//! ```toml
//! site = "pier-39"
//! node = 1
//! data = "/var/lib/portolan"
//! join = ["10.0.0.1:7381"]            # peer ports of existing nodes
//! capacity = 1.0                      # share of the deployment's slots, relative to other sites
//! failure_domain = "hall-2"           # sites of one name can fail together; "none": it fails alone
//! region = "east"                     # sites of one name order their causal writes together; stays as it is
//! witness = false                     # votes, but holds no data
//! insecure = "allow-remote-without-credentials"   # opens remote ports without users
//!
//! engine = "embedded"                 # or "etcd", and then:
//!
//! [etcd]
//! endpoints = ["https://10.0.0.1:2379", "https://10.0.0.2:2379"]
//! prefix = "/portolan/pier-39"        # the prefix of all its keys
//! ca = "etcd-ca.pem"                  # the CA of etcd's certificates
//! cert = "client.pem"                 # if etcd requires one
//! key = "client.key"
//! user = "portolan"                   # if etcd has users
//! password_file = "etcd-password"
//! lease_ttl_s = 10                    # a standby takes over this long after the owner's last renewal
//!
//! [listen]                            # "off" closes a port (not the peer port)
//! redis = "127.0.0.1:7379"
//! redis_cluster = "127.0.0.1:7378"    # off by default
//! grpc = "127.0.0.1:7380"
//! peer = "0.0.0.0:7381"
//! admin = "127.0.0.1:7070"
//! advertise = "pier-39.example:7381"  # how other nodes reach the peer port
//! advertise_redis_cluster = "pier-39.example:7378"
//!
//! [tls]                               # for every port …
//! cert = "node.pem"
//! key = "node.key"
//!
//! [tls.peer]                          # … or for one; the peer port needs a ca
//! cert = "node.pem"
//! key = "node.key"
//! ca = "nodes-ca.pem"
//!
//! [peers]                             # the nodes' proof to each other
//! secret_file = "peer-secret"         # one secret a line, or two; mode 600
//! site_secret_file = "site-secret"    # if the site has one of its own
//! join_token_file = "join-token"      # from `portolan site token`; instead of a secret, to join
//! accept_unproved = false             # only while secrets are introduced
//!
//! [[keyspace]]
//! name = "cars"
//! prefix = "car:"
//! consistency = "linearizable"
//! scope = "site"
//! placement = "off"                   # or "advise", "adaptive", for scope "global"
//! lend_to = ["pier-39", "harbour"]    # with "adaptive"; all sites by default. Created when these have joined
//! priority = 100                      # with "adaptive": against other keyspaces, 1 to 1000
//! lease_reads = false
//! cache = "off"                       # of remote keys: or "validated", "stale"
//! cache_bytes_max = 67108864          # with cache
//! cache_age_ms_max = 1000             # with cache "stale"
//! rmw = "refuse"                      # or "local", for consistency "causal"
//!
//! [[user]]
//! name = "fleet"
//! password_hash = "$argon2id$…"       # from `portolan hash-password`
//! rights = [{ keyspace = "cars", allow = ["read", "write"] }]
//!
//! [raft]
//! election_timeout_ms = 500
//! heartbeat_ms = 50
//!
//! [handover]
//! bytes_per_s_max = 0                 # of handovers to other sites; 0: unlimited
//!
//! [disk]
//! reserve_bytes = 268435456
//! log_bytes_before_snapshot = 134217728
//!
//! [memory]
//! cache_bytes = 67108864
//! memtable_bytes = 8388608
//!
//! [front]
//! threads = 2
//! connections_max = 10000
//! cluster_view = "auto"               # or "owners", "site": the site that redis_cluster shows for a slot
//!
//! [clients]
//! login_timeout_s = 10                # where there are users; 0: never
//! idle_timeout_s = 0                  # of Redis clients; 0: never
//! keepalive_s = 300
//! reserved_percent = 10               # of connections_max, for clients that are logged in
//!
//! [placement]                         # where a keyspace has a placement
//! weights = "accesses"                # or "clients": each user of a key counts as much as any other
//! # latencies to other sites that no request has measured:
//! probe_nearest = 5                   # sites that are measured each ten seconds
//! probe_change_percent = 20           # all sites are, when one of these has changed by more
//! link_mbit_per_s = 800               # of the site's link to others: what the bytes of a move take
//! borrowed_bytes_max = 536870912      # of other sites' groups that this one takes; 0: as many as come
//! ```

use super::{
    ClientsConfig, Config, ConfigError, DiskConfig, Engine, EngineWord, EtcdConfig, FrontConfig,
    INSECURE_WORDS, Layer, MemoryConfig, PeersConfig, PlacementConfig, Ports, PortsTls, RaftConfig,
    TlsConfig, forms,
};
use crate::users::UserConfig;
use model::{
    Bytes, Cache, Consistency, KeyspaceSpec, Miss, NodeId, Placement, Rmw, Scope, SiteName, limits,
};
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::path::PathBuf;

/// Reads the text of the file `name` (for messages only).
pub fn parse(name: &str, text: &str) -> Result<Layer, ConfigError> {
    let located = |error| located(name, text, &error);
    toml::from_str::<File>(text).map_err(located)?;
    Ok(Layer::from(toml::from_str::<toml::Table>(text).map_err(located)?))
}

/// The whole file. Its tables are the parts of [`Config`] where these have the same form.
#[derive(Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct File {
    site: String,
    node: u64,
    data: PathBuf,
    capacity: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    failure_domain: Option<String>,
    region: Option<String>,
    join: Vec<String>,
    witness: bool,
    insecure: Option<String>,
    #[serde(deserialize_with = "forms::text::deserialize")]
    engine: EngineWord,
    etcd: Option<EtcdConfig>,
    listen: Ports,
    #[serde(skip_serializing_if = "is_default")]
    tls: TlsTable,
    #[serde(skip_serializing_if = "is_default")]
    peers: PeersConfig,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    keyspace: Vec<KeyspaceTable>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    user: Vec<UserConfig>,
    raft: RaftConfig,
    handover: HandoverTable,
    disk: DiskConfig,
    memory: MemoryConfig,
    front: FrontConfig,
    clients: ClientsConfig,
    placement: PlacementConfig,
}

#[derive(Serialize, Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
struct HandoverTable {
    bytes_per_s_max: u64,
}

#[derive(Serialize, Deserialize, Default, PartialEq)]
#[serde(default, deny_unknown_fields)]
struct TlsTable {
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    ca: Option<PathBuf>,
    redis: Option<TlsConfig>,
    grpc: Option<TlsConfig>,
    peer: Option<TlsConfig>,
    admin: Option<TlsConfig>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyspaceTable {
    name: String,
    prefix: String,
    #[serde(with = "forms::text", default = "linearizable")]
    consistency: Consistency,
    #[serde(with = "forms::text", default = "site")]
    scope: Scope,
    #[serde(with = "forms::text", default)]
    placement: Placement,
    #[serde(default)]
    lease_reads: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    lend_to: Vec<String>,
    priority: Option<u16>,
    #[serde(with = "forms::text", default, skip_serializing_if = "is_default")]
    rmw: Rmw,
    cache: Option<String>,
    cache_bytes_max: Option<u64>,
    cache_age_ms_max: Option<u64>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn linearizable() -> Consistency {
    Consistency::Linearizable
}

fn site() -> Scope {
    Scope::Site
}

impl Default for File {
    fn default() -> File {
        File::of(&Config::default())
    }
}

impl File {
    /// The file that gives this configuration.
    pub(super) fn of(config: &Config) -> File {
        let (engine, etcd) = config.engine.settings();
        File {
            site: config.site.to_string(),
            node: config.node.0,
            data: config.data.clone(),
            capacity: f64::from(config.capacity_percent) / 100.0,
            failure_domain: config.failure_domain.as_ref().map(SiteName::to_string),
            region: config.region.as_ref().map(SiteName::to_string),
            join: config.join.clone(),
            witness: config.witness,
            insecure: config.insecure.then(|| INSECURE_WORDS.to_owned()),
            engine,
            etcd,
            listen: config.ports.clone(),
            tls: TlsTable::of(config.tls.clone()),
            peers: config.peers.clone(),
            keyspace: config.keyspaces.iter().map(|spec| KeyspaceTable::of(spec, config)).collect(),
            user: config.users.clone(),
            raft: config.raft,
            handover: HandoverTable { bytes_per_s_max: config.handover_bytes_per_s_max },
            disk: config.disk,
            memory: config.memory,
            front: config.front,
            clients: config.clients,
            placement: config.placement,
        }
    }

    /// The configuration that this file gives.
    pub(super) fn into_config(self) -> Result<Config, ConfigError> {
        let site = SiteName::new(self.site).map_err(|what| value("--site", what))?;
        let engine = Engine::of(self.engine, self.etcd, &site)?;
        if !(0.01..=100.0).contains(&self.capacity) {
            return Err(value("--capacity", "must be 0.01 to 100"));
        }
        let failure_domain = self
            .failure_domain
            .map(|name| SiteName::domain(name).map_err(|what| value("--failure-domain", what)));
        let region =
            self.region.map(|name| SiteName::region(name).map_err(|what| value("--region", what)));
        let insecure = match self.insecure.as_deref() {
            None => false,
            Some(INSECURE_WORDS) => true,
            Some(other) => {
                let what =
                    format!("{other:?} is not understood; the only value is {INSECURE_WORDS:?}");
                return Err(value("--insecure", what));
            }
        };
        let lend_to = self.keyspace.iter().filter_map(|one| one.lend_to().transpose());
        let lend_to = lend_to.collect::<Result<_, _>>()?;
        let keyspaces = self.keyspace.into_iter().map(KeyspaceTable::into_spec);
        Ok(Config {
            site,
            capacity_percent: (self.capacity * 100.0).round() as u32,
            failure_domain: failure_domain.transpose()?,
            region: region.transpose()?,
            handover_bytes_per_s_max: self.handover.bytes_per_s_max,
            node: NodeId(self.node),
            data: self.data,
            join: self.join,
            witness: self.witness,
            engine,
            ports: self.listen,
            tls: self.tls.into_ports()?,
            peers: self.peers,
            users: self.user,
            insecure,
            keyspaces: keyspaces.collect::<Result<_, _>>()?,
            lend_to,
            raft: self.raft,
            disk: self.disk,
            memory: self.memory,
            front: self.front,
            clients: self.clients,
            placement: self.placement,
        })
    }
}

impl TlsTable {
    fn of(PortsTls { redis, grpc, peer, admin }: PortsTls) -> TlsTable {
        TlsTable { redis, grpc, peer, admin, ..TlsTable::default() }
    }

    /// Each port's own table, or the shared one.
    fn into_ports(self) -> Result<PortsTls, ConfigError> {
        let shared = match (self.cert, self.key, self.ca) {
            (None, None, None) => None,
            (Some(cert), Some(key), ca) => Some(TlsConfig { cert, key, ca }),
            _ => {
                let what = "cert and key belong together: give both, or neither and a table per \
                            port like [tls.redis]";
                return Err(value("[tls]", what));
            }
        };
        let port = |own: Option<TlsConfig>| own.or_else(|| shared.clone());
        Ok(PortsTls {
            redis: port(self.redis),
            grpc: port(self.grpc),
            peer: port(self.peer),
            admin: port(self.admin),
        })
    }
}

impl KeyspaceTable {
    fn of(spec: &KeyspaceSpec, config: &Config) -> KeyspaceTable {
        let lend_to = config.lend_to.get(&spec.name);
        KeyspaceTable {
            lend_to: lend_to.into_iter().flatten().map(SiteName::to_string).collect(),
            priority: Some(spec.priority).filter(|one| *one != limits::PRIORITY_DEFAULT),
            name: spec.name.clone(),
            prefix: String::from_utf8_lossy(&spec.prefix).into_owned(),
            consistency: spec.consistency,
            scope: spec.scope,
            placement: spec.placement,
            lease_reads: spec.lease_reads,
            rmw: spec.rmw,
            cache: Some(spec.cache.to_string()),
            cache_bytes_max: spec.cache.is_on().then_some(spec.cache.bytes_max()),
            cache_age_ms_max: spec.cache.age_ms_max(),
        }
    }

    /// The sites that it may be lent to, beside its name.
    fn lend_to(&self) -> Result<Option<(String, Vec<SiteName>)>, ConfigError> {
        let name = |site: &String| {
            let wrong = |what| value(&format!("[[keyspace]] {:?}: lend_to", self.name), what);
            SiteName::new(site.clone()).map_err(wrong)
        };
        let sites: Vec<SiteName> = self.lend_to.iter().map(name).collect::<Result<_, _>>()?;
        Ok((!sites.is_empty()).then(|| (self.name.clone(), sites)))
    }

    fn into_spec(self) -> Result<KeyspaceSpec, ConfigError> {
        let word = self.cache.as_deref().unwrap_or("off");
        let cache = Cache::of(word, self.cache_bytes_max, self.cache_age_ms_max)
            .map_err(|what| value(&format!("[[keyspace]] {:?}: cache", self.name), what))?;
        Ok(KeyspaceSpec {
            name: self.name,
            prefix: Bytes::from(self.prefix),
            consistency: self.consistency,
            scope: self.scope,
            placement: self.placement,
            was_adaptive: false,
            lease_reads: self.lease_reads,
            cache,
            rmw: self.rmw,
            // The file of the first site names no others: there are none yet.
            sites: Vec::new(),
            miss: Miss::Forward,
            // Named beside it: see `Config::lend_to`.
            lend_to: Vec::new(),
            priority: self.priority.unwrap_or(limits::PRIORITY_DEFAULT),
        })
    }
}

fn value(setting: &str, what: impl Into<String>) -> ConfigError {
    ConfigError::Value { setting: setting.to_owned(), what: what.into() }
}

/// The TOML reader's error with its place and, for an unknown key, the nearest known one.
fn located(name: &str, text: &str, error: &toml::de::Error) -> ConfigError {
    let at = error.span().unwrap_or(Range { start: 0, end: 0 }).start.min(text.len());
    let before = &text.as_bytes()[..at];
    let line_start = before.iter().rposition(|&b| b == b'\n').map_or(0, |newline| newline + 1);
    ConfigError::File {
        file: name.to_owned(),
        line: 1 + before.iter().filter(|&&b| b == b'\n').count(),
        column: 1 + String::from_utf8_lossy(&before[line_start..]).chars().count(),
        what: error.message().trim().replace('\n', " "),
        hint: nearest(error.message()),
    }
}

/// Finds the known word that is nearest to the unknown one, if one is near. Serde's message names
/// both in backquotes: "unknown field `a`, expected one of `b`, `c`".
fn nearest(message: &str) -> Option<String> {
    if !message.contains("unknown field") && !message.contains("unknown variant") {
        return None;
    }
    let mut words = message.split('`').skip(1).step_by(2);
    let unknown = words.next()?;
    words
        .map(|known| (strsim::damerau_levenshtein(unknown, known), known))
        .filter(|(distance, known)| *distance <= 1 + known.len() / 3)
        .min()
        .map(|(_, known)| format!("did you mean {known}?"))
}
