//! The connections of a port, for CLIENT LIST.
//!
//! A connection publishes its description when that changes, not with each command, so there is no
//! idle time and no last command.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The connections of a port, by id.
#[derive(Default)]
pub(super) struct Clients(Mutex<BTreeMap<i64, Client>>);

/// The published description of a connection.
pub(super) struct Client {
    pub(super) peer: SocketAddr,
    /// The time of its start.
    pub(super) since: Duration,
    /// Whether it has subscriptions.
    pub(super) is_subscriber: bool,
    /// Its accesses count for nothing (CLIENT NO-TOUCH).
    pub(super) is_uncounted: bool,
    /// Everything else, as CLIENT LIST shows it.
    pub(super) described: String,
}

/// The connections that a command selects.
pub(super) enum Wanted {
    All,
    Normal,
    Subscribers,
    None,
    Ids(Vec<i64>),
}

impl Clients {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<i64, Client>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the description of a connection.
    pub(super) fn note(&self, id: i64, client: Client) {
        let mut clients = self.lock();
        let since = clients.get(&id).map_or(client.since, |before| before.since);
        clients.insert(id, Client { since, ..client });
    }

    /// A connection has ended.
    pub(super) fn remove(&self, id: i64) {
        self.lock().remove(&id);
    }

    /// One connection's line.
    pub(super) fn line(&self, id: i64, now: Duration) -> Option<String> {
        self.lock().get(&id).map(|client| client.line(id, now))
    }

    /// The lines of several.
    pub(super) fn lines(&self, wanted: &Wanted, now: Duration) -> String {
        let is_wanted = |id: &i64, client: &Client| match wanted {
            Wanted::All => true,
            Wanted::Normal => !client.is_subscriber,
            Wanted::Subscribers => client.is_subscriber,
            Wanted::None => false,
            Wanted::Ids(ids) => ids.contains(id),
        };
        let clients = self.lock();
        let found = clients.iter().filter(|(id, client)| is_wanted(id, client));
        found.map(|(id, client)| client.line(*id, now)).collect()
    }
}

impl Client {
    fn line(&self, id: i64, now: Duration) -> String {
        let age_s = now.saturating_sub(self.since).as_secs();
        let flags = match (self.is_subscriber, self.is_uncounted) {
            (true, true) => "PT",
            (true, false) => "P",
            (false, true) => "T",
            (false, false) => "N",
        };
        format!("id={id} addr={} age={age_s} flags={flags} {}\n", self.peer, self.described)
    }
}
