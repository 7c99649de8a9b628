//! The contract [`super::locked`], implemented on etcd (3.4 or newer).
//!
//! | file | idea |
//! | --- | --- |
//! | `client` | one call to one of the endpoints, with a deadline; the meaning of its failures |
//! | `owner` | becoming the owner, staying it, and its transactions |
//! | `health` | the observed health of the cluster |
//!
//! `api` is generated from `proto/etcd.proto`: only the calls in use, with etcd's own numbers.

mod client;
pub(crate) mod health;
pub(crate) mod owner;

pub use client::EtcdError;

/// What `cargo xtask generate` makes of `proto/etcd.proto`.
#[allow(missing_docs, unreachable_pub, dead_code, clippy::all)]
mod api {
    include!("../../../proto/etcdserverpb.rs");
}
