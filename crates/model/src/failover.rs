//! Failovers, as recorded in the registry.
//!
//! A failover is *open* from the change that names the failed site until it is decided or called
//! off. While it is open, each site's copy of the registry fences the failed site and the sites
//! named with it: no other site takes slots from them or freezes slots towards them, and they serve
//! nothing. The *decision* names the sites that take the slots; it stays in the registry until
//! every listed site has a version that contains it. The failed site stays parted from the others
//! until the registry has its *return*, as it may be removed until then: nothing passes to it or
//! from it, and it serves what no decision took. There is no other fence.

use crate::{Ballot, Epoch, SiteId, SlotCopy, SlotEpochs, SlotSet, Term};
use std::collections::BTreeSet;

/// An open failover.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OpenFailover {
    /// The version that opened it, which identifies it.
    pub opened: Ballot,
    /// The failed site.
    pub lost: SiteId,
    /// The sites that are not asked for their inventory. They are fenced like the failed one.
    pub without: Vec<SiteId>,
}

impl OpenFailover {
    /// Whether it fences this site.
    pub fn fences(&self, site: SiteId) -> bool {
        self.lost == site || self.without.contains(&site)
    }
}

/// Slots that one site takes over.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Taken {
    /// The site that takes them.
    pub by: SiteId,
    /// The slots.
    pub slots: SlotSet,
    /// Epoch and position of the copies that they continue from; `None`: they begin empty.
    pub from: Option<(Epoch, u64)>,
}

/// A failover that was decided.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DecidedFailover {
    /// The version that decided it. It is part of the epochs of all slots taken in this failover.
    pub decided: Ballot,
    /// The version that opened it.
    pub opened: Ballot,
    /// The failed site.
    pub lost: SiteId,
    /// The sites that were not asked.
    pub without: Vec<SiteId>,
    /// The slots that each site takes; in order, no slot twice.
    pub taken: Vec<Taken>,
    /// Whether the failed site is back and has applied the decision.
    pub returned: bool,
}

impl DecidedFailover {
    /// Whether another failover of the site, in this term of the registry and without these sites,
    /// finds out more: it asks more sites, or the registry was recovered since.
    pub fn is_outdone(&self, term: Term, without: &[SiteId]) -> bool {
        let asks_more = without.len() < self.without.len()
            && without.iter().all(|site| self.without.contains(site));
        asks_more || self.decided.term != term
    }
}

/// All failovers that still matter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Failovers {
    /// The open failover: at most one, so that decisions are ordered.
    pub open: Option<OpenFailover>,
    /// Decided failovers that some listed site may not have yet, in order of their decisions.
    pub decided: Vec<DecidedFailover>,
    /// The version that decided the last failover of a site, of each listed one that had one while
    /// groups could be lent: a loan of before is void, however late it is heard of. The newest of
    /// all stays when its site is removed ([`Failovers::decisions`]).
    pub last: Vec<(SiteId, Ballot)>,
}

