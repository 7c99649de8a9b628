//! The state as it will be once the batch under way is committed.

use model::Bytes;
use storage::state::{Batch, Read, StateError, scan_over};

/// Changes over a state that does not have them yet. Reads see both.
pub(crate) struct Overlay<'a, S> {
    below: &'a S,
    changes: Batch,
}

impl<'a, S: Read> Overlay<'a, S> {
    /// With room for about so many changes.
    pub(crate) fn new(below: &'a S, changes: usize) -> Overlay<'a, S> {
        Overlay { below, changes: Batch::with_capacity(changes) }
    }

    pub(crate) fn put(&mut self, key: impl Into<Bytes>, value: impl Into<Bytes>) {
        self.changes.put(key, value);
    }

    pub(crate) fn remove(&mut self, key: impl Into<Bytes>) {
        self.changes.remove(key);
    }

    /// The changes.
    pub(crate) fn into_batch(self) -> Batch {
        self.changes
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
        let changes = self.changes.range(from, until).into_iter();
        scan_over(changes, |visit| self.below.scan(from, until, visit), visit)
    }
}
