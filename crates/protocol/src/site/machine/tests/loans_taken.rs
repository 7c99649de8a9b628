//! Groups that are lent in slots that failovers take: decisions that come late, and slots of which
//! no copy is left.

use super::loans::{C, claims, failover, group, hand_over, lending, lent, set, sites, taken};
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
    let opened = open.failovers.open.as_ref().unwrap().opened;
    b.run(lending(Lending::Prepare { opened, claims: claimed })).unwrap();
    b.learns(&failover(&open, C, Some((B, "x{7}", false))));
    assert_eq!(b.value("x{7}"), Ok(Some("4".into())));
}
