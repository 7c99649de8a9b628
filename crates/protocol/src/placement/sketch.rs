//! How latencies vary: what a client states of a server, in little memory.
//!
//! A DDSketch: buckets whose bounds grow by one ratio, so that a quantile is right within a share
//! of itself. Two are added bucket by bucket. A client can send anything; rows that cannot be are
//! refused as a whole ([`Distribution::from_rows`]).
//!
//! Masson, Rim, Lee: *`DDSketch`: a fast and fully-mergeable quantile sketch*, VLDB 2019.

use super::latencies::LATENCY_MS_MAX;
use model::limits::SKETCH_BUCKETS_MAX;

/// The relative error of a quantile.
pub const ACCURACY: f32 = 0.02;

/// Latencies, for quantiles that are right within 2 %: a `DDSketch`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Distribution {
    /// Ascending by index: bucket i has the values above γ^(i−1) ms and up to γ^i ms.
    buckets: Vec<(i16, u32)>,
}

impl Distribution {
    /// From rows that were sent. `None`: they are out of order, empty or too many.
    pub fn from_rows(rows: &[(i16, u32)]) -> Option<Distribution> {
        let is_ordered = rows.windows(2).all(|pair| pair[0].0 < pair[1].0);
        let is_possible = |&(index, count): &(i16, u32)| {
            count > 0 && Distribution::value_ms(index) <= LATENCY_MS_MAX && index >= -1_000
        };
        let is_sound =
            is_ordered && rows.len() <= SKETCH_BUCKETS_MAX && rows.iter().all(is_possible);
        is_sound.then(|| Distribution { buckets: rows.to_vec() })
    }

    /// The rows, 6 bytes each.
    pub fn rows(&self) -> &[(i16, u32)] {
        &self.buckets
    }

    fn log_gamma() -> f32 {
        ((1.0 + ACCURACY) / (1.0 - ACCURACY)).ln()
    }

    /// The value that stands for a bucket.
    fn value_ms(index: i16) -> f32 {
        (f32::from(index) * Distribution::log_gamma()).exp() * (1.0 - ACCURACY)
    }

    /// Adds a latency; what cannot be is left out, and `false`.
    pub fn add(&mut self, ms: f32) -> bool {
        if !(0.0..=LATENCY_MS_MAX * (1.0 - ACCURACY)).contains(&ms) {
            return false;
        }
        let index = (ms.max(0.001).ln() / Distribution::log_gamma()).ceil() as i16;
        self.put(index, 1);
        true
    }

    /// Adds all of another one.
    pub fn merge(&mut self, other: &Distribution) {
        other.buckets.iter().for_each(|(index, count)| self.put(*index, *count));
    }

    fn put(&mut self, index: i16, count: u32) {
        match self.buckets.binary_search_by_key(&index, |bucket| bucket.0) {
            Ok(at) => self.buckets[at].1 = self.buckets[at].1.saturating_add(count),
            Err(at) => self.buckets.insert(at, (index, count)),
        }
        if self.buckets.len() > SKETCH_BUCKETS_MAX {
            let (_, lowest) = self.buckets.remove(0);
            self.buckets[0].1 = self.buckets[0].1.saturating_add(lowest);
        }
    }

    /// The same with every latency so many times as long, to the nearest bucket.
    #[must_use]
    pub fn stretched(&self, factor: f32) -> Distribution {
        let steps = (factor.ln() / Distribution::log_gamma()).round() as i16;
        let most = (LATENCY_MS_MAX.ln() / Distribution::log_gamma()).floor() as i16;
        let mut all = Distribution::default();
        for (index, count) in &self.buckets {
            all.put(index.saturating_add(steps).min(most), *count);
        }
        all
    }

    /// The value of each bucket, ascending, and which share of all latencies it has.
    pub fn shares(&self) -> impl Iterator<Item = (f32, f32)> {
        let all = self.count() as f64;
        let share = move |count: u32| (f64::from(count) / all) as f32;
        self.buckets.iter().map(move |(at, count)| (Distribution::value_ms(*at), share(*count)))
    }

    /// How many latencies it has.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|(_, count)| u64::from(*count)).sum()
    }

    /// A quantile; `None`: it is empty.
    pub fn quantile_ms(&self, quantile: f64) -> Option<f32> {
        let needed = (self.count() as f64 * quantile).max(1.0);
        let mut sum = 0.0;
        let reaches = |(_, count): &&(i16, u32)| {
            sum += f64::from(*count);
            sum >= needed
        };
        self.buckets.iter().find(reaches).map(|(index, _)| Distribution::value_ms(*index))
    }

    /// The share of latencies above that; `None`: it is empty. As the cost of an access in a matrix
    /// it is the objective quantile over distributions.
    pub fn share_above(&self, ms: f32) -> Option<f32> {
        let above = |(index, _): &&(i16, u32)| Distribution::value_ms(*index) > ms;
        let slow: u64 = self.buckets.iter().filter(above).map(|(_, count)| u64::from(*count)).sum();
        (self.count() > 0).then(|| (slow as f64 / self.count() as f64) as f32)
    }
}
