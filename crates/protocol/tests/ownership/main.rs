//! Every order of steps, crashes and returns, over the real rules for the owner of a slot.
//!
//! One slot, three sites (or four): writes, moves, failovers with any set of fenced sites, changes
//! of backups, sites that leave. In every state: at most one site serves, apart from stale owners
//! that a failover names; what was acknowledged is at the owner or named as lost; when all sites
//! come together one of them serves, with all of it; and when any one is lost, the others have
//! every mirrored write.
//!
//! With a recovery of the registry (without changes of backups, and without leaving) some sites
//! begin a new term, and the others may go on in the one before. An owner that a failover of the
//! other side has overruled counts as stale, until that decision is handed in; and what is promised
//! of one lost site holds again once all are in one term and have handed in what they had.
//!
//! States are brought into forms (see [`settle`]), and searched by the hashes of those.
//!
//! Searches that take long are `#[ignore]`d; run them by
//! `cargo test -p protocol --features trial --release --test ownership -- --ignored --nocapture`.

mod check;
mod recovery;
mod scene;
#[path = "../registry/search.rs"]
mod search;
mod settle;
mod world;

use protocol::global::ownership::trial::{Bug, Planted};
use search::{Explore, Report, search};
use std::collections::HashSet;
use world::{Bounds, World};

const STATES_MAX: u64 = 400_000_000;

/// Three sites and so many writes, moves, failovers, changes of backups and sites that leave.
fn bounds([writes, moves, failovers, backups, leaves]: [u8; 5]) -> Bounds {
    Bounds { sites: 3, writes, moves, failovers, backups, leaves, recoveries: 0, removals: 0 }
}

/// The same, and a lost site is removed.
fn removed(bounds: Bounds) -> Bounds {
    Bounds { removals: 1, ..bounds }
}

/// The same, and a recovery of the registry.
fn recovered(bounds: Bounds) -> Bounds {
    Bounds { recoveries: 1, ..bounds }
}

