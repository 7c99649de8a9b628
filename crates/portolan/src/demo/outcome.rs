//! The end: reading back what was acknowledged, the final table, the report.

use std::{
    collections::BTreeSet,
    io::{self, Write},
    path::Path,
    time::Duration,
};

use lab::{
    history::{History, Promise},
    measure::{Measure, Summary},
    report::{self, Map, MapSite, Report, Tile, Tone},
    verdict::{Judged, Verdict},
};
use tokio::time::timeout;
use wire::resp::Reply;

use super::{
    hazards, plan::Plan, recorder::Command, resp::Connection, scene::STALL, vehicle::Shared,
};

/// How long one read of the audit may take at one node.
const AUDIT_TIMEOUT: Duration = Duration::from_secs(5);
/// Seconds after the kill in which its effect is looked for.
const AFTERMATH_S: usize = 10;

/// The leader that was stopped.
#[derive(Debug, Clone)]
pub(super) struct Kill {
    /// Index of its site.
    pub(super) site: usize,
    /// When.
    pub(super) at: Duration,
    /// How long the site had none; none if it has none yet.
    pub(super) leaderless: Option<Duration>,
}

/// Acknowledged reports that nobody cleared, read back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Audit {
    /// Found.
    pub(super) kept: usize,
    /// Not found, at a site that answered.
    pub(super) lost: usize,
    /// At a site that did not answer.
    pub(super) unread: usize,
}

/// Reads back every report that must still be there.
pub(super) async fn audit(shared: &Shared) -> Audit {
    let promised = shared.scene.lock().ledger.promised();
    let mut audit = Audit::default();
    for ((site, key), fields) in promised {
        let Some(reply) = read(shared, site, &key).await else {
            audit.unread += fields.len();
            continue;
        };
        let listed = hazards::listed(&reply);
        let kept = fields.iter().filter(|field| listed.iter().any(|(name, _)| name == *field));
        let kept = kept.count();
        audit.kept += kept;
        audit.lost += fields.len() - kept;
    }
    audit
}

/// Asks a site's nodes in turn until one answers.
async fn read(shared: &Shared, site: usize, key: &str) -> Option<Reply> {
    let words = &["HGETALL", key];
    let command = Command { vehicle: None, site, words };
    for addr in &shared.addresses[site] {
        let asked = shared.scene.lock().recorder.asked(command, shared.scene.elapsed());
        let ask = async { Connection::open(*addr).await?.call(words).await };
        if let Ok(Ok((_, reply @ Reply::Array(_)))) = timeout(AUDIT_TIMEOUT, ask).await {
            if let Some(asked) = asked {
                let at = shared.scene.elapsed();
                shared.scene.lock().recorder.answered(asked, command, &reply, at);
            }
            return Some(reply);
        }
    }
    None
}

/// Everything there is to tell.
#[derive(Debug)]
pub(super) struct Outcome<'a> {
    /// What was to be played.
    pub(super) plan: &'a Plan,
    /// What was seen.
    pub(super) shared: &'a Shared,
    /// How long it was played.
    pub(super) length: Duration,
    /// The leader that was stopped.
    pub(super) kill: Option<Kill>,
    /// What was read back.
    pub(super) audit: Audit,
    /// What was asked and answered.
    pub(super) history: &'a History,
    /// What judges say of it.
    pub(super) judged: Vec<Judged>,
}

