//! Groups that this site lends out of its slots: the owner's side of a loan.
//!
//! The rules are in [`crate::global::ownership::lending`]; here they are applied to records. A lent
//! group's records stay where they are, as the copy of what its borrower has: the borrower's
//! reports bring all of the group's records each time, and its last one brings the group home. A
//! report is as of a revision of the borrower, and none is taken in after a later one.
//!
//! Revisions of both sides never lie behind what has come from the other one, as with a slot that
//! moves: no two versions of a key bear one number, and what was watched at one of them does not
//! hold at the other.

use super::Applying;
use super::elsewhere::Elsewhere;
use super::lineage::Whose;
use super::loans::LentRow;
use super::ownership::FAILOVER_OPEN;
use super::records::Record;
use super::requests::ClientKey;
use super::{Machine, MachineError, Stopped, tables};
use crate::bugs::{Bug, of_rules};
use crate::global::borrowers::Borrowers;
use crate::global::ownership::lending::{Borrowed, FromBorrower, Part, Settled};
use crate::global::ownership::{Fences, Token as Right};
use model::{
    Answer, Ballot, Bytes, ChangeKind, Group, KeyspaceSpec, Kind, Lending, LoanOffer, LoanReport,
    LoanState, LoanTaken, MoveError, NUMBERS_SKIPPED, Refusal, Registry, Revision, SiteId, SlotRun,
    StagedItem, limits, tag,
};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use storage::state::{Read, State};

/// A version of the registry above all.
const ANY: Ballot = Ballot { round: u64::MAX, ..Ballot::FIRST };

/// The version of the registry that decided the last failover of a site; above all of one that is
/// not listed.
pub(super) fn last_failover(registry: &Registry, site: SiteId) -> Ballot {
    match registry.site(site) {
        None => ANY,
        Some(_) => registry.failovers.last_of(site),
    }
}

