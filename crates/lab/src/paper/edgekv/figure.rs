//! The paper's figures: which points make which, and what was published about it.

use super::{Keys, Measured, Point, Results, Setting, Size};

/// One of the figures 5 to 13.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Figure(u8);

/// What a figure is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quantity {
    /// Mean latency of updates.
    Latency,
    /// Updates a second of one client machine.
    Throughput,
}

/// What changes from left to right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Across {
    /// The share of operations on global keys, in percent.
    Global,
    /// How keys are chosen.
    Keys,
    /// Threads of one machine, whose group is alone and keeps its own keys.
    LocalClients,
    /// Threads of each machine, half of whose operations are global.
    Clients,
    /// Operations a second of each machine.
    Rate,
}

/// What was published about a figure, and what came out here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What is compared.
    pub what: String,
    /// What the paper says.
    pub published: &'static str,
    /// What the same comparison gives here, with the paper's way of requests.
    pub here: String,
    /// The same with ours in the place of the paper's edge; empty: that is the same.
    pub ours: String,
}

impl Figure {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Figure> {
        (super::FIGURES.0..=super::FIGURES.1).map(Figure)
    }

    /// The figure of this number in the paper; `None`: it is not one of the evaluation.
    #[must_use]
    pub fn new(number: u8) -> Option<Figure> {
        Figure::all().find(|figure| figure.0 == number)
    }

    /// Its number in the paper.
    #[must_use]
    pub fn number(self) -> u8 {
        self.0
    }

    /// What is measured.
    #[must_use]
    pub fn quantity(self) -> Quantity {
        match self.0 {
            6 | 8 | 10 | 12 => Quantity::Throughput,
            _ => Quantity::Latency,
        }
    }

    /// What changes.
    #[must_use]
    pub fn across(self) -> Across {
        match self.0 {
            5 | 6 => Across::Global,
            7 | 8 => Across::Keys,
            9 | 10 => Across::LocalClients,
            11 | 12 => Across::Clients,
            _ => Across::Rate,
        }
    }

    /// Its title.
    #[must_use]
    pub fn title(self) -> String {
        let quantity = match self.quantity() {
            Quantity::Latency => "write latency",
            Quantity::Throughput => "write throughput",
        };
        let across = match self.across() {
            Across::Global => "by the share of global data",
            Across::Keys => "by the choice of keys, 50 % global",
            Across::LocalClients => "by the number of clients, local keys",
            Across::Clients => "by the number of clients, 50 % global",
            Across::Rate => "by the request rate, 50 % global",
        };
        format!("Figure {}: {quantity} {across}", self.0)
    }

    /// What stands below it from left to right; choices of keys by their place.
    #[must_use]
    pub fn places(self, size: Size) -> Vec<u32> {
        let (paper, quick): (&[u32], &[u32]) = match self.across() {
            Across::Global => (&[0, 25, 50, 75, 100], &[0, 50, 100]),
            Across::Keys => (&[0, 1, 2], &[0, 1, 2]),
            Across::LocalClients | Across::Clients => {
                (&[100, 200, 500, 1_000, 2_000], &[10, 20, 40])
            }
            Across::Rate => (&[200, 400, 600, 800, 1_000], &[40, 80, 160]),
        };
        if size == Size::Paper { paper.to_vec() } else { quick.to_vec() }
    }

    /// A place in words.
    #[must_use]
    pub fn place_words(self, place: u32) -> String {
        match self.across() {
            Across::Keys => Keys::ALL[place as usize % Keys::ALL.len()].to_string(),
            _ => place.to_string(),
        }
    }

