//! `cargo xtask bench global`: global keys, which sites hand to each other and answer for each
//! other.
//!
//! The rules are those of `bench site`: real processes with their defaults, every acknowledged
//! write on disk, one machine and disk, five repetitions on fresh folders, medians with the
//! smallest and the largest. All sites are on loopback, so nothing here is about distance: a round
//! trip takes tens of microseconds, and what is measured is what the programs themselves cost.
//!
//! | row | what |
//! | --- | --- |
//! | `move-1` | 100 MB go from a site to another, of one node each, while clients read and write them |
//! | `move-3` | the same between sites of three nodes |
//! | `slots` | 500 slots with 20,000 keys, beside Valkey's `CLUSTER MIGRATESLOTS` |
//! | `forward` | GETs through the site that does not hold the keys, beside GETs at the one that does |
//! | `known` | how often a request goes directly to the site that owns its key |
//! | `paper` | the bars that the lab measures in virtual time, once |
//! | `three` | three sites of three nodes under load; no bar |

mod forward;
mod handover;
mod known;
mod paper;
mod results;
mod valkey;

use super::{Options, command, disk, machine, read_results, systems, write_results};
use results::Results;

/// All rows, in the order in which they are measured.
const ROWS: [&str; 7] = ["paper", "move-1", "move-3", "slots", "forward", "known", "three"];

/// The row without a bar need not be measured as often as the others.
const THREE_REPETITIONS_MAX: usize = 2;

/// How much is measured.
#[derive(Clone, Copy, Debug)]
struct Extent {
    /// Keys of 1,000 bytes that move.
    moved_keys: u64,
    /// How long a load on moving keys takes: longer than their move.
    load_s: f64,
    /// How long throughput is measured.
    measured_s: f64,
}

impl Extent {
    fn of(options: &Options) -> Extent {
        match options.quick {
            true => Extent { moved_keys: 20_000, load_s: 4.0, measured_s: 1.0 },
            false => Extent { moved_keys: 100_000, load_s: 5.0, measured_s: 2.0 },
        }
    }
}

/// Measures, and writes what came of it.
pub(crate) fn global(options: &Options) -> Result<(), String> {
    if let Some(path) = &options.from {
        return publish(&read_results::<Results>(path)?, false);
    }
    options.check(&ROWS)?;
    let programs = command::build()?;
    if options.wants("slots") {
        valkey::install()?;
    }
    let extent = Extent::of(options);
    let mut results = Results::new(machine::describe(&systems::root()?)?, options.wants("slots"))?;
    let repetitions = options.repetitions();
    if options.wants("paper") {
        results.paper = Some(paper::measure(&programs, options.quick)?);
    }
    for repetition in 1..=repetitions {
        eprintln!("repetition {repetition} of {repetitions}");
        results.disk.push(disk::fdatasync(&systems::root()?)?);
        for (row, nodes) in [("move-1", 1), ("move-3", 3)] {
            if options.wants(row) {
                results.moves.push(handover::measure(&programs, nodes, extent)?);
            }
        }
        if options.wants("slots") {
            // There and back again, so that a disk that gets slower or faster favours no store.
            let ours = || handover::slots(&programs);
            let theirs = || valkey::slots(&programs);
            results.slots.push(match repetition % 2 {
                1 => (ours()?, theirs()?),
                _ => {
                    let theirs = theirs()?;
                    (ours()?, theirs)
                }
            });
        }
        if options.wants("forward") {
            results.forward.extend(forward::measure(&programs, repetition, extent)?);
        }
        if options.wants("known") {
            results.known.push(known::measure(&programs, extent)?);
        }
        if options.wants("three") && repetition <= THREE_REPETITIONS_MAX {
            results.three.push(known::three_of_three(&programs, extent)?);
        }
    }
    results.disk.push(disk::fdatasync(&systems::root()?)?);
    publish(&results, options.quick)
}

fn publish(results: &Results, quick: bool) -> Result<(), String> {
    let page = |samples: &str| results.page(samples);
    write_results("global", "RESULTS-global.md", (&results.date, quick), results, page)
}
