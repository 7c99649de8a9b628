//! One driver by itself, with messages that other sites might send.

use super::super::{Driver, Member, Point, Ring, RingOutput, ideal};
use super::simulation::ms;
use super::virtuals;
use model::{SiteId, limits};
use std::collections::BTreeMap;
use std::time::Duration;
use wire::ring::{Content, Find, Leave, Neighbours, Notify, Pointers, RingMessage};

/// Sites 1 to `count` with one virtual node each, in the order of the ring from site 1 on.
fn circle(count: u32) -> Vec<Member> {
    let mut members: Vec<Member> = (1..=count).flat_map(|site| virtuals(SiteId(site), 1)).collect();
    let start = members[0].point;
    members.sort_by_key(|member| start.until(member.point).wrapping_add(1));
    members
}

/// The driver of site 1 and what it sends.
struct One {
    driver: Driver,
    now: Duration,
    said: Vec<(SiteId, Content)>,
}

impl One {
    fn new(ring: Ring) -> One {
        let driver = Driver::new(ring, 1);
        One { driver, now: ms(0), said: Vec::new() }
    }

    fn listen(&mut self) {
        while let Some(output) = self.driver.poll() {
            if let RingOutput::Send { to, message } = output {
                self.said.push((to, message.content.unwrap()));
            }
        }
    }

    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(at) = self.driver.deadline().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.driver.timeout(self.now);
            self.listen();
        }
        self.now = end;
    }

    fn receive(&mut self, from: SiteId, message: Content) {
        self.driver.handle(self.now, from, message.into());
        self.listen();
    }

    /// The question about pointers that a member was asked.
    fn question(&mut self, to: Member) -> Option<Neighbours> {
        let asked = self.said.iter().position(|(site, message)| {
            *site == to.site && matches!(message, Content::Neighbours(of) if of.point == to.point.0)
        });
        match self.said.remove(asked?).1 {
            Content::Neighbours(question) => Some(question),
            _ => None,
        }
    }

    /// Answers what a member was asked.
    fn answer(&mut self, from: Member, settled: bool, before: Member, after: &[Member]) {
        let question = self.question(from).unwrap_or_else(|| panic!("{from:?} is asked nothing"));
        let pointers = Pointers {
            id: question.id,
            point: question.point,
            member: true,
            settled,
            predecessor: Some(before.into()),
            successors: after.iter().copied().map(Into::into).collect(),
        };
        self.receive(from.site, Content::Pointers(pointers));
    }

    fn successors(&self, of: Member) -> Vec<Member> {
        self.driver.ring().successors(of.point).to_vec()
    }
}

/// Site 1 of a ring of so many, with its driver settled.
fn settled(count: u32) -> (One, Vec<Member>) {
    let circle = circle(count);
    let mut one = One::new(ideal(&circle)[&SiteId(1)].clone());
    one.pass(ms(0));
    one.answer(circle[1], true, circle[0], &circle[2..]);
    assert!(one.driver.is_settled());
    assert!(one.question(circle[1]).is_none());
    (one, circle)
}

#[test]
fn pointers_from_before_an_absence_are_not_taken_over() {
    let (mut one, circle) = settled(20);
    let before = one.successors(circle[0]);
    one.pass(ms(1_000));
    one.answer(circle[1], false, circle[0], &circle[5..]);
    assert_eq!(one.successors(circle[0]), before);
    // The question is repeated later, and it is alive.
    one.pass(ms(1_000));
    one.answer(circle[1], true, circle[0], &circle[3..]);
    assert_eq!(one.successors(circle[0])[..2], [circle[1], circle[3]]);
}

#[test]
fn a_nearer_one_with_pointers_from_before_an_absence_is_not_taken() {
    let circle = circle(20);
    let mut known = circle.clone();
    let late = known.remove(1);
    let mut one = One::new(ideal(&known)[&SiteId(1)].clone());
    one.pass(ms(0));
    one.answer(circle[2], true, circle[0], &circle[3..]);
    assert!(one.driver.is_confirmed());
    one.pass(ms(1_000));
    one.answer(circle[2], true, late, &circle[3..]);
    one.answer(late, false, circle[0], &circle[3..]);
    assert_eq!(one.successors(circle[0])[0], circle[2]);
    one.pass(ms(1_000));
    one.answer(circle[2], true, late, &circle[3..]);
    one.answer(late, true, circle[0], &circle[2..]);
    assert_eq!(one.successors(circle[0])[..2], [late, circle[2]]);
}

