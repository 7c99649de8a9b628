//! Unmodified Redis Cluster clients go on working while slots move between three sites, and while
//! groups of an adaptive keyspace do.
//!
//! Their programs are in `field/clients`; each works on keys of its own until it is stopped, and
//! ends with a failure where an answer is wrong, or is an error that it cannot repair by itself.

use std::fs;
use std::net::SocketAddr;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use field::deployment::json;
use field::resp::{Client, Value};
use field::{Node, NodeOptions, Site, eventually, number_from_env, ports, toolchain};

const TIMEOUT: Duration = Duration::from_secs(300);
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
    /// With a keyspace of that placement, and `cluster_view`.
    fn start(placement: &str, view: &str) -> Deployment {
        let folder = tempfile::tempdir().unwrap();
        let mut deployment = Deployment { sites: Vec::new(), ports: Vec::new(), _folder: folder };
        for name in NAMES {
            let place = deployment._folder.path().join(name);
            fs::create_dir_all(&place).unwrap();
            let join = deployment.sites.first().map(|first| first.nodes[0].options.peer);
            let port = ports::free();
            let site = Site::start(&place, 1, |options: &mut NodeOptions| {
                options.site = name.into();
                options.join = join;
                options.more.extend(["--redis-cluster".to_owned(), port.to_string()]);
                options.configure(&format!("[front]\ncluster_view = \"{view}\"\n"));
            });
            if deployment.sites.is_empty() {
                // This works once there is a deployment, and no site can join before that.
                let make = ["keyspace", "create", "cars", "--prefix", "car:", "--scope", "global"];
                let make = [&make[..], &["--placement", placement]].concat();
                eventually(TIMEOUT, || site.nodes[0].cli(&make)).unwrap();
            }
            deployment.sites.push(site);
            deployment.ports.push(port);
        }
        let shows_itself = placement == "adaptive" && view == "auto";
        let with_slots = if shows_itself { 1 } else { NAMES.len() };
        for port in &deployment.ports {
            eventually(TIMEOUT, || knows_all(*port, with_slots)).unwrap();
        }
        deployment
    }

    fn node(&self, site: usize) -> &Node {
        &self.sites[site].nodes[0]
    }
}

