//! A site gets another backup: the former one is fed until the new one has everything.

use super::*;
use crate::site::machine::global::mirroring::OwnMirror;

impl Three {
    /// A gets another backup, and all sites learn of it.
    pub(super) fn other_backup(&mut self, backup: SiteId) {
        let choice = RegistryChange::Backup(A, model::BackupChoice::At(backup));
        self.change(B, &choice).unwrap();
        self.hears(A);
        self.hears(C);
    }

    fn former(&self) -> Option<OwnMirror> {
        self.sites[&A].machine.former_mirror()
    }

    /// A's report that copies are safe, for a site that asks about what it has.
    fn supersede(&mut self, at: SiteId) {
        let spare = self.sites[&at].machine.spare_copies();
        let machine = &self.sites[&A].machine;
        let (slots, generation, position) = self.driver.safe(machine, &spare).unwrap();
        let safe = GlobalCommand::Supersede { slots, generation, position };
        self.at(at).run(Command::Global(safe)).unwrap();
    }

    fn copied(&self, at: SiteId, key: &'static str) -> Result<Option<String>, Refusal> {
        let query = Query::Get { key: key.into() };
        let answer = refused(self.sites[&at].machine.ask_mirror(A, CARS, &query))?;
        let Answer::Value(value) = answer else { panic!("{answer:?}") };
        Ok(value.map(|found| String::from_utf8(found.value.to_vec()).unwrap()))
    }
}

#[test]
fn the_former_backup_is_fed_while_the_new_one_cannot_be_reached() {
    let mut three = Three::new();
    three.put("x", "1");
    three.mirror();
    three.other_backup(C);
    three.put("x", "2");
    three.mirror_to(C, &[C]);
    assert_eq!(three.copied(B, "x"), Ok(Some("2".into())));
    assert_eq!(three.former().map(|former| former.to), Some(B));
    // Both ends keep that over a restart.
    three.at(A).reopen();
    three.at(B).reopen();
    three.driver = MirrorDriver::new(0);
    three.put("x", "3");
    three.mirror_to(C, &[C]);
    assert_eq!(three.copied(B, "x"), Ok(Some("3".into())));
    // What is written while the backup changes survives the loss of the site.
    assert!(three.promote(true, &[], &[]).unwrap().done);
    assert_eq!(three.held(B, "x"), Ok(Some("3".into())));
}

#[test]
fn the_former_backup_keeps_its_copies_until_the_new_one_has_everything() {
    let mut three = Three::new();
    three.put("x", "1");
    three.mirror();
    three.other_backup(C);
    three.put("y", "2");
    assert_eq!(three.sites[&B].machine.spare_copies().len(), 16_384, "it asks about them");
    three.mirror_to(C, &[]);
    assert_eq!(three.former(), None, "the new one has everything");
    assert_eq!(
        (three.copied(B, "y"), three.copied(C, "y")),
        (Ok(Some("2".into())), Ok(Some("2".into())))
    );
    // It is not fed any more.
    three.put("y", "3");
    three.mirror_to(C, &[]);
    assert_eq!(
        (three.copied(B, "y"), three.copied(C, "y")),
        (Ok(Some("2".into())), Ok(Some("3".into())))
    );
    three.supersede(B);
    assert_eq!(three.copied(B, "y"), Err(Refusal::NotHeld(slot("y"))));
    assert!(three.sites[&B].machine.mirrors().is_empty(), "the stream has ended, too");
    for _ in 0..3 {
        three.at(B).tick();
    }
    let left = [tables::COPIED, tables::MIRRORED, tables::GARBAGE];
    assert_eq!(left.map(|table| three.sites[&B].rows(table)), [0, 0, 0]);
}

#[test]
fn the_changes_that_a_former_backup_lacks_are_kept_for_it() {
    let mut three = Three::new();
    three.put("x", "1");
    three.mirror();
    three.put("x", "2");
    three.other_backup(C);
    // The cursors of the new mirror are further than those of the former one.
    three.mirror_to(C, &[B, C]);
    for _ in 0..3 {
        three.at(A).tick();
    }
    let number = three.former().unwrap().number;
    three.mirror_to(C, &[C]);
    assert_eq!(three.former().map(|former| former.number), Some(number));
    assert_eq!(three.copied(B, "x"), Ok(Some("2".into())));
}

