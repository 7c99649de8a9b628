//! The vehicles' trips: causal keys, which every site holds, and sessions that move with the
//! vehicles.
//!
//! A vehicle keeps a record of its trip in the keyspace `trips`, `consistency = causal`. It writes
//! and reads it at the site where it is, which asks no other one. The vehicle is one session: it
//! takes a token along, and attaches with it to the site that it comes to, which waits until it has
//! what the session has seen. A vehicle also follows the next one, whose trip it reads, and writes
//! into its own record how much of that it has seen:
//!
//! ```text
//! trip:17 → "204 31 37.78012,-122.40771 30512"    the 204th record of 17, which has seen the 31st of 18
//! ```
//!
//! Every read is judged as it comes. An *anomaly* is one that is
//!
//! - older than what its session has seen or written: it would have gone back in time, or
//! - older than the cause of what its session has seen: who has read the record above, and then
//!   reads the trip of 18, must find the 31st or a later one.
//!
//! Neither must ever happen, wherever the vehicles are meanwhile. There is one exception, as with
//! [`super::records`]: a write that got no answer may take effect at any later time. Such a read is
//! *late*, and is counted apart.

use std::collections::BTreeSet;

use lab::{geo::Point, measure::Summary};
use model::KeyspaceSpec;
use wire::resp::Reply;

/// Whose trips a vehicle reads: its own, that of the one it follows, and that of the one which that
/// one follows.
pub(super) const OWN: usize = 0;
/// See [`OWN`].
pub(super) const FOLLOWED: usize = 1;
/// See [`OWN`].
pub(super) const CAUSE: usize = 2;

/// The keyspace of trips.
pub(super) fn keyspace() -> KeyspaceSpec {
    KeyspaceSpec::causal_region("trips", "trip:")
}

/// The key of a vehicle's trip.
pub(super) fn key(vehicle: usize) -> String {
    format!("trip:{vehicle}")
}

/// What a vehicle writes there: its number, how much it has seen of the one that it follows, and
/// where it is.
pub(super) fn value((number, cause): (u64, u64), at: Point, t_s: f64) -> String {
    format!("{number} {cause} {:.5},{:.5} {t_s:.0}", at.lat, at.lon)
}

/// Both numbers of a record, from the reply to GET: 0 if there is no record, none if it is not one.
fn numbers(reply: &Reply) -> Option<(u64, u64)> {
    match reply {
        Reply::Null => Some((0, 0)),
        Reply::Bulk(bytes) => {
            let mut words = std::str::from_utf8(bytes).ok()?.split(' ');
            Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
        }
        _ => None,
    }
}

/// What vehicles found in trips.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Found {
    /// How many reads were judged.
    pub(super) reads: u64,
    /// Of these, how many showed a write that had got no answer.
    pub(super) late: u64,
    /// Of these, how many must not have happened.
    pub(super) anomalies: u64,
    /// Sessions that ended because a site was gone with what they had written.
    pub(super) lost: u64,
}

impl Found {
    /// With the waits of attaches, in half a line.
    pub(super) fn text(&self, attach: &Summary) -> [String; 2] {
        let Summary { count, p50_ms, p99_ms, .. } = attach;
        let waits = match count {
            0 => "trips: attach –; ".to_owned(),
            _ => format!("trips: attach p50 {p50_ms:.0}, p99 {p99_ms:.0} ms; "),
        };
        [waits, format!("{} anomalies", self.anomalies)]
    }
}

/// All trips, and what each session has seen of them.
#[derive(Debug, Default)]
pub(super) struct Trips {
    each: Vec<Trip>,
    found: Found,
}

/// A vehicle's trip, and its session.
#[derive(Debug, Default)]
struct Trip {
    /// The last number that was given out.
    last: u64,
    /// The last that was acknowledged; 0: none.
    acknowledged: u64,
    /// Numbers of which a write was sent and not answered. Few: an attempt that fails is rare.
    unanswered: BTreeSet<u64>,
    /// What its session has seen of [`OWN`], [`FOLLOWED`] and [`CAUSE`].
    seen: [u64; 3],
    token: Option<String>,
}

impl Trips {
    /// Of so many vehicles, none of which has written.
    pub(super) fn new(vehicles: usize) -> Self {
        Self { each: (0..vehicles).map(|_| Trip::default()).collect(), found: Found::default() }
    }

    /// The vehicle whose trip it is: [`OWN`], [`FOLLOWED`] or [`CAUSE`] of this one.
    pub(super) fn whose(&self, vehicle: usize, which: usize) -> usize {
        (vehicle + which) % self.each.len()
    }

    /// A vehicle is about to write: its number, and what it has seen of the one that it follows.
    pub(super) fn writing(&mut self, vehicle: usize) -> (u64, u64) {
        let trip = &mut self.each[vehicle];
        trip.last += 1;
        trip.unanswered.insert(trip.last);
        (trip.last, trip.seen[FOLLOWED])
    }

    /// It was written; `every_attempt`: each time that it was sent was answered.
    pub(super) fn acknowledged(&mut self, vehicle: usize, number: u64, every_attempt: bool) {
        let trip = &mut self.each[vehicle];
        (trip.acknowledged, trip.seen[OWN]) = (number, number);
        if every_attempt {
            trip.unanswered.remove(&number);
        }
    }

