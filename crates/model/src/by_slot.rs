//! A map by slot.

use crate::Slot;
use std::fmt;

/// Slots that lie together.
const ROOM_SLOTS: usize = 128;

type Room<T> = Box<[Option<T>; ROOM_SLOTS]>;

/// A map from slots to values, ascending by slot.
///
/// A site handles thousands of slots in one step, and a search in a tree for each of them was a fifth of
/// what a deployment costs in the lab. Here a value is two loads away, and a room of 128 neighbours is there once one of them has a
/// value.
#[derive(Clone)]
pub struct BySlot<T> {
    /// Empty, or one a neighbourhood.
    rooms: Vec<Option<Room<T>>>,
    count: usize,
}

impl<T> BySlot<T> {
    /// The value of a slot.
    pub fn get(&self, slot: Slot) -> Option<&T> {
        let (room, at) = place(slot);
        self.rooms.get(room)?.as_ref()?[at].as_ref()
    }

    /// The value of a slot, to be changed.
    pub fn get_mut(&mut self, slot: Slot) -> Option<&mut T> {
        let (room, at) = place(slot);
        self.rooms.get_mut(room)?.as_mut()?[at].as_mut()
    }

    /// Whether a slot has a value.
    pub fn contains(&self, slot: Slot) -> bool {
        self.get(slot).is_some()
    }

    /// Gives a slot a value, and returns the one that it had.
    pub fn insert(&mut self, slot: Slot, value: T) -> Option<T> {
        let (room, at) = place(slot);
        if self.rooms.is_empty() {
            self.rooms.resize_with(usize::from(Slot::COUNT) / ROOM_SLOTS, || None);
        }
        let room = self.rooms[room].get_or_insert_with(|| Box::new([const { None }; ROOM_SLOTS]));
        let old = room[at].replace(value);
        self.count += usize::from(old.is_none());
        old
    }

    /// Takes the value of a slot away.
    pub fn remove(&mut self, slot: Slot) -> Option<T> {
        let (room, at) = place(slot);
        let old = self.rooms.get_mut(room)?.as_mut()?[at].take();
        self.count -= usize::from(old.is_some());
        old
    }

    /// How many slots have a value.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether none has.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The slots with their values, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (Slot, &T)> {
        let rooms = self.rooms.iter().enumerate();
        rooms.filter_map(|(room, values)| Some((room, values.as_ref()?))).flat_map(
            |(room, values)| {
                let at = move |at: usize| Slot::new((room * ROOM_SLOTS + at) as u16);
                let values = values.iter().enumerate();
                values.filter_map(move |(place, value)| Some((at(place)?, value.as_ref()?)))
            },
        )
    }

    /// The slots that have a value, ascending.
    pub fn slots(&self) -> impl Iterator<Item = Slot> {
        self.iter().map(|(slot, _)| slot)
    }
}

fn place(slot: Slot) -> (usize, usize) {
    let number = usize::from(slot.number());
    (number / ROOM_SLOTS, number % ROOM_SLOTS)
}

impl<T> Default for BySlot<T> {
    fn default() -> BySlot<T> {
        BySlot { rooms: Vec::new(), count: 0 }
    }
}

impl<T: PartialEq> PartialEq for BySlot<T> {
    fn eq(&self, other: &BySlot<T>) -> bool {
        self.count == other.count && self.iter().eq(other.iter())
    }
}

impl<T: Eq> Eq for BySlot<T> {}

impl<T: fmt::Debug> fmt::Debug for BySlot<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<T> Extend<(Slot, T)> for BySlot<T> {
    fn extend<I: IntoIterator<Item = (Slot, T)>>(&mut self, values: I) {
        for (slot, value) in values {
            self.insert(slot, value);
        }
    }
}

impl<T> FromIterator<(Slot, T)> for BySlot<T> {
    fn from_iter<I: IntoIterator<Item = (Slot, T)>>(values: I) -> BySlot<T> {
        let mut all = BySlot::default();
        all.extend(values);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn it_is_a_map(steps in prop::collection::vec((0..Slot::COUNT, any::<Option<u8>>()), 0..300)) {
            let (mut map, mut expected) = (BySlot::default(), BTreeMap::new());
            for (number, value) in steps {
                let slot = Slot::new(number).unwrap();
                match value {
                    Some(value) => prop_assert_eq!(map.insert(slot, value), expected.insert(slot, value)),
                    None => prop_assert_eq!(map.remove(slot), expected.remove(&slot)),
                }
                prop_assert_eq!(map.get(slot), expected.get(&slot));
                prop_assert_eq!(map.get_mut(slot), expected.get_mut(&slot));
            }
            prop_assert_eq!(map.len(), expected.len());
            prop_assert!(map.iter().eq(expected.iter().map(|(slot, value)| (*slot, value))));
            let again: BySlot<u8> = expected.into_iter().collect();
            prop_assert_eq!(map, again);
        }
    }
}
