//! Pointers that are known to be wrong, and in which way.

use super::super::invariant::{Violation, check, is_ideal};
use super::super::{Member, Ring, ideal};
use super::{ideal_rings, members, virtuals};
use model::SiteId;
use std::collections::{BTreeMap, BTreeSet};

fn seen(rings: &BTreeMap<SiteId, Ring>) -> Result<(), Violation> {
    check(&rings.values().collect::<Vec<_>>(), &rings.keys().copied().collect())
}

fn is_right(rings: &BTreeMap<SiteId, Ring>) -> bool {
    is_ideal(&rings.values().collect::<Vec<_>>(), &rings.keys().copied().collect())
}

/// Four sites with one virtual node each, in the order of the ring, and their ideal rings.
fn four() -> ([Member; 4], BTreeMap<SiteId, Ring>) {
    let mut four: Vec<Member> = (1..=4).flat_map(|site| virtuals(SiteId(site), 1)).collect();
    four.sort();
    let rings = ideal(&four);
    (four.try_into().unwrap(), rings)
}

#[test]
fn rings_as_they_should_be_are_right() {
    for count in [1, 2, 3, 20] {
        let rings = ideal_rings(count);
        assert_eq!(seen(&rings), Ok(()));
        assert!(is_right(&rings));
    }
}

#[test]
fn no_sites_are_no_ring() {
    let rings = ideal_rings(3);
    assert_eq!(
        check(&rings.values().collect::<Vec<_>>(), &BTreeSet::new()),
        Err(Violation::NoRing)
    );
    assert_eq!(check(&[&Ring::empty(SiteId(1), 1)], &[SiteId(1)].into()), Err(Violation::NoRing));
}

#[test]
fn two_rings_are_seen() {
    let all = members(10, &[1.0]);
    let (even, odd): (Vec<Member>, Vec<Member>) = all.iter().partition(|own| own.site.0 % 2 == 0);
    let mut rings = ideal(&even);
    rings.extend(ideal(&odd));
    assert!(matches!(seen(&rings), Err(Violation::TwoRings(..))));
    assert!(!is_right(&rings));
}

#[test]
fn a_list_of_dead_sites_is_seen() {
    let ([a, b, c, d], mut rings) = four();
    rings.get_mut(&a.site).unwrap().put(a.point, [b, c]);
    let all: Vec<&Ring> = rings.values().collect();
    assert_eq!(check(&all, &[a.site, b.site, d.site].into()), Ok(()));
    let live = [a.site, d.site].into();
    assert_eq!(check(&all, &live), Err(Violation::NoSuccessor(a)));
}

#[test]
fn a_ring_that_goes_around_twice_is_seen() {
    let ([a, b, c, d], mut rings) = four();
    for (of, next) in [(a, c), (c, b), (b, d), (d, a)] {
        rings.get_mut(&of.site).unwrap().put(of.point, [next]);
    }
    assert!(matches!(seen(&rings), Err(Violation::Disordered(..))));
}

#[test]
fn appendages_are_allowed_and_not_ideal() {
    let ([a, b, c, _], mut rings) = four();
    rings.get_mut(&a.site).unwrap().put(a.point, [c, b]);
    assert_eq!(seen(&rings), Ok(()));
    assert!(!is_right(&rings));
    // Neither is a wrong predecessor, nor a site that waits.
    let ([_, b, _, d], mut rings) = four();
    rings.get_mut(&b.site).unwrap().set_predecessor(b.point, d);
    assert_eq!(seen(&rings), Ok(()));
    assert!(!is_right(&rings));
    let (_, mut rings) = four();
    rings.insert(SiteId(5), Ring::empty(SiteId(5), 1));
    assert!(!is_right(&rings));
}
