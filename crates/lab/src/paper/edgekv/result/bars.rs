//! What has been set as a goal for this experiment, and what came out. Nothing is fitted to it.

use super::findings::change;
use crate::paper::edgekv::{Keys, Measured, Point, Results, Setting, Size};

/// What is compared, and the same in few words.
const EDGE_LATENCY: [&str; 2] = ["edge against cloud: write latency", "latency, edge"];
const EDGE_THROUGHPUT: [&str; 2] = ["edge against cloud: write throughput", "throughput, edge"];
const OURS_LATENCY: [&str; 2] = ["ours against cloud: write latency", "latency, ours"];
const READ: [&str; 2] = ["remote read, owner known", "remote read"];
const UPDATE: [&str; 2] = ["remote update, owner known", "remote update"];
/// By how much a latency may differ from what its links and disks add up to.
const APART_MAX: f64 = 0.05;

/// A goal, and whether it was reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bar {
    /// What is compared.
    pub what: &'static str,
    /// The same in few words.
    pub short: &'static str,
    /// What it should be.
    pub goal: String,
    /// What it is.
    pub here: String,
    /// Whether that will do.
    pub met: bool,
}

/// The runs that bars need: the usual load in each setting, and one thread at a time that asks for
/// global keys only.
pub(in crate::paper::edgekv) fn points(size: Size) -> Vec<Point> {
    let usual = [Setting::Edge, Setting::Cloud, Setting::Ours];
    let usual = usual.into_iter().map(|setting| Point::usual(setting, size));
    usual.chain([alone(size)]).collect()
}

/// Nothing is in its way, and of a few keys every site soon has the owners in its map.
fn alone(size: Size) -> Point {
    let usual = Point::usual(Setting::Ours, size);
    let (records, operations) = (10, usual.operations / 4);
    Point { global_percent: 100, keys: Keys::Uniform, threads: 1, records, operations, ..usual }
}

/// What a remote read and a remote update take by their links and disks, in ms: to the client's
/// node and back; to the node that leads the owner and back; there a round among its nodes, and
/// for an update an fsync of one of them; and the time that the client's node works on it.
fn expected_ms(point: &Point) -> (f64, f64) {
    let world = point.world();
    let client = world.client_link(world.sites[0].at, 0).latency.mean_ms();
    let site = world.site_link(0, 1).latency.mean_ms();
    let node = world.node_link(0).latency.mean_ms();
    let read = 2.0 * (client + site + node) + world.node.request_ms;
    (read, read + world.node.sync_ms.0)
}

/// All bars.
#[must_use]
pub fn all(results: &Results, size: Size) -> Vec<Bar> {
    let of = |setting| results.get(&Point::usual(setting, size)).copied().unwrap_or_default();
    let (edge, cloud, ours) = (of(Setting::Edge), of(Setting::Cloud), of(Setting::Ours));
    let mut bars = against_cloud(&edge, &cloud, &ours);
    let alone = alone(size);
    let expected = expected_ms(&alone);
    let found = results.get(&alone).and_then(|measured| measured.remote_ms);
    bars.push(near(READ, expected.0, found.map(|(read, _)| read)));
    bars.push(near(UPDATE, expected.1, found.map(|(_, update)| update)));
    bars
}

fn against_cloud(edge: &Measured, cloud: &Measured, ours: &Measured) -> Vec<Bar> {
    let bar = |[what, short]: [&'static str; 2], goal: &str, ratio: f64, met| Bar {
        what,
        short,
        goal: goal.to_owned(),
        here: if ratio.is_finite() { change(ratio) } else { "–".to_owned() },
        met: ratio.is_finite() && met,
    };
    let latency = edge.write_ms / cloud.write_ms;
    let throughput = edge.writes_s / cloud.writes_s;
    let direct = ours.write_ms / cloud.write_ms;
    vec![
        bar(EDGE_LATENCY, "26 % lower", latency, latency <= 0.74),
        bar(EDGE_THROUGHPUT, "19 % higher", throughput, throughput >= 1.19),
        bar(OURS_LATENCY, "45 % lower", direct, direct <= 0.55),
    ]
}

fn near([what, short]: [&'static str; 2], expected_ms: f64, found_ms: Option<f64>) -> Bar {
    let apart = found_ms.map(|found_ms| found_ms / expected_ms - 1.0);
    let here = found_ms
        .zip(apart)
        .map(|(found_ms, apart)| format!("{found_ms:.1} ms ({:+.1} %)", 100.0 * apart));
    Bar {
        what,
        short,
        goal: format!("{expected_ms:.1} ms ± {:.0} %", 100.0 * APART_MAX),
        here: here.unwrap_or_else(|| "–".to_owned()),
        met: apart.is_some_and(|apart| apart.abs() <= APART_MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_is_that_of_the_links() {
        // 2 × (5 + 14 + 2) and what the node works; an fsync more.
        let (read, update) = expected_ms(&alone(Size::Paper));
        assert!((read - 42.1).abs() < 1e-9 && (update - 52.1).abs() < 1e-9, "{read} {update}");
    }

    #[test]
    fn a_bar_is_met_at_its_edge_and_not_beyond() {
        let measured = |write_ms, writes_s| Measured { write_ms, writes_s, ..Measured::default() };
        let met = |edge, cloud, ours| -> Vec<bool> {
            against_cloud(&edge, &cloud, &ours).iter().map(|bar| bar.met).collect()
        };
        let cloud = measured(100.0, 100.0);
        let edge = measured(74.0, 119.0);
        assert_eq!(met(edge, cloud, measured(55.0, 0.0)), [true; 3]);
        assert_eq!(met(measured(74.1, 118.9), cloud, measured(55.1, 0.0)), [false; 3]);
        assert_eq!(met(edge, Measured::default(), edge), [false; 3], "nothing was measured");
        assert!(near(READ, 40.0, Some(41.9)).met && !near(READ, 40.0, Some(42.1)).met);
        assert!(!near(READ, 40.0, None).met);
    }
}
