//! Which registers of keys were written lately, and with which stamps: what a write of another
//! region, or an expiry, is compared with (`bridging`). All of it is made from the order that is
//! kept, so that a node which reads that again has the same.

use model::{Bytes, CausalWrite, Effect, KeyStamps, KeyspaceId, Mark, Position, Registers, Stamp};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Which registers of keys were written lately, by the order that is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Recent {
    /// The highest stamp of what is not kept.
    pub(super) floor: Stamp,
    keys: BTreeMap<(KeyspaceId, Bytes), Stamps>,
    /// The stamp of what is written at a place, and which keys.
    by_place: BTreeMap<Position, (Stamp, BTreeSet<(KeyspaceId, Bytes)>)>,
    /// All these stamps.
    stamps: BTreeSet<Stamp>,
    /// All keys of a keyspace.
    cleared: BTreeMap<KeyspaceId, Steps>,
}

/// The stamps of a register, each with its place: those that no later place has a higher one than.
/// So the first one is the highest, and what is left once the first places go is the same as if
/// they had never been known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Steps(VecDeque<(Position, Stamp)>);

impl Steps {
    fn raise(&mut self, at: Position, stamp: Stamp) {
        while self.0.back().is_some_and(|(_, known)| *known <= stamp) {
            self.0.pop_back();
        }
        self.0.push_back((at, stamp));
    }

    fn forget(&mut self, upto: Position) {
        while self.0.front().is_some_and(|(at, _)| *at <= upto) {
            self.0.pop_front();
        }
    }

    fn highest(&self) -> Option<Stamp> {
        self.0.front().map(|(_, stamp)| *stamp)
    }
}

/// Of one key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Stamps {
    /// The string and all fields.
    values: Steps,
    string: Steps,
    fields: BTreeMap<Bytes, Steps>,
    expiry: Steps,
}

impl Stamps {
    fn raise(&mut self, effect: &Effect, at: Position, stamp: Stamp) {
        match effect {
            Effect::Put { .. } | Effect::Delete { .. } => {
                self.values.raise(at, stamp);
                self.expiry.raise(at, stamp);
            }
            Effect::Replace { .. } => self.values.raise(at, stamp),
            Effect::SetExpiry { .. } => self.expiry.raise(at, stamp),
            Effect::SetFields { fields, .. } => {
                self.string.raise(at, stamp);
                fields.iter().for_each(|(name, _)| self.raise_field(name, at, stamp));
            }
            Effect::DeleteFields { fields, .. } => {
                fields.iter().for_each(|name| self.raise_field(name, at, stamp));
            }
            _ => {}
        }
    }

    fn raise_field(&mut self, name: &Bytes, at: Position, stamp: Stamp) {
        // A name of its own: it would keep the whole write.
        match self.fields.get_mut(name) {
            Some(known) => known.raise(at, stamp),
            None => {
                let known = self.fields.entry(Bytes::copy_from_slice(name)).or_default();
                known.raise(at, stamp);
            }
        }
    }

    /// Nothing is compared with what lies up to this place any more.
    fn forget(&mut self, upto: Position) {
        for known in [&mut self.values, &mut self.string, &mut self.expiry] {
            known.forget(upto);
        }
        self.fields.values_mut().for_each(|known| known.forget(upto));
        self.fields.retain(|_, known| *known != Steps::default());
    }

    /// What was written without knowing of an expiry that removes what these stamps name.
    fn above_held(&self, held: &KeyStamps, cleared: Option<Stamp>) -> Registers {
        let of_all = held.values.max(Some(held.floor));
        let values = self.values.highest().max(cleared);
        let is_above = |(name, known): &(&Bytes, &Steps)| {
            let named = held.fields.iter().find(|(of, _)| of == *name).map(|(_, stamp)| *stamp);
            known.highest().max(values) > of_all.max(named)
        };
        let fields = self.fields.iter().filter(is_above).map(|(name, _)| name.clone());
        // Of what a put has left there is nothing but the string.
        Registers {
            values: false,
            string: self.string.highest().max(values) > of_all.max(held.string),
            fields: fields.collect(),
            expiry: self.expiry.highest().max(cleared) > held.expiry.max(Some(held.floor)),
        }
    }

