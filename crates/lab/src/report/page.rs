//! The page: what stands where. Numbers come from [`Measure`], drawing from the neighbours.

use std::fmt::Write as _;

use super::{
    Report, Tone, escaped, map,
    plot::{Axis, Plot, Series},
    tables,
};
use crate::measure::{Measure, Second};

const STYLE: &str = include_str!("style.css");
const COLORS: [&str; 4] = ["c1", "c2", "c3", "c4"];

pub(super) fn html(report: &Report) -> String {
    let title = escaped(&report.title);
    let mut html = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>{title}</title><style>{STYLE}</style></head><body><main>\
         <header><span class=\"brand\">Portolan</span><h1>{title}</h1><p class=\"lead\">{}</p></header>",
        escaped(&report.summary)
    );
    tiles(&mut html, report);
    html.push_str("<div class=\"cards\">");
    let latency = latency_over_time(&report.measure);
    let rate = rate_over_time(&report.measure);
    let distribution = distribution(&report.measure);
    let slow = "Each second's median and 99th percentile of all operations, retries included. \
                A gap is a second in which nothing was answered.";
    card(&mut html, "Latency over time", slow, &(latency.svg() + &latency.legend()));
    let answered = "Operations answered each second.";
    card(&mut html, "Throughput over time", answered, &(rate.svg() + &rate.legend()));
    let at_most = "Which share of the operations took no longer than this.";
    card(
        &mut html,
        "Latency distribution",
        at_most,
        &(distribution.svg() + &distribution.legend()),
    );
    let table = format!("<div class=\"scroll\">{}</div>", tables::operations_html(&report.measure));
    let measured = "From the first attempt to the answer, as the vehicle saw it, links included.";
    card(&mut html, "Latency by operation", measured, &table);
    let where_driven = "Where the vehicles drove, in the colour of the site that served them there. \
                        A disc's area is that site's share of the operations.";
    wide_card(&mut html, "The city", where_driven, &map::svg(&report.map));
    html.push_str("</div><footer>");
    for note in &report.notes {
        let _ = write!(html, "<p>{}</p>", escaped(note));
    }
    html.push_str("</footer></main></body></html>\n");
    html
}

fn tiles(html: &mut String, report: &Report) {
    html.push_str("<div class=\"tiles\">");
    for tile in &report.tiles {
        let tone = match tile.tone {
            Tone::Plain => "tile",
            Tone::Good => "tile good",
            Tone::Bad => "tile bad",
        };
        let _ = write!(
            html,
            "<div class=\"{tone}\"><span>{}</span><b>{}</b><small>{}</small></div>",
            escaped(&tile.label),
            escaped(&tile.value),
            escaped(&tile.note)
        );
    }
    html.push_str("</div>");
}

fn card(html: &mut String, title: &str, text: &str, body: &str) {
    let _ = write!(html, "<section class=\"card\"><h2>{title}</h2><p>{text}</p>{body}</section>");
}

fn wide_card(html: &mut String, title: &str, text: &str, body: &str) {
    let _ =
        write!(html, "<section class=\"card wide\"><h2>{title}</h2><p>{text}</p>{body}</section>");
}

/// The middle of each second with one figure of it.
fn by_second(
    measure: &Measure,
    figure: impl Fn(&Second) -> Option<f64>,
) -> Vec<(f64, Option<f64>)> {
    let seconds = measure.seconds().iter().enumerate();
    seconds.map(|(index, second)| (index as f64 + 0.5, figure(second))).collect()
}

fn time_axis(measure: &Measure) -> Axis {
    Axis::linear("seconds", 0.0, measure.seconds().len() as f64)
}

fn marks(measure: &Measure) -> Vec<(f64, String)> {
    let events = measure.events().iter();
    events.map(|event| (event.at.as_secs_f64(), event.label.clone())).collect()
}

fn latency_over_time(measure: &Measure) -> Plot {
    let answered = |second: &Second, ms: f64| (second.all.count > 0).then_some(ms);
    let p50 = by_second(measure, |second| answered(second, second.all.p50_ms));
    let p99 = by_second(measure, |second| answered(second, second.all.p99_ms));
    let lowest = p50.iter().filter_map(|(_, ms)| *ms).fold(f64::INFINITY, f64::min);
    let highest = p99.iter().filter_map(|(_, ms)| *ms).fold(0.0, f64::max);
    let lowest = if lowest.is_finite() { lowest } else { 1.0 };
    Plot {
        x: time_axis(measure),
        y: Axis::logarithmic("ms", lowest, highest),
        series: vec![
            Series { name: "p50".to_owned(), class: COLORS[0], points: p50, filled: false },
            Series { name: "p99".to_owned(), class: COLORS[1], points: p99, filled: false },
        ],
        marks: marks(measure),
    }
}

fn rate_over_time(measure: &Measure) -> Plot {
    let rate = by_second(measure, |second| Some(second.all.count as f64));
    let highest = rate.iter().filter_map(|(_, count)| *count).fold(1.0, f64::max);
    let mut series =
        vec![Series { name: "answered".to_owned(), class: COLORS[0], points: rate, filled: true }];
    if measure.counters().retries > 0 {
        let points = by_second(measure, |second| Some(second.retries as f64));
        let name = "attempts made again".to_owned();
        series.push(Series { name, class: COLORS[1], points, filled: false });
    }
    if measure.counters().errors > 0 {
        let points = by_second(measure, |second| Some(second.errors as f64));
        series.push(Series { name: "errors".to_owned(), class: COLORS[3], points, filled: false });
    }
    Plot {
        x: time_axis(measure),
        y: Axis::linear("operations a second", 0.0, highest * 1.1),
        series,
        marks: marks(measure),
    }
}

fn distribution(measure: &Measure) -> Plot {
    let (mut lowest, mut highest) = (f64::INFINITY, 1.0_f64);
    let mut series = Vec::new();
    for (index, operation) in measure.operations().iter().enumerate() {
        let steps = operation.distribution();
        if let (Some(first), Some(last)) = (steps.first(), steps.last()) {
            lowest = lowest.min(first.0);
            highest = highest.max(last.0);
        }
        series.push(Series {
            name: operation.name.to_owned(),
            class: COLORS[index % COLORS.len()],
            points: steps.into_iter().map(|(ms, share)| (ms, Some(100.0 * share))).collect(),
            filled: false,
        });
    }
    let lowest = if lowest.is_finite() { lowest } else { 1.0 };
    Plot {
        x: Axis::logarithmic("ms", lowest, highest),
        y: Axis::linear("% of operations", 0.0, 100.0),
        series,
        marks: Vec::new(),
    }
}
