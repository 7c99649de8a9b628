//! The command line.
//!
//! | module | its commands |
//! | --- | --- |
//! | [`serve`], [`settings`] | `serve`, `check-config` |
//! | [`keys`] | `get`, `put`, `del`, `scan`, `watch` |
//! | [`site`] | `status`, `member` |
//! | [`keyspace`] | `keyspace` |
//! | [`sites`], [`promote`], [`token`], [`slots`] | `site`, `slot` |
//! | [`registry`] | `registry` |
//! | [`region`] | `region` |
//! | [`failover`] | `failover` |
//! | [`job`] | `job` |
//! | [`backup`] | `backup`, `restore` |
//! | [`place`] | `place` |
//! | [`placement`] | `placement` |
//! | [`tools`] | `hash-password`, `completions` |
//! | [`mod@lab`] | `lab` |
//! | [`demo`] | `demo` |
//!
//! [`connect`] holds the flags of all that talk to a running site, [`show`] how things are printed,
//! [`failed`] how a command ends when it does not succeed.

mod backup;
mod connect;
mod failed;
mod failover;
mod job;
mod keys;
mod keyspace;
mod lab;
mod lost_writes;
mod moves;
mod place;
mod placement;
mod promote;
mod prompt;
mod region;
mod registry;
mod serve;
mod settings;
mod show;
mod site;
mod sites;
mod slots;
mod token;
mod tools;

use crate::demo;
use clap::{Parser, Subcommand};
use failed::Failed;
use std::process::ExitCode;

const AFTER_HELP: &str = "\
Examples:
  portolan serve                          a store on this machine: Redis on 7379, gRPC on 7380
  portolan put car:7 'Pier 39'            write a key …
  portolan get car:7                      … and read it
  portolan serve --node 2 --data n2 --join 127.0.0.1:7381 \\
      --redis 127.0.0.1:7479 --grpc 127.0.0.1:7480 --peer 127.0.0.1:7481 --admin off
  portolan status                         who leads, who is behind
  portolan demo                           a city on one laptop
  portolan lab run three-sites            the same code in virtual time, judged

Exit codes:
  0  done
  1  no: the key is absent, or a condition did not hold
  2  the command line is wrong
  3  refused: invalid, not allowed, or the state forbids it
  4  no node could serve it in time; nothing was done
  5  the outcome is unknown: a write may or may not have been applied
  6  a node cannot start or go on: its configuration, data, disk or ports";

/// A data store for the network's edge: durable, replicated, next to its users
#[derive(Parser)]
#[command(name = "portolan", version, after_help = AFTER_HELP, max_term_width = 100)]
#[command(subcommand_help_heading = "Commands", disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

// Commands whose flags have a description of their own are described there.
#[derive(Subcommand)]
enum Command {
    /// Run a node of a site; without flags a complete store on this machine
    Serve(Box<serve::Flags>),
    /// Print the configuration that `serve` would run with, or what is wrong with it
    CheckConfig(Box<serve::Flags>),
    Get(keys::Get),
    Put(keys::Put),
    Del(keys::Del),
    Scan(keys::Scan),
    Watch(keys::Watch),
    /// Show a site's nodes and how they are
    Status(site::Status),
    /// Add or remove nodes, hand over leadership
    #[command(subcommand)]
    Member(site::Member),
    /// Make, list, show or drop keyspaces
    #[command(subcommand)]
    Keyspace(keyspace::Command),
    /// List or show the sites of the deployment, let one join, or have one leave
    #[command(subcommand)]
    Site(sites::Command),
    /// List which sites hold which slots of global keyspaces, or move them
    #[command(subcommand)]
    Slot(slots::Command),
    /// Show which sites hold what all sites agree on, or go on without those that are lost
    #[command(subcommand)]
    Registry(registry::Command),
    /// Show which site orders the writes of causal keyspaces, and how far a node is in that order
    #[command(subcommand)]
    Region(region::Command),
    /// Show which sites took over which slots of lost sites, and which sites have learned of it
    #[command(subcommand)]
    Failover(failover::Command),
    /// List what the site's leader does beside requests, pause it or resume it
    #[command(subcommand)]
    Job(job::Command),
    Place(place::Place),
    /// Show which sites access a key and where it would be better, and the moves that a site
    /// advises
    #[command(subcommand)]
    Placement(placement::Command),
    Backup(backup::Backup),
    Restore(backup::Restore),
    /// Turn a password into the hash that the configuration holds
    HashPassword,
    /// Print completions for a shell
    Completions(tools::Completions),
    /// Try a deployment in virtual time: latency, scale, and whether promises hold
    #[command(subcommand)]
    Lab(lab::Command),
    Demo(Box<demo::Args>),
}

/// Runs the command line; see [`AFTER_HELP`] for the codes.
pub fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failed) => failed.report(),
    }
}

fn run(command: Command) -> Result<(), Failed> {
    match command {
        Command::Serve(flags) => serve::serve(*flags),
        Command::CheckConfig(flags) => serve::check(*flags),
        Command::Get(get) => get.run(),
        Command::Put(put) => put.run(),
        Command::Del(del) => del.run(),
        Command::Scan(scan) => scan.run(),
        Command::Watch(watch) => watch.run(),
        Command::Status(status) => status.run(),
        Command::Member(member) => member.run(),
        Command::Keyspace(command) => command.run(),
        Command::Site(command) => command.run(),
        Command::Slot(command) => command.run(),
        Command::Registry(command) => command.run(),
        Command::Region(command) => command.run(),
        Command::Failover(command) => command.run(),
        Command::Job(command) => command.run(),
        Command::Place(place) => place.run(),
        Command::Placement(command) => command.run(),
        Command::Backup(backup) => backup.run(),
        Command::Restore(restore) => restore.run(),
        Command::HashPassword => tools::hash_password(),
        Command::Completions(shell) => shell.run::<Cli>(),
        Command::Lab(command) => command.run(),
        Command::Demo(args) => demo::run(&args).map_err(Failed::from),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_flag_is_explained() {
        fn check(command: &clap::Command) {
            for argument in command.get_arguments() {
                let name = argument.get_id();
                assert!(argument.get_help().is_some(), "{} {name} has no help", command.get_name());
            }
            command.get_subcommands().for_each(check);
        }
        check(&Cli::command());
    }
}
