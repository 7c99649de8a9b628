//! Loans of groups, as a site records them: the rows of groups that a slot's records name as lent,
//! and this site's parts in groups that it borrows or has borrowed.
//!
//! Rows belong to the slot's records and go where these go: every set of records of a slot
//! ([`Whose`]) has rows of its own. So they move with the slot, come to its mirror, are a copy's
//! and are served with it. The records of a lent group stay among those of its slot, as their copy.
//!
//! A part has its records under a generation of its own, so that it comes and goes as a whole. What
//! is left of one that is over is the number of the loan, as the floor of its slot
//! ([`super::floors`]).
//!
//! ```text
//! L [whose] slot keyspace tag → row of a [`LentRow`]   (wire::row)
//! N [whose] slot              → row of a [`Count`]
//! P slot keyspace tag         → row of a [`PartRow`]
//! ```

use super::Applying;
use super::Owner;
use super::floors::Floors;
use super::lineage::Whose;
use super::stores::EMPTY;
use super::{MachineError, tables};
use crate::global::ownership::lending::{Borrowed, Lent, Part, Row};
use model::{Bytes, ChangeKind, Epoch, Group, KeyspaceId, Loan, SiteId, Slot, SlotRun, StagedItem};
use std::collections::{BTreeMap, BTreeSet};
use storage::state::{Read, State};
use wire::row;

/// The slot's record of a lent group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LentRow {
    /// The loan.
    pub row: Row,
    /// The borrower's revision up to which the slot's records have its writes.
    pub fed: u64,
    /// How many keys of the group are among the slot's records.
    pub keys: u64,
    /// Whether the borrower has the group for certain.
    pub is_taken: bool,
}

row!(LentRow { row, fed, keys, is_taken });

/// A part of this site in a group of another site's slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartRow {
    /// The part.
    pub borrowed: Borrowed,
    /// The owner of the slot, as far as it is known.
    pub owner: SiteId,
    /// The revision at which it came: the owner lacks what clients were answered since. 0: the
    /// owner may lack any of that.
    pub since: u64,
    /// The revision of the last write, or of the last offer of the same loan.
    pub changed: u64,
    /// The revision up to which the owner has everything.
    pub fed: u64,
    /// Of a part that is over: a revision of the owner by which it had no such row.
    pub back: Option<u64>,
    /// Where its records lie.
    pub generation: u64,
    /// How many they are.
    pub keys: u64,
    /// What they take, with their keys.
    pub bytes: u64,
}

impl PartRow {
    /// Whether the owner of the slot is to get a report of it.
    fn is_due(&self) -> bool {
        match self.borrowed.part {
            Part::Never => false,
            Part::Held => self.changed > self.fed,
            Part::Unconfirmed | Part::Frozen => true,
            Part::Retained => self.back.is_none(),
        }
    }

    /// The epoch of what is seen here. It is the loan's own, as no owner of the slot counts so far:
    /// what was seen at the slot's records, or in another loan of the group, holds here no more.
    pub(in crate::site::machine) fn served_under(&self) -> Epoch {
        let Loan { epoch, count } = self.borrowed.loan;
        Epoch { count: count | OF_LOAN, ..epoch }
    }
}

/// Sets the epochs of loans apart from those of slots.
const OF_LOAN: u64 = 1 << 63;

row!(Borrowed { loan, part, known, confirmed });
row!(PartRow { borrowed, owner, since, changed, fed, back, generation, keys, bytes });

/// The count of loans in a slot's records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::site::machine) struct Count {
    pub(in crate::site::machine) loans: u64,
    /// The revision at which the last row came or went.
    pub(in crate::site::machine) changed: u64,
    /// The revision of the last change of any row: what other sites have may be older.
    pub(in crate::site::machine) latest: u64,
}

row!(Count { loans, changed, latest });

/// All loans that this site records.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::site::machine) struct Loans {
    rows: BTreeMap<(Whose, Slot, Group), LentRow>,
    counts: BTreeMap<(Whose, Slot), Count>,
    parts: BTreeMap<(Slot, Group), PartRow>,
    /// What all parts take.
    parts_bytes: u64,
    pub(super) floors: Floors,
    /// The groups of the slots here with a row whose borrower has to be asked yet.
    offered: BTreeSet<(Slot, Group)>,
    /// The parts of which the owner is to get a report.
    due: BTreeSet<(Slot, Group)>,
    /// Whose rows in the state are older than these.
    stale: Stale,
    /// Whether a row or a part came, went or changed hands since that was asked last.
    pub(in crate::site::machine) has_changed: bool,
    /// The groups about which readers have to learn.
    pub(in crate::site::machine) dirty: BTreeSet<Group>,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Stale {
    rows: BTreeSet<(Whose, Slot, Group)>,
    counts: BTreeSet<(Whose, Slot)>,
    parts: BTreeSet<(Slot, Group)>,
}

