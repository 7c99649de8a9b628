//! What this site's backup is told: the slots it holds, and then what changes in them.
//!
//! As with a move's receiver ([`super::copying`]) the copy is *fuzzy*, and right because whatever
//! changes comes again from the change log behind a cursor in the mirror's name. Slots that are gained
//! are copied beside that. A piece ends *in step* when it has told everything up to this site's
//! revision: all whole slots are then exactly as they are here.
//!
//! Remembered answers are told before the writes they belong to, never after: a promoted backup may
//! answer a repeated write that is lost with the rest of what it lacks, but it never applies one twice.
//!
//! ```text
//! d m → format 1 ‖ to (varint) ‖ number (varint)
//! ```

use super::Applying;
use super::lineage::Whose;
use super::{Machine, MachineError, Stopped, changes, tables};
use model::{
    Answer, Bytes, ChangeKind, KeyspaceId, Revision, SiteId, Slot, SlotSet, StagedItem, limits,
};
use std::collections::{BTreeMap, BTreeSet};
use storage::state::{Read, State};
use wire::entry::{put_varint, take_varint};

const FORMAT: u8 = 1;
/// The name of the mirror's cursors.
pub(crate) const CURSOR: &str = "mirror";
/// Changes that one piece tells at most; those of one revision stay together.
const CHANGES_MAX: usize = 4_096;

/// Where this site's mirror is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnMirror {
    /// The site that keeps it.
    pub to: SiteId,
    /// Its number: the revision at which it began.
    pub number: u64,
}

/// How far a mirror has been told of changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// Of each keyspace, up to this revision.
    pub changes: BTreeMap<KeyspaceId, u64>,
    /// Answers up to this one.
    pub answers: u64,
}

/// A piece that is being made.
#[derive(Debug, Default)]
pub struct Gathered {
    /// What it brings.
    pub items: Vec<StagedItem>,
    /// About how many bytes that has.
    pub bytes: usize,
}

impl Gathered {
    fn push(&mut self, item: StagedItem) {
        self.bytes += super::copying::item_bytes(&item);
        self.items.push(item);
    }

    /// Whether it has what a piece may have.
    pub fn is_full(&self) -> bool {
        self.bytes >= limits::MOVE_PIECE_BYTES_MAX
    }
}

impl Told {
    /// As it is sent along.
    pub fn encode(&self) -> Bytes {
        let mut out = Vec::new();
        put_varint(self.answers, &mut out);
        for (keyspace, revision) in &self.changes {
            put_varint(u64::from(keyspace.0), &mut out);
            put_varint(*revision, &mut out);
        }
        out.into()
    }

    /// What [`Told::encode`] wrote; `None`: it is something else.
    pub fn decode(bytes: &[u8]) -> Option<Told> {
        let (answers, len) = take_varint(bytes)?;
        let mut rest = &bytes[len..];
        let mut changes = BTreeMap::new();
        while !rest.is_empty() {
            let (keyspace, len) = take_varint(rest)?;
            let (revision, more) = take_varint(&rest[len..])?;
            rest = &rest[len + more..];
            changes.insert(KeyspaceId(u32::try_from(keyspace).ok()?), revision);
        }
        Some(Told { changes, answers })
    }
}

pub(super) fn load(state: &impl Read) -> Result<Option<OwnMirror>, MachineError> {
    let Some(row) = state.get(tables::OWN_MIRROR)? else { return Ok(None) };
    let decoded = (|| {
        let (&format, rest) = row.split_first()?;
        let (to, len) = take_varint(rest)?;
        let (number, _) = take_varint(&rest[len..])?;
        let to = SiteId(u32::try_from(to).ok()?);
        (format == FORMAT).then_some(OwnMirror { to, number })
    })();
    decoded.map(Some).ok_or(MachineError::Damaged { table: 'd' })
}

impl<S: State> Applying<'_, S> {
    pub(super) fn set_mirror(&mut self, to: Option<SiteId>) -> Result<Answer, Stopped> {
        self.member()?;
        self.next_revision();
        let globals = self.known.keyspaces.globals();
        for keyspace in &globals {
            self.drop_cursor(CURSOR, *keyspace);
        }
        let number = self.known.head.revision.0;
        self.modes.own_mirror = to.map(|to| OwnMirror { to, number });
        match to {
            None => self.overlay.remove(tables::OWN_MIRROR),
            Some(to) => {
                for keyspace in globals {
                    self.set_cursor(CURSOR, keyspace, Revision(number))?;
                }
                let mut row = vec![FORMAT];
                put_varint(u64::from(to.0), &mut row);
                put_varint(number, &mut row);
                self.overlay.put(tables::OWN_MIRROR, row);
            }
        }
        Ok(Answer::Done(self.known.head.revision))
    }

    /// The mirror must hear of what happens in a new keyspace, too.
    pub(super) fn watch_for_mirror(&mut self, keyspace: KeyspaceId) -> Result<(), Stopped> {
        if self.modes.own_mirror.is_some() {
            self.set_cursor(CURSOR, keyspace, self.known.head.revision)?;
        }
        Ok(())
    }
}

