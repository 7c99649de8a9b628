//! `lab paper gesto`: the evaluation of Gesto, run again on models of the stores that it compares.

mod real;

use super::super::super::super::failed::Failed;
use super::super::super::super::show::{self, Table};
use super::{Files, print_bars, print_values, run_all};
use clap::Args;
use lab::paper::gesto::experiment::{FIGURES, points};
use lab::paper::gesto::report::Outcome;
use lab::paper::gesto::result::{self, Shown};
use lab::paper::gesto::{Results, Size, goals, real as in_real_time};
use std::time::Duration;

/// Gesto (Afonso, Bravo and Rodrigues, 2020): figures 2 to 7, and metadata by number of sites
///
/// Seven sites with the delays of its Table I, and its workloads W1 and W2, on models of eventual
/// consistency, COPS, Occult, Saturn and Gesto, and on whole sites of Portolan. Time is virtual;
/// what work costs is assumed. docs/lab.md describes what is modelled and what is not.
#[derive(Args)]
#[command(after_help = "Examples:
  portolan lab paper gesto --report gesto.html        everything; some minutes
  portolan lab paper gesto --figure 5 --quick         one figure, little of it
  portolan lab paper gesto --figure 6 --real          and throughput in real time

Exit codes: 0 everything ran, 2 there is no such figure")]
pub(crate) struct Gesto {
    /// Only this figure of the paper, 2 to 7; 0 is metadata by number of sites, 1 Portolan's own
    /// causal keys
    #[arg(long, value_name = "N")]
    figure: Option<u8>,

    #[command(flatten)]
    files: Files,

    /// Measure throughput in real time too: the models' protocols on one core; two minutes. Leave
    /// the machine alone meanwhile
    #[arg(long)]
    real: bool,

    /// Short runs, few clients and sites: to see that it works
    #[arg(long)]
    quick: bool,
}

impl Gesto {
    pub(super) fn run(self) -> Result<(), Failed> {
        let figures: Vec<u8> = match self.figure {
            None => FIGURES.to_vec(),
            Some(number) if FIGURES.contains(&number) => vec![number],
            Some(number) => {
                return Err(Failed::usage(format!("--figure is 0 to 7, is {number}")));
            }
        };
        let size = if self.quick { Size::Quick } else { Size::Paper };
        let points = points(&figures, size);
        let results: Results = run_all(&points, |point| Ok(point.run()))?.into_iter().collect();
        let of_figure = |figure: &u8| result::shown(*figure, &results, size);
        let resumed = figures.contains(&goals::NUMBER).then(|| resumed(size));
        let figures: Vec<Shown> = figures.iter().map(of_figure).collect();
        let bars = goals::all(&results, size, resumed);
        let outcome = Outcome { figures: &figures, bars: &bars, results: &results, size };
        let rounds = if self.real { real::measure(size)? } else { Vec::new() };
        let mut study = outcome.study(&self.again());
        if self.real {
            study.cards.push(in_real_time::card(&rounds, size));
        }
        self.files.write(&study, &outcome.json())?;
        figures.iter().try_for_each(print_figure)?;
        if self.real {
            print_real(&rounds, size)?;
        }
        print_bars(&bars)?;
        self.files.print()
    }

    fn again(&self) -> String {
        let mut command = "portolan lab paper gesto".to_owned();
        if let Some(number) = self.figure {
            command.push_str(&format!(" --figure {number}"));
        }
        command.push_str(if self.real { " --real" } else { "" });
        command.push_str(if self.quick { " --quick" } else { "" });
        command + &self.files.again()
    }
}

/// The longest of some runs.
fn resumed(size: Size) -> Duration {
    let seeds = if size == Size::Quick { 1..=1 } else { 1..=10 };
    seeds.map(goals::resume).max().unwrap_or_default()
}

fn print_real(rounds: &[in_real_time::Round], size: Size) -> Result<(), Failed> {
    let mut table = Table::new([
        ">CLIENTS",
        "STORE",
        ">OPERATIONS/S OF A BUSY CORE",
        ">AGAINST EVENTUAL",
        ">BUSY",
    ]);
    for row in in_real_time::rows(rounds, size) {
        table.row(row);
    }
    let finding = in_real_time::finding(rounds, size);
    Ok(show::print(format_args!("THROUGHPUT IN REAL TIME\n{table}\n{finding}\n\n"))?)
}

fn print_figure(shown: &Shown) -> Result<(), Failed> {
    print_values((shown.title, shown.about), &shown.heads, &shown.rows)?;
    if shown.findings.is_empty() {
        return Ok(());
    }
    let mut table = Table::new(["COMPARED", "PUBLISHED", "HERE", "CAME OUT"]);
    for finding in &shown.findings {
        let (what, published) = (finding.what.to_owned(), finding.published.to_owned());
        table.row([what, published, finding.here.clone(), finding.sentence()]);
    }
    Ok(show::print(format_args!("{table}\n"))?)
}
