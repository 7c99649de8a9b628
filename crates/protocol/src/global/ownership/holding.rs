//! What a site records of one slot: its right to serve it, and its copy of it.

use super::fences::Fences;
use super::trial::Bug;
use model::{Epoch, SiteId, SlotCopy, Tag};

/// A site's right to serve a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Token {
    /// The site never owned the slot and has learned of no owner.
    #[default]
    Never,
    /// The site owns the slot.
    Held(Epoch),
    /// The site owned the slot and no longer serves it: the destination may own it at the next
    /// epoch.
    Frozen {
        /// The site's own epoch.
        epoch: Epoch,
        /// The destination.
        to: SiteId,
    },
    /// Another site owns or owned the slot.
    Gone {
        /// The epoch of that site.
        epoch: Epoch,
        /// That site.
        to: SiteId,
    },
}

impl Token {
    /// The highest epoch that the site has learned.
    pub fn epoch(self) -> Epoch {
        match self {
            Token::Never => Epoch::default(),
            Token::Held(epoch) | Token::Frozen { epoch, .. } | Token::Gone { epoch, .. } => epoch,
        }
    }

    /// Whether the records of the slot at this site are its own, not a copy's.
    pub fn is_own(self) -> bool {
        matches!(self, Token::Held(_) | Token::Frozen { .. })
    }
}

/// What a site records of one slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Holding {
    /// The right to serve it.
    pub token: Token,
    /// The complete copy, if there is one.
    pub copy: Option<SlotCopy>,
}

/// What happens to the records of the slot at this site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Records {
    /// Nothing.
    Stay,
    /// The site's own records become the copy and replace the previous copy.
    Retain,
    /// The site's own records are removed; the copy is of a later state.
    Drop,
    /// The copy's records become the site's own and replace them.
    Take,
    /// The site's own records begin empty.
    BeginEmpty,
    /// The received records become the site's own. The copy is removed if it is now void.
    Install,
}

impl Holding {
    /// Freezes the slot for a handover to a site. Returns whether it did.
    pub fn freeze(&mut self, to: SiteId, fences: &Fences<'_>) -> bool {
        let Token::Held(epoch) = self.token else { return false };
        let may = !fences.part_from(to);
        if may {
            self.token = Token::Frozen { epoch, to };
        }
        may
    }

    /// Takes the slot at this epoch from its source. `None`: it does not.
    pub fn install(&mut self, epoch: Epoch, from: SiteId, fences: &Fences<'_>) -> Option<Records> {
        let is_held = matches!(self.token, Token::Held(_));
        if is_held || self.token.epoch() >= epoch || fences.part_from(from) {
            return None;
        }
        self.token = Token::Held(epoch);
        self.copy = self.copy.filter(|copy| copy.tag > Tag { epoch, generation: 0 });
        Some(Records::Install)
    }

    /// Refuses the slot at this epoch for good, so that the source may keep it. Returns whether it
    /// did.
    pub fn refuse(&mut self, epoch: Epoch, from: SiteId, fences: &Fences<'_>) -> bool {
        let may = !self.token.is_own() && self.token.epoch() < epoch && !fences.part_from(from);
        if may {
            self.token = Token::Gone { epoch, to: from };
        }
        may
    }

    /// Whether the slot was refused at this epoch to that source.
    pub fn has_refused(&self, epoch: Epoch, from: SiteId) -> bool {
        self.token == Token::Gone { epoch, to: from }
    }

    /// Serves a frozen slot again after its destination has refused it. Returns whether it did.
    pub fn resume(&mut self, fences: &Fences<'_>) -> bool {
        let Token::Frozen { epoch, to } = self.token else { return false };
        let may = !fences.part_from(to);
        if may {
            // A late install finds this epoch used.
            let unasked = fences.planted().is(Bug::AbortUnasked);
            self.token = Token::Held(if unasked { epoch } else { epoch.next() });
        }
        may
    }

    /// Serves a frozen slot again after its destination has left and no site owns the slot. Returns
    /// whether it did.
    pub fn reclaim(&mut self, epoch: Epoch, fences: &Fences<'_>) -> bool {
        let Token::Frozen { epoch: frozen, .. } = self.token else { return false };
        let may = epoch > frozen && !fences.are_up() && !fences.covers_own();
        if may {
            self.token = Token::Held(epoch);
        }
        may
    }

