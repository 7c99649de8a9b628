//! The ring: which site is responsible for a point, without any site that has the whole.
//!
//! Sites stand on a circle of 64-bit numbers, each at some *points* (its virtual nodes, as many as
//! its capacity is worth), and slots have points there too. The first virtual node at or after a
//! slot is responsible for it: its site registers the owner of the slot. No site needs to have all
//! sites in its pointers for that. Each keeps pointers to the next few, to the one before, and to
//! some that are farther and farther away, and finds its way in about half of log2 of the number of
//! sites, less what the lists save.
//!
//! It is Chord (Stoica, Morris, Karger, Kaashoek, Balakrishnan 2001) with the maintenance that
//! Pamela Zave has proved right (2012, 2017); the original could lose its ring. What is where:
//!
//! - [`Point`], [`Member`]: the circle and the virtual nodes on it;
//! - [`Ring`]: all pointers of one site. They are part of its replicated state, so that each of its
//!   nodes can compute the next [`Step`] of a lookup and answer others;
//! - [`Lookups`]: lookups under way at a node;
//! - [`Driver`]: what the site's leader does to join, to keep the pointers right, and to leave;
//! - [`invariant`], [`ideal()`]: what holds for all pointers together, for tests and verdicts.
//!
//! A site answers as one for all its virtual nodes, and crashes as one. So lists count *sites*, and
//! a virtual node's pointers end where those of the same site's next one begin (see `pointers`).
//!
//! Everything here is a hint. That a slot has one owner is kept by epochs elsewhere; a ring that is
//! wrong for a while costs a detour, never an answer that is wrong.
//!
//! Left out on purpose: a change of a site's capacity (it leaves and joins with other virtual
//! nodes), and mistrust: answers of other sites are not checked, since only sites of the deployment
//! get this far.

pub mod driver;
mod format;
mod hostile;
mod ideal;
pub mod invariant;
mod lookups;
mod point;
mod pointers;
mod step;
#[cfg(test)]
mod tests;
mod walk;

pub use driver::{Driver, RingOutput};
pub use format::RingError;
pub use hostile::{check_any_message, check_any_row};
pub use ideal::ideal;
pub use lookups::{LOOKUP_TIMEOUT, LookupOutput, Lookups};
pub use point::{Member, Point, virtual_count};
pub(in crate::global) use point::{mix, ticket};
pub use pointers::Ring;
pub use step::Step;
