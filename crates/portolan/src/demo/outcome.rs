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
    comparison, hazards,
    plan::Plan,
    recorder::Command,
    records::{Finding, Found, Kind, Record},
    resp::Connection,
    scene::{STALL, Seen},
    story::{Kill, Story},
    trips,
    vehicle::Shared,
};

/// How long one read of the audit may take at one node.
const AUDIT_TIMEOUT: Duration = Duration::from_secs(5);
/// Seconds after the kill in which its effect is looked for.
const AFTERMATH_S: usize = 10;

/// What was acknowledged, read back: reports that were not cleared, vehicles' own records, and
/// their trips.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Audit {
    /// Reports.
    pub(super) reports: Count,
    /// Records.
    pub(super) records: Count,
    /// Trips, each at every site.
    pub(super) trips: Count,
}

/// Things read back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Count {
    /// Found.
    pub(super) kept: usize,
    /// Not found, at a site that answered.
    pub(super) lost: usize,
    /// At a site that did not answer.
    pub(super) unread: usize,
}

impl Count {
    /// Those that were read.
    fn read(self) -> usize {
        self.kept + self.lost
    }
}

impl Audit {
    /// All that is lost.
    pub(super) fn lost(self) -> usize {
        self.reports.lost + self.records.lost + self.trips.lost
    }

    fn unread(self) -> usize {
        self.reports.unread + self.records.unread + self.trips.unread
    }
}

/// Reads back everything that must still be there, beside what was read back before.
pub(super) async fn audit(shared: &Shared, before: Audit) -> Audit {
    let Audit { reports, .. } = read_back_reports(shared, None).await;
    let reports = Count {
        kept: before.reports.kept + reports.kept,
        lost: before.reports.lost + reports.lost,
        unread: before.reports.unread + reports.unread,
    };
    let (records, trips) = (read_back_records(shared).await, read_back_trips(shared).await);
    Audit { reports, records, trips }
}

/// Reads back reports: of all sites, or of one.
pub(super) async fn read_back_reports(shared: &Shared, only: Option<usize>) -> Audit {
    let promised = shared.scene.lock().ledger.promised();
    let mut reports = Count::default();
    for ((site, key), fields) in promised {
        if only.is_some_and(|only| only != site) {
            continue;
        }
        let Some(reply) = read(shared, site, &["HGETALL", &key]).await else {
            reports.unread += fields.len();
            continue;
        };
        let listed = hazards::listed(&reply);
        let kept = fields.iter().filter(|field| listed.iter().any(|(name, _)| name == *field));
        let kept = kept.count();
        reports.kept += kept;
        reports.lost += fields.len() - kept;
    }
    Audit { reports, ..Audit::default() }
}

/// Reads back every vehicle's own records, each at another of the sites that serve.
async fn read_back_records(shared: &Shared) -> Count {
    let (sites, mut records) = (shared.roster.open_sites(), Count::default());
    let vehicles = shared.scene.lock().records.vehicles();
    let each = |vehicle| Kind::BOTH.map(|kind| Record { vehicle, kind });
    for record in (0..vehicles).flat_map(each) {
        if !shared.scene.lock().records.has_written(record) {
            continue;
        }
        let site = sites[record.vehicle % sites.len().max(1)];
        let reply = read(shared, site, &["GET", &record.key()]).await;
        let finding = reply.map(|reply| shared.scene.lock().records.judge(record, &reply));
        match finding {
            None => records.unread += 1,
            Some(Finding::Wrong) => records.lost += 1,
            Some(Finding::Right | Finding::Late) => records.kept += 1,
        }
    }
    records
}

/// Reads back every vehicle's trip in its session, at each site that serves.
async fn read_back_trips(shared: &Shared) -> Count {
    let mut trips = Count::default();
    let vehicles = shared.scene.lock().trips.vehicles();
    for (site, vehicle) in shared
        .roster
        .open_sites()
        .into_iter()
        .flat_map(|site| (0..vehicles).map(move |one| (site, one)))
    {
        let token = shared.scene.lock().trips.token(vehicle);
        let Some(token) = token else { continue };
        let reply = read_in_session(shared, site, &token, &trips::key(vehicle)).await;
        match reply.map(|reply| shared.scene.lock().trips.is_kept(vehicle, &reply)) {
            None => trips.unread += 1,
            Some(Some(true)) => trips.kept += 1,
            Some(Some(false)) => trips.lost += 1,
            Some(None) => {}
        }
    }
    trips
}

