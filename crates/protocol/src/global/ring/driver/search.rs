//! What a site looks up for itself: its places when it joins, its places again, its fingers.

use super::asking::About;
use super::{
    ATTEMPTS, Driver, FINGER_INTERVAL, PROBE_INTERVAL, STABILIZE_INTERVAL, SUSPICION, Turn,
};
use crate::global::ring::point::{Member, Point};
use crate::global::ring::pointers::exponent_of;
use crate::global::ring::walk::{Next, Walk};
use model::{SiteId, limits};
use std::time::Duration;
use wire::ring::Pointers;

/// What a lookup is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Goal {
    /// A virtual node joins.
    Join { of: Point },
    /// A member requests its successor from another site.
    Seek { of: Point },
    /// A member looks up a finger.
    Finger { of: Point, exponent: u32 },
}

/// Which finger is next.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fingers {
    of: Option<Point>,
    exponent: u32,
    busy: bool,
    pub(super) due: Duration,
}

impl Driver {
    /// Looks up the successor of a virtual node that is to join.
    pub(super) fn start_to_join(&mut self, now: Duration, of: Point) {
        if self.searches() >= limits::RING_SEARCHES_MAX {
            return self.rest(now, of);
        }
        let alone_from = self.withdrawn.map(|at| at.max(self.last_answer) + 2 * SUSPICION);
        let alone = alone_from.is_some_and(|from| from <= now) && self.has_tried();
        if !self.ring.is_member() && alone {
            return self.stay_alone(now);
        }
        match self.any_other() {
            Some(via) => {
                self.turn_mut(of).busy = true;
                let mut walk = self.walk_from(of);
                let next = walk.begin_via(via);
                self.walk_on(now, walk, Goal::Join { of }, next);
            }
            // No other site is left.
            None if self.ring.is_member() => {
                let after = self.ring.own(self.ring.point_after(of));
                self.copy(now, of, after, 0);
            }
            None => self.rest(now, of),
        }
    }

    /// Is no member any more, after an absence in which all that it pointed to are gone, and joins.
    pub(super) fn withdraw(&mut self, now: Duration, pointed: Vec<SiteId>) {
        self.forget_all(now);
        self.joining = true;
        self.withdrawn = Some(now);
        self.tried.clear();
        self.rounds = 0;
        self.vias = pointed;
        self.vias.sort_unstable();
        self.vias.dedup();
    }

    /// Is a ring by itself.
    fn stay_alone(&mut self, now: Duration) {
        self.forget_all(now);
        self.joining = true;
        self.ring.be_alone();
    }

    /// Drops all pointers and everything that is under way because of them.
    pub(super) fn forget_all(&mut self, now: Duration) {
        self.ring.clear();
        self.asked.clear();
        self.seeks.clear();
        self.vias.clear();
        self.fingers = Fingers::default();
        self.withdrawn = None;
        (self.vouched, self.confirmed) = (false, false);
        self.joining = false;
        self.turns.values_mut().for_each(|turn| *turn = Turn { due: now, ..Turn::default() });
    }

    /// Asks the member that comes after a joining virtual node for its list.
    fn copy(&mut self, now: Duration, of: Point, after: Member, back: u32) {
        if after.site == self.ring.site() {
            let mut reported = self.pointers_of(after.point);
            reported.settled = true;
            self.reported_by_next(now, of, after, back, reported);
        } else if self.is_silent(after.site) {
            self.rest(now, of);
        } else {
            self.turn_mut(of).busy = true;
            self.ask(now, after, About::Copy { of, after, back });
        }
    }

    /// Joins before a member that has sent its pointers, or goes back to that one's predecessor.
    pub(super) fn reported_by_next(
        &mut self,
        now: Duration,
        of: Point,
        after: Member,
        back: u32,
        reported: Pointers,
    ) {
        if !self.joining || self.ring.is_joined(of) {
            return;
        }
        if !reported.member || !reported.settled {
            return self.rest(now, of);
        }
        let before = reported.predecessor.map(Member::from);
        let nearer = before.filter(|before| {
            let me = before.site == self.ring.site();
            before.point.is_between(of, after.point)
                && (!me || self.ring.is_joined(before.point))
                && !self.is_silent(before.site)
        });
        match nearer {
            Some(nearer) if back < limits::RING_HOPS_MAX => self.copy(now, of, nearer, back + 1),
            Some(_) => self.rest(now, of),
            None => {
                let rest = reported.successors.into_iter().map(Member::from);
                let list = std::iter::once(after).chain(rest).collect();
                // One that lies between after all is taken for dead.
                let before = before.filter(|before| !before.point.is_between(of, after.point));
                self.ring.insert(of, list, before);
                let turn = self.turn_mut(of);
                (turn.busy, turn.settled, turn.due) = (false, true, now);
                self.vouched = true;
                self.confirmed |= self.is_settled();
                self.withdrawn = None;
            }
        }
    }

