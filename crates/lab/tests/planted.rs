//! The tester tested: each bug that can be planted is found, within the seeds that are stated here
//! and in `docs/record.md`, and what is found is made small.

use lab::explore::{one, shrink};
use lab::history::Promise;
use lab::run::{Bug, Options};
use lab::verdict::Verdict;
use lab::world::ready;

/// Which bug, in which world it shows, the first seed (the first that shows it), and how many seeds
/// it may take. With a change of what a world draws another seed comes first: move the row there.
const BUGS: [(Bug, &str, u64, u64); 55] = [
    (Bug::SkipSync, "one-site", 6, 10),
    (Bug::AnswerBeforeSync, "witness", 9, 100),
    (Bug::AcknowledgeBeforeQuorum, "three-sites", 3, 10),
    (Bug::ReadWithoutIndex, "three-sites", 1, 10),
    (Bug::LeaseWithoutMargin, "leases", 22, 400),
    (Bug::LeaseThroughTransfer, "leases", 1, 10),
    (Bug::ForgetVote, "elections", 1, 20),
    (Bug::ApplyTwice, "three-sites", 1, 10),
    (Bug::ForgetTombstone, "three-sites", 1, 10),
    (Bug::IgnoreCondition, "three-sites", 1, 10),
    (Bug::TearTogether, "three-sites", 1, 10),
    (Bug::DenyDoubt, "three-sites", 50, 100),
    (Bug::DenyForgotten, "one-site", 2, 10),
    (Bug::ForgetRequests, "three-sites", 1, 10),
    (Bug::ServeFrozen, "global", 1, 40),
    (Bug::ForgetTail, "global", 40, 40),
    (Bug::ForgetMovedAnswers, "global", 3, 100),
    (Bug::KeepToken, "global", 1, 10),
    (Bug::TrustCopies, "global", 1, 10),
    (Bug::StaleOwnerServes, "lost-site", 8, 40),
    (Bug::LeaseBehindCommit, "leases", 1, 10),
    (Bug::WitnessPriority, "pairs", 3, 100),
    (Bug::GateLast, "three-sites", 1, 10),
    (Bug::SpreadUnchosen, "global", 2, 20),
    (Bug::PromiseUnlogged, "global", 1, 20),
    (Bug::TimeByWallClock, "witness", 128, 200),
    (Bug::TrustOldDisks, "three-sites", 1, 10),
    (Bug::EvictTheLiving, "three-sites", 7, 10),
    (Bug::ForgetFailover, "failovers", 17, 60),
    (Bug::DropMirror, "failovers", 5, 40),
    (Bug::RetainNothing, "failovers", 12, 40),
    (Bug::IgnoreHighestEpoch, "mixed", 8, 40),
    (Bug::AbortUnasked, "failovers", 16, 40),
    (Bug::MapsUncompared, "global", 1, 20),
    (Bug::MoveByMap, "failovers", 3, 40),
    (Bug::AttachWithoutWritten, "causal", 1, 10),
    (Bug::AttachWithoutSeen, "causal", 1, 10),
    (Bug::OffersUnchained, "causal", 1, 10),
    (Bug::PayloadSkipped, "causal", 1, 10),
    (Bug::ResolvedEarly, "causal", 1, 10),
    (Bug::ReadsUnmerged, "causal", 1, 10),
    (Bug::ImportOverPending, "causal", 1, 10),
    (Bug::TrimmedUnimported, "causal", 1, 20),
    (Bug::ResyncUnordered, "causal", 1, 20),
    (Bug::ResyncSwitchedEarly, "causal", 9, 40),
    (Bug::ResyncKeepsDeleted, "causal", 2, 40),
    (Bug::ClearPending, "causal", 5, 20),
    (Bug::ExpireByOwnClock, "causal", 1, 10),
    (Bug::RootUndrained, "causal", 2, 40),
    (Bug::RootOrdersOn, "causal", 1, 40),
    (Bug::RootForgetsOrdered, "causal", 1, 40),
    (Bug::ServeLent, "lending", 1, 10),
    (Bug::ServeGivenBack, "lending", 1, 10),
    (Bug::HandNothingOn, "failovers", 5, 40),
    (Bug::RebuiltUnchecked, "rebuilds", 1, 40),
];

