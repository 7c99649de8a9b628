//! Planted bugs of the registry for the model checker. Off unless built with the feature `trial`.

/// A planted bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bug {
    /// An accepted value is treated as chosen.
    SpreadUnchosen,
    /// A proposer extends its own copy and ignores newer values in answers.
    HighestUnread,
    /// A command is applied again although the value has its id.
    NoIds,
    /// A ballot that changes the registrars needs a majority of the new ones only.
    NewSetOnly,
    /// A ballot needs a majority of the set in its proposer's copy only.
    OldSetOnly,
    /// A value does not name the set before.
    SetBeforeUnnamed,
    /// Sets are compared by their members, not by the version that made them.
    SetsByMembers,
    /// Registrars change in a value that may not be chosen.
    RegistrarsUnchosen,
    /// A ballot is used before it is logged.
    BallotNotLogged,
    /// Two recoveries may begin the same term.
    SameTerm,
    /// A recovery counts from its copy's term instead of the highest promised one.
    TermNotLogged,
    /// A recovery reads without a promise.
    NoPromise,
    /// A recovery reads copies instead of accepted values.
    CopiesOnly,
    /// A recovery continues with a majority of the asked sites.
    SomeUnasked,
    /// A site that learns of a higher term keeps accepting in the lower one.
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

/// The bug that is planted, if any.
pub type Planted = crate::trial::Planted<Bug>;
