//! `cargo xtask bench placement`: what it costs to count accesses, and the bars that the lab
//! measures.
//!
//! The rules are those of `bench site`: real processes with their defaults on one machine and disk,
//! five repetitions on fresh folders, medians with the smallest and the largest.
//!
//! | row | what |
//! | --- | --- |
//! | `count` | GETs of global keys whose accesses are counted, beside the same GETs without, at 10 thousand and a million keys |
//! | `lab` | the bars of `portolan lab paper portkey`, once, in virtual time |
//! | `solver` | the solver's speed, with 1 and 10 million groups |
//!
//! Left out: how fast groups are lent between processes. On loopback no site is nearer than
//! another, so nothing moves; the lab has whole sites for it.

mod count;
mod results;
mod solver;

use std::ffi::OsStr;
use std::path::PathBuf;

use super::{bars, command, disk, machine, read_results, systems, write_results};
use results::Results;

/// All rows, in the order in which they are measured.
const ROWS: [&str; 3] = ["lab", "solver", "count"];

/// How it is run.
#[derive(clap::Args, Debug)]
pub(crate) struct PlacementOptions {
    #[command(flatten)]
    common: super::Options,

    /// Recorded cabs for the lab's goal about them (CSV: cab,t_s,lat,lon; may be gzipped); without
    /// it that one is left out.
    #[arg(long, value_name = "FILE")]
    cabs: Option<PathBuf>,
}

/// Measures, and writes what came of it.
pub(crate) fn placement(
    PlacementOptions { common: options, cabs }: &PlacementOptions,
) -> Result<(), String> {
    if let Some(path) = &options.from {
        let results = read_results::<Results>(path)?;
        return publish(&results, results.is_quick);
    }
    options.check(&ROWS)?;
    let programs = command::build()?;
    let mut results = Results::new(machine::describe(&systems::root()?)?, options.quick)?;
    if options.wants("lab") {
        let cabs = cabs.as_ref().map(|file| [OsStr::new("--cabs"), file.as_os_str()]);
        let more = cabs.as_ref().map_or(&[][..], |cabs| cabs);
        results.lab = bars::of_paper(&programs, ("portkey", more), options.quick)?;
    }
    if options.wants("solver") && !options.quick {
        results.solver = Some(solver::measure()?);
    }
    if options.wants("count") {
        for repetition in 1..=options.repetitions() {
            eprintln!("repetition {repetition} of {}", options.repetitions());
            results.disk.push(disk::fdatasync(&systems::root()?)?);
            results.counts.extend(count::measure(&programs, repetition, options.quick)?);
        }
    }
    publish(&results, options.quick)
}

fn publish(results: &Results, quick: bool) -> Result<(), String> {
    let page = |samples: &str| results.page(samples);
    write_results("placement", "RESULTS-placement.md", (&results.date, quick), results, page)
}
