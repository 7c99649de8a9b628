//! What a site's change log has for its consumers.

use crate::{Bytes, KeyspaceId, Revision};

/// One change of one key. It names what changed, not the new value: a consumer reads that from the
/// state, and so always gets one that is at least as new.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The command that made it. A command that touches several keys makes several changes of the
    /// same revision, in the order of its arguments.
    pub revision: Revision,
    /// Where.
    pub keyspace: KeyspaceId,
    /// Which key; empty for [`ChangeKind::Clear`].
    pub key: Bytes,
    /// What happened to it.
    pub kind: ChangeKind,
}

/// What happened to a key. Fine enough for Redis keyspace notifications.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChangeKind {
    /// A string was put.
    Put,
    /// A string was appended to.
    Append,
    /// A number was added to a string.
    Add,
    /// The key was removed by a client.
    Delete,
    /// The key was removed by time.
    Expire,
    /// The key was given an expiry.
    SetExpiry,
    /// The key's expiry was cleared.
    ClearExpiry,
    /// Fields of a hash were set.
    HashSet,
    /// Fields of a hash were removed.
    HashDelete,
    /// A number was added to a field of a hash.
    HashAdd,
    /// Every key of the keyspace was removed.
    Clear,
    /// The group of this tag was lent, or came home; or the copy of this key of a lent group
    /// expired. Not a change for those who follow the keyspace.
    Loan,
}
