//! The command line from the outside, as a shell or a script meets it: what is printed, on which
//! stream, and with which code it ends. The site behind it is one real node of the same program.

use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader, Read, Seek as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;
use tempfile::TempDir;

/// How long to wait for something that must come; a debug build on a busy machine is slow.
const LIMIT: Duration = Duration::from_secs(60);

const NO: i32 = 1;
const USAGE: i32 = 2;
const REFUSED: i32 = 3;
const UNAVAILABLE: i32 = 4;
const CANNOT_SERVE: i32 = 6;

/// The words that open a port to other machines, as the refusal must name them.
const INSECURE: &str = "--insecure allow-remote-without-credentials";

/// The program with these words.
fn portolan(words: &[&str]) -> Command {
    let mut command = field::binary::command(Path::new(env!("CARGO_BIN_EXE_portolan")));
    command.args(words);
    command
}

/// How a command ended.
#[derive(Debug)]
struct Ended {
    code: i32,
    out: String,
    err: String,
}

impl Ended {
    /// What it printed; it must have succeeded without a complaint.
    #[track_caller]
    fn out(self) -> String {
        assert_eq!((self.code, self.err.as_str()), (0, ""), "{self:?}");
        self.out
    }

    /// What it complained of; it must have failed with this code and printed nothing else.
    #[track_caller]
    fn err(self, code: i32) -> String {
        assert_eq!((self.code, self.out.as_str()), (code, ""), "{self:?}");
        self.err
    }
}

fn end(command: &mut Command) -> Ended {
    let output = command.output().expect("the binary runs");
    Ended {
        code: output.status.code().expect("no signal ended it"),
        out: String::from_utf8(output.stdout).expect("text"),
        err: String::from_utf8(output.stderr).expect("text"),
    }
}

fn run(words: &[&str]) -> Ended {
    end(&mut portolan(words))
}

/// The same with something on the standard input.
fn run_with_input(command: &mut Command, input: &[u8]) -> Ended {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(input).unwrap();
    file.rewind().unwrap();
    end(command.stdin(file))
}

#[track_caller]
fn assert_says(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "{word:?} is not in\n{text}");
    }
}

/// A running `portolan serve` on ports that the system has chosen. Killed when dropped.
struct Node {
    child: Child,
    log: Receiver<String>,
    grpc: String,
    /// What it printed about its ports.
    ports: String,
    _office: TempDir,
}

impl Node {
    /// A new site of one node.
    fn start(more: &[&str]) -> Node {
        let office = tempfile::tempdir().unwrap();
        let data = office.path().join("data");
        Node::start_in(office, &data, more)
    }

    /// A node with its data in this directory of the office.
    fn start_in(office: TempDir, data: &Path, more: &[&str]) -> Node {
        let any = "127.0.0.1:0";
        let mut command = portolan(&["serve", "--redis", any, "--grpc", any, "--peer", any]);
        let admin = if more.contains(&"--admin") { &[][..] } else { &["--admin", "off"] };
        command.args(admin).arg("--data").arg(data).args(more);
        let mut child = command.stderr(Stdio::piped()).spawn().expect("the binary runs");
        let log = lines_of(child.stderr.take().unwrap());
        let (grpc, ports) = (String::new(), String::new());
        let mut node = Node { child, log, grpc, ports, _office: office };
        node.ports = node.wait_serving();
        node.grpc = node.port("grpc");
        node
    }

    /// Where one of its ports is.
    fn port(&self, name: &str) -> String {
        let (_, after) = self.ports.split_once(&format!("{name} ")).expect("it names its ports");
        after.split(',').next().unwrap().to_owned()
    }

    /// What it prints about its ports, once it does.
    fn wait_serving(&mut self) -> String {
        let mut before = Vec::new();
        while let Ok(line) = self.log.recv_timeout(LIMIT) {
            if line.contains(" serves: ") {
                let (_, ports) = line.split_once(" serves: ").expect("it was just seen");
                return ports.trim().to_owned();
            }
            before.push(line);
        }
        panic!("it does not serve:\n{}", before.join("\n"));
    }

    /// A command for this site.
    fn command(&self, words: &[&str]) -> Command {
        let mut command = portolan(words);
        command.args(["--server", &self.grpc, "--deadline", "60s"]);
        command
    }

    fn run(&self, words: &[&str]) -> Ended {
        end(&mut self.command(words))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The lines of a process as they come. It never waits for a reader.
fn lines_of(pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            // The port may be closed already; the pipe is emptied all the same.
            let _ = sender.send(line);
        }
    });
    lines
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error} in\n{text}"))
}

#[test]
fn keys_are_written_read_and_removed() {
    let node = Node::start(&[]);
    let version: u64 = node.run(&["put", "car:7", "Pier 39"]).out().trim_end().parse().unwrap();
    assert_eq!(node.run(&["get", "car:7"]).out(), "Pier 39\n");
    assert_eq!(node.run(&["get", "car:7", "--stale"]).out(), "Pier 39\n");
    assert_eq!(node.run(&["get", "car:7", "--raw"]).out(), "Pier 39");
    let found = json(&node.run(&["get", "car:7", "--json"]).out());
    assert_eq!(found, serde_json::json!({"key": "car:7", "value": "Pier 39", "version": version}));

    assert_eq!(node.run(&["get", "absent"]).err(NO), "", "the code states it all");
    assert_eq!(node.run(&["del", "car:7", "absent"]).out(), "1\n");
    let again = node.run(&["del", "car:7"]);
    assert_eq!((again.code, again.out.as_str(), again.err.as_str()), (NO, "0\n", ""));
}

