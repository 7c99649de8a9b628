//! `region`: the sites that order the writes of causal keyspaces, one for each region, and how far
//! a node is in the order of its own.

use super::connect::{Connect, Showing};
use super::failed::Failed;
use super::show::{self, Table};
use clap::{Args, Subcommand, ValueEnum};
use client::Client;
use client::v1::{self, set_standby_request::Choice};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// What to do with the regions of causal keyspaces.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Show the sites that order, and how far the asked node is
    Show(Show),
    /// Have another site of its region order, once it has all of the order; the present root: it is
    /// to stay
    MoveRoot(MoveRoot),
    /// Choose the site that goes on with the order if the root is lost
    ///
    /// While it is in sync, no site sees a write of another one before the standby has it. So the
    /// order goes on behind all that any client has seen: no session is refused, and no write is
    /// lost.
    Standby(Standby),
    /// Go on without the site that orders, which is lost, and has no standby in sync
    ///
    /// Among the sites that answer, the one that has most of the order becomes the root. What only
    /// the lost site, and sites that do not answer, have of the order is lost; their causal keys
    /// are replaced if they come back. Sessions that have seen what is lost get the error LOST.
    Rebuild(Rebuild),
}

/// The regions.
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
    /// Whether it takes over by itself, ten seconds after the root was lost, or by
    /// `region move-root` to it
    #[arg(long, value_enum, default_value_t = Failover::Auto)]
    failover: Failover,
    /// Of several regions this one; none: the one without a name [default: that of the site, or of
    /// the asked site]
    #[arg(long, value_name = "NAME")]
    region: Option<String>,
    #[command(flatten)]
    connect: Connect,
}

#[derive(Args)]
#[group(required = true, multiple = false)]
struct StandbyChoice {
    /// This site, as the standby of its region's root
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
        let Standby { choice: StandbyChoice { at, nearest, .. }, failover, region, connect } = self;
        let region = region.unwrap_or_default();
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
            client.deployment().set_standby(choice, failover == Failover::ByHand, &region).await?;
            Ok(show::print(done)?)
        })
    }
}

/// The order without its root.
#[derive(Args)]
pub(crate) struct Rebuild {
    /// The site that looks after it [default: the asked one, or one that holds all causal
    /// keyspaces]
    #[arg(long, value_name = "SITE")]
    to: Option<String>,
    /// Do so even if the root can be reached
    #[arg(long)]
    force: bool,
    /// Of several regions this one; none: the one without a name [default: that of the asked site]
    #[arg(long, value_name = "NAME")]
    region: Option<String>,
    #[command(flatten)]
    connect: Connect,
}

impl Rebuild {
    fn run(self) -> Result<(), Failed> {
        self.connect.run(|client| async move {
            let to = self.to.unwrap_or_default();
            let region = self.region.unwrap_or_default();
            let lost = client.deployment().rebuild_region(&to, self.force, &region).await?;
            let lost = if lost.is_empty() { "its former root".to_owned() } else { lost };
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
            let before = root_for(&client, &self.to).await?;
            client.deployment().move_root(&self.to).await?;
            let stays = before == self.to;
            Ok(show::print(match stays {
                true => format!("{} stays the root", self.to),
                false => format!(
                    "{} is to be the root in the place of {}: `portolan region show` shows when it is, and \
                     `portolan job show root` at {} what it waits for",
                    self.to, before, before
                ),
            })?)
        })
    }
}

/// The root of the region that a site is of.
async fn root_for(client: &Client, site: &str) -> Result<String, Failed> {
    let shown = client.deployment().region().await?;
    if shown.others.is_empty() {
        return Ok(shown.root);
    }
    let listed = client.deployment().sites().await?.sites;
    let name = listed.iter().find(|one| one.name == site).map(|site| &site.region);
    let mut regions = all(&shown).filter(|region| Some(&region.name) == name);
    Ok(regions.next().map(|region| region.root.clone()).unwrap_or_default())
}

