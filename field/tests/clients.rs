//! Unmodified clients of other people run every command of the Redis front.
//!
//! Their programs are in `field/clients`; each prints what it has done and ends with a failure
//! where an answer is not the one that Redis would give.

use std::io::Write;
use std::process::{Command, Stdio};

use field::{NodeOptions, Site, binary, toolchain};

const PASSWORD: &str = "sea lions at pier 39";

/// A node of its own: the programs empty the database.
fn site() -> (tempfile::TempDir, Site) {
    let folder = tempfile::tempdir().unwrap();
    let site = Site::start(folder.path(), 1, |_| {});
    (folder, site)
}

fn run_against(site: &Site, mut program: Command, resp: &str) {
    let redis = site.nodes[0].options.redis.to_string();
    toolchain::run(program.env("PORTOLAN_REDIS", redis).env("PORTOLAN_RESP", resp));
}

#[test]
fn redis_py() {
    if toolchain::present("python3", "--version") {
        let (_folder, site) = site();
        for resp in ["2", "3"] {
            run_against(&site, toolchain::python("all_commands.py"), resp);
        }
    }
}

#[test]
fn ioredis() {
    if toolchain::present("node", "--version") {
        let (_folder, site) = site();
        run_against(&site, toolchain::node("all_commands.mjs"), "3");
    }
}

#[test]
fn go_redis() {
    if toolchain::present("go", "version") {
        let (_folder, site) = site();
        for resp in ["2", "3"] {
            run_against(&site, toolchain::go("clients/go"), resp);
        }
    }
}

#[test]
fn redis_cli() {
    if toolchain::present("redis-cli", "--version") {
        let (_folder, site) = site();
        for resp in ["-2", "-3"] {
            redis_cli_session(&site, resp);
        }
    }
}

/// With users configured, clients that log in may do what their user may, and others nothing.
#[test]
fn clients_log_in() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = NodeOptions::new(folder.path(), 1);
    options.configure(&format!(
        "[[user]]\nname = \"fleet\"\npassword_hash = \"{}\"\n\
         rights = [{{ keyspace = \"*\", allow = [\"read\", \"write\", \"admin\"] }}]\n",
        hash(PASSWORD)
    ));
    let node = options.start();
    let run = |mut program: Command| {
        program.env("PORTOLAN_REDIS", node.options.redis.to_string());
        program.env("PORTOLAN_USER", "fleet").env("PORTOLAN_PASSWORD", PASSWORD);
        toolchain::run(program.env("PORTOLAN_RESP", "3"));
    };
    toolchain::for_each_client(run);
    let mut stranger =
        field::resp::Client::connect(node.options.redis, std::time::Duration::from_secs(15))
            .unwrap();
    let refused = stranger.call(&["GET", "a"]).unwrap_err().to_string();
    assert!(refused.contains("NOAUTH"), "{refused}");
}

/// What `portolan hash-password` makes of a password.
fn hash(password: &str) -> String {
    let mut program = Command::new(binary::portolan());
    program.arg("hash-password").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = program.spawn().unwrap();
    writeln!(child.stdin.take().unwrap(), "{password}").unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

/// Commands as a person would type them, and what redis-cli shows.
const SESSION: &[(&[&str], &str)] = &[
    (&["FLUSHALL"], "OK"),
    (&["PING"], "PONG"),
    (&["SET", "greeting", "hello"], "OK"),
    (&["GET", "greeting"], "hello"),
    (&["GETSET", "greeting", "bye"], "hello"),
    (&["INCRBY", "n", "42"], "42"),
    (&["DECR", "n"], "41"),
    (&["HSET", "h", "a", "1", "b", "2"], "2"),
    (&["HGET", "h", "b"], "2"),
    (&["HINCRBY", "h", "a", "4"], "5"),
    (&["MGET", "greeting", "n"], "bye\n41"),
    (&["EXISTS", "greeting", "n", "absent"], "2"),
    (&["TYPE", "h"], "hash"),
    (&["EXPIRE", "n", "100"], "1"),
    (&["PERSIST", "n"], "1"),
    (&["TTL", "n"], "-1"),
    (&["DBSIZE"], "3"),
    (&["DEL", "greeting", "n", "h"], "3"),
    (&["--scan"], ""),
];

fn redis_cli_session(site: &Site, resp: &str) {
    let redis = site.nodes[0].options.redis;
    for (words, wanted) in SESSION {
        let mut command = Command::new("redis-cli");
        command.args(["-h", &redis.ip().to_string(), "-p", &redis.port().to_string(), resp]);
        let output = command.args(*words).output().unwrap();
        let shown = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{words:?}: {output:?}");
        assert_eq!(shown.trim_end(), *wanted, "{words:?}");
    }
}
