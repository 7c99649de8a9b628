//! Planted bugs of ownership for the model checker. Off unless built with the feature `trial`.

/// A planted bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bug {
    /// A decided failover is dropped when the failed site has returned.
    ForgottenOnReturn,
    /// The same, but only once the taker has learned of it, too.
    ForgottenOnceTaken,
    /// A source serves again without asking the destination.
    AbortUnasked,
    /// Only the failed site is fenced, not those named with it.
    OnlyLostFenced,
    /// A failover takes the best copy without regard to the slot's owner.
    HighestEpochIgnored,
    /// A failover is decided without one site's inventory.
    InventorySkipped,
    /// A mirror is dropped when its owner has another backup.
    MirrorDropped,
    /// A source retains nothing.
    NothingRetained,
    /// The owner reports the safe epoch without the generation.
    SafeWithoutGeneration,
    /// The owner reports a copy as safe that is behind another one.
    SafeWhileBehind,
    /// A leaving site hands no copies on.
    NothingHandedOn,
    /// A leaving site counts the owner's own records as a copy.
    OwnersRecordsCount,
    /// A leaving site counts copies that are behind its own.
    OlderPositionCounts,
    /// A fence is a command that may arrive late, and stays.
    LateFence,
    /// What is frozen for a site that has left is served again, whichever site owns it.
    ReclaimedUnasked,
}

impl Bug {
    /// All of them.
    pub const ALL: [Bug; 15] = [
        Bug::ForgottenOnReturn,
        Bug::ForgottenOnceTaken,
        Bug::AbortUnasked,
        Bug::OnlyLostFenced,
        Bug::HighestEpochIgnored,
        Bug::InventorySkipped,
        Bug::MirrorDropped,
        Bug::NothingRetained,
        Bug::SafeWithoutGeneration,
        Bug::SafeWhileBehind,
        Bug::NothingHandedOn,
        Bug::OwnersRecordsCount,
        Bug::OlderPositionCounts,
        Bug::LateFence,
        Bug::ReclaimedUnasked,
    ];
}

/// The bug that is planted, if any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Planted(Option<Bug>);

impl Planted {
    /// None.
    pub const fn none() -> Planted {
        Planted(None)
    }

    /// This one. Without the feature `trial` it does nothing.
    pub fn of(bug: Bug) -> Planted {
        Planted(Some(bug))
    }

    /// Whether it is this one.
    pub fn is(self, bug: Bug) -> bool {
        cfg!(feature = "trial") && self.0 == Some(bug)
    }

    /// Whether bugs can be planted in this build.
    pub fn is_possible() -> bool {
        cfg!(feature = "trial")
    }
}
