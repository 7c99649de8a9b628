//! The change log: what happened to which key, for those who come to ask later.
//!
//! Changes are kept for a keyspace while it has a cursor, behind which its consumer has seen
//! everything. They are trimmed behind the slowest cursor, and past
//! [`limits::CHANGES_RETAINED_MAX`] from the longest log wherever its cursors are: a dead consumer
//! must not fill the disk. Trimming is done piece by piece with the entries that follow; what a
//! consumer may ask for is decided at once, by `kept_after`.
//!
//! ```text
//! l keyspace                   → format 1 ‖ kept after (varint) ‖ changes in the table (varint)
//! u keyspace name              → position (varint)
//! h keyspace revision ordinal  → kind (1 byte) ‖ key
//! ```

use super::apply::Applying;
use super::modes::ModeState;
use super::{MachineError, Stopped, keys, tables};
use model::{Answer, Bytes, Change, ChangeKind, KeyspaceId, Refusal, Revision, limits};
use std::collections::BTreeMap;
use storage::state::{Read, State};
use wire::row;

/// No change is kept: there is no consumer any more, and what is in the table waits to be trimmed.
const NOTHING: u64 = u64::MAX;

/// The logs that keyspaces have, and those that they had and that are still to be trimmed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Logs {
    logs: BTreeMap<KeyspaceId, Log>,
    changes: u64,
    cursors: usize,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Log {
    /// Changes of later revisions are kept, all of them.
    kept_after: u64,
    /// How many changes are in the table, kept or not.
    changes: u64,
    cursors: BTreeMap<String, u64>,
    /// There may be something to trim.
    trims: bool,
    /// Its row is older than it.
    is_dirty: bool,
    /// Changes of earlier revisions are gone, as far as is known. A scan from the beginning would
    /// pass their remains.
    gone_before: u64,
}

row!(Log { kept_after, changes; cursors, trims, is_dirty, gone_before });

fn damaged(table: u8) -> MachineError {
    MachineError::Damaged { table: table as char }
}

impl Logs {
    pub(crate) fn load(state: &impl Read) -> Result<Logs, MachineError> {
        let mut all = Logs::default();
        for (key, row) in super::rows(state, tables::LOGS)? {
            let read = tables::parse_keyspace(&key).zip(row::decode::<Log>(&row));
            let (id, log) = read.ok_or_else(|| damaged(tables::LOGS))?;
            all.changes += log.changes;
            all.logs.insert(id, Log { trims: true, ..log });
        }
        for (key, row) in super::rows(state, tables::CURSORS)? {
            let cursor = tables::parse_keyspace(&key).and_then(|id| {
                let name = std::str::from_utf8(&key[5..]).ok()?.to_string();
                Some((all.logs.get_mut(&id)?, name, row::decode_bare(&row)?))
            });
            let (log, name, position) = cursor.ok_or_else(|| damaged(tables::CURSORS))?;
            log.cursors.insert(name, position);
            all.cursors += 1;
        }
        Ok(all)
    }

    /// Whether some changes wait to be removed.
    pub(crate) fn has_trims(&self) -> bool {
        self.changes > limits::CHANGES_RETAINED_MAX
            || self.logs.values().any(|log| log.trims && log.changes > 0)
    }

    /// Where a consumer of a keyspace stands.
    pub(crate) fn position(&self, id: KeyspaceId, name: &str) -> Option<u64> {
        self.logs.get(&id)?.cursors.get(name).copied()
    }

    fn has_readers(&self, id: KeyspaceId) -> bool {
        self.logs.get(&id).is_some_and(|log| !log.cursors.is_empty())
    }
}

impl Log {
    fn keep_after(&mut self, revision: u64) {
        if revision > self.kept_after {
            self.kept_after = revision;
            self.trims = true;
        }
        self.is_dirty = true;
    }
}

