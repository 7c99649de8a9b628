//! The Rust client: gRPC with retries that are applied once.
