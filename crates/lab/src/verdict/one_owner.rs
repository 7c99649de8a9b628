//! A unit has one owner at an epoch.
//!
//! **Judged**: no two owner lines of one unit and one epoch name different owners, whenever they
//! were seen. For a leader and its term this is Raft's *election safety* (Ongaro and Ousterhout,
//! *In search of an understandable consensus algorithm*, 2014, figure 3). That two owners of
//! different epochs never act at one time is not judged here: what comes of it is seen by clients,
//! and judged by their answers. Counted are the lines.

use std::collections::BTreeMap;

use super::{Verdict, Violation};
use crate::history::{History, Owner, Promise};

/// Judges a history; counts the owner lines.
#[must_use]
pub fn judge(history: &History) -> Verdict {
    if history.owners.is_empty() {
        return Verdict::Undecided { why: "the history has no owner lines".to_owned() };
    }
    let mut owners: BTreeMap<(&str, u64), &Owner> = BTreeMap::new();
    for owner in &history.owners {
        let first = owners.entry((&owner.unit, owner.epoch)).or_insert(owner);
        if first.owner != owner.owner {
            return Verdict::Broken(Violation {
                promise: Promise::OneOwner,
                key: None,
                what: format!(
                    "{:?} had two owners at epoch {}: {} at {} µs, and {} at {} µs.",
                    owner.unit, owner.epoch, first.owner, first.at_us, owner.owner, owner.at_us
                ),
                operations: Vec::new(),
                requests: Vec::new(),
                at_us: Some(first.at_us.max(owner.at_us)),
            });
        }
    }
    Verdict::Holds { examined: history.owners.len() as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(owners: &[(u64, &str, u64, &str)]) -> Verdict {
        let owner = |&(at_us, unit, epoch, owner): &(u64, &str, u64, &str)| Owner {
            at_us,
            unit: unit.to_owned(),
            epoch,
            owner: owner.to_owned(),
        };
        judge(&History { owners: owners.iter().map(owner).collect(), ..History::default() })
    }

    #[test]
    fn an_owner_may_come_back_and_a_unit_may_change_hands() {
        let lines = [(1, "l", 1, "a"), (2, "l", 2, "b"), (3, "l", 1, "a"), (3, "m", 1, "b")];
        assert_eq!(verdict(&lines), Verdict::Holds { examined: 4 });
        assert!(matches!(verdict(&[]), Verdict::Undecided { .. }));
    }

    #[test]
    fn two_owners_at_one_epoch_are_found() {
        let Verdict::Broken(violation) =
            verdict(&[(1, "l", 3, "a"), (5, "l", 4, "b"), (9, "l", 3, "b")])
        else {
            panic!("not found");
        };
        assert_eq!(violation.what, "\"l\" had two owners at epoch 3: a at 1 µs, and b at 9 µs.");
        assert_eq!(violation.at_us, Some(9));
    }
}
