//! Line plots as inline SVG.
//!
//! Axes get round ticks (1, 2 or 5 times a power of ten; on a logarithmic axis the powers). Colours
//! are classes, so that the page's style decides them. A series is broken where a value is missing.

use std::fmt::Write as _;

use super::escaped;

const WIDTH: f64 = 540.0;
const HEIGHT: f64 = 236.0;
const LEFT: f64 = 44.0;
const RIGHT: f64 = 12.0;
/// Room for the labels of marks, in rows.
const TOP: f64 = 34.0;
const MARK_ROWS: usize = 2;
const MARK_ROW: f64 = 13.0;
const BOTTOM: f64 = 34.0;

/// One axis: its range and what to write beside it.
#[derive(Debug, Clone)]
pub(super) struct Axis {
    label: &'static str,
    from: f64,
    to: f64,
    logarithmic: bool,
}

impl Axis {
    pub(super) fn linear(label: &'static str, from: f64, to: f64) -> Self {
        let to = if to > from { to } else { from + 1.0 };
        Self { label, from, to, logarithmic: false }
    }

    /// From one power of ten to another, so as to hold both ends.
    pub(super) fn logarithmic(label: &'static str, from: f64, to: f64) -> Self {
        let from = 10_f64.powf(from.max(1e-3).log10().floor());
        let to = 10_f64.powf(to.max(from * 10.0).log10().ceil());
        Self { label, from, to, logarithmic: true }
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
    /// The class of its colour.
    pub(super) class: &'static str,
    /// A missing y breaks the line.
    pub(super) points: Vec<(f64, Option<f64>)>,
    /// Whether to shade down to the axis.
    pub(super) filled: bool,
}

/// A plot to be drawn.
#[derive(Debug, Clone)]
pub(super) struct Plot {
    pub(super) x: Axis,
    pub(super) y: Axis,
    pub(super) series: Vec<Series>,
    /// Vertical lines with a label.
    pub(super) marks: Vec<(f64, String)>,
}

impl Plot {
    pub(super) fn svg(&self) -> String {
        let mut svg = format!(
            "<svg class=\"plot\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{} over {}\">",
            escaped(self.y.label),
            escaped(self.x.label)
        );
        self.axes(&mut svg);
        for series in &self.series {
            self.line(&mut svg, series);
        }
        self.marks(&mut svg);
        svg.push_str("</svg>");
        svg
    }

    fn place(&self, x: f64, y: f64) -> (f64, f64) {
        (
            LEFT + self.x.fraction(x) * (WIDTH - LEFT - RIGHT),
            HEIGHT - BOTTOM - self.y.fraction(y) * (HEIGHT - TOP - BOTTOM),
        )
    }

    fn axes(&self, svg: &mut String) {
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        for tick in self.y.ticks() {
            let (_, y) = self.place(self.x.from, tick);
            let _ = write!(
                svg,
                "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{right}\"/>\
                 <text class=\"tick end\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                LEFT - 7.0,
                y + 4.0,
                number(tick)
            );
        }
        for tick in self.x.ticks() {
            let (x, _) = self.place(tick, self.y.from);
            let _ = write!(
                svg,
                "<path class=\"grid\" d=\"M{x:.1} {bottom}v5\"/>\
                 <text class=\"tick middle\" x=\"{x:.1}\" y=\"{:.1}\">{}</text>",
                bottom + 18.0,
                number(tick)
            );
        }
        let _ = write!(
            svg,
            "<path class=\"axis\" d=\"M{LEFT} {bottom}H{right}\"/>\
             <text class=\"label end\" x=\"{right}\" y=\"{:.1}\">{}</text>\
             <text class=\"label\" x=\"0\" y=\"11\">{}</text>",
            HEIGHT - 2.0,
            escaped(self.x.label),
            escaped(self.y.label)
        );
    }

    fn line(&self, svg: &mut String, series: &Series) {
        let (mut line, mut area) = (String::new(), String::new());
        for run in series.points.split(|(_, y)| y.is_none()).filter(|run| !run.is_empty()) {
            let places: Vec<(f64, f64)> =
                run.iter().map(|(x, y)| self.place(*x, y.unwrap_or_default())).collect();
            for (index, (x, y)) in places.iter().enumerate() {
                let _ = write!(line, "{}{x:.1} {y:.1}", if index == 0 { 'M' } else { 'L' });
            }
            if places.len() == 1 {
                // A line of no length with round caps is a dot.
                line.push_str("h0");
            }
            if series.filled {
                let bottom = HEIGHT - BOTTOM;
                let _ = write!(area, "M{:.1} {bottom}", places[0].0);
                for (x, y) in &places {
                    let _ = write!(area, "L{x:.1} {y:.1}");
                }
                let _ = write!(area, "V{bottom}Z");
            }
        }
        if !area.is_empty() {
            let _ = write!(svg, "<path class=\"area {}\" d=\"{area}\"/>", series.class);
        }
        if !line.is_empty() {
            let _ = write!(
                svg,
                "<path class=\"line {}\" d=\"{line}\"><title>{}</title></path>",
                series.class,
                escaped(&series.name)
            );
        }
    }

    /// Marks carry their label above the plot, to the side with more room; a label that would touch
    /// others in every row is left out, and its line stays. Rows fill from the top, so that a later
    /// mark, whose line is shorter, does not cross an earlier label.
    fn marks(&self, svg: &mut String) {
        let mut taken: [Vec<(f64, f64)>; MARK_ROWS] = Default::default();
        for (x, label) in &self.marks {
            let (x, _) = self.place(*x, self.y.from);
            let width = label.chars().count() as f64 * 6.3 + 6.0;
            let to_left = x > WIDTH * 0.55;
            let (start, end) = if to_left { (x - width, x) } else { (x, x + width) };
            let row = taken
                .iter()
                .rposition(|row| row.iter().all(|(from, to)| end <= *from || *to <= start));
            let top = TOP - row.map_or(0.0, |row| MARK_ROW * row as f64 + 10.0);
            let _ = write!(svg, "<path class=\"mark\" d=\"M{x:.1} {top}V{}\"/>", HEIGHT - BOTTOM);
            let Some(row) = row else { continue };
            taken[row].push((start, end));
            let (anchor, offset) = if to_left { ("end", -4.0) } else { ("start", 4.0) };
            let _ = write!(
                svg,
                "<text class=\"note {anchor}\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                x + offset,
                top + 7.0,
                escaped(label)
            );
        }
    }

    /// The names of the series with their colours, as HTML.
    pub(super) fn legend(&self) -> String {
        let mut html = "<p class=\"legend\">".to_owned();
        for Series { name, class, .. } in &self.series {
            let _ = write!(html, "<span><i class=\"{class}\"></i>{}</span>", escaped(name));
        }
        html.push_str("</p>");
        html
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

    #[test]
    fn a_missing_value_breaks_the_line() {
        let plot = Plot {
            x: Axis::linear("s", 0.0, 4.0),
            y: Axis::linear("ops", 0.0, 10.0),
            series: vec![Series {
                name: "a".to_owned(),
                class: "c1",
                points: vec![(0.0, Some(1.0)), (1.0, Some(2.0)), (2.0, None), (3.0, Some(3.0))],
                filled: false,
            }],
            marks: Vec::new(),
        };
        let svg = plot.svg();
        let line = svg.split("class=\"line c1\" d=\"").nth(1).unwrap().split('"').next().unwrap();
        assert_eq!(line.matches('M').count(), 2, "{line}");
        assert!(line.ends_with("h0"), "a lone point is a dot: {line}");
    }
}
