//! Changes on their way to the engine.
//!
//! A put into an LSM tree costs several microseconds: a search for its place, a copy of key and
//! value, its share of the journal and of later compactions. Programs mostly write a few of their
//! keys. So changes gather in a hash map first, where a newer change replaces an older one, and go
//! to the engine many at a time, in order, on a thread of their own. The log has them all, so the
//! time of writing them does not matter (docs/adr/0011).
//!
//! There are two maps: one is being filled, the other is being written. Reads check both before the
//! engine. A reader that holds the lock sees one moment of all three: commits need it for writing,
//! and the engine meanwhile only receives changes of the second map, which is checked first.

use super::super::Batch;
use model::Bytes;
use std::sync::{Arc, OnceLock};

/// The overhead of a change beside its bytes: two handles and their counts, its place in the table.
const CHANGE_BYTES: u64 = 200;
/// Changes collected before they are written, even if of few keys: a killed node applies this many
/// again.
const CHANGES_MAX: usize = 200_000;

/// Changes by key; `None` removes.
#[derive(Clone)]
pub(super) struct Changes {
    batch: Batch,
    bytes: u64,
    /// The number of collected changes, replaced ones included.
    taken: usize,
}

impl Changes {
    pub(super) fn new() -> Changes {
        Changes { batch: Batch::default(), bytes: 0, taken: 0 }
    }

    pub(super) fn get(&self, key: &[u8]) -> Option<&Option<Bytes>> {
        self.batch.get(key)
    }

    pub(super) fn put(&mut self, key: Bytes, value: Option<Bytes>) {
        let key_bytes = key.len() as u64;
        let weight = |value: &Option<Bytes>| value.as_ref().map_or(0, Bytes::len) as u64;
        self.taken += 1;
        self.bytes += weight(&value);
        match self.batch.change(key, value) {
            Some(replaced) => self.bytes -= weight(&replaced),
            None => self.bytes += CHANGE_BYTES + key_bytes,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.batch.len()
    }

    pub(super) fn is_full(&self, bytes_max: u64) -> bool {
        self.bytes >= bytes_max || self.taken >= CHANGES_MAX
    }
}

/// Changes that are complete, to be written.
pub(super) struct Leaving {
    changes: Changes,
    sorted: OnceLock<Vec<Bytes>>,
}

impl Leaving {
    pub(super) fn new(changes: Changes) -> Leaving {
        Leaving { changes, sorted: OnceLock::new() }
    }

    pub(super) fn get(&self, key: &[u8]) -> Option<&Option<Bytes>> {
        self.changes.get(key)
    }

    /// All of them, in byte order.
    pub(super) fn all(&self) -> impl Iterator<Item = (&Bytes, &Option<Bytes>)> {
        self.range(b"", None)
    }

    /// Those of a range, in byte order.
    pub(super) fn range(
        &self,
        from: &[u8],
        until: Option<&[u8]>,
    ) -> impl Iterator<Item = (&Bytes, &Option<Bytes>)> {
        let sorted = self.sorted.get_or_init(|| {
            let mut keys: Vec<_> = self.changes.batch.keys().cloned().collect();
            keys.sort_unstable();
            keys
        });
        let first = sorted.partition_point(|key| &key[..] < from);
        let last = until.map_or(sorted.len(), |until| sorted.partition_point(|k| &k[..] < until));
        sorted[first..last.max(first)].iter().filter_map(|key| Some((key, self.get(key)?)))
    }
}

/// Both maps.
pub(super) struct Recent {
    pub(super) filling: Changes,
    pub(super) leaving: Option<Arc<Leaving>>,
}

impl Recent {
    pub(super) fn new() -> Recent {
        Recent { filling: Changes::new(), leaving: None }
    }

    /// The latest change of a key, if the engine may not have it yet.
    pub(super) fn get(&self, key: &[u8]) -> Option<&Option<Bytes>> {
        let newest = self.filling.get(key);
        newest.or_else(|| self.leaving.as_ref().and_then(|leaving| leaving.get(key)))
    }
}

/// The newest change of each key of two sets, both in byte order.
pub(super) fn merge<'a>(
    newer: impl Iterator<Item = (&'a Bytes, &'a Option<Bytes>)>,
    older: impl Iterator<Item = (&'a Bytes, &'a Option<Bytes>)>,
) -> impl Iterator<Item = (Bytes, Option<Bytes>)> {
    let (mut newer, mut older) = (newer.peekable(), older.peekable());
    std::iter::from_fn(move || {
        let takes_older = match (newer.peek(), older.peek()) {
            (Some((new, _)), Some((old, _))) => old < new,
            (None, Some(_)) => true,
            _ => false,
        };
        let next = if takes_older { older.next() } else { newer.next() };
        let (key, change) = next?;
        if !takes_older {
            older.next_if(|(old, _)| *old == key);
        }
        Some((key.clone(), change.clone()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(all: &[(&'static str, Option<&'static str>)]) -> Changes {
        let mut changes = Changes::new();
        for (key, value) in all {
            changes.put(Bytes::from(*key), value.map(Bytes::from));
        }
        changes
    }

    #[test]
    fn a_newer_change_takes_the_older_ones_place() {
        let twice = changes(&[("a", Some("long ago")), ("b", Some("2")), ("a", None)]);
        assert_eq!(twice.get(b"a"), Some(&None));
        assert_eq!((twice.len(), twice.taken), (2, 3));
        assert_eq!(twice.bytes, 2 * (CHANGE_BYTES + 1) + 1);
        assert!(twice.is_full(twice.bytes) && !twice.is_full(twice.bytes + 1));
    }

    #[test]
    fn few_keys_changed_often_leave_too() {
        let mut hot = Changes::new();
        for _ in 0..CHANGES_MAX {
            assert!(!hot.is_full(u64::MAX));
            hot.put(Bytes::from("k"), None);
        }
        assert!(hot.is_full(u64::MAX));
    }

    #[test]
    fn the_newest_of_two_sets_is_seen_in_order() {
        let older = Leaving::new(changes(&[("a", Some("1")), ("c", Some("1")), ("d", Some("1"))]));
        let newer = Leaving::new(changes(&[("e", Some("2")), ("b", Some("2")), ("c", None)]));
        let merged = merge(newer.range(b"b", None), older.range(b"b", Some(b"d")));
        let merged: Vec<_> = merged.collect();
        let expected = [("b", Some("2")), ("c", None), ("e", Some("2"))];
        assert_eq!(merged, expected.map(|(key, value)| (key.into(), value.map(Bytes::from))));
        assert_eq!(newer.range(b"c", Some(b"b")).count(), 0);
    }
}
