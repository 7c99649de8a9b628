//! A real etcd cluster on loopback, built from the Go module proxy on first use.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use crate::node::http_get;
use crate::tls::Certificates;
use crate::toolchain::required;
use crate::{binary, eventually, ports};

const READY_MAX: Duration = Duration::from_secs(60);

/// The program, as the benchmarks install it; `None`, with a line on standard error, if it cannot
/// be installed.
///
/// # Panics
/// When it cannot be installed and is [required].
#[must_use]
pub fn program() -> Option<&'static Path> {
    static PROGRAM: OnceLock<Option<PathBuf>> = OnceLock::new();
    PROGRAM.get_or_init(install).as_deref()
}

fn install() -> Option<PathBuf> {
    let script = binary::root().join("bench/peers/etcd.sh");
    let installed = Command::new(script).arg("install").status().is_ok_and(|done| done.success());
    if !installed {
        assert!(!required(), "etcd is needed and cannot be installed");
        eprintln!(
            "SKIPPED: etcd cannot be installed (it needs go), so sites on etcd are not tested"
        );
        return None;
    }
    let root = std::env::var_os("PORTOLAN_PEERS").map(PathBuf::from).or_else(|| {
        std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache/portolan-peers"))
    });
    root.map(|root| root.join("etcd/bin/etcd"))
}

/// Three members, each a process; they end when the value is dropped.
#[derive(Debug)]
pub struct Etcd {
    members: Vec<Member>,
    tls: Option<Certificates>,
}

#[derive(Debug)]
struct Member {
    client: SocketAddr,
    health: SocketAddr,
    arguments: Vec<String>,
    log: PathBuf,
    child: Option<Child>,
}

impl Etcd {
    /// Starts a new cluster with its data in `folder` and waits until all members answer; `None`:
    /// it cannot be installed.
    ///
    /// # Panics
    /// When it is there and does not start.
    #[must_use]
    pub fn start(folder: &Path) -> Option<Self> {
        Self::start_with(folder, None)
    }

    /// The same; with certificates its clients use TLS and present one, too.
    ///
    /// # Panics
    /// When it is there and does not start.
    #[must_use]
    pub fn start_with(folder: &Path, tls: Option<Certificates>) -> Option<Self> {
        program()?;
        let scheme = if tls.is_some() { "https" } else { "http" };
        let addresses: Vec<_> = (0..3).map(|_| (ports::free(), ports::free())).collect();
        let names = addresses.iter().enumerate();
        let cluster: Vec<_> = names.map(|(n, (_, peer))| format!("n{n}=http://{peer}")).collect();
        let token = format!("field-{}", addresses[0].0);
        let member = |(n, (client, peer)): (usize, &(SocketAddr, SocketAddr))| {
            let data = folder.join(format!("etcd{n}"));
            let health = ports::free();
            let arguments = [
                ("--name", format!("n{n}")),
                ("--data-dir", data.display().to_string()),
                ("--listen-client-urls", format!("{scheme}://{client}")),
                ("--advertise-client-urls", format!("{scheme}://{client}")),
                ("--listen-peer-urls", format!("http://{peer}")),
                ("--initial-advertise-peer-urls", format!("http://{peer}")),
                ("--initial-cluster", cluster.join(",")),
                ("--initial-cluster-token", token.clone()),
                ("--listen-metrics-urls", format!("http://{health}")),
                ("--log-level", "warn".to_owned()),
            ];
            let arguments = arguments.into_iter().flat_map(|(name, value)| [name.into(), value]);
            let mut arguments: Vec<String> = arguments.collect();
            if let Some(tls) = &tls {
                let files = [
                    ("--cert-file", &tls.cert),
                    ("--key-file", &tls.key),
                    ("--trusted-ca-file", &tls.ca),
                ];
                for (name, file) in files {
                    arguments.extend([name.to_owned(), file.display().to_string()]);
                }
                arguments.push("--client-cert-auth".to_owned());
            }
            let log = folder.join(format!("etcd{n}.log"));
            Member { client: *client, health, arguments, log, child: None }
        };
        let members = addresses.iter().enumerate().map(member).collect();
        let mut etcd = Self { members, tls };
        (0..3).for_each(|n| etcd.members[n].spawn());
        etcd.wait_ready();
        Some(etcd)
    }

    /// The addresses for clients, separated by commas.
    #[must_use]
    pub fn endpoints(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let all: Vec<_> = self.members.iter().map(|m| format!("{scheme}://{}", m.client)).collect();
        all.join(",")
    }

    /// Runs etcd's own command line with these arguments and returns its output.
    ///
    /// # Errors
    /// Its error output when it fails.
    ///
    /// # Panics
    /// When etcd is not installed.
    pub fn ctl(&self, words: &[&str]) -> Result<String, String> {
        let program = program().expect("it was there at the start").with_file_name("etcdctl");
        let endpoints = format!("--endpoints={}", self.endpoints());
        let mut arguments = vec![endpoints];
        if let Some(tls) = &self.tls {
            let files = [("cacert", &tls.ca), ("cert", &tls.cert), ("key", &tls.key)];
            arguments.extend(files.map(|(name, file)| format!("--{name}={}", file.display())));
        }
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        binary::run(&program, &[&arguments, words].concat())
    }

    /// `kill -9` of a member.
    pub fn kill(&mut self, member: usize) {
        self.members[member].kill();
    }

    /// Starts a member that was killed, and waits until all that run answer.
    pub fn restart(&mut self, member: usize) {
        self.members[member].spawn();
        self.wait_ready();
    }

    /// Waits until every running member reports that it is healthy.
    fn wait_ready(&self) {
        for member in self.members.iter().filter(|member| member.child.is_some()) {
            let ready = eventually(READY_MAX, || match http_get(member.health, "/health")? {
                (200, body) if body.contains("true") => Ok(()),
                (code, body) => Err(format!("/health answers {code}: {body}")),
            });
            let log = fs::read_to_string(&member.log).unwrap_or_default();
            let last = log.lines().last().unwrap_or_default();
            assert!(ready.is_ok(), "etcd: {}; its log ends with {last}", ready.unwrap_err());
        }
    }
}

impl Member {
    fn spawn(&mut self) {
        let log = File::options().create(true).append(true).open(&self.log);
        let log = log.expect("a test's folder can be written");
        let program = program().expect("it was there at the start");
        let child = Command::new(program)
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a file handle can be doubled"))
            .stderr(log)
            .spawn();
        self.child =
            Some(child.unwrap_or_else(|e| panic!("cannot start {}: {e}", program.display())));
    }

    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // An error here means that it has ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.kill();
    }
}
