//! The words everybody uses: ids, keys, keyspaces, requests, replies, errors, limits.