impl Failovers {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.open.is_none() && self.decided.is_empty() && self.last.is_empty()
    }

    /// Whether a site is fenced.
    pub fn is_fenced(&self, site: SiteId) -> bool {
        self.open.as_ref().is_some_and(|open| open.fences(site))
    }

    /// Whether a failover took slots from this site and the site is not back.
    pub fn is_away(&self, site: SiteId) -> bool {
        self.decided.iter().any(|one| one.lost == site && !one.returned)
    }

    /// The last decision about a site, of those that some site may not have yet.
    pub fn last_decided(&self, lost: SiteId) -> Option<&DecidedFailover> {
        self.decided.iter().rfind(|one| one.lost == lost)
    }

    /// The decisions that are recorded, in order: those that some site may not have yet, the last
    /// one of each site, and the newest of all.
    pub fn decisions(&self) -> Vec<Ballot> {
        let decided = self.decided.iter().map(|one| one.decided);
        let all: BTreeSet<Ballot> =
            decided.chain(self.last.iter().map(|(_, decided)| *decided)).collect();
        all.into_iter().collect()
    }

    /// Opens a failover at this version. Returns whether that changes anything.
    ///
    /// # Errors
    /// The failed site of another open failover.
    pub fn open(
        &mut self,
        version: Ballot,
        lost: SiteId,
        without: &[SiteId],
    ) -> Result<bool, SiteId> {
        match &self.open {
            Some(open) if (open.lost, &open.without[..]) == (lost, without) => Ok(false),
            Some(open) => Err(open.lost),
            None => {
                self.open = Some(OpenFailover { opened: version, lost, without: without.into() });
                Ok(true)
            }
        }
    }

    /// Decides the open failover at this version. Returns whether it was open. With nothing to take
    /// it is a decision all the same, if it is the first: the site counts as lost; or if it has
    /// asked sites that the last one had not, or the registry was recovered since: the site may be
    /// removed.
    pub fn decide(&mut self, version: Ballot, opened: Ballot, taken: Vec<Taken>) -> bool {
        let Some(open) = self.open.take_if(|open| open.opened == opened) else { return false };
        let OpenFailover { lost, without, .. } = open;
        let last = self.last_decided(lost);
        let is_news = last.is_some_and(|last| last.is_outdone(version.term, &without));
        // What takes slots has reported, and so has applied what was decided of it before.
        for one in &taken {
            self.all_returned(one.by);
        }
        if !taken.is_empty() || !self.is_away(lost) || is_news {
            let returned = false;
            let decided = version;
            self.decided.push(DecidedFailover { decided, opened, lost, without, taken, returned });
        }
        true
    }

    /// Calls a failover off. Returns whether it was open.
    pub fn close(&mut self, opened: Ballot) -> bool {
        self.open.take_if(|open| open.opened == opened).is_some()
    }

    /// The failed site has applied all decisions. Returns whether that is new.
    pub fn all_returned(&mut self, lost: SiteId) -> bool {
        self.mark_returned(lost, |_| true)
    }

    /// The failed site has applied the decisions up to this version of the registry. Returns
    /// whether that is new.
    pub fn returned_by(&mut self, lost: SiteId, known: Ballot) -> bool {
        self.mark_returned(lost, |decided| decided <= known)
    }

    fn mark_returned(&mut self, lost: SiteId, knows: impl Fn(Ballot) -> bool) -> bool {
        let mut is_news = false;
        let of_site = self.decided.iter_mut().filter(|one| one.lost == lost);
        for one in of_site.filter(|one| knows(one.decided)) {
            is_news |= !std::mem::replace(&mut one.returned, true);
        }
        is_news
    }

    /// Drops a decision that every listed site has. Returns whether it was there.
    pub fn forget(&mut self, decided: Ballot) -> bool {
        let before = self.decided.len();
        self.decided.retain(|one| one.decided != decided);
        self.decided.len() != before
    }

    /// The version that decided the last failover of a site; [`Ballot::FIRST`]: there was none.
    pub fn last_of(&self, site: SiteId) -> Ballot {
        let decided = self.decided.iter().filter(|one| one.lost == site).map(|one| one.decided);
        let last = self.last.iter().filter(|(of, _)| *of == site).map(|(_, decided)| *decided);
        decided.chain(last).max().unwrap_or(Ballot::FIRST)
    }

    /// Keeps the version of a decision beyond the decision itself.
    pub(crate) fn note_last(&mut self, site: SiteId, decided: Ballot) {
        let decided = decided.max(self.last_of(site));
        self.last.retain(|(of, _)| *of != site);
        self.last.push((site, decided));
        self.last.sort_unstable();
    }

    /// Adds decisions of another term of the registry.
    pub(crate) fn add_decided(&mut self, more: &[DecidedFailover]) {
        self.decided.extend(more.iter().cloned());
        self.decided.sort_by_key(|one| one.decided);
        self.decided.dedup_by_key(|one| one.decided);
    }

    /// Removes a site that has left for good.
    pub fn site_gone(&mut self, site: SiteId) {
        self.open.take_if(|open| open.lost == site);
        self.all_returned(site);
    }

    /// Drops the last decisions of sites that are not listed, but the newest of all: what was asked
    /// before it is refused after it.
    pub(crate) fn forget_last(&mut self, is_listed: impl Fn(SiteId) -> bool) {
        let newest = self.last.iter().map(|(_, decided)| *decided).max();
        self.last.retain(|(of, decided)| is_listed(*of) || Some(*decided) == newest);
    }
}

