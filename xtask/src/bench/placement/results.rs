//! The samples of a run as JSON, and as the page that people read.

use std::fmt::Write;

use serde::{Deserialize, Serialize};

use super::count::{CLIENTS, Counts, PIPELINE, PLACEMENTS};
use super::solver::Solved;
use crate::bench::bars::{Elsewhere, Goal, elsewhere};
use crate::bench::command::output;
use crate::bench::disk::Fdatasync;
use crate::bench::load::Report;
use crate::bench::machine::Machine;
use crate::bench::statistics::{Spread, grouped};
use crate::bench::systems::System;

/// The bar: so many percent fewer GETs.
const FEWER_PERCENT_MAX: f64 = 2.0;

/// Everything that a run measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Results {
    /// When it began, in UTC.
    pub(super) date: String,
    pub(super) machine: Machine,
    pub(super) version: String,
    /// Before each repetition.
    pub(super) disk: Vec<Fdatasync>,
    pub(super) is_quick: bool,
    pub(super) counts: Vec<Counts>,
    pub(super) lab: Vec<Goal>,
    /// When and of which tree the lab's are, if they were run again later.
    #[serde(default)]
    pub(super) lab_of: Option<String>,
    #[serde(default)]
    pub(super) solver: Option<Solved>,
}

const INTRODUCTION: &str = "\
# Placement: what counting costs, and what it brings

