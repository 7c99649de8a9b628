//! `cargo xtask bench site`: one site of Portolan beside etcd and Valkey.
//!
//! The rules, so that the figures can be compared: all systems on this machine and on one disk, one
//! at a time, with equal durability (every acknowledged write is on disk, at a majority where there
//! are three nodes), driven by the same load generator (`bench/load`). A repetition visits all
//! systems in turn and starts each on an empty disk; there are five, and what counts is their
//! median, printed with the smallest and the largest. The disk's own time for an fdatasync is
//! measured in between, for it decides most of the figures and varies by the hour on rented
//! machines.
//!
//! Raw samples go to `bench/results/`, the tables to `bench/RESULTS.md`. `--quick` is for trying
//! things out: its tables go to the target folder and are not results.

mod bars;
pub(crate) mod causal;
mod command;
mod cost;
mod deployment;
mod disk;
mod failover;
pub(crate) mod global;
mod load;
mod loads;
mod machine;
pub(crate) mod placement;
mod plan;
mod results;
mod statistics;
mod systems;

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use serde::de::DeserializeOwned;

use results::{LoadSample, Results};
use systems::{Running, System};

/// How a bench is run.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// One short repetition with less data, to see whether everything works; not a result.
    #[arg(long)]
    quick: bool,

    /// Only this row of the table; may be given more than once.
    #[arg(long = "only", value_name = "ROW")]
    only: Vec<String>,

    /// Repetitions [default: 5, with --quick 1].
    #[arg(long)]
    repetitions: Option<usize>,

    /// Write the tables again from the samples of an earlier run, and measure nothing.
    #[arg(long, value_name = "JSON", conflicts_with_all = ["quick", "only", "repetitions"])]
    from: Option<PathBuf>,
}

/// How long each measurement of a run is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    warmup_s: f64,
    duration_s: f64,
    /// Keys of the row that asks for a million.
    keys_many: u64,
}

impl Extent {
    fn of(options: &Options) -> Extent {
        match options.quick {
            true => Extent { warmup_s: 0.5, duration_s: 1.5, keys_many: 100_000 },
            false => Extent { warmup_s: 1.0, duration_s: 5.0, keys_many: 1_000_000 },
        }
    }
}

impl Options {
    fn repetitions(&self) -> usize {
        self.repetitions.unwrap_or(if self.quick { 1 } else { 5 })
    }

    fn wants(&self, row: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == row)
    }

    /// Whether the rows that are wanted exist.
    fn check(&self, known: &[&str]) -> Result<(), String> {
        match self.only.iter().find(|only| !known.contains(&only.as_str())) {
            Some(row) => Err(format!("there is no row {row:?}; there are {}", known.join(", "))),
            None => Ok(()),
        }
    }
}

/// Runs the whole comparison and writes what came of it.
pub(crate) fn site(options: &Options) -> Result<(), String> {
    if let Some(path) = &options.from {
        return publish(&read_results::<Results>(path)?, false);
    }
    options.check(&plan::names())?;
    let programs = command::build()?;
    let mut wanted: Vec<System> = plan::LOADS
        .iter()
        .filter(|row| options.wants(row.name))
        .flat_map(|row| row.contestants.iter().map(|c| c.system))
        .collect();
    wanted.sort();
    wanted.dedup();
    for system in &wanted {
        system.install()?;
    }

    let extent = Extent::of(options);
    let mut results = Results::new(machine::describe(&systems::root()?)?, &wanted)?;
    for repetition in 1..=options.repetitions() {
        eprintln!("repetition {repetition} of {}", options.repetitions());
        results.disk.push(disk::fdatasync(&systems::root()?)?);
        // There and back again, so that a disk that gets slower or faster favours no store.
        if repetition > 1 {
            wanted.reverse();
        }
        for shape in plan::SHAPES {
            for &system in &wanted {
                loads(options, &programs, shape, system, &mut results)?;
            }
        }
        if options.wants(plan::COST) {
            results.cost.push(cost::measure(&programs, extent.keys_many)?);
        }
        if options.wants(plan::FAILOVER) {
            results.failover.push(failover::measure(&programs)?);
        }
    }
    results.disk.push(disk::fdatasync(&systems::root()?)?);
    publish(&results, options.quick)
}

/// All rows of one shape that one system takes part in, on one freshly started instance.
fn loads(
    options: &Options,
    programs: &command::Programs,
    shape: plan::Shape,
    system: System,
    results: &mut Results,
) -> Result<(), String> {
    let rows: Vec<_> = plan::LOADS
        .iter()
        .filter(|row| row.shape == shape && options.wants(row.name))
        .flat_map(|row| row.contestants.iter().map(move |contestant| (row, contestant)))
        .filter(|(_, contestant)| contestant.system == system)
        .collect();
    let Some(&(first, contestant)) = rows.first() else { return Ok(()) };

    let running = Running::start(system, shape, programs)?;
    load::fill(programs, &running, contestant.protocol, first.value_bytes)?;
    for (row, contestant) in rows {
        let command = load::arguments(row, contestant, &running, Extent::of(options))?;
        let report = load::run(programs, &command)?;
        eprintln!("  {:10} {:22} {}", row.name, contestant.label, report.line());
        let second = load::second_opinion(row, &running, report.ops_per_s);
        results.loads.push(LoadSample {
            row: row.name.into(),
            contestant: contestant.label.into(),
            command: format!("load {}", command.join(" ")),
            report,
            second_opinion_ops_per_s: second,
        });
    }
    Ok(())
}

fn publish(results: &Results, quick: bool) -> Result<(), String> {
    let page = |samples: &str| results.page(samples);
    write_results("site", "RESULTS.md", (&results.date, quick), results, page)
}

/// The samples of an earlier run of a bench.
fn read_results<R: DeserializeOwned>(path: &Path) -> Result<R, String> {
    let text = fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    serde_json::from_str(&text).map_err(|e| format!("{}: {e}", path.display()))
}

/// Writes the samples of a bench as JSON, and the page that people read, which is given where the
/// JSON lies. Those of a quick run go to the target folder.
fn write_results<R: Serialize>(
    bench: &str,
    page_name: &str,
    (date, quick): (&str, bool),
    results: &R,
    page: impl FnOnce(&str) -> String,
) -> Result<(), String> {
    let (folder, samples) = if quick {
        (field::binary::target().join("bench"), format!("quick-{bench}.json"))
    } else {
        let name = date.replace(':', "");
        (field::binary::root().join("bench"), format!("results/{bench}-{name}.json"))
    };
    let json = serde_json::to_string_pretty(results).map_err(|e| e.to_string())?;
    write(&folder.join(&samples), &json)?;
    let path = folder.join(page_name);
    write(&path, &page(&samples))?;
    eprintln!("written: {}", path.display());
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    let make = || {
        fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
        fs::write(path, text)
    };
    make().map_err(|e: std::io::Error| format!("{}: {e}", path.display()))
}
