//! Sites with little room: how far from the optimum keys are, and how many of them move for
//! nothing.
//!
//! At the end of each window an auditor with the places of all clients compares what accesses cost
//! with a bound that no placement within the capacities is below (the dual value of its own
//! auction). A key moved for nothing if it moved in a window at whose ends its users were at the
//! same places.
//!
//! *Convergence*: from hash placement, with a budget of moves a window, until an access costs at
//! most 5 % more than without a budget.

use protocol::placement::{Groups, Matrix, Near, Origin, Prices, Rules, Site, Solver, Terms};

use super::play::{self, Decide, by_hash, in_turn, play};
use super::point::{Point, Scene, Strategy};
use super::strategy::{Goal, Ours, Rule, Windowed};
use super::workload::{Load, VALUE_BYTES, Workload};
use super::world::{WINDOW_S, World};
use crate::paper::portkey::Size;

/// The room of all sites together, in hundredths of the data.
pub const ROOMS: [u64; 3] = [105, 120, 200];

/// What came of one of them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tight {
    /// In hundredths of the data.
    pub room: u64,
    /// What decides: Portkey's greedy or ours.
    pub strategy: Strategy,
    /// By how much all accesses cost more than the bound, in percent.
    pub excess_percent: f64,
    /// The same for the best that the auditor's own auction finds: what there is between a bound
    /// and a placement.
    pub audit_percent: f64,
    /// Of the keys whose users have not moved, how many percent moved in a window.
    pub churn_percent: f64,
}

/// What the auditor has.
struct Audit<'a> {
    world: &'a World,
    load: &'a Load,
    matrix: Matrix,
    rules: Rules,
    capacities: Vec<u64>,
    before: Option<(Vec<u16>, Vec<Vec<u16>>)>,
    windows: f64,
    cost: f64,
    best: f64,
    bound: f64,
    unchanged: u64,
    moved: u64,
}

fn matrix(world: &World) -> Matrix {
    let cost = |origin: Origin, site: Site| Some(world.latency_ms(origin.0, site.0));
    Matrix::from_fn(world.sites, world.sites, cost)
}

/// All keys with the rates that they are to expect now.
fn expected(world: &World, load: &Load, second: usize, owners: &[u16]) -> Groups {
    let rates = load.rates(world, second);
    let mut groups = Groups::new(world.sites, world.sites);
    for (unit, rates) in load.units.iter().zip(&rates) {
        for key in unit.keys.clone() {
            let accesses = rates.iter().map(|(origin, rate)| (Origin(*origin), *rate));
            groups.push(Site(owners[key]), VALUE_BYTES, accesses);
        }
    }
    groups
}

impl<'a> Audit<'a> {
    fn new(world: &'a World, load: &'a Load, capacities: Vec<u64>) -> Audit<'a> {
        let (matrix, rules) = (matrix(world), Rules::none(world.sites));
        let (before, windows, cost, best, bound) = (None, 0.0, 0.0, 0.0, 0.0);
        Audit {
            world,
            load,
            matrix,
            rules,
            capacities,
            before,
            windows,
            cost,
            best,
            bound,
            unchanged: 0,
            moved: 0,
        }
    }

    fn look(&mut self, second: usize, owners: &[u16]) {
        let groups = expected(self.world, self.load, second, owners);
        let near = Near::new(&self.matrix, 1);
        let solver = Solver::new(&self.matrix, &near, &self.rules);
        let cost = |key: usize| f64::from(solver.cost(&groups, key, groups.owner(key)));
        self.cost += (0..owners.len()).map(cost).sum::<f64>();
        let terms = Terms {
            matrix: &self.matrix,
            near: &near,
            rules: &self.rules,
            capacities: &self.capacities,
            margin: 0.01,
            ready: &[],
            bids_max: 1_000_000,
        };
        let mut prices = Prices::none(self.world.sites);
        self.best += prices.auction(&terms, &groups).total(&solver, &groups);
        self.bound += prices.bound(&terms, &groups);
        self.windows += 1.0;
        self.compare(second, owners);
    }

    fn compare(&mut self, second: usize, owners: &[u16]) {
        let of_unit = |rates: &Vec<(u16, f32)>| {
            let mut origins: Vec<u16> = rates.iter().map(|(origin, _)| *origin).collect();
            origins.sort_unstable();
            origins
        };
        let users: Vec<Vec<u16>> =
            self.load.rates(self.world, second).iter().map(of_unit).collect();
        if let Some((were, used)) = &self.before {
            for (unit, (now, then)) in self.load.units.iter().zip(users.iter().zip(used)) {
                if now == then {
                    self.unchanged += unit.keys.len() as u64;
                    self.moved +=
                        unit.keys.clone().filter(|key| were[*key] != owners[*key]).count() as u64;
                }
            }
        }
        self.before = Some((owners.to_vec(), users));
    }
}

