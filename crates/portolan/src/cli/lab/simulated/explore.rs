//! `lab explore`: seed after seed, in several processes, until something is wrong.

use super::super::super::failed::Failed;
use super::super::super::show;
use super::workers::{SeedReport, WorkerEvent, Workers};
use super::{again, load, outcome, seconds, shown, verdict};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use lab::explore::{Small, Totals, Tried, shrink};
use lab::run::{Bug, Options};
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The worlds that are explored by default.
const WORLDS: [&str; 14] = [
    "three-sites",
    "one-site",
    "witness",
    "pairs",
    "leases",
    "elections",
    "global",
    "mixed",
    "failovers",
    "lending",
    "causal",
    "standbys",
    "rebuilds",
    "regions",
];
/// Runs that making a failed one small may take.
const SHRINK_RUNS_MAX: usize = 150;
/// A seed that takes longer than this hangs.
const TIMEOUT: Duration = Duration::from_secs(300);
/// How often it prints its progress, where there is no terminal.
const SAY_EVERY: Duration = Duration::from_secs(30);
/// Lines of a small run's trace that are printed.
const TRACE_LINES: usize = 30;

/// Run worlds with seed after seed until something is wrong
///
/// Every seed is a run of its own, with the world's random faults: crashes, losses of power,
/// partitions, pauses, clocks that drift, disks that are slow, full, damaged or lie, changes of the
/// membership, sites that come and go, slots that move. At the first promise that is broken it
/// stops, looks for the fewest faults with which it still happens, and prints the command that
/// replays it.
#[derive(Args)]
#[command(after_help = "Examples:
  portolan lab explore --seeds 1000
  portolan lab explore three-sites my-world.toml --for 10m --jobs 4

Exit codes: 0 nothing was found, 1 something was")]
pub(crate) struct Explore {
    /// Ready worlds, or world files [default: three-sites one-site witness pairs leases
    /// elections global mixed failovers lending causal standbys rebuilds regions]
    #[arg(value_name = "WORLD")]
    worlds: Vec<String>,

    /// How many seeds of each world [default: as many as the time allows]
    #[arg(long, value_name = "N")]
    seeds: Option<u64>,

    /// The first seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    from: u64,

    /// For how long, of real time, like 60s or 10m [default: 60s, if --seeds is not given]
    #[arg(long = "for", value_name = "TIME", value_parser = super::span)]
    length: Option<Duration>,

    /// How long clients work in each run, of virtual time [default: the world's]
    #[arg(long, value_name = "TIME", value_parser = super::span)]
    span: Option<Duration>,

    /// How many processes [default: as many as there are processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=512))]
    jobs: Option<u16>,

    /// A folder with the files that worlds name
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,

    /// A bug to put in and find; only in builds with the feature `trial`
    #[arg(long, value_name = "BUG")]
    planted: Option<String>,
}

/// The bug of this name.
pub(super) fn bug(name: Option<&str>) -> Result<Option<Bug>, Failed> {
    let Some(name) = name else { return Ok(None) };
    let names = || Bug::ALL.map(Bug::name).join(", ");
    if !lab::run::bugs_can_be_planted() {
        return Err(Failed::usage(
            "--planted: this build has no bugs to plant; build it with `--features trial`",
        ));
    }
    match Bug::ALL.into_iter().find(|bug| bug.name() == name) {
        Some(bug) => Ok(Some(bug)),
        None => Err(Failed::usage(format!("--planted: {name:?} is none of {}", names()))),
    }
}

/// Seeds that are still to be tried, distributed to the worlds in turn.
struct Seeds<'a> {
    worlds: &'a [String],
    next: u64,
    end: u64,
    until: Option<Instant>,
}

impl Iterator for Seeds<'_> {
    type Item = (String, u64);

    fn next(&mut self) -> Option<(String, u64)> {
        if self.next >= self.end || self.until.is_some_and(|until| Instant::now() >= until) {
            return None;
        }
        let count = self.worlds.len() as u64;
        let (world, seed) = (&self.worlds[(self.next % count) as usize], self.next / count);
        self.next += 1;
        Some((world.clone(), seed))
    }
}

