//! Every order of steps, crashes and returns, over the real rules for a slot with lent groups.
//!
//! Three sites: writes to the groups, moves of the slot, failovers with any set of fenced sites,
//! loans, groups given back, changes of backups, sites that leave; one group, or two. In every
//! state: at most one site serves a group, apart from stale owners that a failover names; what was
//! acknowledged is where it is served or named as lost; when all sites come together one of them
//! serves, with all of it; and when any one is lost, the others have every write that two sites
//! had.
//!
//! Not modelled: several messages of one stream, nodes of one site that lag, recoveries of the
//! registry.
//!
//! Searches that take long are `#[ignore]`d; run them by
//! `cargo test -p protocol --features trial --release --test lending -- --ignored --nocapture`.

mod check;
mod scene;
#[path = "../registry/search.rs"]
mod search;
mod steps;
mod world;

use protocol::global::ownership::trial::{Bug, Planted};
use search::{Explore, Report, search};
use std::collections::HashSet;
use steps::Bounds;
use world::World;

const STATES_MAX: u64 = 400_000_000;

/// So many writes, moves, failovers, loans and groups given back: of one group, with no change of
/// backups and no site that leaves.
fn bounds([writes, moves, failovers, lends, returns]: [u8; 5]) -> Bounds {
    let (groups, backups, leaves) = (1, 0, 0);
    Bounds { groups, writes, moves, failovers, lends, returns, backups, leaves }
}

fn run(bounds: Bounds, planted: Planted) -> Report {
    let mut world = World::new(bounds, planted);
    let first = world.begin();
    assert_eq!(world.fault(&first), None);
    let report = search(&mut world, first, STATES_MAX, planted != Planted::none());
    eprintln!("{bounds:?} {planted:?}: {report:?}");
    report
}

fn holds(bounds: Bounds) {
    let report = run(bounds, Planted::none());
    assert!(report.fault.is_none() && report.complete, "{report:?}");
    assert!(report.states > 1 && report.depth > 1);
}

fn finds(bug: Bug, bounds: Bounds) {
    if !Planted::is_possible() {
        return;
    }
    let report = run(bounds, Planted::of(bug));
    assert!(report.fault.is_some(), "{bug:?} is not found: {report:?}");
}

/// These steps end in a fault with the bug, and do not without it: the last one is not offered, or
/// does no harm.
fn shows(bug: Bug, bounds: Bounds, steps: &[&str]) {
    let (last, before) = steps.split_last().expect("there are steps");
    let end = |planted: Planted| {
        let mut world = World::new(bounds, planted);
        let state = world.play(before);
        assert_eq!(world.fault(&state), None);
        let mut end = None;
        world.expand(&state, &mut |next, name| end = end.or((name == *last).then_some(next)));
        end.and_then(|end| world.fault(&end))
    };
    assert_eq!(end(Planted::none()), None);
    if Planted::is_possible() {
        assert!(end(Planted::of(bug)).is_some(), "{bug:?} does no harm");
    }
}

/// A search that brings states into forms leaves no state out, and adds none.
fn forms_leave_nothing_out(bounds: Bounds) {
    let mut world = World::new(bounds, Planted::none());
    let mut found = |settles| {
        world.settles = settles;
        world.forms = Some(HashSet::default());
        let first = world.begin();
        assert_eq!(world.fault(&first), None);
        let report = search(&mut world, first, STATES_MAX, false);
        eprintln!("{bounds:?}, forms {settles}: {report:?}");
        assert!(report.fault.is_none() && report.complete, "{report:?}");
        (world.forms.take().expect("they were wanted"), report.states)
    };
    let ((all, states), (forms, fewer)) = (found(false), found(true));
    assert!(all == forms && fewer < states, "{} and {} forms", all.len(), forms.len());
}

// ---- what holds ---------------------------------------------------------------------------------

#[test]
fn loans_and_moves() {
    holds(bounds([1, 1, 0, 1, 1]));
    holds(bounds([1, 2, 0, 1, 0]));
}

#[test]
fn two_loans() {
    holds(bounds([1, 0, 0, 2, 2]));
    holds(Bounds { groups: 2, ..bounds([1, 0, 0, 2, 1]) });
}

#[test]
fn a_loan_and_a_failover() {
    holds(bounds([0, 0, 1, 1, 1]));
    holds(bounds([1, 0, 1, 1, 0]));
}

#[test]
fn a_loan_and_a_leave() {
    holds(Bounds { leaves: 1, ..bounds([1, 1, 0, 1, 1]) });
}

#[test]
fn a_loan_and_a_change_of_backups() {
    holds(Bounds { backups: 1, ..bounds([1, 0, 0, 1, 1]) });
}

#[test]
fn forms_leave_no_state_out() {
    forms_leave_nothing_out(bounds([1, 1, 0, 1, 1]));
    forms_leave_nothing_out(bounds([0, 0, 1, 1, 0]));
}

