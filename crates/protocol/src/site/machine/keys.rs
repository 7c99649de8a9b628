//! One key under change: its record is read once and written once, and whatever depends on it (the
//! keyspace's count, the expiries, the change log) follows here and nowhere else.

use super::apply::Applying;
use super::records::Record;
use super::{MachineError, Stopped, keyspaces, tables};
use model::{Bytes, ChangeKind, KeyspaceId, Kind, Refusal, Revision, limits};
use storage::state::{Read, State};

/// Where a command works: a keyspace and its generation now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) keyspace: KeyspaceId,
    pub(super) generation: u64,
}

/// A key with what it holds.
#[derive(Debug)]
pub(super) struct Slot {
    place: Place,
    /// The key of its record.
    at: Bytes,
    /// None when it is absent; an expired record is absent.
    pub(super) record: Option<Record>,
}

impl Slot {
    /// Its record's version, 0 when it is absent.
    pub(super) fn version(&self) -> Revision {
        self.record.as_ref().map_or(Revision(0), |record| record.version)
    }

    /// Its expiry, if it is there and has one.
    pub(super) fn expires_ms(&self) -> Option<u64> {
        self.record.as_ref().and_then(|record| record.expires_ms)
    }

    /// What it holds if that is of this kind, nothing if it is absent.
    pub(super) fn payload(&self, kind: Kind) -> Result<Option<Bytes>, Refusal> {
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
pub(super) fn check_key(key: &[u8]) -> Result<(), Refusal> {
    if key.len() > limits::KEY_BYTES_MAX {
        return Err(Refusal::KeyTooLong(key.len()));
    }
    Ok(())
}

/// Whether a value may be put.
pub(super) fn check_value(len: usize) -> Result<(), Refusal> {
    if len > limits::VALUE_BYTES_MAX {
        return Err(Refusal::ValueTooLong(len));
    }
    Ok(())
}

impl<S: State> Applying<'_, S> {
    /// Where a keyspace's commands work now.
    pub(super) fn place(&self, keyspace: KeyspaceId) -> Result<Place, Refusal> {
        match self.known.keyspaces.generation(keyspace) {
            Some(generation) => Ok(Place { keyspace, generation }),
            None => Err(Refusal::NoKeyspace(keyspace.to_string())),
        }
    }

    /// Reads a key. One whose time has come is removed now, if no entry found the time to.
    pub(super) fn slot(&mut self, place: Place, key: &[u8]) -> Result<Slot, Stopped> {
        check_key(key)?;
        let at = tables::record(place.generation, key);
        let row = self.overlay.get(&at).map_err(MachineError::from)?;
        let record = row.map(Record::decode).transpose()?;
        Ok(self.opened(Slot { place, at, record }))
    }

    /// Reads a key for somebody who does not ask what it holds: the payload seems empty.
    pub(super) fn slot_unread(&mut self, place: Place, key: &[u8]) -> Result<Slot, Stopped> {
        check_key(key)?;
        let at = tables::record(place.generation, key);
        let head = |row: Option<&[u8]>| row.map(Record::decode_head).transpose();
        let record = self.overlay.look(&at, head).map_err(MachineError::from)??;
        Ok(self.opened(Slot { place, at, record }))
    }

    fn opened(&mut self, mut slot: Slot) -> Slot {
        let record = slot.record.as_ref();
        let is_expired = record.is_some_and(|r| r.is_expired(self.known.head.log_time_ms));
        if is_expired {
            self.erase(&mut slot, ChangeKind::Expire);
        }
        slot
    }

    /// Writes a key: this payload, in pieces, and this expiry. A moment that has passed removes
    /// the key instead. Answers with the key's version from now on.
    pub(super) fn store(
        &mut self,
        mut slot: Slot,
        kind: Kind,
        expires_ms: Option<u64>,
        payload: &[&[u8]],
        change: ChangeKind,
    ) -> Revision {
        if expires_ms.is_some_and(|ms| ms <= self.known.head.log_time_ms) {
            self.erase(&mut slot, ChangeKind::Delete);
            return Revision(0);
        }
        let version = self.known.head.revision;
        let expired_ms = slot.expires_ms();
        if expires_ms != expired_ms {
            let key = slot.key();
            if let Some(ms) = expired_ms {
                self.overlay.remove(tables::expiry(ms, slot.place.generation, key));
            }
            if let Some(ms) = expires_ms {
                self.overlay.put(tables::expiry(ms, slot.place.generation, key), Bytes::new());
                self.known.expiry.expect(ms);
            }
        }
        if slot.record.is_none() {
            self.known.keyspaces.recount(slot.place.keyspace, 1);
        }
        let row = Record::encode(kind, version, expires_ms, payload);
        self.log_change(slot.place.keyspace, slot.key(), change);
        self.overlay.put(slot.at, row);
        version
    }

    /// Removes a key. Says whether it was there.
    pub(super) fn erase(&mut self, slot: &mut Slot, change: ChangeKind) -> bool {
        let Some(record) = slot.record.take() else { return false };
        let key = slot.key();
        if let Some(ms) = record.expires_ms {
            self.overlay.remove(tables::expiry(ms, slot.place.generation, key));
        }
        self.known.keyspaces.recount(slot.place.keyspace, -1);
        self.log_change(slot.place.keyspace, key, change);
        self.overlay.remove(slot.at.clone());
        true
    }

    /// Removes a key whose expiry was found by its time.
    pub(super) fn expire(&mut self, place: Place, key: &Bytes) {
        self.overlay.remove(tables::record(place.generation, key));
        self.known.keyspaces.recount(place.keyspace, -1);
        self.log_change(place.keyspace, key, ChangeKind::Expire);
    }
}

/// A generation by the state, or the refusal that names the keyspace.
pub(super) fn generation(state: &impl Read, id: KeyspaceId) -> Result<u64, Stopped> {
    match keyspaces::generation(state, id)? {
        Some(generation) => Ok(generation),
        None => Err(Refusal::NoKeyspace(id.to_string()).into()),
    }
}
