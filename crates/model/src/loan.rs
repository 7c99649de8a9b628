//! Groups of keys, and their loans to other sites.
//!
//! The owner of a slot can lend a *group* of its keys to another site, which serves it then. The
//! slot stays the mirror of its lent groups: its records name the borrower, and have a copy of the
//! group. The rules are in `protocol::global::ownership::lending`; here are the values that they
//! are about.

use crate::{Ballot, Bytes, Epoch, KeyspaceId, SiteId, Slot, StagedItem, tag};
use std::fmt;

/// The keys of one keyspace that share a tag, which is all of a key that has none.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Group {
    /// Their keyspace.
    pub keyspace: KeyspaceId,
    /// What decides their slot.
    pub tag: Bytes,
}

/// For traces: the tag.
impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.tag.escape_ascii())
    }
}

impl Group {
    /// The group of a key.
    pub fn of_key(keyspace: KeyspaceId, key: &Bytes) -> Group {
        Group { keyspace, tag: key.slice_ref(tag(key)) }
    }

    /// The slot of its keys.
    pub fn slot(&self) -> Slot {
        Slot::of_key(&self.tag)
    }
}

/// The number of a loan. A higher one makes all lower ones of the group void.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Loan {
    /// The epoch of the slot when the group was lent.
    pub epoch: Epoch,
    /// The count of loans in the slot's records.
    pub count: u64,
}

/// For traces.
impl fmt::Display for Loan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.epoch, self.count)
    }
}

/// The slot's record of a loan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LoanRow {
    /// The loan.
    pub loan: Loan,
    /// The borrower.
    pub to: SiteId,
    /// The version of the registry that the owner had when it wrote the row.
    pub known: Ballot,
}

/// What a borrower reports of a group in a failover of the slot's owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LoanClaim {
    /// The loan.
    pub loan: Loan,
    /// The borrower.
    pub to: SiteId,
    /// The failover of the slot's epoch under which an owner last confirmed the row.
    pub confirmed: Ballot,
}

impl LoanClaim {
    /// Of two reports the one of the later loan.
    pub fn higher(one: Option<LoanClaim>, other: Option<LoanClaim>) -> Option<LoanClaim> {
        match (one, other) {
            (Some(known), Some(claim)) if known.loan < claim.loan => Some(claim),
            (known, claim) => known.or(claim),
        }
    }
}

/// A borrower's part in a loan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LoanPart {
    /// None; the number of the last loan stays.
    #[default]
    Never,
    /// It serves the group.
    Held,
    /// The owner of the slot was failed over: the taker has to confirm the row first.
    Unconfirmed,
    /// It gives the group back.
    Frozen,
    /// Its records may be the only copy of the last writes.
    Retained,
}

/// A loan on its way to the borrower.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoanOffer {
    /// The group.
    pub group: Group,
    /// The row.
    pub row: LoanRow,
    /// The epoch of the slot at the owner that sends it.
    pub epoch: Epoch,
    /// The group's records, and what clients were answered about its slot.
    pub records: Vec<StagedItem>,
}

/// What a borrower has of a group: its answer to an offer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoanTaken {
    /// The group.
    pub group: Group,
    /// The highest loan that it has seen.
    pub loan: Loan,
    /// Its part in it.
    pub part: LoanPart,
}

/// What a borrower states of a group to the owner of its slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoanReport {
    /// The group.
    pub group: Group,
    /// The loan.
    pub loan: Loan,
    /// The part in it.
    pub part: LoanPart,
    /// The highest epoch of the slot that the borrower has seen.
    pub slot: Epoch,
    /// All of the group's records and what clients were answered about it there, if the owner is to
    /// take them.
    pub records: Option<Vec<StagedItem>>,
}

/// What the owner of its slot has of a group, for a borrower.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoanState {
    /// The group.
    pub group: Group,
    /// The loan that the borrower has reported.
    pub loan: Loan,
    /// The epoch of the slot there.
    pub epoch: Epoch,
    /// The count of loans in the slot's records.
    pub count: u64,
    /// Whether the row is there, with the loan and the borrower of the report.
    pub stands: bool,
    /// Of a row that stands: the borrower's revision up to which the slot's records have its
    /// writes.
    pub fed: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_in_the_slot_of_its_keys() {
        for key in ["car:7", "x{7}y", "{7}", "a{}b{c}", "{{x}", "x}{", "{", ""] {
            let key = Bytes::from_static(key.as_bytes());
            let group = Group::of_key(KeyspaceId(3), &key);
            assert_eq!(group.slot(), Slot::of_key(&key), "{key:?}");
            assert_eq!(Group::of_key(KeyspaceId(3), &group.tag), group, "{key:?}");
        }
        let group = |key: &'static str| Group::of_key(KeyspaceId(3), &Bytes::from(key));
        assert_eq!(group("a{7}"), group("7"));
        assert_ne!(group("a{7}"), group("a"));
    }
}
