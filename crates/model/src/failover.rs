//! Failovers, as the registry knows them.
//!
//! A failover is *open* from the change that names the lost site until it is decided or called off.
//! While it is open, each site's copy of the registry fences the lost site and those named with it:
//! nobody takes slots from them or freezes slots towards them, and they serve nothing. There is no other
//! fence, so none outlasts its failover. The *decision* says who takes which slots; it stays in the
//! registry until every listed site has a version that contains it.

use crate::{Ballot, Epoch, SiteId, SlotCopy, SlotEpochs, SlotSet};

/// An open failover.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OpenFailover {
    /// The version that opened it: its name.
    pub opened: Ballot,
    /// The site that is lost.
    pub lost: SiteId,
    /// The sites that are not asked what they have. They are fenced like the lost one.
    pub without: Vec<SiteId>,
}

impl OpenFailover {
    /// Whether it fences a site.
    pub fn fences(&self, site: SiteId) -> bool {
        self.lost == site || self.without.contains(&site)
    }
}

/// Slots that one site takes over.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Taken {
    /// Who takes them.
    pub by: SiteId,
    /// The slots.
    pub slots: SlotSet,
    /// The epoch and the position of the copies that they go on from; `None`: they begin empty.
    pub from: Option<(Epoch, u64)>,
}

/// A failover that was decided.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DecidedFailover {
    /// The version that decided it: what it gives away is owned at the epochs of this failover.
    pub decided: Ballot,
    /// The version that opened it.
    pub opened: Ballot,
    /// The site that was lost.
    pub lost: SiteId,
    /// The sites that were not asked.
    pub without: Vec<SiteId>,
    /// Who takes what; in order, no slot twice.
    pub taken: Vec<Taken>,
    /// Whether the lost site is back: it has taken the decision over.
    pub returned: bool,
}

/// All failovers that matter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Failovers {
    /// The one that is open: one at a time, so that decisions have one order.
    pub open: Option<OpenFailover>,
    /// Those that were decided and that some site may not know yet, in order of their decisions.
    pub decided: Vec<DecidedFailover>,
}

impl Failovers {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.open.is_none() && self.decided.is_empty()
    }

    /// Whether a site is fenced.
    pub fn is_fenced(&self, site: SiteId) -> bool {
        self.open.as_ref().is_some_and(|open| open.fences(site))
    }

    /// Whether others have taken over from a site that is not back.
    pub fn is_away(&self, site: SiteId) -> bool {
        self.decided.iter().any(|one| one.lost == site && !one.returned)
    }

    /// Opens one, at this version. Whether that changes anything.
    ///
    /// # Errors
    /// The lost site of another one that is open.
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

    /// Decides the open one, at this version; nothing to take is nothing to decide. Whether it was
    /// open.
    pub fn decide(&mut self, version: Ballot, opened: Ballot, taken: Vec<Taken>) -> bool {
        let Some(open) = self.open.take_if(|open| open.opened == opened) else { return false };
        let OpenFailover { lost, without, .. } = open;
        if !taken.is_empty() {
            let returned = false;
            let decided = version;
            self.decided.push(DecidedFailover { decided, opened, lost, without, taken, returned });
        }
        true
    }

    /// Calls one off. Whether it was open.
    pub fn close(&mut self, opened: Ballot) -> bool {
        self.open.take_if(|open| open.opened == opened).is_some()
    }

    /// A lost site has taken over all that was decided. Whether that was not known.
    pub fn all_returned(&mut self, lost: SiteId) -> bool {
        let mut is_news = false;
        for one in self.decided.iter_mut().filter(|one| one.lost == lost) {
            is_news |= !std::mem::replace(&mut one.returned, true);
        }
        is_news
    }

    /// Every listed site has a version with this decision. Whether it was there.
    pub fn forget(&mut self, decided: Ballot) -> bool {
        let before = self.decided.len();
        self.decided.retain(|one| one.decided != decided);
        self.decided.len() != before
    }

    /// Adds what another term of the registry decided.
    pub(crate) fn add_decided(&mut self, more: &[DecidedFailover]) {
        self.decided.extend(more.iter().cloned());
        self.decided.sort_by_key(|one| one.decided);
        self.decided.dedup_by_key(|one| one.decided);
    }

    /// A site is gone for good.
    pub fn site_gone(&mut self, site: SiteId) {
        self.open.take_if(|open| open.lost == site);
        self.all_returned(site);
    }
}

/// Copies of slots that are alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyRun {
    /// What each of them is.
    pub copy: SlotCopy,
    /// The slots.
    pub slots: SlotSet,
    /// How many keys are in them.
    pub keys: u64,
}

/// What a site knows of all slots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    /// Who owns slots as far as the site knows, at which epochs; itself among them.
    pub owners: Vec<(SiteId, SlotEpochs)>,
    /// What could be taken there.
    pub copies: Vec<CopyRun>,
    /// Slots that are frozen there, and where to.
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

    #[test]
    fn a_failover_that_takes_nothing_leaves_nothing() {
        let mut all = Failovers::default();
        all.open(version(5), LOST, &[]).unwrap();
        assert!(all.decide(version(6), version(5), Vec::new()));
        assert!(all.is_empty());
    }
}
