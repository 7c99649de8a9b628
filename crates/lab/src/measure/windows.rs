//! Latencies of several things side by side, and a count beside them, in windows of one length.
//!
//! There are never more than [`WINDOWS_MAX`] windows, however long the run is: when the next one
//! would be one too many, each two neighbours become one, and all windows are twice as long from
//! then on. A window keeps the distribution of its latencies, so the median of a joined window is
//! that of all its operations, exact to 1 %. A distribution takes about 10 kB; a window without
//! operations has none.

use std::time::Duration;

use hdrhistogram::Histogram;

use super::{LATENCY_MAX, SECOND_DIGITS};

/// Most windows of a run.
pub const WINDOWS_MAX: usize = 60;
const _: () = assert!(WINDOWS_MAX.is_multiple_of(2), "each window has a neighbour to be joined to");

/// All windows of a run.
#[derive(Debug, Clone)]
pub struct Windows {
    things: usize,
    length: Duration,
    until: Duration,
    all: Vec<Counted>,
}

/// What is kept of one window.
#[derive(Debug, Clone)]
struct Counted {
    /// In µs, for each thing; none: it has no operations here.
    latencies: Vec<Option<Histogram<u32>>>,
    count: u64,
}

/// One window.
#[derive(Debug, Clone, PartialEq)]
pub struct Window {
    /// Where it begins.
    pub from: Duration,
    /// Where it ends; the last one may end before its length is over.
    pub to: Duration,
    /// The median of each thing, ms; none: it had no operations.
    pub medians_ms: Vec<Option<f64>>,
    /// What was counted.
    pub count: u64,
}

impl Windows {
    /// No window yet of so many things; the first ones are as long as `shortest`, which is not 0.
    #[must_use]
    pub fn new(things: usize, shortest: Duration) -> Self {
        let length = shortest.max(Duration::from_millis(1));
        Self { things, length, until: Duration::ZERO, all: Vec::new() }
    }

    /// One operation of a thing (its index) was answered at `at`.
    pub fn record(&mut self, at: Duration, thing: usize, latency: Duration) {
        let micros = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        let latencies = &mut self.at(at).latencies[thing];
        latencies.get_or_insert_with(empty).saturating_record(micros.max(1));
    }

    /// So many more are counted at `at`.
    pub fn count(&mut self, at: Duration, more: u64) {
        self.at(at).count += more;
    }

    /// Time has passed: windows in which nothing happened are there as well.
    pub fn advance(&mut self, at: Duration) {
        self.until = self.until.max(at);
        while self.place(at) >= WINDOWS_MAX {
            self.length *= 2;
            self.all = self.all.chunks(2).map(Counted::joined).collect();
        }
        let (place, things) = (self.place(at), self.things);
        while self.all.len() <= place {
            self.all.push(Counted { latencies: vec![None; things], count: 0 });
        }
    }

    /// How long each is now.
    #[must_use]
    pub fn length(&self) -> Duration {
        self.length
    }

    /// All of them, the first one first; the last one is not over.
    #[must_use]
    pub fn all(&self) -> Vec<Window> {
        let windows = (0..).zip(&self.all).map(|(place, counted)| Window {
            from: self.length * place,
            to: (self.length * (place + 1)).min(self.until),
            medians_ms: counted.latencies.iter().map(median_ms).collect(),
            count: counted.count,
        });
        windows.filter(|window| window.from < window.to).collect()
    }

    fn at(&mut self, at: Duration) -> &mut Counted {
        self.advance(at);
        let place = self.place(at);
        &mut self.all[place]
    }

    fn place(&self, at: Duration) -> usize {
        usize::try_from(at.as_nanos() / self.length.as_nanos()).unwrap_or(usize::MAX)
    }
}

impl Counted {
    /// One or two neighbours as one.
    fn joined(neighbours: &[Counted]) -> Counted {
        let (first, rest) = neighbours.split_first().expect("a chunk is not empty");
        let mut joined = first.clone();
        for other in rest {
            joined.count += other.count;
            for (sum, more) in joined.latencies.iter_mut().zip(&other.latencies) {
                if let Some(more) = more {
                    let sum = sum.get_or_insert_with(empty);
                    sum.add(more).expect("both have the same bounds");
                }
            }
        }
        joined
    }
}

