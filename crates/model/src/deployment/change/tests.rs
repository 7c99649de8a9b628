//! What changes of the registry are taken, and which are refused.

use super::*;
use crate::{ClientId, DeploymentId, NodeId};

fn entry(name: &str, incarnation: u64) -> SiteEntry {
    SiteEntry {
        id: SiteId(0),
        name: SiteName::new(name).unwrap(),
        incarnation,
        capacity_percent: 100,
        leaving: false,
        failure_domain: None,
        borrowed_bytes_max: None,
        region: None,
        nodes: Vec::new(),
    }
}

fn registry() -> Registry {
    Registry {
        sites: vec![SiteEntry { id: SiteId(1), ..entry("a", 1) }],
        site_next: 2,
        ..Registry::empty(DeploymentId(7), 1)
    }
}

#[test]
fn a_site_joins_once_however_often_it_asks() {
    let mut registry = registry();
    let join = RegistryChange::Join(entry("b", 9));
    assert_eq!(registry.change(&join), Ok(Changed::Site(SiteId(2))));
    assert_eq!(registry.change(&join), Ok(Changed::Site(SiteId(2))));
    assert_eq!((registry.changes, registry.sites.len()), (2, 2));
    let other = RegistryChange::Join(entry("b", 10));
    assert!(matches!(registry.change(&other), Err(RegistryError::NameTaken(_))));
}

#[test]
fn ids_are_not_used_again() {
    let mut registry = registry();
    assert_eq!(registry.change(&RegistryChange::Join(entry("b", 9))), Ok(Changed::Site(SiteId(2))));
    assert_eq!(registry.change(&RegistryChange::Remove(SiteId(2))), Ok(Changed::Site(SiteId(2))));
    assert_eq!(registry.change(&RegistryChange::Join(entry("b", 9))), Ok(Changed::Site(SiteId(3))));
}

#[test]
fn the_last_site_that_stays_stays() {
    let mut registry = registry();
    registry.change(&RegistryChange::Join(entry("b", 9))).unwrap();
    assert_eq!(registry.change(&RegistryChange::Leave(SiteId(1))), Ok(Changed::Site(SiteId(1))));
    let last = registry.change(&RegistryChange::Leave(SiteId(2)));
    assert!(matches!(last, Err(RegistryError::LastSite(_))));
    assert!(registry.change(&RegistryChange::Leave(SiteId(9))).is_err());
}

#[test]
fn a_lost_site_that_is_to_leave_is_removed_and_not_while_its_failover_is_open() {
    let mut registry = registry();
    registry.change(&RegistryChange::Join(entry("b", 9))).unwrap();
    let (lost, at) = (SiteId(2), |round| Ballot { round, ..Ballot::FIRST });
    registry.failovers.open(at(5), lost, &[]).unwrap();
    let early = registry.change(&RegistryChange::Leave(lost));
    assert!(matches!(early, Err(RegistryError::FailoverOpen(_))), "{early:?}");
    assert!(registry.failovers.decide(at(6), at(5), Vec::new()));
    registry.change(&RegistryChange::Leave(lost)).unwrap();
    assert_eq!(registry.site(lost), None, "it could not hand anything over");
}

#[test]
fn a_lost_site_that_takes_slots_in_another_failover_is_back() {
    let mut registry = registry();
    registry.change(&RegistryChange::Join(entry("b", 9))).unwrap();
    registry.change(&RegistryChange::Join(entry("c", 10))).unwrap();
    let ([a, b], at) = ([SiteId(1), SiteId(2)], |round| Ballot { round, ..Ballot::FIRST });
    let decide = |registry: &mut Registry, round, lost, by| {
        let taken = vec![Taken { by, slots: "7".parse().unwrap(), from: None }];
        registry.failovers.open(at(round), lost, &[]).unwrap();
        assert!(registry.failovers.decide(at(round + 1), at(round), taken));
    };
    decide(&mut registry, 5, b, a);
    assert!(registry.is_lost(b));
    // It has reported, and takes what it had retained.
    decide(&mut registry, 7, a, b);
    registry.change(&RegistryChange::Leave(b)).unwrap();
    assert!(registry.site(b).is_some_and(|site| site.leaving), "it has slots to hand over");
}

