//! The doors of a site: Redis, gRPC, admin HTTP.
//!
//! A front alone knows its protocol, and knows nothing of how a keyspace keeps its promise: it turns
//! bytes into the model's words, asks the site through a [`server::Handle`], and turns the answer
//! into bytes.

pub mod admin;
mod doors;
pub mod grpc;
mod login;
mod seats;

pub use doors::OpenError;

pub mod redis;
