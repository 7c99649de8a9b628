//! `portolan place` over real clusters of six Redis or Valkey servers: killed after every step, run
//! again; servers that do not answer; keys that no move explains; clients that work meanwhile.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use field::redis_cluster::programs;
use field::resp::Value;
use field::tls::{Authority, Certificates};
use field::{RedisCluster, binary, eventually, number_from_env, ports, toolchain};

/// Failovers are none of these tests' business.
const NEVER: Duration = Duration::from_secs(600);
const LIMIT: Duration = Duration::from_secs(300);
/// More keys than go in one batch.
const KEYS: usize = 600;

/// A slot that the first master owns at the beginning, and a tag of it.
const SLOT: &str = "4574";
const TAG: &str = "{u1}";

fn place(cluster: &RedisCluster, arguments: &[&str]) -> Command {
    let mut command = Command::new(binary::portolan());
    command.args(["place", &cluster.url()]).args(arguments);
    command.args(["--timeout", "2s"]);
    command
}

/// Runs it to its end: whether it ended with 0, and all that it printed.
fn run(cluster: &RedisCluster, arguments: &[&str]) -> (bool, String) {
    let Output { status, stdout, stderr } = place(cluster, arguments).output().unwrap();
    let text = [stdout, stderr].concat();
    (status.success(), String::from_utf8_lossy(&text).into_owned())
}

fn must(cluster: &RedisCluster, arguments: &[&str]) -> String {
    let (is_done, text) = run(cluster, arguments);
    assert!(is_done, "{arguments:?}: {text}");
    text
}

/// Keys of all kinds in one slot, some of which expire in a day.
fn fill(cluster: &RedisCluster) {
    let mut client = cluster.client(0);
    for n in 0..KEYS {
        let (key, n) = (format!("{TAG}{n}"), n.to_string());
        let words: Vec<&str> = match n.len() + n.as_bytes()[n.len() - 1] as usize {
            sum if sum % 3 == 0 => vec!["SET", &key, &n, "EX", "86400"],
            sum if sum % 3 == 1 => vec!["HSET", &key, "field", &n, "other", "\u{0}\r\n"],
            _ => vec!["RPUSH", &key, "first", &n],
        };
        client.call(&words).unwrap();
    }
}

/// All keys of the slot at the server that owns it, by value; whether they expire, too.
fn contents(cluster: &RedisCluster) -> BTreeMap<Vec<u8>, (Value, bool)> {
    let owners: Vec<usize> = (0..3).filter(|n| owns(cluster, *n)).collect();
    let [owner] = owners[..] else { panic!("{owners:?} own the slot") };
    let mut client = cluster.client(owner);
    let count = (2 * KEYS).to_string();
    let keys = client.call(&["CLUSTER", "GETKEYSINSLOT", SLOT, &count]).unwrap();
    let Value::Array(keys) = keys else { panic!("{keys:?}") };
    let mut all = BTreeMap::new();
    for key in keys {
        let key = key.bytes().unwrap().to_vec();
        let value = client.call(&[b"DUMP", &key[..]]).unwrap();
        let expires = client.call(&[b"PTTL", &key[..]]).unwrap().int().unwrap() > 0;
        all.insert(key, (value, expires));
    }
    // Nothing of it is left elsewhere.
    for other in (0..3).filter(|n| *n != owner) {
        assert_eq!(count_keys(cluster, other), 0, "server {other}");
    }
    all
}

fn count_keys(cluster: &RedisCluster, server: usize) -> i64 {
    cluster.call(server, &["CLUSTER", "COUNTKEYSINSLOT", SLOT]).int().unwrap()
}

fn own_line(cluster: &RedisCluster, server: usize) -> String {
    let nodes = cluster.text(server, &["CLUSTER", "NODES"]);
    nodes.lines().find(|line| line.contains("myself")).unwrap_or_default().to_owned()
}

