//! gRPC: the definitions of `proto/portolan/v1`, and their words turned into the model's and back.
//!
//! The only part of this crate that needs an async ecosystem, and only for its types, so it stands
//! behind the feature `grpc` and the rest of the crate stays free of it. Nothing here does I/O.

mod cluster;
mod codec;
mod failure;
mod kv;

pub use cluster::{alteration, keyspace, keyspace_spec};
// Named by the generated code.
pub(crate) use codec::Codec;
pub use failure::{
    AGAIN_KEY, CLIENT_KEY, FAILURE_KEY, Invalid, LACK_KEY, Lack, Reason, SESSION_KEY, TRIED_KEY,
    UNCOUNTED_KEY, status,
};
pub use kv::*;

/// What `cargo xtask generate` makes of the definitions; the documents are in the `.proto` files.
#[allow(missing_docs, unreachable_pub, clippy::all)]
pub mod v1 {
    include!("../../proto/portolan.v1.rs");
}
