//! What sites report of a slot in a failover, and which site takes it.
//!
//! The highest epoch names the slot's owner. If that is the failed site, the site with the copy of
//! the highest epoch and position takes the slot. The reports need not be of one instant: a
//! handover between sites that are not fenced leaves the highest epoch at one of them, and no slot
//! enters or leaves a fenced site.

use super::holding::{Holding, Token};
use super::trial::{Bug, Planted};
use model::{Epoch, SiteId, SlotCopy};

/// What one site reports of a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Report {
    /// The highest epoch that it has learned, and that epoch's owner.
    pub owner: Option<(Epoch, SiteId)>,
    /// The copy that could be taken over there.
    pub copy: Option<SlotCopy>,
}

impl Holding {
    /// What this site, `own`, reports in a failover. `is_away`: the failed site, and any that has
    /// left.
    pub fn report(&self, own: SiteId, is_away: impl Fn(SiteId) -> bool) -> Report {
        let (owner, frozen) = match self.token {
            Token::Never => (None, None),
            Token::Held(epoch) => (Some((epoch, own)), None),
            // Only that site can report whether the slot has arrived.
            Token::Frozen { epoch, to } if is_away(to) => {
                (Some((epoch.next(), to)), Some(SlotCopy::retained(epoch, own)))
            }
            Token::Frozen { epoch, .. } => (Some((epoch, own)), None),
            Token::Gone { epoch, to } => (Some((epoch, to)), None),
        };
        let by_copy = self.copy.map(|copy| (copy.tag.epoch, copy.origin));
        let owner = match (owner, by_copy) {
            (Some(known), Some(other)) if other.0 > known.0 => Some(other),
            (known, other) => known.or(other),
        };
        Report { owner, copy: best(self.copy, frozen) }
    }
}

fn best(one: Option<SlotCopy>, other: Option<SlotCopy>) -> Option<SlotCopy> {
    let order = |copy: &SlotCopy| (copy.tag.epoch, copy.position);
    // Of two equal copies, the first.
    match (one, other) {
        (Some(one), Some(other)) if order(&other) > order(&one) => Some(other),
        (one, other) => one.or(other),
    }
}

/// The combined reports on one slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Found {
    /// The highest epoch, and its owner.
    pub owner: Option<(Epoch, SiteId)>,
    /// The best copy, and its site.
    pub copy: Option<(SlotCopy, SiteId)>,
}

impl Found {
    /// Adds what a site reports in a failover of `lost`.
    ///
    /// Of two owners at one epoch the failed site counts: it refused that epoch, of which another
    /// site has learned, but the source, where the slot is frozen, has not, and cannot ask any
    /// more.
    pub fn add(&mut self, site: SiteId, report: &Report, lost: SiteId) {
        if let Some((epoch, owner)) = report.owner
            && self.owner.is_none_or(|known| known.0 < epoch || known.0 == epoch && owner == lost)
        {
            self.owner = Some((epoch, owner));
        }
        if let Some(copy) = report.copy {
            let known = self.copy.map(|(known, _)| known);
            if best(known, Some(copy)) != known {
                self.copy = Some((copy, site));
            }
        }
    }

    /// The site that takes the slot, and from which copy; `None`: the slot stays, or has no copy.
    pub fn taker(&self, lost: SiteId, planted: Planted) -> Option<(SiteId, SlotCopy)> {
        let is_lost = planted.is(Bug::HighestEpochIgnored) || self.is_lost(lost);
        self.copy.filter(|_| is_lost).map(|(copy, site)| (site, copy))
    }

    /// Whether the failed site owns the slot, according to the reports.
    pub fn is_lost(&self, lost: SiteId) -> bool {
        self.owner.is_some_and(|(_, owner)| owner == lost)
    }
}

/// Whether every listed site has a decision, so that the registry may drop it.
pub fn may_be_forgotten(
    listed: impl IntoIterator<Item = SiteId>,
    (lost, taker): (SiteId, Option<SiteId>),
    knows: impl Fn(SiteId) -> bool,
    planted: Planted,
) -> bool {
    if planted.is(Bug::ForgottenOnReturn) {
        return knows(lost);
    }
    if planted.is(Bug::ForgottenOnceTaken) {
        return knows(lost) && taker.is_none_or(knows);
    }
    listed.into_iter().all(knows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Tag;

    const LOST: SiteId = SiteId(1);
    const B: SiteId = SiteId(2);
    const C: SiteId = SiteId(3);

    fn epoch(count: u64) -> Epoch {
        Epoch::counted(count)
    }

    fn found(holdings: &[(SiteId, Holding)]) -> Found {
        let mut found = Found::default();
        for (site, holding) in holdings {
            found.add(*site, &holding.report(*site, |to| to == LOST), LOST);
        }
        found
    }

    fn mirror(count: u64, position: u64) -> Holding {
        let tag = Tag { epoch: epoch(count), generation: 4 };
        let copy = SlotCopy { tag, origin: LOST, position };
        Holding { token: Token::Gone { epoch: epoch(count), to: LOST }, copy: Some(copy) }
    }

    #[test]
    fn the_best_copy_of_the_lost_owner_is_taken() {
        let found = found(&[(B, mirror(2, 7)), (C, mirror(2, 9))]);
        let (taker, copy) = found.taker(LOST, Planted::none()).unwrap();
        assert_eq!((taker, copy.position), (C, 9));
    }

    #[test]
    fn what_another_site_owns_by_now_stays() {
        let held = Holding { token: Token::Held(epoch(3)), copy: None };
        for order in [[(B, mirror(2, 7)), (C, held)], [(C, held), (B, mirror(2, 7))]] {
            assert!(found(&order).taker(LOST, Planted::none()).is_none());
        }
    }

    #[test]
    fn what_was_frozen_towards_the_lost_site_is_taken_unless_it_has_arrived() {
        let frozen = Holding { token: Token::Frozen { epoch: epoch(2), to: LOST }, copy: None };
        let (taker, copy) = found(&[(B, frozen)]).taker(LOST, Planted::none()).unwrap();
        assert_eq!((taker, copy.tag), (B, Tag::retained(epoch(2))));
        let (taker, _) =
            found(&[(B, frozen), (C, mirror(3, 1))]).taker(LOST, Planted::none()).unwrap();
        assert_eq!(taker, C);
    }

    #[test]
    fn what_the_lost_site_refused_is_taken_where_it_is_frozen() {
        let frozen = Holding { token: Token::Frozen { epoch: epoch(2), to: LOST }, copy: None };
        // C has learned that LOST refused; B has not.
        let token = Token::Gone { epoch: epoch(3), to: B };
        let refused = Holding { token, copy: None };
        for order in [[(B, frozen), (C, refused)], [(C, refused), (B, frozen)]] {
            let (taker, copy) = found(&order).taker(LOST, Planted::none()).unwrap();
            assert_eq!((taker, copy.tag), (B, Tag::retained(epoch(2))));
        }
    }

    #[test]
    fn without_a_copy_nothing_is_taken() {
        let gone = Holding { token: Token::Gone { epoch: epoch(2), to: LOST }, copy: None };
        let found = found(&[(B, gone)]);
        assert!(found.is_lost(LOST) && found.taker(LOST, Planted::none()).is_none());
    }
}