#[test]
fn any_value_is_kept_as_it_is() {
    let node = Node::start(&[]);
    let bytes = [&[0, 0xff, b'\n'][..], &[b'x'; 200_000]].concat();
    run_with_input(&mut node.command(&["put", "picture", "-"]), &bytes).out();
    let output = node.command(&["get", "picture", "--raw"]).output().unwrap();
    assert!(output.stdout == bytes, "{} bytes came back", output.stdout.len());
    let shown = json(&node.run(&["get", "picture", "--json"]).out());
    assert!(shown["value_hex"].as_str().unwrap().starts_with("00ff0a7878"));

    node.run(&["put", "longitude", "-122.4"]).out();
    assert_eq!(node.run(&["get", "longitude"]).out(), "-122.4\n", "a number is no flag");
}

#[test]
fn a_condition_that_does_not_hold_is_a_no_with_its_reason() {
    let node = Node::start(&[]);
    let absent = node.run(&["put", "lock", "me", "--if-present"]).err(NO);
    assert_eq!(absent, "portolan: not written: the key is absent\n");
    let first = node.run(&["put", "lock", "me", "--if-absent"]).out();
    let first = first.trim_end();
    let there = node.run(&["put", "lock", "you", "--if-absent"]).err(NO);
    assert_eq!(there, format!("portolan: not written: the key is there, with version {first}\n"));
    node.run(&["put", "lock", "you", "--if-version", first]).out();
    assert_says(&node.run(&["put", "lock", "me", "--if-version", first]).err(NO), &["is there"]);
    assert_eq!(node.run(&["get", "lock"]).out(), "you\n");

    node.run(&["put", "lock", "you", "--ttl", "1ms"]).out();
    // Log time passes with what the leader does; each question gives it a reason to look.
    let tries = 600;
    let gone = (0..tries).any(|_| {
        thread::sleep(LIMIT / tries);
        node.run(&["get", "lock"]).code == NO
    });
    assert!(gone, "a key with a ttl of 1 ms is still there");
}

