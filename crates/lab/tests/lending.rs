//! Groups of keys that sites lend to each other, in virtual time, with all faults.

mod promises;

use lab::world::ready;
use promises::keeps_promises;

/// Looks whether a fault has come, too.
fn keeps_promises_under(fault: &str, world: &str, seeds: u64) {
    let totals = keeps_promises(&ready::load(world, None).unwrap(), seeds);
    assert!(totals.faults.contains_key(fault), "{:?}", totals.faults);
}

#[test]
fn promises_are_kept_while_groups_are_lent_to_and_fro() {
    keeps_promises_under("lend_groups", "lending", 6);
}

#[test]
fn promises_are_kept_while_it_changes_where_groups_may_go() {
    keeps_promises_under("alter_rules", "residence", 4);
}
