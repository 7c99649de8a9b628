//! The samples of a run as JSON, and as the page that people read.

use std::fmt::Write;

use serde::{Deserialize, Serialize};

use super::command::output;
use super::cost::Cost;
use super::disk::Fdatasync;
use super::failover::{Failover, WRITERS};
use super::load::Report;
use super::machine::Machine;
use super::plan::{self, Bar, Load};
use super::statistics::{Spread, grouped};
use super::systems::System;

/// Everything that a run measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Results {
    /// When it began, in UTC.
    pub(super) date: String,
    pub(super) machine: Machine,
    pub(super) versions: Vec<String>,
    /// Before each repetition, and at the end.
    pub(super) disk: Vec<Fdatasync>,
    pub(super) loads: Vec<LoadSample>,
    pub(super) cost: Vec<Cost>,
    pub(super) failover: Vec<Failover>,
}

/// One repetition of one row by one contestant.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct LoadSample {
    pub(super) row: String,
    pub(super) contestant: String,
    pub(super) command: String,
    pub(super) report: Report,
    pub(super) second_opinion_ops_per_s: Option<f64>,
}

type Figure = fn(&Cost) -> f64;

const INTRODUCTION: &str = "\
# A site beside etcd and Valkey

Global keys, which sites hand to each other and answer for each other, have [a page of their own](RESULTS-global.md), and so have
[causal keys](RESULTS-causal.md) and [placement](RESULTS-placement.md): what they cost, and what they bring.

Written by `cargo xtask bench site`; do not edit. All systems ran on this one machine and disk, one at
a time, each from an empty disk in every repetition, driven by the same closed-loop generator
(`bench/load`) that shares the machine's cores with them. Durability is equal: every acknowledged write
is on disk, at a majority where there are three nodes (etcd at its defaults, Valkey with `appendonly
yes` and `appendfsync always`, Portolan at its defaults). Figures are the median of the repetitions and,
in parentheses, the smallest and the largest. Where a median is within the spread of the other system's,
read them as equal.
";

impl Results {
    /// No samples yet.
    pub(super) fn new(machine: Machine, systems: &[System]) -> Result<Self, String> {
        let mut versions = vec![System::Portolan.version()?];
        for system in systems.iter().filter(|system| **system != System::Portolan) {
            versions.push(system.version()?);
        }
        Ok(Self {
            date: output("date", &["-u", "+%Y-%m-%dT%H:%MZ"])?,
            machine,
            versions,
            disk: Vec::new(),
            loads: Vec::new(),
            cost: Vec::new(),
            failover: Vec::new(),
        })
    }

    /// The page; `samples` is where the JSON lies, as seen from it.
    pub(super) fn page(&self, samples: &str) -> String {
        let mut page = String::from(INTRODUCTION);
        self.surroundings(&mut page, samples);
        self.bars(&mut page);
        for row in plan::LOADS.iter().filter(|row| self.has(row)) {
            self.load(&mut page, row);
        }
        self.cost(&mut page);
        self.failover(&mut page);
        self.commands(&mut page);
        page
    }

    fn surroundings(&self, page: &mut String, samples: &str) {
        line(page, "");
        line(page, &format!("- {}; samples: [{samples}]({samples})", self.date));
        line(page, &format!("- {}", self.machine));
        line(page, &format!("- {}", self.versions.join("; ")));
        let p50 = Spread::of(self.disk.iter().map(|d| d.p50_us));
        let p99 = Spread::of(self.disk.iter().map(|d| d.p99_us));
        if let (Some(p50), Some(p99)) = (p50, p99) {
            let us = |x: f64| grouped(x);
            line(
                page,
                &format!(
                    "- the disk: 4 KiB appended with fdatasync take {} µs, 99th percentile {} µs",
                    p50.text(us),
                    p99.text(us)
                ),
            );
        }
    }

