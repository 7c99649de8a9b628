//! Two contracts and their engines: what a replica must not forget, and what it can rebuild.
//!
//! - [`log`]: the replica's log. The truth. Appended and made durable once a batch, checksummed,
//!   loud about damage before its tail.
//! - [`snapshot`]: a file that holds a whole state as of one log index. With the log behind it, it
//!   is the truth too: it is what allows the log to be cut. The same file is what travels to a
//!   lagging node, and what a backup is.
//! - [`state`]: the ordered map that commands are applied to. Not the truth: it needs no fsync, and
//!   when it is found behind or damaged it is rebuilt from snapshot and log.
//!
//! - [`disk`]: what the first two are written over, so that their files can be lost, torn and refused.
//!
//! Each contract has a real engine and an in-memory one that can lose, tear and refuse on demand,
//! and all engines of a contract pass one shared suite. Nothing here knows Raft or what a command
//! means; nothing here starts a thread or reads a clock.

pub mod disk;
pub mod log;
pub mod snapshot;
pub mod state;
