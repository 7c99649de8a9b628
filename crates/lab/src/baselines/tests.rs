//! Each store converges, the causal ones are causal, and what is published as a weakness shows.

use super::cops::{Cops, Lists};
use super::eventual::Eventual;
use super::gesto::{Attach, Gesto};
use super::occult::Occult;
use super::play::{Load, Measured, play, quantile};
use super::saturn::Saturn;
use super::{Ask, Layout, Modelled, Store, Version};
use crate::history::Promise;
use crate::verdict::{Options, Verdict, judge, one};

/// Few keys and many moves.
const BUSY: Load = Load {
    movers_every: 1,
    reads_a_full_write: 0,
    warm_us: 0,
    measured_us: 2_000_000,
    seed: 1,
    has_history: true,
};
/// W1 with the evaluation's two clients a site.
const STEADY: Load = Load {
    movers_every: 0,
    reads_a_full_write: 9,
    warm_us: 100_000,
    measured_us: 400_000,
    seed: 1,
    has_history: false,
};

fn small() -> Layout {
    Layout::table_one(3).with_keys(40, 4)
}

fn run<S: Store>(of: impl Fn(&Layout) -> S, layout: &Layout, load: Load) -> Measured {
    play(&mut of(layout), layout, load)
}

fn eventual(layout: &Layout) -> Modelled<Eventual> {
    Modelled::new(layout.clone(), Eventual::new(layout))
}

fn cops(lists: Lists) -> impl Fn(&Layout) -> Modelled<Cops> {
    move |layout| Modelled::new(layout.clone(), Cops::new(layout, lists))
}

fn occult(layout: &Layout) -> Modelled<Occult> {
    Modelled::new(layout.clone(), Occult::new(layout))
}

fn saturn(layout: &Layout) -> Modelled<Saturn> {
    Modelled::new(layout.clone(), Saturn::new(layout))
}

fn gesto(attach: Attach) -> impl Fn(&Layout) -> Modelled<Gesto> {
    move |layout| Modelled::new(layout.clone(), Gesto::new(layout, attach))
}

#[track_caller]
fn assert_causal<S: Store>(of: impl Fn(&Layout) -> S) {
    for seed in 1..=3 {
        let measured = run(&of, &small(), Load { seed, ..BUSY });
        assert!(
            measured.operations > 1_000 && measured.moves_us.len() > 200,
            "seed {seed}: {} operations",
            measured.operations
        );
        assert_eq!(measured.differing_keys, 0, "seed {seed}");
        for judged in judge(&measured.history, &[], &Options::default()) {
            let text = match &judged.verdict {
                Verdict::Broken(violation) => violation.describe(&measured.history),
                other => format!("{other:?}"),
            };
            let holds = matches!(judged.verdict, Verdict::Holds { .. });
            assert!(holds, "seed {seed}, {}: {text}", judged.promise);
        }
    }
}

/// Whether any of some seeds breaks causality.
fn is_broken<S: Store>(of: impl Fn(&Layout) -> S, seeds: u64) -> bool {
    (1..=seeds).any(|seed| {
        let measured = run(&of, &small(), Load { seed, ..BUSY });
        assert_eq!(measured.differing_keys, 0, "seed {seed}");
        let verdict = one(&measured.history, Promise::Causal, &Options::default());
        matches!(verdict, Verdict::Broken(_))
    })
}

#[test]
fn eventual_converges_and_is_not_causal() {
    assert!(is_broken(eventual, 1));
}

#[test]
fn cops_is_causal_if_lists_are_inherited() {
    assert_causal(cops(Lists::Inherited));
}

/// Four sites with a client each, 1 ms apart but for one slow way. Key 0 is at sites 0, 1 and 3,
/// key 1 at 0, 1 and 2, key 2 at 0, 2 and 3.
fn with_slow(from: usize, to: usize) -> Layout {
    let mut layout = Layout::plane(4, 1, 1).with_keys(3, 0);
    layout.delay_us = vec![vec![1_000; 4]; 4];
    layout.delay_us[from][to] = 300_000;
    layout.groups = vec![vec![0, 1, 3], vec![0, 1, 2], vec![0, 2, 3]];
    layout
}

/// A client asks, and has its answer after at most 50 ms; then 20 ms pass.
#[track_caller]
fn asked(store: &mut dyn Store, at_us: &mut u64, client: usize, ask: Ask) -> Version {
    store.ask(*at_us, client, ask);
    let answer = store.advance(*at_us + 50_000).expect("it is answered soon");
    *at_us = answer.at_us + 20_000;
    assert_eq!((answer.client, store.advance(*at_us)), (client, None));
    answer.version
}