/// The row of a group among the records that a site serves, by the state.
pub(in crate::site::machine) fn find_lent(
    state: &impl Read,
    slot: Slot,
    group: &Group,
) -> Result<Option<LentRow>, MachineError> {
    let damaged = MachineError::Damaged { table: tables::LENT as char };
    let row = state.get(&tables::lent(Whose::Own, slot, group))?;
    row.map(|row| row::decode(&row).ok_or(damaged)).transpose()
}

/// The part in a group, by the state.
pub(in crate::site::machine) fn find_part(
    state: &impl Read,
    slot: Slot,
    group: &Group,
) -> Result<Option<PartRow>, MachineError> {
    let damaged = MachineError::Damaged { table: tables::PARTS as char };
    let row = state.get(&tables::part(slot, group))?;
    row.map(|row| row::decode(&row).ok_or(damaged)).transpose()
}

/// The lent groups of a keyspace's slot, by the state.
pub(in crate::site::machine) fn lent_of(
    state: &impl Read,
    slot: Slot,
    keyspace: KeyspaceId,
) -> Result<Vec<(Group, LentRow)>, MachineError> {
    let from = tables::lent(Whose::Own, slot, &Group { keyspace, ..FIRST });
    let next = Group { keyspace: KeyspaceId(keyspace.0.saturating_add(1)), ..FIRST };
    let until = tables::lent(Whose::Own, slot, &next);
    let mut rows = Vec::new();
    let mut is_damaged = false;
    state.scan(&from, Some(&until), &mut |key, row| {
        let read = tables::parse_lent(&key).zip(row::decode(&row));
        is_damaged |= read.is_none();
        rows.extend(read.map(|((.., group), lent)| (group, lent)));
        !is_damaged
    })?;
    match is_damaged {
        true => Err(MachineError::Damaged { table: tables::LENT as char }),
        false => Ok(rows),
    }
}

/// The groups of a keyspace that are served here for the owners of their slots, by the state.
pub(in crate::site::machine) fn parts_of_keyspace(
    state: &impl Read,
    keyspace: KeyspaceId,
) -> Result<Vec<(Group, PartRow)>, MachineError> {
    let mut parts = Vec::new();
    for (key, row) in super::rows(state, tables::PARTS)? {
        let read = tables::parse_part(&key).zip(row::decode::<PartRow>(&row));
        let ((_, group), part) =
            read.ok_or(MachineError::Damaged { table: tables::PARTS as char })?;
        if group.keyspace == keyspace && part.borrowed.part == Part::Held {
            parts.push((group, part));
        }
    }
    Ok(parts)
}

impl Loans {
    pub(in crate::site::machine) fn load(state: &impl Read) -> Result<Loans, MachineError> {
        let damaged = |table: u8| MachineError::Damaged { table: table as char };
        let mut all = Loans::default();
        for (key, row) in super::rows(state, tables::LENT)? {
            let read = tables::parse_lent(&key).zip(row::decode(&row));
            let (at, lent) = read.ok_or_else(|| damaged(tables::LENT))?;
            all.put_row(at, Some(lent));
        }
        for (key, row) in super::rows(state, tables::LOANS)? {
            let read = tables::parse_loans(&key).zip(row::decode(&row));
            let (at, count) = read.ok_or_else(|| damaged(tables::LOANS))?;
            all.counts.insert(at, count);
        }
        for (key, row) in super::rows(state, tables::PARTS)? {
            let read = tables::parse_part(&key).zip(row::decode(&row));
            let (at, part) = read.ok_or_else(|| damaged(tables::PARTS))?;
            all.put_part(at, Some(part));
        }
        all.floors = Floors::load(state)?;
        all.stale = Stale::default();
        Ok(all)
    }

    /// What the rules look at.
    pub(in crate::site::machine) fn lent(&self, whose: Whose, slot: Slot, group: &Group) -> Lent {
        let row = self.row(whose, slot, group).map(|lent| lent.row);
        Lent { row, count: self.count(whose, slot).loans }
    }

