//! Bugs of the state machine that are put in on purpose, for trials.

/// A bug to be found. What each does is described where a site's are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    ApplyTwice,
    DenyForgotten,
    ForgetRequests,
    ForgetMovedAnswers,
    ForgetTombstone,
    IgnoreCondition,
    TearTogether,
}

/// The bug that is planted, if one is.
pub(crate) type Planted = crate::trial::Planted<Bug>;
