//! The pointers of one site: from its virtual nodes to the others.
//!
//! Each virtual node has its own pointers, but all are read and changed together, which allows two
//! things that Chord's nodes could not do.
//!
//! A **successor list** ends at the next virtual node of the same site. That one is up whenever
//! the list is read, so nothing after it is needed; and the rest is in *its* list. What others
//! receive ([`Ring::reported`]) is the lists strung together, since to them the whole site is one
//! that may crash. Otherwise a list ends with the [`limits::RING_SUCCESSORS`]th other site; it
//! holds whatever virtual nodes stand between (a list never skips a live member), and at most
//! [`limits::RING_LIST_MEMBERS_MAX`] of them, which only rings with very unequal sites reach.
//!
//! **Fingers** are kept a virtual node, not a site, and only up to the next virtual node of the
//! same site, from where that one's own reach on. One table a site would be shorter, but its
//! halving distances hold from one point only, while a lookup arrives at any of the site's. A table
//! a virtual node, all of it, would name the same sites many times. So a site of `v` virtual nodes
//! among `m` sites keeps about `v · (8 + log2(m) − 3)` pointers: the list stands for the three
//! nearest fingers.

use super::point::{Member, Point};
use model::{SiteId, limits};
use std::collections::BTreeMap;

/// The pointers of one virtual node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Pointers {
    /// Its successors, in order, none skipped as far as it has found. Never empty.
    pub(super) successors: Vec<Member>,
    /// Its predecessor. `None`: no member has claimed that place yet.
    pub(super) predecessor: Option<Member>,
    /// The first member at each doubling of the distance, between the list's end and the site's
    /// next virtual node, in order.
    pub(super) fingers: Vec<Member>,
}

/// All pointers of one site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ring {
    pub(super) site: SiteId,
    /// Every virtual node of the site; `None`: not a member yet.
    pub(super) virtuals: BTreeMap<Point, Option<Pointers>>,
}

impl Ring {
    /// The ring of a deployment's first site.
    pub fn alone(site: SiteId, virtuals: u32) -> Ring {
        let mut ring = Ring::empty(site, virtuals);
        ring.be_alone();
        ring
    }

    /// The pointers of a site that is not a member yet.
    pub fn empty(site: SiteId, virtuals: u32) -> Ring {
        let virtuals = virtuals.clamp(1, limits::RING_VIRTUALS_MAX);
        let points = (0..virtuals).map(|index| (Point::of_virtual(site, index), None));
        Ring { site, virtuals: points.collect() }
    }

    /// The site of these pointers.
    pub fn site(&self) -> SiteId {
        self.site
    }

    /// Whether the site answers for at least one point.
    pub fn is_member(&self) -> bool {
        self.virtuals.values().any(Option::is_some)
    }

