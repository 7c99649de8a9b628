//! One run: a world, a workload, a strategy and a seed.

use std::fmt;
use std::sync::Arc;

use super::optimal::{Optimal, Oracle};
use super::play::{Measured, Rules, by_hash, play};
use super::strategy::{Goal, Ours, Rule, Still, Windowed};
use super::workload::{Load, Workload};
use super::world::{TIERS, Tiers, World};
use crate::mobility::Track;
use crate::paper::portkey::Size;

/// Where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scene {
    /// The paper's testbed.
    Base,
    /// The lower end of each tier five times as high, the tiers as wide.
    Slow,
    /// The upper end of each tier five times as high.
    PeerToPeer,
    /// All latencies the same.
    FastWired,
    /// Only so many percent of the access points have a site.
    Density(u8),
    /// The testbed from a cold start, measured at once.
    Cold,
    /// Links of so many megabits a second.
    Mbps(u16),
    /// Ten small computers in one building; decisions begin after 120 s.
    Building,
    /// Nine small computers on three campuses; decisions begin after 120 s.
    Campuses,
    /// Recorded cabs.
    Cabs,
}

/// What decides where keys are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Strategy {
    /// Hash placement.
    Random,
    /// The site nearest to a random client.
    Accessing,
    /// The site nearest to the client with the most accesses.
    Dominant,
    /// Portkey's greedy.
    Portkey,
    /// Ours.
    Ours,
    /// The same, counted by the site that each client is attached to: what sites do where clients
    /// have no names.
    OursBySite,
    /// Ours, and all clients of a key are counted in place of four.
    OursWhole,
    /// It is given places and rates of the future, and pays for its moves.
    Optimal,
    /// It is given each access of the future, and moves for nothing.
    Oracle,
}

impl Strategy {
    /// All of them.
    pub const ALL: [Strategy; 9] = [
        Strategy::Random,
        Strategy::Accessing,
        Strategy::Dominant,
        Strategy::Portkey,
        Strategy::Ours,
        Strategy::OursBySite,
        Strategy::OursWhole,
        Strategy::Optimal,
        Strategy::Oracle,
    ];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Strategy::Random => "random",
            Strategy::Accessing => "accessing node",
            Strategy::Dominant => "dominant node",
            Strategy::Portkey => "Portkey",
            Strategy::Ours => "ours",
            Strategy::OursBySite => "ours, by site",
            Strategy::OursWhole => "ours, all clients",
            Strategy::Optimal => "optimal, pays",
            Strategy::Oracle => "oracle, free",
        }
    }

    /// Whether it can decide for the tail.
    #[must_use]
    pub fn has_objective(self) -> bool {
        !matches!(self, Strategy::Random | Strategy::Accessing | Strategy::Dominant)
    }
}

/// A run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Point {
    /// Where it is.
    pub scene: Scene,
    /// What is accessed.
    pub workload: Workload,
    /// What decides.
    pub strategy: Strategy,
    /// For the 95th percentile in place of the mean.
    pub tail: bool,
    /// Of all that is random.
    pub seed: u64,
    /// How long it is.
    pub size: Size,
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let objective = if self.tail { ", p95" } else { "" };
        let (workload, strategy) = (self.workload.name(), self.strategy.name());
        write!(f, "{:?}, {workload}, {strategy}{objective}, seed {}", self.scene, self.seed)
    }
}

/// Clients of the testbed.
pub const CLIENTS: usize = 32;
/// Recorded clients, at most.
const CABS: usize = 64;
/// Megabits a second where nothing else is stated.
const MBPS: f64 = 1_000.0;

/// What a point runs in.
pub(super) struct Stage {
    pub(super) world: World,
    pub(super) load: Load,
    pub(super) rules: Rules,
}

impl Point {
    /// The run of the testbed.
    #[must_use]
    pub fn new(
        scene: Scene,
        workload: Workload,
        strategy: Strategy,
        seed: u64,
        size: Size,
    ) -> Point {
        Point { scene, workload, strategy, tail: false, seed, size }
    }

    /// The same for the 95th percentile, where the strategy can.
    #[must_use]
    pub fn for_tail(self) -> Point {
        Point { tail: self.strategy.has_objective(), ..self }
    }

    /// Seconds before the measurement, and of it.
    fn seconds(&self) -> (usize, usize) {
        match (self.scene, self.size) {
            (Scene::Cold, Size::Paper) => (0, 300),
            (Scene::Cold, Size::Quick) => (0, 90),
            (Scene::Building | Scene::Campuses, Size::Paper) => (180, 300),
            (Scene::Building | Scene::Campuses, Size::Quick) => (60, 60),
            (Scene::Cabs, Size::Paper) => (60, 1_800),
            (_, Size::Paper) => (60, 600),
            (_, Size::Quick) => (20, 40),
        }
    }

