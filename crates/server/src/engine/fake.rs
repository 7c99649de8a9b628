//! An in-memory store with etcd's rules that fails where a test wants it.

use super::locked::{Ended, Locked, Op, fit};
use crate::batcher::lock;
use model::Bytes;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// The store; clones share it.
#[derive(Clone, Default)]
pub(crate) struct Fake(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    rows: BTreeMap<Bytes, Bytes>,
    owner: u64,
    /// Commits until the owner's process is killed, and whether the last of them takes effect.
    dies: Option<(u32, bool)>,
    commits: u32,
    checks: u32,
}

/// The store as one owner sees it.
pub(crate) struct Owner {
    fake: Fake,
    number: u64,
}

impl Fake {
    /// A new owner, which replaces the previous one.
    pub(crate) fn own(&self) -> Owner {
        let inner = &mut *lock(&self.0);
        inner.owner += 1;
        inner.dies = None;
        Owner { fake: self.clone(), number: inner.owner }
    }

    /// Kills the owner in its `commits`th commit from here, after the commit took effect if `done`.
    pub(crate) fn kill_in(&self, commits: u32, done: bool) {
        lock(&self.0).dies = Some((commits, done));
    }

    /// The number of commits and of checks.
    pub(crate) fn counts(&self) -> (u32, u32) {
        let inner = lock(&self.0);
        (inner.commits, inner.checks)
    }

    /// The names of all keys.
    pub(crate) fn names(&self) -> Vec<Bytes> {
        lock(&self.0).rows.keys().cloned().collect()
    }
}

/// The range of keys that an operation touches: from, until; equal for one key.
fn touched(op: &Op) -> (Bytes, Bytes) {
    match op {
        Op::Put { key, .. } | Op::Delete { key } => (key.clone(), key.clone()),
        Op::DeleteRange { from, until } => (from.clone(), until.clone()),
    }
}

impl Inner {
    fn make(&mut self, ops: Vec<Op>) {
        for op in ops {
            match op {
                Op::Put { key, value } => drop(self.rows.insert(key, value)),
                Op::Delete { key } => drop(self.rows.remove(&key)),
                Op::DeleteRange { from, until } => {
                    self.rows.retain(|key, _| *key < from || *key >= until);
                }
            }
        }
    }
}

impl Owner {
    fn look(&self, inner: &Inner) -> Result<(), Ended> {
        match inner.owner == self.number {
            true => Ok(()),
            false => Err(Ended::Lost("another process owns it".to_owned())),
        }
    }
}

impl Locked for Owner {
    fn commit(&mut self, ops: Vec<Op>) -> Result<(), Ended> {
        assert!(fit(&ops) && !ops.is_empty(), "etcd would refuse this");
        for (nth, op) in ops.iter().enumerate() {
            let (from, until) = touched(op);
            for other in &ops[..nth] {
                let (before, end) = touched(other);
                let apart = until < before || end < from || (until == before && from != until);
                assert!(apart || end == from && before != end, "etcd refuses a key twice: {op:?}");
            }
        }
        let inner = &mut *lock(&self.fake.0);
        self.look(inner)?;
        match &mut inner.dies {
            Some((1, done)) => {
                if std::mem::replace(done, false) {
                    inner.make(ops);
                }
                return Err(Ended::Stopped);
            }
            Some((commits, _)) => *commits -= 1,
            None => {}
        }
        inner.commits += 1;
        inner.make(ops);
        Ok(())
    }

    fn check(&mut self) -> Result<(), Ended> {
        let inner = &mut *lock(&self.fake.0);
        inner.checks += 1;
        self.look(inner)
    }

    fn page(
        &mut self,
        from: &[u8],
        until: &[u8],
        rows_max: usize,
    ) -> Result<Vec<(Bytes, Bytes)>, Ended> {
        let inner = lock(&self.fake.0);
        let within = inner.rows.iter().filter(|(key, _)| (from..until).contains(&key.as_ref()));
        Ok(within.take(rows_max).map(|(key, value)| (key.clone(), value.clone())).collect())
    }
}
