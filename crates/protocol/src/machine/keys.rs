//! One key under change: its record is read once and written once, and whatever depends on it (the
//! keyspace's count, the expiries, the change log) follows here and nowhere else.

use super::apply::Applying;
use super::modes::ModeState;
use super::records::{Agreed, Record};
use super::{MachineError, Stopped, tables};
use model::{Bytes, ChangeKind, KeyspaceId, Kind, Refusal, Revision, Slot, limits};
use storage::state::{Read, State};

/// Where a command works: a keyspace (and slot) and its generation now.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub(crate) keyspace: KeyspaceId,
    /// Of a global keyspace: the slot.
    pub(crate) slot: Option<Slot>,
    pub(crate) generation: u64,
}

/// A key with what it holds.
#[derive(Debug)]
pub(crate) struct Cell {
    place: Place,
    /// The key of its record.
    at: Bytes,
    /// None when it is absent; an expired record is absent.
    pub(crate) record: Option<Record>,
    /// What is written has this place in an order beyond this site's; 0: none.
    pub(crate) position: u64,
    /// An expiry that sites agree on. It may be there without a record.
    pub(crate) expiry: Option<Agreed>,
    /// Whether that is all that is there.
    is_vacant: bool,
    /// What its record takes, 0 when there is none.
    row_bytes: usize,
}

impl Cell {
    /// Its record's version, 0 when it is absent.
    pub(crate) fn version(&self) -> Revision {
        self.record.as_ref().map_or(Revision(0), |record| record.version)
    }

    /// Its expiry, if it is there and has one.
    pub(crate) fn expires_ms(&self) -> Option<u64> {
        self.record.as_ref().and_then(|record| record.expires_ms)
    }

    /// What it holds if that is of this kind, nothing if it is absent.
    pub(crate) fn payload(&self, kind: Kind) -> Result<Option<Bytes>, Refusal> {
        match &self.record {
            Some(record) if record.kind != kind => Err(Refusal::WrongType),
            record => Ok(record.as_ref().map(|record| record.payload.clone())),
        }
    }

    fn key(&self) -> &[u8] {
        &self.at[tables::record_prefix_bytes(self.place.generation)..]
    }
}

/// Whether a key may be used.
pub(crate) fn check_key(key: &[u8]) -> Result<(), Refusal> {
    if key.len() > limits::KEY_BYTES_MAX {
        return Err(Refusal::KeyTooLong(key.len()));
    }
    Ok(())
}

/// Whether a value may be put.
pub(crate) fn check_value(len: usize) -> Result<(), Refusal> {
    if len > limits::VALUE_BYTES_MAX {
        return Err(Refusal::ValueTooLong(len));
    }
    Ok(())
}

