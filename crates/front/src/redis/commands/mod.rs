//! The commands, one file per family. Each file declares its commands for the table and parses
//! their arguments.

pub(super) mod causal;
mod cluster;
pub(super) mod connection;
mod hashes;
mod keys;
pub(super) mod once;
pub(super) mod pubsub;
pub(super) mod scan;
mod server;
mod strings;
mod transactions;

use super::table::Family;

/// Every family.
pub(super) const FAMILIES: [&Family; 10] = [
    &strings::FAMILY,
    &hashes::FAMILY,
    &keys::FAMILY,
    &scan::FAMILY,
    &transactions::FAMILY,
    &pubsub::FAMILY,
    &connection::FAMILY,
    &server::FAMILY,
    &cluster::FAMILY,
    &causal::FAMILY,
];
