//! What happens to sites while a group is lent: they leave, are failed over, and get other backups.

use super::pair::{EAST, MS, NORTH, Sites, WAY, WEST, bytes, some};
use lab::simulation::{Settings, Simulation};
use model::{
    Answer, BackupChoice, Body, Command, GlobalCommand, Group, JobName, KeyspaceSpec, Lending,
    LoanPart, Placement, Promotion, RegistryChange, SiteId, Slot, SourceStep,
};
use std::time::Duration;

const OF_WEST: SiteId = SiteId(1);
const OF_EAST: SiteId = SiteId(2);
const OF_NORTH: SiteId = SiteId(3);

fn lending(step: Lending) -> Command {
    Command::Global(GlobalCommand::Lending(step))
}

fn is_listed(lab: &Simulation, by: usize, site: SiteId) -> bool {
    lab.registry(by).unwrap().site(site).is_some()
}

/// A key of west's that east has borrowed, as "1".
struct Lent {
    sites: Sites,
    key: String,
    group: Group,
}

impl Lent {
    /// West's mirror is at another site.
    fn new(backup: SiteId) -> Lent {
        let spec = KeyspaceSpec::linearizable_global("cars", "car:");
        let spec = KeyspaceSpec { placement: Placement::Adaptive, ..spec };
        let settings = Settings { answer_at_front: true, ..Settings::default() };
        let mut sites = Sites::of_sites(3, settings, spec);
        for site in [WEST, EAST, NORTH] {
            sites.ask(site, Body::SwitchJob { job: JobName::Place, paused: true });
        }
        let key = sites.key_at(WEST, "a");
        let group = Group::of_key(sites.keyspace, &bytes(&key));
        let mut lent = Lent { sites, key, group };
        lent.change(WEST, RegistryChange::Backup(OF_WEST, BackupChoice::At(backup)));
        lent.sites.lab.run(MS * 5_000);
        let key = lent.key.clone();
        lent.sites.put(WEST, &key, "1");
        let groups = vec![lent.group.clone()];
        lent.sites.write(WEST, lending(Lending::Lend { to: OF_EAST, groups }));
        lent.comes_to(LoanPart::Held);
        lent
    }

    fn change(&mut self, at: usize, change: RegistryChange) {
        self.sites.ask(at, Body::Registry { change: Box::new(change), id: None });
    }

    fn part(&self) -> LoanPart {
        let part = self.sites.lab.part(EAST, &self.group);
        part.map(|part| part.borrowed.part).unwrap_or_default()
    }

    fn comes_to(&mut self, part: LoanPart) {
        let group = self.group.clone();
        let is_so = |lab: &Simulation| {
            lab.part(EAST, &group).map(|part| part.borrowed.part).unwrap_or_default() == part
        };
        assert!(self.sites.lab.run_until(MS * 60_000, is_so), "{:?}, not {part:?}", self.part());
    }

    fn give_back(&mut self) {
        let loan = self.sites.lab.part(EAST, &self.group).unwrap().borrowed.loan;
        let step = Lending::GiveBack { loans: vec![(self.group.clone(), loan)] };
        self.sites.write(EAST, lending(step));
    }

    fn put(&mut self, at: usize, value: &str) {
        let key = self.key.clone();
        self.sites.put(at, &key, value);
    }

    fn get(&mut self, at: usize) -> (Option<String>, Duration) {
        let key = self.key.clone();
        self.sites.get(at, &key)
    }

    /// The owner of its slot has what its borrower has written.
    fn is_reported(&mut self) {
        let group = self.group.clone();
        let is_reported =
            |lab: &Simulation| lab.part(EAST, &group).is_some_and(|part| part.changed <= part.fed);
        assert!(self.sites.lab.run_until(MS * 5_000, is_reported));
    }

    fn leaves(&mut self, site: usize, id: SiteId, by: usize) {
        self.change(site, RegistryChange::Leave(id));
        let has_left = |lab: &Simulation| !is_listed(lab, by, id);
        assert!(self.sites.lab.run_until(MS * 180_000, has_left), "{:?}", self.part());
    }

    fn is_lost(&mut self, site: usize, id: SiteId) {
        self.sites.lab.part_site(site);
        self.sites.lab.run(MS * 2_000);
        let promote = Promotion::of(id).into();
        let Answer::Loss(loss) = self.sites.ask(NORTH, promote).0 else { panic!("no loss") };
        assert!(loss.done, "{loss:?}");
    }

    fn has_slot(&self, at: usize) -> bool {
        self.sites.lab.held_slots(at).0.contains(&self.group.slot())
    }

    fn hand_to_north(&mut self, slot: Slot) {
        let slots = [slot].into_iter().collect();
        let step = SourceStep::Begin { slots, to: OF_NORTH, pinned: true };
        self.sites.write(WEST, Command::Global(GlobalCommand::Source { number: 0, step }));
        let arrived = |lab: &Simulation| lab.held_slots(NORTH).0.contains(&slot);
        assert!(self.sites.lab.run_until(MS * 20_000, arrived));
    }
}