/// Whether a node lists all sites, the keyspace, and slots at so many sites.
fn knows_all(port: SocketAddr, with_slots: usize) -> Result<(), String> {
    let mut client = Client::connect(port, Duration::from_secs(20)).map_err(|e| e.to_string())?;
    let info = client.call(&["CLUSTER", "INFO"]).map_err(|e| e.to_string())?;
    let info = String::from_utf8_lossy(info.bytes().unwrap_or_default()).into_owned();
    let size = format!("cluster_size:{with_slots}");
    let expect = ["cluster_state:ok", "cluster_known_nodes:3", &size];
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

/// The programs at work.
struct Clients {
    programs: Vec<(&'static str, std::path::PathBuf, Child)>,
    /// How many keys they leave behind.
    keys: i64,
    folder: tempfile::TempDir,
}

impl Clients {
    /// Returns when all have gone over their keys once. `masters`: how many each is to see.
    fn start(deployment: &Deployment, masters: impl Fn(&str) -> usize) -> Clients {
        let folder = tempfile::tempdir().unwrap();
        let mut clients = Clients { programs: Vec::new(), keys: 0, folder };
        for (nth, (name, leaves, mut program)) in programs().into_iter().enumerate() {
            // Each gets the deployment's addresses from another site.
            let port = deployment.ports[nth % deployment.ports.len()];
            program.env("PORTOLAN_REDIS", port.to_string());
            program.env("PORTOLAN_PREFIX", format!("car:{name}:"));
            // The others choose by themselves: Jedis 2, ioredis and Lettuce 3.
            program.env("PORTOLAN_RESP", if name == "go-redis" { "2" } else { "3" });
            program.env("PORTOLAN_STOP", clients.stop_file());
            program.env("PORTOLAN_MASTERS", masters(name).to_string());
            let started = clients.folder.path().join(name);
            program.env("PORTOLAN_STARTED", &started);
            clients.keys += leaves;
            let client = program.spawn().unwrap_or_else(|e| panic!("{name}: {e}"));
            clients.programs.push((name, started, client));
        }
        for (name, started, client) in &mut clients.programs {
            let works = eventually(TIMEOUT, || {
                let ended = client.try_wait().unwrap();
                assert!(ended.is_none(), "{name} ended before its time: {ended:?}");
                if started.exists() { Ok(()) } else { Err(format!("{name} has not started")) }
            });
            works.unwrap();
        }
        clients
    }

    fn stop_file(&self) -> std::path::PathBuf {
        self.folder.path().join("stop")
    }

    fn check(&mut self) {
        for (name, _, client) in &mut self.programs {
            let ended = client.try_wait().unwrap();
            assert!(ended.is_none(), "{name} ended before its time: {ended:?}");
        }
    }

    fn stop(&mut self) {
        fs::write(self.stop_file(), "").unwrap();
        for (name, _, client) in &mut self.programs {
            let ended = client.wait().unwrap();
            assert!(ended.success(), "{name} ended with {ended}");
        }
    }
}

impl Deployment {
    /// No key is lost, and none is at two sites, once everything has arrived.
    fn wait_all_there(&self, keys: i64) {
        let count = |port: &SocketAddr| {
            let mut client = Client::connect(*port, Duration::from_secs(20)).unwrap();
            client.call(&["DBSIZE"]).unwrap().int().unwrap()
        };
        let all_there = eventually(TIMEOUT, || {
            let there: Vec<i64> = self.ports.iter().map(count).collect();
            let is_right = there.iter().sum::<i64>() == keys;
            if is_right { Ok(()) } else { Err(format!("{there:?} keys instead of {keys}")) }
        });
        all_there.unwrap();
    }

    /// How many commands were answered by a redirection.
    fn redirected(&self) -> u64 {
        (0..NAMES.len()).map(|site| moved_answers(self.node(site))).sum()
    }
}

#[test]
fn clients_follow_slots_that_move() {
    let deployment = Deployment::start("off", "auto");
    let mut clients = Clients::start(&deployment, |_| NAMES.len());
    let (mut moved, mut in_vain) = (0, 0);
    for nth in 0.. {
        if moved >= moves() {
            break;
        }
        clients.check();
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
    clients.stop();
    // They went where the slots had gone, instead of having their requests carried there.
    let told = deployment.redirected();
    assert!(clients.programs.is_empty() || told > 0, "no client was sent elsewhere");
    let keys = clients.keys;
    deployment.wait_all_there(keys);
    eprintln!(
        "{moved} moves of up to {SLOTS} slots, {in_vain} in vain; redirected {told} times; {keys} keys"
    );
}

/// How many groups the sites have lent and given back.
fn groups_moved(deployment: &Deployment) -> u64 {
    let of_site = |site: usize| {
        let Ok(ledger) = json(deployment.node(site), &["placement", "ledger", "--json"]) else {
            return 0;
        };
        let windows = ledger["loans"]["windows"].as_array().cloned().unwrap_or_default();
        windows.iter().filter_map(|window| window["moves"].as_u64()).sum::<u64>()
    };
    (0..NAMES.len()).map(of_site).sum()
}

/// How often the other user goes to the next site.
const ROUNDS: usize = 4;
const ROUNDS_MAX: usize = 40;

/// The clients work while another user reads some of their keys at one site after the other, so
/// that these move.
fn clients_work_while_groups_move(view: &str) -> (Deployment, Clients) {
    let deployment = Deployment::start("adaptive", view);
    let shows_itself = view == "auto";
    // Of clients that ask for slots, not for nodes, each sees the one site that shows itself.
    let masters = |name: &str| if shows_itself && name != "lettuce" { 1 } else { NAMES.len() };
    let mut clients = Clients::start(&deployment, masters);
    let mut moved = 0;
    for round in 0..ROUNDS_MAX {
        // On a slow machine few reads are counted in a second, and groups move later.
        if round >= ROUNDS && (moved > 0 || clients.programs.is_empty()) {
            break;
        }
        let port = deployment.ports[round % NAMES.len()];
        let mut user = Client::connect(port, Duration::from_secs(20)).unwrap();
        let until = Instant::now() + Duration::from_secs(15);
        while Instant::now() < until {
            for name in ["redis-py", "ioredis", "go-redis", "jedis", "lettuce"] {
                for number in 0..5 {
                    let key = format!("car:{name}:{number}");
                    user.call(&["ASKING"]).unwrap();
                    user.call(&["GET", &key]).unwrap();
                }
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        clients.check();
        // The ledger has the last windows only.
        moved = moved.max(groups_moved(&deployment));
    }
    clients.stop();
    deployment.wait_all_there(clients.keys);
    assert!(clients.programs.is_empty() || moved > 0, "no group has moved");
    eprintln!("{view}: {moved} groups lent or given back; {} keys", clients.keys);
    (deployment, clients)
}

#[test]
fn clients_of_a_site_that_shows_itself_work_while_groups_move() {
    let (deployment, clients) = clients_work_while_groups_move("auto");
    // Requests are sent on, clients are not; a library may try a command that there is not.
    let (told, programs) = (deployment.redirected(), clients.programs.len() as u64);
    assert!(told <= programs, "{told} errors");
}

#[test]
fn clients_that_are_shown_owners_work_while_groups_move() {
    let (deployment, clients) = clients_work_while_groups_move("owners");
    let told = deployment.redirected();
    assert!(clients.programs.is_empty() || told > 0, "no client was sent elsewhere");
}
