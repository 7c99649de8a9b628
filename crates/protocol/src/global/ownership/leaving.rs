//! Whether a site may leave: no record that only this site has may be lost.

use super::holding::{Holding, Token};
use super::takeover::Report;
use super::trial::{Bug, Planted};
use model::{Epoch, SiteId, SlotCopy};

/// Whether another site's copy, or the records it serves, replaces a copy that would go.
fn stands_for(
    copy: SlotCopy,
    known_owner: Option<SiteId>,
    (site, other): (SiteId, &Holding),
    planted: Planted,
) -> bool {
    // If the owner fails, its own records are lost, too.
    let is_owner = other.token.is_own() || known_owner == Some(site);
    if is_owner && !planted.is(Bug::OwnersRecordsCount) {
        return false;
    }
    let Some(theirs) = other.copy else { return is_owner };
    match planted.is(Bug::OlderPositionCounts) {
        true => theirs.tag >= copy.tag,
        false => theirs.order() >= copy.order(),
    }
}

fn known_owner(own: &Holding) -> Option<SiteId> {
    match own.token {
        Token::Gone { to, .. } => Some(to),
        _ => None,
    }
}

/// Which other site has a copy that stands for the one that goes.
pub fn kept_by(own: &Holding, others: &[(SiteId, Holding)], planted: Planted) -> Option<SiteId> {
    let copy = own.copy?;
    let stands = |(site, other): &&(SiteId, Holding)| {
        stands_for(copy, known_owner(own), (*site, other), planted)
    };
    others.iter().find(stands).map(|(site, _)| *site)
}

/// Whether the copy that goes would be of use at another site: not if that owns the slot.
pub fn may_receive(own: &Holding, (site, other): (SiteId, &Holding)) -> bool {
    !other.token.is_own() && known_owner(own) != Some(site)
}

/// Whether a site may go, as far as one slot is concerned: `own` is its own record of it, `others`
/// are other sites, as many as can be reached. No failover is open, none of them freezes towards it
/// any more.
pub fn may_leave(
    leaver: SiteId,
    own: &Holding,
    others: &[(SiteId, Holding)],
    planted: Planted,
) -> bool {
    if own.token.is_own() {
        return false;
    }
    let is_awaited = |(_, other): &(SiteId, Holding)| matches!(other.token, Token::Frozen { to, .. } if to == leaver);
    if others.iter().any(is_awaited) {
        return false;
    }
    if planted.is(Bug::NothingHandedOn) {
        return true;
    }
    if own.copy.is_some() && kept_by(own, others, planted).is_none() {
        return false;
    }
    // Another site must have the highest epoch, or a failover would miss it.
    let knows = |(_, other): &(SiteId, Holding)| {
        other.token.epoch() >= own.token.epoch()
            || other.copy.is_some_and(|copy| copy.tag.epoch >= own.token.epoch())
    };
    own.token == Token::Never || others.iter().any(knows)
}

