//! Tasks of the project.

mod bench;
mod generate;
mod verify;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Tasks of the project.
#[derive(Parser)]
enum Task {
    /// Check everything, changing nothing: format, house rules, licences, lints, docs, tests.
    ///
    /// Needs Rust and a C compiler. Where python3, node or go are there, the tests also install
    /// Redis clients of those languages, pinned, into the target folder, and use them; where
    /// cargo-deny is there, licences and advisories are checked. Skipped checks are named.
    Verify(verify::Options),
    /// Correct what can be corrected without thinking: lints with one answer, then the format.
    Fix,
    /// Write the Rust code of the gRPC definitions, which is checked in beside them.
    Generate,
    /// Measure Portolan beside other stores, on this machine.
    #[command(subcommand)]
    Bench(Bench),
}

#[derive(Subcommand)]
enum Bench {
    /// One site: throughput and latency beside etcd and Valkey, memory, start, a killed leader.
    Site(bench::Options),
    /// Global keys: slots that move, beside Valkey's; forwarding; how often owners are known.
    Global(bench::Options),
    /// Placement: what it costs to count accesses, and the bars that the lab measures.
    Placement(bench::placement::PlacementOptions),
    /// Causal keys: latency and updates beside keys of single sites, the order, the lab's bars.
    Causal(bench::Options),
}

fn main() -> ExitCode {
    let done = match Task::parse() {
        Task::Verify(options) => verify::verify(&options),
        Task::Fix => verify::fix(),
        Task::Generate => generate::generate(field::binary::root()),
        Task::Bench(Bench::Site(options)) => bench::site(&options),
        Task::Bench(Bench::Global(options)) => bench::global::global(&options),
        Task::Bench(Bench::Placement(options)) => bench::placement::placement(&options),
        Task::Bench(Bench::Causal(options)) => bench::causal::causal(&options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("xtask: {reason}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_sound() {
        Task::command().debug_assert();
    }
}
