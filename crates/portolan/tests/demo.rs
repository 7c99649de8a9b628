//! The demo from the outside: it plays, the vehicles are served, nothing acknowledged is lost, and
//! the report is there. How fast it is depends on the machine and is not tested.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
};

struct Played {
    stdout: String,
    report: PathBuf,
    _directory: tempfile::TempDir,
}

/// One demo at a time, also beside other processes of these tests: it starts seven sites, which
/// elect leaders and take each other for lost by their clocks.
fn turn() -> File {
    let lock = Path::new(env!("CARGO_TARGET_TMPDIR")).join("demo.lock");
    let lock = File::create(lock).expect("the target folder can be written");
    lock.lock().expect("the target folder's files can be locked");
    lock
}

fn play(extra: &[&str]) -> Played {
    let _turn = turn();
    let directory = tempfile::tempdir().expect("a temporary directory");
    let report = directory.path().join("report");
    let output = Command::new(env!("CARGO_BIN_EXE_portolan"))
        .args(["demo", "--headless", "--for", "12s", "--vehicles", "24", "--report"])
        .arg(&report)
        .args(extra)
        .output()
        .expect("the binary runs");
    let stdout = String::from_utf8(output.stdout).expect("text");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stdout}\n{stderr}");
    Played { stdout, report, _directory: directory }
}

/// How `lab verdict` ends for a file, and what it prints.
fn verdict(file: &Path) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_portolan"))
        .args(["lab", "verdict"])
        .arg(file)
        .output()
        .expect("the binary runs");
    (output.status.code(), String::from_utf8(output.stdout).expect("text"))
}

impl Played {
    /// The number of answers and of errors of one operation.
    fn operation(&self, name: &str) -> (u64, u64) {
        let csv = fs::read_to_string(self.report.join("operations.csv")).expect("operations.csv");
        let row = csv.lines().find(|line| line.starts_with(&format!("{name},")));
        let columns: Vec<&str> = row.expect("a row for each operation").split(',').collect();
        (columns[1].parse().unwrap(), columns[2].parse().unwrap())
    }

    /// `attached_min`: so many vehicles are on the road while there is time to attach.
    fn assert_kept_its_promises(&self, attached_min: u64) {
        assert!(self.operation("look").0 > 0, "{}", self.stdout);
        assert!(self.operation("report").0 > 0, "{}", self.stdout);
        assert!(self.operation("attach").0 >= attached_min, "{}", self.stdout);
        assert!(self.operation("trip-save").0 > 0, "{}", self.stdout);
        assert!(self.operation("trip-read").0 > 0, "{}", self.stdout);
        for said in [
            "reports read back: 0 lost",
            "own records read back: 0 lost",
            "times a vehicle read an own record after moving: 0 wrong",
            " reads, 0 anomalies\n",
            "acknowledged trips read back: 0 lost",
            "mission joined and was given ",
            "downtown loses its leader",
            "pacific-heights handed over ",
        ] {
            assert!(self.stdout.contains(said), "{said:?} in\n{}", self.stdout);
        }
        self.assert_things_happened_one_after_the_other();
        let page = fs::read_to_string(self.report.join("report.html")).expect("report.html");
        assert!(page.contains("downtown loses its leader") && page.ends_with("</html>\n"));
        assert!(page.contains("mission (joined)") && page.contains("pacific-heights (left)"));
        assert!(page.contains(">Verdicts</"));
        let words = " operations: linearizable: holds, durable: holds\n";
        assert!(self.stdout.contains(words), "{}", self.stdout);
        self.assert_both_kinds_of_records_are_global();
        self.assert_its_history_can_be_judged_and_spoiled();
    }

    /// However slow the machine is.
    fn assert_things_happened_one_after_the_other(&self) {
        let steps = [
            "* mission begins to join",
            "* mission has joined and holds ",
            "* downtown loses its leader",
            "* downtown has a new one, ",
            "* pacific-heights hands over ",
            "* pacific-heights has left",
        ];
        let at: Vec<_> = steps.iter().map(|step| self.stdout.find(step)).collect();
        assert!(at.iter().all(Option::is_some) && at.is_sorted(), "{at:?}\n{}", self.stdout);
    }

