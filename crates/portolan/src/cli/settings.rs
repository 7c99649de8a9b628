//! The settings that flags and the environment can set, in the form of the configuration file: they
//! serialise to the file's keys. Their checks and defaults are in `server::config`. Settings that
//! are only of use in a file (TLS, users, keyspaces, limits) have no flag.

use clap::Args;
use clap::builder::{PathBufValueParser, TypedValueParser};
use serde::Serialize;
use server::config::{EngineWord, Listen};
use std::path::PathBuf;

/// A path that a configuration file can contain.
fn path() -> impl TypedValueParser<Value = PathBuf> {
    let text = |path: PathBuf| match path.to_str() {
        Some(_) => Ok(path),
        None => Err("the configuration takes only paths in UTF-8"),
    };
    PathBufValueParser::new().try_map(text)
}

/// The top level of the file.
#[derive(Args, Serialize)]
pub(crate) struct Settings {
    /// Where the node keeps its log and state [default: portolan-data]
    #[arg(long, value_name = "DIR", env = "PORTOLAN_DATA")]
    #[arg(value_parser = path())]
    data: Option<PathBuf>,

    /// The site this node belongs to [default: site]
    #[arg(long, value_name = "NAME", env = "PORTOLAN_SITE", help_heading = "Site")]
    site: Option<String>,

    /// This node's id in its site, 1 or more [default: 1]
    #[arg(long, value_name = "N", env = "PORTOLAN_NODE", help_heading = "Site")]
    #[arg(value_parser = clap::value_parser!(u64).range(..=i64::MAX as u64))]
    node: Option<u64>,

    /// How much of the deployment's slots this site should hold, relative to other sites [default:
    /// 1]
    #[arg(long, value_name = "SHARE", env = "PORTOLAN_CAPACITY", help_heading = "Site")]
    capacity: Option<f64>,

    /// What this site can fail together with (a hall, a power line): all sites that give the same
    /// name. Backups, standbys and lent keys go to other domains where there are any; 1 to 64 of
    /// a-z, 0-9 and -, starting with a letter, the same at all nodes of the site; none: it fails
    /// alone [default: as it was; alone]
    #[arg(long, value_name = "NAME", env = "PORTOLAN_FAILURE_DOMAIN", help_heading = "Site")]
    failure_domain: Option<String>,

    /// The region that orders this site's writes to causal keyspaces: all sites that give the same
    /// name; 1 to 64 of a-z, 0-9 and -, starting with a letter. It is given when the site joins (or
    /// founds) and stays; none: the region of the sites that give no name [default: none, when it
    /// joins]
    #[arg(long, value_name = "NAME", env = "PORTOLAN_REGION", help_heading = "Site")]
    region: Option<String>,

    /// Peer ports of nodes of the site to join, or of any site of the deployment to join; without
    /// it an empty node is a site and a deployment of its own
    #[arg(long, value_name = "HOST:PORT", env = "PORTOLAN_JOIN", help_heading = "Site")]
    #[arg(value_delimiter = ',')]
    join: Vec<String>,

    #[command(flatten)]
    pub(crate) peers: Peers,

    /// Vote and keep the log's order, but no data: the third of two nodes
    #[arg(long, env = "PORTOLAN_WITNESS", help_heading = "Site")]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    witness: bool,

    /// Where the site's keys are kept: embedded (its own log), or etcd [default: embedded]
    #[arg(long, value_name = "ENGINE", env = "PORTOLAN_ENGINE", help_heading = "Engine")]
    engine: Option<EngineWord>,

    #[command(flatten)]
    etcd: Etcd,

    #[command(flatten)]
    listen: ListenAt,

    /// Open ports to other machines without users or certificates; the value must be
    /// allow-remote-without-credentials
    #[arg(long, value_name = "WORDS", env = "PORTOLAN_INSECURE", help_heading = "Ports")]
    insecure: Option<String>,

    #[command(flatten)]
    clients: Clients,

