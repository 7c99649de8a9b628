//! Planted bugs of the solver. Off unless built with the feature `trial`.

/// A planted bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bug {
    /// An unknown latency counts as zero.
    UnknownIsZero,
    /// An unknown latency counts as 9,999,999 ms, as in Portkey's code.
    UnknownIsHuge,
    /// A group moves for any gain.
    NoMargin,
    /// What a group has waited pays for one move after the other.
    RegretKept,
    /// Each client has one vote over all groups that it names, as in Portkey §7, and not one in
    /// each.
    VotesOverGroups,
}

/// The bug that is planted, if any.
pub type Planted = crate::trial::Planted<Bug>;
