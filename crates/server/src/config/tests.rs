//! Tests of each documented property of the configuration.

use super::file::File;
use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use toml::{Table, Value};

const HASH: &str = "$argon2id$v=19$m=7168,t=5,p=1$c29tZXNhbHRzb21lc2FsdA$\
                    MTIzNDU2Nzg5MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTI";

fn resolve(text: &str) -> Result<Config, ConfigError> {
    Config::resolve(file::parse("portolan.toml", text)?, Layer::default())
}

fn refusal(text: &str) -> String {
    resolve(text).expect_err("this configuration must be refused").to_string()
}

#[test]
fn clients_are_not_sent_to_every_address() {
    let open = "insecure = \"allow-remote-without-credentials\"\n[listen]\n\
                redis_cluster = \"0.0.0.0:1\"\n";
    let refused = refusal(open);
    assert!(refused.contains("--advertise-redis-cluster HOST:PORT"), "{refused}");
    assert!(resolve(&format!("{open}advertise_redis_cluster = \"pier-39:1\"")).is_ok());
    assert!(resolve("[listen]\nredis_cluster = \"127.0.0.1:1\"").is_ok());
}

#[test]
fn nothing_said_is_a_working_node_on_loopback() {
    let config = resolve("").unwrap();
    assert_eq!(config, Config::default());
    assert_eq!(config.ports.redis.unwrap().to_string(), "127.0.0.1:7379");
    assert_eq!(config.warnings(), Vec::<String>::new());
}

#[test]
fn what_stands_higher_wins() {
    let file = file::parse("f", "site = \"file\"\nnode = 7\n[listen]\nadmin = \"off\"").unwrap();
    let over = file::parse("over", "site = \"flag\"").unwrap();
    let config = Config::resolve(file, over).unwrap();
    assert_eq!(config.site.as_str(), "flag", "a flag wins over the file");
    assert_eq!(config.node, NodeId(7), "the file wins over the default");
    assert_eq!(config.ports.admin, None);
    assert_eq!(config.ports.grpc, Ports::default().grpc, "silence leaves the default");
}

#[test]
fn an_unknown_key_is_located_and_corrected() {
    let refused = refusal("site = \"a\"\n\n[raft]\nelction_timeout_ms = 3");
    assert!(refused.starts_with("portolan.toml:4:1: unknown field"), "{refused}");
    assert!(refused.ends_with("did you mean election_timeout_ms?"), "{refused}");
    let far = refusal("zebra = 1");
    assert!(!far.contains("did you mean"), "{far}");
}

#[test]
fn a_wrong_value_is_located() {
    let refused = refusal("[listen]\nredis = \"here\"");
    assert!(refused.starts_with("portolan.toml:2:"), "{refused}");
    assert!(refused.contains("IP:PORT"), "{refused}");
    assert!(refusal("site = \"Pier 39\"").starts_with("--site: "));
    assert!(refusal("node = 0").starts_with("--node: "));
    assert!(refusal("[listen]\npeer = \"off\"").contains(":2:8: --peer: "));
}

#[test]
fn a_promise_that_cannot_be_kept_is_refused() {
    let keyspace = |rest| format!("[[keyspace]]\nname = \"cars\"\nprefix = \"car:\"\n{rest}");
    assert_eq!(resolve(&keyspace("")).unwrap().keyspaces[0].name, "cars");
    let refused = refusal(&keyspace("consistency = \"causal\"\nscope = \"tree\""));
    assert!(refused.contains("this version serves linearizable/site"), "{refused}");
    let refused = refusal(&keyspace("consistency = \"strong\""));
    assert!(refused.contains("use linearizable, causal"), "{refused}");
    let twice = format!("{0}\n{0}", keyspace(""));
    assert!(refusal(&twice).contains("is there twice"));
}

