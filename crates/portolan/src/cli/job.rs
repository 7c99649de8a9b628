//! `job`: what a site's leader does beside requests, and how to pause it.

use super::connect::{Listing, Showing};
use super::failed::Failed;
use super::show::{self, Table};
use clap::{Args, Subcommand};
use client::v1;
use serde_json::json;

/// What to do with jobs.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// List the jobs of the site's leader: what is left to do, the rate, and the last error
    #[command(
        after_help = "Steps are commands that were proposed or sent to other sites. Counts are of the \
                            present leader.\n\nExample:\n  portolan job list --json"
    )]
    List(Listing),
    /// Show one job
    #[command(after_help = "Example:\n  portolan job show mirror")]
    Show(One),
    /// Pause a job at the site's leader
    #[command(
        after_help = "It begins nothing more; what it has begun and requests wait for is completed. \
                            It goes on when it is resumed, or when another node leads.\n\n\
                            Example:\n  portolan job pause handover"
    )]
    Pause(One),
    /// Resume a job that is paused
    #[command(after_help = "Example:\n  portolan job resume handover")]
    Resume(One),
}

/// One job.
#[derive(Args)]
pub(crate) struct One {
    /// Its name, as `portolan job list` shows it
    name: String,
    #[command(flatten)]
    showing: Showing,
}

impl Command {
    pub(crate) fn run(self) -> Result<(), Failed> {
        match self {
            Command::List(asked) => list(asked),
            Command::Show(one) => one.run(None),
            Command::Pause(one) => one.run(Some(true)),
            Command::Resume(one) => one.run(Some(false)),
        }
    }
}

fn list(asked: Listing) -> Result<(), Failed> {
    asked.connect.run(|client| async move {
        let jobs = client.cluster().jobs().await?;
        if asked.json {
            let all: Vec<_> = jobs.iter().map(as_json).collect();
            return Ok(show::print_json(&all.into())?);
        }
        let heads = [
            "job",
            "state",
            ">left",
            ">sent bytes",
            ">steps",
            ">a minute",
            ">errors",
            "last error",
        ];
        let mut table = Table::new(heads);
        for one in &jobs {
            table.row([
                one.name.clone(),
                state(one).to_owned(),
                left(one),
                one.sent_bytes.to_string(),
                one.steps.to_string(),
                one.steps_per_min.to_string(),
                one.errors.to_string(),
                last_error(one),
            ]);
        }
        Ok(show::print(table)?)
    })
}

impl One {
    /// `paused`: what it is to be, if it is not only to be shown.
    fn run(self, paused: Option<bool>) -> Result<(), Failed> {
        let One { name, showing: Showing { json, connect } } = self;
        connect.run(|client| async move {
            let jobs = match paused {
                Some(paused) => client.cluster().switch_job(&name, paused).await?,
                None => client.cluster().jobs().await?,
            };
            let Some(one) = jobs.iter().find(|one| one.name == name) else {
                let names: Vec<&str> = jobs.iter().map(|one| one.name.as_str()).collect();
                let names = names.join(", ");
                return Err(Failed::usage(format!("there is no job {name:?}; there are {names}")));
            };
            match json {
                true => Ok(show::print_json(&as_json(one))?),
                false => Ok(show::print(as_text(one))?),
            }
        })
    }
}

fn state(one: &v1::Job) -> &'static str {
    match (one.paused, one.left > 0 || one.steps_per_min > 0) {
        (true, _) => "paused",
        (false, true) => "busy",
        (false, false) => "idle",
    }
}

fn left(one: &v1::Job) -> String {
    match one.unit.as_str() {
        "" => String::new(),
        unit => format!("{} {unit}", one.left),
    }
}

fn last_error(one: &v1::Job) -> String {
    match one.last_error.as_str() {
        "" => String::new(),
        error => format!("{error} ({} s ago)", one.last_error_ago_ms / 1_000),
    }
}

fn as_text(one: &v1::Job) -> String {
    let mut lines = vec![format!("job {}: {}; it {}", one.name, state(one), one.about)];
    if !one.unit.is_empty() {
        lines.push(format!("left        {}", left(one)));
    }
    lines.push(format!("sent        {} bytes", one.sent_bytes));
    lines.push(format!("steps       {}, {} a minute", one.steps, one.steps_per_min));
    lines.push(format!("errors      {}", one.errors));
    if !one.last_error.is_empty() {
        lines.push(format!("last error  {}", last_error(one)));
    }
    lines.join("\n")
}

fn as_json(one: &v1::Job) -> serde_json::Value {
    let has_error = !one.last_error.is_empty();
    json!({
        "name": one.name,
        "about": one.about,
        "state": state(one),
        "paused": one.paused,
        "left": (!one.unit.is_empty()).then_some(one.left),
        "unit": (!one.unit.is_empty()).then_some(&one.unit),
        "sent_bytes": one.sent_bytes,
        "steps": one.steps,
        "steps_per_min": one.steps_per_min,
        "errors": one.errors,
        "last_error": has_error.then_some(&one.last_error),
        "last_error_ago_ms": has_error.then_some(one.last_error_ago_ms),
    })
}
