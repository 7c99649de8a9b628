//! What is seen of a run while it goes on: measures, where the vehicles are, which site did what.
//!
//! Vehicles write here, the views read. One lock, held for microseconds; a few thousand operations
//! a second do not need a second one.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use lab::{
    geo::Point,
    measure::{Measure, Outcome, Summary},
    report::Stroke,
};

use super::{
    comparison::Comparison, hazards::Ledger, loans::Loans, operation::Operation,
    recorder::Recorder, records::Records, trips::Trips,
};

/// An answer later than this is a stall: what a driver would notice.
pub(super) const STALL: Duration = Duration::from_millis(500);
/// A vehicle's way is drawn with no more points than one in so many metres.
const DRAWN_EVERY_M: f64 = 40.0;
/// Most points drawn of all vehicles together; the page would become too large.
const DRAWN_POINTS_MAX: usize = 150_000;
/// Most kinds of failure counted separately.
const FAILURES_MAX: usize = 20;

/// The run so far, shared by all tasks.
#[derive(Debug)]
pub(super) struct Scene {
    started: Instant,
    seen: Mutex<Seen>,
}

/// What [`Scene`] holds.
#[derive(Debug)]
pub(super) struct Seen {
    /// Latencies and counts.
    pub(super) measure: Measure,
    /// Where each vehicle is and to which site it is attached; none while it is off the road.
    pub(super) vehicles: Vec<Option<(Point, usize)>>,
    /// Operations answered by each site.
    pub(super) sites: Vec<u64>,
    /// What vehicles drove so far.
    pub(super) strokes: Vec<Stroke>,
    /// Failed attempts by error.
    pub(super) failures: BTreeMap<String, u64>,
    /// What must still be there at the end.
    pub(super) ledger: Ledger,
    /// What vehicles expect in their own records.
    pub(super) records: Records,
    /// What vehicles have seen of trips.
    pub(super) trips: Trips,
    /// Both kinds of records side by side.
    pub(super) comparison: Comparison,
    /// What sites lend to each other.
    pub(super) loans: Loans,
    /// What was asked and answered, for a judge.
    pub(super) recorder: Recorder,
    /// The stroke each vehicle is drawing.
    drawing: Vec<Option<usize>>,
    drawn_points: usize,
}

impl Scene {
    /// An empty scene of these sites, for a run of this length; time starts now.
    pub(super) fn new(sites: Vec<String>, vehicles: usize, length: Duration) -> Self {
        let seen = Seen {
            measure: Measure::new(&Operation::NAMES, STALL),
            vehicles: vec![None; vehicles],
            sites: vec![0; sites.len()],
            strokes: Vec::new(),
            failures: BTreeMap::new(),
            ledger: Ledger::default(),
            records: Records::new(vehicles),
            trips: Trips::new(vehicles),
            comparison: Comparison::new(STALL),
            loans: Loans::new(sites.len()),
            recorder: Recorder::new(sites, length),
            drawing: vec![None; vehicles],
            drawn_points: 0,
        };
        Self { started: Instant::now(), seen: Mutex::new(seen) }
    }

    /// Time since the start.
    pub(super) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// What was seen, for a moment.
    pub(super) fn lock(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A site answered.
    pub(super) fn answered(&self, site: usize, operation: Operation, latency: Duration) {
        let at = self.elapsed();
        let mut seen = self.lock();
        seen.sites[site] += 1;
        seen.measure.record(at, operation.index(), latency, Outcome::Ok);
        if let Some(kind) = operation.kind() {
            seen.comparison.answered(at, kind, latency);
        }
    }

    /// An operation was given up.
    pub(super) fn gave_up(&self, operation: Operation, latency: Duration, why: &str) {
        let at = self.elapsed();
        let mut seen = self.lock();
        seen.note_failure(why);
        seen.measure.record(at, operation.index(), latency, Outcome::Error);
    }

    /// An attempt failed and is made again.
    pub(super) fn retried(&self, why: &str) {
        let at = self.elapsed();
        let mut seen = self.lock();
        seen.note_failure(why);
        seen.measure.retry(at);
    }

    /// A vehicle is here, attached to this site; or off the road.
    pub(super) fn placed(&self, vehicle: usize, place: Option<(Point, usize)>) {
        self.lock().place(vehicle, place);
    }
}

impl Seen {
    /// The waits of sessions to be admitted at a site, so far.
    pub(super) fn attach_waits(&self) -> Summary {
        self.measure.operations()[Operation::TripAttach.index()].summary()
    }

    /// Vehicles attached to a site.
    pub(super) fn attached(&self, site: usize) -> usize {
        self.vehicles.iter().flatten().filter(|(_, attached)| *attached == site).count()
    }

    fn note_failure(&mut self, why: &str) {
        if self.failures.len() < FAILURES_MAX || self.failures.contains_key(why) {
            *self.failures.entry(why.to_owned()).or_default() += 1;
        }
    }

    fn place(&mut self, vehicle: usize, place: Option<(Point, usize)>) {
        let before = std::mem::replace(&mut self.vehicles[vehicle], place);
        let Some((at, site)) = place else {
            self.drawing[vehicle] = None;
            return;
        };
        let current = self.drawing[vehicle].filter(|stroke| self.strokes[*stroke].site == site);
        let from = match (current, before) {
            (Some(stroke), _) => self.strokes[stroke].points.last().copied(),
            (None, before) => before.map(|(at, _)| at),
        };
        let Some(from) = from else { return };
        if from.distance_m(at) < DRAWN_EVERY_M || self.drawn_points + 2 > DRAWN_POINTS_MAX {
            return;
        }
        if let Some(stroke) = current {
            self.strokes[stroke].points.push(at);
            self.drawn_points += 1;
        } else {
            self.drawing[vehicle] = Some(self.strokes.len());
            self.strokes.push(Stroke { site, points: vec![from, at] });
            self.drawn_points += 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_is_drawn_in_one_stroke_for_each_site_that_served_it() {
        let scene = Scene::new(vec!["a".to_owned(), "b".to_owned()], 1, STALL);
        let north = |step: u32| Point::new(37.0 + f64::from(step) * 0.001, -122.0);
        for step in 0..10 {
            scene.placed(0, Some((north(step), usize::from(step >= 5))));
            scene.placed(0, Some((north(step), usize::from(step >= 5))));
        }
        scene.placed(0, None);
        scene.placed(0, Some((north(90), 1)));
        scene.placed(0, Some((north(91), 1)));
        let seen = scene.lock();
        let shapes: Vec<(usize, usize)> =
            seen.strokes.iter().map(|stroke| (stroke.site, stroke.points.len())).collect();
        assert_eq!(shapes[0], (0, 5));
        assert_eq!(shapes.iter().map(|(site, _)| *site).collect::<Vec<_>>(), [0, 1, 1]);
        assert_eq!(seen.strokes[2].points, [north(90), north(91)]);
    }

    #[test]
    fn failures_are_counted_by_what_was_said_and_kept_few() {
        let scene = Scene::new(vec!["a".to_owned()], 1, STALL);
        for index in 0..100 {
            scene.retried(&format!("reason {}", index % 50));
        }
        scene.gave_up(Operation::Report, Duration::from_secs(9), "reason 0");
        let seen = scene.lock();
        assert_eq!(seen.failures.len(), FAILURES_MAX);
        assert_eq!(seen.failures["reason 0"], 3);
        assert_eq!((seen.measure.counters().retries, seen.measure.counters().errors), (100, 1));
    }
}
