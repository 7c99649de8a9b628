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
