//! Who owns a slot, and who has a copy of it: the rules, for one slot at one site.
//!
//! Pure values, without records: a [`Holding`] is what a site knows of one slot, a step changes it and
//! says what becomes of the records that lie there ([`Records`]). The state machine carries that out;
//! the model checker in `tests/ownership` carries it out on sets of bits, for three sites and every
//! order of steps.
//!
//! - [`holding`]: tokens and copies, and every step that changes them;
//! - [`fences`]: what a site's copy of the registry forbids it;
//! - [`takeover`]: what sites report in a failover, and who takes a slot;
//! - [`leaving`]: whether a site may go;
//! - [`trial`]: bugs put in on purpose.
//!
//! # The rules
//!
//! *Epoch.* A site that learns of a higher epoch of a slot than its own stops serving it in the same
//! command, by whatever message it learns that. Tokens never decrease.
//!
//! *Copy.* A copy goes only when the owner says that one with a higher tag is complete at another site
//! and not behind, or when an operator discards it by name. What an owner retains of a slot that it owns no
//! more is a copy like a mirror.
//!
//! *Fence.* A fence is what the site's own copy of the registry says, so it ends with its failover.
//!
//! *Registry.* Between two sites the older copy of the registry is brought up to date first. A decision
//! is forgotten only when every listed site has it.

pub mod fences;
pub mod holding;
pub mod leaving;
pub mod takeover;
pub mod trial;

pub use fences::Fences;
pub use holding::{Holding, Records, Token};
pub use takeover::{Found, Report};
