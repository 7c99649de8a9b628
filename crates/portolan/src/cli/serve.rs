//! `serve` and `check-config`: flags and environment over a file over the defaults, and a node that
//! runs until it is asked to stop.

use super::connect::read;
use super::failed::Failed;
use super::show;
use clap::Args;
use front::admin::Admin;
use front::grpc::{self, Grpc};
use front::redis::{self, RedisFront};
use server::config::{Config, EngineWord, EtcdLayer, Layer, Listen, PeersConfig, file};
use server::peers::Hidden;
use server::{Node, StartError, Stopped};
use std::io::{self, IsTerminal as _};
use std::path::PathBuf;

const AFTER_HELP: &str = "\
Flags win over the environment, the environment over the file, the file over the defaults.
`portolan check-config` takes the same flags and prints the result.

Examples:
  portolan serve
  portolan serve --config /etc/portolan.toml
  portolan serve --node 2 --data n2 --join 127.0.0.1:7381 --peer 127.0.0.1:7481 \\
      --redis 127.0.0.1:7479 --grpc 127.0.0.1:7480 --admin off";

/// What `serve` and `check-config` are told.
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Flags {
    /// A configuration file in TOML
    #[arg(long, value_name = "FILE", env = "PORTOLAN_CONFIG")]
    config: Option<PathBuf>,

    /// Where the node keeps its log and state [default: portolan-data]
    #[arg(long, value_name = "DIR", env = "PORTOLAN_DATA")]
    data: Option<PathBuf>,

    /// What to log: error, warn, info, debug, trace, or directives as of RUST_LOG
    #[arg(long, value_name = "LEVEL", env = "PORTOLAN_LOG", default_value = "info")]
    log: String,

    /// The site this node belongs to [default: site]
    #[arg(long, value_name = "NAME", env = "PORTOLAN_SITE", help_heading = "Site")]
    site: Option<String>,

    /// This node's id in its site, 1 or more [default: 1]
    #[arg(long, value_name = "N", env = "PORTOLAN_NODE", help_heading = "Site")]
    node: Option<u64>,

    /// How much of the deployment's slots this site should hold, relative to other sites [default: 1]
    #[arg(long, value_name = "SHARE", env = "PORTOLAN_CAPACITY", help_heading = "Site")]
    capacity: Option<f64>,

    /// Peer ports of nodes of the site to join, or of any site of the deployment to join; without it
    /// an empty node is a site and a deployment of its own
    #[arg(long, value_name = "HOST:PORT", env = "PORTOLAN_JOIN", help_heading = "Site")]
    #[arg(value_delimiter = ',')]
    join: Vec<String>,

    /// A token from `portolan site token` that lets this node join. Other users of the machine can see it
    /// here: rather use --join-token-file, or the environment
    #[arg(long, value_name = "TOKEN", env = "PORTOLAN_JOIN_TOKEN", hide_env_values = true)]
    #[arg(help_heading = "Site", conflicts_with = "join_token_file")]
    join_token: Option<String>,

    /// A file with such a token, which only its owner may read
    #[arg(long, value_name = "FILE", env = "PORTOLAN_JOIN_TOKEN_FILE", help_heading = "Site")]
    join_token_file: Option<PathBuf>,

    /// A file with the secret by which nodes of a deployment know each other, one a line, the one to prove
    /// with first; only its owner may read it. Or the secret itself in PORTOLAN_PEER_SECRET
    #[arg(long, value_name = "FILE", env = "PORTOLAN_PEER_SECRET_FILE", help_heading = "Site")]
    peer_secret_file: Option<PathBuf>,

    /// The same for the nodes of this site alone, if other sites are not to know it; or
    /// PORTOLAN_SITE_SECRET
    #[arg(long, value_name = "FILE", env = "PORTOLAN_SITE_SECRET_FILE", help_heading = "Site")]
    site_secret_file: Option<PathBuf>,

    /// Let in nodes that prove nothing, with a warning: only while secrets are introduced node by node
    #[arg(long, env = "PORTOLAN_ACCEPT_UNPROVED", help_heading = "Site")]
    accept_unproved: bool,

    /// Vote and keep the log's order, but no data: the third of two nodes
    #[arg(long, env = "PORTOLAN_WITNESS", help_heading = "Site")]
    witness: bool,

    /// Where the site's keys are kept: embedded (its own log), or etcd [default: embedded]
    #[arg(long, value_name = "ENGINE", env = "PORTOLAN_ENGINE", help_heading = "Engine")]
    engine: Option<EngineWord>,

    /// The etcd cluster's client addresses [default: http://127.0.0.1:2379]
    #[arg(long, value_name = "URL", env = "PORTOLAN_ETCD_ENDPOINTS", help_heading = "Engine")]
    #[arg(value_delimiter = ',')]
    etcd_endpoints: Vec<String>,

    /// What the names of all the site's keys in etcd begin with [default: /portolan/SITE]
    #[arg(long, value_name = "PREFIX", env = "PORTOLAN_ETCD_PREFIX", help_heading = "Engine")]
    etcd_prefix: Option<String>,

    /// Who signed the certificates of https:// endpoints, in PEM form
    #[arg(long, value_name = "FILE", env = "PORTOLAN_ETCD_CA", help_heading = "Engine")]
    etcd_ca: Option<PathBuf>,

    /// The certificate to show etcd, in PEM form
    #[arg(long, value_name = "FILE", env = "PORTOLAN_ETCD_CERT", help_heading = "Engine")]
    etcd_cert: Option<PathBuf>,

    /// The key of that certificate
    #[arg(long, value_name = "FILE", env = "PORTOLAN_ETCD_KEY", help_heading = "Engine")]
    etcd_key: Option<PathBuf>,

    /// The user to log in to etcd as
    #[arg(long, value_name = "NAME", env = "PORTOLAN_ETCD_USER", help_heading = "Engine")]
    etcd_user: Option<String>,

    /// A file with that user's password
    #[arg(long, value_name = "FILE", env = "PORTOLAN_ETCD_PASSWORD_FILE", help_heading = "Engine")]
    etcd_password_file: Option<PathBuf>,

    /// After how many seconds of silence a standby takes the site over [default: 10]
    #[arg(long, value_name = "S", env = "PORTOLAN_ETCD_LEASE_TTL_S", help_heading = "Engine")]
    etcd_lease_ttl_s: Option<u64>,

    /// Where Redis clients connect, or off [default: 127.0.0.1:7379]
    #[arg(long, value_name = "IP:PORT", env = "PORTOLAN_REDIS", help_heading = "Ports")]
    redis: Option<Listen>,

    /// Where clients of the Redis Cluster protocol connect, for global keyspaces [default: off]
    #[arg(long, value_name = "IP:PORT", env = "PORTOLAN_REDIS_CLUSTER", help_heading = "Ports")]
    redis_cluster: Option<Listen>,

    /// Where gRPC clients connect, or off [default: 127.0.0.1:7380]
    #[arg(long, value_name = "IP:PORT", env = "PORTOLAN_GRPC", help_heading = "Ports")]
    grpc: Option<Listen>,

    /// Where the other nodes of the site connect [default: 127.0.0.1:7381]
    #[arg(long, value_name = "IP:PORT", env = "PORTOLAN_PEER", help_heading = "Ports")]
    peer: Option<Listen>,

    /// Where health, metrics and status are served over HTTP, or off [default: 127.0.0.1:7070]
    #[arg(long, value_name = "IP:PORT", env = "PORTOLAN_ADMIN", help_heading = "Ports")]
    admin: Option<Listen>,

    /// How clients reach --redis-cluster, if not as it is
    #[arg(long, value_name = "HOST:PORT", env = "PORTOLAN_ADVERTISE_REDIS_CLUSTER")]
    #[arg(help_heading = "Ports")]
    advertise_redis_cluster: Option<String>,

    /// How the other nodes reach --peer, if not as it is
    #[arg(long, value_name = "HOST:PORT", env = "PORTOLAN_ADVERTISE", help_heading = "Ports")]
    advertise: Option<String>,

    /// Open ports to other machines without users or certificates; the value must be
    /// allow-remote-without-credentials
    #[arg(long, value_name = "WORDS", env = "PORTOLAN_INSECURE", help_heading = "Ports")]
    insecure: Option<String>,

    #[command(flatten)]
    clients: super::clients::Clients,
}

