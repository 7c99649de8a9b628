//! What the sites of a deployment share.
//!
//! - [`registry`]: one value that all sites agree on, held by a few of them;
//! - `versions`: which version of it each site has;
//! - `failure_detector`: which sites answer.

pub(crate) mod failure_detector;
pub mod registry;
pub(crate) mod versions;
