//! The commands that run worlds.
//!
//! | module | its command |
//! | --- | --- |
//! | [`run`] | `run`, `replay` |
//! | [`explore`] | `explore`; [`workers`] are its processes |
//! | [`paper`] | `paper`; [`real`] is its part in real time |
//! | [`outcome`] | how what came of a run is shown |

mod explore;
mod outcome;
mod paper;
mod real;
mod run;
mod workers;

use super::super::failed::Failed;
use super::super::show;
use super::verdict;
use clap::{Args, Subcommand};
use lab::world::{World, ready};
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Subcommand)]
pub(crate) enum Command {
    Run(Box<run::Run>),
    Explore(Box<explore::Explore>),
    Replay(Box<run::Replay>),
    #[command(subcommand)]
    Paper(paper::Paper),
    /// Run seeds for `explore`: one a line of the standard input
    #[command(hide = true)]
    Worker(workers::Worker),
}

impl Command {
    pub(super) fn run(self) -> Result<(), Failed> {
        match self {
            Command::Run(run) => run.run(),
            Command::Explore(explore) => explore.run(),
            Command::Replay(replay) => replay.run(),
            Command::Paper(paper) => paper.run(),
            Command::Worker(worker) => worker.run(),
        }
    }
}

/// Which world, and where its files are.
#[derive(Args, Clone)]
struct Which {
    /// A ready world's name (see `portolan lab list`), or a world file in TOML
    #[arg(value_name = "WORLD")]
    world: String,

    /// A folder with the files that the world names: traces, sites, delays
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

impl Which {
    fn load(&self) -> Result<World, Failed> {
        load(&self.world, self.data.as_deref())
    }
}

/// A command of `portolan lab` that does to a world what has just been done to it, for people to
/// copy. Flags without a value are left out.
fn again(command: &str, world: &str, flags: &[(&str, Option<String>)]) -> String {
    let mut text = format!("portolan lab {command} {}", quoted(world));
    for (flag, value) in flags {
        if let Some(value) = value {
            text.push_str(&format!(" {flag} {}", quoted(value)));
        }
    }
    text
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./,:=+@%".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// A span as `--for` takes it.
fn seconds(span: Duration) -> String {
    span.as_secs_f64().to_string()
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

fn load(world: &str, data: Option<&Path>) -> Result<World, Failed> {
    match ready::find(world) {
        Some(_) => ready::load(world, data),
        None if world.ends_with(".toml") || Path::new(world).exists() => {
            World::load(Path::new(world), data)
        }
        None => ready::load(world, data),
    }
    .map_err(Failed::usage)
}

/// Parses a span like 30s, 5m, 1h, or a number of seconds.
fn span(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.001..=864_000.0).contains(&seconds) => {
            Ok(Duration::from_secs_f64(seconds))
        }
        Ok(_) => Err("a number of seconds from 0.001 to 864000, or a length like 5m".to_owned()),
        Err(_) => show::length(text).map(|length| length.0),
    }
}
