//! `failover`: which sites took over which slots of lost sites, which have learned of it, and which
//! writes were lost.

use super::connect::{Listing, Showing};
use super::failed::Failed;
use super::lost_writes::Lost;
use super::show::{self, Table};
use clap::{Args, Subcommand};
use client::{Client, v1};
use model::SlotSet;
use serde_json::json;

/// What to look at.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// List the failovers that some site may not have learned of yet, and the one that is under way
    List(Listing),
    /// Show one failover: the sites that took slots, from which copies, the sites that have learned
    /// of it, and the keys with lost writes, as far as the sites that made those are back
    Show(Show),
}

/// One failover.
#[derive(Args)]
#[command(
    after_help = "A site lists the writes that a failover lost when it returns: those above the position from which \
                  another site took a slot. It has the list also when all sites know of the failover and that is \
                  forgotten.\n\n\
                  Examples:\n  portolan failover show 7@s2\n  \
                  portolan failover show 7@s2 --at pier-39   the writes of pier-39 that it lost"
)]
pub(crate) struct Show {
    /// Its id, as `portolan failover list` or `portolan site promote` shows it
    id: String,
    /// Only the lost writes of this site
    #[arg(long, value_name = "SITE")]
    at: Option<String>,
    #[command(flatten)]
    showing: Showing,
}

impl Command {
    pub(crate) fn run(self) -> Result<(), Failed> {
        match self {
            Command::List(asked) => list(asked),
            Command::Show(show) => show.run(),
        }
    }
}

fn list(asked: Listing) -> Result<(), Failed> {
    asked.connect.run(|client| async move {
        let failovers = client.deployment().failovers().await?;
        if asked.json {
            let all: Vec<_> = failovers.iter().map(as_json).collect();
            return Ok(show::print_json(&all.into())?);
        }
        let mut table = Table::new(["failover", "lost", "without", ">slots", "taken by", "state"]);
        for one in &failovers {
            let mut takers: Vec<&str> = one.taken.iter().map(|taken| taken.by.as_str()).collect();
            takers.sort_unstable();
            takers.dedup();
            table.row([
                one.id.clone(),
                one.lost.clone(),
                one.without.join(", "),
                one.taken.iter().map(slots_of).sum::<usize>().to_string(),
                takers.join(", "),
                state(one),
            ]);
        }
        show::print(table)?;
        // A node of an earlier version has no lists.
        let lost = client.deployment().lost_writes("", "", 0).await.unwrap_or_default();
        for report in &lost.reports {
            let (id, keys) = (&report.failover, report.keys);
            let next = format!("`portolan failover show {id}`");
            show::print(format!(
                "{id}: {keys} keys of this site have lost writes; {next} lists them"
            ))?;
        }
        Ok(())
    })
}

impl Show {
    fn run(self) -> Result<(), Failed> {
        let Show { id, at, showing } = self;
        let json = showing.json;
        showing.connect.run(|client| async move {
            if let Some(site) = at {
                let lost = Lost::get(&client, &site, &id).await?;
                match json {
                    true => show::print_json(&lost.as_json())?,
                    false => show::print(lost.as_text())?,
                }
                return Ok(());
            }
            let failovers = client.deployment().failovers().await?;
            let Some(one) = failovers.iter().find(|one| one.id == id) else {
                return forgotten(&client, &id, json).await;
            };
            let mut lost = Vec::new();
            for site in fenced(one).filter(|site| one.confirmed.contains(site)) {
                // What is known of the failover is shown, whichever sites answer.
                lost.push((site, Lost::get(&client, site, &id).await));
            }
            if json {
                let mut all = as_json(one);
                let known = lost.iter().filter_map(|(_, lost)| lost.as_ref().ok());
                all["lost_writes"] = known.map(Lost::as_json).collect();
                return Ok(show::print_json(&all)?);
            }
            show::print(as_text(one))?;
            for (site, lost) in lost {
                show::print(match lost {
                    Ok(lost) => format!("\n{}", lost.as_text()),
                    Err(error) => format!("\n{site} cannot be asked for its lost writes: {error}"),
                })?;
            }
            Ok(())
        })
    }
}

/// Shows what the site in use has of a failover that the registry does not have.
async fn forgotten(client: &Client, id: &str, json: bool) -> Result<(), Failed> {
    let lost = Lost::get(client, "", id).await?;
    if !lost.is_there() {
        return Err(Failed::usage(format!(
            "there is no failover {id:?}, or every site has recorded it and it is dropped; `portolan failover \
             list` shows those there are, and --at SITE the writes of a site that it lost"
        )));
    }
    match json {
        true => show::print_json(&json!({ "id": id, "lost_writes": [lost.as_json()] }))?,
        false => {
            show::print(format!("failover {id}: known to all, and forgotten"))?;
            show::print(format!("\n{}", lost.as_text()))?;
        }
    }
    Ok(())
}

/// The sites whose writes may be lost.
fn fenced(one: &v1::Failover) -> impl Iterator<Item = &String> {
    std::iter::once(&one.lost).chain(&one.without)
}

fn slots_of(taken: &v1::TakenSlots) -> usize {
    taken.slots.parse::<SlotSet>().unwrap_or_default().len()
}

fn state(one: &v1::Failover) -> String {
    match (one.open, one.unconfirmed.is_empty()) {
        (true, _) => "under way".to_owned(),
        (false, true) => "known to all".to_owned(),
        (false, false) => format!("not known yet to {}", one.unconfirmed.join(", ")),
    }
}

/// What the lost site acknowledged and no site has taken over.
fn lost(taken: &v1::TakenSlots, lost: &str) -> String {
    match (taken.empty, taken.complete) {
        (true, _) => "all that was in them".to_owned(),
        (_, true) => "nothing of its epoch".to_owned(),
        (false, false) => format!("what {lost} acknowledged after revision {}", taken.position),
    }
}

/// The sites and the slots that each took, a line each.
pub(crate) fn takers(one: &v1::Failover) -> String {
    let mut table = Table::new(["taken by", ">slots", "copy of", "lost"]);
    for taken in &one.taken {
        let from =
            if taken.empty { "none: they begin empty".to_owned() } else { taken.epoch.clone() };
        let slots = slots_of(taken).to_string();
        table.row([taken.by.clone(), slots, from, lost(taken, &one.lost)]);
    }
    table.to_string()
}

fn as_text(one: &v1::Failover) -> String {
    let mut lines = vec![format!("failover {} of site {}: {}", one.id, one.lost, state(one))];
    if !one.without.is_empty() {
        let without = one.without.join(", ");
        lines.push(format!(
            "without {without}: what {} handed to them, or got from them, unseen by the others is lost",
            one.lost
        ));
    }
    if !one.open {
        let back = if one.returned { "is back" } else { "is not back" };
        lines.push(format!("{} {back}; known to {}", one.lost, one.confirmed.join(", ")));
        lines.push(format!("\n{}", takers(one)));
    }
    lines.join("\n")
}

fn as_json(one: &v1::Failover) -> serde_json::Value {
    let taken = |taken: &v1::TakenSlots| {
        json!({
            "by": taken.by,
            "slots": taken.slots,
            "epoch": (!taken.empty).then_some(&taken.epoch),
            "position": (!taken.empty && !taken.complete).then_some(taken.position),
            "empty": taken.empty,
        })
    };
    json!({
        "id": one.id,
        "lost": one.lost,
        "without": one.without,
        "open": one.open,
        "returned": one.returned,
        "taken": one.taken.iter().map(taken).collect::<Vec<_>>(),
        "confirmed": one.confirmed,
        "unconfirmed": one.unconfirmed,
    })
}
