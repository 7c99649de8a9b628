//! The region of causal keys: reads of sessions that bypass the cores, as on the threads of fronts, and the
//! order of the region as its root gives it.
//!
//! The order is noted here as soon as any node of the root has applied a part of it, since the root drops what all
//! sites have. Histories take positions from it.

use super::node::Process;
use super::{NodeIndex, Simulation};
use model::{
    Answer, CausalToken, CausalWrite, Failure, KeyspaceId, Position, Query, Revision, SessionToken,
    SiteId,
};
use protocol::bugs::Bug;
use protocol::site::machine::causal::session::SessionRead;
use protocol::site::{ReadGate, RegionStanding};

/// A place of the order: the site of the write, and the write.
pub type Ordered = (Position, SiteId, CausalWrite);

impl Process {
    /// Answers a query of a session as a front does on its own thread, if this node covers the token: see
    /// `server::Handle::answer_in_session`. The first read of a session is for the core.
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
        let mut after = self.order.last().map_or(Position(0), |last| last.0);
        let Some(process) = self.nodes[node].process.as_ref() else { return };
        if standing.epoch < after.epoch() {
            // It does not know yet that another one is the root.
            return;
        }
        let begun = standing.begun;
        if after.epoch() < begun.epoch() && begun.count() < after.count() {
            // A standby has taken over: what lies behind that was not released.
            self.order.retain(|(position, ..)| position.count() <= begun.count());
            after = self.order.last().map_or(Position(0), |last| last.0);
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
        self.order.extend(more);
    }
}
