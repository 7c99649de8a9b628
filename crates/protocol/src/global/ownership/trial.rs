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
    /// The owner reports what its former backup has as the copy of the new one.
    SafeByFormer,
    /// What an earlier owner reported as safe counts, though a later one is known.
    SafeByEarlierOwner,
    /// What a lost site reported as safe counts, though it was removed since.
    SafeByLost,
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
    /// The fence of a failed site ends with the decision, not with the site's return.
    FenceEndsAtDecision,
    /// A row stays although its borrower was failed over.
    RowToFailedStays,
    /// A failover adopts no claims of borrowers.
    ClaimsNotAdopted,
    /// A borrower serves on after a failover of the slot without asking the taker.
    BorrowerNotAsked,
    /// A borrower drops its records as soon as the owner has no row.
    RetainedDroppedAtRelease,
    /// A borrower drops its records before the slot is safe beyond the loan.
    RetainedDroppedEarly,
    /// A borrower that was failed over drops its records when it returns.
    RetainedDroppedOnReturn,
    /// A loan is taken from an owner that is known to be a former one.
    LentUnderOldEpoch,
    /// A claim is adopted that was confirmed before the copy's failover.
    LowerTermAdopted,
    /// A claim is not adopted that was confirmed after the copy's failover.
    HigherTermNotAdopted,
    /// A frozen source settles its rows.
    FrozenSourceSettles,
    /// A claim has the failover under which it was lent, not the one that confirmed it last.
    TermWhenLent,
    /// A claim is compared with a count that the claim to another group has raised.
    CountRaisedByClaims,
    /// A row of a site's own lowers the number of a loan that the site has refused.
    NumberLowered,
    /// A site leaves with the records of a group that it has given back.
    LeftWithRecords,
}

impl Bug {
    /// All of them but those of lending.
    pub const ALL: [Bug; 19] = [
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
        Bug::SafeByFormer,
        Bug::SafeByEarlierOwner,
        Bug::SafeByLost,
        Bug::NothingHandedOn,
        Bug::OwnersRecordsCount,
        Bug::OlderPositionCounts,
        Bug::LateFence,
        Bug::ReclaimedUnasked,
        Bug::FenceEndsAtDecision,
    ];

    /// Those of lending.
    pub const LENDING: [Bug; 14] = [
        Bug::RowToFailedStays,
        Bug::ClaimsNotAdopted,
        Bug::BorrowerNotAsked,
        Bug::RetainedDroppedAtRelease,
        Bug::RetainedDroppedEarly,
        Bug::RetainedDroppedOnReturn,
        Bug::LentUnderOldEpoch,
        Bug::LowerTermAdopted,
        Bug::HigherTermNotAdopted,
        Bug::FrozenSourceSettles,
        Bug::TermWhenLent,
        Bug::CountRaisedByClaims,
        Bug::NumberLowered,
        Bug::LeftWithRecords,
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
