//! `cargo xtask bench causal`: what causal consistency costs beside none, and the bars that the lab
//! measures.
//!
//! The rules are those of `bench site`: real processes with their defaults on one machine and disk,
//! five repetitions on fresh folders, medians with the smallest and the largest.
//!
//! | row | what |
//! | --- | --- |
//! | `lab` | the bars of `portolan lab paper gesto`, once, in virtual time |
//! | `order` | the root's state machine: updates a second through the order, on one core |
//! | `local` | GETs and SETs of one client at a site that is not the root, beside keys of that site alone |
//! | `updates` | updates until all three sites show them, beside clients that write each update at each site |
//! | `saturation` | writes of many clients for a shorter and a longer time: how much later all sites show them |
//!
//! There is no store here that is eventually consistent and otherwise the same. A client that
//! writes each update at each site by itself has what such a store has to do at least: a commit at
//! each site, and no metadata.

mod order;
mod real;
mod results;

use super::{Options, bars, command, disk, machine, read_results, systems, write_results};
use results::Results;

/// All rows, in the order in which they are measured.
const ROWS: [&str; 5] = ["lab", "order", "local", "updates", "saturation"];

/// Measures, and writes what came of it.
pub(crate) fn causal(options: &Options) -> Result<(), String> {
    if let Some(path) = &options.from {
        let results = read_results::<Results>(path)?;
        return publish(&results, results.is_quick);
    }
    options.check(&ROWS)?;
    let programs = command::build()?;
    let mut results = Results::new(machine::describe(&systems::root()?)?, options.quick)?;
    if options.wants("lab") {
        results.lab = bars::of_paper(&programs, ("gesto", &[]), options.quick)?;
    }
    if options.wants("order") && !options.quick {
        results.order = order::measure()?;
    }
    let of_pair = ["local", "updates", "saturation"].map(|row| options.wants(row));
    let [local, updates, saturation] = of_pair;
    if of_pair.contains(&true) {
        for repetition in 1..=options.repetitions() {
            eprintln!("repetition {repetition} of {}", options.repetitions());
            results.disk.push(disk::fdatasync(&systems::root()?)?);
            let pair = real::Pair::start(&programs)?;
            if local {
                results.local.extend(pair.local(repetition, options.quick)?);
            }
            if updates {
                results.updates.push(pair.updates(repetition, options.quick)?);
            }
            if saturation {
                results.saturation.push(pair.saturation(repetition, options.quick)?);
            }
        }
    }
    publish(&results, options.quick)
}

fn publish(results: &Results, quick: bool) -> Result<(), String> {
    let page = |samples: &str| results.page(samples);
    write_results("causal", "RESULTS-causal.md", (&results.date, quick), results, page)
}