/// The removal waits, and a failover is decided in which the leaving site takes slots.
#[test]
fn a_removal_that_was_asked_for_before_a_failover_is_refused_after_it() {
    let mut registry = registry();
    for (name, incarnation) in [("b", 9), ("c", 10), ("d", 11)] {
        registry.change(&RegistryChange::Join(entry(name, incarnation))).unwrap();
    }
    let ([a, b, c], at) = ([1, 2, 3].map(SiteId), |round| Ballot {
        term: Default::default(),
        round,
        site: SiteId(4),
    });
    registry.change(&RegistryChange::Leave(a)).unwrap();
    let remove = |registry: &Registry| {
        let decisions = registry.failovers.decisions();
        RegistryChange::RemoveBy { site: a, destinations: vec![c], decisions }
    };
    let asked_before = remove(&registry);
    let open = RegistryChange::OpenFailover { lost: b, without: Vec::new() };
    registry.change_at(&open, at(20)).unwrap();
    let taken = vec![Taken { by: a, slots: "7".parse().unwrap(), from: None }];
    let decide = RegistryChange::DecideFailover { opened: at(20), taken };
    registry.change_at(&decide, at(21)).unwrap();
    let refused = Err(RegistryError::FailoverDecided);
    assert_eq!(registry.change(&asked_before), refused);
    // Also once every site has the decision, and the lost one is removed.
    registry.change(&RegistryChange::Leave(b)).unwrap();
    assert_eq!(registry.site(b), None);
    registry.change(&RegistryChange::ForgetFailover(at(21))).unwrap();
    assert_eq!(registry.change(&asked_before), refused);
    let asked_after = remove(&registry);
    assert_eq!(registry.change(&asked_after), Ok(Changed::Site(a)));
    assert_eq!(registry.site(a), None);
}

#[test]
fn of_the_failovers_of_removed_sites_the_newest_one_stays() {
    let mut registry = registry();
    let at = |round| Ballot { round, ..Ballot::FIRST };
    for (name, incarnation) in [("b", 9), ("c", 10), ("d", 11)] {
        registry.change(&RegistryChange::Join(entry(name, incarnation))).unwrap();
    }
    for (lost, round) in [(SiteId(2), 20), (SiteId(3), 30)] {
        let open = RegistryChange::OpenFailover { lost, without: Vec::new() };
        registry.change_at(&open, at(round)).unwrap();
        let decide = RegistryChange::DecideFailover { opened: at(round), taken: Vec::new() };
        registry.change_at(&decide, at(round + 1)).unwrap();
        registry.change(&RegistryChange::Leave(lost)).unwrap();
        registry.change(&RegistryChange::ForgetFailover(at(round + 1))).unwrap();
        assert_eq!(registry.failovers.decisions(), [at(round + 1)]);
    }
}

#[test]
fn a_failover_of_before_a_recovery_removes_no_site() {
    let mut registry = registry();
    registry.change(&RegistryChange::Join(entry("b", 9))).unwrap();
    registry.change(&RegistryChange::Join(entry("c", 10))).unwrap();
    let (b, at) = (SiteId(2), |round| Ballot { round, ..Ballot::FIRST });
    let decide = |registry: &mut Registry, opened: Ballot| {
        let decided = Ballot { round: opened.round + 1, ..opened };
        registry.failovers.open(opened, b, &[]).unwrap();
        assert!(registry.failovers.decide(decided, opened, Vec::new()));
    };
    decide(&mut registry, at(5));
    registry.version.term.number += 1;
    let refused = registry.change(&RegistryChange::Leave(b));
    assert!(matches!(refused, Err(RegistryError::NotAllAsked(_))), "{refused:?}");
    let opened = Ballot { round: 1, ..registry.version };
    decide(&mut registry, opened);
    registry.change(&RegistryChange::Leave(b)).unwrap();
    assert_eq!(registry.site(b), None);
}

#[test]
fn a_lost_site_stays_while_a_site_that_was_not_asked_may_have_its_slots() {
    let mut registry = registry();
    for (name, incarnation) in [("b", 9), ("c", 10)] {
        registry.change(&RegistryChange::Join(entry(name, incarnation))).unwrap();
    }
    let ([a, b, c], at) =
        ([SiteId(1), SiteId(2), SiteId(3)], |round| Ballot { round, ..Ballot::FIRST });
    let decide = |registry: &mut Registry, round, lost, without: &[SiteId]| {
        let slots: crate::SlotSet = "7".parse().unwrap();
        let taken = vec![Taken { by: a, slots, from: None }];
        registry.failovers.open(at(round), lost, without).unwrap();
        assert!(registry.failovers.decide(at(round + 1), at(round), taken));
    };
    let refused = |registry: &mut Registry, id| {
        let outcome = registry.change(&RegistryChange::Leave(id));
        matches!(outcome, Err(RegistryError::NotAllAsked(_)))
    };
    decide(&mut registry, 5, b, &[a]);
    assert!(refused(&mut registry, b), "a may have slots of b");
    decide(&mut registry, 7, b, &[]);
    let mut both = registry.clone();
    registry.change(&RegistryChange::Leave(b)).unwrap();
    // Of two that are lost, neither of which was asked, the last one stays for a failover that
    // asks all.
    decide(&mut both, 9, b, &[c]);
    assert!(refused(&mut both, b), "c is not lost");
    let mut asked = both.clone();
    decide(&mut asked, 11, c, &[]);
    assert!(refused(&mut asked, b), "no other failover has to come");
    decide(&mut both, 11, c, &[b]);
    both.change(&RegistryChange::Leave(b)).unwrap();
    assert!(refused(&mut both, c), "slots of b may be at no other site");
    decide(&mut both, 13, c, &[]);
    both.change(&RegistryChange::Leave(c)).unwrap();
    assert_eq!(both.sites.len(), 1);
}

