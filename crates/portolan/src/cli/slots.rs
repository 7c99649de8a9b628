//! `slot`: who holds the slots of global keyspaces, and how they are moved.

use super::connect::Connect;
use super::failed::Failed;
use super::show::{self, Table};
use clap::{Args, Subcommand};
use client::{Client, v1};
use indicatif::{ProgressBar, ProgressStyle};
use model::SlotSet;
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;

/// How often it is looked how far a move has come.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// List who holds which slots of global keyspaces, or move them
#[derive(Subcommand)]
pub(crate) enum Command {
    /// List who holds which slots, and the moves of the asked site
    List(List),
    /// Hand slots to a site while they go on being served
    Move(Move),
    /// Make a move of the asked site rest, or go on
    Pause(Pause),
}

/// All slots.
#[derive(Args)]
pub(crate) struct List {
    /// Print them as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: Connect,
}

/// Slots to move.
#[derive(Args)]
#[command(after_help = "Example:\n  portolan slot move 0-99,105 --to pier-39")]
pub(crate) struct Move {
    /// Which slots: numbers and ranges as 0-99,105, or all
    slots: SlotSet,
    /// The site that is to hold them
    #[arg(long, value_name = "SITE")]
    to: String,
    /// Return when it has begun, without waiting for its end
    #[arg(long)]
    no_wait: bool,
    #[command(flatten)]
    connect: Connect,
}

/// A move.
#[derive(Args)]
pub(crate) struct Pause {
    /// Its number: `portolan slot list` shows it
    number: u64,
    /// Go on with it instead
    #[arg(long)]
    resume: bool,
    #[command(flatten)]
    connect: Connect,
}

impl Command {
    pub(crate) fn run(self) -> Result<(), Failed> {
        match self {
            Command::List(list) => list.run(),
            Command::Move(slots) => slots.run(),
            Command::Pause(pause) => pause.connect.run(|client| async move {
                Ok(client.deployment().pause_move(pause.number, !pause.resume).await?)
            }),
        }
    }
}

impl List {
    fn run(self) -> Result<(), Failed> {
        self.connect.run(|client| async move {
            let listed = client.deployment().slots().await?;
            if self.json {
                let holders = listed.holders.iter().map(
                    |range| json!({ "first": range.first, "last": range.last, "site": range.site }),
                );
                let moves = listed.moves.iter().map(|one| {
                    json!({
                        "number": one.number, "to": one.to, "slots": one.slots, "keys": one.keys,
                        "sent_bytes": one.sent_bytes, "copied": one.copied, "lag": one.lag,
                        "paused": one.paused, "frozen": one.frozen,
                    })
                });
                let (holders, moves): (Vec<_>, Vec<_>) = (holders.collect(), moves.collect());
                return Ok(show::print_json(&json!({ "holders": holders, "moves": moves }))?);
            }
            let mut by_site: BTreeMap<&str, (u32, Vec<String>)> = BTreeMap::new();
            for range in &listed.holders {
                let (count, ranges) = by_site.entry(&range.site).or_default();
                *count += range.last - range.first + 1;
                ranges.push(match range.first == range.last {
                    true => range.first.to_string(),
                    false => format!("{}-{}", range.first, range.last),
                });
            }
            let mut table = Table::new(["site", ">slots", "which"]);
            for (site, (count, ranges)) in by_site {
                table.row([site.to_owned(), count.to_string(), shortened(&ranges)]);
            }
            show::print(&table)?;
            if !listed.moves.is_empty() {
                let mut table =
                    Table::new([">move", "to", ">slots", ">keys", ">sent", ">behind", "state"]);
                for one in &listed.moves {
                    let slots: SlotSet = one.slots.parse().unwrap_or_default();
                    table.row([
                        one.number.to_string(),
                        one.to.clone(),
                        slots.len().to_string(),
                        one.keys.to_string(),
                        indicatif::BinaryBytes(one.sent_bytes).to_string(),
                        one.lag.to_string(),
                        state(one).to_owned(),
                    ]);
                }
                show::print(format!("\n{table}"))?;
            }
            Ok(())
        })
    }
}

/// The first few ranges.
fn shortened(ranges: &[String]) -> String {
    const SHOWN: usize = 8;
    match ranges.len() {
        0..=SHOWN => ranges.join(","),
        many => format!("{}, and {} more ranges", ranges[..SHOWN].join(","), many - SHOWN),
    }
}

fn state(one: &v1::SlotMove) -> &'static str {
    match one {
        v1::SlotMove { frozen: true, .. } => "changing hands",
        v1::SlotMove { paused: true, .. } => "paused",
        v1::SlotMove { copied: true, .. } => "catching up",
        _ => "copying",
    }
}

impl Move {
    fn run(self) -> Result<(), Failed> {
        self.connect.run(|client| async move {
            let begun = client.deployment().move_slots(&self.slots, &self.to).await?;
            if begun.is_empty() {
                return Ok(show::print(format!("site {} holds them already", self.to))?);
            }
            for one in &begun {
                let slots: SlotSet = one.slots.parse().unwrap_or_default();
                let (count, from, number) = (slots.len(), &one.from, one.number);
                show::print(format!("{from} hands over {count} slots: move {number}"))?;
            }
            match self.no_wait {
                true => Ok(()),
                false => wait(&client, &begun).await,
            }
        })
    }
}

/// Shows how far the moves of the asked site have come until they have ended. Those of other sites
/// are seen there only.
async fn wait(client: &Client, begun: &[v1::BegunMove]) -> Result<(), Failed> {
    let listed = client.deployment().sites().await?;
    let own = listed.sites.iter().find(|site| site.id == listed.own);
    let own = own.map(|site| site.name.clone()).unwrap_or_default();
    let (ours, others): (Vec<_>, Vec<_>) = begun.iter().partition(|one| one.from == own);
    let style = ProgressStyle::with_template("{spinner} {msg}").expect("a template by its rules");
    let bar = ProgressBar::new_spinner().with_style(style);
    loop {
        let slots = client.deployment().slots().await?;
        let moves = slots.moves.iter();
        let left: Vec<_> =
            moves.filter(|one| ours.iter().any(|begun| begun.number == one.number)).collect();
        if left.is_empty() {
            break;
        }
        let texts = left.iter().map(|one| {
            let sent = indicatif::BinaryBytes(one.sent_bytes);
            format!("move {}: {}, {sent} sent, {} behind", one.number, state(one), one.lag)
        });
        bar.set_message(texts.collect::<Vec<_>>().join("; "));
        bar.tick();
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    bar.finish_and_clear();
    if !ours.is_empty() {
        show::print(format!("{own} has handed over"))?;
    }
    for one in others {
        let (from, number) = (&one.from, one.number);
        show::print(format!("move {number} goes on at {from}: ask a node of {from} for it"))?;
    }
    Ok(())
}
