//! When keys go by themselves.
//!
//! Time is *log time* and nothing else: what the leader gave each entry, which never goes back
//! because a state keeps the latest one it saw. So all nodes agree on what has expired, and a node
//! that replays its log decides as it did the first time. Who vouches for it is for the replica to
//! know.
//!
//! A record whose expiry is not after log time is absent to every read and write at once; a table
//! ordered by time finds those that must be removed, a bounded number of them with every entry.
//! `e expires_ms generation key` is there exactly while the record has that expiry, and
//! `E generation` counts such rows of a generation. A state of before they were counted has no row
//! of `E`, and is counted when it is opened.

use super::apply::Applying;
use super::keys::Place;
use super::modes::ModeState;
use super::{MachineError, Stopped, tables};
use model::{Answer, Bytes, ChangeKind, Expiry, ExpiryCondition, limits};
use std::collections::{BTreeMap, BTreeSet};
use storage::state::{Read, State};
use wire::entry::take_varint;
use wire::row;

/// The earliest expiry that may be there. Never later than the earliest that is: a moment whose
/// key is gone again is found out when it comes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NextExpiry {
    pub(crate) ms: Option<u64>,
}

impl NextExpiry {
    pub(crate) fn load(state: &impl Read) -> Result<NextExpiry, MachineError> {
        let (from, until) = tables::whole(tables::EXPIRIES);
        let mut first = None;
        state.scan(&from, Some(&until), &mut |key, _| {
            first = Some(key);
            false
        })?;
        let ms = first.map(|key| parse(&key).map(|(ms, ..)| ms)).transpose()?;
        Ok(NextExpiry { ms })
    }

    /// There is one at this moment.
    pub(crate) fn expect(&mut self, ms: u64) {
        self.ms = Some(self.ms.map_or(ms, |next| next.min(ms)));
    }
}

/// How many records of each generation expire.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Expiring {
    counts: BTreeMap<u64, u64>,
    /// Generations whose rows are older than their counts.
    changed: BTreeSet<u64>,
}

impl Expiring {
    pub(crate) fn load(state: &impl Read) -> Result<Expiring, MachineError> {
        let damaged = MachineError::Damaged { table: tables::EXPIRING as char };
        let mut all = Expiring::default();
        for (key, row) in super::rows(state, tables::EXPIRING)? {
            let numbers = take_varint(&key[1..]).zip(row::decode_bare(&row));
            let Some(((generation, _), count)) = numbers else { return Err(damaged) };
            all.counts.insert(generation, count);
        }
        if all.counts.is_empty() {
            let (from, until) = tables::whole(tables::EXPIRIES);
            state.scan(&from, Some(&until), &mut |key, _| {
                if let Some((_, generation, _)) = tables::parse_expiry(&key) {
                    *all.counts.entry(generation).or_default() += 1;
                }
                true
            })?;
            all.changed = all.counts.keys().copied().collect();
        }
        Ok(all)
    }

    fn recount(&mut self, generation: u64, by: i64) {
        let count = self.counts.entry(generation).or_default();
        *count = count.saturating_add_signed(by);
        self.changed.insert(generation);
    }
}

/// How many records of a generation expire, by the state.
pub(crate) fn count(state: &impl Read, generation: u64) -> Result<u64, MachineError> {
    let row = state.get(&tables::expiring(generation))?;
    Ok(row.and_then(|row| row::decode_bare(&row)).unwrap_or(0))
}

fn parse(key: &Bytes) -> Result<(u64, u64, Bytes), MachineError> {
    tables::parse_expiry(key).ok_or(MachineError::Damaged { table: tables::EXPIRIES as char })
}

