//! The figures of a report: which plots there are, and the text beside them.
//!
//! The page shows a figure's drawing with the legend as text; a file of its own has title and
//! legend in the picture.

use super::{
    Distribution, Report,
    drawing::{Anchor, Drawing, Lettering, Look, Path, Pen},
    font, map,
    palette::Ink,
    plot::{Axis, Mark, Plot, Series},
};
use crate::measure::{Measure, Second};

/// A picture with its text.
#[derive(Debug)]
pub(super) struct Figure {
    /// The name of its files, without what follows the dot.
    pub(super) file: String,
    pub(super) title: String,
    pub(super) about: String,
    /// How much of the page it takes.
    pub(super) room: Room,
    pub(super) drawing: Drawing,
    pub(super) legend: Vec<(String, Ink)>,
}

/// The part of the page that a card takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    /// Half of its width.
    Half,
    /// Half of its width, and the height of two cards.
    Tall,
    /// Its whole width.
    Wide,
}

impl Figure {
    pub(super) fn plot(file: &str, title: &str, about: &str, plot: &Plot) -> Self {
        Self {
            file: file.to_owned(),
            title: title.to_owned(),
            about: about.to_owned(),
            room: Room::Half,
            drawing: plot.draw(),
            legend: plot.series.iter().map(|series| (series.name.clone(), series.ink)).collect(),
        }
    }

    /// The picture with title and legend, on a card.
    pub(super) fn alone(&self) -> Drawing {
        const MARGIN: f64 = 18.0;
        const TITLE: f64 = 15.0;
        const ROW: f64 = 18.0;
        let entries = self.legend_places(self.drawing.width);
        let rows = entries.last().map_or(0.0, |(_, row, _)| (row + 1) as f64 * ROW + 4.0);
        let top = MARGIN + TITLE + 12.0;
        let width = self.drawing.width + 2.0 * MARGIN;
        let height = top + self.drawing.height + rows + MARGIN;
        let mut alone = Drawing::new(width, height, &self.title);
        alone.path(Path::rectangle((0.0, 0.0), width, height), Look::fill(Ink::Card));
        let title = Lettering { bold: true, ..Lettering::new(Ink::Text, TITLE, Anchor::Start) };
        alone.words((MARGIN, MARGIN + TITLE - 3.0), &self.title, title);
        alone.put((MARGIN, top), &self.drawing);
        for (x, row, (name, ink)) in entries {
            let y = top + self.drawing.height + 4.0 + (row as f64 + 0.5) * ROW;
            let x = MARGIN + x;
            alone.line((x, y), (x + SAMPLE, y), Look::pen(Pen::of_series(*ink, 3.0)));
            let words = Lettering::new(Ink::Soft, LEGEND, Anchor::Start);
            alone.words((x + SAMPLE + 7.0, y + 4.0), name, words);
        }
        alone
    }

    /// Where each entry of the legend begins, and in which row.
    fn legend_places(&self, width: f64) -> Vec<(f64, usize, &(String, Ink))> {
        let (mut x, mut row) = (0.0, 0);
        let mut places = Vec::new();
        for entry in &self.legend {
            let long = SAMPLE + 7.0 + font::width(&entry.0, LEGEND, false);
            if x > 0.0 && x + long > width {
                (x, row) = (0.0, row + 1);
            }
            places.push((x, row, entry));
            x += long + 20.0;
        }
        places
    }
}

/// Size of the text of a legend.
const LEGEND: f64 = 12.0;
/// Length of the line before them.
const SAMPLE: f64 = 14.0;

/// All figures of a report, in the page's order.
pub(super) fn all(report: &Report) -> Vec<Figure> {
    let mut figures: Vec<Figure> =
        report.over_time.iter().map(|each| each.figure(&frame(report))).collect();
    figures.extend([
        Figure::plot(
            "latency",
            "Latency over time",
            "Each second's median and 99th percentile of all operations, retries included. A gap is \
             a second in which nothing was answered.",
            &latency_over_time(report),
        ),
        Figure::plot(
            "throughput",
            "Throughput over time",
            "Operations answered each second.",
            &rate_over_time(report),
        ),
        Figure::plot(
            "distribution",
            "Latency distribution",
            "Which share of the operations took no longer than this.",
            &distribution(&by_operation(&report.measure)),
        ),
    ]);
    for (index, each) in report.distributions.iter().enumerate() {
        let file = format!("distribution-{}", index + 1);
        figures.push(Figure::plot(&file, &each.title, &each.about, &distribution(each)));
    }
    figures
}

/// The map, if the report has one.
pub(super) fn of_map(report: &Report) -> Option<Figure> {
    let map = report.map.as_ref()?;
    let sentences = [
        (!map.strokes.is_empty())
            .then_some("Where clients went, in the colour of the site that served them there."),
        (!map.tracks.is_empty())
            .then_some("A client's way is from its ring to its dot, in a colour of its own."),
        Some("A disc's area is that site's share of the operations."),
    ];
    Some(Figure {
        file: "map".to_owned(),
        title: "Where it happened".to_owned(),
        about: sentences.into_iter().flatten().collect::<Vec<_>>().join(" "),
        room: Room::Wide,
        drawing: map::draw(map),
        legend: Vec::new(),
    })
}