impl Flags {
    /// The checked configuration.
    fn config(self) -> Result<Config, Failed> {
        let file = match &self.config {
            None => Layer::default(),
            Some(path) => file::parse(&path.display().to_string(), &read("--config", path)?)
                .map_err(Failed::cannot_serve)?,
        };
        let over = Layer {
            site: self.site,
            node: self.node,
            data: self.data,
            join: self.join,
            witness: self.witness.then_some(true),
            engine: self.engine,
            etcd: EtcdLayer {
                endpoints: self.etcd_endpoints,
                prefix: self.etcd_prefix,
                ca: self.etcd_ca,
                cert: self.etcd_cert,
                key: self.etcd_key,
                user: self.etcd_user,
                password_file: self.etcd_password_file,
                lease_ttl_s: self.etcd_lease_ttl_s,
            },
            peers: PeersConfig {
                secret: from_environment("PORTOLAN_PEER_SECRET"),
                secret_file: self.peer_secret_file,
                site_secret: from_environment("PORTOLAN_SITE_SECRET"),
                site_secret_file: self.site_secret_file,
                join_token: self.join_token.map(Hidden::from),
                join_token_file: self.join_token_file,
                accept_unproved: self.accept_unproved.then_some(true),
            },
            redis: self.redis,
            redis_cluster: self.redis_cluster,
            advertise_redis_cluster: self.advertise_redis_cluster,
            capacity: self.capacity,
            grpc: self.grpc,
            peer: self.peer,
            admin: self.admin,
            advertise: self.advertise,
            insecure: self.insecure,
            clients: self.clients.layer(),
            ..Layer::default()
        };
        Config::resolve_on(file, over, server::peers::has_secret).map_err(Failed::cannot_serve)
    }
}

