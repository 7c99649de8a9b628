use crate::{
    Ballot, Changed, DeploymentId, KeyspaceSpec, Position, Region, RegionId, Registry,
    RegistryChange, RegistryError, SiteEntry, SiteId, SiteName, Standby, StandbyChoice,
    StandbyRule, Term, limits,
};

const A: SiteId = SiteId(1);
const B: SiteId = SiteId(2);
const C: SiteId = SiteId(3);
const D: SiteId = SiteId(4);
const E: SiteId = SiteId(5);

fn name(text: &str) -> SiteName {
    SiteName::new(text).unwrap()
}

fn entry(site: &str, region: &str) -> SiteEntry {
    SiteEntry {
        id: SiteId(0),
        name: name(site),
        incarnation: site.bytes().map(u64::from).sum(),
        capacity_percent: 100,
        leaving: false,
        failure_domain: None,
        borrowed_bytes_max: None,
        region: SiteEntry::stated_region(Some(&name(region))),
        nodes: Vec::new(),
    }
}

fn of_sites(sites: &[(&str, &str)]) -> Registry {
    let mut registry = Registry::empty(DeploymentId(7), 1);
    for (site, region) in sites {
        registry.change(&RegistryChange::Join(entry(site, region))).unwrap();
    }
    registry
}

fn create(sites: &[SiteId]) -> RegistryChange {
    let spec = KeyspaceSpec::causal_region("cars", "car:");
    RegistryChange::CreateKeyspace(KeyspaceSpec { sites: sites.to_vec(), ..spec })
}

fn drop_it() -> RegistryChange {
    RegistryChange::DropKeyspace("cars".into())
}

/// East with two sites, west with two, and one without a name.
fn three_regions() -> Registry {
    let all = [("a", "east"), ("b", "west"), ("c", "east"), ("d", "west"), ("e", "none")];
    let mut registry = of_sites(&all);
    registry.change(&create(&[])).unwrap();
    registry
}

fn roots(registry: &Registry) -> Vec<(u16, SiteId)> {
    registry.regions.iter().map(|region| (region.id.0, region.root)).collect()
}

fn of(registry: &Registry, site: SiteId) -> Region {
    *registry.region_of(site).unwrap()
}

fn rule(choice: StandbyChoice) -> StandbyRule {
    StandbyRule { choice, by_hand: false }
}

#[test]
fn each_name_is_a_region_with_a_root_of_its_own() {
    let registry = three_regions();
    assert_eq!(roots(&registry), [(1, A), (2, B), (3, E)]);
    assert!(registry.has_regions());
    let ids = [A, B, C, D, E].map(|site| of(&registry, site).id.0);
    assert_eq!(ids, [1, 2, 1, 2, 3]);
    let east = of(&registry, C);
    assert_eq!(registry.region_name(&east), Some(&name("east")));
    assert_eq!(registry.region_name(&of(&registry, E)), None);
    let sites: Vec<SiteId> = registry.sites_of(&east).map(|site| site.id).collect();
    assert_eq!(sites, [A, C]);
    assert_eq!(registry.region_named(Some(&name("west"))), Some(&of(&registry, D)));
    assert_eq!(registry.region_named(None), Some(&of(&registry, E)));
    assert_eq!(registry.region_named(Some(&name("north"))), None);
    let replicas: Vec<SiteId> = registry.full_replicas(&east).map(|site| site.id).collect();
    assert_eq!(replicas, [A, C]);
}

