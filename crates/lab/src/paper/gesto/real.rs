//! Throughput of the five stores in real time (figures 3 and 6): what each does for a second of one
//! core.

use super::Size;
use super::experiment::{Point, Scene, System};
use crate::baselines::play::Measured;
use crate::report::study::{Card, Cell, Table};

/// Clients at each of the seven sites.
const CLIENTS: [usize; 3] = [2, 21, 79];
/// What the tables' columns are.
const HEADS: [&str; 5] =
    ["clients", "store", "operations/s of a busy core", "against eventual", "core busy"];
/// The share of eventual's throughput that the paper has Gesto and Saturn above.
const PUBLISHED: f64 = 0.9;

/// A run in real time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Round {
    /// What is varied.
    pub point: Point,
    /// Operations for each second that the core was busy.
    pub per_busy_s: f64,
    /// The share of the time that it was.
    pub busy: f64,
}

impl Round {
    /// Of a run.
    #[must_use]
    pub fn of(point: Point, measured: &Measured) -> Round {
        let busy = measured.spent.cpu_us / measured.measured_us.max(1) as f64;
        Round { point, per_busy_s: measured.per_cpu_s(), busy }
    }
}

/// One round: each store with each number of clients.
#[must_use]
pub fn points(size: Size) -> Vec<Point> {
    let clients = if size == Size::Quick { &CLIENTS[..1] } else { &CLIENTS[..] };
    let of = |clients: &usize| {
        let scene = Scene::Clients(*clients);
        System::ALL.map(|system| Point { scene, system, size })
    };
    clients.iter().flat_map(of).collect()
}

/// How many rounds, and how long each run is measured, in microseconds.
#[must_use]
pub fn rounds(size: Size) -> (usize, u64) {
    match size {
        Size::Paper => (5, 1_000_000),
        Size::Quick => (1, 50_000),
    }
}

/// The median, the least and the most.
fn spread(mut values: Vec<f64>) -> (f64, f64, f64) {
    values.sort_by(f64::total_cmp);
    let at = |index: usize| values.get(index).copied().unwrap_or(f64::NAN);
    (at(values.len() / 2), at(0), at(values.len().saturating_sub(1)))
}

/// Of each round, what a store did against eventual in the same round.
fn against_eventual(all: &[Round], point: Point) -> Vec<f64> {
    let of = |system| {
        all.iter()
            .filter(move |one| one.point == Point { system, ..point })
            .map(|one| one.per_busy_s)
    };
    of(point.system).zip(of(System::Eventual)).map(|(one, eventual)| one / eventual).collect()
}

/// The rows of the table.
#[must_use]
pub fn rows(all: &[Round], size: Size) -> Vec<[String; 5]> {
    let row = |point: Point| {
        let mine = || all.iter().filter(move |one| one.point == point);
        let (rate, least, most) = spread(mine().map(|one| one.per_busy_s).collect());
        let (ratio, lowest, highest) = spread(against_eventual(all, point));
        let (busy, ..) = spread(mine().map(|one| one.busy).collect());
        let Scene::Clients(clients) = point.scene else { unreachable!("scenes are of clients") };
        let percent = |share: f64| format!("{:.0}", 100.0 * share);
        [
            (7 * clients).to_string(),
            point.system.name().to_owned(),
            format!("{rate:.0} ({least:.0} to {most:.0})"),
            format!("{} % ({} to {})", percent(ratio), percent(lowest), percent(highest)),
            format!("{} %", percent(busy)),
        ]
    };
    points(size).into_iter().map(row).collect()
}

/// Whether Gesto and Saturn have the share of eventual's throughput that the paper states, with the
/// most clients.
#[must_use]
pub fn finding(all: &[Round], size: Size) -> String {
    let most = points(size).last().copied();
    let share = |system| {
        let of = most.map(|most| against_eventual(all, Point { system, ..most }));
        spread(of.unwrap_or_default()).0
    };
    let (gesto, saturn) = (share(System::Gesto), share(System::Saturn));
    let came_out = match gesto.min(saturn) >= PUBLISHED {
        true => "as published: above 90 %",
        false => "published: above 90 %",
    };
    format!(
        "Gesto has {:.0} % and Saturn {:.0} % of eventual's throughput in real time ({came_out}).",
        100.0 * gesto,
        100.0 * saturn
    )
}

/// All of it on the page.
#[must_use]
pub fn card(all: &[Round], size: Size) -> Card {
    let rows = rows(all, size);
    let rows = rows.into_iter().map(|row| row.map(Cell::from).into_iter().collect()).collect();
    Card::Tables {
        title: "Throughput in real time".to_owned(),
        about: format!(
            "The five models, their protocols as they are, on one core of the machine that made this page: all sites and \
             clients in one thread, links with the delays of Table I, each message a frame of its size through a local \
             socket, no assumed costs, nothing on disk. Medians and ranges of rounds in turn. {}",
            finding(all, size)
        ),
        wide: true,
        tables: vec![Table {
            file: "real-time".to_owned(),
            heads: HEADS.map(str::to_owned).to_vec(),
            rows,
            words: false,
        }],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baselines::Spent;

    #[test]
    fn a_store_stands_beside_eventual_of_the_same_round() {
        let (size, scene) = (Size::Quick, Scene::Clients(2));
        let round = |system, rate: f64| {
            let measured = Measured {
                operations: rate as u64,
                measured_us: 1_000_000,
                spent: Spent { cpu_us: 500_000.0, ..Spent::default() },
                ..Measured::default()
            };
            Round::of(Point { scene, system, size }, &measured)
        };
        let all = [
            round(System::Eventual, 100.0),
            round(System::Gesto, 95.0),
            round(System::Saturn, 80.0),
            // The machine was slower.
            round(System::Eventual, 50.0),
            round(System::Gesto, 46.0),
            round(System::Saturn, 46.0),
        ];
        let rows = rows(&all, size);
        assert_eq!(rows.len(), 5);
        assert_eq!(rows[0][1..], ["Eventual", "200 (100 to 200)", "100 % (100 to 100)", "50 %"]);
        assert_eq!(rows[4][1..4], ["Gesto", "190 (92 to 190)", "95 % (92 to 95)"]);
        assert_eq!(
            finding(&all, size),
            "Gesto has 95 % and Saturn 92 % of eventual's throughput in real time (as published: above 90 %)."
        );
        assert_eq!(points(Size::Paper).len(), 15);
    }
}
