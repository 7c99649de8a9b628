//! The state of a connection apart from its socket: its user, its options, its open transaction.

use super::clients::Client;
use super::commands::connection::describe;
use super::notifications::Subscriptions;
use super::refused::Refused;
use super::thread::{Numbered, Thread};
use super::transaction::{Transaction, Watched};
use crate::causal::CausalSession;
use crate::permits::Permit;
use bytes::Bytes;
use model::{ClientName, Keyspace, ReadConsistency, Request};
use server::users::{Right, User};
use std::net::SocketAddr;
use std::sync::Arc;
use wire::resp::Version;

/// The state of one connection.
pub(super) struct Session {
    thread: Arc<Thread>,
    numbered: Numbered,
    pub(super) peer: SocketAddr,
    pub(super) version: Version,
    /// The user; `None`: the client must log in first.
    pub(super) user: Option<Arc<User>>,
    /// The consistency of its reads (READONLY, READWRITE).
    pub(super) consistency: ReadConsistency,
    /// Its session with causal keyspaces.
    pub(super) causal: CausalSession,
    /// The number of further commands that ASKING covers, including the current one.
    asking: u8,
    pub(super) labels: Labels,
    /// As sites count its accesses: of its user and its name.
    client: ClientName,
    /// It counts for nothing (CLIENT NO-TOUCH).
    is_uncounted: bool,
    pub(super) transaction: Option<Box<Transaction>>,
    pub(super) watched: Option<Box<Watched>>,
    pub(super) subscriptions: Option<Box<Subscriptions>>,
    /// The current command is the last.
    pub(super) is_closing: bool,
}

/// The names that a client has set.
#[derive(Default)]
pub(super) struct Labels {
    pub(super) name: Bytes,
    pub(super) lib_name: Bytes,
    pub(super) lib_version: Bytes,
}

impl Session {
    pub(super) fn new(thread: Arc<Thread>, numbered: Numbered, peer: SocketAddr) -> Session {
        let user = thread.handle.users().anonymous();
        let session = Session {
            thread,
            numbered,
            peer,
            version: Version::default(),
            user,
            consistency: ReadConsistency::default(),
            causal: CausalSession::default(),
            asking: 0,
            labels: Labels::default(),
            client: ClientName::NONE,
            is_uncounted: false,
            transaction: None,
            watched: None,
            subscriptions: None,
            is_closing: false,
        };
        session.publish();
        session
    }

    pub(super) fn thread(&self) -> &Arc<Thread> {
        &self.thread
    }

    /// The connection's number, unique in this process.
    pub(super) fn id(&self) -> i64 {
        self.numbered.id as i64
    }

    /// The connection's permit.
    pub(super) fn permit(&self) -> &Permit {
        &self.numbered.permit
    }

    /// Publishes the present description for CLIENT LIST.
    pub(super) fn publish(&self) {
        let client = Client {
            peer: self.peer,
            since: self.thread.handle.clock().monotonic(),
            is_subscriber: self.subscriptions.as_ref().is_some_and(|s| s.len() > 0),
            is_uncounted: self.is_uncounted,
            described: describe(self),
        };
        self.thread.shared.clients.note(self.id(), client);
    }

    /// Resets the session, as RESET does; its number stays.
    pub(super) fn reset(&mut self) {
        self.version = Version::default();
        self.user = self.thread.handle.users().anonymous();
        self.consistency = ReadConsistency::default();
        self.causal = CausalSession::default();
        self.asking = 0;
        // The client's library stays the same.
        self.labels.name = Bytes::new();
        self.client = ClientName::NONE;
        self.is_uncounted = false;
        self.transaction = None;
        self.watched = None;
        self.subscriptions = None;
    }

    /// Whether the connection came through the port of the Redis Cluster protocol.
    pub(super) fn is_cluster(&self) -> bool {
        self.thread.shared.cluster.is_some()
    }

    /// Whether its client goes where its keys are by itself.
    pub(super) fn is_direct(&self) -> bool {
        let port = self.thread.shared.cluster.as_ref();
        port.is_some_and(|port| port.names_owners(&self.thread.handle))
    }

    /// Whether it is to be redirected: it is not if it was sent here (ASKING).
    pub(super) fn goes_to_keys(&self) -> bool {
        self.asking == 0 && self.is_direct()
    }

    /// A request of its client about global keys.
    pub(super) fn routed(&self, request: Request) -> Request {
        let (direct, client) = self.seen_as();
        Request { redirect: self.goes_to_keys(), direct, client, ..request }
    }

    /// How its accesses count: whether its client goes where its keys are by itself, and which
    /// client it is.
    pub(super) fn seen_as(&self) -> (bool, ClientName) {
        (self.is_direct(), self.client)
    }

    /// The client has given itself a name; empty: none.
    pub(super) fn set_name(&mut self, name: Bytes) {
        self.labels.name = name;
        self.identify();
    }

    /// The client has logged in as a user.
    pub(super) fn set_user(&mut self, user: Arc<User>) {
        self.user = Some(user);
        self.identify();
    }

    /// Whether its accesses count.
    pub(super) fn count(&mut self, is_counted: bool) {
        self.is_uncounted = !is_counted;
        self.identify();
    }

    /// Once for all its requests.
    fn identify(&mut self) {
        if self.is_uncounted {
            self.client = ClientName::UNCOUNTED;
            return;
        }
        let client = |user: &Arc<User>| self.thread.handle.client_name(user, &self.labels.name);
        self.client = self.user.as_ref().map_or(ClientName::NONE, client);
    }

    /// This node executes the next command wherever its keys are.
    pub(super) fn ask(&mut self) {
        // This command, and the next.
        self.asking = 2;
    }

    /// Counts a command. Inside a transaction ASKING lasts until its end.
    pub(super) fn command_taken(&mut self) {
        if self.transaction.is_none() {
            self.asking = self.asking.saturating_sub(1);
        }
    }

    /// Whether the protocol allows only subscription commands now. RESP3 distinguishes replies from
    /// messages and allows all commands.
    pub(super) fn is_subscriber(&self) -> bool {
        self.version == Version::Resp2 && self.subscriptions.as_ref().is_some_and(|s| s.len() > 0)
    }

    /// Checks a user's rights in a keyspace.
    pub(super) fn check_rights(
        &self,
        keyspace: &Keyspace,
        rights: &[Right],
    ) -> Result<(), Refused> {
        let Some(user) = &self.user else { return Err(Refused::NOT_AUTHENTICATED) };
        match rights.iter().find(|right| !user.may(&keyspace.spec.name, **right)) {
            None => Ok(()),
            Some(right) => {
                Err(no_permission(user, *right, &format!("keyspace '{}'", keyspace.spec.name)))
            }
        }
    }

    /// Checks a right that is needed in every keyspace.
    pub(super) fn check_right_everywhere(&self, right: Right) -> Result<(), Refused> {
        match &self.user {
            None => Err(Refused::NOT_AUTHENTICATED),
            Some(user) if user.may_everywhere(right) => Ok(()),
            Some(user) => Err(no_permission(user, right, "every keyspace")),
        }
    }

    /// Whether the user may read a keyspace.
    pub(super) fn may_read(&self, keyspace: &Keyspace) -> bool {
        self.check_rights(keyspace, &[Right::Read]).is_ok()
    }
}

fn no_permission(user: &User, right: Right, place: &str) -> Refused {
    let (name, right) = (user.name(), right.as_str());
    Refused(format!("NOPERM User {name} has no permission to {right} in {place}").into())
}
