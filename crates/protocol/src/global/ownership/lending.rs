//! A lent group: the rules, for one group of a slot at the slot's owner and at its borrower.
//!
//! Pure values, without records, like [`super::holding`]. The slot is the mirror of its lent
//! groups: its owner keeps the group's records and a [`Row`] that names the borrower, and both go
//! where the slot goes, to its mirror and to its next owner. The borrower keeps a [`Borrowed`],
//! which outlasts the loan, as its number never decreases. The model checker in `tests/lending`
//! applies these rules and those of [`super::holding`] to every order of steps.
//!
//! *Number.* The owner numbers loans by the slot's epoch and a count in the slot's records. A
//! borrower takes a loan only above the highest number that it has seen.
//!
//! *Row.* The group is served at home if there is no row, by the row's borrower otherwise. A row
//! goes when the borrower gives the group back, has refused the loan or is past it, and when a
//! failover of the borrower since the loan is decided.
//!
//! *Claim.* A failover of the slot's owner adopts the loan of a borrower that its copy has not
//! seen. Until the taker confirms the row, the borrower does not serve.
//!
//! *Several groups.* Each has a row of its own; they share the count. A failover adopts the claims
//! of all groups by the count of the records that it goes on from, before it raises that.
//!
//! Left out: records, messages and their order, a slot that begins empty.

use super::fences::Fences;
use super::holding::Token;
use super::trial::{Bug, Planted};
use model::{Ballot, Epoch, SiteId};
pub use model::{Loan, LoanClaim as Claim, LoanPart as Part, LoanRow as Row};

/// A loan on its way to the borrower. It may arrive late, or again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Offer {
    /// The row.
    pub row: Row,
    /// The owner of the slot that sends it.
    pub from: SiteId,
    /// The epoch of that owner.
    pub epoch: Epoch,
}

/// What a borrower's message to the owner of the slot contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FromBorrower {
    /// The borrower.
    pub site: SiteId,
    /// Its part.
    pub borrowed: Borrowed,
    /// The highest epoch of the slot there.
    pub slot: Epoch,
}

/// What the taker of a slot goes on from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TakenFrom {
    /// The failover of the epoch of those records.
    pub failover: Ballot,
    /// Their count of loans, before any claim is adopted.
    pub count: u64,
}

/// What the slot's records contain of one group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Lent {
    /// The loan, if the group is lent.
    pub row: Option<Row>,
    /// The count of the last loan. All groups of the slot share it.
    pub count: u64,
}

/// What happens to the group's records at the slot's owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Settled {
    /// Nothing; the owner's own records may serve again.
    Stay,
    /// The records of the part that this site has borrowed replace those of the slot.
    Join,
}

/// What a site records of a group that it borrows or has borrowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Borrowed {
    /// The highest loan that it has seen.
    pub loan: Loan,
    /// Its part in it.
    pub part: Part,
    /// [`model::LoanRow::known`] of it.
    pub known: Ballot,
    /// [`model::LoanClaim::confirmed`] of it.
    pub confirmed: Ballot,
}

impl Lent {
    /// Lends the group. `known`: the version of this site's registry.
    pub fn lend(
        &mut self,
        token: Token,
        to: SiteId,
        known: Ballot,
        fences: &Fences<'_>,
    ) -> Option<Offer> {
        let Token::Held(epoch) = token else { return None };
        if self.row.is_some() || to == fences.own() || fences.part_from(to) {
            return None;
        }
        self.count += 1;
        self.row = Some(Row { loan: Loan { epoch, count: self.count }, to, known });
        self.offer(token, fences)
    }

    /// The loan as this owner of the slot sends it, or sends it again.
    pub fn offer(&self, token: Token, fences: &Fences<'_>) -> Option<Offer> {
        let Token::Held(epoch) = token else { return None };
        self.row.filter(|_| !fences.covers_own()).map(|row| Offer {
            row,
            from: fences.own(),
            epoch,
        })
    }

    /// Whether this site serves the group as the slot's owner.
    pub fn is_served(&self, token: Token, fences: &Fences<'_>) -> bool {
        matches!(token, Token::Held(_)) && !fences.covers_own() && self.row.is_none()
    }