    /// Releases a frozen slot: its destination is known to have owned it.
    pub fn release(&mut self, fences: &Fences<'_>) -> Records {
        let Token::Frozen { epoch, to } = self.token else { return Records::Stay };
        self.learn(epoch.next(), to, fences)
    }

    /// Learns the owner of the slot, from any message.
    pub fn learn(&mut self, epoch: Epoch, owner: SiteId, fences: &Fences<'_>) -> Records {
        // A site learns of its own ownership from its own log only.
        if epoch <= self.token.epoch() || owner == fences.own() {
            return Records::Stay;
        }
        let records = self.give_up(fences);
        self.token = Token::Gone { epoch, to: owner };
        records
    }

    fn give_up(&mut self, fences: &Fences<'_>) -> Records {
        if !self.token.is_own() {
            return Records::Stay;
        }
        let retained = SlotCopy::retained(self.token.epoch(), fences.own());
        if fences.planted().is(Bug::NothingRetained) {
            return Records::Drop;
        }
        match self.copy {
            Some(copy) if copy.tag > retained.tag => Records::Drop,
            _ => {
                self.copy = Some(retained);
                Records::Retain
            }
        }
    }

    /// Follows the decision of a failover, `decided` being its first epoch. `from`: the epoch and
    /// the position of what the taker goes on from.
    ///
    /// A taker without that copy takes nothing and serves nothing: another site with the records
    /// keeps them as a copy, to be taken when the taker itself is failed over.
    pub fn follow(
        &mut self,
        decided: Epoch,
        (taker, from): (SiteId, Option<(Epoch, u64)>),
        fences: &Fences<'_>,
    ) -> Records {
        if self.token.epoch() >= decided {
            return Records::Stay;
        }
        if taker != fences.own() {
            let records = self.give_up(fences);
            self.token = Token::Gone { epoch: decided, to: taker };
            return records;
        }
        let own = self.token.is_own().then_some(self.token.epoch());
        let is_enough = |has: (Epoch, u64)| from.is_none_or(|from| has >= from);
        let records = match (own, self.copy) {
            (Some(own), copy) if copy.is_none_or(|copy| copy.tag.epoch <= own) => {
                is_enough((own, SlotCopy::COMPLETE)).then_some(Records::Stay)
            }
            (_, Some(copy)) => is_enough((copy.tag.epoch, copy.position)).then_some(Records::Take),
            (_, None) => from.is_none().then_some(Records::BeginEmpty),
        };
        let Some(records) = records else {
            let records = self.give_up(fences);
            self.token = Token::Gone { epoch: decided, to: taker };
            return records;
        };
        self.token = Token::Held(decided);
        if records == Records::Take {
            self.copy = None;
        }
        records
    }

    /// Whether a stream of this tag may feed the copy here. Streamed records are kept apart until
    /// they are complete; the existing copy stays until then.
    pub fn may_be_fed(&self, tag: Tag, from: SiteId, fences: &Fences<'_>) -> bool {
        // At a lower epoch it is a stale owner, and learns of that.
        let is_held = matches!(self.token, Token::Held(own) if own >= tag.epoch);
        let is_late = tag.epoch < self.token.epoch() || self.copy.is_some_and(|c| c.tag > tag);
        !is_held && !is_late && !fences.part_from(from)
    }

    /// Learns the owner of the slot from a stream that may feed the copy.
    pub fn fed(&mut self, tag: Tag, owner: SiteId, fences: &Fences<'_>) -> Records {
        self.learn(tag.epoch, owner, fences)
    }

    /// The copy that a stream fed is complete, or has reached a later position.
    pub fn completed(&mut self, copy: SlotCopy) {
        self.copy = Some(copy);
    }

    /// Handles the owner's report that a copy with this tag and position is complete at another
    /// site. Returns whether the copy here is void and goes.
    pub fn superseded(&mut self, safe: (Tag, u64), fences: &Fences<'_>) -> bool {
        let (tag, position) = safe;
        let Some(copy) = self.copy else { return false };
        let is_lower = match fences.planted().is(Bug::SafeWithoutGeneration) {
            true => copy.tag.epoch <= tag.epoch,
            false => copy.tag < tag,
        };
        // Within one epoch, the copy here may have a later position than the reported one.
        let is_ahead = copy.tag.epoch == tag.epoch && copy.position > position;
        let is_void = is_lower && (!is_ahead || fences.planted().is(Bug::SafeWhileBehind));
        // What an earlier owner reported may be over: the site that it named may have left, or own
        // the slot by now with the records that were the copy.
        let is_over = tag.epoch < self.token.epoch();
        let is_of_owner = !is_over || fences.planted().is(Bug::SafeByEarlierOwner);
        let goes = is_void && is_of_owner && !fences.are_up();
        if goes {
            self.copy = None;
        }
        goes
    }

