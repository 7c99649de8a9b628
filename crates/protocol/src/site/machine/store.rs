//! Where some records lie: under one generation, so that they are one range.

use wire::row;

/// Where records lie, and how many there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Store {
    pub(super) generation: u64,
    pub(super) count: u64,
}

row!(Store { generation, count });