impl<S: State> Applying<'_, S> {
    pub(in crate::site::machine) fn lending(&mut self, step: &Lending) -> Result<Answer, Stopped> {
        match step {
            Lending::Lend { to, groups } => self.lend(*to, groups),
            Lending::Answered { by, parts } => self.loans_answered(*by, parts),
            Lending::Report { by, revision, log_time_ms, parts } => {
                self.take_reports(*by, (*revision, *log_time_ms), parts)
            }
            Lending::Offer { from, revision, log_time_ms, offers } => {
                self.take_offers(*from, (*revision, *log_time_ms), offers)
            }
            Lending::GiveBack { loans } => self.give_back(loans),
            Lending::Prepare { opened, claims } => self.prepare(*opened, claims),
            Lending::Follow { owner, revision, states } => {
                self.follow_owner(*owner, *revision, states)
            }
        }
    }

    /// What a rule decides with the fences that this site has.
    pub(super) fn by_rule<T>(&self, rule: impl FnOnce(&Fences<'_>) -> T) -> Result<T, Refusal> {
        let (own, registry) = self.modes.place().ok_or(Refusal::NoDeployment)?;
        let planted = of_rules(self.modes.planted);
        Ok(rule(&self.modes.fences(own, &registry.failovers, planted)))
    }

    /// From here on this site's revisions are above those that another site had.
    pub(super) fn pass_revision(&mut self, theirs: Revision) {
        let head = &mut self.known.head;
        head.revision = head.revision.max(theirs);
        self.next_revision();
    }

    fn lend(&mut self, to: SiteId, groups: &[Group]) -> Result<Answer, Stopped> {
        let registry = self.member()?.registry.clone();
        // A site whose slots were taken would get a loan that no later failover ends.
        if registry.site(to).is_none_or(|site| site.leaving) || registry.is_lost(to) {
            return Err(MoveError::NoDestination.into());
        }
        self.next_revision();
        let borrowers = Borrowers::of(&registry, self.member()?.own);
        let (mut bytes_left, mut keys_left) =
            (limits::LOANS_BYTES_MAX, limits::LOANS_KEYS_EXAMINED_MAX);
        // Each slot's keys are looked at once, whichever of its groups are lent.
        let mut sizes = BTreeMap::new();
        for group in groups.iter().take(limits::LOANS_PER_COMMAND_MAX) {
            let spec = self.known.keyspaces.spec(group.keyspace);
            let is_short = group.tag.len() <= limits::LOANS_TAG_BYTES_MAX;
            // Rules may have changed since it was decided.
            let is_ruled = !self.modes.planted.is(Bug::RulesAtDecision);
            let may_go = |spec: &KeyspaceSpec| {
                spec.is_adaptive() && !(is_ruled && borrowers.bar(spec, group, to).is_some())
            };
            if !is_short || !spec.is_some_and(may_go) {
                continue;
            }
            let slot = group.slot();
            if self.known.clients.sent_bytes(Whose::Own, slot) > limits::LOAN_ANSWERS_BYTES_MAX {
                continue;
            }
            let of_slot = match sizes.entry((group.keyspace, slot)) {
                Entry::Occupied(looked_at) => looked_at.into_mut(),
                Entry::Vacant(place) => match self.modes.slots.store(group.keyspace, slot) {
                    Some(store) if store.count > keys_left => continue,
                    Some(store) => {
                        keys_left -= store.count;
                        place.insert(self.group_sizes(store.generation)?)
                    }
                    None => place.insert(BTreeMap::new()),
                },
            };
            let (keys, bytes) = of_slot.get(&group.tag).copied().unwrap_or_default();
            if bytes > bytes_left {
                continue;
            }
            let token = self.modes.holding(slot).token;
            let mut lent = self.modes.loans.lent(Whose::Own, slot, group);
            // A restore sets the count back, and a copy elsewhere has the higher one; revisions
            // are beyond all that were given before it.
            lent.count = lent.count.max(self.known.head.revision.0);
            let known = registry.version;
            if self.by_rule(|fences| lent.lend(token, to, known, fences))?.is_none() {
                continue;
            }
            bytes_left -= bytes;
            let row = lent.row.map(|row| LentRow { row, fed: 0, keys, is_taken: false });
            self.set_lent(group, row, lent.count);
        }
        Ok(self.done_now())
    }

    /// The keys of each group among a slot's records, by its tag, and their bytes.
    fn group_sizes(&self, generation: u64) -> Result<BTreeMap<Bytes, (u64, usize)>, MachineError> {
        let (from, until) = tables::records(generation);
        let prefix_bytes = tables::record_prefix_bytes(generation);
        let mut sizes: BTreeMap<Bytes, (u64, usize)> = BTreeMap::new();
        self.overlay.scan(&from, Some(&until), &mut |at, row| {
            let key = at.slice(prefix_bytes..);
            let (keys, bytes) = sizes.entry(key.slice_ref(tag(&key))).or_default();
            *keys += 1;
            *bytes += key.len() + row.len();
            true
        })?;
        Ok(sizes)
    }

    /// The records of a group, among those of its slot.
    fn records_of(
        &self,
        generation: u64,
        group: &Group,
    ) -> Result<BTreeMap<Bytes, Bytes>, MachineError> {
        group_records(&self.overlay, generation, &group.tag)
    }

    /// A borrower has answered offers: it has the groups, or is past the loans.
    fn loans_answered(&mut self, by: SiteId, parts: &[LoanTaken]) -> Result<Answer, Stopped> {
        self.next_revision();
        for LoanTaken { group, loan, part } in parts {
            let slot = group.slot();
            let Some(row) = self.modes.loans.row(Whose::Own, slot, group) else { continue };
            if row.row.to != by {
                continue;
            }
            let mut lent = self.modes.loans.lent(Whose::Own, slot, group);
            if row.row.loan == *loan && *part != Part::Never {
                if !row.is_taken {
                    self.set_lent(group, Some(LentRow { is_taken: true, ..row }), lent.count);
                }
                continue;
            }
            let token = self.modes.holding(slot).token;
            let borrowed = Borrowed { loan: *loan, part: *part, ..Borrowed::default() };
            if self.by_rule(|fences| lent.clear(token, &borrowed, fences))? {
                self.set_lent(group, None, lent.count);
            }
        }
        Ok(self.done_now())
    }

    /// Borrowers of groups of these slots are asked again whether they have them: they, or this
    /// site, go on from earlier records. `of`: only this one.
    pub(in crate::site::machine) fn offer_anew(&mut self, run: SlotRun, of: Option<SiteId>) {
        let rows = self.modes.loans.rows_of(Whose::Own, run);
        let rows = rows.filter(|(_, lent)| lent.is_taken && of.is_none_or(|to| lent.row.to == to));
        let rows: Vec<_> = rows.map(|(group, lent)| (group.clone(), *lent)).collect();
        if !rows.is_empty() {
            self.next_revision();
        }
        for (group, lent) in rows {
            let loans = self.modes.loans.count(Whose::Own, group.slot()).loans;
            self.set_lent(&group, Some(LentRow { is_taken: false, ..lent }), loans);
        }
    }

    /// A borrower reports what it has of groups of this site's slots.
    fn take_reports(
        &mut self,
        by: SiteId,
        (revision, log_time_ms): (Revision, u64),
        parts: &[LoanReport],
    ) -> Result<Answer, Stopped> {
        self.member()?;
        self.pass_revision(revision);
        let elsewhere = self.elsewhere(log_time_ms);
        let (mut states, mut others, mut is_parted) = (Vec::new(), Vec::new(), false);
        for report in parts {
            let (group, slot) = (&report.group, report.group.slot());
            let token = self.modes.holding(slot).token;
            let Right::Held(epoch) = token else {
                others.extend(self.modes.owner(slot).map(|owner| (slot, owner)));
                continue;
            };
            let (loan, part) = (report.loan, report.part);
            let borrowed = Borrowed { loan, part, ..Borrowed::default() };
            let from = FromBorrower { site: by, borrowed, slot: report.slot };
            // An answer states what holds between two sites that may do without a third one.
            is_parted |= self.by_rule(|fences| fences.part_from(by))?;
            if epoch < report.slot || is_parted {
                continue;
            }
            let mut lent = self.modes.loans.lent(Whose::Own, slot, group);
            let may_stream = self.by_rule(|fences| lent.may_stream(token, from, fences))?;
            let row = self.modes.loans.row(Whose::Own, slot, group);
            if let (Some(records), Some(row), true) = (&report.records, row, may_stream)
                && row.fed <= revision.0
            {
                let keys = self.replace_group(group, records, elsewhere)?;
                for item in records {
                    self.take_answer(item, slot, Whose::Own, elsewhere);
                }
                let is_home = self.by_rule(|fences| lent.take_home(token, from, fences))?;
                let fed = LentRow { fed: revision.0, keys, is_taken: true, ..row };
                self.set_lent(group, (!is_home).then_some(fed), lent.count);
            }
            // What was sent before the row came home may come again.
            let fed = self.modes.loans.row(Whose::Own, slot, group).map_or(0, |row| row.fed);
            let (count, stands) = (lent.count, lent.is(loan, by));
            let group = group.clone();
            states.push(LoanState { group, loan, epoch, count, stands, fed });
        }
        if is_parted && others.is_empty() {
            return Err(FAILOVER_OPEN.into());
        }
        let revision = self.known.head.revision;
        Ok(Answer::Lent { revision, states, elsewhere: others })
    }

    /// A group's records come into the place of what the slot has of it. How many they are.
    pub(super) fn replace_group(
        &mut self,
        group: &Group,
        records: &[StagedItem],
        elsewhere: Elsewhere,
    ) -> Result<u64, MachineError> {
        let (keyspace, slot) = (group.keyspace, group.slot());
        let generation = self.place_in_slot(keyspace, slot).generation;
        let old = self.records_of(generation, group)?;
        let mut new = BTreeMap::new();
        for item in records {
            if let StagedItem::Record { keyspace, key, row } = item
                && Group::of_key(*keyspace, key) == *group
            {
                new.insert(key.clone(), elsewhere.row(row)?);
            }
        }
        for key in old.keys().filter(|key| !new.contains_key(*key)) {
            self.put_at_home((keyspace, slot), key, None)?;
        }
        for (key, row) in &new {
            if old.get(key) != Some(row) {
                self.put_at_home((keyspace, slot), key, Some(row))?;
            }
        }
        Ok(new.len() as u64)
    }

    pub(super) fn put_at_home(
        &mut self,
        (keyspace, slot): (model::KeyspaceId, model::Slot),
        key: &Bytes,
        row: Option<&Bytes>,
    ) -> Result<(), MachineError> {
        let Some(store) = self.modes.slots.store(keyspace, slot) else { return Ok(()) };
        let count = match self.stage(store, key, row) {
            Ok(count) => count,
            Err(Stopped::Failed(error)) => return Err(error),
            Err(_) => return Ok(()),
        };
        self.modes.slots.recount(keyspace, slot, count as i64 - store.count as i64);
        let change = match row.map(|row| Record::decode_head(row)).transpose()? {
            None => ChangeKind::Delete,
            Some(record) if record.kind == Kind::Hash => ChangeKind::HashSet,
            Some(_) => ChangeKind::Put,
        };
        self.log_change(keyspace, key, change);
        Ok(())
    }

    /// Settles the rows of slots by this site's own registry, as these slots come or it does.
    pub(super) fn settle_loans(&mut self, run: SlotRun) {
        let rows = self.modes.loans.rows_of(Whose::Own, run);
        let rows: Vec<(Group, LentRow)> = rows.map(|(group, row)| (group.clone(), *row)).collect();
        if rows.is_empty() {
            return;
        }
        self.pass_lost_borrowers(&rows);
        for (group, _) in rows {
            if let Err(error) = self.settle_loan(&group) {
                self.failed = Some(error);
            }
        }
    }

    /// A lost borrower may have given revisions to writes that have not come here: none of them is
    /// given again.
    fn pass_lost_borrowers(&mut self, rows: &[(Group, LentRow)]) {
        let Some((own, registry)) = self.modes.place() else { return };
        let is_lost = |(group, lent): &&(Group, LentRow)| {
            let is_held = matches!(self.modes.holding(group.slot()).token, Right::Held(_));
            let row = lent.row;
            is_held && row.to != own && last_failover(&registry, row.to) > row.known
        };
        if let Some(fed) = rows.iter().filter(is_lost).map(|(_, lent)| lent.fed).max() {
            let head = &mut self.known.head;
            let skipped = head.revision.0.max(fed).saturating_add(NUMBERS_SKIPPED);
            head.revision = Revision(skipped);
            self.next_revision();
        }
    }

    /// Counts the keys of lent groups of slots that have come: some may have expired on the way.
    pub(super) fn recount_lent(&mut self, run: SlotRun) -> Result<(), MachineError> {
        let mut stores: BTreeMap<_, BTreeMap<Vec<u8>, u64>> = BTreeMap::new();
        for (group, _) in self.modes.loans.rows_of(Whose::Own, run) {
            let groups = stores.entry((group.keyspace, group.slot())).or_default();
            groups.insert(group.tag.to_vec(), 0);
        }
        for ((keyspace, slot), mut groups) in stores {
            if let Some(store) = self.modes.slots.store(keyspace, slot) {
                let (from, until) = tables::records(store.generation);
                let prefix_bytes = tables::record_prefix_bytes(store.generation);
                self.overlay.scan(&from, Some(&until), &mut |at, _| {
                    if let Some(keys) = groups.get_mut(tag(&at[prefix_bytes..])) {
                        *keys += 1;
                    }
                    true
                })?;
            }
            for (tag, keys) in groups {
                let group = Group { keyspace, tag: tag.into() };
                self.modes.loans.set_keys(&group, keys);
            }
        }
        Ok(())
    }

    fn settle_loan(&mut self, group: &Group) -> Result<(), MachineError> {
        let slot = group.slot();
        let Some((_, registry)) = self.modes.place() else { return Ok(()) };
        let token = self.modes.holding(slot).token;
        let mut lent = self.modes.loans.lent(Whose::Own, slot, group);
        let had = lent.row;
        let part = self.modes.loans.part(group);
        let mut borrowed = self.modes.loans.borrowed(group);
        let before = borrowed;
        let failed = |site| last_failover(&registry, site);
        let settled = self.by_rule(|fences| lent.settle(token, &mut borrowed, failed, fences));
        let Ok(settled) = settled else { return Ok(()) };
        if lent.row == had {
            return Ok(());
        }
        // The command that brings the registry may have no revision of its own.
        self.next_revision();
        match part {
            Some(part) => {
                if settled == Settled::Join {
                    self.join(group, &part)?;
                }
                let back = None;
                self.set_part(group, Some(super::loans::PartRow { borrowed, back, ..part }));
            }
            None if borrowed != before => self.note_loan(group, borrowed),
            None => {}
        }
        self.set_lent(group, None, lent.count);
        Ok(())
    }

    /// What this site has borrowed comes into the place of the slot's records, which are its own
    /// now.
    fn join(&mut self, group: &Group, part: &super::loans::PartRow) -> Result<(), MachineError> {
        let slot = group.slot();
        let records = group_records(&self.overlay, part.generation, &group.tag)?;
        let record = |(key, row)| StagedItem::Record { keyspace: group.keyspace, key, row };
        let records: Vec<StagedItem> = records.into_iter().map(record).collect();
        self.replace_group(group, &records, Elsewhere::default())?;
        let whose = Whose::Borrowed(part.generation);
        for client_key in self.known.clients.client_keys(whose, SlotRun::one(slot)) {
            for (sequence, floor, seen_ms, row) in self.take_answers(client_key)? {
                let client_key = ClientKey { whose: Whose::Own, ..client_key };
                self.take_over_answer(client_key, sequence, floor, seen_ms, &row);
            }
        }
        Ok(())
    }
}