    /// What its values are in.
    #[must_use]
    pub fn unit(self) -> &'static str {
        match self.quantity() {
            Quantity::Latency => "ms",
            Quantity::Throughput => "updates a second",
        }
    }

    /// What is told apart. With local keys alone there is no way over gateways.
    #[must_use]
    pub fn settings(self) -> &'static [Setting] {
        match self.across() {
            Across::LocalClients => &[Setting::Edge, Setting::Cloud],
            _ => &Setting::ALL,
        }
    }

    /// The run at a place.
    #[must_use]
    pub fn point(self, setting: Setting, place: u32, size: Size) -> Point {
        let usual = Point::usual(setting, size);
        match self.across() {
            Across::Global => Point { global_percent: place, ..usual },
            Across::Keys => Point { keys: Keys::ALL[place as usize % Keys::ALL.len()], ..usual },
            Across::LocalClients => {
                Point { groups: 1, global_percent: 0, threads: place as usize, ..usual }
            }
            Across::Clients => Point { threads: place as usize, ..usual },
            Across::Rate => Point { rate_hz: Some(place), ..usual },
        }
    }

    /// All its runs.
    pub fn points(self, size: Size) -> impl Iterator<Item = Point> {
        let places = self.places(size).into_iter();
        places.flat_map(move |place| {
            self.settings().iter().map(move |setting| self.point(*setting, place, size))
        })
    }

    /// What it shows of a run.
    #[must_use]
    pub fn value(self, measured: &Measured) -> f64 {
        match self.quantity() {
            Quantity::Latency => measured.write_ms,
            Quantity::Throughput => measured.writes_s,
        }
    }

    /// One of its lines: what was measured at each place.
    #[must_use]
    pub fn line(self, setting: Setting, results: &Results, size: Size) -> Vec<(u32, f64)> {
        let places = self.places(size).into_iter();
        let known = places.filter_map(|place| {
            Some((place, self.value(results.get(&self.point(setting, place, size))?)))
        });
        known.collect()
    }

    /// What was published about it, and what came out.
    #[must_use]
    pub fn findings(self, results: &Results, size: Size) -> Vec<Finding> {
        let line = |setting| self.line(setting, results, size);
        let (edge, cloud, ours) = (line(Setting::Edge), line(Setting::Cloud), line(Setting::Ours));
        // The same for both: a question about the near one and the far one.
        let both = |what: &str, published, told: &dyn Fn(&Line, &Line) -> String| Finding {
            what: what.to_owned(),
            published,
            here: told(&edge, &cloud),
            ours: if ours.is_empty() { String::new() } else { told(&ours, &cloud) },
        };
        let half = |near: &Line, far: &Line| at(50, near).zip(at(50, far));
        let of_half = |told: fn(f64, f64) -> String| {
            move |near: &Line, far: &Line| half(near, far).map_or_else(none, |(a, b)| told(a, b))
        };
        let lowest_to_highest = |told: fn(f64, f64) -> f64, words: fn(f64, f64) -> String| {
            move |near: &Line, far: &Line| {
                let all: Vec<f64> = pairs(near, far).map(|(a, b)| told(a, b)).collect();
                let lowest = all.iter().copied().fold(f64::INFINITY, f64::min);
                let highest = all.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                if all.is_empty() { none() } else { words(lowest, highest) }
            }
        };
        match self.0 {
            5 => vec![
                both(
                    "edge against cloud, half of it global",
                    "26 % lower",
                    &of_half(|a, b| change(a / b)),
                ),
                both("edge: from none global to half", "a large increase", &|near, _| {
                    grown(near, 0, 50)
                }),
                both("edge: from half global to all", "minimal", &|near, _| grown(near, 50, 100)),
            ],
            6 => vec![both(
                "edge against cloud, half of it global",
                "19 % higher",
                &of_half(|a, b| change(a / b)),
            )],
            7 => vec![
                both("edge against cloud, the three choices", "22 % to 28 % lower", &{
                    lowest_to_highest(|a, b| 100.0 * (1.0 - a / b), lower)
                }),
                both("edge: best with", "latest", &|near, _| best(near, f64::total_cmp)),
            ],
            8 => vec![
                both("edge against cloud, the three choices", "15 % to 28 % higher", &{
                    lowest_to_highest(|a, b| 100.0 * (a / b - 1.0), higher)
                }),
                both("edge: best with", "latest", &|near, _| best(near, |a, b| b.total_cmp(a))),
            ],
            9 => vec![both("edge against cloud, any number", "34 % to 60 % lower", &{
                lowest_to_highest(|a, b| 100.0 * (1.0 - a / b), lower)
            })],
            10 => vec![both("edge against cloud, any number", "1.5 to 2 times", &{
                lowest_to_highest(|a, b| a / b, |a, b| format!("{a:.1} to {b:.1} times"))
            })],
            11 => vec![
                both("edge: from half of the clients to all", "almost constant", &|near, _| {
                    last_step(near)
                }),
                Finding {
                    ours: String::new(),
                    ..both("cloud: from half of the clients to all", "24 % higher", &|_, far| {
                        last_step(far)
                    })
                },
            ],
            12 => vec![
                both("edge: from the fewest clients to the most", "almost linear", &|near, _| {
                    times(near)
                }),
                Finding {
                    ours: String::new(),
                    ..both("cloud: from the fewest clients to the most", "almost linear", &{
                        |_, far| times(far)
                    })
                },
                both("edge against cloud", "slightly higher", &{
                    lowest_to_highest(|a, b| 100.0 * (a / b - 1.0), higher)
                }),
            ],
            _ => vec![
                both("edge against cloud, on average", "42 % lower", &|near, far| {
                    let all: Vec<f64> = pairs(near, far).map(|(a, b)| a / b).collect();
                    let mean = all.iter().sum::<f64>() / all.len().max(1) as f64;
                    if all.is_empty() { none() } else { change(mean) }
                }),
                both("edge: from the lowest rate to the highest", "grows linearly", &|near, _| {
                    let ends = near.first().zip(near.last());
                    ends.map_or_else(none, |(first, last)| change(last.1 / first.1))
                }),
            ],
        }
    }
}

type Line = Vec<(u32, f64)>;

fn none() -> String {
    "–".to_owned()
}

fn at(place: u32, line: &Line) -> Option<f64> {
    line.iter().find(|(there, _)| *there == place).map(|(_, value)| *value)
}

