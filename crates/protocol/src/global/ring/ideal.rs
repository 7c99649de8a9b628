//! The ring as it should be: all pointers of all sites, computed from the members.
//!
//! No site can do this. It is what a ring that is left in peace becomes, so tests compare with it;
//! and experiments with many sites begin with it instead of joining them one by one.

use super::point::{Member, Point};
use super::pointers::{Pointers, Ring, exponent_of};
use model::SiteId;
use std::collections::BTreeMap;

/// The pointers of every site of these members.
pub fn ideal(members: &[Member]) -> BTreeMap<SiteId, Ring> {
    let mut circle = members.to_vec();
    circle.sort_unstable();
    circle.dedup_by_key(|member| member.point);
    let mut rings: BTreeMap<SiteId, Ring> = BTreeMap::new();
    for member in &circle {
        let ring = rings
            .entry(member.site)
            .or_insert_with(|| Ring { site: member.site, virtuals: BTreeMap::new() });
        ring.virtuals.insert(member.point, Some(Pointers::default()));
    }
    for (at, member) in circle.iter().enumerate() {
        let Some(ring) = rings.get_mut(&member.site) else { continue };
        let after = circle[at + 1..].iter().chain(&circle[..=at]).copied();
        ring.put(member.point, after);
        let before = circle[at.checked_sub(1).unwrap_or(circle.len() - 1)];
        ring.set_predecessor(member.point, before);
        set_fingers(ring, member.point, &circle);
    }
    rings
}

fn set_fingers(ring: &mut Ring, point: Point, circle: &[Member]) {
    let end = point.until(ring.point_after(point));
    let Some(last) = ring.successors(point).last() else { return };
    let mut exponent = exponent_of(point.until(last.point)) + 1;
    while exponent < u64::BITS && (1u64 << exponent) - 1 < end {
        let start = point.plus(1 << exponent);
        let at = circle.partition_point(|member| member.point < start);
        let found = circle[at % circle.len()];
        ring.set_finger(point, exponent, found);
        exponent = exponent_of(point.until(found.point)).max(exponent) + 1;
    }
}
