//! GETs of keys whose accesses are counted, and of keys whose are not.
//!
//! One site of one node for each placement, all at the same time, asked in turn and in short runs:
//! what the machine does meanwhile meets all alike. Each run of three is compared by itself. Sites
//! that are not asked have next to nothing to do: they decide each second about nothing.

use serde::{Deserialize, Serialize};

use crate::bench::command::Programs;
use crate::bench::deployment::Deployment;
use crate::bench::load::Report;
use crate::bench::loads::{self, Command};

/// The placements: nothing is counted with the first.
pub(super) const PLACEMENTS: [&str; 3] = ["off", "advise", "adaptive"];
/// Keys of the two extents.
pub(super) const KEYS: [u64; 2] = [10_000, 1_000_000];
const KEYS_QUICK: [u64; 2] = [10_000, 50_000];
pub(super) const CLIENTS: usize = 50;
pub(super) const PIPELINE: usize = 16;
const VALUE_BYTES: usize = 100;
/// Runs of each placement in a repetition.
const RUNS: usize = 12;
const RUN_S: f64 = 1.0;

/// The GETs of one repetition over so many keys.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Counts {
    pub(super) keys: u64,
    /// Of each run: the placements in the order of [`PLACEMENTS`].
    pub(super) runs: Vec<[Report; 3]>,
    pub(super) command: String,
}

impl Counts {
    /// By how many percent fewer GETs a placement answers than none, in each run.
    pub(super) fn fewer_percent(&self, placement: usize) -> impl Iterator<Item = f64> + '_ {
        let fewer = move |run: &[Report; 3]| 1.0 - run[placement].ops_per_s / run[0].ops_per_s;
        self.runs.iter().map(move |run| 100.0 * fewer(run))
    }
}

/// Measures both extents.
pub(super) fn measure(
    programs: &Programs,
    repetition: usize,
    quick: bool,
) -> Result<Vec<Counts>, String> {
    let (extents, runs) = if quick { (KEYS_QUICK, 1) } else { (KEYS, RUNS) };
    extents.into_iter().map(|keys| of_keys(programs, repetition, keys, runs)).collect()
}

fn of_keys(
    programs: &Programs,
    repetition: usize,
    keys: u64,
    runs: usize,
) -> Result<Counts, String> {
    let start = |placement| {
        let properties = ["--scope", "global", "--placement", placement];
        Deployment::start_with(programs, (1, 1), &properties)
    };
    let [off, advise, adaptive] = PLACEMENTS.map(start);
    let sites = [off?, advise?, adaptive?];
    for site in &sites {
        let fill = Command::new(&site.redis(&[0]), CLIENTS)
            .with("--pipeline", PIPELINE)
            .with("--value-bytes", VALUE_BYTES)
            .each_once(keys);
        loads::all_right(fill.run(programs)?, "writing the keys first")?;
    }
    let gets = |site: &Deployment| {
        Command::new(&site.redis(&[0]), CLIENTS)
            .with("--pipeline", PIPELINE)
            .with("--keys", keys)
            .with("--value-bytes", VALUE_BYTES)
            .with("--gets", 1)
            .with("--pid", site.pids())
            .lasting(RUN_S)
    };
    let mut all = Vec::new();
    for run in 0..runs {
        // There and back again, so that a machine that gets slower or faster favours none.
        let mut reports = [None, None, None];
        for turn in 0..sites.len() {
            let is_back = (run + repetition) % 2 == 1;
            let at = if is_back { sites.len() - 1 - turn } else { turn };
            reports[at] = Some(loads::all_right(gets(&sites[at]).run(programs)?, "GETs")?);
        }
        all.push(reports.map(|report| report.expect("each had its turn")));
    }
    let counts = Counts { keys, runs: all, command: gets(&sites[1]).text() };
    for (at, placement) in PLACEMENTS.iter().enumerate().skip(1) {
        let fewer: Vec<String> =
            counts.fewer_percent(at).map(|percent| format!("{percent:.1}")).collect();
        eprintln!("  count      {keys} keys, {placement}: {} % fewer", fewer.join(", "));
    }
    Ok(counts)
}