/// No world finds them within hundreds of seeds; other tests do.
const SCRIPTED: [Bug; 27] = [
    // The leader's disk has to be lost within the moment in which it alone has the entry committed:
    // `protocol/tests/site/voters.rs`.
    Bug::ShowNewVoters,
    // A write that is sent to two sites: `golden/retries.rs`.
    Bug::RetryForgotten,
    Bug::RetryUnmatched,
    // A node that is cut off from its own site and not from the lost one:
    // `protocol/tests/site/forwards.rs`.
    Bug::ForwardUnindexed,
    // A node that comes back on an empty disk and is asked before it has its state: `golden.rs`.
    Bug::ForwardUnadmitted,
    // The moment has to come between an order at the root and its import:
    // `site::machine::tests::causal_expiry`.
    Bug::ExpireUnseen,
    // 20 seeds of `causal` do not find it: `golden.rs` does.
    Bug::AbsenceUnseen,
    // A root that is lost while its standby lacks a place: `golden.rs`.
    Bug::ReleasedEarly,
    Bug::ResolvedUnreleased,
    Bug::ClearedUnreleased,
    // Changes of the registry that come late: `protocol::causal::exhaustive_standby` searches all
    // of them.
    Bug::InSyncEarly,
    Bug::FrozenImports,
    // No world restores sites from backup files: `golden.rs`.
    Bug::RestoredUnmarked,
    // Several regions: `golden/regions.rs`.
    Bug::BridgeUnordered,
    Bug::BridgeUnstamped,
    Bug::ForeignUnresolved,
    // A region whose registry comes late: `site::machine::tests::causal_regions::rebuilt`.
    Bug::LostTakenPassed,
    // The same: `site::machine::tests::causal_regions::exhaustive`.
    Bug::ClockUnmerged,
    // Keyspaces that some sites hold: `golden/partial.rs`.
    Bug::CoveredHeld,
    Bug::AnswersUnheld,
    Bug::ForwardedUnmerged,
    // Keys that a site holds on demand: `golden/fetched.rs`.
    Bug::FetchedUnfolded,
    Bug::FetchedOutside,
    Bug::CoveredFetched,
    Bug::AnswersUnfetched,
    // A mirror has to lag by thousands of changes: `site::machine::tests::loans_sent`.
    Bug::RowsAhead,
    // What is where it may not be goes home within a second or two:
    // `site::machine::tests::placements`.
    Bug::RulesAtDecision,
];

fn find(bug: Bug) {
    let (_, world, from, seeds) = BUGS.into_iter().find(|row| row.0 == bug).expect("its row");
    let world = ready::load(world, None).expect("a ready world");
    for seed in from..from + seeds {
        let options =
            Options { seed: Some(seed), random_faults: true, bug: Some(bug), ..Options::default() };
        let tried = one(&world, &options);
        if tried.wrongs.is_empty() {
            continue;
        }
        eprintln!(
            "{}: {} after {} seeds: {}",
            bug.name(),
            world.name,
            seed - from + 1,
            tried.wrongs[0]
        );
        // The same seed without the bug is well: it is the bug that was found.
        let without = Options { bug: None, ..options.clone() };
        assert_eq!(one(&world, &without).wrongs, [""; 0], "seed {seed} fails by itself");
        return;
    }
    panic!("{} was not found in {seeds} seeds of {}", bug.name(), world.name);
}

