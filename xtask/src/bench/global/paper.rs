//! The bars that are met or missed in virtual time: what `portolan lab paper edgekv` compares.
//!
//! They come out the same on every machine, so they are asked for once.

use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::bench::command::{Programs, run};
use crate::bench::systems;

/// A goal of the paper's experiments, as the lab states it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Goal {
    pub(super) what: String,
    pub(super) bar: String,
    pub(super) is: String,
    pub(super) met: bool,
}

/// How many other sites are asked about a slot of which nothing is known, on average.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Hops {
    pub(super) sites: f64,
    pub(super) mean: f64,
}

impl Hops {
    /// The bar.
    pub(super) fn mean_max(&self) -> f64 {
        self.sites.log2() / 2.0 + 1.0
    }
}

/// What the lab found.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Paper {
    pub(super) goals: Vec<Goal>,
    pub(super) hops: Vec<Hops>,
}

/// Runs the paper's experiments.
pub(super) fn measure(programs: &Programs, quick: bool) -> Result<Paper, String> {
    let folder = systems::folder()?;
    let mut lab = Command::new(&programs.portolan);
    lab.args(["lab", "paper", "edgekv", "--csv"]).arg(folder.path());
    if quick {
        lab.arg("--quick");
    }
    run(lab.stdout(std::process::Stdio::null()))?;
    let goal = |row: &csv::StringRecord| {
        let [what, bar, is, met] = [0, 1, 2, 3].map(|at| row.get(at).unwrap_or("").to_owned());
        Ok(Goal { what, bar, is, met: met == "met" })
    };
    let hops = |row: &csv::StringRecord| {
        let number = |at: usize| row.get(at).and_then(|text| text.parse().ok());
        let both = number(0).zip(number(4)).map(|(sites, mean)| Hops { sites, mean });
        both.ok_or_else(|| format!("hops.csv has a row {row:?}"))
    };
    Ok(Paper {
        goals: rows(&folder.path().join("goals.csv"), goal)?,
        hops: rows(&folder.path().join("hops.csv"), hops)?,
    })
}

fn rows<T>(
    path: &Path,
    read: impl Fn(&csv::StringRecord) -> Result<T, String>,
) -> Result<Vec<T>, String> {
    let shown = |e: csv::Error| format!("{}: {e}", path.display());
    let mut file = csv::Reader::from_path(path).map_err(shown)?;
    file.records().map(|row| read(&row.map_err(shown)?)).collect()
}
