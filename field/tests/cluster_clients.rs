//! Unmodified Redis Cluster clients go on working while slots move between three sites.
//!
//! Their programs are in `field/clients`; each works on keys of its own until it is stopped, and
//! ends with a failure where an answer is wrong, or is an error that it cannot repair by itself.

use std::fs;
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use field::resp::{Client, Value};
use field::{Node, NodeOptions, Site, eventually, number_from_env, ports, toolchain};

const PATIENCE: Duration = Duration::from_secs(120);
/// Slots of one move.
const SLOTS: usize = 1_500;

/// Three sites of one node, and the cluster port of each.
struct Deployment {
    sites: Vec<Site>,
    ports: Vec<SocketAddr>,
    _folder: tempfile::TempDir,
}

const NAMES: [&str; 3] = ["a", "b", "c"];

impl Deployment {
    fn start() -> Deployment {
        let folder = tempfile::tempdir().unwrap();
        let mut deployment = Deployment { sites: Vec::new(), ports: Vec::new(), _folder: folder };
        for name in NAMES {
            let place = deployment._folder.path().join(name);
            let join = deployment.sites.first().map(|first| first.nodes[0].options.peer);
            let port = ports::free();
            let site = Site::start(&place, 1, |options: &mut NodeOptions| {
                options.site = name.into();
                options.join = join;
                options.more.extend(["--redis-cluster".to_owned(), port.to_string()]);
            });
            if deployment.sites.is_empty() {
                // This works once there is a deployment, and no site can join before that.
                let make = ["keyspace", "create", "cars", "--prefix", "car:", "--scope", "global"];
                eventually(PATIENCE, || site.nodes[0].cli(&make)).unwrap();
            }
            deployment.sites.push(site);
            deployment.ports.push(port);
        }
        for port in &deployment.ports {
            eventually(PATIENCE, || knows_all(*port)).unwrap();
        }
        deployment
    }

    fn node(&self, site: usize) -> &Node {
        &self.sites[site].nodes[0]
    }
}

/// Whether a node lists all sites, the keyspace, and slots at each site.
fn knows_all(port: SocketAddr) -> Result<(), String> {
    let mut client = Client::connect(port, Duration::from_secs(20)).map_err(|e| e.to_string())?;
    let info = client.call(&["CLUSTER", "INFO"]).map_err(|e| e.to_string())?;
    let info = String::from_utf8_lossy(info.bytes().unwrap_or_default()).into_owned();
    let expect = ["cluster_state:ok", "cluster_known_nodes:3", "cluster_size:3"];
    if !expect.iter().all(|line| info.lines().any(|is| is == *line)) {
        return Err(info);
    }
    match client.call(&["GET", "car:1"]) {
        Ok(Value::Nil) => Ok(()),
        Err(field::resp::Error::Refused(text)) if text.starts_with("MOVED ") => Ok(()),
        other => Err(format!("{other:?}")),
    }
}

/// The programs that can be run here, by name, and how many keys each leaves behind.
fn programs() -> Vec<(&'static str, i64, Command)> {
    let mut programs = Vec::new();
    if toolchain::present("python3", "--version") {
        programs.push(("redis-py", 610, toolchain::python("cluster.py")));
    }
    if toolchain::present("node", "--version") {
        programs.push(("ioredis", 900, toolchain::node("cluster.mjs")));
    }
    if toolchain::present("go", "version") {
        programs.push(("go-redis", 602, toolchain::go("clients/go-cluster")));
    }
    if toolchain::present("mvn", "--version") && toolchain::present("javac", "-version") {
        for library in ["jedis", "lettuce"] {
            let mut program = toolchain::java("Cluster");
            program.arg(library);
            programs.push((library, 600, program));
        }
    }
    programs
}