    /// Has a member seek, by way of this site or of any.
    pub(super) fn seek_soon(&mut self, of: Point, via: Option<SiteId>) {
        let room = self.seeks.len() < limits::RING_SEEKS_WAITING_MAX;
        if room && !self.seeks.contains(&(of, via)) {
            self.seeks.push_back((of, via));
        }
    }

    /// Begins what is due: seeks, probes, fingers.
    pub(super) fn search_on(&mut self, now: Duration) {
        if !self.ring.is_member() {
            return;
        }
        self.probe(now);
        while self.searches() < limits::RING_SEARCHES_MAX
            && let Some((of, via)) = self.seeks.pop_front()
        {
            let via = via.filter(|via| !self.is_silent(*via)).or_else(|| self.any_other());
            if let Some(via) = via.filter(|_| self.ring.is_joined(of)) {
                let mut walk = self.walk_from(of);
                let next = walk.begin_via(via);
                self.walk_on(now, walk, Goal::Seek { of }, next);
            }
        }
        if !self.fingers.busy && self.fingers.due <= now {
            self.refresh_finger(now);
        }
    }

    /// When [`Driver::search_on`] has something to do.
    pub(super) fn search_due(&self) -> Option<Duration> {
        if !self.ring.is_member() {
            return None;
        }
        let fingers = (!self.fingers.busy).then_some(self.fingers.due);
        let probes = !self.known.is_empty() && self.seeks.is_empty();
        let probe = probes.then_some(self.probe_due);
        let room = self.searches() < limits::RING_SEARCHES_MAX;
        let seeks = (room && !self.seeks.is_empty()).then_some(Duration::ZERO);
        [fingers, probe, seeks].into_iter().flatten().min()
    }

    /// Seeks by way of a site that no pointer leads to; of any, if pointers lead to all.
    fn probe(&mut self, now: Duration) {
        if self.known.is_empty() || self.probe_due > now || !self.seeks.is_empty() {
            return;
        }
        let pause = match self.confirmed {
            true => PROBE_INTERVAL,
            false => STABILIZE_INTERVAL,
        };
        self.probe_due = now + self.about(pause);
        let mut pointed: Vec<SiteId> = self.ring.known().map(|member| member.site).collect();
        pointed.sort_unstable();
        let strange = |site: &&SiteId| pointed.binary_search(site).is_err();
        let strangers: Vec<SiteId> = self.known.iter().filter(strange).copied().collect();
        let among = if strangers.is_empty() { self.known.clone() } else { strangers };
        let any = among[self.chance(among.len())];
        if let Some(one) = self.untried() {
            // Which of the virtual nodes the others would take in is unknown.
            let members: Vec<Point> = self.ring.members().map(|own| own.point).collect();
            return members.into_iter().for_each(|point| self.seek_soon(point, Some(one)));
        }
        let of = match self.probed {
            Some(last) => self.ring.point_after(last),
            None => self.ring.point_after(Point(0)),
        };
        self.probed = Some(of);
        self.seek_soon(of, Some(any));
    }

    fn refresh_finger(&mut self, now: Duration) {
        self.fingers.due = now + self.about(FINGER_INTERVAL);
        // From where it was left to the next finger there is; in small rings there are none.
        for _ in 0..=self.turns.len() {
            let next = || self.ring.point_after(self.fingers.of.unwrap_or(Point(0)));
            let of = self.fingers.of.filter(|of| self.ring.is_joined(*of)).unwrap_or_else(next);
            let Some(last) = self.ring.successors(of).last() else { return };
            let nearest = exponent_of(of.until(last.point)) + 1;
            let exponent = self.fingers.exponent.max(nearest);
            let end = of.until(self.ring.point_after(of));
            let beyond = exponent >= u64::BITS || (1u64 << exponent) > end;
            if !beyond && last.site != self.ring.site() {
                (self.fingers.of, self.fingers.exponent) = (Some(of), exponent);
                self.fingers.busy = true;
                let mut walk = Walk::new(of.plus(1 << exponent), []);
                let next = walk.begin(&self.ring);
                return self.walk_on(now, walk, Goal::Finger { of, exponent }, next);
            }
            (self.fingers.of, self.fingers.exponent) = (Some(self.ring.point_after(of)), 0);
        }
    }

