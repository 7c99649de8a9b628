//! The report's numbers as CSV. Numbers have a point and their unit in the header; text is quoted
//! where they must be.

use std::io;

use super::{Report, figure};
use crate::measure::{Measure, Summary};

const PERCENTILES: [&str; 4] = ["p50_ms", "p90_ms", "p99_ms", "max_ms"];

/// Every sheet that has rows, with the name of its file.
///
/// # Errors
/// None is expected: a sheet is made in memory.
pub(super) fn all(report: &Report) -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut sheets = vec![
        ("operations.csv", operations(&report.measure)?),
        ("timeline.csv", timeline(&report.measure)?),
        ("events.csv", events(report)?),
        ("latency.csv", latency(report)?),
    ];
    if !report.verdicts.is_empty() {
        sheets.push(("verdicts.csv", verdicts(report)?));
    }
    if !report.expectations.is_empty() {
        sheets.push(("expectations.csv", expectations(report)?));
    }
    let mut sheets: Vec<(String, Vec<u8>)> =
        sheets.into_iter().map(|(file, sheet)| (file.to_owned(), sheet)).collect();
    for each in &report.over_time {
        sheets.push((format!("{}.csv", each.file), each.sheet()?));
    }
    Ok(sheets)
}

pub(super) fn sheet<Row: AsRef<[u8]>>(
    header: &[&str],
    rows: impl IntoIterator<Item = Vec<Row>>,
) -> io::Result<Vec<u8>> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(header)?;
    for row in rows {
        writer.write_record(row)?;
    }
    writer.into_inner().map_err(|error| error.into_error())
}

fn percentiles(summary: &Summary) -> impl Iterator<Item = String> {
    let Summary { p50_ms, p90_ms, p99_ms, max_ms, .. } = *summary;
    [p50_ms, p90_ms, p99_ms, max_ms].into_iter().map(|ms| format!("{ms:.3}"))
}

fn operations(measure: &Measure) -> io::Result<Vec<u8>> {
    let header = [&["operation", "count", "errors"], PERCENTILES.as_slice()].concat();
    let rows = measure.operations().iter().map(|operation| {
        let summary = operation.summary();
        let counts =
            [operation.name.to_owned(), summary.count.to_string(), operation.errors.to_string()];
        counts.into_iter().chain(percentiles(&summary)).collect()
    });
    sheet::<String>(&header, rows)
}

fn timeline(measure: &Measure) -> io::Result<Vec<u8>> {
    let header = [&["second", "operations", "errors", "retries"], PERCENTILES.as_slice()].concat();
    let rows = measure.seconds().iter().enumerate().map(|(index, second)| {
        let counts = [index as u64, second.all.count, second.errors, second.retries];
        let counts = counts.into_iter().map(|count| count.to_string());
        counts.chain(percentiles(&second.all)).collect()
    });
    sheet::<String>(&header, rows)
}

/// Marks have no end, faults have one.
fn events(report: &Report) -> io::Result<Vec<u8>> {
    let rows = report.happenings().into_iter().map(|happening| {
        let seconds = |at: std::time::Duration| format!("{:.3}", at.as_secs_f64());
        vec![
            seconds(happening.from),
            happening.to.map(seconds).unwrap_or_default(),
            happening.what.to_owned(),
        ]
    });
    sheet::<String>(&["at_s", "until_s", "event"], rows)
}

/// The points of every distribution that is plotted.
fn latency(report: &Report) -> io::Result<Vec<u8>> {
    let by_operation = figure::by_operation(&report.measure);
    let mut rows = Vec::new();
    for each in std::iter::once(&by_operation).chain(&report.distributions) {
        for (name, steps) in &each.series {
            rows.extend(steps.iter().map(|(ms, share)| {
                vec![each.title.clone(), name.clone(), format!("{ms:.3}"), format!("{share:.6}")]
            }));
        }
    }
    sheet(&["plot", "series", "latency_ms", "share"], rows)
}

fn verdicts(report: &Report) -> io::Result<Vec<u8>> {
    let rows = report.verdicts.iter().map(|row| {
        let violation = row.violation.as_deref().unwrap_or_default();
        vec![row.promise.as_str(), &row.verdict, &row.examined, violation]
    });
    sheet(&["promise", "verdict", "examined", "violation"], rows)
}

fn expectations(report: &Report) -> io::Result<Vec<u8>> {
    let rows = report.expectations.iter().map(|row| {
        let number = |number: Option<f64>| number.map(|n| format!("{n:.3}")).unwrap_or_default();
        vec![
            row.operation.clone(),
            row.because.clone(),
            number(Some(row.expected_ms)),
            number(row.measured_p50_ms),
            number(row.difference_percent()),
        ]
    });
    let header = ["operation", "because", "expected_ms", "measured_p50_ms", "difference_percent"];
    sheet::<String>(&header, rows)
}