macro_rules! found {
    ($($(#[$how:meta])* $name:ident: $bug:ident),+ $(,)?) => {
        $(#[test]
        $(#[$how])*
        fn $name() {
            find(Bug::$bug);
        })+

        #[test]
        fn no_bug_is_without_a_test() {
            let tested = [$(Bug::$bug),+];
            let is_tested = |bug: &Bug| tested.contains(bug) || SCRIPTED.contains(bug);
            assert!(Bug::ALL.iter().all(is_tested));
        }
    };
}

found! {
    an_fsync_that_is_left_out: SkipSync,
    an_answer_before_the_fsync: AnswerBeforeSync,
    an_acknowledgement_before_the_quorum: AcknowledgeBeforeQuorum,
    a_read_without_the_read_index: ReadWithoutIndex,
    a_lease_without_its_margin: LeaseWithoutMargin,
    a_lease_that_outlives_a_transfer: LeaseThroughTransfer,
    a_vote_that_is_forgotten: ForgetVote,
    a_request_that_is_applied_twice: ApplyTwice,
    a_delete_that_leaves_its_key: ForgetTombstone,
    a_condition_that_nobody_looks_at: IgnoreCondition,
    a_pair_that_is_torn: TearTogether,
    a_doubt_that_is_denied: DenyDoubt,
    a_forgotten_number_that_counts_as_refused: DenyForgotten,
    requests_that_are_forgotten: ForgetRequests,
    a_frozen_slot_that_is_served: ServeFrozen,
    changes_that_are_not_told: ForgetTail,
    answers_that_stay_behind: ForgetMovedAnswers,
    a_slot_that_two_sites_serve: KeepToken,
    a_copy_that_nobody_asks_about: TrustCopies,
    a_stale_owner_that_goes_on: StaleOwnerServes,
    a_lease_behind_what_is_committed: LeaseBehindCommit,
    a_witness_that_is_refused_for_being_one: WitnessPriority,
    a_gate_that_is_told_last: GateLast,
    a_registry_that_is_spread_before_it_is_chosen: SpreadUnchosen,
    a_promise_that_is_given_before_it_is_durable: PromiseUnlogged,
    a_wall_clock_that_is_believed: TimeByWallClock,
    an_old_disk_that_is_trusted: TrustOldDisks,
    a_second_machine_that_evicts_the_first: EvictTheLiving,
    a_failover_that_is_forgotten_too_soon: ForgetFailover,
    a_mirror_that_goes_with_its_backup: DropMirror,
    a_source_that_keeps_nothing: RetainNothing,
    an_owner_that_is_not_asked: IgnoreHighestEpoch,
    a_handover_that_is_broken_off_unasked: AbortUnasked,
    maps_that_are_never_compared: MapsUncompared,
    an_order_that_goes_by_a_map: MoveByMap,
    a_site_that_does_not_ask_for_what_was_written_elsewhere: AttachWithoutWritten,
    a_site_that_does_not_wait_for_the_order: AttachWithoutSeen,
    offers_that_overtake_each_other: OffersUnchained,
    a_place_without_its_write: PayloadSkipped,
    any_position_for_every_write: ResolvedEarly,
    a_token_that_reads_leave_as_it_is: ReadsUnmerged,
    an_import_over_what_is_pending: ImportOverPending,
    an_order_that_is_dropped_too_soon: TrimmedUnimported,
    keys_that_come_anew_without_what_is_ordered: ResyncUnordered,
    keys_that_come_anew_and_are_shown_too_soon: ResyncSwitchedEarly,
    a_removed_key_that_comes_anew: ResyncKeepsDeleted,
    a_clear_of_what_has_no_place: ClearPending,
    a_site_by_whose_clock_keys_expire: ExpireByOwnClock,
    a_root_that_does_not_wait_for_the_next: RootUndrained,
    a_root_that_orders_on: RootOrdersOn,
    a_next_root_that_orders_again: RootForgetsOrdered,
    a_lent_group_that_its_lender_writes_to: ServeLent,
    a_group_that_is_served_as_it_goes_home: ServeGivenBack,
    a_site_that_takes_the_only_copies_along: HandNothingOn,
    a_session_that_has_seen_what_a_rebuild_lost: RebuiltUnchecked,
}

/// Also where each key by itself is right: by the judge of pairs.
#[test]
fn a_torn_pair_is_found_as_one() {
    for (name, seeds) in [("three-sites", 5), ("global", 5)] {
        let world = ready::load(name, None).expect("a ready world");
        let is_found = (1..=seeds).any(|seed| {
            let bug = Some(Bug::TearTogether);
            let options = Options { seed: Some(seed), bug, ..Options::default() };
            let judged = lab::run::run(&world, &options).judged;
            let mut of_pairs = judged.iter().filter(|one| one.promise == Promise::Atomic);
            of_pairs.any(|one| matches!(one.verdict, Verdict::Broken(_)))
        });
        assert!(is_found, "{name}");
    }
}

#[test]
fn what_is_found_is_made_small() {
    let world = ready::load("three-sites", None).expect("a ready world");
    let options = Options {
        seed: Some(1),
        random_faults: true,
        bug: Some(Bug::ReadWithoutIndex),
        ..Options::default()
    };
    let all = lab::run::run(&world, &options);
    let small = shrink(&world, &options, 60).expect("it fails");
    assert!(!small.ran.wrongs().is_empty());
    assert!(small.ran.figures.faults * 4 < all.figures.faults, "{:?}", small.ran.figures);
    assert!(small.ran.figures.virtual_time < all.figures.virtual_time);
    // And it is repeated by what is printed.
    let again = lab::run::run(&world, &small.options);
    assert_eq!(again.digest(), small.ran.digest());
}
