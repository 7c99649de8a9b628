//! What is compared window by window, over the time of the run: plots one below the other, with
//! one time axis and the marks of the run in each. The page gives them the height of two cards.
//!
//! A figure is of its whole window: lines go through the windows' middles, counts are steps as wide
//! as they. A missing figure is a gap.

use std::{io, time::Duration};

use super::{
    drawing::Drawing,
    figure::{self, Figure},
    palette::Ink,
    plot::{Axis, Plot, Series},
    sheets,
};

/// Figures of each window of a run.
#[derive(Debug, Clone)]
pub struct OverTime {
    /// The name of its files, without what follows the dot.
    pub file: String,
    /// Its title.
    pub title: String,
    /// A sentence on how to read it.
    pub about: String,
    /// Begin and end of each window, in the order of time.
    pub windows: Vec<(Duration, Duration)>,
    /// The plots, from the top.
    pub panels: Vec<Panel>,
}

/// One of the plots.
#[derive(Debug, Clone)]
pub struct Panel {
    /// The y axis, with its unit. It begins at 0.
    pub y: &'static str,
    /// How its figures are drawn.
    pub shape: Shape,
    /// What is compared: a name, which is the head of its column too, and a figure for each window.
    pub series: Vec<(String, Vec<Option<f64>>)>,
}

/// How the figures of windows are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// A line from window to window.
    Line,
    /// A step for each window.
    Steps,
}

/// Room between two plots.
const BETWEEN: f64 = 14.0;

impl OverTime {
    /// All plots in one picture. `frame` has the time axis and the marks.
    pub(super) fn figure(&self, frame: &Plot) -> Figure {
        let mut ink = 0;
        let mut plots = Vec::new();
        for panel in &self.panels {
            let series = panel.series.iter().map(|(name, figures)| {
                ink += 1;
                let (points, ink) = (self.points(panel.shape, figures), Ink::Series(ink - 1));
                let filled = panel.shape == Shape::Steps;
                Series { name: name.clone(), ink, points, filled }
            });
            let series: Vec<Series> = series.collect();
            let figures = series.iter().flat_map(|one| &one.points).filter_map(|(_, y)| *y);
            let highest = figures.fold(0.0, f64::max);
            let y = Axis::linear(panel.y, 0.0, highest * 1.1);
            plots.push(Plot { y, series, ..frame.clone() });
        }
        let drawings: Vec<Drawing> = plots.iter().map(Plot::draw).collect();
        let width = drawings.iter().map(|drawing| drawing.width).fold(0.0, f64::max);
        let height: f64 = drawings.iter().map(|drawing| drawing.height + BETWEEN).sum();
        let mut all = Drawing::new(width, (height - BETWEEN).max(1.0), &self.title);
        let mut top = 0.0;
        for drawing in &drawings {
            all.put((0.0, top), drawing);
            top += drawing.height + BETWEEN;
        }
        let series = plots.iter().flat_map(|plot| &plot.series);
        let legend = series.map(|series| (series.name.clone(), series.ink)).collect();
        Figure {
            room: figure::Room::Tall,
            drawing: all,
            legend,
            ..Figure::plot(&self.file, &self.title, &self.about, frame)
        }
    }

    fn points(&self, shape: Shape, figures: &[Option<f64>]) -> Vec<(f64, Option<f64>)> {
        let ends = self.windows.iter().map(|(from, to)| (from.as_secs_f64(), to.as_secs_f64()));
        let each = ends.zip(figures);
        match shape {
            Shape::Line => each.map(|((from, to), y)| (f64::midpoint(from, to), *y)).collect(),
            Shape::Steps => each.flat_map(|((from, to), y)| [(from, *y), (to, *y)]).collect(),
        }
    }

    /// One row a window; a missing figure is an empty cell.
    pub(super) fn sheet(&self) -> io::Result<Vec<u8>> {
        let series = || self.panels.iter().flat_map(|panel| &panel.series);
        let names = series().map(|(name, _)| name.as_str());
        let header: Vec<&str> = ["from_s", "to_s"].into_iter().chain(names).collect();
        let rows = self.windows.iter().enumerate().map(|(index, (from, to))| {
            let ends = [from, to].map(|end| format!("{:.3}", end.as_secs_f64()));
            let figure = |figures: &[Option<f64>]| {
                let figure = figures.get(index).copied().flatten();
                figure.map(|figure| format!("{figure:.3}")).unwrap_or_default()
            };
            ends.into_iter().chain(series().map(|(_, figures)| figure(figures))).collect()
        });
        sheets::sheet::<String>(&header, rows)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Two lines over steps; the second window has no operations.
    pub(in super::super) fn over_time() -> OverTime {
        let second = Duration::from_secs(1);
        let ends = [(0, 2), (2, 4), (4, 5)];
        let series = |name: &str, figures: [Option<f64>; 3]| (name.to_owned(), figures.to_vec());
        OverTime {
            file: "records".to_owned(),
            title: "Records & moves".to_owned(),
            about: "Each window.".to_owned(),
            windows: ends.map(|(from, to)| (from * second, to * second)).to_vec(),
            panels: vec![
                Panel {
                    y: "ms",
                    shape: Shape::Line,
                    series: vec![
                        series("near, ms", [Some(40.0), None, Some(12.5)]),
                        series("far, ms", [Some(40.0), None, Some(45.0)]),
                    ],
                },
                Panel {
                    y: "groups",
                    shape: Shape::Steps,
                    series: vec![series("moves", [Some(3.0), Some(0.0), Some(1.0)])],
                },
            ],
        }
    }

    fn frame() -> Plot {
        Plot {
            x: Axis::linear("seconds", 0.0, 5.0),
            y: Axis::linear("", 0.0, 1.0),
            series: Vec::new(),
            marks: Vec::new(),
            dots: false,
        }
    }

    #[test]
    fn a_window_without_operations_is_a_gap_and_no_moves_are_a_zero() {
        let over_time = over_time();
        let [lines, steps] = [&over_time.panels[0], &over_time.panels[1]];
        assert_eq!(
            over_time.points(lines.shape, &lines.series[0].1),
            [(1.0, Some(40.0)), (3.0, None), (4.5, Some(12.5))]
        );
        let steps = over_time.points(steps.shape, &steps.series[0].1);
        assert_eq!(steps[2..4], [(2.0, Some(0.0)), (4.0, Some(0.0))]);
        let csv = String::from_utf8(over_time.sheet().unwrap()).unwrap();
        assert_eq!(
            csv,
            "from_s,to_s,\"near, ms\",\"far, ms\",moves\n\
             0.000,2.000,40.000,40.000,3.000\n\
             2.000,4.000,,,0.000\n\
             4.000,5.000,12.500,45.000,1.000\n"
        );
    }

    #[test]
    fn plots_are_one_below_the_other_and_each_series_has_its_colour() {
        let (figure, one) = (over_time().figure(&frame()), frame().draw());
        assert!(figure.drawing.height > 2.0 * one.height && figure.drawing.width == one.width);
        let legend: Vec<(&str, Ink)> =
            figure.legend.iter().map(|(name, ink)| (name.as_str(), *ink)).collect();
        let ink = Ink::Series;
        assert_eq!(legend, [("near, ms", ink(0)), ("far, ms", ink(1)), ("moves", ink(2))]);
        let bare = OverTime { windows: Vec::new(), panels: Vec::new(), ..over_time() };
        let svg = bare.figure(&frame()).drawing.alone();
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }
}