fn empty() -> Histogram<u32> {
    Histogram::new_with_bounds(1, LATENCY_MAX.as_micros() as u64, SECOND_DIGITS)
        .expect("1 µs to 60 s in a few digits is a valid range")
}

fn median_ms(latencies: &Option<Histogram<u32>>) -> Option<f64> {
    latencies.as_ref().map(|latencies| latencies.value_at_quantile(0.5) as f64 / 1_000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const SECOND: Duration = Duration::from_secs(1);

    /// Medians in whole ms; none becomes −1.
    fn medians(windows: &Windows, thing: usize) -> Vec<i64> {
        let all = windows.all();
        let whole = |ms: f64| ms.round() as i64;
        all.iter().map(|window| window.medians_ms[thing].map_or(-1, whole)).collect()
    }

    fn counts(windows: &Windows) -> Vec<u64> {
        windows.all().iter().map(|window| window.count).collect()
    }

    #[test]
    fn a_window_has_a_median_of_each_thing_and_a_gap_where_there_is_none() {
        let mut windows = Windows::new(2, 2 * SECOND);
        assert!(windows.all().is_empty());
        for (at_s, thing, latency) in
            [(0, 0_usize, 40), (1, 0, 50), (1, 0, 60), (1, 1, 90), (7, 0, 10), (4, 1, 20)]
        {
            windows.record(at_s * SECOND, thing, latency * MS);
        }
        windows.count(SECOND, 3);
        windows.count(5 * SECOND, 2);
        windows.advance(9 * SECOND);
        assert_eq!(medians(&windows, 0), [50, -1, -1, 10, -1]);
        assert_eq!(medians(&windows, 1), [90, -1, 20, -1, -1]);
        assert_eq!(counts(&windows), [3, 0, 2, 0, 0]);
        let (first, last) = (&windows.all()[0], &windows.all()[4]);
        assert_eq!((first.from, first.to), (Duration::ZERO, 2 * SECOND));
        assert_eq!((last.from, last.to), (8 * SECOND, 9 * SECOND), "it is not over");
    }

    #[test]
    fn windows_are_bounded_and_become_longer() {
        let mut windows = Windows::new(1, SECOND);
        for at_s in 0..WINDOWS_MAX as u32 {
            windows.record(at_s * SECOND, 0, (1 + at_s) * MS);
            windows.count(at_s * SECOND, 1);
        }
        assert_eq!((windows.all().len(), windows.length()), (WINDOWS_MAX - 1, SECOND));
        windows.record(WINDOWS_MAX as u32 * SECOND, 0, MS);
        windows.advance((WINDOWS_MAX as u32 + 2) * SECOND);
        assert_eq!((windows.all().len(), windows.length()), (WINDOWS_MAX / 2 + 1, 2 * SECOND));
        // Both of 1 and 2 ms, of 3 and 4, and so on: the median is the lower one.
        assert_eq!(medians(&windows, 0)[..3], [1, 3, 5]);
        assert_eq!(*medians(&windows, 0).last().unwrap(), 1);
        assert_eq!(counts(&windows).iter().sum::<u64>(), WINDOWS_MAX as u64);
        windows.count(1_000_000 * SECOND, 7);
        windows.advance(1_000_001 * SECOND);
        assert!(windows.all().len() <= WINDOWS_MAX && windows.all().len() > WINDOWS_MAX / 2);
        assert_eq!(counts(&windows).iter().sum::<u64>(), WINDOWS_MAX as u64 + 7);
        assert_eq!(windows.all().last().unwrap().to, 1_000_001 * SECOND);
    }

    #[test]
    fn a_joined_window_has_the_median_of_all_its_operations() {
        let mut windows = Windows::new(1, SECOND);
        for _ in 0..10 {
            windows.record(Duration::ZERO, 0, 10 * MS);
        }
        windows.record(SECOND, 0, 90 * MS);
        windows.advance(SECOND * WINDOWS_MAX as u32);
        assert_eq!(medians(&windows, 0)[..2], [10, -1], "not the middle of both medians");
    }
}
