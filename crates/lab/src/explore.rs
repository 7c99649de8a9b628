//! Many seeds, and a failed run made small.
//!
//! [`one`] runs a world with its random faults and reports the outcome in a line: a line that a
//! process can print and another read, so that explorers run side by side. [`shrink`] takes a run
//! that failed and looks for the shortest and the fewest faults with which it still fails, by
//! Zeller's delta debugging (*Simplifying and isolating failure-inducing input*, 2002) over the
//! plan: halves, quarters, single ones.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::run::{self, Options, Ran};
use crate::world::World;

/// What came of one seed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tried {
    /// The world's name.
    pub world: String,
    /// The seed.
    pub seed: u64,
    /// What is wrong, a sentence each; empty if nothing is.
    pub wrongs: Vec<String>,
    /// Virtual time that passed, in seconds.
    pub virtual_s: f64,
    /// Operations of clients.
    pub operations: u64,
    /// Events of nodes.
    pub events: u64,
    /// Leaders that were made.
    pub elections: u64,
    /// Changes of pointers on the ring.
    pub ring_changes: u64,
    /// Those after which the ring's invariant was judged.
    pub ring_judged: u64,
    /// Faults done, by kind.
    pub faults: BTreeMap<String, u64>,
}

/// What came of many seeds.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Totals {
    /// Seeds tried.
    pub seeds: u64,
    /// Virtual time that passed, in seconds.
    pub virtual_s: f64,
    /// Operations of clients.
    pub operations: u64,
    /// Events of nodes.
    pub events: u64,
    /// Leaders that were made.
    pub elections: u64,
    /// Changes of pointers on the ring.
    pub ring_changes: u64,
    /// Those after which the ring's invariant was judged.
    pub ring_judged: u64,
    /// Faults done, by kind.
    pub faults: BTreeMap<String, u64>,
}

impl Totals {
    /// Counts one more.
    pub fn add(&mut self, tried: &Tried) {
        self.seeds += 1;
        self.virtual_s += tried.virtual_s;
        self.operations += tried.operations;
        self.events += tried.events;
        self.elections += tried.elections;
        self.ring_changes += tried.ring_changes;
        self.ring_judged += tried.ring_judged;
        for (kind, count) in &tried.faults {
            *self.faults.entry(kind.clone()).or_default() += count;
        }
    }

    /// Faults of all kinds.
    #[must_use]
    pub fn faults_done(&self) -> u64 {
        self.faults.values().sum()
    }
}

/// Tries one seed of a world.
#[must_use]
pub fn one(world: &World, options: &Options) -> Tried {
    summarize(world, &run::run(world, options))
}

fn summarize(world: &World, ran: &Ran) -> Tried {
    let mut faults = BTreeMap::new();
    for (fault, _) in ran.faults.iter().filter(|(_, done)| *done) {
        *faults.entry(fault.kind.name().to_owned()).or_default() += 1;
    }
    Tried {
        world: world.name.to_string(),
        seed: ran.seed,
        wrongs: ran.wrongs(),
        virtual_s: ran.figures.virtual_time.as_secs_f64(),
        operations: ran.figures.operations,
        events: ran.figures.events,
        elections: ran.figures.elections,
        ring_changes: ran.figures.ring_changes,
        ring_judged: ran.figures.ring_judged,
        faults,
    }
}

/// A failed run made small.
#[derive(Debug)]
pub struct Small {
    /// With these options it fails; run them with a trace to see how.
    pub options: Options,
    /// What came of it.
    pub ran: Ran,
    /// How many runs it took to find.
    pub runs: usize,
}

/// Looks for the smallest run that still fails, in at most `runs_max` further runs. `None`: it does
/// not fail at all.
#[must_use]
pub fn shrink(world: &World, options: &Options, runs_max: usize) -> Option<Small> {
    let mut search = Search { world, runs: 0, runs_max };
    let mut ran = search.fails(options)?;
    let mut options = options.clone();
    // First shorter: all that comes after what went wrong is noise.
    let seen = ran.judged.iter().filter_map(|judged| match &judged.verdict {
        crate::verdict::Verdict::Broken(violation) => violation.at_us,
        _ => None,
    });
    let whole = options.duration.unwrap_or(world.duration);
    let until_seen = seen.min().map(Duration::from_micros);
    let spans = until_seen.into_iter().chain((1..4).map(|parts| whole * parts / 4));
    let mut spans: Vec<Duration> = spans.filter(|span| *span < whole).collect();
    spans.sort();
    for span in spans {
        let shorter = Options { duration: Some(span), ..options.clone() };
        if let Some(found) = search.fails(&shorter) {
            (options, ran) = (shorter, found);
            break;
        }
    }
    // Then with fewer faults.
    let mut kept: Vec<usize> =
        ran.faults.iter().filter(|(_, done)| *done).map(|(fault, _)| fault.number).collect();
    let mut parts = 2;
    while !kept.is_empty() && search.runs < runs_max {
        let size = kept.len().div_ceil(parts);
        let without = (0..kept.len()).step_by(size).find_map(|from| {
            let mut fewer = kept.clone();
            fewer.drain(from..(from + size).min(kept.len()));
            let tried = Options { only: Some(fewer.clone()), ..options.clone() };
            search.fails(&tried).map(|found| (fewer, tried, found))
        });
        match without {
            Some((fewer, tried, found)) => {
                (kept, options, ran) = (fewer, tried, found);
                parts = parts.saturating_sub(1).max(2);
            }
            None if size <= 1 => break,
            None => parts = (parts * 2).min(kept.len()),
        }
    }
    Some(Small { options, ran, runs: search.runs })
}

struct Search<'w> {
    world: &'w World,
    runs: usize,
    runs_max: usize,
}

impl Search<'_> {
    fn fails(&mut self, options: &Options) -> Option<Ran> {
        if self.runs >= self.runs_max {
            return None;
        }
        self.runs += 1;
        let ran = run::run(self.world, options);
        (!ran.wrongs().is_empty()).then_some(ran)
    }
}
