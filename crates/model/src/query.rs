//! Questions about the state. They never change it and never enter the log.

#![expect(
    missing_docs,
    reason = "a variant's doc speaks of its fields; their names state the rest"
)]

use crate::{Bytes, Kind};

/// One question inside one keyspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Query {
    /// The value of a key, with its version. [`crate::Answer::Value`].
    Get { key: Bytes },
    /// The values of several keys at one moment; a key that holds no string counts as absent, as
    /// in Redis. [`crate::Answer::Values`].
    GetMany { keys: Vec<Bytes> },
    /// How many of the keys exist, each counted as often as it is named.
    /// [`crate::Answer::Integer`].
    Exists { keys: Vec<Bytes> },
    /// When a key expires. [`crate::Answer::Expiry`].
    Expiry { key: Bytes },
    /// What a key holds. [`crate::Answer::Kind`].
    Kind { key: Bytes },
    /// The length of a key's string in bytes, 0 when absent. [`crate::Answer::Integer`].
    Length { key: Bytes },
    /// The versions of keys ([`crate::Revision`] 0 for an absent one). [`crate::Answer::Versions`].
    Versions { keys: Vec<Bytes> },
    /// The versions of keys and the state in which they had them, for a transaction's guards.
    /// [`crate::Answer::Watched`].
    Watch { keys: Vec<Bytes> },
    /// One field of a hash. [`crate::Answer::Value`].
    HashGet { key: Bytes, field: Bytes },
    /// Several fields of a hash. [`crate::Answer::Values`].
    HashGetMany { key: Bytes, fields: Vec<Bytes> },
    /// All fields of a hash, ordered by field. [`crate::Answer::Fields`].
    HashGetAll { key: Bytes },
    /// Whether a hash has a field. [`crate::Answer::Flag`].
    HashExists { key: Bytes, field: Bytes },
    /// How many fields a hash has. [`crate::Answer::Integer`].
    HashLen { key: Bytes },
    /// How many keys the keyspace holds. [`crate::Answer::Integer`].
    Count,
    /// A page of keys in byte order. [`crate::Answer::Page`].
    Scan {
        /// The first key to look at.
        from: Bytes,
        /// Stop before this key; `None`: at the end of the keyspace.
        until: Option<Bytes>,
        /// Stop after looking at this many keys (≥ 1), matching or not.
        /// At most [`crate::limits::SCAN_PAGE_ITEMS_MAX`].
        examine_max: usize,
        /// Which keys to return.
        filter: ScanFilter,
        /// Return the values too (strings only), not just the keys.
        with_values: bool,
    },
}

/// Which keys of a scan are returned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScanFilter {
    /// A glob as in Redis (`*`, `?`, `[a-z]`, `[^a]`, `\x`).
    pub glob: Option<Bytes>,
    /// Only keys that hold this.
    pub kind: Option<Kind>,
}
