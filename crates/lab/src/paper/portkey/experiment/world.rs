//! Sites in a grid, how far clients are from them, and where each client is in each second.
//!
//! An *origin* is the access point that a client is nearest to; there is one at each site. All
//! clients of an origin are equally far from a site: the latency between them is drawn once a world
//! from the range of its tier, as the paper assigns it (§2.2), and each access takes up to 10 %
//! more or less.

use crate::geo::{Grid, Point};
use crate::mobility::Track;
use crate::random::Random;

/// Sites in a row and in a column of the paper's testbed.
pub const SIDE: usize = 5;
/// Metres between two access points.
const APART_M: f64 = 400.0;
/// The paper's: in so many of the windows of 10 s at least one client changes its access point.
pub const SWITCH_SHARE: f64 = 0.72;
/// The paper's window, in seconds.
pub const WINDOW_S: usize = 10;
/// Legs of a generated way: more than a client covers in the longest run.
const LEGS: usize = 60;
/// By so much an access differs from the latency of its pair, at most.
pub const JITTER: f32 = 0.1;

/// The ranges of latencies, in ms: of the local site, of those around it, of all others.
pub type Tiers = [(f32, f32); 3];

/// The paper's.
pub const TIERS: Tiers = [(5.0, 10.0), (20.0, 30.0), (40.0, 50.0)];

/// Where sites and clients are.
#[derive(Debug, Clone)]
pub struct World {
    /// The number of sites, and of origins.
    pub sites: usize,
    /// From each origin to each site, row by row.
    pub ms: Vec<f32>,
    /// Whether a site may hold keys.
    pub open: Vec<bool>,
    /// Of each client, second by second: its origin, if it is anywhere.
    pub places: Vec<Vec<Option<u16>>>,
}

impl World {
    /// The testbed: 25 sites in a grid, the 8 around a site in its region, and clients that drive.
    #[must_use]
    pub fn grid(tiers: Tiers, clients: usize, seconds: usize, seed: u64) -> World {
        World { places: drive(clients, seconds, seed), ..World::empty_grid(tiers, seed) }
    }

    /// The same with recorded clients: those that are longest in the grid, which is laid around the
    /// median of all reports. A client that is elsewhere makes no accesses.
    #[must_use]
    pub fn recorded(tracks: &[Track], clients: usize, seconds: usize, seed: u64) -> World {
        let mut places = recorded_places(tracks, seconds);
        let seconds_in = |places: &Vec<Option<u16>>| places.iter().flatten().count();
        places.sort_by_key(|places| std::cmp::Reverse(seconds_in(places)));
        places.truncate(clients);
        places.retain(|places| seconds_in(places) > 0);
        World { places, ..World::empty_grid(TIERS, seed) }
    }

    fn empty_grid(tiers: Tiers, seed: u64) -> World {
        let tier = |origin: usize, site: usize| {
            let column = (origin % SIDE).abs_diff(site % SIDE);
            let row = (origin / SIDE).abs_diff(site / SIDE);
            column.max(row).min(2)
        };
        World::new(SIDE * SIDE, seed, |origin, site| tiers[tier(origin, site)])
    }

    /// Sites whose latencies lie in those ranges, without clients.
    #[must_use]
    pub fn new(sites: usize, seed: u64, range: impl Fn(usize, usize) -> (f32, f32)) -> World {
        let mut random = Random::stream(seed, "latency", 0);
        let mut draw = |cell: usize| {
            let (low, high) = range(cell / sites, cell % sites);
            low + (high - low) * random.fraction() as f32
        };
        let ms = (0..sites * sites).map(&mut draw).collect();
        World { sites, ms, open: vec![true; sites], places: Vec::new() }
    }

    /// Clients that roam: each second one in so many goes to another origin of those it may be at.
    #[must_use]
    pub fn with_roaming(
        self,
        clients: usize,
        seconds: usize,
        stay_s: u64,
        seed: u64,
        may_be: impl Fn(usize) -> Vec<u16>,
    ) -> World {
        let way = |client: usize| {
            let mut random = Random::stream(seed, "roaming", client as u64);
            let origins = may_be(client);
            let mut at = *random.pick(&origins);
            let mut next = |_| {
                if random.below(stay_s) == 0 {
                    at = *random.pick(&origins);
                }
                Some(at)
            };
            (0..seconds).map(&mut next).collect()
        };
        World { places: (0..clients).map(way).collect(), ..self }
    }

