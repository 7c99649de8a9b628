//! The samples of a run as JSON, and as the page that people read.

use std::fmt::Write;

use serde::{Deserialize, Serialize};

use super::order::{self, Ordered};
use super::real::{
    CLIENTS, KEYS, LASTING_S, Lag, Local, MANY, PIPELINE, Rate, Saturation, UPDATES, Updates,
    VALUE_BYTES,
};
use crate::bench::bars::{Elsewhere, Goal, elsewhere};
use crate::bench::command::output;
use crate::bench::disk::Fdatasync;
use crate::bench::load::{Latency, Report};
use crate::bench::machine::Machine;
use crate::bench::statistics::{Spread, grouped};
use crate::bench::systems::System;

/// How much slower a request may be, in percent.
const SLOWER_PERCENT_MAX: f64 = 5.0;
/// The least share of the updates of clients that write each one at each site.
const SHARE_MIN: f64 = 0.90;
/// How much later all sites may show what was written for longer.
const LATER_S_MAX: f64 = 0.5;

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
    pub(super) lab: Vec<Goal>,
    /// When and of which tree the lab's are, if they were run again later.
    #[serde(default)]
    pub(super) lab_of: Option<String>,
    pub(super) order: Vec<Ordered>,
    pub(super) local: Vec<Local>,
    pub(super) updates: Vec<Updates>,
    /// Runs before 2026-11-30 have none.
    #[serde(default)]
    pub(super) saturation: Vec<Saturation>,
}

const INTRODUCTION: &str = "\
# Causal keys: what they cost

