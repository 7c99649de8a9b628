//! What can be seen of a region's order from outside, at one of its nodes: for simulations, which
//! judge by it what clients were answered.

use super::Site;
use model::{CausalWrite, HeldSize, Position, RegionId, Revision, SiteId};
use storage::log::LogReader;
use storage::snapshot::Snapshots;
use storage::state::State;

/// How far a node's site is in its region's order, as the node has applied it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionStanding {
    /// Which region.
    pub region: RegionId,
    /// Whether the site is the root, by its registry.
    pub is_root: bool,
    /// The epoch of the root, by its registry.
    pub epoch: u16,
    /// Where it began as a root that is not the first one.
    pub begun: Position,
    /// The last position that it has imported.
    pub applied: Position,
    /// The last position of the order, at the root.
    pub order_last: Position,
    /// Whether the root gives places to what the region writes: beside others it has what they had.
    pub is_level: bool,
    /// Bytes of its writes that have no position yet.
    pub unordered_bytes: u64,
    /// Whether it gets its causal keys anew.
    pub is_resyncing: bool,
    /// What it holds on demand, of all keyspaces together.
    pub held: HeldSize,
    /// Its log time in ms, by which a root lets keys expire.
    pub log_time_ms: u64,
}

impl<S: State, R: LogReader, N: Snapshots> Site<S, R, N> {
    /// How far this node's site is in its region's order; `None`: it is in no region.
    pub fn region_standing(&self) -> Option<RegionStanding> {
        let region = self.machine.region()?;
        let causal = self.machine.causal();
        Some(RegionStanding {
            region: region.id,
            is_root: self.machine.is_root(),
            epoch: region.epoch,
            begun: causal.begun(),
            applied: causal.applied(),
            order_last: causal.order_last(),
            is_level: causal.is_level(region) || !self.machine.has_other_regions(),
            unordered_bytes: causal.unordered_bytes(),
            log_time_ms: self.machine.log_time_to_send_ms(),
            is_resyncing: causal.is_resyncing(),
            held: causal.held_total(),
        })
    }

    /// At a root: up to where another region's order is taken.
    pub fn region_taken(&self, of: RegionId) -> Position {
        let Some(member) = self.machine.membership() else { return Position::default() };
        let epoch = self.machine.region().map_or(0, |region| region.epoch);
        self.machine.causal().taken_of(&member.registry, of, epoch)
    }

    /// At the root: the whole order after a position, of what it still has.
    pub fn region_order(&self, after: Position) -> Vec<(Position, SiteId, CausalWrite)> {
        self.machine.ordered(after, usize::MAX).unwrap_or_default()
    }

    /// This site's own causal writes after a revision, with and without a place, of what it still
    /// has.
    pub fn region_own(&self, after: Revision) -> Vec<CausalWrite> {
        if self.machine.causal().last_revision() <= after {
            return Vec::new();
        }
        self.machine.causal_own(after).unwrap_or_default()
    }
}