fn owns(cluster: &RedisCluster, server: usize) -> bool {
    let slot: u16 = SLOT.parse().unwrap();
    own_line(cluster, server).split(' ').skip(8).filter(|word| !word.starts_with('[')).any(|word| {
        let (first, last) = word.split_once('-').unwrap_or((word, word));
        (first.parse().unwrap()..=last.parse().unwrap()).contains(&slot)
    })
}

/// Moves the slot, step by step, and kills the mover after so many steps; the line of the last
/// step, or `None` if it came to its end before.
fn stopped(cluster: &RedisCluster, to: usize, steps: usize) -> Option<String> {
    let to = cluster.address(to).to_string();
    let mut command = place(cluster, &["--move", SLOT, "--to", &to]);
    command.args(["--by-key", "--steps", "--pace", "300ms"]);
    let mut child: Child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let line = lines.map(Result::unwrap).filter(|line| !line.contains("arrived")).nth(steps - 1);
    child.kill().unwrap();
    child.wait().unwrap();
    line
}

#[test]
fn wherever_it_is_killed_one_run_closes_all_and_a_second_does_nothing() {
    for (name, program) in programs() {
        let folder = tempfile::tempdir().unwrap();
        let cluster = RedisCluster::start(&program, folder.path(), NEVER);
        fill(&cluster);
        let expect = contents(&cluster);
        assert_eq!(expect.len(), KEYS);
        let mut seen = Vec::new();
        for steps in 1.. {
            let to = if owns(&cluster, 0) { 1 } else { 0 };
            let Some(line) = stopped(&cluster, to, steps) else { break };
            eprintln!("{name}, killed after step {steps}: {line}");
            seen.push(line);
            must(&cluster, &["--resume"]);
            assert!(owns(&cluster, to), "the move was not finished");
            assert!(contents(&cluster) == expect, "{name}: keys differ after step {steps}");
            let again = must(&cluster, &["--resume"]);
            assert!(again.contains("no slot had to move"), "{again}");
            must(&cluster, &["--status"]);
        }
        for kind in ["importing", "migrating", "keys", "assigned"] {
            assert!(seen.iter().any(|line| line.contains(kind)), "{name}: no step {kind}");
        }
        // The whole move was not killed; by the server's own command, where there is one, it goes
        // back.
        must(&cluster, &["--resume"]);
        must(&cluster, &["--move", SLOT, "--to", &cluster.address(2).to_string()]);
        assert!(owns(&cluster, 2));
        assert!(contents(&cluster) == expect, "{name}: keys differ at the end");
    }
}

#[test]
fn a_server_that_does_not_answer_is_left_alone() {
    for (name, program) in programs() {
        let folder = tempfile::tempdir().unwrap();
        let mut cluster = RedisCluster::start(&program, folder.path(), NEVER);
        fill(&cluster);
        let expect = contents(&cluster);
        stopped(&cluster, 1, 3).expect("it takes more steps");
        let before = count_keys(&cluster, 0);
        assert!(before > 0 && before < KEYS as i64, "{name}: {before} keys at the source");

        cluster.kill(1);
        for order in [&["--resume"][..], &["--move", "0-9", "--to", &cluster.id(2)]] {
            let (is_done, text) = run(&cluster, order);
            assert!(!is_done && text.contains("does not answer"), "{name}: {text}");
        }
        assert_eq!(count_keys(&cluster, 0), before, "{name}: keys went to a server that is down");
        assert!(own_line(&cluster, 0).contains("->-"), "{name}: the mark is gone");

        cluster.restart(1);
        must(&cluster, &["--resume"]);
        assert!(owns(&cluster, 1), "{name}: the move was not finished");
        assert!(contents(&cluster) == expect, "{name}: keys differ");
    }
}

