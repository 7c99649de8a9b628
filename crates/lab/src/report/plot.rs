//! Line plots, and bars side by side where the x axis has names instead of numbers.
//!
//! Axes get round ticks (1, 2 or 5 times a power of ten; on a logarithmic axis the powers). A
//! series is broken where a value is missing. What happened is a line across the plot, or a band if
//! it lasted, with a label where there is room for one.

use super::{
    drawing::{Anchor, Drawing, Lettering, Look, Path, Pen, Shape},
    font,
    palette::Ink,
};

const WIDTH: f64 = 540.0;
const LEFT: f64 = 44.0;
const RIGHT: f64 = 12.0;
/// Room for the label of the y axis.
const HEAD: f64 = 25.0;
/// Room for the labels of marks, in rows, where there are marks.
const MARK_ROWS: usize = 3;
const MARK_ROW: f64 = 13.0;
/// From the top of the y axis to the x axis.
const AXIS: f64 = 170.0;
const BOTTOM: f64 = 37.0;
/// The part of a name's width that its bars take.
const COLUMNS: f64 = 0.7;
/// Size of the text beside axes.
const WORDS: f64 = 12.0;
/// Size of the labels of marks.
const MARK_WORDS: f64 = 11.5;

/// One axis: its range and what to write beside it.
#[derive(Debug, Clone)]
pub(super) struct Axis {
    label: &'static str,
    from: f64,
    to: f64,
    logarithmic: bool,
    /// What stands below an axis that has no numbers, each name one unit wide.
    names: Vec<String>,
}

impl Axis {
    pub(super) fn linear(label: &'static str, from: f64, to: f64) -> Self {
        let to = if to > from { to } else { from + 1.0 };
        Self { label, from, to, logarithmic: false, names: Vec::new() }
    }

    /// Names instead of numbers: the bars of the first stand at 0, those of the next at 1.
    #[cfg(feature = "simulation")]
    pub(super) fn named(label: &'static str, names: Vec<String>) -> Self {
        Self { names: names.clone(), ..Self::linear(label, 0.0, names.len() as f64) }
    }

    /// From one power of ten to another, so as to hold both ends.
    pub(super) fn logarithmic(label: &'static str, from: f64, to: f64) -> Self {
        let from = 10_f64.powf(from.max(1e-3).log10().floor());
        let to = 10_f64.powf(to.max(from * 10.0).log10().ceil());
        Self { label, from, to, logarithmic: true, names: Vec::new() }
    }

    fn words(&self, tick: f64) -> String {
        self.names.get(tick as usize).cloned().unwrap_or_else(|| number(tick))
    }

    /// 0 at the start of the range, 1 at its end.
    fn fraction(&self, value: f64) -> f64 {
        let fraction = if self.logarithmic {
            (value.max(self.from) / self.from).ln() / (self.to / self.from).ln()
        } else {
            (value - self.from) / (self.to - self.from)
        };
        fraction.clamp(0.0, 1.0)
    }

    fn ticks(&self) -> Vec<f64> {
        if !self.names.is_empty() {
            return (0..self.names.len()).map(|place| place as f64 + 0.5).collect();
        }
        if self.logarithmic {
            let powers = self.from.log10().round() as i32..=self.to.log10().round() as i32;
            let steps: &[f64] = if powers.clone().count() <= 3 { &[1.0, 2.0, 5.0] } else { &[1.0] };
            let all =
                powers.flat_map(|power| steps.iter().map(move |step| step * 10_f64.powi(power)));
            return all.filter(|tick| *tick <= self.to * 1.001).collect();
        }
        let rough = (self.to - self.from) / 6.0;
        let power = 10_f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0]
            .map(|factor| factor * power)
            .into_iter()
            .find(|step| *step >= rough)
            .unwrap_or(power * 10.0);
        let first = (self.from / step).ceil() as i64;
        let last = (self.to / step + 1e-9).floor() as i64;
        (first..=last).map(|index| index as f64 * step).collect()
    }
}

/// One line.
#[derive(Debug, Clone)]
pub(super) struct Series {
    pub(super) name: String,
    pub(super) ink: Ink,
    /// A missing y breaks the line.
    pub(super) points: Vec<(f64, Option<f64>)>,
    /// Whether to shade down to the axis.
    pub(super) filled: bool,
}

/// Something that happened at an x, or from one to another.
#[derive(Debug, Clone)]
pub(super) struct Mark {
    pub(super) from: f64,
    /// Up to where it lasted; what was over at once is a line.
    pub(super) to: Option<f64>,
    pub(super) label: String,
}

