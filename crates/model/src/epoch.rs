//! How often a slot has changed hands, and by what.

use crate::Ballot;
use std::fmt;

/// The number under which a site owns a slot. A slot has one owner at an epoch; a higher one makes all
/// lower ones void.
///
/// The failover comes before the count: what a failover has given away no handover of before can win
/// back, however many there were that nobody saw.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch {
    /// The version of the registry that decided the last failover which took the slot; the lowest one
    /// if none did. A count of failovers would not do: a recovery of the registry may lose one that
    /// was decided, and the next one would bear the same number.
    pub failover: Ballot,
    /// How many handovers there were since; 1 for the first owner, 0 for who takes in a failover.
    pub count: u64,
}

impl Epoch {
    /// So many handovers, and no failover.
    pub const fn counted(count: u64) -> Epoch {
        Epoch { failover: Ballot::FIRST, count }
    }

    /// The first epoch of a failover that this version of the registry decided.
    pub const fn of_failover(decided: Ballot) -> Epoch {
        Epoch { failover: decided, count: 0 }
    }

    /// The epoch after one more handover.
    #[must_use]
    pub fn next(self) -> Epoch {
        Epoch { count: self.count + 1, ..self }
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

/// Which state of a slot a copy is of. A higher tag makes all lower ones void.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag {
    /// The epoch of the owner that it is a copy of.
    pub epoch: Epoch,
    /// Which stream of that owner feeds it: later ones are higher.
    pub generation: u64,
}

impl Tag {
    /// What an owner keeps of a slot when it owns it no more: all that it ever had at that epoch.
    pub const fn retained(epoch: Epoch) -> Tag {
        Tag { epoch, generation: u64::MAX }
    }
}

/// A complete copy of a slot at a site that does not own it: a mirror, or what an owner has retained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SlotCopy {
    /// What it is a copy of.
    pub tag: Tag,
    /// Who owned the slot at that epoch.
    pub origin: crate::SiteId,
    /// How far it follows the owner's log; all of the epoch: [`SlotCopy::WHOLE`].
    pub position: u64,
}

impl SlotCopy {
    /// The position of a copy that lacks nothing of its epoch.
    pub const WHOLE: u64 = u64::MAX;

    /// What an owner retains.
    pub fn retained(epoch: Epoch, owner: crate::SiteId) -> SlotCopy {
        SlotCopy { tag: Tag::retained(epoch), origin: owner, position: SlotCopy::WHOLE }
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
