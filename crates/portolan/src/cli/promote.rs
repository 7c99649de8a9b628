//! `site backup` and `site promote`: which site keeps the mirror of a site, and what to do when the
//! site is lost for good.

use super::connect::Connect;
use super::failed::Failed;
use super::{failover, prompt, show};
use clap::Args;
use client::v1::set_backup_request::Choice;
use client::{Client, v1};
use std::time::Duration;

/// How often, and how many times, the asked node is asked for the failover that was decided.
const LOOK_AGAIN: Duration = Duration::from_millis(200);
const LOOKS_MAX: usize = 15;

/// Which site keeps a site's mirror.
#[derive(Args)]
#[command(after_help = "Example:\n  portolan site backup pier-39 --at harbour")]
pub(crate) struct Backup {
    /// The site
    name: String,
    /// The site that is to keep its mirror
    #[arg(long, value_name = "SITE", group = "choice", required_unless_present_any = ["default", "off"])]
    at: Option<String>,
    /// The next site on the ring
    #[arg(long, group = "choice")]
    default: bool,
    /// None: what the site holds is lost with it
    #[arg(long, group = "choice")]
    off: bool,
    #[command(flatten)]
    connect: Connect,
}

/// A site that is lost for good.
#[derive(Args)]
#[command(
    after_help = "Promote only a site that is dead or cut off for good: until it learns of it, it may go on \
                  answering clients that still reach it, and what it acknowledges to them is lost.\n\n\
                  What may be lost is asked of all sites, and printed; then it is to be agreed to, by an answer or \
                  by --accept-loss. Agreed to is what this call has printed, not what an earlier one has: nothing is \
                  done if any slot would be lost besides, or go on from an older copy.\n\n\
                  Examples:\n  portolan site promote pier-39                 shows what may be lost, and asks\n  \
                  portolan site promote pier-39 --accept-loss   does it"
)]
pub(crate) struct Promote {
    /// Its name
    name: String,
    /// The site that takes slots of which no copy is left, empty [default: its backup]. All others
    /// go to the site with the newest copy
    #[arg(long, value_name = "SITE")]
    at: Option<String>,
    /// Do it without asking: what this call prints may be lost, and no more
    #[arg(long)]
    accept_loss: bool,
    /// Do not ask this other site, which cannot be reached. Slots that the lost site handed to it
    /// of late are taken from it; slots that only it or the lost site can have are not taken
    #[arg(long, value_name = "SITE")]
    without: Vec<String>,
    #[command(flatten)]
    connect: Connect,
}

impl Backup {
    pub(crate) fn run(self) -> Result<(), Failed> {
        let choice = match (self.at, self.default) {
            (Some(at), _) => Choice::At(at),
            (None, true) => Choice::Next(true),
            (None, false) => Choice::Off(true),
        };
        self.connect.run(|client| async move {
            Ok(client.deployment().set_backup(&self.name, choice).await?)
        })
    }
}

impl Promote {
    pub(crate) fn run(self) -> Result<(), Failed> {
        let Promote { name, at, accept_loss, without, connect } = self;
        let at = at.unwrap_or_default();
        connect.run(|client| async move {
            let preview = v1::PromoteBackupRequest {
                site: name.clone(),
                at,
                without: without.clone(),
                ..Default::default()
            };
            let before = failover_of(&client, &name).await;
            let loss = client.deployment().promote_backup(preview.clone()).await?;
            show::print(reported(&name, &loss, &without))?;
            if client.deployment().sites().await?.sites.len() == 2 {
                show::print(format!(
                    "{name} is one of two sites that hold the registry together: it goes on without {name}. \
                     What {name} decides meanwhile, if it is not lost, is put together with that when it \
                     comes back."
                ))?;
            }
            if loss.answers {
                let instead = format!("use `portolan site leave {name}` to take its slots over");
                return Err(Failed::no(Some(format!(
                    "{name} answers, so it is not lost; {instead}"
                ))));
            }
            let unasked: Vec<_> =
                loss.silent.iter().filter(|site| !without.contains(*site)).collect();
            if let Some(site) = unasked.first() {
                let what = format!("site {site} cannot be asked which slots it got from {name}");
                let next = format!("bring it back, or give --without {site}");
                return Err(Failed::no(Some(format!("{what}; {next}"))));
            }
            if !accept_loss && !prompt::agreed()? {
                let what = "nothing was done; give --accept-loss to do it".to_owned();
                return Err(Failed::no(Some(what)));
            }
            // What was printed is accepted, and nothing that is worse.
            let accepted = loss.foretold.clone();
            let decision = v1::PromoteBackupRequest { accept_loss: true, accepted, ..preview };
            let done = client.deployment().promote_backup(decision).await?;
            let (by, mirrored, empty) = (&done.by, done.mirrored, done.empty);
            let mut text = format!("{by} has taken over {mirrored} slots of {name}");
            if empty > 0 {
                text += &format!(", and {empty} that begin empty");
            }
            let unserved = done.holds.saturating_sub(done.mirrored + done.empty);
            if unserved > 0 {
                text += &format!(
                    "; {unserved} slots have no copy at the sites that were asked, and wait for {}",
                    without.join(", ")
                );
            }
            show::print(text)?;
            // The asked node may learn of its decision a moment later; another failover of before
            // is not it.
            let before = before.map(|one| one.id);
            for _ in 0..LOOKS_MAX {
                let found = failover_of(&client, &name).await;
                let is_it = |one: &v1::Failover| !one.open && Some(&one.id) != before.as_ref();
                if let Some(one) = found.filter(is_it) {
                    let takers = failover::takers(&one);
                    let next =
                        format!("`portolan failover show {}` shows which sites have it", one.id);
                    show::print(format!("\n{takers}\n\n{next}"))?;
                    return Ok(());
                }
                tokio::time::sleep(LOOK_AGAIN).await;
            }
            show::print(format!(
                "\nThe asked node does not know the failover yet, or {name} is back and all sites know it: \
                 `portolan failover list` shows it; `portolan site list` the sites."
            ))?;
            Ok(())
        })
    }
}

