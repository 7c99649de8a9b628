//! The packages in other languages (`clients`): their own tests, with sessions over three sites
//! that are killed meanwhile, and those that send sketches over real clusters whose slots move
//! meanwhile.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use field::redis_cluster::programs;
use field::{RedisCluster, binary, eventually, ports, toolchain};

const NEVER: Duration = Duration::from_secs(600);
const LIMIT: Duration = Duration::from_secs(300);

fn vectors() -> std::path::PathBuf {
    toolchain::wrapper("vectors.json")
}

/// redis-py's own programs, with the package on the path.
fn python(program: &str) -> Command {
    let mut command = toolchain::python(program);
    command.env("PYTHONPATH", toolchain::wrapper("python/src"));
    command
}

#[test]
fn their_own_tests_pass() {
    if toolchain::present("python3", "--version") {
        // The tests instead of that program.
        let interpreter = python("cluster.py").get_program().to_owned();
        let mut command = Command::new(interpreter);
        command.env("PYTHONPATH", toolchain::wrapper("python/src"));
        command.args(["-m", "unittest", "discover", "-s"]).arg(toolchain::wrapper("python/tests"));
        command.env("PORTOLAN_BIN", binary::portolan());
        toolchain::run(command.env("PORTOLAN_VECTORS", vectors()));
    }
    if toolchain::present("node", "--version") {
        let home = toolchain::ioredis_wrapper();
        let mut command = Command::new("node");
        command.args(["--expose-gc", "--test", "dist/test/"]).current_dir(home);
        command.env("PORTOLAN_BIN", binary::portolan());
        toolchain::run(command.env("PORTOLAN_VECTORS", vectors()));
    }
}

/// The clients that can be run here, by name.
fn clients() -> Vec<(&'static str, Command)> {
    let mut clients = Vec::new();
    if toolchain::present("python3", "--version") {
        clients.push(("portolan-redis", python("cluster.py")));
        clients.push(("asyncio of portolan-redis", python("cluster_asyncio.py")));
    }
    if toolchain::present("node", "--version") {
        let home = toolchain::ioredis_wrapper();
        let mut command = toolchain::node("cluster.mjs");
        command.env("PORTOLAN_WRAPPER", home.join("dist/src/index.js"));
        clients.push(("@portolan/ioredis", command));
    }
    clients
}

#[test]
fn their_sketches_arrive_and_no_request_fails_while_slots_move() {
    for (server, program) in programs() {
        let folder = tempfile::tempdir().unwrap();
        let cluster = RedisCluster::start(&program, folder.path(), NEVER);
        let listen = ports::free().to_string();
        let mut advice = Command::new(binary::portolan())
            .args(["place", &cluster.url(), "--advise", "--listen", &listen])
            .args(["--token", "secret", "--window", "1s"])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let listens =
            || std::net::TcpStream::connect(&listen).map(|_| ()).map_err(|e| e.to_string());
        eventually(LIMIT, listens).unwrap();
        for (name, mut client) in clients() {
            let file = |what: &str| folder.path().join(format!("{}-{what}", &name[1..4]));
            client.env("PORTOLAN_REDIS", cluster.address(0).to_string());
            client.env("PORTOLAN_PREFIX", format!("{name}:")).env("PORTOLAN_MASTERS", "3");
            client.env("PORTOLAN_SKETCHES", format!("http://{listen}"));
            client.env("PORTOLAN_STARTED", file("started")).env("PORTOLAN_STOP", file("stop"));
            let mut client = client.spawn().unwrap();
            let started =
                || if file("started").exists() { Ok(()) } else { Err("not yet".to_owned()) };
            eventually(LIMIT, started).unwrap();
            for round in 0..3_usize {
                let to = cluster.address((round + 1) % 3).to_string();
                let slots = format!("{}-{}", round * 5_000, round * 5_000 + 299);
                let order = ["place", &cluster.url(), "--move", &slots, "--to", &to];
                let moved = Command::new(binary::portolan()).args(order).output().unwrap();
                assert!(moved.status.success(), "{server}: {moved:?}");
                let ended = client.try_wait().unwrap();
                assert!(ended.is_none(), "{server}: {name} ended: {ended:?}");
            }
            fs::write(file("stop"), "").unwrap();
            assert!(client.wait().unwrap().success(), "{server}: {name}: see above");
        }
        assert!(advice.try_wait().unwrap().is_none(), "{server}: the listener ended");
        advice.kill().unwrap();
        advice.wait().unwrap();
    }
}

/// What each window has printed so far, as JSON.
fn windows(output: &std::path::Path) -> Vec<serde_json::Value> {
    let text = fs::read_to_string(output).unwrap();
    let read = serde_json::Deserializer::from_str(&text).into_iter();
    // The last may be half written.
    read.map_while(Result::ok).collect()
}

