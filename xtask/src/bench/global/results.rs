//! The samples of a run as JSON, and as the page that people read.

use std::fmt::Write;

use serde::{Deserialize, Serialize};

use super::forward::{self, Forwarded};
use super::handover::{self, Handover, Move};
use super::known::{Routed, Routing, Three};
use super::paper::{Hops, Paper};
use super::valkey::{self, Migration};
use crate::bench::command::output;
use crate::bench::disk::Fdatasync;
use crate::bench::load::Report;
use crate::bench::machine::Machine;
use crate::bench::statistics::{Spread, grouped};
use crate::bench::systems::System;

/// Everything that a run measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Results {
    /// When it began, in UTC.
    pub(super) date: String,
    pub(super) machine: Machine,
    pub(super) versions: Vec<String>,
    /// Before each repetition, and at the end.
    pub(super) disk: Vec<Fdatasync>,
    pub(super) moves: Vec<Move>,
    /// Ours and Valkey's.
    pub(super) slots: Vec<(Handover, Migration)>,
    pub(super) forward: Vec<Forwarded>,
    pub(super) known: Vec<Routing>,
    pub(super) three: Vec<Three>,
    pub(super) paper: Option<Paper>,
}

const INTRODUCTION: &str = "\
# Global keys: slots that move, forwarding, known owners

Written by `cargo xtask bench global`; do not edit. What one site does alone: [RESULTS.md](RESULTS.md).
All nodes, the generator (`bench/load`) and Valkey ran on this one machine and disk, on loopback, from an
empty disk in every repetition. Durability is equal: every acknowledged write is on disk, at a majority
where a site has three nodes (Valkey with `appendonly yes` and `appendfsync always`, Portolan at its
defaults). Figures are the median of the repetitions and, in parentheses, the smallest and the largest.
";

/// A bar, what came out, and whether it is met.
struct Bar {
    work: String,
    bar: String,
    measured: String,
    met: bool,
}

impl Results {
    pub(super) fn new(machine: Machine, with_valkey: bool) -> Result<Self, String> {
        let mut versions = vec![System::Portolan.version()?];
        if with_valkey {
            versions.push(valkey::version()?);
        }
        Ok(Self {
            date: output("date", &["-u", "+%Y-%m-%dT%H:%MZ"])?,
            machine,
            versions,
            disk: Vec::new(),
            moves: Vec::new(),
            slots: Vec::new(),
            forward: Vec::new(),
            known: Vec::new(),
            three: Vec::new(),
            paper: None,
        })
    }

    /// The page; `samples` is where the JSON lies, as seen from it.
    pub(super) fn page(&self, samples: &str) -> String {
        let mut page = String::from(INTRODUCTION);
        self.surroundings(&mut page, samples);
        line(&mut page, "\n## The bars\n");
        line(&mut page, "| work | bar | measured | |");
        line(&mut page, "| --- | --- | --- | --- |");
        for bar in self.bars() {
            let met = if bar.met { "met" } else { "**missed**" };
            line(&mut page, &format!("| {} | {} | {} | {met} |", bar.work, bar.bar, bar.measured));
        }
        line(&mut page, "\nWhat was tried where a bar is missed: [NOTES.md](NOTES.md).");
        self.moves(&mut page);
        self.slots(&mut page);
        self.forward(&mut page);
        self.known(&mut page);
        self.three(&mut page);
        self.commands(&mut page);
        page
    }

    fn surroundings(&self, page: &mut String, samples: &str) {
        line(page, "");
        line(page, &format!("- {}; samples: [{samples}]({samples})", self.date));
        line(page, &format!("- {}", self.machine));
        line(page, &format!("- {}", self.versions.join("; ")));
        if let Some(p50) = Spread::of(self.disk.iter().map(|d| d.p50_us)) {
            let took = p50.text(grouped);
            line(page, &format!("- the disk: 4 KiB appended with fdatasync take {took} µs"));
        }
    }

    fn moves_of(&self, nodes: u64) -> impl Iterator<Item = &Move> {
        self.moves.iter().filter(move |one| one.nodes == nodes)
    }

