//! `cargo xtask verify`: everything that is checked before a change lands, in one command.
//!
//! It changes no file of the tree, and looks at the end whether that is true. It needs Rust and a C
//! compiler; what else a step can use (`cargo-deny`, other languages' clients in `field`) is
//! skipped with a line that reports it. Steps go from the quick to the slow, the first failure ends
//! it, and shows how to run that step alone.
//!
//! Everything is built in one profile, and the programs that `field` starts are built in it too:
//! on two cores a second profile would cost more than all tests together. Lints and documents share
//! what they need from other people's crates, tests have to build those once more.

mod lanes;
mod rules;

use std::process::Command;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use field::binary::root;

/// How `verify` is run.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// Only this step; may be given more than once.
    #[arg(long = "only", value_name = "STEP")]
    only: Vec<Step>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Step {
    /// `cargo fmt --check`
    Format,
    /// The project's own rules, which no other tool checks: see ARCHITECTURE.md.
    Rules,
    /// Licences and advisories of other people's crates, where `cargo-deny` is installed.
    Deny,
    /// `cargo clippy` on everything, warnings denied.
    Lints,
    /// `cargo clippy` on the program as its first build makes it, without the feature `lab`.
    First,
    /// `cargo doc` on our crates, warnings denied.
    Docs,
    /// All tests, as `cargo test` has them, in two lanes.
    Tests,
}

enum Outcome {
    Passed,
    Skipped(&'static str),
}

impl Step {
    /// The command that is this step, or `None` where it is a part of this program.
    fn command(self) -> Option<&'static [&'static str]> {
        match self {
            Step::Format => Some(&["fmt", "--all", "--check"]),
            Step::Rules | Step::Tests => None,
            Step::Deny => Some(&["deny", "--locked", "check", "--hide-inclusion-graph"]),
            Step::Lints => Some(&[
                "clippy",
                "--locked",
                "--workspace",
                "--all-targets",
                "--",
                "--deny=warnings",
            ]),
            Step::First => Some(&["clippy", "--locked", "-p", "portolan", "--", "--deny=warnings"]),
            Step::Docs => Some(&["doc", "--locked", "--workspace", "--all-features", "--no-deps"]),
        }
    }

    fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// What to type to run this step alone.
    fn alone(self) -> String {
        let environment = if self == Step::Docs { "RUSTDOCFLAGS=--deny=warnings " } else { "" };
        match self.command() {
            Some(arguments) => format!("{environment}cargo {}", arguments.join(" ")),
            None => format!("cargo xtask verify --only {}", self.name()),
        }
    }

    fn run(self) -> Result<Outcome, String> {
        if self == Step::Deny && !installed("deny") {
            return Ok(Outcome::Skipped("cargo-deny is not installed"));
        }
        match self.command() {
            Some(arguments) => {
                let mut command = cargo(arguments);
                if self == Step::Docs {
                    command.env("RUSTDOCFLAGS", "--deny=warnings");
                }
                run(&mut command)?;
            }
            None if self == Step::Tests => lanes::run()?,
            None => rules::check(root())?,
        }
        Ok(Outcome::Passed)
    }
}

/// Runs the steps; the error names the one that failed and how to run it alone.
pub(crate) fn verify(options: &Options) -> Result<(), String> {
    let before = tree();
    let wanted = |step: &Step| options.only.is_empty() || options.only.contains(step);
    let steps: Vec<Step> = Step::value_variants().iter().copied().filter(wanted).collect();
    let mut table = Vec::new();
    let mut failure = None;
    for (number, &step) in steps.iter().enumerate() {
        eprintln!("\n[{}/{}] {}: {}", number + 1, steps.len(), step.name(), step.alone());
        let began = Instant::now();
        let outcome = step.run();
        let took = began.elapsed();
        let word = match &outcome {
            Ok(Outcome::Passed) => "passed".to_owned(),
            Ok(Outcome::Skipped(why)) => format!("skipped: {why}"),
            Err(_) => "FAILED".to_owned(),
        };
        table.push((step, took, word));
        if let Err(reason) = outcome {
            failure = Some(format!(
                "{} failed: {reason}\nto run it alone: {}",
                step.name(),
                step.alone()
            ));
            break;
        }
    }
    print(&table);
    if let Some(reason) = failure {
        return Err(reason);
    }
    if tree() != before {
        return Err("a step changed the tree (see `git status`); verify must only read".into());
    }
    Ok(())
}

/// What `verify` complains about and a tool can correct by itself.
pub(crate) fn fix() -> Result<(), String> {
    let lints = ["clippy", "--fix", "--workspace", "--all-targets", "--allow-dirty"];
    run(cargo(&lints).arg("--allow-staged"))?;
    run(&mut cargo(&["fmt", "--all"]))
}

fn print(table: &[(Step, Duration, String)]) {
    eprintln!("\n{:8} {:>9}  result", "step", "seconds");
    for (step, took, word) in table {
        eprintln!("{:8} {:>9.1}  {word}", step.name(), took.as_secs_f64());
    }
    let all: Duration = table.iter().map(|(_, took, _)| *took).sum();
    eprintln!("{:8} {:>9.1}", "all", all.as_secs_f64());
}

fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(root());
    command
}

fn run(command: &mut Command) -> Result<(), String> {
    let status = command.status().map_err(|e| format!("cannot run {command:?}: {e}"))?;
    if status.success() { Ok(()) } else { Err(format!("it ended with {status}")) }
}

fn installed(subcommand: &str) -> bool {
    let version = cargo(&[subcommand, "--version"]).output();
    version.is_ok_and(|output| output.status.success())
}

/// Git's state of the tree; nothing where this is no clone.
fn tree() -> Option<Vec<u8>> {
    let status = ["status", "--porcelain", "--untracked-files=all"];
    let output = Command::new("git").args(status).current_dir(root()).output().ok()?;
    output.status.success().then_some(output.stdout)
}
