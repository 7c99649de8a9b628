//! `region`: the site that orders the writes of causal keyspaces, and how far a node is in that order.

use super::connect::{Connect, Showing};
use super::failed::Failed;
use super::show::{self, Table};
use clap::{Args, Subcommand};
use client::v1;
use serde_json::{Value, json};

/// What to do with the region of causal keyspaces.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Show the site that orders, and how far the asked node is
    Show(Show),
    /// Have another site order, once it has all of the order; the present root: it is to stay
    MoveRoot(MoveRoot),
}

/// The region.
#[derive(Args)]
pub(crate) struct Show {
    #[command(flatten)]
    showing: Showing,
}

/// Another root.
#[derive(Args)]
pub(crate) struct MoveRoot {
    /// The site that is to order
    #[arg(long, value_name = "SITE")]
    to: String,
    #[command(flatten)]
    connect: Connect,
}

impl MoveRoot {
    fn run(self) -> Result<(), Failed> {
        self.connect.run(|client| async move {
            let before = client.deployment().region().await?;
            client.deployment().move_root(&self.to).await?;
            let stays = before.root == self.to;
            Ok(show::print(match stays {
                true => format!("{} stays the root", self.to),
                false => format!(
                    "{} is to be the root in the place of {}: `portolan region show` shows when it is, and \
                     `portolan job show root` at {} what it waits for",
                    self.to, before.root, before.root
                ),
            })?)
        })
    }
}

impl Command {
    pub(crate) fn run(self) -> Result<(), Failed> {
        match self {
            Command::Show(show) => show.run(),
            Command::MoveRoot(asked) => asked.run(),
        }
    }
}

impl Show {
    fn run(self) -> Result<(), Failed> {
        let Show { showing } = self;
        let is_json = showing.json;
        showing.connect.run(|client| async move {
            let region = client.deployment().region().await?;
            match is_json {
                true => Ok(show::print_json(&as_json(&region))?),
                false => Ok(show::print(as_text(&region))?),
            }
        })
    }
}

fn as_json(region: &v1::ShowRegionResponse) -> Value {
    if region.id == 0 {
        return Value::Null;
    }
    json!({
        "id": region.id,
        "epoch": region.epoch,
        "root": region.root,
        "next": (!region.next.is_empty()).then_some(&region.next),
        "applied": applied(region),
        "last_revision": region.last_revision,
        "ordered_revision": region.ordered_revision,
    })
}

fn as_text(region: &v1::ShowRegionResponse) -> String {
    if region.id == 0 {
        return "there is no region: there was never a causal keyspace".to_owned();
    }
    let root = match region.next.as_str() {
        "" => region.root.clone(),
        next => format!("{}, then {next}", region.root),
    };
    let mut table =
        Table::new(["region", "epoch", "root", "applied", ">last own write", ">ordered"]);
    table.row([
        region.id.to_string(),
        region.epoch.to_string(),
        root,
        applied(region),
        region.last_revision.to_string(),
        region.ordered_revision.to_string(),
    ]);
    table.to_string()
}

/// A position, as errors show it.
fn applied(region: &v1::ShowRegionResponse) -> String {
    format!("{}.{}", region.applied_epoch, region.applied_count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_is_shown_with_its_root() {
        let region = v1::ShowRegionResponse {
            id: 1,
            epoch: 1,
            root: "pier".to_owned(),
            applied_epoch: 1,
            applied_count: 7,
            last_revision: 12,
            ordered_revision: 11,
            next: "west".to_owned(),
        };
        let text = as_text(&region);
        assert!(text.contains("pier, then west") && text.contains("1.7"), "{text}");
        assert_eq!(as_json(&region)["applied"], "1.7");
        assert!(as_text(&v1::ShowRegionResponse::default()).contains("no region"));
        assert_eq!(as_json(&v1::ShowRegionResponse::default()), Value::Null);
    }
}
