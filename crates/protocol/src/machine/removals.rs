//! Whether a key that is absent now has been there since a read found it absent.
//!
//! A version tells a key that is there from what it was. An absent key has none: made and removed
//! between WATCH and EXEC, it looks as if nothing had happened. A tombstone for each key that was
//! ever removed would tell, and grow without end. What is kept instead is as large as it is once:
//! keys share 65,536 buckets by their checksum, and a bucket has the latest revision at which a key
//! of it was written that has been removed. A key that is absent, and whose bucket has no later
//! revision than the read's, was not made since: what is made later has a later version, and leaves
//! it to the bucket when it goes.
//!
//! The answer errs to one side. A key of the same bucket that was made and removed in between
//! counts as this one, and so does one that expired, whose version is not looked up. The
//! transaction is then not done, and its client tries again, as after any change; with a thousand
//! such removals a second and 10 ms between WATCH and EXEC that is one transaction in 6,500.
//!
//! To clear a keyspace removes its keys without looking at them. The keyspace has the revision at
//! which a key of it was made last, so no transaction is stopped that saw the last of them made; a
//! global keyspace, whose slots do not have it, counts as written at that moment. A slot that has
//! changed hands brings none of this along: its epoch is another, and that ends all that was
//! watched.
//!
//! ```text
//! W bucket → revision (varint)
//! ```

use super::apply::Applying;
use super::keys::Place;
use super::modes::ModeState;
use super::{MachineError, tables};
use model::{KeyspaceId, ReadPoint, Revision, crc16};
use std::collections::{BTreeMap, BTreeSet};
use storage::state::{Read, State};
use wire::row;

/// What removed keys have left behind.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Removals {
    /// By bucket.
    written: BTreeMap<u16, Revision>,
    /// Buckets whose rows are older than they.
    changed: BTreeSet<u16>,
}

impl Removals {
    pub(crate) fn load(state: &impl Read) -> Result<Removals, MachineError> {
        let mut written = BTreeMap::new();
        for (key, row) in super::rows(state, tables::REMOVALS)? {
            let bucket =
                key.get(1..).and_then(|key| Some(u16::from_be_bytes(key.try_into().ok()?)));
            let read = bucket.zip(row::decode_bare(&row));
            let damaged = MachineError::Damaged { table: tables::REMOVALS as char };
            let (bucket, revision) = read.ok_or(damaged)?;
            written.insert(bucket, revision);
        }
        Ok(Removals { written, changed: BTreeSet::new() })
    }
}

fn bucket(keyspace: KeyspaceId, key: &[u8]) -> u16 {
    crc16(keyspace.0.to_be_bytes().iter().chain(key))
}

impl<S: State, M: ModeState> Applying<'_, S, M> {
    /// A key goes that was written last at this revision, or not after it.
    pub(crate) fn note_removal(&mut self, keyspace: KeyspaceId, key: &[u8], written: Revision) {
        let bucket = bucket(keyspace, key);
        let removals = &mut self.known.removals;
        let latest = removals.written.entry(bucket).or_default();
        if *latest < written {
            *latest = written;
            removals.changed.insert(bucket);
        }
    }

    /// Whether a key that is absent has been so since a read; when in doubt, not.
    pub(crate) fn was_absent_since(&self, place: Place, key: &[u8], point: ReadPoint) -> bool {
        let written = self.known.removals.written.get(&bucket(place.keyspace, key));
        let cleared = self.known.keyspaces.cleared(place.keyspace);
        let since = self.slot.map(|slot| self.modes.served_since(slot, self.whose).1);
        point.epoch == self.read_point().epoch
            && since.is_none_or(|since| since <= point.revision)
            && point.revision <= self.known.head.revision
            && written.is_none_or(|written| *written <= point.revision)
            && cleared <= point.revision
    }

    /// What the command under way sees of the state.
    pub(crate) fn read_point(&self) -> ReadPoint {
        let epoch = self.slot.map(|slot| self.modes.served_since(slot, self.whose).0);
        ReadPoint { revision: self.known.head.revision, epoch: epoch.unwrap_or_default() }
    }

    /// Brings the buckets that changed into the state.
    pub(crate) fn write_removals(&mut self) {
        for bucket in std::mem::take(&mut self.known.removals.changed) {
            let row = row::encode_bare(&self.known.removals.written[&bucket]);
            self.overlay.put(tables::removals(bucket), row);
        }
    }
}
