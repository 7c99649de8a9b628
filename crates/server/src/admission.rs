//! Metrics of client connections that were closed or not accepted, and of logins.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

/// Why the node closed a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// All connections of the port were taken by clients that have logged in.
    Full,
    /// It had not logged in (without users: sent no request) and made room for a newer connection.
    Displaced,
    /// It did not log in before the deadline.
    Login,
    /// It sent no request for too long.
    Idle,
}

impl Closed {
    fn word(self) -> &'static str {
        match self {
            Closed::Full => "full",
            Closed::Displaced => "displaced",
            Closed::Login => "login",
            Closed::Idle => "idle",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ClosedLabels {
    front: &'static str,
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LoginLabels {
    outcome: &'static str,
}

#[derive(Default)]
pub(crate) struct AdmissionMetrics {
    closed: Family<ClosedLabels, Counter>,
    logins: Family<LoginLabels, Counter>,
}

impl AdmissionMetrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "connections_closed",
            "Client connections that the node closed or refused, by front and reason",
            self.closed.clone(),
        );
        registry.register(
            "logins",
            "Passwords, by outcome: right, wrong, or busy (not verified)",
            self.logins.clone(),
        );
    }

    pub(crate) fn closed(&self, front: &'static str, why: Closed) -> Counter {
        self.closed.get_or_create(&ClosedLabels { front, reason: why.word() }).clone()
    }

    pub(crate) fn login(&self, outcome: &'static str) {
        self.logins.get_or_create(&LoginLabels { outcome }).inc();
    }
}
