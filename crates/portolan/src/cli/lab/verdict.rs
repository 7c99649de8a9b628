//! `lab verdict`: judges histories from anywhere.

use super::super::failed::Failed;
use super::super::show;
use clap::Args;
use lab::history::{self, History, Promise};
use lab::verdict::{Judged, Options, Verdict as Judgement, judge};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufReader, stdin};
use std::path::{Path, PathBuf};

/// Judge histories, from the lab or from anywhere
///
/// A history is a file of JSON lines: which client called what, when, and what came back.
/// docs/histories.md describes it; `portolan lab run --history FILE` and `portolan demo` write
/// some.
#[derive(Args)]
#[command(after_help = "Example:
  portolan lab run three-sites --faults --history h.jsonl
  portolan lab verdict h.jsonl

Exit codes: 0 all that was judged holds, 1 something is broken or could not be judged, 2 a file is no
history")]
pub(crate) struct Verdict {
    /// The histories; `-` is the standard input
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,

    /// Judge only these promises, separated by commas [default: those of the history's header, or
    /// all that its lines allow]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = promise)]
    only: Vec<Promise>,

    /// Steps that the search for one key's order may take
    #[arg(long, value_name = "N", default_value_t = Options::default().search_steps_max)]
    steps_max: u64,

    /// Print JSON, one document for each file
    #[arg(long)]
    json: bool,
}

fn promise(text: &str) -> Result<Promise, String> {
    Promise::ALL
        .into_iter()
        .find(|promise| promise.name() == text)
        .ok_or_else(|| format!("one of {}", Promise::ALL.map(Promise::name).join(", ")))
}

impl Verdict {
    pub(super) fn run(self) -> Result<(), Failed> {
        let options = Options { search_steps_max: self.steps_max, ..Options::default() };
        let mut broken = None;
        for path in &self.files {
            let history = read(path)?;
            let judged = judge(&history, &self.only, &options);
            let wrong = judged.iter().find(|one| !matches!(one.verdict, Judgement::Holds { .. }));
            if let Some(wrong) = wrong {
                broken.get_or_insert(format!("{}: {}", path.display(), wrong.promise));
            }
            if self.json {
                show::print_json(&json!({
                    "file": path.display().to_string(),
                    "operations": history.operations.len() + history.requests.len(),
                    "verdicts": as_json(&history, &judged),
                }))?;
                continue;
            }
            show::print(format_args!(
                "{}: {} operations",
                path.display(),
                history.operations.len() + history.requests.len()
            ))?;
            if judged.is_empty() {
                show::print("  nothing in it can be judged")?;
            } else {
                show::print(table(&history, &judged).trim_end())?;
            }
        }
        match broken {
            None => Ok(()),
            Some(_) if self.json => Err(Failed::no(None)),
            Some(what) => Err(Failed::no(Some(format!("broken or undecided: {what}")))),
        }
    }
}

fn read(path: &Path) -> Result<History, Failed> {
    let wrong =
        |error: &dyn std::fmt::Display| Failed::usage(format!("{}: {error}", path.display()));
    if path == Path::new("-") {
        return history::read(stdin().lock()).map_err(|error| wrong(&error));
    }
    let file = File::open(path).map_err(|error| wrong(&format!("cannot open it: {error}")))?;
    history::read(BufReader::new(file)).map_err(|error| wrong(&error))
}

/// One line for each promise, and below it what broke it.
pub(super) fn table(history: &History, judged: &[Judged]) -> String {
    let mut text = String::new();
    for Judged { promise, verdict } in judged {
        let name = promise.name();
        match verdict {
            Judgement::Holds { examined } => {
                let _ = writeln!(text, "  {name:<20} holds      ({examined} examined)");
            }
            Judgement::Undecided { why } => {
                let _ = writeln!(text, "  {name:<20} undecided  {why}");
            }
            Judgement::Broken(violation) => {
                let described = violation.describe(history).replace('\n', "\n    ");
                let _ = writeln!(text, "  {name:<20} BROKEN     {described}");
            }
        }
    }
    text
}

/// The same for programs.
pub(super) fn as_json(history: &History, judged: &[Judged]) -> Value {
    let one = |Judged { promise, verdict }: &Judged| match verdict {
        Judgement::Holds { examined } => {
            json!({"promise": promise.name(), "verdict": "holds", "examined": examined})
        }
        Judgement::Undecided { why } => {
            json!({"promise": promise.name(), "verdict": "undecided", "why": why})
        }
        Judgement::Broken(violation) => {
            let operations: Vec<_> = violation
                .operations
                .iter()
                .filter_map(|at| serde_json::to_value(history.operations.get(*at)?).ok())
                .collect();
            let requests: Vec<_> = violation
                .requests
                .iter()
                .filter_map(|at| serde_json::to_value(history.requests.get(*at)?).ok())
                .collect();
            json!({
                "promise": promise.name(),
                "verdict": "broken",
                "what": violation.what,
                "key": violation.key,
                "operations": operations,
                "requests": requests,
            })
        }
    };
    judged.iter().map(one).collect()
}
