//! An assignment to the record of a key: the one place where effects become records, for own writes and for
//! those of other sites.
//!
//! A record shows either a string or a hash, as an assignment of the one makes the other absent. What another
//! site assigns shows on the registers on which no own write is pending; so what is left of it may be less
//! than all, and a hash may have fields of several writes.

use super::super::Applying;
use super::super::keys::{Cell, Place, check_value};
use super::super::records::{Field, fields, put_field};
use super::{Pending, Stopped};
use crate::machine::hashes::merge;
use model::{Bytes, ChangeKind, Effect, KeyspaceId, KeyspaceSpec, Kind, Position};
use std::collections::BTreeSet;
use storage::state::State;

/// Where an assignment comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// This site: it lies on top of all.
    Own,
    /// Another site: it lies under what is pending here.
    Other(Position),
}

impl<S: State> Applying<'_, S> {
    /// Assigns. Answers with how many keys or fields there are more or less, as clients count them.
    pub(super) fn assign(
        &mut self,
        place: Place,
        effect: &Effect,
        source: Source,
    ) -> Result<i64, Stopped> {
        let key = effect.key();
        let (pending, position) = match source {
            Source::Own => (Pending::default(), 0),
            Source::Other(position) => (self.pending_of(place, key), position.0),
        };
        if pending.has_all() {
            return Ok(0);
        }
        let is_whole = matches!(effect, Effect::Put { .. } | Effect::Delete { .. });
        let mut cell = match is_whole && pending == Pending::default() {
            true => self.cell_unread(place, key)?,
            false => self.cell(place, key)?,
        };
        cell.position = position;
        match effect {
            Effect::Put { value, .. } if !pending.has_string() => {
                self.store(cell, Kind::String, None, &[value], ChangeKind::Put);
                Ok(0)
            }
            Effect::Delete { .. } if pending == Pending::default() => {
                Ok(i64::from(self.erase(&mut cell, ChangeKind::Delete)))
            }
            Effect::Put { .. } | Effect::Delete { .. } => {
                self.keep_fields(cell, ChangeKind::Delete, |name| pending.has_field(name))
            }
            Effect::SetFields { fields, .. } => {
                let free = fields.iter().filter(|(name, _)| !pending.has_field(name));
                let set = free.map(|(name, value)| (&name[..], &value[..])).collect();
                let old = hash_of(&cell);
                let merged = merge(&old, &set)?;
                if merged.payload.is_empty() {
                    self.erase(&mut cell, ChangeKind::Delete);
                } else if !set.is_empty() {
                    if source == Source::Own {
                        check_value(merged.payload.len())?;
                    }
                    let payload = [&merged.payload[..]];
                    self.store(cell, Kind::Hash, None, &payload, ChangeKind::HashSet);
                }
                Ok(merged.made as i64)
            }
            Effect::DeleteFields { fields, .. } => {
                if cell.record.as_ref().is_none_or(|record| record.kind != Kind::Hash) {
                    return Ok(0);
                }
                let free = fields.iter().filter(|name| !pending.has_field(name));
                let names: BTreeSet<&[u8]> = free.map(|name| &name[..]).collect();
                self.keep_fields(cell, ChangeKind::HashDelete, |name| !names.contains(name))
            }
        }
    }

    fn pending_of(&self, place: Place, key: &Bytes) -> Pending {
        let pending = self.modes.causal.pending.get(&(place.keyspace, key.clone()));
        pending.cloned().unwrap_or_default()
    }

    /// Of what the key holds only these fields stay. Answers with how many have gone.
    fn keep_fields(
        &mut self,
        mut cell: Cell,
        change: ChangeKind,
        keeps: impl Fn(&[u8]) -> bool,
    ) -> Result<i64, Stopped> {
        let old = hash_of(&cell);
        let mut payload = Vec::with_capacity(old.len());
        let mut gone = 0;
        for field in fields(&old) {
            let field: Field<'_> = field?;
            match keeps(field.name) {
                true => put_field(field, &mut payload),
                false => gone += 1,
            }
        }
        if payload.is_empty() {
            self.erase(&mut cell, ChangeKind::Delete);
        } else if gone > 0 {
            self.store(cell, Kind::Hash, None, &[&payload], change);
        }
        Ok(gone)
    }

    /// Where the keys of a causal keyspace lie; `None`: it was dropped here.
    pub(super) fn causal_place(&self, keyspace: KeyspaceId) -> Option<Place> {
        let keyspaces = &self.known.keyspaces;
        let is_causal = keyspaces.spec(keyspace).is_some_and(KeyspaceSpec::is_causal);
        let generation = keyspaces.generation(keyspace).filter(|_| is_causal)?;
        Some(Place { keyspace, slot: None, generation })
    }
}

/// The payload of a hash; empty for anything else.
fn hash_of(cell: &Cell) -> Bytes {
    let hash = cell.record.as_ref().filter(|record| record.kind == Kind::Hash);
    hash.map(|record| record.payload.clone()).unwrap_or_default()
}
