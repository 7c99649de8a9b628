//! The measured numbers as CSV and as the page's table.

use std::fmt::Write as _;

use super::escaped;
use crate::measure::{Measure, Summary};

const PERCENTILES: &str = "p50_ms,p90_ms,p99_ms,max_ms";

fn percentiles(summary: &Summary) -> String {
    let Summary { p50_ms, p90_ms, p99_ms, max_ms, .. } = summary;
    format!("{p50_ms:.3},{p90_ms:.3},{p99_ms:.3},{max_ms:.3}")
}

pub(super) fn operations_csv(measure: &Measure) -> String {
    let mut csv = format!("operation,count,errors,{PERCENTILES}\n");
    for operation in measure.operations() {
        let summary = operation.summary();
        let (name, errors) = (operation.name, operation.errors);
        let _ = writeln!(csv, "{name},{},{errors},{}", summary.count, percentiles(&summary));
    }
    csv
}

pub(super) fn timeline_csv(measure: &Measure) -> String {
    let mut csv = format!("second,operations,errors,retries,{PERCENTILES}\n");
    for (index, second) in measure.seconds().iter().enumerate() {
        let (count, errors, retries) = (second.all.count, second.errors, second.retries);
        let _ = writeln!(csv, "{index},{count},{errors},{retries},{}", percentiles(&second.all));
    }
    csv
}

pub(super) fn events_csv(measure: &Measure) -> String {
    let mut csv = "at_s,event\n".to_owned();
    for event in measure.events() {
        let label = event.label.replace('"', "\"\"");
        let _ = writeln!(csv, "{:.3},\"{label}\"", event.at.as_secs_f64());
    }
    csv
}

pub(super) fn operations_html(measure: &Measure) -> String {
    let mut html = "<table><thead><tr><th>operation</th><th>answered</th><th>errors</th>\
        <th>p50 ms</th><th>p90 ms</th><th>p99 ms</th><th>max ms</th></tr></thead><tbody>"
        .to_owned();
    let mut row = |name: &str, errors: u64, summary: &Summary| {
        let Summary { count, p50_ms, p90_ms, p99_ms, max_ms } = summary;
        let _ = write!(
            html,
            "<tr><th>{}</th><td>{}</td><td>{errors}</td>",
            escaped(name),
            grouped(*count)
        );
        for ms in [p50_ms, p90_ms, p99_ms, max_ms] {
            let shown = if *count > 0 { format!("{ms:.1}") } else { "–".to_owned() };
            let _ = write!(html, "<td>{shown}</td>");
        }
        html.push_str("</tr>");
    };
    for operation in measure.operations() {
        row(operation.name, operation.errors, &operation.summary());
    }
    row("all", measure.counters().errors, &measure.summary());
    html.push_str("</tbody></table>");
    html
}

/// A whole number with a thin space between groups of three digits.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push('\u{2009}');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn digits_come_in_threes() {
        let grouped = |number| super::grouped(number).replace('\u{2009}', " ");
        assert_eq!(grouped(7), "7");
        assert_eq!(grouped(1_234), "1 234");
        assert_eq!(grouped(123_456), "123 456");
        assert_eq!(grouped(1_234_567), "1 234 567");
    }
}
