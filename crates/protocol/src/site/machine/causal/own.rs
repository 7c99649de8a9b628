//! The writes of this site, from when they are made until no site needs them any more.
//!
//! ```text
//! pending ── its position is imported ──▶ kept ── there are many newer ones ──▶ gone
//!    ▲                                     │
//!    └── the position is lost with a root ─┘
//! ```
//!
//! All of them have a row each, by revision; [`super::rows::Head::own_ordered`] parts the kept from
//! the pending ones. A position is lost if an operator gives a root up that had sent it to this
//! site only: then this site gets its keys anew from the next root, which has not that write. So
//! the newest are kept whole, and are pending again before that.

use super::super::Applying;
use super::registers::Pending;
use super::retries::number_of;
use super::{Causal, Stopped, rows};
use model::{CausalWrite, Revision, limits};
use storage::state::State;

impl Causal {
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

    /// Of the writes that are kept the oldest go, if they are many.
    pub(super) fn forget_kept(&mut self) -> Result<(), Stopped> {
        const PAGE: usize = 64;
        while self.modes.causal.kept_bytes > limits::CAUSAL_OWN_KEPT_BYTES_MAX {
            let ordered = self.modes.causal.head.own_ordered;
            let oldest = rows::first_own(&self.overlay, Revision(0), PAGE)?;
            for (write, bytes) in oldest {
                let is_much = self.modes.causal.kept_bytes > limits::CAUSAL_OWN_KEPT_BYTES_MAX;
                if !is_much || write.revision > ordered {
                    return Ok(());
                }
                self.drop_own(&write, bytes);
            }
        }
        Ok(())
    }

    /// A write goes: it has its position in what is on its way, or is not kept any longer.
    pub(super) fn drop_own(&mut self, write: &CausalWrite, bytes: usize) {
        let causal = &mut self.modes.causal;
        match write.revision <= causal.head.own_ordered {
            true => causal.kept_bytes -= bytes as u64,
            false => {
                causal.settle(write, bytes);
                if let Some(number) = number_of(write) {
                    self.keep_settled(number, write.revision);
                }
            }
        }
        self.overlay.remove(rows::of_unordered(write.revision));
    }

    /// The writes after this one that were imported have lost their positions.
    pub(super) fn take_back(&mut self, after: Revision) -> Result<(), Stopped> {
        let ordered = self.modes.causal.head.own_ordered;
        if ordered <= after {
            return Ok(());
        }
        let found = rows::first_own(&self.overlay, after, usize::MAX)?;
        let causal = &mut self.modes.causal;
        for (write, bytes) in found.iter().filter(|(write, _)| write.revision <= ordered) {
            causal.kept_bytes -= *bytes as u64;
            causal.unordered_bytes += *bytes as u64;
            causal.unordered += 1;
            Pending::note_again(&mut causal.pending, write);
            causal.retries.note_own(write);
        }
        causal.retries.cover(&mut causal.pending);
        causal.head.own_ordered = after;
        causal.is_dirty = true;
        Ok(())
    }
}
