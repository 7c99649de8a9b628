//! `lab paper`: the experiments of a published paper, run again.

mod gesto;
mod portkey;

use super::super::super::failed::Failed;
use super::super::super::show::{self, Table};
use super::{quoted, shown};
use clap::{Args, Subcommand};
use lab::paper::bar::Bar;
use lab::paper::edgekv::experiment::figure::Across;
use lab::paper::edgekv::experiment::{copies, real};
use lab::paper::edgekv::report::study;
use lab::paper::edgekv::result::{bars, constants, findings};
use lab::paper::edgekv::{Figure, Point, Results, Setting, Size, points};
use lab::report::study::Study;
use std::fmt::Display;
use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

/// Run a published paper's experiments again, beside what was published
#[derive(Subcommand)]
pub(crate) enum Paper {
    Edgekv(EdgeKv),
    Gesto(gesto::Gesto),
    Portkey(portkey::Portkey),
}

impl Paper {
    pub(super) fn run(self) -> Result<(), Failed> {
        match self {
            Paper::Edgekv(edgekv) => edgekv.run(),
            Paper::Gesto(gesto) => gesto.run(),
            Paper::Portkey(portkey) => portkey.run(),
        }
    }
}

/// EdgeKV (Sonbol and others, 2020): figures 5 to 13, with its way of requests and with ours
///
/// Three groups of three nodes, in an edge and in a cloud setting. Requests about global keys go
/// over gateways, as in the paper, or directly to the owner of the key, with copies of remote keys
/// or without. Time is virtual; every run is judged. docs/lab.md describes what is modelled and
/// what is not.
#[derive(Args)]
#[command(after_help = "Examples:
  portolan lab paper edgekv --report edgekv.html      everything; some minutes
  portolan lab paper edgekv --figure 5 --quick        one figure with little load
  portolan lab paper edgekv --figure 6 --real         and throughput of real nodes

Exit codes: 0 everything ran, 1 something that must not happen did, 2 there is no such figure")]
pub(crate) struct EdgeKv {
    /// Only this figure of the paper, 5 to 13
    #[arg(long, value_name = "N")]
    figure: Option<u8>,

    /// Write one page with all plots and tables
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,

    /// Write the tables as CSV and the plots as pictures into this folder
    #[arg(long, value_name = "DIR")]
    csv: Option<PathBuf>,

    /// Little load: to see that it works
    #[arg(long)]
    quick: bool,

    /// Measure throughput in real time too: real nodes in this process, through links with Table
    /// 3's delays; about a minute. Leave the machine alone meanwhile
    #[arg(long)]
    real: bool,
}

impl EdgeKv {
    fn run(self) -> Result<(), Failed> {
        let figures: Vec<Figure> = match self.figure {
            None => Figure::all().collect(),
            Some(number) => {
                let why = || Failed::usage(format!("--figure is 5 to 13, is {number}"));
                vec![Figure::new(number).ok_or_else(why)?]
            }
        };
        let size = if self.quick { Size::Quick } else { Size::Paper };
        let mut points = points(&figures, size);
        if self.real {
            points.extend(real::points(size));
            points.sort_unstable();
            points.dedup();
        }
        let results: Results = run_all(&points, Point::run)?.into_iter().collect();
        let mut study = study(&figures, &results, size, &self.again());
        let measured = if self.real { super::real::measure(size) } else { Ok(Vec::new()) };
        let measured =
            measured.map_err(|error| Failed::no(Some(format!("in real time: {error}"))))?;
        if self.real {
            study.cards.push(real::card(&measured, &results, size));
        }
        if let Some(path) = &self.report {
            std::fs::write(path, study.html()).map_err(|error| cannot_write(path, &error))?;
        }
        if let Some(folder) = &self.csv {
            study.write_pieces(folder).map_err(|error| cannot_write(folder, &error))?;
        }
        for figure in &figures {
            print_figure(*figure, &results, size)?;
        }
        if self.real {
            let mut table = Table::new([
                "REAL TIME, % GLOBAL",
                "LINKS",
                ">UPDATES/S",
                ">VIRTUAL",
                "AGAINST CLOUD",
            ]);
            for row in real::rows(&measured, &results, size) {
                table.row(row);
            }
            show::print(format_args!("{table}\n"))?;
        }
        if figures.iter().any(|figure| figure.asks_for_constants()) {
            let heads = [
                ">WORK, MS",
                "5, EDGE: HALF TO ALL",
                "11, EDGE: LAST STEP",
                "11, CLOUD: LAST STEP",
                "12, EDGE",
                "12, CLOUD",
            ];
            let mut table = Table::new(heads);
            for row in constants::rows(&results, size) {
                table.row(row);
            }
            show::print(format_args!("{table}\n"))?;
        }
        let heads = [
            "COPIES",
            ">% READS",
            ">VALUE BYTES",
            ">READ MS",
            ">REMOTE MS",
            ">UPDATES/S",
            ">BYTES/OP",
        ];
        let mut table = Table::new(heads);
        for row in copies::all(&results, size) {
            table.row(row.cells());
        }
        show::print(format_args!("{table}\n"))?;
        let mut table = Table::new(["GOAL", "SHOULD BE", "IS", ""]);
        for bar in bars::all(&results, size) {
            let met = if bar.met { "met" } else { "not met" };
            table.row([bar.what.to_owned(), bar.goal, bar.here, met.to_owned()]);
        }
        show::print(table)?;
        for path in [self.report, self.csv].iter().flatten() {
            show::print(format_args!("\nwritten: {}", path.display()))?;
        }
        Ok(())
    }

