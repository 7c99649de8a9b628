//! Where a vehicle is at a time.
//!
//! A [`Track`] is a series of fixes; between two of them the vehicle is on the straight line,
//! unless they are more than [`GAP_MAX_S`] apart: then its place is unknown, and it is nowhere.
//! Tracks come from a recorded trace or from a generator; nothing else in the lab depends on which.
//! [`Mobility`] is the choice among them, as a world file makes it.
//!
//! | model | what moves so |
//! | --- | --- |
//! | [`waypoint`] | a vehicle that drives straight to random places, at random speeds |
//! | [`manhattan`] | a vehicle that keeps to the streets of a grid |
//! | [`trace`] | a recorded client |
//!
//! Left out: streets, but for those of [`manhattan`]. A straight line between reports a minute
//! apart cuts corners by a block or two, which does not matter for choosing among sites kilometres
//! apart.

pub mod manhattan;
mod model;
pub mod trace;
mod way;
pub mod waypoint;

pub use model::{Mobility, Replay, Still};

use crate::geo::Point;

/// Longest time between two fixes to interpolate over, in seconds.
pub const GAP_MAX_S: f64 = 300.0;

/// A vehicle was here then.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fix {
    /// Seconds since the trace's own zero.
    pub t_s: f64,
    /// Where.
    pub at: Point,
}

/// One vehicle's way, in order of time.
#[derive(Debug, Clone, PartialEq)]
pub struct Track {
    name: String,
    fixes: Vec<Fix>,
}

impl Track {
    /// A track from its fixes, sorted here by time; of fixes at one time the last given counts.
    #[must_use]
    pub fn new(name: impl Into<String>, mut fixes: Vec<Fix>) -> Self {
        fixes.sort_by(|a, b| a.t_s.total_cmp(&b.t_s));
        // `dedup_by` keeps the earlier of two; the later one's place is moved into it first.
        fixes.dedup_by(|later, kept| {
            let same_time = later.t_s == kept.t_s;
            if same_time {
                kept.at = later.at;
            }
            same_time
        });
        Self { name: name.into(), fixes }
    }

    /// The vehicle's name in its trace.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// All fixes, in order of time.
    #[must_use]
    pub fn fixes(&self) -> &[Fix] {
        &self.fixes
    }

    /// First and last time, in seconds; none without fixes.
    #[must_use]
    pub fn span_s(&self) -> Option<(f64, f64)> {
        Some((self.fixes.first()?.t_s, self.fixes.last()?.t_s))
    }

    /// Where the vehicle is; none before its first fix, after its last, or inside a gap.
    #[must_use]
    pub fn position(&self, t_s: f64) -> Option<Point> {
        let after = self.fixes.partition_point(|fix| fix.t_s < t_s);
        let next = self.fixes.get(after)?;
        if next.t_s == t_s {
            return Some(next.at);
        }
        let previous = self.fixes[..after].last()?;
        let step_s = next.t_s - previous.t_s;
        (step_s <= GAP_MAX_S).then(|| previous.at.toward(next.at, (t_s - previous.t_s) / step_s))
    }

    /// Whether the vehicle is there at some moment between two times.
    #[must_use]
    pub fn is_present(&self, from_s: f64, to_s: f64) -> bool {
        self.pieces().any(|piece| piece[0].t_s <= to_s && piece[piece.len() - 1].t_s >= from_s)
    }

    /// The track cut at its gaps: runs of fixes, none empty.
    pub fn pieces(&self) -> impl Iterator<Item = &[Fix]> {
        self.fixes.chunk_by(|a, b| b.t_s - a.t_s <= GAP_MAX_S)
    }
}

/// The earliest and the latest time of all tracks, in seconds; none when they have no fixes.
#[must_use]
pub fn span_s(tracks: &[Track]) -> Option<(f64, f64)> {
    tracks
        .iter()
        .filter_map(Track::span_s)
        .reduce(|(from, to), (start, end)| (from.min(start), to.max(end)))
}

/// Slowest speed that a model may have; below it a leg would last for days.
const SPEED_MIN_KMH: f64 = 1.0;
/// Fastest speed that a model may have.
const SPEED_MAX_KMH: f64 = 1_000.0;

fn check_speeds(model: &str, min_kmh: f64, max_kmh: f64) -> Result<(), String> {
    if (SPEED_MIN_KMH..=SPEED_MAX_KMH).contains(&min_kmh)
        && (min_kmh..=SPEED_MAX_KMH).contains(&max_kmh)
    {
        return Ok(());
    }
    Err(format!("{model}: {SPEED_MIN_KMH} ≤ speed_min_kmh ≤ speed_max_kmh ≤ {SPEED_MAX_KMH}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn track(fixes: &[(f64, f64)]) -> Track {
        let fix = |&(t_s, lat)| Fix { t_s, at: Point::new(lat, 0.0) };
        Track::new("7", fixes.iter().map(fix).collect())
    }

    #[test]
    fn between_fixes_it_is_on_the_line() {
        let track = track(&[(100.0, 1.0), (160.0, 4.0)]);
        assert_eq!(track.position(100.0), Some(Point::new(1.0, 0.0)));
        assert_eq!(track.position(120.0), Some(Point::new(2.0, 0.0)));
        assert_eq!(track.position(160.0), Some(Point::new(4.0, 0.0)));
        assert_eq!(track.position(99.9), None);
        assert_eq!(track.position(160.1), None);
    }

    #[test]
    fn in_a_gap_it_is_nowhere() {
        let track = track(&[(0.0, 1.0), (300.0, 2.0), (601.0, 3.0), (602.0, 4.0)]);
        assert_eq!(track.position(150.0), Some(Point::new(1.5, 0.0)));
        assert_eq!(track.position(300.0), Some(Point::new(2.0, 0.0)));
        assert_eq!(track.position(450.0), None);
        assert_eq!(track.position(601.0), Some(Point::new(3.0, 0.0)));
        assert_eq!(track.pieces().map(<[Fix]>::len).collect::<Vec<_>>(), [2, 2]);
        assert!(track.is_present(0.0, 1.0) && track.is_present(500.0, 700.0));
        assert!(!track.is_present(301.0, 600.0) && !track.is_present(603.0, 700.0));
    }

    #[test]
    fn fixes_are_sorted_and_of_two_at_once_the_last_counts() {
        let track = track(&[(5.0, 9.0), (0.0, 1.0), (5.0, 3.0)]);
        assert_eq!(track.fixes().len(), 2);
        assert_eq!(track.position(5.0), Some(Point::new(3.0, 0.0)));
        assert_eq!(span_s(&[track, Track::new("none", Vec::new())]), Some((0.0, 5.0)));
        assert_eq!(span_s(&[]), None);
    }
}