/// A secret: no flag has it, as others could see the command line.
fn from_environment(name: &str) -> Option<Hidden> {
    std::env::var(name).ok().filter(|text| !text.is_empty()).map(Hidden::from)
}

/// Prints the effective configuration, or fails with what is wrong with it.
pub(crate) fn check(flags: Flags) -> Result<(), Failed> {
    let config = flags.config()?;
    for warning in config.warnings() {
        show::print(format_args!("# warning: {warning}"))?;
    }
    Ok(show::print(config.to_toml().trim_end())?)
}

/// Runs a node until it is asked to stop (interrupt, terminate) or cannot go on.
pub(crate) fn serve(flags: Flags) -> Result<(), Failed> {
    begin_log(&flags.log)?;
    let config = flags.config()?;
    for warning in config.warnings() {
        tracing::warn!("{warning}");
    }
    // A site in etcd may go to another process and come back to this one.
    loop {
        let Some(node) = start(&config)? else { return Ok(()) };
        let doors = Doors::open(&node, &config)?;
        let (site, peer) = (&config.site, node.peer_address());
        tracing::info!("{} of site {site} serves: {doors}, peer {peer}", config.node);
        let end = until_stopped(&node)?;
        drop(doors);
        node.stop();
        match end {
            Stopped::Asked => return Ok(()),
            Stopped::Failed(why) => return Err(Failed::cannot_serve(why)),
            Stopped::Deposed(why) => deposed(&why),
        }
    }
}

fn deposed(why: &str) {
    tracing::warn!(
        "{why}; what was not acknowledged is dropped, and this process waits for its turn"
    );
}

