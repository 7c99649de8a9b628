//! What was published about the figures in words, what the same comparison gives here, and whether
//! the statement came out.
//!
//! A statement comes out if its number is met within [`APART_MAX`] points of a percentage, or its
//! range; words have numbers too: "constant" and "minimal" are at most [`CONSTANT_MAX`] percent,
//! "large" is at least [`LARGE_MIN`], "slightly" at most [`SLIGHTLY_MAX`], "linear" is an R² of at
//! least [`LINEAR_MIN`] against the rate, and at least [`LINEAR_MIN`] of as many times more as
//! there are clients. Which one is ahead, with another distance, is listed separately from no.
//!
//! A rate that was not reached is not compared: what waits grows for as long as the run lasts, and
//! its latency only shows how long that was.

use crate::paper::edgekv::experiment::figure::Figure;
use crate::paper::edgekv::{Keys, Measured, Results, Setting, Size};

/// By how many points a percentage may differ from the published one.
const APART_MAX: f64 = 5.0;
/// Percent that are no change.
const CONSTANT_MAX: f64 = 10.0;
/// Percent that are a large change.
const LARGE_MIN: f64 = 50.0;
/// Percent that are a slight one.
const SLIGHTLY_MAX: f64 = 20.0;
/// The least share of a straight line.
const LINEAR_MIN: f64 = 0.9;
/// A rate is reached with so much of it.
const REACHED_MIN: f64 = 0.95;

/// What was published about a figure, and what came out here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What is compared.
    pub what: &'static str,
    /// The paper's statement.
    pub published: &'static str,
    /// What the same comparison gives here, with the paper's way of requests.
    pub here: String,
    /// Whether that is what was published.
    pub came_out: CameOut,
    /// The same with ours in the place of the paper's edge; empty: that is the same.
    pub ours: String,
}

/// Whether a published statement came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CameOut {
    /// As it was published.
    Yes,
    /// The same one is ahead, or grows, by another measure.
    Direction,
    /// No.
    No,
    /// The runs do not show it.
    Untested,
}

impl CameOut {
    /// As a short text.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            CameOut::Yes => "yes",
            CameOut::Direction => "direction only",
            CameOut::No => "no",
            CameOut::Untested => "not tested",
        }
    }
}

/// The line of one setting, from left to right.
type Line = Vec<(u32, f64)>;
/// What a comparison gives, as text, and whether it is what was published.
type Compared = (String, CameOut);