#[test]
fn keys_are_listed_in_order() {
    let node = Node::start(&[]);
    for (key, value) in [("car:2", "b"), ("bus:1", "x"), ("car:1", "a\nb"), ("car:1:speed", "30")] {
        node.run(&["put", key, value]).out();
    }
    let table = node.run(&["scan", "car:", "--values"]).out();
    let rows: Vec<Vec<&str>> = table.lines().map(|row| row.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["version", "kind", "key", "value"]);
    let cells: Vec<&[&str]> = rows[1..].iter().map(|row| &row[1..]).collect();
    let string = |key, value| ["string", key, value];
    assert_eq!(
        cells,
        [string("car:1", "a\\nb"), string("car:1:speed", "30"), string("car:2", "b")]
    );

    let keys = |words: &[&str]| -> Vec<String> {
        let lines = node.run(&[words, &["--json"]].concat()).out();
        lines.lines().map(|line| json(line)["key"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(keys(&["scan"]), ["bus:1", "car:1", "car:1:speed", "car:2"]);
    assert_eq!(keys(&["scan", "--match", "*:?"]), ["bus:1", "car:1", "car:2"]);
    assert_eq!(keys(&["scan", "car:", "--limit", "2"]), ["car:1", "car:1:speed"]);
    assert_eq!(node.run(&["scan", "none:"]).out(), "", "no rows, no head");
    assert_says(&node.run(&["scan", "-k", "none"]).err(REFUSED), &["none"]);
}

#[test]
fn changes_are_told_as_they_happen() {
    let node = Node::start(&[]);
    let mut watch = node.command(&["watch", "car:", "--values", "--json", "--limit", "3"]);
    let mut watch = watch.stdout(Stdio::piped()).spawn().unwrap();
    let lines = lines_of(watch.stdout.take().unwrap());
    // It prints nothing when it begins, so keys are written until it does.
    let first = (0..LIMIT.as_secs() * 10).find_map(|_| {
        node.run(&["put", "bus:1", "x"]).out();
        node.run(&["put", "car:1", "a"]).out();
        lines.recv_timeout(Duration::from_millis(100)).ok()
    });
    let first = json(&first.expect("a change is shown"));
    assert_eq!((&first["change"], &first["key"]), (&"put".into(), &"car:1".into()));
    assert_eq!((&first["value"], &first["version"].is_u64()), (&"a".into(), &true));

    // The watch may have begun between two of the changes above; the last one stands for itself.
    node.run(&["del", "car:1"]).out();
    node.run(&["put", "car:2", "b"]).out();
    let reported: Vec<Value> = lines.iter().map(|line| json(&line)).collect();
    assert_eq!(reported.len(), 2, "--limit counts what was shown: {reported:?}");
    assert!(watch.wait().unwrap().success());

    let after = first["revision"].to_string();
    let again = node.run(&["watch", "car:", "--after", &after, "--limit", "1"]).out();
    let words: Vec<&str> = again.split_whitespace().collect();
    assert!(words[0].parse::<u64>().unwrap() > after.parse().unwrap(), "{again}");
    assert!(words[1..] == ["put", "car:1"] || words[1..] == ["delete", "car:1"], "{again}");
}

#[test]
fn keyspaces_are_made_listed_shown_and_dropped() {
    let node = Node::start(&[]);
    let create = ["keyspace", "create", "cars", "--prefix", "car:"];
    assert_eq!(node.run(&create).out(), "");
    node.run(&["put", "car:1", "a", "--keyspace", "cars"]).out();
    node.run(&["get", "car:1"]).err(NO);

    let table = node.run(&["keyspace", "list"]).out();
    let heads = table.lines().next().unwrap().split_whitespace().collect::<Vec<_>>();
    let all = ["id", "name", "prefix", "consistency", "scope", "placement", "cache", "sites"];
    let all = [&all[..], &["lend-to", "priority"]].concat();
    assert_eq!(heads, all);
    assert_says(&table, &["default", "cars  "]);
    let list = json(&node.run(&["keyspace", "list", "--json"]).out());
    assert_eq!((&list[1]["name"], &list[1]["prefix"]), (&"cars".into(), &"car:".into()));
    let shown = node.run(&["keyspace", "show", "cars"]).out();
    assert_says(&shown, &["linearizable/site", "by quorum"]);
    let shown = json(&node.run(&["keyspace", "show", "cars", "--json"]).out());
    assert_eq!((&shown["keys"], &shown["lease_reads"]), (&1.into(), &false.into()));

    assert_says(&node.run(&create).err(REFUSED), &["cars"]);
    let eventual = [&create[..], &["--consistency", "eventual"]].concat();
    assert_says(&node.run(&eventual).err(USAGE), &["this version serves linearizable/site"]);
    let cached = [&create[..], &["--cache", "validated"]].concat();
    assert_says(&node.run(&cached).err(USAGE), &["only scope global has remote keys"]);
    let maps = ["keyspace", "create", "maps", "--prefix", "map:", "--scope", "global"];
    let old = [&maps[..], &["--cache", "validated", "--cache-age-ms-max", "500"]].concat();
    assert_says(&node.run(&old).err(USAGE), &["cache_age_ms_max needs"]);
    node.run(&[&maps[..], &["--cache", "stale", "--cache-age-ms-max", "500"]].concat()).out();
    let shown = node.run(&["keyspace", "show", "maps"]).out();
    assert_says(&shown, &["linearizable/global", "stale for 500 ms, 8388608 bytes a node"]);
    let shown = json(&node.run(&["keyspace", "show", "maps", "--json"]).out());
    assert_eq!((&shown["cache"], &shown["cache_age_ms_max"]), (&"stale".into(), &500.into()));
    assert_says(&node.run(&["keyspace", "drop", "cars"]).err(USAGE), &["--yes"]);
    assert_eq!(node.run(&["keyspace", "drop", "cars", "--yes"]).out(), "");
    assert_says(&node.run(&["keyspace", "show", "cars"]).err(REFUSED), &["cars"]);
    let default = node.run(&["keyspace", "drop", "default", "--yes"]).err(REFUSED);
    assert_says(&default, &["default"]);
}

#[test]
fn a_node_in_another_region_is_refused_or_reported() {
    let kept = tempfile::tempdir().unwrap();
    let data = kept.path().join("data");
    let start = |more: &[&str]| Node::start_in(tempfile::tempdir().unwrap(), &data, more);
    let node = start(&["--site", "pier-39", "--region", "east"]);
    let asked = || node.run(&["site", "show", "pier-39"]);
    assert!((0..100).any(|_| asked().code == 0), "it founds a deployment");
    let create = ["keyspace", "create", "cars", "--prefix", "car:", "--scope", "region"];
    node.run(&[&create[..], &["--consistency", "causal"]].concat()).out();
    let mut shown = (0..100).map(|_| node.run(&["region", "show"]).out());
    let shown = shown.find(|shown| shown.contains("pier-39"));
    assert_says(&shown.expect("it is shown soon"), &["name", "east"]);
    let unknown = ["region", "standby", "--nearest", "--region", "west"];
    assert_says(&node.run(&unknown).err(REFUSED), &["there is no region west"]);
    drop(node);
    let any = "127.0.0.1:0";
    let ports = ["serve", "--redis", any, "--grpc", any, "--peer", any, "--admin", "off"];
    let mut other = portolan(&ports);
    other.arg("--data").arg(&data).args(["--site", "pier-39", "--region", "west"]);
    // A node whose state lags behind its log learns its region a moment later, and reports it then.
    let mut child = other.stderr(Stdio::piped()).spawn().expect("the binary runs");
    let log = lines_of(child.stderr.take().unwrap());
    let mut lines = std::iter::from_fn(|| log.recv_timeout(LIMIT).ok());
    let said = lines.find(|line| line.contains("joined in the region east"));
    let (_, _) = (child.kill(), child.wait());
    assert_says(&said.expect("it reports that"), &["not with --region west"]);
    drop(start(&["--site", "pier-39"]));
}

#[test]
fn where_keys_may_go_is_stated_shown_and_taken_back() {
    let settings = ["--site", "pier-39", "--failure-domain", "hall", "--region", "east"];
    let node = Node::start(&settings);
    // The site's leader founds its deployment a moment after the node serves.
    let asked = || node.run(&["site", "show", "pier-39"]);
    let shown = (0..100).map(|_| asked()).find(|shown| shown.code == 0);
    let shown = shown.expect("it is shown soon").out();
    assert_says(&shown, &["failure domain: hall", "region: east"]);
    assert_says(&node.run(&["site", "list"]).out(), &["domain", "hall", "region", "east"]);
    let sites = json(&node.run(&["site", "list", "--json"]).out());
    assert_eq!(sites["sites"][0]["failure_domain"], "hall");
    assert_eq!(sites["sites"][0]["region"], "east");

    let create = ["keyspace", "create", "cars", "--prefix", "car:", "--scope", "global"];
    let rules = ["--lend-to", "pier-39", "--priority", "300"];
    let lacks = node.run(&[&create[..], &rules].concat()).err(USAGE);
    assert_says(&lacks, &["--lend-to or --priority", "only placement adaptive lends"]);
    let adaptive = [&create[..], &["--placement", "adaptive"]].concat();
    for (wrong, says) in [
        (["--priority", "0"], "--priority"),
        (["--priority", "1001"], "1..=1000"),
        (["--lend-to", ""], "--lend-to"),
        (["--lend-to", "pier-39,"], "or state any for all sites"),
        (["--lend-to", "any,pier-39"], "--lend-to takes names of sites"),
        (["--sites", "a,,b"], "--sites"),
    ] {
        assert_says(&node.run(&[&adaptive[..], &wrong].concat()).err(USAGE), &[says]);
    }
    // What there is decides, as of other names.
    let absent = node.run(&[&adaptive[..], &["--lend-to", "harbour"]].concat()).err(REFUSED);
    assert_says(&absent, &["there is no site harbour"]);
    let absent = node.run(&["site", "show", "harbour"]).err(REFUSED);
    assert_says(&absent, &["there is no site harbour"]);
    let with_blanks = ["--lend-to", " pier-39, pier-39 ", "--priority", "300"];
    node.run(&[&adaptive[..], &with_blanks].concat()).out();
    let text = node.run(&["keyspace", "show", "cars"]).out();
    assert_says(&text, &["lend-to", "pier-39", "priority", "300"]);
    let list = node.run(&["keyspace", "list"]).out();
    let last_two = |name: &str| {
        let row = list.lines().find(|row| row.contains(name)).unwrap();
        let mut words = row.split_whitespace().rev();
        (words.next().unwrap().to_owned(), words.next().unwrap().to_owned())
    };
    assert_eq!(last_two("cars"), ("300".into(), "pier-39".into()));
    assert_eq!(last_two("default"), ("-".into(), "-".into()));
    let alter = |words: &[&str]| node.run(&[&["keyspace", "alter"], words].concat());
    assert_says(&alter(&["cars"]).err(USAGE), &["--placement"]);
    alter(&["cars", "--lend-to", "any", "--priority", "100"]).out();
    let shown = json(&node.run(&["keyspace", "show", "cars", "--json"]).out());
    assert_eq!((&shown["lend_to"], &shown["priority"]), (&serde_json::json!([]), &100.into()));
    let depots = ["keyspace", "create", "depots", "--prefix", "depot:", "--scope", "global"];
    node.run(&depots).out();
    let not_adaptive = alter(&["depots", "--priority", "7"]).err(REFUSED);
    assert_says(&not_adaptive, &["depots", "placement adaptive"]);

    let placement = |words: &[&str]| node.run(&[&["placement"], words].concat());
    assert_eq!(placement(&["pins", "--json"]).out(), "[]\n");
    assert_eq!(placement(&["pin", "car:{7}:plan", "pier-39"]).out(), "");
    assert_says(&placement(&["pins"]).out(), &["cars", "7", "pier-39", "is there"]);
    let pins = json(&placement(&["pins", "--json"]).out());
    let pin = serde_json::json!([
        { "keyspace": "cars", "tag": "7", "site": "pier-39", "state": "there" }
    ]);
    assert_eq!(pins, pin);
    assert_says(&placement(&["explain", "car:{7}:place"]).out(), &["why: pinned to pier-39"]);
    let explained = json(&placement(&["explain", "car:{7}", "--json"]).out());
    assert_eq!((&explained["pinned_to"], &explained["better"]), (&"pier-39".into(), &Value::Null));
    for (words, says) in [
        (&["pin", "car:7", "harbour"][..], "there is no site harbour"),
        (&["pin", "depot:7", "pier-39"], "\"depots\" is not adaptive"),
        (&["pin", "7", "pier-39"], "\"default\" is not adaptive"),
        (&["unpin", "car:8"], "is not pinned"),
    ] {
        assert_says(&placement(words).err(REFUSED), &[says]);
    }
    assert_eq!(placement(&["unpin", "car:{7}"]).out(), "");
    assert_eq!(placement(&["pins"]).out().lines().count(), 1, "the head");
    // With its keyspace a pin is gone.
    placement(&["pin", "car:7", "pier-39"]).out();
    node.run(&["keyspace", "drop", "cars", "--yes"]).out();
    assert_eq!(placement(&["pins", "--json"]).out(), "[]\n");
}

#[test]
fn a_keyspace_of_the_configuration_names_the_sites_that_it_waits_for() {
    let office = tempfile::tempdir().unwrap();
    let (data, config) = (office.path().join("data"), office.path().join("node.toml"));
    let text = "[[keyspace]]\nname = \"cars\"\nprefix = \"car:\"\nscope = \"global\"\n\
                placement = \"adaptive\"\nlend_to = [\"pier-39\", \"harbour\"]\n";
    fs::write(&config, text).unwrap();
    let any = "127.0.0.1:0";
    let mut command = portolan(&["serve", "--redis", any, "--grpc", any, "--peer", any]);
    command.args(["--admin", "off", "--site", "pier-39", "--data"]).arg(data);
    command.arg("--config").arg(config);
    let mut child = command.stderr(Stdio::piped()).spawn().expect("the binary runs");
    let log = lines_of(child.stderr.take().unwrap());
    let (grpc, ports) = (String::new(), String::new());
    let node = Node { child, log, grpc, ports, _office: office };
    let mut lines = std::iter::from_fn(|| node.log.recv_timeout(LIMIT).ok());
    let line = lines.find(|line| line.contains("lend_to")).expect("it is logged");
    assert_says(&line, &["\"cars\"", "joined: harbour ("]);
}

#[test]
fn a_site_shows_its_members_and_refuses_what_would_end_it() {
    let node = Node::start(&["--site", "pier-39"]);
    node.run(&["put", "a", "1"]).out();
    let text = node.run(&["status"]).out();
    assert_says(&text, &["site pier-39: leader n1", "n1    voter (leader)", "peer address"]);
    let status = json(&node.run(&["status", "--json"]).out());
    assert_eq!((&status["site"], &status["leader"]), (&"pier-39".into(), &1.into()));
    assert_eq!(status["members"][0]["role"], "voter");

    assert_says(&node.run(&["member", "remove", "1"]).err(REFUSED), &["last voter"]);
    assert_says(&node.run(&["member", "remove", "7"]).err(REFUSED), &["n7"]);
    assert_says(&node.run(&["member", "transfer", "7"]).err(REFUSED), &["n7"]);
    assert_says(&node.run(&["member", "remove", "0"]).err(USAGE), &["<NODE>"]);
    let nowhere = node.run(&["member", "add", "2", "nowhere"]).err(REFUSED);
    assert_says(&nowhere, &["nowhere"]);
}

#[test]
fn a_site_shows_who_holds_the_registry_and_loses_nobody_that_answers() {
    let node = Node::start(&["--site", "pier-39"]);
    // The site's leader founds its deployment a moment after the node serves.
    let asked = || node.run(&["registry", "show"]);
    let shown = (0..100).map(|_| asked()).find(|shown| shown.code == 0);
    let text = shown.expect("it is shown soon").out();
    assert_says(
        &text,
        &["registry 1@s1: 1 changes, 0 waiting here", "it can be changed", "pier-39"],
    );
    let shown = json(&node.run(&["registry", "show", "--json"]).out());
    assert_eq!((&shown["version"], &shown["has_majority"]), (&"1@s1".into(), &true.into()));
    assert_eq!(shown["registrars"][0], serde_json::json!({ "site": "pier-39", "answers": true }));
    assert_says(&node.run(&["registry", "recover"]).err(USAGE), &["--without"]);
    let absent = node.run(&["registry", "recover", "--without", "harbour", "--yes"]).err(REFUSED);
    assert_says(&absent, &["there is no site harbour"]);
    let itself = node.run(&["registry", "recover", "--without", "pier-39", "--yes"]).err(NO);
    assert_says(&itself, &["pier-39 answers"]);
}

#[test]
fn jobs_of_a_site_are_listed_paused_and_resumed() {
    let node = Node::start(&["--site", "pier-39"]);
    assert_says(&node.run(&["job", "list"]).out(), &["handover", "mirror", "idle", "0 slots"]);
    let listed = json(&node.run(&["job", "list", "--json"]).out());
    assert_eq!((&listed[0]["name"], &listed[0]["paused"]), (&"handover".into(), &false.into()));
    assert_eq!(listed[0]["last_error"], serde_json::Value::Null);
    assert_says(&node.run(&["job", "pause", "handover"]).out(), &["job handover: paused"]);
    let shown = || json(&node.run(&["job", "show", "handover", "--json"]).out());
    assert_eq!((&shown()["paused"], &shown()["state"]), (&true.into(), &"paused".into()));
    assert_says(&node.run(&["job", "show", "mirror"]).out(), &["job mirror: idle"]);
    assert_says(&node.run(&["job", "resume", "handover"]).out(), &["job handover: idle"]);
    assert_eq!(shown()["paused"], false);
    for verb in ["show", "pause", "resume"] {
        let nothing = node.run(&["job", verb, "gardening"]);
        assert!(nothing.code == USAGE || nothing.code == REFUSED, "{verb}");
    }
}

#[test]
fn a_backup_is_restored_as_another_site() {
    let office = tempfile::tempdir().unwrap();
    let at = |name: &str| office.path().join(name).display().to_string();
    let (file, data) = (at("site.backup"), at("restored"));
    {
        let node = Node::start(&[]);
        node.run(&["put", "a", "1"]).out();
        assert_says(&node.run(&["backup", &file, "--quiet"]).out(), &[" bytes in ", &file]);
        assert_says(&node.run(&["backup", &file]).err(USAGE), &[&file, "exists"]);
        let unwritable = at("no/such/folder");
        assert_says(&node.run(&["backup", &unwritable]).err(CANNOT_SERVE), &[&unwritable]);
    }
    let restore = ["restore", &file, "--data", &data, "--site", "new", "--quiet"];
    assert_says(&run(&restore).out(), &[" rows as of ", &data]);
    assert_says(&run(&restore).err(CANNOT_SERVE), &[&data, "empty"]);

    let damaged = at("damaged.backup");
    let mut bytes = fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&damaged, bytes).unwrap();
    let elsewhere = at("elsewhere");
    run(&["restore", &damaged, "--data", &elsewhere, "--quiet"]).err(CANNOT_SERVE);
    let absent = run(&["restore", &at("absent"), "--data", &elsewhere]).err(CANNOT_SERVE);
    assert_says(&absent, &["absent"]);
    let name = run(&["restore", &file, "--data", &elsewhere, "--site", "A b"]).err(USAGE);
    assert_says(&name, &["--site"]);

    let node = Node::start_in(office, data.as_ref(), &["--site", "new"]);
    assert_eq!(node.run(&["get", "a"]).out(), "1\n");
}

#[test]
fn a_password_opens_the_door_and_a_wrong_one_does_not() {
    let hash = run_with_input(&mut portolan(&["hash-password"]), b"secret\n").out();
    assert!(hash.starts_with("$argon2id$"), "{hash}");
    let office = tempfile::tempdir().unwrap();
    let config = office.path().join("portolan.toml");
    let rights = "rights = [{ keyspace = \"*\", allow = [\"read\", \"write\"] }]";
    let user = format!("[[user]]\nname = \"fleet\"\npassword_hash = \"{}\"\n", hash.trim_end());
    fs::write(&config, user + rights).unwrap();
    let node = Node::start(&["--config", config.to_str().unwrap()]);

    let stranger = node.run(&["get", "a"]).err(REFUSED);
    assert_says(&stranger, &["not let in", "--user"]);
    let put = |password: &str| {
        let mut command = node.command(&["put", "a", "1", "--user", "fleet"]);
        end(command.env("PORTOLAN_PASSWORD", password))
    };
    assert_says(&put("guess").err(REFUSED), &["not let in"]);
    put("secret").out();
    let file = office.path().join("password");
    fs::write(&file, "secret\n").unwrap();
    let file = file.to_str().unwrap();
    let words = ["get", "a", "--user", "fleet", "--password-file", file];
    assert_eq!(node.run(&words).out(), "1\n");
    let typed = node.command(&["get", "a", "--user", "fleet"]);
    assert_eq!(run_with_input(&mut { typed }, b"secret\n").out(), "1\n");
    assert_says(
        &node.run(&[&words[..4], &["--password-file", "none"]].concat()).err(USAGE),
        &["--password-file none"],
    );
    let status =
        end(node.command(&["status", "--user", "fleet"]).env("PORTOLAN_PASSWORD", "secret"));
    assert_says(&status.err(REFUSED), &["not allowed", "admin"]);
}

#[test]
fn a_site_that_is_not_there_is_unavailable() {
    // Bound and not listening: a connection is refused, and no other process can take the port.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let closed = socket.local_addr().unwrap().to_string();
    for words in [&["get", "a"][..], &["put", "a", "1"], &["status"], &["watch"]] {
        let within = |deadline: &str| {
            let refused = run(&[words, &["--server", &closed, "--deadline", deadline]].concat());
            refused.err(UNAVAILABLE)
        };
        // On a slow machine a second is too short to find out anything.
        let refused = Some(within("1s")).filter(|text| !text.contains("did not answer in time"));
        let refused = refused.unwrap_or_else(|| within("30s"));
        assert_says(&refused, &["nothing was done", &closed, "nothing listens there", "--server"]);
    }
}

#[test]
fn status_does_not_wait_as_long_for_a_silent_node_as_a_read() {
    // Connections are made, and nothing reads them.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let command = |words: &[&str]| {
        let mut command = portolan(&[words, &["--server", &address]].concat());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command
    };
    let mut status = command(&["status"]).spawn().unwrap();
    let mut read = command(&["get", "a"]).spawn().unwrap();
    assert_eq!(status.wait().unwrap().code(), Some(UNAVAILABLE));
    let goes_on = read.try_wait().unwrap().is_none();
    read.wait().unwrap();
    assert!(goes_on, "the read ended first");
}

#[test]
fn another_port_of_a_node_is_told_from_a_node_and_no_outcome_is_unknown() {
    let node = Node::start(&["--admin", "127.0.0.1:0"]);
    for (port, says) in [("redis", "Redis port"), ("admin", "another port"), ("peer", "")] {
        let address = node.port(port);
        for words in [&["put", "a", "1"][..], &["member", "remove", "9"], &["status"]] {
            // A peer port may be a node that is busy, and is asked until the deadline.
            let words = [words, &["--server", &address, "--deadline", "2s"]].concat();
            let refused = run(&words).err(UNAVAILABLE);
            assert_says(&refused, &["nothing was done", &address, says]);
        }
    }
    assert_eq!(node.run(&["get", "a"]).err(NO), "");
}

#[test]
fn a_hash_is_shown_by_its_fields() {
    let node = Node::start(&[]);
    let mut redis = TcpStream::connect(node.port("redis")).unwrap();
    redis.write_all(b"HSET car:7 speed 30 place 'Pier 39'\r\n").unwrap();
    let mut reply = [0; 4];
    redis.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b":2\r\n");
    let shown = node.run(&["get", "car:7"]).out();
    assert_eq!(shown, "field  value\nplace  Pier 39\nspeed  30\n");
    let shown = json(&node.run(&["get", "car:7", "--json", "--stale"]).out());
    let fields = serde_json::json!([
        {"field": "place", "value": "Pier 39"}, {"field": "speed", "value": "30"}
    ]);
    assert_eq!((&shown["key"], &shown["kind"]), (&"car:7".into(), &"hash".into()));
    assert_eq!(shown["fields"], fields);
    assert_says(&node.run(&["get", "car:7", "--raw"]).err(REFUSED), &["car:7", "hash", "--json"]);
    assert_says(&node.run(&["scan", "--values"]).out(), &["hash", "car:7", "`portolan get`"]);
}

