//! Bytes to words and back: RESP, peer frames, gRPC definitions.

pub mod entry;
pub mod peer;
pub mod resp;