Written by `cargo xtask bench causal`; do not edit. What the mode is: [docs/causal.md](../docs/causal.md).
Sites and the generator (`bench/load`) ran on this one machine, on loopback, from empty disks in every repetition. Figures are the
median of all runs and, in parentheses, the smallest and the largest. The bars of the lab are of virtual time, and come out alike on every
machine; how they are measured is in [docs/lab.md](../docs/lab.md#portolans-own-causal-keys). Seeds are in
[the record](../docs/record.md#seeds), and so is [what was searched exhaustively](../docs/record.md#model-checkers).
";

const ELSEWHERE: &[Elsewhere] = &[
    [
        "content of a token, whatever sites, keys and time there are",
        "≤ 32 B",
        "24 B, sealed 53 B; a test goes to 10,000 sites (`causal::admission`)",
        "met",
    ],
    [
        "seeds of `mixed`: one region with a causal keyspace, clients that move, roots that are lost and come back, sites that come back after long",
        "1,000 without a violation",
        "920001 to 921500 (2026-11-29), where a judge was wrong once; 949001 to 950500 (2026-11-30), nothing \
         ([the record](../docs/record.md#seeds))",
        "met",
    ],
    [
        "seeds of `rebuilds`: roots that are lost for good without a standby, and losses that are exactly those named",
        "1,000 without a violation",
        "1 to 160 found four faults (2026-11-29), 940001 to 940507 four more, and three of the lab (2026-11-30); with these mended \
         940001 to 942000 found four mistakes of the lab and nothing else ([the record](../docs/record.md#seeds))",
        "met",
    ],
    [
        "every order of the steps of three sites, two keys and one client that moves; of contents, places and imports; of a root and its \
         standby; of three regions",
        "no violation, depth stated",
        "none, within bounds that [the record](../docs/record.md#model-checkers) and \
         [ADR 53](../docs/adr/0053-a-standby-imports-first.md#what-was-searched) have; sessions beside contents that come late, retries and \
         rebuilds are searched nowhere",
        "in part",
    ],
    [
        "each defence taken out",
        "found within stated seeds",
        "sixteen in seeds of `causal`, others by a script or a search, and some are not planted ([the record](../docs/record.md#planted-bugs))",
        "in part",
    ],
    [
        "552 clients without a pause at three sites: visibility at saturation",
        "bounded",
        "40,300 to 42,700 writes a second and shown 0.05 to 0.07 s later, in five series of 4 and 12 s one after the other, 3.3 million \
         writes (2026-11-30; [samples](results/causal-2026-11-30T0457Z.json)). Before, 7,000 a second and 2.8 s later after 700,000 writes",
        "met",
    ],
    [
        "throughput against eventual, with a core for each site",
        "≥ 0.97",
        "not measured: this machine has two cores for three sites",
        "open",
    ],
];

type Quantile = (&'static str, fn(&Latency) -> f64);
/// A row of a table, by its name.
type Row<Of, Figures> = (&'static str, fn(&Of) -> &Figures);
const QUANTILES: [Quantile; 2] = [("p50", |one| one.p50_us), ("p99", |one| one.p99_us)];

impl Results {
    pub(super) fn new(machine: Machine, is_quick: bool) -> Result<Self, String> {
        Ok(Self {
            date: output("date", &["-u", "+%Y-%m-%dT%H:%MZ"])?,
            machine,
            version: System::Portolan.version()?,
            disk: Vec::new(),
            is_quick,
            lab: Vec::new(),
            lab_of: None,
            order: Vec::new(),
            local: Vec::new(),
            updates: Vec::new(),
            saturation: Vec::new(),
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
        let local = [true, false].into_iter().flat_map(|gets| {
            QUANTILES.into_iter().filter_map(move |quantile| self.slower(gets, quantile))
        });
        let of_sites = local.chain(self.share()).chain(self.later());
        for goal in of_sites.chain(order::goals(&self.order)) {
            line(&mut page, &goal.row(""));
        }
        for goal in &self.lab {
            line(&mut page, &goal.row("in the lab, "));
        }
        page.push_str(&elsewhere(ELSEWHERE));
        self.requests(&mut page);
        self.rates(&mut page);
        self.lags(&mut page);
        page
    }

    fn runs(&self, gets: bool) -> impl Iterator<Item = &Local> {
        self.local.iter().filter(move |one| one.gets == gets)
    }

    /// By how much a request to a causal key takes longer than one to a key of the site, run by
    /// run.
    fn slower(&self, gets: bool, (name, of): Quantile) -> Option<Goal> {
        let percent =
            |one: &Local| Some(100.0 * (of(one.causal.latency()?) / of(one.own.latency()?) - 1.0));
        let spread = Spread::of(self.runs(gets).filter_map(percent))?;
        let kind = if gets { "GET" } else { "SET" };
        let what = format!("{kind} of one client at a site that is not the root, {name}: longer");
        let here = format!("{} %", spread.text(tenths));
        Some(Goal::at_most(what, (spread.median, SLOWER_PERCENT_MAX), " %", here))
    }

    fn share(&self) -> Option<Goal> {
        let of = |one: &Updates| one.causal.per_s() / one.own.per_s();
        let share = Spread::of(self.updates.iter().map(of))?;
        let missing = SHARE_MIN - share.median;
        Some(Goal {
            what: "updates at three sites on this machine, against clients that write each at each site"
                .to_owned(),
            goal: format!("≥ {SHARE_MIN:.2}"),
            here: share.text(|share| format!("{share:.2}")),
            met: missing <= 0.0,
            missed_by: format!("{:.2}", missing.max(0.0)),
            is_outside: false,
        })
    }

    fn later(&self) -> Option<Goal> {
        let of = |one: &Saturation| one.long.shown_after_s - one.short.shown_after_s;
        let later = Spread::of(self.saturation.iter().map(of))?;
        let [short, long] = LASTING_S;
        let what = format!(
            "{MANY} clients without a pause: all sites show all writes so much later after {long} s than after {short} s"
        );
        let here = format!("{} s", later.text(hundredths));
        Some(Goal::at_most(what, (later.median, LATER_S_MAX), " s", here))
    }

    fn requests(&self, page: &mut String) {
        let Some(first) = self.local.first() else { return };
        line(page, "\n## local: requests of one client at a site that is not the root\n");
        let about = format!(
            "{} keys, values of {VALUE_BYTES} B, one second a run. Two deployments of three sites of one node, at the same time and asked in \
             turn; each pair of runs is compared by itself. The sites share the disk: while the next SET of a client is written, its last \
             one is committed at the root and imported at the other sites ([what that costs](NOTES.md#causal-keys)).",
            grouped(KEYS as f64)
        );
        line(page, &about);
        line(page, "\n| request | keys | p50 µs | p99 µs |");
        line(page, "| --- | --- | --: | --: |");
        for gets in [true, false] {
            let kinds: [Row<Local, Report>; 2] =
                [("causal", |one| &one.causal), ("of the site", |one| &one.own)];
            for (keys, report) in kinds {
                let cell = |(_, of): Quantile| {
                    let runs = self.runs(gets).filter_map(|one| report(one).latency().map(of));
                    Spread::of(runs).map_or_else(|| "–".to_owned(), |one| one.text(grouped))
                };
                let [p50, p99] = QUANTILES.map(cell);
                let request = if gets { "GET" } else { "SET" };
                line(page, &format!("| {request} | {keys} | {p50} | {p99} |"));
            }
        }
        quoted(page, &first.command);
    }

    fn rates(&self, page: &mut String) {
        let Some(first) = self.updates.first() else { return };
        line(page, "\n## updates: until all three sites show them\n");
        let about = format!(
            "{} updates a run, {CLIENTS} clients with {PIPELINE} at once, distributed to three sites of one node. Causal: until each site \
             shows the last write of each. Beside it, without any consistency between the sites: clients write each update at each of the three, \
             which are three times as many writes.",
            grouped(UPDATES as f64)
        );
        line(page, &about);
        line(
            page,
            "\n| keys | updates/s | all answered, s | all shown, s | CPU µs/update, all sites |",
        );
        line(page, "| --- | --: | --: | --: | --: |");
        let kinds: [Row<Updates, Rate>; 2] =
            [("causal", |one| &one.causal), ("written at each site", |one| &one.own)];
        for (keys, rate) in kinds {
            let cell = |of: fn(&Rate) -> f64, show: fn(f64) -> String| {
                let spread = Spread::of(self.updates.iter().map(|one| of(rate(one))));
                spread.map_or_else(|| "–".to_owned(), |one| one.text(show))
            };
            let per_s = cell(Rate::per_s, grouped);
            let answered = cell(|one| one.answered_s, hundredths);
            let shown = cell(|one| one.shown_s, hundredths);
            let cpu = cell(Rate::cpu_us_each, tenths);
            line(page, &format!("| {keys} | {per_s} | {answered} | {shown} | {cpu} |"));
        }
        quoted(page, &first.command);
    }

    fn lags(&self, page: &mut String) {
        let Some(first) = self.saturation.first() else { return };
        line(page, "\n## saturation: clients without a pause\n");
        let about = format!(
            "{MANY} clients, distributed to three sites of one node, write for a while; then, from their last answer on, until each site shows \
             the last write of each. That is asked by the command line, which takes a part of it."
        );
        line(page, &about);
        line(page, "\n| they write for, s | writes/s | all shown, s |");
        line(page, "| --: | --: | --: |");
        let kinds: [fn(&Saturation) -> &Lag; 2] = [|one| &one.short, |one| &one.long];
        for lag in kinds {
            let cell = |of: fn(&Lag) -> f64, show: fn(f64) -> String| {
                let spread = Spread::of(self.saturation.iter().map(|one| of(lag(one))));
                spread.map_or_else(|| "–".to_owned(), |one| one.text(show))
            };
            let per_s = cell(|one| one.per_s, grouped);
            let shown = cell(|one| one.shown_after_s, hundredths);
            line(page, &format!("| {} | {per_s} | {shown} |", lag(first).lasting_s));
        }
        quoted(page, &first.command);
    }
}

fn tenths(number: f64) -> String {
    format!("{number:.1}")
}

fn hundredths(number: f64) -> String {
    format!("{number:.2}")
}

fn quoted(page: &mut String, command: &str) {
    line(page, &format!("\n```text\n{command}\n```"));
}

fn line(page: &mut String, text: &str) {
    writeln!(page, "{text}").expect("a String takes everything");
}