    pub(in crate::site::machine) fn row(
        &self,
        whose: Whose,
        slot: Slot,
        group: &Group,
    ) -> Option<LentRow> {
        // The usual case is that nothing is lent anywhere.
        if self.rows.is_empty() {
            return None;
        }
        self.rows.get(&(whose, slot, group.clone())).copied()
    }

    pub(in crate::site::machine) fn count(&self, whose: Whose, slot: Slot) -> Count {
        self.counts.get(&(whose, slot)).copied().unwrap_or_default()
    }

    pub(in crate::site::machine) fn part(&self, group: &Group) -> Option<PartRow> {
        if self.parts.is_empty() {
            return None;
        }
        self.parts.get(&(group.slot(), group.clone())).copied()
    }

    /// What the rules look at of the borrower's side: its part, or the number of the last loan.
    pub(in crate::site::machine) fn borrowed(&self, group: &Group) -> Borrowed {
        let over = || Borrowed { loan: self.floors.of(group.slot()), ..Borrowed::default() };
        self.part(group).map_or_else(over, |part| part.borrowed)
    }

    /// How many parts there are.
    pub(super) fn parts_count(&self) -> usize {
        self.parts.len()
    }

    /// What they take.
    pub(in crate::site::machine) fn parts_bytes(&self) -> u64 {
        self.parts_bytes
    }