/// Runs one.
#[must_use]
pub fn tight(room: u64, strategy: Strategy, size: Size) -> Tight {
    let point = Point::new(Scene::Base, Workload::AllRw, Strategy::Ours, 1, size);
    let super::point::Stage { world, load, rules } = point.stage(&[]);
    let data = load.keys() as u64 * u64::from(VALUE_BYTES);
    let capacities = vec![data * room / 100 / world.sites as u64; world.sites];
    let accesses = load.accesses(&world, point.seed);
    let owners = in_turn(&world, &load, point.seed);
    let whole = strategy == Strategy::OursWhole;
    let goal = Goal { capacities: capacities.clone(), whole, ..Goal::default() };
    let rule = Rule::Portkey { tail: false };
    let mut decider: Box<dyn Decide> = match strategy {
        Strategy::Portkey => {
            Box::new(Windowed::new(&world, load.keys(), rule, capacities.clone(), point.seed))
        }
        _ => Box::new(Ours::new(&world, load.keys(), goal, point.seed)),
    };
    let mut audit = Audit::new(&world, &load, capacities);
    play(&world, &accesses, owners, &mut *decider, rules, &mut |second, owners| {
        if second >= rules.warm_s {
            audit.look(second, owners);
        }
    });
    let percent = |cost: f64| 100.0 * (cost / audit.bound.max(1e-9) - 1.0);
    Tight {
        room,
        strategy,
        excess_percent: percent(audit.cost),
        audit_percent: percent(audit.best),
        churn_percent: 100.0 * audit.moved as f64 / audit.unchanged.max(1) as f64,
    }
}

/// All of them.
#[must_use]
pub fn all(size: Size) -> Vec<Tight> {
    let strategies = [Strategy::Portkey, Strategy::Ours, Strategy::OursWhole];
    ROOMS
        .into_iter()
        .flat_map(|room| strategies.map(|strategy| tight(room, strategy, size)))
        .collect()
}

/// A cold start with a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Converged {
    /// Keys that are not at their best site at the start.
    pub to_move: usize,
    /// Moves a window.
    pub budget: usize,
    /// Windows until it costs as much as without a budget.
    pub windows: Option<usize>,
}

impl Converged {
    /// The bound: 1 + ⌈to move / budget⌉.
    #[must_use]
    pub fn windows_max(&self) -> usize {
        1 + self.to_move.div_ceil(self.budget)
    }
}

/// Runs it.
#[must_use]
pub fn converge(size: Size) -> Converged {
    const BUDGET: usize = 100;
    let point = Point::new(Scene::Base, Workload::PerClient, Strategy::Ours, 1, size);
    let super::point::Stage { world, load, .. } = point.stage(&[]);
    let rules = play::Rules { warm_s: 0, starts_s: 0, mbps: 1_000.0 };
    let accesses = load.accesses(&world, point.seed);
    let owners = by_hash(&world, load.keys(), point.seed);
    let (matrix, barred) = (matrix(&world), Rules::none(world.sites));
    let near = Near::new(&matrix, 1);
    let solver = Solver::new(&matrix, &near, &barred);
    let groups = expected(&world, &load, 0, &owners);
    let solution = solver.solve(&groups, u64::MAX);
    let to_move = (0..owners.len()).filter(|key| solution.site(*key) != groups.owner(*key)).count();
    let costs = |moves_max: usize| -> Vec<f64> {
        let mut ours =
            Ours::new(&world, load.keys(), Goal { moves_max, ..Goal::default() }, point.seed);
        let mut costs = Vec::new();
        play(&world, &accesses, owners.clone(), &mut ours, rules, &mut |second, owners| {
            let groups = expected(&world, &load, second, owners);
            let cost = |key: usize| f64::from(solver.cost(&groups, key, groups.owner(key)));
            costs.push((0..owners.len()).map(cost).sum());
        });
        costs
    };
    let (free, limited) = (costs(0), costs(BUDGET));
    let is_there = |(free, limited): (&f64, &f64)| *limited <= 1.05 * free;
    let windows = free.iter().zip(&limited).position(is_there).map(|window| window + 1);
    debug_assert!(free.len() * WINDOW_S <= world.places[0].len(), "a cost a window");
    Converged { to_move, budget: BUDGET, windows }
}
