//! Bytes to words and back: RESP, peer frames, gRPC definitions.

pub mod causal;
pub mod entry;
#[cfg(feature = "grpc")]
pub mod grpc;
pub mod inter_site;
pub mod peer;
pub mod proof;
pub mod resp;
pub mod ring;
pub mod row;
