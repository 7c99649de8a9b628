//! `region`: the site that orders the writes of causal keyspaces, and how far a node is in that order.

use super::connect::{Connect, Showing};
use super::failed::Failed;
use super::show::{self, Table};
use clap::{Args, Subcommand, ValueEnum};
use client::v1::{self, set_standby_request::Choice};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// What to do with the region of causal keyspaces.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Show the site that orders, and how far the asked node is
    Show(Show),
    /// Have another site order, once it has all of the order; the present root: it is to stay
    MoveRoot(MoveRoot),
    /// Choose the site that goes on with the order if the root is lost
    ///
    /// While it is in sync, no site sees a write of another one before the standby has it. So the order goes on
    /// behind all that any client has seen: no session is refused, and no write is lost.
    Standby(Standby),
    /// Go on without the site that orders, which is lost, and has no standby in sync
    ///
    /// Among the sites that answer, the one that has most of the order becomes the root. What only the lost
    /// site, and sites that do not answer, have of the order is lost; their causal keys are replaced if they
    /// come back. Sessions that have seen what is lost are told so.
    Rebuild(Rebuild),
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

/// The standby of the root.
#[derive(Args)]
pub(crate) struct Standby {
    #[command(flatten)]
    choice: StandbyChoice,
    /// Whether it takes over by itself, ten seconds after the root was lost, or by `region move-root` to it
    #[arg(long, value_enum, default_value_t = Failover::Auto)]
    failover: Failover,
    #[command(flatten)]
    connect: Connect,
}

#[derive(Args)]
#[group(required = true, multiple = false)]
struct StandbyChoice {
    /// This site
    #[arg(long, value_name = "SITE")]
    at: Option<String>,
    /// The site that is nearest to the root, from three sites on
    #[arg(long)]
    nearest: bool,
    /// None
    #[arg(long)]
    off: bool,
}

/// When a standby takes over.
#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Failover {
    Auto,
    ByHand,
}

impl Standby {
    fn run(self) -> Result<(), Failed> {
        let Standby { choice: StandbyChoice { at, nearest, .. }, failover, connect } = self;
        connect.run(|client| async move {
            let (choice, done) = match (at, nearest) {
                (Some(at), _) => (
                    Choice::At(at.clone()),
                    format!("{at} is to be the standby: `portolan region show` shows when it is in sync"),
                ),
                (None, true) => (
                    Choice::Nearest(true),
                    "the site that is nearest to the root is to be the standby: `portolan region show` shows it"
                        .to_owned(),
                ),
                (None, false) => (
                    Choice::Off(true),
                    "there is to be no standby: if the root is lost, the order waits for `portolan region rebuild`"
                        .to_owned(),
                ),
            };
            client.deployment().set_standby(choice, failover == Failover::ByHand).await?;
            Ok(show::print(done)?)
        })
    }
}

/// The order without its root.
#[derive(Args)]
pub(crate) struct Rebuild {
    /// The site that looks after it [default: the asked one, or one that holds all causal keyspaces]
    #[arg(long, value_name = "SITE")]
    to: Option<String>,
    /// Do so even if the root can be reached
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    connect: Connect,
}

impl Rebuild {
    fn run(self) -> Result<(), Failed> {
        self.connect.run(|client| async move {
            let to = self.to.unwrap_or_default();
            let lost = client.deployment().rebuild_region(&to, self.force).await?;
            Ok(show::print(format!(
                "the order goes on without {lost}: `portolan region show` shows where, and what is lost. \
                 It takes some ten seconds if a site does not answer"
            ))?)
        })
    }
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
            Command::Standby(asked) => asked.run(),
            Command::Rebuild(asked) => asked.run(),
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
        "standby": (!region.standby.is_empty()).then(|| {
            json!({ "site": region.standby, "in_sync": region.standby_in_sync })
        }),
        "standby_by_hand": region.standby_by_hand,
        "applied": applied(region),
        "last_revision": region.last_revision,
        "ordered_revision": region.ordered_revision,
        "held_keys": region.held_keys,
        "held_bytes": region.held_bytes,
        "rebuilding": region.rebuilt.as_ref().is_some_and(|rebuilt| rebuilt.is_open),
        "lost": lost(region).map(|(above, until)| json!({ "above": above, "until_epoch": until })),
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
    let mut table = Table::new([
        "region",
        "epoch",
        "root",
        "standby",
        "applied",
        ">last own write",
        ">ordered",
    ]);
    table.row([
        region.id.to_string(),
        region.epoch.to_string(),
        root,
        standby(region),
        applied(region),
        region.last_revision.to_string(),
        region.ordered_revision.to_string(),
    ]);
    let mut text = table.to_string();
    if region.rebuilt.as_ref().is_some_and(|rebuilt| rebuilt.is_open) {
        let _ = write!(
            text,
            "\n\n{} asks the sites how far they have the order; until then it rests",
            region.root
        );
    }
    if region.held_keys > 0 {
        let (keys, bytes) = (region.held_keys, region.held_bytes);
        let _ = write!(text, "\n\nheld on demand: {keys} keys, {bytes} bytes");
    }
    if let Some((above, until)) = lost(region) {
        let _ = write!(text, "\n\nlost with a root: what was behind {above} before epoch {until}");
    }
    text
}

/// The site that can take the root's place.
fn standby(region: &v1::ShowRegionResponse) -> String {
    let word = match (region.standby_in_sync, region.standby_by_hand) {
        (false, _) => "not in sync",
        (true, false) => "in sync",
        (true, true) => "in sync, by hand",
    };
    match region.standby.as_str() {
        "" if region.standby_nearest => "none yet".to_owned(),
        "" => "none".to_owned(),
        site => format!("{site} ({word})"),
    }
}

/// What part of the order is lost: behind which position, before which epoch.
fn lost(region: &v1::ShowRegionResponse) -> Option<(String, u32)> {
    let rebuilt = region.rebuilt.as_ref().filter(|rebuilt| !rebuilt.is_open)?;
    Some((format!("{}.{}", rebuilt.above_epoch, rebuilt.above_count), rebuilt.until_epoch))
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
            rebuilt: None,
            standby: "west".to_owned(),
            standby_in_sync: true,
            standby_by_hand: false,
            standby_nearest: false,
            held_keys: 3,
            held_bytes: 500,
        };
        assert!(as_text(&region).contains("west (in sync)"), "{}", as_text(&region));
        assert_eq!(as_json(&region)["standby"]["in_sync"], true);
        let lost =
            v1::RebuiltRegion { is_open: false, until_epoch: 65, above_epoch: 1, above_count: 7 };
        let rebuilt = v1::ShowRegionResponse { rebuilt: Some(lost), ..region.clone() };
        assert!(as_text(&rebuilt).contains("behind 1.7 before epoch 65"), "{}", as_text(&rebuilt));
        assert_eq!(as_json(&rebuilt)["lost"]["above"], "1.7");
        assert_eq!(as_json(&region)["lost"], Value::Null);
        assert!(as_text(&region).ends_with("held on demand: 3 keys, 500 bytes"));
        let text = as_text(&region);
        assert!(text.contains("pier, then west") && text.contains("1.7"), "{text}");
        assert_eq!(as_json(&region)["applied"], "1.7");
        assert!(as_text(&v1::ShowRegionResponse::default()).contains("no region"));
        assert_eq!(as_json(&v1::ShowRegionResponse::default()), Value::Null);
    }
}