impl<S: State, M: ModeState> Applying<'_, S, M> {
    /// Logs that a key changed, if there is a consumer.
    pub(crate) fn log_change(&mut self, id: KeyspaceId, key: &[u8], kind: ChangeKind) {
        if !self.known.logs.has_readers(id) {
            return;
        }
        let log = self.known.logs.logs.get_mut(&id).expect("it has readers");
        log.changes += 1;
        log.is_dirty = true;
        self.known.logs.changes += 1;
        let mut row = Vec::with_capacity(1 + key.len());
        row.push(kind_byte(kind));
        row.extend_from_slice(key);
        let revision = self.known.head.revision.0;
        self.overlay.put(tables::change(id, revision, self.ordinal), row);
        self.ordinal += 1;
    }

    /// A client's cursor.
    pub(crate) fn set_cursor(
        &mut self,
        name: &str,
        id: KeyspaceId,
        position: Revision,
    ) -> Result<Answer, Stopped> {
        keys::check_key(name.as_bytes())?;
        let logs = &self.known.logs;
        let is_new = !logs.logs.get(&id).is_some_and(|log| log.cursors.contains_key(name));
        if is_new && logs.cursors >= limits::CURSORS_MAX {
            return Err(Refusal::TooMany { what: "cursors", max: limits::CURSORS_MAX }.into());
        }
        self.put_cursor(name, id, position)
    }

    /// The same for a mode, which has a few for each keyspace: a command that begins with something
    /// else must not end half-way for want of one.
    pub(crate) fn put_cursor(
        &mut self,
        name: &str,
        id: KeyspaceId,
        position: Revision,
    ) -> Result<Answer, Stopped> {
        if self.known.keyspaces.generation(id).is_none() {
            return Err(Refusal::NoKeyspace(id.to_string()).into());
        }
        let revision = self.known.head.revision;
        let logs = &mut self.known.logs;
        let is_new = !logs.logs.get(&id).is_some_and(|log| log.cursors.contains_key(name));
        logs.cursors += usize::from(is_new);
        let log = logs.logs.entry(id).or_default();
        if log.cursors.is_empty() {
            // What is still in the table has no consumer, and it is not all there was.
            log.kept_after = revision.0;
            log.trims = true;
        }
        let cursor = log.cursors.entry(name.to_string()).or_insert(0);
        *cursor = (*cursor).max(position.0.min(revision.0));
        let row = row::encode_bare(cursor);
        let slowest = log.cursors.values().copied().min().unwrap_or(revision.0);
        log.keep_after(slowest);
        self.overlay.put(tables::cursor(id, name), row);
        Ok(Answer::Done(revision))
    }

    pub(crate) fn drop_cursor(&mut self, name: &str, id: KeyspaceId) -> Answer {
        if let Some(log) = self.known.logs.logs.get_mut(&id)
            && log.cursors.remove(name).is_some()
        {
            log.keep_after(log.cursors.values().copied().min().unwrap_or(NOTHING));
            self.known.logs.cursors -= 1;
            self.overlay.remove(tables::cursor(id, name));
        }
        Answer::Done(self.known.head.revision)
    }

    /// Forgets all consumers of a keyspace.
    pub(crate) fn drop_cursors(&mut self, id: KeyspaceId) {
        let log = self.known.logs.logs.get(&id);
        let names: Vec<_> = log.into_iter().flat_map(|log| log.cursors.keys().cloned()).collect();
        for name in names {
            self.drop_cursor(&name, id);
        }
    }

    /// Removes changes that are not needed any more, up to an entry's share.
    pub(crate) fn trim_changes(&mut self) -> Result<(), MachineError> {
        let mut left = limits::CHANGES_TRIMMED_PER_ENTRY_MAX as u64;
        let ids: Vec<_> = self.known.logs.logs.keys().copied().collect();
        for id in ids {
            let log = &self.known.logs.logs[&id];
            if left > 0 && log.trims {
                let upto = log.kept_after;
                let (removed, _) = self.trim(id, left, |revision| revision <= upto)?;
                if removed < left {
                    self.log_mut(id).trims = false;
                }
                left -= removed;
            }
        }
        let excess = self.known.logs.changes.saturating_sub(limits::CHANGES_RETAINED_MAX);
        let longest = self.known.logs.logs.iter().max_by_key(|(_, log)| log.changes);
        if let Some((&id, _)) = longest
            && excess.min(left) > 0
        {
            let (_, last) = self.trim(id, excess.min(left), |_| true)?;
            self.log_mut(id).keep_after(last);
        }
        Ok(())
    }

    /// Removes the oldest changes of a log. Returns how many, and up to which revision.
    fn trim(
        &mut self,
        id: KeyspaceId,
        max: u64,
        is_needless: impl Fn(u64) -> bool,
    ) -> Result<(u64, u64), MachineError> {
        let gone_before = self.known.logs.logs.get(&id).map_or(0, |log| log.gone_before);
        let (from, until) = (tables::change(id, gone_before, 0), after_keyspace(id));
        let mut found = Vec::new();
        let mut last = 0;
        self.overlay.scan(&from, Some(&until), &mut |key, _| {
            let revision = tables::parse_change(&key).unwrap_or(0);
            if found.len() as u64 == max || !is_needless(revision) {
                return false;
            }
            last = revision;
            found.push(key);
            true
        })?;
        let removed = found.len() as u64;
        for key in found {
            self.overlay.remove(key);
        }
        self.known.logs.changes -= removed;
        let log = self.log_mut(id);
        log.changes -= removed;
        log.is_dirty |= removed > 0;
        // Others of its revision may be left.
        log.gone_before = log.gone_before.max(last);
        Ok((removed, last))
    }

    /// Brings the rows of logs that changed into the state.
    pub(crate) fn write_logs(&mut self) {
        let overlay = &mut self.overlay;
        self.known.logs.logs.retain(|id, log| {
            let is_over = log.changes == 0 && log.cursors.is_empty();
            if is_over {
                overlay.remove(tables::of_keyspace(tables::LOGS, *id));
            } else if std::mem::take(&mut log.is_dirty) {
                overlay.put(tables::of_keyspace(tables::LOGS, *id), row::encode(log));
            }
            !is_over
        });
    }

    fn log_mut(&mut self, id: KeyspaceId) -> &mut Log {
        self.known.logs.logs.get_mut(&id).expect("the log was found just now")
    }
}