#[test]
fn who_has_been_away_takes_over_from_others_that_were() {
    let circle = circle(20);
    let mut one = One::new(ideal(&circle)[&SiteId(1)].clone());
    one.pass(ms(0));
    one.answer(circle[1], false, circle[0], &circle[3..]);
    assert!(one.driver.is_settled());
    assert_eq!(one.successors(circle[0])[1], circle[3]);
}

#[test]
fn who_has_been_away_is_confirmed_in_its_place_only() {
    let circle = circle(20);
    let mut known = circle.clone();
    let late = known.remove(1);
    let mut one = One::new(ideal(&known)[&SiteId(1)].clone());
    one.pass(ms(0));
    one.answer(circle[2], true, late, &circle[3..]);
    assert!(!one.driver.is_confirmed(), "another site is between");
    one.answer(late, true, circle[0], &circle[2..]);
    assert!(one.driver.is_confirmed());
}

#[test]
fn who_finds_nobody_tries_the_directory_before_it_is_alone() {
    let circle = circle(2);
    let mut one = One::new(ideal(&circle)[&SiteId(1)].clone());
    let directory: Vec<SiteId> = (1..=30).map(SiteId).collect();
    one.driver.remind(ms(0), &directory);
    one.pass(ms(4_000));
    assert!(!one.driver.ring().is_member(), "whom it knew is gone");
    one.pass(ms(20_000));
    assert!(!one.driver.ring().is_member(), "not all have been tried");
    one.pass(ms(200_000));
    assert!(one.driver.is_confirmed());
    assert_eq!(one.successors(circle[0]), circle[..1]);
    let tried = |site: &SiteId| {
        let finds = one
            .said
            .iter()
            .filter(|(to, message)| to == site && matches!(message, Content::Find(_)));
        finds.count()
    };
    assert!(directory[1..].iter().all(|site| tried(site) >= 3));
}

#[test]
fn nobody_joins_before_one_that_has_been_away() {
    let circle = circle(3);
    let mut one = One::new(Ring::empty(SiteId(1), 1));
    one.driver.join(ms(0), circle[1].site);
    for settled in [false, true] {
        one.listen();
        let find = one.said.pop().map(|(_, message)| message);
        let Some(Content::Find(Find { id, .. })) = find else { panic!("{find:?}") };
        let way = Some(wire::ring::Way::At(circle[1].into()));
        one.receive(circle[1].site, Content::Found(wire::ring::Found { id, way }));
        one.answer(circle[1], settled, circle[2], &[circle[2]]);
        assert_eq!(one.driver.ring().is_member(), settled);
        if !settled {
            one.pass(ms(600));
        }
    }
    assert_eq!(one.driver.ring().predecessor(circle[0].point), Some(circle[2]));
}

#[test]
fn a_predecessor_that_lies_behind_is_none() {
    // Site 2 names a dead site between itself and the one that joins as its predecessor.
    let circle = circle(4);
    let mut one = One::new(Ring::empty(SiteId(1), 1));
    one.driver.join(ms(0), circle[2].site);
    one.listen();
    let Some((_, Content::Find(Find { id, .. }))) = one.said.pop() else { panic!() };
    let way = Some(wire::ring::Way::Mine(circle[2].into()));
    one.receive(circle[2].site, Content::Found(wire::ring::Found { id, way }));
    one.answer(circle[2], true, circle[1], &[circle[3]]);
    // The nearer one is asked, and does not answer.
    assert!(one.question(circle[1]).is_some());
    one.driver.unreachable(one.now, circle[1].site);
    one.pass(ms(600));
    let Some((_, Content::Find(Find { id, without, .. }))) = one.said.pop() else { panic!() };
    assert!(without.contains(&circle[1].site.0));
    one.receive(circle[2].site, Content::Found(wire::ring::Found { id, way }));
    one.answer(circle[2], true, circle[1], &[circle[3]]);
    assert_eq!(one.successors(circle[0])[0], circle[2]);
    assert_eq!(one.driver.ring().predecessor(circle[0].point), None);
    // So it answers for nothing but its own point until its predecessor has spoken.
    assert!(!one.driver.ring().is_mine(Point(circle[0].point.0.wrapping_sub(1))));
    let said = Notify { point: circle[0].point.0, predecessor: Some(circle[3].into()) };
    one.receive(circle[3].site, Content::Notify(said));
    assert!(one.driver.ring().is_mine(Point(circle[0].point.0.wrapping_sub(1))));
}

