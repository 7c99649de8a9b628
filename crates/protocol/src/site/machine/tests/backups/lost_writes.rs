//! A site returns: it lists the keys that it wrote above the positions at which others took its
//! slots.

use super::*;
use model::{ChangeKind, DecidedFailover, LostReport, LostWrites, Taken, limits};

impl Three {
    fn decided(&self) -> Ballot {
        self.sites[&B].machine.registry().unwrap().failovers.decided.last().unwrap().decided
    }

    fn lost(&self, site: SiteId, page: u32) -> LostWrites {
        self.sites[&site].machine.lost_writes(Some(self.decided()), page).unwrap()
    }

    /// A's list: its keys, with what the last lost write did.
    fn lost_keys(&self) -> Vec<(String, ChangeKind)> {
        let lost = self.lost(A, 0);
        assert_eq!((lost.reports[0].keys, lost.next), (lost.writes.len() as u64, None));
        let text = |key: &Bytes| String::from_utf8(key.to_vec()).unwrap();
        lost.writes.iter().map(|write| (text(&write.key), write.kind)).collect()
    }

    fn lists(&self) -> Vec<LostReport> {
        self.sites[&A].machine.lost_writes(None, 0).unwrap().reports
    }
}

#[test]
fn what_was_written_above_the_position_taken_is_listed_on_return() {
    let mut three = Three::new();
    for key in ["x", "y", "z", "gone"] {
        three.put(key, "1");
    }
    three.mirror();
    let position = three.sites[&A].machine.revision();
    three.put("y", "2");
    three.put("y", "3");
    let delete = Write::Delete { keys: vec!["gone".into()] };
    three.at(A).write_in(CARS, delete).unwrap();
    three.put("new", "1");
    let last = three.sites[&A].machine.revision();
    assert!(three.promote(true, &[], &[]).unwrap().done);
    assert!(three.lists().is_empty(), "it is not back");
    three.hears(A);
    let expected = [("gone", ChangeKind::Delete), ("new", ChangeKind::Put), ("y", ChangeKind::Put)];
    assert_eq!(three.lost_keys(), expected.map(|(key, kind)| (key.to_owned(), kind)));
    let lost = three.lost(A, 0);
    assert!(lost.writes.iter().all(|write| write.keyspace == CARS && write.revision > position));
    assert_eq!(lost.writes[1].revision, last);
    let report = &lost.reports[0];
    assert_eq!((report.trimmed, report.more), (model::Revision(0), false));
    assert_eq!(report.slots.slots().len(), 16_384);
    // It stays when the records are gone and the failover is forgotten.
    three.at(A).reopen();
    assert_eq!(three.lost(A, 0), lost);
    assert_eq!(three.lists(), lost.reports);
    // The others have lost nothing.
    three.hears(C);
    assert_eq!((three.lost(B, 0), three.lost(C, 0)), Default::default());
}

/// The taker, or the site that it has handed slots to, may register them before the registry has
/// come; and the copy may be superseded by then.
#[test]
fn a_site_that_learns_of_the_taker_first_lists_its_writes_all_the_same() {
    let mut three = Three::new();
    three.put("x", "1");
    three.put("y", "1");
    three.mirror();
    three.put("x", "2");
    three.put("y", "2");
    assert!(three.promote(true, &[], &[]).unwrap().done);
    let epoch = Epoch::of_failover(three.decided()).next();
    let slots = SlotEpochs(vec![([slot("x")].into_iter().collect(), epoch)]);
    let register = GlobalCommand::Register { owner: C, slots: slots.clone() };
    three.at(A).run(Command::Global(register)).unwrap();
    let safe = GlobalCommand::Supersede { slots, generation: u64::MAX - 1, position: u64::MAX };
    three.at(A).run(Command::Global(safe)).unwrap();
    assert_eq!(three.sites[&A].machine.copy_of(slot("x")), None);
    three.at(A).reopen();
    assert!(three.lists().is_empty());
    three.hears(A);
    let expected = ["x", "y"].map(|key| (key.to_owned(), ChangeKind::Put));
    assert_eq!(three.lost_keys(), expected);
    // It is asked once.
    three.at(A).reopen();
    assert_eq!(three.lists().len(), 1);
    assert_eq!(three.sites[&A].rows(tables::LOST_WRITES), 2);
}