    #[command(flatten)]
    placement: Placement,
}

/// `[peers]`
#[derive(Args, Serialize)]
#[command(next_help_heading = "Site")]
pub(crate) struct Peers {
    /// A token from `portolan site token` that lets this node join. Other users of the machine can
    /// see it here: rather use --join-token-file, or the environment
    #[arg(long, value_name = "TOKEN", env = "PORTOLAN_JOIN_TOKEN", hide_env_values = true)]
    #[arg(conflicts_with = "join_token_file")]
    #[serde(skip)]
    pub(crate) join_token: Option<String>,

    /// A file with such a token, which only its owner may read
    #[arg(long, value_name = "FILE", env = "PORTOLAN_JOIN_TOKEN_FILE")]
    #[arg(value_parser = path())]
    join_token_file: Option<PathBuf>,

    /// A file with the secret by which nodes of a deployment recognise each other, one a line, the
    /// one to prove with first; only its owner may read it. Or the secret itself in
    /// PORTOLAN_PEER_SECRET
    #[arg(long = "peer-secret-file", value_name = "FILE", env = "PORTOLAN_PEER_SECRET_FILE")]
    #[arg(value_parser = path())]
    secret_file: Option<PathBuf>,

    /// The same for the nodes of this site alone, if other sites must not have it; or
    /// PORTOLAN_SITE_SECRET
    #[arg(long, value_name = "FILE", env = "PORTOLAN_SITE_SECRET_FILE")]
    #[arg(value_parser = path())]
    site_secret_file: Option<PathBuf>,

    /// Let in nodes that prove nothing, with a warning: only while secrets are introduced node by
    /// node
    #[arg(long, env = "PORTOLAN_ACCEPT_UNPROVED")]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    accept_unproved: bool,
}

/// `[etcd]`
#[derive(Args, Serialize)]
#[command(next_help_heading = "Engine")]
struct Etcd {
    /// The etcd cluster's client addresses [default: http://127.0.0.1:2379]
    #[arg(long = "etcd-endpoints", value_name = "URL", env = "PORTOLAN_ETCD_ENDPOINTS")]
    #[arg(value_delimiter = ',')]
    endpoints: Vec<String>,

    /// What the names of all the site's keys in etcd begin with [default: /portolan/SITE]
    #[arg(long = "etcd-prefix", value_name = "PREFIX", env = "PORTOLAN_ETCD_PREFIX")]
    prefix: Option<String>,

    /// Who signed the certificates of https:// endpoints, in PEM form
    #[arg(long = "etcd-ca", value_name = "FILE", env = "PORTOLAN_ETCD_CA")]
    #[arg(value_parser = path())]
    ca: Option<PathBuf>,

    /// The certificate to show etcd, in PEM form
    #[arg(long = "etcd-cert", value_name = "FILE", env = "PORTOLAN_ETCD_CERT")]
    #[arg(value_parser = path())]
    cert: Option<PathBuf>,

    /// The key of that certificate
    #[arg(long = "etcd-key", value_name = "FILE", env = "PORTOLAN_ETCD_KEY")]
    #[arg(value_parser = path())]
    key: Option<PathBuf>,

    /// The user to log in to etcd as
    #[arg(long = "etcd-user", value_name = "NAME", env = "PORTOLAN_ETCD_USER")]
    user: Option<String>,

    /// A file with that user's password
    #[arg(long = "etcd-password-file", value_name = "FILE", env = "PORTOLAN_ETCD_PASSWORD_FILE")]
    #[arg(value_parser = path())]
    password_file: Option<PathBuf>,

    /// After how many seconds of silence a standby takes the site over [default: 10]
    #[arg(long = "etcd-lease-ttl-s", value_name = "S", env = "PORTOLAN_ETCD_LEASE_TTL_S")]
    lease_ttl_s: Option<u32>,
}

