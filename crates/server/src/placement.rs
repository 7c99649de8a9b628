//! Metrics of keyspaces with a placement, at the leader of their site.
//!
//! The replica counts; this module copies the counts into the metrics. A node that does not lead
//! shows zeros, but for the totals of when it did.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use protocol::site::Status;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Default)]
pub(crate) struct PlacementMetrics {
    groups: Gauge,
    by_client: Gauge,
    advised: Gauge,
    lent: Gauge,
    borrowed: Gauge,
    borrowed_bytes: Gauge,
    looked_at: Gauge,
    inexact: Gauge,
    price: Gauge<f64, AtomicU64>,
    saving: Gauge<f64, AtomicU64>,
    dropped: Counter,
    probes: Counter,
    latencies_dropped: Counter,
    moves: Counter,
    moved_bytes: Counter,
    paused: Counter<f64, AtomicU64>,
}

impl PlacementMetrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        let gauges = [
            ("placement_groups", "Groups of keys whose accesses are counted", &self.groups),
            ("placement_by_client", "Groups that follow clients with a name", &self.by_client),
            ("placement_advised", "Slots that would be better at another site", &self.advised),
            ("placement_lent", "Groups of this site's slots that others serve", &self.lent),
            ("placement_borrowed", "Groups that this site serves for others", &self.borrowed),
            (
                "placement_looked_at",
                "Groups that the last decision looked at: the others are as they were",
                &self.looked_at,
            ),
            (
                "placement_inexact",
                "Groups that the last decision placed without looking at all sites",
                &self.inexact,
            ),
        ];
        for (name, help, gauge) in gauges {
            registry.register(name, help, gauge.clone());
        }
        let help = "Size of the groups that this site serves for others";
        let bytes = self.borrowed_bytes.clone();
        registry.register_with_unit("placement_borrowed", help, Unit::Bytes, bytes);
        let help = "What a megabyte costs here, in seconds of waiting a second, where borrowed_bytes_max is set";
        registry.register("placement_price", help, self.price.clone());
        let help = "What borrowed groups save against their homes, in seconds of waiting a second";
        registry.register("placement_saving", help, self.saving.clone());
        let counters = [
            ("placement_dropped", "Accesses that found no room to be counted", &self.dropped),
            (
                "placement_probes",
                "Messages to other sites that only measured a latency",
                &self.probes,
            ),
            (
                "placement_latencies_dropped",
                "Latencies that were absurd, malformed or late",
                &self.latencies_dropped,
            ),
            ("placement_moves", "Groups that were moved", &self.moves),
        ];
        for (name, help, counter) in counters {
            registry.register(name, help, counter.clone());
        }
        let help = "Size of the groups that were moved";
        registry.register_with_unit("placement_moved", help, Unit::Bytes, self.moved_bytes.clone());
        let help = "How long users have waited for groups that were moved, an estimate";
        registry.register_with_unit("placement_paused", help, Unit::Seconds, self.paused.clone());
    }

    pub(crate) fn set(&self, status: &Status) {
        let counts = status.placement.unwrap_or_default();
        for (gauge, number) in [
            (&self.groups, counts.groups),
            (&self.by_client, counts.by_client),
            (&self.advised, counts.advised),
            (&self.lent, counts.lent),
            (&self.borrowed, counts.borrowed),
            (&self.looked_at, counts.looked_at),
            (&self.inexact, counts.inexact),
        ] {
            gauge.set(number as i64);
        }
        self.saving.set(counts.saved_ms_per_s / 1_000.0);
        self.borrowed_bytes.set(counts.borrowed_bytes as i64);
        self.price.set(counts.price_of_mb / 1_000.0);
        for (counter, number) in [
            (&self.dropped, counts.dropped),
            (&self.probes, counts.probes),
            (&self.latencies_dropped, counts.latencies_dropped),
            (&self.moves, counts.moves),
            (&self.moved_bytes, counts.moved_bytes),
        ] {
            // A node that leads no more counts none.
            counter.inner().fetch_max(number, Ordering::Relaxed);
        }
        // The bits of numbers that are not negative are in their order.
        let paused_s = counts.paused_ms / 1_000.0;
        self.paused.inner().fetch_max(paused_s.to_bits(), Ordering::Relaxed);
    }
}
