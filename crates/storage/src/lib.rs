//! Two contracts and their engines: what a replica must not lose, and what it can rebuild.
//!
//! - [`log`]: the replica's log. The truth. Appended and made durable once per batch, checksummed;
//!   damage before its tail is a fatal error.
//! - [`snapshot`]: a file with a whole state as of one log index. With the log behind it, it is the
//!   truth too: it allows the log to be cut. The same file is sent to a lagging node, and is the
//!   format of a backup.
//! - [`state`]: the ordered map that commands are applied to. Not the truth: it needs no fsync, and
//!   if it lags or is damaged it is rebuilt from snapshot and log.
//!
//! - [`disk`]: the layer below the first two, so that their files can be lost, torn and refused.
//!
//! Each contract has a real engine and an in-memory one that can lose, tear and refuse on demand,
//! and all engines of a contract pass one shared suite. This crate does not depend on Raft or on
//! the meaning of commands; it starts no thread and reads no clock.

pub mod disk;
mod little_endian;
pub mod log;
pub mod snapshot;
pub mod state;
