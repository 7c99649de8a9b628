//! A request of this site: its effects change the records at once, and wait as one write for the
//! order.
//!
//! A transaction is one write. What its steps read is what the records show; what they are answered
//! does not matter to other sites. A step that is refused does not undo the others, as everywhere.
//!
//! What depends on the value that it overwrites is refused, unless the keyspace has `rmw` local:
//! then it is decided here, and its result is an assignment (`decided`).

use super::super::Applying;
use super::super::keys::Place;
use super::assign::Source;
use super::effects::effects_of;
use super::registers::Pending;
use super::{NOT_HELD, Stopped, rows};
use crate::machine::apply::split;
use model::{
    Answer, Bytes, CausalWrite, Effect, Guard, KeyspaceId, KeyspaceSpec, Kind, Refusal, Rmw, Step,
    Versioned, Write, limits,
};
use storage::state::State;
use wire::entry::encode_causal_write;

impl<S: State> Applying<'_, S> {
    /// A write to a causal keyspace.
    pub(in crate::site::machine) fn causal_write(
        &mut self,
        keyspace: KeyspaceId,
        write: &Write,
    ) -> Result<Answer, Stopped> {
        let place = self.causal_begin(keyspace)?;
        self.check_held(keyspace, write.keys())?;
        let mut effects = Vec::new();
        let outcome = self.causal_step(place, write, &mut effects);
        self.causal_commit(keyspace, effects);
        outcome
    }

    /// A transaction in a causal keyspace.
    pub(in crate::site::machine) fn causal_transaction(
        &mut self,
        keyspace: KeyspaceId,
        guards: &[Guard],
        steps: &[Step],
    ) -> Result<Answer, Stopped> {
        let place = self.causal_begin(keyspace)?;
        if !guards.is_empty() && !self.decides_here(place) {
            return Err(Refusal::NotCausal("watch keys unless its rmw is local").into());
        }
        if steps.len().max(guards.len()) > limits::TRANSACTION_STEPS_MAX {
            let max = limits::TRANSACTION_STEPS_MAX;
            return Err(Refusal::TooMany { what: "steps of one transaction", max }.into());
        }
        self.check_steps_held(keyspace, guards, steps)?;
        if !self.guards_hold(place, guards)? {
            return Ok(Answer::Aborted);
        }
        let mut effects = Vec::new();
        let mut outcomes = Vec::with_capacity(steps.len());
        for step in steps {
            outcomes.push(split(match step {
                Step::Read(query) => self.read(keyspace, query),
                Step::Write(write) => self.causal_step(place, write, &mut effects),
                Step::ReadIn { keyspace, query } => self.read_in(*keyspace, query),
            })?);
        }
        self.causal_commit(keyspace, effects);
        Ok(Answer::Steps(outcomes))
    }

    /// A transaction is about keys that are held, or is not carried out here.
    fn check_steps_held(
        &self,
        keyspace: KeyspaceId,
        guards: &[Guard],
        steps: &[Step],
    ) -> Result<(), Refusal> {
        let is_broad = |step: &Step| matches!(step, Step::Read(query) if query.keys().is_empty());
        if self.is_on_demand(keyspace) && steps.iter().any(is_broad) {
            return Err(NOT_HELD);
        }
        self.check_held(keyspace, guards.iter().map(|guard| &guard.key))?;
        self.check_held(keyspace, steps.iter().flat_map(Step::keys))
    }

    /// Where a write works, if there may be one.
    pub(super) fn causal_begin(&mut self, keyspace: KeyspaceId) -> Result<Place, Stopped> {
        let member = self.member()?;
        if member.registry.site(member.own).is_none_or(|site| site.leaving) {
            // What is written until the site is gone would never be ordered.
            return Err(Refusal::Leaving.into());
        }
        self.check_confirmed()?;
        let waiting = self.modes.causal.unordered_bytes;
        if waiting >= limits::CAUSAL_UNORDERED_BYTES_MAX {
            return Err(Refusal::Unordered(waiting).into());
        }
        match self.causal_place(keyspace) {
            Some(place) => Ok(place),
            None if self.known.keyspaces.spec(keyspace).is_some() => Err(NOT_HELD.into()),
            None => Err(Refusal::NoKeyspace(keyspace.to_string()).into()),
        }
    }

    pub(super) fn causal_step(
        &mut self,
        place: Place,
        write: &Write,
        effects: &mut Vec<Effect>,
    ) -> Result<Answer, Stopped> {
        if self.decides_here(place)
            && let Some((own, answer)) = self.decided(place, write)?
        {
            for effect in &own {
                self.assign_own(place, effect)?;
            }
            effects.extend(own);
            return Ok(answer);
        }
        let mut own = effects_of(write, self.known.head.log_time_ms)?;
        if let Write::HashSet { key, .. } | Write::HashDelete { key, .. } = write {
            // Of the site's own view only: elsewhere it may be a hash by then.
            let cell = self.cell_unread(place, key)?;
            if cell.record.is_some_and(|record| record.kind != Kind::Hash) {
                return Err(Refusal::WrongType.into());
            }
        }
        let answer = match write {
            Write::SetExpiry { key, .. } => {
                let cell = self.cell_unread(place, key)?;
                let clears = matches!(own[..], [Effect::SetExpiry { at_ms: None, .. }]);
                // What is not there expires not, and no expiry is nothing to clear.
                if cell.record.is_none() || (clears && cell.expiry.is_none()) {
                    own.clear();
                }
                Some(Answer::Flag(!own.is_empty()))
            }
            Write::GetAndExpire { key, .. } => {
                let cell = self.cell(place, key)?;
                let (value, version) = (cell.payload(Kind::String)?, cell.version());
                self.charge(value.as_ref().map_or(0, Bytes::len))?;
                if value.is_none() {
                    own.clear();
                }
                Some(Answer::Value(value.map(|value| Versioned { value, version })))
            }
            _ => None,
        };
        let mut counted = 0;
        for effect in &own {
            counted += self.assign_own(place, effect)?;
        }
        if let Write::HashDelete { key, .. } = write {
            own.extend(self.forget_expiry_of_none(place, key)?);
        }
        effects.extend(own);
        if let Some(answer) = answer {
            return Ok(answer);
        }
        Ok(match write {
            Write::Put { .. } => {
                let version = self.known.head.revision;
                Answer::Put { applied: true, version, old: None }
            }
            Write::PutMany { .. } => Answer::Flag(true),
            _ => Answer::Integer(counted),
        })
    }

    fn assign_own(&mut self, place: Place, effect: &Effect) -> Result<i64, Stopped> {
        let of = (self.member()?.own, self.known.head.revision);
        self.assign(place, effect, of, Source::Own)
    }

    /// A hash whose last field has gone here does not leave its expiry to the next one of that
    /// name.
    fn forget_expiry_of_none(
        &mut self,
        place: Place,
        key: &Bytes,
    ) -> Result<Option<Effect>, Stopped> {
        let cell = self.cell_unread(place, key)?;
        if cell.record.is_some() || cell.expiry.is_none() {
            return Ok(None);
        }
        let clear = Effect::SetExpiry { key: key.clone(), at_ms: None };
        self.assign_own(place, &clear)?;
        Ok(Some(clear))
    }

    /// Whether writes may depend on what they overwrite.
    fn decides_here(&self, place: Place) -> bool {
        let spec = self.known.keyspaces.spec(place.keyspace);
        spec.is_some_and(|spec| spec.rmw == Rmw::Local)
    }

    /// What was assigned waits for the order as one write.
    pub(super) fn causal_commit(&mut self, keyspace: KeyspaceId, effects: Vec<Effect>) {
        if effects.is_empty() {
            return;
        }
        let causal = &mut self.modes.causal;
        let revision = self.known.head.revision;
        let write = CausalWrite { revision, seen: causal.head.applied, keyspace, effects };
        causal.head.last = revision;
        causal.is_dirty = true;
        Pending::note(&mut causal.pending, &write);
        causal.retries.note_own(&write);
        let row = encode_causal_write(&write);
        causal.unordered_bytes += row.len() as u64;
        causal.unordered += 1;
        causal.oldest_own.get_or_insert(revision);
        self.overlay.put(rows::of_unordered(revision), row);
    }
}

/// Whether the writes of such a keyspace are applied here.
pub(in crate::site::machine) fn owns_writes(spec: &KeyspaceSpec) -> bool {
    spec.is_causal()
}