    /// Only so many percent of the sites hold keys, drawn at random.
    #[must_use]
    pub fn with_density(mut self, percent: usize, seed: u64) -> World {
        let mut random = Random::stream(seed, "density", 0);
        let mut closed = self.sites - (self.sites * percent / 100).max(1);
        while closed > 0 {
            let site = random.below(self.sites as u64) as usize;
            closed -= usize::from(std::mem::replace(&mut self.open[site], false));
        }
        self
    }

    /// The latency of a pair.
    #[must_use]
    pub fn latency_ms(&self, origin: u16, site: u16) -> f32 {
        self.ms[usize::from(origin) * self.sites + usize::from(site)]
    }

    /// The latency to the nearest site that holds keys.
    #[must_use]
    pub fn nearest_ms(&self, origin: u16) -> f32 {
        let open = (0..self.sites as u16).filter(|site| self.open[usize::from(*site)]);
        open.map(|site| self.latency_ms(origin, site)).fold(f32::INFINITY, f32::min)
    }

    /// The latency to the nearest site that holds keys and is farther than that.
    #[must_use]
    pub fn beyond_nearest_ms(&self, origin: u16) -> f32 {
        let nearest_ms = self.nearest_ms(origin);
        let open = (0..self.sites as u16).filter(|site| self.open[usize::from(*site)]);
        let farther = open.map(|site| self.latency_ms(origin, site)).filter(|ms| *ms > nearest_ms);
        farther.fold(f32::INFINITY, f32::min)
    }

    /// How long a client stays at an origin, in seconds, on average.
    #[must_use]
    pub fn residence_s(&self) -> f64 {
        let changes = |places: &Vec<Option<u16>>| {
            places.windows(2).filter(|two| two[0] != two[1] && two[1].is_some()).count()
        };
        let there: usize = self.places.iter().map(|places| places.iter().flatten().count()).sum();
        there as f64 / self.places.iter().map(changes).sum::<usize>().max(1) as f64
    }
}

/// The share of windows in which at least one client changes its origin.
fn switch_share(places: &[Vec<Option<u16>>]) -> f64 {
    let windows = places.first().map_or(0, Vec::len) / WINDOW_S;
    let switches = |window: &usize| {
        let (from, to) = (window * WINDOW_S, (window + 1) * WINDOW_S - 1);
        places.iter().any(|places| places[from..=to].windows(2).any(|two| two[0] != two[1]))
    };
    (0..windows).filter(switches).count() as f64 / windows.max(1) as f64
}

/// Clients that drive straight from one random place to the next, all at the one speed at which
/// their changes of access points have the paper's share. That is known of 32 clients; others drive
/// as fast as those.
fn drive(clients: usize, seconds: usize, seed: u64) -> Vec<Vec<Option<u16>>> {
    const PAPERS: usize = 32;
    // A share of windows needs many of them.
    let measured_s = seconds.max(600);
    let ways: Vec<Way> = (0..clients.max(PAPERS)).map(|client| Way::new(seed, client)).collect();
    let places = |speed: f64, count: usize, seconds: usize| -> Vec<Vec<Option<u16>>> {
        ways[..count].iter().map(|way| way.places(speed, seconds)).collect()
    };
    let (mut low, mut high) = (0.1, 20.0);
    for _ in 0..16 {
        let middle = (low + high) / 2.0;
        let is_slow = switch_share(&places(middle, PAPERS, measured_s)) < SWITCH_SHARE;
        if is_slow { low = middle } else { high = middle }
    }
    places(high, clients, seconds)
}

/// Straight legs between random places of the grid, in metres.
struct Way(Vec<(f64, f64)>);

impl Way {
    fn new(seed: u64, client: usize) -> Way {
        let mut random = Random::stream(seed, "way", client as u64);
        let side_m = SIDE as f64 * APART_M;
        Way((0..LEGS).map(|_| (random.fraction() * side_m, random.fraction() * side_m)).collect())
    }

