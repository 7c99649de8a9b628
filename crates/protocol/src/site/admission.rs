//! What a site's core sees when it admits a request ([`crate::admission`]).

use super::{ReadGate, Site};
use crate::admission::{Admission, Context, GroupAt, Right};
use crate::bugs::Bug;
use model::{Group, KeyspaceId, KeyspaceSpec, LoanPart, ReadConsistency, Refusal, SiteId, Slot};
use storage::log::LogReader;
use storage::snapshot::Snapshots;
use storage::state::State;

impl<S: State, R: LogReader, N: Snapshots> Context for Site<S, R, N> {
    fn spec(&self, keyspace: KeyspaceId) -> Option<&KeyspaceSpec> {
        self.machine.spec(keyspace)
    }

    fn own_site(&self) -> Option<SiteId> {
        self.machine.membership().map(|member| member.own)
    }

    fn serves(&self, slot: Slot) -> bool {
        self.machine.serves(slot)
    }

    fn group_at(&self, group: &Group) -> GroupAt {
        let machine = &self.machine;
        let part = machine.part(group).map(|part| part.borrowed.part);
        match part {
            Some(LoanPart::Held) if machine.serves_borrowed(group) => return GroupAt::Here,
            Some(LoanPart::Frozen) if self.options.planted.is(Bug::ServeGivenBack) => {
                return GroupAt::Here;
            }
            Some(LoanPart::Held | LoanPart::Unconfirmed | LoanPart::Frozen) => {
                return GroupAt::Between;
            }
            Some(LoanPart::Never | LoanPart::Retained) | None => {}
        }
        if machine.serves(group.slot()) && !self.options.planted.is(Bug::ServeLent) {
            return match machine.borrower_of(group) {
                Some((_, _, false)) => GroupAt::Between,
                Some((site, loan, true)) => GroupAt::At(site, Some(loan)),
                None => GroupAt::Slot,
            };
        }
        // A node that lags behind its site may name a borrower that has left since.
        let hint = self.global.routing.borrowers.of(group).filter(|site| {
            let member = machine.membership();
            member.is_some_and(|it| it.own != *site && it.registry.site(*site).is_some())
        });
        hint.map_or(GroupAt::Slot, |site| GroupAt::At(site, None))
    }

    fn locates(&self, slot: Slot) -> bool {
        self.global.routing.map.locates(slot)
    }

    fn owner_elsewhere(&self, slot: Slot, returns: u32) -> Option<SiteId> {
        self.owner_elsewhere(slot, returns)
    }

    fn is_fenced(&self, site: SiteId) -> bool {
        self.is_taken_for_lost(site)
    }

    fn driver_of_failover(&self, lost: SiteId, by: Option<SiteId>) -> Result<SiteId, Refusal> {
        self.driver_of(lost, by)
    }

    fn admit_read(&self, keyspace: KeyspaceId, consistency: ReadConsistency) -> Admission {
        self.admit_read_in(Some(keyspace), consistency)
    }
}

impl<S: State, R: LogReader, N: Snapshots> Site<S, R, N> {
    /// Whether the site has committed what this node's disk has had no room for since an election
    /// timeout: the others have.
    pub(super) fn is_behind_by_full_disk(&self) -> bool {
        self.replica.stuck_ticks >= self.options.ticks.election
    }

    /// What may be answered from the state here; `None`: about no keyspace.
    pub(super) fn admit_read_in(
        &self,
        keyspace: Option<KeyspaceId>,
        consistency: ReadConsistency,
    ) -> Admission {
        let is_blind = self.options.planted.is(Bug::ReadWithoutIndex);
        let leads = match is_blind {
            true => ReadGate::Open,
            false => self.replica.leads_for_sure(&self.options),
        };
        let now = || self.now.monotonic;
        let right = Right {
            is_witness: self.options.witness,
            is_stuck: self.is_behind_by_full_disk(),
            gate: self.replica.gate.now(),
            leads,
            lags: !is_blind && !self.replica.has_applied_all(&self.options),
            now: &now,
        };
        let spec = keyspace.and_then(|keyspace| self.machine.spec(keyspace));
        right.admit(consistency, || spec.is_some_and(|spec| spec.lease_reads))
    }
}
