//! The contract [`super::fenced`] by a real etcd (3.4 or newer).
//!
//! | file | idea |
//! | --- | --- |
//! | `client` | one call to one of the endpoints, with a deadline; what its failure means |
//! | `owner` | becoming the owner, staying it, and its transactions |
//! | `health` | what can be seen of it from outside |
//!
//! `api` is generated from `proto/etcd.proto`: the few calls that are made, with etcd's own numbers.

mod client;
pub(crate) mod health;
pub(crate) mod owner;

pub use client::EtcdError;

/// What `tonic` and `prost` generate from `proto/etcd.proto`.
#[allow(missing_docs, unreachable_pub, dead_code, clippy::all)]
mod api {
    tonic::include_proto!("etcdserverpb");
}