#[test]
fn a_former_stream_that_cannot_go_on_ends() {
    let changes: [fn(&mut Three); 3] = [
        // Its changes are not kept any more.
        |three| {
            let name = "mirror-former".to_owned();
            three.at(A).run(Command::DropCursor { name, keyspace: CARS }).unwrap();
            three.driver = MirrorDriver::new(0);
            three.put("x", "2");
        },
        // A version without former streams has ended its own.
        |three| {
            let number = three.former().unwrap().number;
            let end = GlobalCommand::EndMirror { of: A, number };
            three.at(B).run(Command::Global(end)).unwrap();
            three.put("x", "2");
        },
        // The site has left.
        |three| {
            three.change(A, &RegistryChange::Leave(B)).unwrap();
            three.change(A, &RegistryChange::Remove(B)).unwrap();
        },
    ];
    for (case, change) in changes.into_iter().enumerate() {
        let mut three = Three::new();
        three.put("x", "1");
        three.mirror();
        three.other_backup(C);
        three.mirror_to(C, &[B, C]);
        assert!(three.former().is_some());
        change(&mut three);
        three.mirror_to(C, &[C]);
        assert_eq!(three.former(), None, "{case}");
        assert_eq!(three.copied(B, "x"), Ok(Some("1".into())), "{case}: the copy stays");
        three.mirror_to(C, &[]);
        assert_eq!(three.sites[&A].machine.own_mirror().map(|own| own.to), Some(C));
    }
}

/// One former backup is fed: the last one that had everything.
#[test]
fn a_backup_that_changes_again_does_not_take_the_place_of_the_former_one() {
    let mut three = Three::new();
    three.put("x", "1");
    three.mirror();
    three.other_backup(C);
    three.mirror_to(C, &[C]);
    let former = three.former();
    assert_eq!(former.map(|former| former.to), Some(B));
    // No site is D; the registry is not asked here.
    three.mirror_to(SiteId(4), &[C, SiteId(4)]);
    assert_eq!(three.former(), former);
    three.put("x", "2");
    three.mirror_to(SiteId(4), &[C, SiteId(4)]);
    assert_eq!(three.copied(B, "x"), Ok(Some("2".into())));
    // Back to the former one, which begins anew beside its copies.
    three.other_backup(B);
    three.mirror_to(B, &[C]);
    assert_eq!((three.former(), three.copied(B, "x")), (None, Ok(Some("2".into()))));
}

/// The new backup may have nearly everything when the former one is given back and begins anew.
#[test]
fn a_former_backup_that_is_given_back_leaves_the_other_one_fed() {
    let mut three = Three::new();
    three.put("x", "1");
    three.mirror();
    three.other_backup(C);
    three.at(A).run(Command::Global(GlobalCommand::SetMirror { to: Some(C) })).unwrap();
    let number = three.sites[&A].machine.own_mirror().unwrap().number;
    let begin = GlobalCommand::Mirror { from: A, number, step: model::MirrorStep::Begin };
    three.at(C).run(Command::Global(begin)).unwrap();
    // What the former one has acknowledged is not what the other one has.
    let former = three.former().unwrap();
    let position = three.sites[&A].machine.revision();
    let name = "mirror-former".to_owned();
    three.put("x", "2");
    three.at(A).run(Command::SetCursor { name, keyspace: CARS, position }).unwrap();
    three.at(A).run(Command::Global(GlobalCommand::SetMirror { to: Some(B) })).unwrap();
    let other = OwnMirror { to: C, number };
    assert_eq!((former.to, three.former()), (B, Some(other)));
    let cursor = three.sites[&A].machine.mirror_cursor(other, CARS);
    assert_eq!(cursor, Some(("mirror-former", number)));
    three.mirror_to(B, &[B]);
    assert_eq!(three.copied(C, "x"), Ok(Some("2".into())));
    // It learns of the change once it has something, and is fed all the same.
    three.other_backup(B);
    three.put("x", "3");
    three.mirror_to(B, &[B]);
    assert_eq!(three.copied(C, "x"), Ok(Some("3".into())));
    three.mirror_to(B, &[]);
    assert_eq!((three.former(), three.copied(B, "x")), (None, Ok(Some("3".into()))));
}
