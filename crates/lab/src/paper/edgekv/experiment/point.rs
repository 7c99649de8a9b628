//! One run: which setting, which load.

use std::fmt;
use std::time::Duration;

use crate::paper::edgekv::{Measured, Size};
use model::{Cache, limits};

use crate::clients::gateways::Gateways;
use crate::link::Link;
use crate::run::{self, Options};
use crate::workload::choice::Choice;
use crate::workload::pace::{Arrivals, Pace};
use crate::workload::{Spec, ycsb::Variant, ycsb::Ycsb};
use crate::world::{World, ready};

/// What all runs draw from: they differ in what is asked, not in luck.
const SEED: u64 = 2020;
/// No run takes longer, whatever it has left to do; in virtual time.
const DURATION_MAX: Duration = Duration::from_secs(3_600);
/// How long a node works on a request: 30,000 a second for three (etcd's documents).
pub(in crate::paper::edgekv) const REQUEST_US: u32 = 100;
/// Store nodes and gateways in the edge setting, and in the cloud: one way in ms, and Mbit/s.
const EDGE: [(f64, f64); 2] = [(2.0, 750.0), (10.0, 500.0)];
const CLOUD: [(f64, f64); 2] = [(0.05, 1_000.0), (0.05, 1_000.0)];

/// Where the store is, and how requests go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Setting {
    /// Near its clients; global keys over gateways.
    Edge,
    /// Far from its clients; global keys over gateways.
    Cloud,
    /// Near its clients; global keys directly from their owners.
    Ours,
    /// As ours, with copies that their owners are asked about.
    Cached,
    /// As ours, and reads of global keys may be stale, from copies.
    Stale,
}

impl Setting {
    /// All of them, in the order of tables.
    pub const ALL: [Setting; 5] =
        [Setting::Edge, Setting::Cloud, Setting::Ours, Setting::Cached, Setting::Stale];

    /// What nodes do with copies of remote keys.
    fn cache(self) -> Cache {
        let bytes_max = limits::CACHE_BYTES_DEFAULT;
        match self {
            Setting::Edge | Setting::Cloud | Setting::Ours => Cache::Off,
            Setting::Cached => Cache::Validated { bytes_max },
            Setting::Stale => Cache::Stale { bytes_max, age_ms_max: limits::CACHE_AGE_MS_DEFAULT },
        }
    }

    /// Its short name.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Setting::Edge => "edge",
            Setting::Cloud => "cloud",
            Setting::Ours => "ours",
            Setting::Cached => "cached",
            Setting::Stale => "stale",
        }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Setting::Edge => "edge, over gateways",
            Setting::Cloud => "cloud, over gateways",
            Setting::Ours => "edge, direct (ours)",
            Setting::Cached => "ours, copies validated",
            Setting::Stale => "ours, stale reads from copies",
        })
    }
}

/// How keys are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Keys {
    /// Each as often as any other.
    Uniform,
    /// A few very often.
    Zipfian,
    /// The newest most often.
    Latest,
}

impl Keys {
    /// All of them, in the paper's order.
    pub const ALL: [Keys; 3] = [Keys::Uniform, Keys::Zipfian, Keys::Latest];

    fn choice(self) -> Choice {
        match self {
            Keys::Uniform => Choice::Uniform,
            Keys::Zipfian => Choice::Zipfian,
            Keys::Latest => Choice::Latest,
        }
    }
}

impl fmt::Display for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Keys::Uniform => "uniform",
            Keys::Zipfian => "zipfian",
            Keys::Latest => "latest",
        })
    }
}

/// One run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Point {
    /// The setting.
    pub setting: Setting,
    /// Groups, each with a client machine.
    pub groups: usize,
    /// Of a hundred operations, how many are about global keys.
    pub global_percent: u32,
    /// How keys are chosen.
    pub keys: Keys,
    /// Threads of each client machine.
    pub threads: usize,
    /// Operations a second of each machine; `None`: as many as come.
    pub rate_hz: Option<u32>,
    /// Records that there are.
    pub records: u64,
    /// How long their values are.
    pub value_bytes: usize,
    /// Whether nearly all operations are reads (YCSB's workload B) instead of half of them (A).
    pub mostly_reads: bool,
    /// Operations of each machine.
    pub operations: u64,
    /// How long a node works on a request of its clients, µs.
    pub request_us: u32,
}

impl Point {
    /// The paper's usual load: three groups, half of the operations global, 100 threads.
    #[must_use]
    pub fn usual(setting: Setting, size: Size) -> Point {
        let (threads, records, operations) = match size {
            Size::Paper => (100, 10_000, 10_000),
            Size::Quick => (20, 200, 400),
        };
        Point {
            setting,
            groups: 3,
            global_percent: 50,
            keys: Keys::Zipfian,
            threads,
            rate_hz: None,
            records,
            value_bytes: 100,
            mostly_reads: false,
            operations,
            request_us: REQUEST_US,
        }
    }

