//! Chord as EdgeKV's gateways use it: one point each, a finger at every doubling of the distance,
//! and no list of successors (Stoica and others, 2001, without their §6).
//!
//! Positions are the numbers of 64 bits in a circle. A gateway answers for what lies after the one
//! before it, up to itself. The fingers here are those of a ring left in peace.

use crate::random::Random;

/// A ring of gateways, numbered in its order.
#[derive(Debug, Clone)]
pub struct Chord {
    /// Where they stand, ascending.
    points: Vec<u64>,
}

impl Chord {
    /// So many gateways, at least one, at equal distances.
    #[must_use]
    pub fn even(count: usize) -> Chord {
        let gap = u64::MAX / count.max(1) as u64;
        Chord { points: (0..count.max(1) as u64).map(|number| number * gap).collect() }
    }

    /// So many gateways, at least one, where chance puts them.
    #[must_use]
    pub fn drawn(count: usize, random: &mut Random) -> Chord {
        let mut points: Vec<u64> = (0..count.max(1)).map(|_| random.draw()).collect();
        points.sort_unstable();
        Chord { points }
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.points.len()
    }

    /// The gateway that is responsible for a position.
    #[must_use]
    pub fn owner(&self, position: u64) -> usize {
        self.points.partition_point(|point| *point < position) % self.points.len()
    }

    /// The position at which a gateway stands.
    #[must_use]
    pub fn position(&self, gateway: usize) -> u64 {
        self.points[gateway]
    }

    /// The gateways that a gateway asks in turn until it has the one responsible for a position;
    /// none, if that is itself or the one after it.
    #[must_use]
    pub fn way(&self, from: usize, position: u64) -> Vec<usize> {
        let mut asked = Vec::new();
        let mut at = from;
        if self.owner(position) == from {
            return asked;
        }
        while self.owner(position) != (at + 1) % self.points.len() {
            at = self.nearest_before(at, position);
            asked.push(at);
        }
        asked
    }

    /// The different gateways that one points to: its fingers, and the one before it.
    #[must_use]
    pub fn pointers(&self, of: usize) -> usize {
        let before = (of + self.points.len() - 1) % self.points.len();
        let mut known: Vec<usize> = self.fingers(of).chain([before]).collect();
        known.sort_unstable();
        known.dedup();
        known.retain(|one| *one != of);
        known.len()
    }

    /// From the nearest to the farthest.
    fn fingers(&self, of: usize) -> impl DoubleEndedIterator<Item = usize> {
        (0..u64::BITS).map(move |bit| self.owner(self.points[of].wrapping_add(1 << bit)))
    }

    /// The farthest finger that does not reach the position.
    fn nearest_before(&self, at: usize, position: u64) -> usize {
        let far = |to: u64| to.wrapping_sub(self.points[at]);
        let next = (at + 1) % self.points.len();
        let before = |finger: &usize| (1..far(position)).contains(&far(self.points[*finger]));
        self.fingers(at).rev().find(before).unwrap_or(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn among_three_it_is_known_at_once_or_the_next_one_is_asked() {
        let ring = Chord::even(3);
        let way = |from, to| ring.way(from, ring.position(to));
        assert_eq!((way(0, 0), way(0, 1), way(0, 2)), (vec![], vec![], vec![1]));
        assert_eq!((way(2, 0), way(2, 1)), (vec![], vec![0]));
        assert_eq!(ring.pointers(0), 2);
        assert!(Chord::even(1).way(0, 7).is_empty());
    }

    #[test]
    fn every_way_ends_before_the_owner_and_takes_half_the_logarithm() {
        let mut random = Random::new(3);
        let ring = Chord::drawn(1_000, &mut random);
        let mut hops = 0;
        for _ in 0..2_000 {
            let (from, position) = (random.below(1_000) as usize, random.draw());
            let way = ring.way(from, position);
            if let Some(last) = way.last() {
                assert_eq!((last + 1) % 1_000, ring.owner(position));
            }
            hops += way.len();
        }
        // Half of log₂ 1,000 is 5; the last step follows from the pointers of the one before it.
        let mean = hops as f64 / 2_000.0;
        assert!((4.0..5.5).contains(&mean), "{mean}");
        let pointers: usize = (0..1_000).map(|of| ring.pointers(of)).sum();
        let mean = pointers as f64 / 1_000.0;
        assert!((9.0..13.0).contains(&mean), "{mean}");
    }
}
