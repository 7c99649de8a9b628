//! Groups that are lent in slots that failovers take: decisions that come late or not at all, and
//! slots of which no copy is left.

use super::loans::{
    C, claims, failover, group, hand_over, lending, lent, prepare, set, settle, sites, taken,
};
use super::moves::{A, B};
use super::*;
use crate::global::ownership::lending::Part;
use model::{
    Ballot, Epoch, Lending, RegistryChange, Retained, Revision, Slot, SlotEpochs, SlotSet, Taken,
    Term,
};

/// A site has owned the slot of a group since a decision.
fn registered(owner: SiteId, decided: Ballot) -> Command {
    let slots = SlotEpochs::gather([(Slot::of_key(b"x{7}"), Epoch::of_failover(decided))]);
    Command::Global(GlobalCommand::Register { owner, slots })
}

/// A site has a loan of the slot's owner of today before it learns of an earlier failover.
#[test]
fn a_late_decision_leaves_a_loan_to_its_lender() {
    let (mut a, mut b, mut c) = sites();
    hand_over(&mut a, &mut c, C, "x{7}");
    let open = failover(&c.newest(), C, None);
    claims(&mut a, &open, C);
    let mut back = failover(&open, C, Some((A, "x{7}", true)));
    assert!(back.failovers.all_returned(C));
    back.version.round += 1;
    for site in [&mut a, &mut c] {
        site.learns(&back);
    }
    hand_over(&mut a, &mut c, C, "x{7}");
    let offer = c.lend(B, "x{7}");
    let parts = taken(b.run(c.offered_by(C, &offer)));
    assert_eq!(parts[0].part, Part::Held);
    c.run(lending(Lending::Answered { by: B, parts })).unwrap();
    b.learns(&back);
    assert_eq!(b.part_of("x{7}"), Part::Held);
    b.run(set("x{7}", "4")).unwrap();
    assert_eq!(b.machine.parts_due().collect::<Vec<_>>(), [(C, &group("7"))]);
}

/// The taker of the first failover is lost before it has confirmed the loan, and no copy is left.
#[test]
fn a_slot_that_begins_empty_again_has_what_its_borrower_claims() {
    let (mut a, mut b, _) = sites();
    lent(&mut a, &mut b, "x{7}");
    b.run(set("x{7}", "4")).unwrap();
    let open = failover(&a.newest(), A, None);
    claims(&mut b, &open, A);
    let decided = failover(&open, A, Some((C, "x{7}", false)));
    b.learns(&decided);
    assert_eq!(b.part_of("x{7}"), Part::Unconfirmed);
    let open = failover(&decided, C, None);
    let claimed = claims(&mut b, &open, C);
    prepare(&mut b, &open, claimed);
    b.learns(&failover(&open, C, Some((B, "x{7}", false))));
    assert_eq!(b.value("x{7}"), Ok(Some("4".into())));
}

/// A recovery of the registry has closed the failover; an excluded site hands its decision in.
#[test]
fn claims_outlast_a_recovery_of_the_registry() {
    let (mut a, mut b, mut c) = sites();
    lent(&mut a, &mut b, "x{7}");
    b.run(set("x{7}", "4")).unwrap();
    let open = failover(&a.newest(), A, None);
    let claimed = claims(&mut b, &open, A);
    claims(&mut c, &open, A);
    prepare(&mut c, &open, claimed);
    let mut decided = failover(&open, A, Some((C, "x{7}", false)));
    let mut recovered = open;
    recovered.failovers.open = None;
    for registry in [&mut recovered, &mut decided] {
        registry.version.term.number += 1;
    }
    for site in [&mut b, &mut c] {
        site.learns(&recovered);
    }
    let mut c = c.reopened();
    assert_eq!(c.machine.claims(), 1);
    for site in [&mut b, &mut c] {
        site.learns(&decided);
    }
    assert!(c.value("x{7}").is_err(), "its borrower has the only copy");
    assert_eq!((c.machine.claims(), c.machine.offered().count()), (0, 1));
    settle(&mut c, C, &mut b, B, "x{7}");
    assert_eq!(b.value("x{7}"), Ok(Some("4".into())));
}

