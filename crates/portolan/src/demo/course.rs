//! How a run went, window by window: the median of both kinds of records, and the groups moved.
//!
//! The latency of what follows falls as the records come to their vehicles; that of what is placed
//! by hash, in the same windows, does not. Windows become longer as the run does ([`Windows`]).

use std::time::Duration;

use lab::{
    measure::windows::{Window, Windows},
    report::{OverTime, Panel, Shape},
};
use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    style::Color,
    text::Line,
    widgets::Sparkline,
};

use super::{comparison::NAMES, records::Kind};

/// How long windows are at first.
pub(super) const SHORTEST: Duration = Duration::from_secs(2);
/// Rows of [`Course::draw`].
pub(super) const ROWS: u16 = 3;
/// Columns of the names and of the figures beside the sparklines.
const NAME: u16 = 12;
const FIGURE: u16 = 8;
/// Steps of a sparkline's bar.
const STEPS: u64 = 8;

/// The run so far; windows in the order of time, the last one not over.
#[derive(Debug, Clone)]
pub(super) struct Course {
    length: Duration,
    windows: Vec<Window>,
}

impl Course {
    /// What is counted by now: the medians of [`Kind::BOTH`], and moves.
    pub(super) fn of(windows: &Windows) -> Self {
        Self { length: windows.length(), windows: windows.all() }
    }

    /// As [`Course::of`], of windows that are already there.
    #[cfg(test)]
    pub(super) fn made_up(length: Duration, windows: Vec<Window>) -> Self {
        Self { length, windows }
    }

    /// How long each window is.
    pub(super) fn window(&self) -> String {
        format!("{} s", self.length.as_secs())
    }

    /// The newest window that is over.
    pub(super) fn newest_whole(&self) -> Option<&Window> {
        self.windows.iter().rev().find(|window| window.to - window.from == self.length)
    }

    /// Both medians and the moves as rows of sparklines; of windows that there is no room for, the
    /// newest. A window without operations is empty, any other median is at least the lowest bar.
    pub(super) fn draw(&self, frame: &mut Frame<'_>, area: Rect) {
        let rows = Layout::vertical([Constraint::Length(1); ROWS as usize]).areas::<3>(area);
        let columns = [Constraint::Length(NAME), Constraint::Fill(1), Constraint::Length(FIGURE)];
        let of_rows = rows.map(|row| Layout::horizontal(columns).areas::<3>(row));
        let shown = usize::from(of_rows[0][1].width);
        let windows = &self.windows[self.windows.len().saturating_sub(shown)..];
        let [follows, hashed] = Kind::BOTH.map(|kind| {
            let medians = windows.iter().map(|window| window.medians_ms[kind.index()]);
            medians.map(|ms| ms.map(|ms| (ms * 1_000.0) as u64)).collect::<Vec<_>>()
        });
        let newest = |medians: &[Option<u64>]| {
            let newest = medians.iter().rev().flatten().next();
            newest.map_or("–".to_owned(), |us| format!("{:.0} ms", *us as f64 / 1_000.0))
        };
        let moves: Vec<Option<u64>> = windows.iter().map(|window| Some(window.count)).collect();
        let last = windows.last().map_or(0, |window| window.count).to_string();
        let highest = |of: &[&[Option<u64>]]| {
            of.iter().flat_map(|one| one.iter().flatten()).copied().max().unwrap_or(1).max(1)
        };
        let (slowest, most) = (highest(&[&follows, &hashed]), highest(&[&moves]));
        let (one, other) = (newest(&follows), newest(&hashed));
        let per_window = format!("groups/{}", self.window());
        let lines = [
            ("p50 follows", follows, slowest, one, Color::Green),
            ("p50 by hash", hashed, slowest, other, Color::Yellow),
            (per_window.as_str(), moves, most, last, Color::Cyan),
        ];
        for ([left, middle, right], (name, figures, max, figure, color)) in
            of_rows.into_iter().zip(lines)
        {
            let seen = |figure: u64| if figure > 0 { figure.max(max.div_ceil(STEPS)) } else { 0 };
            let bars = figures.into_iter().map(|figure| figure.map(seen));
            frame.render_widget(Line::from(name), left);
            frame.render_widget(
                Sparkline::default().data(bars.collect::<Vec<_>>()).max(max).style(color),
                middle,
            );
            frame.render_widget(Line::from(figure).right_aligned(), right);
        }
    }