#[test]
fn keys_that_no_move_explains_are_reported_and_stay() {
    for (name, program) in programs() {
        let folder = tempfile::tempdir().unwrap();
        let cluster = RedisCluster::start(&program, folder.path(), NEVER);
        fill(&cluster);
        // The third master imports a key and forgets why.
        let (source, key) = (cluster.id(0), format!("{TAG}stray"));
        cluster.call(2, &["CLUSTER", "SETSLOT", SLOT, "IMPORTING", &source]);
        let mut client = cluster.client(2);
        client.call(&["ASKING"]).unwrap();
        client.call(&["SET", &key, "x"]).unwrap();
        cluster.call(2, &["CLUSTER", "SETSLOT", SLOT, "STABLE"]);

        let expect = format!("{} has 1 keys of it and does not own it", cluster.address(2));
        for order in [&["--status"][..], &["--resume"], &["--move", SLOT, "--to", &cluster.id(1)]] {
            let (is_done, text) = run(&cluster, order);
            assert!(!is_done && text.contains(&expect), "{name} {order:?}: {text}");
        }
        assert_eq!((count_keys(&cluster, 0), count_keys(&cluster, 2)), (KEYS as i64, 1));
        // Other slots still move.
        let (_, text) = run(&cluster, &["--move", "0-9", "--to", &cluster.id(1)]);
        assert!(text.contains("10 slots arrived (0-9)"), "{name}: {text}");
    }
}

/// X9: the flag of a move that has ended would later send the slot to its old target.
#[test]
fn a_stale_mark_is_closed_before_the_slot_moves_again() {
    for (name, program) in programs() {
        let folder = tempfile::tempdir().unwrap();
        let cluster = RedisCluster::start(&program, folder.path(), NEVER);
        let (source, target) = (cluster.id(0), cluster.id(1));
        cluster.call(1, &["CLUSTER", "SETSLOT", SLOT, "IMPORTING", &source]);
        cluster.call(0, &["CLUSTER", "SETSLOT", SLOT, "MIGRATING", &target]);
        cluster.call(1, &["CLUSTER", "SETSLOT", SLOT, "NODE", &target]);
        let learned = || if owns(&cluster, 0) { Err("not yet".to_owned()) } else { Ok(()) };
        eventually(LIMIT, learned).unwrap();
        eprintln!("{name} keeps the mark: {}", own_line(&cluster, 0).contains("->-"));

        must(&cluster, &["--move", SLOT, "--to", &source]);
        assert!(owns(&cluster, 0) && !own_line(&cluster, 0).contains('['), "{name}");
        must(&cluster, &["--resume"]);
        assert!(owns(&cluster, 0), "{name}: the slot went back to its old target");
    }
}

#[test]
fn a_move_that_another_tool_has_begun_meanwhile_is_finished_first() {
    for (_, program) in programs() {
        let folder = tempfile::tempdir().unwrap();
        let cluster = RedisCluster::start(&program, folder.path(), NEVER);
        fill(&cluster);
        let expect = contents(&cluster);
        let to = cluster.address(1).to_string();
        let mut command = place(&cluster, &["--move", "4573,4574", "--to", &to, "--by-key"]);
        command.args(["--steps", "--pace", "500ms"]).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        // The servers have been inspected, and three steps of the other slot are to come.
        assert!(lines.next().unwrap().unwrap().contains("4573"));
        let [source, target] = [0, 2].map(|server| cluster.id(server));
        cluster.call(2, &["CLUSTER", "SETSLOT", SLOT, "IMPORTING", &source]);
        cluster.call(0, &["CLUSTER", "SETSLOT", SLOT, "MIGRATING", &target]);
        let port = cluster.address(2).port().to_string();
        let (first, second) = (format!("{TAG}1"), format!("{TAG}2"));
        let words = ["MIGRATE", "127.0.0.1", &port, "", "0", "1000", "KEYS", &first, &second];
        cluster.call(0, &words);
        assert_eq!(count_keys(&cluster, 2), 2);
        lines.for_each(|line| drop(line.unwrap()));
        assert!(child.wait().unwrap().success());
        assert!(owns(&cluster, 1));
        assert!(contents(&cluster) == expect, "keys differ");
    }
}

