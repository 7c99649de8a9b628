//! The vehicles' own records: global keys, which a vehicle finds wherever it goes.
//!
//! Each vehicle has one, `car:<number>`. What it writes there begins with a number that it counts up:
//!
//! ```text
//! car:17 → "204 37.78012,-122.40771 30512"
//! ```
//!
//! So when it reads its record, at whatever site, it must see what it last wrote and got
//! acknowledged. There is one exception. A write that got no answer may take effect at any later
//! time, even after the next one was acknowledged, as with any client that does not number its writes.
//! A record that shows such a write is *late*, which is counted; any other difference is *wrong*, which
//! must never happen.

use std::collections::BTreeSet;

use lab::geo::Point;
use wire::resp::Reply;

/// What the keys of records begin with.
pub(super) const PREFIX: &str = "car:";

/// The key of a vehicle's record.
pub(super) fn key(vehicle: usize) -> String {
    format!("{PREFIX}{vehicle}")
}

/// What a vehicle writes as its record.
pub(super) fn value(number: u64, at: Point, t_s: f64) -> String {
    format!("{number} {:.5},{:.5} {t_s:.0}", at.lat, at.lon)
}

/// The number in a record, from the reply to GET: 0 if there is no record, none if it is not one.
fn number(reply: &Reply) -> Option<u64> {
    match reply {
        Reply::Null => Some(0),
        Reply::Bulk(bytes) => std::str::from_utf8(bytes).ok()?.split(' ').next()?.parse().ok(),
        _ => None,
    }
}

/// The result of reading a vehicle's record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Finding {
    /// What was last acknowledged.
    Right,
    /// A write that never was answered.
    Late,
    /// Anything else: what was acknowledged is lost, or came back.
    Wrong,
}

/// What vehicles found in their records after moving to another site.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Found {
    /// How often they read it there.
    pub(super) after_moving: u64,
    /// Of all readings of own records, those that were late.
    pub(super) late: u64,
    /// Of all readings of own records, those that were wrong.
    pub(super) wrong: u64,
}

/// What every vehicle expects in its own record.
#[derive(Debug, Default)]
pub(super) struct Records {
    own: Vec<Own>,
    found: Found,
}

#[derive(Debug, Default)]
struct Own {
    /// The last number that was given out.
    last: u64,
    /// The last that was acknowledged; 0: none.
    acknowledged: u64,
    /// Numbers of which a write was sent and not answered. Few: an attempt that fails is rare.
    unanswered: BTreeSet<u64>,
}

impl Records {
    /// Of so many vehicles, none of which has written.
    pub(super) fn new(vehicles: usize) -> Self {
        Self { own: (0..vehicles).map(|_| Own::default()).collect(), found: Found::default() }
    }

    /// How many vehicles there are.
    pub(super) fn vehicles(&self) -> usize {
        self.own.len()
    }

    /// A vehicle is about to write its record; this is the number.
    pub(super) fn writing(&mut self, vehicle: usize) -> u64 {
        let own = &mut self.own[vehicle];
        own.last += 1;
        own.unanswered.insert(own.last);
        own.last
    }

    /// It was written; `every_attempt`: each time that it was sent was answered.
    pub(super) fn acknowledged(&mut self, vehicle: usize, number: u64, every_attempt: bool) {
        let own = &mut self.own[vehicle];
        own.acknowledged = number;
        if every_attempt {
            own.unanswered.remove(&number);
        }
    }

    /// Whether something of it must be there.
    pub(super) fn has_written(&self, vehicle: usize) -> bool {
        self.own[vehicle].acknowledged > 0
    }

    /// A vehicle has read its record, `moved`: for the first time at another site.
    pub(super) fn read(&mut self, vehicle: usize, reply: &Reply, moved: bool) -> Finding {
        let finding = self.judge(vehicle, reply);
        self.found.after_moving += u64::from(moved);
        self.found.late += u64::from(finding == Finding::Late);
        self.found.wrong += u64::from(finding == Finding::Wrong);
        finding
    }

    /// Compares a reply with what the vehicle expects in its record.
    pub(super) fn judge(&self, vehicle: usize, reply: &Reply) -> Finding {
        let own = &self.own[vehicle];
        match number(reply) {
            Some(number) if number == own.acknowledged => Finding::Right,
            Some(number) if own.unanswered.contains(&number) => Finding::Late,
            _ => Finding::Wrong,
        }
    }

    /// What was found so far.
    pub(super) fn found(&self) -> Found {
        self.found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shows(number: u64) -> Reply {
        Reply::Bulk(value(number, Point::new(37.78, -122.4), 30_512.4).into())
    }

    #[test]
    fn a_record_begins_with_its_number() {
        assert_eq!(value(41, Point::new(37.78, -122.4), 3.0), "41 37.78000,-122.40000 3");
        assert_eq!(number(&shows(41)), Some(41));
        assert_eq!(number(&Reply::Null), Some(0));
        assert_eq!(number(&Reply::Bulk("else".into())), None);
        assert_eq!(number(&Reply::Integer(41)), None);
        assert_eq!(key(17), "car:17");
    }

    #[test]
    fn a_vehicle_must_see_what_it_last_wrote() {
        let mut records = Records::new(2);
        assert_eq!(records.read(0, &Reply::Null, false), Finding::Right);
        for expected in 1..=3 {
            let number = records.writing(0);
            assert_eq!(number, expected);
            records.acknowledged(0, number, true);
        }
        assert!(records.has_written(0) && !records.has_written(1));
        assert_eq!(records.read(0, &shows(3), true), Finding::Right);
        for wrong in [shows(2), shows(4), Reply::Null, Reply::Bulk("else".into())] {
            assert_eq!(records.read(0, &wrong, true), Finding::Wrong, "{wrong:?}");
        }
        assert_eq!(records.found(), Found { after_moving: 5, late: 0, wrong: 4 });
        // The other one's record is its own.
        assert_eq!(records.read(1, &shows(3), false), Finding::Wrong);
    }

    #[test]
    fn what_was_not_answered_may_be_seen_and_need_not() {
        let mut records = Records::new(1);
        let first = records.writing(0);
        records.acknowledged(0, first, true);
        // Sent twice, answered once: the other may still arrive, whatever is written next.
        let second = records.writing(0);
        records.acknowledged(0, second, false);
        let third = records.writing(0);
        records.acknowledged(0, third, true);
        let _given_up = records.writing(0);
        let mut finds = |number: u64| records.read(0, &shows(number), false);
        assert_eq!(finds(3), Finding::Right);
        assert_eq!((finds(2), finds(4)), (Finding::Late, Finding::Late));
        assert_eq!((finds(1), finds(5)), (Finding::Wrong, Finding::Wrong));
        assert_eq!(records.found(), Found { after_moving: 0, late: 2, wrong: 2 });
    }
}
