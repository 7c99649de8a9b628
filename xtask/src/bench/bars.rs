//! Bars that are met or missed in virtual time: what `portolan lab paper …` compares.

use std::ffi::OsStr;
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use super::command::{Programs, run};
use super::systems;

/// A goal, as the lab states it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Goal {
    pub(super) what: String,
    pub(super) goal: String,
    pub(super) here: String,
    pub(super) met: bool,
    pub(super) missed_by: String,
    /// It is no goal where this was measured.
    #[serde(default)]
    pub(super) is_outside: bool,
}

#[derive(Deserialize)]
struct Paper {
    bars: Vec<Goal>,
}

impl Goal {
    /// A goal of at most so much.
    pub(super) fn at_most(
        what: String,
        (value, most): (f64, f64),
        unit: &str,
        here: String,
    ) -> Self {
        let over = value - most;
        let apart = if unit == " %" { " points" } else { unit };
        Goal {
            what,
            goal: format!("≤ {most}{unit}"),
            here,
            met: over <= 0.0,
            missed_by: if over > 0.0 { format!("{over:.2}{apart}") } else { String::new() },
            is_outside: false,
        }
    }

    /// Its row of a table: the work, the bar, what was measured, and whether that is enough.
    pub(super) fn row(&self, prefix: &str) -> String {
        let met = match (self.met, self.missed_by.as_str()) {
            (true, _) if self.is_outside => "no goal here".to_owned(),
            (true, _) => "met".to_owned(),
            (false, "") => "**missed**".to_owned(),
            (false, by) => format!("**missed** by {by}"),
        };
        format!("| {prefix}{} | {} | {} | {met} |", self.what, self.goal, self.here)
    }
}

/// A goal that something else measures than a bench: the work, the bar, what came out and where
/// that is stated, and whether it is enough.
pub(super) type Elsewhere = [&'static str; 4];

/// The table of such goals.
pub(super) fn elsewhere(goals: &[Elsewhere]) -> String {
    let head = "\n## Bars that tests, the lab and the record have\n\n\
                Each with the day of its figure: a bench does not repeat them.\n\n\
                | work | bar | measured | |\n| --- | --- | --- | --- |\n";
    let rows = goals.iter().map(|row| format!("| {} |\n", row.join(" | ")));
    rows.fold(head.to_owned(), |table, row| table + &row)
}

/// Runs a paper's experiments, with more arguments.
pub(super) fn of_paper(
    programs: &Programs,
    (paper, more): (&str, &[&OsStr]),
    quick: bool,
) -> Result<Vec<Goal>, String> {
    let folder = systems::folder()?;
    let file = folder.path().join("paper.json");
    let mut lab = Command::new(&programs.portolan);
    lab.args(["lab", "paper", paper]).args(more);
    if quick {
        lab.arg("--quick");
    }
    run(lab.arg("--json").arg(&file).stdout(Stdio::null()))?;
    let text = std::fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
    let paper: Paper = serde_json::from_str(&text)
        .map_err(|e| format!("the lab's JSON is not understood: {e}"))?;
    Ok(paper.bars)
}
