//! The ring while things happen: its invariant holds after every change of a pointer.
//!
//! It is promised as long as no site is wrongly taken for failed and fewer are lost at once than a
//! successor list is long ("How to make Chord correct", Zave 2012). So it is judged from when it is
//! first as it should be, through joins, departures, crashes, losses of power and handovers of
//! leadership, until a fault begins that makes running sites look failed; and again when none of
//! those is there any more and the ring has been seen as it should be. What becomes of it in the
//! end is judged in any case ([`crate::verdict::ring`]).

use std::time::Duration;

use super::Run;
use crate::faults::Kind;
use crate::faults::apply::Begun;

/// For so long after the last fault that makes a running site look failed, one may still be taken
/// for failed.
const SETTLES: Duration = Duration::from_secs(6);

/// What may be judged of the ring.
#[derive(Debug)]
pub(super) struct Pointers {
    /// Faults under way that make running sites look failed.
    under_way: usize,
    /// Until when one may be taken for failed; `None`: the ring has been well since.
    disturbed_until: Option<Duration>,
    /// Whether the ring was as it should be after the last change.
    was_ideal: bool,
    /// Changes of pointers so far.
    pub(super) changes: u64,
    /// Those after which the invariant was judged.
    pub(super) judged: u64,
}

impl Default for Pointers {
    fn default() -> Pointers {
        // Sites that have just joined find their places first.
        let disturbed_until = Some(Duration::ZERO);
        Pointers { under_way: 0, disturbed_until, was_ideal: false, changes: 0, judged: 0 }
    }
}

/// Whether a fault makes no running site look failed.
fn is_honest(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Crash
            | Kind::SiteLoss
            // The failure detector goes by elapsed time, not by the clock on the wall.
            | Kind::ClockJump
            // A disk that is found bad, old, empty or of another machine takes its node away, as a
            // crash does.
            | Kind::FlippedBit
            | Kind::LostSync
            | Kind::DamagedState
            | Kind::OldDisk
            | Kind::SameId
            | Kind::Remove
            | Kind::SitesLoss
            | Kind::Transfer
            | Kind::Replace
            | Kind::MoveSlots
            | Kind::JoinSite
            | Kind::LeaveSite
            | Kind::SetBackup
            | Kind::CutClients
            | Kind::SetStandby
            | Kind::MoveRoot
            | Kind::LendGroups
            | Kind::AlterRules
    )
}

impl Pointers {
    /// A fault begins.
    pub(super) fn begins(&mut self, kind: Kind, begun: Begun, now: Duration) {
        if !is_honest(kind) {
            self.under_way += usize::from(matches!(begun, Begun::For(_)));
            self.disturbed_until = Some(now + SETTLES);
        }
    }

    /// A fault that lasted has ended.
    pub(super) fn ends(&mut self, kind: Kind, now: Duration) {
        if !is_honest(kind) {
            self.under_way = self.under_way.saturating_sub(1);
            self.disturbed_until = Some(now + SETTLES);
        }
    }

    /// All faults have ended, also those that would last longer.
    pub(super) fn all_end(&mut self, now: Duration) {
        self.under_way = 0;
        self.disturbed_until = Some(now + SETTLES);
    }

    fn may_be_judged(&self, now: Duration) -> bool {
        self.under_way == 0 && self.disturbed_until.is_none_or(|until| now >= until)
    }
}

impl Run<'_> {
    /// A site's pointers have changed.
    pub(super) fn judge_pointers(&mut self) {
        if !self.is_deployment() || self.lab.failure.is_some() {
            return;
        }
        self.pointers.changes += 1;
        let (holds, is_ideal) = self.lab.judge_ring();
        let was_ideal = std::mem::replace(&mut self.pointers.was_ideal, is_ideal);
        if !self.pointers.may_be_judged(self.lab.now()) {
            return;
        }
        // A ring that has settled does not change: that it was well shows with what disturbs it
        // next.
        if was_ideal || is_ideal {
            self.pointers.disturbed_until = None;
        }
        if self.pointers.disturbed_until.is_some() {
            return;
        }
        self.pointers.judged += 1;
        if let Err(violation) = holds {
            let what = format!("the ring's invariant does not hold: {violation}");
            self.lab.failure.get_or_insert(what);
        }
    }
}
