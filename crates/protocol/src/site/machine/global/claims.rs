//! What borrowers claim while a failover is open, at the sites that may take slots by it.
//!
//! Each site reports in its inventory the loans in which it has a part. The driver of the failover
//! sends the highest claim to each group to the site that is to take its slot, before the decision.
//! The taker adopts those that its copy has not seen ([`crate::global::ownership::lending`]) in the
//! command that brings the decision, so that no group is served at two sites. Claims go when their
//! failover is decided or called off, or another one is prepared. A recovery of the registry ends
//! the failover and keeps them, as its decision may be handed in later. A site that was restored
//! from a backup adopts in the same way, before it confirms what it owns, what others have borrowed
//! of it since.
//!
//! ```text
//! X slot keyspace tag → row of the version that opened the failover, and the [`Claim`]   (wire::row)
//! ```

use super::Applying;
use super::lending::group_records;
use super::lineage::Whose;
use super::loans::LentRow;
use super::{Machine, MachineError, Stopped, tables};
use crate::global::ownership::lending::{Claim, Part, TakenFrom};
use crate::global::ownership::{Holding, Token as Right};
use model::{Answer, Ballot, Group, Refusal, Registry, RegistryError, Slot, SlotRun};
use std::collections::BTreeMap;
use storage::state::{Read, State};
use wire::row;

/// The claims of the open failover.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::site::machine) struct Claims {
    opened: Option<Ballot>,
    by_group: BTreeMap<(Slot, Group), Claim>,
}

impl Claims {
    pub(in crate::site::machine) fn load(state: &impl Read) -> Result<Claims, MachineError> {
        let mut all = Claims::default();
        for (key, row) in super::rows(state, tables::CLAIMS)? {
            let read = tables::parse_part(&key).zip(row::decode(&row));
            let damaged = MachineError::Damaged { table: tables::CLAIMS as char };
            let (at, (opened, claim)) = read.ok_or(damaged)?;
            all.opened = Some(opened);
            all.by_group.insert(at, claim);
        }
        Ok(all)
    }
}

/// The failover of the records that a taker goes on from, and what it takes of them.
pub(in crate::site::machine) struct From {
    failover: Ballot,
    whose: Whose,
}

impl From {
    /// By what the site has of slots before it takes them.
    pub(in crate::site::machine) fn of(before: &Holding) -> From {
        let own = matches!(before.token, Right::Held(_) | Right::Frozen { .. });
        match before.copy.filter(|copy| !own || copy.tag.epoch > before.token.epoch()) {
            Some(copy) => From { failover: copy.tag.epoch.failover, whose: Whose::Copied },
            None if own => From { failover: before.token.epoch().failover, whose: Whose::Own },
            // It begins empty: these records have seen nothing, whatever the token's epoch is.
            None => From { failover: Ballot::FIRST, whose: Whose::Own },
        }
    }
}