impl Explore {
    pub(super) fn run(self) -> Result<(), Failed> {
        bug(self.planted.as_deref())?;
        let worlds: Vec<String> = match self.worlds.is_empty() {
            true => WORLDS.map(str::to_owned).into(),
            false => self.worlds.clone(),
        };
        for world in &worlds {
            load(world, self.data.as_deref())?;
        }
        let jobs = self.jobs.map_or_else(processors, usize::from);
        let mut flags = Vec::new();
        for (flag, value) in [
            ("--data", self.data.as_deref().map(shown)),
            ("--planted", self.planted.clone()),
            ("--span", self.span.map(seconds)),
        ] {
            flags.extend(value.into_iter().flat_map(|value| [flag.to_owned(), value]));
        }
        let started = Instant::now();
        let length = match (self.length, self.seeds) {
            (None, None) => Some(Duration::from_secs(60)),
            (length, _) => length,
        };
        let count = worlds.len() as u64;
        let end = self.seeds.map_or(u64::MAX, |seeds| self.from.saturating_add(seeds) * count);
        let seeds = Seeds {
            worlds: &worlds,
            next: self.from * count,
            end,
            until: length.map(|length| started + length),
        };
        let progress = progress(self.seeds.map(|seeds| seeds * count), length);
        let mut totals = Totals::default();
        let mut said_at = started;
        let mut used_s = vec![0.0; jobs];
        let found = work(Workers::start(jobs, &flags)?, seeds, |worker, report| {
            used_s[worker] = report.used_s;
            totals.add(&report.tried);
            let far = format!(
                "{:.1} h simulated, {} faults",
                totals.virtual_s / 3_600.0,
                totals.faults_done()
            );
            // Where no bar is shown, a line now and then.
            let is_well = report.tried.wrongs.is_empty();
            if is_well && progress.is_hidden() && said_at.elapsed() >= SAY_EVERY {
                said_at = Instant::now();
                // It goes on if that cannot be written.
                let _ = writeln!(
                    io::stderr(),
                    "{} seeds in {:.0} s, {far}; nothing broke so far",
                    totals.seeds,
                    started.elapsed().as_secs_f64()
                );
            }
            progress.set_message(far);
            match (self.seeds, length) {
                (None, Some(_)) => progress.set_position(started.elapsed().as_secs()),
                _ => progress.inc(1),
            }
        });
        progress.finish_and_clear();
        show::print(summary(&totals, started.elapsed(), used_s.iter().sum()))?;
        match found? {
            None => Ok(show::print(unbroken(&totals, &worlds))?),
            Some(tried) => self.show(&tried),
        }
    }

    /// Shows what was found, as small as it can be made.
    fn show(&self, tried: &Tried) -> Result<(), Failed> {
        let (name, seed) = (&tried.world, tried.seed);
        show::print(format_args!("\n{name}, seed {seed}: {}\n", tried.wrongs[0]))?;
        let world = load(name, self.data.as_deref())?;
        let options = Options {
            seed: Some(seed),
            duration: self.span,
            random_faults: true,
            bug: bug(self.planted.as_deref())?,
            ..Options::default()
        };
        std::panic::set_hook(Box::new(|_| {}));
        let small = shrink(&world, &options, SHRINK_RUNS_MAX);
        let _ = std::panic::take_hook();
        let Some(small) = small else {
            // A worker that was brought down, or another environment.
            return Err(Failed::no(Some(format!("{name}, seed {seed}: it does not fail here"))));
        };
        show::print(self.describe(name, &world, &small))?;
        Err(Failed::no(Some(format!("a promise was broken: {name}, seed {seed}"))))
    }

    fn describe(&self, name: &str, world: &lab::world::World, small: &Small) -> String {
        use std::fmt::Write as _;
        let Small { options, ran, runs } = small;
        let mut text = format!("With the fewest faults that were found in {runs} runs:\n");
        let kept = ran.faults.iter().filter(|(_, done)| *done).map(|(fault, _)| fault);
        let mut numbers = Vec::new();
        for fault in kept {
            let _ = writeln!(
                text,
                "  #{:<4} {:>9.3} s  {} at {}, {} ms",
                fault.number,
                fault.at.as_secs_f64(),
                fault.kind,
                fault.place(&world.sites),
                fault.span.as_millis()
            );
            numbers.push(fault.number.to_string());
        }
        if numbers.is_empty() {
            text.push_str("  none\n");
        }
        match &ran.failure {
            Some(why) => {
                let _ = writeln!(text, "\n{why}");
            }
            None => {
                let _ = write!(text, "\n{}", verdict::table(&ran.history, &ran.judged));
            }
        }
        let traced = lab::run::run(world, &Options { trace: true, ..options.clone() });
        let lines: Vec<&str> = traced
            .trace
            .as_deref()
            .map(|trace| outcome::around(trace, &traced))
            .unwrap_or_default();
        if !lines.is_empty() {
            let _ = writeln!(text, "\nThe end of its trace:");
            for line in lines.iter().skip(lines.len().saturating_sub(TRACE_LINES)) {
                let _ = writeln!(text, "  {line}");
            }
        }
        let only = if numbers.is_empty() { "none".to_owned() } else { numbers.join(",") };
        let flags = [
            ("--seed", Some(ran.seed.to_string())),
            ("--only", Some(only)),
            ("--for", options.duration.map(seconds)),
            ("--data", self.data.as_deref().map(shown)),
            ("--planted", self.planted.clone()),
            ("--trace", Some("trace.txt".to_owned())),
        ];
        let _ = write!(text, "\nReplay it:\n  {}", again("replay", name, &flags));
        text
    }
}