    /// Whether the row is this loan to this site.
    pub fn is(&self, loan: Loan, to: SiteId) -> bool {
        self.row.is_some_and(|row| row.loan == loan && row.to == to)
    }

    /// Removes the row upon the borrower's records, which replace the slot's. Returns whether it
    /// did.
    pub fn take_home(&mut self, token: Token, from: FromBorrower, fences: &Fences<'_>) -> bool {
        let is_returned = matches!(from.borrowed.part, Part::Frozen | Part::Retained);
        let may = is_returned && self.may_stream(token, from, fences);
        if may {
            self.row = None;
        }
        may
    }

    /// Whether the borrower's writes may be added to the slot's records.
    pub fn may_stream(&self, token: Token, from: FromBorrower, fences: &Fences<'_>) -> bool {
        matches!(token, Token::Held(epoch) if epoch >= from.slot)
            && from.borrowed.part != Part::Never
            && self.is(from.borrowed.loan, from.site)
            && !fences.part_from(from.site)
    }

    /// Removes a row that its borrower has refused, or is past. Returns whether it did.
    pub fn clear(&mut self, token: Token, borrowed: &Borrowed, fences: &Fences<'_>) -> bool {
        let Some(row) = self.row else { return false };
        let has_part = borrowed.part != Part::Never && borrowed.loan == row.loan;
        let may = matches!(token, Token::Held(_))
            && borrowed.loan >= row.loan
            && !has_part
            && !fences.part_from(row.to);
        if may {
            self.row = None;
        }
        may
    }

    /// Settles the row by this site's own registry, never by a newer one: in the command that
    /// brings the slot or the registry. `failed`: the version that decided the last failover of a
    /// site, or any later one for a site that is not listed.
    ///
    /// A frozen source settles nothing: the destination may have the row, and later records.
    pub fn settle(
        &mut self,
        token: Token,
        borrowed: &mut Borrowed,
        failed: impl Fn(SiteId) -> Ballot,
        fences: &Fences<'_>,
    ) -> Settled {
        let settles = match token {
            Token::Held(_) => true,
            Token::Frozen { .. } => fences.planted().is(Bug::FrozenSourceSettles),
            _ => false,
        };
        let Some(row) = self.row.filter(|_| settles) else { return Settled::Stay };
        if row.to == fences.own() {
            self.row = None;
            if borrowed.part != Part::Never && borrowed.loan == row.loan {
                borrowed.part = Part::Retained;
                return Settled::Join;
            }
            if borrowed.loan < row.loan || fences.planted().is(Bug::NumberLowered) {
                *borrowed = Borrowed { loan: row.loan, ..Borrowed::default() };
            }
        } else if failed(row.to) > row.known && !fences.planted().is(Bug::RowToFailedStays) {
            self.row = None;
        }
        Settled::Stay
    }

    /// Adopts the highest claim to the group as the site that takes the slot.
    ///
    /// A loan that the records have seen and have no row for is over: the group is home.
    pub fn adopt(&mut self, claim: Claim, from: TakenFrom, decided: Ballot, fences: &Fences<'_>) {
        let planted = fences.planted();
        if self.is(claim.loan, claim.to) {
            self.row = self.row.map(|row| Row { known: decided, ..row });
            return;
        }
        let seen = if planted.is(Bug::CountRaisedByClaims) { self.count } else { from.count };
        let is_unseen = claim.loan.count > seen;
        let is_unknown = claim.confirmed == from.failover && is_unseen
            || claim.confirmed > from.failover && !planted.is(Bug::HigherTermNotAdopted)
            || is_unseen && planted.is(Bug::LowerTermAdopted);
        if is_unknown && !planted.is(Bug::ClaimsNotAdopted) {
            self.row = Some(Row { loan: claim.loan, to: claim.to, known: decided });
            self.count = self.count.max(claim.loan.count);
        }
    }
}

impl Borrowed {
    /// Takes a loan. `token`: of the slot, here. `failed`: the version that decided the last
    /// failover of this site. Returns whether it did.
    pub fn install(
        &mut self,
        offer: Offer,
        token: Token,
        failed: Ballot,
        fences: &Fences<'_>,
    ) -> bool {
        let is_late = offer.epoch < token.epoch() && !fences.planted().is(Bug::LentUnderOldEpoch);
        let may = self.loan < offer.row.loan
            && offer.row.to == fences.own()
            && !token.is_own()
            && !is_late
            && failed <= offer.row.known
            && !fences.part_from(offer.from);
        if may {
            *self = Borrowed {
                loan: offer.row.loan,
                part: Part::Held,
                known: offer.row.known,
                confirmed: offer.epoch.failover,
            };
        }
        may
    }

