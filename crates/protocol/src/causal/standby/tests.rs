//! A standby in sync, silent, and in place of a lost root.

use super::super::simulation::{Store, region, write};
use super::*;
use model::{RegionId, Revision, StandbyRule};

const AT: fn(u64) -> Duration = Duration::from_millis;
const ROOT: SiteId = SiteId(1);
const OTHER: SiteId = SiteId(2);

fn version(round: u64) -> Ballot {
    Ballot { round, ..Ballot::FIRST }
}

fn standby(round: u64, in_sync: bool) -> Option<Standby> {
    Some(Standby { site: OTHER, in_sync, since: version(round) })
}

fn report(standbys: &mut Standbys, count: u64, at: Duration) {
    let applied = Position::new(1, count).0;
    standbys.reached(
        OTHER,
        Reached { epoch: 1, applied, taken: applied, again: true, waits: false },
        at,
    );
}

fn done(steps: Vec<Step>) -> Vec<Step> {
    steps.into_iter().filter(|step| !matches!(step, Step::Ask { .. } | Step::Call(_))).collect()
}

fn commit(round: u64, step: StandbyStep) -> Vec<Step> {
    vec![Step::Propose(CausalCommand::Standby { since: version(round), step })]
}

fn sync(round: u64, in_sync: bool) -> Vec<Step> {
    let (region, since) = (RegionId(1), version(round));
    let change = RegistryChange::SyncStandby { region, epoch: 1, since, in_sync };
    vec![Step::Change { id: None, change }]
}

fn context(lost: &[SiteId]) -> Context {
    Context { lost: lost.iter().copied().collect(), nearest: None, has_registrars: true }
}

/// A root that has ordered five writes.
fn store() -> Store {
    let mut store = Store::of(1);
    (1..=5).for_each(|revision| store.order(OTHER, write(revision)));
    store
}

#[test]
fn a_standby_is_in_sync_once_it_has_what_was_released_without_it() {
    let (mut standbys, mut store) = (Standbys::default(), store());
    let mut region = Region { standby: standby(1, false), ..region(1) };
    let none = context(&[]);
    let steps = standbys.poll(AT(0), &store, &region, &none);
    assert!(matches!(steps[..], [Step::Ask { to: OTHER, .. }]), "{steps:?}");
    report(&mut standbys, 3, AT(10));
    let held = standbys.poll(AT(10), &store, &region, &none);
    assert_eq!(done(held), commit(1, StandbyStep::Hold));
    region.gate = Some(Position::new(1, 3));
    assert!(done(standbys.poll(AT(20), &store, &region, &none)).is_empty(), "it lacks two");
    // What is ordered from now on is not released without it.
    store.order(OTHER, write(6));
    report(&mut standbys, 5, AT(30));
    let sites =
        vec![LastOrdered { site: OTHER, revision: Revision(5), position: Position::new(1, 5) }];
    let command = CausalCommand::Ordered { epoch: 1, sites };
    let handed = standbys.poll(AT(30), &store, &region, &none);
    assert_eq!(done(handed), [Step::Hand { id: 1, to: OTHER, command }]);
    assert!(done(standbys.poll(AT(40), &store, &region, &none)).is_empty(), "under way");
    standbys.answered(1, &Ok(Answer::Done(Revision(9))), AT(40));
    assert_eq!(done(standbys.poll(AT(50), &store, &region, &none)), sync(1, true));
    assert!(done(standbys.poll(AT(60), &store, &region, &none)).is_empty(), "under way");
    region.standby = standby(2, true);
    assert!(done(standbys.poll(AT(70), &store, &region, &none)).is_empty());
    assert_eq!(standbys.acknowledged(), Position::new(1, 5), "as before");
}

#[test]
fn what_waits_for_a_silent_standby_goes_on_without_it() {
    let (mut standbys, store) = (Standbys::default(), store());
    let gate = Some(Position::new(1, 4));
    let mut region = Region { standby: standby(2, true), gate, ..region(1) };
    let none = context(&[]);
    standbys.poll(AT(0), &store, &region, &none);
    report(&mut standbys, 4, AT(2_000));
    assert!(done(standbys.poll(AT(2_000), &store, &region, &none)).is_empty());
    assert_eq!(standbys.next_due(AT(2_000)), Some(AT(3_000)));
    assert!(done(standbys.poll(AT(4_900), &store, &region, &none)).is_empty());
    assert_eq!(done(standbys.poll(AT(5_000), &store, &region, &none)), sync(2, false));
    (region.standby, region.gate) = (standby(3, false), None);
    report(&mut standbys, 4, AT(5_100));
    assert!(done(standbys.poll(AT(5_100), &store, &region, &none)).is_empty(), "a pause");
    report(&mut standbys, 5, AT(10_000));
    let again = standbys.poll(AT(10_000), &store, &region, &none);
    assert_eq!(done(again), commit(3, StandbyStep::Hold));
    // Nothing waits while the standby has all.
    let mut region = Region { standby: standby(4, true), gate, ..region };
    assert!(done(standbys.poll(AT(60_000), &store, &region, &none)).is_empty());
    // It is not lost while it is held only: that ends, too.
    region.standby = standby(4, false);
    standbys.stop();
    standbys.poll(AT(60_000), &store, &region, &none);
    let late = standbys.poll(AT(63_000), &store, &region, &none);
    assert_eq!(done(late), sync(4, false));
}

