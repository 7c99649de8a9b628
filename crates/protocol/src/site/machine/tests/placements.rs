//! Keyspaces whose placement changes while groups are lent, or before other sites have learned of
//! it.

use super::loans::{C, CARS, lending, lent, set, settle, sites, sites_with, taken};
use super::moves::{A, B};
use super::*;
use crate::global::ownership::lending::Part;
use model::{
    Alteration, Group, Lending, Pin, Placement, Registry, RegistryChange, SiteId, Slot, SlotSet,
    StagedItem,
};

/// The registry with another placement of the keyspace, in a later version.
fn altered(mut registry: Registry, placement: Placement) -> Registry {
    let name = registry.keyspaces[0].spec.name.clone();
    registry.change(&RegistryChange::AlterKeyspace { name, placement }).unwrap();
    registry.version.round += 1;
    registry
}

/// One key of each of two groups of one slot.
fn several() -> Write {
    let pairs = ["x{7}", "{7}z"].map(|key| (Bytes::from(key), Bytes::from("9"))).to_vec();
    Write::PutMany { pairs, if_all_absent: false }
}

#[test]
fn what_is_lent_stays_lent_until_it_comes_home() {
    for placement in [Placement::Off, Placement::Advise] {
        let (mut a, mut b, _) = sites();
        let slot = Slot::of_key(b"x{7}");
        lent(&mut a, &mut b, "x{7}");
        let registry = altered(a.newest(), placement);
        a.learns(&registry);
        for _ in 0..2 {
            assert_eq!(a.value("x{7}"), Err(Refusal::NotHeld(slot)), "it has one owner");
            assert_eq!(a.run(set("x{7}", "9")), Err(Refusal::NotHeld(slot)));
            assert_eq!(a.write_in(CARS, several()), Err(Refusal::NotHeld(slot)));
            assert_eq!(a.keys(5), ["z{8}"]);
            a = a.reopened();
        }
        let group = Group { keyspace: CARS, tag: Bytes::from("8") };
        a.run(lending(Lending::Lend { to: B, groups: vec![group] })).unwrap();
        assert_eq!(a.machine.lent().count(), 1, "nothing more is lent");
        // Its borrower serves on, before it learns of it and after.
        b.run(set("x{7}", "4")).unwrap();
        b.learns(&registry);
        b = b.reopened();
        b.run(set("y{7}", "5")).unwrap();
        assert_eq!(b.value("x{7}"), Ok(Some("4".into())));
        b.give_back("x{7}");
        settle(&mut a, A, &mut b, B, "x{7}");
        assert_eq!(
            (a.value("x{7}"), a.value("y{7}")),
            (Ok(Some("4".into())), Ok(Some("5".into())))
        );
        assert_eq!(a.keys(5), ["x{7}", "y{7}", "z{8}"]);
    }
}

#[test]
fn a_site_that_gets_loans_before_it_learns_of_the_placement_knows_that_they_are_there() {
    let (mut a, mut b, mut c) = sites_with(Placement::Off);
    let before = a.newest();
    let registry = altered(before.clone(), Placement::Adaptive);
    a.learns(&registry);
    // A borrower serves its part, and no more than that.
    lent(&mut a, &mut b, "x{7}");
    assert_eq!(b.value("x{7}"), Ok(Some("1".into())));
    for _ in 0..2 {
        b.run(set("x{7}", "4")).unwrap();
        assert_eq!(b.value("x{7}"), Ok(Some("4".into())));
        assert_eq!(b.keys(5), ["x{7}", "y{7}"]);
        b = b.reopened();
    }
    assert_eq!(b.part_of("x{7}"), Part::Held);
    // So does a site that gets the row of the slot with its records.
    let spec = |site: &Site| site.machine.spec(CARS).unwrap().clone();
    assert!(!spec(&c).lends());
    let row = a.machine.lent().next().map(|(group, lent)| (group.clone(), lent.row)).unwrap();
    let slot = Slot::of_key(b"x{7}");
    let items = vec![
        StagedItem::Loans { slot, count: 1 },
        StagedItem::Lent { group: row.0, row: Some(row.1), fed: 0, keys: 2 },
    ];
    let backup = RegistryChange::Backup(A, model::BackupChoice::At(C));
    let mut mirrored = before;
    mirrored.change(&backup).unwrap();
    mirrored.version.round += 1;
    c.learns(&mirrored);
    let mirror = |step| Command::Global(GlobalCommand::Mirror { from: A, number: 1_000, step });
    c.run(mirror(model::MirrorStep::Begin)).unwrap();
    let (resume, gone) = (Bytes::new(), SlotSet::default());
    let chunk = model::MirrorStep::Chunk { sequence: 0, resume, gone, items, reached: None };
    c.run(mirror(chunk)).unwrap();
    assert!(spec(&c).lends() && !spec(&c).is_adaptive());
    assert!(spec(&c.reopened()).lends());
    // The registry states what is true of all of it.
    b.learns(&registry);
    assert!(spec(&b).is_adaptive() && !spec(&b).was_adaptive);
    b.learns(&altered(registry, Placement::Off));
    assert!(spec(&b).lends() && !spec(&b).is_adaptive());
}

