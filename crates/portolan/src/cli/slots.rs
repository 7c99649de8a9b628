//! `slot`: which sites hold the slots of global keyspaces, and how they are moved.

use super::connect::{Connect, Listing};
use super::failed::Failed;
use super::show::{self, Table};
use clap::{Args, Subcommand};
use client::v1;
use model::SlotSet;
use serde_json::json;
use std::collections::BTreeMap;

/// List which sites hold which slots of global keyspaces, or move them
#[derive(Subcommand)]
pub(crate) enum Command {
    /// List which sites hold which slots, and the moves of the asked site
    List(Listing),
    /// Hand slots to a site while they go on being served
    Move(super::moves::Move),
    /// Make a move of the asked site rest, or go on
    Pause(Pause),
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
            Command::List(asked) => list(asked),
            Command::Move(slots) => slots.run(),
            Command::Pause(pause) => pause.connect.run(|client| async move {
                Ok(client.deployment().pause_move(pause.number, !pause.resume).await?)
            }),
        }
    }
}

fn list(asked: Listing) -> Result<(), Failed> {
    asked.connect.run(|client| async move {
        let listed = client.deployment().slots().await?;
        if asked.json {
            let owners = listed.owners.iter().map(|range| {
                json!({
                    "first": range.first, "last": range.last, "site": range.site,
                    "confirmed": range.confirmed, "age_ms": range.age_ms,
                })
            });
            let moves = listed.moves.iter().map(|one| {
                json!({
                    "number": one.number, "to": one.to, "slots": one.slots, "keys": one.keys,
                    "sent_bytes": one.sent_bytes, "copied": one.copied, "lag": one.lag,
                    "paused": one.paused, "frozen": one.frozen,
                })
            });
            let (owners, moves): (Vec<_>, Vec<_>) = (owners.collect(), moves.collect());
            return Ok(show::print_json(&json!({ "owners": owners, "moves": moves }))?);
        }
        let mut by_site: BTreeMap<&str, OfSite> = BTreeMap::new();
        for range in &listed.owners {
            let of_site = by_site.entry(&range.site).or_default();
            of_site.slots += range.last - range.first + 1;
            if !range.confirmed {
                of_site.hints.push(range.age_ms);
            }
            of_site.ranges.push(match range.first == range.last {
                true => range.first.to_string(),
                false => format!("{}-{}", range.first, range.last),
            });
        }
        let mut table = Table::new(["site", ">slots", "known", "which"]);
        for (site, of_site) in by_site {
            let known = known(&of_site.hints);
            let which = shortened(&of_site.ranges);
            table.row([site.to_owned(), of_site.slots.to_string(), known, which]);
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

/// What is listed of one site.
#[derive(Default)]
struct OfSite {
    slots: u32,
    ranges: Vec<String>,
    /// How old each hint is, if that is known.
    hints: Vec<Option<u64>>,
}

/// How certain the owner of slots is: confirmed by the asked site, or a hint, with the age of its
/// oldest part.
pub(super) fn known(hint_ages_ms: &[Option<u64>]) -> String {
    if hint_ages_ms.is_empty() {
        return "confirmed".to_owned();
    }
    match hint_ages_ms.iter().copied().collect::<Option<Vec<u64>>>() {
        Some(ages) => hint(ages.into_iter().max()),
        None => hint(None),
    }
}

/// A hint of that age.
pub(super) fn hint(age_ms: Option<u64>) -> String {
    match age_ms {
        Some(age_ms) => format!("hint, {} s old", age_ms / 1_000),
        None => "hint, not confirmed yet".to_owned(),
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
