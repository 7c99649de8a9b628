//! A track in the making: straight legs and pauses, one after the other.
//!
//! A track has a gap where two fixes are far apart in time, so long legs and pauses are cut into
//! pieces here, and no generator has to handle it. Generators that count in metres draw on a
//! [`Plane`].

use super::{Fix, GAP_MAX_S, Track};
use crate::geo::{Bounds, Point};

/// Seconds between two fixes on a leg; short enough that no interpolation gap opens.
const FIX_EVERY_S: f64 = 60.0;
const _: () = assert!(FIX_EVERY_S < GAP_MAX_S);

/// A track in the making.
#[derive(Debug)]
pub(super) struct Way {
    t_s: f64,
    at: Point,
    fixes: Vec<Fix>,
}

impl Way {
    /// Begins here at this time.
    pub(super) fn begin(t_s: f64, at: Point) -> Self {
        Self { t_s, at, fixes: vec![Fix { t_s, at }] }
    }

    /// The time reached.
    pub(super) fn t_s(&self) -> f64 {
        self.t_s
    }

    /// Goes straight to a place, which takes so many seconds.
    pub(super) fn go(&mut self, to: Point, leg_s: f64) {
        let steps = (leg_s / FIX_EVERY_S).ceil().max(1.0) as u32;
        for step in 1..=steps {
            let fraction = f64::from(step) / f64::from(steps);
            let at = self.at.toward(to, fraction);
            self.fixes.push(Fix { t_s: self.t_s + leg_s * fraction, at });
        }
        self.t_s += leg_s;
        self.at = to;
    }

    /// Stays for so many seconds.
    pub(super) fn wait(&mut self, pause_s: f64) {
        self.go(self.at, pause_s);
    }

    /// Stays until a time, unless that has passed.
    pub(super) fn wait_until(&mut self, t_s: f64) {
        if t_s > self.t_s {
            self.wait(t_s - self.t_s);
        }
    }

    /// The track so far.
    pub(super) fn track(self, name: impl Into<String>) -> Track {
        Track::new(name, self.fixes)
    }
}

/// An area as a rectangle of metres, from its south-west corner; for areas of a city's size.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plane {
    area: Bounds,
    /// West to east, in metres; at least 1.
    pub(super) width_m: f64,
    /// South to north, in metres; at least 1.
    pub(super) height_m: f64,
}

impl Plane {
    pub(super) fn new(area: &Bounds) -> Self {
        let (width_m, height_m) = area.size_m();
        Self { area: *area, width_m: width_m.max(1.0), height_m: height_m.max(1.0) }
    }

    /// Metres east and north of the corner.
    #[cfg(test)]
    pub(super) fn meters(&self, at: Point) -> (f64, f64) {
        let Bounds { south, west, north, east } = self.area;
        (
            (at.lon - west) / (east - west) * self.width_m,
            (at.lat - south) / (north - south) * self.height_m,
        )
    }

    /// The point so many metres east and north of the corner; what lies outside is put on the edge.
    pub(super) fn point(&self, (east_m, north_m): (f64, f64)) -> Point {
        let Bounds { south, west, north, east } = self.area;
        let (x, y) = ((east_m / self.width_m), (north_m / self.height_m));
        Point::new(
            (south + (north - south) * y).clamp(south, north),
            (west + (east - west) * x).clamp(west, east),
        )
    }
}

#[cfg(test)]
pub(super) mod tests {
    use rand::Rng;

    use super::*;

    pub(in crate::mobility) const CITY: Bounds =
        Bounds { south: 37.70, west: -122.52, north: 37.815, east: -122.355 };

    /// What every generator keeps: it stays in the area, has no gap, covers the whole time, and the
    /// same seed gives the same track.
    pub(in crate::mobility) fn assert_sound(
        track: impl Fn(f64, &mut crate::random::Random) -> Track,
    ) {
        use crate::random::Random;
        const DAY_S: f64 = 86_400.0;
        for seed in 0..5 {
            let made = track(DAY_S, &mut Random::new(seed));
            assert!(made.fixes().iter().all(|fix| CITY.contains(fix.at)), "out of the area");
            assert_eq!(made.pieces().count(), 1, "a gap");
            let (from_s, to_s) = made.span_s().expect("not empty");
            assert!(from_s == 0.0 && to_s >= DAY_S, "{from_s} to {to_s}");
            assert_eq!(made, track(DAY_S, &mut Random::new(seed)));
            assert_ne!(made, track(DAY_S, &mut Random::new(seed + 100)));
        }
    }

    #[test]
    fn long_legs_are_cut_and_nothing_else_changes() {
        let mut way = Way::begin(-5.0, CITY.center());
        let corner = Point::new(CITY.south, CITY.west);
        way.go(corner, 1_000.0);
        way.wait_until(990.0);
        way.wait_until(2_000.0);
        assert_eq!(way.t_s(), 2_000.0);
        let track = way.track("1");
        assert_eq!(track.span_s(), Some((-5.0, 2_000.0)));
        assert_eq!(track.pieces().count(), 1);
        let halfway = track.position(495.0).expect("on the leg");
        assert!(halfway.distance_m(CITY.center().toward(corner, 0.5)) < 1e-3);
        assert_eq!(track.position(1_500.0), Some(corner));
    }

    #[test]
    fn a_plane_has_the_distances_of_the_earth() {
        let plane = Plane::new(&CITY);
        let mut rng = crate::random::Random::new(1);
        for _ in 0..1_000 {
            let mut draw =
                || (rng.random_range(0.0..plane.width_m), rng.random_range(0.0..plane.height_m));
            let (a, b) = (draw(), draw());
            let true_m = plane.point(a).distance_m(plane.point(b));
            let plane_m = (a.0 - b.0).hypot(a.1 - b.1);
            assert!((plane_m / true_m - 1.0).abs() < 2e-3, "{plane_m} {true_m}");
            let back = plane.meters(plane.point(a));
            assert!((back.0 - a.0).hypot(back.1 - a.1) < 1e-3);
        }
        let edge = plane.point((-10.0, plane.height_m + 10.0));
        assert_eq!(edge, Point::new(CITY.north, CITY.west));
    }
}
