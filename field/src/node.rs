//! One `portolan serve` process.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

use serde::Deserialize;

use crate::{binary, eventually, ports};

/// How long a node may take to become ready; a debug build on a busy machine is slow.
const READY_MAX: Duration = Duration::from_secs(60);
/// How long a node may take to end when it is asked to.
const STOP_MAX: Duration = Duration::from_secs(30);

/// How a node is started: its place in the site, its ports, and whatever else a test sets.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// The program; by default the one under test.
    pub program: PathBuf,
    /// `--site`.
    pub site: String,
    /// `--node`.
    pub node: u64,
    /// `--data`. Beside it lies the node's log, with `.log` added to the name.
    pub data: PathBuf,
    /// `--redis`.
    pub redis: SocketAddr,
    /// `--grpc`.
    pub grpc: SocketAddr,
    /// `--peer`.
    pub peer: SocketAddr,
    /// `--admin`.
    pub admin: SocketAddr,
    /// `--join`: the address of a member.
    pub join: Option<SocketAddr>,
    /// Arguments added at the end.
    pub more: Vec<String>,
    /// The admin port serves TLS, with a certificate that this authority has signed.
    pub admin_ca: Option<PathBuf>,
}

impl NodeOptions {
    /// A node on free loopback ports, its data in a folder of its own inside `folder`.
    #[must_use]
    pub fn new(folder: &Path, node: u64) -> Self {
        Self {
            program: binary::portolan().to_owned(),
            site: "field".into(),
            node,
            data: folder.join(format!("n{node}")),
            redis: ports::free(),
            grpc: ports::free(),
            peer: ports::free(),
            admin: ports::free(),
            join: None,
            more: Vec::new(),
            admin_ca: None,
        }
    }

    /// Gives it a configuration file with this text.
    ///
    /// # Panics
    /// When the file cannot be written.
    pub fn configure(&mut self, toml: &str) {
        let path = self.beside("toml");
        fs::write(&path, toml).expect("a test's folder can be written");
        self.more.extend(["--config".to_owned(), path.display().to_string()]);
    }

    /// The command line.
    #[must_use]
    pub fn arguments(&self) -> Vec<String> {
        let mut arguments = vec!["serve".to_owned()];
        let mut flag = |name: &str, value: String| arguments.extend([name.to_owned(), value]);
        flag("--site", self.site.clone());
        flag("--node", self.node.to_string());
        flag("--data", self.data.display().to_string());
        flag("--redis", self.redis.to_string());
        flag("--grpc", self.grpc.to_string());
        flag("--peer", self.peer.to_string());
        flag("--admin", self.admin.to_string());
        if let Some(join) = self.join {
            flag("--join", join.to_string());
        }
        arguments.extend(self.more.iter().cloned());
        arguments
    }

    /// Starts the process, without waiting for it to be ready.
    ///
    /// # Panics
    /// When it cannot be started at all.
    #[must_use]
    pub fn spawn(&self) -> Node {
        let log = self.log();
        let out = open_log(&log);
        let child = binary::command(&self.program)
            .args(self.arguments())
            .stdout(out.try_clone().expect("a file handle can be doubled"))
            .stderr(out)
            .spawn()
            .unwrap_or_else(|e| panic!("cannot start {}: {e}", self.program.display()));
        Node { options: self.clone(), child: Some(child) }
    }

    /// Starts the process and waits until it serves.
    ///
    /// # Panics
    /// When it does not become ready; its log has the reason.
    #[must_use]
    pub fn start(&self) -> Node {
        let mut node = self.spawn();
        node.wait_ready();
        node
    }

    /// The file with the process's output.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.beside("log")
    }

    /// A file beside the data folder, with its name and this ending.
    fn beside(&self, ending: &str) -> PathBuf {
        let mut name = self.data.clone().into_os_string();
        name.push(format!(".{ending}"));
        name.into()
    }
}