impl Outcome<'_> {
    /// A promise that was broken, if one was.
    pub(super) fn broken(&self) -> Option<Promise> {
        let broken = |judged: &&Judged| matches!(judged.verdict, Verdict::Broken(_));
        self.judged.iter().find(broken).map(|judged| judged.promise)
    }

    /// Writes the final table.
    pub(super) fn print(&self, mut out: impl Write) -> io::Result<()> {
        let seen = self.shared.scene.lock();
        let measure = &seen.measure;
        writeln!(out, "\n{}, {:.1} s\n", self.plan.title, self.length.as_secs_f64())?;
        write!(out, "{:<10}{:>10}{:>8}", "operation", "answered", "errors")?;
        writeln!(out, "{:>10}{:>10}{:>10}{:>10}", "p50 ms", "p90 ms", "p99 ms", "max ms")?;
        for operation in measure.operations() {
            print_row(&mut out, operation.name, operation.errors, &operation.summary())?;
        }
        let counters = measure.counters();
        print_row(&mut out, "all", counters.errors, &measure.summary())?;
        writeln!(
            out,
            "\nmoves {}, elections {}, attempts made again {}, answers later than {} ms: {}",
            counters.moves,
            counters.elections,
            counters.retries,
            STALL.as_millis(),
            counters.stalls
        )?;
        if let Some(kill) = &self.kill {
            writeln!(out, "{}", self.aftermath(kill, measure))?;
        }
        for (why, count) in &seen.failures {
            writeln!(out, "  {count} × {why}")?;
        }
        let Audit { kept, lost, unread } = self.audit;
        writeln!(out, "{} acknowledged reports read back: {lost} lost", kept + lost)?;
        if unread > 0 {
            writeln!(out, "{unread} more could not be read back: their site does not answer")?;
        }
        let words =
            self.verdicts().into_iter().map(|said| format!("{}: {}", said.promise, said.verdict));
        let words = words.collect::<Vec<_>>().join(", ");
        writeln!(out, "history of {} operations: {words}", self.history.operations.len())?;
        for violation in self.verdicts().into_iter().filter_map(|said| said.violation) {
            writeln!(out, "{violation}")?;
        }
        Ok(())
    }

    fn aftermath(&self, kill: &Kill, measure: &Measure) -> String {
        let name = &self.plan.world.sites[kill.site].name;
        let leader = match kill.leaderless {
            Some(leaderless) => format!("had a new one after {} ms", leaderless.as_millis()),
            None => "has no new one yet".to_owned(),
        };
        let slowest_ms = slowest_after(kill, measure);
        format!("{name} lost its leader and {leader}; slowest answer after that {slowest_ms:.0} ms")
    }

    /// The report, from a copy of what was seen.
    pub(super) fn report(&self) -> Report {
        let seen = self.shared.scene.lock();
        let mut measure = seen.measure.clone();
        measure.advance(self.length);
        let world = &self.plan.world;
        let sites = world.sites.iter().zip(&seen.sites).map(|(site, operations)| MapSite {
            name: site.name.to_string(),
            at: site.at,
            nodes: site.nodes,
            operations: *operations,
        });
        let map = Map {
            outline: world.outline.clone(),
            sites: sites.collect(),
            strokes: seen.strokes.clone(),
            ..Map::new(world.area)
        };
        let mut notes = self.notes();
        if !seen.failures.is_empty() {
            let failures = seen.failures.iter().map(|(why, count)| format!("{why} ({count})"));
            let failures = failures.collect::<Vec<_>>().join(", ");
            notes.push(format!("What attempts that failed were told: {failures}."));
        }
        Report {
            tiles: self.tiles(&measure),
            verdicts: self.verdicts(),
            map: Some(map),
            notes,
            ..Report::new(world.title.clone(), self.summary(), measure)
        }
    }

    /// What the judges say, for people.
    fn verdicts(&self) -> Vec<report::Verdict> {
        let keys: BTreeSet<&str> = self.history.operations.iter().map(|o| o.key.as_str()).collect();
        let operations = self.history.operations.len();
        let everything = format!("{operations} operations on {} reports", keys.len());
        let said = |judged: &Judged| {
            let (verdict, tone, examined, violation) = match &judged.verdict {
                Verdict::Holds { examined } if judged.promise == Promise::Durable => {
                    ("holds", Tone::Good, format!("{examined} reports that were read"), None)
                }
                Verdict::Holds { .. } => ("holds", Tone::Good, everything.clone(), None),
                Verdict::Undecided { why } => {
                    ("undecided", Tone::Plain, everything.clone(), Some(why.clone()))
                }
                Verdict::Broken(violation) => {
                    let text = violation.told(self.history);
                    ("broken", Tone::Bad, everything.clone(), Some(text))
                }
            };
            let (promise, verdict) = (judged.promise.to_string(), verdict.to_owned());
            report::Verdict { promise, verdict, tone, examined, violation }
        };
        self.judged.iter().map(said).collect()
    }

    fn summary(&self) -> String {
        let Plan { world, vehicles, clock, vehicles_from, .. } = self.plan;
        let nodes: usize = world.sites.iter().map(|site| site.nodes).sum();
        let fate = match &self.kill {
            Some(kill) => format!(" Halfway, {} lost its leader.", world.sites[kill.site].name),
            None => String::new(),
        };
        format!(
            "{vehicles} vehicles ({vehicles_from}) drove for {:.0} s at {} times their speed past \
             {} sites of {nodes} nodes, all in one process with real disks and sockets, and shared \
             the hazards of the zones they were in.{fate}",
            self.length.as_secs_f64(),
            clock.speed,
            world.sites.len(),
        )
    }

    fn tiles(&self, measure: &Measure) -> Vec<Tile> {
        let (all, counters) = (measure.summary(), measure.counters());
        let judged = |good: bool| if good { Tone::Good } else { Tone::Bad };
        let rate = all.count as f64 / self.length.as_secs_f64().max(1e-9);
        let Audit { kept, lost, unread } = self.audit;
        let mut tiles = vec![
            Tile::new(
                "answered",
                all.count.to_string(),
                format!("{rate:.0} a second"),
                Tone::Plain,
            ),
            Tile::new(
                "median",
                format!("{:.1} ms", all.p50_ms),
                format!("p99 {:.1} ms, links included", all.p99_ms),
                Tone::Plain,
            ),
            Tile::new(
                "errors",
                counters.errors.to_string(),
                format!("{} attempts made again", counters.retries),
                judged(counters.errors == 0),
            ),
            Tile::new(
                "lost",
                lost.to_string(),
                match unread {
                    0 => format!("of {} acknowledged reports read back", kept + lost),
                    _ => format!("of {} read back; {unread} could not be read", kept + lost),
                },
                judged(lost == 0 && unread == 0),
            ),
            Tile::new(
                "moves",
                counters.moves.to_string(),
                format!("between {} sites", self.plan.world.sites.len()),
                Tone::Plain,
            ),
        ];
        if let Some(kill) = &self.kill {
            let (value, tone) = match kill.leaderless {
                Some(leaderless) => (format!("{} ms", leaderless.as_millis()), Tone::Plain),
                None => ("for good".to_owned(), Tone::Bad),
            };
            let slowest_ms = slowest_after(kill, measure);
            let note = format!("slowest answer after it {slowest_ms:.0} ms");
            tiles.push(Tile::new("without a leader", value, note, tone));
        }
        tiles
    }

    fn notes(&self) -> Vec<String> {
        let links = &self.plan.world.links;
        let tier = |name: &str, tier: &lab::world::Tier| format!("{name} {tier}");
        vec![
            "history.jsonl holds what the vehicles asked and what came back, each report as a key of \
             its own; `portolan lab verdict history.jsonl` judges it again."
                .to_owned(),
            "Acknowledged means on disk, with fsync, at a majority of the site's nodes. Reads are \
             linearizable. A site is on its own: hazards are kept where they are reported."
                .to_owned(),
            format!(
                "Delays are one way and emulated by relays between real sockets, whose timers round \
                 up to whole milliseconds: {}; {}. A connection's first bytes take one round trip \
                 more.",
                tier("vehicle to site", &links.client_site),
                tier("node to node", &links.node_node),
            ),
            format!(
                "Each vehicle works in a closed loop with exponential think times: {} looks and {} \
                 reports a second of real time. An attempt without an answer in a second is made \
                 again at the site's next node; after ten seconds the operation counts as an error, \
                 and its fate as unknown.",
                self.plan.demo.look_hz, self.plan.demo.report_hz,
            ),
        ]
    }
}

fn print_row(out: &mut impl Write, name: &str, errors: u64, summary: &Summary) -> io::Result<()> {
    let Summary { count, p50_ms, p90_ms, p99_ms, max_ms } = summary;
    write!(out, "{name:<10}{count:>10}{errors:>8}")?;
    writeln!(out, "{p50_ms:>10.1}{p90_ms:>10.1}{p99_ms:>10.1}{max_ms:>10.1}")
}

fn slowest_after(kill: &Kill, measure: &Measure) -> f64 {
    let seconds = measure.seconds().iter().skip(kill.at.as_secs() as usize).take(AFTERMATH_S);
    seconds.map(|second| second.all.max_ms).fold(0.0, f64::max)
}

/// Says where the report is.
pub(super) fn point_at(page: &Path, mut out: impl Write) -> io::Result<()> {
    writeln!(out, "report: {}", page.display())
}