/// `[listen]`
#[derive(Args, Serialize)]
#[command(next_help_heading = "Ports")]
struct ListenAt {
    /// Where Redis clients connect, or off [default: 127.0.0.1:7379]
    #[arg(long, value_name = "IP:PORT", env = "PORTOLAN_REDIS")]
    redis: Option<Listen>,

    /// Where clients of the Redis Cluster protocol connect, for global keyspaces [default: off]
    #[arg(long, value_name = "IP:PORT", env = "PORTOLAN_REDIS_CLUSTER")]
    redis_cluster: Option<Listen>,

    /// Where gRPC clients connect, or off [default: 127.0.0.1:7380]
    #[arg(long, value_name = "IP:PORT", env = "PORTOLAN_GRPC")]
    grpc: Option<Listen>,

    /// Where the other nodes of the site connect [default: 127.0.0.1:7381]
    #[arg(long, value_name = "IP:PORT", env = "PORTOLAN_PEER")]
    peer: Option<Listen>,

    /// Where health, metrics and status are served over HTTP, or off [default: 127.0.0.1:7070]
    #[arg(long, value_name = "IP:PORT", env = "PORTOLAN_ADMIN")]
    admin: Option<Listen>,

    /// How clients reach --redis-cluster, if not as it is
    #[arg(long, value_name = "HOST:PORT", env = "PORTOLAN_ADVERTISE_REDIS_CLUSTER")]
    advertise_redis_cluster: Option<String>,

    /// How the other nodes reach --peer, if not as it is
    #[arg(long, value_name = "HOST:PORT", env = "PORTOLAN_ADVERTISE")]
    advertise: Option<String>,
}

/// `[clients]`
#[derive(Args, Serialize)]
#[command(next_help_heading = "Clients")]
struct Clients {
    /// Where there are users: close a connection that has not logged in after so many seconds; 0:
    /// never [default: 10]
    #[arg(long, value_name = "S", env = "PORTOLAN_LOGIN_TIMEOUT_S")]
    login_timeout_s: Option<u32>,

    /// Close a Redis client that has asked nothing for so many seconds; 0: never [default: 0]
    #[arg(long, value_name = "S", env = "PORTOLAN_IDLE_TIMEOUT_S")]
    idle_timeout_s: Option<u32>,
}

/// `[placement]`
#[derive(Args, Serialize)]
#[command(next_help_heading = "Placement")]
struct Placement {
    /// Where a keyspace has a placement: how many of the nearest sites are measured each ten
    /// seconds, by a small message to those that no request has gone to [default: 5]
    #[arg(long, value_name = "N", env = "PORTOLAN_PROBE_NEAREST")]
    probe_nearest: Option<u32>,

    /// Measure all other sites again when one of these has changed by more than so many percent
    /// [default: 20]
    #[arg(long, value_name = "PERCENT", env = "PORTOLAN_PROBE_CHANGE_PERCENT")]
    probe_change_percent: Option<u32>,

    /// Take so many bytes of what other sites own, at most: the groups that are worth the most here;
    /// 0: as many as come [default: as before, at first 0]
    #[arg(long, value_name = "BYTES", env = "PORTOLAN_BORROWED_BYTES_MAX")]
    borrowed_bytes_max: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::Settings;
    use clap::{Args, Command, FromArgMatches};
    use server::config::{Config, Layer, file};
    use std::collections::BTreeSet;

    const EMBEDDED: &str = "--data=d --site=pier --node=70 --capacity=2.5 --failure-domain=hall \
        --region=south --join=h:71 --witness --join-token-file=token --peer-secret-file=secret --site-secret-file=own \
        --accept-unproved --redis=127.0.0.1:72 --redis-cluster=127.0.0.1:73 --grpc=127.0.0.1:74 \
        --peer=127.0.0.1:75 --admin=127.0.0.1:76 --advertise=h:77 \
        --advertise-redis-cluster=h:78 --insecure=allow-remote-without-credentials \
        --login-timeout-s=79 --idle-timeout-s=80 --probe-nearest=13 --probe-change-percent=54 \
        --borrowed-bytes-max=55";
    const ETCD: &str = "--engine=etcd --etcd-endpoints=https://h:81 --etcd-prefix=begin \
        --etcd-ca=ca --etcd-cert=cert --etcd-key=private --etcd-user=user \
        --etcd-password-file=password --etcd-lease-ttl-s=82";