    fn bars(&self) -> Vec<Bar> {
        let mut bars = Vec::new();
        self.paper_bars(&mut bars);
        for nodes in [1, 3] {
            self.move_bars(nodes, &mut bars);
        }
        let ours = Spread::of(self.slots.iter().map(|(ours, _)| ours.seen_s * 1e3));
        let theirs = Spread::of(self.slots.iter().map(|(_, theirs)| theirs.seen_s * 1e3));
        if let (Some(ours), Some(theirs)) = (ours, theirs) {
            bars.push(Bar {
                work: "500 slots with 20,000 keys of 100 B altogether".into(),
                bar: "no slower than Valkey's `CLUSTER MIGRATESLOTS`".into(),
                measured: format!("{} against {} ms", ours.text(tenths), theirs.text(tenths)),
                met: ours.median <= theirs.median,
            });
        }
        for pipeline in forward::PIPELINES {
            let share = |one: &Forwarded| one.forwarded.ops_per_s / one.local.ops_per_s * 100.0;
            let rows = self.forward.iter().filter(|one| one.pipeline == pipeline);
            if let Some(share) = Spread::of(rows.map(share)) {
                bars.push(Bar {
                    work: format!("GETs through another site, pipeline {pipeline}"),
                    bar: "≥ 60 % of GETs at the owner".into(),
                    measured: format!("{} %", share.text(tenths)),
                    met: share.median >= 60.0,
                });
            }
        }
        self.known_bars(&mut bars);
        bars
    }

    fn paper_bars(&self, bars: &mut Vec<Bar>) {
        let Some(paper) = &self.paper else { return };
        bars.extend(paper.goals.iter().map(|goal| Bar {
            work: format!("in the lab, {}", goal.what),
            bar: goal.bar.clone(),
            measured: goal.is.clone(),
            met: goal.met,
        }));
        if let Some(most) = paper.hops.last() {
            let is_within = |one: &Hops| one.mean <= one.mean_max();
            bars.push(Bar {
                work: format!(
                    "in the lab, cold lookup on rings of up to {} sites",
                    grouped(most.sites)
                ),
                bar: format!("mean hops ≤ ½ log2 m + 1 (then {:.2})", most.mean_max()),
                measured: format!("{:.2} hops with {} sites", most.mean, grouped(most.sites)),
                met: paper.hops.iter().all(is_within),
            });
        }
    }

    fn move_bars(&self, nodes: u64, bars: &mut Vec<Bar>) {
        let of = |figure: fn(&Move) -> f64| Spread::of(self.moves_of(nodes).map(figure));
        let (Some(speed), Some(frozen), Some(unit), Some(longest)) = (
            of(Move::mb_per_s),
            of(|one| one.handover.paused_us),
            of(Move::unit_us),
            of(|one| one.moving.longest_put_us()),
        ) else {
            return;
        };
        let between = match nodes {
            1 => "between sites of one node",
            _ => "between sites of three nodes",
        };
        let work = format!("100 MB under load {between}");
        bars.push(Bar {
            work: format!("{work}: speed"),
            bar: "≥ 100 MB/s".into(),
            measured: format!("{} MB/s", speed.text(grouped)),
            met: speed.median >= 100.0,
        });
        let most = 2.0 * unit.median;
        let bar = format!("≤ 2 × (round trip + two commits) = {} µs", grouped(most));
        bars.push(Bar {
            work: format!("{work}: no site takes writes, as the source reports"),
            bar: bar.clone(),
            measured: format!("{} µs", frozen.text(grouped)),
            met: frozen.median <= most,
        });
        bars.push(Bar {
            work: format!("{work}: the longest write of the whole time, as clients see it"),
            bar,
            measured: format!("{} µs", longest.text(grouped)),
            met: longest.median <= most,
        });
        let errors: u64 = self.moves_of(nodes).map(|one| one.moving.errors).sum();
        let misses: u64 = self.moves_of(nodes).map(|one| one.moving.misses).sum();
        let covered = self.moves_of(nodes).all(|one| one.covered);
        let note = if covered { "" } else { "; a move went on after the load had ended" };
        bars.push(Bar {
            work: format!("{work}: errors, and keys not found"),
            bar: "0".into(),
            measured: format!("{errors} and {misses}{note}"),
            met: errors + misses == 0 && covered,
        });
    }

