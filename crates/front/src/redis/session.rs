//! What a connection is, beside its socket: who, how, and in the middle of what.

use super::clients::Client;
use super::commands::connection::describe;
use super::notifications::Subscriptions;
use super::refused::Refused;
use super::thread::{Numbered, Thread};
use super::transaction::{Transaction, Watched};
use crate::seats::Seat;
use bytes::Bytes;
use model::{Keyspace, ReadConsistency};
use server::users::{Right, User};
use std::net::SocketAddr;
use std::sync::Arc;
use wire::resp::Version;

/// The state of one connection's conversation.
pub(super) struct Session {
    thread: Arc<Thread>,
    numbered: Numbered,
    pub(super) peer: SocketAddr,
    pub(super) version: Version,
    /// Who it is; `None`: it must log in first.
    pub(super) user: Option<Arc<User>>,
    /// How fresh its reads are (READONLY, READWRITE).
    pub(super) consistency: ReadConsistency,
    /// How many more commands ASKING is about, counting the one under way.
    asking: u8,
    pub(super) labels: Labels,
    pub(super) transaction: Option<Box<Transaction>>,
    pub(super) watched: Option<Box<Watched>>,
    pub(super) subscriptions: Option<Box<Subscriptions>>,
    /// No command after this one.
    pub(super) is_closing: bool,
}

/// What a client calls itself.
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
            asking: 0,
            labels: Labels::default(),
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

    /// The connection's place among those allowed.
    pub(super) fn seat(&self) -> &Seat {
        &self.numbered.seat
    }

    /// Lets CLIENT LIST show it as it is now.
    pub(super) fn publish(&self) {
        let client = Client {
            peer: self.peer,
            since: self.thread.handle.clock().monotonic(),
            is_subscriber: self.subscriptions.as_ref().is_some_and(|s| s.len() > 0),
            described: describe(self),
        };
        self.thread.shared.clients.note(self.id(), client);
    }

    /// Begins anew, as RESET does; its number stays.
    pub(super) fn reset(&mut self) {
        self.version = Version::default();
        self.user = self.thread.handle.users().anonymous();
        self.consistency = ReadConsistency::default();
        self.asking = 0;
        // The library behind the connection is still the same.
        self.labels.name = Bytes::new();
        self.transaction = None;
        self.watched = None;
        self.subscriptions = None;
    }

    /// Whether it came by the port that speaks the Redis Cluster protocol.
    pub(super) fn is_cluster(&self) -> bool {
        self.thread.shared.cluster.is_some()
    }

    /// Whether its client goes where the keys are by itself.
    pub(super) fn goes_to_keys(&self) -> bool {
        self.is_cluster() && self.asking == 0
    }

    /// The next command is to be done through this node, wherever its keys are.
    pub(super) fn ask(&mut self) {
        // This command, and the next.
        self.asking = 2;
    }

    /// A command has been taken. Inside a transaction ASKING lasts until its end.
    pub(super) fn command_taken(&mut self) {
        if self.transaction.is_none() {
            self.asking = self.asking.saturating_sub(1);
        }
    }

    /// Whether the protocol allows nothing but subscriptions now. RESP3 can tell replies from
    /// messages and allows everything.
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

    /// Whether it may read a keyspace.
    pub(super) fn may_read(&self, keyspace: &Keyspace) -> bool {
        self.check_rights(keyspace, &[Right::Read]).is_ok()
    }
}

fn no_permission(user: &User, right: Right, place: &str) -> Refused {
    let (name, right) = (user.name(), right.as_str());
    Refused(format!("NOPERM User {name} has no permission to {right} in {place}").into())
}
