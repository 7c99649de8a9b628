//! Loans that are over: what is left of them, groups that have become too large, and sites that
//! were restored.

use super::loans::{
    C, CARS, add, claims, failover, group, lending, lent, set, settle, sites, taken,
};
use super::moves::{A, B};
use super::restored::restored;
use super::*;
use crate::global::ownership::lending::Part;
use crate::job::{Effect, Job};
use crate::site::confirming::Confirming;
use crate::site::lending::Loans;
use crate::site::release::Release;
use model::{
    Ballot, ClientId, Epoch, Group, Lending, Loan, LoanClaim, MoveError, Slot, SlotEpochs, limits,
};
use std::collections::VecDeque;
use std::time::Duration;

/// The owner's mirror has all.
fn supersede(site: &mut Site, key: &'static str) {
    let slots = SlotEpochs::gather([(Slot::of_key(key.as_bytes()), Epoch::counted(1))]);
    let position = u64::MAX - 1;
    site.run(Command::Global(GlobalCommand::Supersede { slots, generation: 9, position })).unwrap();
}

#[test]
fn of_loans_that_are_over_their_slots_number_is_left() {
    let (mut a, mut b, _) = sites();
    let first = lent(&mut a, &mut b, "x{7}");
    b.give_back("x{7}");
    settle(&mut a, A, &mut b, B, "x{7}");
    assert_eq!((b.rows(tables::PARTS), b.rows(tables::FLOORS)), (1, 0));
    supersede(&mut b, "x{7}");
    assert_eq!((b.rows(tables::PARTS), b.rows(tables::FLOORS)), (0, 1));
    let mut b = b.reopened();
    let late = taken(b.run(a.offered_by(A, &first)));
    assert_eq!((late[0].part, late[0].loan), (Part::Never, first.row.loan), "it is past that");
    // The next one is above.
    let second = a.lend(B, "x{7}");
    assert_eq!(taken(b.run(a.offered_by(A, &second)))[0].part, Part::Held);
}

#[test]
fn a_group_that_outgrows_its_loan_goes_home_before_the_write() {
    let (mut a, mut b, _) = sites();
    lent(&mut a, &mut b, "x{7}");
    let large = |key: &'static str, half_mib: usize| {
        let value = Bytes::from(vec![b'v'; half_mib << 19]);
        let (condition, expiry) = (Condition::Always, Expiry::Never);
        Write::Put { key: key.into(), value, condition, expiry, return_old: false }
    };
    let write =
        |site: &mut Site, write| site.run(Command::Write { keyspace: CARS, write, request: None });
    // What is overwritten does not count.
    for _ in 0..3 {
        write(&mut b, large("x{7}", 3)).unwrap();
    }
    let slot = Slot::of_key(b"x{7}");
    let other = large("w{7}", 6);
    assert_eq!(write(&mut b, other.clone()), Err(Refusal::NotHeld(slot)));
    assert_eq!(b.part_of("x{7}"), Part::Frozen);
    settle(&mut a, A, &mut b, B, "x{7}");
    assert!(a.value("x{7}").unwrap().is_some());
    assert!(write(&mut a, other).is_ok());
    a.run(lending(Lending::Lend { to: B, groups: vec![group("7")] })).unwrap();
    assert!(a.machine.lent().next().is_none(), "it is too large");
}

/// A restored owner confirms, and offers its loan again.
fn confirmed(a: &mut Site, b: &mut Site) {
    a.run(Command::Deployment(DeploymentCommand::Confirm)).unwrap();
    let offer = a.machine.offer(&group("7")).unwrap().expect("it is asked again");
    let parts = taken(b.run(a.offered_by(A, &offer)));
    a.run(lending(Lending::Answered { by: B, parts })).unwrap();
}

fn inventory_for(of: SiteId, site: &mut Site) -> Answer {
    let registry = Box::new(site.newest());
    let ask = GlobalCommand::Inventory { registry, lost: of, failover: None };
    site.run(Command::Global(ask)).unwrap()
}