#[test]
fn a_region_is_named_before_the_first_causal_keyspace() {
    let mut registry = three_regions();
    let north = RegistryChange::Join(entry("f", "north"));
    let refused = registry.change(&north).unwrap_err();
    assert_eq!(
        refused,
        RegistryError::NewRegion { name: "region north".into(), all: "none, east, west".into() }
    );
    let text = refused.to_string();
    assert!(text.contains("join it to one of: none, east, west"), "{text}");
    let of_west = RegistryChange::Join(entry("g", "west"));
    assert_eq!(registry.change(&of_west), Ok(Changed::Site(SiteId(6))));
    assert_eq!(of(&registry, SiteId(6)).root, B);
    // The same one asks again.
    assert_eq!(registry.change(&of_west), Ok(Changed::Site(SiteId(6))));
    registry.change(&drop_it()).unwrap();
    registry.change(&north).unwrap();
    assert_eq!(registry.region_of(SiteId(7)), None);
    registry.change(&create(&[])).unwrap();
    // One that begins lacks what the others have ordered, so all begin anew.
    assert_eq!(roots(&registry), [(4, A), (5, B), (6, E), (7, SiteId(7))]);
}

#[test]
fn a_deployment_has_a_limit_of_regions() {
    let mut registry = Registry::empty(DeploymentId(7), 1);
    let join = |at: usize| RegistryChange::Join(entry(&format!("s{at}"), &format!("r{at}")));
    for at in 0..limits::REGIONS_MAX {
        registry.change(&join(at)).unwrap();
    }
    let refused = registry.change(&join(limits::REGIONS_MAX));
    assert_eq!(refused, Err(RegistryError::TooManyRegions));
    registry.change(&RegistryChange::Join(entry("more", "r1"))).unwrap();
}

#[test]
fn a_site_stays_in_its_region() {
    let mut registry = three_regions();
    let entry = SiteEntry { id: C, ..entry("c", "west") };
    registry.change(&RegistryChange::Update(entry)).unwrap();
    assert_eq!(registry.site(C).unwrap().region, Some(name("east")));
}

#[test]
fn another_root_is_one_of_the_region() {
    let mut registry = three_regions();
    registry.change(&RegistryChange::MoveRoot(D)).unwrap();
    let next = |registry: &Registry| -> Vec<Option<SiteId>> {
        registry.regions.iter().map(|region| region.next).collect()
    };
    assert_eq!(next(&registry), [None, Some(D), None]);
    let cut = Position::new(2, 5);
    let change = |to| RegistryChange::ChangeRoot { region: RegionId(2), epoch: 2, to, cut };
    assert_eq!(registry.change(&change(C)), Err(RegistryError::OtherRegion(name("c"))));
    registry.change(&change(D)).unwrap();
    assert_eq!(roots(&registry), [(1, A), (2, D), (3, E)]);
    assert_eq!((of(&registry, B).epoch, of(&registry, A).epoch), (3, 1));
    assert_eq!(next(&registry), [None, None, None]);
}

#[test]
fn a_standby_is_one_of_the_region() {
    let mut registry = three_regions();
    let set = |choice| RegistryChange::SetStandby(rule(choice));
    let in_region =
        |id, choice| RegistryChange::SetStandbyOf { region: RegionId(id), rule: rule(choice) };
    registry.change(&set(StandbyChoice::At(D))).unwrap();
    let standbys = |registry: &Registry| -> Vec<Option<SiteId>> {
        registry.regions.iter().map(|region| region.standby.map(|one| one.site)).collect()
    };
    assert_eq!(standbys(&registry), [None, Some(D), None]);
    let other = Err(RegistryError::OtherRegion(name("c")));
    assert_eq!(registry.change(&in_region(2, StandbyChoice::At(C))), other);
    assert_eq!(registry.change(&set(StandbyChoice::Nearest)), Err(RegistryError::WhichRegion));
    registry.change(&in_region(1, StandbyChoice::Nearest)).unwrap();
    let named = |site| RegistryChange::NameStandby { region: RegionId(1), epoch: 1, site };
    registry.change(&named(D)).unwrap();
    assert_eq!(standbys(&registry), [None, Some(D), None], "it is of another region");
    registry.change(&named(C)).unwrap();
    assert_eq!(standbys(&registry), [Some(C), Some(D), None]);
    assert_eq!(registry.change(&in_region(9, StandbyChoice::Off)), Err(RegistryError::NoRegion));
}