    /// Both medians and the moves as plots of the report, and as a sheet.
    pub(super) fn over_time(&self) -> OverTime {
        let median = |kind: Kind| {
            let name = format!("{}, p50 ms", NAMES[kind.index()]);
            (name, self.windows.iter().map(|window| window.medians_ms[kind.index()]).collect())
        };
        let moves = self.windows.iter().map(|window| Some(window.count as f64)).collect();
        let about = format!(
            "The median of each {} of both kinds of records, used alike in the same run, and the \
             groups of keys that owners moved to their users meanwhile. A gap is a window without \
             operations.",
            self.window()
        );
        OverTime {
            file: "records".to_owned(),
            title: "Records over time".to_owned(),
            about,
            windows: self.windows.iter().map(|window| (window.from, window.to)).collect(),
            panels: vec![
                Panel {
                    y: "ms, median",
                    shape: Shape::Line,
                    series: Kind::BOTH.map(median).to_vec(),
                },
                Panel {
                    y: "groups moved",
                    shape: Shape::Steps,
                    series: vec![("groups moved".to_owned(), moves)],
                },
            ],
        }
    }
}

/// A window in a line.
pub(super) fn text(window: &Window) -> String {
    let (from, to) = (window.from.as_secs(), window.to.as_secs());
    let [follows, hashed] = Kind::BOTH.map(|kind| {
        let median = window.medians_ms[kind.index()];
        median.map_or("–".to_owned(), |ms| format!("{ms:.1} ms"))
    });
    let moves = window.count;
    format!("{from} to {to} s: p50 follows {follows}, by hash {hashed}; groups moved {moves}")
}

#[cfg(test)]
pub(super) mod tests {
    use ratatui::{Terminal, backend::TestBackend};

    use super::*;

    /// Records begin where the hash put them and are moved; the window before the last two has no
    /// operations.
    pub(in super::super) fn falling() -> Course {
        let medians = [Some(1_041.2), Some(800.0), Some(401.0), None, Some(9.5), Some(9.5)];
        let windows = (0_u32..).zip(medians).map(|(place, follows)| Window {
            from: SHORTEST * place,
            to: SHORTEST * place + if place == 5 { SHORTEST / 2 } else { SHORTEST },
            medians_ms: vec![follows, follows.map(|_| 1_041.2)],
            count: [0, 12, 6, 0, 1, 1_234][place as usize],
        });
        Course::made_up(SHORTEST, windows.collect())
    }

    fn rows(course: &Course, width: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, ROWS)).unwrap();
        terminal.draw(|frame| course.draw(frame, frame.area())).unwrap();
        let text = terminal.backend().to_string();
        text.lines().map(|row| row.trim_matches('"').to_owned()).collect()
    }

    #[test]
    fn sparklines_show_the_fall_the_gap_and_the_moves() {
        let shown = [
            "p50 follows █▆▃ ▁▁       10 ms",
            "p50 by hash ███ ██     1041 ms",
            "groups/2 s   ▁▁ ▁█        1234",
        ];
        assert_eq!(rows(&falling(), 30), shown);
    }

    #[test]
    fn the_newest_windows_are_shown_and_nothing_is_shown_of_none() {
        assert_eq!(rows(&falling(), 22)[0], "p50 follows ▁▁   10 ms");
        let none = Course::made_up(SHORTEST, Vec::new());
        assert_eq!(rows(&none, 26)[1].trim_end(), "p50 by hash              –");
        assert!(none.newest_whole().is_none() && none.over_time().windows.is_empty());
        for width in 1..20 {
            rows(&falling(), width);
        }
    }

    #[test]
    fn a_window_in_a_line_and_all_of_them_in_the_report() {
        let course = falling();
        let lines: Vec<String> = course.windows.iter().map(text).collect();
        assert_eq!(lines[1], "2 to 4 s: p50 follows 800.0 ms, by hash 1041.2 ms; groups moved 12");
        assert_eq!(lines[3], "6 to 8 s: p50 follows –, by hash –; groups moved 0");
        assert_eq!(course.newest_whole().map(text).as_ref(), Some(&lines[4]));
        let OverTime { windows, panels, .. } = course.over_time();
        assert_eq!(windows.len(), 6);
        let [medians, moves] = panels.as_slice() else { panic!("two plots") };
        let names: Vec<&str> = medians.series.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["data that follows, p50 ms", "placed by hash, p50 ms"]);
        assert_eq!(medians.series[0].1[2..5], [Some(401.0), None, Some(9.5)]);
        assert_eq!(moves.series[0].1[3], Some(0.0));
    }
}
