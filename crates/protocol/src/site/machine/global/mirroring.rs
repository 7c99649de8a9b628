//! What is sent to this site's backup: the slots it holds, and then what changes in them.
//!
//! As with a move's destination ([`super::copying`]) the copy is *fuzzy*, and right because
//! whatever changes comes again from the change log behind a cursor in the mirror's name. Slots
//! that are gained are copied beside that. A chunk ends *caught up* when it has everything up to
//! this site's revision: all whole slots are then exactly as they are here.
//!
//! Remembered answers are sent before the writes they belong to, never after: a promoted backup may
//! answer a repeated write that is lost with the rest of what it lacks, but it never applies one
//! twice.
//!
//! When the backup changes, the former one is fed until the new one has everything
//! ([`crate::global::mirroring`]): each of the two has cursors of its own. There is one former
//! backup at most, the last one that had everything.
//!
//! ```text
//! d m → row of [`OwnMirrors`]   (wire::row)
//! ```

use super::Applying;
use super::copying::{Gathered, Sent, SlotPlace, Tail};
use super::lineage::Whose;
use super::{Machine, MachineError, Stopped, tables};
use model::{Answer, KeyspaceId, Revision, SiteId, Slot, SlotSet};
use storage::state::{Read, State};
use wire::row;

/// The names of the mirrors' cursors.
const CURSOR: &str = "mirror";
const FORMER_CURSOR: &str = "mirror-former";

/// Where this site's mirror is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnMirror {
    /// The site that keeps it.
    pub to: SiteId,
    /// Its number: the revision at which it began.
    pub number: u64,
}

/// This site's mirror, and the one before, while that is fed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::site::machine) struct OwnMirrors {
    current: Option<OwnMirror>,
    former: Option<OwnMirror>,
}

row!(OwnMirror { to, number });
row!(OwnMirrors { current, former });

impl OwnMirrors {
    pub(in crate::site::machine) fn load(state: &impl Read) -> Result<OwnMirrors, MachineError> {
        let Some(row) = state.get(tables::OWN_MIRROR)? else { return Ok(OwnMirrors::default()) };
        row::decode(&row).ok_or(MachineError::Damaged { table: 'd' })
    }

    /// The name of a mirror's cursors, if it is fed.
    fn cursor(self, of: OwnMirror) -> Option<&'static str> {
        match of {
            of if self.current == Some(of) => Some(CURSOR),
            of if self.former == Some(of) => Some(FORMER_CURSOR),
            _ => None,
        }
    }
}

impl<S: State> Applying<'_, S> {
    pub(in crate::site::machine) fn set_mirror(
        &mut self,
        to: Option<SiteId>,
    ) -> Result<Answer, Stopped> {
        self.member()?;
        self.next_revision();
        let OwnMirrors { current, former } = self.modes.own_mirrors;
        let is_other = current.map(|current| current.to) != to;
        // The last one that had everything; if that begins anew, it does not have it any more, and
        // the one that took its place has more.
        let kept = former.filter(|former| Some(former.to) != to);
        let fed = kept.or(current.filter(|_| is_other)).filter(|_| to.is_some());
        let globals = self.known.keyspaces.globals();
        for keyspace in &globals {
            // Before its own cursors go: what none holds is trimmed.
            let at = self.known.logs.position(*keyspace, CURSOR);
            match fed {
                Some(_) if fed == former => {}
                Some(fed) => {
                    // The one before may be further, and a cursor does not go back.
                    drop(self.drop_cursor(FORMER_CURSOR, *keyspace));
                    let at = Revision(at.unwrap_or(fed.number));
                    self.put_cursor(FORMER_CURSOR, *keyspace, at)?;
                }
                None => drop(self.drop_cursor(FORMER_CURSOR, *keyspace)),
            }
            self.drop_cursor(CURSOR, *keyspace);
        }
        let number = self.known.head.revision.0;
        if to.is_some() {
            for keyspace in globals {
                self.put_cursor(CURSOR, keyspace, Revision(number))?;
            }
        }
        let current = to.map(|to| OwnMirror { to, number });
        self.put_own_mirrors(OwnMirrors { current, former: fed });
        Ok(Answer::Done(self.known.head.revision))
    }

    /// Others have what the site wrote in a life that its state does not have: no stream goes on
    /// from there.
    pub(in crate::site::machine) fn forget_own_mirrors(&mut self) {
        for keyspace in self.known.keyspaces.globals() {
            self.drop_cursor(CURSOR, keyspace);
            self.drop_cursor(FORMER_CURSOR, keyspace);
        }
        self.put_own_mirrors(OwnMirrors::default());
    }

    /// A stream to a former backup ends: this site's, or the one that comes here.
    pub(in crate::site::machine) fn end_mirror(
        &mut self,
        of: SiteId,
        number: u64,
    ) -> Result<Answer, Stopped> {
        if self.member()?.own != of {
            if self.modes.mirrors.0.get(&of).is_some_and(|mirror| mirror.number == number) {
                self.forget_mirror(of);
            }
            return Ok(self.done_now());
        }
        if self.modes.own_mirrors.former.is_some_and(|former| former.number == number) {
            for keyspace in self.known.keyspaces.globals() {
                self.drop_cursor(FORMER_CURSOR, keyspace);
            }
            self.put_own_mirrors(OwnMirrors { former: None, ..self.modes.own_mirrors });
        }
        Ok(self.done_now())
    }

    fn put_own_mirrors(&mut self, mirrors: OwnMirrors) {
        self.modes.own_mirrors = mirrors;
        match mirrors.current {
            Some(_) => self.overlay.put(tables::OWN_MIRROR, row::encode(&mirrors)),
            None => self.overlay.remove(tables::OWN_MIRROR),
        }
    }

    /// The mirrors receive what happens in a new keyspace, too.
    pub(in crate::site::machine) fn watch_for_mirror(
        &mut self,
        keyspace: KeyspaceId,
    ) -> Result<(), Stopped> {
        let OwnMirrors { current, former } = self.modes.own_mirrors;
        for (cursor, _) in [(CURSOR, current), (FORMER_CURSOR, former)]
            .into_iter()
            .filter(|(_, mirror)| mirror.is_some())
        {
            self.put_cursor(cursor, keyspace, self.known.head.revision)?;
        }
        Ok(())
    }
}