#[test]
fn an_error_of_a_file_names_it_and_what_was_tried() {
    let office = tempfile::tempdir().unwrap();
    let folder = office.path().to_str().unwrap();
    let absent = format!("{folder}/absent");
    let text = format!("{folder}/text");
    fs::write(&text, "no certificate\n").unwrap();
    for (words, code, says) in [
        (&["get", "a", "--tls-ca", &absent][..], USAGE, "cannot read it"),
        (&["get", "a", "--tls-ca", &text], USAGE, "no certificate in PEM form"),
        (&["get", "a", "--user", "u", "--password-file", folder], USAGE, "cannot read it"),
        (&["serve", "--config", &absent], USAGE, "cannot read it"),
        (&["serve", "--data", &text, "--peer", "127.0.0.1:0"], CANNOT_SERVE, "cannot be created"),
        (&["restore", &absent], CANNOT_SERVE, "open: No such file"),
        (&["lab", "verdict", &absent], USAGE, "cannot open it"),
        (&["lab", "verdict", folder], USAGE, "cannot read the history"),
        (&["lab", "run", folder], USAGE, "cannot read the world file"),
        (&["demo", "--trace", &absent], USAGE, "cannot open the trace"),
        (&["demo", "--world", folder], USAGE, "cannot read the world file"),
    ] {
        let mut command = portolan(words);
        let reported = end(command.current_dir(&office)).err(code);
        // Of --tls-ca the flag states which.
        let names_it = reported.contains(folder) || reported.contains("--tls-ca");
        assert!(names_it && reported.contains(says), "{words:?}: {reported}");
    }
}