Written by `cargo xtask bench placement`; do not edit. What the mode is: [docs/placement.md](../docs/placement.md).
The site and the generator (`bench/load`) ran on this one machine, on loopback, from an empty disk in every repetition. Figures are the
median of all runs and, in parentheses, the smallest and the largest. The bars of the lab are of virtual time, and come out alike on every
machine; how they are measured is in [docs/lab.md](../docs/lab.md#portkey). The solver's are processor time of one thread, median and least
of five. How soon the slots of a Redis or Valkey Cluster follow their users is in [its page](../docs/placement.md), and the seeds of worlds with adaptive
placement are in [the record](../docs/record.md#seeds). Rows of the p95 and of capacities are of the solver, as `portolan place` uses it: sites decide
by the mean; that they take only so many bytes is tested, not measured. Rows of the six workloads are medians of five seeds, the others of the lab are of one. A user is a client with a name, with equal weights
where liars are. Groups lent a second are of the job `lend`; by themselves sites move 256 groups a second at most.
";

const ELSEWHERE: &[Elsewhere] = &[
    [
        "users of a real Redis and Valkey Cluster of six servers change their site: mean latency against the best static placement, after two windows",
        "within 10 %",
        "in window 2 up to 21 ms later, from window 3 on within it in five of six phases (2026-11-23, \
         [the page](../docs/placement.md))",
        "**missed** by a window",
    ],
    [
        "errors of five unmodified cluster clients and of two that count, while groups and slots move",
        "0",
        "0; more fail the tests (`field/tests/cluster_clients.rs`, `wrappers.rs`)",
        "met",
    ],
    [
        "seeds of `mixed` with adaptive placement, all faults",
        "1,000 without a violation",
        "120001 to 121000 (2026-11-27); 920001 to 921500 (2026-11-29), where a judge was wrong once; 949001 to 950500 \
         (2026-11-30), nothing ([the record](../docs/record.md#seeds))",
        "met",
    ],
    [
        "a client's counters and a packed sketch, 4,096 servers and 50,000 keys, as the packages hold them (paper: less than 1 MB)",
        "< 1 MB",
        "Python 0.95 MB at the most, Node 0.53 MB (2026-11-29, their tests)",
        "met",
    ],
    [
        "bytes of a whole site without moves, where 1 % of its accesses are less than 2 KB a second",
        "≤ 2 KB/s",
        "three idle sites of one node, each packet on loopback counted: 7.3 KB/s a site with `adaptive` and 7.3 with `off` \
         (2026-11-30), so placement adds less than 0.1; with users less than 2 KB/s by reckoning",
        "met",
    ],
];

impl Results {
    pub(super) fn new(machine: Machine, is_quick: bool) -> Result<Self, String> {
        Ok(Self {
            date: output("date", &["-u", "+%Y-%m-%dT%H:%MZ"])?,
            machine,
            version: System::Portolan.version()?,
            disk: Vec::new(),
            is_quick,
            counts: Vec::new(),
            lab: Vec::new(),
            lab_of: None,
            solver: None,
        })
    }

    /// The page; `samples` is where the JSON lies, as seen from it.
    pub(super) fn page(&self, samples: &str) -> String {
        let mut page = String::from(INTRODUCTION);
        if self.is_quick {
            line(&mut page, "\n**A quick run: not a result.**");
        }
        line(&mut page, "");
        line(&mut page, &format!("- {}; samples: [{samples}]({samples})", self.date));
        line(&mut page, &format!("- {}", self.machine));
        line(&mut page, &format!("- {}", self.version));
        if let Some(lab_of) = &self.lab_of {
            line(&mut page, &format!("- rows of the lab: {lab_of}"));
        }
        if let Some(p50) = Spread::of(self.disk.iter().map(|disk| disk.p50_us)) {
            let took = p50.text(grouped);
            line(&mut page, &format!("- the disk: 4 KiB appended with fdatasync take {took} µs"));
        }
        line(&mut page, "\n## The bars\n");
        line(&mut page, "| work | bar | measured | |");
        line(&mut page, "| --- | --- | --- | --- |");
        for (keys, placement) in self.extents() {
            let Some(fewer) = self.fewer_percent(keys, placement) else { continue };
            let (keys, placement) = (grouped(keys as f64), PLACEMENTS[placement]);
            let goal = Goal {
                what: format!(
                    "GETs of {keys} keys, pipeline {PIPELINE}, with `placement = {placement}`"
                ),
                goal: format!("≤ {FEWER_PERCENT_MAX} % fewer"),
                here: format!("{} %", fewer.text(|percent| format!("{percent:.1}"))),
                met: fewer.median <= FEWER_PERCENT_MAX,
                missed_by: String::new(),
                is_outside: false,
            };
            line(&mut page, &goal.row(""));
        }
        for goal in self.solver.iter().flat_map(Solved::goals) {
            line(&mut page, &goal.row("solver, "));
        }
        for goal in &self.lab {
            line(&mut page, &goal.row("in the lab, "));
        }
        page.push_str(&elsewhere(ELSEWHERE));
        self.gets(&mut page);
        page
    }

    /// Numbers of keys, and placements that count.
    fn extents(&self) -> impl Iterator<Item = (u64, usize)> + '_ {
        let mut keys: Vec<u64> = self.counts.iter().map(|one| one.keys).collect();
        keys.sort_unstable();
        keys.dedup();
        keys.into_iter().flat_map(|keys| (1..PLACEMENTS.len()).map(move |at| (keys, at)))
    }

    fn of(&self, keys: u64) -> impl Iterator<Item = &Counts> {
        self.counts.iter().filter(move |one| one.keys == keys)
    }

    fn fewer_percent(&self, keys: u64, placement: usize) -> Option<Spread> {
        Spread::of(self.of(keys).flat_map(|one| one.fewer_percent(placement)))
    }

    fn gets(&self, page: &mut String) {
        let Some(first) = self.counts.first() else { return };
        line(page, "\n## count: GETs of keys whose accesses are counted\n");
        line(
            page,
            &format!(
                "{CLIENTS} clients, {PIPELINE} requests at once, one second a run, values of 100 B. A site of one node for each \
                 placement, all up at the same time and asked in turn; each run of three is compared by itself. Where zero is within the \
                 spread, read the placements as equal."
            ),
        );
        line(page, "\n| keys | placement | GETs/s | p99 µs | server CPU µs/request | fewer, % |");
        line(page, "| --: | --- | --: | --: | --: | --: |");
        let mut extents: Vec<u64> = self.extents().map(|(keys, _)| keys).collect();
        extents.dedup();
        for keys in extents {
            for (at, placement) in PLACEMENTS.iter().enumerate() {
                let column = |figure: fn(&Report) -> f64, show: fn(f64) -> String| {
                    let runs = self.of(keys).flat_map(|one| &one.runs);
                    let spread = Spread::of(runs.map(|run| figure(&run[at])));
                    spread.map_or_else(|| "–".to_owned(), |spread| spread.text(show))
                };
                let fewer = self.fewer_percent(keys, at).filter(|_| at > 0);
                let fewer = fewer.map_or_else(String::new, |one| one.text(tenths));
                let gets = column(|run| run.ops_per_s, grouped);
                let p99 = column(|run| run.latency().map_or(f64::NAN, |one| one.p99_us), grouped);
                let cpu = column(Report::server_us_per_op, |us| format!("{us:.2}"));
                let keys = grouped(keys as f64);
                line(page, &format!("| {keys} | {placement} | {gets} | {p99} | {cpu} | {fewer} |"));
            }
        }
        line(page, "\n```text");
        line(page, &first.command);
        line(page, "```");
    }
}

fn tenths(number: f64) -> String {
    format!("{number:.1}")
}

fn line(page: &mut String, text: &str) {
    writeln!(page, "{text}").expect("a String takes everything");
}
