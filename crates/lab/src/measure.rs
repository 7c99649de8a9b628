//! What was measured: latency by operation, a timeline by second, and counts of what went wrong.
//!
//! Latencies go into high dynamic range histograms (1 µs to 60 s, three digits), so a percentile is
//! exact to 0.1 % whatever the load, and memory does not grow with it. The timeline keeps a row of
//! percentiles a second, also for seconds in which nothing completed: those are the ones to look
//! for. These are exact to 1 %: each second, a histogram is read and emptied as a whole, and a
//! quiet lab would spend more time on that than on its sites.
//!
//! The caller brings the time (since its own start) and decides what an operation's latency is.
//! Times may come slightly out of order, from several workers; each counts in the second that is
//! open.

pub mod windows;

use std::time::Duration;

use hdrhistogram::Histogram;

/// Longest latency that is distinguished from longer ones.
const LATENCY_MAX: Duration = Duration::from_secs(60);
/// Significant digits of latencies over the whole run …
const TOTAL_DIGITS: u8 = 3;
/// … and within a second.
const SECOND_DIGITS: u8 = 2;
/// Most rows of the timeline: one day. Later seconds only count in the totals.
const SECONDS_MAX: usize = 86_400;
/// Most events; later ones are not kept.
const EVENTS_MAX: usize = 1_000;

/// How an operation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It was answered.
    Ok,
    /// It was refused, or was not answered in time; a write may have happened all the same.
    Error,
}

/// A histogram's summary.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Summary {
    /// How many were answered.
    pub count: u64,
    /// Median, ms.
    pub p50_ms: f64,
    /// 90th percentile, ms.
    pub p90_ms: f64,
    /// 99th percentile, ms.
    pub p99_ms: f64,
    /// Slowest, ms.
    pub max_ms: f64,
}

/// All that was seen of one operation.
#[derive(Debug, Clone)]
pub struct Operation {
    /// Its name.
    pub name: &'static str,
    /// How many ended in an error.
    pub errors: u64,
    latency: Histogram<u64>,
    open: Histogram<u64>,
}

impl Operation {
    fn new(name: &'static str) -> Self {
        Self { name, errors: 0, latency: histogram(TOTAL_DIGITS), open: histogram(SECOND_DIGITS) }
    }

    /// Over the whole run.
    #[must_use]
    pub fn summary(&self) -> Summary {
        summary(&self.latency)
    }

    /// Whether it ever ended, one way or the other.
    #[must_use]
    pub fn happened(&self) -> bool {
        self.errors > 0 || !self.latency.is_empty()
    }

    /// The distribution as (latency ms, fraction at or below it), rising, at most a few hundred
    /// points.
    #[must_use]
    pub fn distribution(&self) -> Vec<(f64, f64)> {
        distribution(&self.latency)
    }
}

/// One second of the run.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Second {
    /// All operations together.
    pub all: Summary,
    /// Each operation, in the order of [`Measure::operations`].
    pub operations: Vec<Summary>,
    /// Operations that ended in an error.
    pub errors: u64,
    /// Attempts made again.
    pub retries: u64,
}

/// Counts over the whole run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// A vehicle went from one site to another.
    pub moves: u64,
    /// A group of nodes chose a leader after the first.
    pub elections: u64,
    /// Operations that ended in an error.
    pub errors: u64,
    /// Attempts made again after one that failed; the operation's latency includes both.
    pub retries: u64,
    /// Operations answered, but later than the stall limit.
    pub stalls: u64,
}

/// Something worth marking on the timeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// When.
    pub at: Duration,
    /// A short description.
    pub label: String,
}

/// Everything measured in one run.
#[derive(Debug, Clone)]
pub struct Measure {
    stall: Duration,
    operations: Vec<Operation>,
    all: Histogram<u64>,
    all_open: Histogram<u64>,
    open_errors: u64,
    open_retries: u64,
    seconds: Vec<Second>,
    counters: Counters,
    events: Vec<Event>,
}

