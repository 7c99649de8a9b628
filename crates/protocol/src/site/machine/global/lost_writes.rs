//! Writes that failovers lost: what this site wrote above the positions from which other sites took
//! its slots.
//!
//! A site that returns learns of a failover in one command, and gives its slots up in it. The same
//! command lists the keys with writes above the position taken, from the change log. The list stays
//! when the failover is forgotten and the records are gone; the lists of later failovers take its
//! place ([`limits::LOST_REPORTS_MAX`]).
//!
//! A key is in the list if the taker may have it in an older state. Its stream may have brought the
//! newer state without reaching its position; the list has the key all the same. Writes that the
//! change log does not have any more are not in the list, which names the revision up to which that
//! may be so.
//!
//! Left out: what expired (it expires at the taker, too), and lent groups (the borrower has their
//! writes).
//!
//! The site may learn of a taker before it learns of the decision. The epochs at which it gave
//! slots up to a failover are stored until the decision comes.
//!
//! ```text
//! f 0 0           → slots that were given up, and the epochs at which the site had them   (wire::entry)
//! f failover 0    → the list without its keys   (wire::entry::lost_write)
//! f failover page → keys, in order, pages from 1 on
//! ```

use super::{Applying, Machine, MachineError, tables};
use crate::global::ownership::lost_after;
use model::{
    Ballot, BySlot, Bytes, ChangeKind, Epoch, KeyspaceId, LostReport, LostWrite, LostWrites,
    Revision, Slot, SlotEpochs, SlotRun, limits,
};
use std::collections::BTreeMap;
use storage::state::{Read, State};
use wire::entry;

const DAMAGED: MachineError = MachineError::Damaged { table: tables::LOST_WRITES as char };

/// Slots that the site gave up to a failover without its decision, with the epochs at which it had
/// them.
#[derive(Debug, Default)]
pub(in crate::site::machine) struct GivenUp {
    slots: BySlot<Epoch>,
    /// Its row is older.
    is_stale: bool,
}

impl GivenUp {
    pub(in crate::site::machine) fn load(state: &impl Read) -> Result<GivenUp, MachineError> {
        let mut slots = BySlot::default();
        if let Some(row) = state.get(&tables::lost_writes(Ballot::FIRST, 0))? {
            let all = entry::decode_slots(row).map_err(|_| DAMAGED)?;
            all.runs().for_each(|(run, epoch)| slots.set(run, Some(epoch)));
        }
        Ok(GivenUp { slots, is_stale: false })
    }

    pub(in crate::site::machine) fn add(&mut self, run: SlotRun, epoch: Epoch) {
        self.slots.set(run, Some(epoch));
        self.is_stale = true;
    }

    /// The decision has come.
    pub(super) fn forget(&mut self, run: SlotRun) {
        if !self.slots.is_empty() {
            self.slots.set(run, None);
            self.is_stale = true;
        }
    }
}

/// Keys with lost writes, up to the limits of a list.
#[derive(Debug, Default)]
struct Found {
    keys: BTreeMap<(KeyspaceId, Bytes), (Revision, ChangeKind)>,
    bytes: usize,
    more: bool,
}

impl Found {
    fn add(&mut self, keyspace: KeyspaceId, key: Bytes, last: (Revision, ChangeKind)) {
        let at = (keyspace, key);
        if let Some(known) = self.keys.get_mut(&at) {
            *known = last;
        } else if self.keys.len() >= limits::LOST_KEYS_MAX
            || self.bytes + at.1.len() > limits::LOST_KEYS_BYTES_MAX
        {
            self.more = true;
        } else {
            self.bytes += at.1.len();
            self.keys.insert(at, last);
        }
    }

    fn pages(self) -> Vec<Vec<LostWrite>> {
        let (mut pages, mut page, mut bytes) = (Vec::new(), Vec::new(), 0);
        for ((keyspace, key), (revision, kind)) in self.keys {
            bytes += KEY_BYTES + key.len();
            page.push(LostWrite { keyspace, key, revision, kind });
            if bytes >= limits::LOST_KEYS_PAGE_BYTES_MAX {
                pages.push(std::mem::take(&mut page));
                bytes = 0;
            }
        }
        pages.extend(Some(page).filter(|page| !page.is_empty()));
        pages
    }
}

/// About what a key takes in a page beside its bytes.
const KEY_BYTES: usize = 16;

