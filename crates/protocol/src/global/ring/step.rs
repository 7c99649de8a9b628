//! One step of a lookup: what a site's pointers give on the way to a point.
//!
//! *Responsible* for a point is the first member at or after it. A site that is responsible finds
//! that by its predecessor; one with a successor list that reaches past the point finds it there;
//! any other names the nearest member before the point that it points to, which has more pointers
//! to that part of the ring.
//!
//! Everything here reads and decides nothing for good: the pointers may be some messages old, and
//! the named site may answer otherwise. That a slot has one owner does not rest on it.

use super::point::{Member, Point};
use super::pointers::Ring;
use model::SiteId;
use wire::ring::{Find, Found, Way};

/// What a site's pointers give on the way to a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It is responsible itself.
    Mine,
    /// That site is responsible, by this one's pointers.
    At(SiteId),
    /// That site is nearer; ask it.
    Ask(SiteId),
    /// It is not of the ring and has no pointers.
    Nowhere,
}

/// The same with the virtual nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    Mine(Member),
    At(Member),
    Ask(Member),
    Nowhere,
}

impl Ring {
    /// Whether the site is responsible for a point.
    pub fn is_mine(&self, target: Point) -> bool {
        self.responsible(target).is_some()
    }

    /// The next step on the way to a point.
    pub fn step(&self, target: Point) -> Step {
        self.step_without(target, &[])
    }

    /// The next step, on which none of these sites (for instance as they do not answer) is named.
    pub fn step_without(&self, target: Point, without: &[SiteId]) -> Step {
        match self.route(target, without) {
            Route::Mine(_) => Step::Mine,
            Route::At(member) => Step::At(member.site),
            Route::Ask(member) => Step::Ask(member.site),
            Route::Nowhere => Step::Nowhere,
        }
    }

    /// The answer to a question of another site, which any node of the site can give.
    pub fn answer(&self, find: &Find) -> Found {
        let without: Vec<SiteId> = find.without.iter().copied().map(SiteId).collect();
        let way = match self.route(Point(find.target), &without) {
            Route::Mine(member) => Some(Way::Mine(member.into())),
            Route::At(member) => Some(Way::At(member.into())),
            Route::Ask(member) => Some(Way::Ask(member.into())),
            Route::Nowhere => None,
        };
        Found { id: find.id, way }
    }

    /// The site's member that is responsible for a point.
    fn responsible(&self, target: Point) -> Option<Member> {
        let own = match self.is_joined(target) {
            true => target,
            false => self.point_after(target),
        };
        let before = self.pointers(own)?.predecessor;
        let mine =
            own == target || before.is_some_and(|before| is_within(target, before.point, own));
        mine.then(|| self.own(own))
    }

    pub(super) fn route(&self, target: Point, without: &[SiteId]) -> Route {
        if !self.is_member() {
            return Route::Nowhere;
        }
        let named = |member: &Member| !without.contains(&member.site);
        let me = without.contains(&self.site);
        if let Some(own) = self.responsible(target).filter(|_| !me) {
            return Route::Mine(own);
        }
        let before = self.point_before(target);
        // No member is between two neighbours of a list, so the list contains the responsible one.
        // (For a virtual node of our own, its predecessor may point to a member that the list
        // lacks.)
        let mut list = self.successors(before).iter().filter(|member| named(member));
        match list.find(|member| is_within(target, before, member.point)) {
            Some(next) if next.site != self.site => return Route::At(*next),
            Some(own) => {
                let nearer = self.predecessor(own.point).filter(|nearer| {
                    nearer.site != self.site && is_within(target, before, nearer.point)
                });
                return nearer.filter(named).map_or(Route::Mine(*own), Route::At);
            }
            None => {}
        }
        let others = || self.known().filter(|member| member.site != self.site && named(member));
        let nearer = |member: &Member| member.point.is_between(before, target);
        let nearest = others().filter(nearer).min_by_key(|member| member.point.until(target));
        // All of the list is to be left out, and all others before the point: one farther
        // away may have a way around.
        let farther = || others().min_by_key(|member| member.point.until(target));
        match nearest.or_else(farther) {
            Some(other) => Route::Ask(other),
            None if !me => Route::Mine(self.own(self.point_after(target))),
            None => Route::Nowhere,
        }
    }
}

/// Whether a point is after `from` and at or before `to`.
fn is_within(target: Point, from: Point, to: Point) -> bool {
    from.until(target) <= from.until(to)
}
