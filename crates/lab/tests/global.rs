//! Global keys in virtual time: found from anywhere, while their slots change hands.

mod promises;

use lab::explore::Totals;
use lab::history::Promise;
use lab::run::{self, Options, Ran};
use lab::verdict::Verdict;
use lab::world::ready;
use promises::keeps_promises;
use std::time::Duration;

fn global(options: &Options) -> Ran {
    run::run(&ready::load("global", None).unwrap(), options)
}

#[test]
fn a_calm_run_is_answered_and_keeps_its_promises() {
    let duration = Some(Duration::from_secs(20));
    let ran = global(&Options { duration, ..Options::default() });
    assert_eq!(ran.wrongs(), [""; 0]);
    assert!(ran.figures.operations > 300, "{:?}", ran.figures);
    let judged = ran.judged.iter().find(|judged| judged.promise == Promise::Ring);
    let points = 3 * u64::from(protocol::global::ring::virtual_count(1.0));
    assert_eq!(judged.map(|judged| &judged.verdict), Some(&Verdict::Holds { examined: points }));
    // Slots were handed to the two sites that joined.
    assert!(
        ran.history.owners.iter().any(|owner| owner.unit.starts_with("slot/") && owner.epoch > 1)
    );
}

#[test]
fn promises_are_kept_under_every_kind_of_fault() {
    let totals = keeps_promises(&ready::load("global", None).unwrap(), 6);
    let (changes, judged) = (totals.ring_changes, totals.ring_judged);
    assert!(judged > 0, "the ring's invariant was never judged, in {changes} changes");
    if totals.seeds >= 6 {
        for kind in lab::faults::Kind::by_default().filter(|kind| kind.is_between_sites()) {
            assert!(totals.faults.contains_key(kind.name()), "{kind}: {:?}", totals.faults);
        }
    }
}

/// Owners count accesses, ask each other for round trips and decide each second.
#[test]
fn promises_are_kept_while_advice_is_given() {
    let mut world = ready::load("global", None).unwrap();
    for keyspace in world.keyspaces.iter_mut().filter(|keyspace| keyspace.is_global()) {
        keyspace.placement = model::Placement::Advise;
    }
    for seed in 1..=3 {
        let options = Options { seed: Some(seed), random_faults: true, ..Options::default() };
        let tried = lab::explore::one(&world, &options);
        assert!(tried.wrongs.is_empty(), "seed {seed}: {}", tried.wrongs.join("\n"));
    }
}

/// Seeds that have found something, at the commit that has this list: see docs/record.md.
#[test]
fn seeds_that_found_something_find_nothing_any_more() {
    let world = ready::load("global", None).unwrap();
    for seed in [36, 90, 168, 197] {
        let options = Options { seed: Some(seed), random_faults: true, ..Options::default() };
        let tried = lab::explore::one(&world, &options);
        assert!(tried.wrongs.is_empty(), "seed {seed}: {}", tried.wrongs.join("\n"));
    }
}

/// All but the first have found something, some of them with these faults alone: see
/// docs/record.md.
#[test]
fn a_site_that_is_lost_comes_back_as_a_stale_owner_and_nothing_else_is_lost() {
    let world = ready::load("lost-site", None).unwrap();
    let mut totals = Totals::default();
    let seeds: [(u64, &[usize]); 5] =
        [(1, &[]), (60, &[]), (183, &[]), (263, &[0, 3, 4, 7, 8]), (327, &[6, 8, 9])];
    for (seed, only) in seeds {
        let only = (!only.is_empty()).then(|| only.to_vec());
        let options = Options { seed: Some(seed), random_faults: true, only, ..Options::default() };
        let tried = lab::explore::one(&world, &options);
        assert!(tried.wrongs.is_empty(), "seed {seed}: {}", tried.wrongs.join("\n"));
        totals.add(&tried);
    }
    assert!(totals.faults.contains_key("lose_site"), "{:?}", totals.faults);
}

#[test]
fn operations_go_to_two_keyspaces_in_their_shares_and_come_to_an_end() {
    let mut world = ready::load("edgekv", None).unwrap();
    for group in &mut world.clients {
        group.count = 10;
        group.operations = Some(300);
        group.also[0].share = 0.25;
        group.workload = toml_ycsb(50);
    }
    let ran = run::run(&world, &Options::default());
    assert_eq!(ran.wrongs(), [""; 0]);
    let operations = ran.history.operations.iter();
    let done: Vec<_> = operations.filter(|one| one.client.starts_with("client-")).collect();
    assert_eq!(done.len(), 900, "no more and no fewer");
    let global = done.iter().filter(|one| one.key.starts_with("g:")).count() as f64 / 900.0;
    assert!((0.18..0.32).contains(&global), "{global}");
    // The run ends when everything is done, not when its ten seconds are over.
    let end_us = done.iter().filter_map(|one| one.return_us).max().unwrap();
    let begin_us = done.iter().map(|one| one.call_us).min().unwrap();
    assert!(end_us - begin_us < 5_000_000, "{}", end_us - begin_us);
}

fn toml_ycsb(records: u64) -> lab::workload::Spec {
    let variant = lab::workload::ycsb::Variant::A;
    let ycsb = lab::workload::ycsb::Ycsb { variant, records, value_bytes: 100, choice: None };
    lab::workload::Spec::Ycsb(ycsb)
}

#[test]
fn requests_wait_for_each_other_where_a_node_works_on_them() {
    let latency_ms = |request_ms: f64| {
        let mut world = ready::load("edgekv", None).unwrap();
        world.node.request_ms = request_ms;
        for group in &mut world.clients {
            group.operations = Some(600);
            group.also.clear();
            group.workload = toml_ycsb(50);
        }
        let ran = run::run(&world, &Options::default());
        assert_eq!(ran.wrongs(), [""; 0]);
        ran.measure.summary().p50_ms
    };
    // A hundred threads at three nodes: 33 at each, which wait for each other's 2 ms.
    let (free, busy) = (latency_ms(0.0), latency_ms(2.0));
    assert!(free < 45.0 && (60.0..80.0).contains(&busy), "{free} {busy}");
}