/// Has a session admitted at one of a site's nodes, and reads a key there.
async fn read_in_session(shared: &Shared, site: usize, token: &str, key: &str) -> Option<Reply> {
    for addr in shared.roster.addresses(site) {
        let ask = async {
            let connection = Connection::open(addr).await?;
            connection.call_all([&["PORTOLAN.ATTACH", token], &["GET", key]]).await
        };
        if let Ok(Ok((_, [Reply::Simple(_), reply]))) = timeout(AUDIT_TIMEOUT, ask).await {
            return Some(reply);
        }
    }
    None
}

/// Asks a site's nodes in turn until one answers.
async fn read(shared: &Shared, site: usize, words: &[&str]) -> Option<Reply> {
    let command = Command { vehicle: None, site, words };
    for addr in shared.roster.addresses(site) {
        let asked = shared.scene.lock().recorder.asked(command, shared.scene.elapsed());
        let ask = async { Connection::open(addr).await?.call(words).await };
        if let Ok(Ok((_, reply))) = timeout(AUDIT_TIMEOUT, ask).await
            && !matches!(reply, Reply::Error(_))
        {
            if let Some(asked) = asked {
                let at = shared.scene.elapsed();
                shared.scene.lock().recorder.answered(asked, command, &reply, at);
            }
            return Some(reply);
        }
    }
    None
}