    /// A vehicle has read one of its three trips. `false`: an anomaly.
    pub(super) fn read(&mut self, vehicle: usize, which: usize, reply: &Reply) -> bool {
        self.found.reads += 1;
        let Some((number, cause)) = numbers(reply) else {
            self.found.anomalies += 1;
            return false;
        };
        let is_old = number < self.each[vehicle].seen[which];
        let may_be_late = self.each[self.whose(vehicle, which)].unanswered.contains(&number);
        let seen = &mut self.each[vehicle].seen;
        seen[which] = number;
        if which == FOLLOWED {
            seen[CAUSE] = seen[CAUSE].max(cause);
        }
        self.found.late += u64::from(is_old && may_be_late);
        self.found.anomalies += u64::from(is_old && !may_be_late);
        !is_old || may_be_late
    }

    /// What a session takes along; none: it has seen nothing.
    pub(super) fn token(&self, vehicle: usize) -> Option<String> {
        self.each[vehicle].token.clone()
    }

    /// An answer has brought this token.
    pub(super) fn carries(&mut self, vehicle: usize, token: String) {
        self.each[vehicle].token = Some(token);
    }

    /// What a session has seen is lost with a site: another one begins.
    pub(super) fn begin_anew(&mut self, vehicle: usize) {
        let trip = &mut self.each[vehicle];
        (trip.token, trip.seen) = (None, [0; 3]);
        self.found.lost += 1;
    }

    /// Whether a reply shows what a vehicle's session has written, at the end; none: it has written
    /// nothing.
    pub(super) fn is_kept(&self, vehicle: usize, reply: &Reply) -> Option<bool> {
        let trip = &self.each[vehicle];
        if trip.seen[OWN] == 0 {
            return None;
        }
        let found = numbers(reply).map(|(number, _)| number);
        Some(
            found.is_some_and(|found| {
                found >= trip.acknowledged || trip.unanswered.contains(&found)
            }),
        )
    }

    /// How many vehicles there are.
    pub(super) fn vehicles(&self) -> usize {
        self.each.len()
    }

    /// What was found so far.
    pub(super) fn found(&self) -> Found {
        self.found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shows(number: u64, cause: u64) -> Reply {
        Reply::Bulk(value((number, cause), Point::new(37.78, -122.4), 30_512.4).into())
    }

    fn wrote(trips: &mut Trips, vehicle: usize, every_attempt: bool) -> u64 {
        let (number, _) = trips.writing(vehicle);
        trips.acknowledged(vehicle, number, every_attempt);
        number
    }

    #[test]
    fn a_trip_begins_with_its_number_and_its_cause() {
        assert_eq!(value((4, 31), Point::new(37.78, -122.4), 3.0), "4 31 37.78000,-122.40000 3");
        assert_eq!(numbers(&shows(4, 31)), Some((4, 31)));
        assert_eq!(numbers(&Reply::Null), Some((0, 0)));
        assert_eq!(numbers(&Reply::Bulk("4".into())), None);
        assert_eq!(numbers(&Reply::Integer(41)), None);
        assert_eq!(key(17), "trip:17");
        assert!(keyspace().is_causal() && keyspace().sites.is_empty());
    }

    #[test]
    fn a_session_never_goes_back() {
        let mut trips = Trips::new(4);
        assert!(trips.read(0, OWN, &Reply::Null));
        for _ in 0..3 {
            wrote(&mut trips, 0, true);
        }
        assert!(trips.read(0, OWN, &shows(3, 0)));
        assert!(!trips.read(0, OWN, &shows(2, 0)), "it has written the third");
        assert!(trips.read(3, FOLLOWED, &shows(1, 0)), "others may be behind");
        assert!(trips.read(3, FOLLOWED, &shows(3, 0)));
        assert!(!trips.read(3, FOLLOWED, &Reply::Null), "but not behind what they have seen");
        assert!(!trips.read(3, FOLLOWED, &Reply::Bulk("else".into())));
        assert_eq!(trips.found(), Found { reads: 7, anomalies: 3, ..Found::default() });
        trips.begin_anew(3);
        assert!(trips.read(3, FOLLOWED, &Reply::Null), "another session has seen nothing");
    }

    #[test]
    fn no_effect_is_seen_before_its_cause() {
        let mut trips = Trips::new(4);
        for _ in 0..5 {
            wrote(&mut trips, 2, true);
        }
        assert!(trips.read(1, FOLLOWED, &shows(5, 0)));
        assert_eq!(trips.writing(1), (1, 5));
        assert!(trips.read(0, CAUSE, &Reply::Null), "it has a record of nothing");
        assert!(trips.read(0, FOLLOWED, &shows(1, 5)));
        assert!(!trips.read(0, CAUSE, &shows(4, 0)), "the one that it follows has seen the fifth");
        assert!(trips.read(0, CAUSE, &shows(5, 0)));
    }

    #[test]
    fn what_was_not_answered_may_come_late() {
        let mut trips = Trips::new(2);
        wrote(&mut trips, 0, true);
        let twice = wrote(&mut trips, 0, false);
        wrote(&mut trips, 0, true);
        assert!(trips.read(0, OWN, &shows(twice, 0)));
        assert_eq!(trips.found(), Found { reads: 1, late: 1, ..Found::default() });
        assert_eq!(trips.is_kept(0, &shows(3, 0)), Some(true));
        assert_eq!(trips.is_kept(0, &shows(twice, 0)), Some(true));
        assert_eq!(trips.is_kept(0, &shows(1, 0)), Some(false));
        assert_eq!(trips.is_kept(1, &Reply::Null), None);
    }

    #[test]
    fn the_line_says_waits_and_anomalies() {
        let attach = Summary { count: 9, p50_ms: 12.4, p99_ms: 85.0, ..Summary::default() };
        let found = Found { reads: 9, ..Found::default() };
        let all = found.text(&attach).concat();
        assert_eq!(all, "trips: attach p50 12, p99 85 ms; 0 anomalies");
        assert_eq!(found.text(&Summary::default()).concat(), "trips: attach –; 0 anomalies");
    }
}