#[test]
fn a_remote_port_needs_credentials() {
    for port in ["redis", "grpc", "admin", "peer"] {
        let open = format!("[listen]\n{port} = \"0.0.0.0:9999\"");
        let refused = refusal(&open);
        assert!(refused.contains(&format!("--{port} 0.0.0.0:9999")), "{refused}");
        assert!(refused.contains("--insecure allow-remote-without-credentials"), "{refused}");

        let said = format!("insecure = \"allow-remote-without-credentials\"\n{open}");
        assert_eq!(resolve(&said).unwrap().warnings().len(), 1, "allowed, with a warning");
        assert!(refusal(&format!("insecure = \"yes\"\n{open}")).starts_with("--insecure: "));

        let user = format!("{open}\n[[user]]\nname = \"a\"\npassword_hash = \"{HASH}\"");
        if port == "peer" {
            let mutual = format!("{open}\n[tls.peer]\ncert = \"c\"\nkey = \"k\"");
            assert!(refusal(&mutual).starts_with("[tls.peer] ca"));
            resolve(&format!("{mutual}\nca = \"a\"")).unwrap();
            refusal(&user);
        } else {
            let clear = resolve(&user).unwrap().warnings();
            assert!(clear[0].contains("passwords travel in the clear"), "{clear:?}");
        }
    }
    assert!(resolve("[listen]\nredis = \"[::1]:1\"\ngrpc = \"127.8.8.8:1\"").is_ok());
}

#[test]
fn tls_is_shared_or_per_port() {
    let shared = "[tls]\ncert = \"c\"\nkey = \"k\"\nca = \"a\"";
    let config = resolve(&format!("{shared}\n[tls.redis]\ncert = \"rc\"\nkey = \"rk\"")).unwrap();
    assert_eq!(config.tls.grpc.unwrap().cert, PathBuf::from("c"));
    let redis = config.tls.redis.unwrap();
    assert_eq!((redis.cert, redis.ca), (PathBuf::from("rc"), None));
    assert!(refusal("[tls]\ncert = \"c\"").starts_with("[tls]: cert and key belong together"));
}

#[test]
fn an_address_that_cannot_be_reached_is_refused() {
    for nowhere in ["", "pier", "pier:", ":7381", "pier:99999"] {
        let refused = refusal(&format!("join = [\"127.0.0.1:7381\", \"{nowhere}\"]"));
        assert_eq!(refused, format!("--join: {nowhere:?} is not HOST:PORT"));
        let refused = refusal(&format!("[listen]\nadvertise = \"{nowhere}\""));
        assert_eq!(refused, format!("--advertise: {nowhere:?} is not HOST:PORT"));
    }
    for somewhere in ["pier-39.example:7381", "10.0.0.1:7381", "[::1]:7381"] {
        resolve(&format!("join = [\"{somewhere}\"]")).unwrap();
    }
}

#[test]
fn numbers_have_their_limits() {
    assert!(refusal("[raft]\nheartbeat_ms = 400").starts_with("raft.election_timeout_ms: "));
    assert!(refusal("[front]\nthreads = 0").starts_with("front.threads: "));
    assert!(refusal("[front]\nconnections_max = 10001").starts_with("front.connections_max: "));
    assert!(refusal("[memory]\ncache_bytes = 5").starts_with("memory.cache_bytes: "));
    let cached =
        |more: &str| refusal(&format!("[[keyspace]]\nname = \"cars\"\nprefix = \"car:\"\n{more}"));
    assert!(cached("cache = \"always\"").contains("use off, validated or stale"));
    assert!(cached("cache = \"validated\"").contains("only scope global has remote keys"));
    assert!(cached("cache_bytes_max = 5000").contains("needs cache"));
    let same = "[listen]\nredis = \"127.0.0.1:5\"\ngrpc = \"127.0.0.1:5\"";
    assert!(refusal(same).contains("127.0.0.1:5"));
}

