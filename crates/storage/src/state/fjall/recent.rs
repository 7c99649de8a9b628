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
use std::collections::{BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// The overhead of a change beside its bytes: two handles and their counts, its place in the table.
const CHANGE_BYTES: u64 = 200;
/// Changes collected before they are written, even if of few keys: a killed node applies this many
/// again.
const CHANGES_MAX: usize = 200_000;
/// Keys that a scan takes from the order of a map at once: it may end after a few.
const KEYS_AT_ONCE: usize = 32;

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

    /// Returns whether the key is a new one here.
    pub(super) fn put(&mut self, key: Bytes, value: Option<Bytes>) -> bool {
        let key_bytes = key.len() as u64;
        let weight = |value: &Option<Bytes>| value.as_ref().map_or(0, Bytes::len) as u64;
        self.taken += 1;
        self.bytes += weight(&value);
        let replaced = self.batch.change(key, value);
        match &replaced {
            Some(replaced) => self.bytes -= weight(replaced),
            None => self.bytes += CHANGE_BYTES + key_bytes,
        }
        replaced.is_none()
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
    /// The order that they had while they were collected, until they are sorted: neither is work
    /// for a thread that commits. `None`: there was no scan of them, or they are a copy.
    order: Mutex<Option<Order>>,
    sorted: OnceLock<Vec<Bytes>>,
}

impl Leaving {
    pub(super) fn get(&self, key: &[u8]) -> Option<&Option<Bytes>> {
        self.changes.get(key)
    }

    /// All of them, in byte order.
    pub(super) fn all(&self) -> impl Iterator<Item = (&Bytes, &Option<Bytes>)> {
        self.slice(b"", None)
    }

    /// Those of a range, in byte order.
    pub(super) fn range(
        &self,
        from: &[u8],
        until: Option<&[u8]>,
    ) -> impl Iterator<Item = (Bytes, Option<Bytes>)> {
        self.slice(from, until).map(|(key, change)| (key.clone(), change.clone()))
    }

    fn slice(
        &self,
        from: &[u8],
        until: Option<&[u8]>,
    ) -> impl Iterator<Item = (&Bytes, &Option<Bytes>)> {
        let sorted = self.sorted.get_or_init(|| {
            let mut order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
            let mut keys: Vec<_> = match order.take() {
                Some(Order { sorted, new }) => sorted.into_iter().chain(new).collect(),
                None => self.changes.batch.keys().cloned().collect(),
            };
            keys.sort();
            keys
        });
        let first = sorted.partition_point(|key| &key[..] < from);
        let last = until.map_or(sorted.len(), |until| sorted.partition_point(|k| &k[..] < until));
        sorted[first..last.max(first)].iter().filter_map(|key| Some((key, self.get(key)?)))
    }
}

/// Both maps.
pub(super) struct Recent {
    pub(super) filling: Filling,
    pub(super) leaving: Option<Arc<Leaving>>,
}

/// The changes that are being collected.
///
/// Their keys have an order for scans, which come many times between two changes where a site looks
/// for what is left to do: to sort all keys for each took longer than all else that such a site
/// did. The first scan puts the keys in order, and each later one those that came since, so that a
/// site that only writes pays nothing for it.
pub(super) struct Filling {
    changes: Changes,
    /// `None`: there was no scan yet.
    order: Mutex<Option<Order>>,
}

struct Order {
    sorted: BTreeSet<Bytes>,
    /// Those that came since.
    new: Vec<Bytes>,
}

impl Filling {
    fn new() -> Filling {
        Filling { changes: Changes::new(), order: Mutex::default() }
    }

    pub(super) fn put(&mut self, key: Bytes, value: Option<Bytes>) {
        let Some(order) = self.order.get_mut().unwrap_or_else(PoisonError::into_inner) else {
            self.changes.put(key, value);
            return;
        };
        if self.changes.put(key.clone(), value) {
            order.new.push(key);
        }
    }

    pub(super) fn changes(&self) -> &Changes {
        &self.changes
    }

    /// What was collected, which begins anew here.
    pub(super) fn take(&mut self) -> Leaving {
        let Filling { changes, order } = std::mem::replace(self, Filling::new());
        let order = order.into_inner().unwrap_or_else(PoisonError::into_inner);
        Leaving { changes, order: Mutex::new(order), sorted: OnceLock::new() }
    }

    /// A copy of what was collected.
    pub(super) fn copied(&self) -> Leaving {
        Leaving { changes: self.changes.clone(), order: Mutex::default(), sorted: OnceLock::new() }
    }

    /// Those of a range, in byte order.
    pub(super) fn range(
        &self,
        from: &[u8],
        until: Option<&[u8]>,
    ) -> impl Iterator<Item = (Bytes, Option<Bytes>)> {
        let mut after = Bound::Included(Bytes::copy_from_slice(from));
        let until =
            until.map_or(Bound::Unbounded, |until| Bound::Excluded(Bytes::copy_from_slice(until)));
        let mut next = VecDeque::new();
        let keys = std::iter::from_fn(move || {
            if next.is_empty() {
                let range = (after.clone(), until.clone());
                self.with_sorted(|keys| next.extend(keys.range(range).take(KEYS_AT_ONCE).cloned()));
            }
            let key: Bytes = next.pop_front()?;
            after = Bound::Excluded(key.clone());
            Some(key)
        });
        keys.filter_map(|key| {
            let change = self.changes.get(&key)?.clone();
            Some((key, change))
        })
    }

    /// Lets `look` have all keys in order.
    fn with_sorted(&self, look: impl FnOnce(&BTreeSet<Bytes>)) {
        let mut order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        let all = || self.changes.batch.keys().cloned().collect();
        let Order { sorted, new } =
            order.get_or_insert_with(|| Order { sorted: all(), new: Vec::new() });
        sorted.extend(std::mem::take(new));
        look(sorted);
    }
}

impl Recent {
    pub(super) fn new() -> Recent {
        Recent { filling: Filling::new(), leaving: None }
    }

    /// The latest change of a key, if the engine may not have it yet.
    pub(super) fn get(&self, key: &[u8]) -> Option<&Option<Bytes>> {
        let newest = self.filling.changes.get(key);
        newest.or_else(|| self.leaving.as_ref().and_then(|leaving| leaving.get(key)))
    }
}

/// The newest change of each key of two sets, both in byte order.
pub(super) fn merge(
    newer: impl Iterator<Item = (Bytes, Option<Bytes>)>,
    older: impl Iterator<Item = (Bytes, Option<Bytes>)>,
) -> impl Iterator<Item = (Bytes, Option<Bytes>)> {
    let (mut newer, mut older) = (newer.peekable(), older.peekable());
    std::iter::from_fn(move || {
        let takes_older = match (newer.peek(), older.peek()) {
            (Some((new, _)), Some((old, _))) => old < new,
            (None, Some(_)) => true,
            _ => false,
        };
        if takes_older {
            return older.next();
        }
        let (key, change) = newer.next()?;
        older.next_if(|(old, _)| *old == key);
        Some((key, change))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filling(all: &[(&'static str, Option<&'static str>)]) -> Filling {
        let mut filling = Filling::new();
        for (key, value) in all {
            filling.put(Bytes::from(*key), value.map(Bytes::from));
        }
        filling
    }

    #[test]
    fn a_newer_change_takes_the_older_ones_place() {
        let twice = filling(&[("a", Some("long ago")), ("b", Some("2")), ("a", None)]).changes;
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
        let older = filling(&[("a", Some("1")), ("c", Some("1")), ("d", Some("1"))]).copied();
        let newer = filling(&[("e", Some("2")), ("b", Some("2")), ("c", None)]).take();
        let merged = merge(newer.range(b"b", None), older.range(b"b", Some(b"d")));
        let merged: Vec<_> = merged.collect();
        let expected = [("b", Some("2")), ("c", None), ("e", Some("2"))];
        assert_eq!(merged, expected.map(|(key, value)| (key.into(), value.map(Bytes::from))));
        assert_eq!(newer.range(b"c", Some(b"b")).count(), 0);
    }

    #[test]
    fn what_is_collected_is_in_order_and_a_scan_may_end_early() {
        let mut filling = Filling::new();
        let put = |filling: &mut Filling, number: usize, value: &'static str| {
            filling.put(format!("{number:03}").into(), Some(value.into()));
        };
        let seen = |filling: &Filling, until: Option<&[u8]>| -> Vec<String> {
            let range = filling.range(b"002", until);
            range.map(|(key, change)| format!("{:?}{:?}", key, change.unwrap())).collect()
        };
        assert_eq!(seen(&filling, None), [""; 0]);
        for number in (0..3 * KEYS_AT_ONCE).rev() {
            put(&mut filling, number, "a");
        }
        assert_eq!(filling.range(b"", None).count(), 3 * KEYS_AT_ONCE);
        // What comes between two scans is in its place, and a key that is changed again has one.
        put(&mut filling, 5, "b");
        filling.put("0035".into(), Some("c".into()));
        filling.put("004".into(), None);
        let range: Vec<_> = filling.range(b"003", Some(b"006")).collect();
        let expected = [("003", Some("a")), ("0035", Some("c")), ("004", None), ("005", Some("b"))];
        assert_eq!(range, expected.map(|(key, value)| (key.into(), value.map(Bytes::from))));
        assert_eq!(seen(&filling, Some(b"003")), ["b\"002\"b\"a\""]);
        assert_eq!(filling.range(b"000", None).take(2).count(), 2);
        // What leaves is in order too, whatever came since the last scan.
        put(&mut filling, 4, "c");
        filling.put("0021".into(), None);
        let leaving = filling.take();
        assert_eq!((leaving.all().count(), leaving.changes.len()), (98, 98));
        assert!(leaving.all().is_sorted_by(|(a, _), (b, _)| a < b));
        assert_eq!(leaving.range(b"0020", Some(b"003")).count(), 1);
        assert_eq!(filling.range(b"", None).count(), 0);
    }
}
