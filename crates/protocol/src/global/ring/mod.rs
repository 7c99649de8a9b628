//! The ring.

pub mod driver;
mod format;
mod ideal;
pub mod invariant;
mod lookups;
mod point;
mod pointers;
mod step;
#[cfg(test)]
mod tests;
mod walk;

pub use driver::{Driver, Options, RingOutput};
pub use format::RingError;
pub use ideal::ideal;
pub use lookups::{LOOKUP_PATIENCE, LookupOutput, Lookups};
pub use point::{Member, Point, virtual_count};
pub use pointers::Ring;
pub use step::Step;
