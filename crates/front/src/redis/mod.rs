//! The Redis front: any Redis client, unmodified, over RESP2 or RESP3.
//!
//! The path of a command: [`listener`] accepts a connection and gives it to one of the front's
//! threads, where it stays; [`connection`] reads what has arrived, takes all complete commands, has
//! them executed in order and writes all replies at once; [`table`] finds each command by name;
//! [`commands`] parses its arguments into one [`model::Step`] on one keyspace; [`step`] encodes the
//! answer as a reply.
//!
//! How commands are executed:
//! - The key selects the keyspace by the longest prefix. All keys of one command, or of one
//!   transaction, must be in one keyspace; SCAN, KEYS, DBSIZE and FLUSHALL cover all of them.
//! - Successive writes of a pipeline are sent to the site together, reads are answered on the
//!   thread that received them whenever the site allows it. A read behind a write in the same
//!   pipeline waits for it. A write at another site may come after those behind it.
//! - MULTI/EXEC is one command of the log; WATCH is a guard on versions ([`transaction`]).
//! - Keyspace notifications come from the site's change log ([`notifications`]); they are always
//!   on. There is no other publish/subscribe.
//! - READONLY lets a connection's reads be stale (any node answers from its own state); READWRITE
//!   makes them linearizable again.
//!
//! A second port ([`cluster`]) serves the Redis Cluster protocol, for keyspaces with slots that
//! move between sites. The session holds what differs there.
//!
//! Left out: databases other than 0, scripts, streams, lists, sets and sorted sets, blocking
//! commands, client-side caching, MONITOR.

mod args;
mod clients;
mod cluster;
mod commands;
mod connection;
mod cursors;
mod execution;
mod listener;
mod login;
mod notifications;
mod parts;
mod refused;
mod session;
mod step;
mod sweep;
mod table;
mod thread;
mod transaction;

pub use listener::{Options, RedisFront};

/// The Redis version that the commands behave like; clients select features by it.
const REDIS_VERSION: &str = "7.2.0";
