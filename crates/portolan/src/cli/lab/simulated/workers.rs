//! The processes of `explore`: each runs one seed after the other, so that a seed which brings its
//! process down, or hangs, takes nothing else along.
//!
//! A worker reads a line `WORLD SEED` at a time and answers with a line of JSON: [`SeedReport`].

use super::super::super::failed::Failed;
use super::load;
use clap::Args;
use lab::explore::{self, Tried};
use lab::run::Options;
use lab::world::World;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// Runs seeds for `explore`.
#[derive(Args)]
pub(crate) struct Worker {
    #[arg(long, help = "A folder with the files that worlds name")]
    data: Option<PathBuf>,
    #[arg(long, help = "The bug to be found")]
    planted: Option<String>,
    #[arg(long, help = "How long clients work", value_parser = super::span)]
    span: Option<Duration>,
}

impl Worker {
    pub(super) fn run(self) -> Result<(), Failed> {
        let bug = super::explore::bug(self.planted.as_deref())?;
        let mut worlds: BTreeMap<String, World> = BTreeMap::new();
        // The message of a core's panic is in the outcome.
        std::panic::set_hook(Box::new(|_| {}));
        for line in io::stdin().lock().lines() {
            let line = line?;
            let (name, seed) = line.rsplit_once(' ').unwrap_or((&line, ""));
            let seed = seed.parse().map_err(|_| Failed::usage("a line is WORLD SEED"))?;
            if !worlds.contains_key(name) {
                worlds.insert(name.to_owned(), load(name, self.data.as_deref())?);
            }
            let options = Options {
                seed: Some(seed),
                duration: self.span,
                random_faults: true,
                bug,
                ..Options::default()
            };
            let mut tried = explore::one(&worlds[name], &options);
            tried.world = name.to_owned();
            let report = SeedReport { tried, used_s: used_s() };
            let text = serde_json::to_string(&report).map_err(Failed::cannot_serve)?;
            writeln!(io::stdout(), "{text}")?;
        }
        Ok(())
    }
}

/// What a worker writes.
#[derive(Serialize, Deserialize)]
pub(super) struct SeedReport {
    /// What came of the seed.
    pub(super) tried: Tried,
    /// What the process has used of the processor so far, in seconds; 0 where that cannot be known.
    pub(super) used_s: f64,
}

fn used_s() -> f64 {
    #[cfg(unix)]
    {
        let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        used.tv_sec as f64 + used.tv_nsec as f64 / 1e9
    }
    #[cfg(not(unix))]
    0.0
}

/// A report of a worker.
pub(super) enum WorkerEvent {
    /// It finished a seed.
    Tried(SeedReport),
    /// It ended, or sent a line that cannot be parsed.
    Ended(String),
}

/// Processes at work.
pub(super) struct Workers {
    workers: Vec<(Child, Option<ChildStdin>)>,
    events: mpsc::Receiver<(usize, WorkerEvent)>,
}

impl Workers {
    /// Starts so many; `flags` follow `lab worker` on their command line.
    pub(super) fn start(count: usize, flags: &[String]) -> Result<Workers, Failed> {
        let cannot = |error| Failed::cannot_serve(format!("cannot start a worker: {error}"));
        let program = std::env::current_exe().map_err(cannot)?;
        let (sender, events) = mpsc::channel();
        let mut workers = Vec::new();
        for number in 0..count {
            let mut child = Command::new(&program)
                .args(["lab", "worker"])
                .args(flags)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .map_err(cannot)?;
            let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
            let sender = sender.clone();
            std::thread::spawn(move || {
                for line in stdout.into_iter().flat_map(|stdout| BufReader::new(stdout).lines()) {
                    let report = line
                        .map_err(|error| error.to_string())
                        .and_then(|line| serde_json::from_str(&line).map_err(|e| e.to_string()));
                    let event = match report {
                        Ok(report) => WorkerEvent::Tried(report),
                        Err(why) => WorkerEvent::Ended(why),
                    };
                    if sender.send((number, event)).is_err() {
                        return;
                    }
                }
                let _ = sender.send((number, WorkerEvent::Ended("it ended".to_owned())));
            });
            workers.push((child, stdin));
        }
        Ok(Workers { workers, events })
    }

    pub(super) fn count(&self) -> usize {
        self.workers.len()
    }

    /// Gives a worker its next seed.
    pub(super) fn assign(&mut self, worker: usize, world: &str, seed: u64) -> io::Result<()> {
        match &mut self.workers[worker].1 {
            Some(stdin) => writeln!(stdin, "{world} {seed}").and_then(|()| stdin.flush()),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    /// The next report of a worker; `None`: nothing within `timeout`.
    pub(super) fn next_event(&mut self, timeout: Duration) -> Option<(usize, WorkerEvent)> {
        self.events.recv_timeout(timeout).ok()
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        for (child, stdin) in &mut self.workers {
            drop(stdin.take());
            // They are ours, and what they are doing is not needed any more.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
