//! How the load generator is called here.

use std::fmt::Display;

use super::command::Programs;
use super::load::{self, Report};

/// A command line for `load`, over the Redis protocol.
#[derive(Clone, Debug)]
pub(super) struct Command(Vec<String>);

impl Command {
    /// So many clients of some addresses, separated by commas.
    pub(super) fn new(endpoints: &str, clients: usize) -> Self {
        Self(Vec::new())
            .with("--protocol", "resp")
            .with("--endpoints", endpoints)
            .with("--clients", clients)
    }

    pub(super) fn with(mut self, flag: &str, value: impl Display) -> Self {
        self.0.extend([flag.to_owned(), value.to_string()]);
        self
    }

    /// Each of so many keys once.
    pub(super) fn each_once(self, keys: u64) -> Self {
        self.with("--keys", keys).with("--requests", keys).with("--order", "sequential")
    }

    /// For so long, after a while of getting warm.
    pub(super) fn lasting(self, seconds: f64) -> Self {
        self.with("--warmup-s", 0.5).with("--duration-s", seconds)
    }

    pub(super) fn run(&self, programs: &Programs) -> Result<Report, String> {
        load::run(programs, &self.0)
    }

    /// As it would be typed.
    pub(super) fn text(&self) -> String {
        format!("load {}", self.0.join(" "))
    }
}

/// Writes so many keys once into some slots.
pub(super) fn fill(
    programs: &Programs,
    endpoint: &str,
    slots: &str,
    keys: u64,
    value_bytes: usize,
) -> Result<(), String> {
    let command = Command::new(endpoint, 32)
        .with("--pipeline", 16)
        .with("--slots", slots)
        .with("--value-bytes", value_bytes)
        .each_once(keys);
    all_right(command.run(programs)?, "writing the keys first").map(drop)
}

/// A report without errors.
pub(super) fn all_right(report: Report, what: &str) -> Result<Report, String> {
    match report.errors + report.misses {
        0 => Ok(report),
        _ => Err(format!("{what} failed: {}", report.line())),
    }
}
