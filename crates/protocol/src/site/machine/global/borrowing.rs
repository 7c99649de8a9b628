//! Groups of other sites' slots that this site serves, or has served: the borrower's side of a
//! loan.
//!
//! A group comes in one command, with its records and what clients were answered about its slot.
//! While it is here its writes go to the slot's owner in reports, each of which has all of the
//! group. To give it back the part is frozen, and the owner takes the last report; what is here
//! stays until the owner's mirror has it.

use super::Applying;
use super::Owner;
use super::elsewhere::Elsewhere;
use super::lending::{group_records, last_failover};
use super::lineage::Whose;
use super::loans::PartRow;
use super::{Machine, MachineError, Modes, Stopped};
use crate::bugs::Bug;
use crate::global::borrowers::Borrowers;
use crate::global::ownership::lending::{Borrowed, Lent, Offer, Part};
use model::{
    Answer, Ballot, Epoch, Group, Loan, LoanOffer, LoanReport, LoanState, LoanTaken, MoveError,
    Revision, SiteId, SlotEpochs, SlotRun, SlotSet, StagedItem, limits,
};
use storage::state::State;

/// A site that was restored from a backup has parts of former times.
const UNCONFIRMED: MoveError = MoveError::NotReady("it has to confirm what it owns");

/// What the records of a group take, of what was offered with it.
fn records_bytes(group: &Group, items: &[StagedItem]) -> u64 {
    let bytes = |item: &StagedItem| match item {
        StagedItem::Record { keyspace, key, row } if Group::of_key(*keyspace, key) == *group => {
            (key.len() + row.len()) as u64
        }
        _ => 0,
    };
    items.iter().map(bytes).sum()
}

