//! The bars that are met or missed in virtual time: what `portolan lab paper portkey` compares.

use std::path::Path;
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use crate::bench::command::{Programs, run};
use crate::bench::systems;

/// A goal, in the lab's own words.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Goal {
    pub(super) what: String,
    pub(super) goal: String,
    pub(super) here: String,
    pub(super) met: bool,
    pub(super) missed_by: String,
}

#[derive(Deserialize)]
struct Paper {
    bars: Vec<Goal>,
}

/// Runs the paper's experiments.
pub(super) fn measure(
    programs: &Programs,
    cabs: Option<&Path>,
    quick: bool,
) -> Result<Vec<Goal>, String> {
    let folder = systems::folder()?;
    let file = folder.path().join("portkey.json");
    let mut lab = Command::new(&programs.portolan);
    lab.args(["lab", "paper", "portkey"]);
    if quick {
        lab.arg("--quick");
    }
    if let Some(cabs) = cabs {
        lab.arg("--cabs").arg(cabs);
    }
    run(lab.arg("--json").arg(&file).stdout(Stdio::null()))?;
    let text = std::fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
    let paper: Paper = serde_json::from_str(&text)
        .map_err(|e| format!("the lab's JSON is not understood: {e}"))?;
    Ok(paper.bars)
}
