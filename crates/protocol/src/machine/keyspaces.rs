//! The keyspaces, their generations, and how a million keys are cleared by one small command.
//!
//! Each keyspace has a *generation*, a number that no other one ever had, and its records lie under
//! that number. To clear the keyspace is to give it a new generation: its old records are garbage
//! from that moment, which no read and no write ever looks at, and ticks remove them chunk by
//! chunk. So FLUSHALL and dropping a keyspace take the same time whatever they hold, and a log
//! entry never blocks those behind it.
//!
//! ```text
//! k keyspace   → format 1 ‖ generation (varint) ‖ the keyspace (wire::entry)
//! c keyspace   → how many keys ‖ when the last one was made ‖ as of what it was cleared (varints)
//! g generation → nothing
//! ```
//!
//! A global keyspace's records lie under generations of its slots instead (`stores`); its own stays
//! unused.
//!
//! Rows of `c` that were written before guards asked what has been there end with the number of
//! keys.
//!
//! The default keyspace has no row before it is cleared for the first time: its generation is 0.

use super::apply::Applying;
use super::modes::ModeState;
use super::records::Record;
use super::{MachineError, Stopped, tables};
use model::{
    Answer, Bytes, Catalog, ChangeKind, Keyspace, KeyspaceId, KeyspaceSpec, Refusal, Revision,
    limits,
};
use std::collections::{BTreeMap, BTreeSet};
use storage::state::{Read, State};
use wire::entry::{decode_keyspace, encode_keyspace, take_varint};
use wire::row;

/// All keyspaces, and the generations whose records are still to be removed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Keyspaces {
    spaces: BTreeMap<KeyspaceId, Space>,
    /// Whose records lie under a generation.
    owners: BTreeMap<u64, KeyspaceId>,
    garbage: BTreeSet<u64>,
    /// The last record that went as garbage, if more of its generation were left. A scan from the
    /// beginning would pass the remains of all that went.
    garbage_gone: Option<(u64, Bytes)>,
    /// Whose count is not yet in the state.
    recounted: BTreeSet<KeyspaceId>,
    /// Whether the catalog or a generation is not yet known to readers.
    pub(crate) changed: bool,
}

#[derive(Debug, PartialEq, Eq)]
struct Space {
    keyspace: Keyspace,
    generation: u64,
    tally: Tally,
}

/// What is counted of a keyspace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// How many keys it holds; 0 for a global one, whose slots are counted.
    pub(crate) count: u64,
    /// The revision that made a key of it last.
    created: Revision,
    /// Of the keys that were there when it was cleared last, none was made after this revision.
    cleared: Revision,
}

row!(Tally { count, created, cleared });

impl Keyspaces {
    pub(crate) fn load(state: &impl Read) -> Result<Keyspaces, MachineError> {
        let damaged = |table: u8| MachineError::Damaged { table: table as char };
        let mut spaces = BTreeMap::new();
        for (_, row) in super::rows(state, tables::KEYSPACES)? {
            let (generation, keyspace) =
                decode_row(row).ok_or_else(|| damaged(tables::KEYSPACES))?;
            spaces.insert(keyspace.id, Space { keyspace, generation, tally: Tally::default() });
        }
        spaces.entry(KeyspaceId::DEFAULT).or_insert_with(|| Space {
            keyspace: Keyspace { id: KeyspaceId::DEFAULT, spec: KeyspaceSpec::default_keyspace() },
            generation: 0,
            tally: Tally::default(),
        });
        for space in spaces.values_mut() {
            space.tally = tally(state, space.keyspace.id)?;
        }
        let mut garbage = BTreeSet::new();
        for (key, _) in super::rows(state, tables::GARBAGE)? {
            let (generation, _) = take_varint(&key[1..]).ok_or_else(|| damaged(tables::GARBAGE))?;
            garbage.insert(generation);
        }
        let owners = spaces.iter().map(|(id, space)| (space.generation, *id)).collect();
        let (garbage_gone, recounted) = Default::default();
        Ok(Keyspaces { spaces, owners, garbage, garbage_gone, recounted, changed: true })
    }

