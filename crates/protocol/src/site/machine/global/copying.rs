//! What a move's destination gets, and a mirror's ([`super::mirroring`]): the records of slots,
//! then what changes behind them.
//!
//! The copy is *fuzzy*: a record is read when its turn comes, not as of one moment. That is enough,
//! because whatever changes after the move began is in the change log behind its cursor, and
//! comes again, as it is then. After the freeze nothing changes any more; so when all has been read
//! up to the freeze, the destination has exactly what the slots hold. The same goes for what
//! clients were answered, which has an order by revision of its own.
//!
//! The rows of lent groups must not be later than the records that are there: a row that has come
//! home, or a count of loans, makes a taker ignore the borrower, which then has the only copy. So
//! they are sent when everything else has been, of a whole slot each time.
//!
//! A [`Position`] travels with every chunk and comes back from the destination, so that the next
//! leader goes on from what the destination has.

use super::lineage::Whose;
use super::requests::AnswerPlace;
use super::source::{self, Move};
use super::{Machine, MachineError, Stopped, changes, records, tables};
use crate::bugs::Bug;
use bytes::Bytes;
use model::{
    ChangeKind, ClientId, KeyspaceId, Refusal, Revision, Slot, SlotSet, StagedItem, limits,
};
use std::collections::{BTreeMap, BTreeSet};
use storage::state::{Read, State};
use wire::row;

/// Changes that one chunk has at most; those of one revision stay together.
const CHANGES_MAX: usize = 4_096;

/// How far a destination has been sent changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Of each keyspace, up to this revision.
    pub changes: BTreeMap<KeyspaceId, u64>,
    /// Answers up to this one.
    pub answers: u64,
    /// Rows of lent groups up to this one; `None`: nothing since the beginning.
    pub loans: Option<u64>,
}

row!(Sent { changes, answers, loans });

/// How far a move's destination has been sent everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// The next record to copy; `None`: all were.
    pub copy: Option<(Slot, (KeyspaceId, Bytes))>,
    /// What changed behind it.
    pub sent: Sent,
}

row!(Position { copy, sent });

/// The changes behind a copy: those behind a cursor of each keyspace, and behind a revision where a
/// keyspace has no such cursor yet.
pub(in crate::site::machine) struct Tail {
    pub(in crate::site::machine) cursor: String,
    pub(in crate::site::machine) begun: u64,
}

/// What a chunk brings, as it is made.
#[derive(Debug, Default)]
pub struct Gathered {
    /// In this order.
    pub items: Vec<StagedItem>,
    /// About how many bytes that has.
    pub bytes: usize,
}

impl Gathered {
    pub(in crate::site::machine) fn push(&mut self, item: StagedItem) {
        self.bytes += item_bytes(&item);
        self.items.push(item);
    }

    /// Whether it has what a chunk may have.
    pub fn is_full(&self) -> bool {
        self.bytes >= limits::MOVE_CHUNK_BYTES_MAX
    }
}

/// Where the copy of a slot goes on: what is remembered with its records comes before them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SlotPlace {
    /// At an answer.
    Answer(Whose, AnswerPlace),
    /// At this key, or the next one.
    Record(KeyspaceId, Bytes),
}

/// A chunk of a move, and where to go on after it.
#[derive(Debug)]
pub struct CopiedChunk {
    /// What it brings; empty: there is nothing more to tell now.
    pub items: Vec<StagedItem>,
    /// Where to go on.
    pub next: Position,
    /// About how many bytes it has.
    pub bytes: usize,
}

impl Tail {
    /// Of a keyspace that is new in a move, nothing was there before its cursor.
    fn of_move(number: u64) -> Tail {
        Tail { cursor: source::cursor(number), begun: number }
    }
}

impl Position {
    /// The beginning of a move of this number.
    pub fn first(one: &Move) -> Position {
        let first = one.slots.iter().next();
        let copy = first.map(|slot| (slot, (KeyspaceId(0), Bytes::new())));
        Position { copy, sent: Sent::default() }
    }
}

impl<S: State> Machine<S> {
    /// The next chunk of a move.
    ///
    /// # Errors
    /// [`Refusal::ChangesTrimmed`]: the destination is so far behind that the move must begin anew.
    pub fn chunk(&self, number: u64, one: &Move, from: &Position) -> Result<CopiedChunk, Stopped> {
        let (mut gathered, mut next) = (Gathered::default(), from.clone());
        let slots = self.modes.slots_to_give(number, one);
        if let Some((first, place)) = next.copy.take() {
            // One view for all slots: to make one costs more than to read a slot that holds little.
            let state = self.state.view();
            for slot in slots.iter().filter(|slot| *slot >= first) {
                let at = (slot == first).then(|| place.clone());
                let stopped_at = self.copy_slot(&state, slot, at, &mut gathered)?;
                next.copy = stopped_at.map(|place| (slot, place));
                if next.copy.is_some() {
                    break;
                }
            }
        }
        if next.copy.is_none() && !gathered.is_full() {
            let (tail, none) = (Tail::of_move(number), SlotSet::default());
            let of_changes = if self.modes.planted.is(Bug::ForgetTail) { &none } else { &slots };
            if self.send_answers(&slots, &mut next.sent, &mut gathered)? {
                self.send_changes(&tail, of_changes, &mut next.sent, &mut gathered)?;
            }
        }
        let Gathered { mut items, bytes } = gathered;
        self.send_time(&mut items);
        Ok(CopiedChunk { items, next, bytes })
    }

