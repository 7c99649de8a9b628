//! Throughput measured in real time, beside that of virtual time and what was published.
//!
//! The caller that measures it ([`Measured`]) runs real nodes; here is what of it is compared and
//! shown. Both times have the same number of threads, uniform keys, and requests that go directly
//! to the owner.

use crate::paper::edgekv::result::findings::change;
use crate::paper::edgekv::{Keys, Point, Results, Setting, Size};
use crate::report::study::{Card, Cell, Table};

/// Shares of global keys, in percent.
pub const SHARES: [u32; 3] = [0, 50, 100];
/// Threads at each group: few, since all share one machine.
pub const THREADS: usize = 50;
/// What is measured: near clients and far ones.
const SETTINGS: [Setting; 2] = [Setting::Ours, Setting::Cloud];
/// The paper's figure for half global keys (figure 6).
const PUBLISHED: &str = "19 % higher";

/// What came out in real time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measured {
    /// The setting: its links. Requests go directly in both.
    pub setting: Setting,
    /// Of a hundred operations, how many are about global keys.
    pub global_percent: u32,
    /// Operations a second of one client machine.
    pub operations_s: f64,
    /// Updates a second of one client machine.
    pub updates_s: f64,
}

/// The heads of the table.
pub const HEADS: [&str; 5] =
    ["% global", "links", "updates a second, real", "in virtual time", "edge against cloud, real"];

/// The run in virtual time beside one in real time.
#[must_use]
pub fn point(setting: Setting, global_percent: u32, size: Size) -> Point {
    let keys = Keys::Uniform;
    Point { global_percent, keys, threads: THREADS, ..Point::usual(setting, size) }
}

/// The runs in virtual time.
#[must_use]
pub fn points(size: Size) -> Vec<Point> {
    let of = |setting| SHARES.map(|share| point(setting, share, size));
    SETTINGS.into_iter().flat_map(of).collect()
}

/// The rows under [`HEADS`].
#[must_use]
pub fn rows(all: &[Measured], results: &Results, size: Size) -> Vec<[String; 5]> {
    let found = |setting, share| {
        all.iter().find(|one| (one.setting, one.global_percent) == (setting, share))
    };
    let row = |one: &Measured| {
        let virtual_s = results.get(&point(one.setting, one.global_percent, size));
        let cloud = found(Setting::Cloud, one.global_percent);
        let ratio = cloud.filter(|_| one.setting != Setting::Cloud);
        let ratio = ratio.map(|cloud| change(one.updates_s / cloud.updates_s));
        [
            one.global_percent.to_string(),
            if one.setting == Setting::Cloud { "cloud" } else { "edge" }.to_owned(),
            format!("{:.0}", one.updates_s),
            virtual_s.map_or_else(|| "–".to_owned(), |found| format!("{:.0}", found.writes_s)),
            match (ratio, one.global_percent) {
                (Some(ratio), 50) => format!("{ratio} (published: {PUBLISHED})"),
                (Some(ratio), _) => ratio,
                (None, _) => String::new(),
            },
        ]
    };
    all.iter().map(row).collect()
}

/// The card of a report.
#[must_use]
pub fn card(all: &[Measured], results: &Results, size: Size) -> Card {
    let rows = rows(all, results, size);
    let rows = rows.into_iter().map(|row| row.map(Cell::from).into_iter().collect()).collect();
    Card::Tables {
        title: "Throughput in real time".to_owned(),
        about: format!(
            "Real nodes with real disks, all in one process on the machine that made this page; links \
             take as long as in Table 3, requests go directly to the owner. {THREADS} threads at \
             each group, half of them reads, uniform keys. Fsyncs are those of this disk, in virtual \
             time they take 10 ms; virtual cloud goes over gateways, which are next to nothing there. \
             The processors are shared by all nodes and clients: compare the settings."
        ),
        wide: true,
        tables: vec![Table {
            file: "real-time".to_owned(),
            heads: HEADS.iter().map(|head| (*head).to_owned()).collect(),
            rows,
            words: false,
        }],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_stand_beside_each_other_and_beside_virtual_time() {
        let measured = |setting, updates_s| Measured {
            setting,
            global_percent: 50,
            operations_s: 2.0 * updates_s,
            updates_s,
        };
        let all = [measured(Setting::Ours, 300.0), measured(Setting::Cloud, 200.0)];
        let edge = point(Setting::Ours, 50, Size::Quick);
        let found = crate::paper::edgekv::Measured { writes_s: 412.4, ..Default::default() };
        let rows = rows(&all, &Results::from([(edge, found)]), Size::Quick);
        assert_eq!(rows[0], ["50", "edge", "300", "412", "50 % higher (published: 19 % higher)"]);
        assert_eq!(rows[1], ["50", "cloud", "200", "–", ""]);
        assert_eq!(points(Size::Paper).len(), 6);
    }
}
