//! Truncated Lévy walk: straight flights and pauses whose lengths follow power laws, as people
//! walk.
//!
//! From Rhee, Shin, Hong, Lee, Kim and Chong, *On the Lévy-walk nature of human mobility* (INFOCOM
//! 2008; IEEE/ACM Transactions on Networking 19(3), 2011). Each flight has a uniform direction, a
//! length *l* with density ∝ *l*<sup>−(1+α)</sup> and takes *k*·*l*<sup>1−ρ</sup> seconds, so that
//! with ρ above zero longer flights are faster. Each pause has density ∝ *t*<sup>−(1+β)</sup>. Both
//! are cut off at both ends. At the edge of the area a flight is reflected, so time is spent evenly
//! over it.
//!
//! The paper draws from Lévy stable distributions; what is drawn here are power laws with the same
//! tails, which need no series to compute. It also fits *k* and ρ twice, for short and for long
//! flights; here one pair holds for all.

use rand::Rng;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    Track,
    way::{Plane, Way},
};
use crate::geo::Bounds;

/// Flights and pauses of a truncated Lévy walk.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Levy {
    /// Exponent of the flights' lengths: above 0, at most 3. Small means many long flights.
    pub alpha: f64,
    /// Exponent of the pauses: above 0, at most 3. Small means many long pauses.
    pub beta: f64,
    /// Shortest flight, in metres, at least 1.
    pub flight_min_m: f64,
    /// Longest flight, in metres, at most 1,000,000.
    pub flight_max_m: f64,
    /// Shortest pause, in seconds, at least 1.
    pub pause_min_s: f64,
    /// Longest pause, in seconds, at most 86,400.
    pub pause_max_s: f64,
    /// The factor of flight times: a flight of l metres takes k·l^(1−rho) seconds. With rho = 0 it
    /// is the seconds that one metre takes.
    pub k: f64,
    /// How much faster long flights are: 0 is one speed for all, 1 is one time for all.
    #[serde(default)]
    pub rho: f64,
}

impl Levy {
    /// Whether the parameters make sense.
    ///
    /// # Errors
    /// They do not; a sentence names what would.
    pub fn check(&self) -> Result<(), String> {
        let Self { flight_min_m, flight_max_m, pause_min_s, pause_max_s, .. } = *self;
        for (name, exponent) in [("alpha", self.alpha), ("beta", self.beta)] {
            if !(exponent > 0.0 && exponent <= 3.0) {
                return Err(format!("levy: {name} is above 0 and at most 3, is {exponent}"));
            }
        }
        if !(1.0..=1e6).contains(&flight_min_m) || !(flight_min_m..=1e6).contains(&flight_max_m) {
            return Err("levy: 1 ≤ flight_min_m ≤ flight_max_m ≤ 1000000".to_owned());
        }
        if !(1.0..=86_400.0).contains(&pause_min_s)
            || !(pause_min_s..=86_400.0).contains(&pause_max_s)
        {
            return Err("levy: 1 ≤ pause_min_s ≤ pause_max_s ≤ 86400".to_owned());
        }
        if !(0.01..=1_000.0).contains(&self.k) {
            return Err(format!("levy: k is 0.01 to 1000, is {}", self.k));
        }
        if !(0.0..=1.0).contains(&self.rho) {
            return Err(format!("levy: rho is 0 to 1, is {}", self.rho));
        }
        Ok(())
    }

    /// How long a flight of this length takes.
    fn flight_s(&self, length_m: f64) -> f64 {
        self.k * length_m.powf(1.0 - self.rho)
    }
}

/// Walks for `duration_s` seconds from time 0, starting at a uniform place.
///
/// The same generator state gives the same track.
pub fn track(
    name: impl Into<String>,
    area: &Bounds,
    parameters: &Levy,
    duration_s: f64,
    rng: &mut impl Rng,
) -> Track {
    let Levy { alpha, beta, flight_min_m, flight_max_m, pause_min_s, pause_max_s, .. } =
        *parameters;
    let plane = Plane::new(area);
    let mut at_m = (rng.random_range(0.0..=plane.width_m), rng.random_range(0.0..=plane.height_m));
    let mut way = Way::begin(0.0, plane.point(at_m));
    while way.t_s() < duration_s {
        let length_m = power_law(alpha, flight_min_m, flight_max_m, rng);
        let direction = rng.random_range(0.0..std::f64::consts::TAU);
        let seconds_per_m = parameters.flight_s(length_m) / length_m;
        for corner_m in reflected(&plane, at_m, direction, length_m) {
            let leg_m = (corner_m.0 - at_m.0).hypot(corner_m.1 - at_m.1);
            way.go(plane.point(corner_m), leg_m * seconds_per_m);
            at_m = corner_m;
        }
        way.wait(power_law(beta, pause_min_s, pause_max_s, rng));
    }
    way.track(name)
}