    fn command() -> Command {
        Settings::augment_args(Command::new("portolan"))
    }

    /// The configuration of these flags over a file; the environment of the test is not read.
    fn config(file: &str, flags: &str) -> Config {
        let command = command().mut_args(|arg| arg.env(None::<&str>)).no_binary_name(true);
        let flags = command.get_matches_from(flags.split_whitespace());
        let over = Layer::of(&Settings::from_arg_matches(&flags).unwrap()).unwrap();
        Config::resolve(file::parse("f", file).unwrap(), over).unwrap()
    }

    #[test]
    fn every_flag_sets_a_setting() {
        let mut flags = BTreeSet::from(["join-token"]);
        for line in [EMBEDDED, ETCD] {
            let shown = config("", line).to_toml();
            for word in line.split_whitespace() {
                let (flag, value) = word.split_once('=').unwrap_or((word, "true"));
                let flag = flag.trim_start_matches("--");
                flags.insert(flag);
                let sets = |line: &str| {
                    let (key, shown) = line.split_once(" = ").unwrap_or_default();
                    flag.replace('-', "_").ends_with(key)
                        && shown.trim_matches(['[', ']', '"']) == value
                };
                assert!(shown.lines().any(sets), "{word} is not in\n{shown}");
            }
        }
        let command = command();
        assert_eq!(flags, command.get_arguments().filter_map(|arg| arg.get_long()).collect());
    }

    /// The help states defaults in words, which are the configuration's.
    #[test]
    fn a_flag_with_its_stated_default_changes_nothing() {
        // What has a default by other settings, or in a mode that has to be asked for.
        const IN_WORDS: [&str; 4] =
            ["failure-domain", "region", "borrowed-bytes-max", "etcd-prefix"];
        let command = command();
        let mut given = BTreeSet::new();
        for arg in command.get_arguments() {
            let (flag, help) = (arg.get_long().unwrap(), arg.get_help().unwrap().to_string());
            let Some((_, default)) = help.split_once("[default:") else { continue };
            given.insert(flag);
            let default = default.split(']').next().unwrap().trim();
            if IN_WORDS.contains(&flag) {
                continue;
            }
            let before = match flag.starts_with("etcd") {
                true => "--engine=etcd ",
                false => "",
            };
            let with = config("", &format!("{before}--{flag}={default}"));
            assert_eq!(with.to_toml(), config("", before).to_toml(), "--{flag} {default}");
        }
        assert!(given.len() > 14 && IN_WORDS.iter().all(|flag| given.contains(flag)), "{given:?}");
    }

    #[test]
    fn every_flag_has_a_variable_of_its_name() {
        for arg in command().get_arguments() {
            let flag = arg.get_long().unwrap();
            let name = format!("PORTOLAN_{}", flag.replace('-', "_").to_uppercase());
            assert_eq!(arg.get_env().unwrap(), name.as_str());
        }
    }

    #[test]
    fn a_flag_that_is_not_given_leaves_the_file() {
        let file = "witness = true\njoin = [\"h:1\"]\n[peers]\naccept_unproved = true\n\
                    [clients]\nkeepalive_s = 7\nidle_timeout_s = 8";
        let config = config(file, "--idle-timeout-s=0");
        assert!(config.witness && config.peers.accept_unproved == Some(true));
        assert_eq!(config.join, ["h:1"]);
        assert_eq!(config.clients.keepalive.unwrap().as_secs(), 7);
        assert_eq!(config.clients.idle_timeout, None);
    }
}
