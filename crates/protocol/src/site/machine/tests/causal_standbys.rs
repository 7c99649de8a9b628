//! Causal keys: the root's standby takes its place, by hand.

use super::causal::{A, B, C, change, three_sites};
use super::causal_roots::{at, whole_order};
use super::*;
use model::{
    Ballot, CausalCommand, Position, RegionId, RegistryChange, RegistryError, Standby,
    StandbyChoice, StandbyRule, StandbyStep,
};

const REGION: RegionId = RegionId(1);
const NEXT: u16 = 2;

fn rule(choice: StandbyChoice) -> Command {
    change(RegistryChange::SetStandby(StandbyRule { choice, by_hand: false }))
}

fn sync(since: Ballot, in_sync: bool) -> Command {
    change(RegistryChange::SyncStandby { region: REGION, epoch: 1, since, in_sync })
}

fn take_over(since: Ballot, count: u64) -> Command {
    change(RegistryChange::TakeOver { region: REGION, epoch: 1, since, cut: at(1, count) })
}

impl Site {
    fn standby(&self) -> Standby {
        self.machine.region().unwrap().standby.unwrap()
    }

    fn commit(&mut self, since: Ballot, step: StandbyStep) -> Result<Answer, Refusal> {
        self.causal(CausalCommand::Standby { since, step })
    }
}

fn report(from: &Site, others: &mut [&mut Site]) {
    let registry = from.copy_of_registry();
    others.iter_mut().for_each(|site| site.learn(&registry));
}

/// B is the standby of A, and in sync: three writes of C are ordered, of which B has imported two.
fn in_sync() -> [Site; 3] {
    let [mut a, mut b, mut c] = three_sites();
    a.run(rule(StandbyChoice::At(B))).unwrap();
    let since = a.standby().since;
    a.commit(since, StandbyStep::Hold).unwrap();
    assert!(a.machine.causal().holds(a.machine.region().unwrap()));
    a.run(sync(since, true)).unwrap();
    report(&a, &mut [&mut b, &mut c]);
    assert!(b.standby().in_sync && b.standby().since != since);
    for (key, value) in [("x", "1"), ("x", "2"), ("y", "3")] {
        c.put_cart(key, value);
    }
    a.order_of(c.all_for(&a), 1).unwrap();
    let order = whole_order(&a);
    b.import_upto(&order, at(1, 2));
    [a, b, c]
}

#[test]
fn a_standby_in_sync_goes_on_behind_what_it_has() {
    let [mut a, mut b, mut c] = in_sync();
    let (order, since) = (whole_order(&a), b.standby().since);
    assert!(c.commit(since, StandbyStep::Freeze).is_err(), "it is not the standby");
    assert!(b.commit(Ballot::FIRST, StandbyStep::Freeze).is_err(), "of another version");
    b.commit(since, StandbyStep::Freeze).unwrap();
    b.reopen();
    b.import_upto(&order, at(1, 3));
    assert_eq!(b.machine.causal().applied(), at(1, 2), "it takes nothing more");
    // The registry is held by A here.
    a.run(take_over(since, 2)).unwrap();
    report(&a, &mut [&mut b, &mut c]);
    let region = *b.machine.region().unwrap();
    assert_eq!((region.epoch, region.root, region.begin()), (NEXT, B, Some(at(NEXT, 2))));
    let standby = region.standby.unwrap();
    assert_eq!((standby.site, standby.in_sync), (A, false), "the one before, when it is back");
    assert_eq!(region.standby_rule.choice, StandbyChoice::At(A));
    // What was not released gets a place of the new root.
    b.order_of(c.all_for(&b), NEXT).unwrap();
    assert_eq!(b.machine.causal().order_last(), at(NEXT, 3));
    assert!(a.order_of(c.all_for(&a), 1).is_err(), "it is the root no more");
    assert_eq!(a.machine.causal().applied(), Position(0), "it gets its keys anew");
}

#[test]
fn a_root_that_goes_on_without_its_standby_and_a_takeover_exclude_each_other() {
    let [mut a, mut b, mut c] = in_sync();
    let (order, since) = (whole_order(&a), b.standby().since);
    b.commit(since, StandbyStep::Freeze).unwrap();
    a.run(sync(since, false)).unwrap();
    assert!(!a.machine.causal().holds(a.machine.region().unwrap()));
    // What is late does nothing.
    let registry = a.copy_of_registry();
    a.run(take_over(since, 2)).unwrap();
    a.run(sync(since, true)).unwrap();
    assert_eq!(a.copy_of_registry(), registry);
    // It is frozen until it has that version.
    b.import_upto(&order, at(1, 3));
    assert_eq!(b.machine.causal().applied(), at(1, 2));
    report(&a, &mut [&mut b, &mut c]);
    b.import_upto(&order, at(1, 3));
    assert_eq!(b.machine.causal().applied(), at(1, 3));
    a.run(take_over(b.standby().since, 3)).unwrap();
    assert_eq!(a.machine.region().unwrap().epoch, 1, "it is not in sync");
}

#[test]
fn a_standby_is_a_site_that_stays_and_is_not_the_root() {
    let [mut a, ..] = three_sites();
    let refused = |outcome: Result<Answer, Refusal>| match outcome {
        Err(Refusal::Registry(error)) => error,
        other => panic!("{other:?}"),
    };
    let own = refused(a.run(rule(StandbyChoice::At(A))));
    assert!(matches!(own, RegistryError::StandbyIsRoot(_)), "{own}");
    let none = refused(a.run(rule(StandbyChoice::At(SiteId(9)))));
    assert!(matches!(none, RegistryError::NoSite(_)), "{none}");
    a.run(rule(StandbyChoice::At(C))).unwrap();
    a.run(change(RegistryChange::Leave(C))).unwrap();
    let region = *a.machine.region().unwrap();
    assert_eq!((region.standby, region.standby_rule.choice), (None, StandbyChoice::Nearest));
    let leaves = refused(a.run(rule(StandbyChoice::At(C))));
    assert!(matches!(leaves, RegistryError::StandbyLeaves(_)), "{leaves}");
    let named = |site| change(RegistryChange::NameStandby { region: REGION, epoch: 1, site });
    a.run(named(C)).unwrap();
    assert_eq!(a.machine.region().unwrap().standby, None, "it leaves");
    a.run(named(B)).unwrap();
    assert_eq!(a.standby().site, B);
    // It becomes the root as planned: the other one takes its part.
    let (epoch, cut) = (1, at(1, 0));
    a.run(change(RegistryChange::ChangeRoot { region: REGION, epoch, to: B, cut })).unwrap();
    assert_eq!((a.standby().site, a.standby().in_sync), (A, false));
    a.run(rule(StandbyChoice::Off)).unwrap();
    assert_eq!(a.machine.region().unwrap().standby, None);
}