    /// Items for another site begin with what time it is here, if there is a time in any.
    pub(crate) fn send_time(&self, items: &mut Vec<StagedItem>) {
        let has_time = |item: &StagedItem| match item {
            StagedItem::Remembered { .. } => true,
            StagedItem::Record { row, .. } => {
                records::Record::decode_head(row).is_ok_and(|record| record.expires_ms.is_some())
            }
            StagedItem::Absent { .. }
            | StagedItem::Cleared { .. }
            | StagedItem::Clock { .. }
            | StagedItem::Lent { .. }
            | StagedItem::Loans { .. } => false,
        };
        if items.iter().any(has_time) {
            let log_time_ms = self.now_ms.max(self.known.head.log_time_ms);
            items.insert(0, StagedItem::Clock { log_time_ms });
        }
    }

    /// Whether a destination that has got so much has all that happened up to a revision.
    pub fn is_sent(&self, number: u64, at: &Position, revision: u64) -> bool {
        at.copy.is_none() && self.sent(&Tail::of_move(number), &at.sent) >= revision
    }

    /// How many revisions a destination that has got so much is behind.
    pub fn lag(&self, number: u64, at: &Position) -> u64 {
        let sent = self.sent(&Tail::of_move(number), &at.sent);
        self.known.head.revision.0.saturating_sub(sent)
    }

    /// The revision up to which everything was sent.
    pub(in crate::site::machine) fn sent(&self, tail: &Tail, sent: &Sent) -> u64 {
        let globals = self.known.keyspaces.globals();
        let changes = globals.iter().map(|id| self.sent_of(tail, sent, *id));
        let loans = sent.loans.unwrap_or(tail.begun);
        changes.chain([sent.answers, loans]).min().unwrap_or(0)
    }

    /// The same of one keyspace.
    fn sent_of(&self, tail: &Tail, sent: &Sent, keyspace: KeyspaceId) -> u64 {
        let cursor = || self.known.logs.position(keyspace, &tail.cursor);
        sent.changes.get(&keyspace).copied().or_else(cursor).unwrap_or(tail.begun)
    }

    /// Copies the records of a slot from a place on, until the chunk is full. Where to go on;
    /// `None`: that was all.
    pub(super) fn copy_slot(
        &self,
        state: &impl Read,
        slot: Slot,
        from: Option<(KeyspaceId, Bytes)>,
        into: &mut Gathered,
    ) -> Result<Option<(KeyspaceId, Bytes)>, MachineError> {
        let (first, first_key) = from.unwrap_or((KeyspaceId(0), Bytes::new()));
        if first == KeyspaceId(0) && first_key.is_empty() {
            let rows = self.modes.loans.items_of(Whose::Own, slot);
            rows.into_iter().for_each(|item| into.push(item));
        }
        for keyspace in self.known.keyspaces.each_global().filter(|id| *id >= first) {
            let Some(store) = self.modes.slots.store(keyspace, slot) else { continue };
            let key = if keyspace == first { &first_key[..] } else { b"" };
            let (_, until) = tables::records(store.generation);
            let prefix_bytes = tables::record_prefix_bytes(store.generation);
            let mut stopped_at = None;
            let from = tables::record(store.generation, key);
            state.scan(&from, Some(&until), &mut |at, row| {
                let key = at.slice(prefix_bytes..);
                if into.is_full() {
                    stopped_at = Some(key);
                    return false;
                }
                into.push(StagedItem::Record { keyspace, key, row });
                true
            })?;
            if let Some(key) = stopped_at {
                return Ok(Some((keyspace, key)));
            }
        }
        Ok(None)
    }

    /// Copies what is remembered with records of a slot from a place on, until the chunk is full.
    /// Where to go on; `None`: that was all.
    pub(super) fn copy_answers(
        &self,
        slot: Slot,
        kinds: &[Whose],
        from: Option<(Whose, AnswerPlace)>,
        into: &mut Gathered,
    ) -> Result<Option<SlotPlace>, MachineError> {
        let mut from = from;
        let is_first = |kind: &Whose| from.is_none_or(|(first, _)| first == *kind);
        let first = kinds.iter().position(is_first).unwrap_or(kinds.len());
        for whose in &kinds[first..] {
            let (_, from) = from.take().unwrap_or((*whose, (ClientId(0), 0)));
            let mut put = |item| {
                into.push(item);
                !into.is_full()
            };
            let of = (slot, *whose);
            let stopped_at = self.known.clients.of_slot(&self.state, of, from, &mut put)?;
            if let Some(at) = stopped_at {
                return Ok(Some(SlotPlace::Answer(*whose, at)));
            }
        }
        Ok(None)
    }

