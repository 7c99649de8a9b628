//! One moment of the run, copied out so that it can be drawn without holding anybody up.

use std::time::Duration;

use lab::{
    geo::Point,
    measure::{Counters, Event, Summary},
    world::World,
};

use super::{hazards::Operation, scene::Scene};

/// Newest events shown.
const EVENTS_SHOWN: usize = 6;

/// What a node is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// It leads its site.
    Leader,
    /// It follows, or is looking for a leader.
    Follower,
    /// It was stopped.
    Down,
}

/// One site at one moment.
#[derive(Debug, Clone)]
pub(super) struct SitePicture {
    /// Its name.
    pub(super) name: String,
    /// Where it stands.
    pub(super) at: Point,
    /// What its nodes are doing.
    pub(super) nodes: Vec<Role>,
    /// Vehicles attached to it.
    pub(super) attached: usize,
    /// Operations it has answered.
    pub(super) operations: u64,
}

/// The run at one moment.
#[derive(Debug, Clone)]
pub(super) struct Picture {
    /// Since the start.
    pub(super) elapsed: Duration,
    /// How long it will run.
    pub(super) length: Duration,
    /// The tracks' time, in seconds.
    pub(super) t_s: f64,
    /// The last whole second, and the run so far, by operation in the order of `Operation::NAMES`.
    pub(super) operations: Vec<(&'static str, Summary, Summary)>,
    /// The same of all operations together.
    pub(super) all: (Summary, Summary),
    /// What happened so far.
    pub(super) counters: Counters,
    /// The newest events, oldest first.
    pub(super) events: Vec<Event>,
    /// The sites.
    pub(super) sites: Vec<SitePicture>,
    /// Vehicles on the road and the sites they are attached to.
    pub(super) vehicles: Vec<(Point, usize)>,
}

impl Picture {
    /// Copies what is seen now; `roles` are the nodes' by site.
    pub(super) fn take(
        world: &World,
        scene: &Scene,
        roles: Vec<Vec<Role>>,
        t_s: f64,
        length: Duration,
    ) -> Self {
        let elapsed = scene.elapsed();
        let mut seen = scene.lock();
        seen.measure.advance(elapsed);
        let vehicles: Vec<(Point, usize)> = seen.vehicles.iter().flatten().copied().collect();
        let last = seen.measure.seconds().last();
        let operations = Operation::NAMES.iter().zip(seen.measure.operations()).enumerate();
        let operations = operations
            .map(|(index, (name, operation))| {
                let last = last.map_or_else(Summary::default, |second| second.operations[index]);
                (*name, last, operation.summary())
            })
            .collect();
        let sites = world.sites.iter().zip(roles).enumerate();
        let sites = sites
            .map(|(index, (site, nodes))| SitePicture {
                name: site.name.to_string(),
                at: site.at,
                nodes,
                attached: vehicles.iter().filter(|(_, attached)| *attached == index).count(),
                operations: seen.sites[index],
            })
            .collect();
        let events = seen.measure.events();
        Self {
            elapsed,
            length,
            t_s,
            operations,
            all: (last.map_or_else(Summary::default, |second| second.all), seen.measure.summary()),
            counters: seen.measure.counters(),
            events: events[events.len().saturating_sub(EVENTS_SHOWN)..].to_vec(),
            sites,
            vehicles,
        }
    }
}
