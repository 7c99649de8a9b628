//! Causal keys in virtual time, over the whole of a site: sessions that move, and all that goes
//! wrong meanwhile.

mod promises;

use lab::faults::Kind;
use lab::history::Promise;
use lab::run::{self, Options, Ran};
use lab::verdict::Verdict;
use lab::world::{World, ready};
use promises::keeps_promises;
use std::time::Duration;

fn world(name: &str) -> World {
    ready::load(name, None).unwrap()
}

fn causal() -> World {
    world("causal")
}

fn examined(ran: &Ran, promise: Promise) -> u64 {
    let judged = ran.judged.iter().find(|judged| judged.promise == promise);
    match judged.map(|judged| &judged.verdict) {
        Some(Verdict::Holds { examined }) => *examined,
        other => panic!("{promise}: {other:?}"),
    }
}

#[test]
fn a_calm_run_is_answered_and_keeps_its_promises() {
    let duration = Some(Duration::from_secs(20));
    let ran = run::run(&causal(), &Options { duration, ..Options::default() });
    assert_eq!(ran.wrongs(), [""; 0]);
    let requests = &ran.history.requests;
    assert!(requests.len() > 1_000, "{}", requests.len());
    assert!(requests.iter().all(|one| one.is_done()));
    for promise in [
        Promise::Causal,
        Promise::ReadYourWrites,
        Promise::MonotonicReads,
        Promise::MonotonicWrites,
        Promise::WritesFollowReads,
    ] {
        assert_eq!(examined(&ran, promise), requests.len() as u64);
    }
    // Each site and the order, for two keyspaces, beside the nodes of each site.
    assert!(examined(&ran, Promise::Convergent) >= 8);
    // Sessions were at more than one site, and read what was written at others.
    let sites = |client: &str| {
        let of = requests.iter().filter(|one| one.client == client);
        of.map(|one| one.site.as_str()).collect::<std::collections::BTreeSet<_>>().len()
    };
    let mut walkers = requests.iter().map(|one| one.client.as_str());
    assert!(walkers.any(|client| client.starts_with("walker-") && sites(client) > 1));
}

#[test]
fn promises_are_kept_under_every_kind_of_fault() {
    let totals = keeps_promises(&causal(), 8);
    if totals.seeds >= 8 {
        for kind in [Kind::PartSite, Kind::PartSites, Kind::LeaveSite, Kind::JoinSite] {
            assert!(totals.faults.contains_key(kind.name()), "{kind}: {:?}", totals.faults);
        }
    }
}

#[test]
fn puts_that_are_sent_to_two_sites_keep_their_promises() {
    keeps_promises(&world("retries"), 3);
}

#[test]
fn keys_that_sites_hold_on_demand_keep_their_promises() {
    keeps_promises(&world("fetched"), 3);
}

#[test]
fn keyspaces_that_some_sites_hold_keep_their_promises() {
    keeps_promises(&world("partial"), 3);
}

#[test]
fn regions_that_take_each_others_writes_keep_their_promises() {
    keeps_promises(&world("regions"), 4);
}

#[test]
fn regions_end_with_what_any_has_of_a_lost_order() {
    let totals = keeps_promises(&world("regions-rebuilt"), 4);
    if totals.seeds >= 4 {
        assert!(totals.faults.contains_key(Kind::RebuildRoot.name()), "{:?}", totals.faults);
    }
}

#[test]
fn what_is_lost_with_a_root_is_what_is_named() {
    let totals = keeps_promises(&world("rebuilds"), 4);
    if totals.seeds >= 4 {
        assert!(totals.faults.contains_key(Kind::RebuildRoot.name()), "{:?}", totals.faults);
    }
}

#[test]
fn nothing_that_a_session_has_seen_is_lost_with_a_root_that_has_a_standby() {
    keeps_promises(&world("standbys"), 3);
}
