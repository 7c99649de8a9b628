//! Where groups may go, whatever their users gain: lists of sites, pins and failure domains.

use super::adaptive::{OF_EAST, OF_WEST, explained, group, moves, part, read_for, sites};
use super::pair::{EAST, MS, NORTH, Sites, WAY, WEST, some};
use lab::simulation::{Down, Simulation};
use model::{
    Alteration, Answer, BackupChoice, Body, Bytes, Group, GroupExplained, LoanPart, Pin,
    PlacementBar, PlacementReason, Promotion, RegistryChange, SiteId, SiteName,
};

const OF_NORTH: SiteId = SiteId(3);

fn change(sites: &mut Sites, at: usize, change: RegistryChange) {
    sites.ask(at, Body::Registry { change: Box::new(change), id: None });
}

fn lend_to(sites: &mut Sites, at: usize, to: &[SiteId]) {
    let by = Alteration { lend_to: Some(to.to_vec()), ..Alteration::default() };
    let alter = RegistryChange::Alter { name: "cars".into(), by };
    let (answer, _) = sites.ask(at, Body::Registry { change: Box::new(alter), id: None });
    let Answer::Keyspace(altered) = answer else { panic!("{answer:?}") };
    assert_eq!(altered.spec.lend_to, to);
}

fn pin(sites: &mut Sites, at: usize, group: &Group, site: SiteId) {
    let (keyspace, tag) = (group.keyspace, group.tag.clone());
    change(sites, at, RegistryChange::Pin(Pin { keyspace, tag, site }));
}

fn bar_of(explained: &GroupExplained, site: SiteId) -> Option<PlacementBar> {
    let found = explained.placed.candidates.iter().find(|one| one.site == site);
    found.unwrap().bar
}

/// Three sites, and a key whose group is at home in the west.
fn with_key() -> (Sites, String, Group) {
    let mut sites = sites(3, true);
    let key = sites.key_at(WEST, "a");
    let of_key = group(&sites, &key);
    sites.put(WEST, &key, "x");
    (sites, key, of_key)
}

fn is_at(sites: &Sites, site: usize, group: &Group) -> bool {
    part(&sites.lab, site, group) == LoanPart::Held
}

fn comes(sites: &mut Sites, site: usize, group: &Group) -> bool {
    sites.lab.run_until(MS * 10_000, |lab| part(lab, site, group) == LoanPart::Held)
}

fn value_at_all(sites: &mut Sites, key: &str, text: &str) {
    for site in [WEST, EAST, NORTH] {
        assert_eq!(sites.get(site, key).0, some(text));
    }
}

#[test]
fn a_keyspace_is_lent_to_the_sites_that_it_names_alone() {
    let (mut sites, key, of_key) = with_key();
    lend_to(&mut sites, NORTH, &[OF_NORTH]);
    assert!(read_for(&mut sites, EAST, &key, 10) >= WAY, "it stays at home");
    assert!(!is_at(&sites, EAST, &of_key));
    let found = explained(&mut sites, EAST, &key);
    assert_eq!(bar_of(&found, OF_EAST), Some(PlacementBar::LendTo));
    assert_eq!((bar_of(&found, OF_WEST), bar_of(&found, OF_NORTH)), (None, None));
    // All sites may have it.
    lend_to(&mut sites, EAST, &[]);
    assert!(read_for(&mut sites, EAST, &key, 10) < MS * 10, "it is local by now");
    sites.put(EAST, &key, "y");
    // It may not be where it is any more, and its users go on.
    lend_to(&mut sites, WEST, &[OF_NORTH]);
    assert!(read_for(&mut sites, EAST, &key, 6) >= WAY);
    assert!(!is_at(&sites, EAST, &of_key));
    assert!(sites.lab.lent(WEST).next().is_none(), "nothing is stranded");
    let before = moves(&mut sites, WEST);
    assert!(read_for(&mut sites, EAST, &key, 25) >= WAY);
    assert_eq!(moves(&mut sites, WEST), before, "it does not go to and fro");
    assert!(read_for(&mut sites, NORTH, &key, 20) < MS * 10, "it is lent there");
    // Its home may always have it.
    assert!(read_for(&mut sites, WEST, &key, 20) < MS * 10);
    value_at_all(&mut sites, &key, "y");
}

