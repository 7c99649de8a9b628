//! A map by slot.

use crate::{Slot, SlotRun};
use std::fmt;

/// Slots that lie together.
const ROOM_SLOTS: u16 = 128;

/// A map from slots to values, ascending by slot.
///
/// Neighbours mostly have equal values, as they move together. So it holds runs of equal values, in
/// rooms of 128 neighbouring slots: what it takes depends on how many runs there are and not on how
/// many slots, and a change moves no more than a room, however the values differ.
#[derive(Clone)]
pub struct BySlot<T> {
    /// Empty, or one a neighbourhood; in each, runs in order, of which no two that touch are equal.
    rooms: Vec<Vec<(SlotRun, T)>>,
    count: usize,
}

impl<T> BySlot<T> {
    /// The value of a slot.
    pub fn get(&self, slot: Slot) -> Option<&T> {
        self.run_at(slot).1
    }

    /// The value of a slot, and a slot up to which all have the same.
    pub fn run_at(&self, slot: Slot) -> (Slot, Option<&T>) {
        let Some(room) = self.rooms.get(room_of(slot)) else { return (Slot::LAST, None) };
        let next = room.partition_point(|(run, _)| run.last < slot);
        match room.get(next) {
            Some((run, value)) if run.first <= slot => (run.last, Some(value)),
            Some((run, _)) => (run.first.before().unwrap_or(slot), None),
            None => (room_run(room_of(slot)).last, None),
        }
    }

    /// Whether a slot has a value.
    pub fn contains(&self, slot: Slot) -> bool {
        self.get(slot).is_some()
    }

    /// How many slots have a value.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether none has.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Slots with equal values, ascending. Those that touch may be equal, too.
    pub fn runs(&self) -> impl Iterator<Item = (SlotRun, &T)> {
        self.rooms.iter().flatten().map(|(run, value)| (*run, value))
    }

    /// The slots with their values, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (Slot, &T)> {
        self.runs().flat_map(|(run, value)| run.slots().map(move |slot| (slot, value)))
    }

    /// The slots that have a value, ascending.
    pub fn slots(&self) -> impl Iterator<Item = Slot> {
        self.iter().map(|(slot, _)| slot)
    }
}

impl<T: Clone + PartialEq> BySlot<T> {
    /// Gives a slot a value.
    pub fn insert(&mut self, slot: Slot, value: T) {
        self.set(SlotRun::one(slot), Some(value));
    }

    /// Takes the value of a slot away.
    pub fn remove(&mut self, slot: Slot) -> Option<T> {
        let old = self.get(slot).cloned();
        if old.is_some() {
            self.set(SlotRun::one(slot), None);
        }
        old
    }

    /// Gives all slots of a run a value, or takes theirs away.
    pub fn set(&mut self, run: SlotRun, value: Option<T>) {
        if self.rooms.is_empty() {
            if value.is_none() {
                return;
            }
            self.rooms.resize_with(usize::from(Slot::COUNT / ROOM_SLOTS), Vec::new);
        }
        for room in room_of(run.first)..=room_of(run.last) {
            let whole = room_run(room);
            let part =
                SlotRun { first: run.first.max(whole.first), last: run.last.min(whole.last) };
            self.count -= set_in(&mut self.rooms[room], part, value.clone());
            self.count += value.as_ref().map_or(0, |_| part.len());
        }
    }

    /// Changes the values of a run.
    pub fn update(&mut self, run: SlotRun, change: impl Fn(Option<&T>) -> Option<T>) {
        let mut at = Some(run.first);
        while let Some(first) = at.filter(|first| *first <= run.last) {
            let (last, value) = self.run_at(first);
            let last = last.min(run.last);
            let value = change(value);
            self.set(SlotRun { first, last }, value);
            at = last.next();
        }
    }
}

