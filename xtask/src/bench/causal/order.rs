//! How fast the root orders: what `measure_order`, an example of `protocol`, prints.

use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::bench::bars::Goal;
use crate::bench::command::output_of;
use crate::bench::statistics::grouped;

/// The bar, in updates a second on one core.
const LEAST_PER_S: f64 = 200_000.0;
/// Runs of it.
const RUNS: usize = 3;

/// What came of one run with one state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Ordered {
    state: String,
    per_s: f64,
}

/// Builds it as packages are built, and runs it.
pub(super) fn measure() -> Result<Vec<Ordered>, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let folder = crate::bench::systems::folder()?;
    let mut all = Vec::new();
    for _ in 0..RUNS {
        let mut command = Command::new(&cargo);
        let example = ["run", "--quiet", "--profile", "dist", "-p", "protocol", "--example"];
        command.args(example).arg("measure_order").arg("--target-dir");
        command.arg(field::binary::target()).arg("--").arg(folder.path());
        field::binary::forget_package(&mut command);
        let text = output_of(command.current_dir(field::binary::root()))?;
        let ordered = parse(&text);
        if ordered.len() != 2 {
            return Err(format!("measure_order printed something else than two rows:\n{text}"));
        }
        all.extend(ordered);
    }
    Ok(all)
}

fn parse(text: &str) -> Vec<Ordered> {
    let row = |line: &str| {
        let (state, rest) = line.split_once(": ")?;
        let (before, _) = rest.split_once(" a second")?;
        let per_s = before.rsplit(' ').next()?.parse().ok()?;
        Some(Ordered { state: state.trim().to_owned(), per_s })
    };
    text.lines().filter_map(row).collect()
}

/// The goal of each state, with what came out.
pub(super) fn goals(all: &[Ordered]) -> impl Iterator<Item = Goal> + '_ {
    [("memory", "in memory"), ("fjall", "on disk")].into_iter().filter_map(|(state, shown)| {
        let runs = all.iter().filter(|one| one.state == state).map(|one| one.per_s);
        let per_s = crate::bench::statistics::Spread::of(runs)?;
        let missing = LEAST_PER_S - per_s.median;
        Some(Goal {
            what: format!("root, one core: updates a second through the order, state {shown}"),
            goal: format!("≥ {}", grouped(LEAST_PER_S)),
            here: per_s.text(grouped),
            met: missing <= 0.0,
            missed_by: grouped(missing.max(0.0)),
            is_outside: false,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_example_prints_is_understood() {
        let text = "\
  memory: a write of 100 B: order  2500 ns, import  2600 ns, trim   600 ns:  175438 a second; import at another site  3100 ns
   fjall: a write of 100 B: order   400 ns, import  3300 ns, trim  1500 ns:  192307 a second; import at another site  5400 ns
";
        let of = |state: &str, per_s| Ordered { state: state.to_owned(), per_s };
        let all = parse(text);
        assert_eq!(all, [of("memory", 175_438.0), of("fjall", 192_307.0)]);
        let shown: Vec<_> = goals(&all).map(|goal| (goal.met, goal.missed_by)).collect();
        assert_eq!(shown, [(false, "24,562".to_owned()), (false, "7,693".to_owned())]);
    }
}