/// A plot to be drawn.
#[derive(Debug, Clone)]
pub(super) struct Plot {
    pub(super) x: Axis,
    pub(super) y: Axis,
    pub(super) series: Vec<Series>,
    /// In order of their start.
    pub(super) marks: Vec<Mark>,
    /// Whether each point is a dot on its line: for few points.
    pub(super) dots: bool,
}

impl Plot {
    pub(super) fn draw(&self) -> Drawing {
        let label = format!("{} over {}", self.y.label, self.x.label);
        let mut drawing = Drawing::new(WIDTH, self.bottom() + BOTTOM, label);
        self.bands(&mut drawing);
        self.axes(&mut drawing);
        for (place, series) in self.series.iter().enumerate() {
            match self.x.names.is_empty() {
                true => self.line(&mut drawing, series),
                false => self.columns(&mut drawing, place, series),
            }
        }
        self.marks(&mut drawing);
        drawing
    }

    /// The upper end of the y axis.
    fn top(&self) -> f64 {
        let rows = if self.marks.is_empty() { 0 } else { MARK_ROWS };
        HEAD + MARK_ROW * rows as f64
    }

    /// Where the x axis is.
    fn bottom(&self) -> f64 {
        self.top() + AXIS
    }

    fn place(&self, x: f64, y: f64) -> (f64, f64) {
        (
            LEFT + self.x.fraction(x) * (WIDTH - LEFT - RIGHT),
            self.bottom() - self.y.fraction(y) * AXIS,
        )
    }

    fn axes(&self, drawing: &mut Drawing) {
        let (right, bottom) = (WIDTH - RIGHT, self.bottom());
        let rule = Look::line(Ink::Rule, 1.0);
        let rows = self.y.ticks().into_iter().map(|tick| (tick, self.place(self.x.from, tick).1));
        let columns =
            self.x.ticks().into_iter().map(|tick| (tick, self.place(tick, self.y.from).0));
        let (rows, columns): (Vec<_>, Vec<_>) = (rows.collect(), columns.collect());
        for (_, y) in &rows {
            drawing.line((LEFT, *y), (right, *y), rule);
        }
        for (_, x) in &columns {
            drawing.line((*x, bottom), (*x, bottom + 5.0), rule);
        }
        drawing.line((LEFT, bottom), (right, bottom), Look::line(Ink::Soft, 1.0));
        let words = |anchor| Lettering::new(Ink::Soft, WORDS, anchor);
        for (tick, y) in rows {
            drawing.words((LEFT - 7.0, y + 4.0), number(tick), words(Anchor::End));
        }
        drawing.words((right, bottom + BOTTOM - 5.0), self.x.label, words(Anchor::End));
        for (tick, x) in columns {
            drawing.words((x, bottom + 18.0), self.x.words(tick), words(Anchor::Middle));
        }
        drawing.words((0.0, 11.0), self.y.label, words(Anchor::Start));
    }

    fn line(&self, drawing: &mut Drawing, series: &Series) {
        let (mut line, mut area) = (Path::default(), Path::default());
        for run in series.points.split(|(_, y)| y.is_none()).filter(|run| !run.is_empty()) {
            let places: Vec<(f64, f64)> =
                run.iter().map(|(x, y)| self.place(*x, y.unwrap_or_default())).collect();
            if series.filled {
                let bottom = self.bottom();
                let (first, last) = (places[0].0, places[places.len() - 1].0);
                let ends = [(last, bottom), (first, bottom)];
                area.0.push((places.iter().copied().chain(ends).collect(), true));
            }
            line.0.push((places, false));
        }
        if !area.0.is_empty() {
            drawing.path(area, Look { opacity: 0.13, ..Look::fill(series.ink) });
        }
        if !line.0.is_empty() {
            let look = Look::pen(Pen::of_series(series.ink, 1.8));
            drawing.shapes.push(Shape::Path { path: line, look, title: series.name.clone() });
        }
        for (x, y) in series.points.iter().filter(|_| self.dots) {
            let Some(y) = y else { continue };
            let (center, look) = (self.place(*x, *y), Look::fill(series.ink));
            drawing.shapes.push(Shape::Circle { center, radius: 3.0, look });
        }
    }

    /// The bars of one series, beside those of the others. A dashed pen cannot fill: colours that
    /// come again are distinguished by their order.
    fn columns(&self, drawing: &mut Drawing, place: usize, series: &Series) {
        let wide = COLUMNS / self.series.len() as f64;
        let left = (1.0 - COLUMNS) / 2.0 + wide * place as f64;
        let mut path = Path::default();
        for (x, y) in series.points.iter().filter_map(|(x, y)| Some((x, (*y)?))) {
            let ((from, top), (to, _)) =
                (self.place(x + left, y), self.place(x + left + wide * 0.9, y));
            let bar = Path::rectangle((from, top), to - from, self.bottom() - top);
            path.0.extend(bar.0);
        }
        let look = Look::fill(series.ink);
        drawing.shapes.push(Shape::Path { path, look, title: series.name.clone() });
    }