/// A draw with density ∝ x^−(1+exponent) between two bounds, by inverting its distribution.
fn power_law(exponent: f64, low: f64, high: f64, rng: &mut impl Rng) -> f64 {
    let (from, to) = (low.powf(-exponent), high.powf(-exponent));
    let u: f64 = rng.random_range(0.0..1.0);
    (from - u * (from - to)).powf(-1.0 / exponent).clamp(low, high)
}

/// The corners of a flight that is reflected wherever it meets an edge; the last is its end.
fn reflected(plane: &Plane, start_m: (f64, f64), direction: f64, length_m: f64) -> Vec<(f64, f64)> {
    // Unfolded, the flight is straight over a floor tiled with the area and its mirror images.
    let (dx, dy) = (direction.cos(), direction.sin());
    let unfolded = |s_m: f64| (start_m.0 + dx * s_m, start_m.1 + dy * s_m);
    let end = unfolded(length_m);
    let mut met_m: Vec<f64> = crossings_m(start_m.0, end.0, plane.width_m)
        .map(|edge_m| (edge_m - start_m.0) / dx)
        .chain(
            crossings_m(start_m.1, end.1, plane.height_m).map(|edge_m| (edge_m - start_m.1) / dy),
        )
        .collect();
    // Exactly along an edge it meets that edge everywhere and nowhere.
    met_m.retain(|s_m| s_m.is_finite());
    met_m.sort_by(f64::total_cmp);
    met_m.push(length_m);
    let folded = |s_m: f64| {
        let (x, y) = unfolded(s_m);
        (fold(x, plane.width_m), fold(y, plane.height_m))
    };
    met_m.into_iter().map(folded).collect()
}

/// The multiples of a size between two numbers.
fn crossings_m(from: f64, to: f64, size_m: f64) -> impl Iterator<Item = f64> {
    let (low, high) = (from.min(to), from.max(to));
    let (first, last) = ((low / size_m).ceil() as i64, (high / size_m).floor() as i64);
    (first..=last).map(move |index| index as f64 * size_m)
}

/// Where a number lands when a strip of paper is folded to and fro at every multiple of a size.
fn fold(x: f64, size_m: f64) -> f64 {
    let along = x.rem_euclid(2.0 * size_m);
    along.min(2.0 * size_m - along)
}

#[cfg(test)]
mod tests {
    use super::{
        super::way::tests::{CITY, assert_sound},
        *,
    };
    use crate::random::Random;

    const WALK: Levy = Levy {
        alpha: 0.9,
        beta: 0.7,
        flight_min_m: 10.0,
        flight_max_m: 3_000.0,
        pause_min_s: 20.0,
        pause_max_s: 3_600.0,
        k: 2.0,
        rho: 0.3,
    };

    /// The exponent of a truncated power law by maximum likelihood: Hill's estimator, corrected for
    /// the upper bound (Aban, Meerschaert and Panorska, 2006).
    fn exponent(values: &[f64], low: f64, high: f64) -> f64 {
        let count = values.len() as f64;
        let logs: f64 = values.iter().map(|value| (value / low).ln()).sum();
        let ratio = low / high;
        // The derivative of the likelihood falls as the exponent grows: bisect it.
        let (mut from, mut to) = (1e-3, 10.0);
        for _ in 0..60 {
            let a: f64 = (from + to) / 2.0;
            let cut = count * ratio.powf(a) * ratio.ln() / (1.0 - ratio.powf(a));
            if count / a + cut - logs > 0.0 { from = a } else { to = a }
        }
        (from + to) / 2.0
    }

    /// Flights as (metres, seconds) and pauses in seconds, as seen from outside: runs of fixes of
    /// one direction and speed, and runs at one place. The area is so large that nothing is
    /// reflected.
    fn flights_and_pauses(parameters: &Levy, seeds: u64) -> (Vec<(f64, f64)>, Vec<f64>) {
        let plain = Bounds { south: -20.0, west: -20.0, north: 20.0, east: 20.0 };
        let plane = Plane::new(&plain);
        let (mut flights, mut pauses) = (Vec::new(), Vec::new());
        for seed in 0..seeds {
            let track = track("1", &plain, parameters, 300_000.0, &mut Random::new(seed));
            let legs: Vec<(f64, f64)> = track
                .fixes()
                .windows(2)
                .map(|pair| {
                    let ((a, b), (c, d)) = (plane.meters(pair[0].at), plane.meters(pair[1].at));
                    ((c - a).hypot(d - b), pair[1].t_s - pair[0].t_s)
                })
                .collect();
            for run in legs.chunk_by(|a, b| (a.0 == 0.0) == (b.0 == 0.0)) {
                let total: (f64, f64) =
                    run.iter().fold((0.0, 0.0), |sum, leg| (sum.0 + leg.0, sum.1 + leg.1));
                if total.0 == 0.0 { pauses.push(total.1) } else { flights.push(total) }
            }
        }
        (flights, pauses)
    }

