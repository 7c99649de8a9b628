//! Sites of one deployment, as processes on loopback.

use std::net::SocketAddr;
use std::time::Duration;

use field::{Node, Site, eventually, ports};
use tempfile::TempDir;

use super::command::Programs;
use super::systems;

/// How long a deployment may take to come to rest.
const SETTLED_MAX: Duration = Duration::from_secs(60);
/// The unit of times in `/proc/PID/stat`, a part of Linux's interface.
const TICKS_PER_SECOND: f64 = 100.0;
/// The keyspace of the load.
pub(super) const KEYSPACE: &str = "load";
/// What its keys begin with.
const PREFIX: &str = "key:";

/// Sites with one keyspace for the keys of the load; ended and removed with the value.
#[derive(Debug)]
pub(super) struct Deployment {
    sites: Vec<Site>,
    names: Vec<String>,
    /// Where each site's first node serves the Redis Cluster protocol.
    cluster: Vec<SocketAddr>,
    /// Where their data is; it goes after them.
    folder: TempDir,
}

impl Deployment {
    /// Starts so many sites of so many nodes, and waits until each holds its share of the slots.
    /// The keys of the load are global.
    pub(super) fn start(programs: &Programs, sites: usize, nodes: u64) -> Result<Self, String> {
        Self::start_with(programs, (sites, nodes), &["--scope", "global"])
    }

    /// The same with these properties of the keyspace of the load; without any there is none, and
    /// its keys are each site's own.
    pub(super) fn start_with(
        programs: &Programs,
        (sites, nodes): (usize, u64),
        properties: &[&str],
    ) -> Result<Self, String> {
        let folder = systems::folder()?;
        let mut all = Self {
            sites: Vec::new(),
            names: (0..sites).map(|at| format!("s{at}")).collect(),
            cluster: (0..sites).map(|_| ports::free()).collect(),
            folder,
        };
        for at in 0..sites {
            let first = all.sites.first().map(|site| site.nodes[0].options.peer);
            let (name, cluster) = (all.names[at].clone(), all.cluster[at]);
            let site = Site::start(&all.folder.path().join(&name), nodes, |options| {
                options.program.clone_from(&programs.portolan);
                options.site.clone_from(&name);
                if options.node == 1 {
                    options.join = first;
                    options.more = vec!["--redis-cluster".into(), cluster.to_string()];
                }
            });
            all.sites.push(site);
        }
        all.settle()?;
        if properties.is_empty() {
            return Ok(all);
        }
        let create = ["keyspace", "create", KEYSPACE, "--prefix", PREFIX];
        let create = [&create[..], properties].concat();
        eventually(SETTLED_MAX, || all.first(0).cli(&create))?;
        for node in all.sites.iter().flat_map(|site| &site.nodes) {
            eventually(SETTLED_MAX, || match node.cli(&["keyspace", "list"])? {
                list if list.contains(PREFIX) => Ok(()),
                list => Err(list),
            })?;
        }
        Ok(all)
    }

    /// Waits until every site holds slots and none is on its way.
    fn settle(&self) -> Result<(), String> {
        for site in 0..self.sites.len() {
            eventually(SETTLED_MAX, || {
                let listed = self.listed(site)?;
                let all_hold = self.names.iter().all(|name| listed.owners.contains(name));
                match all_hold && listed.moves == 0 {
                    true => Ok(()),
                    false => Err(format!("{listed:?}")),
                }
            })?;
        }
        Ok(())
    }

    fn listed(&self, site: usize) -> Result<Listed, String> {
        let text = self.first(site).cli(&["slot", "list", "--json"])?;
        let json: serde_json::Value = serde_json::from_str(&text).map_err(|e| e.to_string())?;
        let (owners, moves) = (json["owners"].as_array(), json["moves"].as_array());
        let owners = owners.into_iter().flatten();
        Ok(Listed {
            owners: owners.filter_map(|one| Some(one["site"].as_str()?.to_owned())).collect(),
            moves: moves.map_or(0, Vec::len),
        })
    }

    /// A site's first node.
    pub(super) fn first(&self, site: usize) -> &Node {
        &self.sites[site].nodes[0]
    }

    /// The node that leads a site.
    pub(super) fn leader(&self, site: usize) -> Result<&Node, String> {
        Ok(&self.sites[site].nodes[self.sites[site].leader()?])
    }

