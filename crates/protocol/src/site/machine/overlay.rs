//! The state as it will be once the batch under way is committed.

use model::Bytes;
use std::collections::BTreeMap;
use std::ops::Bound;
use storage::state::{Batch, Read, StateError, scan_over};

/// Changes over a state that does not have them yet. Reads see both.
pub(super) struct Overlay<'a, S> {
    below: &'a S,
    changes: BTreeMap<Bytes, Option<Bytes>>,
}

impl<'a, S: Read> Overlay<'a, S> {
    pub(super) fn new(below: &'a S) -> Overlay<'a, S> {
        Overlay { below, changes: BTreeMap::new() }
    }

    pub(super) fn put(&mut self, key: impl Into<Bytes>, value: impl Into<Bytes>) {
        self.changes.insert(key.into(), Some(value.into()));
    }

    pub(super) fn remove(&mut self, key: impl Into<Bytes>) {
        self.changes.insert(key.into(), None);
    }

    /// The changes, each key once.
    pub(super) fn into_batch(self) -> Batch {
        Batch { changes: self.changes.into_iter().collect() }
    }
}

impl<S: Read> Read for Overlay<'_, S> {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StateError> {
        match self.changes.get(key) {
            Some(change) => Ok(change.clone()),
            None => self.below.get(key),
        }
    }

    fn look<T>(&self, key: &[u8], at: impl FnOnce(Option<&[u8]>) -> T) -> Result<T, StateError> {
        match self.changes.get(key) {
            Some(change) => Ok(at(change.as_deref())),
            None => self.below.look(key, at),
        }
    }

    fn scan(
        &self,
        from: &[u8],
        until: Option<&[u8]>,
        visit: &mut dyn FnMut(Bytes, Bytes) -> bool,
    ) -> Result<(), StateError> {
        if until.is_some_and(|until| until <= from) {
            return Ok(());
        }
        let upper = until.map_or(Bound::Unbounded, Bound::Excluded);
        let range = self.changes.range::<[u8], _>((Bound::Included(from), upper));
        let changes = range.map(|(key, change)| (key.clone(), change.clone()));
        scan_over(changes, |visit| self.below.scan(from, until, visit), visit)
    }
}
