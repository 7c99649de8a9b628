//! What the sites of a deployment share.
//!
//! - [`registry`]: one value that all sites agree on, held by a few of them.

pub mod registry;