/// A decision of before the recovery, and a borrower that has given the group back since to the
/// owner that was taken for lost.
#[test]
fn a_borrower_is_asked_about_a_loan_that_it_claimed_before_a_recovery() {
    let (mut a, mut b, mut c) = sites();
    hand_over(&mut a, &mut c, C, "x{7}");
    let offer = c.lend(B, "x{7}");
    let parts = taken(b.run(c.offered_by(C, &offer)));
    c.run(lending(Lending::Answered { by: B, parts })).unwrap();
    let open = failover(&c.newest(), C, None);
    let claimed = claims(&mut b, &open, C);
    claims(&mut a, &open, C);
    prepare(&mut a, &open, claimed);
    let mut decided = failover(&open, C, Some((A, "x{7}", true)));
    let mut recovered = open;
    recovered.failovers.open = None;
    for registry in [&mut recovered, &mut decided] {
        registry.version.term.number += 1;
    }
    for site in [&mut a, &mut b, &mut c] {
        site.learns(&recovered);
    }
    b.give_back("x{7}");
    settle(&mut c, C, &mut b, B, "x{7}");
    for site in [&mut a, &mut b, &mut c] {
        site.learns(&decided);
    }
    assert_eq!(a.machine.offered().collect::<Vec<_>>(), [(B, &group("7"))]);
    let offer = a.machine.offer(&group("7")).unwrap().expect("it is adopted");
    let parts = taken(b.run(a.offered_by(A, &offer)));
    a.run(lending(Lending::Answered { by: B, parts })).unwrap();
    settle(&mut a, A, &mut b, B, "x{7}");
    assert_eq!(a.value("x{7}"), Ok(Some("1".into())));
}

/// The registry is recovered without the owner and the borrower, and a failover of the owner is
/// decided and forgotten before the borrower is listed again.
#[test]
fn a_borrower_asks_an_owner_whose_failover_it_never_saw() {
    let (mut a, _, mut c) = sites();
    let offer = a.lend(C, "x{7}");
    assert_eq!(taken(c.run(a.offered_by(A, &offer)))[0].part, Part::Held);

    let mut both = c.newest();
    let joined = both.sites.pop().unwrap();
    assert_eq!(joined.id, C);
    both.site_next = C.0;
    both.version.round -= 2;
    let begins = Ballot { term: Term { number: 1, site: B }, round: 0, site: B };
    let at = |round| Ballot { round, ..begins };
    let mut registry = both.clone();
    registry.recover(begins, &both);
    registry.version = begins;
    registry.registrars.set = [B].into_iter().collect();
    let open = RegistryChange::OpenFailover { lost: A, without: Vec::new() };
    registry.change_at(&open, at(1)).unwrap();
    let taken = vec![Taken { by: B, slots: SlotSet::all(), from: None }];
    let decide = RegistryChange::DecideFailover { opened: at(1), taken };
    registry.change_at(&decide, at(2)).unwrap();
    registry.change_at(&RegistryChange::ForgetFailover(at(2)), at(3)).unwrap();
    // Another site has handed its join in.
    registry.hand_in(&Retained { joins: vec![joined], ..Retained::default() });
    registry.version = at(4);
    c.learns(&registry);
    assert!(c.machine.is_unconfirmed());
    assert_eq!(c.part_of("x{7}"), Part::Held);

    c.run(registered(B, at(2))).unwrap();
    let (revision, later) = (Revision(0), SlotEpochs::default());
    let confirm = DeploymentCommand::ConfirmAbove { revision, later };
    c.run(Command::Deployment(confirm)).unwrap();
    assert!(!c.machine.is_unconfirmed());
    assert_eq!(c.part_of("x{7}"), Part::Unconfirmed);
    assert!(c.value("x{7}").is_err(), "the slot's owner serves it");
    assert_eq!(c.machine.parts_due().collect::<Vec<_>>(), [(B, &group("7"))]);
}

/// The borrower learns the taker from another site first, and then from the registry.
#[test]
fn a_loan_that_the_taker_has_confirmed_outlasts_its_decision() {
    let (mut a, mut b, mut c) = sites();
    lent(&mut a, &mut b, "x{7}");
    let open = failover(&a.newest(), A, None);
    let claimed = claims(&mut b, &open, A);
    claims(&mut c, &open, A);
    prepare(&mut c, &open, claimed);
    let decided = failover(&open, A, Some((C, "x{7}", false)));
    c.learns(&decided);
    let by_taker = registered(C, decided.failovers.decided[0].decided);
    b.run(by_taker.clone()).unwrap();
    assert_eq!(b.part_of("x{7}"), Part::Unconfirmed);
    settle(&mut c, C, &mut b, B, "x{7}");
    assert_eq!(b.part_of("x{7}"), Part::Held);
    b.run(by_taker).unwrap();
    b.learns(&decided);
    assert_eq!(b.part_of("x{7}"), Part::Held);
}