    fn again(&self) -> String {
        let mut command = "portolan lab paper edgekv".to_owned();
        if let Some(number) = self.figure {
            command.push_str(&format!(" --figure {number}"));
        }
        if self.quick {
            command.push_str(" --quick");
        }
        if self.real {
            command.push_str(" --real");
        }
        if let Some(path) = &self.report {
            command.push_str(&format!(" --report {}", quoted(&shown(path))));
        }
        command
    }
}

/// The files that an evaluation is written to.
#[derive(Args)]
struct Files {
    /// Write one page with all plots and tables
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,

    /// Write all results as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Write the tables as CSV and the plots as pictures into this folder
    #[arg(long, value_name = "DIR")]
    csv: Option<PathBuf>,
}

impl Files {
    fn write(&self, study: &Study, outcome: &serde_json::Value) -> Result<(), Failed> {
        let write = |path: &Path, text: &str| {
            std::fs::write(path, text).map_err(|error| cannot_write(path, &error))
        };
        if let Some(path) = &self.report {
            write(path, &study.html())?;
        }
        if let Some(path) = &self.json {
            write(path, &format!("{outcome:#}\n"))?;
        }
        if let Some(folder) = &self.csv {
            study.write_pieces(folder).map_err(|error| cannot_write(folder, &error))?;
        }
        Ok(())
    }

    /// What was written.
    fn print(&self) -> Result<(), Failed> {
        for path in [&self.report, &self.json, &self.csv].into_iter().flatten() {
            show::print(format_args!("\nwritten: {}", path.display()))?;
        }
        Ok(())
    }

    /// The flags that write the page and the results again.
    fn again(&self) -> String {
        let flags = [("report", &self.report), ("json", &self.json)];
        let flag = |(flag, path): (&str, &Option<PathBuf>)| {
            path.as_ref().map(|path| format!(" --{flag} {}", quoted(&shown(path))))
        };
        flags.into_iter().filter_map(flag).collect()
    }
}

fn cannot_write(path: &Path, error: &std::io::Error) -> Failed {
    Failed::cannot_serve(format!("cannot write {}: {error}", path.display()))
}

/// Goals as a table.
fn print_bars(bars: &[Bar]) -> Result<(), Failed> {
    if bars.is_empty() {
        return Ok(());
    }
    let mut table = Table::new(["GOAL", "SHOULD BE", "IS", ""]);
    for bar in bars {
        table.row([bar.what.clone(), bar.goal.clone(), bar.here.clone(), bar.verdict()]);
    }
    Ok(show::print(table)?)
}

/// The values of a figure as a table, below its title and how to read it.
fn print_values(
    (title, about): (&str, &str),
    heads: &[String],
    rows: &[(String, Vec<String>)],
) -> Result<(), Failed> {
    let columns = heads.iter().map(|head| format!(">{}", head.to_uppercase()));
    let heads = std::iter::once(String::new()).chain(columns).collect();
    let row = |(name, cells): &(String, Vec<String>)| {
        std::iter::once(name).chain(cells).cloned().collect::<Vec<_>>()
    };
    let values = Table::of(heads, rows.iter().map(row).collect());
    Ok(show::print(format_args!("{title}\n{about}\n{values}\n"))?)
}

