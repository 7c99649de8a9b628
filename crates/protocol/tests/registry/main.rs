//! Every order of messages, crashes and lost answers, over the real cores of the registry.
//!
//! The bounds are those of the design: three ballots of three registrars, changes of the
//! registrars, and recoveries. Those that take long are `#[ignore]`d; run them by `cargo test -p
//! protocol --features trial --release --test registry -- --ignored --nocapture`.

mod search;
mod small;
mod world;

use model::{Ballot, RegistrarSet, Registrars, SiteId};
use protocol::deployment::registry::Acceptor;
use protocol::deployment::registry::trial::{Bug, Planted};
use search::{Report, search};
use small::{CLOSE, Content, DECIDE, DECISION, Number, Rules, Slip, Small};
use std::sync::Arc;
use world::{Bounds, World};

fn set(sites: &[u32]) -> RegistrarSet {
    sites.iter().map(|site| SiteId(*site)).collect()
}

/// Which sites there are, which site holds the registry first, and what commands make of that.
#[derive(Clone)]
struct Scene {
    sites: u32,
    registrars: &'static [u32],
    sets: &'static [(Number, &'static [u32])],
    /// The commands by which sites offer themselves as registrars.
    offers: &'static [(Number, u32)],
    /// A failover is open from the beginning.
    is_open: bool,
    /// The first command of `sets` was chosen, and only the second site has that.
    second_knows: bool,
}

const THREE: Scene = Scene {
    sites: 3,
    registrars: &[1, 2, 3],
    sets: &[],
    offers: &[],
    is_open: false,
    second_knows: false,
};
/// The same, and a failover is open.
const OPEN: Scene = Scene { is_open: true, ..THREE };
/// The first of three, and the others offer themselves.
const OFFERS: Scene = Scene { registrars: &[1], offers: &[(4, 2), (5, 3)], ..THREE };
/// Both of two.
const TWO: Scene = Scene { sites: 2, registrars: &[1, 2], ..THREE };
/// Three of four; one takes another's place.
const FOUR: Scene = Scene { sites: 4, sets: &[(4, &[2, 3, 4]), (5, &[1, 2, 4])], ..THREE };
/// Three of five, to one other, or to two.
const FIVE: Scene = Scene { sites: 5, sets: &[(4, &[4]), (5, &[1, 5])], ..THREE };
/// One to the other and back.
const BACK: Scene = Scene { sites: 2, registrars: &[1], sets: &[(4, &[2]), (5, &[1])], ..THREE };
/// The same, begun, and on to a third.
const ONWARD: Scene = Scene {
    sites: 3,
    registrars: &[1],
    sets: &[(4, &[2]), (5, &[1]), (3, &[3])],
    second_knows: true,
    ..THREE
};

fn run(
    scene: &Scene,
    (attempts, rounds, recoveries): (usize, u64, usize),
    proposers: &[u32],
    commands: &[Number],
    (planted, states_max): (Planted, u64),
) -> Report {
    run_with(
        scene,
        (attempts, rounds, recoveries),
        (proposers, commands),
        (planted, None),
        states_max,
    )
}

fn run_with(
    scene: &Scene,
    (attempts, rounds, recoveries): (usize, u64, usize),
    (proposers, commands): (&[u32], &[Number]),
    (planted, slip): (Planted, Option<Slip>),
    states_max: u64,
) -> Report {
    let sets = scene.sets.iter().map(|(number, sites)| (*number, set(sites))).collect();
    let offers = scene.offers.iter().map(|(number, site)| (*number, SiteId(*site))).collect();
    small::begin(Rules { sets, offers, slip });
    let first = set(scene.registrars);
    let registrars = Registrars { set: first, since: Ballot::default(), before: first };
    let version = Ballot::default();
    let content = small::first(scene.sites, registrars, scene.is_open);
    let mut acceptors = vec![Acceptor::new(Small::of(content.clone())); scene.sites as usize];
    if scene.second_knows {
        let ballot = Ballot { round: 1, site: SiteId(2), ..version };
        let (number, to) = scene.sets[0];
        let registrars = Registrars { set: set(to), since: ballot, before: first };
        let Content { mut registry, .. } = content;
        let at = Arc::make_mut(&mut registry);
        (at.version, at.registrars) = (ballot, registrars);
        let chosen = Small::of(Content { registry, applied: vec![(number, ballot)] });
        for acceptor in &mut acceptors[..2] {
            acceptor.prepare(ballot, planted).unwrap();
            acceptor.accept(ballot, chosen).unwrap();
        }
        assert!(acceptors[1].learn(chosen, planted) && acceptors[1].copy().has(number));
    }
    let bounds = Bounds {
        sites: scene.sites,
        attempts,
        rounds,
        recoveries,
        proposers: proposers.into(),
        commands: commands.into(),
    };
    let mut world = World::new(bounds, planted);
    let state = world.begin(acceptors);
    let is_traced = planted != Planted::none() || slip.is_some();
    let report = search(&mut world, state, states_max, is_traced);
    eprintln!("{planted:?} {slip:?}: {report:?}");
    report
}

