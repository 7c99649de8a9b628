//! Seeds of the worlds that `explore` tries by default, with all their faults: no promise is
//! broken.
//!
//! `PORTOLAN_SEEDS=200` runs so many of each world, `PORTOLAN_SEEDS_FROM=1000` begins there. For
//! hours of it there is `portolan lab explore`.

mod promises;

use lab::explore::{Totals, one};
use lab::run::Options;
use lab::world::ready;
use promises::keeps_promises;
use std::time::Duration;

const SEEDS_DEFAULT: u64 = 12;
/// Of a world that takes ten times as long as the others.
const SEEDS_OF_MANY_SITES: u64 = 4;

fn explore(world: &str) -> Totals {
    explore_some(world, SEEDS_DEFAULT)
}

fn explore_some(world: &str, seeds: u64) -> Totals {
    keeps_promises(&ready::load(world, None).expect("a ready world"), seeds)
}

#[test]
fn three_sites_keep_their_promises_under_every_kind_of_fault() {
    let totals = explore("three-sites");
    if totals.seeds >= SEEDS_DEFAULT {
        let missing: Vec<_> = lab::faults::Kind::by_default()
            // They come where there are global keys: tests/global.rs.
            .filter(|kind| !kind.needs_deployment())
            .filter(|kind| !totals.faults.contains_key(kind.name()))
            .collect();
        assert!(missing.is_empty(), "faults that never struck: {missing:?}");
    }
}

#[test]
fn one_site_keeps_its_promises_where_clients_meet() {
    explore("one-site");
}

#[test]
fn witnesses_fives_and_lone_nodes_keep_their_promises() {
    explore("witness");
}

#[test]
fn two_nodes_and_a_witness_serve_without_any_one_of_them() {
    explore("pairs");
}

#[test]
fn leases_keep_their_promise_under_drift() {
    explore("leases");
}

#[test]
fn elections_lose_nothing() {
    explore("elections");
}

#[test]
fn everything_at_once_breaks_no_promise() {
    explore_some("mixed", SEEDS_OF_MANY_SITES);
}

#[test]
fn no_order_of_losses_and_returns_breaks_a_promise() {
    explore("failovers");
}

/// Runs a seed that has found something, with the faults that were enough for it.
fn finds_nothing_any_more(world: &str, seed: u64, only: Option<&[usize]>, span_s: Option<f64>) {
    let spec = ready::load(world, None).expect("a ready world");
    let options = Options {
        seed: Some(seed),
        random_faults: true,
        only: only.map(<[usize]>::to_vec),
        duration: span_s.map(Duration::from_secs_f64),
        ..Options::default()
    };
    let tried = one(&spec, &options);
    assert!(tried.wrongs.is_empty(), "{world}, seed {seed}: {}", tried.wrongs.join("\n"));
}

/// See docs/record.md.
#[test]
fn seeds_that_found_something_find_nothing_any_more() {
    let slow_leader = [0, 1, 4, 5, 12, 14, 15, 16, 17, 18, 20, 21, 22, 23, 24, 25];
    finds_nothing_any_more("one-site", 930_440, Some(&slow_leader), None);
    finds_nothing_any_more("witness", 8_176, Some(&[9, 33, 40]), Some(22.5));
    finds_nothing_any_more("three-sites", 7_088, Some(&[3, 6, 9]), Some(15.0));
    finds_nothing_any_more("three-sites", 60_236, None, None);
    finds_nothing_any_more("witness", 80_705, Some(&[26, 27, 37, 39, 42]), None);
    let no_backup =
        [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 15, 17, 18, 19, 21, 22, 32, 33, 34, 36, 41, 42];
    finds_nothing_any_more("mixed", 61_016, Some(&no_backup), Some(41.624_114));
    finds_nothing_any_more("mixed", 80_211, Some(&[0, 1, 11, 12, 29, 31, 41, 46]), None);
    let removed_too_early = [16, 18, 19, 20, 21, 23, 24, 31, 32, 34, 35, 39];
    finds_nothing_any_more("mixed", 91_232, Some(&removed_too_early), Some(45.0));
    finds_nothing_any_more("mixed", 91_232, None, None);
    finds_nothing_any_more("mixed", 920_461, Some(&[10, 22]), Some(45.0));
    finds_nothing_any_more("mixed", 943_216, None, None);
    finds_nothing_any_more("mixed", 944_302, None, None);
    finds_nothing_any_more("mixed", 944_340, None, None);
    finds_nothing_any_more("lending", 960_007, None, None);
    finds_nothing_any_more("regions-rebuilt", 89, None, None);
    finds_nothing_any_more("regions-rebuilt", 91, None, None);
    finds_nothing_any_more("causal", 97_035, None, None);
    finds_nothing_any_more("causal", 2_088, None, None);
    finds_nothing_any_more("causal", 2_166, Some(&[7, 25, 30, 31, 33, 40]), None);
    finds_nothing_any_more("causal", 2_212, Some(&[24, 35, 37, 53]), None);
}

/// All other ready worlds run too, for a while and with their faults.
#[test]
fn all_ready_worlds_run_and_keep_their_promises() {
    let short = Some(std::time::Duration::from_secs(4));
    for ready in &ready::ALL {
        let world = ready::load(ready.name, None).expect("a ready world");
        let calm = Options { duration: short, ..Options::default() };
        let faults = Options { duration: short, random_faults: true, ..Options::default() };
        for options in [calm, faults] {
            let tried = one(&world, &options);
            assert_eq!(tried.wrongs, [""; 0], "{}", ready.name);
            assert!(tried.operations > 0, "{}", ready.name);
        }
    }
}
