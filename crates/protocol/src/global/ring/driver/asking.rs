//! Questions that are under way. Each has a deadline; a question about pointers is repeated before
//! its site is taken for dead, one about the way goes to another site instead.

use super::search::Goal;
use super::{ATTEMPTS, Driver, SUSPICION, TIMEOUT};
use crate::global::ring::LOOKUP_TIMEOUT;
use crate::global::ring::point::{Member, Point};
use crate::global::ring::walk::Walk;
use model::SiteId;
use std::time::Duration;
use wire::ring::{Content, Find, Neighbours};

pub(super) struct Asked {
    to: SiteId,
    message: Content,
    /// How often it may be repeated.
    left: u32,
    pub(super) deadline: Duration,
    pub(super) about: About,
}

/// The purpose of a question.
#[derive(Clone, Debug)]
pub(super) enum About {
    /// A member requests its first successor's list.
    Stabilize { of: Point, first: Member },
    /// A member has the name of a nearer successor from its first one.
    Nearer { of: Point, nearer: Member },
    /// A member has found a nearer successor by a seek.
    Merge { of: Point, nearer: Member },
    /// A member checks whether its predecessor is alive, or another one takes its place.
    Alive { of: Point, before: Member, instead: Member },
    /// A virtual node is to join before this member; `back`: so many were asked already.
    Copy { of: Point, after: Member, back: u32 },
    /// The way to a point.
    Way { walk: Walk, goal: Goal },
}

impl Driver {
    /// Asks a member for its pointers.
    pub(super) fn ask(&mut self, now: Duration, member: Member, about: About) {
        let message = |id| Content::Neighbours(Neighbours { id, point: member.point.0 });
        let left = ATTEMPTS.saturating_sub(1);
        self.put_question(member.site, message, left, now + TIMEOUT, about);
    }

    /// Asks a site the way.
    pub(super) fn ask_way(&mut self, now: Duration, to: SiteId, walk: Walk, goal: Goal) {
        let find: Find = walk.question(0);
        let message = |id| Content::Find(Find { id, ..find });
        let deadline = now + LOOKUP_TIMEOUT;
        self.put_question(to, message, 0, deadline, About::Way { walk, goal });
    }

    fn put_question(
        &mut self,
        to: SiteId,
        message: impl FnOnce(u64) -> Content,
        left: u32,
        deadline: Duration,
        about: About,
    ) {
        let id = self.next_id;
        self.next_id = self.next_id.wrapping_add(1);
        let message = message(id);
        self.send(to, message.clone());
        self.asked.insert(id, Asked { to, message, left, deadline, about });
    }

    /// The question that a site answers; `None`: it was not asked that, or not any more.
    pub(super) fn answered(&mut self, id: u64, from: SiteId) -> Option<Asked> {
        self.asked.get(&id).filter(|asked| asked.to == from)?;
        self.asked.remove(&id)
    }

    /// The questions that a site has not answered.
    pub(super) fn asked_of(&self, site: SiteId) -> Vec<u64> {
        let of = self.asked.iter().filter(|(_, asked)| asked.to == site);
        of.map(|(id, _)| *id).collect()
    }

    /// Repeats what was not answered in time, and draws the conclusion where that is no use.
    pub(super) fn ask_again(&mut self, now: Duration) {
        let late = self.asked.iter().filter(|(_, asked)| asked.deadline <= now);
        for id in late.map(|(id, _)| *id).collect::<Vec<u64>>() {
            let timeout = TIMEOUT;
            let Some(asked) = self.asked.get_mut(&id) else { continue };
            match asked.left.checked_sub(1) {
                Some(left) => {
                    asked.left = left;
                    asked.deadline = now + timeout;
                    let (to, message) = (asked.to, asked.message.clone());
                    self.send(to, message);
                }
                None => self.unanswered(now, id),
            }
        }
    }

    /// Gives a question up.
    pub(super) fn unanswered(&mut self, now: Duration, id: u64) {
        let Some(asked) = self.asked.remove(&id) else { return };
        match asked.about {
            About::Way { mut walk, goal } => {
                let next = walk.redirected(&self.ring);
                self.walk_on(now, walk, goal, next);
            }
            about => {
                self.dead(now, asked.to);
                self.given_up(now, about);
            }
        }
    }

    /// Takes a site for dead: all questions to it, and all pointers but those to predecessors,
    /// which only their successors replace.
    fn dead(&mut self, now: Duration, site: SiteId) {
        self.silent.insert(site, now + SUSPICION);
        self.forget(now, |member| member.site == site);
        for id in self.asked_of(site) {
            if let Some(asked) = self.asked.remove(&id) {
                match asked.about {
                    About::Way { mut walk, goal } => {
                        let next = walk.redirected(&self.ring);
                        self.walk_on(now, walk, goal, next);
                    }
                    about => self.given_up(now, about),
                }
            }
        }
    }

    /// Drops members that are no more. A virtual node with another first successor now stabilizes
    /// at once; one that has none left seeks one.
    pub(super) fn forget(&mut self, now: Duration, gone: impl Fn(&Member) -> bool) {
        let (before, me) = (self.firsts(), self.ring.site());
        let pointed: Vec<SiteId> = self.ring.known().map(|member| member.site).collect();
        let lost = self.ring.forget(gone);
        let is_lost = |(point, next): &(Point, Member)| {
            let now_next = self.ring.successors(*point).first();
            next.site != me && now_next.is_some_and(|next| next.site == me)
        };
        if !self.confirmed && before.iter().any(is_lost) {
            return self.withdraw(now, pointed);
        }
        lost.into_iter().for_each(|point| self.seek_soon(point, None));
        for (point, first) in before {
            if self.ring.successors(point).first() != Some(&first) {
                self.turn_mut(point).due = now;
            }
        }
    }

    pub(super) fn firsts_are_own(&self) -> bool {
        self.firsts().iter().all(|(_, first)| first.site == self.ring.site())
    }

    fn firsts(&self) -> Vec<(Point, Member)> {
        let members = self.ring.members();
        let first = |own: Member| Some((own.point, *self.ring.successors(own.point).first()?));
        members.filter_map(first).collect()
    }
}
