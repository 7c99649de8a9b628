//! Two placements side by side: records that follow their users, and records placed by hash.
//!
//! Both are used alike ([`super::records`]), so what differs between them is where they are. A
//! record is *at the own site* when the site that its user is attached to serves it as the
//! operation begins, and need not ask another one.

use std::time::Duration;

use lab::{
    measure::{Measure, Outcome, Summary, windows::Windows},
    report::{Tile, Tone},
};

use super::{
    course::{Course, SHORTEST},
    records::Kind,
};

/// Names of the two, in the order of [`Kind::BOTH`].
pub(super) const NAMES: [&str; 2] = ["data that follows", "placed by hash"];

/// The run so far.
#[derive(Debug)]
pub(super) struct Comparison {
    latencies: Measure,
    placed: [Placed; 2],
    /// Latencies of both, and the groups moved.
    windows: Windows,
}

/// Where records were when they were used.
#[derive(Debug, Clone, Copy, Default)]
struct Placed {
    everywhere: u64,
    at_own_site: u64,
}

/// One of the two, at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Side {
    /// All writes and reads of such records.
    pub(super) latency: Summary,
    /// In how many of a hundred of them the record was at the own site; none: there are none.
    pub(super) own_site_percent: Option<u64>,
}

/// Both, in the order of [`Kind::BOTH`].
pub(super) type Sides = [Side; 2];

impl Comparison {
    /// Nothing is counted yet; an answer later than `stall` is a stall.
    pub(super) fn new(stall: Duration) -> Self {
        let windows = Windows::new(NAMES.len(), SHORTEST);
        Self { latencies: Measure::new(&NAMES, stall), placed: Default::default(), windows }
    }

    /// A write or read of such a record was answered.
    pub(super) fn answered(&mut self, at: Duration, kind: Kind, latency: Duration) {
        self.latencies.record(at, kind.index(), latency, Outcome::Ok);
        self.windows.record(at, kind.index(), latency);
    }

    /// So many groups were moved.
    pub(super) fn moved(&mut self, at: Duration, groups: u64) {
        self.windows.count(at, groups);
    }

    /// Window by window until now.
    pub(super) fn course(&mut self, at: Duration) -> Course {
        self.windows.advance(at);
        Course::of(&self.windows)
    }

    /// Whether the record was at the own site.
    pub(super) fn placed(&mut self, kind: Kind, is_at_own_site: bool) {
        let placed = &mut self.placed[kind.index()];
        placed.everywhere += 1;
        placed.at_own_site += u64::from(is_at_own_site);
    }

    /// The run so far.
    pub(super) fn sides(&self) -> Sides {
        let side = |kind: Kind| {
            let Placed { everywhere, at_own_site } = self.placed[kind.index()];
            Side {
                latency: self.latencies.operations()[kind.index()].summary(),
                own_site_percent: (at_own_site * 100).checked_div(everywhere),
            }
        };
        Kind::BOTH.map(side)
    }
}

impl Side {
    /// Its median in words.
    fn median(&self) -> String {
        match self.latency {
            Summary { count: 0, .. } => "–".to_owned(),
            Summary { p50_ms, .. } => format!("{p50_ms:.0} ms"),
        }
    }

    /// Median, 99th percentile, and the part that is answered at the own site.
    pub(super) fn cells(&self) -> [String; 3] {
        let Summary { count, p50_ms, p99_ms, .. } = self.latency;
        let shown = |ms: f64| if count > 0 { format!("{ms:.1}") } else { "–".to_owned() };
        let percent = self.own_site_percent.map_or("–".to_owned(), |part| format!("{part} %"));
        [shown(p50_ms), shown(p99_ms), percent]
    }
}

/// The comparison in a sentence.
pub(super) fn headline([follows, hashed]: &Sides) -> String {
    let ([name, other], one, another) = (NAMES, follows.median(), hashed.median());
    format!("{name}: p50 {one}; {other}: {another}")
}

/// Both as figures of the report.
pub(super) fn tiles(sides: &Sides) -> Vec<Tile> {
    let tile = |(name, side): (&&str, &Side)| {
        let [_, p99, part] = side.cells();
        let note = format!("p50 of records; p99 {p99} ms; {part} at the own site");
        Tile::new(name, side.median(), note, Tone::Plain)
    };
    NAMES.iter().zip(sides).map(tile).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_its_own_median_and_part() {
        let mut comparison = Comparison::new(Duration::from_secs(1));
        assert_eq!(headline(&comparison.sides()), "data that follows: p50 –; placed by hash: –");
        for step in 0..4 {
            let at = Duration::from_millis(step * 400);
            comparison.answered(at, Kind::Car, Duration::from_millis(3));
            comparison.answered(at, Kind::Fixed, Duration::from_millis(41));
            comparison.placed(Kind::Car, step > 0);
            comparison.placed(Kind::Fixed, false);
        }
        let sides = comparison.sides();
        assert_eq!(headline(&sides), "data that follows: p50 3 ms; placed by hash: 41 ms");
        assert_eq!(sides.map(|side| side.own_site_percent), [Some(75), Some(0)]);
        let [p50, p99, part] = sides[0].cells();
        assert_eq!((p50.as_str(), p99.as_str(), part.as_str()), ("3.0", "3.0", "75 %"));
        assert_eq!(Side::default().cells(), ["–", "–", "–"]);
        comparison.moved(Duration::from_secs(1), 5);
        let course = comparison.course(2 * SHORTEST);
        let newest = course.newest_whole().map(super::super::course::text);
        let expected = "2 to 4 s: p50 follows –, by hash –; groups moved 0";
        assert_eq!(newest.as_deref(), Some(expected));
        let [first, second] = course.over_time().panels.remove(1).series[0].1[..] else { panic!() };
        assert_eq!((first, second), (Some(5.0), Some(0.0)));
    }
}