    fn known_bars(&self, bars: &mut Vec<Bar>) {
        let percent = |one: &Routed| one.direct / one.all * 100.0;
        if let Some(share) = Spread::of(self.known.iter().map(|one| percent(&one.steady))) {
            bars.push(Bar {
                work: "three sites, keys drawn uniformly: requests that go directly to the owner"
                    .into(),
                bar: "≥ 99 % of those for keys elsewhere".into(),
                measured: format!("{} %", share.text(|x| format!("{x:.3}"))),
                met: share.median >= 99.0,
            });
        }
        let redirected = |one: &Routed| one.all - one.direct;
        let of =
            |pass: usize| Spread::of(self.known.iter().map(|k| redirected(&k.after_move[pass])));
        if let (Some(first), Some(second)) = (of(0), of(1)) {
            let slots = f64::from(handover::SLOT_COUNT);
            bars.push(Bar {
                work: format!(
                    "after a move of {slots} slots, seen from a third site: extra hops when each \
                     key is asked for, and when each is asked for again"
                ),
                bar: "one a slot, then none".into(),
                measured: format!("{}, then {}", first.text(grouped), second.text(grouped)),
                met: first.most <= slots && second.most <= 0.0,
            });
        }
    }

    fn moves(&self, page: &mut String) {
        if self.moves.is_empty() {
            return;
        }
        line(page, "\n## move: 100 MB go to another site while clients read and write them\n");
        line(
            page,
            &format!(
                "Values of {} B in {} slots; {} clients at both sites send at most {} requests a \
                 second, half of them\nwrites. *Seen* is from the start of `portolan slot move` \
                 until the destination's Redis Cluster port answers for\nthe slots itself; *frozen* \
                 is, by the source's clock, from the freeze until it receives that the destination\nserves. \
                 The unit of the bar is a GET through the other site and a SET at each, medians of \
                 one client on\nthe same nodes just before.\n",
                grouped(handover::LARGE_BYTES as f64),
                handover::SLOT_COUNT,
                handover::CLIENTS,
                grouped(handover::RATE_PER_S),
            ),
        );
        line(page, "| nodes a site | 1 | 3 |");
        line(page, "| --- | --: | --: |");
        type Figure = fn(&Move) -> f64;
        let rows: [(&str, Figure); 15] = [
            ("seen, s", |one| one.handover.seen_s),
            ("begin to release, s", |one| one.handover.took_s),
            ("MB/s", Move::mb_per_s),
            ("sent, MB", |one| one.handover.sent_bytes / 1e6),
            ("frozen, µs", |one| one.handover.paused_us),
            ("round trip, µs", |one| one.round_trip_us),
            ("commit at the source, µs", |one| one.commits_us[0]),
            ("commit at the destination, µs", |one| one.commits_us[1]),
            ("fsync of the source's log meanwhile, mean, µs", |one| one.handover.fsync_us[0]),
            ("fsync of the destination's log meanwhile, mean, µs", |one| one.handover.fsync_us[1]),
            ("longest write, µs", |one| one.moving.longest_put_us()),
            ("longest write without a move, µs", |one| one.quiet.longest_put_us()),
            ("writes, 99.9th percentile, µs", |one| p999(&one.moving)),
            ("writes without a move, 99.9th percentile, µs", |one| p999(&one.quiet)),
            ("requests a second", |one| one.moving.ops_per_s),
        ];
        for (title, figure) in rows {
            let column = |nodes| {
                let spread = Spread::of(self.moves_of(nodes).map(figure));
                spread.map_or_else(|| "–".to_owned(), |spread| spread.text(readable))
            };
            line(page, &format!("| {title} | {} | {} |", column(1), column(3)));
        }
    }

    fn slots(&self, page: &mut String) {
        if self.slots.is_empty() {
            return;
        }
        line(page, "\n## slots: 500 slots with 20,000 keys, beside Valkey\n");
        line(
            page,
            "20,000 keys of 100 B altogether, spread over the slots, and no load. Both are timed \
             alike, from outside: from\nthe command (ours is a process to be started, Valkey's is \
             sent on an open connection) until the node that\nreceives answers a GET of such a key \
             itself. The rest is what each reports of itself.\n",
        );
        line(page, "| | ms |");
        line(page, "| --- | --: |");
        let mut row = |title: &str, figure: fn(&(Handover, Migration)) -> f64| {
            if let Some(spread) = Spread::of(self.slots.iter().map(figure)) {
                line(page, &format!("| {title} | {} |", spread.text(tenths)));
            }
        };
        row("Portolan", |(ours, _)| ours.seen_s * 1e3);
        row("Valkey", |(_, theirs)| theirs.seen_s * 1e3);
        row("Portolan, begin to release", |(ours, _)| ours.took_s * 1e3);
        row("Valkey, command to `success`", |(_, theirs)| theirs.success_s * 1e3);
        row("Portolan, frozen", |(ours, _)| ours.paused_us / 1e3);
    }