/// What was published about a figure, and what came out.
#[must_use]
pub fn of(figure: Figure, results: &Results, size: Size) -> Vec<Finding> {
    let lines = |setting| figure.line(setting, results, size);
    let (edge, cloud, ours) = (lines(Setting::Edge), lines(Setting::Cloud), lines(Setting::Ours));
    let found = |what, published, here: Compared, ours: Option<Compared>| Finding {
        what,
        published,
        here: here.0,
        came_out: here.1,
        ours: ours.map(|(words, _)| words).unwrap_or_default(),
    };
    // A question about the near one and the far one, for both ways of requests.
    let both = |what, published, compare: &dyn Fn(&Line, &Line) -> Compared| {
        let direct = (!ours.is_empty()).then(|| compare(&ours, &cloud));
        found(what, published, compare(&edge, &cloud), direct)
    };
    // A question about the far one alone.
    let far = |what, published, compare: fn(&Line) -> Compared| {
        found(what, published, compare(&cloud), None)
    };
    match figure.number() {
        5 => vec![
            both("edge against cloud, half of it global", "26 % lower", &|near, far| {
                at_half(near, far, -26.0)
            }),
            both("edge: from none global to half", "a large increase", &|near, _| {
                grown(near, 0, 50, |percent| percent >= LARGE_MIN)
            }),
            both("edge: from half global to all", "minimal", &|near, _| {
                grown(near, 50, 100, is_constant)
            }),
        ],
        6 => vec![both("edge against cloud, half of it global", "19 % higher", &|near, far| {
            at_half(near, far, 19.0)
        })],
        7 => vec![
            both("edge against cloud, the three choices", "22 % to 28 % lower", &|near, far| {
                lower(near, far, 22.0, 28.0)
            }),
            both("edge: best with", "latest", &|near, _| best(near, f64::total_cmp)),
        ],
        8 => vec![
            both("edge against cloud, the three choices", "15 % to 28 % higher", &|near, far| {
                higher(near, far, 15.0, 28.0)
            }),
            both("edge: best with", "latest", &|near, _| best(near, |a, b| b.total_cmp(a))),
        ],
        9 => vec![both("edge against cloud, any number", "34 % to 60 % lower", &|near, far| {
            lower(near, far, 34.0, 60.0)
        })],
        10 => vec![both("edge against cloud, any number", "1.5 to 2 times", &|near, far| {
            spread(
                near,
                far,
                |ratio| ratio,
                (1.5, 2.0),
                1.0,
                |low, high| format!("{low:.1} to {high:.1} times"),
            )
        })],
        11 => vec![
            both("edge: from half of the clients to all", "almost constant", &|near, _| {
                last_step(near, is_constant)
            }),
            far("cloud: from half of the clients to all", "24 % higher", |far| {
                last_step(far, |percent| (percent - 24.0).abs() <= APART_MAX)
            }),
        ],
        12 => vec![
            both("edge: from the fewest clients to the most", "almost linear", &|near, _| {
                times(near)
            }),
            far("cloud: from the fewest clients to the most", "almost linear", times),
            both("edge against cloud", "slightly higher", &|near, far| {
                higher(near, far, 0.0, SLIGHTLY_MAX)
            }),
        ],
        _ => {
            let is_reached = |setting| {
                move |place: &u32| {
                    reached(results.get(&figure.point(setting, *place, size)), *place)
                }
            };
            let kept = |setting| -> Line {
                let line = figure.line(setting, results, size).into_iter();
                line.filter(|(place, _)| is_reached(setting)(place)).collect()
            };
            let (edge, cloud, direct) =
                (kept(Setting::Edge), kept(Setting::Cloud), kept(Setting::Ours));
            let places = figure.places(size);
            let lowest = |near: &Line| on_average(near, &cloud);
            let grows = |line: &Line| linear(line, &places);
            vec![
                found(
                    "edge against cloud, on average, at the rates that both reach",
                    "42 % lower",
                    lowest(&edge),
                    Some(lowest(&direct)),
                ),
                found(
                    "edge: from the lowest rate to the highest",
                    "grows linearly",
                    grows(&edge),
                    Some(grows(&direct)),
                ),
                found(
                    "cloud: from the lowest rate to the highest",
                    "grows linearly",
                    grows(&cloud),
                    None,
                ),
            ]
        }
    }
}

/// Whether a machine did as many operations a second as it was asked to.
fn reached(measured: Option<&Measured>, rate_hz: u32) -> bool {
    measured.is_some_and(|measured| measured.rate_hz >= REACHED_MIN * f64::from(rate_hz))
}

fn none() -> Compared {
    ("–".to_owned(), CameOut::Untested)
}

fn at(place: u32, line: &Line) -> Option<f64> {
    line.iter().find(|(there, _)| *there == place).map(|(_, value)| *value)
}

fn ratios<'a>(near: &'a Line, far: &'a Line) -> impl Iterator<Item = f64> + 'a {
    near.iter().filter_map(|(place, value)| Some(*value / at(*place, far)?))
}

fn percent(ratio: f64) -> f64 {
    100.0 * (ratio - 1.0)
}

fn is_constant(percent: f64) -> bool {
    percent.abs() <= CONSTANT_MAX
}

/// A ratio as text.
pub(in crate::paper::edgekv) fn change(ratio: f64) -> String {
    let percent = percent(ratio);
    match percent < 0.0 {
        true => format!("{:.0} % lower", -percent),
        false => format!("{percent:.0} % higher"),
    }
}