#[test]
fn a_home_leaves_and_its_group_stays_lent_by_the_next_one() {
    let mut lent = Lent::new(OF_NORTH);
    lent.hand_to_north(lent.group.slot());
    assert_eq!(lent.part(), LoanPart::Held);
    lent.put(EAST, "2");
    lent.leaves(WEST, OF_WEST, NORTH);
    assert_eq!(lent.part(), LoanPart::Held);
    assert!(lent.get(EAST).1 < MS * 10, "it is served there");
    lent.put(EAST, "3");
    lent.is_reported();
    lent.give_back();
    lent.comes_to(LoanPart::Retained);
    assert_eq!((lent.get(NORTH).0, lent.get(EAST).0), (some("3"), some("3")));
    assert!(lent.has_slot(NORTH));
}

/// It had given the group back; the next owner of the slot is one that it does not know of.
#[test]
fn a_borrower_leaves_after_the_home_of_its_group() {
    let mut lent = Lent::new(OF_NORTH);
    lent.sites.ask(EAST, Body::SwitchJob { job: JobName::Release, paused: true });
    lent.put(EAST, "2");
    lent.give_back();
    lent.comes_to(LoanPart::Retained);
    lent.sites.lab.run(MS * 2_000);
    assert_eq!(lent.part(), LoanPart::Retained);
    lent.hand_to_north(lent.group.slot());
    lent.leaves(WEST, OF_WEST, NORTH);
    assert_eq!(lent.part(), LoanPart::Retained);
    lent.sites.ask(EAST, Body::SwitchJob { job: JobName::Release, paused: false });
    lent.leaves(EAST, OF_EAST, NORTH);
    assert_eq!(lent.get(NORTH).0, some("2"));
}

#[test]
fn a_borrower_that_leaves_brings_its_writes_home() {
    let mut lent = Lent::new(OF_NORTH);
    lent.put(EAST, "2");
    lent.leaves(EAST, OF_EAST, NORTH);
    assert_eq!((lent.get(WEST).0, lent.get(NORTH).0), (some("2"), some("2")));
    assert!(lent.get(WEST).1 < MS * 10, "it is at home");
}

#[test]
fn a_lost_home_is_failed_over_and_its_borrower_serves_on() {
    for backup in [OF_NORTH, OF_EAST] {
        let mut lent = Lent::new(backup);
        lent.put(EAST, "2");
        lent.is_reported();
        lent.sites.lab.part_site(WEST);
        // The site that has the slot's next owner has no record of this one.
        lent.put(EAST, "3");
        lent.is_lost(WEST, OF_WEST);
        let taker = if backup == OF_NORTH { NORTH } else { EAST };
        assert!(lent.has_slot(taker), "{backup:?}");
        assert_eq!((lent.get(EAST).0, lent.get(NORTH).0), (some("3"), some("3")), "{backup:?}");
        lent.put(EAST, "4");
        // At the borrower itself it is home.
        if backup == OF_NORTH {
            assert_eq!(lent.part(), LoanPart::Held);
            lent.give_back();
            lent.comes_to(LoanPart::Retained);
        }
        lent.sites.lab.rejoin_site(WEST);
        lent.sites.lab.run(MS * 10_000);
        for site in [WEST, EAST, NORTH] {
            assert_eq!(lent.get(site).0, some("4"), "{backup:?}");
        }
    }
}

#[test]
fn a_group_of_a_lost_borrower_is_home_as_it_was_last_reported() {
    let mut lent = Lent::new(OF_NORTH);
    lent.put(EAST, "2");
    lent.is_reported();
    lent.is_lost(EAST, OF_EAST);
    let (found, took) = lent.get(WEST);
    assert!(found == some("2") && took < WAY, "{found:?} after {took:?}");
    lent.put(NORTH, "3");
    // It is back, and has a part that is over.
    lent.sites.lab.rejoin_site(EAST);
    lent.sites.lab.run(MS * 10_000);
    let (found, took) = lent.get(EAST);
    assert!(found == some("3") && took >= WAY, "{found:?} after {took:?}");
}

/// The mirror that begins anew has the row of the group, and what comes home.
#[test]
fn a_home_gets_another_backup_while_its_group_is_lent() {
    for (backup, next) in [(OF_EAST, OF_NORTH), (OF_NORTH, OF_EAST)] {
        let mut lent = Lent::new(backup);
        lent.put(EAST, "2");
        lent.change(WEST, RegistryChange::Backup(OF_WEST, BackupChoice::At(next)));
        lent.put(EAST, "3");
        lent.is_reported();
        lent.sites.lab.run(MS * 10_000);
        assert_eq!(lent.part(), LoanPart::Held);
        lent.give_back();
        // The mirror at the new backup is complete, and has the group.
        lent.comes_to(LoanPart::Never);
        lent.is_lost(WEST, OF_WEST);
        let taker = if next == OF_NORTH { NORTH } else { EAST };
        assert!(lent.has_slot(taker), "{next:?}");
        assert_eq!((lent.get(EAST).0, lent.get(NORTH).0), (some("3"), some("3")), "{next:?}");
    }
}
