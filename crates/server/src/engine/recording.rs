//! A state that records its changes.
//!
//! Commits of the machine go to the state below unchanged. On a site with its keys kept elsewhere
//! a [`Recorder`] also keeps the changed rows, the last change of each, until they are taken to be
//! written there. On other sites there is no recorder, which costs one check per batch.

use crate::batcher::lock;
use model::Bytes;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use storage::state::{Batch, Read, State, StateError};

/// Rows and their new values; `None`: removed.
pub(crate) type Changes = BTreeMap<Bytes, Option<Bytes>>;

/// A state and, if there is one, its recorder.
#[derive(Clone, Debug)]
pub(crate) struct Recorded<S> {
    state: S,
    recorder: Option<Arc<Recorder>>,
}

/// Changed rows that are not yet taken.
#[derive(Debug, Default)]
pub(crate) struct Recorder(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    changes: Changes,
    bytes: usize,
}

impl Recorder {
    /// Takes all changes since the last call.
    pub(crate) fn take(&self) -> Changes {
        std::mem::take(&mut *lock(&self.0)).changes
    }

    /// The approximate number of bytes that wait.
    pub(crate) fn bytes(&self) -> usize {
        lock(&self.0).bytes
    }

    fn record(&self, batch: &Batch) {
        let waiting = &mut *lock(&self.0);
        for key in batch.keys() {
            let change = batch.get(key).cloned().unwrap_or_default();
            waiting.bytes += weight(key, change.as_ref());
            if let Some(before) = waiting.changes.insert(key.clone(), change) {
                waiting.bytes -= weight(key, before.as_ref());
            }
        }
    }
}

fn weight(key: &Bytes, value: Option<&Bytes>) -> usize {
    key.len() + value.map_or(0, Bytes::len)
}

impl<S> Recorded<S> {
    /// A state without a recorder.
    pub(crate) fn silent(state: S) -> Recorded<S> {
        Recorded { state, recorder: None }
    }

    /// A state with a recorder: changes from now on go to `recorder`.
    pub(crate) fn recording(state: S, recorder: Arc<Recorder>) -> Recorded<S> {
        Recorded { state, recorder: Some(recorder) }
    }

    /// The state below. What is committed there is not recorded.
    pub(crate) fn unrecorded(&self) -> &S {
        &self.state
    }
}

impl<S: Read> Read for Recorded<S> {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StateError> {
        self.state.get(key)
    }

    fn look<T>(&self, key: &[u8], at: impl FnOnce(Option<&[u8]>) -> T) -> Result<T, StateError> {
        self.state.look(key, at)
    }

    fn scan(
        &self,
        from: &[u8],
        until: Option<&[u8]>,
        visit: &mut dyn FnMut(Bytes, Bytes) -> bool,
    ) -> Result<(), StateError> {
        self.state.scan(from, until, visit)
    }
}

impl<S: State> State for Recorded<S> {
    type Now<'a> = S::Now<'a>;
    type View = S::View;

    fn commit(&self, batch: Batch) -> Result<(), StateError> {
        if let Some(recorder) = &self.recorder {
            recorder.record(&batch);
        }
        self.state.commit(batch)
    }

    fn now(&self) -> S::Now<'_> {
        self.state.now()
    }

    fn view(&self) -> S::View {
        self.state.view()
    }

    fn clear(&self) -> Result<(), StateError> {
        match self.recorder {
            None => self.state.clear(),
            // Rows in the other store would have to be removed; such a site never needs this.
            Some(_) => Err(StateError::Io {
                path: "etcd".to_owned(),
                cause: "a state that is kept elsewhere is not replaced as a whole".to_owned(),
            }),
        }
    }

    fn size_bytes(&self) -> u64 {
        self.state.size_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use storage::state::memory::MemoryState;

    fn batch(changes: &[(&'static str, Option<&'static str>)]) -> Batch {
        let mut batch = Batch::default();
        for (key, value) in changes {
            batch.change(Bytes::from_static(key.as_bytes()), value.map(Bytes::from));
        }
        batch
    }

    #[test]
    fn the_last_change_of_each_row_is_kept_until_it_is_taken() {
        let recorder = Arc::new(Recorder::default());
        let state = Recorded::recording(MemoryState::new(), recorder.clone());
        state.commit(batch(&[("a", Some("1")), ("b", Some("2"))])).unwrap();
        state.commit(batch(&[("a", Some("long")), ("c", None)])).unwrap();
        assert_eq!(state.get(b"a").unwrap().as_deref(), Some(&b"long"[..]));
        assert_eq!(recorder.bytes(), 5 + 2 + 1);
        let expected: Changes = [("a", Some("long")), ("b", Some("2")), ("c", None)]
            .map(|(key, value)| (Bytes::from(key), value.map(Bytes::from)))
            .into();
        assert_eq!(recorder.take(), expected);
        assert_eq!((recorder.take(), recorder.bytes()), (Changes::new(), 0));
        state.commit(batch(&[("b", None)])).unwrap();
        assert_eq!(recorder.take().len(), 1);
        assert!(state.clear().is_err());
    }

    #[test]
    fn a_silent_state_is_the_state_below() {
        let state = Recorded::silent(MemoryState::new());
        state.commit(batch(&[("a", Some("1"))])).unwrap();
        assert_eq!(state.unrecorded().get(b"a").unwrap().as_deref(), Some(&b"1"[..]));
        state.clear().unwrap();
        assert_eq!(state.get(b"a").unwrap(), None);
    }
}
