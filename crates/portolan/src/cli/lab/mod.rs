//! `portolan lab`: whole deployments in virtual time, judged.
//!
//! | module | its command |
//! | --- | --- |
//! | `simulated` | what runs worlds: `run`, `replay`, `explore`, `paper` |
//! | [`verdict`] | `verdict` |
//!
//! `list` and `schema` are here. What runs worlds is compiled with the feature `lab` only, since it
//! takes long to compile and neither a node nor the demo needs it.

#[cfg(feature = "lab")]
mod simulated;
mod verdict;

use super::failed::Failed;
use super::show;
use clap::Subcommand;
use lab::world::ready;

/// Try a deployment in virtual time: latency, scale, and whether promises hold
#[derive(Subcommand)]
#[command(after_help = "Examples:
  portolan lab list                                   the worlds that come with the program
  portolan lab run three-sites --report report        a minute of three sites, in a blink
  portolan lab run my-world.toml --faults             your own, with everything going wrong
  portolan lab explore --for 60                       many seeds, until something breaks
  portolan lab verdict history.jsonl                  judge a history from anywhere
  portolan lab paper edgekv --report edgekv.html      a published paper's experiments, run again")]
pub(crate) enum Command {
    /// List the worlds that come with the program
    List,
    #[cfg(feature = "lab")]
    #[command(flatten)]
    Simulated(simulated::Command),
    Verdict(verdict::Verdict),
    /// Print the JSON schema of world files
    Schema,
    /// Any other: perhaps one that this build leaves out
    #[cfg(not(feature = "lab"))]
    #[command(external_subcommand)]
    Absent(Vec<String>),
}

impl Command {
    pub(crate) fn run(self) -> Result<(), Failed> {
        match self {
            Command::List => list(),
            #[cfg(feature = "lab")]
            Command::Simulated(command) => command.run(),
            Command::Verdict(verdict) => verdict.run(),
            Command::Schema => Ok(show::print(lab::world::schema())?),
            #[cfg(not(feature = "lab"))]
            Command::Absent(words) => Err(absent(&words[0])),
        }
    }
}

fn list() -> Result<(), Failed> {
    let mut table = show::Table::new(["WORLD", "SITES", "NODES", "CLIENTS", "WHAT IT IS"]);
    for ready in &ready::ALL {
        let world = ready::load(ready.name, None).map_err(Failed::cannot_serve)?;
        let nodes: usize = world.sites.iter().map(|site| site.nodes).sum();
        table.row([
            ready.name.to_owned(),
            world.sites.len().to_string(),
            nodes.to_string(),
            world.client_count().to_string(),
            ready.about.to_owned(),
        ]);
    }
    Ok(show::print(table)?)
}

/// The error of a build without the feature `lab`.
#[cfg(any(test, not(feature = "lab")))]
fn absent(command: &str) -> Failed {
    Failed::usage(format!(
        "lab {command}: this build has `lab list`, `lab verdict` and `lab schema` only; for the others, \
         build it with the feature `lab`: cargo run --release --features lab -- lab {command} …"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_without_the_feature_names_it() {
        let said = format!("{:?}", absent("run"));
        assert!(said.contains("cargo run --release --features lab -- lab run"), "{said}");
    }
}
