//! The region of causal keys: reads of sessions that bypass the cores, as on the threads of fronts,
//! and the order of the region as its root gives it.
//!
//! The order is noted here as soon as any node of the root has applied a part of it, since the root
//! drops what all sites have. Histories take positions from it.
//!
//! Of several regions, which take each other's writes into their orders, the one order that all
//! agree on is that of the stamps.

use super::node::Process;
use super::{NodeIndex, Simulation};
use model::{
    Answer, CausalToken, CausalWrite, Failure, KeyspaceId, NO_SITE, Position, Query, Revision,
    SessionToken, SiteId,
};
use protocol::bugs::Bug;
use protocol::site::machine::causal::session::SessionRead;
use protocol::site::{ReadGate, RegionStanding};

/// Of several regions the revision of what no site has written is its position, and its region from
/// this bit on.
const REGION_SHIFT: u32 = 60;

/// The position of what no site has written, by its revision in the order of all regions.
#[must_use]
pub fn position_of_none(revision: Revision) -> u64 {
    revision.0 & ((1 << REGION_SHIFT) - 1)
}

/// A place of the order: the site of the write, and the write.
pub type Ordered = (Position, SiteId, CausalWrite);

impl Process {
    /// Answers a query of a session as a front does on its own thread, if this node covers the
    /// token: see `server::Handle::answer_in_session`. The first read of a session is for the core.
    fn answer_in_session(
        &self,
        keyspace: KeyspaceId,
        query: &Query,
        token: &SessionToken,
    ) -> Option<(Result<Answer, Failure>, CausalToken)> {
        if self.gate == ReadGate::Closed {
            return None;
        }
        let token = CausalToken::decode(token.bytes())?;
        match self.site.reader().in_session(keyspace, query, None, token) {
            Ok(SessionRead::Answered(answer, token)) => {
                Some((answer.map_err(Failure::Refused), token))
            }
            _ => None,
        }
    }
}

impl<C> Simulation<C> {
    /// The answer of a front to a read of a session.
    pub(super) fn answer_session_here(
        &self,
        node: NodeIndex,
        keyspace: KeyspaceId,
        query: &Query,
        token: &SessionToken,
    ) -> Option<(Result<Answer, Failure>, SessionToken)> {
        let process = self.nodes[node].process.as_ref()?;
        let (outcome, after) = process.answer_in_session(keyspace, query, token)?;
        // As the core has them.
        let planted = self.settings.planted;
        let is_unmerged = planted.is(Bug::ReadsUnmerged)
            || (planted.is(Bug::AbsenceUnseen) && matches!(outcome, Ok(Answer::Value(None))));
        Some((outcome, if is_unmerged { token.clone() } else { after.into_session() }))
    }

    /// How far a node's site is in its region's order; `None`: it is down, or in no region.
    #[must_use]
    pub fn region_standing(&self, node: NodeIndex) -> Option<RegionStanding> {
        self.nodes[node].process.as_ref()?.site.region_standing()
    }

    /// Notes what a node's site has written, before it has any place in the order.
    pub(super) fn note_own(&mut self, node: NodeIndex) {
        let one = &self.nodes[node];
        let Some(process) = &one.process else { return };
        let Some(site) = self.sites[one.site].id else { return };
        let mut noted = self.own_writes.range((site, Revision(0))..=(site, Revision(u64::MAX)));
        let after = noted.next_back().map_or(Revision(0), |((_, revision), _)| *revision);
        let own = process.site.region_own(after);
        self.own_writes.extend(own.into_iter().map(|write| ((site, write.revision), write)));
    }

    /// Notes what a node of the root has of the order, beyond what is noted.
    pub(super) fn note_order(&mut self, node: NodeIndex) {
        let Some(standing) = self.region_standing(node).filter(|one| one.is_root) else { return };
        let Some(process) = self.nodes[node].process.as_ref() else { return };
        let order = self.order_of.entry(standing.region).or_default();
        let last = |order: &[Ordered]| order.last().map_or(Position(0), |last| last.0);
        let mut after = last(order);
        if standing.epoch < after.epoch() {
            // It does not know yet that another one is the root.
            return;
        }
        let begun = standing.begun;
        if after.epoch() < begun.epoch() && begun.count() < after.count() {
            // A standby has taken over: what lies behind that was not released.
            order.retain(|(position, ..)| position.count() <= begun.count());
            after = last(order);
        }
        // Another root begins where the one before ended, in an epoch of its own.
        if standing.order_last.count() <= after.count() {
            return;
        }
        let more = process.site.region_order(after);
        if more.first().is_none_or(|first| first.0.count() != after.count() + 1) {
            let name = self.name(node).to_owned();
            return self.fail(format!("{name} has dropped the order after {after} at once"));
        }
        order.extend(more);
    }

    /// The order of a region that is the only one, as far as it was given.
    #[must_use]
    pub fn ordered(&self) -> &[Ordered] {
        self.order_of.values().next().map_or(&[], Vec::as_slice)
    }

    /// The order in which writes count: of one region its own, of several that of their stamps.
    #[must_use]
    pub fn order(&self) -> Vec<Ordered> {
        if self.order_of.len() < 2 {
            return self.order_of.values().flatten().cloned().collect();
        }
        let mut all: Vec<Ordered> = Vec::new();
        for (region, order) in &self.order_of {
            let is_own = |one: &&Ordered| matches!(one.2.stamp(), Some((_, None)));
            all.extend(order.iter().filter(is_own).cloned().map(|(at, site, mut write)| {
                if site == NO_SITE {
                    // Two roots may have given the same position.
                    write.revision.0 |= u64::from(region.0) << REGION_SHIFT;
                }
                (at, site, write)
            }));
        }
        all.sort_by_key(|(position, _, write)| (write.stamp(), *position));
        let numbered = all.into_iter().zip(1..);
        numbered.map(|((_, site, write), at)| (Position::new(1, at), site, write)).collect()
    }

    /// Whether each root has taken what the others have ordered.
    #[must_use]
    pub fn regions_are_joined(&self, roots: &[NodeIndex]) -> bool {
        let of = |node: NodeIndex| Some((node, self.region_standing(node)?));
        let all: Vec<_> = roots.iter().filter_map(|node| of(*node)).collect();
        let has = |node: NodeIndex, other: &RegionStanding| {
            let process = self.nodes[node].process.as_ref();
            process.is_some_and(|one| one.site.region_taken(other.region) >= other.order_last)
        };
        all.iter().all(|(node, own)| {
            let mut others = all.iter().filter(|(_, other)| other.region != own.region);
            others.all(|(_, other)| has(*node, other))
        })
    }
}
