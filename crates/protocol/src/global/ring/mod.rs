//! The ring.

mod format;
mod ideal;
mod point;
mod pointers;
mod step;
#[cfg(test)]
mod tests;

pub use format::RingError;
pub use ideal::ideal;
pub use point::{Member, Point, virtual_count};
pub use pointers::Ring;
pub use step::Step;