/// The records of a group among those of a generation.
pub(super) fn group_records(
    read: &impl Read,
    generation: u64,
    of: &[u8],
) -> Result<BTreeMap<Bytes, Bytes>, MachineError> {
    let (from, until) = tables::records(generation);
    let prefix_bytes = tables::record_prefix_bytes(generation);
    let mut records = BTreeMap::new();
    read.scan(&from, Some(&until), &mut |at, row| {
        let key = at.slice(prefix_bytes..);
        if tag(&key) == of {
            records.insert(key, row);
        }
        true
    })?;
    Ok(records)
}

impl<S: State> Machine<S> {
    /// Whether loans changed since this was asked last.
    pub(crate) fn take_changed_loans(&mut self) -> bool {
        std::mem::take(&mut self.modes.loans.has_changed)
    }

    /// Whether anything is lent or borrowed here, or ever was.
    pub(crate) fn has_loans(&self) -> bool {
        self.modes.loans.has_any()
    }

    /// The groups that this site lends out of its slots, with their rows.
    pub fn lent(&self) -> impl Iterator<Item = (&Group, &LentRow)> + '_ {
        self.modes.loans.own_rows()
    }

    /// The borrower of a group of a slot that is here, the loan, and whether it has the group for
    /// certain.
    pub fn borrower_of(&self, group: &Group) -> Option<(SiteId, model::Loan, bool)> {
        let lent = self.modes.loans.row(Whose::Own, group.slot(), group)?;
        Some((lent.row.to, lent.row.loan, lent.is_taken))
    }

    /// The version of the registry that decided the last failover of a site; above all of one that
    /// is not listed.
    pub(crate) fn last_failover(&self, site: SiteId) -> Option<Ballot> {
        self.registry().map(|registry| last_failover(registry, site))
    }

    /// The borrowers that have to be asked whether they have taken groups.
    pub(crate) fn offered(&self) -> impl Iterator<Item = (SiteId, &Group)> + '_ {
        self.modes.loans.offered().filter_map(|group| {
            let row = self.modes.loans.row(Whose::Own, group.slot(), group)?;
            Some((row.row.to, group))
        })
    }

    /// The loan of a group, for its borrower; `None`: it is not this site's to lend.
    ///
    /// # Errors
    /// When the state cannot be read.
    pub(crate) fn offer(&self, group: &Group) -> Result<Option<LoanOffer>, MachineError> {
        let slot = group.slot();
        let Some((own, registry)) = self.modes.place() else { return Ok(None) };
        let fences = self.modes.fences(own, &registry.failovers, of_rules(self.modes.planted));
        let token = self.modes.holding(slot).token;
        let lent = self.modes.loans.lent(Whose::Own, slot, group);
        let offer = lent.offer(token, &fences);
        let Some(offer) = offer else { return Ok(None) };
        let mut records = Vec::new();
        if let Some(store) = self.modes.slots.store(group.keyspace, slot) {
            let found = group_records(&self.state, store.generation, &group.tag)?;
            let record = |(key, row)| StagedItem::Record { keyspace: group.keyspace, key, row };
            records.extend(found.into_iter().map(record));
        }
        records.extend(self.known.clients.of_slot_since(&self.state, slot, Whose::Own, None)?);
        let group = group.clone();
        Ok(Some(LoanOffer { group, row: offer.row, epoch: offer.epoch, records }))
    }

    /// Log time, for times in what is sent to other sites.
    pub(crate) fn log_time_to_send_ms(&self) -> u64 {
        self.now_ms.max(self.known.head.log_time_ms)
    }
}
