//! What other sites get of loans: never more than of the records.

use super::super::global::copying::{Gathered, Sent};
use super::loans::{
    C, CARS, claims, failover, group, hand_over, lending, lent, prepare, set, settle, sites, taken,
};
use super::moves::{A, B};
use super::restored::restored;
use super::*;
#[cfg(feature = "trial")]
use crate::bugs::{Bug, Planted};
use crate::global::mirroring::MirrorDriver;
use crate::global::ownership::lending::Part;
use crate::job::{Effect, Job as _, View};
use model::{ChangeKind, Failure, Lending, RegistryChange, Slot, SlotSet, StagedItem};
use std::time::Duration;

/// More than one chunk has.
const COMMANDS: usize = 10;
const CHANGES_EACH: usize = 500;

fn is_of_loans(item: &StagedItem) -> bool {
    matches!(item, StagedItem::Lent { .. } | StagedItem::Loans { .. })
}

/// A mirror's stream.
#[derive(Default)]
struct Stream(Sent);

impl Stream {
    /// The next chunk, and whether it has all there is.
    fn chunk(&mut self, a: &Site) -> (bool, Vec<StagedItem>) {
        let mut gathered = Gathered::default();
        let all = SlotSet::all();
        let own = a.machine.own_mirror().expect("there is one");
        let is_all = a.machine.mirror_changes(own, &all, &mut self.0, &mut gathered).unwrap();
        (is_all, gathered.items)
    }
}

/// The stream is a chunk behind when a group has been lent, written to and given back.
fn behind(prepare: impl FnOnce(&mut Site)) -> (Site, Site, Stream) {
    let (mut a, mut b, _) = sites();
    prepare(&mut a);
    a.run(Command::Global(GlobalCommand::SetMirror { to: Some(C) })).unwrap();
    let mut stream = Stream::default();
    while !stream.chunk(&a).0 {}
    lent(&mut a, &mut b, "x{7}");
    for _ in 0..COMMANDS {
        let pair = |n| (Bytes::from(format!("{n}{{8}}")), Bytes::from("1"));
        let pairs = (0..CHANGES_EACH).map(pair).collect();
        a.write_in(CARS, Write::PutMany { pairs, if_all_absent: false }).unwrap();
    }
    b.run(set("x{7}", "4")).unwrap();
    b.give_back("x{7}");
    settle(&mut a, A, &mut b, B, "x{7}");
    (a, b, stream)
}

/// A taker goes on from what it has got of a mirror, and ignores borrowers whose loans that has
/// seen.
#[test]
fn rows_are_told_when_all_records_have_been() {
    let (mut a, mut b, mut stream) = behind(|_| {});
    // The first chunk has the slot's other changes, and nothing of the loan that has come and gone.
    let (is_all, items) = stream.chunk(&a);
    assert!(!is_all && !items.is_empty() && !items.iter().any(is_of_loans), "{items:?}");
    let (is_all, items) = stream.chunk(&a);
    let slot = Slot::of_key(b"x{7}");
    let is_count =
        |item: &StagedItem| matches!(item, StagedItem::Loans { slot: of, .. } if *of == slot);
    assert!(is_all && items.iter().any(is_count));
    assert!(!items.iter().any(|item| matches!(item, StagedItem::Lent { .. })), "it is home");
    // Nothing is sent twice, and a row that changes is sent with all of its slot.
    assert!(stream.chunk(&a).1.is_empty());
    lent(&mut a, &mut b, "x{7}");
    let (is_all, items) = stream.chunk(&a);
    assert!(is_all);
    let rows: Vec<_> = items.iter().filter(|item| is_of_loans(item)).collect();
    assert_eq!(rows.len(), 2, "{rows:?}");
    b.run(set("x{7}", "5")).unwrap();
    settle(&mut a, A, &mut b, B, "x{7}");
    let (_, items) = stream.chunk(&a);
    let fed = items.iter().find_map(|item| match item {
        StagedItem::Lent { fed, .. } => Some(*fed),
        _ => None,
    });
    assert_eq!(fed, a.machine.lent().next().map(|(_, row)| row.fed), "as the records that came");
}