    pub(crate) fn generation(&self, id: KeyspaceId) -> Option<u64> {
        self.spaces.get(&id).map(|space| space.generation)
    }

    /// The keyspace of a generation that is not a slot's.
    pub(crate) fn owner(&self, generation: u64) -> Option<KeyspaceId> {
        self.owners.get(&generation).copied()
    }

    /// The specification of a keyspace.
    pub(crate) fn spec(&self, id: KeyspaceId) -> Option<&KeyspaceSpec> {
        self.spaces.get(&id).map(|space| &space.keyspace.spec)
    }

    /// The specifications of all.
    pub(crate) fn specs(&self) -> impl Iterator<Item = &KeyspaceSpec> + '_ {
        self.spaces.values().map(|space| &space.keyspace.spec)
    }

    /// Whether its keys belong to slots.
    pub(crate) fn is_global(&self, id: KeyspaceId) -> bool {
        self.spec(id).is_some_and(KeyspaceSpec::is_global)
    }

    /// Whether any is global.
    pub(crate) fn has_globals(&self) -> bool {
        self.each_global().next().is_some()
    }

    /// The global ones.
    pub(crate) fn globals(&self) -> Vec<KeyspaceId> {
        self.each_global().collect()
    }

    /// The global ones, while nothing else changes.
    pub(crate) fn each_global(&self) -> impl Iterator<Item = KeyspaceId> + '_ {
        let globals = self.spaces.values().filter(|space| space.keyspace.spec.is_global());
        globals.map(|space| space.keyspace.id)
    }

    /// All keyspaces that were made, ordered by id.
    pub(crate) fn made(&self) -> Vec<Keyspace> {
        let made = self.spaces.values().filter(|space| space.keyspace.id != KeyspaceId::DEFAULT);
        made.map(|space| space.keyspace.clone()).collect()
    }

    pub(crate) fn count(&self, id: KeyspaceId) -> u64 {
        self.spaces.get(&id).map_or(0, |space| space.tally.count)
    }

    /// One key more or less, at this revision.
    pub(crate) fn recount(&mut self, id: KeyspaceId, by: i64, revision: Revision) {
        if let Some(space) = self.spaces.get_mut(&id) {
            let tally = &mut space.tally;
            tally.count = tally.count.saturating_add_signed(by);
            if by > 0 {
                tally.created = revision;
            }
            self.recounted.insert(id);
        }
    }

    /// Of the keys that were there when a keyspace was cleared last, none was made after this.
    pub(crate) fn cleared(&self, id: KeyspaceId) -> Revision {
        self.spaces.get(&id).map_or(Revision(0), |space| space.tally.cleared)
    }

    pub(crate) fn has_garbage(&self) -> bool {
        !self.garbage.is_empty()
    }

    pub(crate) fn catalog(&self) -> Catalog {
        Catalog::new(self.spaces.values().map(|space| space.keyspace.clone()).collect())
    }

    pub(crate) fn generations(&self) -> BTreeMap<KeyspaceId, u64> {
        self.spaces.iter().map(|(id, space)| (*id, space.generation)).collect()
    }
}

/// What is counted of a keyspace, by the state.
pub(crate) fn tally(state: &impl Read, id: KeyspaceId) -> Result<Tally, MachineError> {
    match state.get(&tables::of_keyspace(tables::COUNTS, id))? {
        Some(row) => {
            decode_tally(&row).ok_or(MachineError::Damaged { table: tables::COUNTS as char })
        }
        None => Ok(Tally::default()),
    }
}

fn encode_tally(tally: Tally) -> Vec<u8> {
    row::encode_bare(&tally)
}

fn decode_tally(row: &[u8]) -> Option<Tally> {
    let row = Bytes::copy_from_slice(row);
    let of_count = |count| Tally { count, ..Tally::default() };
    row::decode_bare(&row).or_else(|| row::decode_bare(&row).map(of_count))
}

