//! What Prometheus is shown of clients that were sent away, and of logins.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

/// Why a connection was closed by the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// All connections of the port were taken by clients that are known.
    Full,
    /// It had not logged in (without users: asked anything), and made room for a newer one.
    Displaced,
    /// It did not log in in time.
    Login,
    /// It asked nothing for too long.
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
            "Client connections that the node closed or did not let in, by front and reason",
            self.closed.clone(),
        );
        registry.register(
            "logins",
            "Passwords, by what came of them: right, wrong, or busy (not looked at)",
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
