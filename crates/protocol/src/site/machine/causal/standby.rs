//! What a root and its standby commit to, so that the standby can take the root's place.
//!
//! The standby has the order as every site does: in its records. The root *holds*: it releases no
//! place that the standby has not imported. A standby that is about to take over *freezes*: it
//! imports nothing more, so that its last position is the end of the epoch whatever comes, and all
//! that was released lies before it.
//!
//! Both are as of one version of the registry ([`model::Standby::since`]), and end when the
//! registry passes that: no command takes them back, and none can do so too early.

use super::super::Applying;
use super::{Causal, Stopped, rows};
use crate::bugs::Bug;
use model::{Answer, Ballot, Position, Refusal, Region, SiteId, StandbyStep};
use storage::state::State;
use wire::row;

/// The versions under which this site has committed itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Committed {
    /// As the root.
    pub(super) held: Option<Ballot>,
    /// As its standby.
    pub(super) frozen: Option<Ballot>,
}

const NOT_HERE: Refusal = Refusal::NotCausal(
    "commit to that: it is neither the root nor its standby, or the registry has gone on",
);

impl Causal {
    /// At the root: whether nothing is released before the standby has it.
    pub fn holds(&self, region: &Region) -> bool {
        region.holds(self.committed.held)
    }

    /// At the standby: whether it takes nothing more of the order.
    pub fn is_frozen(&self, region: &Region, own: SiteId) -> bool {
        region.is_frozen(own, self.committed.frozen)
    }

    /// The last position that is known to be released, under any leader. What a root before had
    /// ordered beyond what it released may be void.
    pub fn released(&self, region: &Region, own: SiteId) -> Position {
        let orders = region.root == own && self.has_begun(region);
        match orders && !self.holds(region) {
            true => self.head.order_last,
            false => self.head.applied,
        }
    }
}

impl<S: State> Applying<'_, S> {
    pub(super) fn standby_step(
        &mut self,
        since: Ballot,
        step: StandbyStep,
    ) -> Result<Answer, Stopped> {
        if let StandbyStep::Rejoin { epoch } = step {
            return self.rejoin(since, epoch);
        }
        let (region, own) = (*self.region()?, self.member()?.own);
        let standby = region.standby.filter(|standby| standby.since == since).ok_or(NOT_HERE)?;
        let causal = &mut self.modes.causal;
        match step {
            StandbyStep::Hold if region.root == own && causal.has_begun(&region) => {
                causal.committed.held = Some(since);
            }
            // What it shows while its keys are on their way anew is no part of the order to go on
            // from; and of a restored site it is an old one.
            StandbyStep::Freeze
                if standby.site == own
                    && causal.resync.is_none()
                    && !causal.is_restored()
                    && causal.is_whole() =>
            {
                causal.committed.frozen = Some(since);
            }
            _ => return Err(NOT_HERE.into()),
        }
        let row = row::encode(&self.modes.causal.committed);
        self.overlay.put(rows::COMMITTED.to_vec(), row);
        Ok(self.done_now())
    }

    /// Whether this site takes nothing of the order: it is a standby that is to take over.
    pub(super) fn is_frozen(&self) -> bool {
        let (Ok(region), Ok(member)) = (self.region(), self.member()) else { return false };
        self.modes.causal.is_frozen(region, member.own)
            && !self.modes.planted.is(Bug::FrozenImports)
    }
}
