//! The observed health of an etcd cluster.

use crate::batcher::lock;
use crate::metrics::Metrics;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The health of the etcd cluster that holds a site's keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EtcdStatus {
    /// The endpoint of the last call.
    pub endpoint: String,
    /// The duration of the last transaction.
    pub round_trip: Duration,
    /// Transactions that succeeded since this process became the site's owner.
    pub transactions: u64,
    /// Failed calls that were repeated.
    pub retries: u64,
    /// The error of the last failed call.
    pub last_error: Option<String>,
    /// The time since the last success while calls fail; zero otherwise.
    pub failing_for: Duration,
}

/// Records the health. Clones share it.
#[derive(Clone)]
pub(crate) struct Health(Arc<Inner>);

struct Inner {
    metrics: Arc<Metrics>,
    noted: Mutex<Noted>,
}

#[derive(Default)]
struct Noted {
    status: EtcdStatus,
    failing_since: Option<Instant>,
}

impl Health {
    pub(crate) fn new(metrics: Arc<Metrics>) -> Health {
        Health(Arc::new(Inner { metrics, noted: Mutex::default() }))
    }

    pub(super) fn transaction(&self, endpoint: &str, took: Duration) {
        self.0.metrics.etcd_transactions.observe(took);
        let noted = &mut *lock(&self.0.noted);
        noted.status.transactions += 1;
        noted.status.round_trip = took;
        noted.failing_since = None;
        if noted.status.endpoint != endpoint {
            endpoint.clone_into(&mut noted.status.endpoint);
        }
    }

    /// Records a failed call that is repeated. `true`: the first failure, or the first for a while.
    pub(super) fn retry(&self, endpoint: &str, error: &str) -> bool {
        self.0.metrics.etcd_retries.inc();
        let noted = &mut *lock(&self.0.noted);
        noted.status.retries += 1;
        endpoint.clone_into(&mut noted.status.endpoint);
        noted.status.last_error = Some(error.to_owned());
        let is_first = noted.failing_since.is_none();
        noted.failing_since.get_or_insert_with(Instant::now);
        is_first
    }

    pub(crate) fn status(&self) -> EtcdStatus {
        let noted = lock(&self.0.noted);
        let failing_for = noted.failing_since.map_or(Duration::ZERO, |since| since.elapsed());
        EtcdStatus { failing_for, ..noted.status.clone() }
    }
}
