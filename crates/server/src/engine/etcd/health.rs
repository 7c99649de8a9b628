//! What can be seen of an etcd from outside.

use crate::desk::lock;
use crate::metrics::Metrics;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How it stands with the etcd that a site keeps its keys in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EtcdStatus {
    /// The endpoint that was asked last.
    pub endpoint: String,
    /// What the last transaction took.
    pub round_trip: Duration,
    /// Transactions that succeeded since this process owns the site.
    pub transactions: u64,
    /// Calls that failed and were made again.
    pub retries: u64,
    /// What the last failed call said.
    pub last_error: Option<String>,
    /// For how long nothing has succeeded; zero while all is well.
    pub failing_for: Duration,
}

/// Keeps it. Clones are the same one.
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

    /// A call failed and is made again. `true`: the first of them, or the first for a while.
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