#[test]
fn a_configuration_is_shown_as_it_would_be_used() {
    let office = tempfile::tempdir().unwrap();
    let file = office.path().join("portolan.toml");
    fs::write(&file, "site = \"pier-39\"\nnode = 3\n[listen]\nadmin = \"off\"\n").unwrap();
    let file = file.to_str().unwrap();
    let check = ["check-config", "--config", file, "--node", "4"];
    let mut check = portolan(&check);
    check.env("PORTOLAN_NODE", "5").env("PORTOLAN_REDIS", "off").current_dir(office.path());
    let shown = end(&mut check).out();
    for line in ["site = \"pier-39\"", "node = 4", "redis = \"off\"", "admin = \"off\""] {
        assert!(shown.lines().any(|shown| shown == line), "{line} is not in\n{shown}");
    }
    let again = office.path().join("again.toml");
    fs::write(&again, &shown).unwrap();
    assert_eq!(run(&["check-config", "--config", again.to_str().unwrap()]).out(), shown);
    assert!(!office.path().join("portolan-data").exists(), "looking changes nothing");
}

#[test]
fn what_is_wrong_with_a_configuration_is_named() {
    let office = tempfile::tempdir().unwrap();
    let file = office.path().join("portolan.toml");
    let name = file.to_str().unwrap();
    let refusal = |text: &str| {
        fs::write(&file, text).unwrap();
        let refused = run(&["check-config", "--config", name]).err(CANNOT_SERVE);
        let served = run(&["serve", "--config", name]).err(CANNOT_SERVE);
        assert_eq!(refused, served, "both report the same");
        refused
    };
    let unknown = refusal("site = \"a\"\n\n[raft]\nelction_timeout_ms = 3\n");
    let place = format!("portolan: {name}:4:1: ");
    assert!(unknown.starts_with(&place), "{unknown}");
    assert_says(&unknown, &["elction_timeout_ms", "did you mean election_timeout_ms?"]);
    assert_says(&refusal("node = \"one\""), &[&format!("{name}:1:8: "), "expected u64"]);
    assert_says(&refusal("site = "), &[&format!("{name}:1:")]);
    assert_says(&refusal("[front]\nthreads = 0"), &["front.threads: must be 1 to 256"]);
    assert_says(&refusal("site = \"A b\""), &["--site: "]);
    assert_says(&refusal("join = [\"nowhere\"]"), &["--join: \"nowhere\" is not HOST:PORT"]);
    let empty = end(portolan(&["check-config"]).env("PORTOLAN_JOIN", ""));
    assert_says(&empty.err(CANNOT_SERVE), &["--join: \"\" is not HOST:PORT"]);
    assert_says(
        &run(&["check-config", "--config", "absent.toml"]).err(USAGE),
        &["--config absent.toml: "],
    );
}

