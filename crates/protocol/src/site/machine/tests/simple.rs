//! What the machine should do, written as simply as possible: a map, no rows, no bounds, no
//! batches.

use super::*;
use crate::machine::integer;
use model::{ChangeKind, ClientId, Expiring, ExpiryCondition, Guard, Item, Kind, Step, Versioned};
use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq)]
enum Held {
    String(Bytes),
    Hash(BTreeMap<Bytes, Bytes>),
}

#[derive(Clone, Debug)]
struct Thing {
    held: Held,
    version: Revision,
    expires_ms: Option<u64>,
}

/// A site as a map.
#[derive(Default)]
pub(super) struct Simple {
    things: BTreeMap<(KeyspaceId, Bytes), Thing>,
    outcomes: BTreeMap<(ClientId, u64), Result<Answer, Refusal>>,
    /// Up to when keys were written that are gone.
    written: BTreeMap<(KeyspaceId, Bytes), Revision>,
    /// When a key was made last, and when the last one was that went with its keyspace.
    tallies: BTreeMap<KeyspaceId, (Revision, Revision)>,
    revision: u64,
    log_time_ms: u64,
    /// Every change there ever was.
    pub(super) changes: Vec<Change>,
}

impl Simple {
    pub(super) fn entry(&mut self, batch: &Batch) -> Vec<Result<Answer, Refusal>> {
        self.log_time_ms = self.log_time_ms.max(batch.log_time_ms);
        let mut due: Vec<_> = self
            .things
            .iter()
            .filter(|(_, thing)| thing.expires_ms.is_some_and(|ms| ms <= self.log_time_ms))
            .map(|((keyspace, key), thing)| (thing.expires_ms, *keyspace, key.clone()))
            .collect();
        // Those of one moment go by generation, which this model does not know: compare sorted.
        due.sort();
        self.revision += u64::from(!due.is_empty());
        for (_, keyspace, key) in due {
            self.things.remove(&(keyspace, key.clone()));
            self.gone(keyspace, &key, Revision(self.revision));
            self.change(keyspace, &key, ChangeKind::Expire);
        }
        batch.commands.iter().map(|command| self.command(command)).collect()
    }

    fn command(&mut self, command: &Command) -> Result<Answer, Refusal> {
        let request = match command {
            Command::Write { request, .. } | Command::Transaction { request, .. } => *request,
            _ => None,
        };
        let id = request.map(|id| (id.client, id.sequence));
        if let Some(outcome) = id.and_then(|id| self.outcomes.get(&id)) {
            return outcome.clone();
        }
        let outcome = self.execute(command);
        if let Some(id) = id {
            self.outcomes.insert(id, outcome.clone());
        }
        outcome
    }

    fn execute(&mut self, command: &Command) -> Result<Answer, Refusal> {
        match command {
            Command::Write { keyspace, write, .. } => {
                self.revision += 1;
                self.write(*keyspace, write)
            }
            Command::Transaction { keyspace, guards, steps, .. } => {
                self.revision += 1;
                let holds = |guard: &Guard| {
                    self.version(*keyspace, &guard.key) == guard.version
                        && guard.absent_since.is_none_or(|point| {
                            let at = (*keyspace, guard.key.clone());
                            let written = self.written.get(&at).copied().unwrap_or_default();
                            let (_, cleared) =
                                self.tallies.get(keyspace).copied().unwrap_or_default();
                            written.max(cleared) <= point.revision
                                && point.revision.0 <= self.revision
                        })
                };
                if !guards.iter().all(holds) {
                    return Ok(Answer::Aborted);
                }
                let mut step = |step: &Step| match step {
                    Step::Read(query) => self.read(*keyspace, query),
                    Step::Write(write) => self.write(*keyspace, write),
                    Step::ReadIn { keyspace, query } => self.read(*keyspace, query),
                };
                Ok(Answer::Steps(steps.iter().map(&mut step).collect()))
            }
            Command::ClearAll => {
                self.revision += 1;
                for keyspace in [KeyspaceId(0), KeyspaceId(1)] {
                    self.clear(keyspace);
                }
                Ok(Answer::Done(Revision(self.revision)))
            }
            _ => Ok(Answer::Done(Revision(self.revision))),
        }
    }