    /// Refuses a loan for good, so that the owner may keep the group. Returns whether it did.
    pub fn refuse(&mut self, loan: Loan, owner: SiteId, fences: &Fences<'_>) -> bool {
        let may = self.loan < loan && self.part == Part::Never && !fences.part_from(owner);
        if may {
            self.loan = loan;
        }
        may
    }

    /// Whether this site serves the group as its borrower.
    pub fn is_served(&self, fences: &Fences<'_>) -> bool {
        self.part == Part::Held && !fences.covers_own()
    }

    /// Stops serving, to give the group back. Returns whether it did.
    pub fn give_back(&mut self, fences: &Fences<'_>) -> bool {
        let may = self.is_served(fences);
        if may {
            self.part = Part::Frozen;
        }
        may
    }

    /// The owner of the slot at this epoch has confirmed the row.
    pub fn confirm(&mut self, owner: Epoch) {
        if self.part == Part::Unconfirmed {
            self.part = Part::Held;
        }
        self.confirmed = self.confirmed.max(owner.failover);
    }

    /// Handles the report of the slot's owner, at this epoch, that it has no such row. Returns
    /// whether the part is over. It is, too, where the group is held: the owner has settled the row
    /// by a failover that this site has not learned of, or one of the two sites was restored to
    /// earlier records.
    pub fn release(&mut self, (owner, epoch): (&Lent, Epoch), fences: &Fences<'_>) -> bool {
        let is_known = owner.count >= self.loan.count || self.loan.epoch.failover < epoch.failover;
        let may = matches!(self.part, Part::Held | Part::Frozen | Part::Unconfirmed)
            && is_known
            && !owner.is(self.loan, fences.own());
        if may {
            let drops = fences.planted().is(Bug::RetainedDroppedAtRelease);
            self.part = if drops { Part::Never } else { Part::Retained };
        }
        may
    }

    /// Drops retained records once the slot's owner has no such row and `is_safe`: its mirror is
    /// complete and beyond the loan. Returns whether it did.
    pub fn forget(&mut self, owner: &Lent, is_safe: bool, fences: &Fences<'_>) -> bool {
        let may = self.part == Part::Retained
            && !owner.is(self.loan, fences.own())
            // It is claimed in a failover that is open.
            && ((is_safe && !fences.are_up()) || fences.planted().is(Bug::RetainedDroppedEarly));
        if may {
            self.part = Part::Never;
        }
        may
    }

    /// Follows a decision that takes the slot.
    pub fn taken(&mut self, decided: Ballot, fences: &Fences<'_>) {
        let waits = self.part == Part::Held && self.loan.epoch.failover < decided;
        if waits && !fences.planted().is(Bug::BorrowerNotAsked) {
            self.part = Part::Unconfirmed;
        }
    }

    /// Follows the last failover of this site itself: the group may be home by now.
    pub fn failed(&mut self, decided: Ballot, fences: &Fences<'_>) {
        if self.part != Part::Never && decided > self.known {
            let drops = fences.planted().is(Bug::RetainedDroppedOnReturn);
            self.part = if drops { Part::Never } else { Part::Retained };
        }
    }

    /// Whether this site may leave, as far as the group is concerned.
    pub fn may_leave(&self, planted: Planted) -> bool {
        match self.part {
            Part::Never => true,
            Part::Retained => planted.is(Bug::LeftWithRecords),
            Part::Held | Part::Unconfirmed | Part::Frozen => false,
        }
    }

    /// What this site reports in a failover of the slot's owner.
    pub fn claim(&self, fences: &Fences<'_>) -> Option<Claim> {
        let confirmed = match fences.planted().is(Bug::TermWhenLent) {
            true => self.loan.epoch.failover,
            false => self.confirmed,
        };
        let claim = Claim { loan: self.loan, to: fences.own(), confirmed };
        (self.part != Part::Never).then_some(claim)
    }
}
