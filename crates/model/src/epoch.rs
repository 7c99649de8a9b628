//! The number of ownership changes of a slot, by failover and by handover.

use crate::Ballot;
use std::fmt;

/// The number under which a site owns a slot. A slot has one owner per epoch; a higher epoch makes
/// all lower ones void.
///
/// The failover is compared before the count: no number of earlier handovers, seen or unseen,
/// outranks a failover.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch {
    /// The registry version that decided the last failover of the slot; the lowest ballot if there
    /// was none. A count of failovers would not be unique: a recovery of the registry may lose a
    /// decided failover, and the next one would get the same number.
    pub failover: Ballot,
    /// Handovers since then; 1 for the first owner, 0 for the site that takes over in a failover.
    pub count: u64,
}

impl Epoch {
    /// An epoch after `count` handovers and no failover.
    pub const fn counted(count: u64) -> Epoch {
        Epoch { failover: Ballot::FIRST, count }
    }

    /// The first epoch of the failover that this registry version decided.
    pub const fn of_failover(decided: Ballot) -> Epoch {
        Epoch { failover: decided, count: 0 }
    }

    /// The epoch after one more handover.
    #[must_use]
    pub fn next(self) -> Epoch {
        Epoch { count: self.count + 1, ..self }
    }

    /// The epoch before the last handover; `None`: there was none since the last failover.
    #[must_use]
    pub fn before(self) -> Option<Epoch> {
        Some(Epoch { count: self.count.checked_sub(1)?, ..self })
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.failover == Ballot::FIRST {
            true => write!(f, "e{}", self.count),
            false => write!(f, "e{}.{}", self.failover, self.count),
        }
    }
}

impl fmt::Debug for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.failover == Ballot::FIRST {
            true => write!(f, "Epoch({})", self.count),
            false => write!(f, "Epoch({}, {})", self.failover, self.count),
        }
    }
}

/// The state of a slot that a copy represents. A higher tag makes all lower ones void.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag {
    /// The epoch of the owner that was copied.
    pub epoch: Epoch,
    /// The number of the owner's stream that feeds the copy. Later streams have higher numbers.
    pub generation: u64,
}

impl Tag {
    /// The tag of what an owner retains after it loses the slot: everything of that epoch.
    pub const fn retained(epoch: Epoch) -> Tag {
        Tag { epoch, generation: u64::MAX }
    }
}

/// A complete copy of a slot at a site that does not own it: a mirror, or what a former owner
/// retains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SlotCopy {
    /// The state that it represents.
    pub tag: Tag,
    /// The owner of the slot at that epoch.
    pub origin: crate::SiteId,
    /// The position in the owner's log up to which it is complete; [`SlotCopy::COMPLETE`]: all of the
    /// epoch.
    pub position: u64,
}

impl SlotCopy {
    /// The position of a copy that is complete for its epoch.
    pub const COMPLETE: u64 = u64::MAX;

    /// The copy that a former owner retains.
    pub fn retained(epoch: Epoch, owner: crate::SiteId) -> SlotCopy {
        SlotCopy { tag: Tag::retained(epoch), origin: owner, position: SlotCopy::COMPLETE }
    }

    /// Of two copies of a slot the higher one has all that the other one has. A later generation is
    /// not further by itself: its owner may feed an earlier one beside it.
    pub fn order(&self) -> (Epoch, u64, u64) {
        (self.tag.epoch, self.position, self.tag.generation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SiteId;

    #[test]
    fn a_failover_wins_over_every_handover_of_before() {
        let decided = |round| Ballot { round, site: SiteId(2), ..Ballot::FIRST };
        let first = Epoch::of_failover(decided(7));
        assert!(first > Epoch::counted(u64::MAX));
        assert!(first.next() > first && Epoch::of_failover(decided(8)) > first.next());
        assert_eq!(Epoch::counted(3).to_string(), "e3");
        assert_eq!(first.next().to_string(), "e7@s2.1");
    }

    #[test]
    fn what_is_retained_comes_after_every_stream_and_before_the_next_epoch() {
        let epoch = Epoch::counted(3);
        assert!(Tag::retained(epoch) > Tag { epoch, generation: 900 });
        assert!(Tag::retained(epoch) < Tag { epoch: epoch.next(), generation: 0 });
    }
}
