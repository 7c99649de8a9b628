//! Every order of messages, crashes and lost answers, over the real cores of the registry.
//!
//! The bounds are those of the design: three ballots of three registrars, changes of the registrars, and
//! recoveries. Those that take long are `#[ignore]`d; run them by
//! `cargo test -p protocol --features trial --release --test registry -- --ignored --nocapture`.

mod search;
mod small;
mod world;

use model::{Ballot, RegistrarSet, Registrars, SiteId};
use protocol::deployment::registry::Acceptor;
use protocol::deployment::registry::trial::{Bug, Planted};
use search::{Report, search};
use small::{Content, Number, Rules, Small};
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
    /// The first command of `sets` was chosen, and only the second site has that.
    second_knows: bool,
}

const THREE: Scene = Scene { sites: 3, registrars: &[1, 2, 3], sets: &[], second_knows: false };
/// Both of two.
const TWO: Scene = Scene { sites: 2, registrars: &[1, 2], ..THREE };
/// Three of four; one takes another's place.
const FOUR: Scene = Scene { sites: 4, sets: &[(4, &[2, 3, 4]), (5, &[1, 2, 4])], ..THREE };
/// Three of five, to one other, or to two.
const FIVE: Scene = Scene { sites: 5, sets: &[(4, &[4]), (5, &[1, 5])], ..THREE };
/// One to the other and back.
const BACK: Scene =
    Scene { sites: 2, registrars: &[1], sets: &[(4, &[2]), (5, &[1])], second_knows: false };
/// The same, begun, and on to a third.
const ONWARD: Scene = Scene {
    sites: 3,
    registrars: &[1],
    sets: &[(4, &[2]), (5, &[1]), (3, &[3])],
    second_knows: true,
};
fn run(
    scene: &Scene,
    (attempts, rounds, recoveries): (usize, u64, usize),
    proposers: &[u32],
    commands: &[Number],
    (planted, states_max): (Planted, u64),
) -> Report {
    let sets = scene.sets.iter().map(|(number, sites)| (*number, set(sites))).collect();
    small::begin(Rules { sets });
    let first = set(scene.registrars);
    let registrars = Registrars { set: first, since: Ballot::default(), before: first };
    let (version, sites) = (Ballot::default(), scene.sites as u8);
    let content = Content { version, registrars, sites, applied: Vec::new() };
    let mut acceptors = vec![Acceptor::new(Small::of(content.clone())); scene.sites as usize];
    if scene.second_knows {
        let ballot = Ballot { round: 1, site: SiteId(2), ..version };
        let (number, to) = scene.sets[0];
        let registrars = Registrars { set: set(to), since: ballot, before: first };
        let applied = vec![(number, ballot)];
        let chosen = Small::of(Content { version: ballot, registrars, sites, applied });
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
    let report = search(&mut world, state, states_max, planted != Planted::none());
    eprintln!("{planted:?}: {report:?}");
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

// ---- what holds ------------------------------------------------------------------------------------

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
#[ignore = "30 million states"]
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
#[ignore = "20 million states"]
fn a_recovery_among_four_sites() {
    holds(&run(&FOUR, (2, 2, 1), &[1, 2, 3], &[1, 3], NONE));
}

// ---- what is found ---------------------------------------------------------------------------------

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
fn every_bug_is_looked_for() {
    // Those above, by name.
    assert_eq!(Bug::ALL.len(), 4 + 1 + 5 + 6 + 1);
}