    /// What lasted is a band behind everything else, wide enough to be seen.
    fn bands(&self, drawing: &mut Drawing) {
        for Mark { from, to, .. } in &self.marks {
            let Some(to) = to else { continue };
            let (left, right) = (self.place(*from, self.y.from).0, self.place(*to, self.y.from).0);
            let band = Path::rectangle((left, self.top()), (right - left).max(1.0), AXIS);
            drawing.path(band, Look { opacity: 0.12, ..Look::fill(Ink::Mark) });
        }
    }

    /// Marks carry their label above the plot, where there is room for one: to the side with more
    /// of it first. The line of a mark reaches up to its label.
    fn marks(&self, drawing: &mut Drawing) {
        let look = Look::pen(Pen { dashed: true, ..Pen::new(Ink::Mark, 1.0) });
        let mut labels: Vec<Label> = Vec::new();
        for Mark { from, label, .. } in &self.marks {
            let (x, _) = self.place(*from, self.y.from);
            let width = font::width(label, MARK_WORDS, false) + 8.0;
            let sides = if x > WIDTH * 0.55 { [x - width, x] } else { [x, x - width] };
            let rows = (0..MARK_ROWS).rev();
            let place = rows
                .flat_map(|row| sides.map(|start| Label { x, start, end: start + width, row }))
                .find(|place| place.start >= 0.0 && place.end <= WIDTH && place.is_free(&labels));
            let top =
                self.top() - place.as_ref().map_or(0.0, |place| MARK_ROW * place.row as f64 + 10.0);
            drawing.line((x, top), (x, self.bottom()), look);
            let Some(place) = place else { continue };
            let (anchor, offset) =
                if place.start < x { (Anchor::End, -4.0) } else { (Anchor::Start, 4.0) };
            let words = Lettering::new(Ink::Mark, MARK_WORDS, anchor);
            drawing.words((x + offset, top + 7.0), label, words);
            labels.push(place);
        }
    }
}

/// Where the label of a mark stands.
struct Label {
    /// The place of its mark.
    x: f64,
    start: f64,
    end: f64,
    /// From the plot upwards.
    row: usize,
}

impl Label {
    /// Whether it touches none of the others, nor do their lines cross it, nor its own them.
    fn is_free(&self, others: &[Label]) -> bool {
        let covers = |label: &Label, x: f64| label.start < x && x < label.end;
        others.iter().all(|other| match self.row.cmp(&other.row) {
            std::cmp::Ordering::Equal => self.end <= other.start || other.end <= self.start,
            std::cmp::Ordering::Less => !covers(self, other.x),
            std::cmp::Ordering::Greater => !covers(other, self.x),
        })
    }
}