#[test]
#[cfg(feature = "trial")]
fn rows_that_run_ahead_are_found() {
    let (a, _, mut stream) = behind(|a| a.machine.plant(Planted::of(Bug::RowsAhead)));
    let (is_all, items) = stream.chunk(&a);
    assert!(!is_all && items.iter().any(is_of_loans), "{items:?}");
}

/// The rows of a slot that are sent replace those that were.
#[test]
fn rows_that_are_gone_are_gone_at_the_mirror() {
    let (mut a, mut b, mut c) = sites();
    let backup = RegistryChange::Backup(A, model::BackupChoice::At(C));
    a.run(Command::Deployment(DeploymentCommand::ChangeRegistry(backup))).unwrap();
    let registry = a.newest();
    c.learns(&registry);
    lent(&mut a, &mut b, "x{7}");
    let row = a.machine.lent().next().map(|(group, lent)| (group.clone(), lent.row)).unwrap();
    let number = 1_000;
    let mirror = |step| Command::Global(GlobalCommand::Mirror { from: A, number, step });
    c.run(mirror(model::MirrorStep::Begin)).unwrap();
    let slot = Slot::of_key(b"x{7}");
    let lent = StagedItem::Lent { group: row.0, row: Some(row.1), fed: 0, keys: 2 };
    for (sequence, items, rows) in [
        (0, vec![StagedItem::Loans { slot, count: 1 }, lent], 1),
        (1, vec![StagedItem::Loans { slot, count: 1 }], 0),
    ] {
        let chunk = model::MirrorStep::Chunk {
            sequence,
            resume: Bytes::new(),
            gone: SlotSet::default(),
            items,
            reached: None,
        };
        c.run(mirror(chunk)).unwrap();
        assert_eq!((c.rows(tables::LENT), c.rows(tables::LOANS)), (rows, 1));
    }
}

/// The clock of the mirror may have stood still while the key expired at its home and at its
/// borrower.
#[test]
fn a_key_that_expires_while_it_is_lent_is_gone_at_the_mirror() {
    let (mut a, mut b, _) = sites();
    let with_expiry = put_with("x{7}", "1", Condition::Always, Expiry::AfterMs(1_000));
    a.write_in(CARS, with_expiry).unwrap();
    a.run(Command::Global(GlobalCommand::SetMirror { to: Some(C) })).unwrap();
    let mut stream = Stream::default();
    lent(&mut a, &mut b, "x{7}");
    while !stream.chunk(&a).0 {}
    for site in [&mut a, &mut b] {
        site.now_ms += 5_000;
        site.tick();
    }
    b.give_back("x{7}");
    settle(&mut a, A, &mut b, B, "x{7}");
    assert_eq!(
        (a.value("x{7}"), a.part_of("x{7}")),
        (Ok(None), Part::Never),
        "it is home, and gone"
    );
    let (is_all, items) = stream.chunk(&a);
    let gone = StagedItem::Absent { keyspace: CARS, key: "x{7}".into() };
    assert!(is_all && items.contains(&gone), "{items:?}");
    // Whether the key is gone its borrower decides, so those who follow the keyspace here are sent
    // nothing.
    let changes = a.machine.reader().changes(CARS, Revision(0), 100);
    assert!(changes.is_err() || !changes.unwrap().iter().any(|one| one.kind == ChangeKind::Expire));
}