#[test]
fn a_standby_takes_over_in_its_region() {
    let mut registry = three_regions();
    registry.change(&RegistryChange::SetStandby(rule(StandbyChoice::At(C)))).unwrap();
    let since = of(&registry, A).standby.unwrap().since;
    let (region, epoch, in_sync) = (RegionId(1), 1, true);
    let version = Ballot { round: 9, ..since };
    let sync = RegistryChange::SyncStandby { region, epoch, since, in_sync };
    registry.change_at(&sync, version).unwrap();
    let cut = Position::new(1, 7);
    let take = RegistryChange::TakeOver { region, epoch, since: version, cut };
    registry.change_at(&take, version).unwrap();
    assert_eq!(roots(&registry), [(1, C), (2, B), (3, E)]);
    assert_eq!(of(&registry, C).standby.map(|Standby { site, .. }| site), Some(A));
    assert_eq!(registry.region_name(&of(&registry, A)), Some(&name("east")));
}

#[test]
fn a_keyspace_is_held_in_each_region() {
    let all = [("a", "east"), ("b", "west"), ("c", "east"), ("d", "west"), ("e", "none")];
    let mut registry = of_sites(&all);
    let none = |region: &str| Err(RegistryError::NoneHolds(region.into()));
    assert_eq!(registry.change(&create(&[A, C, E])), none("region west"));
    assert_eq!(registry.change(&create(&[A, B, C, D])), none("the region without a name"));
    assert_eq!(registry.change(&create(&[A, B, C, E])), Err(RegistryError::TooFewHold));
    assert!(registry.regions.is_empty());
    registry.change(&RegistryChange::Join(entry("f", "east"))).unwrap();
    registry.change(&create(&[B, D, C, SiteId(6), E])).unwrap();
    assert_eq!(roots(&registry), [(1, C), (2, B), (3, E)]);
    let replicas: Vec<SiteId> =
        registry.full_replicas(&of(&registry, A)).map(|site| site.id).collect();
    assert_eq!(replicas, [C, SiteId(6)]);
    let other = KeyspaceSpec {
        sites: vec![A, SiteId(6), B, D, E],
        ..KeyspaceSpec::causal_region("more", "more:")
    };
    let refused = registry.change(&RegistryChange::CreateKeyspace(other));
    assert_eq!(refused, Err(RegistryError::MustHold(name("c"))));
    assert_eq!(
        registry.change(&RegistryChange::MoveRoot(A)),
        Err(RegistryError::HoldsNotAll(name("a")))
    );
    registry.change(&RegistryChange::Leave(C)).unwrap();
    let last = registry.change(&RegistryChange::Leave(SiteId(6)));
    assert_eq!(last, Err(RegistryError::LastReplica(name("f"))));
}

#[test]
fn the_last_site_of_a_region_stays() {
    let mut registry = three_regions();
    assert_eq!(
        registry.change(&RegistryChange::Leave(E)),
        Err(RegistryError::LastOfRegion(name("e")))
    );
    registry.change(&RegistryChange::Leave(A)).unwrap();
    assert_eq!(
        registry.change(&RegistryChange::Leave(C)),
        Err(RegistryError::LastOfRegion(name("c")))
    );
    for root in [A, E] {
        let refused = registry.change(&RegistryChange::Remove(root));
        assert!(matches!(refused, Err(RegistryError::Root(_))), "{refused:?}");
    }
    registry.change(&drop_it()).unwrap();
    registry.change(&RegistryChange::Leave(E)).unwrap();
    registry.change(&RegistryChange::Leave(C)).unwrap();
}

