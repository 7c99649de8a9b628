//! How long other sites take to answer, as this node has seen it: the latencies that placement goes
//! by.
//!
//! Nothing is sent for that alone while requests are: the answer to a read that went to another
//! site is a measurement, at the core ([`super::routing`]) and past it ([`super::proxy_reads`]).
//! Writes are none: they wait for disks. Sites that requests do not go to are probed
//! ([`crate::placement::probing`]).
//!
//! The value is the median of the last sixty spans of ten seconds in which there was an answer,
//! each with the median of its first five, of which no two are of one second. So a site that
//! answers thousands of times a second and one that is probed now and then are measured alike: a
//! least would be the lower, the more answers there are, and what is sent at once waits for each
//! other on its way. By how much the median may be wrong is known beside it, from the spread of the spans:
//! who goes by a round trip need not follow what is noise ([`crate::placement`]). When the way
//! itself has changed, eight spans in a row lie above the upper quartile of those before, or below
//! the lower one: then these count alone. By chance that comes once in four days. A site that is
//! seldom asked is asked more often while that is in doubt.
//!
//! A site without an answer is unknown. That never counts as zero.

use model::SiteId;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Spans of which the median counts, and how long one is.
const SPANS_MAX: usize = 60;
const SPAN_S: u64 = 10;
/// Answers that count in a span: the first of a second.
const ANSWERS_MAX: usize = 5;
/// So many spans in a row beyond a quartile are another way.
const CHANGED: usize = 8;
/// With fewer spans their spread is not known; then a tenth of the median stands for the error.
const SPANS_MIN: usize = 6;
const ERROR_UNKNOWN: f32 = 0.1;
/// The standard error of a median of values with a normal distribution, of their interquartile
/// range over √n.
const ERROR_OF_RANGE: f32 = 1.2533 / 1.349;

/// A site's round trip.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct RoundTrip {
    pub(crate) ms: f32,
    /// The standard error of that.
    pub(crate) error_ms: f32,
    /// The second of the last answer.
    pub(crate) answered: Duration,
    /// The last span lies far from the others: perhaps the way has changed.
    pub(crate) doubtful: bool,
}

/// The round trips of one node to other sites. Written by any thread.
#[derive(Debug, Default)]
pub struct RoundTrips(Mutex<BTreeMap<SiteId, Answers>>);

/// The answers of one site.
#[derive(Debug)]
struct Answers {
    /// The medians of the spans before, in microseconds.
    spans_us: VecDeque<u32>,
    /// The first answers of this one.
    now_us: Vec<u32>,
    /// What they come to. Others wait for the lock while this is read, so it is found when an
    /// answer counts: five times in a span at most.
    round_trip: RoundTrip,
}

/// A quartile of sorted values: the lower of two.
fn quartile(sorted: &[u32], quarters: usize) -> u32 {
    sorted[(sorted.len() - 1) * quarters / 4]
}

fn sorted(values: impl Iterator<Item = u32>) -> Vec<u32> {
    let mut values: Vec<u32> = values.collect();
    values.sort_unstable();
    values
}

impl Answers {
    fn first(us: u32, second: u64) -> Answers {
        let (spans_us, now_us) = (VecDeque::new(), vec![us]);
        let round_trip = of_spans(&spans_us, &now_us, second);
        Answers { spans_us, now_us, round_trip }
    }

    fn measured(&mut self, us: u32, second: u64) {
        let last = self.round_trip.answered.as_secs();
        if last == second {
            return;
        }
        if last / SPAN_S != second / SPAN_S {
            self.end_span();
        }
        self.round_trip.answered = Duration::from_secs(second);
        if self.now_us.len() < ANSWERS_MAX {
            self.now_us.push(us);
            self.round_trip = of_spans(&self.spans_us, &self.now_us, second);
        }
    }

    fn end_span(&mut self) {
        let span = sorted(self.now_us.drain(..));
        self.spans_us.push_back(quartile(&span, 2));
        if self.spans_us.len() > SPANS_MAX {
            self.spans_us.pop_front();
        }
        let before = self.spans_us.len().saturating_sub(CHANGED);
        if before < CHANGED {
            return;
        }
        let others = sorted(self.spans_us.iter().take(before).copied());
        let (lower, upper) = (quartile(&others, 1), quartile(&others, 3));
        let mut last = self.spans_us.range(before..);
        if last.clone().all(|us| *us < lower) || last.all(|us| *us > upper) {
            self.spans_us.drain(..before);
        }
    }
}

/// The round trip by the spans before and the answers of this one, of which there is one at least.
fn of_spans(spans_us: &VecDeque<u32>, now_us: &[u32], second: u64) -> RoundTrip {
    let now = quartile(&sorted(now_us.iter().copied()), 2);
    let before = sorted(spans_us.iter().copied());
    let doubtful = is_far(&before, now);
    let mut all = before;
    all.insert(all.partition_point(|us| *us < now), now);
    let ms = quartile(&all, 2) as f32 / 1_000.0;
    let range_ms = (quartile(&all, 3) - quartile(&all, 1)) as f32 / 1_000.0;
    let error_ms = match all.len() < SPANS_MIN {
        true => ms * ERROR_UNKNOWN,
        false => ERROR_OF_RANGE * range_ms / (all.len() as f32).sqrt(),
    };
    RoundTrip { ms, error_ms, answered: Duration::from_secs(second), doubtful }
}

/// Whether a span lies beyond the fences of those before, 1.5 interquartile ranges from the
/// quartiles (Tukey), and by a tenth from their median.
fn is_far(before: &[u32], us: u32) -> bool {
    if before.len() < 4 {
        return false;
    }
    let [lower, median, upper] = [1, 2, 3].map(|quarters| quartile(before, quarters));
    let fence = (upper - lower) * 3 / 2;
    let is_beyond = us > upper.saturating_add(fence) || us < lower.saturating_sub(fence);
    is_beyond && us.abs_diff(median) > median / 10
}

