//! Manhattan: drive along the streets of a regular grid and decide at every crossing.
//!
//! The model of ETSI TR 101 112 (*UMTS 30.03*, 1998, B.1.4.2), where a vehicle goes straight on
//! with probability 0.5 and turns to either side with 0.25, and of Bai, Sadagopan and Helmy, *The
//! IMPORTANT framework* (2003). At the edge of the grid, where some ways do not exist, the others
//! keep their proportions. Where nothing is left but to turn back, it turns back.
//!
//! Left out: lanes, traffic lights that vehicles share, and keeping a distance to the vehicle
//! ahead.

use rand::Rng;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    Track, check_speeds,
    way::{Plane, Way},
};
use crate::geo::Bounds;

/// A grid of streets, and how vehicles drive on it.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Manhattan {
    /// Metres from one crossing to the next, 10 to 100,000. The grid lies in the middle of the
    /// area.
    pub block_m: f64,
    /// Slowest speed on a block.
    pub speed_min_kmh: f64,
    /// Fastest speed on a block; each block's speed is uniform between the two.
    pub speed_max_kmh: f64,
    /// Probability of turning left at a crossing. What the two turns leave is for straight on.
    #[serde(default = "quarter")]
    pub left_probability: f64,
    /// Probability of turning right at a crossing.
    #[serde(default = "quarter")]
    pub right_probability: f64,
    /// Probability of stopping at a crossing.
    #[serde(default)]
    pub pause_probability: f64,
    /// Longest stop at a crossing, in seconds; stops are uniform from zero.
    #[serde(default)]
    pub pause_max_s: f64,
}

fn quarter() -> f64 {
    0.25
}

impl Manhattan {
    /// Whether the parameters make sense.
    ///
    /// # Errors
    /// They do not; a sentence names what would.
    pub fn check(&self) -> Result<(), String> {
        let Self { block_m, left_probability: left, right_probability: right, .. } = *self;
        if !(10.0..=100_000.0).contains(&block_m) {
            return Err(format!("manhattan: block_m is 10 to 100000 metres, is {block_m}"));
        }
        check_speeds("manhattan", self.speed_min_kmh, self.speed_max_kmh)?;
        let probability = 0.0..=1.0;
        if !probability.contains(&left) || !probability.contains(&right) || left + right > 1.0 {
            return Err(
                "manhattan: left_probability and right_probability are 0 to 1, and together \
                        at most 1"
                    .to_owned(),
            );
        }
        if !probability.contains(&self.pause_probability) {
            let is = self.pause_probability;
            return Err(format!("manhattan: pause_probability is 0 to 1, is {is}"));
        }
        if !(0.0..=86_400.0).contains(&self.pause_max_s) {
            return Err(format!("manhattan: pause_max_s is 0 to 86400, is {}", self.pause_max_s));
        }
        Ok(())
    }

    /// Probabilities of going straight on, left, right, and back, in this order.
    fn probabilities(&self) -> [f64; 4] {
        let (left, right) = (self.left_probability, self.right_probability);
        [(1.0 - left - right).max(0.0), left, right, 0.0]
    }
}

/// East, north, west, south: each a left turn from the one before.
const HEADINGS: [(i64, i64); 4] = [(1, 0), (0, 1), (-1, 0), (0, -1)];
/// Quarter turns to the left of going straight on, left, right, back.
const QUARTERS: [usize; 4] = [0, 1, 3, 2];

/// The crossings: columns from the west, rows from the south.
struct Grid {
    columns: i64,
    rows: i64,
    block_m: f64,
    /// Where crossing (0, 0) is, in metres on the plane.
    corner_m: (f64, f64),
}

impl Grid {
    fn new(plane: &Plane, block_m: f64) -> Self {
        let blocks = |length_m: f64| (length_m / block_m).floor();
        let margin_m = |length_m: f64| (length_m - blocks(length_m) * block_m) / 2.0;
        Self {
            columns: blocks(plane.width_m) as i64 + 1,
            rows: blocks(plane.height_m) as i64 + 1,
            block_m,
            corner_m: (margin_m(plane.width_m), margin_m(plane.height_m)),
        }
    }

    fn meters(&self, (column, row): (i64, i64)) -> (f64, f64) {
        (
            self.corner_m.0 + column as f64 * self.block_m,
            self.corner_m.1 + row as f64 * self.block_m,
        )
    }