/// A ratio beside a published change in percent.
fn beside(ratio: f64, published: f64) -> CameOut {
    let percent = percent(ratio);
    match (percent - published).abs() <= APART_MAX {
        true => CameOut::Yes,
        false if percent * published > 0.0 => CameOut::Direction,
        false => CameOut::No,
    }
}

fn at_half(near: &Line, far: &Line, published: f64) -> Compared {
    let half = at(50, near).zip(at(50, far));
    half.map_or_else(none, |(near, far)| (change(near / far), beside(near / far, published)))
}

fn grown(line: &Line, from: u32, to: u32, is_it: fn(f64) -> bool) -> Compared {
    at(from, line).zip(at(to, line)).map_or_else(none, |(from, to)| step(from, to, is_it))
}

/// From the last place but one to the last.
fn last_step(line: &Line, is_it: fn(f64) -> bool) -> Compared {
    match line.as_slice() {
        [.., (_, before), (_, last)] => step(*before, *last, is_it),
        _ => none(),
    }
}

fn step(from: f64, to: f64, is_it: fn(f64) -> bool) -> Compared {
    let came_out = match is_it(percent(to / from)) {
        true => CameOut::Yes,
        false => CameOut::No,
    };
    (change(to / from), came_out)
}

fn lower(near: &Line, far: &Line, least: f64, most: f64) -> Compared {
    spread(
        near,
        far,
        |ratio| -percent(ratio),
        (least, most),
        0.0,
        |low, high| span(low, high, "lower"),
    )
}

fn higher(near: &Line, far: &Line, least: f64, most: f64) -> Compared {
    spread(near, far, percent, (least, most), 0.0, |low, high| span(low, high, "higher"))
}

/// The lowest and the highest of a comparison over all places, beside the published ones. `ahead`:
/// above it the near one is ahead.
fn spread(
    near: &Line,
    far: &Line,
    of: fn(f64) -> f64,
    (least, most): (f64, f64),
    ahead: f64,
    words: fn(f64, f64) -> String,
) -> Compared {
    let all: Vec<f64> = ratios(near, far).map(of).collect();
    let low = all.iter().copied().fold(f64::INFINITY, f64::min);
    let high = all.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if all.is_empty() {
        return none();
    }
    // A ratio is apart by hundredths of what percentages are apart by.
    let apart = if ahead == 0.0 { APART_MAX } else { APART_MAX / 100.0 };
    let came_out = match (low > ahead, low >= least - apart && high <= most + apart) {
        (true, true) => CameOut::Yes,
        (true, false) => CameOut::Direction,
        (false, _) => CameOut::No,
    };
    (words(low, high), came_out)
}

fn span(from: f64, to: f64, word: &str) -> String {
    match from.round() == to.round() {
        true => format!("{from:.0} % {word}"),
        false => format!("{from:.0} % to {to:.0} % {word}"),
    }
}

fn times(line: &Line) -> Compared {
    match line.as_slice() {
        [(few, first), .., (many, last)] => {
            let clients = f64::from(*many) / f64::from(*few);
            let came_out = match last / first {
                times if times >= LINEAR_MIN * clients => CameOut::Yes,
                times if times > 1.0 => CameOut::Direction,
                _ => CameOut::No,
            };
            (format!("{:.1} times, of {clients}", last / first), came_out)
        }
        _ => none(),
    }
}

/// The choice of keys that comes first in this order; none does if all are within two percent.
fn best(line: &Line, order: impl Fn(&f64, &f64) -> std::cmp::Ordering) -> Compared {
    let lowest = line.iter().map(|(_, value)| *value).fold(f64::INFINITY, f64::min);
    let highest = line.iter().map(|(_, value)| *value).fold(0.0, f64::max);
    match line.iter().min_by(|a, b| order(&a.1, &b.1)) {
        Some(_) if highest <= 1.02 * lowest => ("all alike".to_owned(), CameOut::No),
        Some((place, _)) => match Keys::ALL[*place as usize % Keys::ALL.len()] {
            Keys::Latest => (Keys::Latest.to_string(), CameOut::Yes),
            other => (other.to_string(), CameOut::No),
        },
        None => none(),
    }
}

