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
use super::copying::{Gathered, Tail, Told};
use super::lineage::Whose;
use super::{Machine, MachineError, Stopped, tables};
use model::{Answer, Bytes, KeyspaceId, Revision, SiteId, Slot, SlotSet};
use storage::state::{Read, State};
use wire::entry::{put_varint, take_varint};

const FORMAT: u8 = 1;
/// The name of the mirror's cursors.
pub(crate) const CURSOR: &str = "mirror";

/// Where this site's mirror is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnMirror {
    /// The site that keeps it.
    pub to: SiteId,
    /// Its number: the revision at which it began.
    pub number: u64,
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

    /// The changes that the mirror is told.
    fn mirror_tail(&self) -> Option<Tail> {
        let own = self.modes.own_mirror?;
        Some(Tail { cursor: CURSOR.to_owned(), begun: own.number })
    }

    /// Copies a slot from a place on, until the chunk is full. Where to go on; `None`: that was all.
    ///
    /// # Errors
    /// When the state cannot be read.
    pub fn mirror_slot(
        &self,
        slot: Slot,
        from: Option<(KeyspaceId, Bytes)>,
        into: &mut Gathered,
    ) -> Result<Option<(KeyspaceId, Bytes)>, MachineError> {
        if from.is_none() {
            let answers = self.known.clients.of_slot(&self.state, slot, Whose::Own)?;
            answers.into_iter().for_each(|item| into.push(item));
        }
        self.copy_slot(&self.state, slot, from, into)
    }

    /// Tells what clients were answered in some slots since then, and what changed, as it is now. Whether
    /// that was all.
    ///
    /// # Errors
    /// [`model::Refusal::ChangesTrimmed`]: the mirror is so far behind that it must begin anew.
    pub fn mirror_changes(
        &self,
        slots: &SlotSet,
        told: &mut Told,
        into: &mut Gathered,
    ) -> Result<bool, Stopped> {
        let Some(tail) = self.mirror_tail() else { return Ok(false) };
        // Answers come first: see the module's head.
        Ok(self.tell_answers(slots, told, into)? && self.tell_changes(&tail, slots, told, into)?)
    }

    /// The revision up to which everything was told.
    pub fn mirror_told(&self, told: &Told) -> u64 {
        self.mirror_tail().map_or(0, |tail| self.told(&tail, told))
    }

    /// Where the mirror's cursor of a keyspace stands.
    pub fn mirror_cursor(&self, keyspace: KeyspaceId) -> Option<u64> {
        self.known.logs.position(keyspace, CURSOR)
    }
}
