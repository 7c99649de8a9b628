//! Writes that a failover loses: what a site wrote above the position from which another site took
//! a slot.

use crate::{Ballot, Bytes, ChangeKind, KeyspaceId, Revision, SlotEpochs};

/// A site's list of its writes that a failover lost. The site makes it when it learns of the
/// failover.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostReport {
    /// The version of the registry that decided the failover.
    pub failover: Ballot,
    /// The slots that the failover took from the site without all of its writes, with the epochs at
    /// which the site had them.
    pub slots: SlotEpochs,
    /// How many keys the list has.
    pub keys: u64,
    /// Writes up to this revision are not in the list, as the change log did not have them any
    /// more. 0: it had all.
    pub trimmed: Revision,
    /// There were more keys than a list may have ([`crate::limits::LOST_KEYS_MAX`],
    /// [`crate::limits::LOST_KEYS_BYTES_MAX`]).
    pub more: bool,
}

/// A key with a lost write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostWrite {
    /// Its keyspace.
    pub keyspace: KeyspaceId,
    /// The key; empty for [`ChangeKind::Clear`].
    pub key: Bytes,
    /// The last of the lost writes.
    pub revision: Revision,
    /// What that did.
    pub kind: ChangeKind,
}

/// Lists of lost writes at a site, and a page of one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LostWrites {
    /// The list that was asked for, if the site has it; or all.
    pub reports: Vec<LostReport>,
    /// A page of the list that was asked for, ordered by keyspace and key.
    pub writes: Vec<LostWrite>,
    /// The next page; `None`: this was the last.
    pub next: Option<u32>,
}
