//! An assignment to the record of a key: the one place where effects become records, for own writes
//! and for those of other sites.
//!
//! A record shows either a string or a hash, as an assignment of the one makes the other absent.
//! What another site assigns shows on the registers on which no own write is pending; so what is
//! left of it may be less than all, and a hash may have fields of several writes. The expiry is a
//! register like the others: it may be there without a key (`expires`).

use super::super::Applying;
use super::super::keys::{Place, check_value};
use super::super::records::{Agreed, Field, Record, fields, put_field};
use super::bridging::Keeps;
use super::{MachineError, Pending, Stopped};
use crate::bugs::Bug;
use crate::machine::hashes::merge;
use crate::machine::records::SEVERAL;
use model::{
    Bytes, ChangeKind, Effect, KeyspaceId, KeyspaceSpec, Kind, Position, Revision, SiteId,
};
use std::borrow::Cow;
use std::collections::BTreeSet;
use storage::state::State;

/// Where an assignment comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source<'a> {
    /// This site: it lies on top of all.
    Own,
    /// Another site: it lies under what is pending here, and leaves these registers as they are.
    Other(Position, &'a Keeps<'a>),
}

impl<S: State> Applying<'_, S> {
    /// Assigns what a write of a site does. Answers with how many keys or fields there are more or
    /// less, as clients count them.
    pub(super) fn assign(
        &mut self,
        place: Place,
        effect: &Effect,
        of: (SiteId, Revision),
        source: Source<'_>,
    ) -> Result<i64, Stopped> {
        let counted = self.assign_registers(place, effect, of, source)?;
        match effect.key() {
            Some(key) => self.weigh(place, key)?,
            None if *effect == Effect::Clear => self.weigh_all(place.keyspace)?,
            None => {}
        }
        Ok(counted)
    }

    fn assign_registers(
        &mut self,
        place: Place,
        effect: &Effect,
        of: (SiteId, Revision),
        source: Source<'_>,
    ) -> Result<i64, Stopped> {
        if effect.is_mark() {
            return Ok(0);
        }
        let Some(key) = effect.key() else {
            let none = Keeps::new();
            self.clear_ordered(
                place,
                if let Source::Other(_, keeps) = source { keeps } else { &none },
            )?;
            return Ok(0);
        };
        let (pending, position) = match source {
            Source::Own => (Pending::default(), 0),
            Source::Other(position, keeps) => {
                let pending = match self.modes.planted.is(Bug::ImportOverPending) {
                    true => Pending::default(),
                    false => self.pending_of(place, key),
                };
                (pending.and(keeps.get(key).copied()), position.0)
            }
        };
        if pending.has_values() && pending.has_expiry() {
            return Ok(0);
        }
        let mut cell = match assigns_all(effect) && pending == Pending::default() {
            true => self.cell_unread(place, key)?,
            false => self.cell(place, key)?,
        };
        // The value may be of one write, and the expiry of another one.
        let is_hidden = pending.has_string() || pending.has_expiry();
        let is_of_several = source != Source::Own && is_hidden;
        cell.position = if is_of_several { SEVERAL } else { position };
        let old = cell.expiry;
        let expiry = expiry_after(old, effect, of, &pending);
        let Assigned { counted, becomes } = assigned(cell.record.as_ref(), effect, &pending)?;
        match (becomes, cell.record.as_ref()) {
            (Becomes::Same, _) if expiry == old => return Ok(counted),
            (Becomes::Same, Some(record)) => {
                let (kind, payload) = (record.kind, record.payload.clone());
                let change = match expiry {
                    Some(_) => ChangeKind::SetExpiry,
                    None => ChangeKind::ClearExpiry,
                };
                self.store_agreed(cell, kind, &payload, expiry, change);
            }
            // Of an absent key only the expiry may change.
            (Becomes::Same, None) => drop(self.erase_agreed(cell, expiry, ChangeKind::Delete)),
            (Becomes::Absent(change), _) => drop(self.erase_agreed(cell, expiry, change)),
            (Becomes::Record(kind, payload, change), _) => {
                if source == Source::Own && kind == Kind::Hash {
                    check_value(payload.len())?;
                }
                self.store_agreed(cell, kind, &payload, expiry, change);
            }
        }
        self.move_expiry(place.generation, key, old, expiry)?;
        Ok(counted)
    }

    pub(super) fn pending_of(&self, place: Place, key: &Bytes) -> Pending {
        let pending = self.modes.causal.pending.get(&(place.keyspace, key.clone()));
        pending.cloned().unwrap_or_default()
    }

    /// Where the keys of a causal keyspace lie, or those that are held on demand; `None`: it was
    /// dropped here, or is not held.
    pub(in crate::site::machine) fn causal_place(&self, keyspace: KeyspaceId) -> Option<Place> {
        let keyspaces = &self.known.keyspaces;
        let own = self.member().ok()?.own;
        let is_here = |spec: &KeyspaceSpec| {
            spec.is_causal() && (spec.is_held_by(own) || spec.on_demand_at(own).is_some())
        };
        let is_here = keyspaces.spec(keyspace).is_some_and(is_here);
        let generation = keyspaces.generation(keyspace).filter(|_| is_here)?;
        Some(Place { keyspace, slot: None, generation })
    }
}

