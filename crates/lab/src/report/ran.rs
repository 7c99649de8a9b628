//! The report of a run in virtual time.

use std::time::Duration;

use super::{Distribution, Expectation, Fault, Map, MapSite, Report, Stroke, Tile, Tone, Verdict};
use crate::clients::Trail;
use crate::clients::arithmetic::most_apart;
use crate::history::History;
use crate::run::Ran;
use crate::verdict::{self, Judged};
use crate::world::World;

/// Lines of the comparison with arithmetic; of more, those that differ most.
const LINES_MAX: usize = 60;
/// Sites whose latencies are distinguished in a plot.
const SITES_TOLD_APART: usize = 8;

impl Report {
    /// What came of a run of a world; `again` is the command that runs it again.
    #[must_use]
    pub fn of_run(world: &World, ran: &Ran, again: &str) -> Report {
        let figures = &ran.figures;
        let nodes: usize = world.sites.iter().map(|site| site.nodes).sum();
        let summary = format!(
            "{} sites with {nodes} nodes and {} clients, {:.0} seconds of virtual time, seed {}: {} \
             operations, {} faults, {} elections.",
            world.sites.len(),
            world.client_count(),
            figures.virtual_time.as_secs_f64(),
            ran.seed,
            figures.operations,
            figures.faults,
            figures.elections,
        );
        let mut report = Report::new(&world.title, summary, ran.measure.clone());
        report.tiles = tiles(ran);
        report.verdicts = ran.judged.iter().map(|one| judged(&ran.history, one)).collect();
        if let Some(why) = &ran.failure {
            report.verdicts.push(Verdict {
                promise: "the run itself".to_owned(),
                verdict: "broken off".to_owned(),
                tone: Tone::Bad,
                examined: String::new(),
                violation: Some(why.clone()),
            });
        }
        report.faults = faults(world, ran);
        // Faults move medians: the table is of what happens when nothing is in the way.
        if figures.faults == 0 {
            report.expectations = most_apart(&ran.compared, LINES_MAX)
                .into_iter()
                .map(|line| Expectation {
                    operation: line.what.clone(),
                    because: line.because.clone(),
                    expected_ms: line.expected_ms,
                    measured_p50_ms: Some(line.median_ms),
                })
                .collect();
        }
        if (2..=SITES_TOLD_APART).contains(&ran.by_site.len()) {
            report.distributions = vec![Distribution {
                title: "Latency by site".to_owned(),
                about: "All operations that took one attempt, by the site that answered."
                    .to_owned(),
                series: ran.by_site.clone(),
            }];
        }
        report.map = Some(map(world, ran));
        report.notes = notes(world, ran, again);
        report
    }
}

fn tiles(ran: &Ran) -> Vec<Tile> {
    let counters = ran.measure.counters();
    let summary = ran.measure.summary();
    let wrongs = ran.wrongs().len();
    let kept = match wrongs {
        0 => Tile::new(
            "promises",
            "hold".to_owned(),
            format!("all {}", ran.judged.len()),
            Tone::Good,
        ),
        _ => Tile::new("promises", format!("{wrongs} broken"), "see below".to_owned(), Tone::Bad),
    };
    vec![
        kept,
        Tile::new(
            "latency, median",
            format!("{:.1} ms", summary.p50_ms),
            format!("99 % below {:.0} ms", summary.p99_ms),
            Tone::Plain,
        ),
        Tile::new(
            "answered",
            summary.count.to_string(),
            format!("{} errors, {} retries", counters.errors, counters.retries),
            Tone::Plain,
        ),
        Tile::new("moves", counters.moves.to_string(), "to another site".to_owned(), Tone::Plain),
        Tile::new(
            "faults",
            ran.figures.faults.to_string(),
            format!("{} elections", ran.figures.elections),
            Tone::Plain,
        ),
    ]
}

fn judged(history: &History, judged: &Judged) -> Verdict {
    let promise = judged.promise.name().replace('-', " ");
    match &judged.verdict {
        verdict::Verdict::Holds { examined } => Verdict {
            promise,
            verdict: "holds".to_owned(),
            tone: Tone::Good,
            examined: examined.to_string(),
            violation: None,
        },
        verdict::Verdict::Undecided { why } => Verdict {
            promise,
            verdict: "undecided".to_owned(),
            tone: Tone::Bad,
            examined: String::new(),
            violation: Some(why.clone()),
        },
        verdict::Verdict::Broken(violation) => Verdict {
            promise,
            verdict: "broken".to_owned(),
            tone: Tone::Bad,
            examined: String::new(),
            violation: Some(violation.describe(history)),
        },
    }
}

fn faults(world: &World, ran: &Ran) -> Vec<Fault> {
    let done = ran.faults.iter().filter(|(_, done)| *done);
    done.map(|(fault, _)| Fault {
        from: fault.at,
        to: fault.at + fault.span.max(Duration::from_millis(1)),
        label: format!("{} {}", fault.kind, fault.place(&world.sites)),
    })
    .collect()
}

fn map(world: &World, ran: &Ran) -> Map {
    let mut map = Map::new(world.area);
    map.outline.clone_from(&world.outline);
    map.sites = world
        .sites
        .iter()
        .zip(&ran.answered_by_site)
        .map(|(site, operations)| MapSite {
            name: site.name.to_string(),
            at: site.at,
            nodes: site.nodes,
            operations: *operations,
        })
        .collect();
    map.strokes = ran.trails.iter().flat_map(strokes).collect();
    map
}

/// A trail cut where another site took over.
fn strokes(trail: &Trail) -> Vec<Stroke> {
    let mut strokes: Vec<Stroke> = Vec::new();
    for pair in trail.windows(2) {
        let ((from, _), (to, site)) = (pair[0], pair[1]);
        match strokes.last_mut() {
            Some(stroke) if stroke.site == site => stroke.points.push(to),
            _ => strokes.push(Stroke { site, points: vec![from, to] }),
        }
    }
    strokes
}

fn notes(world: &World, ran: &Ran, again: &str) -> Vec<String> {
    let links = &world.links;
    let (shortest, longest) = world.node.sync_ms;
    let sync = match shortest == longest {
        true => format!("{shortest} ms"),
        false => format!("{shortest} to {longest} ms"),
    };
    let mut notes = vec![
        "Time is virtual: links, disks and clocks take the times of the world, and computing takes \
         none. The sites run the code that a real node runs. Acknowledged means on disk at a \
         majority of the site's nodes; reads are linearizable unless a group of clients asks \
         otherwise. Each site keeps keys of its own."
            .to_owned(),
        format!(
            "One way: client to site {}; node to node {}. An fsync takes {sync}.",
            links.client_site, links.node_node
        ),
        format!(
            "Run it again: {again}. The same seed gives the same run; this one's digest is {}.",
            ran.digest()
        ),
    ];
    notes.extend(world.sites_note.clone());
    notes
}