fn open_log(path: &Path) -> File {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).expect("a test's folder can be made");
    }
    OpenOptions::new().create(true).append(true).open(path).expect("a log can be opened")
}

/// The part of `/status` that tests use.
#[derive(Clone, Debug, Deserialize)]
pub struct Status {
    /// The node that answered.
    pub node: u64,
    /// The leader, by this node's status.
    pub leader: Option<u64>,
    /// The nodes of the site.
    pub members: Vec<Member>,
}

/// A node as `/status` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Member {
    /// Its number.
    pub node: u64,
    /// `voter`, `learner` or `witness`.
    pub role: String,
}

impl Status {
    /// Whether the node that answered leads.
    #[must_use]
    pub fn leads(&self) -> bool {
        self.leader == Some(self.node)
    }

    /// How many members vote.
    #[must_use]
    pub fn voters(&self) -> usize {
        self.members.iter().filter(|member| member.role != "learner").count()
    }
}

/// A running node. It is killed when dropped, and its log is printed if the test has failed.
#[derive(Debug)]
pub struct Node {
    /// How it was started, and how [`Node::restart`] starts it again.
    pub options: NodeOptions,
    child: Option<Child>,
}

impl Node {
    /// Waits until `/readyz` answers 200.
    ///
    /// # Panics
    /// When the process ends first, or takes longer than a minute.
    pub fn wait_ready(&mut self) {
        let ready = eventually(READY_MAX, || {
            if let Some(status) = self.exited() {
                // No reason to keep waiting: an inner error ends the loop.
                return Ok(Err(format!("ended with {status} before it was ready")));
            }
            self.ready().map(Ok)
        });
        let ready = ready.and_then(|inner| inner);
        assert!(ready.is_ok(), "node {}: {}", self.options.node, ready.unwrap_err());
    }

    fn ready(&self) -> Result<(), String> {
        let (status, body) = self.admin("/readyz")?;
        if status == 200 { Ok(()) } else { Err(format!("/readyz answers {status}: {body}")) }
    }

    /// Sends a GET to the admin port; returns the status and the body. Over TLS, curl does it.
    pub fn admin(&self, path: &str) -> Result<(u16, String), String> {
        match &self.options.admin_ca {
            None => http_get(self.options.admin, path),
            Some(ca) => https_get(self.options.admin, path, ca),
        }
    }

    /// The content of `/status`.
    pub fn status(&self) -> Result<Status, String> {
        let (code, body) = self.admin("/status")?;
        if code != 200 {
            return Err(format!("/status answers {code}: {body}"));
        }
        serde_json::from_str(&body).map_err(|e| format!("/status answers {body:?}: {e}"))
    }

    /// Runs the program with a command for this node, as an operator would, and returns its output.
    ///
    /// # Errors
    /// Its error output when it fails.
    pub fn cli(&self, words: &[&str]) -> Result<String, String> {
        let grpc = self.options.grpc.to_string();
        binary::run(&self.options.program, &[words, &["--server", &grpc]].concat())
    }

