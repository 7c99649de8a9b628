//! Global keys in virtual time: found from anywhere, while their slots change hands.

use lab::history::Promise;
use lab::run::{self, Options, Ran};
use lab::verdict::Verdict;
use lab::world::ready;
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
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let from = number("PORTOLAN_SEEDS_FROM").unwrap_or(1);
    let world = ready::load("global", None).unwrap();
    for seed in from..from + number("PORTOLAN_SEEDS").unwrap_or(6) {
        let options = Options { seed: Some(seed), random_faults: true, ..Options::default() };
        let tried = lab::explore::one(&world, &options);
        assert!(tried.wrongs.is_empty(), "seed {seed}: {}", tried.wrongs.join("\n"));
    }
}
