//! Durations as a Prometheus histogram.
//!
//! Every command of every connection is timed, so recording must be very cheap: the library's
//! histogram takes a lock and searches its bounds. The bounds here are powers of two, so the bucket
//! of a duration is computed, and many equal durations are recorded at once.

use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::{MetricType, TypedMetric};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The first bucket's upper bound; each further one is twice the one before.
const FIRST_NS: u64 = 10_000;
/// From 10 µs to about 20 s; longer durations go to one more bucket.
const BOUNDS: usize = 22;

/// A histogram of durations. Clones are the same one.
#[derive(Clone, Debug, Default)]
pub struct Durations(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    buckets: [AtomicU64; BOUNDS + 1],
    sum_ns: AtomicU64,
}

impl Durations {
    /// Records a duration.
    pub fn observe(&self, duration: Duration) {
        self.observe_many(duration, 1);
    }

    /// Records `count` operations that each took this long.
    pub fn observe_many(&self, duration: Duration, count: u64) {
        let ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.0.buckets[bucket_of(ns)].fetch_add(count, Ordering::Relaxed);
        self.0.sum_ns.fetch_add(ns.saturating_mul(count), Ordering::Relaxed);
    }
}

/// The first bucket with a bound that is at least this long.
fn bucket_of(ns: u64) -> usize {
    let bounds_passed = ns.div_ceil(FIRST_NS).max(1).next_power_of_two().trailing_zeros() as usize;
    bounds_passed.min(BOUNDS)
}

impl TypedMetric for Durations {
    const TYPE: MetricType = MetricType::Histogram;
}

impl EncodeMetric for Durations {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        let bound_s = |bucket: usize| match bucket {
            BOUNDS => f64::MAX,
            _ => (FIRST_NS << bucket) as f64 / 1e9,
        };
        let counts = self.0.buckets.iter().map(|count| count.load(Ordering::Relaxed));
        let buckets: Vec<_> =
            counts.enumerate().map(|(bucket, count)| (bound_s(bucket), count)).collect();
        let count = buckets.iter().map(|(_, count)| count).sum();
        let sum_s = self.0.sum_ns.load(Ordering::Relaxed) as f64 / 1e9;
        encoder.encode_histogram::<NoLabelSet>(sum_s, count, &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;

    #[test]
    fn a_bound_belongs_to_its_bucket() {
        for (ns, bucket) in [
            (0, 0),
            (10_000, 0),
            (10_001, 1),
            (20_000, 1),
            (20_001, 2),
            (FIRST_NS << (BOUNDS - 1), BOUNDS - 1),
            ((FIRST_NS << (BOUNDS - 1)) + 1, BOUNDS),
            (u64::MAX, BOUNDS),
        ] {
            assert_eq!(bucket_of(ns), bucket, "{ns} ns");
        }
    }

    #[test]
    fn prometheus_is_shown_cumulative_counts() {
        let durations = Durations::default();
        durations.observe(Duration::from_micros(15));
        durations.observe_many(Duration::from_secs(100), 3);
        let mut registry = Registry::default();
        registry.register("took", "How long it took", durations);
        let mut text = String::new();
        encode(&mut text, &registry).expect("a string takes everything");
        for line in [
            "took_bucket{le=\"0.00001\"} 0",
            "took_bucket{le=\"0.00002\"} 1",
            "took_bucket{le=\"20.97152\"} 1",
            "took_bucket{le=\"+Inf\"} 4",
            "took_count 4",
            "took_sum 300.000015",
        ] {
            assert!(text.contains(line), "{line} in\n{text}");
        }
    }
}