#[test]
fn a_predecessor_is_replaced_by_a_nearer_one_or_when_it_is_dead() {
    let (mut one, circle) = settled(20);
    let of = circle[0].point;
    let notify =
        |from: Member| Content::Notify(Notify { point: of.0, predecessor: Some(from.into()) });
    // A farther one: the old one is asked, and is alive.
    one.receive(circle[17].site, notify(circle[17]));
    one.answer(circle[19], true, circle[18], &[circle[0]]);
    assert_eq!(one.driver.ring().predecessor(of), Some(circle[19]));
    // It is dead.
    one.receive(circle[17].site, notify(circle[17]));
    one.pass(ms(2_900));
    assert_eq!(one.driver.ring().predecessor(of), Some(circle[19]));
    one.pass(ms(200));
    assert_eq!(one.driver.ring().predecessor(of), Some(circle[17]));
    // A nearer one is not doubted; a sender that names another is.
    one.receive(circle[17].site, notify(circle[18]));
    assert_eq!(one.driver.ring().predecessor(of), Some(circle[17]));
    one.receive(circle[18].site, notify(circle[18]));
    assert_eq!(one.driver.ring().predecessor(of), Some(circle[18]));
}

#[test]
fn a_dead_site_is_forgotten_everywhere() {
    let (mut one, circle) = settled(20);
    one.pass(ms(1_000));
    let dead = circle[1].site;
    assert!(one.driver.ring().known().any(|member| member.site == dead));
    one.driver.unreachable(one.now, dead);
    assert!(one.driver.ring().known().all(|member| member.site != dead));
    // A list that has become shorter does not pretend to go around.
    assert_eq!(one.successors(circle[0]), circle[2..=limits::RING_SUCCESSORS]);
    // Nor does one that was sent as a short one.
    one.pass(ms(0));
    one.answer(circle[2], true, circle[0], &[circle[3]]);
    assert_eq!(one.successors(circle[0]), circle[2..4]);
    // A site that nothing was asked of is left alone: it may only have been slow to connect.
    one.driver.unreachable(one.now, circle[3].site);
    assert!(one.successors(circle[0]).contains(&circle[3]));
}

#[test]
fn who_has_lost_all_successors_seeks_one() {
    let (mut one, circle) = settled(20);
    for dead in &circle[1..=limits::RING_SUCCESSORS] {
        one.pass(ms(0));
        one.pass(ms(600));
        one.said.clear();
        one.driver.unreachable(one.now, dead.site);
    }
    assert_eq!(one.successors(circle[0]), circle[..1], "there is no other site");
    one.pass(ms(0));
    let seeks = |(_, message): &(SiteId, Content)| matches!(message, Content::Find(find) if find.target == circle[0].point.next().0);
    assert!(one.said.iter().any(seeks), "{:?}", one.said);
}

#[test]
fn a_list_that_leaves_is_made_whole_by_those_who_left() {
    let (mut one, circle) = settled(20);
    let rings: BTreeMap<SiteId, Ring> = ideal(&circle);
    let gone = circle[1].site;
    let mut other = Driver::new(rings[&gone].clone(), 1);
    other.leave(ms(0));
    let leave = std::iter::from_fn(|| other.poll()).find_map(|output| match output {
        RingOutput::Send { to: SiteId(1), message } => message.content,
        _ => None,
    });
    assert!(!other.ring().is_member() && other.deadline().is_none());
    one.receive(gone, leave.expect("a message for it"));
    assert_eq!(one.successors(circle[0]), circle[2..2 + limits::RING_SUCCESSORS]);
}

#[test]
fn words_without_sense_change_nothing() {
    let (mut one, circle) = settled(20);
    let before = one.driver.ring().clone();
    let stranger = SiteId(99);
    let pointers = Pointers { id: 5, member: true, settled: true, ..Pointers::default() };
    for message in [
        Content::Pointers(pointers),
        Content::Found(wire::ring::Found { id: 5, way: None }),
        Content::Leave(Leave::default()),
        Content::Notify(Notify::default()),
        Content::Notify(Notify { point: 3, predecessor: Some(circle[3].into()) }),
        Content::Neighbours(Neighbours { id: 1, point: 3 }),
        Content::Find(Find { id: 1, target: 2, without: (0..10_000).collect() }),
    ] {
        one.receive(stranger, message);
    }
    one.driver.handle(one.now, stranger, RingMessage { content: None });
    assert_eq!(one.driver.ring(), &before);
    // An answer that comes from another site than was asked.
    one.pass(ms(1_000));
    let question = one.question(circle[1]).unwrap();
    let pointers = Pointers { id: question.id, member: false, ..Pointers::default() };
    one.receive(stranger, Content::Pointers(pointers.clone()));
    assert_eq!(one.driver.ring(), &before);
    one.receive(circle[1].site, Content::Pointers(pointers));
    assert_ne!(one.driver.ring(), &before);
}