#[test]
fn a_port_for_other_machines_needs_credentials_or_the_flag() {
    let office = tempfile::tempdir().unwrap();
    let data = office.path().join("data");
    let data = data.to_str().unwrap();
    for port in ["--redis", "--grpc", "--peer", "--admin"] {
        // An address for documentation (RFC 5737): it cannot be opened here even by mistake.
        let words = ["serve", "--data", data, port, "192.0.2.1:7379"];
        let refused = run(&words).err(CANNOT_SERVE);
        assert_says(&refused, &[&format!("{port} 192.0.2.1:7379"), INSECURE]);
        assert!(!Path::new(data).exists(), "nothing was begun");
        let said = ["check-config", port, "192.0.2.1:7379", "--insecure"];
        let allowed = [&said[..], &["allow-remote-without-credentials"]].concat();
        assert_says(&run(&allowed).out(), &["# warning: --insecure"]);
        assert_says(&run(&[&said[..], &["yes"]].concat()).err(CANNOT_SERVE), &["--insecure: "]);
    }
}

/// The commands that a help text lists.
fn commands_in(help: &str) -> Vec<String> {
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let listed = listed.take_while(|line| line.starts_with("  "));
    listed.map(|line| line.split_whitespace().next().unwrap().to_owned()).collect()
}