    fn places(&self, speed: f64, seconds: usize) -> Vec<Option<u16>> {
        let (mut leg, mut before_m) = (0, 0.0);
        let mut at = |second: usize| {
            let way_m = speed * second as f64;
            loop {
                let [from, to] = [self.0[leg], self.0[(leg + 1) % self.0.len()]];
                let long_m = (to.0 - from.0).hypot(to.1 - from.1).max(1e-6);
                if way_m - before_m < long_m || leg + 2 == self.0.len() {
                    let part = ((way_m - before_m) / long_m).min(1.0);
                    let zone = |from: f64, to: f64| {
                        (((from + (to - from) * part) / APART_M) as usize).min(SIDE - 1)
                    };
                    return Some((zone(from.1, to.1) * SIDE + zone(from.0, to.0)) as u16);
                }
                (leg, before_m) = (leg + 1, before_m + long_m);
            }
        };
        (0..seconds).map(&mut at).collect()
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

fn recorded_places(tracks: &[Track], seconds: usize) -> Vec<Vec<Option<u16>>> {
    let Some((first_s, last_s)) = crate::mobility::span_s(tracks) else { return Vec::new() };
    let start_s = f64::midpoint(first_s, last_s).min(last_s - seconds as f64).max(first_s);
    let all = |of: fn(&Point) -> f64| {
        median(tracks.iter().flat_map(|track| track.fixes()).map(|fix| of(&fix.at)).collect())
    };
    let center = Point::new(all(|at| at.lat), all(|at| at.lon));
    let grid = Grid::new(center, APART_M);
    let half = SIDE as f64 / 2.0;
    let origin = |at: Point| {
        let (east_m, north_m) = grid.meters(at);
        let (column, row) = (east_m / APART_M + half, north_m / APART_M + half);
        let is_in = |value: f64| (0.0..SIDE as f64).contains(&value);
        (is_in(column) && is_in(row)).then(|| (row as usize * SIDE + column as usize) as u16)
    };
    let of_track = |track: &Track| {
        let at = |second: usize| track.position(start_s + second as f64).and_then(origin);
        (0..seconds).map(at).collect()
    };
    tracks.iter().map(of_track).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mobility::Fix;

    #[test]
    fn latencies_lie_in_their_tiers() {
        let world = World::grid(TIERS, 1, 1, 1);
        for (origin, site, (low, high)) in [
            (0, 0, TIERS[0]),
            (0, 1, TIERS[1]),
            (0, 6, TIERS[1]),
            (0, 2, TIERS[2]),
            (4, 5, TIERS[2]),
        ] {
            assert!((low..=high).contains(&world.latency_ms(origin, site)), "{origin} {site}");
        }
    }

    #[test]
    fn clients_move_as_the_papers_do() {
        for seed in 1..4 {
            let world = World::grid(TIERS, 32, 600, seed);
            let share = switch_share(&world.places);
            assert!((share - SWITCH_SHARE).abs() < 0.05, "{share}");
            // 1 − (1 − 10 s / R)^32 = 72 % at R = 251 s.
            assert!((200.0..300.0).contains(&world.residence_s()), "{}", world.residence_s());
        }
    }

    #[test]
    fn a_density_leaves_so_many_sites_open() {
        for (percent, open) in [(20, 5), (40, 10), (100, 25)] {
            let world = World::grid(TIERS, 1, 1, 1).with_density(percent, 7);
            assert_eq!(world.open.iter().filter(|open| **open).count(), open);
        }
    }

    #[test]
    fn recorded_clients_are_where_they_were() {
        let at = |east: f64| Point::new(37.0, -122.0 + east * APART_M / 88_800.0);
        let fixes = |first: f64| {
            let fix = |t_s: u32| Fix { t_s: f64::from(t_s), at: at(first + f64::from(t_s) / 50.0) };
            (0..=100).step_by(50).map(fix).collect()
        };
        let tracks = [Track::new("1", fixes(-1.0)), Track::new("2", fixes(40.0))];
        let world = World::recorded(&tracks[..1], 9, 100, 1);
        assert_eq!(world.places.len(), 1);
        let (first, last) = (world.places[0][0].unwrap(), world.places[0][99].unwrap());
        assert_eq!((first, last - first), (11, 2), "two access points to the east");
        assert!(World::recorded(&tracks, 9, 100, 1).places.len() < 2, "one of them is far away");
    }
}