/// Runs all points, as many at a time as there are processors, and shows the progress. Points
/// are independent, so the results do not depend on that.
fn run_all<Point: Copy + Display + Send + Sync, Measured: Send>(
    points: &[Point],
    run: impl Fn(&Point) -> Result<Measured, String> + Sync,
) -> Result<Vec<(Point, Measured)>, Failed> {
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let outcomes: Mutex<Vec<(Point, Result<Measured, String>)>> = Mutex::default();
    let workers = thread::available_parallelism().map_or(1, usize::from).min(points.len());
    let began = Instant::now();
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(point) = points.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let outcome = run(point);
                    let failed = outcome.is_err();
                    show_progress(
                        done.fetch_add(1, Ordering::Relaxed) + 1,
                        points.len(),
                        began,
                        point,
                    );
                    if let Ok(mut outcomes) = outcomes.lock() {
                        outcomes.push((*point, outcome));
                    }
                    if failed {
                        next.store(points.len(), Ordering::Relaxed);
                    }
                }
            });
        }
    });
    if std::io::stderr().is_terminal() {
        let _ = write!(std::io::stderr(), "\r\x1b[K");
    }
    let outcomes = outcomes.into_inner().unwrap_or_default();
    let results = outcomes.into_iter().map(|(point, outcome)| Ok((point, outcome?)));
    results.collect::<Result<Vec<(Point, Measured)>, String>>().map_err(|why| Failed::no(Some(why)))
}

/// One line that is written over again on a terminal, and one a point elsewhere.
fn show_progress(done: usize, all: usize, began: Instant, point: &impl Display) {
    let seconds = began.elapsed().as_secs();
    let mut out = std::io::stderr().lock();
    // If it cannot be printed the run goes on all the same.
    let _ = match out.is_terminal() {
        true => write!(out, "\r\x1b[K{done} of {all}, {seconds} s: {point}"),
        false => writeln!(out, "{done} of {all}, {seconds} s: {point}"),
    };
    let _ = out.flush();
}

fn print_figure(figure: Figure, results: &Results, size: Size) -> Result<(), Failed> {
    let lines = Setting::ALL.map(|setting| figure.line(setting, results, size));
    let mut table = Table::new(["", ">EDGE", ">CLOUD", ">OURS", ">CACHED", ">STALE"]);
    for place in figure.places(size) {
        let values = lines.each_ref().map(|line| {
            let found = line.iter().find(|(there, _)| *there == place);
            found.map_or_else(|| "–".to_owned(), |(_, value)| format!("{value:.1}"))
        });
        let [edge, cloud, ours, cached, stale] = values;
        table.row([figure.place_words(place), edge, cloud, ours, cached, stale]);
    }
    show::print(format_args!("{}, {}\n{table}\n", figure.title(), figure.unit()))?;
    if figure.across() == Across::Rate {
        print_rates(figure, results, size)?;
    }
    let mut table = Table::new(["COMPARED", "PUBLISHED", "HERE", "CAME OUT", "OURS INSTEAD"]);
    for finding in findings::of(figure, results, size) {
        let (what, published) = (finding.what.to_owned(), finding.published.to_owned());
        let came_out = finding.came_out.words().to_owned();
        table.row([what, published, finding.here, came_out, finding.ours]);
    }
    Ok(show::print(format_args!("{table}\n"))?)
}

/// Operations a second that machines came to, beside what they were asked for.
fn print_rates(figure: Figure, results: &Results, size: Size) -> Result<(), Failed> {
    let mut table = Table::new(["REACHED", ">EDGE", ">CLOUD", ">OURS", ">CACHED", ">STALE"]);
    for place in figure.places(size) {
        let [edge, cloud, ours, cached, stale] = Setting::ALL.map(|setting| {
            let measured = results.get(&figure.point(setting, place, size));
            measured.map_or_else(|| "–".to_owned(), |measured| format!("{:.0}", measured.rate_hz))
        });
        table.row([figure.place_words(place), edge, cloud, ours, cached, stale]);
    }
    Ok(show::print(format_args!("{table}\n"))?)
}
