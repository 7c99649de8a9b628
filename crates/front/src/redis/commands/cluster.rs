//! CLUSTER: its entry in the table. [`crate::redis::cluster`] runs it.

use crate::redis::table::flag::STALE;
use crate::redis::table::{CommandSpec, Family, Own};

#[rustfmt::skip]
pub(super) static FAMILY: Family = Family {
    group: "cluster",
    category: "@admin",
    commands: &[
        CommandSpec::own("cluster", -2, STALE, "3.0.0", "Which site holds which slots, for clients that go there", Own::Cluster),
    ],
};