impl RoundTrips {
    /// A site has answered after so long.
    pub(crate) fn measured(&self, site: SiteId, took: Duration, now: Duration) {
        let us = u32::try_from(took.as_micros()).unwrap_or(u32::MAX);
        match self.lock().entry(site) {
            Entry::Vacant(new) => drop(new.insert(Answers::first(us, now.as_secs()))),
            Entry::Occupied(mut known) => known.get_mut().measured(us, now.as_secs()),
        }
    }

    /// All that are known.
    pub(crate) fn known(&self) -> BTreeMap<SiteId, RoundTrip> {
        self.lock().iter().map(|(site, answers)| (*site, answers.round_trip)).collect()
    }

    /// Sites have left.
    pub(crate) fn forget_gone(&self, is_there: impl Fn(SiteId) -> bool) {
        self.lock().retain(|site, _| is_there(*site));
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<SiteId, Answers>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SITE: SiteId = SiteId(2);

    fn measured(all: &RoundTrips, second: u64, ms: u64) -> f32 {
        all.measured(SITE, Duration::from_millis(ms), Duration::from_secs(second));
        all.known()[&SITE].ms
    }

    #[test]
    fn the_median_of_few_answers_of_each_span_counts() {
        let all = RoundTrips::default();
        assert!(all.known().is_empty(), "what is unknown is not zero");
        let first = [(1, 30), (2, 10), (3, 20)].map(|(second, ms)| measured(&all, second, ms));
        assert_eq!(first, [30.0, 10.0, 20.0]);
        let known = all.known()[&SITE];
        assert_eq!((known.error_ms, known.answered), (2.0, Duration::from_secs(3)));
        // What comes behind the first one of a second does not count.
        (0..100).for_each(|_| assert_eq!(measured(&all, 3, 90), 20.0));
        assert_eq!([4, 5].map(|second| measured(&all, second, 30)), [20.0, 30.0]);
        // No more than five count, however many there are.
        (6..10).for_each(|second| assert_eq!(measured(&all, second, 5), 30.0));
        // Nor does one answer that waited in a queue.
        for span in 1..20 {
            measured(&all, span * SPAN_S, if span % 3 == 0 { 900 } else { 30 });
        }
        assert_eq!(all.known()[&SITE].ms, 30.0);
        all.forget_gone(|site| site != SITE);
        assert!(all.known().is_empty());
    }

    #[test]
    fn a_way_that_has_changed_counts_after_eight_spans() {
        for (before, after) in [(20, 21), (20, 5), (5, 20)] {
            let all = RoundTrips::default();
            for span in 0..60 {
                measured(&all, span * SPAN_S, before);
            }
            let then = |span: u64| measured(&all, (60 + span) * SPAN_S, after);
            let followed: Vec<f32> = (0..9).map(then).collect();
            let expected = [vec![before as f32; 8], vec![after as f32]].concat();
            assert_eq!(followed, expected);
            assert_eq!(all.known()[&SITE].error_ms, 0.0);
        }
    }

    #[test]
    fn an_answer_that_is_unlike_the_others_leaves_a_doubt() {
        let all = RoundTrips::default();
        let is_doubtful = |span: u64, ms| {
            measured(&all, span * SPAN_S, ms);
            all.known()[&SITE].doubtful
        };
        let mut spans = 0..;
        let mut next = |ms| is_doubtful(spans.next().unwrap(), ms);
        assert!((0..8).all(|span| !next(20 + span % 2)));
        assert_eq!([22, 60, 60, 20, 5].map(&mut next), [false, true, true, false, true]);
        // It is none any more: the way has changed.
        assert!(!(0..9).map(|_| next(60)).collect::<Vec<_>>()[8]);
    }

    /// What is read is what the answers come to, in whatever order they came.
    #[test]
    fn what_is_kept_is_what_would_be_found_anew() {
        let all = RoundTrips::default();
        let mut random = 1_u64;
        for answer in 0..2_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let ms = if answer < 1_000 { 20 } else { 40 } + (random >> 33) % 8;
            // Spans without an answer, with some, and with more than count.
            let second = (answer + (random >> 60)) * 7 / 3;
            all.measured(SITE, Duration::from_millis(ms), Duration::from_secs(second));
            let kept = all.known()[&SITE];
            let sites = all.lock();
            let Answers { spans_us, now_us, .. } = &sites[&SITE];
            assert_eq!(kept, of_spans(spans_us, now_us, second));
        }
    }

    /// Of answers with a spread of 30 %: an hour of probes, and of a site that is asked all the
    /// time.
    #[test]
    fn noise_is_known_for_what_it_is() {
        let mut state = 1_u64;
        let mut way_ms = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            2 + (state >> 33) % 16
        };
        for answers in [1, 5] {
            let all = RoundTrips::default();
            let mut sure = 0;
            for span in 0..360 {
                for _ in 0..answers {
                    measured(&all, span * SPAN_S, way_ms() + way_ms());
                }
                let RoundTrip { ms, error_ms, .. } = all.known()[&SITE];
                sure += u32::from((ms - 19.0).abs() <= (3.0 * error_ms).max(0.5));
            }
            // Of the first spans the error is a guess, and those that follow share most of their
            // values.
            assert!(sure >= 320, "{sure} of 360 with {answers} a span");
            let error_ms = all.known()[&SITE].error_ms;
            assert!(error_ms > 0.2 && error_ms < 1.5, "{error_ms}");
        }
    }
}
