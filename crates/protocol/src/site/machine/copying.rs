//! What a move's receiver is told: the records of its slots, then what changes behind them.
//!
//! The copy is *fuzzy*: a record is read when its turn comes, not as of one moment. That is enough,
//! because whatever changes after the move began is in the change log behind the move's cursor, and
//! comes again, as it is then. After the freeze nothing changes any more; so when all has been read
//! up to the freeze, the receiver has exactly what the slots hold. The same goes for what clients
//! were answered, which has an order by revision of its own.
//!
//! A [`Position`] travels with every piece and comes back from the destination, so that the next
//! leader goes on from what the destination has.

use super::super::trial::Bug;
use super::giving::{self, Move};
use super::{Machine, MachineError, Stopped, changes, records, tables};
use bytes::Bytes;
use model::{KeyspaceId, Refusal, Revision, Slot, SlotSet, StagedItem, limits};
use std::collections::BTreeMap;
use storage::state::{Read, State};
use wire::entry::{put_varint, take_varint};

/// How far a move's receiver has been told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// The next record to copy; `None`: all were.
    pub copy: Option<(Slot, KeyspaceId, Bytes)>,
    /// Changes of each keyspace up to this revision were told.
    pub changes: BTreeMap<KeyspaceId, u64>,
    /// Answers up to this one were told.
    pub answers: u64,
}

/// A piece of a move, and where to go on after it.
#[derive(Debug)]
pub struct Piece {
    /// What it brings; empty: there is nothing more to tell now.
    pub items: Vec<StagedItem>,
    /// Where to go on.
    pub next: Position,
    /// About how many bytes it has.
    pub bytes: usize,
}

impl Position {
    /// The beginning of a move of this number.
    pub fn first(one: &Move) -> Position {
        let first = one.slots.iter().next();
        Position {
            copy: first.map(|slot| (slot, KeyspaceId(0), Bytes::new())),
            changes: BTreeMap::new(),
            answers: 0,
        }
    }

    /// As it is sent along.
    pub fn encode(&self) -> Bytes {
        let mut out = Vec::new();
        put_varint(self.answers, &mut out);
        put_varint(self.changes.len() as u64, &mut out);
        for (keyspace, revision) in &self.changes {
            put_varint(u64::from(keyspace.0), &mut out);
            put_varint(*revision, &mut out);
        }
        if let Some((slot, keyspace, key)) = &self.copy {
            put_varint(u64::from(slot.number()), &mut out);
            put_varint(u64::from(keyspace.0), &mut out);
            out.extend_from_slice(key);
        }
        out.into()
    }

    /// What [`Position::encode`] wrote; `None`: it is something else.
    pub fn decode(bytes: &Bytes) -> Option<Position> {
        let mut rest = &bytes[..];
        let mut take = || -> Option<u64> {
            let (number, len) = take_varint(rest)?;
            rest = &rest[len..];
            Some(number)
        };
        let answers = take()?;
        let mut changes = BTreeMap::new();
        for _ in 0..take()? {
            changes.insert(KeyspaceId(u32::try_from(take()?).ok()?), take()?);
        }
        let copy = match take() {
            None => None,
            Some(slot) => {
                let slot = Slot::new(u16::try_from(slot).ok()?)?;
                let keyspace = KeyspaceId(u32::try_from(take()?).ok()?);
                Some((slot, keyspace, bytes.slice(bytes.len() - rest.len()..)))
            }
        };
        Some(Position { copy, changes, answers })
    }
}

impl<S: State> Machine<S> {
    /// The next piece of a move.
    ///
    /// # Errors
    /// [`Refusal::ChangesTrimmed`]: the receiver is so far behind that the move must begin anew.
    pub fn piece(&self, number: u64, one: &Move, from: &Position) -> Result<Piece, Stopped> {
        let mut piece = Piece { items: Vec::new(), next: from.clone(), bytes: 0 };
        let slots = self.modes.slots_to_give(number, one);
        if from.copy.is_some() {
            self.copy(&slots, &mut piece)?;
        }
        if piece.next.copy.is_none() && piece.bytes < limits::MOVE_PIECE_BYTES_MAX {
            self.tell_changes(number, &slots, &mut piece)?;
        }
        self.say_time(&mut piece.items);
        Ok(piece)
    }

    /// Items for another site begin with what time it is here, if there is a time in any.
    pub(crate) fn say_time(&self, items: &mut Vec<StagedItem>) {
        let has_time = |item: &StagedItem| match item {
            StagedItem::Remembered { .. } => true,
            StagedItem::Record { row, .. } => {
                records::Record::decode_head(row).is_ok_and(|record| record.expires_ms.is_some())
            }
            StagedItem::Absent { .. } | StagedItem::Cleared { .. } | StagedItem::Clock { .. } => {
                false
            }
        };
        if items.iter().any(has_time) {
            let log_time_ms = self.now_ms.max(self.known.head.log_time_ms);
            items.insert(0, StagedItem::Clock { log_time_ms });
        }
    }

    /// Whether a receiver that has been told so much knows all that happened up to a revision.
    pub fn is_told(&self, number: u64, at: &Position, revision: u64) -> bool {
        at.copy.is_none() && self.told(number, at) >= revision
    }