/// Deals seeds out until there are no more or one is wrong: that one.
fn work(
    mut workers: Workers,
    mut seeds: Seeds<'_>,
    mut seen: impl FnMut(usize, &SeedReport),
) -> Result<Option<Tried>, Failed> {
    let mut doing: Vec<Option<(String, u64)>> = vec![None; workers.count()];
    let mut tell = |workers: &mut Workers, doing: &mut Vec<_>, worker: usize| {
        doing[worker] = seeds.next();
        if let Some((world, seed)) = &doing[worker] {
            // A worker that has gone reports that by itself.
            let _ = workers.assign(worker, world, *seed);
        }
    };
    for worker in 0..workers.count() {
        tell(&mut workers, &mut doing, worker);
    }
    while doing.iter().any(Option::is_some) {
        let Some((worker, event)) = workers.next_event(TIMEOUT) else {
            let hangs: Vec<_> =
                doing.iter().flatten().map(|(world, seed)| format!("{world} {seed}")).collect();
            let message = format!("no answer for {TIMEOUT:?}; at work: {}", hangs.join(", "));
            return Err(Failed::no(Some(message)));
        };
        match event {
            WorkerEvent::Tried(report) => {
                seen(worker, &report);
                if !report.tried.wrongs.is_empty() {
                    return Ok(Some(report.tried));
                }
                tell(&mut workers, &mut doing, worker);
            }
            WorkerEvent::Ended(why) => {
                if let Some((world, seed)) = doing[worker].take() {
                    let message = format!("{world}, seed {seed}, brought its process down: {why}");
                    return Err(Failed::no(Some(message)));
                }
            }
        }
    }
    Ok(None)
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn progress(seeds: Option<u64>, length: Option<Duration>) -> ProgressBar {
    let total = seeds.or(length.map(|length| length.as_secs())).unwrap_or(0);
    let unit = if seeds.is_some() { "seeds" } else { "s" };
    let template = format!("{{bar:30}} {{pos}}/{{len}} {unit} · {{msg}} · {{eta}} left");
    let style =
        ProgressStyle::with_template(&template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(total).with_style(style.progress_chars("█▓░"))
}

/// What it means that nothing was found.
fn unbroken(totals: &Totals, worlds: &[String]) -> String {
    match totals.seeds {
        0 => "nothing was tried: give it more time, or --seeds".to_owned(),
        seeds => format!(
            "nothing broke: every promise holds in all {seeds} runs of {}",
            // Seeds go to the worlds in turn.
            worlds[..worlds.len().min(seeds as usize)].join(", ")
        ),
    }
}

fn summary(totals: &Totals, took: Duration, used_s: f64) -> String {
    use std::fmt::Write as _;
    let hours = totals.virtual_s / 3_600.0;
    let mut text = format!(
        "{} seeds in {:.0} s: {hours:.2} simulated hours, {} operations, {} events, {} elections, {} \
         faults",
        totals.seeds,
        took.as_secs_f64(),
        totals.operations,
        totals.events,
        totals.elections,
        totals.faults_done()
    );
    if used_s > 0.0 {
        let _ = write!(
            text,
            "\n{:.0} simulated hours an hour of processor",
            hours / (used_s / 3_600.0)
        );
    }
    if totals.ring_changes > 0 {
        let _ = write!(
            text,
            "\nthe ring changed {} times; its invariant was judged after {} of them",
            totals.ring_changes, totals.ring_judged
        );
    }
    let kinds: Vec<String> =
        totals.faults.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
    if !kinds.is_empty() {
        let _ = write!(text, "\nfaults by kind: {}", kinds.join(", "));
    }
    text
}