/// A tick's text: no more digits than it needs.
fn number(value: f64) -> String {
    if value.abs() >= 1_000.0 && value % 100.0 == 0.0 {
        return format!("{}k", value / 1_000.0);
    }
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside_the_range() {
        assert_eq!(Axis::linear("s", 0.0, 30.0).ticks(), [0.0, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0]);
        assert_eq!(Axis::linear("s", 0.0, 1.0).ticks().len(), 6);
        assert_eq!(Axis::logarithmic("ms", 3.0, 700.0).ticks(), [1.0, 10.0, 100.0, 1_000.0]);
        assert_eq!(Axis::logarithmic("ms", 3.0, 9.0).ticks(), [1.0, 2.0, 5.0, 10.0]);
        assert!(!Axis::logarithmic("ms", 0.0, 0.0).ticks().is_empty());
        assert_eq!(Axis::linear("s", 0.0, 0.0).ticks().last(), Some(&1.0));
        assert_eq!([0.5, 20.0, 1_500.0, 0.0].map(number), ["0.5", "20", "1.5k", "0"]);
    }

    fn plot(points: Vec<(f64, Option<f64>)>, marks: Vec<Mark>) -> Plot {
        let name = "a".to_owned();
        Plot {
            x: Axis::linear("s", 0.0, 10.0),
            y: Axis::linear("ops", 0.0, 10.0),
            series: vec![Series { name, ink: Ink::Series(0), points, filled: true }],
            marks,
            dots: false,
        }
    }

    #[test]
    fn a_missing_value_breaks_the_line() {
        let points = vec![(0.0, Some(1.0)), (1.0, Some(2.0)), (2.0, None), (3.0, Some(3.0))];
        let drawing = plot(points, Vec::new()).draw();
        let line = drawing.shapes.iter().find_map(|shape| match shape {
            Shape::Path { path, title, .. } if title == "a" => Some(path),
            _ => None,
        });
        let pieces: Vec<usize> =
            line.expect("the line").0.iter().map(|(points, _)| points.len()).collect();
        assert_eq!(pieces, [2, 1]);
    }

    #[test]
    fn names_have_bars_side_by_side() {
        let series = |index, y| Series {
            name: format!("s{index}"),
            ink: Ink::Series(index),
            points: vec![(0.0, Some(y)), (1.0, None)],
            filled: false,
        };
        let plot = Plot {
            x: Axis::named("which", vec!["one".to_owned(), "two".to_owned()]),
            series: vec![series(0, 5.0), series(1, 10.0)],
            ..plot(Vec::new(), Vec::new())
        };
        let drawing = plot.draw();
        let bars: Vec<&Path> = drawing
            .shapes
            .iter()
            .filter_map(|shape| match shape {
                Shape::Path { path, title, .. } if title.starts_with('s') => Some(path),
                _ => None,
            })
            .collect();
        let corner = |bar: usize| bars[bar].0[0].0[0];
        assert_eq!((bars.len(), bars[0].0.len()), (2, 1), "a missing value has no bar");
        let ((left, half), (right, whole)) = (corner(0), corner(1));
        assert!(left < right && right < LEFT + (WIDTH - LEFT) / 2.0);
        assert!((plot.bottom() - half) * 2.0 == plot.bottom() - whole);
        let svg = drawing.alone();
        assert!(svg.contains(">one</text>") && svg.contains(">two</text>"));
    }

    fn mark(from: f64, to: Option<f64>, label: &str) -> Mark {
        Mark { from, to, label: label.to_owned() }
    }

    #[test]
    fn what_lasted_is_a_band_of_its_length() {
        let drawing =
            plot(Vec::new(), vec![mark(2.0, Some(5.0), "cut"), mark(8.0, None, "x")]).draw();
        let bands: Vec<f64> = drawing
            .shapes
            .iter()
            .filter_map(|shape| match shape {
                Shape::Path { path, look, .. } if look.fill == Some(Ink::Mark) => {
                    let points = &path.0[0].0;
                    Some(points[1].0 - points[0].0)
                }
                _ => None,
            })
            .collect();
        assert_eq!(bands.len(), 1);
        assert!((bands[0] / (0.3 * (WIDTH - LEFT - RIGHT)) - 1.0).abs() < 1e-9, "{bands:?}");
    }

    /// A label's line of writing, its start and its end.
    type Written = (f64, f64, f64);

    /// The labels of a plot's marks, and the upper ends of the marks' lines.
    fn labels(plot: &Plot) -> (Vec<Written>, Vec<(f64, f64)>) {
        let (mut boxes, mut lines) = (Vec::new(), Vec::new());
        for shape in plot.draw().shapes {
            match shape {
                Shape::Path { path, look, .. }
                    if look.pen.is_some_and(|pen| pen.ink == Ink::Mark) =>
                {
                    lines.push(path.0[0].0[0]);
                }
                Shape::Words { at: (x, y), words, lettering } if lettering.ink == Ink::Mark => {
                    let width = font::width(&words, lettering.size, false);
                    let start = if lettering.anchor == Anchor::End { x - width } else { x };
                    boxes.push((y, start, start + width));
                }
                _ => {}
            }
        }
        (boxes, lines)
    }

    #[test]
    fn labels_of_marks_touch_nothing() {
        let often = (0..40).map(|index| f64::from(index) / 4.0);
        let often = often.map(|from| mark(from, None, "a leader was stopped")).collect();
        let close = vec![mark(5.0, None, "cut off from c"), mark(6.0, None, "a disk is slow")];
        for (marks, expected) in [(often, 6), (close, 2)] {
            let (boxes, lines) = labels(&plot(Vec::new(), marks));
            assert!(boxes.len() >= expected, "{boxes:?}");
            for (index, a) in boxes.iter().enumerate() {
                assert!(a.1 >= 0.0 && a.2 <= WIDTH, "out of the plot: {a:?}");
                let apart = |b: &Written| a.0 != b.0 || a.2 <= b.1 || b.2 <= a.1;
                assert!(boxes[index + 1..].iter().all(apart), "{a:?} {boxes:?}");
                let crosses = |(x, top): &(f64, f64)| *top < a.0 - 7.5 && a.1 < *x && *x < a.2;
                assert!(!lines.iter().any(crosses), "a line through {a:?}: {lines:?}");
            }
        }
    }
}
