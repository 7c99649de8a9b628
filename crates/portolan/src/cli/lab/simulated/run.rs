//! `lab run` and `lab replay`.

use super::super::super::failed::Failed;
use super::super::super::show;
use super::{Which, again, outcome, seconds, shown, span, verdict};
use clap::Args;
use lab::report::Report;
use lab::run::{Options, Ran, run};
use lab::world::World;
use serde_json::json;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Run a world once and judge what clients saw
///
/// The sites are the ones that `serve` runs; links, disks and clocks are the world's. Nothing
/// waits: a minute of virtual time takes as long as its computing. The same seed gives the same
/// run, to the byte.
#[derive(Args)]
#[command(after_help = "Example:
  portolan lab run three-sites --faults --report report && open report/report.html

Exit codes: 0 all promises hold, 1 one is broken or undecided, 2 the world is wrong")]
pub(crate) struct Run {
    #[command(flatten)]
    which: Which,

    /// What chance is drawn from [default: the world's]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// How long clients work, in virtual time, like 30s or 5m [default: the world's]
    #[arg(long = "for", value_name = "TIME", value_parser = span)]
    duration: Option<Duration>,

    /// Let the world's random faults come too
    #[arg(long)]
    faults: bool,

    #[command(flatten)]
    outputs: Outputs,
}

/// Run a seed again, with all faults or some of them, and show what happened
///
/// `explore` prints the command. The trace has every message, every write to a disk and every
/// answer.
#[derive(Args)]
#[command(after_help = "Example:
  portolan lab replay three-sites --seed 42 --only 3,17 --trace trace.txt")]
pub(crate) struct Replay {
    #[command(flatten)]
    which: Which,

    /// The seed
    #[arg(long, value_name = "N")]
    seed: u64,

    /// How long clients work, like 30s [default: the world's]
    #[arg(long = "for", value_name = "TIME", value_parser = span)]
    duration: Option<Duration>,

    /// Of the plan's faults only these, by number; `none` for none
    #[arg(long, value_name = "LIST")]
    only: Option<String>,

    /// The bug to be found; only in builds with the feature `trial`
    #[arg(long, value_name = "BUG")]
    planted: Option<String>,

    #[command(flatten)]
    outputs: Outputs,
}

/// What to write besides the summary.
#[derive(Args)]
struct Outputs {
    /// Write report.html, plots and tables into this folder
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,

    /// Write the history as JSON lines, for `portolan lab verdict`
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,

    /// Write a trace in words
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,

    /// Print the outcome as JSON
    #[arg(long)]
    json: bool,
}

impl Run {
    pub(super) fn run(self) -> Result<(), Failed> {
        let world = self.which.load()?;
        let options = Options {
            seed: self.seed,
            duration: self.duration,
            random_faults: self.faults,
            trace: self.outputs.trace.is_some(),
            ..Options::default()
        };
        let flags = [
            ("--seed", Some(self.seed.unwrap_or(world.seed).to_string())),
            ("--for", self.duration.map(seconds)),
            ("--data", self.which.data.as_deref().map(shown)),
            ("--trace", self.outputs.trace.as_deref().map(shown)),
        ];
        let again = again("run", &self.which.world, &flags);
        let again = if self.faults { again + " --faults" } else { again };
        self.outputs.play(&world, &options, &again)
    }
}

impl Replay {
    pub(super) fn run(self) -> Result<(), Failed> {
        let world = self.which.load()?;
        let options = Options {
            seed: Some(self.seed),
            duration: self.duration,
            random_faults: true,
            only: self.only.as_deref().map(numbers).transpose()?,
            trace: self.outputs.trace.is_some(),
            bug: super::explore::bug(self.planted.as_deref())?,
            ..Options::default()
        };
        let flags = [
            ("--seed", Some(self.seed.to_string())),
            ("--only", self.only),
            ("--for", self.duration.map(seconds)),
            ("--data", self.which.data.as_deref().map(shown)),
            ("--planted", self.planted),
            ("--trace", self.outputs.trace.as_deref().map(shown)),
        ];
        let again = again("replay", &self.which.world, &flags);
        self.outputs.play(&world, &options, &again)
    }
}

/// Parses `--only`.
fn numbers(text: &str) -> Result<Vec<usize>, Failed> {
    if text == "none" {
        return Ok(Vec::new());
    }
    let parsed: Result<Vec<usize>, _> = text.split(',').map(|part| part.trim().parse()).collect();
    parsed.map_err(|_| Failed::usage(format!("--only: numbers like 3,17 or `none`, is {text:?}")))
}

impl Outputs {
    /// `again`: the command that does it again.
    fn play(&self, world: &World, options: &Options, again: &str) -> Result<(), Failed> {
        let started = Instant::now();
        let ran = run(world, options);
        let took = started.elapsed();
        self.write(&ran)?;
        if let Some(folder) = &self.report {
            let page = Report::of_run(world, &ran, again).write(folder).map_err(|error| {
                Failed::cannot_serve(format!("cannot write into {}: {error}", folder.display()))
            })?;
            if !self.json {
                show::print(format_args!("report: {}\n", page.display()))?;
            }
        }
        if self.json {
            let figures = &ran.figures;
            show::print_json(&json!({
                "world": world.name.as_str(),
                "seed": ran.seed,
                "virtual_s": figures.virtual_time.as_secs_f64(),
                "took_s": took.as_secs_f64(),
                "operations": figures.operations,
                "events": figures.events,
                "faults": figures.faults,
                "elections": figures.elections,
                "digest": ran.digest(),
                "failure": ran.failure,
                "verdicts": verdict::as_json(&ran.history, &ran.judged),
            }))?;
            return match ran.wrongs().is_empty() {
                true => Ok(()),
                false => Err(Failed::no(None)),
            };
        }
        outcome::end(&outcome::ran(world, &ran, took), &ran.wrongs())
    }

    fn write(&self, ran: &Ran) -> Result<(), Failed> {
        let cannot = |path: &PathBuf| {
            let path = path.display().to_string();
            move |error| Failed::cannot_serve(format!("cannot write {path}: {error}"))
        };
        if let Some(path) = &self.history {
            let file = File::create(path).map_err(cannot(path))?;
            ran.history.write(BufWriter::new(file)).map_err(cannot(path))?;
        }
        if let (Some(path), Some(trace)) = (&self.trace, &ran.trace) {
            let mut file = File::create(path).map_err(cannot(path))?;
            file.write_all(trace.as_bytes()).map_err(cannot(path))?;
        }
        Ok(())
    }
}