impl Measure {
    /// An empty measure of these operations; an answer later than `stall` counts as a stall.
    #[must_use]
    pub fn new(operations: &[&'static str], stall: Duration) -> Self {
        Self {
            stall,
            operations: operations.iter().map(|name| Operation::new(name)).collect(),
            all: histogram(TOTAL_DIGITS),
            all_open: histogram(SECOND_DIGITS),
            open_errors: 0,
            open_retries: 0,
            seconds: Vec::new(),
            counters: Counters::default(),
            events: Vec::new(),
        }
    }

    /// Counts one operation (an index into the names given at the start) that ended at `at`.
    pub fn record(&mut self, at: Duration, operation: usize, latency: Duration, outcome: Outcome) {
        self.advance(at);
        let operation = &mut self.operations[operation];
        if outcome == Outcome::Error {
            operation.errors += 1;
            self.open_errors += 1;
            self.counters.errors += 1;
            return;
        }
        let micros = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        let all = [&mut operation.latency, &mut operation.open, &mut self.all, &mut self.all_open];
        for histogram in all {
            histogram.saturating_record(micros.max(1));
        }
        self.counters.stalls += u64::from(latency > self.stall);
    }

    /// Counts an attempt made again.
    pub fn retry(&mut self, at: Duration) {
        self.advance(at);
        self.open_retries += 1;
        self.counters.retries += 1;
    }

    /// Counts a vehicle that went to another site.
    pub fn moved(&mut self) {
        self.counters.moves += 1;
    }

    /// Counts an election after the first, and marks it.
    pub fn elected(&mut self, at: Duration, label: impl Into<String>) {
        self.counters.elections += 1;
        self.mark(at, label);
    }

    /// Marks something on the timeline.
    pub fn mark(&mut self, at: Duration, label: impl Into<String>) {
        if self.events.len() < EVENTS_MAX {
            self.events.push(Event { at, label: label.into() });
        }
    }

    /// Closes all seconds before `at`: call at the end, and whenever nothing may have happened.
    pub fn advance(&mut self, at: Duration) {
        let whole = usize::try_from(at.as_secs()).unwrap_or(SECONDS_MAX).min(SECONDS_MAX);
        while self.seconds.len() < whole {
            let operations = self.operations.iter().map(|each| summary(&each.open)).collect();
            self.seconds.push(Second {
                all: summary(&self.all_open),
                operations,
                errors: std::mem::take(&mut self.open_errors),
                retries: std::mem::take(&mut self.open_retries),
            });
            // Most of a quiet day is empty seconds, and clearing a histogram costs its whole size.
            if !self.all_open.is_empty() {
                self.all_open.reset();
                let used = self.operations.iter_mut().filter(|each| !each.open.is_empty());
                used.for_each(|each| each.open.reset());
            }
        }
    }

    /// The operations, in the order given at the start.
    #[must_use]
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// All operations together.
    #[must_use]
    pub fn summary(&self) -> Summary {
        summary(&self.all)
    }

    /// The closed seconds, from the first.
    #[must_use]
    pub fn seconds(&self) -> &[Second] {
        &self.seconds
    }

    /// The counts so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// The marks, in the order they were made.
    #[must_use]
    pub fn events(&self) -> &[Event] {
        &self.events
    }
}

fn histogram(digits: u8) -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_MAX.as_micros() as u64, digits)
        .expect("1 µs to 60 s in a few digits is a valid range")
}

fn summary(histogram: &Histogram<u64>) -> Summary {
    if histogram.is_empty() {
        return Summary::default();
    }
    let ms = |micros: u64| micros as f64 / 1_000.0;
    Summary {
        count: histogram.len(),
        p50_ms: ms(histogram.value_at_quantile(0.5)),
        p90_ms: ms(histogram.value_at_quantile(0.9)),
        p99_ms: ms(histogram.value_at_quantile(0.99)),
        max_ms: ms(histogram.max()),
    }
}

pub(crate) fn distribution(histogram: &Histogram<u64>) -> Vec<(f64, f64)> {
    histogram
        .iter_quantiles(10)
        .map(|step| (step.value_iterated_to() as f64 / 1_000.0, step.quantile()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const SECOND: Duration = Duration::from_secs(1);

    fn measure() -> Measure {
        Measure::new(&["look", "report"], 500 * MS)
    }

    #[test]
    fn percentiles_are_those_of_the_values() {
        let mut measure = measure();
        for value in 1..=1_000 {
            measure.record(Duration::ZERO, 0, value * MS / 10, Outcome::Ok);
        }
        let summary = measure.operations()[0].summary();
        assert_eq!(summary.count, 1_000);
        for (is, should) in [(summary.p50_ms, 50.0), (summary.p90_ms, 90.0), (summary.p99_ms, 99.0)]
        {
            assert!((is / should - 1.0_f64).abs() < 0.002, "{is} {should}");
        }
        assert_eq!(measure.operations()[1].summary(), Summary::default());
        let distribution = measure.operations()[0].distribution();
        assert!(distribution.is_sorted() && distribution.last().unwrap().1 == 1.0);
    }

    #[test]
    fn a_second_without_answers_has_a_row_too() {
        let mut measure = measure();
        measure.record(SECOND / 2, 0, 5 * MS, Outcome::Ok);
        measure.retry(SECOND / 2);
        measure.record(3 * SECOND + SECOND / 2, 1, 600 * MS, Outcome::Ok);
        measure.advance(4 * SECOND);
        let counts: Vec<u64> = measure.seconds().iter().map(|second| second.all.count).collect();
        assert_eq!(counts, [1, 0, 0, 1]);
        assert_eq!(measure.seconds()[0].retries, 1);
        assert_eq!(measure.seconds()[3].operations[1].count, 1);
        assert_eq!(measure.counters().stalls, 1);
    }

    #[test]
    fn an_error_counts_as_one_and_has_no_latency() {
        let mut measure = measure();
        measure.record(SECOND, 1, 9 * SECOND, Outcome::Error);
        measure.advance(2 * SECOND);
        assert_eq!(measure.operations()[1].errors, 1);
        assert_eq!(measure.seconds()[1].errors, 1);
        assert_eq!(measure.summary().count, 0);
        assert_eq!(measure.counters(), Counters { errors: 1, ..Counters::default() });
    }

    #[test]
    fn what_could_grow_without_end_does_not() {
        let mut measure = measure();
        for _ in 0..2 * EVENTS_MAX {
            measure.mark(Duration::ZERO, "again");
        }
        measure.advance(Duration::from_secs(10 * SECONDS_MAX as u64));
        assert_eq!((measure.events().len(), measure.seconds().len()), (EVENTS_MAX, SECONDS_MAX));
    }
}