/// How many commands the cluster port of a node answered with an error: with MOVED, if none fails.
fn moved_answers(node: &Node) -> u64 {
    let (_, metrics) = node.admin("/metrics").unwrap();
    let errors = "portolan_operation_errors_total{front=\"redis_cluster\"";
    let counts = metrics.lines().filter(|line| line.starts_with(errors));
    counts.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}

/// Moves that must have ended while the clients work.
fn moves() -> usize {
    number_from_env("PORTOLAN_ROUNDS", 60) as usize
}

#[test]
fn clients_follow_slots_that_move() {
    let deployment = Deployment::start();
    let folder = tempfile::tempdir().unwrap();
    let stop = folder.path().join("stop");
    let mut clients = Vec::new();
    let mut keys = 0;
    for (nth, (name, leaves, mut program)) in programs().into_iter().enumerate() {
        // Each gets the deployment's addresses from another site.
        let port = deployment.ports[nth % deployment.ports.len()];
        program.env("PORTOLAN_REDIS", port.to_string());
        program.env("PORTOLAN_PREFIX", format!("car:{name}:"));
        // The others choose by themselves: Jedis 2, ioredis and Lettuce 3.
        program.env("PORTOLAN_RESP", if name == "go-redis" { "2" } else { "3" });
        program.env("PORTOLAN_STOP", &stop).env("PORTOLAN_MASTERS", "3");
        let started = folder.path().join(name);
        program.env("PORTOLAN_STARTED", &started);
        keys += leaves;
        let client = program.spawn().unwrap_or_else(|e| panic!("{name}: {e}"));
        clients.push((name, started, client));
    }
    for (name, started, client) in &mut clients {
        let works = eventually(PATIENCE, || {
            let ended = client.try_wait().unwrap();
            assert!(ended.is_none(), "{name} ended before its time: {ended:?}");
            if started.exists() { Ok(()) } else { Err(format!("{name} has not started")) }
        });
        works.unwrap();
    }

    let (mut moved, mut in_vain) = (0, 0);
    for nth in 0.. {
        if moved >= moves() {
            break;
        }
        for (name, _, client) in &mut clients {
            let ended = client.try_wait().unwrap();
            assert!(ended.is_none(), "{name} ended before its time: {ended:?}");
        }
        let first = nth * SLOTS % (16_384 - SLOTS);
        let slots = format!("{first}-{}", first + SLOTS - 1);
        let (asked, to) = (nth % NAMES.len(), (nth + 1 + nth / NAMES.len()) % NAMES.len());
        match deployment.node(asked).cli(&["slot", "move", &slots, "--to", NAMES[to]]) {
            // Each site that held some of them has handed those over.
            Ok(told) => moved += told.matches("has handed over").count(),
            // Some of them may be on their way.
            Err(why) => {
                in_vain += 1;
                assert!(in_vain < 600, "still after {in_vain} times: {why}");
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    }
    fs::write(&stop, "").unwrap();
    for (name, _, client) in &mut clients {
        let ended = client.wait().unwrap();
        assert!(ended.success(), "{name} ended with {ended}");
    }

    // They went where the slots had gone, instead of having their requests carried there.
    let told: u64 = (0..NAMES.len()).map(|site| moved_answers(deployment.node(site))).sum();
    assert!(clients.is_empty() || told > 0, "no client was sent elsewhere");

    // No key is lost, and none is at two sites, once everything has arrived.
    let count = |port: &SocketAddr| {
        let mut client = Client::connect(*port, Duration::from_secs(20)).unwrap();
        client.call(&["DBSIZE"]).unwrap().int().unwrap()
    };
    let all_there = eventually(PATIENCE, || {
        let there: Vec<i64> = deployment.ports.iter().map(count).collect();
        let is_right = there.iter().sum::<i64>() == keys;
        if is_right { Ok(()) } else { Err(format!("{there:?} keys instead of {keys}")) }
    });
    all_there.unwrap();
    eprintln!(
        "{moved} moves of up to {SLOTS} slots, {in_vain} in vain; told to go elsewhere {told} times; {keys} keys"
    );
}
