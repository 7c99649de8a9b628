//! One moment of the run, copied out so that it can be drawn without holding the run up.

use std::time::Duration;

use lab::{
    geo::Point,
    measure::{Counters, Event, Summary},
    world::World,
};

use super::{
    city::Holding, comparison::Sides, course::Course, loans::Moved, operation::Operation,
    records::Found, scene::Scene, trips,
};

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
    /// Its site is not there.
    Absent,
}

/// What a site is to the deployment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum SiteLifecycle {
    /// It has not come yet.
    Expected,
    /// It is joining.
    Joining,
    /// It is there.
    #[default]
    Here,
    /// It is handing everything over.
    Leaving,
    /// It has left.
    Left,
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
    /// Whether it has come, and stays.
    pub(super) lifecycle: SiteLifecycle,
    /// What it holds of the global keys.
    pub(super) holding: Holding,
    /// Groups of its keys that it lends to other sites.
    pub(super) lent: u64,
}

/// What is looked at in the city itself.
#[derive(Debug, Clone)]
pub(super) struct Sites {
    /// What each site's nodes are doing.
    pub(super) roles: Vec<Vec<Role>>,
    /// Whether each is there.
    pub(super) lifecycles: Vec<SiteLifecycle>,
    /// What each holds of the global keys.
    pub(super) holdings: Vec<Holding>,
    /// What has begun and is not over.
    pub(super) waits_for: Option<&'static str>,
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
    /// What has begun and is not over.
    pub(super) waits_for: Option<&'static str>,
    /// What vehicles found in their own records.
    pub(super) found: Found,
    /// What vehicles found in trips, and how long their sessions waited at the sites that they came
    /// to.
    pub(super) trips: (trips::Found, Summary),
    /// Records that follow their users, and records placed by hash.
    pub(super) sides: Sides,
    /// The same window by window, and the groups moved.
    pub(super) course: Course,
    /// What moving groups brought.
    pub(super) moved: Moved,
    /// Vehicles on the road and the sites they are attached to.
    pub(super) vehicles: Vec<(Point, usize)>,
}

impl Picture {
    /// Copies what is seen now.
    pub(super) fn take(
        world: &World,
        scene: &Scene,
        sites: Sites,
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
        let Sites { roles, lifecycles, holdings, waits_for } = sites;
        let sites = world.sites.iter().zip(roles).enumerate();
        let sites = sites
            .map(|(index, (site, nodes))| SitePicture {
                name: site.name.to_string(),
                at: site.at,
                nodes,
                attached: seen.attached(index),
                operations: seen.sites[index],
                lifecycle: lifecycles[index],
                holding: holdings[index],
                lent: seen.loans.lent(index),
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
            waits_for,
            found: seen.records.found(),
            trips: (seen.trips.found(), seen.attach_waits()),
            sides: seen.comparison.sides(),
            course: seen.comparison.course(elapsed),
            moved: seen.loans.moved(),
            vehicles,
        }
    }

    /// Slots that are on their way to other sites, and in how many moves.
    pub(super) fn on_their_way(&self) -> (usize, usize) {
        let each = self.sites.iter().map(|site| site.holding);
        each.fold((0, 0), |(slots, moves), one| (slots + one.going, moves + one.moves))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::{comparison::Side, course::tests::falling};
    use super::*;

    /// The world of [`crowded`].
    pub(in super::super) fn crowded_world() -> World {
        lab::world::ready::san_francisco()
    }

    /// A moment with large numbers and one of everything.
    pub(in super::super) fn crowded(world: &World) -> Picture {
        let summary = Summary { count: 42, p50_ms: 9.5, p90_ms: 11.0, p99_ms: 12.5, max_ms: 20.0 };
        let total = Summary { count: 1_234_567, ..summary };
        let lifecycles = [
            SiteLifecycle::Expected,
            SiteLifecycle::Joining,
            SiteLifecycle::Leaving,
            SiteLifecycle::Left,
        ];
        let sites = world.sites.iter().enumerate().map(|(index, site)| SitePicture {
            name: site.name.to_string(),
            at: site.at,
            nodes: if site.nodes == 3 {
                vec![Role::Down, Role::Leader, Role::Follower]
            } else {
                vec![Role::Leader]
            },
            attached: 1,
            operations: 77,
            lifecycle: lifecycles.get(index).copied().unwrap_or_default(),
            holding: match index {
                1 => Holding { slots: 901, going: 0, moves: 0 },
                2 => Holding { slots: 1_902, going: 300, moves: 2 },
                4 => Holding { slots: 1_904, going: 12, moves: 1 },
                _ => Holding { slots: 1_900, going: 0, moves: 0 },
            },
            lent: 1_234,
        });
        let event =
            |at, label: &str| Event { at: Duration::from_secs(at), label: label.to_owned() };
        let long = "pacific-heights hands over 1820 slots and has left the deployment";
        Picture {
            elapsed: Duration::from_secs(15),
            length: Duration::from_secs(60),
            t_s: 29_700.0,
            operations: Operation::NAMES.map(|name| (name, summary, total)).into(),
            all: (summary, total),
            counters: Counters { moves: 12_345, retries: 123, errors: 12, ..Counters::default() },
            events: vec![
                event(11, long),
                event(12, long),
                event(13, long),
                event(14, "it happened"),
            ],
            vehicles: world.sites.iter().map(|site| site.at).zip(0..).collect(),
            sites: sites.collect(),
            waits_for: Some("a site that joins"),
            found: Found { after_moving: 31, late: 0, wrong: 0 },
            trips: (
                trips::Found { reads: 12_345, ..trips::Found::default() },
                Summary { p50_ms: 12.5, p99_ms: 1_234.0, ..total },
            ),
            sides: [
                Side { latency: total, own_site_percent: Some(83) },
                Side { latency: Summary { p50_ms: 1_041.2, ..total }, own_site_percent: Some(9) },
            ],
            course: falling(),
            moved: Moved { groups: 12_345, bytes: 1_234_567, saved_us: 1_234_567_890 },
        }
    }
}