impl<S: State> Applying<'_, S> {
    /// Takes in what borrowers claim of slots that this site may take.
    pub(in crate::site::machine) fn prepare(
        &mut self,
        opened: Ballot,
        claims: &[(Group, Claim)],
    ) -> Result<Answer, Stopped> {
        let registry = self.member()?.registry.clone();
        if opened == Ballot::FIRST && self.modes.deployment.unconfirmed.is_some() {
            return Ok(self.adopt_restored(&registry, claims));
        }
        let open = registry.failovers.open.as_ref().filter(|open| open.opened == opened);
        if open.is_none() {
            return Err(Refusal::Registry(RegistryError::NoFailover).into());
        }
        if self.modes.claims.opened != Some(opened) {
            self.drop_claims();
            self.modes.claims.opened = Some(opened);
        }
        for (group, claim) in claims {
            let at = (group.slot(), group.clone());
            let known = self.modes.claims.by_group.get(&at).copied();
            if let Some(claim) = Claim::higher(known, Some(*claim)) {
                self.overlay.put(tables::claim(at.0, group), row::encode(&(opened, claim)));
                self.modes.claims.by_group.insert(at, claim);
            }
        }
        Ok(self.done_now())
    }

    /// This site confirms what it owns. If it was restored from a backup, it has lent groups since, by
    /// what their borrowers report.
    fn adopt_restored(&mut self, registry: &Registry, claims: &[(Group, Claim)]) -> Answer {
        self.next_revision();
        let slots = claims.iter().map(|(group, _)| group.slot());
        let count = |slot| (slot, self.modes.loans.count(Whose::Own, slot).loans);
        let counts: BTreeMap<Slot, u64> = slots.map(count).collect();
        for (group, claim) in claims {
            let slot = group.slot();
            let Right::Held(epoch) = self.modes.holding(slot).token else { continue };
            let from = TakenFrom { failover: epoch.failover, count: counts[&slot] };
            self.adopt_claim(group, (*claim, true), from, registry.version);
        }
        self.done_now()
    }

    /// Claims of a failover that is decided or called off go.
    pub(super) fn follow_claims(&mut self) {
        let Some((_, registry)) = self.modes.place() else { return };
        let Some(opened) = self.modes.claims.opened else { return };
        let failovers = &registry.failovers;
        let is_open = failovers.open.as_ref().is_some_and(|open| open.opened == opened);
        let is_decided = failovers.decided.iter().any(|one| one.opened == opened);
        let is_of_term = registry.version.term == opened.term;
        if is_decided || is_of_term && !is_open {
            self.drop_claims();
        }
    }

    fn drop_claims(&mut self) {
        let claims = std::mem::take(&mut self.modes.claims);
        for (slot, group) in claims.by_group.keys() {
            self.overlay.remove(tables::claim(*slot, group));
        }
    }

    /// The counts of loans of these slots, in the records that this site goes on from.
    pub(super) fn counts_before(&self, run: SlotRun, from: &From) -> BTreeMap<Slot, u64> {
        let claimed = self.modes.claims.by_group.keys().map(|(slot, _)| *slot);
        let claimed = claimed.filter(|slot| run.contains(*slot));
        claimed.map(|slot| (slot, self.modes.loans.count(from.whose, slot).loans)).collect()
    }

    /// Adopts the loans that the taken records have not seen, in slots that are this site's from
    /// here on.
    pub(super) fn adopt_claims(
        &mut self,
        (run, opened): (SlotRun, Ballot),
        from: &From,
        counts: &BTreeMap<Slot, u64>,
    ) {
        let Right::Held(epoch) = self.modes.holding(run.first).token else { return };
        let Some((_, registry)) = self.modes.place() else { return };
        if self.modes.claims.opened != Some(opened) {
            return;
        }
        // Borrowers may have given back what they claimed before a recovery of the registry.
        let is_of_term = opened.term == registry.version.term;
        let claims = self.modes.claims.by_group.iter();
        let claims = claims.filter(|((slot, _), _)| run.contains(*slot));
        let claims: Vec<_> = claims.map(|((_, group), claim)| (group.clone(), *claim)).collect();
        for (group, claim) in claims {
            let slot = group.slot();
            let count = counts.get(&slot).copied().unwrap_or_default();
            let taken = TakenFrom { failover: from.failover, count };
            self.adopt_claim(&group, (claim, is_of_term), taken, epoch.failover);
        }
    }

    /// Adopts a claim. `is_present`: a borrower whose loan these records have seen need not be
    /// asked again.
    fn adopt_claim(
        &mut self,
        group: &Group,
        (claim, is_present): (Claim, bool),
        from: TakenFrom,
        decided: Ballot,
    ) {
        let slot = group.slot();
        let had = self.modes.loans.row(Whose::Own, slot, group);
        let mut lent = self.modes.loans.lent(Whose::Own, slot, group);
        let adopted = self.by_rule(|fences| lent.adopt(claim, from, decided, fences));
        // A claim to an earlier loan proves nothing of the row that is there.
        let is_claimed = adopted.is_ok() && lent.is(claim.loan, claim.to);
        let Some(row) = lent.row.filter(|_| is_claimed) else { return };
        let keys = match had {
            Some(had) => had.keys,
            None => self.keys_of_group(group),
        };
        let known = had.filter(|had| had.row.loan == row.loan);
        let fed = known.map_or(0, |had| had.fed);
        // A row that these records have not seen is offered: should the borrower have no part any
        // more, its answer ends the loan.
        let is_taken = is_present && known.is_some();
        self.next_revision();
        self.set_lent(group, Some(LentRow { row, fed, keys, is_taken }), lent.count);
    }

    fn keys_of_group(&mut self, group: &Group) -> u64 {
        let Some(store) = self.modes.slots.store(group.keyspace, group.slot()) else { return 0 };
        match group_records(&self.overlay, store.generation, &group.tag) {
            Ok(records) => records.len() as u64,
            Err(error) => {
                self.failed = Some(error);
                0
            }
        }
    }

    /// What this site claims in a failover: its parts, whatever they are.
    pub(super) fn own_claims(&self) -> Vec<(Group, Claim)> {
        let parts = self.modes.loans.parts();
        let parts = parts.filter(|(_, part)| part.borrowed.part != Part::Never);
        let claim = |borrowed: crate::global::ownership::lending::Borrowed| {
            self.by_rule(|fences| borrowed.claim(fences)).ok().flatten()
        };
        parts.filter_map(|(group, part)| Some((group.clone(), claim(part.borrowed)?))).collect()
    }
}

impl<S: State> Machine<S> {
    /// How many claims are kept for the open failover.
    pub fn claims(&self) -> usize {
        self.modes.claims.by_group.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Epoch, Loan, SiteId};

    #[test]
    fn format_1_stays_as_it_is() {
        let loan = Loan { epoch: Epoch::counted(3), count: 300 };
        let claim = Claim { loan, to: SiteId(2), confirmed: Ballot::FIRST };
        let opened = Ballot { round: 5, ..Ballot::FIRST };
        let row = row::encode(&(opened, claim));
        assert_eq!(row, [1, 0, 0, 5, 0, 3, 0xac, 2, 2, 0, 0, 0, 0]);
    }
}