#[test]
fn the_effective_configuration_reads_back() {
    let text = format!(
        "site = \"a\"\nnode = 3\njoin = [\"x:1\", \"y:2\"]\nwitness = true\n\
         [listen]\nadmin = \"off\"\nadvertise = \"h:1\"\n\
         [tls]\ncert = \"c\\\"q\"\nkey = \"k\"\nca = \"a\"\n\
         [[keyspace]]\nname = \"cars\"\nprefix = \"car:\"\nlease_reads = true\n\
         [[keyspace]]\nname = \"trips\"\nprefix = \"trip:\"\nscope = \"global\"\n\
         cache = \"stale\"\ncache_bytes_max = 5000\n\
         [[user]]\nname = \"u\"\npassword_hash = \"{HASH}\"\n\
         rights = [{{ keyspace = \"*\", allow = [\"read\", \"admin\"] }}]\n\
         [raft]\nheartbeat_ms = 77"
    );
    let config = resolve(&text).unwrap();
    assert_eq!(resolve(&config.to_toml()).unwrap(), config);
    let default = Config::default();
    assert_eq!(resolve(&default.to_toml()).unwrap(), default);
}

/// Lines of a file, valid and invalid; in any order, so that most sections are misplaced.
const LINES: [&str; 26] = [
    "site = \"pier-39\"",
    "node = 3",
    "node = -1",
    "data = \"a\\u0000\\n\\\"'b\"",
    "join = [\"10.0.0.1:7381\", \"[::1]:1\"]",
    "witness = true",
    "insecure = \"allow-remote-without-credentials\"",
    "[listen]",
    "redis = \"0.0.0.0:1\"",
    "grpc = \"localhost:0\"",
    "peer = \"[::]:65535\"",
    "admin = \"off\"",
    "advertise = \"pier-39.example:7381\"",
    "[tls]",
    "[tls.peer]",
    "cert = \"c\"\nkey = \"k\"",
    "ca = \"'\\\\'\"",
    "[[keyspace]]\nname = \"cars\"\nprefix = \"car:\\u007f\"",
    "scope = \"region\"",
    "placement = \"adaptive\"",
    "[[user]]\nname = \"a\\u00e9\"",
    "rights = [{ keyspace = \"*\", allow = [\"read\", \"write\"] }]",
    "[raft]\nheartbeat_ms = 9223372036854775807",
    "[raft]\nelection_timeout_ms = 60000",
    "[disk]\nlog_bytes_before_snapshot = 9223372036854775807",
    "[front]\nthreads = 256",
];

#[test]
fn endpoints_are_set_if_and_only_if_the_engine_is_etcd() {
    let Engine::Etcd(etcd) = resolve("engine = \"etcd\"\nsite = \"pier\"").unwrap().engine else {
        panic!("it is the embedded one")
    };
    assert_eq!((etcd.prefix.as_str(), etcd.lease_ttl.as_secs()), ("/portolan/pier", 10));
    let whole = "engine = \"etcd\"\n[etcd]\nendpoints = [\"https://a:1\", \"https://[::1]:2\"]\n\
                 prefix = \"p\"\nca = \"c\"\ncert = \"d\"\nkey = \"e\"\nuser = \"u\"\n\
                 password_file = \"f\"\nlease_ttl_s = 600";
    let config = resolve(whole).unwrap();
    assert_eq!(resolve(&config.to_toml()), Ok(config));
    let plain = resolve("engine = \"etcd\"\n[etcd]\nendpoints = [\"b.example:2379\"]").unwrap();
    assert!(plain.warnings().iter().any(|warning| warning.contains("without TLS")));
    for (settings, word) in [
        ("[etcd]\nprefix = \"p\"", "--engine etcd"),
        ("engine = \"etc\"", "embedded or etcd"),
        ("engine = \"etcd\"\nwitness = true", "--witness"),
        ("engine = \"etcd\"\n[etcd]\nendpoints = [\"http://a\"]", "--etcd-endpoints"),
        ("engine = \"etcd\"\n[etcd]\nendpoints = [\"https://a:1\"]", "--etcd-ca"),
        ("engine = \"etcd\"\n[etcd]\nca = \"c\"", "--etcd-endpoints"),
        ("engine = \"etcd\"\n[etcd]\nuser = \"u\"", "--etcd-password-file"),
        ("engine = \"etcd\"\n[etcd]\nprefix = \"p/\"", "--etcd-prefix"),
        ("engine = \"etcd\"\n[etcd]\nlease_ttl_s = 1", "--etcd-lease-ttl-s"),
    ] {
        let refused = resolve(settings).unwrap_err().to_string();
        assert!(refused.contains(word), "{settings}: {refused}");
    }
}

