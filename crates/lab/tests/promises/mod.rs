//! Some seeds of a world with all its faults: no promise is broken.

use lab::explore::{Totals, one};
use lab::run::Options;
use lab::world::World;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Plays so many seeds, or as many as the environment asks for (see tests/seeds.rs).
pub(crate) fn keeps_promises(world: &World, seeds: u64) -> Totals {
    let from = number("PORTOLAN_SEEDS_FROM").unwrap_or(1);
    let name = &world.name;
    let (mut totals, mut wrongs) = (Totals::default(), Vec::new());
    for seed in from..from + number("PORTOLAN_SEEDS").unwrap_or(seeds) {
        let options = Options { seed: Some(seed), random_faults: true, ..Options::default() };
        let tried = one(world, &options);
        if !tried.wrongs.is_empty() {
            eprintln!("{name}, seed {seed}: {}", tried.wrongs.join("\n"));
            eprintln!("portolan lab explore {name} --from {seed} --seeds 1 makes it small");
            wrongs.push(seed);
        }
        totals.add(&tried);
    }
    let hours = totals.virtual_s / 3_600.0;
    eprintln!("{name}: {hours:.2} simulated hours, {} operations", totals.operations);
    assert_eq!(wrongs, [0; 0], "{name}");
    totals
}