/// Every command with its sub-commands, as the program's own help names them.
fn every_command() -> BTreeSet<Vec<String>> {
    let (mut found, mut open) = (BTreeSet::new(), vec![Vec::new()]);
    while let Some(command) = open.pop() {
        let help = end(portolan(&[]).args(&command).arg("--help")).out();
        assert_says(&help, &["Usage: portolan", "--help"]);
        for name in commands_in(&help) {
            open.push([&command[..], &[name]].concat());
        }
        found.insert(command);
    }
    found
}

#[test]
fn every_command_explains_itself_and_refuses_unknown_flags() {
    let commands = every_command();
    for known in ["serve", "check-config", "get", "watch", "backup", "completions", "demo"] {
        assert!(commands.contains(&vec![known.to_owned()]), "{known} is not listed");
    }
    assert!(commands.contains(&vec!["keyspace".to_owned(), "drop".to_owned()]), "{commands:?}");
    for command in &commands {
        end(portolan(&[]).args(command).arg("-h")).out();
        let refused = end(portolan(&[]).args(command).arg("--no-such-flag")).err(USAGE);
        assert_says(&refused, &["--no-such-flag"]);
    }
    assert_says(&run(&["--version"]).out(), &[env!("CARGO_PKG_VERSION")]);
    assert_says(&run(&["gte", "a"]).err(USAGE), &["gte"]);
}

