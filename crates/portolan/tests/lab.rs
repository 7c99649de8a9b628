//! `portolan lab` from the outside: what it prints, what it writes and how it ends; and that the
//! same seed gives the same run, to the byte, in another process.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

const NO: i32 = 1;
const USAGE: i32 = 2;

/// How a command ended.
#[derive(Debug)]
struct Ended {
    code: i32,
    out: String,
    err: String,
}

impl Ended {
    /// What it printed; it must have succeeded.
    #[track_caller]
    fn out(self) -> String {
        assert_eq!(self.code, 0, "{self:?}");
        self.out
    }

    /// What it complained of; it must have failed with this code and printed nothing else.
    #[track_caller]
    fn err(self, code: i32) -> String {
        assert_eq!((self.code, self.out.as_str()), (code, ""), "{self:?}");
        self.err
    }
}

fn lab(words: &[&str]) -> Ended {
    let mut command = Command::new(env!("CARGO_BIN_EXE_portolan"));
    let output =
        command.arg("lab").args(words).stdin(Stdio::null()).output().expect("the binary runs");
    Ended {
        code: output.status.code().expect("no signal ended it"),
        out: String::from_utf8(output.stdout).expect("text"),
        err: String::from_utf8(output.stderr).expect("text"),
    }
}

#[track_caller]
fn assert_says(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "{word:?} is not in\n{text}");
    }
}

/// A short run with its files.
struct Run {
    folder: TempDir,
    json: Value,
}

impl Run {
    fn new(more: &[&str]) -> Run {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let at = |name: &str| folder.path().join(name).display().to_string();
        let (trace, history) = (at("trace.txt"), at("history.jsonl"));
        let words = ["run", "three-sites", "--for", "5", "--seed", "3", "--json"];
        let files = ["--trace", &trace, "--history", &history];
        let out = lab(&[&words[..], &files, more].concat()).out();
        Run { json: serde_json::from_str(&out).expect("one JSON document"), folder }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.file(name)).expect("a file that was written")
    }
}

/// Prints where two texts part, instead of printing both.
#[track_caller]
fn assert_same(what: &str, first: &str, second: &str) {
    if let Some(at) = (0..).zip(first.lines().zip(second.lines())).find(|(_, (a, b))| a != b) {
        panic!("{what}, line {}:\n{}\n{}", at.0 + 1, at.1.0, at.1.1);
    }
    assert_eq!(first.len(), second.len(), "{what}");
}

#[test]
fn every_ready_world_is_listed() {
    let out = lab(&["list"]).out();
    assert_says(&out, &["WORLD", "three-sites", "one-site", "witness", "leases", "melbourne"]);
}

#[test]
fn the_same_seed_gives_the_same_bytes_in_two_processes() {
    for more in [&[][..], &["--faults"]] {
        let (first, second) = (Run::new(more), Run::new(more));
        assert!(first.text("trace.txt").lines().count() > 1_000, "{more:?}: a trace of something");
        assert_same("trace", &first.text("trace.txt"), &second.text("trace.txt"));
        assert_same("history", &first.text("history.jsonl"), &second.text("history.jsonl"));
        assert_eq!(first.json["digest"], second.json["digest"]);
        assert_eq!(first.json["verdicts"], second.json["verdicts"]);
        let faults = first.json["faults"].as_u64().expect("a number");
        assert_eq!(faults > 0, !more.is_empty(), "{faults} faults with {more:?}");
    }
}

#[test]
fn another_seed_gives_another_run() {
    let digest = |seed: &str| {
        let out = lab(&["run", "three-sites", "--for", "2", "--seed", seed, "--json"]).out();
        serde_json::from_str::<Value>(&out).expect("JSON")["digest"].clone()
    };
    assert_ne!(digest("3"), digest("4"));
}

