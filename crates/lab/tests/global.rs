//! Global keys in virtual time: found from anywhere, while their slots change hands.

use lab::run::{self, Options, Ran};
use lab::world::ready;
use std::time::Duration;

fn global(options: &Options) -> Ran {
    run::run(&ready::load("global", None).unwrap(), options)
}

#[test]
fn a_calm_run_is_answered_and_keeps_its_promises() {
    let duration = Some(Duration::from_secs(20));
    let ran = global(&Options {
        duration,
        trace: std::env::var_os("TRACE").is_some(),
        ..Options::default()
    });
    if let Some(trace) = &ran.trace {
        std::fs::write("/tmp/trace.txt", trace).unwrap();
    }
    assert_eq!(ran.wrongs(), [""; 0]);
    assert!(ran.figures.operations > 300, "{:?}", ran.figures);
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