impl<S: State> Machine<S> {
    /// Where this site's mirror is kept.
    pub fn own_mirror(&self) -> Option<OwnMirror> {
        self.modes.own_mirror
    }

    /// Whether there are global keyspaces, so that there is something to mirror.
    pub fn has_globals(&self) -> bool {
        self.known.keyspaces.has_globals()
    }

    /// Copies a slot from a place on, until the piece is full. Where to go on; `None`: that was all.
    ///
    /// # Errors
    /// When the state cannot be read.
    pub fn copy_slot(
        &self,
        slot: Slot,
        from: Option<(KeyspaceId, Bytes)>,
        into: &mut Gathered,
    ) -> Result<Option<(KeyspaceId, Bytes)>, MachineError> {
        if from.is_none() {
            let answers = self.known.clients.of_slot(&self.state, slot, Whose::Own)?;
            answers.into_iter().for_each(|item| into.push(item));
        }
        let (first, first_key) = from.unwrap_or((KeyspaceId(0), Bytes::new()));
        for keyspace in self.known.keyspaces.each_global().filter(|id| *id >= first) {
            let Some(store) = self.modes.slots.store(keyspace, slot) else { continue };
            let key = if keyspace == first { &first_key[..] } else { b"" };
            let (_, until) = tables::records(store.generation);
            let prefix_bytes = tables::record_prefix_bytes(store.generation);
            let mut stopped_at = None;
            let from = tables::record(store.generation, key);
            self.state.scan(&from, Some(&until), &mut |at, row| {
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

    /// Tells what changed in some slots since then, as it is now, and what clients were answered.
    /// Whether that was all.
    ///
    /// # Errors
    /// [`model::Refusal::ChangesTrimmed`]: the mirror is so far behind that it must begin anew.
    pub fn tell_changes_of(
        &self,
        slots: &SlotSet,
        told: &mut Told,
        into: &mut Gathered,
    ) -> Result<bool, Stopped> {
        let Some(own) = self.modes.own_mirror else { return Ok(false) };
        let revision = self.known.head.revision;
        let (after, max) = (told.answers, CHANGES_MAX);
        let answers = self.known.clients.of_slots_after(&self.state, slots, after, max)?;
        // Answers come first: see the module's head.
        if answers.len() == max {
            told.answers = answers.last().map_or(after, |(at, _)| *at);
            answers.into_iter().for_each(|(_, item)| into.push(item));
            return Ok(false);
        }
        told.answers = revision.0;
        answers.into_iter().for_each(|(_, item)| into.push(item));
        // What was copied before does not count: changes go on being told beside a long copy.
        let bytes_max = into.bytes + limits::MOVE_PIECE_BYTES_MAX;
        let mut is_all = true;
        for keyspace in self.known.keyspaces.globals() {
            let after = self.told_to_mirror(told, own, keyspace);
            if after >= revision.0 {
                continue;
            }
            let found =
                changes::read(&self.state, keyspace, Revision(after), revision, CHANGES_MAX)?;
            let mut upto = if found.len() < CHANGES_MAX { revision.0 } else { after };
            let (mut keys, mut is_cleared) = (BTreeSet::new(), false);
            let mut last = after;
            for change in found {
                // A revision is told as a whole.
                if into.bytes >= bytes_max && change.revision.0 > last {
                    upto = last;
                    break;
                }
                last = change.revision.0;
                upto = upto.max(last);
                if change.kind == ChangeKind::Clear {
                    is_cleared = true;
                } else if slots.contains(Slot::of_key(&change.key))
                    && keys.insert(change.key.clone())
                {
                    into.push(self.item(keyspace, change.key)?);
                }
            }
            if is_cleared {
                // All that follows is told as it is now, so it may as well come first.
                into.items.insert(0, StagedItem::Cleared { keyspace });
            }
            told.changes.insert(keyspace, upto);
            is_all &= upto >= revision.0;
        }
        Ok(is_all)
    }

    fn told_to_mirror(&self, told: &Told, own: OwnMirror, keyspace: KeyspaceId) -> u64 {
        let cursor = || self.known.logs.position(keyspace, CURSOR);
        told.changes.get(&keyspace).copied().or_else(cursor).unwrap_or(own.number)
    }

    /// The revision up to which everything was told.
    pub fn mirror_told(&self, told: &Told) -> u64 {
        let Some(own) = self.modes.own_mirror else { return 0 };
        let globals = self.known.keyspaces.globals();
        let changes = globals.iter().map(|id| self.told_to_mirror(told, own, *id));
        changes.chain([told.answers]).min().unwrap_or(0)
    }

    /// Where the mirror's cursor of a keyspace stands.
    pub fn mirror_cursor(&self, keyspace: KeyspaceId) -> Option<u64> {
        self.known.logs.position(keyspace, CURSOR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_told_comes_back_as_it_was() {
        let changes = [(KeyspaceId(1), 300), (KeyspaceId(7), 2)].into();
        let told = Told { changes, answers: 5 };
        assert_eq!(told.encode(), [5, 1, 0xac, 2, 7, 2][..]);
        assert_eq!(Told::decode(&told.encode()), Some(told));
        assert_eq!(Told::decode(b"\x05\x01"), None);
        assert_eq!(Told::decode(b""), None);
    }
}
