//! At the region's root: each write of each site gets its position, once, in the order of its site.
//!
//! A site offers its writes in chains: each offer names the revision before its first one, so that
//! nothing between two of them is missing. What has a position is skipped, so that an offer may
//! come twice; after a gap nothing is done, and the answer states where the next offer must begin.

use super::super::Applying;
use super::{Stopped, rows};
use model::{Answer, CausalWrite, Offer, Position, Refusal, Region, SiteId};
use storage::state::State;
use wire::row;

impl<S: State> Applying<'_, S> {
    /// The region of this site, by its registry.
    pub(super) fn region(&self) -> Result<&Region, Refusal> {
        let member = self.member()?;
        member.registry.region_of(member.own).ok_or(Refusal::NoDeployment)
    }

    pub(super) fn order_offer(&mut self, epoch: u16, offer: &Offer) -> Result<Answer, Stopped> {
        self.check_orders(epoch)?;
        let member = self.member()?;
        if member.registry.site(offer.site).is_none() {
            let what = "take what a site has written that has left the deployment";
            return Err(Refusal::NotCausal(what).into());
        }
        let (mut last, mut at) = self.modes.causal.ordered_of(offer.site).unwrap_or_default();
        if offer.after > last {
            return Ok(Answer::Done(last));
        }
        if !self.is_level() {
            // It waits like what an order has no room for.
            return Ok(Answer::Done(last));
        }
        let before = last;
        if offer.writes.iter().any(|write| write.revision > last) {
            self.move_clock(epoch)?;
        }
        for write in &offer.writes {
            if write.revision <= last {
                continue;
            }
            if self.order_is_full() {
                break;
            }
            last = write.revision;
            at = self.order_write(epoch, offer.site, write);
        }
        if last > before {
            self.note_ordered(offer.site, last, at);
        }
        Ok(Answer::Done(last))
    }

    /// A write of a site gets the next position, or what is left of it under retries does.
    pub(super) fn order_write(
        &mut self,
        epoch: u16,
        site: SiteId,
        write: &CausalWrite,
    ) -> Position {
        match self.match_retries(epoch, site, write) {
            Some((left, behind)) => {
                let at = self.give_position(epoch, site, &left);
                if !behind.is_empty() {
                    self.order_here(epoch, write.keyspace, behind);
                }
                at
            }
            None => self.give_position(epoch, site, write),
        }
    }

    /// A write gets the next position.
    pub(super) fn give_position(
        &mut self,
        epoch: u16,
        site: SiteId,
        write: &CausalWrite,
    ) -> Position {
        let at = self.modes.causal.head.order_last.next(epoch);
        let write = self.stamped(at, write);
        self.follow_ordered(at, &write);
        self.modes.causal.head.order_last = at;
        self.put_kept(at, site, &write);
        self.follow_retries(at, site, &write);
        at
    }

    /// Forgets the order up to a position, or a part of it if that is much: the next time the rest
    /// goes.
    pub(super) fn trim_order(&mut self, upto: Position) -> Result<Answer, Stopped> {
        if self.region()?.is_rebuilding() {
            // The root of the ended epoch may still import what it had ordered.
            return Ok(self.done_now());
        }
        let upto = upto.min(self.modes.causal.head.order_last);
        let upto = match self.has_regions() {
            // Other regions have not taken the rest.
            true => upto.min(self.modes.causal.kept_after()),
            false => upto,
        };
        self.drop_kept(upto)?;
        let trimmed = self.modes.causal.head.trimmed_upto;
        self.forget_closed(trimmed);
        Ok(Answer::Done(self.known.head.revision))
    }

    /// Goes on when the registry has another root, and begins anew when it has another region: what
    /// was of the one before has no place in it.
    pub(in crate::site::machine) fn follow_region(&mut self) -> Result<(), Stopped> {
        let Ok(Region { id, .. }) = self.region().copied() else { return Ok(()) };
        if id == self.modes.causal.head.region {
            self.follow_root();
            return Ok(());
        }
        self.drop_resync()?;
        for key in rows::all(&self.overlay)? {
            self.overlay.remove(key);
        }
        let head = rows::Head { region: id, ..rows::Head::default() };
        // Expiries go with the records that they are of.
        let next_expiry = self.modes.causal.next_expiry;
        self.modes.causal =
            super::Causal { head, next_expiry, is_dirty: true, ..super::Causal::default() };
        Ok(())
    }

    /// Brings what changed into the state.
    pub(in crate::site::machine) fn write_causal(&mut self) {
        if std::mem::take(&mut self.modes.causal.is_dirty) {
            self.overlay.put(rows::HEAD.to_vec(), row::encode(&self.modes.causal.head));
        }
    }
}
