//! Stabilize and rectify: the two steps by which members find their places beside each other.

use super::asking::About;
use super::{Driver, STABILIZE_INTERVAL};
use crate::global::ring::point::{Member, Point};
use std::time::Duration;
use wire::ring::{Content, Notify, Pointers};

impl Driver {
    /// First step: the list of the first successor, or of the first one that is alive.
    pub(super) fn stabilize(&mut self, now: Duration, of: Point) {
        while let Some(first) = self.ring.successors(of).first().copied() {
            if first.site == self.ring.site() {
                self.turn_mut(of).settled = true;
                self.vouched |= self.firsts_are_own();
                self.confirmed |= self.vouched && self.is_settled();
                let before = self.ring.predecessor(first.point);
                return self.ask_nearer(now, of, first, before);
            }
            if !self.is_silent(first.site) {
                self.turn_mut(of).busy = true;
                return self.ask(now, first, About::Stabilize { of, first });
            }
            self.forget(now, |member| member.site == first.site);
        }
    }

    /// Second step: if the first successor has a predecessor between, that one's list.
    fn ask_nearer(&mut self, now: Duration, of: Point, first: Member, before: Option<Member>) {
        match before.filter(|before| self.is_nearer(of, first, *before)) {
            Some(nearer) => {
                self.turn_mut(of).busy = true;
                self.ask(now, nearer, About::Nearer { of, nearer });
            }
            // It has this one already.
            None if before == Some(self.ring.own(of)) => self.rest(now, of),
            None => self.report_to_first(now, of),
        }
    }

    /// Whether a successor's predecessor is worth asking.
    fn is_nearer(&self, of: Point, first: Member, before: Member) -> bool {
        let between = before.point.is_between(of, first.point);
        between && before.site != self.ring.site() && !self.is_silent(before.site)
    }

    /// Third step: the first successor is notified of its predecessor.
    fn report_to_first(&mut self, now: Duration, of: Point) {
        self.rest(now, of);
        let Some(first) = self.ring.successors(of).first().copied() else { return };
        let me = self.ring.own(of);
        match first.site == me.site {
            true => self.rectify(now, first.point, me),
            false => {
                let predecessor = Some(me.into());
                self.send(
                    first.site,
                    Content::Notify(Notify { point: first.point.0, predecessor }),
                );
            }
        }
    }

    /// Until the next stabilization, or the next try to join.
    pub(super) fn rest(&mut self, now: Duration, of: Point) {
        let pause = self.about(STABILIZE_INTERVAL);
        let turn = self.turn_mut(of);
        (turn.busy, turn.due) = (false, now + pause);
    }

    /// Takes in the pointers of a member that was asked for them.
    pub(super) fn reported(&mut self, now: Duration, about: About, reported: Pointers) {
        match about {
            About::Stabilize { of, first } => self.reported_by_first(now, of, first, reported),
            About::Nearer { of, nearer } => match self.take(of, nearer, reported) {
                // There may be a nearer one still.
                true => (self.turn_mut(of).busy, self.turn_mut(of).due) = (false, now),
                false => self.report_to_first(now, of),
            },
            About::Merge { of, nearer } => {
                if self.take(of, nearer, reported) {
                    self.turn_mut(of).due = now;
                }
            }
            About::Alive { of, before, instead } => match reported.member {
                true => self.turn_mut(of).checking = false,
                false => self.replace_predecessor(of, before, instead),
            },
            About::Copy { of, after, back } => {
                self.reported_by_next(now, of, after, back, reported)
            }
            About::Way { .. } => {}
        }
    }

    fn reported_by_first(&mut self, now: Duration, of: Point, first: Member, reported: Pointers) {
        if self.ring.successors(of).first() != Some(&first) {
            // It has got another one meanwhile.
            (self.turn_mut(of).busy, self.turn_mut(of).due) = (false, now);
        } else if !reported.member {
            (self.turn_mut(of).busy, self.turn_mut(of).due) = (false, now);
            self.forget(now, |member| *member == first);
        } else if self.confirmed && !reported.settled {
            self.rest(now, of);
        } else {
            let before = reported.predecessor.map(Member::from);
            self.put(of, first, reported);
            self.ask_nearer(now, of, first, before);
        }
    }

    /// Takes a nearer successor with its list; `false`: it is no member, or not nearer (any more).
    fn take(&mut self, of: Point, nearer: Member, reported: Pointers) -> bool {
        let first = self.ring.successors(of).first();
        let is_nearer = first.is_some_and(|first| nearer.point.is_between(of, first.point));
        let is_sound = reported.member && (reported.settled || !self.confirmed);
        if is_nearer && is_sound {
            self.put(of, nearer, reported);
        }
        is_nearer && is_sound
    }

    fn put(&mut self, of: Point, first: Member, reported: Pointers) {
        let before = reported.predecessor.map(Member::from);
        if before.is_none_or(|before| !self.is_nearer(of, first, before)) {
            // It has found its place.
            self.turn_mut(of).settled = true;
            self.vouched |= reported.settled;
            self.confirmed |= self.vouched && self.is_settled();
        }
        let rest = reported.successors.into_iter().map(Member::from);
        self.ring.put(of, std::iter::once(first).chain(rest));
    }

    /// A member is notified that another one is before it.
    pub(super) fn rectify(&mut self, now: Duration, of: Point, said: Member) {
        if !self.ring.is_joined(of) {
            return;
        }
        let Some(before) = self.ring.predecessor(of) else {
            return self.ring.set_predecessor(of, said);
        };
        if before == said || (before.site == self.ring.site() && before.point != of) {
            // The predecessor stays, unless the new one is nearer.
            if said.point.is_between(before.point, of) {
                self.ring.set_predecessor(of, said);
            }
        } else if said.point.is_between(before.point, of) || self.is_silent(before.site) {
            self.ring.set_predecessor(of, said);
        } else if !self.turn(of).checking {
            self.turn_mut(of).checking = true;
            self.ask(now, before, About::Alive { of, before, instead: said });
        }
    }

    /// The predecessor is dead: the one that sent the notice takes its place.
    fn replace_predecessor(&mut self, of: Point, before: Member, instead: Member) {
        self.turn_mut(of).checking = false;
        if self.ring.predecessor(of) == Some(before) && !self.is_silent(instead.site) {
            self.ring.set_predecessor(of, instead);
        }
    }

    /// Goes on after a site that did not answer.
    pub(super) fn given_up(&mut self, now: Duration, about: About) {
        match about {
            About::Stabilize { of, .. } => {
                (self.turn_mut(of).busy, self.turn_mut(of).due) = (false, now);
            }
            About::Nearer { of, .. } => self.report_to_first(now, of),
            About::Merge { .. } | About::Way { .. } => {}
            About::Alive { of, before, instead } => self.replace_predecessor(of, before, instead),
            About::Copy { of, .. } => self.rest(now, of),
        }
    }
}