fn pairs<'a>(near: &'a Line, far: &'a Line) -> impl Iterator<Item = (f64, f64)> + 'a {
    near.iter().filter_map(|(place, value)| Some((*value, at(*place, far)?)))
}

/// A ratio in words.
pub(super) fn change(ratio: f64) -> String {
    let percent = 100.0 * (ratio - 1.0);
    match percent < 0.0 {
        true => format!("{:.0} % lower", -percent),
        false => format!("{percent:.0} % higher"),
    }
}

fn span(from: f64, to: f64, word: &str) -> String {
    match from.round() == to.round() {
        true => format!("{from:.0} % {word}"),
        false => format!("{from:.0} % to {to:.0} % {word}"),
    }
}

fn lower(from: f64, to: f64) -> String {
    span(from, to, "lower")
}

fn higher(from: f64, to: f64) -> String {
    span(from, to, "higher")
}

fn grown(line: &Line, from: u32, to: u32) -> String {
    at(from, line).zip(at(to, line)).map_or_else(none, |(from, to)| change(to / from))
}

/// From the last place but one to the last.
fn last_step(line: &Line) -> String {
    match line.as_slice() {
        [.., (_, before), (_, last)] => change(last / before),
        _ => none(),
    }
}

fn times(line: &Line) -> String {
    match line.as_slice() {
        [(few, first), .., (many, last)] => {
            let clients = f64::from(*many) / f64::from(*few);
            format!("{:.1} times, of {clients}", last / first)
        }
        _ => none(),
    }
}

/// The choice of keys that comes first in this order; none does if all are within two percent.
fn best(line: &Line, order: impl Fn(&f64, &f64) -> std::cmp::Ordering) -> String {
    let lowest = line.iter().map(|(_, value)| *value).fold(f64::INFINITY, f64::min);
    let highest = line.iter().map(|(_, value)| *value).fold(0.0, f64::max);
    let best = line.iter().min_by(|a, b| order(&a.1, &b.1));
    match best {
        Some(_) if highest <= 1.02 * lowest => "all alike".to_owned(),
        Some((place, _)) => Keys::ALL[*place as usize % Keys::ALL.len()].to_string(),
        None => none(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every point gets what `of` says.
    fn results(figure: Figure, of: impl Fn(&Point) -> (f64, f64)) -> Results {
        let measured = |point: Point| {
            let (write_ms, writes_s) = of(&point);
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
    fn the_papers_figures_are_there() {
        assert_eq!(Figure::all().count(), 9);
        assert_eq!((Figure::new(4), Figure::new(14)), (None, None));
        let count = |number| Figure::new(number).unwrap().points(Size::Paper).count();
        assert_eq!([5, 7, 9, 11, 13].map(count), [25, 15, 10, 25, 25]);
        // A latency and its throughput are of the same runs.
        for (latency, throughput) in [(5, 6), (7, 8), (9, 10), (11, 12)] {
            let points = |number| Figure::new(number).unwrap().points(Size::Paper);
            assert!(points(latency).eq(points(throughput)));
        }
        let all: Vec<Figure> = Figure::all().collect();
        let points = super::super::points(&all, Size::Paper);
        assert!(points.windows(2).all(|pair| pair[0] < pair[1]), "each once, in order");
        // Half of it global, with 100 threads and zipfian keys, is of figures 5, 7 and 11; one thread
        // alone, and more reads in three settings, are of none.
        assert_eq!(points.len(), 25 + 15 + 10 + 25 + 25 - 2 * 5 + 1 + 6);
    }

    #[test]
    fn findings_are_the_ratios_that_they_say() {
        let five = Figure::new(5).unwrap();
        let found = results(five, |point| {
            (by_setting(point) * if point.global_percent == 0 { 0.5 } else { 1.0 }, 0.0)
        });
        let findings = five.findings(&found, Size::Paper);
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
        let finding = nine.findings(&found, Size::Paper).remove(0);
        assert_eq!((finding.here.as_str(), finding.ours.as_str()), ("26 % to 32 % lower", ""));
        let twelve = Figure::new(12).unwrap();
        let found = results(twelve, |point| (0.0, 2.0 * point.threads as f64));
        let findings = twelve.findings(&found, Size::Paper);
        assert_eq!(findings[0].here, "20.0 times, of 20");
        let eight = Figure::new(8).unwrap();
        let best = |point: &Point| if point.keys == Keys::Latest { 2.0 } else { 1.0 };
        let found = results(eight, |point| (0.0, best(point)));
        assert_eq!(eight.findings(&found, Size::Paper)[1].here, "latest");
        let found = results(eight, |point| (0.0, by_setting(point)));
        let findings = eight.findings(&found, Size::Paper);
        assert_eq!(
            (findings[0].ours.as_str(), findings[1].here.as_str()),
            ("-60 % higher", "all alike")
        );
    }

    #[test]
    fn without_results_there_is_nothing_to_say() {
        for figure in Figure::all() {
            for finding in figure.findings(&Results::new(), Size::Paper) {
                assert_eq!((finding.here.as_str(), finding.ours.as_str()), ("–", ""), "{figure:?}");
            }
        }
    }
}
