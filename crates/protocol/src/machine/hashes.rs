//! Writes to hashes. A write merges its fields, sorted, with those of the record: what it costs
//! grows with the size of the hash and of the command, never with their product.

use super::apply::Applying;
use super::keys::{Cell, Place, check_value};
use super::modes::ModeState;
use super::records::{Field, fields, put_field};
use super::{MachineError, Stopped, integer};
use model::{Answer, Bytes, ChangeKind, Kind, Refusal};
use std::collections::{BTreeMap, BTreeSet};
use storage::state::State;

/// The payload of a hash after a write, and how many fields the write made.
pub(crate) struct Merged {
    pub(crate) payload: Vec<u8>,
    pub(crate) made: usize,
}

/// Sets fields in a hash's payload.
pub(crate) fn merge(old: &Bytes, set: &BTreeMap<&[u8], &[u8]>) -> Result<Merged, MachineError> {
    let set_bytes: usize = set.iter().map(|(name, value)| name.len() + value.len() + 4).sum();
    let mut payload = Vec::with_capacity(old.len() + set_bytes);
    let mut set = set.iter().peekable();
    let mut made = 0;
    for field in fields(old) {
        let field = field?;
        while let Some((name, value)) = set.next_if(|(name, _)| **name < field.name) {
            put_field(Field { name, value }, &mut payload);
            made += 1;
        }
        let value = set.next_if(|(name, _)| **name == field.name).map_or(field.value, |(_, v)| v);
        put_field(Field { name: field.name, value }, &mut payload);
    }
    for (name, value) in set {
        put_field(Field { name, value }, &mut payload);
        made += 1;
    }
    Ok(Merged { payload, made })
}

/// The value of one field of a hash's payload.
pub(crate) fn find<'a>(payload: &'a Bytes, name: &[u8]) -> Result<Option<&'a [u8]>, MachineError> {
    for field in fields(payload) {
        let field = field?;
        match field.name.cmp(name) {
            std::cmp::Ordering::Less => {}
            std::cmp::Ordering::Equal => return Ok(Some(field.value)),
            std::cmp::Ordering::Greater => break,
        }
    }
    Ok(None)
}

impl<S: State, M: ModeState> Applying<'_, S, M> {
    pub(crate) fn hash_set(
        &mut self,
        place: Place,
        key: &[u8],
        set: &[(Bytes, Bytes)],
    ) -> Result<Answer, Stopped> {
        let cell = self.cell(place, key)?;
        let old = cell.payload(Kind::Hash)?.unwrap_or_default();
        // Of a field that is named twice the last value stays.
        let set = set.iter().map(|(name, value)| (&name[..], &value[..])).collect();
        let merged = merge(&old, &set)?;
        if !set.is_empty() {
            self.store_hash(cell, &merged.payload, ChangeKind::HashSet)?;
        }
        Ok(Answer::Integer(merged.made as i64))
    }

    pub(crate) fn hash_set_if_absent(
        &mut self,
        place: Place,
        key: &[u8],
        name: &[u8],
        value: &[u8],
    ) -> Result<Answer, Stopped> {
        let cell = self.cell(place, key)?;
        let old = cell.payload(Kind::Hash)?.unwrap_or_default();
        if find(&old, name)?.is_some() {
            return Ok(Answer::Flag(false));
        }
        let merged = merge(&old, &BTreeMap::from([(name, value)]))?;
        self.store_hash(cell, &merged.payload, ChangeKind::HashSet)?;
        Ok(Answer::Flag(true))
    }

    pub(crate) fn hash_delete(
        &mut self,
        place: Place,
        key: &[u8],
        names: &[Bytes],
    ) -> Result<Answer, Stopped> {
        let mut cell = self.cell(place, key)?;
        let Some(old) = cell.payload(Kind::Hash)? else { return Ok(Answer::Integer(0)) };
        let names: BTreeSet<&[u8]> = names.iter().map(|name| &name[..]).collect();
        let mut payload = Vec::with_capacity(old.len());
        let mut removed = 0;
        for field in fields(&old) {
            let field = field?;
            if names.contains(field.name) {
                removed += 1;
            } else {
                put_field(field, &mut payload);
            }
        }
        if removed > 0 {
            self.store_hash(cell, &payload, ChangeKind::HashDelete)?;
            if payload.is_empty() {
                cell = self.cell(place, key)?;
                self.erase(&mut cell, ChangeKind::Delete);
            }
        }
        Ok(Answer::Integer(removed))
    }

    pub(crate) fn hash_add(
        &mut self,
        place: Place,
        key: &[u8],
        name: &[u8],
        delta: i64,
    ) -> Result<Answer, Stopped> {
        let cell = self.cell(place, key)?;
        let payload = cell.payload(Kind::Hash)?.unwrap_or_default();
        let old = match find(&payload, name)? {
            Some(text) => integer::parse(text).ok_or(Refusal::NotAnInteger)?,
            None => 0,
        };
        let sum = old.checked_add(delta).ok_or(Refusal::Overflow)?;
        let text = sum.to_string();
        let merged = merge(&payload, &BTreeMap::from([(name, text.as_bytes())]))?;
        self.store_hash(cell, &merged.payload, ChangeKind::HashAdd)?;
        Ok(Answer::Integer(sum))
    }

    /// Writes a hash, which keeps its expiry.
    fn store_hash(
        &mut self,
        cell: Cell,
        payload: &[u8],
        change: ChangeKind,
    ) -> Result<(), Stopped> {
        check_value(payload.len())?;
        let expires_ms = cell.expires_ms();
        self.store(cell, Kind::Hash, expires_ms, &[payload], change);
        Ok(())
    }
}
