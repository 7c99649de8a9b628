//! What copies of remote keys are good for: reads by their latency, and bytes between groups.

use crate::paper::edgekv::{Measured, Point, Results, Setting, Size};

/// Lengths of values, and whether nearly all operations are reads: the paper's load, one in which
/// copies stay right for a while, and one at which bytes count.
const LOADS: [(usize, bool); 3] = [(100, false), (100, true), (10_000, true)];
/// What is compared.
const SETTINGS: [Setting; 3] = [Setting::Ours, Setting::Cached, Setting::Stale];

/// The heads of the table.
pub const HEADS: [&str; 7] = [
    "setting",
    "% reads",
    "bytes of a value",
    "reads, ms",
    "remote reads, median ms",
    "updates a second",
    "bytes between groups, an operation",
];

/// One row of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Row {
    /// The run.
    pub point: Point,
    /// What it came to.
    pub measured: Measured,
}

impl Row {
    /// Its cells, under [`HEADS`].
    #[must_use]
    pub fn cells(&self) -> [String; 7] {
        let Row { point, measured } = self;
        let remote = measured.remote_ms.map(|(read, _)| format!("{read:.1}"));
        [
            point.setting.to_string(),
            if point.mostly_reads { "95" } else { "50" }.to_owned(),
            point.value_bytes.to_string(),
            format!("{:.1}", measured.read_ms),
            remote.unwrap_or_else(|| "–".to_owned()),
            format!("{:.1}", measured.writes_s),
            measured.inter_site_bytes.to_string(),
        ]
    }
}

/// The runs that it needs.
pub(in crate::paper::edgekv) fn points(size: Size) -> Vec<Point> {
    let with = |(value_bytes, mostly_reads)| {
        SETTINGS.map(|setting| Point { value_bytes, mostly_reads, ..Point::usual(setting, size) })
    };
    LOADS.into_iter().flat_map(with).collect()
}

/// All rows whose runs there are.
#[must_use]
pub fn all(results: &Results, size: Size) -> Vec<Row> {
    let row = |point: Point| Some(Row { point, measured: *results.get(&point)? });
    points(size).into_iter().filter_map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn validated_copies_save_bytes_and_stale_ones_the_way_of_reads() {
        let measured = SETTINGS.map(|setting| {
            let usual = Point::usual(setting, Size::Quick);
            let few = Point { records: 30, operations: 600, global_percent: 100, ..usual };
            Point { value_bytes: 10_000, mostly_reads: true, ..few }.run().unwrap()
        });
        let [ours, cached, stale] = measured;
        let remote_read_ms = |measured: Measured| measured.remote_ms.unwrap().0;
        assert!(cached.inter_site_bytes * 10 < ours.inter_site_bytes * 7, "{cached:?} {ours:?}");
        assert!((remote_read_ms(cached) / remote_read_ms(ours) - 1.0).abs() < 0.05);
        assert!(stale.inter_site_bytes < cached.inter_site_bytes, "{stale:?} {cached:?}");
        assert!(stale.read_ms < 0.9 * ours.read_ms, "{stale:?} {ours:?}");
        let row = Row { point: points(Size::Quick)[8], measured: stale };
        assert_eq!(row.cells()[..3], ["ours, stale reads from copies", "95", "10000"]);
    }
}
