//! How long the way through a ring is, and how much each gateway must store for it, with ever more
//! gateways.
//!
//! Two rings left in peace: Chord as EdgeKV's gateways use it, one point each; and
//! [`protocol::global::ring`], which sites of ours ask when their map has no owner for a slot. A
//! *hop* is another gateway, or site, that is asked until the owner of the key is found; the
//! request itself then goes there. Ours does not ask at all while its map has the owner of a slot,
//! or can compute it from the registry.

use std::collections::BTreeMap;

use model::SiteId;
use protocol::global::ring::{Member, Point, Ring, Step, ideal, virtual_count};

use crate::clients::gateways::chord::Chord;
use crate::paper::edgekv::Size;
use crate::random::Random;

/// Ways that are tried through each ring.
const WAYS: u64 = 2_000;
/// More steps than any way takes.
const STEPS_MAX: usize = 1_000;

/// A ring of so many.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Hops {
    /// Gateways, or sites.
    pub count: usize,
    /// Chord with one point each.
    pub chord: Ways,
    /// Ours.
    pub ours: Ways,
}

/// What the ways through a ring are like.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Ways {
    /// Mean of those asked.
    pub mean: f64,
    /// Most asked on one way.
    pub most: usize,
    /// Mean of pointers that one keeps.
    pub pointers: f64,
}

/// Rings from 3 to 10,000.
#[must_use]
pub fn all(size: Size) -> Vec<Hops> {
    let counts: &[usize] = match size {
        Size::Paper => &[3, 10, 30, 100, 300, 1_000, 3_000, 10_000],
        Size::Quick => &[3, 10, 30, 100],
    };
    counts.iter().map(|count| of(*count)).collect()
}

fn of(count: usize) -> Hops {
    let mut random = Random::stream(count as u64, "hops", 0);
    let chord = Chord::drawn(count, &mut random);
    let mut hops = Vec::new();
    for _ in 0..WAYS {
        let from = random.below(count as u64) as usize;
        hops.push(chord.way(from, random.draw()).len());
    }
    let pointers = (0..count).map(|gateway| chord.pointers(gateway));
    let chord = Ways::new(&hops, pointers.sum::<usize>() as f64 / count as f64);
    let sites = (1..=count as u32).map(SiteId);
    let members = sites.flat_map(|site| {
        let point = move |index| Member { point: Point::of_virtual(site, index), site };
        (0..virtual_count(1.0)).map(point)
    });
    let rings = ideal(&members.collect::<Vec<_>>());
    hops.clear();
    for _ in 0..WAYS {
        let from = SiteId(1 + random.below(count as u64) as u32);
        hops.push(way(&rings, from, Point(random.draw())));
    }
    let pointers = rings.values().map(Ring::len);
    let ours = Ways::new(&hops, pointers.sum::<usize>() as f64 / count as f64);
    Hops { count, chord, ours }
}

/// How many sites one asks until it has the site of a point.
fn way(rings: &BTreeMap<SiteId, Ring>, from: SiteId, target: Point) -> usize {
    let mut at = from;
    for asked in 0..STEPS_MAX {
        match rings.get(&at).map(|ring| ring.step(target)) {
            Some(Step::Ask(next)) => at = next,
            _ => return asked,
        }
    }
    STEPS_MAX
}

impl Ways {
    fn new(hops: &[usize], pointers: f64) -> Ways {
        Ways {
            mean: hops.iter().sum::<usize>() as f64 / hops.len().max(1) as f64,
            most: hops.iter().copied().max().unwrap_or_default(),
            pointers,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_grow_with_the_logarithm_and_pointers_too() {
        let hops = all(Size::Quick);
        for one in &hops {
            let logarithm = (one.count as f64).log2();
            assert!(one.chord.mean <= logarithm / 2.0 + 0.5, "{one:?}");
            assert!(one.ours.mean <= one.chord.mean, "lists and more points: {one:?}");
            assert!(one.chord.pointers <= 2.0 * logarithm + 2.0, "{one:?}");
        }
        assert!(hops.windows(2).all(|pair| pair[0].chord.mean < pair[1].chord.mean));
        assert_eq!(hops[0].ours.mean, 0.0, "three sites have each other on the ring");
    }
}
