//! The node's counters and timings, and their export to Prometheus.
//!
//! One registry per node, not per process: a test or a demo runs many nodes in one process.

use crate::admission::{AdmissionMetrics, Closed};
use crate::durations::Durations;
use crate::handle::Handle;
use crate::placement::PlacementMetrics;
use crate::remote::RemoteMetrics;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use protocol::replica::raft::Role;
use std::sync::atomic::{AtomicU64, Ordering};

/// The labels of an operation at a front.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct OperationLabels {
    /// `redis`, `redis_cluster` or `grpc`.
    pub front: &'static str,
    /// The command or method, in lower case.
    pub operation: &'static str,
}

/// The label of a front.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct FrontLabels {
    /// `redis`, `redis_cluster` or `grpc`.
    pub front: &'static str,
}

/// The label of a peer.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct PeerLabels {
    /// The peer's node id.
    pub peer: u64,
}

/// Everything a node measures.
pub struct Metrics {
    registry: Registry,
    operations: Family<OperationLabels, Durations>,
    errors: Family<OperationLabels, Counter>,
    connections: Family<FrontLabels, Gauge>,
    pub(crate) fsync: Durations,
    pub(crate) etcd_transactions: Durations,
    pub(crate) etcd_retries: Counter,
    pub(crate) log_bytes: Gauge,
    pub(crate) disk_free_bytes: Gauge,
    reads_from_backup: Counter,
    replica: ReplicaGauges,
    remote: RemoteMetrics,
    placement: PlacementMetrics,
    pub(crate) admission: AdmissionMetrics,
}

#[derive(Default)]
struct ReplicaGauges {
    is_leader: Gauge,
    has_leader: Gauge,
    term: Gauge,
    last_index: Gauge,
    committed_index: Gauge,
    applied_index: Gauge,
    snapshot_index: Gauge,
    revision: Gauge,
    members: Gauge,
    writes_waiting: Gauge,
    writes_in_flight: Gauge,
    reads_waiting: Gauge,
    forwarded: Gauge,
    disk_full: Gauge,
    keys: Gauge,
    moves: Counter,
    moves_slots: Counter,
    moves_bytes: Counter,
    moves_s: Counter<f64, AtomicU64>,
    moves_paused_s: Counter<f64, AtomicU64>,
    lag_entries: Family<PeerLabels, Gauge>,
    mirror_behind: Gauge,
    mirror_age_ms: Gauge,
    mirrors_kept: Gauge,
    mirrored_keys: Gauge,
    causal_held_keys: Gauge,
    causal_held_bytes: Gauge,
}

impl Default for Metrics {
    fn default() -> Metrics {
        let mut registry = Registry::with_prefix("portolan");
        let operations = Family::<OperationLabels, Durations>::default();
        registry.register_with_unit(
            "operation_duration",
            "From the request's arrival to its answer, by front and operation",
            Unit::Seconds,
            operations.clone(),
        );
        let errors = Family::default();
        registry.register(
            "operation_errors",
            "Requests answered with an error, by front and operation",
            errors.clone(),
        );
        let connections = Family::default();
        registry.register("connections", "Open client connections, by front", connections.clone());
        let fsync = Durations::default();
        registry.register_with_unit(
            "log_fsync_duration",
            "One fsync of the log, which makes one batch durable",
            Unit::Seconds,
            fsync.clone(),
        );
        let etcd_transactions = Durations::default();
        registry.register_with_unit(
            "etcd_transaction_duration",
            "One transaction of a site that keeps its keys in etcd, with its retries",
            Unit::Seconds,
            etcd_transactions.clone(),
        );
        let etcd_retries = Counter::default();
        registry.register(
            "etcd_retries",
            "Calls to etcd that failed and were made again",
            etcd_retries.clone(),
        );
        let log_bytes = Gauge::default();
        registry.register_with_unit(
            "log_size",
            "The replica's log",
            Unit::Bytes,
            log_bytes.clone(),
        );
        let disk_free_bytes = Gauge::default();
        registry.register_with_unit(
            "disk_free",
            "Room left where the data is",
            Unit::Bytes,
            disk_free_bytes.clone(),
        );
        let reads_from_backup = Counter::default();
        registry.register(
            "reads_from_backup",
            "Stale reads answered by the backup of a site that cannot be reached",
            reads_from_backup.clone(),
        );
        let replica = ReplicaGauges::default();
        replica.register(&mut registry);
        let remote = RemoteMetrics::default();
        remote.register(&mut registry);
        let placement = PlacementMetrics::default();
        placement.register(&mut registry);
        let admission = AdmissionMetrics::default();
        admission.register(&mut registry);
        Metrics {
            registry,
            operations,
            errors,
            connections,
            fsync,
            etcd_transactions,
            etcd_retries,
            log_bytes,
            disk_free_bytes,
            reads_from_backup,
            replica,
            remote,
            placement,
            admission,
        }
    }
}

