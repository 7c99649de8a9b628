//! `status` and `member`: the nodes of a site.

use super::connect::{Connect, Showing};
use super::failed::Failed;
use super::show::{self, Table};
use clap::{Args, Subcommand};
use client::v1;
use model::NodeId;
use serde_json::json;
use std::time::Duration;

/// Any node answers this by itself, without waiting for others.
const STATUS_DEADLINE: Duration = Duration::from_secs(3);

/// Show a site's nodes and how they are
#[derive(Args)]
pub(crate) struct Status {
    #[command(flatten)]
    showing: Showing,
}

impl Status {
    pub(crate) fn run(self) -> Result<(), Failed> {
        self.showing.connect.run_within(STATUS_DEADLINE, |client| async move {
            let status = client.cluster().status().await?;
            match self.showing.json {
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
    let etcd = status.etcd.as_ref().map(|etcd| {
        json!({
            "endpoint": etcd.endpoint,
            "round_trip_us": etcd.round_trip_us,
            "transactions": etcd.transactions,
            "retries": etcd.retries,
            "last_error": (!etcd.last_error.is_empty()).then_some(&etcd.last_error),
            "failing_for_ms": etcd.failing_for_ms,
        })
    });
    json!({
        "engine": if etcd.is_some() { "etcd" } else { "embedded" },
        "etcd": etcd,
        "site": status.site,
        "node": status.node,
        "leader": (status.leader != 0).then_some(status.leader),
        "term": status.term,
        "commit_index": status.commit_index,
        "applied_index": status.applied_index,
        "revision": status.revision,
        "members": members.collect::<Vec<_>>(),
        "version": status.version,
        "remote": status.remote.as_ref().map(remote_as_json),
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
        // Only the leader has how much of the site's log a node lacks.
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
    let remote = status.remote.as_ref().map(remote_as_text).unwrap_or_default();
    let etcd = status.etcd.as_ref().map_or_else(String::new, etcd_as_text);
    format!("{head}{etcd}\n\n{table}{remote}")
}

fn remote_as_json(remote: &v1::Remote) -> serde_json::Value {
    let copies = remote.copies.unwrap_or_default();
    json!({
        "waiting": remote.waiting,
        "direct": remote.direct,
        "redirected": remote.redirected,
        "lookups": remote.lookups,
        "lookup_messages": remote.lookup_messages,
        "pointers": remote.pointers,
        "copies": {
            "count": copies.count,
            "bytes": copies.bytes,
            "hits": copies.hits,
            "unchanged": copies.unchanged,
            "misses": copies.misses,
            "evictions": copies.evictions,
        },
    })
}

/// What this node did about keys of other sites: nothing, of a deployment of one site.
fn remote_as_text(remote: &v1::Remote) -> String {
    let all = remote.direct + remote.redirected;
    let mut text = String::new();
    if all > 0 || remote.waiting > 0 {
        let percent = 100.0 * remote.direct as f64 / all.max(1) as f64;
        text += &format!(
            "\n\nkeys of other sites: {all} requests, {percent:.1} % sent directly to the owner, {} \
             waiting; {} lookups on the ring in {} messages",
            remote.waiting, remote.lookups, remote.lookup_messages
        );
    }
    let copies = remote.copies.unwrap_or_default();
    if copies.hits + copies.unchanged + copies.misses > 0 {
        text += &format!(
            "\ncopies: {} in {} bytes; {} stale reads answered, {} found unchanged, {} fetched, {} \
             evicted",
            copies.count,
            copies.bytes,
            copies.hits,
            copies.unchanged,
            copies.misses,
            copies.evictions
        );
    }
    text
}

fn etcd_as_text(etcd: &v1::Etcd) -> String {
    let state = match etcd.failing_for_ms {
        0 => format!("the last transaction took {:.1} ms", etcd.round_trip_us as f64 / 1e3),
        ms => format!("no answer for {:.1} s: {}", ms as f64 / 1e3, etcd.last_error),
    };
    format!(
        "\nits keys are in etcd at {}: {state}; {} calls were made again",
        etcd.endpoint, etcd.retries
    )
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
    /// Add a node to the site; it then catches up and votes
    ///
    /// `portolan serve --join` does this by itself; here it is for nodes that are started later.
    Add(Add),
    /// Take a node out of the site; afterwards its disk may be thrown away
    ///
    /// One that can be reached is not removed while another voter cannot be: the refusal names what
    /// would be left.
    Remove(Remove),
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
    /// Also if a node of this id is a member, which is removed then
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    connect: Connect,
}

/// A node to remove.
#[derive(Args)]
pub(crate) struct Remove {
    /// Its id
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    node: u64,
    /// Also if it can be reached while another voter cannot
    #[arg(long)]
    force: bool,
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
                let (node, cluster) = (NodeId(add.node), client.cluster());
                Ok(cluster.add_node(node, add.address, add.witness, add.force).await?)
            }),
            Member::Remove(one) => one.connect.run(|client| async move {
                Ok(client.cluster().remove_node(NodeId(one.node), one.force).await?)
            }),
            Member::Transfer(one) => one.connect.run(|client| async move {
                Ok(client.cluster().transfer_leader(NodeId(one.node)).await?)
            }),
        }
    }
}