const NONE: (Planted, u64) = (Planted::none(), 200_000_000);

fn holds(report: &Report) {
    assert!(report.fault.is_none() && report.complete, "{report:?}");
    assert!(report.states > 1 && report.depth > 1);
}

fn finds(
    bug: Bug,
    scene: &Scene,
    much: (usize, u64, usize),
    proposers: &[u32],
    commands: &[Number],
) {
    if !Planted::is_possible() {
        return;
    }
    let report = run(scene, much, proposers, commands, (Planted::of(bug), 4_000_000));
    assert!(report.fault.is_some(), "{bug:?} is not found: {report:?}");
}

fn finds_slip(slip: Slip, scene: &Scene, much: (usize, u64, usize), commands: &[Number]) {
    let planted = (Planted::none(), Some(slip));
    let report = run_with(scene, much, (&[1, 2], commands), planted, 4_000_000);
    assert!(report.fault.is_some(), "{slip:?} is not found: {report:?}");
}

// ---- what holds ---------------------------------------------------------------------------------

#[test]
fn two_ballots_of_three_registrars() {
    holds(&run(&THREE, (2, 2, 0), &[1, 2, 3], &[1, 2, 3], NONE));
}

#[test]
fn registrars_that_change_and_change_back() {
    holds(&run(&BACK, (3, 3, 0), &[1, 2], &[1, 4, 5], NONE));
    holds(&run(&ONWARD, (3, 3, 0), &[1, 2], &[3, 5], NONE));
}

#[test]
fn a_recovery_beside_a_change() {
    holds(&run(&THREE, (1, 2, 2), &[1, 2], &[1], NONE));
    holds(&run(&TWO, (2, 2, 1), &[1, 2], &[1, 3], NONE));
}

#[test]
fn a_recovery_beside_an_open_failover() {
    holds(&run(&OPEN, (2, 1, 1), &[1, 2], &[DECIDE, CLOSE], NONE));
}

#[test]
fn a_recovery_beside_new_keyspaces() {
    holds(&run(&THREE, (2, 1, 1), &[1, 2], &[2, 3], NONE));
    // Each without the other's site.
    holds(&run(&TWO, (2, 1, 2), &[1, 2], &[2, 3], NONE));
}

#[test]
fn sites_that_offer_themselves_as_registrars() {
    holds(&run(&OFFERS, (3, 2, 0), &[1, 2], &[DECISION, 4, 5], NONE));
}

#[test]
#[ignore = "15 million states"]
fn three_ballots_of_three_registrars() {
    holds(&run(&THREE, (3, 2, 0), &[1, 2, 3], &[1, 2, 3], NONE));
}

#[test]
#[ignore = "millions of states"]
fn registrars_changed_in_more_ballots() {
    holds(&run(&BACK, (4, 3, 0), &[1, 2], &[1, 4, 5], NONE));
    holds(&run(&ONWARD, (4, 4, 0), &[1, 2], &[3, 5], NONE));
    holds(&run(&FIVE, (3, 2, 0), &[1, 2], &[1, 4], NONE));
}

#[test]
#[ignore = "millions of states"]
fn two_recoveries_beside_changes() {
    holds(&run(&THREE, (2, 2, 2), &[1, 2], &[1], NONE));
    holds(&run(&TWO, (3, 2, 2), &[1, 2], &[1, 3], NONE));
}

