//! A track in the making: straight legs and pauses, one after the other.
//!
//! A track has a gap where two fixes are far apart in time, so long legs and pauses are cut into
//! pieces here, and no generator has to think of it.

use super::{Fix, GAP_MAX_S, Track};
use crate::geo::Point;

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

    /// The track so far.
    pub(super) fn track(self, name: impl Into<String>) -> Track {
        Track::new(name, self.fixes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geo::Bounds;

    const CITY: Bounds = Bounds { south: 37.70, west: -122.52, north: 37.815, east: -122.355 };

    #[test]
    fn long_legs_are_cut_and_nothing_else_changes() {
        let mut way = Way::begin(-5.0, CITY.center());
        let corner = Point::new(CITY.south, CITY.west);
        way.go(corner, 1_000.0);
        way.wait(1_005.0);
        assert_eq!(way.t_s(), 2_000.0);
        let track = way.track("1");
        assert_eq!(track.span_s(), Some((-5.0, 2_000.0)));
        assert_eq!(track.pieces().count(), 1);
        let halfway = track.position(495.0).expect("on the leg");
        assert!(halfway.distance_m(CITY.center().toward(corner, 0.5)) < 1e-3);
        assert_eq!(track.position(1_500.0), Some(corner));
    }
}
