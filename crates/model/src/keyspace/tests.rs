//! Definitions of keyspaces that are valid, and that are not.

use super::*;

#[test]
fn only_what_can_be_served_passes() {
    let mut spec = KeyspaceSpec::linearizable_site("cars", "car:");
    assert_eq!(spec.check(), Ok(()));
    spec.scope = Scope::Global;
    assert_eq!(spec.check(), Ok(()));
    spec.placement = Placement::Adaptive;
    assert_eq!((spec.check(), spec.lends()), (Ok(()), true));
    let advised = spec.with_placement(Placement::Advise);
    assert_eq!((advised.lends(), advised.is_adaptive()), (true, false), "some may be lent");
    assert!(advised.with_placement(Placement::Off).lends(), "for good");
    assert_eq!(advised.with_placement(Placement::Adaptive), spec);
    let off = KeyspaceSpec::linearizable_global("cars", "car:");
    assert!(!off.with_placement(Placement::Advise).lends(), "it never was");
    spec.placement = Placement::Advise;
    assert_eq!(spec.check(), Ok(()));
    let site = KeyspaceSpec { scope: Scope::Site, ..spec.clone() };
    assert!(matches!(site.check(), Err(KeyspaceError::PlacementScope(_))));
    assert_eq!((spec.counts_accesses(), site.counts_accesses()), (true, false));
    spec.scope = Scope::Region;
    let refusal = spec.check().unwrap_err().to_string();
    assert!(refusal.contains("linearizable with scope region"), "{refusal}");
    assert!(refusal.contains("serves linearizable/site"), "{refusal}");
    let causal = KeyspaceSpec::causal_region("carts", "cart:");
    assert_eq!(causal.check(), Ok(()));
    let placed = KeyspaceSpec { placement: Placement::Advise, ..causal.clone() };
    assert!(matches!(placed.check(), Err(KeyspaceError::PlacementScope(_))));
    let local = KeyspaceSpec { rmw: Rmw::Local, ..causal.clone() };
    assert_eq!(local.check(), Ok(()));
    let some = KeyspaceSpec { sites: vec![SiteId(2)], miss: Miss::Refuse, ..causal.clone() };
    assert_eq!((some.check(), some.is_held_by(SiteId(1))), (Ok(()), false));
    assert!(some.is_held_by(SiteId(2)) && causal.is_held_by(SiteId(1)));
    let on_demand =
        |held_bytes_max| KeyspaceSpec { miss: Miss::Fetch { held_bytes_max }, ..some.clone() };
    let fetch = on_demand(limits::CAUSAL_HELD_BYTES_MIN);
    assert_eq!(fetch.check(), Ok(()));
    assert_eq!(
        [1, 2].map(|site| fetch.on_demand_at(SiteId(site))),
        [Some(limits::CAUSAL_HELD_BYTES_MIN), None]
    );
    assert!(matches!(on_demand(0).check(), Err(KeyspaceError::HeldBytes(_))));
    let everywhere = KeyspaceSpec { sites: vec![], ..fetch };
    assert!(matches!(everywhere.check(), Err(KeyspaceError::FetchSites(_))));
    for spec in [
        KeyspaceSpec { sites: vec![SiteId(2)], ..KeyspaceSpec::linearizable_site("c", "c:") },
        KeyspaceSpec { miss: Miss::Refuse, ..KeyspaceSpec::linearizable_global("c", "c:") },
    ] {
        assert!(matches!(spec.check(), Err(KeyspaceError::SitesConsistency(_))));
    }
    let site = KeyspaceSpec { rmw: Rmw::Local, ..KeyspaceSpec::linearizable_site("c", "c:") };
    assert!(matches!(site.check(), Err(KeyspaceError::RmwConsistency(_))));
    let global = KeyspaceSpec { scope: Scope::Global, ..causal };
    assert!(matches!(global.check(), Err(KeyspaceError::NotServed { .. })));
}

#[test]
fn only_adaptive_keyspaces_say_where_groups_may_go() {
    let global = KeyspaceSpec::linearizable_global("cars", "car:");
    let adaptive = KeyspaceSpec { placement: Placement::Adaptive, ..global.clone() };
    let lend_to = Some(vec![SiteId(3), SiteId(2), SiteId(3)]);
    let by = Alteration { lend_to, priority: Some(500), placement: None };
    let ruled = adaptive.altered(&by);
    assert_eq!((ruled.check(), ruled.lend_to.len()), (Ok(()), 2));
    assert!(ruled.may_lend_to(SiteId(2)) && !ruled.may_lend_to(SiteId(1)));
    assert!(adaptive.may_lend_to(SiteId(1)));
    let refused = global.altered(&by).check();
    assert!(matches!(refused, Err(KeyspaceError::RulesPlacement(_))), "{refused:?}");
    // They are kept.
    let off = ruled.altered(&Alteration::of_placement(Placement::Off));
    assert_eq!((off.check(), &off.lend_to, off.priority), (Ok(()), &ruled.lend_to, 500));
    assert_eq!(off.altered(&Alteration::of_placement(Placement::Adaptive)), ruled);
    for priority in [0, limits::PRIORITY_MAX + 1] {
        let refused = adaptive.altered(&Alteration { priority: Some(priority), ..by.clone() });
        assert!(matches!(refused.check(), Err(KeyspaceError::Priority(_))));
    }
    let any = Alteration { lend_to: Some(vec![]), priority: Some(100), placement: None };
    assert_eq!(ruled.altered(&any), adaptive);
}

#[test]
fn only_global_keyspaces_have_caches() {
    let cache = Cache::of("stale", None, None).unwrap();
    let global = KeyspaceSpec { cache, ..KeyspaceSpec::linearizable_global("cars", "car:") };
    assert_eq!(global.check(), Ok(()));
    let site = KeyspaceSpec { scope: Scope::Site, ..global.clone() };
    assert!(matches!(site.check(), Err(KeyspaceError::CacheScope(_))));
    for (bytes_max, age_ms_max) in [(1, 1), (1 << 40, 1), (1 << 20, 0), (1 << 20, 1 << 40)] {
        let cache = Cache::Stale { bytes_max, age_ms_max };
        let error = KeyspaceSpec { cache, ..global.clone() }.check().unwrap_err();
        assert!(matches!(error, KeyspaceError::CacheLimits(_)), "{error}");
    }
}

#[test]
fn names_and_prefixes_are_checked() {
    for name in ["", "Cars", "9cars", "a b", &"x".repeat(65)] {
        let spec = KeyspaceSpec::linearizable_site(name, "p");
        assert!(matches!(spec.check(), Err(KeyspaceError::Name(_))), "{name:?}");
    }
    let spec = KeyspaceSpec::linearizable_site("cars", "");
    assert!(matches!(spec.check(), Err(KeyspaceError::Prefix(_))));
}
