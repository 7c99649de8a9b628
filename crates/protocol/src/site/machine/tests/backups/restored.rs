//! The owner of a mirror was restored from a backup: its state is behind what its mirror has.

use super::super::restored::restored;
use super::*;
use crate::site::confirming::Confirming;

impl Three {
    /// A asks the others what they own, and confirms its slots.
    fn confirm(&mut self) {
        let mut job = Confirming::default();
        while self.sites[&A].machine.is_restored() {
            self.now += Duration::from_secs(2);
            for effect in job.poll(&self.sites[&A].view(self.now)) {
                match effect {
                    JobEffect::Ask { id: Some(id), to, command, .. } => {
                        let outcome = self.at(to).run(command).map_err(Failure::Refused);
                        let more = job.answered(id, outcome, &self.sites[&A].view(self.now));
                        assert!(more.is_empty(), "{more:?}");
                    }
                    JobEffect::Propose(command) => drop(self.at(A).run(command).unwrap()),
                    other => panic!("{other:?}"),
                }
            }
        }
    }
}

#[test]
fn the_mirror_of_a_restored_site_begins_anew_above_what_was_sent() {
    let mut three = Three::new();
    three.put("x", "1");
    three.mirror();
    let file = restored(&three.sites[&A]);
    for value in ["2", "3", "4"] {
        three.put("y", value);
    }
    three.mirror();
    let sent = three.sites[&B].machine.mirrors()[&A].revision;
    assert!(sent > file.machine.revision().0);
    three.sites.insert(A, file);
    three.driver = MirrorDriver::new(0);
    three.confirm();
    assert!(three.sites[&A].machine.revision().0 > sent, "no number is given again");
    assert_eq!(three.sites[&A].machine.own_mirror(), None);
    three.put("x", "after");
    assert!(three.sites[&A].machine.revision().0 > sent);
    three.mirror();
    let mirrored = ["x", "y"].map(|key| three.mirrored(key));
    assert_eq!(mirrored, [Ok(Some("after".into())), Ok(None)]);
    assert!(three.sites[&B].machine.mirrors()[&A].revision > sent);
    // It is lost for good now, and what it acknowledged is there.
    assert!(three.promote(true, &[], &[]).unwrap().done);
    assert_eq!(three.held(B, "x"), Ok(Some("after".into())));
}

#[test]
fn a_site_that_is_restored_twice_from_one_file_goes_on_above_its_second_life() {
    let mut three = Three::new();
    three.put("x", "1");
    three.mirror();
    let files = [restored(&three.sites[&A]), restored(&three.sites[&A])];
    let mut last = 0;
    for (file, value) in files.into_iter().zip(["2", "3"]) {
        three.sites.insert(A, file);
        three.driver = MirrorDriver::new(0);
        three.confirm();
        assert!(three.sites[&A].machine.revision().0 > last);
        three.put("x", value);
        three.mirror();
        last = three.sites[&A].machine.revision().0;
        assert_eq!(three.mirrored("x"), Ok(Some(value.into())));
    }
}

/// A slot left and came back after the backup was made.
#[test]
fn slots_that_others_know_at_later_epochs_go_on_above_those() {
    let mut three = Three::new();
    three.put("x", "1");
    let file = restored(&three.sites[&A]);
    three.give("x", A, C, "released");
    three.give("x", C, A, "released");
    three.mirror();
    assert_eq!(three.sites[&A].machine.token(slot("x")), Token::Held(Epoch::counted(3)));
    three.sites.insert(A, file);
    three.driver = MirrorDriver::new(0);
    three.confirm();
    assert_eq!(three.sites[&A].machine.token(slot("x")), Token::Held(Epoch::counted(4)));
    three.put("x", "2");
    three.mirror();
    assert_eq!(three.mirrored("x"), Ok(Some("2".into())));
    assert_eq!(
        three.sites[&B].machine.mirrors()[&A].complete.get(slot("x")),
        Some(&Epoch::counted(4))
    );
}

/// A slot came after the backup was made: others have a copy of it, and the restored site has not.
#[test]
fn a_site_that_got_slots_later_is_not_confirmed() {
    let mut three = Three::new();
    three.put("x", "1");
    three.give("x", A, C, "released");
    let file = restored(&three.sites[&A]);
    three.give("x", C, A, "released");
    three.put("x", "2");
    three.mirror();
    three.sites.insert(A, file);
    let mut job = Confirming::default();
    for _ in 0..3 {
        three.now += Duration::from_secs(2);
        for effect in job.poll(&three.sites[&A].view(three.now)) {
            let JobEffect::Ask { id: Some(id), to, command, .. } = effect else {
                panic!("{effect:?}")
            };
            let outcome = three.at(to).run(command).map_err(Failure::Refused);
            assert!(job.answered(id, outcome, &three.sites[&A].view(three.now)).is_empty());
        }
    }
    assert!(three.sites[&A].machine.is_restored());
    let why = job.waits_for(&three.sites[&A].view(three.now)).unwrap();
    assert!(why.contains("got 1 slots after that was made"), "{why}");
    assert!(three.promote(true, &[], &[]).unwrap().done);
    assert_eq!(three.held(B, "x"), Ok(Some("2".into())));
}