    fn forward(&self, page: &mut String) {
        if self.forward.is_empty() {
            return;
        }
        line(
            page,
            &format!(
                "\n## forward: GETs of 256 B by {} clients, at the owner and through the other site\n",
                forward::CLIENTS
            ),
        );
        line(page, "| | GETs/s | p50 µs | p99 µs | server CPU µs/request |");
        line(page, "| --- | --: | --: | --: | --: |");
        for pipeline in forward::PIPELINES {
            let rows: Vec<_> = self.forward.iter().filter(|f| f.pipeline == pipeline).collect();
            let locals: Vec<_> = rows.iter().map(|one| &one.local).collect();
            let forwarded: Vec<_> = rows.iter().map(|one| &one.forwarded).collect();
            reports(page, &format!("at the owner, pipeline {pipeline}"), &locals);
            reports(page, &format!("through the other site, pipeline {pipeline}"), &forwarded);
        }
    }

    fn known(&self, page: &mut String) {
        if self.known.is_empty() {
            return;
        }
        line(page, "\n## known: three sites of one node\n");
        line(page, "| | requests for keys elsewhere | directly to the owner |");
        line(page, "| --- | --: | --: |");
        type Of = fn(&Routing) -> Routed;
        let rows: [(&str, Of); 3] = [
            ("steady load, nine GETs to a SET", |one| one.steady),
            ("after a move, first time", |one| one.after_move[0]),
            ("after a move, second time", |one| one.after_move[1]),
        ];
        for (title, routed) in rows {
            let all = Spread::of(self.known.iter().map(|one| routed(one).all));
            let direct = Spread::of(self.known.iter().map(|one| routed(one).direct));
            if let (Some(all), Some(direct)) = (all, direct) {
                let (all, direct) = (all.text(grouped), direct.text(grouped));
                line(page, &format!("| {title} | {all} | {direct} |"));
            }
        }
    }

    fn three(&self, page: &mut String) {
        if self.three.is_empty() {
            return;
        }
        line(page, "\n## three: three sites of three nodes, 256 clients at all of them, 256 B\n");
        line(page, "No bar: nine nodes and the generator share two cores.\n");
        line(page, "| | requests/s | p50 µs | p99 µs | server CPU µs/request |");
        line(page, "| --- | --: | --: | --: | --: |");
        let gets: Vec<_> = self.three.iter().map(|one| &one.gets).collect();
        let sets: Vec<_> = self.three.iter().map(|one| &one.sets).collect();
        reports(page, "GET", &gets);
        reports(page, "SET", &sets);
    }

    fn commands(&self, page: &mut String) {
        line(page, "\n## Commands\n");
        line(page, "The loads of the first repetition, with its ports and process ids.\n");
        line(page, "```sh");
        let mut command = |what: &str, text: &str| {
            line(page, &format!("# {what}"));
            line(page, text);
        };
        for nodes in [1, 3] {
            if let Some(one) = self.moves_of(nodes).next() {
                command(&format!("move-{nodes}"), &one.command);
            }
        }
        for pipeline in forward::PIPELINES {
            if let Some(one) = self.forward.iter().find(|one| one.pipeline == pipeline) {
                command("forward", &one.command);
            }
        }
        if let Some(one) = self.known.first() {
            command("known", &one.command);
        }
        for text in self.three.first().iter().flat_map(|one| &one.commands) {
            command("three", text);
        }
        line(page, "```");
    }
}

fn reports(page: &mut String, title: &str, reports: &[&Report]) {
    let column = |figure: fn(&Report) -> f64, show: fn(f64) -> String| {
        let spread = Spread::of(reports.iter().map(|report| figure(report)));
        spread.map_or_else(|| "–".to_owned(), |spread| spread.text(show))
    };
    let (all, p50, p99, cpu) = (
        column(|r| r.ops_per_s, grouped),
        column(|r| r.latency().map_or(f64::NAN, |l| l.p50_us), grouped),
        column(|r| r.latency().map_or(f64::NAN, |l| l.p99_us), grouped),
        column(Report::server_us_per_op, tenths),
    );
    line(page, &format!("| {title} | {all} | {p50} | {p99} | {cpu} |"));
}

fn p999(report: &Report) -> f64 {
    report.puts.as_ref().map_or(f64::NAN, |latency| latency.p999_us)
}

fn tenths(number: f64) -> String {
    format!("{number:.1}")
}

fn readable(number: f64) -> String {
    if number < 10.0 { format!("{number:.3}") } else { grouped(number) }
}

fn line(page: &mut String, text: &str) {
    writeln!(page, "{text}").expect("a String takes everything");
}
