//! `site`: the sites of a deployment.

use super::connect::{Connect, Listing, Showing};
use super::failed::Failed;
use super::promote::{self, Backup, Promote};
use super::show::{self, Table};
use super::slots;
use super::token::Token;
use clap::{Args, Subcommand};
use client::{Client, v1};
use indicatif::{ProgressBar, ProgressStyle};
use model::RegistryError;
use serde_json::json;
use std::time::Duration;

/// How often it is looked whether a site has left.
const LOOK_AGAIN: Duration = Duration::from_millis(200);
/// After so many looks at a leaving site that owns nothing, the reason why it may stay is printed.
const STUCK_AFTER: u32 = 100;

/// List or show the sites of the deployment, or have one leave
#[derive(Subcommand)]
pub(crate) enum Command {
    /// List all sites, as far as the asked node has learned them
    List(Listing),
    /// Show one site: its nodes and where they are
    Show(Show),
    /// Have a site hand over all its slots and leave; afterwards its nodes may be stopped
    Leave(Leave),
    Token(Token),
    /// Set which other site keeps a site's mirror
    Backup(Backup),
    /// Have other sites take over from a site that is lost for good
    Promote(Promote),
}

/// One site.
#[derive(Args)]
pub(crate) struct Show {
    /// Its name
    name: String,
    #[command(flatten)]
    showing: Showing,
}

/// A site that leaves.
#[derive(Args)]
pub(crate) struct Leave {
    /// Its name
    name: String,
    /// Return when it has begun, without waiting for its end
    #[arg(long)]
    no_wait: bool,
    /// Give up the mirrors that it keeps of this site, instead of handing them on to another one:
    /// what only they have is lost for good. May be given several times
    #[arg(long, value_name = "SITE")]
    discard: Vec<String>,
    #[command(flatten)]
    connect: Connect,
}

impl Command {
    pub(crate) fn run(self) -> Result<(), Failed> {
        match self {
            Command::List(asked) => list(asked),
            Command::Show(show) => show.run(),
            Command::Leave(leave) => leave.run(),
            Command::Token(token) => token.run(),
            Command::Backup(backup) => backup.run(),
            Command::Promote(promote) => promote.run(),
        }
    }
}

fn list(asked: Listing) -> Result<(), Failed> {
    asked.connect.run(|client| async move {
        let listed = client.deployment().sites().await?;
        if asked.json {
            let sites: Vec<_> = listed.sites.iter().map(as_json).collect();
            let all = json!({ "version": listed.version, "own": listed.own, "sites": sites });
            return Ok(show::print_json(&all)?);
        }
        let has_regions = listed.sites.iter().any(|site| !site.region.is_empty());
        let mut rows = Vec::new();
        for site in &listed.sites {
            let mut notes = Vec::new();
            if site.id == listed.own {
                notes.push("asked");
            }
            if site.leaving {
                notes.push("leaving");
            }
            if ["silent", "unreachable"].contains(&site.liveness.as_str()) {
                notes.push(&site.liveness);
            }
            if !site.lost_to.is_empty() {
                notes.push("lost");
            }
            let mut row = vec![
                site.id.to_string(),
                site.name.clone(),
                site.nodes.len().to_string(),
                site.slots.to_string(),
                known(site, listed.own),
                share(site),
            ];
            row.extend(has_regions.then(|| region(site).unwrap_or("-").to_owned()));
            row.extend([
                domain(site).unwrap_or("-").to_owned(),
                promote::mirror(site),
                notes.join(", "),
            ]);
            rows.push(row);
        }
        Ok(show::print(Table::of(heads(has_regions), rows))?)
    })
}

/// Of the table of sites. `has_regions`: a site names one.
fn heads(has_regions: bool) -> Vec<String> {
    let first = [">id", "site", ">nodes", ">slots", "known", ">capacity"];
    let heads = first.into_iter().chain(has_regions.then_some("region"));
    heads.chain(["domain", "backup", ""]).map(str::to_owned).collect()
}

impl Show {
    fn run(self) -> Result<(), Failed> {
        self.showing.connect.run(|client| async move {
            let site = find(&client, &self.name).await?;
            let site = site.ok_or_else(|| no_site(&self.name))?;
            if self.showing.json {
                return Ok(show::print_json(&as_json(&site))?);
            }
            let mut state = if site.leaving { ", leaving" } else { "" }.to_owned();
            if !site.lost_to.is_empty() {
                state += &format!(", lost, taken over by {}", site.lost_to);
            }
            let head = format!(
                "site {} (id {}): {} slots, capacity {}{state}",
                site.name,
                site.id,
                site.slots,
                share(&site)
            );
            let mut table = Table::new(["node", "peer address", "redis cluster address"]);
            for node in &site.nodes {
                table.row([format!("n{}", node.node), node.peer.clone(), node.cluster.clone()]);
            }
            let domain = domain(&site).unwrap_or("none: it fails alone");
            let region = region(&site).map(|name| format!("region: {name}\n")).unwrap_or_default();
            let backup = format!("failure domain: {domain}\nbackup: {}", promote::mirror(&site));
            Ok(show::print(format!("{head}\n{region}{backup}\n\n{table}"))?)
        })
    }
}