/// Half of its users are where it may not be: the other half has it, and not its home.
#[test]
fn a_group_is_at_the_best_of_the_sites_where_it_may_be() {
    let (mut sites, key, of_key) = with_key();
    lend_to(&mut sites, WEST, &[OF_NORTH]);
    for _ in 0..150 {
        sites.get(EAST, &key);
        sites.get(NORTH, &key);
        sites.lab.run(MS * 60);
    }
    assert!(is_at(&sites, NORTH, &of_key));
    assert_eq!(moves(&mut sites, WEST), 1);
}

#[test]
fn a_pin_brings_a_group_that_is_not_used_and_one_without_records() {
    let mut sites = sites(3, true);
    let (key, absent) = (sites.key_at(WEST, "a"), sites.key_at(WEST, "b"));
    let (of_key, of_absent) = (group(&sites, &key), group(&sites, &absent));
    sites.put(WEST, &key, "x");
    pin(&mut sites, NORTH, &of_key, OF_EAST);
    pin(&mut sites, WEST, &of_absent, OF_EAST);
    for one in [&of_key, &of_absent] {
        assert!(comes(&mut sites, EAST, one), "{one:?}");
    }
    let found = explained(&mut sites, WEST, &key);
    assert_eq!((found.placed.owner, found.home), (OF_EAST, OF_WEST));
    assert_eq!(found.placed.why, PlacementReason::Pinned { to: OF_EAST });
    assert_eq!(bar_of(&found, OF_NORTH), Some(PlacementBar::Pinned));
    sites.put(NORTH, &absent, "z");
    assert!(sites.get(EAST, &absent).1 < MS * 10, "it is there");
    value_at_all(&mut sites, &absent, "z");
    // Wherever it is used.
    assert!(read_for(&mut sites, NORTH, &key, 20) >= WAY);
    assert!(is_at(&sites, EAST, &of_key));
    // It goes where it is used again.
    let Group { keyspace, tag } = of_key.clone();
    change(&mut sites, EAST, RegistryChange::Unpin { keyspace, tag });
    assert!(read_for(&mut sites, NORTH, &key, 20) < MS * 10);
    assert!(is_at(&sites, NORTH, &of_key) && is_at(&sites, EAST, &of_absent));
    value_at_all(&mut sites, &key, "x");
}

#[test]
fn a_pin_keeps_a_group_that_is_used_elsewhere() {
    let (mut sites, key, of_key) = with_key();
    read_for(&mut sites, EAST, &key, 8);
    assert!(is_at(&sites, EAST, &of_key));
    // At its home.
    pin(&mut sites, EAST, &of_key, OF_WEST);
    assert!(read_for(&mut sites, EAST, &key, 20) >= WAY);
    assert!(!is_at(&sites, EAST, &of_key));
    let found = explained(&mut sites, EAST, &key);
    assert_eq!(found.placed.why, PlacementReason::Pinned { to: OF_WEST });
    // At a third site, from a borrower that it has been at: by its home.
    pin(&mut sites, EAST, &of_key, OF_EAST);
    assert!(comes(&mut sites, EAST, &of_key));
    pin(&mut sites, WEST, &of_key, OF_NORTH);
    assert!(comes(&mut sites, NORTH, &of_key));
    assert!(read_for(&mut sites, EAST, &key, 10) >= WAY);
    assert!(is_at(&sites, NORTH, &of_key));
    value_at_all(&mut sites, &key, "x");
}

#[test]
fn a_pin_to_its_home_brings_a_group_there_whatever_its_keyspace_is_lent_to() {
    let (mut sites, key, of_key) = with_key();
    lend_to(&mut sites, WEST, &[OF_EAST, OF_NORTH]);
    read_for(&mut sites, EAST, &key, 8);
    assert!(is_at(&sites, EAST, &of_key));
    pin(&mut sites, NORTH, &of_key, OF_WEST);
    assert!(read_for(&mut sites, EAST, &key, 20) >= WAY);
    let found = explained(&mut sites, EAST, &key);
    assert_eq!(found.placed.owner, OF_WEST);
    assert_eq!(found.placed.why, PlacementReason::Pinned { to: OF_WEST });
    value_at_all(&mut sites, &key, "x");
}

#[test]
fn a_pin_waits_for_a_site_that_is_away() {
    let (mut sites, key, of_key) = with_key();
    read_for(&mut sites, EAST, &key, 8);
    assert!(is_at(&sites, EAST, &of_key));
    sites.lab.part_site(NORTH);
    sites.lab.run(MS * 3_000);
    pin(&mut sites, EAST, &of_key, OF_NORTH);
    assert!(read_for(&mut sites, WEST, &key, 15) >= WAY, "it stays where it is");
    assert!(is_at(&sites, EAST, &of_key));
    sites.lab.rejoin_site(NORTH);
    assert!(sites.lab.run_until(MS * 90_000, |lab| part(lab, NORTH, &of_key) == LoanPart::Held));
    value_at_all(&mut sites, &key, "x");
}