/// What an assignment makes of a key.
pub(super) struct Assigned<'a> {
    /// How many keys or fields there are more or less, as clients count them.
    pub(super) counted: i64,
    pub(super) becomes: Becomes<'a>,
}

/// What becomes of a key's record.
pub(super) enum Becomes<'a> {
    Same,
    Absent(ChangeKind),
    Record(Kind, Cow<'a, [u8]>, ChangeKind),
}

/// What an assignment makes of a record, under what is pending on its key. Of what assigns the
/// whole key only whether there is one is looked at, if nothing is pending.
pub(super) fn assigned<'a>(
    old: Option<&Record>,
    effect: &'a Effect,
    pending: &Pending,
) -> Result<Assigned<'a>, MachineError> {
    match effect {
        Effect::SetExpiry { .. } | Effect::Clear | Effect::Mark(_) => {
            Ok(Assigned { counted: 0, becomes: Becomes::Same })
        }
        _ if pending.has_values() => Ok(Assigned { counted: 0, becomes: Becomes::Same }),
        Effect::Put { value, .. } | Effect::Replace { value, .. } if !pending.has_string() => {
            let becomes = Becomes::Record(Kind::String, Cow::Borrowed(&value[..]), ChangeKind::Put);
            Ok(Assigned { counted: 0, becomes })
        }
        Effect::Delete { .. } | Effect::Expire { .. } if pending.has_no_value() => {
            let becomes = Becomes::Absent(removal(effect));
            Ok(Assigned { counted: i64::from(old.is_some()), becomes })
        }
        // What is to stay is the string.
        Effect::Delete { .. } | Effect::Expire { .. }
            if pending.has_string() && old.is_some_and(|old| old.kind == Kind::String) =>
        {
            Ok(Assigned { counted: 0, becomes: Becomes::Same })
        }
        Effect::Put { .. }
        | Effect::Replace { .. }
        | Effect::Delete { .. }
        | Effect::Expire { .. } => {
            keep_fields(old, removal(effect), |name| pending.has_field(name))
        }
        Effect::SetFields { fields, .. } => {
            let free = fields.iter().filter(|(name, _)| !pending.has_field(name));
            let set = free.map(|(name, value)| (&name[..], &value[..])).collect();
            let merged = merge(&hash_of(old), &set)?;
            let becomes = match (merged.payload.is_empty(), set.is_empty()) {
                (true, _) => Becomes::Absent(ChangeKind::Delete),
                (false, true) => Becomes::Same,
                (false, false) => {
                    Becomes::Record(Kind::Hash, merged.payload.into(), ChangeKind::HashSet)
                }
            };
            Ok(Assigned { counted: merged.made as i64, becomes })
        }
        Effect::DeleteFields { fields, .. } => {
            if old.is_none_or(|record| record.kind != Kind::Hash) {
                return Ok(Assigned { counted: 0, becomes: Becomes::Same });
            }
            let free = fields.iter().filter(|name| !pending.has_field(name));
            let names: BTreeSet<&[u8]> = free.map(|name| &name[..]).collect();
            keep_fields(old, ChangeKind::HashDelete, |name| !names.contains(name))
        }
    }
}

/// Whether an effect leaves nothing of what was there.
fn assigns_all(effect: &Effect) -> bool {
    matches!(effect, Effect::Put { .. } | Effect::Delete { .. } | Effect::Expire { .. })
}

fn removal(effect: &Effect) -> ChangeKind {
    match effect {
        Effect::Expire { .. } => ChangeKind::Expire,
        _ => ChangeKind::Delete,
    }
}

/// What an assignment of a write makes of a key's expiry, under what is pending on it.
pub(super) fn expiry_after(
    old: Option<Agreed>,
    effect: &Effect,
    of: (SiteId, Revision),
    pending: &Pending,
) -> Option<Agreed> {
    match effect {
        _ if pending.has_expiry() => old,
        Effect::SetExpiry { at_ms, .. } => at_ms.map(|ms| Agreed { ms, of }),
        effect if assigns_all(effect) => None,
        _ => old,
    }
}

/// Of what the key holds only these fields stay.
fn keep_fields(
    old: Option<&Record>,
    change: ChangeKind,
    keeps: impl Fn(&[u8]) -> bool,
) -> Result<Assigned<'static>, MachineError> {
    let old = hash_of(old);
    let mut payload = Vec::with_capacity(old.len());
    let mut gone = 0;
    for field in fields(&old) {
        let field: Field<'_> = field?;
        match keeps(field.name) {
            true => put_field(field, &mut payload),
            false => gone += 1,
        }
    }
    let becomes = match (payload.is_empty(), gone) {
        (true, _) => Becomes::Absent(change),
        (false, 0) => Becomes::Same,
        (false, _) => Becomes::Record(Kind::Hash, payload.into(), change),
    };
    Ok(Assigned { counted: gone, becomes })
}

/// The payload of a hash; empty for anything else.
fn hash_of(record: Option<&Record>) -> Bytes {
    let hash = record.filter(|record| record.kind == Kind::Hash);
    hash.map(|record| record.payload.clone()).unwrap_or_default()
}
