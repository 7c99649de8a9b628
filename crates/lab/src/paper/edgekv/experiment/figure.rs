//! The paper's figures: which points make which.

use crate::paper::edgekv::{FIGURES, Keys, Measured, Point, Results, Setting, Size};

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

impl Figure {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Figure> {
        (FIGURES.0..=FIGURES.1).map(Figure)
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

    /// Whether its findings may hang on [`constants`](crate::paper::edgekv::result::constants).
    #[must_use]
    pub fn asks_for_constants(self) -> bool {
        matches!(self.0, 5 | 11 | 12)
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

    /// A place as text.
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

    /// What is distinguished. With local keys alone there is no way over gateways.
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
            // An operation of an open loop has waited since it was due.
            Quantity::Latency if self.across() == Across::Rate => measured.write_due_ms,
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
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let points = crate::paper::edgekv::points(&all, Size::Paper);
        assert!(points.windows(2).all(|pair| pair[0] < pair[1]), "each once, in order");
        // Half of it global, with 100 threads and zipfian keys, is of figures 5, 7 and 11; one
        // thread alone, and more reads in three settings, are of none. Two other constants of eight
        // points, one of which is of figures 5 and 11.
        assert_eq!(points.len(), 25 + 15 + 10 + 25 + 25 - 2 * 5 + 1 + 6 + 2 * (8 - 1));
    }
}
