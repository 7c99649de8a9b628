//! The cursors of SCANs.
//!
//! A cursor of Redis is a number, while scans here are ordered by key: so a node maps its numbers
//! to keys. They belong to the node, not to a connection, since a pool may continue a scan on
//! another connection. A cursor may be used again, as in Redis. Their number is limited; the one
//! idle longest is dropped first.

use bytes::Bytes;
use model::{KeyspaceId, limits};
use std::collections::{BTreeMap, HashMap};

/// The point from which a scan continues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) keyspace: KeyspaceId,
    pub(super) key: Bytes,
}

/// The open cursors of a node.
pub(super) struct Cursors {
    /// Distinguishes this process's cursors from those of other processes.
    salt: u64,
    next: u32,
    /// Position and time of last use, in uses.
    open: HashMap<u64, (Position, u64)>,
    by_use: BTreeMap<u64, u64>,
    uses: u64,
}

/// Cursors stay below 2⁵³, so that clients which store numbers as doubles keep them exact.
const SALT_BITS: u32 = 20;

impl Cursors {
    /// No cursors. `salt`: random.
    pub(super) fn new(salt: u64) -> Cursors {
        let salt = salt & ((1 << SALT_BITS) - 1);
        Cursors { salt, next: 0, open: HashMap::new(), by_use: BTreeMap::new(), uses: 0 }
    }

    /// A new cursor for a position. Never 0.
    pub(super) fn open(&mut self, position: Position) -> u64 {
        self.next = self.next.checked_add(1).unwrap_or(1);
        let cursor = self.salt << 32 | u64::from(self.next);
        // The key is a slice of a page of the scan; the page's memory must not be kept.
        let key = Bytes::copy_from_slice(&position.key);
        self.enter(cursor, Position { key, ..position });
        if self.open.len() > limits::SCAN_CURSORS_MAX
            && let Some((_, oldest)) = self.by_use.pop_first()
        {
            self.open.remove(&oldest);
        }
        cursor
    }

    /// The position of a cursor, if it is still there.
    pub(super) fn position(&mut self, cursor: u64) -> Option<Position> {
        let (position, used) = self.open.remove(&cursor)?;
        self.by_use.remove(&used);
        self.enter(cursor, position.clone());
        Some(position)
    }

    fn enter(&mut self, cursor: u64, position: Position) {
        self.uses += 1;
        if let Some((_, used)) = self.open.insert(cursor, (position, self.uses)) {
            self.by_use.remove(&used);
        }
        self.by_use.insert(self.uses, cursor);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(key: usize) -> Position {
        Position { keyspace: KeyspaceId(1), key: Bytes::from(key.to_string()) }
    }

    #[test]
    fn a_cursor_is_remembered_and_may_be_used_again() {
        let mut cursors = Cursors::new(u64::MAX);
        let cursor = cursors.open(at(7));
        assert!(cursor > 0 && cursor < 1 << 53);
        assert_eq!(cursors.position(cursor), Some(at(7)));
        assert_eq!(cursors.position(cursor), Some(at(7)));
        assert_eq!(Cursors::new(1).position(cursor), None);
    }

    #[test]
    fn the_one_idle_longest_is_forgotten_first() {
        let mut cursors = Cursors::new(0);
        let first = cursors.open(at(0));
        let second = cursors.open(at(1));
        for key in 2..limits::SCAN_CURSORS_MAX {
            cursors.open(at(key));
        }
        assert_eq!(cursors.position(first), Some(at(0)), "in use again");
        cursors.open(at(9));
        assert_eq!(cursors.position(second), None);
        assert_eq!(cursors.position(first), Some(at(0)));
        assert_eq!(cursors.open.len(), limits::SCAN_CURSORS_MAX);
        assert_eq!(cursors.by_use.len(), limits::SCAN_CURSORS_MAX);
    }
}
