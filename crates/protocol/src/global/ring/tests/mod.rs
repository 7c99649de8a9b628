//! The ring by itself: formats, single steps, and rings that were made as they should be.

mod churn;
mod driver;
mod format;
mod invariant;
mod life;
mod lookups;
mod shape;
mod simulation;

use super::{Member, Point, Ring, ideal, virtual_count};
use model::SiteId;
use std::collections::BTreeMap;

/// The members of sites 1 to `count`, of these capacities in turn.
fn members(count: u32, capacities: &[f64]) -> Vec<Member> {
    (1..=count)
        .zip(capacities.iter().cycle())
        .flat_map(|(site, capacity)| virtuals(SiteId(site), virtual_count(*capacity)))
        .collect()
}

fn virtuals(site: SiteId, count: u32) -> impl Iterator<Item = Member> {
    (0..count).map(move |index| Member { point: Point::of_virtual(site, index), site })
}

/// The rings of sites 1 to `count`, of capacity 1.
fn ideal_rings(count: u32) -> BTreeMap<SiteId, Ring> {
    ideal(&members(count, &[1.0]))
}