#[cfg(unix)]
#[test]
fn a_path_that_no_configuration_can_contain_names_its_flag() {
    use std::os::unix::ffi::OsStrExt as _;
    let path = std::ffi::OsStr::from_bytes(b"d\xff");
    for flag in ["--data", "--etcd-ca", "--peer-secret-file", "--join-token-file"] {
        let refused = end(portolan(&["serve", flag]).arg(path)).err(USAGE);
        assert_says(&refused, &[flag, "UTF-8"]);
        let variable = format!("PORTOLAN_{}", flag[2..].replace('-', "_").to_uppercase());
        let refused = end(portolan(&["serve"]).env(variable, path)).err(USAGE);
        assert_says(&refused, &[flag, "UTF-8"]);
    }
}

#[test]
fn a_wrong_value_names_its_flag() {
    for (words, named) in [
        (&["get"][..], "<KEY>"),
        (&["get", "a", "--deadline", "10"], "--deadline"),
        (&["get", "a", "--server", "nowhere"], "--server"),
        (&["get", "a", "--server", ""], "--server"),
        (&["get", "a", "--json", "--raw"], "--raw"),
        (&["get", "a", "--tls-cert", "c"], "--tls-key"),
        (&["get", "a", "--tls-ca", "none.pem"], "--tls-ca none.pem"),
        (&["get", "a", "--user", "a:b", "--password-file", "Cargo.toml"], "--user"),
        (&["put", "a", "1", "--ttl", "0s"], "--ttl"),
        (&["put", "a", "1", "--if-absent", "--if-present"], "--if-present"),
        (&["scan", "--limit", "0"], "--limit"),
        (&["serve", "--redis", "here"], "--redis"),
        (&["serve", "--node", "one"], "--node"),
        (&["serve", "--log", "a=b=c"], "--log"),
        (&["restore", "file", "--node", "0"], "--node"),
        (&["restore", "file", "--peer", "nowhere"], "--peer"),
        (&["completions", "dos"], "<SHELL>"),
        (&["demo", "--for", "long"], "--for"),
    ] {
        let refused = run(words).err(USAGE);
        assert!(refused.contains(named), "{words:?}: {named} is not in\n{refused}");
    }
}

#[test]
fn completions_know_every_command() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = run(&["completions", shell]).out();
        for command in every_command().iter().filter_map(|command| command.last()) {
            assert!(script.contains(command.as_str()), "{shell}: {command} is not completed");
        }
    }
}