#[test]
fn a_mirror_that_is_not_behind_leaves_an_empty_list() {
    let mut three = Three::new();
    three.put("x", "1");
    three.mirror();
    assert!(three.promote(true, &[], &[]).unwrap().done);
    three.hears(A);
    assert_eq!((three.lost_keys(), three.lists().len()), (Vec::new(), 1));
}

#[test]
fn a_site_that_was_named_lists_what_it_wrote_too() {
    let mut three = Three::new();
    three.put("x", "1");
    three.mirror();
    three.give("x", A, C, "installed");
    three.at(C).write_in(CARS, put("x", "at c")).unwrap();
    assert!(three.promote(true, &[C], &[C]).unwrap().done);
    assert_eq!(three.held(B, "x"), Ok(Some("1".into())));
    three.hears(C);
    let lost = three.lost(C, 0);
    // C had no mirror, so no change log.
    let slots: SlotSet = [slot("x")].into_iter().collect();
    assert_eq!(lost.reports[0].slots.slots(), slots);
    assert!(lost.writes.is_empty() && lost.reports[0].trimmed > model::Revision(0), "{lost:?}");
}

#[test]
fn what_the_change_log_does_not_have_any_more_is_named() {
    let mut three = Three::new();
    three.put("x", "1");
    three.mirror();
    three.put("x", "2");
    let name = "mirror".to_owned();
    three.at(A).run(Command::DropCursor { name, keyspace: CARS }).unwrap();
    let trimmed = three.sites[&A].machine.revision();
    assert!(three.promote(true, &[], &[]).unwrap().done);
    three.hears(A);
    assert_eq!(three.lists()[0].trimmed, trimmed);
    assert!(three.lost_keys().is_empty());
}

#[test]
fn long_lists_come_in_pages() {
    let mut three = Three::new();
    three.put("x", "1");
    three.mirror();
    let names: Vec<String> = (0..2_500).map(|number| format!("key-{number:05}")).collect();
    for name in &names {
        let key = Bytes::from(name.clone());
        let (condition, expiry) = (Condition::Always, Expiry::Never);
        let value = "1".into();
        let put = Write::Put { key, value, condition, expiry, return_old: false };
        three.at(A).write_in(CARS, put).unwrap();
    }
    assert!(three.promote(true, &[], &[]).unwrap().done);
    three.hears(A);
    let (mut found, mut next, mut pages) = (Vec::new(), Some(0), 0);
    while let Some(page) = next {
        let lost = three.lost(A, page);
        assert_eq!(lost.reports[0].keys, 2_500);
        let bytes: usize = lost.writes.iter().map(|write| write.key.len()).sum();
        assert!(bytes <= limits::LOST_KEYS_PAGE_BYTES_MAX);
        found.extend(lost.writes.into_iter().map(|write| write.key));
        (next, pages) = (lost.next, pages + 1);
    }
    assert!(pages > 1);
    assert_eq!(found, names);
    assert_eq!(three.lost(A, 9), LostWrites { reports: three.lists(), ..LostWrites::default() });
}

#[test]
fn the_lists_of_the_last_failovers_stay() {
    let mut three = Three::new();
    let mut decided = Vec::new();
    for first in Slot::all().take(limits::LOST_REPORTS_MAX + 2) {
        let mut registry = (**three.sites[&A].machine.registry().unwrap()).clone();
        registry.version.round += 1;
        let slots = [first].into_iter().collect();
        registry.failovers.decided.push(DecidedFailover {
            decided: registry.version,
            opened: registry.version,
            lost: A,
            without: Vec::new(),
            taken: vec![Taken { by: B, slots, from: None }],
            returned: true,
        });
        decided.push(registry.version);
        let learn = DeploymentCommand::LearnRegistry(Box::new(registry));
        three.at(A).run(Command::Deployment(learn)).unwrap();
    }
    let there: Vec<Ballot> = three.lists().iter().map(|list| list.failover).collect();
    assert_eq!(there, decided[2..]);
}