/// The last failover of a site that the asked node has a record of; `None` also if that cannot be
/// asked.
async fn failover_of(client: &Client, lost: &str) -> Option<v1::Failover> {
    let failovers = client.deployment().failovers().await.unwrap_or_default();
    failovers.into_iter().rfind(|one| one.lost == lost)
}

/// What may be lost, for the operator who is to accept it.
fn reported(name: &str, loss: &v1::PromoteBackupResponse, without: &[String]) -> String {
    let mut lines = Vec::new();
    let v1::PromoteBackupResponse { by, holds, mirrored, keys, revision, .. } = loss;
    lines.push(format!(
        "{by} has a mirror of {mirrored} of the {holds} slots of {name}, with {keys} keys, as of revision {revision}."
    ));
    lines.push(match loss.caught_up_ago_ms {
        Some(ms) => {
            let ago = span(ms);
            format!(
                "It was last known to be caught up {ago} ago: what {name} acknowledged since is lost."
            )
        }
        None => format!("It was never caught up: what {name} held is lost."),
    });
    if mirrored < holds {
        lines.push(format!(
            "{} slots have no copy at any site that was asked: they begin empty, or, if a site is not asked, \
             wait for it.",
            holds - mirrored
        ));
    }
    if !loss.silent.is_empty() {
        lines.push(format!("Sites that do not answer: {}.", loss.silent.join(", ")));
    }
    for site in without {
        lines.push(format!(
            "{site} is not asked: what {name} handed to it since the mirror last got anything is lost, and slots \
             that neither the mirror nor their source has are not served until {site} is back, if it has \
             them; what only {name} has of them it gives up when it comes back."
        ));
    }
    lines.push(format!(
        "Keys of scope site that only {name} has are not mirrored; they are there again when it is."
    ));
    lines.join("\n")
}

/// A span of time, short for a person.
fn span(ms: u64) -> String {
    match ms {
        0..10_000 => format!("{ms} ms"),
        10_000..600_000 => format!("{} s", ms / 1_000),
        _ => format!("{} min", ms / 60_000),
    }
}

/// A mirror in a few words.
pub(crate) fn mirror(site: &v1::Site) -> String {
    if site.backup.is_empty() {
        return "no backup".to_owned();
    }
    let Some(mirror) = &site.mirror else { return site.backup.clone() };
    let complete = match mirror.complete < mirror.holds {
        true => format!(", {} of {} slots", mirror.complete, mirror.holds),
        false => String::new(),
    };
    let lag = match (mirror.behind, mirror.caught_up_ago_ms) {
        (Some(0), _) => "caught up".to_owned(),
        (Some(behind), Some(ms)) => {
            format!("{behind} behind, caught up {} ago", span(ms))
        }
        (None, Some(ms)) => {
            format!("caught up {} ago", span(ms))
        }
        (Some(behind), None) => format!("{behind} behind"),
        (None, None) => "never caught up".to_owned(),
    };
    format!("{} ({lag}{complete})", site.backup)
}
