//! Groups that are lent in slots that failovers take: decisions that come late, and slots of which
//! no copy is left.

use super::loans::{
    C, claims, failover, group, hand_over, lending, lent, prepare, set, settle, sites, taken,
};
use super::moves::{A, B};
use crate::global::ownership::lending::Part;
use model::Lending;

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