#[test]
fn a_written_history_is_judged_as_the_run_was() {
    let run = Run::new(&["--faults"]);
    let file = run.file("history.jsonl").display().to_string();
    let judged: Value =
        serde_json::from_str(&lab(&["verdict", &file, "--json"]).out()).expect("one JSON document");
    assert_eq!(judged["verdicts"], run.json["verdicts"]);
    let verdicts = judged["verdicts"].as_array().expect("a list");
    assert!(verdicts.len() > 3, "{judged}");
    assert!(verdicts.iter().all(|verdict| verdict["verdict"] == "holds"), "{judged}");
    let out = lab(&["verdict", &file, "--only", "linearizable,durable"]).out();
    assert_eq!(out.matches(" holds ").count(), 2, "{out}");
}

#[test]
fn a_spoiled_history_is_broken_and_the_key_is_named() {
    let run = Run::new(&[]);
    let text = run.text("history.jsonl");
    // A get that found something finds what no client has put.
    let found = |line: &&str| {
        let line: Value = serde_json::from_str(line).expect("JSON");
        line["do"] == "get" && line["stale"].is_null() && line["got"]["value"]["value"].is_string()
    };
    let honest = text.lines().find(found).expect("a get that found something");
    let mut line: Value = serde_json::from_str(honest).expect("JSON");
    line["got"]["value"]["value"] = "unwritten".into();
    let spoiled = run.file("spoiled.jsonl");
    fs::write(&spoiled, text.replacen(honest, &line.to_string(), 1)).expect("written");
    let file = spoiled.display().to_string();
    let key = line["key"].as_str().expect("a key");

    let ended = lab(&["verdict", &file, "--only", "linearizable"]);
    assert_eq!(ended.code, NO, "{ended:?}");
    assert_says(&ended.out, &["BROKEN", key, "\"unwritten\""]);
    assert_says(&ended.err, &["spoiled.jsonl: linearizable"]);

    let ended = lab(&["verdict", &file, "--only", "linearizable", "--json"]);
    assert_eq!(ended.code, NO, "{ended:?}");
    let judged: Value = serde_json::from_str(&ended.out).expect("one JSON document");
    assert_eq!(judged["verdicts"][0]["verdict"], "broken");
    assert_eq!(judged["verdicts"][0]["key"], key);
}

#[test]
fn what_is_no_history_is_refused_with_its_line() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let file = folder.path().join("garbage.jsonl");
    fs::write(&file, "{\"type\":\"header\",\"format\":1,\"source\":\"x\"}\n\nhello\n").unwrap();
    let err = lab(&["verdict", &file.display().to_string()]).err(USAGE);
    assert_says(&err, &["garbage.jsonl: line 3: "]);
    let err = lab(&["verdict", "no/such.jsonl"]).err(USAGE);
    assert_says(&err, &["no/such.jsonl"]);
}

#[test]
fn a_world_that_is_not_there_is_answered_with_those_that_are() {
    let err = lab(&["run", "nowhere"]).err(USAGE);
    assert_says(&err, &["nowhere", "three-sites", "one-site", "melbourne"]);
}

/// A ready world's file, changed, in a folder.
fn changed(folder: &Path, from: &str, to: &str) -> (String, usize) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(root.join("../lab/worlds/one-site.toml")).expect("the file");
    assert!(text.contains(from), "{from:?} is not in the world any more");
    let line = 1 + text.lines().position(|line| line.contains(from)).expect("a line");
    let file = folder.join("changed.toml");
    fs::write(&file, text.replacen(from, to, 1)).expect("written");
    (file.display().to_string(), line)
}

#[test]
fn a_mistake_in_a_world_is_shown_where_it_is() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    // An unknown word, a value out of bounds, and what is no TOML.
    for (from, to) in
        [("every_s = 0.7", "evry_s = 0.7"), ("nodes = 3", "nodes = 300"), ("lon = 7.06", "lon = ")]
    {
        let (file, line) = changed(folder.path(), from, to);
        let err = lab(&["run", &file]).err(USAGE);
        assert_says(&err, &[&format!("changed.toml:{line}: "), &format!("{line} | {to}")]);
    }
    let (file, _) = changed(folder.path(), "duration_s = 20.0", "duration_s = 2.0");
    assert_says(&lab(&["run", &file]).out(), &["linearizable", "holds"]);
}

