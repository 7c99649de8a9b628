//! Placement over an unmodified Redis or Valkey Cluster: slots move to the server that is nearest
//! to the clients that use them.
//!
//! Decisions are pure and tested without I/O:
//!
//! - [`view`]: what one server reports of the cluster (`CLUSTER NODES`).
//! - [`plan`]: the next step of a slot's move, from the own report of each server.
//! - [`sketch`]: what clients send of their latencies and keys; [`clients`]: what they have sent
//!   lately.
//! - [`decide`]: which slots move where, by the solver that our own sites use; [`left`]: when a slot
//!   that was left is tried again.
//!
//! The rest talks to servers:
//!
//! - [`connection`]: RESP over a socket, with a deadline on each call; [`tls`] if need be.
//! - [`cluster`]: the servers of a cluster, and a survey of what each reports.
//! - [`mover`]: performs the steps; closes the slots that an earlier run left open.
//! - [`atomic`]: moves by the server's own command, where it has one.
//! - [`listen`]: takes sketches over HTTP.
//! - [`window`]: from sketches to moves.
//!
//! *Invariant:* no key is lost and no slot gets a second owner, wherever the mover stops. What it
//! cannot explain it reports and leaves as it is.

pub mod atomic;
pub mod clients;
pub mod cluster;
pub mod connection;
pub mod decide;
pub mod left;
pub mod listen;
pub mod mover;
pub mod plan;
mod problem;
pub mod sketch;
pub mod tls;
pub mod view;
pub mod window;
