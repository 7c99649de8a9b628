//! What must hold whatever bytes come: for fuzzing, and the property tests that do the same.
//!
//! Sites of a deployment trust each other, but a message may be of another version, and a row of
//! the state may be damaged. Neither may bring a node down or leave pointers that no ring can have.

use super::{Driver, Member, Point, Ring, RingOutput, ideal};
use model::SiteId;
use prost::Message as _;
use std::time::Duration;
use wire::ring::{Content, RingMessage};

/// Any row of pointers is refused, or is one that is written again as the same bytes and can be
/// asked.
pub fn check_any_row(bytes: &[u8]) {
    let Ok(ring) = Ring::decode(bytes) else { return };
    assert_eq!(ring.encode(), bytes);
    for target in [Point(0), Point(u64::MAX), Point(1 << 63)] {
        ring.step(target);
        ring.step_without(target, &[ring.site()]);
    }
    ring.members().for_each(|member| drop(ring.reported(member.point)));
}

/// Any message is refused, or leaves a site with pointers that can be kept and read again. The
/// first byte names the sender.
pub fn check_any_message(bytes: &[u8]) {
    let Some((from, bytes)) = bytes.split_first() else { return };
    let Ok(message) = RingMessage::decode(bytes) else { return };
    assert_eq!(RingMessage::decode(&message.encode_to_vec()[..]).as_ref(), Ok(&message));
    let from = SiteId(u32::from(*from));
    let virtuals = (1..=4).flat_map(|site| (0..2).map(move |index| (SiteId(site), index)));
    let members =
        virtuals.map(|(site, index)| Member { point: Point::of_virtual(site, index), site });
    let rings = ideal(&members.collect::<Vec<_>>());
    let Some(ring) = rings.get(&SiteId(1)) else { return };
    let mut driver = Driver::new(ring.clone(), 1);
    let (mut now, mut asked) = (Duration::ZERO, 0);
    for _ in 0..3 {
        driver.timeout(now);
        while let Some(output) = driver.poll() {
            if let RingOutput::Send { to, message } = output
                && to == from
            {
                asked = question(&message).unwrap_or(asked);
            }
        }
        driver.handle(now, from, answering(message.clone(), asked));
        now += Duration::from_millis(700);
    }
    driver.timeout(now);
    let kept = driver.ring().encode();
    assert_eq!(Ring::decode(&kept).as_ref(), Ok(driver.ring()));
}

/// The number of a question.
fn question(message: &RingMessage) -> Option<u64> {
    match message.content.as_ref()? {
        Content::Neighbours(asked) => Some(asked.id),
        Content::Find(asked) => Some(asked.id),
        _ => None,
    }
}

/// The same; an answer to this question, if it is an answer: answers to others are ignored.
fn answering(mut message: RingMessage, id: u64) -> RingMessage {
    match &mut message.content {
        Some(Content::Pointers(answer)) => answer.id = id,
        Some(Content::Found(answer)) => answer.id = id,
        _ => {}
    }
    message
}

#[cfg(test)]
mod tests {
    use super::{Content, Point, RingMessage, SiteId, check_any_message, check_any_row};
    use proptest::prelude::*;
    use prost::Message as _;
    use wire::ring::{Find, Found, Gap, Leave, Member, Neighbours, Notify, Pointers, Way};

    fn member() -> impl Strategy<Value = Member> {
        // Points of the ring that receives it, and any others.
        let points = (1u32..=4).prop_flat_map(|site| {
            (0u32..2).prop_map(move |index| Point::of_virtual(SiteId(site), index).0)
        });
        let point = prop_oneof![points, any::<u64>()];
        (point, prop_oneof![0u32..6, any::<u32>()]).prop_map(|(point, site)| Member { point, site })
    }

    fn message() -> impl Strategy<Value = Content> {
        let members = || proptest::collection::vec(member(), 0..12);
        let way = prop_oneof![
            member().prop_map(Way::Mine).boxed(),
            member().prop_map(Way::At).boxed(),
            member().prop_map(Way::Ask).boxed(),
        ];
        let gap = (member(), proptest::option::of(member()), members()).prop_map(
            |(own, predecessor, successors)| Gap { point: own.point, predecessor, successors },
        );
        prop_oneof![
            member().prop_map(|one| Content::Neighbours(Neighbours { id: 1, point: one.point })),
            (member(), any::<bool>(), any::<bool>(), proptest::option::of(member()), members())
                .prop_map(|(own, member, settled, predecessor, successors)| {
                    let point = own.point;
                    Content::Pointers(Pointers {
                        id: 1,
                        point,
                        member,
                        settled,
                        predecessor,
                        successors,
                    })
                }),
            (member(), proptest::option::of(member())).prop_map(|(own, predecessor)| {
                Content::Notify(Notify { point: own.point, predecessor })
            }),
            (member(), proptest::collection::vec(any::<u32>(), 0..12)).prop_map(
                |(own, without)| { Content::Find(Find { id: 1, target: own.point, without }) }
            ),
            proptest::option::of(way).prop_map(|way| Content::Found(Found { id: 1, way })),
            proptest::collection::vec(gap, 0..4).prop_map(|gaps| Content::Leave(Leave { gaps })),
        ]
    }

    proptest! {
        #[test]
        fn no_word_of_a_site_breaks_pointers(message in message(), from in 0u8..6) {
            let mut bytes = vec![from];
            bytes.extend(RingMessage::from(message).encode_to_vec());
            check_any_message(&bytes);
        }

        #[test]
        fn hostile_bytes_break_nothing(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
            check_any_message(&bytes);
            check_any_row(&bytes);
        }
    }

    /// A leaving site names another site at a point that is this site's own.
    #[test]
    fn a_foreign_site_at_an_own_point_breaks_no_pointers() {
        let point = |index| Point::of_virtual(SiteId(1), index).0;
        for (left, named) in [(0, 1), (1, 0), (0, 0), (1, 1)] {
            let predecessor = Some(Member { point: point(named), site: 0 });
            let left = Point::of_virtual(SiteId(3), left).0;
            let gap = Gap { point: left, predecessor, successors: Vec::new() };
            let mut bytes = vec![3];
            let leave = Content::Leave(Leave { gaps: vec![gap] });
            bytes.extend(RingMessage::from(leave).encode_to_vec());
            check_any_message(&bytes);
        }
    }
}