    /// The site's virtual nodes that are members.
    pub fn members(&self) -> impl Iterator<Item = Member> + '_ {
        self.joined().map(|(point, _)| self.own(point))
    }

    /// The site's virtual nodes that are no members yet.
    pub fn waiting(&self) -> impl Iterator<Item = Member> + '_ {
        let waiting = self.virtuals.iter().filter(|(_, pointers)| pointers.is_none());
        waiting.map(|(point, _)| self.own(*point))
    }

    /// The successors of one of the site's virtual nodes, as far as they are known.
    pub fn successors(&self, point: Point) -> &[Member] {
        self.pointers(point).map_or(&[], |pointers| &pointers.successors)
    }

    /// The predecessor of one of them.
    pub fn predecessor(&self, point: Point) -> Option<Member> {
        self.pointers(point)?.predecessor
    }

    /// The far members that one of them has pointers to.
    pub fn fingers(&self, point: Point) -> &[Member] {
        self.pointers(point).map_or(&[], |pointers| &pointers.fingers)
    }

    /// How many pointers these are.
    pub fn len(&self) -> usize {
        self.known().count()
    }

    /// Whether there is no pointer.
    pub fn is_empty(&self) -> bool {
        !self.is_member()
    }

    /// All members that are pointed to, some more than once.
    pub fn known(&self) -> impl Iterator<Item = Member> + '_ {
        self.joined().flat_map(|(_, pointers)| {
            let near = pointers.successors.iter().chain(&pointers.predecessor);
            near.chain(&pointers.fingers).copied()
        })
    }

    /// What others receive of the successors of a virtual node: its list, and where that ends at
    /// another one of the site, that one's list, and so on, until enough other sites are named.
    pub fn reported(&self, point: Point) -> Vec<Member> {
        let mut reported = Vec::new();
        let mut others: Vec<SiteId> = Vec::new();
        let mut at = point;
        loop {
            for member in self.successors(at) {
                if reported.len() == limits::RING_LIST_MEMBERS_MAX {
                    return reported;
                }
                reported.push(*member);
                if member.site != self.site && !others.contains(&member.site) {
                    others.push(member.site);
                }
            }
            match self.successors(at).last() {
                // Once around: named too, as this shows the receiver that there is no other member.
                Some(last) if last.point == point => return reported,
                Some(last) if last.site == self.site && others.len() < limits::RING_SUCCESSORS => {
                    at = last.point;
                }
                _ => return reported,
            }
        }
    }

    /// Pointers of a member.
    pub(super) fn pointers(&self, point: Point) -> Option<&Pointers> {
        self.virtuals.get(&point)?.as_ref()
    }

    pub(super) fn points(&self) -> impl Iterator<Item = Point> + '_ {
        self.virtuals.keys().copied()
    }

    pub(super) fn joined(&self) -> impl DoubleEndedIterator<Item = (Point, &Pointers)> {
        self.virtuals.iter().filter_map(|(point, pointers)| Some((*point, pointers.as_ref()?)))
    }

    pub(super) fn is_joined(&self, point: Point) -> bool {
        self.pointers(point).is_some()
    }

    pub(super) fn own(&self, point: Point) -> Member {
        Member { point, site: self.site }
    }

    /// The site's first member after a point; the point itself if there is no other.
    pub(super) fn point_after(&self, point: Point) -> Point {
        let mut joined = self.joined().map(|(other, _)| other);
        let first = joined.next().unwrap_or(point);
        let mut after =
            self.virtuals.range(point.next()..).filter(|(_, pointers)| pointers.is_some());
        match point.0 == u64::MAX {
            true => first,
            false => after.next().map_or(first, |(other, _)| *other),
        }
    }

    /// The site's last member before a point; the point itself if there is no other.
    pub(super) fn point_before(&self, point: Point) -> Point {
        let mut before = self.virtuals.range(..point).filter(|(_, pointers)| pointers.is_some());
        let last = || self.joined().next_back().map_or(point, |(other, _)| other);
        before.next_back().map_or_else(last, |(other, _)| *other)
    }

    /// Gives a member this successor list, which is cut as the module's head describes: the site's
    /// own next member takes the place of whatever is at or after it, and of an empty list. Points
    /// that were the site's once are left out.
    pub(super) fn put(&mut self, point: Point, list: impl IntoIterator<Item = Member>) {
        let end = self.point_after(point);
        let (mut near, mut others) = (Vec::<Member>::new(), Vec::<SiteId>::new());
        let mut reaches_end = false;
        for member in list {
            if others.len() == limits::RING_SUCCESSORS
                || near.len() == limits::RING_LIST_MEMBERS_MAX
            {
                break;
            }
            let until = point.until(member.point);
            let around = near.last().is_some_and(|last| until <= point.until(last.point));
            if around || until >= point.until(end) {
                reaches_end = true;
                break;
            }
            if member.site == self.site {
                continue;
            }
            if !others.contains(&member.site) {
                others.push(member.site);
            }
            near.push(member);
        }
        if reaches_end || near.is_empty() {
            near.push(self.own(end));
        }
        let Some(Some(pointers)) = self.virtuals.get_mut(&point) else { return };
        pointers.successors = near;
        let reached = pointers.successors.last().map_or(0, |last| point.until(last.point));
        pointers.fingers.retain(|finger| {
            let until = point.until(finger.point);
            reached < until && until < point.until(end)
        });
    }

    /// Sets the predecessor of a member: not farther than the site's own member before it.
    pub(super) fn set_predecessor(&mut self, point: Point, predecessor: Member) {
        let own = self.own(self.point_before(point));
        // A message may name another site at a point of this one: the point is this site's.
        let taken = predecessor.point == own.point || predecessor.point == point;
        let nearer =
            !taken && (point == own.point || predecessor.point.is_between(own.point, point));
        let nearest = if nearer && !self.was_own(predecessor) { predecessor } else { own };
        if let Some(Some(pointers)) = self.virtuals.get_mut(&point) {
            pointers.predecessor = Some(nearest);
        }
    }

    /// Whether it names the site at a point that is no member of it.
    fn was_own(&self, member: Member) -> bool {
        member.site == self.site && !self.is_joined(member.point)
    }

    /// Makes a virtual node a member, with the list of the one after it and that one's
    /// predecessor.
    pub(super) fn insert(&mut self, point: Point, list: Vec<Member>, predecessor: Option<Member>) {
        self.virtuals.insert(point, Some(Pointers::default()));
        self.put(point, list);
        let predecessor =
            predecessor.filter(|before| before.point != point && !self.was_own(*before));
        if let Some(predecessor) = predecessor {
            self.set_predecessor(point, predecessor);
        }
        // The site's neighbours of the new one reach no farther than it now.
        let before = self.point_before(point);
        if before != point {
            self.put(before, self.successors(before).to_vec());
            let after = self.point_after(point);
            if let Some(predecessor) = self.predecessor(after) {
                self.set_predecessor(after, predecessor);
            }
        }
    }

    /// Makes the site a ring by itself.
    pub(super) fn be_alone(&mut self) {
        self.virtuals.values_mut().for_each(|pointers| *pointers = Some(Pointers::default()));
        for point in self.points().collect::<Vec<Point>>() {
            self.put(point, []);
            self.set_predecessor(point, self.own(self.point_before(point)));
        }
    }

    /// Makes all virtual nodes what they were before they joined.
    pub(super) fn clear(&mut self) {
        self.virtuals.values_mut().for_each(|pointers| *pointers = None);
    }

    /// Drops members that are no more: they vanish from lists and fingers, and the members of
    /// the site with a list that this leaves empty are returned. Predecessors are not changed: only
    /// the one that takes a place replaces the predecessor there.
    pub(super) fn forget(&mut self, gone: impl Fn(&Member) -> bool) -> Vec<Point> {
        let mut lost = Vec::new();
        let site = self.site;
        for (point, pointers) in &mut self.virtuals {
            let Some(pointers) = pointers else { continue };
            let is_gone = |member: &Member| member.site != site && gone(member);
            pointers.successors.retain(|member| !is_gone(member));
            pointers.fingers.retain(|member| !is_gone(member));
            if pointers.successors.is_empty() {
                lost.push(*point);
            }
        }
        for point in &lost {
            self.put(*point, []);
        }
        lost
    }

    /// Sets the first member at or after the point `2^exponent` after a member.
    pub(super) fn set_finger(&mut self, point: Point, exponent: u32, found: Member) {
        let end = self.point_after(point);
        let reached = self.successors(point).last().map_or(0, |last| point.until(last.point));
        let Some(Some(pointers)) = self.virtuals.get_mut(&point) else { return };
        let (start, until) = ((1u64 << exponent) - 1, point.until(found.point));
        // No member is between, and one a doubling is enough.
        let doubling = exponent_of(until.max(start));
        let until_max = 1u64.checked_shl(doubling + 1).map_or(u64::MAX, |end| end - 1);
        pointers.fingers.retain(|finger| {
            let until = point.until(finger.point);
            until < start || until >= until_max
        });
        if found.site != self.site && until > reached && until < point.until(end) && until >= start
        {
            let at = pointers.fingers.partition_point(|f| point.until(f.point) < until);
            pointers.fingers.insert(at, found);
        }
    }
}

/// In which doubling of the distance it lies: 0 for the next point, 1 for the two after that, …
pub(super) fn exponent_of(until: u64) -> u32 {
    // `until` counts from 0, distances from 1.
    until.checked_add(1).map_or(63, u64::ilog2)
}