    #[test]
    fn it_is_sound() {
        assert_sound(|duration_s, rng| track("1", &CITY, &WALK, duration_s, rng));
        let far = Levy { flight_min_m: 50_000.0, flight_max_m: 90_000.0, ..WALK };
        assert_sound(|duration_s, rng| track("1", &CITY, &far, duration_s, rng));
    }

    #[test]
    fn flights_and_pauses_have_their_exponents_and_bounds() {
        for parameters in [WALK, Levy { alpha: 1.6, beta: 1.2, ..WALK }] {
            let (flights, pauses) = flights_and_pauses(&parameters, 20);
            assert!(flights.len() > 10_000, "{}", flights.len());
            let lengths: Vec<f64> = flights.iter().map(|flight| flight.0).collect();
            let bounds = (parameters.flight_min_m * 0.999, parameters.flight_max_m * 1.001);
            assert!(lengths.iter().all(|length| (bounds.0..bounds.1).contains(length)));
            let alpha = exponent(&lengths, parameters.flight_min_m, parameters.flight_max_m);
            assert!((alpha - parameters.alpha).abs() < 0.05, "{alpha}");
            let bounds = (parameters.pause_min_s * 0.999, parameters.pause_max_s * 1.001);
            assert!(pauses.iter().all(|pause| (bounds.0..bounds.1).contains(pause)));
            let beta = exponent(&pauses, parameters.pause_min_s, parameters.pause_max_s);
            assert!((beta - parameters.beta).abs() < 0.05, "{beta}");
        }
    }

    #[test]
    fn longer_flights_take_longer_by_the_stated_power() {
        let (flights, _) = flights_and_pauses(&WALK, 2);
        for (length_m, flight_s) in flights {
            let expected_s = 2.0 * length_m.powf(0.7);
            assert!((flight_s / expected_s - 1.0).abs() < 0.01, "{length_m} {flight_s}");
        }
    }

    #[test]
    fn a_reflected_flight_keeps_its_length_and_time_is_spent_evenly() {
        let plane = Plane::new(&CITY);
        let mut rng = Random::new(3);
        let mut quarters = [0.0; 4];
        let mut at_m = (1.0, 1.0);
        for _ in 0..4_000 {
            let length_m = rng.random_range(100.0..60_000.0);
            let direction = rng.random_range(0.0..std::f64::consts::TAU);
            let corners = reflected(&plane, at_m, direction, length_m);
            let mut sum_m = 0.0;
            for (x, y) in corners {
                assert!((0.0..=plane.width_m).contains(&x) && (0.0..=plane.height_m).contains(&y));
                sum_m += (x - at_m.0).hypot(y - at_m.1);
                at_m = (x, y);
            }
            assert!((sum_m - length_m).abs() < 1e-3, "{sum_m} {length_m}");
            let east = usize::from(at_m.0 > plane.width_m / 2.0);
            let north = usize::from(at_m.1 > plane.height_m / 2.0);
            quarters[2 * north + east] += 1.0 / 4_000.0;
        }
        assert!(quarters.iter().all(|share| (share - 0.25_f64).abs() < 0.03), "{quarters:?}");
    }

    #[test]
    fn bad_parameters_are_refused() {
        WALK.check().unwrap();
        let bad = [
            (Levy { alpha: 0.0, ..WALK }, "alpha"),
            (Levy { beta: f64::NAN, ..WALK }, "beta"),
            (Levy { flight_max_m: 5.0, ..WALK }, "flight_min_m ≤ flight_max_m"),
            (Levy { pause_min_s: 0.0, ..WALK }, "pause_min_s"),
            (Levy { k: 0.0, ..WALK }, "k is"),
            (Levy { rho: 1.5, ..WALK }, "rho is"),
        ];
        for (parameters, words) in bad {
            let sentence = parameters.check().unwrap_err();
            assert!(sentence.contains(words), "{sentence}");
        }
    }
}