    /// Records of both placements were written and read, from several sites, and are in the
    /// history; the summary and the report have both side by side.
    fn assert_both_kinds_of_records_are_global(&self) {
        let text = fs::read_to_string(self.report.join("history.jsonl")).expect("history.jsonl");
        for (kind, save, read) in
            [("car", "car-save", "car-read"), ("fixed", "fixed-save", "fixed-read")]
        {
            let answered = (self.operation(save).0, self.operation(read).0);
            assert!(answered.0 > 20 && answered.1 > 20, "{kind}: {answered:?}");
            let key = format!("\"key\":\"{kind}:");
            let of_records = text.lines().filter(|line| line.contains(&key));
            let site = |line: &str| {
                line.split_once("\"site\":\"")
                    .map(|(_, rest)| rest.split('"').next().unwrap_or_default().to_owned())
            };
            let sites: BTreeSet<_> = of_records.filter_map(site).collect();
            assert!(sites.len() > 2, "{kind}: {sites:?}");
        }
        let page = fs::read_to_string(self.report.join("report.html")).expect("report.html");
        for (name, p50_ms, _) in [self.side("data that follows"), self.side("placed by hash")] {
            assert!(p50_ms > 0.0 && page.contains(&name), "{name}: {p50_ms}");
        }
        assert!(self.stdout.contains("\ndata that follows: p50 "), "{}", self.stdout);
        assert!(page.contains("; placed by hash: "));
        self.assert_both_kinds_are_compared_window_by_window(&page);
    }

    /// Twelve seconds have at least six windows, and some of them a median of each kind.
    fn assert_both_kinds_are_compared_window_by_window(&self, page: &str) {
        let csv = fs::read_to_string(self.report.join("records.csv")).expect("records.csv");
        let rows: Vec<Vec<&str>> =
            csv.lines().skip(1).map(|row| row.split(',').collect()).collect();
        assert!(rows.len() >= 6 && rows.iter().all(|row| row.len() == 5), "{csv}");
        let has_both = |row: &Vec<&str>| !row[2].is_empty() && !row[3].is_empty();
        assert!(rows.iter().any(has_both), "{csv}");
        assert!(page.contains(">Records over time</"));
        assert!(self.stdout.contains(" s: p50 follows "), "{}", self.stdout);
    }

    /// One of the two placements in the summary: its median, and the percentage that is answered at
    /// the own site.
    fn side(&self, name: &str) -> (String, f64, u64) {
        let is_row = |line: &&str| line.starts_with(name) && line.ends_with(" %");
        let row = self.stdout.lines().find(is_row).expect("a row for each placement");
        let cells: Vec<&str> = row[name.len()..].split_whitespace().collect();
        (name.to_owned(), cells[0].parse().unwrap(), cells[2].parse().unwrap())
    }

    /// The file states what the summary states; with one value of the end changed it does not.
    fn assert_its_history_can_be_judged_and_spoiled(&self) {
        let file = self.report.join("history.jsonl");
        let (code, said) = verdict(&file);
        assert_eq!(code, Some(0), "{said}");
        let text = fs::read_to_string(&file).expect("history.jsonl");
        let has = |what: &str| text.lines().any(|line| line.contains(what));
        assert!(text.starts_with("{\"type\":\"header\",\"format\":1,\"source\":\"demo\","));
        assert!(has("\"kind\":\"fault\",\"text\":\"downtown loses its leader\""));
        let is_read_back = |line: &&str| {
            line.contains("\"client\":\"audit\"") && line.contains("\"value\":{\"value\":\"")
        };
        let read_back = text.lines().find(is_read_back).expect("something is read back");
        let (before, got) = read_back.split_once("\"got\":").expect("an answer");
        assert!(got.starts_with("{\"value\""), "{got}");
        let lost = format!("{before}\"got\":{{\"value\":{{\"value\":null}}}}}}");
        let spoiled = self.report.join("spoiled.jsonl");
        fs::write(&spoiled, text.replacen(read_back, &lost, 1)).unwrap();
        let (code, said) = verdict(&spoiled);
        assert_eq!(code, Some(1), "{said}");
        assert_eq!(said.matches("BROKEN").count(), 2, "{said}");
    }
}

#[test]
fn made_up_vehicles_are_served_while_a_leader_dies() {
    play(&[]).assert_kept_its_promises(24);
}

#[test]
fn a_recorded_trace_is_served_while_a_leader_dies() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let trace = root.join("../shared/data/sf_cabs_2008-05-21_0800-1000.csv.gz");
    if !trace.exists() {
        eprintln!("skipped: the recorded trace is not on this machine");
        return;
    }
    let trace = trace.to_str().expect("a path that is text");
    // They come on the road one after the other, in the first minute of the trace.
    let played = play(&["--trace", trace, "--speed", "30"]);
    played.assert_kept_its_promises(24);
    assert!(played.stdout.contains("24 vehicles"), "{}", played.stdout);
}

#[test]
fn a_bad_line_of_a_trace_is_named() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let trace = directory.path().join("bad.csv");
    fs::write(&trace, "cab,t_s,lat,lon\n1,0,37.7,-122.4\n1,later,37.7,-122.4\n").unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_portolan"))
        .args(["demo", "--headless", "--trace"])
        .arg(&trace)
        .output()
        .expect("the binary runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(stderr.contains("bad.csv: line 3: column 2 (t_s) is not a number"), "{stderr}");
}