    /// What has a higher stamp than this.
    fn above(&self, stamp: Stamp, cleared: Option<Stamp>) -> Registers {
        let is_above = |known: &Steps| known.highest().max(cleared) > Some(stamp);
        if is_above(&self.values) {
            let expiry = is_above(&self.expiry);
            return Registers { values: true, expiry, ..Registers::default() };
        }
        let fields = self.fields.iter().filter(|(_, known)| known.highest() > Some(stamp));
        Registers {
            values: false,
            string: is_above(&self.string),
            fields: fields.map(|(name, _)| name.clone()).collect(),
            expiry: is_above(&self.expiry),
        }
    }
}

impl Recent {
    pub(super) fn note(&mut self, at: Position, write: &CausalWrite, stamp: Stamp) {
        let (_, keys) = self.by_place.entry(at).or_insert((stamp, BTreeSet::new()));
        self.stamps.insert(stamp);
        for effect in &write.effects {
            match effect.key() {
                // What expires keeps the stamps that it has.
                Some(_) if matches!(effect, Effect::Expire { .. }) => {}
                Some(key) => {
                    let key = (write.keyspace, Bytes::copy_from_slice(key));
                    self.keys.entry(key.clone()).or_default().raise(effect, at, stamp);
                    keys.insert(key);
                }
                None if *effect == Effect::Clear => {
                    self.cleared.entry(write.keyspace).or_default().raise(at, stamp);
                }
                None => {}
            }
        }
    }

    /// What lies up to a place is not kept any more, nor compared.
    pub(super) fn forget(&mut self, upto: Position) {
        while let Some(first) = self.by_place.first_entry().filter(|first| *first.key() <= upto) {
            let (stamp, keys) = first.remove();
            self.stamps.remove(&stamp);
            for key in keys {
                let Some(known) = self.keys.get_mut(&key) else { continue };
                known.forget(upto);
                if *known == Stamps::default() {
                    self.keys.remove(&key);
                }
            }
        }
        self.cleared.values_mut().for_each(|known| known.forget(upto));
        self.cleared.retain(|_, known| *known != Steps::default());
    }

    /// Whether the order has the write with this stamp already: a write that is lost in its own
    /// region comes from each region that had it. All writes that come for the first time have
    /// stamps above those of what is not kept.
    pub(super) fn knows(&self, stamp: Stamp) -> bool {
        stamp <= self.floor || self.stamps.contains(&stamp)
    }

    /// The stamps of a key.
    pub(super) fn held(&self, keyspace: KeyspaceId, key: &Bytes) -> KeyStamps {
        let none = Stamps::default();
        let known = self.keys.get(&(keyspace, key.clone())).unwrap_or(&none);
        let cleared = self.cleared.get(&keyspace).and_then(Steps::highest);
        let fields = known.fields.iter();
        let fields = fields.filter_map(|(name, known)| Some((name.clone(), known.highest()?)));
        KeyStamps {
            floor: self.floor,
            values: known.values.highest().max(cleared),
            string: known.string.highest(),
            fields: fields.collect(),
            expiry: known.expiry.highest().max(cleared),
        }
    }

    /// What a write with a stamp leaves as it is.
    pub(super) fn kept(
        &self,
        keyspace: KeyspaceId,
        effects: &[Effect],
        stamp: Stamp,
    ) -> Vec<Effect> {
        let cleared = self.cleared.get(&keyspace).and_then(Steps::highest);
        let held = effects.iter().find_map(|effect| match effect {
            Effect::Mark(Mark::Held { stamps }) => Some(stamps),
            _ => None,
        });
        let keeps = |key: &Bytes, known: &Stamps| {
            let registers = match held {
                Some(held) => known.above_held(held, cleared),
                None => known.above(stamp, cleared),
            };
            let is_some = registers != Registers::default();
            is_some.then(|| Effect::Mark(Mark::Keeps { key: key.clone(), registers }))
        };
        if effects.contains(&Effect::Clear) {
            let of_keyspace = self.keys.range((keyspace, Bytes::new())..);
            let of_keyspace = of_keyspace.take_while(|((of, _), _)| *of == keyspace);
            return of_keyspace.filter_map(|((_, key), known)| keeps(key, known)).collect();
        }
        let keys: BTreeSet<&Bytes> = effects.iter().filter_map(Effect::key).collect();
        let none = Stamps::default();
        let known = |key: &Bytes| self.keys.get(&(keyspace, key.clone())).unwrap_or(&none);
        keys.into_iter().filter_map(|key| keeps(key, known(key))).collect()
    }
}