impl ReplicaGauges {
    fn register(&self, registry: &mut Registry) {
        let gauges = [
            ("raft_is_leader", "1 on the site's leader", &self.is_leader),
            ("raft_has_leader", "1 where a leader is known", &self.has_leader),
            ("raft_term", "The current term", &self.term),
            ("raft_last_index", "The last entry of the log", &self.last_index),
            ("raft_committed_index", "The last entry known committed", &self.committed_index),
            ("raft_applied_index", "The last entry applied to the state", &self.applied_index),
            ("raft_snapshot_index", "The entry of the latest snapshot", &self.snapshot_index),
            ("revision", "Writes the state has seen", &self.revision),
            ("members", "Nodes of the site", &self.members),
            ("writes_waiting", "Writes waiting for their turn", &self.writes_waiting),
            ("writes_in_flight", "Writes in the log, not yet applied", &self.writes_in_flight),
            ("reads_waiting", "Reads waiting for a read index", &self.reads_waiting),
            ("forwarded", "Requests waiting for the leader's answer", &self.forwarded),
            ("disk_full", "1 while writes are refused for want of room", &self.disk_full),
            ("keys", "Keys of all keyspaces", &self.keys),
            (
                "mirror_behind_revisions",
                "On the leader: revisions that the backup site does not know yet",
                &self.mirror_behind,
            ),
            (
                "mirror_caught_up_age_milliseconds",
                "On the leader: since when the backup site has not had everything; -1: it never had",
                &self.mirror_age_ms,
            ),
            ("mirrors_kept", "Other sites whose mirror is kept here", &self.mirrors_kept),
            ("mirrored_keys", "Keys of other sites that are mirrored here", &self.mirrored_keys),
            (
                "causal_held_keys",
                "Keys that the site holds on demand of causal keyspaces",
                &self.causal_held_keys,
            ),
            ("causal_held_bytes", "Bytes of those and what they hold", &self.causal_held_bytes),
        ];
        for (name, help, gauge) in gauges {
            registry.register(name, help, gauge.clone());
        }
        let counters = [
            ("slot_moves", "Moves of slots that this node has completed", &self.moves),
            ("slot_moves_slots", "Slots of those moves", &self.moves_slots),
            ("slot_moves_sent_bytes", "Bytes sent for them", &self.moves_bytes),
        ];
        for (name, help, counter) in counters {
            registry.register(name, help, counter.clone());
        }
        registry.register(
            "slot_moves_seconds",
            "Their duration, from begin to release",
            self.moves_s.clone(),
        );
        registry.register(
            "slot_moves_paused_seconds",
            "How long their slots were not served",
            self.moves_paused_s.clone(),
        );
        registry.register(
            "raft_peer_lag",
            "On the leader: entries that a peer is behind",
            self.lag_entries.clone(),
        );
    }
}

impl Metrics {
    /// The histogram of one operation. Keep the clone: looking it up costs a lock.
    pub fn operation(&self, front: &'static str, operation: &'static str) -> Durations {
        self.operations.get_or_create(&OperationLabels { front, operation }).clone()
    }

    /// The error counter of one operation. Keep the clone.
    pub fn errors(&self, front: &'static str, operation: &'static str) -> Counter {
        self.errors.get_or_create(&OperationLabels { front, operation }).clone()
    }

    /// The gauge of a front's open connections. Keep the clone.
    pub fn connections(&self, front: &'static str) -> Gauge {
        self.connections.get_or_create(&FrontLabels { front }).clone()
    }

    /// The counter of connections that a front closed for one reason. Keep the clone.
    pub fn closed(&self, front: &'static str, why: Closed) -> Counter {
        self.admission.closed(front, why)
    }

    /// A stale read was answered by the backup of a site that cannot be reached.
    pub(crate) fn read_from_backup(&self) {
        self.reads_from_backup.inc();
    }

    /// Everything in the text format that Prometheus reads.
    pub fn render(&self, handle: &Handle) -> String {
        let status = handle.status();
        let replica = &self.replica;
        replica.is_leader.set(i64::from(status.role == Role::Leader));
        replica.has_leader.set(i64::from(status.leader.is_some()));
        let numbers = [
            (&replica.term, status.term),
            (&replica.last_index, status.last_index),
            (&replica.committed_index, status.committed_index),
            (&replica.applied_index, status.applied_index),
            (&replica.snapshot_index, status.snapshot_index),
            (&replica.revision, status.revision.0),
            (&replica.members, status.members.nodes.len() as u64),
            (&replica.writes_waiting, status.writes_waiting as u64),
            (&replica.writes_in_flight, status.writes_in_flight as u64),
            (&replica.reads_waiting, status.reads_waiting as u64),
            (&replica.forwarded, status.forwarded as u64),
            (&replica.keys, handle.key_count()),
            (&replica.causal_held_keys, handle.held().keys),
            (&replica.causal_held_bytes, handle.held().bytes),
        ];
        for (gauge, number) in numbers {
            gauge.set(number as i64);
        }
        let counts = [
            (&replica.moves, status.handed_over.moves),
            (&replica.moves_slots, status.handed_over.slots),
            (&replica.moves_bytes, status.handed_over.bytes),
        ];
        for (counter, number) in counts {
            counter.inner().store(number, Ordering::Relaxed);
        }
        let spans = [
            (&replica.moves_s, status.handed_over.took),
            (&replica.moves_paused_s, status.handed_over.paused),
        ];
        for (counter, span) in spans {
            counter.inner().store(span.as_secs_f64().to_bits(), Ordering::Relaxed);
        }
        let mirror = status.mirror.as_ref();
        replica.mirror_behind.set(mirror.map_or(0, |mirror| mirror.behind as i64));
        let age =
            mirror.map(|mirror| mirror.caught_up_ago.map_or(-1, |ago| ago.as_millis() as i64));
        replica.mirror_age_ms.set(age.unwrap_or(0));
        replica.mirrors_kept.set(status.mirrors_kept.len() as i64);
        let mirrored: u64 = status.mirrors_kept.iter().map(|kept| kept.keys).sum();
        replica.mirrored_keys.set(mirrored as i64);
        replica.disk_full.set(i64::from(status.disk_full.is_some()));
        replica.lag_entries.clear();
        for (node, matched, _) in &status.progress {
            let lag = status.last_index.saturating_sub(*matched);
            replica.lag_entries.get_or_create(&PeerLabels { peer: node.0 }).set(lag as i64);
        }
        self.remote.set(&status);
        self.placement.set(&status);
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("a String takes everything");
        text
    }
}
