//! Which moves a window makes.
//!
//! Moves are ordered by what a byte gains, times the group's priority, and made until the window's
//! budget is spent; a move that does not fit is passed over, and smaller ones behind it are made.
//! What is left out comes up again in the next window, with the costs of then (Portkey §7).

use super::greedy::{Assignment, Capacities};
use super::groups::Groups;
use super::latencies::Site;
use super::order::descending;
use super::solver::Solver;

/// A group that should go elsewhere.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Move {
    /// Its index.
    pub group: u32,
    /// Its owner.
    pub from: Site,
    /// Its next owner.
    pub to: Site,
    /// Its size.
    pub bytes: u32,
    /// The waiting that its users are spared, in ms a second.
    pub gain: f32,
    /// The gain with what the two sites cost: a group that is outbid waits longer where it goes,
    /// and makes room for one that gains more. Moves are ordered by this.
    pub net: f32,
    /// What a millisecond of this group's users counts.
    pub priority: f32,
}

/// The budget of one window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Moves in all.
    pub moves_max: usize,
    /// Bytes in all.
    pub bytes_max: u64,
    /// Bytes into one site, and bytes out of one site: what its link can take.
    pub site_bytes_max: u64,
}

impl Limits {
    /// No limits.
    pub const NONE: Limits =
        Limits { moves_max: usize::MAX, bytes_max: u64::MAX, site_bytes_max: u64::MAX };
}

/// The moves of a window, in their order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// To be made now.
    pub moves: Vec<Move>,
    /// Left out, as the budget is spent or the target has no room yet.
    pub left: Vec<Move>,
}

impl Plan {
    /// What the moves gain together, in ms a second.
    pub fn gain(&self) -> f64 {
        self.moves.iter().map(|a_move| f64::from(a_move.gain)).sum()
    }

    /// The bytes that they move.
    pub fn bytes(&self) -> u64 {
        self.moves.iter().map(|a_move| u64::from(a_move.bytes)).sum()
    }
}

/// The moves that lead from the owners to the assignment.
pub fn moves(solver: &Solver<'_>, groups: &Groups, assignment: &Assignment) -> Vec<Move> {
    let or_nothing = |ms: f32| if ms.is_finite() { ms } else { 0.0 };
    let of_group = |group: usize| {
        let (from, to) = (groups.owner(group), assignment.site(group));
        let (bytes, priority) = (groups.bytes(group), solver.rules().priority(group));
        if from == to || priority <= 0.0 {
            return None;
        }
        let price = |site: Site| solver.price_of(groups, group, site);
        let cost = |site: Site| solver.cost(groups, group, site);
        let gain = or_nothing(cost(from) - cost(to));
        let net = or_nothing(gain + price(from) - price(to));
        Some(Move { group: group as u32, from, to, bytes, gain, net, priority })
    };
    (0..groups.len()).filter_map(of_group).collect()
}

/// Orders moves and cuts them off where the budget ends. A move waits until its target has room;
/// `None`: sites have no limit. Sites that are full and exchange groups need some room above what
/// the auction goes by.
pub fn plan(
    moves: &[Move],
    groups: &Groups,
    capacities: Option<&Capacities>,
    limits: Limits,
) -> Plan {
    let value = |index: usize| {
        let a_move = &moves[index];
        let value = a_move.priority * a_move.net / a_move.bytes as f32;
        if value > 0.0 { value } else { 0.0 }
    };
    let mut waiting: Vec<Move> =
        descending(moves.len(), value).into_iter().map(|index| moves[index as usize]).collect();
    let mut budget = Budget::new(groups, capacities, limits);
    let mut plan = Plan::default();
    // A move that leaves makes room for others, which then go in their order.
    loop {
        let (made, left): (Vec<Move>, Vec<Move>) =
            waiting.into_iter().partition(|a_move| budget.take(a_move));
        let is_done = made.is_empty();
        plan.moves.extend(made);
        waiting = left;
        if is_done || capacities.is_none() {
            break;
        }
    }
    plan.left = waiting;
    plan
}

struct Budget<'a> {
    limits: Limits,
    capacities: Option<&'a Capacities>,
    held: Vec<u64>,
    arriving: Vec<u64>,
    leaving: Vec<u64>,
}

impl<'a> Budget<'a> {
    fn new(groups: &Groups, capacities: Option<&'a Capacities>, limits: Limits) -> Budget<'a> {
        let held = groups.held();
        let (arriving, leaving) = (vec![0; held.len()], vec![0; held.len()]);
        Budget { limits, capacities, held, arriving, leaving }
    }

    /// Whether the move fits; it is counted then.
    fn take(&mut self, a_move: &Move) -> bool {
        let (from, to) = (usize::from(a_move.from.0), usize::from(a_move.to.0));
        let bytes = u64::from(a_move.bytes);
        let has_room = self.capacities.is_none_or(|capacity| self.held[to] + bytes <= capacity[to]);
        let fits = has_room
            && self.limits.moves_max > 0
            && bytes <= self.limits.bytes_max
            && self.arriving[to] + bytes <= self.limits.site_bytes_max
            && self.leaving[from] + bytes <= self.limits.site_bytes_max;
        if fits {
            self.limits.moves_max -= 1;
            self.limits.bytes_max -= bytes;
            self.arriving[to] += bytes;
            self.leaving[from] += bytes;
            self.held[to] += bytes;
            self.held[from] = self.held[from].saturating_sub(bytes);
        }
        fits
    }
}
