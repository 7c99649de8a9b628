//! The Redis door: any Redis client, unmodified, over RESP2 or RESP3.
//!
//! The way of a command: [`listener`] accepts a connection and gives it to one of the front's
//! threads, where it stays; [`connection`] reads what has arrived, takes all complete commands,
//! has them done in order and writes all replies at once; [`table`] knows each command by name;
//! [`commands`] reads its arguments into one [`model::Step`] on one keyspace; [`step`] writes the
//! answer's reply.
//!
//! What is done how:
//! - The key chooses the keyspace by the longest prefix. All keys of one command, or of one
//!   transaction, must be in one keyspace; SCAN, KEYS, DBSIZE and FLUSHALL go over all of them.
//! - Writes that follow each other in a pipeline are handed to the site together, reads are
//!   answered on the thread that read them whenever the site allows it. A read behind a write in
//!   the same pipeline waits for it.
//! - MULTI/EXEC is one command of the log; WATCH is a guard on versions ([`transaction`]).
//! - Keyspace notifications come from the site's change log ([`notifications`]); they are always
//!   on. There is no other publish/subscribe.
//! - READONLY lets a connection's reads be stale (answered by any node from what it has);
//!   READWRITE makes them linearizable again.
//!
//! A second port ([`cluster`]) speaks the Redis Cluster protocol, for keyspaces whose slots move
//! between sites. What is different there is asked of the session.
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
mod refused;
mod session;
mod step;
mod sweep;
mod table;
mod thread;
mod transaction;

pub use listener::{Options, RedisFront, StartError};

/// Which Redis the commands behave like; clients decide by it what to use.
const REDIS_VERSION: &str = "7.2.0";