impl<S: State> Machine<S> {
    /// Where this site's mirror is kept.
    pub fn own_mirror(&self) -> Option<OwnMirror> {
        self.modes.own_mirrors.current
    }

    /// The mirror before, while that is fed.
    pub fn former_mirror(&self) -> Option<OwnMirror> {
        self.modes.own_mirrors.former
    }

    /// Whether there are global keyspaces, so that there is something to mirror.
    pub fn has_globals(&self) -> bool {
        self.known.keyspaces.has_globals()
    }

    /// The changes that are sent to a mirror, if it is fed.
    fn mirror_tail(&self, of: OwnMirror) -> Option<Tail> {
        let cursor = self.modes.own_mirrors.cursor(of)?.to_owned();
        Some(Tail { cursor, begun: of.number })
    }

    /// Copies a slot from a place on, until the chunk is full. Where to go on; `None`: that was
    /// all.
    ///
    /// # Errors
    /// When the state cannot be read.
    pub(crate) fn mirror_slot(
        &self,
        slot: Slot,
        from: Option<SlotPlace>,
        into: &mut Gathered,
    ) -> Result<Option<SlotPlace>, MachineError> {
        let (answers_from, records_from) = match from {
            None => (None, None),
            Some(SlotPlace::Answer(whose, at)) => (Some((whose, at)), None),
            Some(SlotPlace::Record(keyspace, key)) => (None, Some((keyspace, key))),
        };
        if records_from.is_none()
            && let Some(at) = self.copy_answers(slot, &[Whose::Own], answers_from, into)?
        {
            return Ok(Some(at));
        }
        let stopped_at = self.copy_slot(&self.state, slot, records_from, into)?;
        Ok(stopped_at.map(|(keyspace, key)| SlotPlace::Record(keyspace, key)))
    }

    /// Sends what clients were answered in some slots since then, and what changed, as it is now.
    /// Whether that was all.
    ///
    /// # Errors
    /// [`model::Refusal::ChangesTrimmed`]: the mirror is so far behind that it must begin anew.
    pub fn mirror_changes(
        &self,
        of: OwnMirror,
        slots: &SlotSet,
        sent: &mut Sent,
        into: &mut Gathered,
    ) -> Result<bool, Stopped> {
        let Some(tail) = self.mirror_tail(of) else { return Ok(false) };
        // Answers come first: see the module's head.
        Ok(self.send_answers(slots, sent, into)? && self.send_changes(&tail, slots, sent, into)?)
    }

    /// The revision up to which everything was sent to a mirror.
    pub fn mirror_sent(&self, of: OwnMirror, sent: &Sent) -> u64 {
        self.mirror_tail(of).map_or(0, |tail| self.sent(&tail, sent))
    }

    /// A mirror's cursor of a keyspace: its name, and where it stands.
    pub fn mirror_cursor(
        &self,
        of: OwnMirror,
        keyspace: KeyspaceId,
    ) -> Option<(&'static str, u64)> {
        let cursor = self.modes.own_mirrors.cursor(of)?;
        Some((cursor, self.known.logs.position(keyspace, cursor)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn format_1_stays_as_it_is() {
        let mirror = |to, number| OwnMirror { to: SiteId(to), number };
        let (current, former) = (Some(mirror(5, 300)), Some(mirror(3, 9)));
        assert_eq!(row::encode(&OwnMirrors { current, former: None }), [1, 1, 5, 0xac, 2, 0]);
        assert_eq!(row::encode(&OwnMirrors { current, former }), [1, 1, 5, 0xac, 2, 1, 3, 9]);
    }
}
