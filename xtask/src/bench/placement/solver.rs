//! How long the solver takes: what `measure_placement`, an example of `protocol`, prints.

use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::bench::bars::Goal;
use crate::bench::command::output_of;

/// What is printed before the time of a row, and within how many seconds it is to be.
const TIMES: [(&str, f64); 3] = [
    ("1 M groups, 4 origins each: exact over 1,024 sites", 0.7),
    ("10 M groups: fallback, utility, sort", 0.8),
    ("10 M groups: pruned, k = 4", 2.0),
];
const MEMORY: (&str, f64) = ("10 M groups:", 64.0);
const EXCESS: &str = "  estimated:";
/// Times and the memory.
const GOALS: usize = TIMES.len() + 1;
const ROWS: [&str; 3] = ["exact", "fallback", "prune10m"];

/// What it printed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Solved {
    text: String,
}

/// Builds it as packages are built, and runs it.
pub(super) fn measure() -> Result<Solved, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    let example = ["run", "--quiet", "--profile", "dist", "-p", "protocol", "--example"];
    command.args(example).arg("measure_placement").arg("--target-dir");
    command.arg(field::binary::target()).arg("--").args(ROWS);
    field::binary::forget_package(&mut command);
    let text = output_of(command.current_dir(field::binary::root()))?;
    let solved = Solved { text };
    match solved.goals().len() {
        GOALS => Ok(solved),
        some => Err(format!(
            "measure_placement printed {some} of {GOALS} rows that have goals:\n{}",
            solved.text
        )),
    }
}

impl Solved {
    /// The goals, with what came out.
    pub(super) fn goals(&self) -> Vec<Goal> {
        let after = |name: &str| self.text.lines().find_map(|line| line.strip_prefix(name));
        let number = |text: &str, at: usize| -> Option<f64> {
            text.split_whitespace().nth(at)?.trim_end_matches(')').parse().ok()
        };
        let mut goals = Vec::new();
        for (name, most_s) in TIMES {
            let Some((median_s, least_s)) =
                after(name).and_then(|rest| Some((number(rest, 0)?, number(rest, 3)?)))
            else {
                continue;
            };
            // Without the processor's account nothing was measured.
            if median_s == 0.0 {
                continue;
            }
            let mut here = format!("{median_s:.2} (least {least_s:.2}) s");
            let excess = after(EXCESS).filter(|_| name.contains("pruned"));
            if let Some(percent) = excess.and_then(|rest| number(rest, 0)) {
                here.push_str(&format!(", by an estimate {percent:.1} % above the optimum"));
            }
            goals.push(Goal::at_most(name.to_owned(), (median_s, most_s), " s", here));
        }
        if let Some(bytes) = after(MEMORY.0).and_then(|rest| number(rest, 0)) {
            let what = "memory of a group, with the answers and the sort".to_owned();
            goals.push(Goal::at_most(what, (bytes, MEMORY.1), " B", format!("{bytes:.1} B")));
        }
        goals
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_example_prints_is_understood() {
        let text = "\
lists of the 8 nearest of 1,024 sites                       0.020 s  (least 0.019)
1 M groups, 4 origins each: exact over 1,024 sites          0.434 s  (least 0.421)
10 M groups: 64.0 bytes a group with the answers and the sort
10 M groups: fallback                                       0.500 s  (least 0.490)
10 M groups: fallback, utility, sort                        0.962 s  (least 0.861)
10 M groups: pruned, k = 4                                  1.920 s  (least 1.860)
  estimated: 1.703 % above the optimum
";
        let goals = Solved { text: text.to_owned() }.goals();
        let here: Vec<_> = goals.iter().map(|goal| (&*goal.here, goal.met)).collect();
        let pruned = "1.92 (least 1.86) s, by an estimate 1.7 % above the optimum";
        assert_eq!(
            here,
            [
                ("0.43 (least 0.42) s", true),
                ("0.96 (least 0.86) s", false),
                (pruned, true),
                ("64.0 B", true)
            ]
        );
        assert_eq!(goals[1].missed_by, "0.16 s");
    }
}