fn on_average(near: &Line, far: &Line) -> Compared {
    let all: Vec<f64> = ratios(near, far).collect();
    let mean = all.iter().sum::<f64>() / all.len().max(1) as f64;
    let places: Vec<String> = near
        .iter()
        .filter(|(place, _)| at(*place, far).is_some())
        .map(|(place, _)| place.to_string())
        .collect();
    match places.as_slice() {
        [] => ("no rate is reached by both".to_owned(), CameOut::Untested),
        _ => (format!("{} (at {})", change(mean), places.join(", ")), beside(mean, -42.0)),
    }
}

/// Whether a line over rates is straight and rises; of `places` those that were reached are in it.
fn linear(line: &Line, places: &[u32]) -> Compared {
    let [first, .., last] = line.as_slice() else {
        return ("fewer than two rates are reached".to_owned(), CameOut::Untested);
    };
    let words = match line.len() == places.len() {
        true => change(last.1 / first.1),
        false => {
            format!("{} up to {}, the highest rate reached", change(last.1 / first.1), last.0)
        }
    };
    let came_out = match (line.len(), last.1 > first.1) {
        // Two points are on a line always.
        (..3, _) => CameOut::Untested,
        (_, true) if determination(line) >= LINEAR_MIN => CameOut::Yes,
        (_, true) => CameOut::Direction,
        (_, false) => CameOut::No,
    };
    (words, came_out)
}

