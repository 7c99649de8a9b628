//! What is written down and must stay as it is.

use super::super::format::RingError;
use super::super::{Member, Point, Ring, Step, virtual_count};
use super::{ideal_rings, virtuals};
use model::{SiteId, Slot};
use proptest::prelude::*;

#[test]
fn points_stay_where_they_are() {
    // Sites of different versions must agree on them: never to be changed.
    let slot = |number| Point::of_slot(Slot::new(number).unwrap()).0;
    assert_eq!(slot(0), 0x706e_de5c_fcdc_9a1c);
    assert_eq!(slot(1), 0x3e27_84d6_b645_1446);
    assert_eq!(slot(16_383), 0x652e_48d4_2cb3_a175);
    let of = |site, index| Point::of_virtual(SiteId(site), index).0;
    assert_eq!(of(1, 0), 0x4609_3cf9_861e_c2e4);
    assert_eq!(of(1, 1), 0xe7ff_814e_1d99_a40b);
    assert_eq!(of(2, 0), 0xbeca_dfbd_e9f3_5965);
    assert_eq!(of(u32::MAX, 63), 0x8076_5854_a3b0_9865);
}

#[test]
fn no_two_things_share_a_point() {
    let slots = Slot::all().map(Point::of_slot);
    let nodes = (0..2_000).flat_map(|site| virtuals(SiteId(site), 64)).map(|member| member.point);
    let mut points: Vec<Point> = slots.chain(nodes).collect();
    let count = points.len();
    points.sort_unstable();
    points.dedup();
    assert_eq!(points.len(), count);
}

#[test]
fn a_capacity_has_its_virtual_nodes() {
    for (capacity, count) in
        [(1.0, 8), (0.5, 4), (2.0, 16), (0.0, 1), (-3.0, 1), (1e9, 64), (f64::NAN, 1)]
    {
        assert_eq!(virtual_count(capacity), count, "{capacity}");
    }
}

#[test]
fn format_1_is_read() {
    // Written once by format 1, never to be changed.
    let mut ring = Ring::alone(SiteId(300), 2);
    let [first, second] = ring.members().collect::<Vec<_>>()[..] else { panic!() };
    let near = Member { point: first.point.next(), site: SiteId(2) };
    ring.put(first.point, [near, second]);
    ring.set_predecessor(second.point, near);
    let bytes: &[u8] =
        b"\x01\xac\x02\x02\xd8\x08\x2e\x9a\xbd\xc7\xe9\x8d\x01\x02\xd9\x08\x2e\x9a\xbd\xc7\
        \xe9\x8d\x02\x65\x2d\x73\x8d\x00\x8c\xb6\xe7\xac\x02\x01\x65\x2d\x73\x8d\x00\x8c\
        \xb6\xe7\xac\x02\x00\x65\x2d\x73\x8d\x00\x8c\xb6\xe7\x01\x01\xd8\x08\x2e\x9a\xbd\
        \xc7\xe9\x8d\xac\x02\x01\xd9\x08\x2e\x9a\xbd\xc7\xe9\x8d\x02\x00";
    assert_eq!(ring.encode(), bytes, "this build writes {}", ring.encode().escape_ascii());
    assert_eq!(Ring::decode(bytes), Ok(ring));
}

#[test]
fn every_ring_is_read_as_it_was_written() {
    let empty = Ring::empty(SiteId(7), 3);
    assert_eq!(empty.step(Point(5)), Step::Nowhere);
    let rings = [1, 2, 3, 10, 60].map(ideal_rings);
    for ring in rings.iter().flat_map(|rings| rings.values()).chain([&empty]) {
        assert_eq!(Ring::decode(&ring.encode()).as_ref(), Ok(ring));
    }
}

#[test]
fn what_no_ring_can_be_is_refused() {
    let rings = ideal_rings(12);
    let bytes = rings[&SiteId(3)].encode();
    for cut in 0..bytes.len() {
        assert!(Ring::decode(&bytes[..cut]).is_err(), "cut at {cut}");
    }
    let mut longer = bytes.clone();
    longer.push(0);
    assert!(Ring::decode(&longer).is_err());
    let mut newer = bytes.clone();
    newer[0] = 2;
    assert_eq!(Ring::decode(&newer), Err(RingError::Version { found: 2 }));
    // One point with the pointers of another: they lie the wrong way.
    let mut elsewhere = bytes;
    elsewhere[10] ^= 0x80;
    assert!(Ring::decode(&elsewhere).is_err());
}

proptest! {
    #[test]
    fn hostile_bytes_are_refused_or_a_ring(
        mut bytes in proptest::collection::vec(any::<u8>(), 0..200),
        from in 0usize..400,
        like_a_ring in any::<bool>(),
    ) {
        if like_a_ring {
            let ring = ideal_rings(5).remove(&SiteId(2)).unwrap().encode();
            let from = from.min(ring.len());
            let noise = std::mem::take(&mut bytes).into_iter().take(3);
            bytes = ring[..from].to_vec();
            bytes.extend(noise);
            bytes.extend_from_slice(&ring[(from + 3).min(ring.len())..]);
        }
        if let Ok(ring) = Ring::decode(&bytes) {
            prop_assert_eq!(ring.encode(), bytes);
            // It can be asked without harm.
            for target in [Point(0), Point(u64::MAX), Point(1 << 63)] {
                ring.step(target);
                ring.step_without(target, &[ring.site()]);
            }
            ring.members().for_each(|member| { ring.reported(member.point); });
        }
    }
}