/// Starts the node; `None`: it was asked to stop meanwhile. That can take as long as another process
/// serves the site.
fn start(config: &Config) -> Result<Option<Node>, Failed> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(Failed::cannot_serve)?;
    loop {
        let (sender, started) = tokio::sync::oneshot::channel();
        let config = config.clone();
        std::thread::spawn(move || drop(sender.send(Node::start(&config))));
        let started = runtime.block_on(async {
            tokio::select! {
                started = started => Some(started),
                _ = asked_to_stop() => None,
            }
        });
        match started {
            None => return Ok(None),
            Some(Ok(Ok(node))) => return Ok(Some(node)),
            Some(Ok(Err(StartError::Deposed(why)))) => deposed(&why),
            Some(Ok(Err(error))) => return Err(Failed::cannot_serve(error)),
            Some(Err(_)) => return Err(Failed::cannot_serve("the start panicked; see above")),
        }
    }
}

/// The open ports of a node, as its configuration wants them. They close when this is dropped.
struct Doors {
    redis: Option<RedisFront>,
    redis_cluster: Option<RedisFront>,
    grpc: Option<Grpc>,
    admin: Option<Admin>,
}

impl Doors {
    fn open(node: &Node, config: &Config) -> Result<Doors, Failed> {
        let (ports, tls, front) = (&config.ports, &config.tls, &config.front);
        let grpc = ports.grpc.map(|address| {
            let tls = tls.grpc.clone();
            let (threads, connections_max) = (front.threads, front.connections_max);
            Grpc::open(node, &grpc::Options { address, tls, threads, connections_max })
        });
        let admin = ports.admin.map(|address| Admin::open(node, address, tls.admin.as_ref()));
        let redis = redis::Options::of(config).map_err(Failed::cannot_serve)?;
        let redis = redis.map(|options| RedisFront::start(node, options));
        let cluster = redis::Options::of_cluster(config).map_err(Failed::cannot_serve)?;
        let cluster = cluster.map(|options| RedisFront::start(node, options));
        Ok(Doors {
            redis: redis.transpose().map_err(Failed::cannot_serve)?,
            redis_cluster: cluster.transpose().map_err(Failed::cannot_serve)?,
            grpc: grpc.transpose().map_err(Failed::cannot_serve)?,
            admin: admin.transpose().map_err(Failed::cannot_serve)?,
        })
    }
}

impl std::fmt::Display for Doors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let redis = self.redis.as_ref().map(RedisFront::address);
        let grpc = self.grpc.as_ref().map(Grpc::address);
        let admin = self.admin.as_ref().map(Admin::address);
        let cluster = self.redis_cluster.as_ref().map(RedisFront::address);
        let ports =
            [("redis", redis), ("redis-cluster", cluster), ("grpc", grpc), ("admin", admin)];
        let shown = ports.map(|(port, address)| match address {
            Some(address) => format!("{port} {address}"),
            None => format!("{port} off"),
        });
        f.write_str(&shown.join(", "))
    }
}

fn until_stopped(node: &Node) -> Result<Stopped, Failed> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(Failed::cannot_serve)?.block_on(async {
        tokio::select! {
            stopped = node.stopped() => Ok(stopped),
            asked = asked_to_stop() => {
                asked.map_err(Failed::cannot_serve)?;
                tracing::info!("stopping");
                Ok(Stopped::Asked)
            }
        }
    })
}

/// Ends when the process is interrupted, or told to terminate.
async fn asked_to_stop() -> io::Result<()> {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let mut terminate = signal(SignalKind::terminate())?;
        tokio::select! {
            interrupted = tokio::signal::ctrl_c() => interrupted,
            _ = terminate.recv() => Ok(()),
        }
    }
    #[cfg(not(unix))]
    tokio::signal::ctrl_c().await
}

fn begin_log(level: &str) -> Result<(), Failed> {
    let filter = tracing_subscriber::EnvFilter::try_new(level)
        .map_err(|error| Failed::usage(format!("--log {level}: {error}")))?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .with_target(false)
        .init();
    Ok(())
}