#[test]
fn no_id_and_no_epoch_is_used_again() {
    let mut registry = three_regions();
    registry.change(&drop_it()).unwrap();
    registry.change(&RegistryChange::Leave(A)).unwrap();
    registry.change(&create(&[])).unwrap();
    // One begins anew, as its root leaves; so do all, as it lacks what the others have ordered.
    assert_eq!(roots(&registry), [(4, B), (5, C), (6, E)]);
    assert_eq!(of(&registry, A).epoch, 5);
    // The last one of a region goes, and the region with it: its id is forgotten.
    registry.change(&drop_it()).unwrap();
    registry.change(&RegistryChange::Leave(C)).unwrap();
    registry.change(&create(&[])).unwrap();
    assert_eq!(roots(&registry), [(7, B), (8, E)]);
    let epochs: Vec<u16> = registry.regions.iter().map(|region| region.epoch).collect();
    assert_eq!(epochs, [7, 8]);
}

#[test]
fn a_region_of_several_is_rebuilt() {
    let mut registry = three_regions();
    let rebuild = |to, epoch| RegistryChange::Rebuild { region: RegionId(2), epoch, to };
    let mut other = registry.clone();
    other.change(&rebuild(D, 2)).unwrap();
    let Region { epoch, root, .. } = of(&other, B);
    assert_eq!((epoch, root), (2 + crate::EPOCHS_SKIPPED, D));
    let (kept, lost) = (Position::new(2, 5), Position::new(2, 6));
    let (begin, later) = (Position::new(epoch, 5), Position::new(epoch + 1, 5));
    let taken = |registry: &Registry| {
        [kept, lost, begin, later].map(|upto| of(registry, B).may_be_taken(upto))
    };
    assert_eq!(taken(&other), [true, true, false, false], "the end is not known");
    other.change(&RegistryChange::SettleRebuild { region: RegionId(2), epoch, cut: kept }).unwrap();
    assert_eq!(taken(&other), [true, false, true, false]);
    assert_eq!([kept, lost, begin].map(|at| of(&other, B).kept_upto(at)), [kept, kept, begin]);
    // A recovery begins one where there is a standby.
    registry.change(&RegistryChange::SetStandby(rule(StandbyChoice::At(D)))).unwrap();
    let before = registry.clone();
    let version = Ballot { term: Term { number: 1, site: C }, round: 0, site: C };
    registry.recover(version, &before);
    let open = |registry: &Registry| -> Vec<bool> {
        registry.regions.iter().map(Region::is_rebuilding).collect()
    };
    assert_eq!(open(&registry), [false, true, false]);
    assert_eq!(of(&registry, D).root, B, "C is of another region");
    // If the site that looks for the end is lost, too, another one goes on.
    let epoch = of(&registry, D).epoch;
    assert_eq!(registry.change(&rebuild(C, epoch)), Err(RegistryError::OtherRegion(name("c"))));
    registry.change(&rebuild(D, epoch)).unwrap();
    assert_eq!(of(&registry, B).root, D);
}

#[test]
fn a_site_that_leaves_goes_on_with_a_rebuild_if_it_has_most_of_the_order() {
    let mut registry = of_sites(&[("a", "none"), ("b", "none"), ("c", "none")]);
    registry.change(&create(&[])).unwrap();
    let Region { id, epoch, .. } = of(&registry, A);
    registry.change(&RegistryChange::Leave(B)).unwrap();
    let rebuild = |to, epoch| RegistryChange::Rebuild { region: id, epoch, to };
    let refused = registry.change(&rebuild(B, epoch)).unwrap_err();
    assert_eq!(refused, RegistryError::RootLeaves(name("b")), "an operator asks another one");
    registry.change(&rebuild(C, epoch)).unwrap();
    let epoch = of(&registry, C).epoch;
    registry.change(&rebuild(B, epoch)).unwrap();
    assert_eq!(of(&registry, C).root, B);
    assert!(of(&registry, C).is_rebuilding());
}