    /// The rows among some records of slots.
    pub(in crate::site::machine) fn rows_of(
        &self,
        whose: Whose,
        run: SlotRun,
    ) -> impl Iterator<Item = (&Group, &LentRow)> + '_ {
        let first = (whose, run.first, FIRST);
        let all = self.rows.range(first..);
        let all = all.take_while(move |((of, slot, _), _)| *of == whose && *slot <= run.last);
        all.map(|((_, _, group), lent)| (group, lent))
    }

    /// The parts in groups of these slots.
    pub(in crate::site::machine) fn parts_of(
        &self,
        run: SlotRun,
    ) -> impl Iterator<Item = (&Group, &PartRow)> + '_ {
        let all = self.parts.range((run.first, FIRST)..);
        let all = all.take_while(move |((slot, _), _)| *slot <= run.last);
        all.map(|((_, group), part)| (group, part))
    }

    /// The keys of a keyspace's lent groups among the records that this site serves.
    pub(in crate::site::machine) fn lent_keys(
        &self,
        keyspace: KeyspaceId,
        serves: impl Fn(Slot) -> bool,
    ) -> u64 {
        let own = self.rows.range((Whose::Own, SlotRun::ALL.first, FIRST)..);
        let own = own.take_while(|((whose, ..), _)| *whose == Whose::Own);
        let of_keyspace =
            own.filter(|((_, slot, group), _)| group.keyspace == keyspace && serves(*slot));
        of_keyspace.map(|(_, lent)| lent.keys).sum()
    }

    /// The groups with rows whose borrowers have to be asked yet.
    pub(in crate::site::machine) fn offered(&self) -> impl Iterator<Item = &Group> + '_ {
        self.offered.iter().map(|(_, group)| group)
    }

    /// The groups with parts of which the owners are to get a report.
    pub(in crate::site::machine) fn due(&self) -> impl Iterator<Item = &Group> + '_ {
        self.due.iter().map(|(_, group)| group)
    }

    /// All rows among the records that this site has itself.
    pub(super) fn own_rows(&self) -> impl Iterator<Item = (&Group, &LentRow)> + '_ {
        self.rows_of(Whose::Own, SlotRun::ALL)
    }

    /// All parts.
    pub(in crate::site::machine) fn parts(&self) -> impl Iterator<Item = (&Group, &PartRow)> + '_ {
        self.parts_of(SlotRun::ALL)
    }

    fn put_row(&mut self, at: (Whose, Slot, Group), lent: Option<LentRow>) {
        if at.0 == Whose::Own {
            let one = (at.1, at.2.clone());
            match lent.is_some_and(|lent| !lent.is_taken) {
                true => self.offered.insert(one),
                false => self.offered.remove(&one),
            };
            self.dirty.insert(at.2.clone());
            self.has_changed = true;
        }
        match lent {
            Some(lent) => drop(self.rows.insert(at.clone(), lent)),
            None => drop(self.rows.remove(&at)),
        }
        self.stale.rows.insert(at);
    }

    fn put_count(&mut self, at: (Whose, Slot), count: Count) {
        match count == Count::default() {
            true => drop(self.counts.remove(&at)),
            false => drop(self.counts.insert(at, count)),
        }
        self.stale.counts.insert(at);
    }

    fn put_part(&mut self, at: (Slot, Group), part: Option<PartRow>) {
        let is_over =
            |part: &PartRow| part.borrowed.part == Part::Never && part.generation == EMPTY;
        if let Some(part) = part.filter(is_over) {
            self.floors.raise(at.0, part.borrowed.loan);
        }
        let part = part.filter(|part| !is_over(part));
        match part.is_some_and(|part| part.is_due()) {
            true => drop(self.due.insert(at.clone())),
            false => drop(self.due.remove(&at)),
        }
        let kind = |part: Option<&PartRow>| part.map(|part| part.borrowed.part);
        self.has_changed |= kind(self.parts.get(&at)) != kind(part.as_ref());
        self.dirty.insert(at.1.clone());
        let bytes = part.map_or(0, |part| part.bytes);
        let had = match part {
            Some(part) => self.parts.insert(at.clone(), part),
            None => self.parts.remove(&at),
        };
        self.parts_bytes = self.parts_bytes + bytes - had.map_or(0, |had| had.bytes);
        self.stale.parts.insert(at);
    }

    /// Changes a part that is there.
    pub(super) fn change_part(&mut self, group: &Group, change: impl FnOnce(&mut PartRow)) {
        let Some(mut part) = self.part(group) else { return };
        change(&mut part);
        self.put_part((group.slot(), group.clone()), Some(part));
    }

    /// Whether there are any.
    pub(in crate::site::machine) fn has_parts(&self) -> bool {
        !self.parts.is_empty()
    }

    /// A part has so many keys and bytes more or less.
    pub(in crate::site::machine) fn recount_part(
        &mut self,
        slot: Slot,
        generation: u64,
        keys: i64,
        bytes: i64,
    ) {
        let mut parts = self.parts_of(SlotRun::one(slot));
        let part = parts.find(|(_, part)| part.generation == generation);
        let Some(at) = part.map(|(group, _)| (slot, group.clone())) else { return };
        drop(parts);
        if let Some(part) = self.parts.get_mut(&at) {
            part.keys = part.keys.saturating_add_signed(keys);
            let had = part.bytes;
            part.bytes = had.saturating_add_signed(bytes);
            self.parts_bytes = self.parts_bytes + part.bytes - had;
            self.stale.parts.insert(at);
        }
    }

    /// Whether anything is lent or borrowed, or ever was.
    pub(super) fn has_any(&self) -> bool {
        !self.rows.is_empty() || !self.parts.is_empty()
    }

    /// The generations under which parts lie, and their owners.
    pub(in crate::site::machine) fn owners(&self) -> impl Iterator<Item = (u64, Owner)> + '_ {
        let parts = self.parts.iter().filter(|(_, part)| part.generation != EMPTY);
        parts.map(|((_, group), part)| {
            (part.generation, Owner::Borrowed { keyspace: group.keyspace })
        })
    }

    /// A lent group has so many keys more or less among the records of its slot here.
    pub(in crate::site::machine) fn recount(&mut self, slot: Slot, group: &Group, by: i64) {
        let at = (Whose::Own, slot, group.clone());
        if let Some(lent) = self.rows.get_mut(&at) {
            lent.keys = lent.keys.saturating_add_signed(by);
            self.stale.rows.insert(at);
        }
    }

    /// So many keys of a lent group are among the records of its slot here.
    pub(super) fn set_keys(&mut self, group: &Group, keys: u64) {
        let at = (Whose::Own, group.slot(), group.clone());
        if let Some(lent) = self.rows.get_mut(&at).filter(|lent| lent.keys != keys) {
            lent.keys = keys;
            self.stale.rows.insert(at);
        }
    }

    /// What is sent to another site of the loans of a slot.
    pub(super) fn items_of(&self, whose: Whose, slot: Slot) -> Vec<StagedItem> {
        let count = self.count(whose, slot).loans;
        if count == 0 {
            return Vec::new();
        }
        let rows = self.rows_of(whose, SlotRun::one(slot));
        let rows = rows.map(|(group, lent)| StagedItem::Lent {
            group: group.clone(),
            row: Some(lent.row),
            fed: lent.fed,
            keys: lent.keys,
        });
        [StagedItem::Loans { slot, count }].into_iter().chain(rows).collect()
    }

    /// The slots here whose rows changed after a revision, by that of the last change.
    pub(super) fn changed_after(&self, revision: u64) -> Vec<(u64, Slot)> {
        let own = (Whose::Own, SlotRun::ALL.first)..=(Whose::Own, SlotRun::ALL.last);
        let own = self.counts.range(own).filter(|(_, count)| count.latest > revision);
        let mut slots: Vec<_> = own.map(|((_, slot), count)| (count.latest, *slot)).collect();
        slots.sort_unstable();
        slots
    }
}

