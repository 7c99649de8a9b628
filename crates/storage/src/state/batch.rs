//! Changes to be made together.

use model::Bytes;
use std::collections::HashMap;
use std::hash::RandomState;

/// Changes to be made together. Of several to one key the last counts.
///
/// They are found by hash: looking for a key among some hundred that begin alike costs a tree a
/// comparison of both keys at each step, and that was a third of what applying a write took. The
/// order in which [`Batch::into_changes`] gives them differs from run to run; nothing may depend on
/// it, and as each key is there once nothing can.
#[derive(Clone, Debug)]
pub struct Batch(HashMap<Bytes, Option<Bytes>, RandomState>);

impl Batch {
    /// No changes, and room for so many.
    pub fn with_capacity(changes: usize) -> Batch {
        #[expect(
            clippy::disallowed_methods,
            reason = "clients choose the keys, so the hash must not be known; its order is not used"
        )]
        let hasher = RandomState::new();
        Batch(HashMap::with_capacity_and_hasher(changes, hasher))
    }

    /// Sets a key.
    pub fn put(&mut self, key: impl Into<Bytes>, value: impl Into<Bytes>) {
        self.change(key.into(), Some(value.into()));
    }

    /// Removes a key, there or not.
    pub fn remove(&mut self, key: impl Into<Bytes>) {
        self.change(key.into(), None);
    }

    /// Sets a key, or removes it. Answers with the change that was there in its place.
    pub fn change(&mut self, key: Bytes, value: Option<Bytes>) -> Option<Option<Bytes>> {
        self.0.insert(key, value)
    }

    /// What happens to a key, if anything; `None` inside: it is removed.
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
    /// order. Looks at all.
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