#[test]
fn what_sites_show_is_not_lost_before_the_end_of_the_order_is_known() {
    let mut registry = of_sites(&[("a", "none"), ("b", "none"), ("c", "none")]);
    registry.change(&create(&[])).unwrap();
    let rebuild = |registry: &mut Registry, to| {
        let Region { id: region, epoch, .. } = of(registry, A);
        registry.change(&RegistryChange::Rebuild { region, epoch, to }).unwrap();
    };
    let settle = |registry: &mut Registry, cut| {
        let Region { id: region, epoch, .. } = of(registry, A);
        registry.change(&RegistryChange::SettleRebuild { region, epoch, cut }).unwrap();
        epoch
    };
    let lacks = |registry: &Registry, epoch, count| {
        of(registry, A).rebuilt.unwrap().lacks(Position::new(epoch, count))
    };
    rebuild(&mut registry, B);
    assert!(!lacks(&registry, 1, 900), "it may be kept");
    let first = settle(&mut registry, Position::new(1, 500));
    assert!(lacks(&registry, 1, 501) && !lacks(&registry, 1, 500));
    assert!(!lacks(&registry, first, 700));
    // The next one is lost, too: a session that begins now sees what has come since.
    rebuild(&mut registry, C);
    assert!(lacks(&registry, 1, 501) && !lacks(&registry, first, 700));
    rebuild(&mut registry, A);
    assert!(lacks(&registry, 1, 501) && !lacks(&registry, first, 700));
    let second = settle(&mut registry, Position::new(first, 650));
    assert!(lacks(&registry, 1, 501) && lacks(&registry, first, 700));
    // What the last one has gone on from is not lost.
    assert!(!lacks(&registry, first, 650) && !lacks(&registry, second, 700));
    let behind = |registry: &Registry, epoch, count| {
        of(registry, A).rebuilt.unwrap().lost_behind(Position::new(epoch, count))
    };
    assert_eq!(behind(&registry, 1, 501), Some(Position::new(1, 500)));
    assert_eq!(behind(&registry, first, 651), Some(Position::new(first, 650)));
    // The end that is found may lie in an order that was given up.
    let mut back = registry.clone();
    rebuild(&mut back, A);
    let third = settle(&mut back, Position::new(1, 520));
    assert!(!lacks(&back, 1, 520) && lacks(&back, 1, 521));
    assert!(lacks(&back, first, 600) && lacks(&back, second, 600) && !lacks(&back, third, 521));
    // And the next one in the order that was given up for that.
    rebuild(&mut back, A);
    settle(&mut back, Position::new(first, 640));
    assert!(lacks(&back, 1, 510) && !lacks(&back, 1, 500) && !lacks(&back, first, 640));
    // Of many the earliest are one.
    let mut last = second;
    for _ in 0..=limits::EARLIER_ENDS_MAX {
        rebuild(&mut registry, A);
        last = settle(&mut registry, Position::new(last, 800));
    }
    assert!(lacks(&registry, 1, 501) && lacks(&registry, first, 651));
    // Other regions do not wait for what is not lost by an end of its own.
    let region = registry.regions[0];
    assert!(
        !region.lacks(Position::new(first, 651)) && region.lacks(Position::new(last - 64, 801))
    );
    assert_eq!(region.kept_upto(Position::new(first, 651)), Position::new(first, 651));
    assert!(!lacks(&registry, 1, 500) && lacks(&registry, first, 650), "with the first one's end");
    assert!(lacks(&registry, second, 801) && !lacks(&registry, last, 900));
    // What several as one have lost stays lost where the order goes on from one of them.
    rebuild(&mut registry, A);
    settle(&mut registry, Position::new(first, 510));
    assert!(lacks(&registry, 1, 501) && !lacks(&registry, first, 510));
}

#[test]
fn one_region_is_that_of_all_sites_though_its_root_is_gone() {
    for region in ["none", "east"] {
        let mut registry = of_sites(&[("a", region), ("b", region)]);
        registry.change(&create(&[])).unwrap();
        assert!(!registry.has_regions());
        registry.change(&drop_it()).unwrap();
        registry.change(&RegistryChange::Remove(A)).unwrap();
        assert_eq!(of(&registry, B).id, RegionId(1));
        registry.change(&create(&[])).unwrap();
        assert_eq!(roots(&registry), [(2, B)]);
    }
}