impl<S: State, M: ModeState> Applying<'_, S, M> {
    /// A record expires from now on.
    pub(crate) fn put_expiry(&mut self, ms: u64, generation: u64, key: &[u8]) {
        self.overlay.put(tables::expiry(ms, generation, key), Bytes::new());
        self.known.expiry.expect(ms);
        self.known.expiring.recount(generation, 1);
    }

    /// A record that expires at this moment does not any more.
    pub(crate) fn remove_expiry(&mut self, ms: u64, generation: u64, key: &[u8]) {
        self.overlay.remove(tables::expiry(ms, generation, key));
        self.known.expiring.recount(generation, -1);
    }

    /// Brings the counts that changed into the state.
    pub(crate) fn write_expiring(&mut self) {
        for generation in std::mem::take(&mut self.known.expiring.changed) {
            let at = tables::expiring(generation);
            match self.known.expiring.counts.get(&generation) {
                Some(0) | None => {
                    self.known.expiring.counts.remove(&generation);
                    self.overlay.remove(at);
                }
                Some(count) => self.overlay.put(at, row::encode_bare(count)),
            }
        }
    }

    /// Removes what has expired, up to an entry's share. If that is anything, it happens at a
    /// revision of its own.
    pub(crate) fn expire_due(&mut self) -> Result<(), MachineError> {
        let log_time_ms = self.known.head.log_time_ms;
        let Some(next_ms) = self.known.expiry.ms.filter(|next| *next <= log_time_ms) else {
            return Ok(());
        };
        // What lies before is gone; a scan from the beginning would pass its remains.
        let from = tables::first_expiry(next_ms);
        let (_, until) = tables::whole(tables::EXPIRIES);
        let mut due = Vec::new();
        let mut next = None;
        self.overlay.scan(&from, Some(&until), &mut |key, _| {
            let is_due = tables::parse_expiry(&key).is_none_or(|(ms, ..)| ms <= log_time_ms);
            if is_due && due.len() < limits::EXPIRED_PER_ENTRY_MAX {
                due.push(key);
                return true;
            }
            next = Some(key);
            false
        })?;
        self.known.expiry.ms = next.map(|key| parse(&key).map(|(ms, ..)| ms)).transpose()?;
        let mut has_revision = false;
        for at in due {
            let (ms, generation, key) = parse(&at)?;
            self.remove_expiry(ms, generation, &key);
            let place = match self.known.keyspaces.owner(generation) {
                Some(keyspace) => Place { keyspace, slot: None, generation },
                // The records of a generation without an owner are removed as garbage.
                None => match M::expire(self, generation, &key) {
                    Some(place) => place,
                    None => continue,
                },
            };
            if !has_revision {
                self.next_revision();
                has_revision = true;
            }
            self.expire(place, &key);
        }
        Ok(())
    }

    /// The moment an expiry names, if any. `Keep` names the one there is.
    pub(crate) fn moment(&self, expiry: Expiry, now_ms: Option<u64>) -> Option<u64> {
        match expiry {
            Expiry::Never => None,
            Expiry::Keep => now_ms,
            Expiry::AfterMs(ms) => Some(self.known.head.log_time_ms.saturating_add(ms)),
            Expiry::AtLogMs(ms) | Expiry::AtMs(ms) => Some(ms),
        }
    }

    pub(crate) fn set_expiry(
        &mut self,
        place: Place,
        key: &[u8],
        expiry: Expiry,
        condition: ExpiryCondition,
    ) -> Result<Answer, Stopped> {
        let cell = self.cell(place, key)?;
        let Some(record) = cell.record.clone() else { return Ok(Answer::Flag(false)) };
        let old = record.expires_ms;
        let new = self.moment(expiry, old);
        // To clear what is not there, or to keep what is, changes nothing.
        let is_idle = expiry == Expiry::Keep || (old.is_none() && new.is_none());
        if !holds(condition, old, new) || is_idle {
            return Ok(Answer::Flag(false));
        }
        let change = if new.is_some() { ChangeKind::SetExpiry } else { ChangeKind::ClearExpiry };
        self.store(cell, record.kind, new, &[&record.payload], change);
        Ok(Answer::Flag(true))
    }
}

/// Whether a condition on an expiry holds, by what it is and what it is to be. No expiry is later
/// than any.
pub(crate) fn holds(condition: ExpiryCondition, old: Option<u64>, new: Option<u64>) -> bool {
    let (old_or_end, new_or_end) = (old.unwrap_or(u64::MAX), new.unwrap_or(u64::MAX));
    match condition {
        ExpiryCondition::Always => true,
        ExpiryCondition::IfNone => old.is_none(),
        ExpiryCondition::IfSome => old.is_some(),
        ExpiryCondition::IfLater => new_or_end > old_or_end,
        ExpiryCondition::IfEarlier => new_or_end < old_or_end,
        ExpiryCondition::IfSomeEarlier => old.is_some_and(|old| new_or_end < old),
    }
}

impl<S: State, M: ModeState> super::Machine<S, M> {
    /// Whether all that was due by the last entry is removed: one entry removes a share of it.
    pub fn has_expired_due(&self) -> bool {
        self.known.expiry.ms.is_none_or(|next| next > self.known.head.log_time_ms)
    }
}