#[test]
fn servers_that_they_name_by_hostname_are_found() {
    for (server, program) in programs() {
        let folder = tempfile::tempdir().unwrap();
        let cluster = RedisCluster::start(&program, folder.path(), NEVER);
        cluster.announce_hostnames();
        let (listen, output) = (ports::free().to_string(), folder.path().join("windows"));
        let mut advice = Command::new(binary::portolan())
            .args(["place", &cluster.url(), "--advise", "--json", "--listen", &listen])
            .args(["--token", "secret", "--window", "1s"])
            .stdout(fs::File::create(&output).unwrap())
            .spawn()
            .unwrap();
        let listens =
            || std::net::TcpStream::connect(&listen).map(|_| ()).map_err(|e| e.to_string());
        eventually(LIMIT, listens).unwrap();
        // It is there from the beginning: each client goes over its keys once.
        let stop = folder.path().join("stop");
        fs::write(&stop, "").unwrap();
        for (name, mut client) in clients() {
            let before = windows(&output).len();
            client.env("PORTOLAN_REDIS", cluster.address(0).to_string());
            client.env("PORTOLAN_PREFIX", format!("{name}:")).env("PORTOLAN_MASTERS", "3");
            client.env("PORTOLAN_SKETCHES", format!("http://{listen}"));
            client.env("PORTOLAN_STARTED", folder.path().join("started"));
            toolchain::run(client.env("PORTOLAN_STOP", &stop));
            // The mean is known if each server that has a key of the client is one that it has
            // measured.
            let is_known = || {
                let windows = windows(&output);
                let known = windows.iter().skip(before).any(|one| one["now_ms"].is_number());
                known.then_some(()).ok_or_else(|| format!("{windows:?}"))
            };
            eventually(LIMIT, is_known).unwrap_or_else(|seen| panic!("{server}: {name}: {seen}"));
        }
        advice.kill().unwrap();
        advice.wait().unwrap();
        let unknown = windows(&output).into_iter().map(|one| one["unknown_servers"].as_u64());
        assert!(unknown.into_iter().all(|servers| servers == Some(0)), "{server}");
    }
}

/// A tag whose slot is of this master at the beginning, and the slot.
fn control(cluster: &RedisCluster, master: usize) -> (String, String) {
    let tags = (0..).map(|n| format!("{{control{n}}}"));
    let own = |tag: &String| {
        let slot = cluster.call(master, &["CLUSTER", "KEYSLOT", tag]).int().unwrap().to_string();
        let answer = cluster.client(master).call(&["GET", tag]);
        answer.is_ok().then(|| (tag.clone(), slot))
    };
    tags.map(|tag| own(&tag)).find_map(|found| found).unwrap()
}

#[test]
fn slots_follow_users_from_site_to_site() {
    if !toolchain::present("node", "--version") {
        return;
    }
    for (server, program) in programs() {
        let folder = tempfile::tempdir().unwrap();
        let cluster = RedisCluster::start(&program, folder.path(), NEVER);
        let controls: Vec<(String, String)> = (0..3).map(|n| control(&cluster, n)).collect();
        let listed = |of: fn(&(String, String)) -> &String| {
            controls.iter().map(of).cloned().collect::<Vec<_>>().join(",")
        };
        let (keys, slots) = (listed(|one| &one.0), listed(|one| &one.1));
        let listen = ports::free().to_string();
        let log = fs::File::create(folder.path().join("moves")).unwrap();
        let mut mover = Command::new(binary::portolan())
            .args(["place", &cluster.url(), "--listen", &listen, "--token", "secret"])
            .args(["--window", "2s", "--keep", &slots])
            .stdout(log)
            .spawn()
            .unwrap();
        let listens =
            || std::net::TcpStream::connect(&listen).map(|_| ()).map_err(|e| e.to_string());
        eventually(LIMIT, listens).unwrap();
        let home = toolchain::ioredis_wrapper();
        let servers: Vec<String> = (0..6).map(|n| cluster.address(n).to_string()).collect();
        let roam = toolchain::node("roam.mjs")
            .env("PORTOLAN_MASTERS_AT", servers.join(","))
            .env("PORTOLAN_SKETCHES", format!("http://{listen}"))
            .env("PORTOLAN_CONTROLS", keys)
            .env("PORTOLAN_WRAPPER", home.join("dist/src/index.js"))
            .env("PORTOLAN_WINDOW_MS", "2000")
            .output()
            .unwrap();
        assert!(mover.try_wait().unwrap().is_none(), "{server}: the mover ended");
        mover.kill().unwrap();
        mover.wait().unwrap();
        let moves = fs::read_to_string(folder.path().join("moves")).unwrap();
        let text = String::from_utf8_lossy(&roam.stdout);
        eprintln!("{server}:\n{text}");
        let wrong = String::from_utf8_lossy(&roam.stderr);
        // Why comes last: of a long output the end is what is read.
        assert!(roam.status.success(), "{moves}\n{server}: {}: {wrong}", roam.status);
    }
}
