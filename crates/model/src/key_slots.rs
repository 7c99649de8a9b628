//! Which slot a request is about: all keys of one request must share one.

use crate::{Bytes, Command, Guard, Query, Slot, Step, Write, tag};

/// The slots of some keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeySlots {
    /// There are no keys.
    #[default]
    Nowhere,
    /// All are of this slot.
    One(Slot),
    /// They are of different ones.
    Several,
}

impl KeySlots {
    /// With one key more.
    pub fn and(self, key: &[u8]) -> KeySlots {
        let slot = Slot::of_key(key);
        match self {
            KeySlots::Nowhere => KeySlots::One(slot),
            KeySlots::One(other) if other == slot => self,
            _ => KeySlots::Several,
        }
    }

    /// With the keys of something else.
    pub fn join(self, other: KeySlots) -> KeySlots {
        match (self, other) {
            (KeySlots::Nowhere, key_slots) | (key_slots, KeySlots::Nowhere) => key_slots,
            (KeySlots::One(one), KeySlots::One(other)) if one == other => self,
            _ => KeySlots::Several,
        }
    }

    /// The slots of a transaction's keys.
    pub fn of_transaction(guards: &[Guard], steps: &[Step]) -> KeySlots {
        let key_slots = steps.iter().fold(KeySlots::Nowhere, |all, one| all.join(one.key_slots()));
        guards.iter().fold(key_slots, |all, guard| all.and(&guard.key))
    }

    fn of<'a>(keys: impl IntoIterator<Item = &'a Bytes>) -> KeySlots {
        keys.into_iter().fold(KeySlots::Nowhere, |key_slots, key| key_slots.and(key))
    }
}

impl Write {
    /// The keys that it changes; none for one that is about a whole keyspace.
    pub fn keys(&self) -> impl Iterator<Item = &Bytes> {
        let (mut one, mut pairs, mut many) = (None, &[][..], &[][..]);
        match self {
            Write::Put { key, .. }
            | Write::Append { key, .. }
            | Write::Add { key, .. }
            | Write::DeleteIf { key, .. }
            | Write::Take { key }
            | Write::GetAndExpire { key, .. }
            | Write::SetExpiry { key, .. }
            | Write::HashSet { key, .. }
            | Write::HashSetIfAbsent { key, .. }
            | Write::HashDelete { key, .. }
            | Write::HashAdd { key, .. } => one = Some(key),
            Write::PutMany { pairs: all, .. } => pairs = all,
            Write::Delete { keys } => many = keys,
            Write::Clear | Write::ClearAll => {}
        }
        one.into_iter().chain(pairs.iter().map(|(key, _)| key)).chain(many)
    }

    /// The slots of its keys; [`KeySlots::Nowhere`] for one that is about a whole keyspace.
    pub fn key_slots(&self) -> KeySlots {
        KeySlots::of(self.keys())
    }
}

/// The tag that all of some keys share; `None`: there are none, or they have different ones.
fn one_tag<'a>(keys: impl IntoIterator<Item = &'a Bytes>) -> Option<Bytes> {
    let mut keys = keys.into_iter();
    let first = keys.next()?;
    let shared = tag(first);
    keys.all(|key| tag(key) == shared).then(|| first.slice_ref(shared))
}

impl Command {
    /// The tag that all its keys share; `None`: it names none, or several with different ones.
    pub fn one_tag(&self) -> Option<Bytes> {
        match self {
            Command::Write { write, .. } => one_tag(write.keys()),
            Command::Transaction { guards, steps, .. } => {
                let steps = steps.iter().flat_map(Step::keys);
                one_tag(guards.iter().map(|guard| &guard.key).chain(steps))
            }
            _ => None,
        }
    }
}

impl Query {
    /// The tag that all its keys share; `None`: it names none, or several with different ones.
    pub fn one_tag(&self) -> Option<Bytes> {
        one_tag(self.keys())
    }

    /// Its keys; none for one that is about a whole keyspace.
    pub fn keys(&self) -> &[Bytes] {
        match self {
            Query::Get { key }
            | Query::Expiry { key }
            | Query::Kind { key }
            | Query::Length { key }
            | Query::HashGet { key, .. }
            | Query::HashGetMany { key, .. }
            | Query::HashGetAll { key }
            | Query::HashExists { key, .. }
            | Query::HashLen { key } => std::slice::from_ref(key),
            Query::GetMany { keys }
            | Query::Exists { keys }
            | Query::Versions { keys }
            | Query::Watch { keys } => keys,
            Query::Count | Query::Scan { .. } => &[],
        }
    }

    /// The first of its keys; `None` for one that is about a whole keyspace.
    pub fn first_key(&self) -> Option<&Bytes> {
        self.keys().first()
    }

    /// The slots of its keys; [`KeySlots::Nowhere`] for one that is about a whole keyspace.
    pub fn key_slots(&self) -> KeySlots {
        KeySlots::of(self.keys())
    }
}

impl Step {
    /// Its keys; none for one that is about a whole keyspace.
    pub fn keys(&self) -> Box<dyn Iterator<Item = &Bytes> + '_> {
        match self {
            Step::Read(query) => Box::new(query.keys().iter()),
            Step::Write(write) => Box::new(write.keys()),
            Step::ReadIn { .. } => Box::new(std::iter::empty()),
        }
    }

    /// The slots of its keys.
    pub fn key_slots(&self) -> KeySlots {
        match self {
            Step::Read(query) => query.key_slots(),
            Step::Write(write) => write.key_slots(),
            // It is about a whole keyspace.
            Step::ReadIn { .. } => KeySlots::Nowhere,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_with_one_tag_share_a_slot() {
        let slot = Slot::of_key(b"a");
        let keys = |keys: &[&'static str]| keys.iter().map(|key| Bytes::from(*key)).collect();
        assert_eq!(
            Write::Delete { keys: keys(&["x{a}", "{a}y"]) }.key_slots(),
            KeySlots::One(slot)
        );
        assert_eq!(Write::Delete { keys: keys(&["a", "b"]) }.key_slots(), KeySlots::Several);
        assert_eq!(Write::Clear.key_slots(), KeySlots::Nowhere);
        let one = Query::Exists { keys: keys(&["a"]) }.key_slots();
        assert_eq!(one.join(KeySlots::Nowhere), KeySlots::One(slot));
        assert_eq!(Query::Count.key_slots().join(one), one);
        assert_eq!(one.and(b"b"), KeySlots::Several);
        assert_eq!(KeySlots::Several.join(one), KeySlots::Several);
    }
}