    /// Takes a copy from a leaving site, with that site's record of the owner. Returns whether it
    /// did.
    pub fn take_copy(
        &mut self,
        copy: SlotCopy,
        known: Token,
        from: SiteId,
        fences: &Fences<'_>,
    ) -> bool {
        let is_better = self.copy.is_none_or(|own| own.order() < copy.order());
        if self.token.is_own() || fences.are_up() || fences.part_from(from) || !is_better {
            return false;
        }
        self.copy = Some(copy);
        if let Token::Gone { epoch, to } = known {
            // The result is unused: there are no records of its own here.
            let _ = self.learn(epoch, to, fences);
        }
        true
    }
}

/// The revision of a site that had a slot at an epoch, after which the decision of a failover loses
/// its writes. The slot is taken from a copy of this epoch and position. `None`: it loses none.
pub fn lost_after(had: Epoch, decided: Epoch, from: Option<(Epoch, u64)>) -> Option<u64> {
    match from {
        _ if had >= decided => None,
        None => Some(0),
        Some((epoch, _)) if epoch < had => Some(0),
        Some((epoch, position)) if epoch == had && position < SlotCopy::COMPLETE => Some(position),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::trial::Planted;
    use super::*;
    use model::{Ballot, OpenFailover};

    const A: SiteId = SiteId(1);
    const B: SiteId = SiteId(2);
    const C: SiteId = SiteId(3);

    fn open(own: SiteId) -> Fences<'static> {
        Fences::new(own, None, Planted::none())
    }

    fn epoch(count: u64) -> Epoch {
        Epoch::counted(count)
    }

    fn held(count: u64) -> Holding {
        Holding { token: Token::Held(epoch(count)), copy: None }
    }

    #[test]
    fn a_slot_passes_from_one_site_to_another() {
        let (mut a, mut b) = (held(1), Holding::default());
        assert!(a.freeze(B, &open(A)));
        assert_eq!(b.install(epoch(2), A, &open(B)), Some(Records::Install));
        assert_eq!(b.install(epoch(2), A, &open(B)), None, "it came again");
        assert_eq!(a.release(&open(A)), Records::Retain);
        assert_eq!(a.token, Token::Gone { epoch: epoch(2), to: B });
        assert_eq!(a.copy, Some(SlotCopy::retained(epoch(1), A)));
    }

    #[test]
    fn what_a_failover_loses_is_above_the_position_taken() {
        let decided = Epoch::of_failover(Ballot { round: 9, ..Ballot::FIRST });
        let lost = |count, from| lost_after(epoch(count), decided, from);
        let copy_at = |count, position| Some((epoch(count), position));
        assert_eq!(lost(3, copy_at(3, 70)), Some(70));
        assert_eq!(lost(3, copy_at(2, SlotCopy::COMPLETE)), Some(0));
        assert_eq!(lost(3, None), Some(0));
        assert_eq!(lost(3, copy_at(3, SlotCopy::COMPLETE)), None);
        assert_eq!(lost(3, copy_at(4, 70)), None, "it handed the slot over before");
        assert_eq!(lost_after(decided, decided, None), None, "it got the slot after that");
    }

    #[test]
    fn what_was_refused_is_never_installed() {
        let (mut a, mut b) = (held(1), Holding::default());
        a.freeze(B, &open(A));
        assert!(b.refuse(epoch(2), A, &open(B)) && b.has_refused(epoch(2), A));
        assert!(a.resume(&open(A)));
        assert_eq!(a.token, Token::Held(epoch(2)));
        assert_eq!(b.install(epoch(2), A, &open(B)), None);
    }

    #[test]
    fn nothing_passes_a_fence() {
        let failover = OpenFailover { opened: Ballot::FIRST, lost: B, without: vec![C] };
        let fenced = |own| Fences::new(own, Some(&failover), Planted::none());
        for other in [B, C] {
            assert!(!held(1).freeze(other, &fenced(A)));
            assert!(Holding::default().install(epoch(2), other, &fenced(A)).is_none());
            let tag = Tag { epoch: epoch(2), generation: 0 };
            assert!(!Holding::default().may_be_fed(tag, other, &fenced(A)));
        }
        assert!(!held(1).freeze(A, &fenced(C)), "a fenced site passes nothing on");
        let copy = Some(SlotCopy::retained(epoch(1), A));
        let safe = (Tag { epoch: epoch(2), generation: 1 }, 9);
        assert!(!Holding { copy, ..Holding::default() }.superseded(safe, &fenced(A)));
    }

    #[test]
    fn whoever_learns_of_a_higher_epoch_stops_and_retains() {
        let mut a = held(3);
        assert_eq!(a.learn(epoch(3), B, &open(A)), Records::Stay);
        assert_eq!(a.learn(epoch(9), A, &open(A)), Records::Stay, "it would know by itself");
        assert_eq!(a.learn(epoch(4), B, &open(A)), Records::Retain);
        assert_eq!(a.learn(epoch(4), C, &open(A)), Records::Stay);
    }

    #[test]
    fn a_taker_goes_on_from_its_copy_or_from_what_it_had_frozen() {
        let decided = Epoch::of_failover(Ballot { round: 9, ..Ballot::FIRST });
        let copy = SlotCopy::retained(epoch(2), B);
        let mut with_copy =
            Holding { token: Token::Gone { epoch: epoch(2), to: B }, copy: Some(copy) };
        let from = Some((copy.tag.epoch, copy.position));
        assert_eq!(with_copy.follow(decided, (A, from), &open(A)), Records::Take);
        assert_eq!(with_copy, Holding { token: Token::Held(decided), copy: None });
        assert_eq!(with_copy.follow(decided, (A, from), &open(A)), Records::Stay, "once");
        let mut frozen = held(1);
        frozen.freeze(B, &open(A));
        let from = Some((epoch(1), SlotCopy::COMPLETE));
        assert_eq!(frozen.follow(decided, (A, from), &open(A)), Records::Stay);
        assert_eq!(Holding::default().follow(decided, (A, None), &open(A)), Records::BeginEmpty);
        let mut other = held(1);
        assert_eq!(other.follow(decided, (B, None), &open(A)), Records::Retain);
    }

    #[test]
    fn a_taker_without_the_copy_that_it_reported_serves_nothing() {
        let decided = Epoch::of_failover(Ballot { round: 9, ..Ballot::FIRST });
        let tag = Tag { epoch: epoch(2), generation: 3 };
        let behind = SlotCopy { tag, origin: B, position: 4 };
        let from = Some((epoch(2), 5));
        for copy in [None, Some(behind)] {
            let mut taker = Holding { token: Token::Gone { epoch: epoch(2), to: B }, copy };
            assert_eq!(taker.follow(decided, (A, from), &open(A)), Records::Stay);
            assert_eq!(taker, Holding { token: Token::Gone { epoch: decided, to: A }, copy });
        }
        let mut stale = held(1);
        assert_eq!(stale.follow(decided, (A, from), &open(A)), Records::Retain);
        assert_eq!(stale.copy, Some(SlotCopy::retained(epoch(1), A)));
    }

    #[test]
    fn a_copy_goes_when_a_later_one_is_safe_and_not_behind() {
        let tag = |count, generation| Tag { epoch: epoch(count), generation };
        let copy = SlotCopy { tag: tag(2, 3), origin: B, position: 50 };
        let holding = Holding { token: Token::Never, copy: Some(copy) };
        let goes = |safe| holding.clone().superseded(safe, &open(A));
        assert!(!goes((tag(2, 3), 99)), "it is the same one");
        assert!(!goes((tag(2, 4), 49)), "it is behind");
        assert!(goes((tag(2, 4), 50)));
        assert!(goes((tag(3, 0), 1)));
    }

    #[test]
    fn a_copy_stays_when_an_earlier_owner_reports_a_later_one() {
        let copy = Some(SlotCopy::retained(epoch(1), A));
        let safe = (Tag { epoch: epoch(2), generation: 0 }, 1);
        let knows = |count| {
            let token = Token::Gone { epoch: epoch(count), to: B };
            Holding { token, copy }.superseded(safe, &open(A))
        };
        assert!(knows(1) && knows(2));
        assert!(!knows(3), "the copy may be what the owner of epoch 3 went on from");
    }
}
