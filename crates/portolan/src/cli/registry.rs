//! `registry`: which sites hold what all sites agree on, and how to go on when most of them are
//! lost.

use super::connect::{Connect, Showing};
use super::failed::Failed;
use super::prompt;
use super::show::{self, Table};
use clap::{Args, Subcommand};
use client::v1;
use serde_json::json;

/// What to do with the registry.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Show which version the asked site has, which sites hold it, and whether they answer
    Show(Show),
    /// Go on without registrars that are lost, when most of them are
    Recover(Recover),
}

/// The registry.
#[derive(Args)]
pub(crate) struct Show {
    #[command(flatten)]
    showing: Showing,
}

/// Registrars that are lost.
#[derive(Args)]
#[command(
    after_help = "Recover only when the sites named are dead or cut off for good: sites that joined, \
                  keyspaces that were made and promotions that only they know of are missing until they come \
                  back, and what both sides decided in the meantime is put together then. All other sites \
                  must answer.\n\n\
                  Example:\n  portolan registry recover --without pier-39,harbour"
)]
pub(crate) struct Recover {
    /// The sites that are lost
    #[arg(long, value_name = "SITE", required = true, value_delimiter = ',')]
    without: Vec<String>,
    /// Do it without asking
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    connect: Connect,
}

impl Command {
    pub(crate) fn run(self) -> Result<(), Failed> {
        match self {
            Command::Show(show) => show.run(),
            Command::Recover(recover) => recover.run(),
        }
    }
}

impl Show {
    fn run(self) -> Result<(), Failed> {
        self.showing.connect.run(|client| async move {
            let registry = client.deployment().registry().await?;
            match self.showing.json {
                true => Ok(show::print_json(&as_json(&registry))?),
                false => Ok(show::print(as_text(&registry))?),
            }
        })
    }
}

impl Recover {
    fn run(self) -> Result<(), Failed> {
        let Recover { without, yes, connect } = self;
        connect.run(|client| async move {
            let before = client.deployment().recover_registry(&without, false).await?;
            if let Some(site) = before.answering.first() {
                let what = format!("{site} answers; do without sites that are lost only");
                return Err(Failed::no(Some(what)));
            }
            if let Some(site) = before.silent.first() {
                let what = format!("{site} does not answer, and may have changes that no other site has");
                let next = "bring it back, or name it with --without, too, if it is lost";
                return Err(Failed::no(Some(format!("{what}; {next}"))));
            }
            let named = without.join(", ");
            show::print(format!(
                "The registry goes on without {named}. What only {named} can have decided is missing until \
                 they are back: sites that joined, keyspaces that were made, promotions. If they are not \
                 lost, both sides decide by themselves until they meet."
            ))?;
            if !yes && !prompt::agreed()? {
                let what = "nothing was done; give --yes to do it".to_owned();
                return Err(Failed::no(Some(what)));
            }
            let after = client.deployment().recover_registry(&without, true).await?;
            Ok(show::print(as_text(&after))?)
        })
    }
}

fn as_json(registry: &v1::ShowRegistryResponse) -> serde_json::Value {
    let registrar = |one: &v1::Registrar| json!({ "site": one.site, "answers": one.answers });
    json!({
        "version": registry.version,
        "changes": registry.changes,
        "registrars": registry.registrars.iter().map(registrar).collect::<Vec<_>>(),
        "has_majority": registry.has_majority,
        "waiting": registry.waiting,
        "to_hand_in": registry.to_hand_in,
        "silent": registry.silent,
    })
}

fn as_text(registry: &v1::ShowRegistryResponse) -> String {
    let v1::ShowRegistryResponse { version, changes, waiting, .. } = registry;
    let mut head = format!("registry {version}: {changes} changes, {waiting} waiting here");
    if registry.to_hand_in > 0 {
        head += &format!(", {} to hand in after a recovery", registry.to_hand_in);
    }
    let mut table = Table::new(["registrar", "answers"]);
    for one in &registry.registrars {
        table.row([one.site.clone(), if one.answers { "yes" } else { "no" }.to_owned()]);
    }
    let majority = match registry.has_majority {
        true => "most registrars answer: it can be changed",
        false => {
            "most registrars do not answer: nothing joins, leaves or is promoted until they are back, or \
             `portolan registry recover` does without them"
        }
    };
    format!("{head}\n{majority}\n\n{table}")
}