#[test]
#[ignore = "millions of states"]
fn two_recoveries_beside_an_open_failover_and_new_keyspaces() {
    holds(&run(&OPEN, (2, 2, 2), &[1, 2], &[DECIDE, CLOSE], NONE));
    holds(&run(&OPEN, (3, 1, 2), &[1, 2], &[DECIDE, CLOSE, 2], NONE));
    holds(&run(&THREE, (3, 1, 2), &[1, 2], &[2, 3], NONE));
}

#[test]
#[ignore = "millions of states"]
fn a_recovery_beside_registrars_that_change() {
    holds(&run(&OFFERS, (3, 2, 1), &[1, 2], &[DECISION, 4, 5], NONE));
}

#[test]
#[ignore = "10 million states"]
fn a_recovery_among_four_sites() {
    holds(&run(&FOUR, (2, 2, 1), &[1, 2, 3], &[1, 3], NONE));
}

#[test]
#[ignore = "a long search: by hand, with --release"]
fn a_recovery_while_one_registrar_takes_anothers_place() {
    holds(&run(&FOUR, (2, 2, 1), &[1, 2, 3], &[1, 4], NONE));
    holds(&run(&BACK, (3, 2, 1), &[1, 2], &[1, 4, 5], NONE));
}

// ---- what is found ------------------------------------------------------------------------------

#[test]
fn bugs_of_changes_are_found() {
    for bug in [Bug::SpreadUnchosen, Bug::HighestUnread, Bug::NoIds, Bug::BallotNotLogged] {
        finds(bug, &THREE, (3, 2, 0), &[1, 2], &[1, 2]);
    }
    finds(Bug::CountedVersions, &THREE, (2, 2, 1), &[1, 2], &[1, 2]);
}

#[test]
fn bugs_of_registrars_are_found() {
    finds(Bug::NewSetOnly, &FIVE, (3, 2, 0), &[1, 2], &[1, 4]);
    finds(Bug::OldSetOnly, &FIVE, (3, 2, 0), &[1, 2], &[1, 4]);
    finds(Bug::SetBeforeUnnamed, &BACK, (4, 3, 0), &[1, 2], &[1, 4, 5]);
    finds(Bug::SetsByMembers, &BACK, (4, 3, 0), &[1, 2], &[1, 4, 5]);
    finds(Bug::RegistrarsUnchosen, &ONWARD, (4, 4, 0), &[1, 2], &[3, 5]);
}

#[test]
fn bugs_of_recoveries_are_found() {
    for bug in [
        Bug::SameTerm,
        Bug::TermNotLogged,
        Bug::NoPromise,
        Bug::CopiesOnly,
        Bug::LowerTermAccepted,
        Bug::NothingHandedIn,
    ] {
        finds(bug, &THREE, (2, 2, 2), &[1, 2], &[1]);
    }
    finds(Bug::SomeUnasked, &FIVE, (1, 1, 1), &[1, 4], &[1]);
}

#[test]
fn bugs_of_what_a_recovery_goes_on_from_are_found() {
    finds_slip(Slip::LeftOpen, &OPEN, (3, 2, 1), &[DECIDE]);
    finds_slip(Slip::IdsNotSkipped, &THREE, (2, 2, 1), &[2, 3]);
    finds_slip(Slip::UnchosenStays, &THREE, (2, 2, 1), &[2, 3]);
    finds_slip(Slip::TermsAlike, &TWO, (2, 1, 2), &[2, 3]);
    finds_slip(Slip::LastEndOnly, &THREE, (1, 2, 2), &[DECISION]);
    finds_slip(Slip::KeptOnce, &THREE, (1, 2, 2), &[DECISION]);
    finds_slip(Slip::HandedInTwice, &THREE, (3, 2, 1), &[2]);
    finds_slip(Slip::DecidedAnew, &OPEN, (2, 2, 1), &[DECIDE]);
}

#[test]
fn every_bug_is_looked_for() {
    // Those above, by name.
    assert_eq!(Slip::ALL.len(), 8);
    assert_eq!(Bug::ALL.len(), 4 + 1 + 5 + 6 + 1);
}
