//! What other sites get of loans: never more than of the records.

use super::super::global::copying::{Gathered, Sent};
use super::loans::{C, CARS, lent, set, settle, sites};
use super::moves::{A, B};
use super::*;
#[cfg(feature = "trial")]
use crate::bugs::{Bug, Planted};
use crate::global::ownership::lending::Part;
use model::{ChangeKind, RegistryChange, Slot, SlotSet, StagedItem};

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
    assert!(is_all && items.contains(&StagedItem::Loans { slot, count: 1 }));
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