#[test]
fn an_update_changes_what_a_site_says_of_itself_only() {
    let mut registry = registry();
    let nodes = vec![NodeEntry { node: NodeId(1), peer: "h:1".into(), cluster: String::new() }];
    let update = SiteEntry { id: SiteId(1), nodes: nodes.clone(), ..entry("zzz", 5) };
    let update = RegistryChange::Update(update);
    registry.change(&update).unwrap();
    registry.change(&update).unwrap();
    let site = registry.site(SiteId(1)).unwrap();
    assert_eq!((site.name.as_str(), site.incarnation, &site.nodes), ("a", 1, &nodes));
    assert_eq!(registry.changes, 2);
}

#[test]
fn a_change_that_is_asked_for_again_is_done_once() {
    let mut registry = registry();
    let id = |sequence| RequestId {
        client: ClientId(5),
        sequence,
        acknowledged_below: sequence.saturating_sub(1),
    };
    let spec = KeyspaceSpec::linearizable_global("cars", "car:");
    let create = RegistryChange::CreateKeyspace(spec.clone());
    let made = Ok(Changed::Keyspace(KeyspaceId(1)));
    let version = registry.version;
    assert_eq!(registry.change_once(id(1), &create, version), made);
    assert_eq!(registry.change_once(id(1), &create, version), made);
    let taken = Err(RegistryError::KeyspaceExists("cars".into()));
    assert_eq!(registry.change_once(id(2), &create, version), taken);
    let dropped = RegistryChange::DropKeyspace("cars".into());
    let gone = Ok(Changed::Dropped(KeyspaceId(1)));
    assert_eq!(registry.change_once(id(3), &dropped, version), gone);
    assert_eq!(registry.change_once(id(2), &create, version), taken, "as it was then");
    assert_eq!(registry.outcomes.len(), 2, "what was acknowledged is forgotten");
    let again = RegistryChange::CreateKeyspace(spec);
    assert_eq!(registry.change(&again), Ok(Changed::Keyspace(KeyspaceId(2))));
}

#[test]
fn a_placement_is_changed_and_what_was_adaptive_stays_known() {
    let mut registry = registry();
    let global = KeyspaceSpec::linearizable_global("cars", "car:");
    let of_site = KeyspaceSpec::linearizable_site("notes", "note:");
    for spec in [&global, &of_site] {
        registry.change(&RegistryChange::CreateKeyspace(spec.clone())).unwrap();
    }
    let before = registry.changes;
    let mut alter = |name: &str, placement| {
        let change = RegistryChange::AlterKeyspace { name: name.into(), placement };
        let changed = registry.change(&change);
        (changed, registry.changes - before, registry.keyspaces[0].spec.clone())
    };
    let id = Ok(Changed::Keyspace(KeyspaceId(1)));
    let spec = |placement| KeyspaceSpec { placement, ..global.clone() };
    assert_eq!(alter("cars", Placement::Off), (id.clone(), 0, global.clone()), "as it is");
    assert_eq!(alter("cars", Placement::Advise), (id.clone(), 1, spec(Placement::Advise)));
    assert_eq!(alter("cars", Placement::Adaptive), (id.clone(), 2, spec(Placement::Adaptive)));
    let was_adaptive = KeyspaceSpec { was_adaptive: true, ..global.clone() };
    assert_eq!(alter("cars", Placement::Off), (id, 3, was_adaptive));
    let scope =
        |name: &str| Err(RegistryError::Keyspace(KeyspaceError::PlacementScope(name.into())));
    for name in ["notes", "default"] {
        assert_eq!(alter(name, Placement::Adaptive).0, scope(name));
    }
    assert_eq!(alter("none", Placement::Off).0, Err(RegistryError::NoKeyspace("none".into())));
}

#[test]
fn registrars_are_as_many_as_the_sites_need() {
    let mut registry = registry();
    registry.begin(SiteId(1));
    let registrars = |registry: &Registry| -> Vec<u32> {
        registry.registrars.set.sites().iter().map(|site| site.0).collect()
    };
    for id in 2..=10 {
        registry.change(&RegistryChange::Join(entry(&format!("s{id}"), id))).unwrap();
    }
    for id in 2..=10 {
        registry.change(&RegistryChange::Registrar(SiteId(id))).unwrap();
    }
    assert_eq!(registrars(&registry), [1, 2, 3, 4, 5]);
    registry.change(&RegistryChange::Leave(SiteId(2))).unwrap();
    assert_eq!((registrars(&registry), registry.registrars_missing()), (vec![1, 2, 3, 4, 5], 1));
    registry.change(&RegistryChange::Registrar(SiteId(7))).unwrap();
    assert_eq!(registrars(&registry), [1, 3, 4, 5, 7]);
    registry.change(&RegistryChange::Remove(SiteId(5))).unwrap();
    assert_eq!(registrars(&registry), [1, 3, 4, 7]);
}