/// The registry with this change, in a later version.
fn changed(mut registry: Registry, change: &RegistryChange) -> Registry {
    registry.change(change).unwrap();
    registry.version.round += 1;
    registry
}

fn lend_to(registry: &Registry, sites: &[SiteId]) -> Registry {
    let name = registry.keyspaces[0].spec.name.clone();
    let by = Alteration { lend_to: Some(sites.to_vec()), ..Alteration::default() };
    changed(registry.clone(), &RegistryChange::Alter { name, by })
}

fn of_key(tag: &'static str) -> Group {
    Group { keyspace: CARS, tag: Bytes::from(tag) }
}

/// How many groups a site lends after it was asked to lend one.
fn lends(site: &mut Site, to: SiteId, tag: &'static str) -> usize {
    site.run(lending(Lending::Lend { to, groups: vec![of_key(tag)] })).unwrap();
    site.machine.lent().count()
}

#[test]
fn rules_hold_when_a_group_is_lent_whatever_was_decided() {
    let (mut a, ..) = sites();
    let registry = lend_to(&a.newest(), &[C]);
    a.learns(&registry);
    assert_eq!(a.machine.spec(CARS).unwrap().lend_to, [C]);
    a = a.reopened();
    assert_eq!(lends(&mut a, B, "7"), 0, "it may not be there");
    assert_eq!(lends(&mut a, C, "7"), 1);
    // A pin states where it goes, and that it stays at home.
    let pin = |site| RegistryChange::Pin(Pin { keyspace: CARS, tag: "8".into(), site });
    let at_home = changed(lend_to(&registry, &[]), &pin(A));
    a.learns(&at_home);
    a = a.reopened();
    assert_eq!(lends(&mut a, B, "8"), 1, "it is pinned to its home");
    a.learns(&changed(at_home, &pin(C)));
    assert_eq!((lends(&mut a, B, "8"), lends(&mut a, C, "8")), (1, 2));
}

#[test]
fn rules_hold_when_a_group_comes_whatever_its_home_knows() {
    let (mut a, mut b, _) = sites();
    b.learns(&lend_to(&a.newest(), &[C]));
    let offer = a.lend(B, "x{7}");
    let parts = taken(b.run(a.offered_by(A, &offer)));
    assert_ne!(parts[0].part, Part::Held, "it is refused");
    a.run(lending(Lending::Answered { by: B, parts })).unwrap();
    assert_eq!(a.machine.lent().count(), 0);
    assert_eq!(a.value("x{7}"), Ok(Some("1".into())));
    // What it has already is served until it goes home.
    let (mut a, mut b, _) = sites();
    let offer = lent(&mut a, &mut b, "x{7}");
    let registry = lend_to(&a.newest(), &[C]);
    b.learns(&registry);
    a.learns(&registry);
    assert_eq!(taken(b.run(a.offered_by(A, &offer)))[0].part, Part::Held, "once more");
    b.run(set("x{7}", "4")).unwrap();
    b.give_back("x{7}");
    settle(&mut a, A, &mut b, B, "x{7}");
    assert_eq!(a.value("x{7}"), Ok(Some("4".into())));
}

#[test]
#[cfg(feature = "trial")]
fn rules_that_hold_at_the_decision_only_are_found() {
    let (mut a, mut b, _) = sites();
    for site in [&mut a, &mut b] {
        site.machine.plant(crate::bugs::Planted::of(crate::bugs::Bug::RulesAtDecision));
    }
    let registry = lend_to(&a.newest(), &[C]);
    a.learns(&registry);
    b.learns(&registry);
    assert_eq!(lends(&mut a, B, "8"), 1);
    let offer = a.lend(B, "x{7}");
    assert_eq!(taken(b.run(a.offered_by(A, &offer)))[0].part, Part::Held);
}