/// Before all groups.
const FIRST: Group = Group { keyspace: KeyspaceId(0), tag: Bytes::new() };

impl<S: State> Applying<'_, S> {
    /// Gives a group a row among the records that this site has itself, or none.
    pub(super) fn set_lent(&mut self, group: &Group, lent: Option<LentRow>, loans: u64) {
        let slot = group.slot();
        let had = self.modes.loans.row(Whose::Own, slot, group);
        let latest = self.known.head.revision.0;
        let mut count = Count { latest, ..self.modes.loans.count(Whose::Own, slot) };
        if had.map(|lent| lent.row) != lent.map(|lent| lent.row) {
            (count.loans, count.changed) = (loans, latest);
        }
        self.modes.loans.put_count((Whose::Own, slot), count);
        self.modes.loans.put_row((Whose::Own, slot, group.clone()), lent);
        self.mark_lent(group.keyspace);
        self.log_change(group.keyspace, &group.tag, ChangeKind::Loan);
    }

    /// Gives this site a part in a group, or none.
    pub(super) fn set_part(&mut self, group: &Group, part: Option<PartRow>) {
        self.mark_lent(group.keyspace);
        let slot = group.slot();
        let is_held = |part: PartRow| part.borrowed.part == Part::Held;
        if part.is_some_and(is_held) && !self.modes.loans.part(group).is_some_and(is_held) {
            self.modes.borrowed_slots.insert_run(SlotRun::one(slot));
        }
        self.modes.loans.put_part((slot, group.clone()), part);
    }

    /// Takes in what another site has reported of the loans of a slot's records.
    pub(super) fn take_loan_item(&mut self, whose: Whose, item: &StagedItem) {
        match item {
            StagedItem::Lent { group, row, fed, keys } => {
                if !self.known.keyspaces.is_global(group.keyspace) {
                    return;
                }
                // It may come before the registry by which the keyspace is adaptive.
                self.mark_lent(group.keyspace);
                // Its next owner asks the borrower again.
                let lent = row.map(|row| LentRow { row, fed: *fed, keys: *keys, is_taken: false });
                self.modes.loans.put_row((whose, group.slot(), group.clone()), lent);
            }
            StagedItem::Loans { slot, count } => {
                // The rows that follow are all there are.
                let rows = self.modes.loans.rows_of(whose, SlotRun::one(*slot));
                let rows: Vec<Group> = rows.map(|(group, _)| group.clone()).collect();
                for group in rows {
                    self.modes.loans.put_row((whose, *slot, group), None);
                }
                let known = self.modes.loans.count(whose, *slot);
                let count = Count { loans: known.loans.max(*count), ..known };
                self.modes.loans.put_count((whose, *slot), count);
            }
            _ => {}
        }
    }

    /// Records of slots become others, or go: their rows go along.
    pub(in crate::site::machine) fn move_loans(
        &mut self,
        run: SlotRun,
        from: Whose,
        to: Option<Whose>,
    ) {
        // Nothing was ever lent: the usual case, and this is asked of every slot.
        if self.modes.loans.counts.is_empty() && self.modes.loans.rows.is_empty() {
            return;
        }
        let rows = self.modes.loans.rows_of(from, run);
        let rows: Vec<_> = rows.map(|(group, lent)| (group.clone(), *lent)).collect();
        for (group, lent) in rows {
            let slot = group.slot();
            self.modes.loans.put_row((from, slot, group.clone()), None);
            if let Some(to) = to {
                self.modes.loans.put_row((to, slot, group), Some(lent));
            }
        }
        let changed = self.known.head.revision.0;
        let counts = self.modes.loans.counts.range((from, run.first)..=(from, run.last));
        let counts: Vec<_> = counts.map(|((_, slot), count)| (*slot, *count)).collect();
        for (slot, count) in counts {
            self.modes.loans.put_count((from, slot), Count::default());
            if let Some(to) = to {
                self.modes.loans.put_count((to, slot), Count { changed, latest: changed, ..count });
            }
        }
    }

    /// A keyspace is dropped, with all its groups.
    pub(in crate::site::machine) fn drop_loans_of(&mut self, keyspace: KeyspaceId) {
        let rows = self.modes.loans.rows.keys();
        let rows: Vec<_> = rows.filter(|(.., group)| group.keyspace == keyspace).cloned().collect();
        rows.into_iter().for_each(|at| self.modes.loans.put_row(at, None));
        let parts = self.modes.loans.parts().map(|(group, _)| group);
        let parts: Vec<Group> = parts.filter(|one| one.keyspace == keyspace).cloned().collect();
        parts.iter().for_each(|group| self.drop_part_records(group));
        parts.iter().for_each(|group| self.set_part(group, None));
    }

    /// The copy of a lent group's key expires. Whether the key is gone only its borrower decides,
    /// so this is no change for those who follow the keyspace. It is one for the mirror and for the
    /// next owner of the slot: their clocks may have stood still, and a report in which the key is
    /// gone, too, changes nothing here that they would be sent.
    pub(in crate::site::machine) fn expire_lent(
        &mut self,
        group: &Group,
        generation: u64,
        key: &[u8],
    ) {
        self.next_revision();
        self.log_change(group.keyspace, key, ChangeKind::Loan);
        self.overlay.remove(tables::record(generation, key));
        self.modes.slots.recount(group.keyspace, group.slot(), -1);
        self.modes.loans.recount(group.slot(), group, -1);
    }

    /// A part is written to by the command that is about to be done. Its revision is the next one
    /// at most, however commands are grouped.
    pub(in crate::site::machine) fn touch(&mut self, group: &Group) {
        let revision = self.known.head.revision.next().0;
        self.modes.loans.change_part(group, |part| part.changed = revision);
    }

    /// Brings what changed into the state.
    pub(in crate::site::machine) fn write_loans(&mut self) {
        let stale = std::mem::take(&mut self.modes.loans.stale);
        let (loans, overlay) = (&self.modes.loans, &mut self.overlay);
        for at in stale.rows {
            let key = tables::lent(at.0, at.1, &at.2);
            match loans.rows.get(&at) {
                Some(lent) => overlay.put(key, row::encode(lent)),
                None => overlay.remove(key),
            }
        }
        for at in stale.counts {
            let key = tables::loans(at.0, at.1);
            match loans.counts.get(&at) {
                Some(count) => overlay.put(key, row::encode(count)),
                None => overlay.remove(key),
            }
        }
        for at in stale.parts {
            let key = tables::part(at.0, &at.1);
            match loans.parts.get(&at) {
                Some(part) => overlay.put(key, row::encode(part)),
                None => overlay.remove(key),
            }
        }
        self.write_floors();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Ballot;

    #[test]
    fn format_1_stays_as_it_is() {
        let loan = Loan { epoch: Epoch::counted(3), count: 300 };
        let known = Ballot { round: 5, ..Ballot::FIRST };
        let row = Row { loan, to: SiteId(2), known };
        let lent = LentRow { row, fed: 7, keys: 2, is_taken: true };
        assert_eq!(row::encode(&lent), [1, 3, 0xac, 2, 2, 0, 0, 5, 0, 7, 2, 1]);
        let count = Count { loans: 300, changed: 4, latest: 5 };
        assert_eq!(row::encode(&count), [1, 0xac, 2, 4, 5]);
        let borrowed = Borrowed { loan, part: Part::Frozen, known, confirmed: Ballot::FIRST };
        let part = PartRow {
            borrowed,
            owner: SiteId(4),
            since: 5,
            changed: 6,
            fed: 7,
            back: Some(8),
            generation: 9,
            keys: 10,
            bytes: 11,
        };
        let encoded = row::encode(&part);
        assert_eq!(encoded[..4], [1, 3, 0xac, 2]);
        assert_eq!(encoded[5..], [0, 0, 5, 0, 0, 0, 0, 0, 4, 5, 6, 7, 1, 8, 9, 10, 11]);
        assert_eq!(row::decode(&encoded.into()), Some(part));
    }
}