    /// Sends what clients were answered since then. Whether that was all.
    pub(super) fn send_answers(
        &self,
        slots: &SlotSet,
        sent: &mut Sent,
        into: &mut Gathered,
    ) -> Result<bool, Stopped> {
        // What was copied before does not count: answers go on being sent beside a long copy.
        let bytes_max = into.bytes + limits::MOVE_CHUNK_BYTES_MAX;
        let items_max = into.items.len() + CHANGES_MAX;
        let mut put = |item| {
            into.push(item);
            into.bytes < bytes_max && into.items.len() < items_max
        };
        let clients = &self.known.clients;
        let last = clients.of_slots_after(&self.state, slots, sent.answers, &mut put)?;
        sent.answers = last.unwrap_or(self.known.head.revision.0);
        Ok(last.is_none())
    }

    /// Sends what changed in some slots since then, as it is now. Whether that was all.
    pub(super) fn send_changes(
        &self,
        tail: &Tail,
        slots: &SlotSet,
        sent: &mut Sent,
        into: &mut Gathered,
    ) -> Result<bool, Stopped> {
        let revision = self.known.head.revision;
        // What was copied before does not count: changes go on being sent beside a long copy.
        let bytes_max = into.bytes + limits::MOVE_CHUNK_BYTES_MAX;
        let mut is_all = true;
        for keyspace in self.known.keyspaces.globals() {
            let after = self.sent_of(tail, sent, keyspace);
            if after >= revision.0 {
                continue;
            }
            let found =
                changes::read(&self.state, keyspace, Revision(after), revision, CHANGES_MAX)?;
            let mut upto = if found.len() < CHANGES_MAX { revision.0 } else { after };
            let (mut keys, mut is_cleared) = (BTreeSet::new(), false);
            let mut last = after;
            for change in found {
                // A revision is sent as a whole.
                if into.bytes >= bytes_max && change.revision.0 > last {
                    upto = last;
                    break;
                }
                last = change.revision.0;
                upto = upto.max(last);
                if change.kind == ChangeKind::Clear {
                    is_cleared = true;
                    continue;
                }
                let slot = Slot::of_key(&change.key);
                if !slots.contains(slot) {
                    continue;
                }
                // Of a loan this is a key, or the tag of a group, which may be a key, too.
                if keys.insert(change.key.clone()) {
                    into.push(self.item(keyspace, change.key)?);
                }
            }
            if is_cleared {
                // All that follows is sent as it is now, so it may as well come first.
                into.items.insert(0, StagedItem::Cleared { keyspace });
            }
            sent.changes.insert(keyspace, upto);
            is_all &= upto >= revision.0;
        }
        let is_due = is_all || self.modes.planted.is(Bug::RowsAhead);
        Ok(is_due && self.send_loans(tail, slots, sent, into) && is_all)
    }

    /// Sends the rows of slots whose rows have changed since then, where all else has been sent.
    /// Whether that was all.
    fn send_loans(
        &self,
        tail: &Tail,
        slots: &SlotSet,
        sent: &mut Sent,
        into: &mut Gathered,
    ) -> bool {
        let bytes_max = into.bytes + limits::MOVE_CHUNK_BYTES_MAX;
        let after = sent.loans.unwrap_or(tail.begun);
        let mut last = after;
        for (changed, slot) in self.modes.loans.changed_after(after) {
            // A revision is sent as a whole.
            if into.bytes >= bytes_max && changed > last {
                sent.loans = Some(last);
                return false;
            }
            last = changed;
            if slots.contains(slot) {
                let rows = self.modes.loans.items_of(Whose::Own, slot);
                rows.into_iter().for_each(|item| into.push(item));
            }
        }
        sent.loans = Some(self.known.head.revision.0);
        true
    }

    /// What a key holds now.
    pub(in crate::site::machine) fn item(
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
            StagedItem::Lent { group, .. } => group.tag.len(),
            StagedItem::Cleared { .. } | StagedItem::Clock { .. } | StagedItem::Loans { .. } => 0,
        }
}

/// Whether a chunk could not be read because the changes are gone.
pub fn must_begin_anew(stopped: &Stopped) -> bool {
    matches!(stopped, Stopped::Refused(Refusal::ChangesTrimmed { .. }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn format_1_stays_as_it_is() {
        let changes = [(KeyspaceId(1), 300), (KeyspaceId(7), 2)].into();
        let sent = Sent { changes, answers: 5, loans: Some(301) };
        assert_eq!(row::encode(&sent), b"\x01\x02\x01\xac\x02\x07\x02\x05\x01\xad\x02");
        let copy = Some((Slot::new(300).unwrap(), (KeyspaceId(7), "key".into())));
        let at = Position { copy, sent };
        let bytes = Bytes::from(row::encode(&at));
        let copied = b"\x01\x01\xac\x02\x07\x03key";
        assert_eq!(bytes, [&copied[..], b"\x02\x01\xac\x02\x07\x02\x05\x01\xad\x02"].concat());
        assert_eq!(row::decode(&bytes), Some(at));
        for other in [&b""[..], b"\x01\x00\x00\x05", b"\x02\x00\x00\x05\x00"] {
            assert_eq!(row::decode::<Position>(&Bytes::from_static(other)), None, "{other:?}");
        }
    }
}