    fn bars(&self, page: &mut String) {
        line(page, "\n## The bars\n");
        line(page, "| row | bar | measured | |");
        line(page, "| --- | --- | --- | --- |");
        for row in plan::LOADS.iter().filter(|row| self.has(row)) {
            let rival = row.contestants[row.contestants.len() - 1];
            for ours in row.contestants.iter().filter(|c| c.system == System::Portolan) {
                let (bar, measured, met) = self.verdict(row, ours.label, rival.label);
                let title = format!("{} ({})", row.title, ours.label);
                verdict(page, &title, &bar, &measured, met);
            }
        }
        for (title, bar, measured, met) in self.cost_bars().into_iter().chain(self.failover_bars())
        {
            verdict(page, title, bar, &measured, met);
        }
        line(page, "\nWhat was tried where a bar is missed: [NOTES.md](NOTES.md).");
    }

    fn verdict(&self, row: &Load, ours: &str, theirs: &str) -> (String, String, bool) {
        let of = |label: &str, figure: fn(&Report) -> f64| {
            Spread::of(self.reports(row, label).map(figure)).map_or(f64::NAN, |s| s.median)
        };
        let throughput = |r: &Report| r.ops_per_s;
        let p50 = |r: &Report| r.latency().map_or(f64::NAN, |l| l.p50_us);
        let p99 = |r: &Report| r.latency().map_or(f64::NAN, |l| l.p99_us);
        let ratio = of(ours, throughput) / of(theirs, throughput);
        match row.bar {
            Bar::Throughput(least) => {
                (format!("≥ {least} × {theirs}"), format!("{ratio:.2} ×"), ratio >= least)
            }
            Bar::ThroughputAndP99(least) => {
                let (a, b) = (of(ours, p99), of(theirs, p99));
                (
                    format!("≥ {least} × {theirs}, p99 no worse"),
                    format!("{ratio:.2} ×, p99 {} against {} µs", grouped(a), grouped(b)),
                    ratio >= least && a <= b,
                )
            }
            Bar::Latency => {
                let (a, b) = (of(ours, p50), of(theirs, p50));
                (
                    format!("median latency ≤ {theirs}"),
                    format!("{} against {} µs", grouped(a), grouped(b)),
                    a <= b,
                )
            }
        }
    }