/// Sets a run of one room. How many of its slots had a value.
fn set_in<T: Clone + PartialEq>(
    room: &mut Vec<(SlotRun, T)>,
    run: SlotRun,
    value: Option<T>,
) -> usize {
    let from = room.partition_point(|(old, _)| old.last < run.first);
    let until = from + room[from..].partition_point(|(old, _)| old.first <= run.last);
    let had = |(old, _): &(SlotRun, T)| {
        SlotRun { first: old.first.max(run.first), last: old.last.min(run.last) }.len()
    };
    let count = room[from..until].iter().map(had).sum();
    if let [(_, there)] = &room[from..until]
        && count == run.len()
        && value.as_ref() == Some(there)
    {
        return count;
    }
    let cut = |place: Option<&(SlotRun, T)>, of: fn(SlotRun, SlotRun) -> Option<SlotRun>| {
        let (old, there) = place?;
        Some((of(*old, run)?, there.clone()))
    };
    let inside = room[from..until].first();
    let mut left = cut(inside, |old, run| {
        let last = run.first.before().filter(|last| *last >= old.first)?;
        Some(SlotRun { first: old.first, last })
    });
    let inside = room[from..until].last();
    let mut right = cut(inside, |old, run| {
        let first = run.last.next().filter(|first| *first <= old.last)?;
        Some(SlotRun { first, last: old.last })
    });
    let (mut from, mut until) = (from, until);
    let mut new = value.map(|value| (run, value));
    if let Some((run, value)) = &mut new {
        // Equal neighbours become one with it.
        if left.is_none()
            && let Some((before, there)) = from.checked_sub(1).map(|at| &room[at])
            && before.last.next() == Some(run.first)
            && there == value
        {
            run.first = before.first;
            from -= 1;
        }
        if right.is_none()
            && let Some((behind, there)) = room.get(until)
            && run.last.next() == Some(behind.first)
            && there == value
        {
            run.last = behind.last;
            until += 1;
        }
        if let Some((rest, _)) = left.take_if(|(_, there)| there == value) {
            run.first = rest.first;
        }
        if let Some((rest, _)) = right.take_if(|(_, there)| there == value) {
            run.last = rest.last;
        }
    }
    room.splice(from..until, [left, new, right].into_iter().flatten());
    count
}

fn room_of(slot: Slot) -> usize {
    usize::from(slot.number() / ROOM_SLOTS)
}

fn room_run(room: usize) -> SlotRun {
    let first = room as u16 * ROOM_SLOTS;
    let slot = |number| Slot::new(number).expect("there are as many rooms as there are slots for");
    SlotRun { first: slot(first), last: slot(first + ROOM_SLOTS - 1) }
}

impl<T> Default for BySlot<T> {
    fn default() -> BySlot<T> {
        BySlot { rooms: Vec::new(), count: 0 }
    }
}

impl<T: PartialEq> PartialEq for BySlot<T> {
    fn eq(&self, other: &BySlot<T>) -> bool {
        self.count == other.count && self.runs().eq(other.runs())
    }
}

impl<T: Eq> Eq for BySlot<T> {}

impl<T: fmt::Debug> fmt::Debug for BySlot<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<T: Clone + PartialEq> Extend<(Slot, T)> for BySlot<T> {
    fn extend<I: IntoIterator<Item = (Slot, T)>>(&mut self, values: I) {
        for (slot, value) in values {
            self.insert(slot, value);
        }
    }
}

impl<T: Clone + PartialEq> FromIterator<(Slot, T)> for BySlot<T> {
    fn from_iter<I: IntoIterator<Item = (Slot, T)>>(values: I) -> BySlot<T> {
        let mut all = BySlot::default();
        all.extend(values);
        all
    }
}

impl<T: Clone + PartialEq> FromIterator<(SlotRun, T)> for BySlot<T> {
    fn from_iter<I: IntoIterator<Item = (SlotRun, T)>>(runs: I) -> BySlot<T> {
        let mut all = BySlot::default();
        for (run, value) in runs {
            all.set(run, Some(value));
        }
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
        fn it_is_a_map(
            steps in prop::collection::vec((0u16..600, 0u16..200, prop::option::of(0u8..3)), 0..100),
        ) {
            let (mut map, mut expected) = (BySlot::default(), BTreeMap::new());
            let slot = |number| Slot::new(number).unwrap();
            for (first, more, value) in steps {
                let run = SlotRun { first: slot(first), last: slot(first + more) };
                match value {
                    Some(value) if more < 100 => {
                        map.set(run, Some(value));
                        expected.extend(run.slots().map(|slot| (slot, value)));
                    }
                    Some(_) => {
                        let change = |value: Option<&u8>| value.map(|value| (value + 1) % 3);
                        map.update(run, change);
                        expected.range_mut(run.first..=run.last).for_each(|(_, value)| *value = (*value + 1) % 3);
                    }
                    None => {
                        prop_assert_eq!(map.remove(run.first), expected.remove(&run.first));
                        map.set(run, None);
                        expected.retain(|slot, _| !(run.first..=run.last).contains(slot));
                    }
                }
                prop_assert_eq!(map.len(), expected.len());
            }
            for slot in Slot::all().take(900) {
                let (last, value) = map.run_at(slot);
                prop_assert_eq!(value, expected.get(&slot));
                prop_assert!(last >= slot && map.get(last) == value);
            }
            prop_assert!(map.iter().eq(expected.iter().map(|(slot, value)| (*slot, value))));
            for room in &map.rooms {
                prop_assert!(room.windows(2).all(|two| two[0].0.last < two[1].0.first
                    && (two[0].1 != two[1].1 || two[0].0.last.next() != Some(two[1].0.first))));
            }
            let again: BySlot<u8> = expected.into_iter().collect();
            prop_assert_eq!(&map, &again);
            prop_assert_eq!(map.runs().map(|(run, value)| (run, *value)).collect::<BySlot<u8>>(), again);
        }
    }
}