    /// The world of the run.
    ///
    /// # Panics
    /// Never: the worlds come with the program.
    #[must_use]
    pub fn world(&self) -> World {
        let name = if self.setting == Setting::Cloud { "edgekv-cloud" } else { "edgekv" };
        let mut world = ready::load(name, None).unwrap_or_else(|error| panic!("{error}"));
        world.sites.truncate(self.groups);
        world.clients.truncate(self.groups);
        world.chances = None;
        world.node.request_ms = f64::from(self.request_us) / 1_000.0;
        let choice = Some(self.keys.choice());
        let (records, value_bytes) = (self.records, self.value_bytes);
        for keyspace in &mut world.keyspaces {
            keyspace.cache = self.setting.cache();
        }
        for group in &mut world.clients {
            group.count = self.threads;
            group.operations = Some(self.operations);
            let variant = if self.mostly_reads { Variant::B } else { Variant::A };
            let ycsb = Ycsb { variant, records, value_bytes, choice };
            group.workload = Spec::Ycsb(ycsb);
            if let Some(rate_hz) = self.rate_hz {
                let rate_hz = f64::from(rate_hz) / self.threads as f64;
                group.pace = Pace::Open { rate_hz, arrivals: Arrivals::Poisson };
            }
            for also in &mut group.also {
                also.share = f64::from(self.global_percent) / 100.0;
                also.stale_reads = self.setting == Setting::Stale;
            }
            // One group for itself is no deployment.
            if self.groups == 1 {
                group.also.clear();
            }
        }
        if self.groups == 1 {
            world.keyspaces.clear();
        }
        world
    }

    /// How requests about global keys go.
    #[must_use]
    pub fn gateways(&self) -> Option<Gateways> {
        let [node, gateway] = match self.setting {
            Setting::Ours | Setting::Cached | Setting::Stale => return None,
            Setting::Edge => EDGE,
            Setting::Cloud => CLOUD,
        };
        let link = |(ms, mbps)| Link { mbps: Some(mbps), ..Link::constant(ms) };
        Some(Gateways { node: link(node), gateway: link(gateway) })
    }

    /// Runs it.
    ///
    /// # Errors
    /// Something went wrong that must not: an operation failed, or a promise was broken.
    pub fn run(&self) -> Result<Measured, String> {
        let world = self.world();
        let options = Options {
            seed: Some(SEED),
            duration: Some(DURATION_MAX),
            gateways: self.gateways(),
            ..Options::default()
        };
        let ran = run::run(&world, &options);
        if let Some(wrong) = ran.wrongs().first() {
            return Err(format!("{self}: {wrong}"));
        }
        let mut measured = Measured::of(&ran.history);
        measured.inter_site_bytes = ran.figures.inter_site_bytes / measured.operations.max(1);
        let wanted = self.operations * self.groups as u64;
        match measured.operations == wanted {
            true => Ok(measured),
            false => {
                Err(format!("{self}: {} of {wanted} operations were done", measured.operations))
            }
        }
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Point { setting, groups, global_percent, keys, threads, .. } = self;
        write!(f, "{setting}: {groups} × {threads} threads, {global_percent} % global, {keys}")?;
        if self.value_bytes != 100 {
            write!(f, ", {} bytes", self.value_bytes)?;
        }
        if self.mostly_reads {
            f.write_str(", 95 % reads")?;
        }
        if self.request_us != REQUEST_US {
            write!(f, ", {} µs of work", self.request_us)?;
        }
        self.rate_hz.map_or(Ok(()), |rate_hz| write!(f, ", {rate_hz}/s"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_points_world_is_that_of_the_paper() {
        let point = Point::usual(Setting::Edge, Size::Paper);
        let world = point.world();
        let nodes: Vec<usize> = world.sites.iter().map(|site| site.nodes).collect();
        assert_eq!((nodes, world.client_count()), (vec![3, 3, 3], 300));
        let client = world.client_link(world.sites[0].at, 0);
        assert_eq!(client, Link { mbps: Some(100.0), ..Link::constant(5.0) });
        assert_eq!(world.node_link(0), Link { mbps: Some(1_000.0), ..Link::constant(2.0) });
        let Gateways { node, gateway } = point.gateways().unwrap();
        assert_eq!((node.latency.mean_ms(), gateway.latency.mean_ms()), (2.0, 10.0));
        // As long as the way over both gateways.
        assert_eq!(world.site_link(0, 1).latency.mean_ms(), 14.0);
        for group in &world.clients {
            assert_eq!((group.operations, group.workload.value_bytes()), (Some(10_000), 100));
            assert_eq!(group.also[0].share, 0.5);
        }
        let caches =
            Setting::ALL.map(|setting| Point { setting, ..point }.world().keyspaces[0].cache);
        assert_eq!(caches.map(Cache::is_on), [false, false, false, true, true]);
        let cloud = Point { setting: Setting::Cloud, ..point };
        assert_eq!(cloud.world().client_link(world.sites[0].at, 0).latency.mean_ms(), 50.0);
        assert_eq!(Point { setting: Setting::Ours, ..point }.gateways(), None);
    }

    #[test]
    fn one_group_has_keys_of_its_own_only() {
        let usual = Point::usual(Setting::Edge, Size::Quick);
        let world = Point { groups: 1, global_percent: 0, ..usual }.world();
        assert_eq!((world.sites.len(), world.clients.len(), world.keyspaces.len()), (1, 1, 0));
        assert!(world.clients[0].also.is_empty());
    }

    #[test]
    fn a_rate_is_that_of_a_machine() {
        let usual = Point::usual(Setting::Edge, Size::Paper);
        let world = Point { rate_hz: Some(200), ..usual }.world();
        let Pace::Open { rate_hz, .. } = world.clients[0].pace else { panic!("not open") };
        assert_eq!(rate_hz, 2.0);
    }
}