impl<S: State> Applying<'_, S> {
    pub(super) fn take_offers(
        &mut self,
        from: SiteId,
        (revision, log_time_ms): (Revision, u64),
        offers: &[LoanOffer],
    ) -> Result<Answer, Stopped> {
        let member = self.member()?.clone();
        if self.modes.deployment.unconfirmed.is_some() {
            return Err(UNCONFIRMED.into());
        }
        let is_known = |offer: &LoanOffer| offer.group.keyspace.0 < self.known.head.keyspace_next;
        // All of it or nothing.
        if !offers.iter().all(is_known) {
            return Err(MoveError::NotReady("a keyspace is not known there").into());
        }
        self.pass_revision(revision);
        let elsewhere = self.elsewhere(log_time_ms);
        let leaves = member.registry.site(member.own).is_none_or(|own| own.leaving);
        let failed = last_failover(&member.registry, member.own);
        let borrowers = Borrowers::of(&member.registry, from);
        let bytes_max = member.registry.site(member.own).and_then(|own| own.borrowed_bytes_max);
        let mut taken = Vec::new();
        for offer in offers {
            let (group, slot) = (&offer.group, offer.group.slot());
            // This site may be a stale owner.
            let token = self.modes.holding(slot).token;
            if token.is_own() && token.epoch() < offer.epoch {
                let slots = SlotEpochs::gather([(slot, offer.epoch)]);
                self.learn_owner(from, &slots);
            }
            self.follow_offer(from, offer);
            let token = self.modes.holding(slot).token;
            let had = self.modes.loans.part(group);
            let mut borrowed = self.modes.loans.borrowed(group);
            let is_full = had.is_none() && self.modes.loans.parts_count() >= limits::LOANS_MAX;
            let is_global = self.known.keyspaces.is_global(group.keyspace);
            // An owner that offers a loan again may have lost what it was given of it, and gets
            // that again: in a report from here on, as one that is under way has less.
            let head = self.known.head.revision.0;
            match borrowed.part {
                _ if borrowed.loan != offer.row.loan => {}
                Part::Retained => self.modes.loans.change_part(group, |part| part.back = None),
                Part::Held => self.modes.loans.change_part(group, |part| {
                    (part.since, part.changed) = (0, head);
                }),
                Part::Never | Part::Unconfirmed | Part::Frozen => {}
            }
            let spec = self.known.keyspaces.spec(group.keyspace);
            let is_barred = spec.is_some_and(|spec| borrowers.sends_home(spec, group, member.own))
                && !self.modes.planted.is(Bug::RulesAtDecision);
            // One that has a part of an earlier loan takes it, and gives it back: it could not
            // refuse.
            let bytes = self.modes.loans.parts_bytes() + records_bytes(group, &offer.records);
            let has_room = bytes_max.is_none_or(|max| bytes <= max);
            let refuses = (leaves || is_barred || !has_room) && borrowed.part == Part::Never;
            if refuses || is_full || !is_global {
                let loan = offer.row.loan;
                if self.by_rule(|fences| borrowed.refuse(loan, from, fences))? {
                    self.note_loan(group, borrowed);
                }
            } else {
                let row = Offer { row: offer.row, from, epoch: offer.epoch };
                if self.by_rule(|fences| borrowed.install(row, token, failed, fences))? {
                    self.drop_part_records(group);
                    self.install_loan(group, (borrowed, from), &offer.records, elsewhere)?;
                }
            }
            let Borrowed { loan, part, .. } = borrowed;
            taken.push(LoanTaken { group: group.clone(), loan, part });
        }
        Ok(Answer::Borrowed(taken))
    }

    /// An offer of a loan that is here comes from the slot's owner of today: the slot may have
    /// moved from a site that is no more, and this site may have had no reason to ask for it.
    fn follow_offer(&mut self, from: SiteId, offer: &LoanOffer) {
        let Some(part) = self.modes.loans.part(&offer.group) else { return };
        let known = self.modes.holding(offer.group.slot()).token.epoch();
        let is_later = offer.epoch > known.max(part.borrowed.loan.epoch);
        if part.borrowed.loan == offer.row.loan && is_later {
            let slots = SlotEpochs::gather([(offer.group.slot(), offer.epoch)]);
            self.learn_owner(from, &slots);
            self.set_part(&offer.group, Some(PartRow { owner: from, ..part }));
        }
    }

    fn install_loan(
        &mut self,
        group: &Group,
        (borrowed, owner): (Borrowed, SiteId),
        records: &[StagedItem],
        elsewhere: Elsewhere,
    ) -> Result<(), Stopped> {
        let (keyspace, slot) = (group.keyspace, group.slot());
        let mut store = self.new_store(Owner::Borrowed { keyspace });
        let generation = store.generation;
        let mut bytes = 0;
        for item in records {
            match item {
                StagedItem::Record { keyspace, key, row }
                    if Group::of_key(*keyspace, key) == *group =>
                {
                    let row = elsewhere.row(row)?;
                    bytes += (key.len() + row.len()) as u64;
                    store.count = self.stage(store, key, Some(&row))?;
                }
                item => self.take_answer(item, slot, Whose::Borrowed(generation), elsewhere),
            }
        }
        let since = self.known.head.revision.0;
        let (keys, back) = (store.count, None);
        let (changed, fed) = (since, since);
        let part = PartRow { borrowed, owner, since, changed, fed, back, generation, keys, bytes };
        self.set_part(group, Some(part));
        Ok(())
    }

    /// The number of a loan in which this site has no part.
    pub(super) fn note_loan(&mut self, group: &Group, borrowed: Borrowed) {
        let had = self.modes.loans.part(group);
        let generation = had.map_or(super::stores::EMPTY, |part| part.generation);
        let part = PartRow {
            borrowed,
            owner: had.map_or(SiteId(0), |part| part.owner),
            since: 0,
            changed: 0,
            fed: 0,
            back: None,
            generation,
            keys: had.map_or(0, |part| part.keys),
            bytes: had.map_or(0, |part| part.bytes),
        };
        self.set_part(group, Some(part));
    }

    /// A write is about to come to a part. `false`: the group, or what its clients were answered,
    /// has become too large to be borrowed, and goes home without it.
    pub(in crate::site::machine) fn may_grow(
        &mut self,
        group: &Group,
        part: &PartRow,
        more: u64,
    ) -> bool {
        // Going home it has all of its answers.
        let answers = self.known.clients.sent_bytes(Whose::Borrowed(part.generation), group.slot());
        let answer = limits::ANSWER_REMEMBERED_BYTES_MAX + limits::ANSWER_SENT_BYTES;
        let is_too_large = part.bytes + more > limits::LOAN_BYTES_MAX
            || answers + answer > limits::PART_ANSWERS_BYTES_MAX;
        let mut borrowed = part.borrowed;
        if is_too_large && self.by_rule(|fences| borrowed.give_back(fences)).unwrap_or(false) {
            self.set_part(group, Some(PartRow { borrowed, ..*part }));
            return false;
        }
        true
    }

    /// Throws away the records of a part.
    pub(super) fn drop_part_records(&mut self, group: &Group) {
        let Some(part) = self.modes.loans.part(group) else { return };
        if part.generation == super::stores::EMPTY {
            return;
        }
        self.modes.owners.remove(&part.generation);
        if part.keys > 0 {
            self.discard(part.generation);
        }
        self.drop_answers(SlotRun::one(group.slot()), Whose::Borrowed(part.generation));
        self.modes.loans.change_part(group, |part| {
            (part.generation, part.keys, part.bytes) = (super::stores::EMPTY, 0, 0);
        });
    }

    pub(in crate::site::machine) fn give_back(
        &mut self,
        loans: &[(Group, Loan)],
    ) -> Result<Answer, Stopped> {
        self.next_revision();
        let mut taken = Vec::new();
        for (group, loan) in loans {
            let Some(part) = self.modes.loans.part(group) else { continue };
            let mut borrowed = part.borrowed;
            if borrowed.loan == *loan && self.by_rule(|fences| borrowed.give_back(fences))? {
                self.set_part(group, Some(PartRow { borrowed, ..part }));
            }
            let Borrowed { loan, part, .. } = borrowed;
            taken.push(LoanTaken { group: group.clone(), loan, part });
        }
        Ok(Answer::Borrowed(taken))
    }

    /// This site was restored from a backup: the owners of slots have later records of what it had
    /// borrowed.
    pub(in crate::site::machine) fn give_up_parts(&mut self) {
        let parts = self.modes.loans.parts();
        let parts: Vec<_> = parts.map(|(group, part)| (group.clone(), part.borrowed)).collect();
        for (group, borrowed) in parts {
            self.drop_part_records(&group);
            self.note_loan(&group, Borrowed { part: Part::Never, ..borrowed });
        }
    }

    /// The owner of slots has answered what it has of groups.
    pub(super) fn follow_owner(
        &mut self,
        owner: SiteId,
        revision: Revision,
        states: &[LoanState],
    ) -> Result<Answer, Stopped> {
        self.next_revision();
        for state in states {
            let Some(part) = self.modes.loans.part(&state.group) else { continue };
            let mut borrowed = part.borrowed;
            let known = self.modes.holding(state.group.slot()).token.epoch();
            if borrowed.loan != state.loan || state.epoch < known {
                continue;
            }
            let mut fed = part.fed;
            let back;
            if state.stands {
                borrowed.confirm(state.epoch);
                fed = fed.max(state.fed);
                back = None;
            } else {
                let lent = Lent { row: None, count: state.count };
                let epoch = state.epoch;
                self.by_rule(|fences| borrowed.release((&lent, epoch), fences))?;
                back = (borrowed.part == Part::Retained).then_some(revision.0);
            }
            self.set_part(&state.group, Some(PartRow { borrowed, owner, fed, back, ..part }));
        }
        Ok(self.done_now())
    }

    /// A decision of a failover takes slots, which other sites own from here on. It is learned with
    /// the registry, or by the epoch of such an owner.
    pub(super) fn loans_taken(&mut self, decided: Ballot, slots: &SlotSet, by: SiteId) {
        for run in slots.runs() {
            let parts = self.modes.loans.parts_of(run);
            let parts: Vec<_> = parts.map(|(group, part)| (group.clone(), *part)).collect();
            for (group, part) in parts {
                let Borrowed { loan, confirmed, .. } = part.borrowed;
                // The decision came late: an owner since has lent the group, or confirmed the loan.
                if loan.epoch >= Epoch::of_failover(decided) || confirmed >= decided {
                    continue;
                }
                let mut borrowed = part.borrowed;
                if self.by_rule(|fences| borrowed.taken(decided, fences)).is_ok() {
                    let back = None;
                    self.set_part(&group, Some(PartRow { borrowed, owner: by, back, ..part }));
                }
            }
        }
    }

    /// Follows the last failover of this site itself.
    pub(super) fn loans_failed(&mut self) {
        let Some((own, registry)) = self.modes.place() else { return };
        let failed = last_failover(&registry, own);
        let parts = self.modes.loans.parts();
        let parts: Vec<_> = parts.map(|(group, part)| (group.clone(), *part)).collect();
        for (group, part) in parts {
            let mut borrowed = part.borrowed;
            let is_reported = self.by_rule(|fences| borrowed.failed(failed, fences)).is_ok();
            if is_reported && borrowed != part.borrowed {
                self.set_part(&group, Some(PartRow { borrowed, back: None, ..part }));
            }
        }
    }

    /// The owner of slots may have been restored, and lack what had come home: what this site has of
    /// that is reported again.
    pub(super) fn report_parts_anew(&mut self, to: SiteId) {
        let over = self.modes.loans.parts().filter(|(_, part)| part.back.is_some());
        let over = over.filter(|(group, part)| self.modes.lender(group, part) == to);
        let over: Vec<Group> = over.map(|(group, _)| group.clone()).collect();
        for group in over {
            self.modes.loans.change_part(&group, |part| part.back = None);
        }
    }

    /// The owner's mirror has slots, complete, up to this revision of the owner: parts that were
    /// over by then go.
    pub(super) fn forget_parts_of(&mut self, run: SlotRun, epoch: Epoch, position: u64) {
        let parts = self.modes.loans.parts_of(run);
        let parts: Vec<_> = parts.map(|(group, part)| (group.clone(), *part)).collect();
        for (group, part) in parts {
            let known = self.modes.holding(group.slot()).token.epoch();
            let is_safe = part.back.is_some_and(|back| back <= position) && known <= epoch;
            let (mut borrowed, lent) = (part.borrowed, Lent::default());
            let is_over = self.by_rule(|fences| borrowed.forget(&lent, is_safe, fences));
            if is_safe && is_over.unwrap_or(false) {
                self.drop_part_records(&group);
                self.modes.loans.change_part(&group, |part| part.borrowed = borrowed);
            }
        }
    }
}

