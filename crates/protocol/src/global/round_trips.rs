//! How long other sites take to answer, as this node has seen it: the latencies that placement goes by.
//!
//! Nothing is sent for that alone while requests are: the answer to a read that went to another site is a
//! measurement, at the core ([`super::routing`]) and past it ([`super::proxy_reads`]). Writes are none: they wait
//! for disks. The value is the least of the last six seconds in which there was an answer, as queues only add to
//! it, and follows a change within six of them. Sites that requests do not go to are probed
//! ([`crate::placement::probing`]).
//!
//! A site without an answer is unknown. That never counts as zero.

use model::SiteId;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Seconds of which the least counts.
const SECONDS: usize = 6;

/// The round trips of one node to other sites. Written by any thread.
#[derive(Debug, Default)]
pub struct RoundTrips(Mutex<BTreeMap<SiteId, Least>>);

/// The least round trip of some seconds, in microseconds.
#[derive(Clone, Copy, Debug)]
struct Least {
    us: [u32; SECONDS],
    at: usize,
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
        let least = all.entry(site).or_insert(Least { us: [u32::MAX; SECONDS], at: 0, second });
        if least.second != second {
            least.at = (least.at + 1) % SECONDS;
            least.us[least.at] = u32::MAX;
            least.second = second;
        }
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
    fn the_least_of_six_seconds_counts() {
        let round_trips = RoundTrips::default();
        assert!(round_trips.all_ms().is_empty(), "what is unknown is not zero");
        let measured = |second: u64, ms: u64| {
            let (took, now) = (Duration::from_millis(ms), Duration::from_secs(second));
            round_trips.measured(SITE, took, now);
            round_trips.all_ms()[&SITE]
        };
        assert_eq!((measured(1, 30), measured(1, 10), measured(1, 20)), (30.0, 10.0, 10.0));
        // The way has become longer. Seconds without an answer do not count.
        for second in [2, 3, 40, 50, 60] {
            assert_eq!(measured(second, 25), 10.0);
        }
        assert_eq!(measured(70, 25), 25.0);
        round_trips.forget_gone(|site| site != SITE);
        assert!(round_trips.all_ms().is_empty());
    }
}
