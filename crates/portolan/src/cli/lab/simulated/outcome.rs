//! How what came of a run is shown: on a terminal, and as JSON.

use super::super::super::failed::Failed;
use super::super::super::show::{self, Table};
use super::verdict;
use lab::clients::arithmetic::most_apart;
use lab::run::Ran;
use lab::verdict::Verdict;
use lab::world::World;
use std::fmt::Write as _;
use std::time::Duration;

/// Lines of the comparison with arithmetic that are printed.
const LINES_SHOWN: usize = 12;

/// What a run was: figures, latencies, arithmetic, verdicts.
pub(super) fn ran(world: &World, ran: &Ran, took: Duration) -> String {
    let mut text = String::new();
    let figures = &ran.figures;
    let virtual_s = figures.virtual_time.as_secs_f64();
    let _ = writeln!(text, "{} · seed {}", world.title, ran.seed);
    if let Some(note) = &world.sites_note {
        let _ = writeln!(text, "{note}");
    }
    let _ = writeln!(
        text,
        "{virtual_s:.1} virtual seconds in {:.2} s ({:.0} a second); {} operations, {} events, {} \
         faults, {} elections\n",
        took.as_secs_f64(),
        virtual_s / took.as_secs_f64().max(1e-9),
        figures.operations,
        figures.events,
        figures.faults,
        figures.elections
    );
    let mut table =
        Table::new(["OPERATION", ">COUNT", ">ERRORS", ">P50 MS", ">P90 MS", ">P99 MS", ">MAX MS"]);
    for operation in ran.measure.operations().iter().filter(|operation| operation.happened()) {
        let summary = operation.summary();
        let ms = |ms: f64| format!("{ms:.2}");
        table.row([
            operation.name.to_owned(),
            summary.count.to_string(),
            operation.errors.to_string(),
            ms(summary.p50_ms),
            ms(summary.p90_ms),
            ms(summary.p99_ms),
            ms(summary.max_ms),
        ]);
    }
    let _ = writeln!(text, "{table}\n");
    if !ran.compared.is_empty() && figures.faults == 0 {
        let mut table =
            Table::new(["BY ARITHMETIC", ">COUNT", ">EXPECTED MS", ">MEDIAN MS", ">DIFFERENCE"]);
        let lines = most_apart(&ran.compared, LINES_SHOWN);
        for line in lines {
            table.row([
                line.what.clone(),
                line.count.to_string(),
                format!("{:.2}", line.expected_ms),
                format!("{:.2}", line.median_ms),
                format!("{:+.2} %", line.difference() * 100.0),
            ]);
        }
        let _ = writeln!(text, "{table}");
        if ran.compared.len() > LINES_SHOWN {
            let count = ran.compared.len();
            let _ = writeln!(text, "the {LINES_SHOWN} of {count} that differ most");
        }
        text.push('\n');
    }
    match &ran.failure {
        Some(why) => {
            let _ = writeln!(text, "The run was broken off: {why}");
        }
        None => {
            let _ = write!(text, "Promises\n{}", verdict::table(&ran.history, &ran.judged));
        }
    }
    text
}

/// The lines of a trace up to where something was first seen to be wrong.
pub(super) fn around<'a>(trace: &'a str, ran: &Ran) -> Vec<&'a str> {
    let seen = ran.judged.iter().filter_map(|judged| match &judged.verdict {
        Verdict::Broken(violation) => violation.at_us,
        _ => None,
    });
    let until_ms = seen.min().map_or(f64::INFINITY, |at_us| at_us as f64 / 1_000.0);
    let is_later = |line: &&str| {
        let at = line.strip_prefix("@ ").and_then(|rest| rest.strip_suffix(" ms"));
        at.and_then(|at| at.parse::<f64>().ok()).is_some_and(|at_ms| at_ms > until_ms)
    };
    trace.lines().take_while(|line| !is_later(line)).collect()
}

/// Prints, and ends with 1 if something is wrong.
pub(super) fn end(text: &str, wrongs: &[String]) -> Result<(), Failed> {
    show::print(text.trim_end())?;
    match wrongs {
        [] => Ok(()),
        [first, ..] => Err(Failed::no(Some(format!("a promise was broken: {first}")))),
    }
}
