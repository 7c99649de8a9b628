//! `lab paper portkey`: the evaluation of Portkey, run again with ours among its strategies.

use super::super::super::super::failed::Failed;
use super::super::super::super::show::{self, Table};
use super::super::{quoted, shown};
use super::{Files, print_bars, print_values, run_all};
use clap::Args;
use lab::mobility::{Track, trace};
use lab::paper::portkey::experiment::scaling::{self, Case, Timed};
use lab::paper::portkey::experiment::{FIGURES, points};
use lab::paper::portkey::report::Outcome;
use lab::paper::portkey::result::bars::{self, Others};
use lab::paper::portkey::result::{self, Beside, Shown};
use lab::paper::portkey::{Results, Size};
use std::hint::black_box;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

/// Portkey (Noor, Srivastava and Netravali, 2021): figures 4 and 8 to 14, and what was set as a
/// goal
///
/// 25 sites, 32 clients that move, six workloads; hash placement, the paper's heuristics, its
/// greedy solver, ours, and optima that know the future, all on the same accesses. Time is virtual,
/// but for figure 12. docs/lab.md describes what is modelled and what is not.
#[derive(Args)]
#[command(after_help = "Examples:
  portolan lab paper portkey --report portkey.html        everything; some minutes
  portolan lab paper portkey --figure 8 --quick           one figure, little of it
  portolan lab paper portkey --cabs cabs.csv.gz           and recorded clients (CSV: cab,t_s,lat,lon)

Exit codes: 0 everything ran, whether goals were met or not, 2 there is no such figure")]
pub(crate) struct Portkey {
    /// Only this figure of the paper: 4 or 8 to 14
    #[arg(long, value_name = "N")]
    figure: Option<u8>,

    /// Recorded clients for the goal that needs them; left out where the file is absent
    #[arg(long, value_name = "FILE")]
    cabs: Option<PathBuf>,

    #[command(flatten)]
    files: Files,

    /// Short runs, one seed: to see that it works
    #[arg(long)]
    quick: bool,

    /// Figure 12 with up to a million keys and 4,096 servers. Leave the machine alone meanwhile
    #[arg(long)]
    large: bool,
}

impl Portkey {
    pub(super) fn run(self) -> Result<(), Failed> {
        let figures: Vec<u8> = match self.figure {
            None => FIGURES.to_vec(),
            Some(number) if FIGURES.contains(&number) => vec![number],
            Some(number) => {
                return Err(Failed::usage(format!("--figure is 4 or 8 to 14, is {number}")));
            }
        };
        let size = if self.quick { Size::Quick } else { Size::Paper };
        let cabs = self.load_cabs()?;
        let points = points(&figures, size, !cabs.is_empty());
        let results: Results =
            run_all(&points, |point| Ok(point.run(&cabs)))?.into_iter().collect();
        let timed = if figures.contains(&12) { time(self.large) } else { Vec::new() };
        let others = if self.figure.is_none() { Others::run(size) } else { Others::default() };
        let beside = Beside { timed, is_release: !cfg!(debug_assertions) };
        let of_figure = |figure: &u8| result::shown(*figure, &results, size, &beside);
        let figures: Vec<Shown> = figures.iter().map(of_figure).collect();
        let bars = bars::all(&results, &others, size);
        let outcome =
            Outcome { figures: &figures, bars: &bars, results: &results, others: &others, size };
        let study = outcome.study(&self.again());
        self.files.write(&study, &outcome.json())?;
        figures.iter().try_for_each(print_figure)?;
        print_bars(&bars)?;
        self.files.print()
    }

    fn load_cabs(&self) -> Result<Arc<[Track]>, Failed> {
        let Some(path) = &self.cabs else { return Ok(Arc::default()) };
        if !path.exists() {
            show::print(format_args!(
                "{} is absent: recorded cabs are left out\n",
                path.display()
            ))?;
            return Ok(Arc::default());
        }
        let tracks = trace::load(path);
        tracks.map(Arc::from).map_err(|error| Failed::usage(format!("{}: {error}", path.display())))
    }

    fn again(&self) -> String {
        let mut command = "portolan lab paper portkey".to_owned();
        if let Some(number) = self.figure {
            command.push_str(&format!(" --figure {number}"));
        }
        for (is_set, flag) in [(self.quick, " --quick"), (self.large, " --large")] {
            command.push_str(if is_set { flag } else { "" });
        }
        if let Some(path) = &self.cabs {
            command.push_str(&format!(" --cabs {}", quoted(&shown(path))));
        }
        command + &self.files.again()
    }
}

/// Figure 12: the least of three times each.
fn time(is_large: bool) -> Vec<Timed> {
    let least = |of: &dyn Fn() -> f64| {
        let once = |_| {
            let began = Instant::now();
            black_box(of());
            began.elapsed().as_secs_f64()
        };
        (0..3).map(once).fold(f64::INFINITY, f64::min)
    };
    let one = |by_servers: bool, count: usize| {
        let (servers, keys) =
            if by_servers { (count, scaling::FIXED) } else { (scaling::FIXED, count) };
        let case = Case::new(servers, keys);
        let (exact_s, heuristic_s) = (least(&|| case.exact()), least(&|| case.heuristic()));
        Timed { by_servers, count, exact_s, heuristic_s }
    };
    let panel = |by_servers| {
        scaling::sizes(by_servers, is_large).iter().map(move |count| (by_servers, *count))
    };
    panel(true).chain(panel(false)).map(|(by_servers, count)| one(by_servers, count)).collect()
}

fn print_figure(shown: &Shown) -> Result<(), Failed> {
    print_values((shown.title, shown.about), &shown.heads, &shown.rows)?;
    let mut table = Table::new(["COMPARED", "PUBLISHED", "HERE", "OURS", "CAME OUT"]);
    for finding in &shown.findings {
        let sentence = finding.sentence();
        let (what, published) = (finding.what.clone(), finding.published.clone());
        table.row([what, published, finding.here.clone(), finding.ours.clone(), sentence]);
    }
    Ok(show::print(format_args!("{table}\n"))?)
}