    fn change(&mut self, keyspace: KeyspaceId, key: &Bytes, kind: ChangeKind) {
        let revision = Revision(self.revision);
        self.changes.push(Change { revision, keyspace, key: key.clone(), kind });
    }

    fn clear(&mut self, keyspace: KeyspaceId) {
        if self.things.keys().any(|(of, _)| *of == keyspace) {
            let (created, cleared) = self.tallies.entry(keyspace).or_default();
            *cleared = *created;
        }
        self.things.retain(|(of, _), _| *of != keyspace);
        self.change(keyspace, &Bytes::new(), ChangeKind::Clear);
    }

    fn version(&self, keyspace: KeyspaceId, key: &Bytes) -> Revision {
        self.things.get(&(keyspace, key.clone())).map_or(Revision(0), |thing| thing.version)
    }

    fn string(&self, keyspace: KeyspaceId, key: &Bytes) -> Result<Option<Bytes>, Refusal> {
        match self.things.get(&(keyspace, key.clone())).map(|thing| &thing.held) {
            None => Ok(None),
            Some(Held::String(value)) => Ok(Some(value.clone())),
            Some(Held::Hash(_)) => Err(Refusal::WrongType),
        }
    }

    fn hash(
        &self,
        keyspace: KeyspaceId,
        key: &Bytes,
    ) -> Result<Option<BTreeMap<Bytes, Bytes>>, Refusal> {
        match self.things.get(&(keyspace, key.clone())).map(|thing| &thing.held) {
            None => Ok(None),
            Some(Held::Hash(fields)) => Ok(Some(fields.clone())),
            Some(Held::String(_)) => Err(Refusal::WrongType),
        }
    }

    fn store(
        &mut self,
        keyspace: KeyspaceId,
        key: &Bytes,
        held: Held,
        expiry: Expiry,
        kind: ChangeKind,
    ) {
        let at = (keyspace, key.clone());
        let old_ms = self.things.get(&at).and_then(|thing| thing.expires_ms);
        let expires_ms = match expiry {
            Expiry::Never => None,
            Expiry::Keep => old_ms,
            Expiry::AfterMs(ms) => Some(self.log_time_ms + ms),
            Expiry::AtLogMs(ms) | Expiry::AtMs(ms) => Some(ms),
        };
        if expires_ms.is_some_and(|ms| ms <= self.log_time_ms) {
            if !self.remove(keyspace, key) {
                self.gone(keyspace, key, Revision(self.revision));
            }
            return;
        }
        if !self.things.contains_key(&at) {
            self.tallies.entry(keyspace).or_default().0 = Revision(self.revision);
        }
        self.things.insert(at, Thing { held, version: Revision(self.revision), expires_ms });
        self.change(keyspace, key, kind);
    }

    /// A key is gone that was written last at this revision.
    fn gone(&mut self, keyspace: KeyspaceId, key: &Bytes, written: Revision) {
        let latest = self.written.entry((keyspace, key.clone())).or_default();
        *latest = written.max(*latest);
    }

    fn remove(&mut self, keyspace: KeyspaceId, key: &Bytes) -> bool {
        let version = self.version(keyspace, key);
        let was_there = self.things.remove(&(keyspace, key.clone())).is_some();
        if was_there {
            self.gone(keyspace, key, version);
            self.change(keyspace, key, ChangeKind::Delete);
        }
        was_there
    }