    /// How many revisions a receiver that has been told so much is behind.
    pub fn lag(&self, number: u64, at: &Position) -> u64 {
        self.known.head.revision.0.saturating_sub(self.told(number, at))
    }

    /// The revision up to which everything was told.
    fn told(&self, number: u64, at: &Position) -> u64 {
        let globals = self.known.keyspaces.globals();
        let changes = globals.iter().map(|id| self.told_of(number, at, *id));
        changes.chain([at.answers]).min().unwrap_or(0)
    }

    /// The same of one keyspace. Of one that is new in the move, nothing was there before its cursor.
    fn told_of(&self, number: u64, at: &Position, keyspace: KeyspaceId) -> u64 {
        let cursor = || self.known.logs.position(keyspace, &giving::cursor(number));
        at.changes.get(&keyspace).copied().or_else(cursor).unwrap_or(number)
    }

    /// Records from the position on, until the piece is full.
    fn copy(&self, slots: &SlotSet, piece: &mut Piece) -> Result<(), MachineError> {
        let Some((first, first_keyspace, first_key)) = piece.next.copy.take() else {
            return Ok(());
        };
        let globals = self.known.keyspaces.globals();
        // One view for all slots: to make one costs more than to read a slot that holds little.
        let state = self.state.view();
        for slot in slots.iter().filter(|slot| *slot >= first) {
            for keyspace in &globals {
                if slot == first && *keyspace < first_keyspace {
                    continue;
                }
                let Some(store) = self.modes.slots.store(*keyspace, slot) else { continue };
                let at_first = slot == first && *keyspace == first_keyspace;
                let key = if at_first { &first_key[..] } else { b"" };
                let (_, until) = tables::records(store.generation);
                let prefix_bytes = tables::record_prefix_bytes(store.generation);
                let from = tables::record(store.generation, key);
                let mut stopped_at = None;
                state.scan(&from, Some(&until), &mut |at, row| {
                    let key = at.slice(prefix_bytes..);
                    if piece.bytes >= limits::MOVE_PIECE_BYTES_MAX {
                        stopped_at = Some(key);
                        return false;
                    }
                    piece.bytes += key.len() + row.len() + ITEM_BYTES;
                    piece.items.push(StagedItem::Record { keyspace: *keyspace, key, row });
                    true
                })?;
                if let Some(key) = stopped_at {
                    piece.next.copy = Some((slot, *keyspace, key));
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// What changed since the position, as it is now, and what clients were answered.
    fn tell_changes(&self, number: u64, slots: &SlotSet, piece: &mut Piece) -> Result<(), Stopped> {
        const CHANGES_MAX: usize = 4_096;
        let revision = self.known.head.revision;
        for keyspace in self.known.keyspaces.globals() {
            let after = self.told_of(number, &piece.next, keyspace);
            if after >= revision.0 {
                continue;
            }
            let found =
                changes::read(&self.state, keyspace, Revision(after), revision, CHANGES_MAX)?;
            let is_all = found.len() < CHANGES_MAX;
            let mut told = if is_all { revision.0 } else { after };
            let mut keys = std::collections::BTreeSet::new();
            for change in found {
                told = told.max(change.revision.0);
                if slots.contains(Slot::of_key(&change.key)) {
                    keys.insert(change.key);
                }
            }
            if self.modes.planted.is(Bug::ForgetTail) {
                keys.clear();
            }
            for key in keys {
                let item = self.item(keyspace, key)?;
                piece.bytes += item_bytes(&item);
                piece.items.push(item);
            }
            piece.next.changes.insert(keyspace, told);
        }
        let (after, max) = (piece.next.answers, CHANGES_MAX);
        let answers = self.known.clients.of_slots_after(&self.state, slots, after, max)?;
        piece.next.answers = match answers.last() {
            Some((at, _)) if answers.len() == max => *at,
            _ => revision.0,
        };
        for (_, item) in answers {
            piece.bytes += item_bytes(&item);
            piece.items.push(item);
        }
        Ok(())
    }

    /// What a key holds now.
    pub(super) fn item(
        &self,
        keyspace: KeyspaceId,
        key: Bytes,
    ) -> Result<StagedItem, MachineError> {
        let store = self.modes.slots.store(keyspace, Slot::of_key(&key));
        let row = match store {
            Some(store) => self.state.get(&tables::record(store.generation, &key))?,
            None => None,
        };
        Ok(match row {
            Some(row) => {
                records::Record::decode_head(&row)?;
                StagedItem::Record { keyspace, key, row }
            }
            None => StagedItem::Absent { keyspace, key },
        })
    }
}

/// About what an item takes beside its key and row.
const ITEM_BYTES: usize = 16;

pub(super) fn item_bytes(item: &StagedItem) -> usize {
    ITEM_BYTES
        + match item {
            StagedItem::Record { key, row, .. } => key.len() + row.len(),
            StagedItem::Absent { key, .. } => key.len(),
            StagedItem::Remembered { row, .. } => row.len(),
            StagedItem::Cleared { .. } | StagedItem::Clock { .. } => 0,
        }
}

/// Whether a piece could not be read because the changes are gone.
pub fn must_begin_anew(stopped: &Stopped) -> bool {
    matches!(stopped, Stopped::Refused(Refusal::ChangesTrimmed { .. }))
}