/// R² of the straight line through these points.
fn determination(line: &Line) -> f64 {
    let count = line.len() as f64;
    let mean = |of: fn(&(u32, f64)) -> f64| line.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|point| f64::from(point.0)), mean(|point| point.1));
    let sum = |of: &dyn Fn(f64, f64) -> f64| -> f64 {
        line.iter().map(|point| of(f64::from(point.0) - x, point.1 - y)).sum()
    };
    let (xx, yy) = (sum(&|dx, _| dx * dx), sum(&|_, dy| dy * dy));
    let xy = sum(&|dx, dy| dx * dy);
    if xx * yy == 0.0 { 0.0 } else { xy * xy / (xx * yy) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paper::edgekv::Point;

    /// Every point gets what `measure` returns.
    fn results(figure: Figure, measure: impl Fn(&Point) -> (f64, f64)) -> Results {
        let measured = |point: Point| {
            let (write_ms, writes_s) = measure(&point);
            (point, Measured { write_ms, writes_s, ..Measured::default() })
        };
        figure.points(Size::Paper).map(measured).collect()
    }

    fn by_setting(point: &Point) -> f64 {
        match point.setting {
            Setting::Edge => 74.0,
            Setting::Cloud => 100.0,
            Setting::Ours | Setting::Cached | Setting::Stale => 40.0,
        }
    }

    #[test]
    fn findings_are_the_ratios_in_their_text() {
        let five = Figure::new(5).unwrap();
        let found = results(five, |point| {
            (by_setting(point) * if point.global_percent == 0 { 0.5 } else { 1.0 }, 0.0)
        });
        let findings = of(five, &found, Size::Paper);
        assert_eq!(
            (findings[0].here.as_str(), findings[0].ours.as_str()),
            ("26 % lower", "60 % lower")
        );
        assert_eq!(
            (findings[1].here.as_str(), findings[2].here.as_str()),
            ("100 % higher", "0 % higher")
        );
        let nine = Figure::new(9).unwrap();
        let found = results(nine, |point| (by_setting(point) - point.threads as f64 / 100.0, 0.0));
        let finding = of(nine, &found, Size::Paper).remove(0);
        assert_eq!((finding.here.as_str(), finding.ours.as_str()), ("26 % to 32 % lower", ""));
        let twelve = Figure::new(12).unwrap();
        let found = results(twelve, |point| (0.0, 2.0 * point.threads as f64));
        let findings = of(twelve, &found, Size::Paper);
        assert_eq!(findings[0].here, "20.0 times, of 20");
        let eight = Figure::new(8).unwrap();
        let best = |point: &Point| if point.keys == Keys::Latest { 2.0 } else { 1.0 };
        let found = results(eight, |point| (0.0, best(point)));
        assert_eq!(of(eight, &found, Size::Paper)[1].here, "latest");
        let found = results(eight, |point| (0.0, by_setting(point)));
        let findings = of(eight, &found, Size::Paper);
        assert_eq!(
            (findings[0].ours.as_str(), findings[1].here.as_str()),
            ("-60 % higher", "all alike")
        );
    }

    #[test]
    fn without_results_there_are_no_findings() {
        for figure in Figure::all() {
            for finding in of(figure, &Results::new(), Size::Paper) {
                assert_eq!(finding.came_out, CameOut::Untested, "{figure:?}: {finding:?}");
            }
        }
    }

    /// Figure 13 with these latencies at each rate, and with the cloud's rates reached up to one.
    fn thirteen(edge_ms: impl Fn(u32) -> f64, cloud_to: u32) -> Vec<Finding> {
        let figure = Figure::new(13).unwrap();
        let measured = |point: Point| {
            let asked = point.rate_hz.unwrap();
            let is_near = point.setting != Setting::Cloud;
            let write_due_ms = if is_near { edge_ms(asked) } else { 2.0 * edge_ms(asked) };
            let reached = if is_near { asked } else { asked.min(cloud_to) };
            let rate_hz = f64::from(reached);
            (point, Measured { write_due_ms, rate_hz, ..Measured::default() })
        };
        of(figure, &figure.points(Size::Paper).map(measured).collect(), Size::Paper)
    }

    #[test]
    fn of_rates_that_are_not_reached_nothing_is_said() {
        let came_out = |findings: &[Finding]| -> Vec<CameOut> {
            findings.iter().map(|finding| finding.came_out).collect()
        };
        let all = thirteen(f64::from, 1_000);
        assert_eq!(came_out(&all), [CameOut::Direction, CameOut::Yes, CameOut::Yes]);
        assert_eq!(all[0].here, "50 % lower (at 200, 400, 600, 800, 1000)");
        let some = thirteen(f64::from, 450);
        assert_eq!(came_out(&some), [CameOut::Direction, CameOut::Yes, CameOut::Untested]);
        assert_eq!(some[0].here, "50 % lower (at 200, 400)");
        assert_eq!(some[2].here, "100 % higher up to 400, the highest rate reached");
        assert_eq!(thirteen(f64::from, 100)[0].came_out, CameOut::Untested);
        let bent = thirteen(|rate| if rate < 1_000 { 10.0 } else { 1_000.0 }, 1_000);
        assert_eq!(bent[1].came_out, CameOut::Direction);
        assert_eq!(thirteen(|rate| 2_000.0 - f64::from(rate), 1_000)[1].came_out, CameOut::No);
    }

    #[test]
    fn a_number_comes_out_within_its_points_and_else_by_its_direction() {
        assert_eq!(beside(0.74, -26.0), CameOut::Yes);
        assert_eq!(beside(0.70, -26.0), CameOut::Yes);
        assert_eq!(beside(0.60, -26.0), CameOut::Direction);
        assert_eq!(beside(1.02, -26.0), CameOut::No);
        let line = |values: [f64; 2]| vec![(1, values[0]), (2, values[1])];
        let far = line([100.0, 100.0]);
        assert_eq!(lower(&line([75.0, 73.0]), &far, 22.0, 28.0).1, CameOut::Yes);
        assert_eq!(lower(&line([75.0, 50.0]), &far, 22.0, 28.0).1, CameOut::Direction);
        assert_eq!(lower(&line([75.0, 101.0]), &far, 22.0, 28.0).1, CameOut::No);
        assert_eq!(times(&line([1.0, 1.9])).1, CameOut::Yes);
        assert_eq!(times(&line([1.0, 1.5])).1, CameOut::Direction);
    }
}
