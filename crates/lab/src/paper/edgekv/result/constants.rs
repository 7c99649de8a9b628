//! Which findings hang on the model's own constant: how long a node works on a request.
//!
//! The order in which setups slow down (figures 11 and 12) is a question of what is busy, and in
//! virtual time nothing is but nodes (0.1 ms a request) and disks. The same points with no work at
//! all, and with four times as much, show whether that constant decides. Figure 5's bend between
//! half of the keys global and all does not hang on it: a mean over operations of two kinds is a
//! straight line in the share of one of them, whatever each takes.

use super::findings::change;
use crate::paper::edgekv::experiment::point::REQUEST_US;
use crate::paper::edgekv::{Figure, Point, Results, Setting, Size};

/// None, ours, and as if nodes were four times slower; µs.
const REQUESTS_US: [u32; 3] = [0, REQUEST_US, 4 * REQUEST_US];

/// The heads of the table.
pub const HEADS: [&str; 6] = [
    "work a request, ms",
    "figure 5, edge: half to all",
    "figure 11, edge: last step",
    "figure 11, cloud: last step",
    "figure 12, edge",
    "figure 12, cloud",
];

fn share(setting: Setting, global_percent: u32, request_us: u32, size: Size) -> Point {
    Point { global_percent, request_us, ..Point::usual(setting, size) }
}

/// The fewest clients, half of the most, and the most.
fn clients(setting: Setting, request_us: u32, size: Size) -> Option<[Point; 3]> {
    let figure = Figure::new(11)?;
    let places = figure.places(size);
    let [first, .., half, most] = places.as_slice() else { return None };
    let point = |place| Point { request_us, ..figure.point(setting, place, size) };
    Some([*first, *half, *most].map(point))
}

/// The runs that it needs.
pub(in crate::paper::edgekv) fn points(size: Size) -> Vec<Point> {
    let of = |request_us| {
        let shares = [50, 100].map(|percent| share(Setting::Edge, percent, request_us, size));
        let both = [Setting::Edge, Setting::Cloud].into_iter();
        shares
            .into_iter()
            .chain(both.filter_map(move |setting| clients(setting, request_us, size)).flatten())
    };
    REQUESTS_US.into_iter().flat_map(of).collect()
}

/// Its rows; runs that are missing are left out.
#[must_use]
pub fn rows(results: &Results, size: Size) -> Vec<[String; 6]> {
    let row = |request_us: u32| {
        let write_ms = |point: Point| Some(results.get(&point)?.write_ms);
        let half_to_all = write_ms(share(Setting::Edge, 100, request_us, size))
            .zip(write_ms(share(Setting::Edge, 50, request_us, size)))
            .map(|(all, half)| change(all / half));
        let last_step = |setting| {
            let [_, half, most] = clients(setting, request_us, size)?;
            Some(change(write_ms(most)? / write_ms(half)?))
        };
        let times = |setting| {
            let [first, _, most] = clients(setting, request_us, size)?;
            let writes_s = |point: Point| Some(results.get(&point)?.writes_s);
            let clients = most.threads as f64 / first.threads as f64;
            Some(format!("{:.1} times, of {clients}", writes_s(most)? / writes_s(first)?))
        };
        let or_dash = |words: Option<String>| words.unwrap_or_else(|| "–".to_owned());
        [
            format!("{:.1}", f64::from(request_us) / 1_000.0),
            or_dash(half_to_all),
            or_dash(last_step(Setting::Edge)),
            or_dash(last_step(Setting::Cloud)),
            or_dash(times(Setting::Edge)),
            or_dash(times(Setting::Cloud)),
        ]
    };
    REQUESTS_US.map(row).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_of_two_kinds_is_a_line_in_the_share_of_one() {
        // No request waits for another: one thread, nothing to work on.
        let mean_ms = |global_percent| {
            let point = share(Setting::Edge, global_percent, 0, Size::Quick);
            Point { threads: 1, operations: 2_000, ..point }.run().unwrap().write_ms
        };
        let (none, half, all) = (mean_ms(0), mean_ms(50), mean_ms(100));
        // Half is drawn, and disks share syncs: a line within a twentieth.
        assert!(((none + all) / 2.0 / half - 1.0).abs() < 0.05, "{none} {half} {all}");
    }

    /// Figure 12 has 10,000 operations whatever the number of clients: 2,000 of them have five each,
    /// and wait for the slowest in the end.
    #[test]
    fn without_work_updates_grow_with_clients_that_have_enough_to_do() {
        let times = |operations| {
            let [first, _, most] = clients(Setting::Edge, 0, Size::Quick).unwrap();
            let writes_s = |point| Point { operations, ..point }.run().unwrap().writes_s;
            let clients = most.threads as f64 / first.threads as f64;
            writes_s(most) / writes_s(first) / clients
        };
        let (five_each, many_each) = (times(200), times(4_000));
        assert!(five_each < 0.8 && many_each > 0.87, "{five_each} {many_each}");
    }

    #[test]
    fn without_work_neither_slows_down_with_more_clients() {
        let last_step = |setting, request_us| {
            let [_, half, most] = clients(setting, request_us, Size::Quick).unwrap();
            // Enough of them that four milliseconds a request keep nodes busy.
            let busy = |point: Point| Point { threads: 4 * point.threads, ..point };
            busy(most).run().unwrap().write_ms / busy(half).run().unwrap().write_ms
        };
        for setting in [Setting::Edge, Setting::Cloud] {
            let without = last_step(setting, 0);
            assert!((without - 1.0).abs() < 0.1, "{setting}: {without}");
        }
        let (edge, cloud) = (last_step(Setting::Edge, 2_000), last_step(Setting::Cloud, 2_000));
        assert!(edge > 1.15 && edge > cloud, "{edge} {cloud}: the near one is busy first");
    }
}