/// A client that uses one key of the slot and is near to the second master.
fn sketch(cluster: &RedisCluster) -> String {
    let latency = |n: usize, ms: u32| format!("\"{}\":[10,{}]", cluster.address(n), ms * 10_000);
    let servers = [latency(0, 40), latency(1, 2), latency(2, 30)].join(",");
    format!(
        r#"{{"v":1,"client":"app","duration_ms":10000,"servers":{{{servers}}},"slots":{{"{SLOT}":[[1,1000,100]]}}}}"#
    )
}

#[test]
fn a_slot_goes_to_its_users_by_what_they_send() {
    for (name, program) in programs() {
        let folder = tempfile::tempdir().unwrap();
        let cluster = RedisCluster::start(&program, folder.path(), NEVER);
        fill(&cluster);
        let expect = contents(&cluster);
        let file = folder.path().join("sketches");
        fs::write(&file, format!("{}\nnot one\n", sketch(&cluster))).unwrap();
        let file = file.display().to_string();
        let advice = must(&cluster, &["--advise", "--sketches", &file]);
        // 100 uses a second, 38 ms each.
        assert!(advice.contains("1 moves save 3800.0 ms/s"), "{name}: {advice}");
        assert!(advice.contains("dropped: 1 sketches"), "{name}: {advice}");
        assert!(
            advice.contains("mean: 40.0 ms now, 2.0 ms then, 2.0 ms at best"),
            "{name}: {advice}"
        );
        let tail = must(&cluster, &["--advise", "--objective", "p95", "--sketches", &file]);
        assert!(tail.contains("p95: 40.0 ms now, 2.0 ms then"), "{name}: {tail}");
        for held in [["--keep", SLOT], ["--max-server-mib", "0"]] {
            let none = must(&cluster, &[&["--advise", "--sketches", &file][..], &held].concat());
            assert!(none.contains("0 moves save"), "{name}: {none}");
        }
        let key = format!("{TAG}0");
        let why = must(&cluster, &["--explain", &key, "--sketches", &file]);
        let (best, first) = (cluster.address(1), format!("at {}", cluster.address(0)));
        let sentence = format!("it moves to {best}, where an access takes 38.0 ms less");
        assert!(why.contains(&first) && why.contains(&sentence), "{name}: {why}");
        assert!(owns(&cluster, 0), "{name}: advice moved a slot");

        // What a client sends while it runs.
        let listen = ports::free();
        let mut command = place(&cluster, &["--listen", &listen.to_string(), "--window", "2s"]);
        let mut child = command.args(["--windows", "3"]).stdout(Stdio::null()).spawn().unwrap();
        let status = eventually(LIMIT, || post(listen, &sketch(&cluster)));
        assert_eq!(status.unwrap(), "204", "{name}");
        assert_eq!(post(listen, "nonsense").unwrap(), "400", "{name}");
        let metrics = http(listen, "GET /metrics", "").unwrap();
        let counted = "portolan_place_dropped_total{what=\"malformed_sketches\"} 1";
        assert!(metrics.contains(counted), "{name}: {metrics}");
        assert!(child.wait().unwrap().success(), "{name}");
        assert!(owns(&cluster, 1), "{name}: the slot has not moved");
        assert!(contents(&cluster) == expect, "{name}: keys differ");
    }
}

#[test]
fn a_server_is_known_by_its_hostname_too() {
    for (name, program) in programs() {
        let folder = tempfile::tempdir().unwrap();
        let cluster = RedisCluster::start(&program, folder.path(), NEVER);
        cluster.announce_hostnames();
        let named = |server: usize| format!("localhost:{}", cluster.address(server).port());
        // Of three masters one is named by its IP address still.
        let mut sketch = sketch(&cluster);
        for server in [0, 1] {
            sketch = sketch.replace(&cluster.address(server).to_string(), &named(server));
        }
        let file = folder.path().join("sketches");
        fs::write(&file, sketch).unwrap();
        let advice = must(&cluster, &["--advise", "--sketches", &file.display().to_string()]);
        assert!(advice.contains("1 moves save 3800.0 ms/s"), "{name}: {advice}");
        assert!(!advice.contains("dropped"), "{name}: {advice}");
        must(&cluster, &["--move", SLOT, "--to", &named(2)]);
        assert!(owns(&cluster, 2), "{name}");
    }
}

