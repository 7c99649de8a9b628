//! The page's tables.

use std::{fmt::Write as _, time::Duration};

use super::{Report, Tone, escaped};
use crate::measure::{Measure, Summary};

/// Most rows of what happened; all of it is in `events.csv`.
const HAPPENINGS_MAX: usize = 200;
/// Most letters of one violation on the page; all of them are in `verdicts.csv`.
const VIOLATION_MAX: usize = 20_000;

pub(super) fn operations(measure: &Measure) -> String {
    let mut html = "<table><thead><tr><th>operation</th><th>answered</th><th>errors</th>\
        <th>p50 ms</th><th>p90 ms</th><th>p99 ms</th><th>max ms</th></tr></thead><tbody>"
        .to_owned();
    let mut row = |name: &str, errors: u64, summary: &Summary| {
        let Summary { count, p50_ms, p90_ms, p99_ms, max_ms } = summary;
        let (name, count_text, errors) = (escaped(name), grouped(*count), grouped(errors));
        let _ = write!(html, "<tr><th>{name}</th><td>{count_text}</td><td>{errors}</td>");
        for ms in [p50_ms, p90_ms, p99_ms, max_ms] {
            let shown = if *count > 0 { format!("{ms:.1}") } else { "–".to_owned() };
            let _ = write!(html, "<td>{shown}</td>");
        }
        html.push_str("</tr>");
    };
    for operation in measure.operations().iter().filter(|operation| operation.happened()) {
        row(operation.name, operation.errors, &operation.summary());
    }
    row("all", measure.counters().errors, &measure.summary());
    html.push_str("</tbody></table>");
    html
}

/// A violation stands under the row of its promise.
pub(super) fn verdicts(report: &Report) -> String {
    let mut html = "<table class=\"words\"><thead><tr><th>promise</th><th>verdict</th>\
        <th>examined</th></tr></thead><tbody>"
        .to_owned();
    for row in &report.verdicts {
        let tone = match row.tone {
            Tone::Plain => "",
            Tone::Good => " class=\"good\"",
            Tone::Bad => " class=\"bad\"",
        };
        let (promise, verdict) = (escaped(&row.promise), escaped(&row.verdict));
        let examined = escaped(&row.examined);
        let _ = write!(
            html,
            "<tr><th>{promise}</th><td><b{tone}>{verdict}</b></td><td>{examined}</td></tr>"
        );
        if let Some(violation) = &row.violation {
            let mut text: String = violation.chars().take(VIOLATION_MAX).collect();
            if text.len() < violation.len() {
                text.push_str("\n… the rest is in verdicts.csv");
            }
            let text = escaped(&text);
            let _ = write!(
                html,
                "<tr class=\"violation\"><td colspan=\"3\"><pre>{text}</pre></td></tr>"
            );
        }
    }
    html.push_str("</tbody></table>");
    html
}

pub(super) fn expectations(report: &Report) -> String {
    let mut html = "<table><thead><tr><th>operation</th><th class=\"words\">because</th>\
        <th>expected ms</th><th>measured p50 ms</th><th>difference</th></tr></thead><tbody>"
        .to_owned();
    for row in &report.expectations {
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "–".to_owned());
        let measured = or_dash(row.measured_p50_ms.map(|ms| format!("{ms:.2}")));
        let difference = or_dash(row.difference_percent().map(|percent| {
            let sign = if percent < 0.0 { '−' } else { '+' };
            format!("{sign}{:.1} %", percent.abs())
        }));
        let (operation, because) = (escaped(&row.operation), escaped(&row.because));
        let _ = write!(
            html,
            "<tr><th>{operation}</th><td class=\"words\">{because}</td><td>{:.2}</td>\
             <td>{measured}</td><td>{difference}</td></tr>",
            row.expected_ms
        );
    }
    html.push_str("</tbody></table>");
    html
}

/// What happened and when; none when nothing did.
pub(super) fn happenings(report: &Report) -> Option<String> {
    let happenings = report.happenings();
    if happenings.is_empty() {
        return None;
    }
    let mut html =
        "<table class=\"words\"><thead><tr><th>from</th><th>until</th><th>what</th></tr>\
        </thead><tbody>"
            .to_owned();
    for happening in happenings.iter().take(HAPPENINGS_MAX) {
        let seconds = |at: Duration| format!("{:.3} s", at.as_secs_f64());
        let (from, until) = (seconds(happening.from), happening.to.map(seconds));
        let (until, what) = (until.unwrap_or_default(), escaped(happening.what));
        let _ = write!(html, "<tr><td>{from}</td><td>{until}</td><td>{what}</td></tr>");
    }
    html.push_str("</tbody></table>");
    let rest = happenings.len().saturating_sub(HAPPENINGS_MAX);
    if rest > 0 {
        let _ = write!(html, "<p>{} more are in events.csv.</p>", grouped(rest as u64));
    }
    Some(html)
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