#[test]
fn a_pin_waits_for_a_site_that_is_lost_and_comes_back() {
    let (mut sites, key, of_key) = with_key();
    pin(&mut sites, WEST, &of_key, OF_NORTH);
    assert!(comes(&mut sites, NORTH, &of_key));
    sites.lab.part_site(NORTH);
    sites.lab.run(MS * 2_000);
    let lost = OF_NORTH;
    let promote = Promotion::of(lost).into();
    let Answer::Loss(loss) = sites.ask(EAST, promote).0 else { panic!("no loss") };
    assert!(loss.done, "{loss:?}");
    // It is home again, and goes to no other site.
    assert!(read_for(&mut sites, EAST, &key, 15) >= WAY);
    assert!(!is_at(&sites, EAST, &of_key));
    let found = explained(&mut sites, WEST, &key);
    assert_eq!(found.placed.why, PlacementReason::Pinned { to: OF_NORTH });
    assert_eq!(bar_of(&found, OF_NORTH), Some(PlacementBar::Leaves));
    sites.lab.rejoin_site(NORTH);
    assert!(sites.lab.run_until(MS * 120_000, |lab| part(lab, NORTH, &of_key) == LoanPart::Held));
    value_at_all(&mut sites, &key, "x");
}

/// Has the nodes of a site start again with this failure domain.
fn restart_in(sites: &mut Sites, site: usize, domain: &str) {
    let domain = SiteName::new(domain).ok();
    sites.lab.sites[site].failure_domain.clone_from(&domain);
    let node = sites.lab.sites[site].nodes[0];
    sites.lab.bounce(node, &Down::Killed, MS * 10);
    let id = [OF_WEST, OF_EAST, OF_NORTH][site];
    let is_listed = |lab: &Simulation| {
        (0..3).all(|at| {
            let known = lab.status(at).and_then(|status| status.deployment.clone());
            known.is_some_and(|known| {
                known.registry.site(id).is_some_and(|entry| entry.failure_domain == domain)
            })
        })
    };
    assert!(sites.lab.run_until(MS * 20_000, is_listed));
}

#[test]
fn no_site_has_a_group_beside_all_its_other_copies() {
    let mut sites = sites(3, true);
    restart_in(&mut sites, WEST, "hall");
    restart_in(&mut sites, EAST, "hall");
    let key = sites.key_at(WEST, "a");
    let of_key = group(&sites, &key);
    sites.put(WEST, &key, "x");
    assert!(read_for(&mut sites, EAST, &key, 12) < MS * 10, "its backup is in the north");
    assert_eq!(bar_of(&explained(&mut sites, WEST, &key), OF_EAST), None);
    sites.put(EAST, &key, "y");
    change(&mut sites, EAST, RegistryChange::Backup(OF_WEST, BackupChoice::At(OF_EAST)));
    assert!(read_for(&mut sites, EAST, &key, 10) >= WAY, "all of it would be in the hall");
    assert!(!is_at(&sites, EAST, &of_key));
    let found = explained(&mut sites, EAST, &key);
    assert_eq!(bar_of(&found, OF_EAST), Some(PlacementBar::Domain));
    assert_eq!(bar_of(&found, OF_NORTH), None);
    let before = moves(&mut sites, WEST);
    assert!(read_for(&mut sites, EAST, &key, 25) >= WAY);
    assert_eq!(moves(&mut sites, WEST), before, "it does not go to and fro");
    // Somewhere else it may be.
    restart_in(&mut sites, EAST, "pier");
    assert!(read_for(&mut sites, EAST, &key, 15) < MS * 10);
    value_at_all(&mut sites, &key, "y");
}

#[test]
fn a_pin_that_ends_with_its_keyspace_is_gone_at_all_sites() {
    let mut sites = sites(3, true);
    let of_key = Group { keyspace: sites.keyspace, tag: Bytes::from_static(b"car:1") };
    pin(&mut sites, EAST, &of_key, OF_NORTH);
    sites.lab.run(MS * 1_000);
    change(&mut sites, WEST, RegistryChange::DropKeyspace("cars".into()));
    sites.lab.run(MS * 3_000);
    for site in [WEST, EAST, NORTH] {
        let known = sites.status(site).deployment.clone().unwrap();
        assert_eq!(known.registry.pins, []);
    }
}