/// The results of a run.
#[derive(Debug)]
pub(super) struct Outcome<'a> {
    /// What was to be played.
    pub(super) plan: &'a Plan,
    /// What was seen.
    pub(super) shared: &'a Shared,
    /// How long it was played.
    pub(super) length: Duration,
    /// What happened to the city.
    pub(super) story: Story,
    /// What was read back.
    pub(super) audit: Audit,
    /// What was asked and answered.
    pub(super) history: &'a History,
    /// The verdicts on it.
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
        write!(out, "{:<14}{:>10}{:>8}", "operation", "answered", "errors")?;
        writeln!(out, "{:>10}{:>10}{:>10}{:>10}", "p50 ms", "p90 ms", "p99 ms", "max ms")?;
        for operation in measure.operations() {
            print_row(&mut out, operation.name, operation.errors, &operation.summary())?;
        }
        let counters = measure.counters();
        print_row(&mut out, "all", counters.errors, &measure.summary())?;
        let head = ["records, so far", "p50 ms", "p99 ms", "at own site"];
        writeln!(out, "\n{:<20}{:>10}{:>10}{:>13}", head[0], head[1], head[2], head[3])?;
        let sides = seen.comparison.sides();
        for (name, side) in comparison::NAMES.iter().zip(&sides) {
            let [p50, p99, part] = side.cells();
            writeln!(out, "{name:<20}{p50:>10}{p99:>10}{part:>13}")?;
        }
        writeln!(out, "{} of waiting for them", seen.loans.moved().text())?;
        writeln!(out, "{}", comparison::headline(&sides))?;
        writeln!(out, "\n{:<20}{:>10}{:>8}{:>8}", "site", "answered", "slots", "lends")?;
        let sites = self.plan.world.sites.iter().zip(&seen.sites).zip(&self.story.slots);
        for (index, ((site, answered), slots)) in sites.enumerate() {
            let fate = self.story.fate(index).unwrap_or_default();
            let lent = seen.loans.lent(index);
            let name = site.name.as_str();
            let line = format!("{name:<20}{answered:>10}{slots:>8}{lent:>8}  {fate}");
            writeln!(out, "{}", line.trim_end())?;
        }
        writeln!(
            out,
            "\nmoves {}, elections {}, attempts made again {}, answers later than {} ms: {}",
            counters.moves,
            counters.elections,
            counters.retries,
            STALL.as_millis(),
            counters.stalls
        )?;
        if let Some(kill) = &self.story.kill {
            writeln!(out, "{}", self.aftermath(kill, measure))?;
        }
        for line in self.story.lines(&self.plan.world) {
            writeln!(out, "{line}")?;
        }
        if !seen.failures.is_empty() {
            writeln!(out, "attempts that failed, by their errors:")?;
        }
        for (why, count) in &seen.failures {
            writeln!(out, "  {count} × {why}")?;
        }
        let Found { after_moving, late, wrong } = seen.records.found();
        writeln!(
            out,
            "{after_moving} times a vehicle read an own record after moving: {wrong} wrong"
        )?;
        if late > 0 {
            writeln!(out, "{late} times a write that had got no answer was seen later")?;
        }
        let found = seen.trips.found();
        let [waits, anomalies] = found.text(&seen.attach_waits());
        writeln!(out, "{waits}{} reads, {anomalies}", found.reads)?;
        if found.late > 0 {
            writeln!(out, "{} times a trip showed a write that had got no answer", found.late)?;
        }
        if found.lost > 0 {
            writeln!(out, "{} sessions of trips began anew, as a site was lost", found.lost)?;
        }
        let Audit { reports, records, trips } = self.audit;
        for (name, count) in [("reports", reports), ("own records", records), ("trips", trips)] {
            let lost = count.lost;
            writeln!(out, "{} acknowledged {name} read back: {lost} lost", count.read())?;
        }
        if self.audit.unread() > 0 {
            let unread = self.audit.unread();
            writeln!(out, "{unread} more could not be read back: no site answers for them")?;
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
        let summary = self.summary();
        let mut seen = self.shared.scene.lock();
        let course = seen.comparison.course(self.length);
        let mut measure = seen.measure.clone();
        measure.advance(self.length);
        let world = &self.plan.world;
        let sites = world.sites.iter().zip(&seen.sites).enumerate();
        let sites = sites.map(|(index, (site, operations))| MapSite {
            name: match self.story.fate(index) {
                Some(fate) => format!("{} ({fate})", site.name),
                None => site.name.to_string(),
            },
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
        let slots = world.sites.iter().zip(&self.story.slots);
        let slots = slots.map(|(site, slots)| format!("{} {slots}", site.name));
        let slots = slots.collect::<Vec<_>>().join(", ");
        notes.push(format!("Slots of global keys that each site held in the end: {slots}."));
        if !seen.failures.is_empty() {
            let failures = seen.failures.iter().map(|(why, count)| format!("{why} ({count})"));
            let failures = failures.collect::<Vec<_>>().join(", ");
            notes.push(format!("Errors of failed attempts: {failures}."));
        }
        Report {
            tiles: self.tiles(&measure, &seen),
            verdicts: self.verdicts(),
            over_time: vec![course.over_time()],
            map: Some(map),
            notes,
            ..Report::new(world.title.clone(), summary, measure)
        }
    }

    /// The verdicts, for people.
    fn verdicts(&self) -> Vec<report::Verdict> {
        let keys: BTreeSet<&str> = self.history.operations.iter().map(|o| o.key.as_str()).collect();
        let operations = self.history.operations.len();
        let everything = format!("{operations} operations on {} reports and records", keys.len());
        let said = |judged: &Judged| {
            let (verdict, tone, examined, violation) = match &judged.verdict {
                Verdict::Holds { examined } if judged.promise == Promise::Durable => (
                    "holds",
                    Tone::Good,
                    format!("{examined} reports and records that were read"),
                    None,
                ),
                Verdict::Holds { .. } => ("holds", Tone::Good, everything.clone(), None),
                Verdict::Undecided { why } => {
                    ("undecided", Tone::Plain, everything.clone(), Some(why.clone()))
                }
                Verdict::Broken(violation) => {
                    let text = violation.describe(self.history);
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
        let name = |site: usize| &world.sites[site].name;
        let Story { arrival, kill, departure, .. } = &self.story;
        let fates: Vec<String> = [
            arrival.as_ref().map(|arrival| format!("{} joined", name(arrival.site))),
            kill.as_ref().map(|kill| format!("{} lost its leader", name(kill.site))),
            departure.as_ref().map(|departure| format!("{} left", name(departure.site))),
        ]
        .into_iter()
        .flatten()
        .collect();
        let compared = comparison::headline(&self.shared.scene.lock().comparison.sides());
        let fates = match fates.as_slice() {
            [] => String::new(),
            fates => format!(" Meanwhile {}.", fates.join(", ")),
        };
        format!(
            "{vehicles} vehicles ({vehicles_from}) drove for {:.0} s at {} times their speed past \
             {} sites of {nodes} nodes, one deployment in one process with real disks and sockets. \
             They shared the hazards of the zones they were in, and each found its own records \
             wherever it went. {compared}.{fates}",
            self.length.as_secs_f64(),
            clock.speed,
            world.sites.len(),
        )
    }

    fn tiles(&self, measure: &Measure, seen: &Seen) -> Vec<Tile> {
        let (found, sides) = (seen.records.found(), seen.comparison.sides());
        let (all, counters) = (measure.summary(), measure.counters());
        let judged = |good: bool| if good { Tone::Good } else { Tone::Bad };
        let rate = all.count as f64 / self.length.as_secs_f64().max(1e-9);
        let (lost, unread) = (self.audit.lost(), self.audit.unread());
        let Audit { reports, records, trips } = self.audit;
        let read = reports.read() + records.read() + trips.read();
        let mut tiles = comparison::tiles(&sides);
        tiles.extend([
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
                    0 => format!("of {read} acknowledged writes read back"),
                    _ => format!("of {read} read back; {unread} could not be read"),
                },
                judged(lost == 0 && unread == 0),
            ),
            Tile::new(
                "moves",
                counters.moves.to_string(),
                format!("between {} sites", self.plan.world.sites.len()),
                Tone::Plain,
            ),
        ]);
        tiles.push(Tile::new(
            "own records wrong",
            found.wrong.to_string(),
            format!("of {} read after moving", found.after_moving),
            judged(found.wrong == 0),
        ));
        tiles.push(trips_tile(seen));
        if let Some(kill) = &self.story.kill {
            let (value, tone) = match kill.leaderless {
                Some(leaderless) => (format!("{} ms", leaderless.as_millis()), Tone::Plain),
                None => ("for good".to_owned(), Tone::Bad),
            };
            let slowest_ms = slowest_after(kill, measure);
            let note = format!("slowest answer after it {slowest_ms:.0} ms");
            tiles.push(Tile::new("without a leader", value, note, tone));
        }
        let Story { arrival, departure, .. } = &self.story;
        let arrived = arrival.as_ref().map(|one| ("joined", one.site, one.done));
        let departed = departure.as_ref().map(|one| ("left", one.site, one.done));
        for (what, site, done) in [arrived, departed].into_iter().flatten() {
            let label = format!("{} {what} in", self.plan.world.sites[site].name);
            tiles.push(match done {
                Some(done) => {
                    let value = format!("{:.1} s", done.took.as_secs_f64());
                    let note = format!("with {} slots; {}", done.slots, done.meanwhile());
                    Tile::new(&label, value, note, judged(done.errors == 0))
                }
                None => Tile::new(&label, "–".to_owned(), "not finished".to_owned(), Tone::Bad),
            });
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
             linearizable. Hazards are kept where they are reported, a site's own business; a \
             vehicle's own records are global keys, served by one site and answered by all."
                .to_owned(),
            "car-save and car-read are writes and reads of a record in a keyspace with placement = \
             adaptive, which follows its users; fixed-save and fixed-read are of one of the same size \
             and use that is placed by the hash of its key. At the own site: the site that a vehicle \
             asked served the record, and asked no other one."
                .to_owned(),
            "trip-save and trip-read are writes and reads of causal keys, which every site holds, in the vehicle's session; \
             trip-attach is how long a site that it comes to has its session wait. An anomaly is a read that is older than \
             what its session has seen or written, or than the cause of that. These are judged as they come, and are \
             not in the history."
                .to_owned(),
            format!(
                "Delays are one way and emulated by relays between real sockets, whose timers round \
                 up to whole milliseconds: {}; {}; {}. A connection's first bytes take one round \
                 trip more.",
                tier("vehicle to site", &links.client_site),
                tier("site to site", &links.site_site),
                tier("node to node", &links.node_node),
            ),
            format!(
                "Each vehicle works in a closed loop with exponential think times: {} looks, {} \
                 reports and {} uses of records a second of real time. An attempt without an answer in a second is made \
                 again at the site's next node; after ten seconds the operation counts as an error, \
                 and its fate as unknown.",
                self.plan.demo.look_hz, self.plan.demo.report_hz, self.plan.demo.record_hz,
            ),
        ]
    }
}

/// What was found in trips.
fn trips_tile(seen: &Seen) -> Tile {
    let (found, attach) = (seen.trips.found(), seen.attach_waits());
    let (p50_ms, p99_ms) = (attach.p50_ms, attach.p99_ms);
    let note = format!("of {} reads; attach p50 {p50_ms:.0}, p99 {p99_ms:.0} ms", found.reads);
    let tone = if found.anomalies == 0 { Tone::Good } else { Tone::Bad };
    Tile::new("anomalies in trips", found.anomalies.to_string(), note, tone)
}

fn print_row(out: &mut impl Write, name: &str, errors: u64, summary: &Summary) -> io::Result<()> {
    let Summary { count, p50_ms, p90_ms, p99_ms, max_ms } = summary;
    write!(out, "{name:<14}{count:>10}{errors:>8}")?;
    writeln!(out, "{p50_ms:>10.1}{p90_ms:>10.1}{p99_ms:>10.1}{max_ms:>10.1}")
}

fn slowest_after(kill: &Kill, measure: &Measure) -> f64 {
    let seconds = measure.seconds().iter().skip(kill.at.as_secs() as usize).take(AFTERMATH_S);
    seconds.map(|second| second.all.max_ms).fold(0.0, f64::max)
}

/// Prints where the report is.
pub(super) fn point_at(page: &Path, mut out: impl Write) -> io::Result<()> {
    writeln!(out, "report: {}", page.display())
}