impl Leave {
    fn run(self) -> Result<(), Failed> {
        self.connect.run(|client| async move {
            client.deployment().leave_site_and_discard(&self.name, &self.discard).await?;
            if self.no_wait {
                return Ok(());
            }
            let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} slots handed over")
                .expect("a template by indicatif's rules");
            let bar = ProgressBar::new(0).with_style(style);
            // Also where there is no terminal.
            let say = |line: String| match bar.is_hidden() {
                true => eprintln!("{line}"),
                false => bar.println(line),
            };
            let (mut looked_at_nothing, mut silent) = (0, 0);
            loop {
                let site = match found(client.deployment().sites().await?, &self.name) {
                    Ok(None) => break,
                    Ok(Some(site)) => site,
                    // It may be there still.
                    Err(_) => {
                        tokio::time::sleep(LOOK_AGAIN).await;
                        continue;
                    }
                };
                looked_at_nothing = if site.slots == 0 { looked_at_nothing + 1 } else { 0 };
                silent = if site.liveness == "unreachable" { silent + 1 } else { 0 };
                if silent == STUCK_AFTER {
                    say(format!(
                        "site {} is to leave, and does not answer: it hands its slots over when it is back. If it is \
                         lost, `portolan site promote {}`, and then have it leave",
                        self.name, self.name
                    ));
                }
                if looked_at_nothing == STUCK_AFTER && silent < STUCK_AFTER {
                    say(format!(
                        "site {} owns no slot any more. It stays until other sites have the copies \
                         that only it has: of sites that cannot be reached, for the most part. If no \
                         other site can take these, bring the owner back, promote it (`portolan site \
                         promote`), or give them up: `portolan site leave {} --discard OWNER`",
                        self.name, self.name
                    ));
                }
                bar.set_length(bar.length().unwrap_or(0).max(u64::from(site.slots)));
                bar.set_position(bar.length().unwrap_or(0) - u64::from(site.slots));
                tokio::time::sleep(LOOK_AGAIN).await;
            }
            bar.finish_and_clear();
            let line = format!(
                "site {} has left; its nodes may be stopped. It joins again as a new site, on empty data \
                 directories",
                self.name
            );
            Ok(show::print(line)?)
        })
    }
}

async fn find(client: &Client, name: &str) -> Result<Option<v1::Site>, Failed> {
    found(client.deployment().sites().await?, name)
}

/// The site of a name in a list of them. A list of no deployment shows nothing of any site: the
/// node is a witness, or has no state yet.
fn found(listed: v1::ListSitesResponse, name: &str) -> Result<Option<v1::Site>, Failed> {
    if listed.deployment == 0 {
        return Err(Failed::unavailable(
            "the asked node lists no sites: it is a witness, has just started, or its site is in no \
             deployment; ask another node",
        ));
    }
    Ok(listed.sites.into_iter().find(|site| site.name == name))
}

/// The same as a node's refusal.
pub(super) fn no_site(name: &str) -> Failed {
    Failed::refused(RegistryError::NoSite(name.to_owned()))
}

/// How certain a site's slots are.
fn known(site: &v1::Site, asked: u32) -> String {
    match site.slots {
        _ if site.id == asked => "confirmed".to_owned(),
        0 => String::new(),
        _ => slots::hint(site.slots_age_ms),
    }
}

/// As a share: 1 is one.
fn share(site: &v1::Site) -> String {
    (f64::from(site.capacity_percent) / 100.0).to_string()
}

/// What it can fail together with.
fn domain(site: &v1::Site) -> Option<&str> {
    Some(site.failure_domain.as_str()).filter(|name| !name.is_empty())
}

/// The region that it names.
fn region(site: &v1::Site) -> Option<&str> {
    Some(site.region.as_str()).filter(|name| !name.is_empty())
}

fn as_json(site: &v1::Site) -> serde_json::Value {
    let node = |node: &v1::SiteNode| json!({ "node": node.node, "peer": node.peer, "redis_cluster": node.cluster });
    json!({
        "id": site.id,
        "name": site.name,
        "capacity": f64::from(site.capacity_percent) / 100.0,
        "failure_domain": domain(site),
        "region": region(site),
        "leaving": site.leaving,
        "slots": site.slots,
        "slots_age_ms": site.slots_age_ms,
        "liveness": site.liveness,
        "nodes": site.nodes.iter().map(node).collect::<Vec<_>>(),
        "backup": (!site.backup.is_empty()).then_some(&site.backup),
        "lost_to": (!site.lost_to.is_empty()).then_some(&site.lost_to),
        "mirror": site.mirror.as_ref().map(|mirror| json!({
            "holds": mirror.holds,
            "complete": mirror.complete,
            "behind": mirror.behind,
            "caught_up_ago_ms": mirror.caught_up_ago_ms,
            "keys": mirror.keys,
            "revision": mirror.revision,
        })),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_no_deployment_does_not_show_that_a_site_has_left() {
        assert!(found(v1::ListSitesResponse::default(), "east").is_err());
        let site = v1::Site { name: "east".to_owned(), ..Default::default() };
        let listed =
            v1::ListSitesResponse { deployment: 7, sites: vec![site], ..Default::default() };
        assert!(matches!(found(listed.clone(), "east"), Ok(Some(site)) if site.name == "east"));
        assert!(matches!(found(listed, "west"), Ok(None)));
    }
}