    /// The next crossing in a direction, if there is a street to one.
    fn next(&self, (column, row): (i64, i64), heading: usize) -> Option<(i64, i64)> {
        let (east, north) = HEADINGS[heading];
        let (column, row) = (column + east, row + north);
        ((0..self.columns).contains(&column) && (0..self.rows).contains(&row))
            .then_some((column, row))
    }

    /// Where to go from a crossing: the heading and the crossing it leads to.
    fn decide(
        &self,
        at: (i64, i64),
        heading: usize,
        probabilities: [f64; 4],
        rng: &mut impl Rng,
    ) -> Option<(usize, (i64, i64))> {
        let ways = QUARTERS.map(|quarters| {
            let heading = (heading + quarters) % 4;
            self.next(at, heading).map(|next| (heading, next))
        });
        let open = |index: usize| if ways[index].is_some() { probabilities[index] } else { 0.0 };
        let total: f64 = (0..4).map(open).sum();
        let mut left = rng.random_range(0.0..1.0) * total;
        for (index, way) in ways.into_iter().enumerate() {
            if left < open(index) {
                return way;
            }
            left -= open(index);
        }
        // No way that has a probability is open: a turn if there is one, else back.
        ways.into_iter().flatten().next()
    }
}

/// Drives one vehicle for `duration_s` seconds from time 0, starting at any crossing.
///
/// The same generator state gives the same track.
pub fn track(
    name: impl Into<String>,
    area: &Bounds,
    parameters: &Manhattan,
    duration_s: f64,
    rng: &mut impl Rng,
) -> Track {
    let plane = Plane::new(area);
    let grid = Grid::new(&plane, parameters.block_m);
    let mut at = (rng.random_range(0..grid.columns), rng.random_range(0..grid.rows));
    let mut heading = rng.random_range(0..4);
    let mut way = Way::begin(0.0, plane.point(grid.meters(at)));
    while way.t_s() < duration_s {
        let Some((next_heading, next)) = grid.decide(at, heading, parameters.probabilities(), rng)
        else {
            // The area is smaller than a block: one crossing and no street.
            way.wait_until(duration_s);
            break;
        };
        (heading, at) = (next_heading, next);
        let speed_kmh = rng.random_range(parameters.speed_min_kmh..=parameters.speed_max_kmh);
        way.go(plane.point(grid.meters(at)), parameters.block_m / (speed_kmh / 3.6));
        if rng.random_range(0.0..1.0) < parameters.pause_probability {
            way.wait(rng.random_range(0.0..=parameters.pause_max_s));
        }
    }
    way.track(name)
}

#[cfg(test)]
mod tests {
    use super::{
        super::way::tests::{CITY, assert_sound},
        *,
    };
    use crate::{geo::Point, random::Random};

    const BLOCK_M: f64 = 400.0;
    const GRID: Manhattan = Manhattan {
        block_m: BLOCK_M,
        speed_min_kmh: 30.0,
        speed_max_kmh: 60.0,
        left_probability: 0.2,
        right_probability: 0.3,
        pause_probability: 0.0,
        pause_max_s: 0.0,
    };

    /// The crossings that a track passes, as columns and rows, and the seconds to each from the
    /// last.
    fn crossings(track: &Track) -> Vec<((i64, i64), f64)> {
        let plane = Plane::new(&CITY);
        let grid = Grid::new(&plane, BLOCK_M);
        let mut last_s = 0.0;
        let mut passed = Vec::new();
        for fix in track.fixes() {
            let (x, y) = plane.meters(fix.at);
            let (x, y) = ((x - grid.corner_m.0) / BLOCK_M, (y - grid.corner_m.1) / BLOCK_M);
            let off = |z: f64| (z - z.round()).abs() * BLOCK_M;
            assert!(off(x).min(off(y)) < 0.01, "off the streets: {x} {y}");
            if off(x).max(off(y)) < 0.01 {
                passed.push(((x.round() as i64, y.round() as i64), fix.t_s - last_s));
                last_s = fix.t_s;
            }
        }
        passed
    }

    #[test]
    fn it_is_sound() {
        let pausing = Manhattan { pause_probability: 0.5, pause_max_s: 900.0, ..GRID };
        assert_sound(|duration_s, rng| track("1", &CITY, &pausing, duration_s, rng));
    }

