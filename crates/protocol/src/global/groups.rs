//! Which sites borrow groups, as far as a node has learned from their slots' owners.
//!
//! A hint: the borrower answers by its own part. One of a lower loan does not replace one of a
//! higher; one that leads to a site without the group is dropped. There are
//! [`limits::BORROWERS_KNOWN_MAX`] at most.

use model::{Group, Loan, SiteId, limits};
use std::collections::{BTreeMap, VecDeque};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Borrowers {
    known: BTreeMap<Group, (SiteId, Loan)>,
    /// The groups in the order in which they came; some are gone.
    order: VecDeque<Group>,
}

impl Borrowers {
    /// The borrower of a group.
    pub(crate) fn of(&self, group: &Group) -> Option<SiteId> {
        self.known.get(group).map(|(site, _)| *site)
    }

    /// The owner of its slot names the borrower of a group.
    pub(crate) fn learn(&mut self, group: Group, site: SiteId, loan: Loan) {
        match self.known.get_mut(&group) {
            Some(known) if known.1 <= loan => *known = (site, loan),
            Some(_) => {}
            None => {
                while self.order.len() >= limits::BORROWERS_KNOWN_MAX {
                    if let Some(oldest) = self.order.pop_front() {
                        self.known.remove(&oldest);
                    }
                }
                self.order.push_back(group.clone());
                self.known.insert(group, (site, loan));
            }
        }
    }

    /// A site does not have a group. Returns whether it was thought to.
    pub(crate) fn drop_at(&mut self, group: &Group, site: SiteId) -> bool {
        let is_it = self.of(group) == Some(site);
        if is_it {
            self.known.remove(group);
        }
        is_it
    }

    /// All may be elsewhere.
    pub(crate) fn clear(&mut self) {
        (self.known, self.order) = Default::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Bytes, KeyspaceId};

    fn group(n: usize) -> Group {
        Group { keyspace: KeyspaceId(1), tag: Bytes::from(n.to_string()) }
    }

    fn loan(count: u64) -> Loan {
        Loan { count, ..Loan::default() }
    }

    #[test]
    fn the_later_loan_counts_and_the_oldest_hints_go() {
        let mut all = Borrowers::default();
        all.learn(group(0), SiteId(2), loan(5));
        all.learn(group(0), SiteId(3), loan(4));
        assert_eq!(all.of(&group(0)), Some(SiteId(2)));
        all.learn(group(0), SiteId(3), loan(6));
        assert!(!all.drop_at(&group(0), SiteId(2)) && all.drop_at(&group(0), SiteId(3)));
        assert_eq!(all.of(&group(0)), None);
        (1..=limits::BORROWERS_KNOWN_MAX).for_each(|n| all.learn(group(n), SiteId(2), loan(1)));
        assert_eq!(all.order.len(), limits::BORROWERS_KNOWN_MAX);
        assert_eq!(all.of(&group(limits::BORROWERS_KNOWN_MAX)), Some(SiteId(2)));
        all.learn(group(0), SiteId(2), loan(7));
        assert_eq!((all.of(&group(0)), all.of(&group(1))), (Some(SiteId(2)), None));
    }
}
