//! `status` and `member`: the nodes of a site.

use super::connect::Connect;
use super::failed::Failed;
use super::show::{self, Table};
use clap::{Args, Subcommand};
use client::v1;
use model::NodeId;
use serde_json::json;

/// Show a site's nodes and how they are
#[derive(Args)]
pub(crate) struct Status {
    /// Print it as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: Connect,
}

impl Status {
    pub(crate) fn run(self) -> Result<(), Failed> {
        self.connect.run(|client| async move {
            let status = client.cluster().status().await?;
            match self.json {
                true => show::print_json(&as_json(&status))?,
                false => show::print(as_text(&status))?,
            }
            Ok(())
        })
    }
}

fn as_json(status: &v1::StatusResponse) -> serde_json::Value {
    let members = status.members.iter().map(|member| {
        json!({
            "node": member.node,
            "address": member.address,
            "role": role(member),
            "match_index": member.match_index,
        })
    });
    json!({
        "site": status.site,
        "node": status.node,
        "leader": (status.leader != 0).then_some(status.leader),
        "term": status.term,
        "commit_index": status.commit_index,
        "applied_index": status.applied_index,
        "revision": status.revision,
        "members": members.collect::<Vec<_>>(),
        "version": status.version,
    })
}

fn as_text(status: &v1::StatusResponse) -> String {
    let leader = match status.leader {
        0 => "no leader".to_owned(),
        node => format!("leader {}", NodeId(node)),
    };
    let head = format!(
        "site {}: {leader}, term {}, revision {} (asked {}, version {})",
        status.site,
        status.term,
        status.revision,
        NodeId(status.node),
        status.version
    );
    let mut table = Table::new(["node", "role", "peer address", ">log", ">behind"]);
    let leads = status.leader == status.node;
    for member in &status.members {
        let is_leader = if member.node == status.leader { " (leader)" } else { "" };
        let known = member.match_index;
        // Only the leader can say what the site has that a node does not.
        let behind = known.filter(|_| leads).map(|at| status.commit_index.saturating_sub(at));
        let number = |number: Option<u64>| number.map_or("?".into(), |number| number.to_string());
        table.row([
            NodeId(member.node).to_string(),
            format!("{}{is_leader}", role(member)),
            member.address.clone(),
            number(known),
            number(behind),
        ]);
    }
    format!("{head}\n\n{table}")
}

fn role(member: &v1::Member) -> &'static str {
    match member.role() {
        v1::Role::Voter => "voter",
        v1::Role::Learner => "learner",
        v1::Role::Witness => "witness",
    }
}

/// Add or remove nodes, hand over leadership
#[derive(Subcommand)]
pub(crate) enum Member {
    /// Tell the site of a node, which then catches up and votes
    ///
    /// `portolan serve --join` does this by itself; here it is for nodes that are started later.
    Add(Add),
    /// Take a node out of the site; afterwards its disk may be thrown away
    Remove(OneNode),
    /// Hand leadership to a node
    Transfer(OneNode),
}

/// A node to add.
#[derive(Args)]
pub(crate) struct Add {
    /// Its id: a number that no node of this site has had before
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    node: u64,
    /// Its peer port
    #[arg(value_name = "HOST:PORT")]
    address: String,
    /// It votes and keeps the log's order, but no data
    #[arg(long)]
    witness: bool,
    #[command(flatten)]
    connect: Connect,
}

/// A node of the site.
#[derive(Args)]
pub(crate) struct OneNode {
    /// Its id
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    node: u64,
    #[command(flatten)]
    connect: Connect,
}

impl Member {
    pub(crate) fn run(self) -> Result<(), Failed> {
        match self {
            Member::Add(add) => add.connect.run(|client| async move {
                Ok(client.cluster().add_node(NodeId(add.node), add.address, add.witness).await?)
            }),
            Member::Remove(one) => one.connect.run(|client| async move {
                Ok(client.cluster().remove_node(NodeId(one.node)).await?)
            }),
            Member::Transfer(one) => one.connect.run(|client| async move {
                Ok(client.cluster().transfer_leader(NodeId(one.node)).await?)
            }),
        }
    }
}
