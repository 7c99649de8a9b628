//! What an operation's latency should be by the arithmetic of its links, and what it was.
//!
//! A site-local operation takes, when nothing is in its way:
//!
//! - *get at the leader*: the client's round trip, and one round among the nodes by which the
//!   leader makes sure that it leads;
//! - *get at a follower*: one more round trip, by which the follower asks the leader for it;
//! - *put at the leader*: the client's round trip; the entry goes to the others while it goes to
//!   the leader's own disk, so the slower of one fsync and a round trip among the nodes plus one
//!   fsync;
//! - *put at a follower*: one more round trip, by which it is forwarded.
//!
//! A site of one node has no others. Only operations that took one attempt are counted, and only of
//! clients whose reads are neither stale nor by lease. Where clients stand in each other's way,
//! because they do not think between operations, it takes longer than that, and rightly so.
//!
//! The table of a report compares medians, where all links and disks of the world are constant: a
//! median of sums of random delays is not the sum of their medians.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::geo::Point;
use crate::link::{Latency, Link};
use crate::world::World;

/// Longest latency that is distinguished, in microseconds: a minute.
const LATENCY_MAX_US: u64 = 60_000_000;

/// Latencies by the way that operations took.
#[derive(Debug, Default)]
pub struct Arithmetic {
    ways: BTreeMap<(&'static str, usize, bool), Histogram<u64>>,
}

/// One line of the table.
#[derive(Debug, Clone, PartialEq)]
pub struct Compared {
    /// The operation and its way: `put at the leader of west`.
    pub what: String,
    /// How many took it.
    pub count: u64,
    /// What adds up.
    pub because: String,
    /// What the links and disks add up to, ms.
    pub expected_ms: f64,
    /// The median of what it was, ms.
    pub median_ms: f64,
}

impl Compared {
    /// By how much the median differs, as a share of what was expected.
    #[must_use]
    pub fn difference(&self) -> f64 {
        self.median_ms / self.expected_ms - 1.0
    }
}

/// At most so many lines, in their order: where there are more, those that differ most, first of
/// all the one that does.
#[must_use]
pub fn most_apart(lines: &[Compared], count_max: usize) -> Vec<&Compared> {
    let mut lines: Vec<&Compared> = lines.iter().collect();
    if lines.len() > count_max {
        lines.sort_by(|a, b| b.difference().abs().total_cmp(&a.difference().abs()));
        lines.truncate(count_max);
    }
    lines
}

impl Arithmetic {
    /// Counts an operation.
    pub(super) fn record(
        &mut self,
        operation: &'static str,
        site: usize,
        at_leader: bool,
        latency: Duration,
    ) {
        let histogram = self.ways.entry((operation, site, at_leader)).or_insert_with(|| {
            Histogram::new_with_bounds(1, LATENCY_MAX_US, 3).expect("three digits are valid")
        });
        histogram.saturating_record((latency.as_micros() as u64).max(1));
    }

    /// The latencies of all operations by the site that answered: its name, and points of ms and
    /// the share at or below them.
    #[must_use]
    pub fn by_site(&self, world: &World) -> Vec<(String, Vec<(f64, f64)>)> {
        let mut sites: BTreeMap<usize, Histogram<u64>> = BTreeMap::new();
        for ((_, site, _), histogram) in &self.ways {
            match sites.get_mut(site) {
                // They have the same bounds, so one always fits into the other.
                Some(all) => all.add(histogram).unwrap_or_default(),
                None => drop(sites.insert(*site, histogram.clone())),
            }
        }
        let named = sites.iter().map(|(site, all)| {
            (world.sites[*site].name.to_string(), crate::measure::distribution(all))
        });
        named.collect()
    }

    /// Gets and puts by their ways, beside what they should take; empty where a link or a disk of
    /// the world is not constant.
    #[must_use]
    pub fn compare(&self, world: &World) -> Vec<Compared> {
        let (sync_ms, constant) =
            (world.node.sync_ms.0, world.node.sync_ms.0 == world.node.sync_ms.1);
        let ways =
            self.ways.iter().filter(|((operation, ..), _)| ["get", "put"].contains(operation));
        ways.filter_map(|((operation, site, at_leader), histogram)| {
            let spot = &world.sites[*site];
            // From here and from far away: a link that grows with distance is another for each
            // client.
            let far = Point::new(world.area.north, world.area.east);
            let client = world.client_link(spot.at, *site);
            let client_ms =
                (client == world.client_link(far, *site)).then(|| constant_ms(client))??;
            let node_ms = constant_ms(world.node_link(*site))?;
            if !constant || spot.witness {
                return None;
            }
            let round_ms = if spot.nodes == 1 { 0.0 } else { 2.0 * node_ms };
            let forwarded_ms = if *at_leader { 0.0 } else { round_ms };
            let own_ms = match *operation {
                "get" => round_ms,
                _ => round_ms + sync_ms,
            };
            let because = because(operation, spot.nodes, *at_leader);
            let way = if *at_leader { "the leader" } else { "a follower" };
            Some(Compared {
                what: format!("{operation} at {way} of {}", spot.name),
                count: histogram.len(),
                because,
                expected_ms: 2.0 * client_ms + forwarded_ms + own_ms,
                median_ms: histogram.value_at_quantile(0.5) as f64 / 1_000.0,
            })
        })
        .collect()
    }
}

/// What adds up to an operation's latency.
fn because(operation: &str, nodes: usize, at_leader: bool) -> String {
    let mut parts = vec!["round trip to the site"];
    if nodes > 1 && !at_leader {
        parts.push("round trip to the leader");
    }
    if nodes > 1 {
        parts.push("round trip to the other nodes");
    }
    if operation != "get" {
        parts.push("fsync");
    }
    parts.join(" + ")
}

/// The delay of a link that has nothing but one, always the same.
fn constant_ms(link: Link) -> Option<f64> {
    if link.mbps.is_some() || link.loss > 0.0 {
        return None;
    }
    match link.latency {
        Latency::Constant { ms } => Some(ms),
        Latency::Uniform { .. } | Latency::Normal { .. } => None,
    }
}
