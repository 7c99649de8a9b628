//! What must be true of all pointers together: Zave's invariant, and the ring as it should be.
//!
//! The predicates are those of "How to make Chord correct" (Zave 2012): from every member one can
//! go on to a living one, the members that are reached for ever are *one* ring, that ring goes once
//! around in order, and every other member leads to it. They hold at every moment, whatever joins,
//! leaves and crashes, as long as no site is wrongly taken for dead, the network is not cut, and no
//! member loses its whole successor list at once. [`is_ideal`] is what a ring becomes when it is
//! left in peace; fingers are no part of it, since nothing but the length of ways depends on them.

use super::ideal;
use super::point::{Member, Point};
use super::pointers::Ring;
use model::SiteId;
use std::collections::{BTreeMap, BTreeSet};

/// What is wrong with the pointers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// There are no living members at all.
    #[error("no site of the ring is alive")]
    NoRing,
    /// A member has no live member in its successor list.
    #[error("{0:?} has no living member that comes after it")]
    NoSuccessor(Member),
    /// The living members go around in more than one ring; one of each.
    #[error("{0:?} and {1:?} are on different rings")]
    TwoRings(Member, Member),
    /// The ring does not go around in order: another of its members is between these two.
    #[error("the ring goes from {0:?} to {1:?} and leaves out {2:?}")]
    Disordered(Member, Member, Member),
}

/// The first living member in every living member's successor list.
fn nexts(rings: &[&Ring], live: &BTreeSet<SiteId>) -> Result<BTreeMap<Member, Member>, Violation> {
    let alive = || rings.iter().filter(|ring| live.contains(&ring.site()));
    let members: BTreeSet<Member> = alive().flat_map(|ring| ring.members()).collect();
    let mut nexts = BTreeMap::new();
    for ring in alive() {
        for member in ring.members() {
            let mut list = ring.successors(member.point).iter();
            let next = list.find(|next| members.contains(next));
            nexts.insert(member, *next.ok_or(Violation::NoSuccessor(member))?);
        }
    }
    Ok(nexts)
}

/// Whether the invariant holds: at least one ring, at most one ring, an ordered ring, connected
/// appendages. (With one way on from each member, the last follows from the first two.)
///
/// `live` are the sites that run and whose driver `is_confirmed`: one that has come back counts
/// as crashed until a site has taken it in.
pub fn check(rings: &[&Ring], live: &BTreeSet<SiteId>) -> Result<(), Violation> {
    let nexts = nexts(rings, live)?;
    let Some(&start) = nexts.keys().next() else { return Err(Violation::NoRing) };
    // After as many steps as there are members one is on a ring.
    let on_ring = |from: Member| (0..nexts.len()).fold(from, |at, _| nexts[&at]);
    let first = on_ring(start);
    let mut ring = vec![first];
    let mut at = nexts[&first];
    while at != first {
        ring.push(at);
        at = nexts[&at];
    }
    // One that leads to a member that leads to the ring leads to it too.
    let mut leads: BTreeSet<Member> = ring.iter().copied().collect();
    for member in nexts.keys() {
        let (mut way, mut at) = (BTreeSet::new(), *member);
        while !leads.contains(&at) {
            if !way.insert(at) {
                return Err(Violation::TwoRings(first, at));
            }
            at = nexts[&at];
        }
        leads.extend(way);
    }
    for member in &ring {
        let next = nexts[member];
        let between = |other: &&Member| other.point.is_between(member.point, next.point);
        if let Some(left_out) = ring.iter().find(between) {
            return Err(Violation::Disordered(*member, next, *left_out));
        }
    }
    Ok(())
}

/// Whether every virtual node of every living site is a member, and all their successor lists and
/// predecessors are what they should be.
pub fn is_ideal(rings: &[&Ring], live: &BTreeSet<SiteId>) -> bool {
    let alive = || rings.iter().filter(|ring| live.contains(&ring.site()));
    let all: Vec<Member> = alive().flat_map(|ring| ring.members()).collect();
    let right = ideal(&all);
    alive().all(|ring| {
        let right = &right.get(&ring.site());
        ring.waiting().next().is_none()
            && right.is_some_and(|right| {
                ring.members().all(|Member { point, .. }| same_place(ring, right, point))
            })
    })
}

fn same_place(ring: &Ring, right: &Ring, point: Point) -> bool {
    ring.successors(point) == right.successors(point)
        && ring.predecessor(point) == right.predecessor(point)
}