#[test]
fn a_restored_borrower_gives_up_what_it_had_borrowed() {
    let (mut a, mut b, _) = sites();
    lent(&mut a, &mut b, "x{7}");
    let backup = restored(&b);
    b.run(set("x{7}", "4")).unwrap();
    settle(&mut a, A, &mut b, B, "x{7}");
    let mut b = backup;
    assert!(b.value("x{7}").is_err());
    inventory_for(B, &mut a);
    let offer = a.machine.offer(&group("7")).unwrap().expect("it is asked again");
    let refused = b.run(a.offered_by(A, &offer)).unwrap_err();
    assert!(matches!(refused, Refusal::Move(MoveError::NotReady(_))), "{refused:?}");
    b.run(Command::Deployment(DeploymentCommand::Confirm)).unwrap();
    assert_eq!((b.part_of("x{7}"), b.machine.parts_due().count()), (Part::Never, 0));
    let parts = taken(b.run(a.offered_by(A, &offer)));
    a.run(lending(Lending::Answered { by: B, parts })).unwrap();
    assert_eq!(a.value("x{7}"), Ok(Some("4".into())), "as the borrower last reported it");
    assert!(b.value("x{7}").is_err());
}

/// The group has gone home since the backup was made.
#[test]
fn a_restored_borrower_does_not_serve_what_has_gone_home() {
    let (mut a, mut b, _) = sites();
    lent(&mut a, &mut b, "x{7}");
    let backup = restored(&b);
    b.give_back("x{7}");
    settle(&mut a, A, &mut b, B, "x{7}");
    a.run(set("x{7}", "5")).unwrap();
    let mut b = backup;
    b.run(Command::Deployment(DeploymentCommand::Confirm)).unwrap();
    assert!(b.value("x{7}").is_err());
    assert_eq!(a.value("x{7}"), Ok(Some("5".into())));
}

#[test]
fn a_restored_owner_adopts_what_was_borrowed_since() {
    let (mut a, mut b, mut c) = sites();
    let backup = restored(&a);
    lent(&mut a, &mut b, "x{7}");
    b.run(set("x{7}", "4")).unwrap();
    let mut a = backup;
    let (mut job, now) = (Confirming::default(), Duration::from_secs(1));
    for effect in job.poll(&a.view(now)) {
        let Effect::Ask { id: Some(id), to, command, .. } = effect else { panic!("{effect:?}") };
        let answer = if to == B { b.run(command) } else { c.run(command) };
        let none = job.answered(id, answer.map_err(model::Failure::Refused), &a.view(now));
        assert!(none.is_empty());
    }
    let effects = job.poll(&a.view(now));
    let [Effect::Ask { id: Some(id), to: A, command, .. }] = &effects[..] else {
        panic!("{effects:?}")
    };
    assert!(job.poll(&a.view(now)).is_empty(), "it does not confirm before");
    let answer = a.run(command.clone()).map_err(model::Failure::Refused);
    job.answered(*id, answer, &a.view(now));
    let effects = job.poll(&a.view(now));
    let [Effect::Propose(command)] = &effects[..] else { panic!("{effects:?}") };
    a.run(command.clone()).unwrap();
    assert!(a.value("x{7}").is_err(), "its borrower serves it");
    assert_eq!(b.value("x{7}"), Ok(Some("4".into())));
    settle(&mut a, A, &mut b, B, "x{7}");
    b.give_back("x{7}");
    settle(&mut a, A, &mut b, B, "x{7}");
    assert_eq!(a.value("x{7}"), Ok(Some("4".into())));
}

/// An owner that is restored, and a borrower. A group has gone home since the backup was made: the
/// owner has lost that, and the borrower has it still.
fn gone_home_since_a_backup() -> (Site, Site) {
    let (mut a, mut b, _) = sites();
    lent(&mut a, &mut b, "x{7}");
    let backup = restored(&a);
    b.run(set("x{7}", "4")).unwrap();
    b.give_back("x{7}");
    settle(&mut a, A, &mut b, B, "x{7}");
    (backup, b)
}

#[test]
fn a_restored_owner_gets_again_what_had_gone_home() {
    let (mut a, mut b) = gone_home_since_a_backup();
    confirmed(&mut a, &mut b);
    assert_eq!(b.machine.parts_due().collect::<Vec<_>>(), [(A, &group("7"))]);
    settle(&mut a, A, &mut b, B, "x{7}");
    assert_eq!(a.value("x{7}"), Ok(Some("4".into())));
}

/// The new mirror is complete before the owner asks whether the borrower has the group.
#[test]
fn what_a_restored_owner_lacks_outlasts_its_new_mirror() {
    let (mut a, mut b) = gone_home_since_a_backup();
    inventory_for(A, &mut b);
    supersede(&mut b, "x{7}");
    assert_eq!(b.part_of("x{7}"), Part::Retained);
    confirmed(&mut a, &mut b);
    settle(&mut a, A, &mut b, B, "x{7}");
    assert_eq!(a.value("x{7}"), Ok(Some("4".into())));
}