/// The rules that docs/placement.md has for the user, from the lines that begin so and the lines
/// that continue them.
fn documented_rules(begins: &str) -> Vec<String> {
    let docs = fs::read_to_string(binary::root().join("docs/placement.md")).unwrap();
    let mut lines = docs.lines().skip_while(|line| !line.starts_with(begins));
    let first = lines.next().unwrap_or_else(|| panic!("no line begins with {begins}"));
    let more = lines.take_while(|line| line.starts_with("  "));
    let words = [first].into_iter().chain(more).flat_map(str::split_whitespace);
    // ACL SETUSER and the name.
    words.skip(3).map(str::to_owned).collect()
}

/// Makes the user `placer` at all servers, with these rules alone.
fn make_user(cluster: &RedisCluster, rules: &[String]) {
    for n in 0..6 {
        let words = ["ACL", "SETUSER", "placer", "reset"].into_iter();
        let words: Vec<&str> = words.chain(rules.iter().map(String::as_str)).collect();
        cluster.call(n, &words);
    }
}

/// A password, and the same in a URL.
const SECRET: [&str; 2] = ["s@/c:100%", "s%40%2Fc%3A100%25"];

/// Runs it with a login in the URL, to its end.
fn run_as(cluster: &RedisCluster, login: &str, arguments: &[&str]) -> (bool, String) {
    let url = cluster.url().replace("redis://", &format!("redis://{login}@"));
    let mut command = Command::new(binary::portolan());
    command.args(["place", &url, "--timeout", "2s"]).args(arguments);
    let Output { status, stdout, stderr } =
        command.env("PORTOLAN_REDIS_PASSWORD", SECRET[0]).output().unwrap();
    (status.success(), String::from_utf8_lossy(&[stdout, stderr].concat()).into_owned())
}