#[test]
#[ignore = "hundreds of thousands of states"]
fn forms_leave_no_state_out_in_more() {
    forms_leave_nothing_out(bounds([1, 0, 1, 1, 1]));
    forms_leave_nothing_out(Bounds { groups: 2, ..bounds([1, 0, 1, 2, 0]) });
    forms_leave_nothing_out(Bounds { backups: 1, leaves: 1, ..bounds([1, 1, 0, 1, 1]) });
}

#[test]
#[ignore = "hundreds of thousands of states"]
fn a_write_two_loans_and_a_failover() {
    holds(bounds([1, 0, 1, 1, 1]));
    holds(bounds([1, 0, 1, 2, 1]));
}

#[test]
#[ignore = "millions of states"]
fn two_groups_and_a_failover() {
    holds(Bounds { groups: 2, ..bounds([1, 0, 1, 2, 1]) });
}

#[test]
#[ignore = "millions of states"]
fn a_loan_a_move_and_a_failover() {
    holds(bounds([1, 1, 1, 1, 1]));
}

#[test]
#[ignore = "millions of states"]
fn a_loan_and_two_failovers() {
    holds(bounds([1, 0, 2, 1, 1]));
}

#[test]
#[ignore = "millions of states"]
fn a_loan_a_failover_and_a_leave() {
    holds(Bounds { leaves: 1, ..bounds([1, 0, 1, 1, 1]) });
}

#[test]
#[ignore = "millions of states"]
fn a_loan_a_failover_and_a_change_of_backups() {
    holds(Bounds { backups: 1, ..bounds([1, 0, 1, 1, 1]) });
}

// ---- planted bugs -------------------------------------------------------------------------------

#[test]
fn bugs_of_rows_and_numbers_are_found() {
    finds(Bug::RowToFailedStays, bounds([1, 0, 0, 1, 0]));
    finds(Bug::LentUnderOldEpoch, bounds([0, 1, 1, 1, 0]));
    let steps = ["backup a=c", "learn a", "sync a>c", "lend a>b", "freeze a>b", "suspend a+b"];
    let taken = ["learn c", "inventory c", "decide", "learn c", "lend c>b"];
    // b has refused the later loan when the slot arrives with a row of the earlier one. The later
    // loan's offer comes again.
    let late = ["refuse loan b", "clear c", "install b", "learn b", "install loan b"];
    let bounds = Bounds { backups: 1, ..bounds([0, 1, 1, 2, 0]) };
    shows(Bug::NumberLowered, bounds, &[&steps[..], &taken, &late].concat());
}

#[test]
fn bugs_of_claims_are_found() {
    finds(Bug::ClaimsNotAdopted, bounds([1, 0, 0, 1, 0]));
    finds(Bug::BorrowerNotAsked, bounds([0, 0, 1, 1, 0]));
    finds(Bug::CountRaisedByClaims, Bounds { groups: 2, ..bounds([1, 0, 0, 2, 0]) });
    finds(Bug::LowerTermAdopted, bounds([1, 0, 1, 1, 0]));
    finds(Bug::HigherTermNotAdopted, bounds([1, 0, 1, 2, 0]));
}

#[test]
fn bugs_of_retained_records_are_found() {
    finds(Bug::RetainedDroppedAtRelease, bounds([1, 0, 0, 1, 1]));
    finds(Bug::RetainedDroppedEarly, bounds([1, 0, 0, 1, 1]));
    finds(Bug::RetainedDroppedOnReturn, bounds([1, 0, 1, 1, 0]));
    finds(Bug::LeftWithRecords, Bounds { leaves: 1, ..bounds([1, 0, 0, 1, 1]) });
}

#[test]
fn a_frozen_source_that_settles_its_rows_does_harm() {
    let lent = ["lend a>b", "freeze a>c", "suspend b+a", "install c", "install loan b"];
    let lost = ["write lent b", "stream b>c", "learn c", "inventory c", "decide"];
    shows(Bug::FrozenSourceSettles, bounds([1, 1, 1, 1, 0]), &[lent, lost].concat());
}

#[test]
fn a_claim_with_the_failover_of_its_loan_does_harm() {
    let first = ["lend a>c", "suspend a+c", "learn b", "inventory b", "decide"];
    let second = ["suspend b+c", "learn a", "inventory a", "decide", "learn a"];
    let late = ["offer a>c", "learn c", "install loan c", "write lent c", "stream c>a"];
    shows(Bug::TermWhenLent, bounds([1, 0, 2, 1, 0]), &[first, second, late].concat());
}

#[test]
#[ignore = "millions of states"]
fn deep_bugs_are_found() {
    finds(Bug::FrozenSourceSettles, bounds([1, 1, 1, 1, 0]));
    finds(Bug::TermWhenLent, bounds([1, 0, 2, 1, 0]));
}

#[test]
fn every_bug_is_looked_for() {
    // Those above, by name.
    assert_eq!(Bug::LENDING.len(), 3 + 5 + 4 + 2);
}