#[test]
fn cops_as_evaluated_loses_what_it_cannot_check() {
    let layout = with_slow(0, 3);
    for lists in [Lists::Direct, Lists::Inherited] {
        let (mut store, mut at_us) = (cops(lists)(&layout), 0);
        let mut ask = |client, ask| asked(&mut store, &mut at_us, client, ask);
        ask(0, Ask::Write(0));
        assert!(ask(1, Ask::Read(0)).clock > 0);
        ask(1, Ask::Write(1));
        assert!(ask(2, Ask::Read(1)).clock > 0);
        ask(2, Ask::Write(2));
        // Site 3 has nothing of key 1, by which key 2 depends on key 0.
        let effect = ask(3, Ask::Read(2)).clock > 0;
        let cause = ask(3, Ask::Read(0)).clock > 0;
        assert_eq!((effect, cause), (lists == Lists::Direct, false), "{lists:?}");
    }
}

#[test]
fn gestos_shortcut_admits_a_client_to_a_site_that_lacks_its_past() {
    // What the broker at site 0 sends to site 3 is late. The client that moves is at home at site
    // 1.
    let mut layout = with_slow(0, 3);
    layout.homes.push(1);
    let moving = 4;
    for attach in [Attach::Shortcut, Attach::Paper] {
        let (mut store, mut at_us) = (gesto(attach)(&layout), 0);
        let mut ask = |client, ask| asked(&mut store, &mut at_us, client, ask);
        ask(1, Ask::Write(0));
        assert!(ask(moving, Ask::Read(0)).clock > 0);
        ask(moving, Ask::Move(2));
        // Key 2 is read at site 2, with the number that site 3's write got.
        ask(3, Ask::Write(2));
        assert!(ask(moving, Ask::Read(2)).clock > 0);
        if attach == Attach::Shortcut {
            ask(moving, Ask::Move(3));
            // What the client had read itself is not there.
            assert_eq!(ask(moving, Ask::Read(0)).clock, 0);
        } else {
            store.ask(at_us, moving, Ask::Move(3));
            assert_eq!(store.advance(at_us + 200_000), None);
            let answer = store.advance(at_us + 1_000_000).expect("a snapshot comes");
            assert!(answer.at_us > at_us + 200_000);
        }
    }
}

#[test]
fn occult_is_causal() {
    assert_causal(occult);
}

#[test]
fn saturn_is_causal() {
    assert_causal(saturn);
}

#[test]
fn gesto_is_causal_as_the_paper_attaches() {
    assert_causal(gesto(Attach::Paper));
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let digest = |measured: Measured| (measured.history, measured.spent, measured.visible_us);
    let once = digest(run(gesto(Attach::Paper), &small(), BUSY));
    assert_eq!(once, digest(run(gesto(Attach::Paper), &small(), BUSY)));
}

#[test]
fn what_was_published_as_a_weakness_shows() {
    let layout = Layout::table_one(2);
    let base = run(eventual, &layout, STEADY);
    // COPS: the more dependencies, the more work.
    let few = run(cops(Lists::Direct), &layout, STEADY);
    let many = run(cops(Lists::Direct), &layout, Load { reads_a_full_write: 450, ..STEADY });
    assert!(many.per_cpu_s() < 0.8 * few.per_cpu_s(), "{} {}", many.per_cpu_s(), few.per_cpu_s());
    // Occult: a write takes the way to the datacenter.
    let occult = run(occult, &layout, STEADY);
    let half = |measured: &Measured| quantile(&measured.writes_us, 0.5);
    assert!(half(&occult) > 10.0 * half(&base), "{} {}", half(&occult), half(&base));
    // Saturn: moves are the slowest.
    let moving = Load { movers_every: 2, ..STEADY };
    let moves = |measured: Measured| quantile(&measured.moves_us, 0.5);
    let (slow, fast) = (moves(run(saturn, &layout, moving)), moves(run(eventual, &layout, moving)));
    assert!(slow > 1.3 * fast, "{slow} {fast}");
    // Gesto: import is one after the other, and its queues grow under load.
    let crowd = Layout::table_one(60);
    let load = Load { measured_us: 200_000, ..STEADY };
    let full = run(gesto(Attach::Paper), &crowd, load);
    let calm = run(gesto(Attach::Paper), &layout, load);
    let late = |measured: &Measured| quantile(&measured.visible_us, 0.9);
    assert!(late(&full) > 2.0 * late(&calm), "{} {}", late(&full), late(&calm));
}

#[test]
fn every_client_goes_on() {
    let layout = Layout::table_one(2);
    let measured = run(eventual, &layout, Load { has_history: true, ..STEADY });
    let late = measured.history.requests.iter().filter(|one| one.call_us > STEADY.warm_us);
    let clients: std::collections::BTreeSet<&str> = late.map(|one| &*one.client).collect();
    assert_eq!(clients.len(), layout.homes.len());
}
