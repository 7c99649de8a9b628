//! Another root: the order of a region ends at one site and goes on at another.
//!
//! A root *stops*: it gives no more positions. It may go on as if nothing was, until it has *given*
//! the order away: then its last position is the end of its epoch, whatever comes. Only behind that
//! the registry changes: a new epoch, its root, and the end of the one before
//! ([`model::Region::cut`]). So at most one site gives positions in an epoch, and what one has
//! given is kept.
//!
//! > A site that has imported the order up to the end of an epoch is at the beginning of the next
//! > one, with the same count. Every other site is before that beginning, however far it is, and
//! > gets its keys anew.
//!
//! The new root must be such a site. It has the order in its records, and of each site the last
//! write that has a position, as every site keeps that while it imports. The order before its
//! beginning is trimmed, so to speak. What it may still keep of an order that it gave earlier goes
//! with the first trimming.
//!
//! Left out: which site it is, and when (`crate::causal::roots`).

use super::super::Applying;
use super::{Stopped, rows};
use crate::bugs::Bug;
use model::{Answer, LastOrdered, Position, Refusal, Revision, RootStep, SiteId};
use storage::state::State;
use wire::row;

/// What a site keeps of being the root.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Root {
    /// Where it began as a root that is not the first one.
    pub(super) begun: Position,
    /// The epoch in which it has stopped; 0: none.
    pub(super) stopped: u16,
    /// Whether it has given the order of that epoch away.
    pub(super) given: bool,
    /// To which site; `None`: an earlier build did.
    pub(super) given_to: Option<SiteId>,
}

const NOT_LEVEL: Refusal = Refusal::NotCausal(
    "be ordered yet: the order was rebuilt, and all other regions have to answer",
);
const NOT_HERE: Refusal = Refusal::NotCausal(
    "be ordered here: another site is the region's root, or in another epoch, or it is about to be",
);

impl<S: State> Applying<'_, S> {
    /// A step of a root that stops.
    pub(super) fn root_step(&mut self, epoch: u16, step: RootStep) -> Result<Answer, Stopped> {
        self.check_orders_in(epoch)?;
        let root = &mut self.modes.causal.root;
        let is_stopped = root.stopped == epoch;
        let is_given = is_stopped && root.given;
        match step {
            RootStep::Stop if !is_stopped => {
                *root = Root { begun: root.begun, stopped: epoch, ..Root::default() }
            }
            RootStep::Resume if is_stopped && !is_given => root.stopped = 0,
            RootStep::Give if is_stopped && !is_given => root.given = true,
            RootStep::GiveTo(to) if is_stopped && !is_given => {
                (root.given, root.given_to) = (true, Some(to));
            }
            RootStep::Stop | RootStep::Give | RootStep::GiveTo(_) if is_stopped => {
                return Ok(self.done_now());
            }
            _ => return Err(NOT_HERE.into()),
        }
        self.put_root();
        Ok(self.done_now())
    }

    /// What the root has ordered of each site, at the one that is to go on. This one keeps that
    /// while it imports, but what it imported before it did so is missing.
    pub(super) fn take_last_ordered(
        &mut self,
        epoch: u16,
        sites: &[LastOrdered],
    ) -> Result<Answer, Stopped> {
        let (region, own) = (*self.region()?, self.member()?.own);
        let causal = &self.modes.causal;
        // A resync has such a list of its own. What follows is a site's report that it has the
        // order: see `restored`.
        let is_unready = causal.resync.is_some() || causal.is_restored() || !causal.is_whole();
        if region.epoch != epoch || region.root == own || is_unready {
            return Err(NOT_HERE.into());
        }
        for LastOrdered { site, revision, position } in sites {
            self.note_ordered(*site, *revision, *position);
        }
        Ok(self.done_now())
    }

    /// Whether this site is the root in this epoch, and has all that it needs for it.
    pub(super) fn check_orders_in(&self, epoch: u16) -> Result<(), Refusal> {
        let (region, own) = (self.region()?, self.member()?.own);
        let is_root = (region.root, region.epoch) == (own, epoch);
        if is_root && self.modes.causal.has_begun(region) { Ok(()) } else { Err(NOT_HERE) }
    }

    /// Whether it orders: it has not stopped.
    pub(super) fn check_orders(&self, epoch: u16) -> Result<(), Refusal> {
        self.check_orders_in(epoch)?;
        let orders_on = self.modes.planted.is(Bug::RootOrdersOn);
        if self.modes.causal.root.stopped == epoch && !orders_on { Err(NOT_HERE) } else { Ok(()) }
    }

    /// Whether what the region writes gets places.
    pub(super) fn check_gives(&self, epoch: u16) -> Result<(), Refusal> {
        self.check_orders(epoch)?;
        if self.is_level() { Ok(()) } else { Err(NOT_LEVEL) }
    }

    /// A site at the end of an epoch is at the beginning of the next one; the new root goes on
    /// there.
    pub(super) fn follow_root(&mut self) {
        let Ok(region) = self.region().copied() else { return };
        let Ok(own) = self.member().map(|member| member.own) else { return };
        let (Some(cut), Some(begin)) = (region.cut, region.begin()) else { return };
        let causal = &mut self.modes.causal;
        // In an epoch that a recovered registry has forgotten, what has the same count is before
        // its first write: the root gave its order there. After a rebuild that is not known of it.
        let is_rebuilt = region.rebuilt.is_some_and(|rebuilt| rebuilt.end.until == region.epoch);
        let is_forgotten = !is_rebuilt
            && (cut.epoch()..region.epoch).contains(&causal.head.applied.epoch())
            && causal.head.applied.count() == cut.count();
        // A site that has ordered beyond the end has places that are void. It gets its keys anew,
        // and what has a place.
        let is_at_end = causal.head.applied == cut || is_forgotten;
        let may_go_on = causal.is_whole_without_resync(own) && !self.has_regions();
        if is_rebuilt && self.modes.causal.head.applied == cut && may_go_on {
            // What the lost root sent it is of no use. (An error: see below.)
            let _ = self.drop_resync();
        }
        let causal = &mut self.modes.causal;
        if is_at_end && causal.head.order_last <= cut && causal.resync.is_none() {
            let ended = std::mem::replace(&mut causal.head.applied, begin);
            causal.is_dirty = true;
            // What cannot be read now cannot be read when the next entry is applied either, which
            // reports it.
            let _ = self.drop_void(ended, begin);
        }
        let causal = &mut self.modes.causal;
        if region.root == own && causal.head.applied == begin && causal.root.begun != begin {
            causal.root = Root { begun: begin, ..Root::default() };
            causal.head.order_last = begin;
            causal.is_dirty = true;
            if self.modes.planted.is(Bug::RootForgetsOrdered) {
                self.modes.causal.ordered.clear();
            }
            self.put_root();
        }
    }

    fn put_root(&mut self) {
        let row = row::encode(&self.modes.causal.root);
        self.overlay.put(rows::ROOT.to_vec(), row);
    }

    /// A write of a site has its position here, if none later has.
    pub(super) fn note_ordered(&mut self, site: SiteId, last: Revision, at: Position) {
        let causal = &mut self.modes.causal;
        if causal.ordered_of(site).is_none_or(|(known, _)| known < last) {
            causal.ordered.insert(site, (last, at));
            self.overlay.put(rows::of_site(site), row::encode(&(last, at)));
        }
    }
}