/// What came with the loan is among what it gets, too: the borrower is lost afterwards.
#[test]
fn a_restored_owner_gets_the_answers_of_before_the_loan() {
    let (mut a, mut b, _) = sites();
    let backup = restored(&a);
    assert_eq!(a.run(add("n{7}", 5)), Ok(Answer::Integer(1)));
    lent(&mut a, &mut b, "n{7}");
    let mut a = backup;
    let Answer::InventoryOfLoans(_, claimed) = inventory_for(A, &mut b) else { panic!() };
    a.run(lending(Lending::Prepare { opened: Ballot::FIRST, claims: claimed })).unwrap();
    confirmed(&mut a, &mut b);
    settle(&mut a, A, &mut b, B, "n{7}");
    let open = failover(&a.newest(), B, None);
    claims(&mut a, &open, B);
    a.learns(&failover(&open, B, Some((C, "nothing", false))));
    assert_eq!(a.run(add("n{7}", 5)), Ok(Answer::Integer(1)), "done in its former life");
}

/// The borrower has reported all since the backup was made, and may be lost before its next write.
#[test]
fn a_restored_owner_gets_the_reports_again() {
    let (mut a, mut b, _) = sites();
    lent(&mut a, &mut b, "x{7}");
    let backup = restored(&a);
    b.run(set("x{7}", "4")).unwrap();
    settle(&mut a, A, &mut b, B, "x{7}");
    assert_eq!(b.machine.parts_due().count(), 0);
    let mut a = backup;
    confirmed(&mut a, &mut b);
    assert_eq!(b.machine.parts_due().collect::<Vec<_>>(), [(A, &group("7"))]);
    settle(&mut a, A, &mut b, B, "x{7}");
    assert_eq!((b.machine.parts_due().count(), b.part_of("x{7}")), (0, Part::Held));
}

/// A report from before the owner asks again is under way, and has no answers of before the loan.
#[test]
fn a_report_that_is_under_way_does_not_stand_for_all_answers() {
    let (mut a, mut b, _) = sites();
    let backup = restored(&a);
    assert_eq!(a.run(add("n{7}", 5)), Ok(Answer::Integer(1)));
    lent(&mut a, &mut b, "n{7}");
    b.run(add("n{7}", 6)).unwrap();
    let under_way = b.report(B, "n{7}");
    let mut a = backup;
    let Answer::InventoryOfLoans(_, claims) = inventory_for(A, &mut b) else { panic!() };
    a.run(lending(Lending::Prepare { opened: Ballot::FIRST, claims })).unwrap();
    confirmed(&mut a, &mut b);
    let Ok(Answer::Lent { revision, states, .. }) = a.run(under_way) else { panic!() };
    b.run(lending(Lending::Follow { owner: A, revision, states })).unwrap();
    assert_eq!(b.machine.parts_due().collect::<Vec<_>>(), [(A, &group("7"))]);
    settle(&mut a, A, &mut b, B, "n{7}");
    assert_eq!(b.machine.parts_due().count(), 0);
    b.give_back("n{7}");
    settle(&mut a, A, &mut b, B, "n{7}");
    assert_eq!(a.run(add("n{7}", 5)), Ok(Answer::Integer(1)), "done in its former life");
}

/// Its claim is on its way: the taker counts on it.
#[test]
fn a_part_that_went_home_stays_while_a_failover_is_open() {
    let (mut a, mut b, _) = sites();
    lent(&mut a, &mut b, "x{7}");
    b.give_back("x{7}");
    settle(&mut a, A, &mut b, B, "x{7}");
    let before = b.newest();
    let mut open = before.clone();
    open.version.round += 1;
    open.failovers.open(open.version, A, &[]).unwrap();
    b.learns(&open);
    supersede(&mut b, "x{7}");
    assert_eq!(b.part_of("x{7}"), Part::Retained);
    // It is called off.
    let mut over = before;
    over.version.round += 2;
    b.learns(&over);
    supersede(&mut b, "x{7}");
    assert_eq!(b.part_of("x{7}"), Part::Never);
}

/// The sites that are asked whether what is here may go.
fn asked(site: &Site) -> Vec<SiteId> {
    let effects = Release::default().poll(&site.view(Duration::from_secs(1)));
    let to = |effect| match effect {
        Effect::Send { to, .. } => to,
        other => panic!("{other:?}"),
    };
    effects.into_iter().map(to).collect()
}

