//! `serve` and `check-config`: flags and environment over a file over the defaults, and a node that
//! runs until it is asked to stop.

use super::connect::read;
use super::failed::Failed;
use super::settings::Settings;
use super::show;
use clap::Args;
use front::admin::Admin;
use front::grpc::{self, Grpc};
use front::redis::{self, RedisFront};
use server::config::{Config, Layer, Secrets, file};
use server::peers::Hidden;
use server::{Node, StartError, Stopped};
use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::prelude::*;

const AFTER_HELP: &str = "\
Flags win over the environment, the environment over the file, the file over the defaults.
`portolan check-config` takes the same flags and prints the result.

Examples:
  portolan serve
  portolan serve --config /etc/portolan.toml
  portolan serve --node 2 --data n2 --join 127.0.0.1:7381 --peer 127.0.0.1:7481 \\
      --redis 127.0.0.1:7479 --grpc 127.0.0.1:7480 --admin off";

/// Flags of `serve` and `check-config`.
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Flags {
    /// A configuration file in TOML
    #[arg(long, value_name = "FILE", env = "PORTOLAN_CONFIG")]
    config: Option<PathBuf>,

    /// What to log: error, warn, info, debug, trace, or also for single modules: warn,server=debug
    #[arg(long, value_name = "LEVEL", env = "PORTOLAN_LOG", default_value = "info")]
    log: String,

    #[command(flatten)]
    settings: Settings,
}

impl Flags {
    /// The checked configuration.
    fn config(self) -> Result<Config, Failed> {
        let file = match &self.config {
            None => Layer::default(),
            Some(path) => file::parse(&path.display().to_string(), &read("--config", path)?)
                .map_err(Failed::cannot_serve)?,
        };
        let mut over = Layer::of(&self.settings).map_err(Failed::cannot_serve)?;
        over.secrets = Secrets {
            secret: from_environment("PORTOLAN_PEER_SECRET"),
            site_secret: from_environment("PORTOLAN_SITE_SECRET"),
            join_token: self.settings.peers.join_token.map(Hidden::from),
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
    let mut signals = Signals::listen().map_err(Failed::cannot_serve)?;
    // A site in etcd may go to another process and come back to this one.
    loop {
        let Some(node) = start(&config, &mut signals)? else { return Ok(()) };
        let fronts = Fronts::open(&node, &config)?;
        let (site, peer) = (&config.site, node.peer_address());
        tracing::info!("{} of site {site} serves: {fronts}, peer {peer}", config.node);
        let end = until_stopped(&node, &mut signals);
        drop(fronts);
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

/// Starts the node; `None`: it was asked to stop meanwhile. That can take as long as another
/// process serves the site.
fn start(config: &Config, signals: &mut Signals) -> Result<Option<Node>, Failed> {
    loop {
        let (sender, started) = tokio::sync::oneshot::channel();
        let config = config.clone();
        std::thread::spawn(move || drop(sender.send(Node::start(&config))));
        match signals.unless_stopped(started) {
            None => return Ok(None),
            Some(Ok(Ok(node))) => return Ok(Some(node)),
            Some(Ok(Err(StartError::Deposed(why)))) => deposed(&why),
            Some(Ok(Err(error))) => return Err(Failed::cannot_serve(error)),
            Some(Err(_)) => return Err(Failed::cannot_serve("the start panicked; see above")),
        }
    }
}

/// The open ports of a node, as its configuration wants them. They close when this is dropped.
struct Fronts {
    redis: Option<RedisFront>,
    redis_cluster: Option<RedisFront>,
    grpc: Option<Grpc>,
    admin: Option<Admin>,
}

impl Fronts {
    fn open(node: &Node, config: &Config) -> Result<Fronts, Failed> {
        let (ports, tls, front) = (&config.ports, &config.tls, &config.front);
        let grpc = ports.grpc.map(|address| {
            let tls = tls.grpc.clone();
            let (threads, connections_max) = (front.threads, front.connections_max);
            Grpc::open(node, &grpc::Options { address, tls, threads, connections_max })
        });
        let grpc = grpc.transpose().map_err(Failed::cannot_serve)?;
        let redis = |options| RedisFront::open(node, options).map_err(Failed::cannot_serve);
        let redis_cluster = redis::Options::of_cluster(config).map(redis).transpose()?;
        let redis = redis::Options::of(config).map(redis).transpose()?;
        // The last one: once `/readyz` reports that the node is ready, its other ports are open.
        let admin = ports.admin.map(|address| Admin::open(node, address, tls.admin.as_ref()));
        let admin = admin.transpose().map_err(Failed::cannot_serve)?;
        Ok(Fronts { redis, redis_cluster, grpc, admin })
    }
}

impl std::fmt::Display for Fronts {
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

fn until_stopped(node: &Node, signals: &mut Signals) -> Stopped {
    signals.unless_stopped(node.stopped()).unwrap_or_else(|| {
        tracing::info!("stopping");
        Stopped::Asked
    })
}

/// The signals that ask the process to stop: interrupt and terminate. They are listened for from
/// the start on, so that none is lost that arrives between two waits.
struct Signals {
    runtime: tokio::runtime::Runtime,
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
}

impl Signals {
    fn listen() -> io::Result<Signals> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        #[cfg(unix)]
        {
            use tokio::signal::unix::{SignalKind, signal};
            let on_runtime = runtime.enter();
            let interrupt = signal(SignalKind::interrupt())?;
            let terminate = signal(SignalKind::terminate())?;
            drop(on_runtime);
            Ok(Signals { runtime, interrupt, terminate })
        }
        #[cfg(not(unix))]
        Ok(Signals { runtime })
    }

    /// Waits for something; `None`: the process was asked to stop before.
    fn unless_stopped<T>(&mut self, awaited: impl Future<Output = T>) -> Option<T> {
        #[cfg(unix)]
        let (interrupt, terminate) = (&mut self.interrupt, &mut self.terminate);
        self.runtime.block_on(async {
            #[cfg(unix)]
            let asked = async {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
            };
            #[cfg(not(unix))]
            let asked = tokio::signal::ctrl_c();
            tokio::select! {
                done = awaited => Some(done),
                _ = asked => None,
            }
        })
    }
}

fn begin_log(level: &str) -> Result<(), Failed> {
    let targets: Targets =
        level.parse().map_err(|error| Failed::usage(format!("--log {level}: {error}")))?;
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .with_target(false);
    tracing_subscriber::registry().with(targets).with(lines).init();
    Ok(())
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn a_signal_between_two_waits_is_not_lost() {
        let mut signals = Signals::listen().unwrap();
        assert_eq!(signals.unless_stopped(async { 1 }), Some(1));
        let own = rustix::process::getpid();
        rustix::process::kill_process(own, rustix::process::Signal::TERM).unwrap();
        assert_eq!(signals.unless_stopped(std::future::pending::<()>()), None);
    }
}
