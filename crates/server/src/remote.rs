//! Metrics of keys that other sites own: the routes of requests, and cached copies.
//!
//! The replica counts; this module copies the counts into the metrics. The share of requests that
//! were sent directly to the owner is `routed_direct` divided by the sum of `routed_direct` and
//! `routed_redirected`.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use protocol::site::Status;
use std::sync::atomic::Ordering;

#[derive(Default)]
pub(crate) struct RemoteMetrics {
    waiting: Gauge,
    direct: Counter,
    redirected: Counter,
    lookups: Counter,
    lookup_messages: Counter,
    pointers: Gauge,
    copies: Gauge,
    copy_bytes: Gauge,
    hits: Counter,
    unchanged: Counter,
    misses: Counter,
    evictions: Counter,
}

impl RemoteMetrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        let gauges = [
            (
                "routed_waiting",
                "Requests waiting for other sites, or for moving slots",
                &self.waiting,
            ),
            ("ring_pointers", "Pointers of this site on the ring", &self.pointers),
            ("cache_copies", "Copies of keys that other sites own", &self.copies),
        ];
        for (name, help, gauge) in gauges {
            registry.register(name, help, gauge.clone());
        }
        let help = "Bytes of copies of keys that other sites own";
        registry.register_with_unit("cache_size", help, Unit::Bytes, self.copy_bytes.clone());
        let counters = [
            ("routed_direct", "Requests that went directly to their key's owner", &self.direct),
            (
                "routed_redirected",
                "Requests that were redirected on their way to the owner",
                &self.redirected,
            ),
            ("ring_lookups", "Lookups on the ring that ended", &self.lookups),
            ("ring_lookup_messages", "Messages to other sites for lookups", &self.lookup_messages),
            ("cache_hits", "Stale reads answered from copies without a message", &self.hits),
            ("cache_unchanged", "Reads whose copy the owner confirmed", &self.unchanged),
            ("cache_misses", "Reads that an owner answered with the value", &self.misses),
            ("cache_evictions", "Copies removed to make room", &self.evictions),
        ];
        for (name, help, counter) in counters {
            registry.register(name, help, counter.clone());
        }
    }

    pub(crate) fn set(&self, status: &Status) {
        let copies = &status.copies;
        for (gauge, number) in [
            (&self.waiting, status.routed as u64),
            (&self.pointers, status.ring_pointers as u64),
            (&self.copies, copies.copies),
            (&self.copy_bytes, copies.bytes),
        ] {
            gauge.set(number as i64);
        }
        for (counter, number) in [
            (&self.direct, status.routed_direct.0),
            (&self.redirected, status.routed_direct.1),
            (&self.lookups, status.ring_lookups.0),
            (&self.lookup_messages, status.ring_lookups.1),
            (&self.hits, copies.hits),
            (&self.unchanged, copies.unchanged),
            (&self.misses, copies.misses),
            (&self.evictions, copies.evictions),
        ] {
            // Concurrent calls must not decrease it.
            counter.inner().fetch_max(number, Ordering::Relaxed);
        }
    }
}