#[test]
fn a_standby_takes_over_from_a_lost_root() {
    let (mut standbys, mut store) = (Standbys::default(), Store::of(2));
    store.applied = Position::new(1, 4);
    let mut region = Region { standby: standby(2, true), ..region(2) };
    let lost = context(&[ROOT]);
    let steps = standbys.poll(AT(0), &store, &region, &context(&[]));
    assert_eq!(steps, [Step::Call(ROOT)]);
    assert!(done(standbys.poll(AT(5_000), &store, &region, &lost)).is_empty());
    assert!(done(standbys.poll(AT(6_000), &store, &region, &context(&[]))).is_empty());
    assert!(done(standbys.poll(AT(10_000), &store, &region, &lost)).is_empty());
    let freeze = commit(2, StandbyStep::Freeze);
    assert_eq!(done(standbys.poll(AT(15_000), &store, &region, &lost)), freeze);
    region.is_frozen = true;
    let (id, since, cut) = (RegionId(1), version(2), Position::new(1, 4));
    let change = RegistryChange::TakeOver { region: id, epoch: 1, since, cut };
    let over = standbys.poll(AT(15_010), &store, &region, &lost);
    assert_eq!(done(over), [Step::Change { id: None, change: change.clone() }]);
    assert!(standbys.waits_for(AT(15_010), &region).is_some());
    // The root is back: it goes on, if that comes first, and the standby imports again.
    assert!(done(standbys.poll(AT(16_000), &store, &region, &context(&[]))).is_empty());
    let back = standbys.poll(AT(17_010), &store, &region, &context(&[]));
    assert_eq!(done(back), sync(2, false));
    // An operator wants the standby as the root.
    region.next = Some(OTHER);
    let over = standbys.poll(AT(19_010), &store, &region, &context(&[]));
    assert_eq!(done(over), [Step::Change { id: None, change }]);
}

#[test]
fn a_standby_that_reaches_no_registrars_imports_on() {
    let (mut standbys, store) = (Standbys::default(), Store::of(2));
    let region = Region { standby: standby(2, true), ..region(2) };
    let alone = Context { has_registrars: false, ..context(&[ROOT]) };
    standbys.poll(AT(0), &store, &region, &alone);
    assert!(done(standbys.poll(AT(60_000), &store, &region, &alone)).is_empty());
    let why = standbys.waits_for(AT(60_000), &region);
    assert!(why.is_some_and(|why| why.contains("registrars")), "{why:?}");
    let freeze = standbys.poll(AT(60_001), &store, &region, &context(&[ROOT]));
    assert_eq!(done(freeze), commit(2, StandbyStep::Freeze));
}

#[test]
fn by_hand_means_by_hand() {
    let (mut standbys, store) = (Standbys::default(), Store::of(2));
    let standby_rule = StandbyRule { by_hand: true, ..StandbyRule::default() };
    let mut region = Region { standby: standby(2, true), standby_rule, ..region(2) };
    let lost = context(&[ROOT]);
    standbys.poll(AT(0), &store, &region, &lost);
    assert!(done(standbys.poll(AT(60_000), &store, &region, &lost)).is_empty());
    assert!(standbys.waits_for(AT(60_000), &region).is_some_and(|why| why.contains("move-root")));
    region.next = Some(OTHER);
    let over = done(standbys.poll(AT(60_000), &store, &region, &lost));
    assert_eq!(over, commit(2, StandbyStep::Freeze));
    // One that is not in sync, or gets its keys anew, does nothing.
    standbys.stop();
    region.standby = standby(3, false);
    assert!(standbys.poll(AT(90_000), &store, &region, &lost).is_empty());
}

#[test]
fn a_root_chooses_its_standby_if_that_is_left_to_it() {
    let (mut standbys, store) = (Standbys::default(), store());
    let mut region = region(1);
    let sees = |lost: &[SiteId]| Context { nearest: Some(SiteId(3)), ..context(lost) };
    assert!(standbys.poll(AT(0), &store, &region, &sees(&[])).is_empty(), "no standby is wanted");
    region.standby_rule.choice = StandbyChoice::Nearest;
    let named = |site| {
        let change = RegistryChange::NameStandby { region: RegionId(1), epoch: 1, site };
        vec![Step::Change { id: None, change }]
    };
    assert_eq!(standbys.poll(AT(0), &store, &region, &sees(&[])), named(SiteId(3)));
    region.standby = standby(2, false);
    assert!(done(standbys.poll(AT(0), &store, &region, &sees(&[OTHER]))).is_empty());
    let late = AT(0) + REPLACED_AFTER;
    assert_eq!(done(standbys.poll(late, &store, &region, &sees(&[OTHER]))), named(SiteId(3)));
}