/// The latencies of each operation.
pub(super) fn by_operation(measure: &Measure) -> Distribution {
    let operations = measure.operations().iter().filter(|operation| operation.happened());
    Distribution {
        title: "by operation".to_owned(),
        about: String::new(),
        series: operations
            .map(|operation| (operation.name.to_owned(), operation.distribution()))
            .collect(),
    }
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

fn marks(report: &Report) -> Vec<Mark> {
    let happenings = report.happenings().into_iter().map(|happening| Mark {
        from: happening.from.as_secs_f64(),
        to: happening.to.map(|to| to.as_secs_f64()),
        label: happening.what.to_owned(),
    });
    happenings.collect()
}

/// A plot over the time of the run, with nothing in it yet.
fn frame(report: &Report) -> Plot {
    Plot {
        x: time_axis(&report.measure),
        y: Axis::linear("", 0.0, 1.0),
        series: Vec::new(),
        marks: marks(report),
        dots: false,
    }
}

fn latency_over_time(report: &Report) -> Plot {
    let measure = &report.measure;
    let answered = |second: &Second, ms: f64| (second.all.count > 0).then_some(ms);
    let p50 = by_second(measure, |second| answered(second, second.all.p50_ms));
    let p99 = by_second(measure, |second| answered(second, second.all.p99_ms));
    let lowest = p50.iter().filter_map(|(_, ms)| *ms).fold(f64::INFINITY, f64::min);
    let highest = p99.iter().filter_map(|(_, ms)| *ms).fold(0.0, f64::max);
    let lowest = if lowest.is_finite() { lowest } else { 1.0 };
    let series = |name: &str, index, points| Series {
        name: name.to_owned(),
        ink: Ink::Series(index),
        points,
        filled: false,
    };
    Plot {
        x: time_axis(measure),
        y: Axis::logarithmic("ms", lowest, highest),
        series: vec![series("p50", 0, p50), series("p99", 1, p99)],
        marks: marks(report),
        dots: false,
    }
}

fn rate_over_time(report: &Report) -> Plot {
    let measure = &report.measure;
    let rate = by_second(measure, |second| Some(second.all.count as f64));
    let highest = rate.iter().filter_map(|(_, count)| *count).fold(1.0, f64::max);
    let series = |name: &str, index, points, filled| Series {
        name: name.to_owned(),
        ink: Ink::Series(index),
        points,
        filled,
    };
    let mut all = vec![series("answered", 0, rate, true)];
    if measure.counters().retries > 0 {
        let points = by_second(measure, |second| Some(second.retries as f64));
        all.push(series("attempts made again", 1, points, false));
    }
    if measure.counters().errors > 0 {
        let points = by_second(measure, |second| Some(second.errors as f64));
        all.push(series("errors", 3, points, false));
    }
    Plot {
        x: time_axis(measure),
        y: Axis::linear("operations a second", 0.0, highest * 1.1),
        series: all,
        marks: marks(report),
        dots: false,
    }
}

fn distribution(distribution: &Distribution) -> Plot {
    let all = || distribution.series.iter().flat_map(|(_, steps)| steps);
    let lowest = all().map(|(ms, _)| *ms).fold(f64::INFINITY, f64::min);
    let highest = all().map(|(ms, _)| *ms).fold(1.0, f64::max);
    let lowest = if lowest.is_finite() { lowest } else { 1.0 };
    let series = distribution.series.iter().enumerate().map(|(index, (name, steps))| Series {
        name: name.clone(),
        ink: Ink::Series(index),
        points: steps.iter().map(|(ms, share)| (*ms, Some(100.0 * share))).collect(),
        filled: false,
    });
    Plot {
        x: Axis::logarithmic("ms", lowest, highest),
        y: Axis::linear("% of operations", 0.0, 100.0),
        series: series.collect(),
        marks: Vec::new(),
        dots: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Fault;

    fn figure(names: &[&str]) -> Figure {
        let series = |name: &&str| ((*name).to_owned(), vec![(1.0, 0.5), (20.0, 1.0)]);
        let each = Distribution {
            title: "by site".to_owned(),
            about: String::new(),
            series: names.iter().map(series).collect(),
        };
        Figure::plot("by-site", "By site", "", &distribution(&each))
    }

    #[test]
    fn alone_it_has_its_title_and_a_legend_that_fits() {
        let names: Vec<String> = (0..30).map(|index| format!("the site number {index}")).collect();
        let figure = figure(&names.iter().map(String::as_str).collect::<Vec<_>>());
        let places = figure.legend_places(540.0);
        assert!(places.last().unwrap().1 >= 5, "several rows");
        for (x, _, (name, _)) in &places {
            assert!(x + SAMPLE + 7.0 + font::width(name, LEGEND, false) <= 540.0);
        }
        let (svg, height) = (figure.alone().alone(), figure.alone().height);
        assert!(svg.contains(">By site</text>") && svg.contains(">the site number 29</text>"));
        let one = Figure { legend: vec![("a".to_owned(), Ink::Series(0))], ..figure }.alone();
        assert!(height > one.height + 60.0, "rows take their room");
    }

    #[test]
    fn marks_are_in_order_whatever_they_are() {
        let second = std::time::Duration::from_secs(1);
        let mut measure = Measure::new(&["a"], second);
        measure.mark(3 * second, "late");
        measure.mark(second, "early");
        let fault = Fault { from: 2 * second, to: 5 * second, label: "cut".to_owned() };
        let report = Report { faults: vec![fault], ..Report::new("t", "s", measure) };
        let marks = marks(&report);
        let seen: Vec<(&str, Option<f64>)> =
            marks.iter().map(|mark| (mark.label.as_str(), mark.to)).collect();
        assert_eq!(seen, [("early", None), ("cut", Some(5.0)), ("late", None)]);
    }
}
