//! Changes that are applied together.

use foldhash::quality::RandomState;
use model::Bytes;
use std::collections::HashMap;

/// Changes that are applied together. Of several changes of one key the last counts.
///
/// They are in a hash map: a search in a tree compares whole keys at each step, and with some
/// hundred keys of equal beginnings that was a third of the cost of applying a write. Each write
/// looks several keys up, so the hash is a fast one: with the standard library's it was a sixth of
/// the instructions of a site's thread. Clients choose the keys, so it is seeded at random, and no
/// answer shows it. The order of [`Batch::into_changes`] differs from run to run; nothing may
/// depend on it, and as each key occurs once nothing can.
#[derive(Clone, Debug)]
pub struct Batch(HashMap<Bytes, Option<Bytes>, RandomState>);

impl Batch {
    /// No changes, and room for this many.
    pub fn with_capacity(changes: usize) -> Batch {
        Batch(HashMap::with_capacity_and_hasher(changes, RandomState::default()))
    }

    /// Sets a key.
    pub fn put(&mut self, key: impl Into<Bytes>, value: impl Into<Bytes>) {
        self.change(key.into(), Some(value.into()));
    }

    /// Removes a key, there or not.
    pub fn remove(&mut self, key: impl Into<Bytes>) {
        self.change(key.into(), None);
    }

    /// Sets a key, or removes it. Returns the replaced change of that key.
    pub fn change(&mut self, key: Bytes, value: Option<Bytes>) -> Option<Option<Bytes>> {
        self.0.insert(key, value)
    }

    /// The change of a key, if any; `None` inside: it is removed.
    pub fn get(&self, key: &[u8]) -> Option<&Option<Bytes>> {
        self.0.get(key)
    }

    /// Keys that are changed.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether nothing is changed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The keys that are changed, in no order.
    pub fn keys(&self) -> impl Iterator<Item = &Bytes> {
        self.0.keys()
    }

    /// All changes, in no order.
    pub fn into_changes(self) -> impl Iterator<Item = (Bytes, Option<Bytes>)> {
        self.0.into_iter()
    }

    /// The changes from `from` (inclusive) to `until` (exclusive; `None`: to the end), in byte
    /// order. Visits all changes.
    pub fn range(&self, from: &[u8], until: Option<&[u8]>) -> Vec<(Bytes, Option<Bytes>)> {
        let is_inside = |key: &[u8]| key >= from && until.is_none_or(|until| key < until);
        let inside = self.0.iter().filter(|(key, _)| is_inside(key));
        let mut range: Vec<_> = inside.map(|(key, change)| (key.clone(), change.clone())).collect();
        range.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        range
    }
}

impl Default for Batch {
    fn default() -> Batch {
        Batch::with_capacity(0)
    }
}