#[test]
fn the_schema_is_json() {
    let schema: Value = serde_json::from_str(&lab(&["schema"]).out()).expect("JSON");
    assert_says(&schema["properties"].to_string(), &["\"links\"", "\"site\"", "\"clients\""]);
}

#[test]
fn exploring_says_how_much_was_tried() {
    let words = ["explore", "one-site", "--seeds", "2", "--span", "5", "--jobs", "2"];
    let out = lab(&words).out();
    assert_says(&out, &["2 seeds in ", " simulated hours", " faults", "\nfaults by kind: "]);
    assert_says(&out, &["nothing broke: every promise holds in all 2 runs of one-site\n"]);
    let words =
        ["explore", "one-site", "three-sites", "--seeds", "1", "--span", "2", "--jobs", "1"];
    let out = lab(&words).out();
    assert_says(&out, &["every promise holds in all 2 runs of one-site, three-sites\n"]);
}

/// Whether the program under test has bugs to plant is decided by who builds it: cargo builds the
/// packages of one command with the features of all of them together, so another's need for the
/// feature `trial` may have turned it on here. Each program must do what its kind does, and the
/// answer to a name that no bug has tells which kind it is.
#[test]
fn a_bug_is_planted_only_where_there_are_bugs() {
    let err = lab(&["explore", "one-site", "--planted", "no-such-bug"]).err(USAGE);
    let words = ["explore", "one-site", "--seeds", "1", "--span", "1", "--planted", "skip-sync"];
    let ended = lab(&words);
    if err.contains("`--features trial`") {
        assert_says(&ended.err(USAGE), &["this build has no bugs to plant", "`--features trial`"]);
    } else {
        // In a second it may be found or not.
        assert_says(&err, &["\"no-such-bug\" is none of", "skip-sync"]);
        assert!([0, NO].contains(&ended.code), "{ended:?}");
        assert_says(&ended.out, &["1 seeds in "]);
    }
}

#[test]
fn a_replay_takes_the_faults_that_it_is_told() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let history = folder.path().join("history.jsonl").display().to_string();
    let replay = |only: &str| {
        let words = ["replay", "three-sites", "--seed", "1", "--for", "5", "--json"];
        let out = lab(&[&words[..], &["--history", &history, "--only", only]].concat()).out();
        serde_json::from_str::<Value>(&out).expect("JSON")["faults"].clone()
    };
    assert_eq!(replay("none"), 0);
    assert_eq!(replay("0"), 1);
    let err = lab(&["replay", "three-sites", "--seed", "1", "--only", "some"]).err(USAGE);
    assert_says(&err, &["--only", "\"some\""]);
}

#[test]
fn a_report_says_how_to_run_it_again() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let at = |name: &str| folder.path().join(name).display().to_string();
    let (data, report) = (folder.path().display().to_string(), at("report"));
    for words in [
        &["run", "three-sites", "--for", "1.5", "--seed", "3", "--data", &data, "--faults"][..],
        &["replay", "three-sites", "--seed", "1", "--for", "2", "--only", "0,1"],
    ] {
        lab(&[words, &["--report", &report]].concat()).out();
        let page = fs::read_to_string(Path::new(&report).join("report.html")).expect("a page");
        let (_, rest) = page.split_once("Run it again: portolan lab ").expect("a command");
        let (command, rest) = rest.split_once(". The same seed gives").expect("its end");
        let mut said: Vec<&str> = command.split(' ').collect();
        said.push("--json");
        let again: Value = serde_json::from_str(&lab(&said).out()).expect("one JSON document");
        let digest = again["digest"].as_str().expect("a digest");
        assert!(rest.contains(&format!("digest is {digest}")), "{command}: {digest}");
        for word in words {
            assert!(said.contains(word), "{word} is not in {command}");
        }
    }
}

