//! Writes that depend on the value that they overwrite, where the keyspace has `rmw` local: this
//! site decides by what it shows, and what comes of it is an assignment.
//!
//! No other site is asked. Of two sites that do so at the same time one overwrites what the other
//! has made: a counter misses additions, and a key that was absent is put twice. All sites agree on
//! which one stays. What a write has read was ordered before it, or is this site's own, so that it
//! is a cause of the write as any read of its session.

use super::super::Applying;
use super::super::keys::{Place, check_key, check_value};
use super::Stopped;
use super::effects::{expiring, moment, set_expiry};
use crate::machine::expiry::holds;
use crate::machine::hashes::find;
use crate::machine::integer;
use model::{
    Answer, Bytes, Condition, Effect, Expiry, ExpiryCondition, Kind, Refusal, Revision, Versioned,
    Write,
};
use storage::state::State;

/// The assignments, and the answer.
type Decided = (Vec<Effect>, Answer);

impl<S: State> Applying<'_, S> {
    /// What becomes of such a write; `None`: it is another one.
    pub(super) fn decided(
        &mut self,
        place: Place,
        write: &Write,
    ) -> Result<Option<Decided>, Stopped> {
        Ok(Some(match write {
            Write::Put { key, value, condition, expiry, return_old }
                if *return_old || *condition != Condition::Always =>
            {
                self.decide_put(place, (key, value, *expiry), *condition, *return_old)?
            }
            Write::SetExpiry { key, expiry, condition }
                if *condition != ExpiryCondition::Always =>
            {
                let cell = self.cell_unread(place, key)?;
                let old = cell.expiry.filter(|_| cell.record.is_some()).map(|expiry| expiry.ms);
                let new = moment(*expiry, self.known.head.log_time_ms);
                let is_done = cell.record.is_some() && holds(*condition, old, new);
                let set = set_expiry(key, *expiry, self.known.head.log_time_ms);
                let set = set.filter(|_| is_done && (old.is_some() || new.is_some()));
                let is_done = set.is_some();
                (set.into_iter().collect(), Answer::Flag(is_done))
            }
            Write::PutMany { pairs, if_all_absent: true } => self.decide_absent(place, pairs)?,
            Write::Append { key, suffix } => {
                let old = self.string(place, key)?.0.unwrap_or_default();
                let len = old.len() + suffix.len();
                check_value(len)?;
                let value = [&old[..], suffix].concat().into();
                (vec![Effect::Replace { key: key.clone(), value }], Answer::Integer(len as i64))
            }
            Write::Add { key, delta } => {
                let old = self.string(place, key)?.0;
                let sum = sum(old.as_deref(), *delta)?;
                let value = sum.to_string().into();
                (vec![Effect::Replace { key: key.clone(), value }], Answer::Integer(sum))
            }
            Write::Take { key } => match self.string(place, key)? {
                (Some(value), version) => {
                    self.charge(value.len())?;
                    let effect = Effect::Delete { key: key.clone() };
                    (vec![effect], Answer::Value(Some(Versioned { value, version })))
                }
                (None, _) => (Vec::new(), Answer::Value(None)),
            },
            Write::DeleteIf { key, version } => {
                let cell = self.cell_unread(place, key)?;
                let holds = cell.record.is_some() && cell.version() == *version;
                let effect = holds.then(|| Effect::Delete { key: key.clone() });
                (effect.into_iter().collect(), Answer::Flag(holds))
            }
            Write::HashSetIfAbsent { key, field, value } => {
                let is_absent = find(&self.hash(place, key)?, field)?.is_none();
                let set = is_absent.then(|| set_field(key, field, value.clone()));
                (set.into_iter().collect(), Answer::Flag(is_absent))
            }
            Write::HashAdd { key, field, delta } => {
                let sum = sum(find(&self.hash(place, key)?, field)?, *delta)?;
                let set = set_field(key, field, sum.to_string().into());
                (vec![set], Answer::Integer(sum))
            }
            _ => return Ok(None),
        }))
    }

    fn decide_put(
        &mut self,
        place: Place,
        (key, value, expiry): (&Bytes, &Bytes, Expiry),
        condition: Condition,
        return_old: bool,
    ) -> Result<Decided, Stopped> {
        check_value(value.len())?;
        let cell = match return_old {
            true => self.cell(place, key)?,
            false => self.cell_unread(place, key)?,
        };
        let old = if return_old { cell.payload(Kind::String)? } else { None };
        self.charge(old.as_ref().map_or(0, Bytes::len))?;
        let version = cell.version();
        let applied = match condition {
            Condition::Always => true,
            Condition::IfAbsent => cell.record.is_none(),
            Condition::IfPresent => cell.record.is_some(),
            Condition::IfVersion(expected) => version == expected,
        };
        let (key, value) = (key.clone(), value.clone());
        let effects = match (applied, expiry) {
            (false, _) => Vec::new(),
            (true, Expiry::Keep) => vec![Effect::Replace { key, value }],
            (true, _) => expiring(Effect::Put { key, value }, expiry, self.known.head.log_time_ms),
        };
        let version = if applied { self.known.head.revision } else { version };
        Ok((effects, Answer::Put { applied, version, old }))
    }

    fn decide_absent(
        &mut self,
        place: Place,
        pairs: &[(Bytes, Bytes)],
    ) -> Result<Decided, Stopped> {
        let mut effects = Vec::with_capacity(pairs.len());
        let mut all_absent = true;
        for (key, value) in pairs {
            check_key(key)?;
            check_value(value.len())?;
            all_absent &= self.cell_unread(place, key)?.record.is_none();
            effects.push(Effect::Put { key: key.clone(), value: value.clone() });
        }
        if !all_absent {
            effects.clear();
        }
        Ok((effects, Answer::Flag(all_absent)))
    }

    /// A string, and its version.
    fn string(&mut self, place: Place, key: &Bytes) -> Result<(Option<Bytes>, Revision), Stopped> {
        let cell = self.cell(place, key)?;
        Ok((cell.payload(Kind::String)?, cell.version()))
    }

    /// The payload of a hash; empty: there is none.
    fn hash(&mut self, place: Place, key: &Bytes) -> Result<Bytes, Stopped> {
        Ok(self.cell(place, key)?.payload(Kind::Hash)?.unwrap_or_default())
    }
}

fn sum(old: Option<&[u8]>, delta: i64) -> Result<i64, Refusal> {
    let old = match old {
        Some(text) => integer::parse(text).ok_or(Refusal::NotAnInteger)?,
        None => 0,
    };
    old.checked_add(delta).ok_or(Refusal::Overflow)
}

fn set_field(key: &Bytes, field: &Bytes, value: Bytes) -> Effect {
    Effect::SetFields { key: key.clone(), fields: vec![(field.clone(), value)] }
}