    fn reports<'a>(&'a self, row: &'a Load, label: &'a str) -> impl Iterator<Item = &'a Report> {
        self.samples(row, label).map(|sample| &sample.report)
    }

    fn samples<'a>(
        &'a self,
        row: &'a Load,
        label: &'a str,
    ) -> impl Iterator<Item = &'a LoadSample> {
        self.loads.iter().filter(move |s| s.row == row.name && s.contestant == label)
    }

    fn has(&self, row: &Load) -> bool {
        self.loads.iter().any(|sample| sample.row == row.name)
    }

    fn load(&self, page: &mut String, row: &Load) {
        line(page, &format!("\n## {}: {}\n", row.name, row.title));
        line(
            page,
            "| | requests/s | p50 µs | p99 µs | worst µs | server CPU µs/request | errors |",
        );
        line(page, "| --- | --: | --: | --: | --: | --: | --: |");
        for contestant in row.contestants {
            let label = contestant.label;
            let column = |figure: fn(&Report) -> f64, show: fn(f64) -> String| {
                Spread::of(self.reports(row, label).map(figure))
                    .map_or_else(|| "–".to_owned(), |spread| spread.text(show))
            };
            let errors: u64 = self.reports(row, label).map(|r| r.errors + r.misses).sum();
            line(
                page,
                &format!(
                    "| {label} | {} | {} | {} | {} | {} | {errors} |",
                    column(|r| r.ops_per_s, grouped),
                    column(|r| r.latency().map_or(f64::NAN, |l| l.p50_us), grouped),
                    column(|r| r.latency().map_or(f64::NAN, |l| l.p99_us), grouped),
                    column(|r| r.latency().map_or(f64::NAN, |l| l.max_us), grouped),
                    column(Report::server_us_per_op, |us| format!("{us:.1}")),
                ),
            );
        }
        for contestant in row.contestants {
            let seen = self.samples(row, contestant.label);
            let second = Spread::of(seen.filter_map(|s| s.second_opinion_ops_per_s));
            if let Some(second) = second {
                let figure = second.text(grouped);
                line(
                    page,
                    &format!("\n`redis-benchmark` sees {}: {figure} requests/s.", contestant.label),
                );
            }
        }
    }

    fn cost_bars(&self) -> Vec<(&'static str, &'static str, String, bool)> {
        let of = |figure: fn(&Cost) -> f64| Spread::of(self.cost.iter().map(figure));
        let rows: [(_, _, Figure, f64, _); 4] = [
            (
                "a million keys of 100 B: resident",
                "≤ 150 MB",
                |c| mb(c.full_rss_bytes),
                150.0,
                "MB",
            ),
            ("an empty node: resident", "≤ 20 MB", |c| mb(c.empty_rss_bytes), 20.0, "MB"),
            ("start, empty", "≤ 0.3 s", |c| c.empty_start_s, 0.3, "s"),
            ("start with the million after kill -9", "≤ 5 s", |c| c.full_start_s, 5.0, "s"),
        ];
        rows.into_iter()
            .filter_map(|(title, bar, figure, most, unit)| {
                let spread = of(figure)?;
                let measured = spread.text(|x| format!("{x:.3}"));
                Some((title, bar, format!("{measured} {unit}"), spread.median <= most))
            })
            .collect()
    }

    fn cost(&self, page: &mut String) {
        let Some(keys) = self.cost.first().map(|c| c.keys) else { return };
        line(
            page,
            &format!("\n## {}: one node, {} keys of 100 B\n", plan::COST, grouped(keys as f64)),
        );
        line(page, "| | measured |");
        line(page, "| --- | --: |");
        let rows: [(&str, Figure); 8] = [
            ("start with an empty folder, s", |c| c.empty_start_s),
            ("resident, empty, MB", |c| mb(c.empty_rss_bytes)),
            ("filling, SETs/s", |c| c.fill_ops_per_s),
            ("resident, full and settled, MB", |c| mb(c.full_rss_bytes)),
            ("on disk, MB", |c| mb(c.full_disk_bytes)),
            ("start after kill -9 to the first GET, s", |c| c.full_start_s),
            ("resident after that start, MB", |c| mb(c.restarted_rss_bytes)),
            ("keys", |c| c.keys as f64),
        ];
        for (title, figure) in rows {
            if let Some(spread) = Spread::of(self.cost.iter().map(figure)) {
                let show = |x: f64| if x < 1000.0 { format!("{x:.3}") } else { grouped(x) };
                line(page, &format!("| {title} | {} |", spread.text(show)));
            }
        }
    }

    fn failover_bars(&self) -> Vec<(&'static str, &'static str, String, bool)> {
        let Some(all) = Spread::of(self.failover.iter().map(|f| f.all_s.unwrap_or(f64::INFINITY)))
        else {
            return Vec::new();
        };
        let violations = self.failover.iter().filter(|f| f.violation.is_some()).count();
        vec![
            (
                "leader killed under load: every writer writes again",
                "≤ 1.5 s",
                format!("{} s", all.text(|x| format!("{x:.3}"))),
                all.median <= 1.5,
            ),
            (
                "leader killed under load: acknowledged writes lost or applied twice",
                "0",
                format!("{violations} in {} kills", self.failover.len()),
                violations == 0,
            ),
        ]
    }

    fn failover(&self, page: &mut String) {
        if self.failover.is_empty() {
            return;
        }
        line(
            page,
            &format!(
                "\n## {}: the leader of three killed under {WRITERS} writers\n",
                plan::FAILOVER
            ),
        );
        line(
            page,
            "| first write answered after, s | every writer answered after, s | acknowledged | unknown | violations |",
        );
        line(page, "| --: | --: | --: | --: | --- |");
        for f in &self.failover {
            line(
                page,
                &format!(
                    "| {} | {} | {} | {} | {} |",
                    seconds(f.first_s),
                    seconds(f.all_s),
                    grouped(f.acknowledged as f64),
                    f.unknown,
                    f.violation.as_deref().unwrap_or("none")
                ),
            );
        }
    }

    fn commands(&self, page: &mut String) {
        line(page, "\n## Commands\n");
        line(
            page,
            "`cargo xtask bench site` starts each system (`bench/peers/*.sh`; ours as `portolan serve` with its",
        );
        line(
            page,
            "defaults on free ports) and runs these; ports and process ids are those of the first repetition.\n",
        );
        line(page, "```sh");
        let mut seen = Vec::new();
        for sample in &self.loads {
            let key = (&sample.row, &sample.contestant);
            if !seen.contains(&key) {
                seen.push(key);
                line(page, &format!("# {}, {}", sample.row, sample.contestant));
                line(page, &sample.command);
            }
        }
        line(page, "```");
    }
}

