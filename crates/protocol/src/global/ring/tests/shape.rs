//! Rings as they should be: which site is responsible, how long the ways are, how much a site
//! keeps.

use super::super::{Member, Point, Ring, Step, virtual_count};
use super::{ideal_rings, members};
use crate::global::ring::ideal;
use model::{SiteId, Slot, limits};
use std::collections::{BTreeMap, BTreeSet};

/// The first member at or after a point, found the simple way.
fn responsible(members: &[Member], target: Point) -> Member {
    let first = members.iter().filter(|member| member.point >= target).min();
    *first.or_else(|| members.iter().min()).unwrap()
}

/// Follows the steps from a site: the responsible site, and messages to other sites.
fn walk(rings: &BTreeMap<SiteId, Ring>, from: SiteId, target: Point) -> (SiteId, u32) {
    let (mut at, mut hops) = (from, 0);
    loop {
        match rings[&at].step(target) {
            Step::Mine => return (at, hops),
            Step::At(site) => return (site, hops),
            Step::Ask(site) => (at, hops) = (site, hops + 1),
            Step::Nowhere => panic!("{at} is a member"),
        }
        assert!(hops < limits::RING_HOPS_MAX, "{target:?} is not found from {from}");
    }
}

#[test]
fn every_slot_is_found_from_everywhere_with_its_one_site() {
    for count in [1, 2, 3, 10, 64] {
        let members = members(count, &[1.0, 0.25, 4.0]);
        let rings = ideal(&members);
        for slot in Slot::all().step_by(37) {
            let target = Point::of_slot(slot);
            let right = responsible(&members, target).site;
            let mine: Vec<SiteId> =
                rings.values().filter(|ring| ring.is_mine(target)).map(Ring::site).collect();
            assert_eq!(mine, [right], "{count} sites, slot {slot}");
            for from in rings.keys() {
                assert_eq!(walk(&rings, *from, target).0, right, "{count} sites, slot {slot}");
            }
        }
    }
}

#[test]
fn points_at_the_end_of_the_numbers_are_found() {
    let rings = ideal_rings(12);
    let members = members(12, &[1.0]);
    let edges = [0, 1, u64::MAX, u64::MAX - 1, 1 << 63, (1 << 63) - 1].map(Point);
    let points = members.iter().flat_map(|member| [member.point, member.point.next()]);
    for target in points.chain(edges) {
        for from in rings.keys() {
            assert_eq!(walk(&rings, *from, target).0, responsible(&members, target).site);
        }
    }
}

#[test]
fn sites_that_do_not_answer_are_walked_around() {
    let members = members(40, &[1.0]);
    let rings = ideal(&members);
    for (nth, slot) in Slot::all().step_by(401).enumerate() {
        let target = Point::of_slot(slot);
        // The responsible site is away, and so is the next one.
        let first = responsible(&members, target).site;
        let rest: Vec<Member> =
            members.iter().filter(|member| member.site != first).copied().collect();
        let second = responsible(&rest, target).site;
        let without = [first, second];
        let left: Vec<Member> =
            rest.iter().filter(|member| member.site != second).copied().collect();
        let mut at = *rings.keys().filter(|site| !without.contains(site)).nth(nth % 38).unwrap();
        let found = loop {
            match rings[&at].step_without(target, &without) {
                Step::Mine => break at,
                Step::At(site) => break site,
                Step::Ask(site) => at = site,
                Step::Nowhere => panic!(),
            }
        };
        assert_eq!(found, responsible(&left, target).site);
    }
}

#[test]
fn lists_name_enough_other_sites_or_end_at_home() {
    let unequal: &[f64] = &[1.0, 0.25, 4.0];
    for (count, capacities) in
        [1, 2, 5, 9, 20, 100].into_iter().flat_map(|count| [(count, &[1.0][..]), (count, unequal)])
    {
        for ring in ideal(&members(count, capacities)).values() {
            for member in ring.members() {
                let list = ring.successors(member.point);
                let others: BTreeSet<SiteId> = list
                    .iter()
                    .map(|member| member.site)
                    .filter(|site| *site != ring.site())
                    .collect();
                // Only sites with very many more virtual nodes than others crowd others out.
                let full = list.len() == limits::RING_LIST_MEMBERS_MAX && capacities == unequal;
                let home = list.last().unwrap().site == ring.site();
                let enough = others.len() == limits::RING_SUCCESSORS;
                assert!(home || enough || full, "{count} sites: {list:?}");
                assert!(others.len() <= limits::RING_SUCCESSORS);
            }
        }
    }
}

#[test]
fn shares_of_slots_are_proportional_to_capacities() {
    let capacities = [0.5, 1.0, 2.0, 4.0];
    let members = members(64, &capacities);
    let mut slots: BTreeMap<SiteId, f64> = BTreeMap::new();
    for slot in Slot::all() {
        *slots.entry(responsible(&members, Point::of_slot(slot)).site).or_default() += 1.0;
    }
    let virtuals: u32 = (0..64).map(|nth| virtual_count(capacities[nth % 4])).sum();
    for (nth, capacity) in capacities.iter().enumerate() {
        let of_these = slots.iter().filter(|(site, _)| (site.0 as usize - 1) % 4 == nth);
        let share = of_these.map(|(_, slots)| slots).sum::<f64>() / f64::from(Slot::COUNT);
        let due = 16.0 * f64::from(virtual_count(*capacity)) / f64::from(virtuals);
        assert!((share / due - 1.0).abs() < 0.2, "capacity {capacity}: {share:.3}, due {due:.3}");
    }
}

/// Pointers of a site for each doubling of the number of sites: eight virtual nodes with eight
/// successors are most of them.
const POINTERS_PER_DOUBLING: f64 = 24.0;

#[test]
fn ways_and_pointers_grow_with_the_logarithm() {
    let mut said = String::new();
    let mut wrong = false;
    for count in [3u32, 10, 100, 1_000, 10_000] {
        let rings = ideal_rings(count);
        let doublings = f64::from(count).log2();
        let lookups = 5_000u32;
        let mut hops = 0;
        for nth in 0..lookups {
            let slot = Slot::new((nth * 7_919 % u32::from(Slot::COUNT)) as u16).unwrap();
            hops += walk(&rings, SiteId(nth * 31 % count + 1), Point::of_slot(slot)).1;
        }
        let hops = f64::from(hops) / f64::from(lookups);
        let pointers: Vec<usize> = rings.values().map(Ring::len).collect();
        let mean = pointers.iter().sum::<usize>() as f64 / f64::from(count);
        let most = *pointers.iter().max().unwrap() as f64;
        let bytes = rings.values().map(|ring| ring.encode().len()).max().unwrap();
        let hops_max = doublings / 2.0 + 1.0;
        said += &format!(
            "{count} sites: {hops:.2} hops (at most {hops_max:.2}), {mean:.0} pointers \
             (most {most}, {bytes} bytes)\n"
        );
        wrong |= hops > hops_max || mean > POINTERS_PER_DOUBLING * doublings;
    }
    assert!(!wrong, "{said}");
}