    fn write(&mut self, keyspace: KeyspaceId, write: &Write) -> Result<Answer, Refusal> {
        Ok(match write {
            Write::Put { key, value, condition, expiry, return_old } => {
                let old = if *return_old { self.string(keyspace, key)? } else { None };
                let version = self.version(keyspace, key);
                let applied = match condition {
                    Condition::Always => true,
                    Condition::IfAbsent => version.0 == 0,
                    Condition::IfPresent => version.0 != 0,
                    Condition::IfVersion(expected) => version == *expected,
                };
                if applied {
                    let held = Held::String(value.clone());
                    self.store(keyspace, key, held, *expiry, ChangeKind::Put);
                }
                Answer::Put { applied, version: self.version(keyspace, key), old }
            }
            Write::PutMany { pairs, if_all_absent } => {
                let is_there = |key| self.version(keyspace, key).0 != 0;
                if *if_all_absent && pairs.iter().any(|(key, _)| is_there(key)) {
                    return Ok(Answer::Flag(false));
                }
                for (key, value) in pairs {
                    let held = Held::String(value.clone());
                    self.store(keyspace, key, held, Expiry::Never, ChangeKind::Put);
                }
                Answer::Flag(true)
            }
            Write::Append { key, suffix } => {
                let mut value = self.string(keyspace, key)?.unwrap_or_default().to_vec();
                value.extend_from_slice(suffix);
                let len = value.len() as i64;
                let held = Held::String(value.into());
                self.store(keyspace, key, held, Expiry::Keep, ChangeKind::Append);
                Answer::Integer(len)
            }
            Write::Add { key, delta } => {
                let sum = sum(self.string(keyspace, key)?, *delta)?;
                let held = Held::String(sum.to_string().into());
                self.store(keyspace, key, held, Expiry::Keep, ChangeKind::Add);
                Answer::Integer(sum)
            }
            Write::Delete { keys } => {
                Answer::Integer(keys.iter().map(|key| i64::from(self.remove(keyspace, key))).sum())
            }
            Write::DeleteIf { key, version } => {
                let holds = self.version(keyspace, key) == *version;
                Answer::Flag(holds && self.remove(keyspace, key))
            }
            Write::Take { key } => {
                let version = self.version(keyspace, key);
                let value = self.string(keyspace, key)?;
                self.remove(keyspace, key);
                Answer::Value(value.map(|value| Versioned { value, version }))
            }
            Write::GetAndExpire { key, expiry } => {
                let version = self.version(keyspace, key);
                let value = self.string(keyspace, key)?;
                self.set_expiry(keyspace, key, *expiry, ExpiryCondition::Always);
                Answer::Value(value.map(|value| Versioned { value, version }))
            }
            Write::SetExpiry { key, expiry, condition } => {
                Answer::Flag(self.set_expiry(keyspace, key, *expiry, *condition))
            }
            Write::Clear => {
                self.clear(keyspace);
                Answer::Done(Revision(self.revision))
            }
            Write::ClearAll => {
                for keyspace in [KeyspaceId(0), KeyspaceId(1)] {
                    self.clear(keyspace);
                }
                Answer::Done(Revision(self.revision))
            }
            Write::HashSet { .. }
            | Write::HashSetIfAbsent { .. }
            | Write::HashDelete { .. }
            | Write::HashAdd { .. } => self.write_hash(keyspace, write)?,
        })
    }

    fn write_hash(&mut self, keyspace: KeyspaceId, write: &Write) -> Result<Answer, Refusal> {
        Ok(match write {
            Write::HashSet { key, fields } => {
                let mut hash = self.hash(keyspace, key)?.unwrap_or_default();
                let before = hash.len();
                hash.extend(fields.iter().cloned());
                let made = (hash.len() - before) as i64;
                if !fields.is_empty() {
                    let held = Held::Hash(hash);
                    self.store(keyspace, key, held, Expiry::Keep, ChangeKind::HashSet);
                }
                Answer::Integer(made)
            }
            Write::HashSetIfAbsent { key, field, value } => {
                let mut hash = self.hash(keyspace, key)?.unwrap_or_default();
                let is_new = !hash.contains_key(field);
                if is_new {
                    hash.insert(field.clone(), value.clone());
                    let held = Held::Hash(hash);
                    self.store(keyspace, key, held, Expiry::Keep, ChangeKind::HashSet);
                }
                Answer::Flag(is_new)
            }
            Write::HashDelete { key, fields } => {
                let mut hash = self.hash(keyspace, key)?.unwrap_or_default();
                let before = hash.len();
                hash.retain(|name, _| !fields.contains(name));
                let removed = (before - hash.len()) as i64;
                if removed > 0 {
                    let is_empty = hash.is_empty();
                    let held = Held::Hash(hash);
                    self.store(keyspace, key, held, Expiry::Keep, ChangeKind::HashDelete);
                    if is_empty {
                        self.remove(keyspace, key);
                    }
                }
                Answer::Integer(removed)
            }
            Write::HashAdd { key, field, delta } => {
                let mut hash = self.hash(keyspace, key)?.unwrap_or_default();
                let sum = sum(hash.get(field).cloned(), *delta)?;
                hash.insert(field.clone(), sum.to_string().into());
                let held = Held::Hash(hash);
                self.store(keyspace, key, held, Expiry::Keep, ChangeKind::HashAdd);
                Answer::Integer(sum)
            }
            other => unreachable!("{other:?} is no write to a hash"),
        })
    }

