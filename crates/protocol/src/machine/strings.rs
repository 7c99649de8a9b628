//! Writes to strings.

use super::apply::Applying;
use super::keys::{Place, check_key, check_value};
use super::modes::ModeState;
use super::trial::Bug;
use super::{Stopped, integer};
use model::{
    Answer, Bytes, ChangeKind, Condition, Expiry, ExpiryCondition, Kind, Refusal, Revision,
    Versioned,
};
use storage::state::State;

/// A put without its key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Put<'a> {
    pub(crate) value: &'a [u8],
    pub(crate) condition: Condition,
    pub(crate) expiry: Expiry,
    pub(crate) return_old: bool,
}

impl<S: State, M: ModeState> Applying<'_, S, M> {
    pub(crate) fn put(
        &mut self,
        place: Place,
        key: &[u8],
        put: Put<'_>,
    ) -> Result<Answer, Stopped> {
        check_value(put.value.len())?;
        let (cell, old) = if put.return_old {
            let cell = self.cell(place, key)?;
            let old = cell.payload(Kind::String)?;
            (cell, old)
        } else {
            (self.cell_unread(place, key)?, None)
        };
        self.charge(old.as_ref().map_or(0, Bytes::len))?;
        let version = cell.version();
        let holds = match put.condition {
            Condition::Always => true,
            Condition::IfAbsent => cell.record.is_none(),
            Condition::IfPresent => cell.record.is_some(),
            Condition::IfVersion(expected) => version == expected,
        };
        if !holds && !self.is_struck_by(Bug::IgnoreCondition) {
            return Ok(Answer::Put { applied: false, version, old });
        }
        let expires_ms = self.moment(put.expiry, cell.expires_ms());
        let version = self.store(cell, Kind::String, expires_ms, &[put.value], ChangeKind::Put);
        Ok(Answer::Put { applied: true, version, old })
    }

    pub(crate) fn put_many(
        &mut self,
        place: Place,
        pairs: &[(Bytes, Bytes)],
        if_all_absent: bool,
    ) -> Result<Answer, Stopped> {
        for (key, value) in pairs {
            check_key(key)?;
            check_value(value.len())?;
        }
        if if_all_absent {
            for (key, _) in pairs {
                if self.cell_unread(place, key)?.record.is_some() {
                    return Ok(Answer::Flag(false));
                }
            }
        }
        let is_torn = pairs.len() > 1 && self.is_struck_by(Bug::TearTogether);
        for (key, value) in &pairs[..pairs.len() - usize::from(is_torn)] {
            let cell = self.cell_unread(place, key)?;
            self.store(cell, Kind::String, None, &[value], ChangeKind::Put);
        }
        Ok(Answer::Flag(true))
    }

    pub(crate) fn append(
        &mut self,
        place: Place,
        key: &[u8],
        suffix: &[u8],
    ) -> Result<Answer, Stopped> {
        let cell = self.cell(place, key)?;
        let old = cell.payload(Kind::String)?.unwrap_or_default();
        let len = old.len() + suffix.len();
        check_value(len)?;
        let expires_ms = cell.expires_ms();
        self.store(cell, Kind::String, expires_ms, &[&old, suffix], ChangeKind::Append);
        Ok(Answer::Integer(len as i64))
    }

    pub(crate) fn add(&mut self, place: Place, key: &[u8], delta: i64) -> Result<Answer, Stopped> {
        let cell = self.cell(place, key)?;
        let old = match cell.payload(Kind::String)? {
            Some(text) => integer::parse(&text).ok_or(Refusal::NotAnInteger)?,
            None => 0,
        };
        let sum = old.checked_add(delta).ok_or(Refusal::Overflow)?;
        let expires_ms = cell.expires_ms();
        let text = sum.to_string();
        self.store(cell, Kind::String, expires_ms, &[text.as_bytes()], ChangeKind::Add);
        Ok(Answer::Integer(sum))
    }

    pub(crate) fn delete(&mut self, place: Place, keys: &[Bytes]) -> Result<Answer, Stopped> {
        for key in keys {
            check_key(key)?;
        }
        let mut removed = 0;
        for key in keys {
            let mut cell = self.cell_unread(place, key)?;
            if self.is_struck_by(Bug::ForgetTombstone) {
                removed += 1;
                continue;
            }
            removed += i64::from(self.erase(&mut cell, ChangeKind::Delete));
        }
        Ok(Answer::Integer(removed))
    }

    pub(crate) fn delete_if(
        &mut self,
        place: Place,
        key: &[u8],
        version: Revision,
    ) -> Result<Answer, Stopped> {
        let mut cell = self.cell_unread(place, key)?;
        let holds = cell.version() == version;
        Ok(Answer::Flag(holds && self.erase(&mut cell, ChangeKind::Delete)))
    }

    pub(crate) fn get_and_expire(
        &mut self,
        place: Place,
        key: &[u8],
        expiry: Expiry,
    ) -> Result<Answer, Stopped> {
        let cell = self.cell(place, key)?;
        let version = cell.version();
        let Some(value) = cell.payload(Kind::String)? else { return Ok(Answer::Value(None)) };
        self.charge(value.len())?;
        self.set_expiry(place, key, expiry, ExpiryCondition::Always)?;
        Ok(Answer::Value(Some(Versioned { value, version })))
    }

    pub(crate) fn take(&mut self, place: Place, key: &[u8]) -> Result<Answer, Stopped> {
        let mut cell = self.cell(place, key)?;
        let version = cell.version();
        let Some(value) = cell.payload(Kind::String)? else { return Ok(Answer::Value(None)) };
        self.charge(value.len())?;
        self.erase(&mut cell, ChangeKind::Delete);
        Ok(Answer::Value(Some(Versioned { value, version })))
    }
}
