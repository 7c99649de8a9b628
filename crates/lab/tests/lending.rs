//! Groups of keys that sites lend to each other, in virtual time, with all faults.

use lab::explore::{Totals, one};
use lab::run::Options;
use lab::world::ready;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Plays a world with some seeds, and looks whether a fault has come.
fn keeps_promises(name: &str, seeds: u64, fault: &str) {
    let from = number("PORTOLAN_SEEDS_FROM").unwrap_or(1);
    let world = ready::load(name, None).unwrap();
    let mut totals = Totals::default();
    for seed in from..from + number("PORTOLAN_SEEDS").unwrap_or(seeds) {
        let options = Options { seed: Some(seed), random_faults: true, ..Options::default() };
        let tried = one(&world, &options);
        assert!(tried.wrongs.is_empty(), "seed {seed}: {}", tried.wrongs.join("\n"));
        totals.add(&tried);
    }
    let hours = totals.virtual_s / 3_600.0;
    eprintln!("{name}: {hours:.2} simulated hours, {} operations", totals.operations);
    assert!(totals.faults.contains_key(fault), "{:?}", totals.faults);
}

#[test]
fn promises_are_kept_while_groups_are_lent_to_and_fro() {
    keeps_promises("lending", 6, "lend_groups");
}

#[test]
fn promises_are_kept_while_it_changes_where_groups_may_go() {
    keeps_promises("residence", 4, "alter_rules");
}