/// Sends a site's backup all that there is.
fn mirror(a: &mut Site, backup: &mut Site, to: SiteId) {
    let mut driver = MirrorDriver::new(0);
    for round in 1..20 {
        let now = Duration::from_millis(600 * round);
        let effects = driver.poll(&View { backup: Some(to), ..a.view(now) });
        for effect in effects {
            match effect {
                Effect::Propose(command) => drop(a.run(command)),
                Effect::Ask { id: Some(id), command, .. } => {
                    let outcome = backup.run(command).map_err(Failure::Refused);
                    for more in driver.answered(id, outcome, &a.view(now)) {
                        let Effect::Propose(command) = more else { panic!("{more:?}") };
                        drop(a.run(command));
                    }
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

/// A slot comes with its keys, which are no changes here, behind a clear that the mirror has not got.
#[test]
fn a_late_clear_leaves_a_slot_that_came_behind_it() {
    let (mut a, mut b, mut c) = sites();
    let backup = RegistryChange::Backup(C, model::BackupChoice::At(B));
    a.run(Command::Deployment(DeploymentCommand::ChangeRegistry(backup))).unwrap();
    let registry = a.newest();
    for site in [&mut b, &mut c] {
        site.learns(&registry);
    }
    hand_over(&mut a, &mut c, C, "z{8}");
    mirror(&mut c, &mut b, B);
    for _ in 0..COMMANDS {
        let pair = |n| (Bytes::from(format!("{n}{{8}}")), Bytes::from("1"));
        let pairs = (0..CHANGES_EACH).map(pair).collect();
        c.write_in(CARS, Write::PutMany { pairs, if_all_absent: false }).unwrap();
    }
    c.write_in(CARS, Write::Clear).unwrap();
    hand_over(&mut a, &mut c, C, "x{7}");
    mirror(&mut c, &mut b, B);
    assert_eq!(c.value("x{7}"), Ok(Some("1".into())));
    let get = |key: &'static str| match refused(b.machine.ask_mirror(
        C,
        CARS,
        &Query::Get { key: key.into() },
    )) {
        Ok(Answer::Value(value)) => value.is_some(),
        other => panic!("{other:?}"),
    };
    assert!(get("x{7}") && get("y{7}") && !get("z{8}"));
}

/// The owner was restored, and is lost before its new mirror is complete: its backup takes the slot
/// by the copy of the owner's former life, and has to adopt the loan of the present one.
#[test]
fn a_loan_of_a_restored_owner_is_above_those_that_its_old_copy_has() {
    let (mut a, mut b, mut c) = sites();
    let backup = RegistryChange::Backup(A, model::BackupChoice::At(B));
    a.run(Command::Deployment(DeploymentCommand::ChangeRegistry(backup))).unwrap();
    let registry = a.newest();
    for site in [&mut b, &mut c] {
        site.learns(&registry);
    }
    let of_before = restored(&a);
    // Loans that come and go.
    for _ in 0..3 {
        let offer = a.lend(C, "x{7}");
        let parts = taken(c.run(a.offered_by(A, &offer)));
        a.run(lending(Lending::Answered { by: C, parts })).unwrap();
        c.give_back("x{7}");
        settle(&mut a, A, &mut c, C, "x{7}");
    }
    mirror(&mut a, &mut b, B);
    assert!(b.machine.copy_of(Slot::of_key(b"x{7}")).is_some(), "it is complete");
    // It confirms above what its backup has of it.
    let (revision, later) = (a.machine.revision(), model::SlotEpochs::default());
    let confirm = DeploymentCommand::ConfirmAbove { revision, later };
    let mut a = of_before;
    a.run(Command::Deployment(confirm)).unwrap();
    let offer = a.lend(C, "x{7}");
    assert_eq!(taken(c.run(a.offered_by(A, &offer)))[0].part, Part::Held);
    c.run(set("x{7}", "4")).unwrap();
    let open = failover(&a.newest(), A, None);
    let claimed = claims(&mut c, &open, A);
    claims(&mut b, &open, A);
    prepare(&mut b, &open, claimed);
    let decided = failover(&open, A, Some((B, "x{7}", true)));
    for site in [&mut b, &mut c] {
        site.learns(&decided);
    }
    assert!(b.value("x{7}").is_err(), "its borrower serves it");
    assert_eq!(b.machine.borrower_of(&group("7")).map(|(to, ..)| to), Some(C));
    settle(&mut b, B, &mut c, C, "x{7}");
    assert_eq!(c.value("x{7}"), Ok(Some("4".into())));
}
