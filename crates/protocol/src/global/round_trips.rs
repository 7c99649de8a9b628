//! How long other sites take to answer, as this node has seen it: the latencies that placement goes by.
//!
//! Nothing is sent for that alone while requests are: the answer to a read that went to another site is a
//! measurement, at the core ([`super::routing`]) and past it ([`super::proxy_reads`]). Writes are none: they wait
//! for disks. The value is the least of the last six spans of ten seconds in which there was an answer: queues and noise only add to
//! a round trip, and of few answers the least is noisy itself. So a way that becomes shorter counts at once, and one that
//! becomes longer after a minute. Sites that requests do not go to are probed ([`crate::placement::probing`]).
//!
//! A site without an answer is unknown. That never counts as zero.

use model::SiteId;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Spans of which the least counts, and how long one is.
const SPANS: usize = 6;
const SPAN_S: u64 = 10;

/// The round trips of one node to other sites. Written by any thread.
#[derive(Debug, Default)]
pub struct RoundTrips(Mutex<BTreeMap<SiteId, Least>>);

/// The least round trip of each span, in microseconds.
#[derive(Clone, Copy, Debug)]
struct Least {
    us: [u32; SPANS],
    at: usize,
    /// Of the last answer.
    second: u64,
}

impl Least {
    fn ms(&self) -> Option<f32> {
        self.us.iter().min().map(|us| *us as f32 / 1_000.0)
    }

    fn second(&self) -> Duration {
        Duration::from_secs(self.second)
    }
}

impl RoundTrips {
    /// A site has answered after so long.
    pub(crate) fn measured(&self, site: SiteId, took: Duration, now: Duration) {
        let us = u32::try_from(took.as_micros()).unwrap_or(u32::MAX);
        let second = now.as_secs();
        let mut all = self.lock();
        let least = all.entry(site).or_insert(Least { us: [u32::MAX; SPANS], at: 0, second });
        if least.second / SPAN_S != second / SPAN_S {
            least.at = (least.at + 1) % SPANS;
            least.us[least.at] = u32::MAX;
        }
        least.second = second;
        least.us[least.at] = least.us[least.at].min(us);
    }

    /// All that are known, in milliseconds.
    pub(crate) fn all_ms(&self) -> BTreeMap<SiteId, f32> {
        self.lock().iter().filter_map(|(site, least)| Some((*site, least.ms()?))).collect()
    }

    /// All that are known, in milliseconds, with the second of the last answer.
    pub(crate) fn known(&self) -> BTreeMap<SiteId, (f32, Duration)> {
        let all = self.lock();
        let each = all.iter().filter_map(|(site, one)| Some((*site, (one.ms()?, one.second()))));
        each.collect()
    }

    /// Sites have left.
    pub(crate) fn forget_gone(&self, is_there: impl Fn(SiteId) -> bool) {
        self.lock().retain(|site, _| is_there(*site));
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<SiteId, Least>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SITE: SiteId = SiteId(2);

    #[test]
    fn the_least_of_a_minute_counts() {
        let round_trips = RoundTrips::default();
        assert!(round_trips.all_ms().is_empty(), "what is unknown is not zero");
        let measured = |second: u64, ms: u64| {
            let (took, now) = (Duration::from_millis(ms), Duration::from_secs(second));
            round_trips.measured(SITE, took, now);
            round_trips.all_ms()[&SITE]
        };
        assert_eq!((measured(1, 30), measured(1, 10), measured(1, 20)), (30.0, 10.0, 10.0));
        // The way has become longer. Spans without an answer do not count.
        for second in [2, 13, 19, 20, 230, 240, 250] {
            assert_eq!(measured(second, 25), 10.0);
        }
        assert_eq!(round_trips.known()[&SITE].1, Duration::from_secs(250));
        assert_eq!(measured(260, 25), 25.0);
        assert_eq!(measured(261, 20), 20.0, "a shorter way counts at once");
        round_trips.forget_gone(|site| site != SITE);
        assert!(round_trips.all_ms().is_empty());
    }
}
