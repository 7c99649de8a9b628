//! Bugs of ownership, for the model checker to find. Off unless built with the feature `trial`.

/// A bug to be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bug {
    /// A failover is forgotten when the lost site has returned.
    ForgottenOnReturn,
    /// The same, once the taker has learned of it, too.
    ForgottenOnceTaken,
    /// A source serves again without asking the destination.
    AbortUnasked,
    /// Only the lost site is fenced, not those named with it.
    OnlyLostFenced,
    /// Copies are taken over from whoever has one, whoever owns the slot.
    HighestEpochIgnored,
    /// A failover is decided without one site's inventory.
    InventorySkipped,
    /// A mirror is dropped when its owner has another backup.
    MirrorDropped,
    /// A source retains nothing.
    NothingRetained,
    /// The owner names the epoch that is safe, not the generation.
    SafeWithoutGeneration,
    /// The owner says that a copy is safe which is behind another one.
    SafeWhileBehind,
    /// A leaving site hands on no copies.
    NothingHandedOn,
    /// A leaving site counts the owner's own records as a copy.
    OwnersRecordsCount,
    /// A leaving site counts copies that are behind its own.
    OlderPositionCounts,
    /// A fence is a command that may come late, and stays.
    LateFence,
}

impl Bug {
    /// All of them.
    pub const ALL: [Bug; 14] = [
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
    ];
}

/// The bug that is planted, if one is.
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