#[test]
fn a_papers_figure_is_run_again_and_shown() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let at = |name: &str| folder.path().join(name).display().to_string();
    let (page, chunks) = (at("page.html"), at("pieces"));
    let words = ["paper", "edgekv", "--figure", "9", "--quick"];
    let out = lab(&[&words[..], &["--report", &page, "--csv", &chunks]].concat()).out();
    let title = "Figure 9: write latency by the number of clients, local keys";
    assert_says(&out, &[title, "34 % to 60 % lower", "remote update", "written: "]);
    let html = fs::read_to_string(&page).expect("a page");
    assert_says(&html, &[title, "<svg", "Figure 9, beside what was published", "Run it again: "]);
    let csv = fs::read_to_string(folder.path().join("pieces/figure-9.csv")).expect("a table");
    assert_eq!(csv.lines().count(), 4, "{csv}");
    assert!(csv.starts_with("threads,edge,cloud\n10,"), "{csv}");
    let other = lab(&["paper", "edgekv", "--figure", "4"]).err(USAGE);
    assert_says(&other, &["--figure is 5 to 13, is 4"]);
}

#[test]
fn placement_strategies_are_compared_beside_their_paper() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let at = |name: &str| folder.path().join(name).display().to_string();
    let (page, json) = (at("page.html"), at("all.json"));
    let words = ["paper", "portkey", "--figure", "14", "--quick", "--cabs", "no/such/file"];
    let run = || lab(&[&words[..], &["--report", &page, "--json", &json]].concat()).out();
    let out = run();
    let title = "Figure 14: two small deployments, emulated";
    let absent = "no/such/file is absent: recorded cabs are left out";
    assert_says(
        &out,
        &[absent, title, "smart building", "2.5×", "It came out in shape", "written: "],
    );
    let html = fs::read_to_string(&page).expect("a page");
    assert_says(&html, &[title, "<svg", "Figure 14, beside what was published", "Run it again: "]);
    let all: Value =
        serde_json::from_str(&fs::read_to_string(&json).expect("results")).expect("JSON");
    assert_eq!(all["figures"][0]["figure"], 14);
    let runs = all["runs"].as_array().expect("runs");
    assert_eq!(runs.len(), 6, "two deployments, three strategies");
    let mean = |run: usize| runs[run]["mean_ms"].as_f64().expect("a mean");
    assert!(mean(2) < mean(0) / 3.0, "ours is below hash placement");
    assert_eq!(run(), out, "the same again");
    let other = lab(&["paper", "portkey", "--figure", "5"]).err(USAGE);
    assert_says(&other, &["--figure is 4 or 8 to 14, is 5"]);
    assert_says(
        &lab(&["paper", "portkey", "--help"]).out(),
        &["--cabs <FILE>", "--large", "--quick"],
    );
}

#[test]
fn causal_stores_are_compared_beside_gestos_paper() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let at = |name: &str| folder.path().join(name).display().to_string();
    let (page, json) = (at("page.html"), at("all.json"));
    let words = ["paper", "gesto", "--figure", "7", "--quick"];
    let run = || lab(&[&words[..], &["--report", &page, "--json", &json]].concat()).out();
    let out = run();
    let title = "Figure 7: latency of moves";
    assert_says(&out, &[title, "Saturn is the slowest", "It came out in shape", "written: "]);
    let html = fs::read_to_string(&page).expect("a page");
    assert_says(&html, &[title, "<svg", "Beside what was published", "Run it again: "]);
    let all: Value =
        serde_json::from_str(&fs::read_to_string(&json).expect("results")).expect("JSON");
    assert_eq!(all["figures"][0]["figure"], 7);
    assert_eq!(all["runs"].as_array().expect("runs").len(), 5, "five stores");
    assert_eq!(run(), out, "the same again");
    let other = lab(&["paper", "gesto", "--figure", "8"]).err(USAGE);
    assert_says(&other, &["--figure is 0 to 7, is 8"]);
}
