//! Planted bugs of the solver. Off unless built with the feature `trial`.

/// A planted bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bug {
    /// An unknown latency counts as zero.
    UnknownIsZero,
    /// An unknown latency counts as 9,999,999 ms, as in Portkey's code.
    UnknownIsHuge,
}

/// The bug that is planted, if any.
pub type Planted = crate::trial::Planted<Bug>;