/// That of the asked node, if it has one, and the others.
fn all(shown: &v1::ShowRegionResponse) -> impl Iterator<Item = &v1::ShowRegionResponse> {
    std::iter::once(shown).filter(|own| own.id > 0).chain(&shown.others)
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

fn as_json(shown: &v1::ShowRegionResponse) -> Value {
    if shown.id == 0 && shown.others.is_empty() {
        return Value::Null;
    }
    let mut own = region_as_json(shown);
    let others: Vec<Value> = shown.others.iter().map(region_as_json).collect();
    for (key, value) in [
        ("applied", json!(applied(shown))),
        ("last_revision", json!(shown.last_revision)),
        ("ordered_revision", json!(shown.ordered_revision)),
        ("held_keys", json!(shown.held_keys)),
        ("held_bytes", json!(shown.held_bytes)),
        ("others", Value::Array(others)),
    ] {
        own[key] = value;
    }
    own
}

/// What every node has of a region.
fn region_as_json(region: &v1::ShowRegionResponse) -> Value {
    json!({
        "id": region.id,
        "name": (!region.name.is_empty()).then_some(&region.name),
        "epoch": region.epoch,
        "root": region.root,
        "next": (!region.next.is_empty()).then_some(&region.next),
        "standby": (!region.standby.is_empty()).then(|| {
            json!({ "site": region.standby, "in_sync": region.standby_in_sync })
        }),
        "standby_by_hand": region.standby_by_hand,
        "rebuilding": region.rebuilt.as_ref().is_some_and(|rebuilt| rebuilt.is_open),
        "lost": lost(region).map(|(above, until)| json!({ "above": above, "until_epoch": until })),
    })
}

const HEADS: [&str; 8] =
    ["region", "name", "epoch", "root", "standby", "applied", ">last own write", ">ordered"];

fn as_text(shown: &v1::ShowRegionResponse) -> String {
    let has_names = all(shown).any(|region| !region.name.is_empty());
    let rows = all(shown).map(|region| {
        let root = match region.next.as_str() {
            "" => region.root.clone(),
            next => format!("{}, then {next}", region.root),
        };
        let name = if region.name.is_empty() { "none" } else { &region.name };
        let mut row = vec![region.id.to_string(), name.to_owned(), region.epoch.to_string()];
        row.extend([root, standby(region)]);
        row.extend(match region.id == shown.id {
            true => [
                applied(region),
                region.last_revision.to_string(),
                region.ordered_revision.to_string(),
            ],
            false => [String::new(), String::new(), String::new()],
        });
        row
    });
    let mut rows: Vec<Vec<String>> = rows.collect();
    if rows.is_empty() {
        return "there is no region: there was never a causal keyspace".to_owned();
    }
    let mut heads = HEADS.map(str::to_owned).to_vec();
    if !has_names {
        heads.remove(1);
        rows.iter_mut().for_each(|row| drop(row.remove(1)));
    }
    let mut text = Table::of(heads, rows).to_string();
    for region in all(shown) {
        if region.rebuilt.as_ref().is_some_and(|rebuilt| rebuilt.is_open) {
            let _ = write!(
                text,
                "\n\n{} asks the sites how far they have the order; until then it rests",
                region.root
            );
        }
    }
    if shown.held_keys > 0 {
        let (keys, bytes) = (shown.held_keys, shown.held_bytes);
        let _ = write!(text, "\n\nheld on demand: {keys} keys, {bytes} bytes");
    }
    for region in all(shown) {
        let of = if has_names { format!(" of region {}", region.id) } else { String::new() };
        if let Some((above, until)) = lost(region) {
            let _ = write!(
                text,
                "\n\nlost with a root{of}: what was behind {above} before epoch {until}"
            );
        }
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
            name: String::new(),
            others: Vec::new(),
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

    #[test]
    fn the_regions_of_other_sites_are_shown_without_what_this_one_has() {
        let region = |id, name: &str, root: &str| v1::ShowRegionResponse {
            id,
            epoch: id,
            root: root.to_owned(),
            name: name.to_owned(),
            ..v1::ShowRegionResponse::default()
        };
        let others = vec![region(1, "", "pier"), region(3, "west", "quay")];
        let shown = v1::ShowRegionResponse {
            applied_epoch: 2,
            applied_count: 7,
            others,
            ..region(2, "east", "hall")
        };
        let text = as_text(&shown);
        let lines: Vec<Vec<&str>> =
            text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0][..4], ["region", "name", "epoch", "root"], "{text}");
        assert_eq!(lines[1], ["2", "east", "2", "hall", "none", "2.7", "0", "0"], "{text}");
        assert_eq!(lines[2], ["1", "none", "1", "pier", "none"], "{text}");
        assert_eq!(lines[3], ["3", "west", "3", "quay", "none"], "{text}");
        let json = as_json(&shown);
        assert_eq!((&json["name"], &json["applied"]), (&json!("east"), &json!("2.7")));
        assert_eq!(json["others"][0]["name"], Value::Null);
        assert_eq!(json["others"][1]["root"], "quay");
        // A site without a region among those that have one.
        let none = v1::ShowRegionResponse { id: 0, ..shown };
        assert_eq!(as_text(&none).lines().count(), 3);
        let plain = v1::ShowRegionResponse { others: Vec::new(), ..region(1, "", "pier") };
        assert!(!as_text(&plain).contains("name"));
    }

    #[derive(clap::Parser)]
    struct Line {
        #[command(subcommand)]
        command: Command,
    }

    fn parsed(line: &str) -> Result<Command, clap::Error> {
        use clap::Parser as _;
        let words = std::iter::once("region").chain(line.split_whitespace());
        Line::try_parse_from(words).map(|line| line.command)
    }

    #[test]
    fn a_region_is_named_where_no_site_is() {
        let Ok(Command::Standby(asked)) = parsed("standby --nearest --region west") else {
            panic!("a standby is chosen")
        };
        assert_eq!((asked.region.as_deref(), asked.choice.nearest), (Some("west"), true));
        let Ok(Command::Standby(asked)) = parsed("standby --at pier") else {
            panic!("a standby is chosen")
        };
        assert_eq!((asked.region, asked.choice.at.as_deref()), (None, Some("pier")));
        let Ok(Command::Rebuild(asked)) = parsed("rebuild --force --region none") else {
            panic!("a region is rebuilt")
        };
        assert_eq!((asked.region.as_deref(), asked.force), (Some("none"), true));
        assert!(parsed("move-root --to pier --region west").is_err(), "that of the site");
        assert!(parsed("standby --region west").is_err(), "no choice is made");
    }
}
