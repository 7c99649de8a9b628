//! Positions on the ring, and the virtual nodes there.
//!
//! The positions are the numbers of 64 bits in a circle, so every sum and difference wraps. (Chord
//! programs have been wrong about this: a finger that starts past the end of the numbers is lost,
//! and with it the short ways.) A distance here is from a point *to what comes after it*: the next
//! position is at 0, and the point itself comes last, once around.
//!
//! Where slots and virtual nodes stand is part of the format that sites agree on: a number that
//! names the thing, through the finaliser of SplitMix64 (Steele, Lea, Flood 2014). That is a
//! bijection, and no two things have one number, so no two virtual nodes share a point.

use model::{SiteId, Slot, limits};

/// A position on the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Point(pub u64);

/// What distinguishes the number of a slot from that of a virtual node.
const SLOTS: u64 = 1 << 31;
/// The same of a run of slots.
const RUNS: u64 = 1 << 30;

impl Point {
    /// Where a slot is.
    pub fn of_slot(slot: Slot) -> Point {
        Point(mix(SLOTS | u64::from(slot.number())))
    }

    /// Where a site's virtual node of this index, below [`limits::RING_VIRTUALS_MAX`], stands.
    pub fn of_virtual(site: SiteId, index: u32) -> Point {
        Point(mix(u64::from(site.0) << 32 | u64::from(index)))
    }

    /// The position after this one.
    pub fn next(self) -> Point {
        self.plus(1)
    }

    /// The position so far after this one.
    pub fn plus(self, far: u64) -> Point {
        Point(self.0.wrapping_add(far))
    }

    /// How many positions lie between this one and `other`, clockwise: 0 for the next one,
    /// `u64::MAX` for the point itself.
    pub fn until(self, other: Point) -> u64 {
        other.0.wrapping_sub(self.0).wrapping_sub(1)
    }

    /// Whether this point is after `from` and before `to`. Everything but the point itself is
    /// between a point and itself.
    pub fn is_between(self, from: Point, to: Point) -> bool {
        from.until(self) < from.until(to)
    }
}

/// A virtual node: a point of the ring that a site answers for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Member {
    /// Where it is.
    pub point: Point,
    /// Its site.
    pub site: SiteId,
}

impl From<Member> for wire::ring::Member {
    fn from(member: Member) -> wire::ring::Member {
        wire::ring::Member { point: member.point.0, site: member.site.0 }
    }
}

impl From<wire::ring::Member> for Member {
    fn from(member: wire::ring::Member) -> Member {
        Member { point: Point(member.point), site: SiteId(member.site) }
    }
}

/// Virtual nodes of a site of capacity 1.
const VIRTUALS: f64 = 8.0;

/// How many virtual nodes a site of this capacity has: its share of the ring is proportional to
/// it. With eight, one site's share varies by about a third around that; what must be balanced
/// better is not the ring's (slots have preferred owners, and the ring only finds the site that has
/// registered the owner).
pub fn virtual_count(capacity: f64) -> u32 {
    let wanted = (capacity * VIRTUALS).round();
    // A float becomes the nearest integer there is, and no number becomes 0.
    (wanted as u32).clamp(1, limits::RING_VIRTUALS_MAX)
}

/// What a site has for a run of slots at this index: the highest ticket takes the run. Part of the
/// format that sites agree on, as points are.
pub(in crate::global) fn ticket(run: u16, site: SiteId, index: u32) -> u64 {
    mix(Point::of_virtual(site, index).0 ^ mix(RUNS | u64::from(run)))
}

/// The state of SplitMix64 is counted on by this odd number, the golden ratio's 64 bits.
pub(super) const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// SplitMix64's output for a state.
pub(in crate::global) fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(1).wrapping_mul(GOLDEN);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