    #[test]
    fn turns_have_their_probabilities_and_it_never_turns_back() {
        let mut turns = [0.0; 4];
        let (mut slowest, mut fastest) = (f64::INFINITY, 0.0_f64);
        let grid = Grid::new(&Plane::new(&CITY), BLOCK_M);
        for seed in 0..20 {
            let track = track("1", &CITY, &GRID, 86_400.0, &mut Random::new(seed));
            for three in crossings(&track).windows(3) {
                let [((a, b), _), ((c, d), _), ((e, f), leg_s)] = *three else { unreachable!() };
                assert_eq!((e - c).abs() + (f - d).abs(), 1, "one block at a time");
                let kmh = BLOCK_M / leg_s * 3.6;
                (slowest, fastest) = (slowest.min(kmh), fastest.max(kmh));
                let inside = (1..grid.columns - 1).contains(&c) && (1..grid.rows - 1).contains(&d);
                let heading = |x, y| HEADINGS.iter().position(|way| *way == (x, y)).unwrap();
                let quarters = (heading(e - c, f - d) + 4 - heading(c - a, d - b)) % 4;
                assert_ne!(quarters, 2, "it turned back");
                turns[quarters] += f64::from(u8::from(inside));
            }
        }
        let all: f64 = turns.iter().sum();
        assert!(all > 20_000.0, "{all}");
        for (quarters, expected) in [(0, 0.5), (1, 0.2), (3, 0.3)] {
            // Four standard errors of a share.
            let tolerance = 4.0 * (expected * (1.0 - expected) / all).sqrt();
            let share = turns[quarters] / all;
            assert!((share - expected).abs() < tolerance, "{quarters}: {share} {expected}");
        }
        assert!((29.9..31.0).contains(&slowest) && (59.0..60.1).contains(&fastest));
    }

    #[test]
    fn pauses_take_their_share_of_the_time() {
        let parameters = Manhattan {
            speed_min_kmh: 36.0,
            speed_max_kmh: 36.0,
            pause_probability: 0.25,
            pause_max_s: 80.0,
            ..GRID
        };
        let (mut paused_s, mut total_s) = (0.0, 0.0);
        for seed in 0..10 {
            let track = track("1", &CITY, &parameters, 86_400.0, &mut Random::new(seed));
            for pair in track.fixes().windows(2) {
                let step_s = pair[1].t_s - pair[0].t_s;
                total_s += step_s;
                paused_s += if pair[0].at == pair[1].at { step_s } else { 0.0 };
            }
        }
        // A block is 40 s; a pause comes at every fourth crossing and is 40 s on the average.
        let share = paused_s / total_s;
        assert!((share - 0.2).abs() < 0.005, "{share}");
    }

    #[test]
    fn where_no_stated_way_is_open_it_takes_another() {
        let straight_only = Manhattan { left_probability: 0.0, right_probability: 0.0, ..GRID };
        assert_sound(|duration_s, rng| track("1", &CITY, &straight_only, duration_s, rng));
        // One street: back and forth.
        let street = Bounds { north: CITY.south + 0.001, ..CITY };
        let driven = track("1", &street, &GRID, 7_200.0, &mut Random::new(1));
        let lats: Vec<f64> = driven.fixes().iter().map(|fix| fix.at.lat).collect();
        assert!(lats.iter().all(|lat| *lat == lats[0]));
        // Smaller than a block: it stays.
        let yard = Bounds { east: CITY.west + 0.001, ..street };
        let still = track("1", &yard, &GRID, 7_200.0, &mut Random::new(1));
        let at: Vec<Point> = still.fixes().iter().map(|fix| fix.at).collect();
        assert!(at.iter().all(|point| *point == at[0]) && still.pieces().count() == 1);
    }

    #[test]
    fn bad_parameters_are_refused() {
        GRID.check().unwrap();
        let bad = [
            (Manhattan { block_m: 1.0, ..GRID }, "block_m is 10"),
            (Manhattan { speed_min_kmh: 0.0, ..GRID }, "speed_min_kmh"),
            (Manhattan { left_probability: 0.8, ..GRID }, "together at most 1"),
            (Manhattan { pause_probability: f64::NAN, ..GRID }, "pause_probability"),
            (Manhattan { pause_max_s: -1.0, ..GRID }, "pause_max_s"),
        ];
        for (parameters, words) in bad {
            let sentence = parameters.check().unwrap_err();
            assert!(sentence.contains(words), "{sentence}");
        }
    }
}