    /// Its process id.
    ///
    /// # Panics
    /// When it is not running.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("the node runs").id()
    }

    /// Whether it was started and the test has not killed or stopped it.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.child.is_some()
    }

    /// The process's exit status, if it has ended.
    pub fn exited(&mut self) -> Option<ExitStatus> {
        self.child.as_mut()?.try_wait().expect("a child can be asked")
    }

    /// Waits until the process ends by itself.
    pub fn wait_exit(&mut self, limit: Duration) -> Result<ExitStatus, String> {
        eventually(limit, || self.exited().ok_or_else(|| "it runs on".to_owned()))
    }

    /// `kill -9`: data that is not durable is lost, as after a crash.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // An error here means that it has ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Suspends the process (SIGSTOP) or resumes it (SIGCONT). When it returns, no thread of a
    /// suspended process runs: the first one that takes the signal stops the others, and on a busy
    /// machine that takes a while.
    ///
    /// # Panics
    /// When it does not run.
    pub fn sleep(&self, sleeps: bool) {
        let (pid, signal) = (self.pid().to_string(), if sleeps { "-STOP" } else { "-CONT" });
        let sent = Command::new("kill").args([signal, &pid]).status();
        assert!(sent.is_ok_and(|s| s.success()), "kill {signal} {pid}");
        if sleeps {
            let sleeps = || match threads_awake(&pid) {
                0 => Ok(()),
                awake => Err(format!("{awake} threads of {pid} run")),
            };
            eventually(READY_MAX, sleeps).expect("SIGSTOP stops a process");
        }
    }

    /// Stops it (SIGTERM) and waits until it has ended.
    ///
    /// # Panics
    /// When it does not end.
    pub fn stop(&mut self) -> ExitStatus {
        let pid = self.pid().to_string();
        let asked = Command::new("kill").args(["-TERM", &pid]).status();
        assert!(asked.is_ok_and(|s| s.success()), "kill -TERM {pid}");
        let status = self.wait_exit(STOP_MAX).expect("a node ends when asked");
        self.child = None;
        status
    }

    /// Starts it again on the same data and ports, and waits until it is ready.
    pub fn restart(&mut self) {
        self.respawn();
        self.wait_ready();
    }

    /// Starts it again without waiting.
    pub fn respawn(&mut self) {
        self.kill();
        self.child = self.options.spawn().child.take();
    }

    /// The output of the process so far.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read(self.options.log())
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// Resident memory.
    ///
    /// # Panics
    /// When it is not running.
    #[must_use]
    pub fn rss_bytes(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid()))
            .expect("a running process has a status");
        let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).expect("VmRSS is there");
        let kib = line.split_whitespace().next().and_then(|n| n.parse::<u64>().ok());
        kib.expect("VmRSS is a number of KiB") * 1024
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            let tail = &lines[lines.len().saturating_sub(60)..];
            eprintln!("--- node {}, the end of its log:\n{}", self.options.node, tail.join("\n"));
        }
    }
}

/// The status and body of an HTTP GET.
pub(crate) fn http_get(address: SocketAddr, path: &str) -> Result<(u16, String), String> {
    let ask = || -> std::io::Result<String> {
        let mut socket = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
        socket.set_read_timeout(Some(Duration::from_secs(10)))?;
        write!(socket, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
        let mut answer = Vec::new();
        socket.read_to_end(&mut answer)?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    };
    let answer = ask().map_err(|e| format!("{address}{path}: {e}"))?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split_whitespace().nth(1).and_then(|code| code.parse().ok());
    let status = status.ok_or_else(|| format!("{address}{path} answers {head:?}"))?;
    Ok((status, body.to_owned()))
}

/// The same over TLS, by curl: an independent client.
fn https_get(address: SocketAddr, path: &str, ca: &Path) -> Result<(u16, String), String> {
    let output = Command::new("curl")
        .args(["--silent", "--show-error", "--max-time", "10", "--write-out", "\n%{http_code}"])
        .arg("--cacert")
        .arg(ca)
        .arg(format!("https://localhost:{}{path}", address.port()))
        .output()
        .map_err(|e| format!("cannot run curl: {e}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let (body, code) = text.rsplit_once('\n').ok_or("curl prints nothing")?;
    Ok((code.parse().map_err(|_| format!("curl prints {code:?}"))?, body.to_owned()))
}
/// How many threads of a process are not stopped, by `/proc`.
fn threads_awake(pid: &str) -> usize {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let stat = threads.filter_map(|thread| fs::read_to_string(thread.path().join("stat")).ok());
    // The state stands behind the name, which is in parentheses and may have any character.
    let is_awake =
        |stat: &String| stat.rsplit_once(") ").is_some_and(|(_, of)| !of.starts_with('T'));
    stat.filter(is_awake).count()
}