/// The owner had given the slot to a site that the borrower does not know of.
#[test]
fn of_a_part_that_is_over_any_site_is_asked_once_its_owner_has_left() {
    let (mut a, mut b, _) = sites();
    lent(&mut a, &mut b, "x{7}");
    b.give_back("x{7}");
    settle(&mut a, A, &mut b, B, "x{7}");
    assert_eq!(asked(&b), [A]);
    let mut registry = b.newest();
    registry.sites.retain(|site| site.id != A);
    registry.version.round += 1;
    b.learns(&registry);
    assert_eq!((b.part_of("x{7}"), asked(&b)), (Part::Retained, vec![C]));
    // It names the next owner, which is asked then.
    let slots = SlotEpochs::gather([(Slot::of_key(b"x{7}"), Epoch::counted(2))]);
    b.run(Command::Global(GlobalCommand::Register { owner: C, slots })).unwrap();
    assert_eq!(asked(&b), [C]);
    let slots = SlotEpochs::gather([(Slot::of_key(b"x{7}"), Epoch::counted(2))]);
    let position = u64::MAX - 1;
    b.run(Command::Global(GlobalCommand::Supersede { slots, generation: 9, position })).unwrap();
    assert_eq!(b.part_of("x{7}"), Part::Never);
}

/// The owner that is known gave the slot to a site that has left by now, and has no record of a
/// later one.
#[test]
fn now_and_then_any_site_is_asked_instead_of_the_owner() {
    let (mut a, mut b, _) = sites();
    lent(&mut a, &mut b, "x{7}");
    b.give_back("x{7}");
    settle(&mut a, A, &mut b, B, "x{7}");
    let mut job = Release::default();
    let mut to = Vec::new();
    for _ in 0..12 {
        for effect in job.poll(&b.view(Duration::from_secs(1))) {
            let Effect::Send { to: site, .. } = effect else { panic!("{effect:?}") };
            to.push(site);
        }
    }
    assert_eq!(to.len(), 12);
    assert!(to.contains(&C) && to.iter().filter(|site| **site == A).count() >= 9, "{to:?}");
}

/// A write with a long answer that is remembered.
fn long(sequence: u64) -> Command {
    let value = Bytes::from(vec![b'v'; limits::ANSWER_REMEMBERED_BYTES_MAX - 100]);
    let (condition, expiry) = (Condition::Always, Expiry::Never);
    let write = Write::Put { key: "l{7}".into(), value, condition, expiry, return_old: true };
    let request = RequestId { client: ClientId(9), sequence, acknowledged_below: 0 };
    Command::Write { keyspace: CARS, write, request: Some(request) }
}

#[test]
fn a_group_with_many_answers_stays_and_goes_home_in_time() {
    let mut writes = (1..).map(long);
    let (mut a, mut b, _) = sites();
    lent(&mut a, &mut b, "l{7}");
    let mut written = 0;
    while b.part_of("l{7}") == Part::Held {
        let outcome = b.run(writes.next().unwrap());
        let is_home = outcome == Err(Refusal::NotHeld(Slot::of_key(b"l{7}")));
        assert!(outcome.is_ok() || is_home, "{outcome:?}");
        written += u64::from(outcome.is_ok());
    }
    let answer = limits::ANSWER_REMEMBERED_BYTES_MAX;
    let most = limits::PART_ANSWERS_BYTES_MAX / answer;
    assert!((most as u64 - 3..=most as u64 + 1).contains(&written), "{written} of {most}");
    settle(&mut a, A, &mut b, B, "l{7}");
    assert!(a.value("l{7}").unwrap().is_some());
    // All groups of the slot stay, until those answers are forgotten.
    assert!(a.machine.has_many_answers(Slot::of_key(b"l{7}")));
    a.run(lending(Lending::Lend { to: B, groups: vec![group("7")] })).unwrap();
    assert!(a.machine.lent().next().is_none());
    let mut a = a.reopened();
    assert!(a.machine.has_many_answers(Slot::of_key(b"l{7}")), "it is counted anew");
    let request = RequestId { client: ClientId(9), sequence: 9_999, acknowledged_below: 9_999 };
    let write = put("l{7}", "1");
    a.run(Command::Write { keyspace: CARS, write, request: Some(request) }).unwrap();
    assert!(!a.machine.has_many_answers(Slot::of_key(b"l{7}")));
    lent(&mut a, &mut b, "l{7}");
}