    /// Goes on with a lookup.
    pub(super) fn walk_on(&mut self, now: Duration, walk: Walk, goal: Goal, next: Next) {
        match (next, goal) {
            (Next::Ask(to), goal) => self.ask_way(now, to, walk, goal),
            (Next::Done(after), Goal::Join { of }) => self.copy(now, of, after, 0),
            (Next::Failed, Goal::Join { of }) => self.rest(now, of),
            (Next::Done(next), Goal::Seek { of }) => self.sought(now, of, next),
            (Next::Failed, Goal::Seek { .. }) => {}
            (next, Goal::Finger { of, exponent }) => {
                self.fingers.busy = false;
                self.fingers.exponent = exponent + 1;
                if let Next::Done(found) = next
                    && self.ring.is_joined(of)
                {
                    self.ring.set_finger(of, exponent, found);
                    let nearest = exponent_of(of.until(found.point)) + 1;
                    self.fingers.exponent = self.fingers.exponent.max(nearest);
                }
            }
        }
    }

    /// A seek has found a member: if it is nearer than the current successor, there is more to
    /// find.
    fn sought(&mut self, now: Duration, of: Point, found: Member) {
        let first = self.ring.successors(of).first();
        let nearer = first.is_some_and(|first| found.point.is_between(of, first.point));
        if !nearer || self.is_silent(found.site) || found.site == self.ring.site() {
            return;
        }
        self.ask(now, found, About::Merge { of, nearer: found });
        let others: Vec<Point> = self.ring.members().map(|own| own.point).collect();
        for other in others.into_iter().filter(|other| *other != of) {
            self.seek_soon(other, Some(found.site));
        }
    }

    /// A lookup of the first member of another site after a virtual node of ours.
    fn walk_from(&self, of: Point) -> Walk {
        let silent = self.silent.keys().copied();
        // Some room is left for those that turn out not to answer.
        let silent = silent.take(limits::RING_AVOIDED_MAX / 2);
        Walk::new(of.next(), std::iter::once(self.ring.site()).chain(silent))
    }

    /// Some other site: one named for joining, one pointed to, or any of the directory.
    fn any_other(&mut self) -> Option<SiteId> {
        if self.withdrawn.is_some()
            && let Some(one) = self.untried()
        {
            return Some(one);
        }
        let me = self.ring.site();
        let pointed = self.ring.known().map(|member| member.site);
        let mut sites: Vec<SiteId> = self.vias.iter().copied().chain(pointed).collect();
        sites.retain(|site| *site != me && !self.is_silent(*site));
        // A site named for joining may have left since, and then answers without a next step.
        if sites.is_empty() || (!self.ring.is_member() && self.chance(2) == 0) {
            let known = self.known.iter().copied().filter(|site| !self.is_silent(*site));
            let known: Vec<SiteId> = known.collect();
            if !known.is_empty() {
                sites = known;
            }
        }
        (!sites.is_empty()).then(|| sites[self.chance(sites.len())])
    }

    /// Whether the directory has been tried often enough to conclude that no other site is there.
    pub(super) fn has_tried(&self) -> bool {
        self.known.is_empty() || self.rounds >= ATTEMPTS
    }

    /// The next site of the directory, while no site has confirmed this one.
    fn untried(&mut self) -> Option<SiteId> {
        if self.confirmed || self.known.is_empty() {
            return None;
        }
        let untried = self.known.iter().copied().filter(|site| !self.tried.contains(site));
        let mut untried: Vec<SiteId> = untried.collect();
        if untried.is_empty() || self.tried.len() >= limits::RING_TRIED_MAX {
            self.rounds = self.rounds.saturating_add(1);
            self.tried.clear();
            untried.clone_from(&self.known);
        }
        let one = untried[self.chance(untried.len())];
        self.tried.insert(one);
        Some(one)
    }

    pub(super) fn searches(&self) -> usize {
        let under_way = self.asked.values().filter(|asked| {
            matches!(asked.about, About::Way { .. } | About::Copy { .. } | About::Merge { .. })
        });
        under_way.count()
    }
}