#[test]
fn its_user_needs_the_documented_rules_and_no_more() {
    for (name, program) in programs() {
        let folder = tempfile::tempdir().unwrap();
        let cluster = RedisCluster::start(&program, folder.path(), NEVER);
        fill(&cluster);
        let expect = contents(&cluster);
        let file = folder.path().join("sketches");
        fs::write(&file, sketch(&cluster)).unwrap();
        let advise = ["--advise", "--sketches", &file.display().to_string()].map(str::to_owned);
        let advise: Vec<&str> = advise.iter().map(String::as_str).collect();
        let login = format!("placer:{}", SECRET[1]);
        let must_as = |arguments: &[&str]| {
            let (is_done, text) = run_as(&cluster, &login, arguments);
            assert!(is_done, "{name} {arguments:?}: {text}");
            text
        };
        let elsewhere = || cluster.id((0..3).find(|n| !owns(&cluster, *n)).unwrap());

        let rules = documented_rules("ACL SETUSER placer on >SECRET");
        let rules: Vec<String> =
            rules.iter().map(|rule| rule.replace("SECRET", SECRET[0])).collect();
        let without = |rule: &str| -> Vec<String> {
            rules.iter().filter(|one| *one != rule).cloned().collect()
        };
        // Servers keep the connections of MIGRATE for ten seconds: only the first one sends SELECT.
        make_user(&cluster, &without("+select"));
        let way = ["--move", SLOT, "--to", &cluster.id(1), "--by-key"];
        let (is_done, text) = run_as(&cluster, &login, &way);
        assert!(!is_done && text.contains("'select'"), "{name}: {text}");
        make_user(&cluster, &rules);
        must_as(&["--resume"]);
        assert!(contents(&cluster) == expect, "{name}: keys differ");
        must_as(&["--move", SLOT, "--to", &cluster.id(0), "--by-key"]);
        let advice = must_as(&advise);
        assert!(advice.contains("1 moves save 3800.0 ms/s"), "{name}: {advice}");
        must_as(&["--move", SLOT, "--to", &cluster.id(1), "--by-key"]);
        assert!(owns(&cluster, 1) && contents(&cluster) == expect, "{name}: keys differ");
        // The password from the environment, as it is.
        let (is_done, text) = run_as(&cluster, "placer", &["--status"]);
        assert!(is_done, "{name}: {text}");

        // Each rule is needed, for advice or for a move.
        let granted = |rule: &&String| rule.starts_with(['+', '~']) && *rule != "+select";
        for rule in rules.iter().filter(granted) {
            make_user(&cluster, &without(rule));
            let way = ["--move", SLOT, "--to", &elsewhere(), "--by-key"];
            let both = [&way[..], &advise].map(|order| run_as(&cluster, &login, order));
            assert!(!(both[0].0 && both[1].0), "{name}: {rule} is not needed: {both:?}");
            make_user(&cluster, &rules);
            must_as(&["--resume"]);
        }
        assert!(contents(&cluster) == expect, "{name}: keys differ");

        // By the server's own command, where there is one and the user may use it.
        let to = elsewhere();
        if name == "valkey" {
            let more = documented_rules("ACL SETUSER placer +command|info +cluster|migrateslots");
            make_user(&cluster, &[&rules[..], &more].concat());
        }
        let steps = must_as(&["--move", SLOT, "--to", &to, "--steps"]);
        assert_eq!(steps.contains("keys from"), name != "valkey", "{name}: {steps}");
        assert!(contents(&cluster) == expect, "{name}: keys differ");
        must_as(&advise);
        let to_look = "+cluster|myid +cluster|nodes +cluster|countkeysinslot +client|setname +info";
        let docs = fs::read_to_string(binary::root().join("docs/placement.md")).unwrap();
        assert!(docs.contains(to_look), "docs/placement.md has other rules: {to_look}");
        let to_look = to_look.split(' ').map(str::to_owned);
        let login_rules = rules.iter().filter(|rule| !rule.starts_with(['+', '~'])).cloned();
        make_user(&cluster, &login_rules.chain(to_look).collect::<Vec<_>>());
        let explain = [&["--explain", TAG][..], &advise[1..]].concat();
        for order in [&advise[..], &["--status"], &explain] {
            must_as(order);
        }
    }
}

/// Sends a request; the whole answer.
fn http(to: SocketAddr, request: &str, body: &str) -> Result<String, String> {
    let failed = |error: std::io::Error| error.to_string();
    let mut socket = TcpStream::connect(to).map_err(failed)?;
    let head = format!("{request} HTTP/1.1\r\nHost: place\r\nConnection: close");
    let request = format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    socket.write_all(request.as_bytes()).map_err(failed)?;
    let mut answer = String::new();
    socket.read_to_string(&mut answer).map_err(failed)?;
    Ok(answer)
}

/// Sends a sketch; the status that it is answered with.
fn post(to: SocketAddr, body: &str) -> Result<String, String> {
    let answer = http(to, "POST /v1/sketches", body)?;
    answer.split(' ').nth(1).map(str::to_owned).ok_or(answer.clone())
}