/// At which epoch a slot is served again that is frozen here, at `own`, for a site that has left;
/// `None`: not, or not yet. `reports` are those of all other listed sites, by a registry without
/// the destination.
///
/// The owner of a slot does not leave, so if the destination took it some listed site has a record
/// of a later owner that is listed. If the latest owner has left, a failover removed it: no site
/// owns it, unless a copy of its epoch is left, which is better than what is here.
pub fn reclaims(
    own: SiteId,
    frozen: Epoch,
    reports: impl IntoIterator<Item = Report>,
    has_left: impl Fn(SiteId) -> bool,
    planted: Planted,
) -> Option<Epoch> {
    // The destination may have had the next epoch, of which no site has a record.
    let mut latest = (frozen.next(), own);
    for Report { owner, copy } in reports {
        if planted.is(Bug::ReclaimedUnasked) {
            break;
        }
        if copy.is_some_and(|copy| copy.tag.epoch > frozen) {
            return None;
        }
        // An owner of just that epoch is the destination, or a site that had the slot from it.
        if let Some(owner) = owner.filter(|owner| owner.0 >= latest.0) {
            latest = owner;
        }
    }
    (latest.1 == own || has_left(latest.1)).then_some(latest.0.next())
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Tag;

    const LEAVER: SiteId = SiteId(1);
    const OWNER: SiteId = SiteId(2);
    const OTHER: SiteId = SiteId(3);

    fn copy(position: u64) -> Holding {
        let epoch = Epoch::counted(2);
        let copy = SlotCopy { tag: Tag { epoch, generation: 3 }, origin: OWNER, position };
        Holding { token: Token::Gone { epoch, to: OWNER }, copy: Some(copy) }
    }

    fn goes(own: &Holding, others: &[(SiteId, Holding)]) -> bool {
        may_leave(LEAVER, own, others, Planted::none())
    }

    #[test]
    fn a_copy_stays_unless_another_site_than_the_owner_has_as_much() {
        let held = Holding { token: Token::Held(Epoch::counted(2)), copy: None };
        assert!(!goes(&copy(7), &[(OWNER, held)]));
        assert!(!goes(&copy(7), &[(OWNER, held), (OTHER, copy(6))]));
        assert!(goes(&copy(7), &[(OWNER, held), (OTHER, copy(7))]));
        assert!(!goes(&copy(7), &[(OWNER, copy(7))]), "it is the owner by now");
        // The copy of the owner's new backup, while this one is fed beside it.
        let newer = |position| {
            let mut other = copy(position);
            other.copy.as_mut().unwrap().tag.generation += 1;
            other
        };
        assert!(!goes(&copy(7), &[(OWNER, held), (OTHER, newer(6))]));
        assert!(goes(&copy(7), &[(OWNER, held), (OTHER, newer(7))]));
        assert!(!goes(&newer(7), &[(OWNER, held), (OTHER, copy(7))]), "it may go as void");
    }

    #[test]
    fn what_the_owner_has_stands_for_no_copy() {
        // OWNER froze the slot towards LEAVER, which was named with OTHER, and took it in the
        // failover.
        let decided = Epoch::of_failover(model::Ballot { round: 9, ..model::Ballot::FIRST });
        let retained = SlotCopy::retained(Epoch::counted(3), LEAVER);
        let token = Token::Gone { epoch: decided, to: OWNER };
        let own = Holding { token, copy: Some(retained) };
        let taker = Holding { token: Token::Held(decided), copy: None };
        assert!(!goes(&own, &[(OWNER, taker)]));
        assert!(!may_receive(&own, (OWNER, &taker)));
        let mirror = Tag { epoch: decided, generation: 1 };
        let mirror = SlotCopy { tag: mirror, origin: OWNER, position: 0 };
        let backup = Holding { token, copy: Some(mirror) };
        assert_eq!(kept_by(&own, &[(OWNER, taker), (OTHER, backup)], Planted::none()), Some(OTHER));
    }

    #[test]
    fn what_was_handed_on_before_more_came_is_handed_on_again() {
        let (before, after) = (copy(0), copy(1));
        let mut other = Holding::default();
        let fences = super::super::Fences::new(OTHER, None, Planted::none());
        let mut hand_on = |own: &Holding| {
            other.take_copy(own.copy.unwrap(), own.token, LEAVER, &fences);
            other
        };
        assert!(goes(&before, &[(OTHER, hand_on(&before))]));
        assert!(!goes(&after, &[(OTHER, hand_on(&before))]), "one has come since");
        assert!(goes(&after, &[(OTHER, hand_on(&after))]));
        assert_eq!(hand_on(&before).copy, after.copy, "it comes late");
    }

    #[test]
    fn a_site_that_owns_or_is_awaited_does_not_go() {
        let held = Holding { token: Token::Held(Epoch::counted(2)), copy: None };
        assert!(!goes(&held, &[]));
        let token = Token::Frozen { epoch: Epoch::counted(1), to: LEAVER };
        assert!(!goes(&Holding::default(), &[(OTHER, Holding { token, copy: None })]));
        assert!(goes(&Holding::default(), &[(OTHER, held)]));
    }

    #[test]
    fn what_is_frozen_for_a_site_that_left_is_served_again_if_nobody_owns_it() {
        let (frozen, next) = (Epoch::counted(3), Epoch::counted(4));
        // LEAVER has left, OTHER and OWNER are listed.
        let reclaimed = |reports: &[Report]| {
            let has_left = |site| site == LEAVER;
            reclaims(OWNER, frozen, reports.iter().copied(), has_left, Planted::none())
        };
        let owned = |epoch, owner| Report { owner: Some((epoch, owner)), copy: None };
        let later = Some(Epoch::counted(5));
        assert_eq!(reclaimed(&[owned(frozen, OWNER)]), later, "above what LEAVER may have had");
        assert_eq!(reclaimed(&[owned(next, OWNER)]), later, "it had refused");
        assert_eq!(reclaimed(&[owned(next, LEAVER)]), later, "it is lost with what it had");
        assert_eq!(reclaimed(&[owned(next, LEAVER), owned(next.next(), OTHER)]), None);
        assert_eq!(reclaimed(&[owned(next, OTHER)]), None);
        let joined = SiteId(9);
        assert_eq!(reclaimed(&[owned(next.next(), joined)]), None, "it is not listed here yet");
        let copy = |epoch| {
            let tag = Tag { epoch, generation: 1 };
            Report { owner: None, copy: Some(SlotCopy { tag, origin: LEAVER, position: 2 }) }
        };
        assert_eq!(reclaimed(&[copy(frozen)]), later);
        assert_eq!(reclaimed(&[owned(next, LEAVER), copy(next)]), None, "it is better");
    }
}