/// The generation of a keyspace by the state, and whether its keys belong to slots; `None`: there
/// is no such keyspace.
pub(crate) fn look(state: &impl Read, id: KeyspaceId) -> Result<Option<(u64, bool)>, MachineError> {
    match state.get(&tables::of_keyspace(tables::KEYSPACES, id))? {
        Some(row) => match decode_row(row) {
            Some((generation, keyspace)) => Ok(Some((generation, keyspace.spec.is_global()))),
            None => Err(MachineError::Damaged { table: tables::KEYSPACES as char }),
        },
        None => Ok((id == KeyspaceId::DEFAULT).then_some((0, false))),
    }
}

/// Whether groups of a keyspace may be lent, by the state.
pub(crate) fn lends(state: &impl Read, id: KeyspaceId) -> Result<bool, MachineError> {
    let Some(row) = state.get(&tables::of_keyspace(tables::KEYSPACES, id))? else {
        return Ok(false);
    };
    let damaged = MachineError::Damaged { table: tables::KEYSPACES as char };
    Ok(decode_row(row).ok_or(damaged)?.1.spec.lends())
}

fn decode_row(row: Bytes) -> Option<(u64, Keyspace)> {
    let (generation, row::Rest(keyspace)) = row::decode(&row)?;
    Some((generation, decode_keyspace(keyspace).ok()?))
}