#[test]
fn clients_work_while_slots_move_and_one_mover_works_at_a_time() {
    if !toolchain::present("python3", "--version") {
        return;
    }
    for (name, program) in programs() {
        let folder = tempfile::tempdir().unwrap();
        let cluster = RedisCluster::start(&program, folder.path(), NEVER);
        let file = |name: &str| folder.path().join(name);
        let mut client = toolchain::python("cluster.py");
        client.env("PORTOLAN_REDIS", cluster.address(0).to_string());
        client.env("PORTOLAN_PREFIX", "car:").env("PORTOLAN_MASTERS", "3");
        client.env("PORTOLAN_STARTED", file("started")).env("PORTOLAN_STOP", file("stop"));
        let mut client = client.spawn().unwrap();
        let exists = |path: &Path| if path.exists() { Ok(()) } else { Err("not yet".to_owned()) };
        eventually(LIMIT, || exists(&file("started"))).unwrap();

        let mut refused = 0;
        for round in 0..number_from_env("PORTOLAN_ROUNDS", 6) as usize {
            let to = cluster.address(round % 3).to_string();
            let slots = format!("{}-{}", round * 1_000, round * 1_000 + 299);
            let way = if round % 2 == 0 { &["--by-key"][..] } else { &[] };
            let order = [&["--move", &slots, "--to", &to], way].concat();
            let mut first = place(&cluster, &order);
            let mut first = first.args(["--pace", "1ms"]).stdout(Stdio::null()).spawn().unwrap();
            std::thread::sleep(Duration::from_millis(500));
            let ended = client.try_wait().unwrap();
            assert!(ended.is_none(), "{name}: the client ended: {ended:?}");
            let (is_done, text) = run(&cluster, &["--resume"]);
            if first.try_wait().unwrap().is_none() {
                assert!(!is_done && text.contains("another `portolan place`"), "{name}: {text}");
                refused += 1;
            }
            assert!(first.wait().unwrap().success(), "{name}: {order:?}");
        }
        assert!(refused > 0, "{name}: two movers never met");
        fs::write(file("stop"), "").unwrap();
        assert!(client.wait().unwrap().success(), "{name}: see above");
        must(&cluster, &["--status"]);
    }
}

#[test]
fn slots_move_between_servers_that_want_tls() {
    // The server that PyPI has is built without TLS.
    for (name, program) in programs().into_iter().filter(|(name, _)| *name == "redis") {
        let folder = tempfile::tempdir().unwrap();
        let certificates = Authority::new(folder.path()).issue("server", None);
        let Certificates { ca, cert, key } = &certificates;
        let tls = Some(certificates.clone());
        let cluster = RedisCluster::start_with(&program, folder.path(), NEVER, tls);
        fill(&cluster);
        let expect = contents(&cluster);
        let secret = |arguments: &[&str]| {
            let mut command = Command::new(binary::portolan());
            command.args(["place", &cluster.secret_url()]).args(arguments);
            command.stdin(Stdio::null());
            let Output { status, stdout, stderr } = command.output().unwrap();
            let text = String::from_utf8_lossy(&[stdout, stderr].concat()).into_owned();
            (status.code(), text)
        };
        let flags = |rest: &[&str]| {
            let files = [("--tls-ca", ca), ("--tls-cert", cert), ("--tls-key", key)];
            let files =
                files.iter().map(|(flag, file)| [(*flag).to_owned(), file.display().to_string()]);
            let all = rest.iter().map(|word| (*word).to_owned()).chain(files.flatten());
            all.collect::<Vec<String>>()
        };
        let with = |rest: &[&str]| {
            let all = flags(rest);
            secret(&all.iter().map(String::as_str).collect::<Vec<_>>())
        };
        let to = cluster.id(1);
        let (code, text) = with(&["--move", SLOT, "--to", &to, "--by-key"]);
        assert_eq!(code, Some(0), "{name}: {text}");
        assert!(owns(&cluster, 1), "{name}");
        assert!(contents(&cluster) == expect, "{name}: keys differ");
        let (code, text) = with(&["--status"]);
        assert_eq!(code, Some(0), "{name}: {text}");
        // Without what is needed it ends, and reports what that is.
        let (code, text) = secret(&["--status"]);
        assert!(code != Some(0) && text.contains("rediss:// needs --tls-ca"), "{name}: {text}");
        let (code, text) = secret(&["--status", "--tls-ca", &ca.display().to_string()]);
        assert!(
            code != Some(0) && text.contains("no server of the cluster answers"),
            "{name}: {text}"
        );
        let (code, text) = secret(&["--status", "--tls-ca", &key.display().to_string()]);
        assert!(code != Some(0) && text.contains("no certificate in it"), "{name}: {text}");
    }
}