impl<S: State> Applying<'_, S> {
    /// What the decision of a failover loses of these slots, by which another site takes them: the
    /// epochs at which this site has them or had them, and the revisions after which.
    pub(super) fn lost_of(
        &self,
        run: SlotRun,
        decided: Epoch,
        from: Option<(Epoch, u64)>,
    ) -> Vec<(SlotRun, Epoch, u64)> {
        let token = self.modes.holding(run.first).token;
        let own = token.is_own().then_some(token.epoch());
        let given_up = &self.modes.given_up.slots;
        let lost = |part: SlotRun| {
            let had = own.or_else(|| given_up.get(part.first).copied())?;
            lost_after(had, decided, from).map(|after| (part, had, after))
        };
        run.cut(|slot| given_up.run_at(slot).0).filter_map(lost).collect()
    }

    /// Brings the slots that were given up into the state, if they changed.
    pub(in crate::site::machine) fn write_given_up(&mut self) {
        let GivenUp { slots, is_stale } = &mut self.modes.given_up;
        if std::mem::take(is_stale) {
            let row = tables::lost_writes(Ballot::FIRST, 0);
            let all = slots.runs().map(|(run, epoch)| (run, *epoch));
            match slots.is_empty() {
                true => self.overlay.remove(row),
                false => self.overlay.put(row, entry::encode_slots(&SlotEpochs::of_runs(all))),
            }
        }
    }

    /// Lists the writes that a failover lost of these slots: those at this site's epoch, after a
    /// revision.
    pub(super) fn list_lost_writes(
        &mut self,
        failover: Ballot,
        slots: &[(SlotRun, Epoch, u64)],
    ) -> Result<(), MachineError> {
        let Some(first) = slots.iter().map(|(.., after)| *after).min() else { return Ok(()) };
        let mut afters = BySlot::default();
        slots.iter().for_each(|(run, _, after)| afters.set(*run, Some(*after)));
        let (mut found, mut trimmed) = (Found::default(), 0);
        for keyspace in self.known.keyspaces.globals() {
            let all_after = self.see_changes(keyspace, first, &mut |change| {
                let of_slot = || afters.get(Slot::of_key(&change.key)).copied();
                let after = match change.kind {
                    ChangeKind::Loan | ChangeKind::Expire => None,
                    ChangeKind::Clear => Some(first),
                    _ => of_slot(),
                };
                if after.is_some_and(|after| change.revision.0 > after) {
                    found.add(keyspace, change.key, (change.revision, change.kind));
                }
            })?;
            if all_after > first {
                trimmed = trimmed.max(all_after);
            }
        }
        let report = LostReport {
            failover,
            slots: SlotEpochs::of_runs(slots.iter().map(|(run, epoch, _)| (*run, *epoch))),
            keys: found.keys.len() as u64,
            trimmed: Revision(trimmed),
            more: found.more,
        };
        self.drop_lost_writes(failover)?;
        let row = entry::encode_lost_report(&report);
        self.overlay.put(tables::lost_writes(failover, 0), row);
        for (page, at) in found.pages().iter().zip(1..) {
            let row = entry::encode_lost_page(page);
            self.overlay.put(tables::lost_writes(failover, at), row);
        }
        let lists = lists(&self.overlay)?;
        let too_many = lists.len().saturating_sub(limits::LOST_REPORTS_MAX);
        let others = lists.iter().map(|list| list.failover).filter(|other| *other != failover);
        others.take(too_many).try_for_each(|other| self.drop_lost_writes(other))
    }

    fn drop_lost_writes(&mut self, failover: Ballot) -> Result<(), MachineError> {
        let from = tables::lost_writes(failover, 0);
        let until = tables::lost_writes(failover, u32::MAX);
        let mut keys = Vec::new();
        self.overlay.scan(&from, Some(&until), &mut |key, _| {
            keys.push(key);
            true
        })?;
        keys.into_iter().for_each(|key| self.overlay.remove(key));
        Ok(())
    }
}

/// All lists, without their keys, in order of the failovers.
fn lists(state: &impl Read) -> Result<Vec<LostReport>, MachineError> {
    let from = tables::lost_writes(Ballot::FIRST, 1);
    let (_, until) = tables::whole(tables::LOST_WRITES);
    let mut rows = Vec::new();
    state.scan(&from, Some(&until), &mut |key, row| {
        if tables::is_lost_list(&key) {
            rows.push(row);
        }
        true
    })?;
    rows.into_iter().map(|row| entry::decode_lost_report(row).map_err(|_| DAMAGED)).collect()
}

impl<S: State> Machine<S> {
    /// The writes that a failover lost of this site, a page of them; or which lists of such writes
    /// there are.
    ///
    /// # Errors
    /// When the state cannot be read.
    pub(crate) fn lost_writes(
        &self,
        failover: Option<Ballot>,
        page: u32,
    ) -> Result<LostWrites, MachineError> {
        let Some(failover) = failover else {
            return Ok(LostWrites { reports: lists(&self.state)?, ..LostWrites::default() });
        };
        let row = |at| self.state.get(&tables::lost_writes(failover, at));
        let Some(report) = row(0)? else { return Ok(LostWrites::default()) };
        let reports = vec![entry::decode_lost_report(report).map_err(|_| DAMAGED)?];
        let at = page.saturating_add(1);
        let writes = row(at)?.map_or(Ok(Vec::new()), entry::decode_lost_page);
        let next = row(at.saturating_add(1))?.map(|_| at);
        Ok(LostWrites { reports, writes: writes.map_err(|_| DAMAGED)?, next })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_its_limits() {
        let last = (Revision(1), ChangeKind::Put);
        let mut found = Found::default();
        for number in 0..=limits::LOST_KEYS_MAX {
            found.add(KeyspaceId(1), number.to_string().into(), last);
        }
        assert_eq!((found.keys.len(), found.more), (limits::LOST_KEYS_MAX, true));
        let mut found = Found::default();
        let key = |number: usize| Bytes::from(vec![number as u8; limits::LOST_KEYS_BYTES_MAX / 4]);
        (0..5).for_each(|number| found.add(KeyspaceId(1), key(number), last));
        assert_eq!((found.keys.len(), found.more), (4, true));
        // Of a key that is there the last write counts all the same.
        let later = (Revision(9), ChangeKind::Delete);
        found.add(KeyspaceId(1), key(3), later);
        assert_eq!(found.keys[&(KeyspaceId(1), key(3))], later);
        assert_eq!(found.pages().len(), 4, "each has at least one key");
    }
}
