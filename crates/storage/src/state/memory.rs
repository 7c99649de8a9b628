//! A state in memory, for tests and the lab.
//!
//! It behaves like the real one at its worst: batches committed since the last
//! [`MemoryState::persist`] are lost in a [`MemoryState::crash`], and [`MemoryState::damage`] makes
//! every call fail until the owner clears it for a rebuild. Views share the map until the next
//! commit, which then copies it: simple, and fast enough for what fits in a test. What a crash
//! undoes is kept apart, so that making the state durable costs nothing.

use super::{Batch, Read, State, StateError, check_keys};
use model::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// With so many changes to undo the redundant ones go: if each key is changed once, there are none,
/// so the next look is at twice as many.
const UNDO_MAX: usize = 1 << 17;

type Map = Arc<BTreeMap<Bytes, Bytes>>;

/// The state. Clones are handles to the same one.
#[derive(Clone, Debug, Default)]
pub struct MemoryState(Arc<RwLock<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    now: Map,
    /// What keys held before each change since it was last made durable, in order.
    undo: Vec<(Bytes, Option<Bytes>)>,
    /// How many were left when the redundant ones last went.
    undo_short: usize,
    bytes: u64,
    damage: Option<String>,
}

/// A state at an earlier moment.
#[derive(Clone, Debug)]
pub struct MemoryView(Map);

impl MemoryState {
    /// An empty state.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes the present content survive a crash.
    pub fn persist(&self) {
        let inner = &mut *self.write();
        inner.undo.clear();
        inner.undo_short = 0;
    }

    /// Returns to the content at the last [`MemoryState::persist`].
    pub fn crash(&self) {
        let inner = &mut *self.write();
        let undo = std::mem::take(&mut inner.undo);
        inner.undo_short = 0;
        if !undo.is_empty() {
            let map = Arc::make_mut(&mut inner.now);
            for (key, value) in undo.into_iter().rev() {
                match value {
                    Some(value) => drop(map.insert(key, value)),
                    None => drop(map.remove(&key)),
                }
            }
        }
        inner.bytes = inner.now.iter().map(|(key, value)| weight(key, value)).sum();
    }

    /// Every call fails as damaged from now on, until [`State::clear`].
    pub fn damage(&self, cause: &str) {
        self.write().damage = Some(cause.to_owned());
    }

    fn read(&self) -> RwLockReadGuard<'_, Inner> {
        // A poisoned lock means that a test panicked; the map itself is never half changed.
        self.0.read().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn write(&self) -> RwLockWriteGuard<'_, Inner> {
        self.0.write().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn map(&self) -> Result<Map, StateError> {
        let inner = self.read();
        inner.check()?;
        Ok(inner.now.clone())
    }
}

impl Inner {
    /// Of several changes of one key only the first is needed: it has what the key held before.
    fn shorten_undo(&mut self) {
        let mut seen = BTreeSet::new();
        self.undo.retain(|(key, _)| seen.insert(key.clone()));
        self.undo_short = self.undo.len();
    }

    fn check(&self) -> Result<(), StateError> {
        match &self.damage {
            None => Ok(()),
            Some(cause) => {
                Err(StateError::Damaged { path: "memory".to_owned(), cause: cause.clone() })
            }
        }
    }
}

fn weight(key: &Bytes, value: &Bytes) -> u64 {
    (key.len() + value.len()) as u64
}

fn scan(map: &Map, from: &[u8], until: Option<&[u8]>, visit: &mut dyn FnMut(Bytes, Bytes) -> bool) {
    if until.is_some_and(|until| until <= from) {
        return;
    }
    let until = until.map_or(Bound::Unbounded, Bound::Excluded);
    for (key, value) in map.range::<[u8], _>((Bound::Included(from), until)) {
        if !visit(key.clone(), value.clone()) {
            return;
        }
    }
}

impl Read for MemoryState {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StateError> {
        let inner = self.read();
        inner.check()?;
        Ok(inner.now.get(key).cloned())
    }

    fn scan(
        &self,
        from: &[u8],
        until: Option<&[u8]>,
        visit: &mut dyn FnMut(Bytes, Bytes) -> bool,
    ) -> Result<(), StateError> {
        // Not under the lock: the visitor may use the state itself.
        scan(&self.map()?, from, until, visit);
        Ok(())
    }
}

impl State for MemoryState {
    type Now<'a> = MemoryView;
    type View = MemoryView;

    fn commit(&self, batch: Batch) -> Result<(), StateError> {
        check_keys(&batch);
        let inner = &mut *self.write();
        inner.check()?;
        let map = Arc::make_mut(&mut inner.now);
        for (key, value) in batch.into_changes() {
            let old = match value {
                // The map keeps the older key object, which has the same size.
                Some(value) => {
                    inner.bytes += weight(&key, &value);
                    map.insert(key.clone(), value)
                }
                None => map.remove(&key),
            };
            if let Some(old) = &old {
                inner.bytes -= weight(&key, old);
            }
            inner.undo.push((key, old));
        }
        if inner.undo.len() > UNDO_MAX.max(2 * inner.undo_short) {
            inner.shorten_undo();
        }
        Ok(())
    }

    fn now(&self) -> MemoryView {
        self.view()
    }

    fn view(&self) -> MemoryView {
        MemoryView(self.read().now.clone())
    }

    fn clear(&self) -> Result<(), StateError> {
        *self.write() = Inner::default();
        Ok(())
    }

    fn size_bytes(&self) -> u64 {
        self.read().bytes
    }
}

impl Read for MemoryView {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StateError> {
        Ok(self.0.get(key).cloned())
    }

    fn scan(
        &self,
        from: &[u8],
        until: Option<&[u8]>,
        visit: &mut dyn FnMut(Bytes, Bytes) -> bool,
    ) -> Result<(), StateError> {
        scan(&self.0, from, until, visit);
        Ok(())
    }
}
