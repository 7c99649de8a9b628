//! The owner of a slot and its copies: the rules, for one slot at one site.
//!
//! Pure values, without records: a [`Holding`] is what a site records of one slot; a step changes
//! it and returns what happens to the slot's records at that site ([`Records`]). The state machine
//! applies that to real records; the model checkers in `tests/ownership` and `tests/lending` apply
//! it to sets of bits, for three sites and every order of steps.
//!
//! - [`holding`]: tokens and copies, and every step that changes them;
//! - [`fences`]: what a site's copy of the registry forbids;
//! - [`takeover`]: the reports of sites in a failover, and the site that takes a slot;
//! - [`leaving`]: whether a site may leave;
//! - [`lending`]: a group of a slot that another site serves; nothing lends yet;
//! - [`trial`]: planted bugs.
//!
//! # The rules
//!
//! *Epoch.* A site that learns of a higher epoch of a slot than its own, from any message, stops
//! serving the slot in the same command. Tokens never decrease.
//!
//! *Copy.* A copy goes only when the owner reports that one with a higher tag is complete at
//! another site and not behind, or when an operator discards it by name. What a former owner
//! retains of a slot is a copy like a mirror.
//!
//! *Fence.* The site's own copy of the registry defines its fences, so a fence ends with its
//! failover.
//!
//! *Registry.* When two sites communicate, the older copy of the registry is updated first. A
//! decision is dropped only when every listed site has it.

pub mod fences;
pub mod holding;
pub mod leaving;
pub mod lending;
pub mod takeover;
pub mod trial;

pub use fences::Fences;
pub use holding::{Holding, Records, Token, lost_after};
pub use takeover::{Found, Report};