/// More claims than one command adopts, each of a slot of its own; no site has those parts any
/// more.
#[test]
fn a_restored_owner_adopts_many_claims_and_offers_each() {
    const CLAIMS: u64 = 5_000;
    let (a, mut b, mut c) = sites();
    let mut a = restored(&a);
    let mut claims: Vec<(Group, LoanClaim)> = Vec::new();
    for number in 0..CLAIMS {
        let group = Group { keyspace: CARS, tag: number.to_string().into() };
        let loan = Loan { epoch: Epoch::counted(1), count: number + 1 };
        claims.push((group, LoanClaim { loan, to: B, confirmed: Ballot::FIRST }));
    }
    let (mut job, now) = (Confirming::default(), Duration::from_secs(1));
    for effect in job.poll(&a.view(now)) {
        let Effect::Ask { id: Some(id), to, command, .. } = effect else { panic!("{effect:?}") };
        let answer = if to == B { b.run(command) } else { c.run(command) }.unwrap();
        let answer = match answer {
            Answer::Inventory(inventory) if to == B => {
                Answer::InventoryOfLoans(inventory, claims.clone())
            }
            other => other,
        };
        job.answered(id, Ok(answer), &a.view(now));
    }
    let mut commands = 0;
    loop {
        let effects = job.poll(&a.view(now));
        match &effects[..] {
            [Effect::Ask { id: Some(id), to: A, command, .. }] => {
                let answer = a.run(command.clone()).map_err(model::Failure::Refused);
                job.answered(*id, answer, &a.view(now));
                commands += 1;
            }
            [Effect::Propose(command)] => {
                a.run(command.clone()).unwrap();
                break;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((commands, a.machine.lent().count()), (2, CLAIMS as usize));
    assert_eq!(a.machine.offered().count(), CLAIMS as usize);
    // Its borrower has no part in it, and is past the loan.
    let of_one = claims[7].0.clone();
    let offer = a.machine.offer(&of_one).unwrap().unwrap();
    let loan = Loan { count: offer.row.loan.count + 1, ..offer.row.loan };
    let part = model::LoanTaken { group: of_one.clone(), loan, part: Part::Never };
    a.run(lending(Lending::Answered { by: B, parts: vec![part] })).unwrap();
    assert_eq!(a.machine.borrower_of(&of_one), None, "it is home");
}

/// More is written all the time than goes home in a round trip, and the last group is given back.
#[test]
fn every_part_gets_its_turn() {
    const WAY: Duration = Duration::from_millis(100);
    let (mut a, mut b, _) = sites();
    let large: &'static str = "v".repeat(100 << 10).leak();
    let mut tags: Vec<u64> = (0..60).collect();
    tags.sort_by_key(|tag| Slot::of_key(tag.to_string().as_bytes()));
    let key = |tag: &u64| -> &'static str { format!("k{{{tag}}}").leak() };
    for tag in &tags {
        a.run(set(key(tag), large)).unwrap();
        lent(&mut a, &mut b, key(tag));
    }
    let (last, written) = tags.split_last().unwrap();
    let write = |tag: &u64| set(format!("w{{{tag}}}").leak(), "1");
    let writes: Vec<Command> = written.iter().map(write).collect();
    b.give_back(key(last));
    let mut job = Loans::default();
    let mut under_way: VecDeque<(Duration, u64, Answer)> = VecDeque::new();
    for step in 1..=400 {
        let now = Duration::from_millis(10 * step);
        b.entry_unchecked(writes.clone()).into_iter().for_each(|answer| drop(answer.unwrap()));
        while under_way.front().is_some_and(|(at, ..)| *at <= now) {
            let (_, id, answer) = under_way.pop_front().unwrap();
            for effect in job.answered(id, Ok(answer), &b.view(now)) {
                let Effect::Propose(command) = effect else { panic!("{effect:?}") };
                b.entry_unchecked(vec![command]).pop().unwrap().unwrap();
            }
        }
        for effect in job.poll(&b.view(now)) {
            let Effect::Ask { id: Some(id), to: A, command, .. } = effect else {
                panic!("{effect:?}")
            };
            let answer = a.entry_unchecked(vec![command]).pop().unwrap().unwrap();
            under_way.push_back((now + WAY, id, answer));
        }
    }
    assert_eq!(b.part_of(key(last)), Part::Retained);
    for tag in written {
        let part = b.machine.part(&group(key(tag))).unwrap();
        assert!(part.fed > part.since, "{tag} has not been reported: {part:?}");
    }
}