    fn set_expiry(
        &mut self,
        keyspace: KeyspaceId,
        key: &Bytes,
        expiry: Expiry,
        condition: ExpiryCondition,
    ) -> bool {
        let Some(thing) = self.things.get(&(keyspace, key.clone())).cloned() else { return false };
        let new_ms = match expiry {
            Expiry::Never if thing.expires_ms.is_none() => return false,
            Expiry::Keep => return false,
            Expiry::Never => None,
            Expiry::AfterMs(ms) => Some(self.log_time_ms + ms),
            Expiry::AtLogMs(ms) | Expiry::AtMs(ms) => Some(ms),
        };
        let (old, new) = (thing.expires_ms.unwrap_or(u64::MAX), new_ms.unwrap_or(u64::MAX));
        let holds = match condition {
            ExpiryCondition::Always => true,
            ExpiryCondition::IfNone => thing.expires_ms.is_none(),
            ExpiryCondition::IfSome => thing.expires_ms.is_some(),
            ExpiryCondition::IfLater => new > old,
            ExpiryCondition::IfEarlier => new < old,
            ExpiryCondition::IfSomeEarlier => thing.expires_ms.is_some() && new < old,
        };
        if holds {
            let kind = match new_ms {
                Some(_) => ChangeKind::SetExpiry,
                None => ChangeKind::ClearExpiry,
            };
            self.store(keyspace, key, thing.held, expiry, kind);
        }
        holds
    }

    pub(super) fn read(&self, keyspace: KeyspaceId, query: &Query) -> Result<Answer, Refusal> {
        let thing = |key: &Bytes| self.things.get(&(keyspace, key.clone()));
        Ok(match query {
            Query::Get { key } => Answer::Value(
                self.string(keyspace, key)?
                    .map(|value| Versioned { value, version: self.version(keyspace, key) }),
            ),
            Query::Expiry { key } => Answer::Expiry(match thing(key) {
                None => Expiring::Absent,
                Some(thing) => thing.expires_ms.map_or(Expiring::Never, Expiring::AtMs),
            }),
            Query::HashGetAll { key } => {
                Answer::Fields(self.hash(keyspace, key)?.unwrap_or_default().into_iter().collect())
            }
            Query::Count => {
                let here = self.things.keys().filter(|(of, _)| *of == keyspace);
                Answer::Integer(here.count() as i64)
            }
            Query::Scan { .. } => {
                let here = self.things.iter().filter(|((of, _), _)| *of == keyspace);
                let item = |((_, key), thing): (&(KeyspaceId, Bytes), &Thing)| {
                    let (kind, value) = match &thing.held {
                        Held::String(value) => (Kind::String, Some(value.clone())),
                        Held::Hash(_) => (Kind::Hash, None),
                    };
                    Item { key: key.clone(), kind, version: thing.version, value }
                };
                Answer::Page { items: here.map(item).collect(), next: None }
            }
            other => unreachable!("not asked here: {other:?}"),
        })
    }
}

fn sum(text: Option<Bytes>, delta: i64) -> Result<i64, Refusal> {
    let old = match text {
        Some(text) => integer::parse(&text).ok_or(Refusal::NotAnInteger)?,
        None => 0,
    };
    old.checked_add(delta).ok_or(Refusal::Overflow)
}