impl<S: State, M: ModeState> Applying<'_, S, M> {
    pub(crate) fn create_keyspace(&mut self, spec: &KeyspaceSpec) -> Result<Answer, Stopped> {
        spec.check().map_err(Refusal::from)?;
        if let Some(answer) = M::create_keyspace(self, spec)? {
            return Ok(answer);
        }
        let spaces = &self.known.keyspaces.spaces;
        let taken = |space: &&Space| {
            let there = &space.keyspace.spec;
            there.name == spec.name || there.prefix == spec.prefix
        };
        if let Some(space) = spaces.values().find(taken) {
            let name = space.keyspace.spec.name.clone();
            return Err(Refusal::KeyspaceExists { name }.into());
        }
        if spaces.len() >= limits::KEYSPACES_MAX {
            let max = limits::KEYSPACES_MAX;
            return Err(Refusal::TooMany { what: "keyspaces", max }.into());
        }
        let id = KeyspaceId(self.known.head.keyspace_next);
        self.known.head.keyspace_next += 1;
        let keyspace = Keyspace { id, spec: spec.clone() };
        self.add_keyspace(keyspace.clone())?;
        Ok(Answer::Keyspace(Box::new(keyspace)))
    }

    /// A keyspace that is agreed on begins here, empty.
    pub(crate) fn add_keyspace(&mut self, keyspace: Keyspace) -> Result<(), Stopped> {
        let id = keyspace.id;
        let is_global = keyspace.spec.is_global();
        let generation = self.next_generation();
        let keyspaces = &mut self.known.keyspaces;
        keyspaces.spaces.insert(id, Space { keyspace, generation, tally: Tally::default() });
        keyspaces.owners.insert(generation, id);
        self.write_keyspace(id);
        if is_global {
            M::keyspace_begins(self, id)?;
        }
        Ok(())
    }

    /// The names of a keyspace, its placement and its rules are as they are agreed on. What was lent
    /// while it was adaptive here stays known.
    pub(crate) fn follow_agreed(&mut self, id: KeyspaceId, agreed: &KeyspaceSpec) {
        let Some(space) = self.known.keyspaces.spaces.get_mut(&id) else { return };
        let spec = &mut space.keyspace.spec;
        let mut altered = spec.with_placement(agreed.placement);
        altered.name.clone_from(&agreed.name);
        altered.prefix.clone_from(&agreed.prefix);
        altered.was_adaptive |= agreed.was_adaptive;
        altered.lend_to.clone_from(&agreed.lend_to);
        altered.priority = agreed.priority;
        if *spec != altered {
            *spec = altered;
            self.write_keyspace(id);
        }
    }

    /// Groups of a keyspace are at other sites, whatever its placement is by what is known here.
    pub(crate) fn mark_lent(&mut self, id: KeyspaceId) {
        let Some(space) = self.known.keyspaces.spaces.get_mut(&id) else { return };
        let spec = &mut space.keyspace.spec;
        if spec.is_global() && !spec.lends() {
            spec.was_adaptive = true;
            self.write_keyspace(id);
        }
    }

    pub(crate) fn drop_keyspace(&mut self, name: &str) -> Result<Answer, Stopped> {
        if let Some(answer) = M::drop_keyspace(self, name)? {
            return Ok(answer);
        }
        let spaces = &self.known.keyspaces.spaces;
        let found = spaces.values().find(|space| space.keyspace.spec.name == name);
        let id = match found {
            Some(space) => space.keyspace.id,
            None => return Err(Refusal::NoKeyspace(name.to_string()).into()),
        };
        if id == KeyspaceId::DEFAULT {
            return Err(Refusal::DefaultKeyspace.into());
        }
        self.remove_keyspace(id);
        Ok(Answer::Done(self.known.head.revision))
    }

    /// A keyspace ends here, with all it holds.
    pub(crate) fn remove_keyspace(&mut self, id: KeyspaceId) {
        M::keyspace_ends(self, id);
        let keyspaces = &mut self.known.keyspaces;
        let Some(space) = keyspaces.spaces.remove(&id) else { return };
        keyspaces.owners.remove(&space.generation);
        keyspaces.recounted.remove(&id);
        keyspaces.changed = true;
        // What a mode keeps of keys that are absent is not counted.
        if space.tally.count > 0 || M::owns_writes(&space.keyspace.spec) {
            self.discard(space.generation);
        }
        self.overlay.remove(tables::of_keyspace(tables::KEYSPACES, id));
        self.overlay.remove(tables::of_keyspace(tables::COUNTS, id));
        self.drop_cursors(id);
    }

    /// Removes every key of a keyspace; of a global one, those of the slots that are served here.
    pub(crate) fn clear(&mut self, id: KeyspaceId) -> Result<(), Refusal> {
        M::check_clear(self, id)?;
        if self.known.keyspaces.is_global(id) {
            M::clear(self, id);
            let cleared = self.known.head.revision;
            let keyspaces = &mut self.known.keyspaces;
            let space = keyspaces.spaces.get_mut(&id).expect("a global keyspace is there");
            space.tally.cleared = cleared;
            keyspaces.recounted.insert(id);
        } else if self.known.keyspaces.count(id) > 0 {
            let generation = self.next_generation();
            let keyspaces = &mut self.known.keyspaces;
            let space = keyspaces.spaces.get_mut(&id).expect("a keyspace with keys is there");
            let old = std::mem::replace(&mut space.generation, generation);
            space.tally.count = 0;
            space.tally.cleared = space.tally.created;
            keyspaces.recounted.insert(id);
            keyspaces.owners.remove(&old);
            keyspaces.owners.insert(generation, id);
            self.discard(old);
            self.write_keyspace(id);
        }
        self.log_change(id, b"", ChangeKind::Clear);
        Ok(())
    }

    /// A keyspace has other records from here on, which lie under a generation of their own. To
    /// watchers it is cleared: they have to look at it anew.
    pub(crate) fn replace_records(&mut self, id: KeyspaceId, generation: u64, count: u64) {
        let revision = self.known.head.revision;
        let keyspaces = &mut self.known.keyspaces;
        let Some(space) = keyspaces.spaces.get_mut(&id) else { return };
        let old = std::mem::replace(&mut space.generation, generation);
        space.tally = Tally { count, created: revision, cleared: revision };
        keyspaces.recounted.insert(id);
        keyspaces.owners.remove(&old);
        keyspaces.owners.insert(generation, id);
        self.discard(old);
        self.write_keyspace(id);
        self.log_change(id, b"", ChangeKind::Clear);
    }

    /// Clears every keyspace, or all whose writes are the machine's own to apply.
    pub(crate) fn clear_all(&mut self, of_modes: bool) -> Result<(), Refusal> {
        let all = self.known.keyspaces.spaces.iter();
        let all = all.filter(|(_, space)| of_modes || !M::owns_writes(&space.keyspace.spec));
        let ids: Vec<_> = all.map(|(id, _)| *id).collect();
        // All are cleared, or none.
        for id in &ids {
            M::check_clear(self, *id)?;
        }
        let (globals, others): (Vec<_>, Vec<_>) =
            ids.into_iter().partition(|id| self.known.keyspaces.is_global(*id));
        for id in globals.into_iter().chain(others) {
            self.clear(id)?;
        }
        Ok(())
    }

    /// Removes records of cleared generations, with their expiries, up to a tick's share.
    pub(crate) fn collect_garbage(&mut self) -> Result<(), MachineError> {
        let mut records_left = limits::GARBAGE_PER_TICK_MAX;
        let mut bytes_left = limits::GARBAGE_BYTES_PER_TICK_MAX;
        while let Some(&generation) = self.known.keyspaces.garbage.first() {
            let (first, until) = tables::records(generation);
            let gone = self.known.keyspaces.garbage_gone.take();
            let gone = gone.filter(|(of, _)| *of == generation).map(|(_, key)| key);
            let from = gone.as_ref().map_or(&first[..], |key| &key[..]);
            let mut found = Vec::new();
            let mut more = false;
            self.overlay.scan(from, Some(&until), &mut |key, row| {
                more = records_left == 0 || bytes_left == 0;
                if more {
                    return false;
                }
                records_left -= 1;
                bytes_left = bytes_left.saturating_sub(key.len() + row.len());
                found.push((key, row));
                true
            })?;
            if let Some((last, _)) = found.last().filter(|_| more) {
                self.known.keyspaces.garbage_gone = Some((generation, last.clone()));
            }
            let prefix_bytes = tables::record_prefix_bytes(generation);
            for (key, row) in found {
                let record = Record::decode_head(&row)?;
                let name = &key[prefix_bytes..];
                if let Some(expiry) = record.agreed() {
                    M::forget_expiry(self, expiry.ms, generation, name)?;
                } else if let Some(ms) = record.expires_ms
                    && self.overlay.get(&tables::expiry(ms, generation, name))?.is_some()
                {
                    self.remove_expiry(ms, generation, name);
                }
                self.overlay.remove(key);
            }
            if more {
                return Ok(());
            }
            if gone.is_some() {
                // Once more from the beginning: nothing may be left.
                continue;
            }
            self.known.keyspaces.garbage.remove(&generation);
            self.overlay.remove(tables::garbage(generation));
        }
        Ok(())
    }

    /// Brings the counts that changed into the state.
    pub(crate) fn write_counts(&mut self) {
        for id in std::mem::take(&mut self.known.keyspaces.recounted) {
            let Some(space) = self.known.keyspaces.spaces.get(&id) else { continue };
            self.overlay.put(tables::of_keyspace(tables::COUNTS, id), encode_tally(space.tally));
        }
    }

    pub(crate) fn next_generation(&mut self) -> u64 {
        let generation = self.known.head.generation_next;
        self.known.head.generation_next += 1;
        generation
    }

    /// What lies under a generation has no owner from here on.
    pub(crate) fn discard(&mut self, generation: u64) {
        self.known.keyspaces.garbage.insert(generation);
        self.overlay.put(tables::garbage(generation), Bytes::new());
    }

    fn write_keyspace(&mut self, id: KeyspaceId) {
        self.known.keyspaces.changed = true;
        let space = &self.known.keyspaces.spaces[&id];
        let row = row::encode(&(space.generation, row::Rest(encode_keyspace(&space.keyspace))));
        self.overlay.put(tables::of_keyspace(tables::KEYSPACES, id), row);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tally_of_before_guards_asked_what_has_been_there_is_read() {
        assert_eq!(decode_tally(b"\x05"), Some(Tally { count: 5, ..Tally::default() }));
        let tally = Tally { count: 5, created: Revision(300), cleared: Revision(2) };
        assert_eq!(encode_tally(tally), b"\x05\xac\x02\x02");
        assert_eq!(decode_tally(b"\x05\xac\x02\x02"), Some(tally));
        assert_eq!(decode_tally(b"\x05\x01\x02\x03"), None);
    }
}
