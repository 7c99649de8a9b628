//! What other sites have answered to this node's requests: when that may be handed out.
//!
//! See [`crate::global::routing`]: beside each request to another site a node takes a read index of
//! its own site, and looks at the answer once it has applied that.

use super::{Origin, Site};
use crate::admission::Admission;
use crate::bugs::Bug;
use crate::origin::ServedUnder;
use model::{Ballot, Body, ReadConsistency, SiteId, Slot};
use storage::log::LogReader;
use storage::snapshot::Snapshots;
use storage::state::State;

impl<S: State, R: LogReader, N: Snapshots> Site<S, R, N> {
    /// A request leaves for another site: a read index is taken beside it, unless this node is
    /// certain to be as current as its site.
    pub(super) fn take_index(&mut self, id: u64) {
        if !self.global.routing.needs_index(id) || self.options.planted.is(Bug::ForwardUnindexed) {
            return;
        }
        let keyspace = self.global.routing.body(id).and_then(Body::keyspace);
        let index = match self.admit_read_in(keyspace, ReadConsistency::Linearizable) {
            Admission::Here => 0,
            _ => self.replica.reads.want_index(),
        };
        self.global.routing.waits_for_index(id, index);
    }

    /// Looks at the answers with an applied index.
    pub(super) fn hand_out_answers(&mut self) {
        let now = self.now.monotonic;
        while let Some((id, answer)) =
            self.global.routing.next_held(self.replica.reads.indexes_applied())
        {
            // A stale read may be of a former owner, or of a backup, which serves nothing.
            let is_void = self.global.routing.needs_index(id)
                && (self.has_lost(answer.site, answer.slot, answer.served.failover)
                    || self.has_lost_loan(id, answer.site, answer.served))
                && !self.options.planted.is(Bug::ForwardUnindexed);
            let settled = match is_void {
                true => self.global.routing.void(id, now),
                false => {
                    // A group's borrower reports nothing of its slot.
                    let is_of_group = answer.served.borrowed || self.global.routing.is_of_group(id);
                    let is_of_slot = answer.is_ok && !is_of_group;
                    if is_of_slot {
                        self.learn_by_detour(answer.slot, answer.site);
                    }
                    if is_of_slot && answer.leads && !self.machine.serves(answer.slot) {
                        self.global.routing.routes().set(answer.slot, answer.site, answer.node);
                    }
                    let token = self.global.routing.held_token(id);
                    self.session_answered(Origin::Routed { id, in_doubt: false }, token);
                    self.global.routing.hand_out(id, now)
                }
            };
            self.settle(settled.into_iter().collect());
        }
        if self.global.routing.is_idle() {
            self.replica.reads.want_no_index();
        }
    }

    /// Whether a failover has taken a slot, or is about to, from a site that served it under this
    /// one.
    fn has_lost(&self, site: SiteId, slot: Slot, served: Ballot) -> bool {
        self.is_taken_for_lost(site) || served < self.machine.token(slot).epoch().failover
    }

    /// Whether a failover of a borrower, later than the registry by which it served, has taken a
    /// group home. A request may come to a borrower that this node took for the slot's owner.
    /// Versions that do not state that they have borrowed a group were asked as its borrowers.
    fn has_lost_loan(&self, id: u64, site: SiteId, served: ServedUnder) -> bool {
        let is_loan = served.borrowed || self.global.routing.is_to_borrower(id);
        let failed = self.machine.last_failover(site);
        is_loan && failed.is_some_and(|failed| failed > served.failover)
    }

    /// Whether a failover is open that fences a site.
    pub(super) fn is_taken_for_lost(&self, site: SiteId) -> bool {
        self.machine.registry().is_some_and(|registry| registry.failovers.is_fenced(site))
    }
}
