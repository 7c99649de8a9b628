//! Which runs make which figure, and which make the bars.
//!
//! | file | its one idea |
//! | --- | --- |
//! | [`world`] | sites, latencies, where clients are |
//! | [`workload`] | accesses in the order of time |
//! | [`play`] | the substrate: keys, links, moves, waits |
//! | [`strategy`] | strategies that go by what they have seen |
//! | [`optimal`] | strategies that know the future |
//! | [`point`] | one run |
//! | [`capacity`], [`liars`], [`scaling`] | runs of other kinds |
//! | `cars` | whole sites, for [`lending`] and [`staying`] |

pub mod capacity;
mod cars;
pub mod lending;
pub mod liars;
pub mod optimal;
pub mod play;
pub mod point;
pub mod scaling;
pub mod staying;
pub mod strategy;
pub mod workload;
pub mod world;

use std::collections::BTreeMap;

use self::point::{Point, Scene, Strategy};
use self::workload::Workload;
use super::{Measured, Size};

/// The figures of the paper that come of an evaluation.
pub const FIGURES: [u8; 8] = [4, 8, 9, 10, 11, 12, 13, 14];
/// Percent of the access points that have a site.
pub const DENSITIES: [u8; 5] = [20, 40, 60, 80, 100];
/// Megabits a second of a link.
pub const MBPS: [u16; 4] = [1, 10, 100, 1_000];
/// Figure 10: which latencies, and the paper's name for them.
pub const LATENCIES: [(Scene, &str); 4] = [
    (Scene::Base, "base"),
    (Scene::Slow, "slow"),
    (Scene::PeerToPeer, "p2p"),
    (Scene::FastWired, "fast wired"),
];
/// Figure 14: which deployment, what is accessed.
pub const DEPLOYMENTS: [(Scene, Workload, &str); 2] = [
    (Scene::Building, Workload::PerClient, "smart building"),
    (Scene::Campuses, Workload::PerClient, "crowd sourcing"),
];

/// What each run came to.
pub type Results = BTreeMap<Point, Measured>;

/// The seeds of each run.
#[must_use]
pub fn seeds(size: Size) -> std::ops::RangeInclusive<u64> {
    if size == Size::Paper { 1..=5 } else { 1..=1 }
}

fn both(point: Point) -> [Point; 2] {
    [point, point.for_tail()]
}

/// The points of a figure for one seed. Figure 12 has none: it is of real time.
fn of_figure(figure: u8, seed: u64, size: Size) -> Vec<Point> {
    let few = [Strategy::Random, Strategy::Portkey, Strategy::Ours];
    let new = |scene, workload, strategy| Point::new(scene, workload, strategy, seed, size);
    let all = |scene, workload, strategies: &[Strategy]| -> Vec<Point> {
        strategies.iter().flat_map(|strategy| both(new(scene, workload, *strategy))).collect()
    };
    match figure {
        4 => {
            let two = [Strategy::Random, Strategy::Oracle];
            Workload::ALL
                .into_iter()
                .flat_map(|workload| all(Scene::Base, workload, &two))
                .collect()
        }
        8 => Workload::ALL
            .into_iter()
            .flat_map(|workload| all(Scene::Base, workload, &Strategy::ALL))
            .collect(),
        9 => DENSITIES
            .into_iter()
            .flat_map(|percent| all(Scene::Density(percent), Workload::PerClient, &few))
            .collect(),
        10 => LATENCIES
            .into_iter()
            .flat_map(|(scene, _)| all(scene, Workload::PerClient, &few))
            .collect(),
        11 => all(Scene::Cold, Workload::AllRw, &few),
        13 => MBPS
            .into_iter()
            .flat_map(|mbps| few.map(|strategy| new(Scene::Mbps(mbps), Workload::AllRw, strategy)))
            .collect(),
        14 => DEPLOYMENTS
            .into_iter()
            .flat_map(|(scene, workload, _)| few.map(|strategy| new(scene, workload, strategy)))
            .collect(),
        _ => Vec::new(),
    }
}

/// The runs of recorded cabs.
#[must_use]
pub fn of_cabs(size: Size) -> Vec<Point> {
    let strategies = [
        Strategy::Random,
        Strategy::Dominant,
        Strategy::Portkey,
        Strategy::Ours,
        Strategy::OursBySite,
        Strategy::Optimal,
    ];
    let new = |strategy| Point::new(Scene::Cabs, Workload::PerClient, strategy, 1, size);
    strategies.into_iter().map(new).collect()
}

/// All runs, each once, in a fixed order.
#[must_use]
pub fn points(figures: &[u8], size: Size, has_cabs: bool) -> Vec<Point> {
    let of_seed = |seed| figures.iter().flat_map(move |figure| of_figure(*figure, seed, size));
    let mut points: Vec<Point> = seeds(size).flat_map(of_seed).collect();
    if has_cabs {
        points.extend(of_cabs(size));
    }
    points.sort_unstable();
    points.dedup();
    points
}

/// The median, the least and the most of what the seeds came to.
#[must_use]
pub fn spread(mut values: Vec<f64>) -> Option<(f64, f64, f64)> {
    values.sort_by(f64::total_cmp);
    Some((*values.get(values.len() / 2)?, *values.first()?, *values.last()?))
}

/// The same of a point's runs, as a share of hash placement's with the same seed.
#[must_use]
pub fn relative(
    results: &Results,
    point: Point,
    of: fn(&Measured) -> f64,
) -> Option<(f64, f64, f64)> {
    let of_seed = |seed| {
        let point = Point { seed, ..point };
        let random = Point { strategy: Strategy::Random, tail: false, ..point };
        Some(of(results.get(&point)?) / of(results.get(&random)?).max(1e-9))
    };
    spread(seeds(point.size).filter_map(of_seed).collect())
}

/// Mean latency.
#[must_use]
pub fn mean(measured: &Measured) -> f64 {
    measured.mean_ms
}

/// Its 95th percentile.
#[must_use]
pub fn p95(measured: &Measured) -> f64 {
    measured.p95_ms
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_share_their_runs() {
        let count = |figures: &[u8]| points(figures, Size::Quick, false).len();
        // Three strategies once, six for both objectives.
        assert_eq!((count(&[8]), count(&[4]), count(&[4, 8])), (90, 18, 90));
        assert_eq!((count(&[12]), count(&[13])), (0, 12));
        assert_eq!(points(&[8], Size::Paper, true).len(), 5 * 90 + 6);
        assert_eq!(spread(vec![3.0, 1.0, 2.0]), Some((2.0, 1.0, 3.0)));
        assert_eq!(spread(Vec::new()), None);
    }
}