impl<S: State, M: ModeState> Applying<'_, S, M> {
    /// Shows the changes of a keyspace after a revision to `see`, oldest first. Later ones than the
    /// revision returned are all there.
    pub(crate) fn see_changes(
        &self,
        id: KeyspaceId,
        after: u64,
        see: &mut dyn FnMut(Change),
    ) -> Result<u64, MachineError> {
        let revision = self.known.head.revision.0;
        let kept_after = self.known.logs.logs.get(&id).map_or(NOTHING, |log| log.kept_after);
        let after = after.max(kept_after.min(revision));
        let (from, until) = (tables::change(id, after.saturating_add(1), 0), after_keyspace(id));
        let mut is_damaged = false;
        self.overlay.scan(&from, Some(&until), &mut |key, row| {
            let change = decode_change(id, &key, &row);
            is_damaged |= change.is_none();
            change.into_iter().for_each(&mut *see);
            !is_damaged
        })?;
        if is_damaged { Err(damaged(tables::CHANGES)) } else { Ok(after) }
    }
}

/// The changes of a keyspace after a revision, oldest first: `max` (at least 1) and as many more as
/// belong to the last one's revision, so that the next call can go on after it. Empty when there
/// are no more.
pub(crate) fn read(
    view: &impl Read,
    id: KeyspaceId,
    after: Revision,
    revision: Revision,
    max: usize,
) -> Result<Vec<Change>, Stopped> {
    let row = view.get(&tables::of_keyspace(tables::LOGS, id)).map_err(MachineError::from)?;
    let kept_after = match row {
        Some(row) => row::decode::<Log>(&row).ok_or_else(|| damaged(tables::LOGS))?.kept_after,
        None => NOTHING,
    };
    if after.0 < kept_after.min(revision.0) {
        return Err(Refusal::ChangesTrimmed { oldest: kept_after.min(revision.0) }.into());
    }
    let (from, until) = (tables::change(id, after.0.saturating_add(1), 0), after_keyspace(id));
    let mut changes: Vec<Change> = Vec::new();
    let mut is_damaged = false;
    let scanned = view.scan(&from, Some(&until), &mut |key, row| {
        let Some(change) = decode_change(id, &key, &row) else {
            is_damaged = true;
            return false;
        };
        let is_whole = changes.last().is_none_or(|last| last.revision != change.revision);
        if is_whole && changes.len() >= max.max(1) {
            return false;
        }
        changes.push(change);
        true
    });
    scanned.map_err(MachineError::from)?;
    if is_damaged {
        return Err(damaged(tables::CHANGES).into());
    }
    Ok(changes)
}

fn after_keyspace(id: KeyspaceId) -> Vec<u8> {
    tables::change(id, u64::MAX, u32::MAX)
}

fn decode_change(keyspace: KeyspaceId, key: &[u8], row: &Bytes) -> Option<Change> {
    let revision = Revision(tables::parse_change(key)?);
    let kind = KINDS.get(usize::from(*row.first()?)).copied()?;
    Some(Change { revision, keyspace, key: row.slice(1..), kind })
}

/// A kind's byte is its place here.
const KINDS: [ChangeKind; 12] = [
    ChangeKind::Put,
    ChangeKind::Append,
    ChangeKind::Add,
    ChangeKind::Delete,
    ChangeKind::Expire,
    ChangeKind::SetExpiry,
    ChangeKind::ClearExpiry,
    ChangeKind::HashSet,
    ChangeKind::HashDelete,
    ChangeKind::HashAdd,
    ChangeKind::Clear,
    ChangeKind::Loan,
];

fn kind_byte(kind: ChangeKind) -> u8 {
    KINDS.iter().position(|known| *known == kind).expect("every kind has its place") as u8
}
