//! Moves by the server's own command: `CLUSTER MIGRATESLOTS` of Valkey 9,
//! `CLUSTER MIGRATION IMPORT` of Redis 8.4.
//!
//! The server marks nothing and changes the owner at once, so there is nothing to close after a
//! stop: a move that this program has begun goes on without it. The server's log of such moves is
//! lost with its process; what came of one is read from the owners.

use crate::cluster::{Cluster, Survey};
use crate::connection::{CallError, text};
use crate::mover::Event;
use crate::view::NodeId;
use model::SlotSet;
use std::time::Duration;
use tokio::time::sleep;
use wire::resp::Reply;

/// How often the server is asked how far it is.
const POLL: Duration = Duration::from_millis(100);

/// Which command it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `CLUSTER MIGRATESLOTS` at the source.
    Valkey,
    /// `CLUSTER MIGRATION IMPORT` at the target.
    Redis,
}

impl Kind {
    fn order(self, slots: &SlotSet, to: &NodeId) -> Vec<String> {
        let words = match self {
            Kind::Valkey => ["CLUSTER", "MIGRATESLOTS", "SLOTSRANGE"],
            Kind::Redis => ["CLUSTER", "MIGRATION", "IMPORT"],
        };
        let mut words = words.map(str::to_owned).to_vec();
        for (first, last) in slots.ranges() {
            words.extend([first.to_string(), last.to_string()]);
        }
        if self == Kind::Valkey {
            words.extend(["NODE".to_owned(), to.as_str().to_owned()]);
        }
        words
    }

    fn status(self) -> Vec<String> {
        let words: &[&str] = match self {
            Kind::Valkey => &["CLUSTER", "GETSLOTMIGRATIONS"],
            Kind::Redis => &["CLUSTER", "MIGRATION", "STATUS", "ALL"],
        };
        words.iter().map(|word| (*word).to_owned()).collect()
    }
}

/// The command that both servers have.
pub(crate) async fn kind(cluster: &mut Cluster, from: &NodeId, to: &NodeId) -> Option<Kind> {
    let has = kind_of(cluster, from).await?;
    (kind_of(cluster, to).await == Some(has)).then_some(has)
}

async fn kind_of(cluster: &mut Cluster, at: &NodeId) -> Option<Kind> {
    let ask = ["COMMAND", "INFO", "cluster|migrateslots", "cluster|migration"];
    let Ok(Reply::Array(infos)) = cluster.call(at, ask.to_vec()).await else { return None };
    let is_there = |n: usize| matches!(infos.get(n), Some(Reply::Array(info)) if !info.is_empty());
    match (is_there(0), is_there(1)) {
        (true, _) => Some(Kind::Valkey),
        (false, true) => Some(Kind::Redis),
        (false, false) => None,
    }
}

/// One move in a server's log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Job {
    slots: String,
    state: String,
    message: String,
}

impl Job {
    fn is_over(&self) -> bool {
        matches!(&*self.state, "success" | "failed" | "cancelled" | "canceled" | "completed")
    }

    fn has_failed(&self) -> bool {
        self.is_over() && !matches!(&*self.state, "success" | "completed")
    }
}

fn jobs(reply: Reply) -> Vec<Job> {
    let Reply::Array(jobs) = reply else { return Vec::new() };
    let mut read = Vec::new();
    for job in jobs {
        let pairs: Vec<(Reply, Reply)> = match job {
            Reply::Map(pairs) => pairs,
            Reply::Array(flat) => {
                flat.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect()
            }
            _ => continue,
        };
        let mut job = Job::default();
        for (name, value) in pairs {
            let value = text(value).unwrap_or_default();
            match text(name).as_deref() {
                Some("slot_ranges" | "slots") => job.slots = value.replace(' ', ","),
                Some("state") => job.state = value,
                Some("message" | "last_error") => job.message = value,
                _ => {}
            }
        }
        read.push(job);
    }
    read
}

/// The slots that servers move by themselves now, as text.
pub(crate) async fn running(cluster: &mut Cluster, survey: &Survey) -> Option<String> {
    let mut slots = Vec::new();
    for (id, _) in survey.masters() {
        let Some(kind) = kind_of(cluster, id).await else { continue };
        let Ok(reply) = cluster.call(id, kind.status()).await else { continue };
        let moving = jobs(reply).into_iter().filter(|job| !job.is_over());
        slots.extend(moving.map(|job| job.slots));
    }
    slots.sort();
    slots.dedup();
    (!slots.is_empty()).then(|| slots.join(","))
}

/// Orders a move and waits for its end.
pub(crate) async fn order(
    cluster: &mut Cluster,
    kind: Kind,
    from: &NodeId,
    to: &NodeId,
    slots: &SlotSet,
    report: &mut dyn FnMut(Event<'_>),
) -> Result<(), CallError> {
    let at = if kind == Kind::Valkey { from } else { to };
    cluster.call(at, kind.order(slots, to)).await?;
    let text = slots.to_string();
    loop {
        let jobs = jobs(cluster.call(at, kind.status()).await?);
        // The newest first; one that the log has lost is judged by the owners.
        let Some(job) = jobs.into_iter().find(|job| is_same(&job.slots, slots)) else {
            return Ok(());
        };
        if job.has_failed() {
            return Err(CallError::Refused(format!("{} {}", job.state, job.message)));
        }
        if job.is_over() {
            return Ok(());
        }
        report(Event::Waiting(&text));
        sleep(POLL).await;
    }
}

fn is_same(text: &str, slots: &SlotSet) -> bool {
    text.parse::<SlotSet>().is_ok_and(|read| read == *slots)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn bulk(text: &str) -> Reply {
        Reply::Bulk(Bytes::copy_from_slice(text.as_bytes()))
    }

    #[test]
    fn a_log_of_moves_is_read() {
        let fields = ["name", "x", "slot_ranges", "0-9 20-29", "state", "failed", "message", "oom"];
        let log = Reply::Array(vec![Reply::Array(fields.map(bulk).to_vec())]);
        let [job] = &jobs(log)[..] else { panic!("one job") };
        assert!(is_same(&job.slots, &"0-9,20-29".parse().unwrap()));
        assert!(job.is_over() && job.has_failed());
        assert_eq!(job.message, "oom");
    }

    #[test]
    fn orders_are_spelled_as_servers_read_them() {
        let slots: SlotSet = "0-9,20".parse().unwrap();
        let words = |kind: Kind| kind.order(&slots, &"b".into()).join(" ");
        assert_eq!(words(Kind::Valkey), "CLUSTER MIGRATESLOTS SLOTSRANGE 0 9 20 20 NODE b");
        assert_eq!(words(Kind::Redis), "CLUSTER MIGRATION IMPORT 0 9 20 20");
    }
}
