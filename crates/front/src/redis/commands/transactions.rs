//! MULTI, EXEC, DISCARD, WATCH, UNWATCH: their entries in the table. [`crate::redis::transaction`]
//! runs them.

use crate::redis::table::flag::{ALLOW_BUSY, FAST, LOADING, NOSCRIPT, STALE};
use crate::redis::table::{CommandSpec, Family, Own};

const FLAGS: u16 = NOSCRIPT | LOADING | STALE;

#[rustfmt::skip]
pub(super) static FAMILY: Family = Family {
    group: "transactions",
    category: "@transaction",
    commands: &[
        CommandSpec::own("multi", 1, FLAGS | FAST | ALLOW_BUSY, "1.2.0", "Begins a transaction", Own::Multi),
        CommandSpec::own("exec", 1, FLAGS, "1.2.0", "Does a transaction", Own::Exec),
        CommandSpec::own("discard", 1, FLAGS | FAST | ALLOW_BUSY, "2.0.0", "Gives a transaction up", Own::Discard),
        CommandSpec::own("watch", -2, FLAGS | FAST | ALLOW_BUSY, "2.2.0", "Makes the next transaction depend on keys that do not change", Own::Watch),
        CommandSpec::own("unwatch", 1, FLAGS | FAST | ALLOW_BUSY, "2.2.0", "Forgets the watched keys", Own::Unwatch),
    ],
};
