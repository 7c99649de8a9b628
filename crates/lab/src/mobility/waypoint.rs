//! Random waypoint: drive straight to a place drawn uniformly from the city's box at a speed drawn
//! uniformly, pause for a uniform time, again.
//!
//! From Johnson and Maltz, *Dynamic source routing in ad hoc wireless networks* (1996). Two of its
//! properties are worth knowing, and a test holds them: vehicles crowd towards the middle of the
//! box, as in a city; and the mean speed while driving is not the middle of the range but
//! `(max − min) / ln(max / min)`, because slow legs last longer. A minimum above zero keeps that
//! mean from decaying to nothing (Yoon, Liu and Noble, *Random waypoint considered harmful*, 2003).

use rand::Rng;

use schemars::JsonSchema;
use serde::Deserialize;

use super::{Track, check_speeds, way::Way};
use crate::geo::{Bounds, Point};

/// Parameters of the random waypoint generator.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Waypoint {
    /// Slowest speed of a leg; above zero, or the mean speed decays for ever.
    pub speed_min_kmh: f64,
    /// Fastest speed of a leg.
    pub speed_max_kmh: f64,
    /// Longest pause between legs; pauses are uniform from zero.
    pub pause_max_s: f64,
}

impl Waypoint {
    /// Whether the parameters make sense.
    ///
    /// # Errors
    /// They do not; a sentence names what would.
    pub fn check(&self) -> Result<(), String> {
        check_speeds("waypoint", self.speed_min_kmh, self.speed_max_kmh)?;
        if !(0.0..=86_400.0).contains(&self.pause_max_s) {
            return Err(format!("waypoint: pause_max_s is 0 to 86400, is {}", self.pause_max_s));
        }
        Ok(())
    }
}

/// Drives one vehicle for `duration_s` seconds from time 0, starting at a uniform place.
///
/// The same generator state gives the same track.
pub fn track(
    name: impl Into<String>,
    city: &Bounds,
    parameters: &Waypoint,
    duration_s: f64,
    rng: &mut impl Rng,
) -> Track {
    let mut at = place(city, rng);
    let mut way = Way::begin(0.0, at);
    while way.t_s() < duration_s {
        let destination = place(city, rng);
        let speed_kmh = rng.random_range(parameters.speed_min_kmh..=parameters.speed_max_kmh);
        way.go(destination, at.distance_m(destination) / (speed_kmh / 3.6));
        at = destination;
        way.wait(rng.random_range(0.0..=parameters.pause_max_s));
    }
    way.track(name)
}

/// A place drawn uniformly.
pub(super) fn place(city: &Bounds, rng: &mut impl Rng) -> Point {
    Point::new(rng.random_range(city.south..=city.north), rng.random_range(city.west..=city.east))
}

#[cfg(test)]
mod tests {
    use rand::{SeedableRng, rngs::StdRng};

    use super::*;

    const CITY: Bounds = Bounds { south: 37.70, west: -122.52, north: 37.815, east: -122.355 };
    const DAY_S: f64 = 86_400.0;

    fn tracks(parameters: &Waypoint, count: u64) -> Vec<Track> {
        (0..count)
            .map(|seed| {
                let mut rng = StdRng::seed_from_u64(seed);
                track(seed.to_string(), &CITY, parameters, DAY_S, &mut rng)
            })
            .collect()
    }

    #[test]
    fn the_same_seed_gives_the_same_track() {
        let parameters = Waypoint { speed_min_kmh: 15.0, speed_max_kmh: 55.0, pause_max_s: 120.0 };
        assert_eq!(tracks(&parameters, 3), tracks(&parameters, 3));
        assert_ne!(tracks(&parameters, 2)[0].fixes(), tracks(&parameters, 2)[1].fixes());
    }

    #[test]
    fn it_stays_in_the_city_and_never_has_a_gap() {
        let parameters = Waypoint { speed_min_kmh: 2.0, speed_max_kmh: 90.0, pause_max_s: 3_000.0 };
        for track in tracks(&parameters, 5) {
            assert!(track.fixes().iter().all(|fix| CITY.contains(fix.at)));
            assert_eq!(track.pieces().count(), 1);
            assert!(track.span_s().unwrap().1 >= DAY_S);
        }
    }

    #[test]
    fn its_speed_and_density_are_those_of_random_waypoint() {
        let parameters = Waypoint { speed_min_kmh: 15.0, speed_max_kmh: 60.0, pause_max_s: 0.0 };
        let (mut driven_m, mut driven_s, mut central, mut samples) = (0.0, 0.0, 0, 0);
        for track in tracks(&parameters, 60) {
            for pair in track.fixes().windows(2) {
                driven_m += pair[0].at.distance_m(pair[1].at);
                driven_s += pair[1].t_s - pair[0].t_s;
            }
            for minute in 0..1_440 {
                let at = track.position(f64::from(minute) * 60.0).expect("no gaps");
                let middle = CITY.center();
                let (half_lat, half_lon) = (CITY.north - middle.lat, CITY.east - middle.lon);
                samples += 1;
                central += usize::from(
                    (at.lat - middle.lat).abs() < half_lat / 2.0
                        && (at.lon - middle.lon).abs() < half_lon / 2.0,
                );
            }
        }
        let mean_kmh = driven_m / driven_s * 3.6;
        let expected_kmh = (60.0 - 15.0) / (60.0_f64 / 15.0).ln();
        assert!((mean_kmh / expected_kmh - 1.0).abs() < 0.02, "{mean_kmh} {expected_kmh}");
        // The middle quarter of the area holds far more than a quarter of the time; the polynomial
        // density 36·x(1−x)·y(1−y) of Bettstetter (2003) gives (11/16)² = 0.473 for it.
        let share = central as f64 / f64::from(samples);
        assert!((share - 0.473).abs() < 0.03, "{share}");
    }

    #[test]
    fn pauses_take_their_share_of_the_time() {
        let parameters = Waypoint { speed_min_kmh: 30.0, speed_max_kmh: 30.0, pause_max_s: 600.0 };
        let (mut paused_s, mut total_s) = (0.0, 0.0);
        for track in tracks(&parameters, 40) {
            for pair in track.fixes().windows(2) {
                let step_s = pair[1].t_s - pair[0].t_s;
                total_s += step_s;
                paused_s += if pair[0].at == pair[1].at { step_s } else { 0.0 };
            }
        }
        // Mean pause 300 s; mean leg is the mean distance of two uniform points in the box.
        let (width_m, height_m) = CITY.size_m();
        let leg_s = mean_distance_m(width_m, height_m) / (30.0 / 3.6);
        let expected = 300.0 / (300.0 + leg_s);
        let share = paused_s / total_s;
        assert!((share / expected - 1.0).abs() < 0.05, "{share} {expected}");
    }

    /// Mean distance of two uniform points of a rectangle (Ghosh 1951).
    fn mean_distance_m(a: f64, b: f64) -> f64 {
        let d = a.hypot(b);
        (a.powi(3) / b.powi(2)
            + b.powi(3) / a.powi(2)
            + d * (3.0 - a.powi(2) / b.powi(2) - b.powi(2) / a.powi(2))
            + 2.5 * (b.powi(2) / a * ((a + d) / b).ln() + a.powi(2) / b * ((b + d) / a).ln()))
            / 15.0
    }
}