    /// Where it runs. `cabs`: recorded tracks.
    pub(super) fn stage(&self, cabs: &[Track]) -> Stage {
        let (warm_s, measured_s) = self.seconds();
        let (seconds, seed) = (warm_s + measured_s, self.seed);
        let grid = |tiers: Tiers| World::grid(tiers, CLIENTS, seconds, seed);
        let (mut keys_of_client, mut rate_hz) = (16, self.workload.rate_hz());
        let world = match self.scene {
            Scene::Base | Scene::Cold | Scene::Mbps(_) => grid(TIERS),
            Scene::Slow => grid(TIERS.map(|(low, high)| (5.0 * low, 4.0 * low + high))),
            Scene::PeerToPeer => grid(TIERS.map(|(low, high)| (low, 5.0 * high))),
            Scene::FastWired => grid([(5.0, 5.0); 3]),
            Scene::Density(percent) => grid(TIERS).with_density(usize::from(percent), seed),
            Scene::Building => {
                (keys_of_client, rate_hz) = (2, 4.0);
                building(seconds, seed)
            }
            Scene::Campuses => {
                (keys_of_client, rate_hz) = (1, 2.0);
                campuses(seconds, seed)
            }
            Scene::Cabs => {
                (keys_of_client, rate_hz) = (1, 2.0);
                World::recorded(cabs, CABS, seconds, seed)
            }
        };
        if let Scene::Mbps(_) = self.scene {
            // As much as links of 1 Mbit/s can carry.
            rate_hz = 10.0;
        }
        let is_real = matches!(self.scene, Scene::Building | Scene::Campuses);
        let starts_s = if is_real { warm_s * 2 / 3 } else { 0 };
        let mbps = if let Scene::Mbps(mbps) = self.scene { f64::from(mbps) } else { MBPS };
        let load = Load::new(self.workload, &world, keys_of_client, rate_hz);
        Stage { world, load, rules: Rules { warm_s, starts_s, mbps } }
    }

    /// Runs it.
    #[must_use]
    pub fn run(&self, cabs: &Arc<[Track]>) -> Measured {
        let Stage { world, load, rules } = self.stage(cabs);
        if world.places.is_empty() {
            return Measured::default();
        }
        let accesses = load.accesses(&world, self.seed);
        let owners = by_hash(&world, load.keys(), self.seed);
        let (keys, tail) = (load.keys(), self.tail);
        let windowed = |rule| Windowed::new(&world, keys, rule, Vec::new(), self.seed);
        let run = |decider: &mut dyn super::play::Decide| {
            play(&world, &accesses, owners.clone(), decider, rules, &mut |_, _| {})
        };
        match self.strategy {
            Strategy::Random => run(&mut Still),
            Strategy::Accessing => run(&mut windowed(Rule::Accessing)),
            Strategy::Dominant => run(&mut windowed(Rule::Dominant)),
            Strategy::Portkey => run(&mut windowed(Rule::Portkey { tail })),
            Strategy::Ours | Strategy::OursBySite | Strategy::OursWhole => {
                let whole = self.strategy == Strategy::OursWhole;
                let by_site = self.strategy == Strategy::OursBySite;
                let goal = Goal { tail, whole, by_site, ..Goal::default() };
                run(&mut Ours::new(&world, keys, goal, self.seed))
            }
            Strategy::Optimal => run(&mut Optimal::new(&world, &load, tail)),
            Strategy::Oracle => run(&mut Oracle::new(&world, &accesses, tail)),
        }
    }
}

/// Ten small computers, each the client of its own keys, over one wireless network.
fn building(seconds: usize, seed: u64) -> World {
    let range = |origin, site| if origin == site { (1.0, 3.0) } else { (10.0, 20.0) };
    let own = |client: usize| vec![client as u16];
    World::new(10, seed, range).with_roaming(10, seconds, 1_000_000, seed, own)
}

/// Nine small computers on three campuses, and phones that change the campus, or the network, now
/// and then.
fn campuses(seconds: usize, seed: u64) -> World {
    let range = |origin: usize, site: usize| match origin / 3 == site / 3 {
        true if origin == site => (5.0, 15.0),
        true => (10.0, 20.0),
        false => (30.0, 45.0),
    };
    World::new(9, seed, range).with_roaming(24, seconds, 120, seed, |_| (0..9).collect())
}
