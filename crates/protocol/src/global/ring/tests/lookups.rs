//! Lookups over messages: their hops, sites that do not answer, and their limits.

use super::super::{LOOKUP_TIMEOUT, LookupOutput, Lookups, Point, Ring, Step};
use super::ideal_rings;
use super::simulation::ms;
use model::{SiteId, Slot, limits};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use wire::ring::{Content, Found, RingMessage};

fn find(message: RingMessage) -> wire::ring::Find {
    match message.content {
        Some(Content::Find(find)) => find,
        other => panic!("{other:?} is no question of a lookup"),
    }
}

/// Looks one point up from a site while these are dead: the site found, the hops and the time.
fn look_up(
    rings: &BTreeMap<SiteId, Ring>,
    from: SiteId,
    target: Point,
    dead: &BTreeSet<SiteId>,
) -> Option<(SiteId, u32, Duration)> {
    let ring = &rings[&from];
    let (mut lookups, mut now) = (Lookups::new(7, LOOKUP_TIMEOUT), ms(0));
    let number = lookups.begin(now, target, ring);
    loop {
        match lookups.poll() {
            Some(LookupOutput::Send { to, message }) => match rings.get(&to) {
                Some(other) if !dead.contains(&to) => {
                    let found = other.answer(&find(message));
                    now += ms(10);
                    assert!(lookups.handle(now, to, &found, ring));
                    assert!(!lookups.handle(now, to, &found, ring), "an answer counts once");
                }
                _ => {
                    now = lookups.deadline().unwrap();
                    lookups.timeout(now, ring);
                }
            },
            Some(LookupOutput::Done { id, site, hops, .. }) => {
                assert_eq!((id, lookups.deadline()), (number, None));
                return Some((site, hops, now));
            }
            Some(LookupOutput::Failed { id, .. }) => {
                assert_eq!((id, lookups.deadline()), (number, None));
                return None;
            }
            None => panic!("the lookup was forgotten"),
        }
    }
}

fn targets(every: usize) -> impl Iterator<Item = Point> {
    Slot::all().step_by(every).map(Point::of_slot)
}

#[test]
fn a_lookup_finds_who_is_responsible() {
    let rings = ideal_rings(200);
    for (nth, target) in targets(97).enumerate() {
        let from = SiteId(nth as u32 % 200 + 1);
        let (site, hops, took) = look_up(&rings, from, target, &BTreeSet::new()).unwrap();
        assert!(rings[&site].is_mine(target));
        assert_eq!(took, ms(10) * hops);
    }
}

#[test]
fn dead_sites_are_walked_around() {
    let rings = ideal_rings(100);
    let dead: BTreeSet<SiteId> = rings.keys().copied().filter(|site| site.0 % 4 == 0).collect();
    let mut waited = 0;
    for (nth, target) in targets(97).enumerate() {
        let from = SiteId(nth as u32 % 25 * 4 + 1);
        let (site, _, took) = look_up(&rings, from, target, &dead).expect("three of four live");
        waited += u32::from(took >= LOOKUP_TIMEOUT);
        // The ring has not noticed yet: a dead site may be named, but never was asked in vain.
        assert!(rings[&site].is_mine(target) || !dead.contains(&site), "{site}");
    }
    assert!(waited > 10, "some ways lead over dead sites");
}

#[test]
fn a_lookup_that_nobody_answers_fails() {
    let rings = ideal_rings(100);
    let others: BTreeSet<SiteId> = rings.keys().copied().filter(|site| site.0 != 1).collect();
    let ring = &rings[&SiteId(1)];
    let far = targets(1).find(|target| matches!(ring.step(*target), Step::Ask(_))).unwrap();
    assert_eq!(look_up(&rings, SiteId(1), far, &others), None);
}

#[test]
fn a_site_that_is_no_member_or_leads_back_is_avoided() {
    let mut rings = ideal_rings(60);
    let ring = rings[&SiteId(1)].clone();
    let far = targets(1).find(|target| matches!(ring.step(*target), Step::Ask(_))).unwrap();
    let Step::Ask(first) = ring.step(far) else { panic!() };
    let right = look_up(&rings, SiteId(1), far, &BTreeSet::new()).unwrap().0;
    rings.insert(first, Ring::empty(first, 8));
    let found = look_up(&rings, SiteId(1), far, &BTreeSet::new()).unwrap();
    assert_eq!(found.0, right);
    // It names a member farther away than itself, for ever.
    let mut lookups = Lookups::new(1, LOOKUP_TIMEOUT);
    lookups.begin(ms(0), far, &ring);
    let Some(LookupOutput::Send { to, message }) = lookups.poll() else { panic!() };
    let back = super::virtuals(SiteId(9), 1).next().unwrap();
    let back = wire::ring::Member { point: far.next().0, site: back.site.0 };
    let way = Some(wire::ring::Way::Ask(back));
    lookups.handle(ms(1), to, &Found { id: find(message).id, way }, &ring);
    match lookups.poll() {
        Some(LookupOutput::Send { to: other, message }) => {
            assert!(other != to && find(message).without.contains(&to.0));
        }
        Some(LookupOutput::Done { .. }) => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn lookups_of_one_point_are_one_and_there_are_only_so_many() {
    let rings = ideal_rings(1_000);
    let ring = &rings[&SiteId(1)];
    let far = targets(1).filter(|target| matches!(ring.step(*target), Step::Ask(_)));
    let far: Vec<Point> = far.take(limits::RING_LOOKUPS_MAX + 1).collect();
    let mut lookups = Lookups::new(u64::MAX - 5, LOOKUP_TIMEOUT);
    let first = lookups.begin(ms(0), far[0], ring);
    assert_eq!(lookups.begin(ms(0), far[0], ring), first);
    for target in &far[1..] {
        lookups.begin(ms(0), *target, ring);
    }
    let outputs: Vec<LookupOutput> = std::iter::from_fn(|| lookups.poll()).collect();
    let (last, sent) = outputs.split_last().unwrap();
    assert_eq!(sent.len(), limits::RING_LOOKUPS_MAX);
    assert!(matches!(last, LookupOutput::Failed { target, .. } if *target == far[far.len() - 1]));
    // An answer from another site, or to another's question, changes nothing.
    let stranger = Found { id: 77, way: None };
    assert!(!lookups.handle(ms(1), SiteId(2), &stranger, ring));
    assert!(!lookups.handle(ms(1), SiteId(0), &Found { id: first, way: None }, ring));
}
