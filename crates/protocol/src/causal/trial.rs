//! Bugs of the order of causal keys, put in on purpose.

/// A planted bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bug {
    /// A request is served without what its session has written at another site.
    WrittenIgnored,
    /// A request is served without what its session has seen of the order.
    SeenIgnored,
    /// Offers are not chained: a later one may be ordered first.
    OffersUnchained,
    /// A place whose write is missing is imported without it.
    PayloadSkipped,
    /// The first position that is known of a site stands for all of its writes.
    ResolvedEarly,
    /// The token of a session is after a read what it was before.
    ReadsUnmerged,
    /// The order is trimmed up to what the root has imported, and sites that lack it are sent what
    /// is left.
    TrimmedUnimported,
    /// A site that gets its keys anew does not get which of its own writes they contain.
    ResyncUnordered,
    /// It switches as soon as the last record has come.
    ResyncSwitchedEarly,
    /// A root gives the order away before the next one has all of it.
    RootUndrained,
    /// A root releases what its standby, which is in sync, does not have.
    ReleasedEarly,
    /// A root names the position of a write before that is released.
    ResolvedUnreleased,
    /// A standby is in sync before it has what was released without it.
    InSyncEarly,
    /// A site takes places of keyspaces that it holds without their content.
    CoveredHeld,
    /// What a fetch brings lacks what the root has ordered and not imported.
    FetchedUnfolded,
    /// A site takes what a fetch brings before its place.
    FetchedOutside,
    /// A site takes places that touch what it holds on demand without their content.
    CoveredFetched,
    /// A session that comes from another region is served whatever it has seen there.
    ForeignUnresolved,
}

impl Bug {
    /// All of them.
    pub const ALL: [Bug; 18] = [
        Bug::WrittenIgnored,
        Bug::SeenIgnored,
        Bug::OffersUnchained,
        Bug::PayloadSkipped,
        Bug::ResolvedEarly,
        Bug::ReadsUnmerged,
        Bug::TrimmedUnimported,
        Bug::ResyncUnordered,
        Bug::ResyncSwitchedEarly,
        Bug::RootUndrained,
        Bug::ReleasedEarly,
        Bug::ResolvedUnreleased,
        Bug::InSyncEarly,
        Bug::CoveredHeld,
        Bug::FetchedUnfolded,
        Bug::FetchedOutside,
        Bug::CoveredFetched,
        Bug::ForeignUnresolved,
    ];
}

/// The bug that is planted, if any.
pub type Planted = crate::trial::Planted<Bug>;
