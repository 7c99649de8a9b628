//! The writes of this site, from when they are made until no site needs them any more.
//!
//! ```text
//! pending ── its position is imported, or a resync brings it ──▶ kept ── there are many newer ones ──▶ gone
//!    ▲                                                           │
//!    └── the position is lost with a root, or the resync ends ───┘
//! ```
//!
//! All of them have a row each, by revision; [`super::rows::Head::own_ordered`] parts the kept from
//! the pending ones, and [`Causal::own_brought`] does while a resync is under way. A position is
//! lost if an operator gives a root up that had sent it to this site only: then this site gets its
//! keys anew from the next root, which has not that write. So the newest are kept whole, and are
//! pending again before that.

use super::super::Applying;
use super::registers::Pending;
use super::retries::number_of;
use super::{Causal, Stopped, rows};
use model::{CausalWrite, Revision, limits};
use storage::state::State;
use wire::row;

impl Causal {
    /// The last own write that is kept, not pending.
    pub fn kept_upto(&self) -> Revision {
        self.head.own_ordered.max(self.own_brought)
    }

    /// An own write is pending no more.
    fn settle(&mut self, write: &CausalWrite, bytes: usize) {
        self.unordered -= 1;
        self.unordered_bytes -= bytes as u64;
        Pending::settle(&mut self.pending, write);
        self.retries.settle_own(write);
    }
}

impl<S: State> Applying<'_, S> {
    /// The first pending write has a position that is imported.
    pub(super) fn settle_own(&mut self, write: &CausalWrite, bytes: usize) -> Result<(), Stopped> {
        let causal = &mut self.modes.causal;
        causal.settle(write, bytes);
        causal.kept_bytes += bytes as u64;
        causal.head.own_ordered = write.revision;
        self.drop_unheld(write)
    }

    /// The pending writes up to one have positions in what a resync brings: they are kept, a part
    /// of them if they are many. Whether none of them is pending.
    pub(super) fn settle_brought(&mut self, upto: Revision) -> Result<bool, Stopped> {
        let max = limits::CAUSAL_TRIMMED_PER_COMMAND_MAX;
        let after = self.modes.causal.kept_upto();
        if self.modes.causal.unordered == 0 || after >= upto {
            return Ok(true);
        }
        let found = rows::first_own(&self.overlay, after, max)?;
        let is_all = found.len() < max || found.last().is_none_or(|(one, _)| one.revision > upto);
        for (write, bytes) in found.iter().filter(|(write, _)| write.revision <= upto) {
            let causal = &mut self.modes.causal;
            causal.settle(write, *bytes);
            causal.kept_bytes += *bytes as u64;
            causal.own_brought = write.revision;
            if let Some(number) = number_of(write) {
                self.keep_settled(number, write.revision);
            }
        }
        self.put_brought();
        self.forget_kept()?;
        Ok(is_all)
    }

    /// What a resync has brought is shown, and counts as imported.
    pub(super) fn show_brought(&mut self, ordered: Revision) {
        let causal = &mut self.modes.causal;
        (causal.head.own_ordered, causal.own_brought) = (ordered, Revision(0));
        causal.is_dirty = true;
        self.put_brought();
    }

    fn put_brought(&mut self) {
        match self.modes.causal.own_brought {
            Revision(0) => self.overlay.remove(rows::OWN_BROUGHT.to_vec()),
            upto => self.overlay.put(rows::OWN_BROUGHT.to_vec(), row::encode(&upto)),
        }
    }

    /// Of the writes that are kept the oldest go, if they are many.
    pub(super) fn forget_kept(&mut self) -> Result<(), Stopped> {
        let causal = &self.modes.causal;
        let excess = causal.kept_bytes.saturating_sub(limits::CAUSAL_OWN_KEPT_BYTES_MAX);
        let Some(from) = causal.oldest_own.filter(|_| excess > 0) else { return Ok(()) };
        let (gone, oldest) = rows::oldest_own(&self.overlay, from, causal.kept_upto(), excess)?;
        for (key, bytes) in gone {
            self.modes.causal.kept_bytes -= bytes as u64;
            self.overlay.remove(key);
        }
        self.modes.causal.oldest_own = oldest;
        Ok(())
    }

    /// The writes after this one that were kept have lost their positions.
    pub(super) fn take_back(&mut self, after: Revision) -> Result<(), Stopped> {
        let kept_upto = self.modes.causal.kept_upto();
        if kept_upto <= after {
            return Ok(());
        }
        let found = rows::first_own(&self.overlay, after, usize::MAX)?;
        let causal = &mut self.modes.causal;
        for (write, bytes) in found.iter().filter(|(write, _)| write.revision <= kept_upto) {
            causal.kept_bytes -= *bytes as u64;
            causal.unordered_bytes += *bytes as u64;
            causal.unordered += 1;
            Pending::note_again(&mut causal.pending, write);
            causal.retries.note_own(write);
        }
        causal.retries.cover(&mut causal.pending);
        causal.head.own_ordered = causal.head.own_ordered.min(after);
        causal.own_brought = Revision(0);
        causal.is_dirty = true;
        self.put_brought();
        Ok(())
    }
}
