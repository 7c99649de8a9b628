//! The vehicles' own records: global keys, which a vehicle finds wherever it goes.
//!
//! Each vehicle has two, of the same size and use, in keyspaces that differ in their placement
//! alone:
//!
//! | key | keyspace | where it is |
//! | --- | --- | --- |
//! | `car:<number>` | `cars`, placement adaptive | it follows its vehicle from site to site |
//! | `fixed:<number>` | `fixed`, placement off | at the site that has its slot, by the hash of the key |
//!
//! What a vehicle writes there begins with a number that it counts up:
//!
//! ```text
//! car:17 → "204 37.78012,-122.40771 30512"
//! ```
//!
//! So when it reads its record, at whatever site, it must see what it last wrote and got
//! acknowledged. There is one exception. A write that got no answer may take effect at any later
//! time, even after the next one was acknowledged, as with any client that does not number its
//! writes. A record that shows such a write is *late*, which is counted; any other difference is
//! *wrong*, which must never happen.

use std::collections::BTreeSet;

use lab::geo::Point;
use model::{KeyspaceSpec, Placement};
use wire::resp::Reply;

/// How a record is placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// It follows its users.
    Car,
    /// By the hash of its key.
    Fixed,
}

impl Kind {
    /// All.
    pub(super) const BOTH: [Kind; 2] = [Kind::Car, Kind::Fixed];

    /// What the keys of such records begin with.
    pub(super) fn prefix(self) -> &'static str {
        match self {
            Kind::Car => "car:",
            Kind::Fixed => "fixed:",
        }
    }

    /// The keyspace of such records.
    pub(super) fn keyspace(self) -> KeyspaceSpec {
        let (name, placement) = match self {
            Kind::Car => ("cars", Placement::Adaptive),
            Kind::Fixed => ("fixed", Placement::Off),
        };
        let spec = KeyspaceSpec::linearizable_global(name, self.prefix());
        KeyspaceSpec { placement, ..spec }
    }

    /// Place in [`Kind::BOTH`].
    pub(super) fn index(self) -> usize {
        self as usize
    }
}

/// One of the two records of a vehicle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Record {
    /// Whose.
    pub(super) vehicle: usize,
    /// Which.
    pub(super) kind: Kind,
}

impl Record {
    /// Its key.
    pub(super) fn key(self) -> String {
        format!("{}{}", self.kind.prefix(), self.vehicle)
    }
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

/// What every vehicle expects in its own records.
#[derive(Debug, Default)]
pub(super) struct Records {
    own: Vec<[Own; 2]>,
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
        Self { own: (0..vehicles).map(|_| Default::default()).collect(), found: Found::default() }
    }

    /// How many vehicles there are.
    pub(super) fn vehicles(&self) -> usize {
        self.own.len()
    }

    fn own(&self, record: Record) -> &Own {
        &self.own[record.vehicle][record.kind.index()]
    }

    fn own_mut(&mut self, record: Record) -> &mut Own {
        &mut self.own[record.vehicle][record.kind.index()]
    }

    /// A vehicle is about to write its record; this is the number.
    pub(super) fn writing(&mut self, record: Record) -> u64 {
        let own = self.own_mut(record);
        own.last += 1;
        own.unanswered.insert(own.last);
        own.last
    }

    /// It was written; `every_attempt`: each time that it was sent was answered.
    pub(super) fn acknowledged(&mut self, record: Record, number: u64, every_attempt: bool) {
        let own = self.own_mut(record);
        own.acknowledged = number;
        if every_attempt {
            own.unanswered.remove(&number);
        }
    }

    /// Whether something of it must be there.
    pub(super) fn has_written(&self, record: Record) -> bool {
        self.own(record).acknowledged > 0
    }

    /// A vehicle has read its record, `moved`: for the first time at another site.
    pub(super) fn read(&mut self, record: Record, reply: &Reply, moved: bool) -> Finding {
        let finding = self.judge(record, reply);
        self.found.after_moving += u64::from(moved);
        self.found.late += u64::from(finding == Finding::Late);
        self.found.wrong += u64::from(finding == Finding::Wrong);
        finding
    }

    /// Compares a reply with what the vehicle expects in its record.
    pub(super) fn judge(&self, record: Record, reply: &Reply) -> Finding {
        let own = self.own(record);
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

    fn car(vehicle: usize) -> Record {
        Record { vehicle, kind: Kind::Car }
    }

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
        assert_eq!(car(17).key(), "car:17");
        assert_eq!(Record { kind: Kind::Fixed, ..car(17) }.key(), "fixed:17");
    }

    #[test]
    fn both_kinds_are_in_keyspaces_that_differ_in_placement() {
        let [cars, fixed] = Kind::BOTH.map(Kind::keyspace);
        assert!(cars.lends() && !fixed.lends());
        let KeyspaceSpec { name, prefix, placement, .. } = fixed.clone();
        assert_eq!(KeyspaceSpec { name, prefix, placement, ..cars }, fixed);
        assert_eq!(fixed.check(), Ok(()));
    }

    #[test]
    fn a_vehicle_must_see_what_it_last_wrote() {
        let mut records = Records::new(2);
        assert_eq!(records.read(car(0), &Reply::Null, false), Finding::Right);
        for expected in 1..=3 {
            let number = records.writing(car(0));
            assert_eq!(number, expected);
            records.acknowledged(car(0), number, true);
        }
        assert!(records.has_written(car(0)) && !records.has_written(car(1)));
        assert_eq!(records.read(car(0), &shows(3), true), Finding::Right);
        for wrong in [shows(2), shows(4), Reply::Null, Reply::Bulk("else".into())] {
            assert_eq!(records.read(car(0), &wrong, true), Finding::Wrong, "{wrong:?}");
        }
        assert_eq!(records.found(), Found { after_moving: 5, late: 0, wrong: 4 });
        // The other one's record is its own.
        assert_eq!(records.read(car(1), &shows(3), false), Finding::Wrong);
        // So is its other record.
        let fixed = Record { kind: Kind::Fixed, ..car(0) };
        assert!(!records.has_written(fixed));
        assert_eq!(records.read(fixed, &Reply::Null, false), Finding::Right);
    }

    #[test]
    fn what_was_not_answered_may_be_seen_and_need_not() {
        let mut records = Records::new(1);
        let first = records.writing(car(0));
        records.acknowledged(car(0), first, true);
        // Sent twice, answered once: the other may still arrive, whatever is written next.
        let second = records.writing(car(0));
        records.acknowledged(car(0), second, false);
        let third = records.writing(car(0));
        records.acknowledged(car(0), third, true);
        let _given_up = records.writing(car(0));
        let mut finds = |number: u64| records.read(car(0), &shows(number), false);
        assert_eq!(finds(3), Finding::Right);
        assert_eq!((finds(2), finds(4)), (Finding::Late, Finding::Late));
        assert_eq!((finds(1), finds(5)), (Finding::Wrong, Finding::Wrong));
        assert_eq!(records.found(), Found { after_moving: 0, late: 2, wrong: 2 });
    }
}
