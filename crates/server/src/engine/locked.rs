//! The contract with the store of a site: reads, and transactions that only the owner's process can
//! make.
//!
//! The owner of a site has a *lock*: a key that is its own as long as its lease lasts, and that
//! each of its transactions compares. When another process owns the site, or soon may, the
//! transaction does nothing and fails. The contract is separate from etcd so that its users can be
//! tested with a store in memory that fails on demand ([`super::fake`]).

use model::{Bytes, limits};

/// One change in a transaction. Keys are without the site's prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    /// Sets a key.
    Put {
        /// The key.
        key: Bytes,
        /// The value.
        value: Bytes,
    },
    /// Removes a key, there or not.
    Delete {
        /// The key.
        key: Bytes,
    },
    /// Removes keys.
    DeleteRange {
        /// From this one (inclusive).
        from: Bytes,
        /// To this one (exclusive).
        until: Bytes,
    },
}

/// The size of an operation in a request without its keys and values, at most.
const OP_OVERHEAD_BYTES: usize = 32 + limits::ETCD_PREFIX_BYTES_MAX;

impl Op {
    /// Its size in a request, at most.
    pub(crate) fn bytes(&self) -> usize {
        OP_OVERHEAD_BYTES
            + match self {
                Op::Put { key, value } => key.len() + value.len(),
                Op::Delete { key } => key.len(),
                Op::DeleteRange { from, until } => from.len() + until.len(),
            }
    }
}

/// The most operations of one [`Locked::commit`]: the lock needs one more.
pub(crate) const OPS_MAX: usize = limits::ETCD_OPS_MAX - 1;

/// Whether the operations fit one [`Locked::commit`].
pub(crate) fn fit(ops: &[Op]) -> bool {
    ops.len() <= OPS_MAX
        && ops.iter().map(Op::bytes).sum::<usize>() <= limits::ETCD_REQUEST_BYTES_MAX
}

/// The same operations in groups that fit, in their order.
pub(crate) fn groups(ops: Vec<Op>) -> Vec<Vec<Op>> {
    let mut groups = vec![Vec::new()];
    let mut bytes = 0;
    for op in ops {
        let group = groups.last_mut().expect("never empty");
        bytes += op.bytes();
        if group.len() < OPS_MAX && bytes <= limits::ETCD_REQUEST_BYTES_MAX {
            group.push(op);
        } else {
            bytes = op.bytes();
            groups.push(vec![op]);
        }
    }
    groups.retain(|group| !group.is_empty());
    groups
}

/// Why the owner cannot continue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// This process no longer owns the site. The current operation had no effect, or took effect
    /// before.
    Lost(String),
    /// Continuing is pointless until the named problem is mended.
    Failed(String),
    /// The node is being stopped.
    Stopped,
}

/// The part of the store that belongs to one site, as its owner sees it. Transient failures are
/// retried inside until the operation is known to have taken effect once.
pub(crate) trait Locked {
    /// Applies all operations, or fails if the lock is gone. At most [`OPS_MAX`], no key twice.
    fn commit(&mut self, ops: Vec<Op>) -> Result<(), Ended>;

    /// Verifies that the lock held at some moment between call and return.
    fn check(&mut self) -> Result<(), Ended>;

    /// The first keys and values from `from` (inclusive) to `until` (exclusive), limited in number.
    fn page(
        &mut self,
        from: &[u8],
        until: &[u8],
        rows_max: usize,
    ) -> Result<Vec<(Bytes, Bytes)>, Ended>;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(bytes: usize) -> Op {
        Op::Put { key: Bytes::from_static(b"k"), value: vec![0; bytes].into() }
    }

    #[test]
    fn groups_fit_and_lose_nothing() {
        for (count, bytes) in [(0, 0), (1, 0), (OPS_MAX, 0), (OPS_MAX + 1, 0), (7, 500 << 10)] {
            let ops: Vec<Op> = (0..count).map(|_| put(bytes)).collect();
            let groups = groups(ops.clone());
            assert!(groups.iter().all(|group| fit(group) && !group.is_empty()));
            assert_eq!(groups.concat(), ops);
            assert_eq!(fit(&ops), groups.len() <= 1);
        }
    }
}