impl<S: State, M: ModeState> Applying<'_, S, M> {
    /// Where the command under way works in a keyspace.
    pub(crate) fn place(&mut self, keyspace: KeyspaceId) -> Result<Place, Refusal> {
        match (self.known.keyspaces.generation(keyspace), self.slot) {
            (None, _) => Err(Refusal::NoKeyspace(keyspace.to_string())),
            (Some(_), Some(slot)) if self.known.keyspaces.is_global(keyspace) => {
                Ok(M::place(self, keyspace, slot))
            }
            (Some(generation), _) => Ok(Place { keyspace, slot: None, generation }),
        }
    }

    /// One key more or less, and so many bytes of keys and records.
    fn recount(&mut self, place: Place, keys: i64, bytes: i64) {
        match place.slot {
            None if keys == 0 => {}
            None => self.known.keyspaces.recount(place.keyspace, keys, self.known.head.revision),
            Some(_) => self.modes.recount(place, keys, bytes),
        }
    }

    /// Reads a key. One whose time has come is removed now, if no entry found the time to.
    pub(crate) fn cell(&mut self, place: Place, key: &[u8]) -> Result<Cell, Stopped> {
        check_key(key)?;
        let at = tables::record(place.generation, key);
        let row = self.overlay.get(&at).map_err(MachineError::from)?;
        let row_bytes = row.as_ref().map_or(0, Bytes::len);
        let record = row.map(Record::decode).transpose()?;
        Ok(self.opened(place, (at, row_bytes), record))
    }

    /// Reads a key for a command that does not need its payload, which seems empty.
    pub(crate) fn cell_unread(&mut self, place: Place, key: &[u8]) -> Result<Cell, Stopped> {
        check_key(key)?;
        let at = tables::record(place.generation, key);
        let head = |row: Option<&[u8]>| {
            let head = row.map(Record::decode_head).transpose();
            head.map(|head| (head, row.map_or(0, <[u8]>::len)))
        };
        let (record, row_bytes) = self.overlay.look(&at, head).map_err(MachineError::from)??;
        Ok(self.opened(place, (at, row_bytes), record))
    }

    fn opened(
        &mut self,
        place: Place,
        (at, row_bytes): (Bytes, usize),
        record: Option<Record>,
    ) -> Cell {
        let expiry = record.as_ref().and_then(Record::agreed);
        let is_vacant = record.as_ref().is_some_and(|record| record.is_vacant);
        let is_expired = record.as_ref().is_some_and(|r| r.is_expired(self.known.head.log_time_ms));
        let record = record.filter(|record| !record.is_vacant);
        let mut cell = Cell { place, at, record, position: 0, expiry, is_vacant, row_bytes };
        if is_expired {
            self.erase(&mut cell, ChangeKind::Expire);
        }
        cell
    }

    /// Writes a key with an expiry that sites agree on, or none.
    pub(crate) fn store_agreed(
        &mut self,
        cell: Cell,
        kind: Kind,
        payload: &[u8],
        expiry: Option<Agreed>,
        change: ChangeKind,
    ) {
        if cell.record.is_none() {
            self.recount(cell.place, 1, 0);
        }
        let version = self.known.head.revision;
        let row = Record::encode_agreed(kind, version, expiry, cell.position, &[payload]);
        self.log_change(cell.place.keyspace, cell.key(), change);
        self.overlay.put(cell.at, row);
    }

    /// Removes a key, and leaves an expiry that sites agree on, or none. Returns whether the key
    /// was there.
    pub(crate) fn erase_agreed(
        &mut self,
        cell: Cell,
        expiry: Option<Agreed>,
        change: ChangeKind,
    ) -> bool {
        let version = cell.version();
        let was_there = cell.record.is_some();
        if was_there {
            self.recount(cell.place, -1, 0);
            self.note_removal(cell.place.keyspace, cell.key(), version);
            self.log_change(cell.place.keyspace, cell.key(), change);
        }
        if let Some(expiry) = expiry {
            let version = self.known.head.revision;
            let row = Record::encode_agreed(Kind::Hash, version, Some(expiry), cell.position, &[]);
            self.overlay.put(cell.at, row);
        } else if was_there || cell.is_vacant {
            self.overlay.remove(cell.at);
        }
        was_there
    }

    /// Writes a key: this payload, in parts, and this expiry. A moment that has passed removes
    /// the key instead. Answers with the key's version from now on.
    pub(crate) fn store(
        &mut self,
        mut cell: Cell,
        kind: Kind,
        expires_ms: Option<u64>,
        payload: &[&[u8]],
        change: ChangeKind,
    ) -> Revision {
        if expires_ms.is_some_and(|ms| ms <= self.known.head.log_time_ms) {
            if !self.erase(&mut cell, ChangeKind::Delete) {
                self.note_removal(cell.place.keyspace, cell.key(), self.known.head.revision);
            }
            return Revision(0);
        }
        let version = self.known.head.revision;
        let expired_ms = cell.expires_ms();
        if expires_ms != expired_ms {
            if let Some(ms) = expired_ms {
                self.remove_expiry(ms, cell.place.generation, cell.key());
            }
            if let Some(ms) = expires_ms {
                self.put_expiry(ms, cell.place.generation, cell.key());
            }
        }
        let row = Record::encode_at(kind, version, expires_ms, cell.position, payload);
        let is_new = cell.record.is_none();
        let key_bytes = if is_new { cell.key().len() } else { 0 };
        let bytes = (row.len() + key_bytes) as i64 - cell.row_bytes as i64;
        self.recount(cell.place, i64::from(is_new), bytes);
        self.log_change(cell.place.keyspace, cell.key(), change);
        self.overlay.put(cell.at, row);
        version
    }

    /// Removes a key. Returns whether it was there.
    pub(crate) fn erase(&mut self, cell: &mut Cell, change: ChangeKind) -> bool {
        let Some(record) = cell.record.take() else { return false };
        let key = cell.key();
        if let Some(ms) = record.expires_ms {
            self.remove_expiry(ms, cell.place.generation, key);
        }
        let bytes = (key.len() + cell.row_bytes) as i64;
        self.recount(cell.place, -1, -bytes);
        self.note_removal(cell.place.keyspace, key, record.version);
        self.log_change(cell.place.keyspace, key, change);
        self.overlay.remove(cell.at.clone());
        cell.row_bytes = 0;
        true
    }

    /// Removes a key whose expiry was found by its time.
    pub(crate) fn expire(&mut self, place: Place, key: &Bytes) {
        self.overlay.remove(tables::record(place.generation, key));
        self.recount(place, -1, 0);
        // To look what it held would cost a read.
        self.note_removal(place.keyspace, key, self.known.head.revision);
        self.log_change(place.keyspace, key, ChangeKind::Expire);
    }
}
