//! The configuration file: TOML, and strict. An unknown key is an error that points at its line and
//! names the nearest known key, because a setting that is silently ignored is noticed too late.
//!
//! ```toml
//! site = "pier-39"
//! node = 1
//! data = "/var/lib/portolan"
//! join = ["10.0.0.1:7381"]            # peer ports of existing nodes
//! capacity = 1.0                      # share of the deployment's slots, relative to other sites
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
//!
//! [clients]
//! login_timeout_s = 10                # where there are users; 0: never
//! idle_timeout_s = 0                  # of Redis clients; 0: never
//! keepalive_s = 300
//! reserved_percent = 10               # of connections_max, for clients that are logged in
//! ```

use super::{ConfigError, EtcdLayer, Layer, PortsTls, TlsConfig};
use crate::users::UserConfig;
use model::{Bytes, Cache, Consistency, KeyspaceSpec, Placement, Scope};
use serde::{Deserialize, Deserializer, de};
use std::ops::Range;
use std::path::PathBuf;

/// Reads the text of the file `name` (for messages only).
pub fn parse(name: &str, text: &str) -> Result<Layer, ConfigError> {
    let file: File = toml::from_str(text).map_err(|error| located(name, text, &error))?;
    file.into_layer()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    site: Option<String>,
    node: Option<u64>,
    data: Option<PathBuf>,
    capacity: Option<f64>,
    #[serde(default)]
    join: Vec<String>,
    witness: Option<bool>,
    #[serde(default, deserialize_with = "from_text")]
    engine: Option<super::EngineWord>,
    #[serde(default)]
    etcd: EtcdTable,
    insecure: Option<String>,
    #[serde(default)]
    listen: ListenTable,
    #[serde(default)]
    tls: TlsTable,
    #[serde(default)]
    peers: super::peers::PeersTable,
    #[serde(default)]
    keyspace: Vec<KeyspaceTable>,
    #[serde(default)]
    user: Vec<UserConfig>,
    #[serde(default)]
    raft: RaftTable,
    #[serde(default)]
    handover: HandoverTable,
    #[serde(default)]
    disk: DiskTable,
    #[serde(default)]
    memory: MemoryTable,
    #[serde(default)]
    front: FrontTable,
    #[serde(default)]
    clients: super::ClientsLayer,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct EtcdTable {
    #[serde(default)]
    endpoints: Vec<String>,
    prefix: Option<String>,
    ca: Option<PathBuf>,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    user: Option<String>,
    password_file: Option<PathBuf>,
    lease_ttl_s: Option<u64>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct ListenTable {
    #[serde(default, deserialize_with = "from_text")]
    redis: Option<super::Listen>,
    #[serde(default, deserialize_with = "from_text")]
    redis_cluster: Option<super::Listen>,
    #[serde(default, deserialize_with = "from_text")]
    grpc: Option<super::Listen>,
    #[serde(default, deserialize_with = "from_text")]
    peer: Option<super::Listen>,
    #[serde(default, deserialize_with = "from_text")]
    admin: Option<super::Listen>,
    advertise: Option<String>,
    advertise_redis_cluster: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct TlsTable {
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    ca: Option<PathBuf>,
    redis: Option<TlsPortTable>,
    grpc: Option<TlsPortTable>,
    peer: Option<TlsPortTable>,
    admin: Option<TlsPortTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TlsPortTable {
    cert: PathBuf,
    key: PathBuf,
    ca: Option<PathBuf>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyspaceTable {
    name: String,
    prefix: String,
    #[serde(default, deserialize_with = "from_text")]
    consistency: Option<Consistency>,
    #[serde(default, deserialize_with = "from_text")]
    scope: Option<Scope>,
    #[serde(default)]
    placement: PlacementWord,
    #[serde(default)]
    lease_reads: bool,
    cache: Option<String>,
    cache_bytes_max: Option<u64>,
    cache_age_ms_max: Option<u64>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "lowercase")]
enum PlacementWord {
    #[default]
    Hash,
    Adaptive,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct RaftTable {
    election_timeout_ms: Option<u64>,
    heartbeat_ms: Option<u64>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct HandoverTable {
    bytes_per_s_max: Option<u64>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct DiskTable {
    reserve_bytes: Option<u64>,
    log_bytes_before_snapshot: Option<u64>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct MemoryTable {
    cache_bytes: Option<u64>,
    memtable_bytes: Option<u64>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct FrontTable {
    threads: Option<usize>,
    connections_max: Option<usize>,
}

/// A value whose text has a rule of its own ([`std::str::FromStr`]).
fn from_text<'de, D: Deserializer<'de>, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    T: std::str::FromStr<Err = String>,
{
    let text = String::deserialize(deserializer)?;
    text.parse().map(Some).map_err(de::Error::custom)
}

impl File {
    fn into_layer(self) -> Result<Layer, ConfigError> {
        Ok(Layer {
            site: self.site,
            node: self.node,
            data: self.data,
            join: self.join,
            witness: self.witness,
            engine: self.engine,
            etcd: EtcdLayer {
                endpoints: self.etcd.endpoints,
                prefix: self.etcd.prefix,
                ca: self.etcd.ca,
                cert: self.etcd.cert,
                key: self.etcd.key,
                user: self.etcd.user,
                password_file: self.etcd.password_file,
                lease_ttl_s: self.etcd.lease_ttl_s,
            },
            redis: self.listen.redis,
            grpc: self.listen.grpc,
            peer: self.listen.peer,
            admin: self.listen.admin,
            advertise: self.listen.advertise,
            redis_cluster: self.listen.redis_cluster,
            advertise_redis_cluster: self.listen.advertise_redis_cluster,
            capacity: self.capacity,
            handover_bytes_per_s_max: self.handover.bytes_per_s_max,
            tls: self.tls.into_ports()?,
            peers: self.peers.into_layer(),
            users: self.user,
            insecure: self.insecure,
            keyspaces: self
                .keyspace
                .into_iter()
                .map(KeyspaceTable::into_spec)
                .collect::<Result<_, _>>()?,
            election_timeout_ms: self.raft.election_timeout_ms,
            heartbeat_ms: self.raft.heartbeat_ms,
            reserve_bytes: self.disk.reserve_bytes,
            log_bytes_before_snapshot: self.disk.log_bytes_before_snapshot,
            cache_bytes: self.memory.cache_bytes,
            memtable_bytes: self.memory.memtable_bytes,
            threads: self.front.threads,
            connections_max: self.front.connections_max,
            clients: self.clients,
        })
    }
}

impl TlsTable {
    /// Each port's own table, or the shared one.
    fn into_ports(self) -> Result<PortsTls, ConfigError> {
        let shared = match (self.cert, self.key, self.ca) {
            (None, None, None) => None,
            (Some(cert), Some(key), ca) => Some(TlsConfig { cert, key, ca }),
            _ => {
                return Err(ConfigError::Value {
                    setting: "[tls]".to_owned(),
                    what:
                        "cert and key belong together: give both, or neither and a table per port \
                           like [tls.redis]"
                            .to_owned(),
                });
            }
        };
        let port = |own: Option<TlsPortTable>| match own {
            Some(own) => Some(TlsConfig { cert: own.cert, key: own.key, ca: own.ca }),
            None => shared.clone(),
        };
        Ok(PortsTls {
            redis: port(self.redis),
            grpc: port(self.grpc),
            peer: port(self.peer),
            admin: port(self.admin),
        })
    }
}

impl KeyspaceTable {
    fn into_spec(self) -> Result<KeyspaceSpec, ConfigError> {
        let word = self.cache.as_deref().unwrap_or("off");
        let cache = Cache::of(word, self.cache_bytes_max, self.cache_age_ms_max);
        let cache = cache.map_err(|what| {
            let setting = format!("[[keyspace]] {:?}: cache", self.name);
            ConfigError::Value { setting, what }
        })?;
        Ok(KeyspaceSpec {
            name: self.name,
            prefix: Bytes::from(self.prefix),
            consistency: self.consistency.unwrap_or(Consistency::Linearizable),
            scope: self.scope.unwrap_or(Scope::Site),
            placement: match self.placement {
                PlacementWord::Hash => Placement::Hash,
                PlacementWord::Adaptive => Placement::Adaptive,
            },
            lease_reads: self.lease_reads,
            cache,
        })
    }
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