proptest! {
    #[test]
    fn any_lines_give_a_configuration_or_a_sentence(
        picks in prop::collection::vec(0..LINES.len(), 0..8),
        damage in prop::option::of((any::<prop::sample::Index>(), any::<char>())),
    ) {
        let mut text: Vec<char> =
            picks.iter().flat_map(|&pick| LINES[pick].chars().chain(['\n'])).collect();
        if let Some((place, other)) = damage {
            let place = place.index(text.len() + 1);
            text.splice(place..(place + 1).min(text.len()), [other]);
        }
        check_any(&String::from_iter(text));
    }

    #[test]
    fn any_words_are_shown_as_they_were(
        data in words(), cert in words(), prefix in words(), name in "[^:\\pC]{1,20}",
    ) {
        let mut config = Config { data: data.into(), ..Config::default() };
        config.tls.redis = Some(TlsConfig { cert: cert.into(), key: "k".into(), ca: None });
        config.keyspaces = vec![KeyspaceSpec::linearizable_site("cars", prefix)];
        let rights = vec![];
        config.users = vec![UserConfig { name, password_hash: HASH.into(), rights }];
        prop_assert_eq!(resolve(&config.to_toml()), Ok(config));
    }
}

/// Any characters, including those that a file cannot contain unescaped.
fn words() -> impl Strategy<Value = String> {
    prop::collection::vec(any::<char>(), 1..20).prop_map(String::from_iter)
}

/// Every setting, each with a value other than its default.
const EVERY: &str = r#"
    site = "pier"
    node = 7
    data = "d"
    capacity = 2.5
    failure_domain = "hall"
    region = "east"
    join = ["h:1"]
    witness = true
    insecure = "allow-remote-without-credentials"
    engine = "etcd"
    etcd = { endpoints = ["https://h:2"], prefix = "p", ca = "a", cert = "c", key = "k", user = "u", password_file = "f", lease_ttl_s = 3 }
    tls.redis = { cert = "rc", key = "rk", ca = "ra" }
    tls.grpc = { cert = "gc", key = "gk", ca = "ga" }
    tls.peer = { cert = "pc", key = "pk", ca = "pa" }
    tls.admin = { cert = "ac", key = "ak", ca = "aa" }
    peers = { secret_file = "s", site_secret_file = "t", join_token_file = "j", accept_unproved = true }
    raft = { election_timeout_ms = 10, heartbeat_ms = 11 }
    handover = { bytes_per_s_max = 12 }
    disk = { reserve_bytes = 13, log_bytes_before_snapshot = 14 }
    memory = { cache_bytes = 15, memtable_bytes = 16 }
    front = { threads = 17, connections_max = 18, cluster_view = "owners" }
    clients = { login_timeout_s = 19, idle_timeout_s = 20, keepalive_s = 21, reserved_percent = 22 }
    placement = { weights = "clients", probe_nearest = 6, probe_change_percent = 30, link_mbit_per_s = 40, borrowed_bytes_max = 50 }
    [listen]
    redis = "127.0.0.1:4"
    redis_cluster = "127.0.0.1:5"
    grpc = "127.0.0.1:6"
    peer = "127.0.0.1:7"
    admin = "127.0.0.1:8"
    advertise = "h:9"
    advertise_redis_cluster = "h:10"
    [[keyspace]]
    name = "cars"
    prefix = "car:"
    consistency = "causal"
    scope = "global"
    placement = "adaptive"
    lend_to = ["pier", "harbour"]
    priority = 200
    lease_reads = true
    cache = "stale"
    cache_bytes_max = 5000
    cache_age_ms_max = 70
    rmw = "local"
    [[user]]
    name = "u"
    password_hash = "h"
    rights = [{ keyspace = "cars", allow = ["read", "write", "admin"] }]