fn run(bounds: Bounds, planted: Planted) -> Report {
    let search = |traced| {
        let mut world = World::new(bounds, planted);
        let first = world.begin();
        assert_eq!(world.fault(&first), None);
        search(&mut world, first, STATES_MAX, traced)
    };
    let is_planted = planted != Planted::none();
    let mut report = search(is_planted);
    eprintln!("{bounds:?} {planted:?}: {report:?}");
    if report.fault.is_some() && !is_planted {
        // The steps are kept only where they are of use: they take twice the memory.
        report = search(true);
    }
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
fn a_move_and_a_failover() {
    holds(bounds([1, 1, 1, 0, 0]));
}

#[test]
fn a_move_and_a_leave() {
    holds(bounds([1, 1, 0, 0, 1]));
}

#[test]
fn two_moves_and_a_leave() {
    holds(bounds([1, 2, 0, 0, 1]));
    holds(Bounds { sites: 4, ..bounds([0, 2, 0, 0, 1]) });
}

#[test]
fn forms_leave_no_state_out() {
    forms_leave_nothing_out(bounds([1, 1, 1, 0, 0]));
    forms_leave_nothing_out(bounds([0, 2, 0, 1, 1]));
    forms_leave_nothing_out(recovered(bounds([0, 0, 1, 0, 0])));
    forms_leave_nothing_out(removed(bounds([0, 1, 1, 0, 0])));
}

#[test]
#[ignore = "millions of states"]
fn forms_leave_no_state_out_in_more() {
    forms_leave_nothing_out(bounds([1, 2, 0, 1, 1]));
    forms_leave_nothing_out(bounds([1, 1, 1, 0, 1]));
    forms_leave_nothing_out(bounds([1, 1, 1, 1, 0]));
    forms_leave_nothing_out(bounds([0, 1, 2, 0, 0]));
    forms_leave_nothing_out(Bounds { sites: 4, ..bounds([0, 2, 0, 0, 1]) });
}

#[test]
fn a_lost_site_is_removed() {
    holds(removed(bounds([1, 1, 1, 0, 0])));
}

#[test]
#[ignore = "millions of states"]
fn a_lost_site_is_removed_beside_two_moves() {
    holds(removed(bounds([1, 2, 1, 0, 0])));
}

#[test]
#[ignore = "millions of states"]
fn a_lost_site_is_removed_beside_two_failovers() {
    holds(removed(bounds([1, 1, 2, 0, 0])));
}

#[test]
#[ignore = "millions of states"]
fn a_lost_site_of_four_is_removed() {
    holds(Bounds { sites: 4, ..removed(bounds([1, 1, 1, 0, 0])) });
}

#[test]
#[ignore = "millions of states"]
fn a_move_a_failover_and_a_leave() {
    holds(bounds([1, 1, 1, 0, 1]));
}

#[test]
fn a_move_a_failover_a_backup_change_and_a_leave() {
    holds(bounds([1, 1, 1, 1, 1]));
}

#[test]
#[ignore = "millions of states"]
fn two_moves_a_failover_and_a_backup_change() {
    holds(bounds([1, 2, 1, 1, 0]));
}

#[test]
#[ignore = "millions of states"]
fn two_writes_of_all() {
    holds(bounds([2, 1, 1, 1, 1]));
}

#[test]
#[ignore = "millions of states"]
fn two_failovers() {
    holds(bounds([1, 1, 2, 0, 0]));
}

#[test]
#[ignore = "tens of millions of states"]
fn two_failovers_and_two_moves() {
    holds(bounds([1, 2, 2, 0, 0]));
}

#[test]
#[ignore = "tens of millions of states"]
fn two_failovers_and_a_backup_change() {
    holds(bounds([1, 1, 2, 1, 0]));
}

#[test]
fn a_failover_and_a_recovery_of_the_registry() {
    holds(recovered(bounds([1, 0, 1, 0, 0])));
}

#[test]
#[ignore = "millions of states"]
fn a_move_a_failover_and_a_recovery_of_the_registry() {
    holds(recovered(bounds([1, 1, 1, 0, 0])));
}

#[test]
#[ignore = "millions of states"]
fn two_failovers_and_a_recovery_of_the_registry() {
    holds(recovered(bounds([1, 0, 2, 0, 0])));
}

#[test]
#[ignore = "tens of millions of states"]
fn two_failovers_and_a_leave() {
    holds(bounds([1, 1, 2, 0, 1]));
}

#[test]
#[ignore = "millions of states"]
fn four_sites() {
    holds(Bounds { sites: 4, ..bounds([1, 1, 1, 0, 0]) });
}

#[test]
#[ignore = "tens of millions of states"]
fn four_sites_and_two_moves() {
    holds(Bounds { sites: 4, ..bounds([1, 2, 1, 0, 0]) });
}

#[test]
#[ignore = "millions of states"]
fn four_sites_and_a_leave() {
    holds(Bounds { sites: 4, ..bounds([1, 1, 1, 0, 1]) });
}

// ---- what is found ------------------------------------------------------------------------------

#[test]
fn bugs_of_failovers_are_found() {
    finds(Bug::ForgottenOnReturn, bounds([2, 1, 1, 0, 0]));
    finds(Bug::ForgottenOnceTaken, bounds([2, 1, 1, 0, 0]));
    finds(Bug::HighestEpochIgnored, bounds([1, 2, 1, 0, 0]));
    finds(Bug::InventorySkipped, bounds([1, 2, 1, 0, 0]));
    finds(Bug::AbortUnasked, bounds([1, 2, 1, 0, 0]));
    finds(Bug::LateFence, bounds([1, 1, 1, 0, 0]));
    finds(Bug::FenceEndsAtDecision, removed(bounds([1, 1, 1, 0, 0])));
}

#[test]
#[ignore = "four sites, depth 11"]
fn a_fence_of_the_lost_site_alone_is_found() {
    finds(Bug::OnlyLostFenced, Bounds { sites: 4, ..bounds([0, 2, 1, 0, 0]) });
}

#[test]
fn bugs_of_copies_are_found() {
    finds(Bug::MirrorDropped, bounds([1, 1, 1, 1, 0]));
    finds(Bug::NothingRetained, bounds([1, 1, 1, 0, 0]));
    finds(Bug::SafeWithoutGeneration, bounds([1, 1, 1, 2, 0]));
    finds(Bug::SafeWhileBehind, bounds([2, 1, 1, 1, 0]));
    finds(Bug::SafeByFormer, bounds([1, 0, 0, 1, 0]));
}

#[test]
#[ignore = "two failovers and a leave, depth 20"]
fn a_copy_that_an_earlier_owner_reported_as_safe_is_found() {
    finds(Bug::SafeByEarlierOwner, bounds([1, 1, 2, 0, 1]));
}

#[test]
#[ignore = "a removal beside two moves, depth 17"]
fn a_copy_that_a_lost_site_reported_as_safe_is_found() {
    finds(Bug::SafeByLost, removed(bounds([1, 2, 1, 0, 0])));
}

#[test]
fn bugs_of_leaving_are_found() {
    finds(Bug::NothingHandedOn, bounds([1, 1, 1, 1, 1]));
    finds(Bug::OwnersRecordsCount, bounds([1, 1, 1, 0, 1]));
    finds(Bug::OlderPositionCounts, bounds([1, 1, 1, 0, 1]));
    // What has the slot from the site that left, and its copy, are two sites.
    finds(Bug::ReclaimedUnasked, Bounds { sites: 4, ..bounds([0, 2, 0, 0, 1]) });
}

#[test]
fn an_ended_term_of_which_nothing_is_handed_in_is_found() {
    let mut world = World::new(recovered(bounds([1, 0, 1, 0, 0])), Planted::none());
    world.hands_in_nothing = true;
    let first = world.begin();
    let report = search(&mut world, first, STATES_MAX, true);
    eprintln!("{report:?}");
    assert!(report.fault.is_some(), "{report:?}");
}

#[test]
fn every_bug_is_looked_for() {
    // Those above, by name.
    assert_eq!(Bug::ALL.len(), 7 + 1 + 5 + 1 + 1 + 4);
}

// ---- counterexamples ----------------------------------------------------------------------------

/// What played out, and the state that it came to.
fn play(bounds: Bounds, steps: &[&str]) -> (World, world::State) {
    play_with(Planted::none(), bounds, steps)
}

fn play_with(planted: Planted, bounds: Bounds, steps: &[&str]) -> (World, world::State) {
    let mut world = World::new(bounds, planted);
    world.settles = false;
    let state = world.play(steps);
    assert_eq!(world.fault(&state), None);
    (world, state)
}

const ALL_MOVES: [u8; 5] = [2, 2, 1, 1, 1];

#[test]
fn a_failover_is_not_forgotten_while_a_site_does_not_know_it() {
    let steps = ["freeze a>c", "suspend a+c", "learn b", "inventory b", "decide", "learn b"];
    let (mut world, state) = play(bounds(ALL_MOVES), &[&steps[..], &["learn a"]].concat());
    assert!(!world.offers(&state, "forget"), "c does not know it");
    let (mut world, state) =
        play(bounds(ALL_MOVES), &[&steps[..], &["learn a", "learn c"]].concat());
    assert!(world.offers(&state, "forget"));
    assert!(!world.offers(&state, "install c"), "what a froze before is void");
}

#[test]
fn what_a_lost_site_had_refused_is_served_again_where_it_is_frozen() {
    // b has seen that c refused; a does not, and can no longer ask.
    let steps = ["freeze a>c", "refuse c", "hear b", "suspend c", "learn a", "learn b"];
    for inventories in [["inventory a", "inventory b"], ["inventory b", "inventory a"]] {
        let more = ["decide", "learn a"];
        let all = [&steps[..], &inventories, &more].concat();
        let (mut world, state) = play(bounds(ALL_MOVES), &all);
        assert!(world.offers(&state, "write a"), "{inventories:?}");
    }
}

#[test]
fn a_mirror_outlives_its_being_the_backup() {
    let steps = ["write a", "sync a>b", "backup a=c", "learn a", "learn b"];
    let (mut world, state) = play(bounds(ALL_MOVES), &steps);
    assert!(!world.offers(&state, "drop b"));
    let more = ["sync a>c", "safe a"];
    let (mut world, state) = play(bounds(ALL_MOVES), &[&steps[..], &more].concat());
    assert!(world.offers(&state, "drop b"));
}

#[test]
fn a_former_backup_is_fed_until_the_new_one_has_everything() {
    let steps = ["backup a=c", "learn a", "learn b", "write a", "sync a>b"];
    let (mut world, state) = play(bounds(ALL_MOVES), &steps);
    assert!(!world.offers(&state, "drop b") && !world.offers(&state, "endformer a"));
    let (mut world, state) =
        play(bounds(ALL_MOVES), &[&steps[..], &["sync a>c", "endformer a", "safe a"]].concat());
    assert!(!world.offers(&state, "sync a>b") && world.offers(&state, "drop b"));
}

#[test]
fn what_an_earlier_owner_reported_as_safe_frees_no_copy() {
    // b, which has been failed over, has the slot from a, and its mirror is at c. Then c takes the
    // slot with what was that mirror.
    let taken_back = ["write a", "freeze a>b", "suspend b+c", "learn a", "inventory a"];
    let stale = ["install b", "sync b>c", "safe b", "decide", "learn b", "handon b>c", "leave b"];
    let taken = ["suspend a", "learn c", "inventory c", "decide", "learn c"];
    let all = [&taken_back[..], &stale, &taken, &["hear a", "learn a"]].concat();
    let offers = |planted| {
        let (mut world, state) = play_with(planted, bounds([1, 1, 2, 0, 1]), &all);
        world.offers(&state, "drop a")
    };
    assert!(!offers(Planted::none()), "a has the only copy");
    if Planted::is_possible() {
        assert!(offers(Planted::of(Bug::SafeByEarlierOwner)));
    }
}

#[test]
fn what_a_site_reported_before_it_was_lost_frees_no_copy() {
    // a's copy is the only one beside the owner's records once b is removed: c, which b has named
    // as the site with a copy, owns the slot with what was that.
    let moved = ["write a", "freeze a>b", "suspend b", "learn a", "inventory a", "install b"];
    let reported = ["release a", "sync b>c", "safe b", "freeze b>c", "install c", "learn c"];
    let all = [&moved[..], &reported, &["inventory c", "decide"]].concat();
    let offers = |more: &[&str]| {
        let (mut world, state) = play(removed(bounds([1, 2, 1, 0, 0])), &[&all[..], more].concat());
        world.offers(&state, "drop a")
    };
    assert!(!offers(&["learn a", "remove b"]));
    assert!(!offers(&["learn a"]), "it may be removed");
    assert!(offers(&["learn b", "return b", "learn a"]), "it has its records");
}

#[test]
fn a_fence_ends_with_its_failover() {
    let steps = ["freeze a>b", "suspend a", "learn b"];
    let (mut world, state) = play(bounds(ALL_MOVES), &steps);
    assert!(!world.offers(&state, "install b"));
    let (mut world, state) = play(bounds(ALL_MOVES), &[&steps[..], &["close", "learn b"]].concat());
    assert!(world.offers(&state, "install b"));
}

#[test]
fn nothing_goes_to_a_lost_site_that_may_be_removed() {
    let steps = ["suspend c", "learn a", "learn b", "inventory a", "inventory b", "decide"];
    let steps = [&steps[..], &["learn a"]].concat();
    let offers = |planted, more: &[&str], wanted| {
        let bounds = removed(bounds(ALL_MOVES));
        let (mut world, state) = play_with(planted, bounds, &[&steps[..], more].concat());
        world.offers(&state, wanted)
    };
    assert!(offers(Planted::none(), &["learn c"], "remove c"));
    assert!(!offers(Planted::none(), &["learn c"], "freeze a>c"), "a may not see it removed");
    let returned = ["learn c", "return c"];
    assert!(!offers(Planted::none(), &returned, "remove c"));
    assert!(offers(Planted::none(), &[&returned[..], &["learn a"]].concat(), "freeze a>c"));
    if Planted::is_possible() {
        let planted = Planted::of(Bug::FenceEndsAtDecision);
        assert!(offers(planted, &["freeze a>c", "install c"], "remove c"));
    }
}

#[test]
fn nothing_comes_from_a_site_that_is_named_with_the_lost_one() {
    let four = Bounds { sites: 4, ..bounds(ALL_MOVES) };
    let begin = ["freeze a>c", "suspend a+c", "learn b", "learn d", "inventory b", "inventory d"];
    let (mut world, state) = play(four, &[&begin[..], &["install c"]].concat());
    assert!(world.offers(&state, "freeze c>d"), "c does not know that it is fenced");
    let (mut world, state) = play(four, &[&begin[..], &["install c", "freeze c>d"]].concat());
    assert!(!world.offers(&state, "install d"));
}

#[test]
fn a_site_does_not_leave_with_the_last_copy_but_for_the_owner() {
    let steps = [
        "write a",
        "sync a>b",
        "freeze a>b",
        "suspend b+c",
        "learn a",
        "inventory a",
        "decide",
        "learn a",
        "learn b",
    ];
    let (mut world, state) = play(bounds(ALL_MOVES), &steps);
    assert!(!world.offers(&state, "leave b"), "a, the owner, may be lost");
}

#[test]
fn a_copy_that_is_handed_on_counts_only_if_it_has_come_as_far() {
    let steps = ["handon b>c", "write a", "sync a>b"];
    let (mut world, state) = play(bounds(ALL_MOVES), &steps);
    assert!(!world.offers(&state, "leave b"));
    let (mut world, state) = play(bounds(ALL_MOVES), &[&steps[..], &["handon b>c"]].concat());
    assert!(world.offers(&state, "leave b"));
}

#[test]
fn what_is_frozen_for_a_site_that_left_is_served_again() {
    // a cannot be reached as c leaves.
    let steps = ["freeze a>c", "leave c", "learn a"];
    let (mut world, state) = play(bounds(ALL_MOVES), &steps);
    assert!(!world.offers(&state, "reclaim a"), "b may have had it from c");
    let (mut world, state) = play(bounds(ALL_MOVES), &[&steps[..], &["learn b"]].concat());
    assert!(world.offers(&state, "reclaim a"));
    let refused = ["freeze a>c", "refuse c", "hear b", "leave c", "learn a", "learn b"];
    let (mut world, state) = play(bounds(ALL_MOVES), &refused);
    assert!(world.offers(&state, "reclaim a"));
    let four = Bounds { sites: 4, ..bounds(ALL_MOVES) };
    let handed_on = ["freeze a>c", "install c", "freeze c>b", "install b", "release c"];
    let left = ["handon c>d", "leave c", "learn a", "learn b", "learn d"];
    let (mut world, state) = play(four, &[&handed_on[..], &left].concat());
    assert!(!world.offers(&state, "reclaim a"), "b owns it");
}