/// Slots with equal copies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyRun {
    /// The copy of each of them.
    pub copy: SlotCopy,
    /// The slots.
    pub slots: SlotSet,
    /// The number of keys in them.
    pub keys: u64,
}

/// What a site has recorded about all slots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    /// The owners of slots and their epochs, as far as the site has learned them; itself included.
    pub owners: Vec<(SiteId, SlotEpochs)>,
    /// The copies that could be taken over there.
    pub copies: Vec<CopyRun>,
    /// Slots that are frozen there, with their destinations.
    pub frozen: Vec<(SiteId, SlotSet)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOST: SiteId = SiteId(1);

    fn version(round: u64) -> Ballot {
        Ballot { round, ..Ballot::FIRST }
    }

    fn taken() -> Vec<Taken> {
        let slots = "0-9".parse().unwrap();
        vec![Taken { by: SiteId(2), slots, from: Some((Epoch::counted(1), 7)) }]
    }

    #[test]
    fn one_failover_is_open_at_a_time_and_fences_all_it_names() {
        let mut all = Failovers::default();
        assert_eq!(all.open(version(5), LOST, &[SiteId(3)]), Ok(true));
        assert_eq!(all.open(version(6), LOST, &[SiteId(3)]), Ok(false), "asked again");
        assert_eq!(all.open(version(6), LOST, &[]), Err(LOST));
        assert_eq!(all.open(version(6), SiteId(2), &[]), Err(LOST));
        assert!(all.is_fenced(LOST) && all.is_fenced(SiteId(3)) && !all.is_fenced(SiteId(2)));
        assert!(!all.close(version(6)), "another one");
        assert!(all.close(version(5)));
        assert!(all.is_empty() && !all.is_fenced(LOST));
    }

    #[test]
    fn a_decision_ends_the_fence_and_stays_until_it_is_forgotten() {
        let mut all = Failovers::default();
        all.open(version(5), LOST, &[]).unwrap();
        assert!(!all.decide(version(7), version(4), taken()));
        assert!(all.decide(version(7), version(5), taken()));
        assert!(!all.decide(version(8), version(5), taken()), "it is decided");
        assert!(!all.is_fenced(LOST) && all.is_away(LOST));
        assert!(all.all_returned(LOST) && !all.all_returned(LOST));
        assert!(!all.is_away(LOST) && !all.is_empty());
        assert!(all.forget(version(7)) && all.is_empty());
    }

    /// Its return is chosen only after the next decision, of which it does not know.
    #[test]
    fn a_late_return_leaves_a_later_decision_as_it_is() {
        let mut all = Failovers::default();
        all.open(version(5), LOST, &[]).unwrap();
        assert!(all.decide(version(7), version(5), taken()));
        all.open(version(8), LOST, &[]).unwrap();
        assert!(all.decide(version(9), version(8), taken()));
        assert!(all.returned_by(LOST, version(8)) && !all.returned_by(LOST, version(8)));
        assert!(all.is_away(LOST));
        assert!(all.returned_by(LOST, version(9)) && !all.is_away(LOST));
    }

    #[test]
    fn a_site_that_owned_nothing_is_lost_all_the_same() {
        let mut all = Failovers::default();
        all.open(version(5), LOST, &[]).unwrap();
        assert!(all.decide(version(6), version(5), Vec::new()));
        assert!(all.is_away(LOST), "it can be removed");
        all.open(version(7), LOST, &[]).unwrap();
        assert!(all.decide(version(8), version(7), Vec::new()));
        assert_eq!(all.decided.len(), 1, "there was nothing more to decide");
    }

    #[test]
    fn with_nothing_to_take_a_failover_counts_if_it_asks_more() {
        let [c, d] = [SiteId(3), SiteId(4)];
        let mut failovers = Failovers::default();
        let mut decide = |round, without: &[SiteId]| {
            failovers.open(version(round), LOST, without).unwrap();
            assert!(failovers.decide(version(round + 1), version(round), Vec::new()));
            failovers.decided.len()
        };
        assert_eq!(decide(1, &[c, d]), 1, "the first");
        assert_eq!((decide(3, &[c, d]), decide(5, &[c]), decide(7, &[d])), (1, 2, 2));
        assert_eq!((decide(9, &[]), decide(11, &[])), (3, 3));
    }
}