"#;

/// All settings of a file by their path.
fn settings(table: &Table) -> BTreeMap<String, Value> {
    let mut all = BTreeMap::new();
    for (key, value) in table {
        let below = match value {
            Value::Table(table) => settings(table),
            Value::Array(list) => {
                list.iter().filter_map(Value::as_table).flat_map(settings).collect()
            }
            _ => BTreeMap::new(),
        };
        if below.is_empty() && !value.is_table() {
            all.insert(key.clone(), value.clone());
        }
        all.extend(below.into_iter().map(|(path, value)| (format!("{key}.{path}"), value)));
    }
    all
}

#[test]
fn every_setting_is_read_and_shown() {
    let every: Table = toml::from_str(EVERY).unwrap();
    let file: File = toml::from_str(EVERY).unwrap();
    let shown = Table::try_from(File::of(&file.into_config().unwrap())).unwrap();
    assert_eq!(shown, every);
    let (every, default) = (settings(&every), Table::try_from(File::default()).unwrap());
    for (path, value) in settings(&default) {
        assert!(every.get(&path).is_none_or(|other| *other != value), "{path} has its default");
        assert!(every.contains_key(&path) || value == Value::Array(vec![]), "{path} is missing");
    }
}

#[test]
fn the_example_has_every_setting() {
    let head = include_str!("file.rs").lines().skip_while(|line| *line != "//! ```toml").skip(1);
    let head = head.take_while(|line| *line != "//! ```");
    let text = head.map(|line| &line[3..]).collect::<Vec<_>>().join("\n");
    file::parse("example", &text).unwrap();
    let paths = |text: &str| -> BTreeSet<String> {
        let all = settings(&toml::from_str(text).unwrap()).into_keys();
        // A table of TLS is the same for every port, and for all of them.
        all.filter(|path| !path.starts_with("tls.") || path.starts_with("tls.peer.")).collect()
    };
    assert_eq!(paths(&text), paths(EVERY));
}

#[test]
fn the_page_for_operators_has_every_setting() {
    let page = include_str!("../../../../docs/operations.md");
    let row = |key: &str| page.lines().find(|line| line.starts_with(&format!("| `{key}` |")));
    for path in settings(&toml::from_str(EVERY).unwrap()).into_keys() {
        let (text, name) = match path.split_once('.') {
            Some((list @ ("keyspace" | "user"), of_one)) => {
                let name = of_one.split('.').next().unwrap_or_default();
                (row(&format!("[[{list}]]")), name.to_owned())
            }
            // A table of TLS is the same for every port, and for all of them.
            Some(("tls", of_port)) => {
                let name = of_port.split('.').next_back().unwrap_or_default();
                (Some(page), format!("tls.{name}"))
            }
            _ => (Some(page), path.clone()),
        };
        let is_there = text.is_some_and(|text| text.contains(&format!("`{name}`")));
        assert!(is_there, "docs/operations.md has no {path}");
    }
}

#[test]
fn an_empty_list_or_table_sets_nothing() {
    let text = "join = [\"h:1\"]\n[peers]\nsecret_file = \"s\"";
    let over = file::parse("over", "join = []\netcd = { endpoints = [] }\n[peers]").unwrap();
    let config = Config::resolve(file::parse("f", text).unwrap(), over).unwrap();
    assert_eq!(Ok(config), resolve(text));
}
