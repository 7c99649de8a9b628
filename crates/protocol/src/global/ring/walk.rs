//! One lookup, for any caller: where it is, which sites it avoids, which site it asks next.
//!
//! It goes on from answer to answer, always nearer to the point. A site that does not answer, is of
//! no ring or redirects wrongly is avoided from then on, by the asked sites too, and the lookup
//! begins again at its own site.

use super::point::{Member, Point};
use super::pointers::Ring;
use super::step::Route;
use model::{SiteId, limits};
use wire::ring::{Find, Way};

#[derive(Clone, Debug)]
pub(super) struct Walk {
    pub(super) target: Point,
    /// Messages to other sites so far.
    pub(super) hops: u32,
    avoided: Vec<SiteId>,
    asked: Option<SiteId>,
    /// How far before the target the member is that was asked last; nearer is better.
    until: Option<u64>,
}

/// What a lookup does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Ask(SiteId),
    Done(Member),
    Failed,
}

impl Walk {
    /// A lookup of a point, with an answer that is none of these sites.
    pub(super) fn new(target: Point, avoided: impl IntoIterator<Item = SiteId>) -> Walk {
        let avoided = avoided.into_iter().take(limits::RING_AVOIDED_MAX).collect();
        Walk { target, hops: 0, avoided, asked: None, until: None }
    }

    /// Begins with the site's own pointers.
    pub(super) fn begin(&mut self, ring: &Ring) -> Next {
        self.until = None;
        match ring.route(self.target, &self.avoided) {
            Route::Mine(member) | Route::At(member) => Next::Done(member),
            Route::Ask(member) => self.ask(member),
            Route::Nowhere => Next::Failed,
        }
    }

    /// Begins with a question to a site.
    pub(super) fn begin_via(&mut self, via: SiteId) -> Next {
        self.until = None;
        self.asked = Some(via);
        self.hops += 1;
        Next::Ask(via)
    }

    /// Goes on with the answer of the site asked.
    pub(super) fn found(&mut self, way: Option<Way>, ring: &Ring) -> Next {
        match way {
            Some(Way::Mine(member) | Way::At(member)) => {
                let member = Member::from(member);
                match self.avoided.contains(&member.site) {
                    false => Next::Done(member),
                    true => self.redirected(ring),
                }
            }
            Some(Way::Ask(member)) => {
                let member = Member::from(member);
                let nearer = self.until.is_none_or(|until| member.point.until(self.target) < until);
                let redirected = member.site == ring.site() || self.avoided.contains(&member.site);
                match nearer && !redirected {
                    true => self.ask(member),
                    false => self.redirected(ring),
                }
            }
            None => self.redirected(ring),
        }
    }

    /// Goes on without the site asked, which does not answer or does not help.
    pub(super) fn redirected(&mut self, ring: &Ring) -> Next {
        let Some(asked) = self.asked.take() else { return Next::Failed };
        if self.avoided.len() == limits::RING_AVOIDED_MAX {
            return Next::Failed;
        }
        self.avoided.push(asked);
        self.begin(ring)
    }

    /// The question, under this number.
    pub(super) fn question(&self, id: u64) -> Find {
        let without = self.avoided.iter().map(|site| site.0).collect();
        Find { id, target: self.target.0, without }
    }

    pub(super) fn is_waiting_for(&self, site: SiteId) -> bool {
        self.asked == Some(site)
    }

    fn ask(&mut self, member: Member) -> Next {
        if self.hops == limits::RING_HOPS_MAX {
            return Next::Failed;
        }
        self.hops += 1;
        self.asked = Some(member.site);
        self.until = Some(member.point.until(self.target));
        Next::Ask(member.site)
    }
}
