//! The ring while things happen: its invariant holds after every change of a pointer.
//!
//! It is promised as long as no site is wrongly taken for dead and fewer are lost at once than a
//! successor list is long ("How to make Chord correct", Zave 2012). In the ready worlds a list has
//! all other sites, so only the loss of all others is too much. So it is judged from when the ring
//! is first as it should be, through joins, departures, crashes and handovers of leadership, until
//! at most one site is left on it, or the leader of any site takes one on it for dead: that is cut
//! off, slow, or back after it was lost, or the leader is cut off itself. Then again once the ring
//! has been seen as it should be. What becomes of it in the end is judged in any case
//! ([`crate::verdict::ring`]).

use super::Run;

/// What was judged of the ring.
#[derive(Debug, Default)]
pub(super) struct Pointers {
    /// Nothing has ended the promise since the ring was as it should be.
    is_promised: bool,
    /// Changes of pointers so far.
    pub(super) changes: u64,
    /// Those after which the invariant was judged.
    pub(super) judged: u64,
}

impl Run<'_> {
    /// A site's pointers have changed.
    pub(super) fn judge_pointers(&mut self) {
        if !self.is_deployment() || self.lab.failure.is_some() {
            return;
        }
        self.pointers.changes += 1;
        let ring = self.lab.judge_ring();
        self.pointers.is_promised =
            !ring.ends_promise && (self.pointers.is_promised || ring.is_ideal);
        if !self.pointers.is_promised {
            return;
        }
        self.pointers.judged += 1;
        if let Err(violation) = ring.holds {
            let what = format!("the ring's invariant does not hold: {violation}");
            self.lab.failure.get_or_insert(what);
        }
    }
}
