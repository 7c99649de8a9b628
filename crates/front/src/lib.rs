//! The fronts of a site: Redis, gRPC, admin HTTP.
//!
//! Only a front deals with its protocol, and a front is independent of how a keyspace keeps its
//! guarantees: it decodes bytes into the model's types, sends requests to the site through a
//! [`server::Handle`], and encodes the answers.

pub mod admin;
mod causal;
mod connection;
pub mod grpc;
mod listener;
mod login;
mod numbered;
mod permits;

pub use listener::OpenError;

pub mod redis;