    pub(super) fn name(&self, site: usize) -> &str {
        &self.names[site]
    }

    /// Where a site's first node serves the Redis Cluster protocol.
    pub(super) fn cluster(&self, site: usize) -> SocketAddr {
        self.cluster[site]
    }

    /// The Redis addresses of some sites' nodes, the sites in turn, separated by commas.
    pub(super) fn redis(&self, sites: &[usize]) -> String {
        let nodes = self.sites[sites[0]].nodes.len();
        let addresses = (0..nodes)
            .flat_map(|node| sites.iter().map(move |site| (site, node)))
            .map(|(site, node)| self.sites[*site].nodes[node].options.redis.to_string());
        addresses.collect::<Vec<_>>().join(",")
    }

    /// Process ids of all nodes, separated by commas.
    pub(super) fn pids(&self) -> String {
        let pids = self.sites.iter().flat_map(Site::pids);
        pids.map(|pid| pid.to_string()).collect::<Vec<_>>().join(",")
    }

    /// Processor time that all nodes have used since their start, user and system together.
    pub(super) fn cpu_s(&self) -> Result<f64, String> {
        let pids = self.sites.iter().flat_map(Site::pids);
        pids.map(|pid| {
            let path = format!("/proc/{pid}/stat");
            let stat = std::fs::read_to_string(&path).map_err(|e| format!("{path}: {e}"))?;
            // What follows the name in parentheses begins with field 3; the times are 14 and 15.
            let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
            let ticks = fields.skip(11).take(2).filter_map(|field| field.parse::<f64>().ok());
            Ok(ticks.sum::<f64>() / TICKS_PER_SECOND)
        })
        .sum()
    }

    /// Moves some slots to a site, from any owner; returns when it owns them.
    pub(super) fn gather(&self, slots: &str, to: usize) -> Result<(), String> {
        for site in (0..self.sites.len()).filter(|site| *site != to) {
            // Its own moves are waited for.
            self.first(site).cli(&["slot", "move", slots, "--to", self.name(to)])?;
        }
        for site in 0..self.sites.len() {
            eventually(SETTLED_MAX, || match self.listed(site)?.moves {
                0 => Ok(()),
                moves => Err(format!("{moves} moves go on at {}", self.name(site))),
            })?;
        }
        Ok(())
    }

    /// Waits until the sites' backups have everything, so that what is measured is not what was
    /// written before.
    pub(super) fn mirrored(&self) -> Result<(), String> {
        for site in 0..self.sites.len() {
            eventually(SETTLED_MAX, || {
                let behind = self.counter(site, "portolan_mirror_behind_revisions")?;
                let age_ms = self.counter(site, "portolan_mirror_caught_up_age_milliseconds")?;
                match behind == 0.0 && age_ms >= 0.0 {
                    true => Ok(()),
                    false => {
                        Err(format!("{}'s mirror is {behind} revisions behind", self.name(site)))
                    }
                }
            })?;
        }
        Ok(())
    }

    /// How often, and how long, the logs of a site were made durable.
    pub(super) fn fsyncs(&self, site: usize) -> Result<Fsyncs, String> {
        let of =
            |name: &str| self.counter(site, &format!("portolan_log_fsync_duration_seconds_{name}"));
        Ok(Fsyncs { count: of("count")?, sum_s: of("sum")? })
    }

    /// A counter or gauge, summed over the nodes of a site.
    pub(super) fn counter(&self, site: usize, name: &str) -> Result<f64, String> {
        let mut sum = 0.0;
        for node in &self.sites[site].nodes {
            let (_, text) = node.admin("/metrics")?;
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            let line = line.ok_or_else(|| format!("/metrics does not contain {name}"))?;
            sum += line.trim().parse::<f64>().map_err(|e| format!("{name} {line}: {e}"))?;
        }
        Ok(sum)
    }
}

/// The disk metrics of a site's nodes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fsyncs {
    count: f64,
    sum_s: f64,
}

impl Fsyncs {
    /// The mean of those since then.
    pub(super) fn mean_us_since(self, before: Fsyncs) -> f64 {
        (self.sum_s - before.sum_s) / (self.count - before.count).max(1.0) * 1e6
    }
}

#[derive(Debug)]
struct Listed {
    owners: Vec<String>,
    moves: usize,
}
