//! Leaving: each neighbour receives the name of the other one, so that the gap closes at once.
//!
//! It is sent once. A neighbour that does not receive it finds that the site answers "no member of
//! the ring", or does not answer at all, and goes on as after a crash.

use super::{Driver, SUSPICION};
use crate::global::ring::point::{Member, Point};
use model::{SiteId, limits};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use wire::ring::{Content, Gap, Leave};

impl Driver {
    /// Leaves the ring.
    pub fn leave(&mut self, now: Duration) {
        let me = self.ring.site();
        let mut to: BTreeSet<SiteId> = BTreeSet::new();
        let mut gaps = Vec::new();
        for own in self.ring.members() {
            let successors =
                self.ring.reported(own.point).into_iter().filter(|next| next.site != me);
            let before = self.before_me(own.point);
            to.extend(self.ring.successors(own.point).iter().map(|next| next.site));
            to.extend(before.map(|before| before.site));
            gaps.push(Gap {
                point: own.point.0,
                predecessor: before.map(Into::into),
                successors: successors.map(Into::into).collect(),
            });
        }
        for site in to.into_iter().filter(|site| *site != me) {
            self.send(site, Content::Leave(Leave { gaps: gaps.clone() }));
        }
        self.forget_all(now);
    }

    /// The nearest member of another site before one of ours.
    fn before_me(&self, point: Point) -> Option<Member> {
        let mut before = self.ring.predecessor(point)?;
        for _ in 0..limits::RING_VIRTUALS_MAX {
            if before.site != self.ring.site() {
                return Some(before);
            }
            before = self.ring.predecessor(before.point)?;
        }
        None
    }

    /// Closes the gaps that a site leaves behind.
    pub(super) fn left(&mut self, now: Duration, from: SiteId, leave: Leave) {
        let gaps = leave.gaps.into_iter().take(limits::RING_VIRTUALS_MAX as usize);
        let gaps: BTreeMap<u64, Gap> = gaps.map(|gap| (gap.point, gap)).collect();
        self.silent.insert(from, now + SUSPICION);
        let of_others = |member: &Member| member.site != from;
        for own in self.ring.members().collect::<Vec<Member>>() {
            let list = self.ring.successors(own.point);
            if let Some(gone) = list.iter().rev().find(|next| next.site == from) {
                let reported = gaps.get(&gone.point.0).map_or(&[][..], |gap| &gap.successors);
                let reported = reported.iter().take(limits::RING_LIST_MEMBERS_MAX).copied();
                let both = list.iter().copied().chain(reported.map(Member::from)).filter(of_others);
                let mut both: Vec<Member> = both.collect();
                both.sort_by_key(|next| own.point.until(next.point));
                both.dedup_by_key(|next| next.point);
                self.ring.put(own.point, both);
                self.turn_mut(own.point).due = now;
            }
            let before = self.ring.predecessor(own.point).filter(|before| before.site == from);
            let gap = before.and_then(|before| gaps.get(&before.point.0));
            let next = gap.and_then(|gap| gap.predecessor).map(Member::from).filter(of_others);
            if let Some(next) = next {
                self.ring.set_predecessor(own.point, next);
            }
        }
        self.forget(now, |member| member.site == from);
    }
}
