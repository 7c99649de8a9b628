//! The tests' step: everything is built at once, then run in two lanes side by side.
//!
//! Tests of real processes wait for most of their time: for windows, deadlines, failure detectors.
//! Tests in virtual time and unit tests compute. One after the other, as `cargo test` runs them,
//! half of the machine is idle. In two lanes no two tests of real processes run at once, more than
//! within one binary, and what computes has the rest.
//!
//! A binary's output is printed as a whole when it ends. All are run; at the end what failed is
//! named, with what it printed once more: it is not to be looked for among the rest.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Instant;

use field::binary::target;
use serde_json::Value;

use super::cargo;

/// Packages whose tests start processes, or wait in real time.
const WAITING: [&str; 5] = ["client", "field", "front", "portolan", "server"];

/// Of how many lines of a failed binary the end is printed once more.
const REPEATED_LINES_MAX: usize = 100;

/// A binary of tests.
#[derive(Debug, PartialEq, Eq)]
struct Binary {
    /// The package's folder, in which `cargo test` runs it too.
    folder: PathBuf,
    /// The target in its package.
    name: String,
    program: PathBuf,
}

impl Binary {
    /// Of a line of `cargo --message-format=json`.
    fn of(line: &str) -> Option<Self> {
        let message: Value = serde_json::from_str(line).ok()?;
        let is_test = message["profile"]["test"] == true;
        let folder = Path::new(message["manifest_path"].as_str()?).parent()?.to_owned();
        let name = message["target"]["name"].as_str()?.to_owned();
        let program = PathBuf::from(message["executable"].as_str()?);
        is_test.then_some(Binary { folder, name, program })
    }

    /// As messages and the lanes name it.
    fn package(&self) -> String {
        self.folder.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    fn waits(&self) -> bool {
        WAITING.contains(&self.package().as_str())
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder);
        command
    }
}

/// Builds all tests, runs them, and names those that failed.
pub(super) fn run() -> Result<(), String> {
    let build = ["test", "--locked", "--workspace", "--no-run", "--message-format"];
    let mut build = cargo(&build);
    build.arg("json-render-diagnostics").stderr(Stdio::inherit());
    let built = build.output().map_err(|e| format!("cannot run {build:?}: {e}"))?;
    if !built.status.success() {
        return Err(format!("the build of the tests ended with {}", built.status));
    }
    let lines = String::from_utf8_lossy(&built.stdout);
    let (waiting, computing): (Vec<_>, Vec<_>) =
        lines.lines().filter_map(Binary::of).partition(Binary::waits);
    if waiting.is_empty() || computing.is_empty() {
        return Err("cargo names no binaries of tests".into());
    }
    let failed = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        scope.spawn(|| lane(&waiting, &failed));
        lane(&computing, &failed);
        let examples = cargo(&["test", "--locked", "--workspace", "--doc"]);
        ran("examples in documents", examples, &failed);
    });
    let failed = failed.into_inner().unwrap_or_default();
    for Failed { name, printed, .. } in &failed {
        eprintln!("\n     Failed: {name}\n{printed}");
    }
    let names: Vec<String> =
        failed.iter().map(|Failed { name, why, .. }| format!("{name} ({why})")).collect();
    if names.is_empty() { Ok(()) } else { Err(names.join(", ")) }
}

/// A binary that failed.
#[derive(Debug)]
struct Failed {
    name: String,
    why: String,
    /// What its failed tests printed.
    printed: String,
}

fn lane(binaries: &[Binary], failed: &Mutex<Vec<Failed>>) {
    for binary in binaries {
        ran(&format!("{} {}", binary.package(), binary.name), binary.command(), failed);
    }
}

/// Runs one command, and prints what it printed.
fn ran(name: &str, mut command: Command, failed: &Mutex<Vec<Failed>>) {
    // Built by now, since the package has integration tests. Asked to build it, cargo would do so
    // without the features that tests' dependencies turn on, which is half of the tree once more.
    command.env("PORTOLAN_BIN", target().join("debug/portolan"));
    let began = Instant::now();
    let output = command.output();
    let mut failed = failed.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    eprintln!("\n     Ran {name} in {:.1} s", began.elapsed().as_secs_f64());
    let name = name.to_owned();
    match output {
        Ok(output) => {
            let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
            eprint!("{stdout}{stderr}");
            if !output.status.success() {
                let (why, printed) = (output.status.to_string(), of_failures(&stdout, &stderr));
                failed.push(Failed { name, why, printed });
            }
        }
        Err(error) => {
            failed.push(Failed { name, why: error.to_string(), printed: String::new() });
        }
    }
}

/// What a binary printed of its failed tests: from the list of failures on, which `cargo test`
/// prints last. Without one (it was killed, or did not compile) what it printed as errors.
fn of_failures(stdout: &str, stderr: &str) -> String {
    let printed = stdout.find("\nfailures:\n").map_or(stderr, |at| &stdout[at + 1..]);
    let lines: Vec<&str> = printed.lines().collect();
    lines[lines.len().saturating_sub(REPEATED_LINES_MAX)..].join("\n")
}

fn text(bytes: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binaries_of_tests_are_read_from_the_messages_of_cargo() {
        let test = r#"{"reason":"compiler-artifact","manifest_path":"/tree/field/Cargo.toml",
            "target":{"name":"maps"},"profile":{"test":true},"executable":"/target/maps-1"}"#;
        let found = Binary::of(&test.replace('\n', "")).expect("a binary");
        assert_eq!(found.program, Path::new("/target/maps-1"));
        assert_eq!((found.package().as_str(), found.name.as_str()), ("field", "maps"));
        assert!(found.waits());
        let others = [
            test.replace("true", "false"),
            test.replace(r#""/target/maps-1""#, "null"),
            "a line of the compiler".to_owned(),
        ];
        assert!(others.iter().all(|line| Binary::of(line).is_none()));
    }

    #[test]
    fn what_failed_is_printed_once_more() {
        let stdout = "running 2 tests\n\nfailures:\n\n---- a stdout ----\nit panicked\n";
        let repeated = of_failures(stdout, "a warning");
        assert_eq!(repeated, "failures:\n\n---- a stdout ----\nit panicked");
        assert_eq!(of_failures("running 2 tests\n", "it was killed"), "it was killed");
        let long = "one line\n".repeat(2 * REPEATED_LINES_MAX);
        assert_eq!(of_failures("", &long).lines().count(), REPEATED_LINES_MAX);
    }

    #[test]
    fn the_packages_that_wait_are_there() {
        let folders = ["crates", "."].map(|folder| field::binary::root().join(folder));
        for package in WAITING {
            let is_there = |folder: &PathBuf| folder.join(package).join("Cargo.toml").is_file();
            assert!(folders.iter().any(is_there), "{package}");
        }
    }
}
