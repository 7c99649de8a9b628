//! Bugs of the registry, for the model checker to find. Off unless built with the feature `trial`.

/// A bug to be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bug {
    /// An accepted value is taken for a chosen one.
    SpreadUnchosen,
    /// A proposer extends its own copy, whatever the answers bring.
    HighestUnread,
    /// A command is applied again, though the value has its id.
    NoIds,
    /// A ballot that changes the registrars needs a majority of the new ones only.
    NewSetOnly,
    /// A ballot needs a majority of the set in its proposer's copy only.
    OldSetOnly,
    /// A value does not name the set before.
    SetBeforeUnnamed,
    /// Sets are told apart by their members.
    SetsByMembers,
    /// Registrars change in a value that is not known as chosen.
    RegistrarsUnchosen,
    /// A ballot is used before it is logged.
    BallotNotLogged,
    /// Two recoveries may begin the same term.
    SameTerm,
    /// A recovery counts from its copy's term instead of the highest promised.
    TermNotLogged,
    /// A recovery reads without a promise.
    NoPromise,
    /// A recovery reads copies, not what was accepted.
    CopiesOnly,
    /// A recovery goes on with a majority of those that it asks.
    SomeUnasked,
    /// A site that learns of a higher term goes on accepting in the lower one.
    LowerTermAccepted,
    /// Decisions beyond the end of a term are not handed in.
    NothingHandedIn,
    /// A version is a count of changes.
    CountedVersions,
}

impl Bug {
    /// All of them.
    pub const ALL: [Bug; 17] = [
        Bug::SpreadUnchosen,
        Bug::HighestUnread,
        Bug::NoIds,
        Bug::NewSetOnly,
        Bug::OldSetOnly,
        Bug::SetBeforeUnnamed,
        Bug::SetsByMembers,
        Bug::RegistrarsUnchosen,
        Bug::BallotNotLogged,
        Bug::SameTerm,
        Bug::TermNotLogged,
        Bug::NoPromise,
        Bug::CopiesOnly,
        Bug::SomeUnasked,
        Bug::LowerTermAccepted,
        Bug::NothingHandedIn,
        Bug::CountedVersions,
    ];
}

/// The bug that is planted, if one is.
pub type Planted = crate::trial::Planted<Bug>;
