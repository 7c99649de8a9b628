//! What a site on etcd needs of it: reading, and transactions that only the owner's process can make.
//!
//! The owner of a site has a *fence*: a key that is its own for as long as its lease lasts, and that
//! every one of its transactions looks at. When somebody else owns the site, or may soon, the
//! transaction does nothing and says so. A contract of its own, so that what is built on it is tried
//! with a store in memory that fails where it is told to ([`super::fake`]).

use model::{Bytes, limits};

/// One change in a transaction. Keys are without the site's prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    /// Sets a key.
    Put {
        /// Which.
        key: Bytes,
        /// To what.
        value: Bytes,
    },
    /// Removes a key, there or not.
    Delete {
        /// Which.
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

/// What an operation takes in a request beside its keys and values, at most.
const OP_OVERHEAD_BYTES: usize = 32 + limits::ETCD_PREFIX_BYTES_MAX;

impl Op {
    /// What it takes of a request, at most.
    pub(crate) fn bytes(&self) -> usize {
        OP_OVERHEAD_BYTES
            + match self {
                Op::Put { key, value } => key.len() + value.len(),
                Op::Delete { key } => key.len(),
                Op::DeleteRange { from, until } => from.len() + until.len(),
            }
    }
}

/// Operations that one [`Fenced::commit`] takes: the fence's own is one more.
pub(crate) const OPS_MAX: usize = limits::ETCD_OPS_MAX - 1;

/// Whether they fit one [`Fenced::commit`].
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

/// Why nothing more can be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The site is not this process's any more. What was under way was not done, or was done before.
    Lost(String),
    /// It makes no sense to go on: what must be changed first.
    Failed(String),
    /// The node is being stopped.
    Stopped,
}

/// The part of the store that belongs to one site, as its owner sees it. What fails for a while is
/// tried again inside until it is known to have been done, once.
pub(crate) trait Fenced {
    /// Does all of it, or finds the fence gone. At most [`OPS_MAX`] operations, no key twice.
    fn commit(&mut self, ops: Vec<Op>) -> Result<(), Ended>;

    /// Makes sure that the fence stands now, at some moment between call and return.
    fn check(&mut self) -> Result<(), Ended>;

    /// The first keys and values from `from` (inclusive) to `until` (exclusive), at most so many.
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