fn seconds(time_s: Option<f64>) -> String {
    time_s.map_or_else(|| "never".to_owned(), |s| format!("{s:.3}"))
}

fn mb(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

fn verdict(page: &mut String, title: &str, bar: &str, measured: &str, met: bool) {
    let mark = if met { "met" } else { "**missed**" };
    line(page, &format!("| {title} | {bar} | {measured} | {mark} |"));
}

fn line(page: &mut String, text: &str) {
    writeln!(page, "{text}").expect("a String takes everything");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::load::Latency;

    fn sample(contestant: &str, ops_per_s: f64, p99_us: f64) -> LoadSample {
        let latency = Latency {
            count: 1,
            mean_us: 1.0,
            p50_us: p99_us / 2.0,
            p90_us: p99_us,
            p99_us,
            p999_us: p99_us,
            max_us: p99_us,
        };
        LoadSample {
            row: "puts-256".into(),
            contestant: contestant.into(),
            command: "load".into(),
            report: Report {
                seconds: 1.0,
                ops_per_s,
                gets: None,
                puts: Some(latency),
                misses: 0,
                errors: 0,
                first_error: None,
                own_cpu_s: 0.1,
                servers: Vec::new(),
            },
            second_opinion_ops_per_s: None,
        }
    }

    fn results(loads: Vec<LoadSample>) -> Results {
        Results {
            date: "2026-01-01T00:00Z".into(),
            machine: Machine {
                processor: "a processor".into(),
                cores: 2,
                memory_gib: 8.0,
                kernel: "a kernel".into(),
                filesystem: "ext4".into(),
                load_average: 0.0,
            },
            versions: vec!["v".into()],
            disk: vec![Fdatasync { p50_us: 500.0, p99_us: 900.0 }],
            loads,
            cost: Vec::new(),
            failover: Vec::new(),
        }
    }

    fn bar_of(page: &str, door: &str) -> String {
        page.lines().find(|l| l.contains("≥ 4 ×") && l.contains(door)).unwrap().to_owned()
    }

    #[test]
    fn a_bar_is_met_by_the_median_in_both_its_parts() {
        let page = results(vec![
            sample("Portolan, Redis", 4_500.0, 90.0),
            sample("Portolan, Redis", 100.0, 90.0),
            sample("Portolan, Redis", 4_600.0, 90.0),
            sample("Portolan, gRPC", 9_000.0, 200.0),
            sample("etcd, gRPC", 1_000.0, 100.0),
        ])
        .page("results/x.json");
        assert!(bar_of(&page, "Redis").ends_with("| 4.50 ×, p99 90 against 100 µs | met |"));
        assert!(bar_of(&page, "Portolan, gRPC").ends_with("against 100 µs | **missed** |"));
        assert!(page.contains("| 4,500 (100–4,600) |"));
    }

    #[test]
    fn samples_survive_their_file() {
        let mut before = results(vec![sample("etcd, gRPC", 1_000.0, 100.0)]);
        before.failover.push(Failover {
            first_s: Some(0.5),
            all_s: None,
            acknowledged: 3,
            unknown: 1,
            violation: None,
        });
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.json");
        std::fs::write(&path, serde_json::to_string(&before).unwrap()).unwrap();
        let read: Results = crate::bench::read_results(&path).unwrap();
        assert_eq!(read.page("x"), before.page("x"));
        assert!(before.page("x").contains("| 0.500 | never |"));
    }
}