impl Modes {
    /// The owner of the slot of a part: the one at the epoch of the loan or at a later one, if this
    /// site has learned of that.
    fn lender(&self, group: &Group, part: &PartRow) -> SiteId {
        let owner = self.owner(group.slot());
        let owner = owner.filter(|(_, epoch)| *epoch >= part.borrowed.loan.epoch);
        owner.map_or(part.owner, |(site, _)| site)
    }
}

impl<S: State> Machine<S> {
    /// This site's parts in groups of other sites' slots.
    pub fn parts(&self) -> impl Iterator<Item = (&Group, &PartRow)> + '_ {
        self.modes.loans.parts()
    }

    /// This site's part in a group.
    pub fn part(&self, group: &Group) -> Option<PartRow> {
        self.modes.loans.part(group)
    }

    /// Whether this site serves a group as its borrower.
    pub fn serves_borrowed(&self, group: &Group) -> bool {
        let part = self.modes.loans.part(group);
        part.is_some_and(|part| part.borrowed.part == Part::Held) && !self.modes.is_fenced()
    }

    /// The groups of which the owners of their slots are to get a report, with these.
    pub(crate) fn parts_due(&self) -> impl Iterator<Item = (SiteId, &Group)> + '_ {
        self.modes.loans.due().filter_map(|group| {
            let part = self.modes.loans.part(group)?;
            Some((self.lender(group, &part), group))
        })
    }

    /// The owner of the slot of a part, as far as this site has learned of it.
    pub(crate) fn lender(&self, group: &Group, part: &PartRow) -> SiteId {
        self.modes.lender(group, part)
    }

    /// A report of a group for the owner of its slot.
    ///
    /// # Errors
    /// When the state cannot be read.
    pub(crate) fn loan_report(&self, group: &Group) -> Result<Option<LoanReport>, MachineError> {
        let slot = group.slot();
        let Some(part) = self.modes.loans.part(group) else { return Ok(None) };
        let Borrowed { loan, part: kind, confirmed, .. } = part.borrowed;
        let whose = Whose::Borrowed(part.generation);
        let found = group_records(&self.state, part.generation, &group.tag)?;
        let record = |(key, row)| StagedItem::Record { keyspace: group.keyspace, key, row };
        let mut records: Vec<StagedItem> = found.into_iter().map(record).collect();
        // Beyond what is new since the loan, an owner that took the slot in a failover may lack the
        // answers about writes that came with the group, which it gets in these records. Its offer
        // may come before the decision.
        let epoch = self.modes.slots.token(slot).epoch();
        let lent_under = loan.epoch.failover;
        let is_of_lender =
            kind == Part::Held && confirmed == lent_under && epoch.failover <= lent_under;
        let since = is_of_lender.then_some(part.since);
        records.extend(self.known.clients.of_slot_since(&self.state, slot, whose, since)?);
        let (group, records) = (group.clone(), Some(records));
        Ok(Some(LoanReport { group, loan, part: kind, slot: epoch, records }))
    }

    /// The owner of a slot with parts here, and the epoch that is known of it.
    pub(crate) fn owner_of_parts(&self, slot: model::Slot) -> Option<(SiteId, Epoch)> {
        let mut parts = self.modes.loans.parts_of(SlotRun::one(slot));
        let (_, part) = parts.find(|(_, part)| part.back.is_some())?;
        let epoch = part.borrowed.loan.epoch;
        let known = self.modes.owner(slot).filter(|(_, known)| *known >= epoch);
        Some(known.unwrap_or((part.owner, epoch)))
    }

    /// The slots with parts here that are over and wait for the owner's mirror.
    pub(crate) fn retained_slots(&self) -> SlotSet {
        let parts = self.modes.loans.parts();
        let over = parts.filter(|(_, part)| part.back.is_some());
        over.map(|(group, _)| group.slot()).collect()
    }
}
