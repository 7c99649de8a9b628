//! When a better site is worth a move.
//!
//! Two rules, between a group's owner A and a candidate B, with C the mean cost of an access:
//!
//! 1. *Margin.* C_A − C_B ≥ max(θ C_A, 2σ): θ is 10 %; σ² is the variance of the difference over
//!    the accesses that were counted, and of what a price counts beside so uncertain a rate. One
//!    access more is counted at A, so a group with few accesses stays.
//! 2. *Regret.* What a group's users wait longer than they would at B adds up, and the group moves
//!    when that is as much as the move costs them. So moves never cost more than waiting did,
//!    whatever comes after.
//!
//! By the first, two sites closer than θ times the mean cost never exchange a group, and with
//! constant profiles, latencies and prices each move lowers the cost by a share of θ at least:
//! there are finitely many. A group's regret is its own, and begins again at zero after a move.

use super::explain::{Explanation, Why, explain};
use super::groups::Groups;
use super::latencies::{Matrix, Origin, Site};
use super::solver::{Solution, Solver};
use super::trial::{Bug, Planted};

/// When a move is worth it.
#[derive(Clone, Copy, Debug)]
pub struct Stability {
    /// θ: the share of the cost that a move must save.
    pub margin: f32,
    /// How many standard deviations of the noise it must save.
    pub sigmas: f32,
    /// Over how many seconds accesses were counted: with the rates, how many there were.
    pub memory_s: f32,
    /// Of how many accesses one was counted, on average: rates rest on so many fewer.
    pub one_of: f32,
    /// What moving a byte costs, in ms of waiting.
    pub byte_ms: f32,
    /// For how long requests of a group wait while it moves; where sites are origins, beside the
    /// way between the two.
    pub pause_ms: f32,
    /// Whether origin n is site n, as between sites; not so over a Redis Cluster.
    pub sites_are_origins: bool,
    /// A bug, for tests of the tests.
    pub planted: Planted,
}

impl Default for Stability {
    fn default() -> Stability {
        Stability {
            margin: 0.1,
            sigmas: 2.0,
            memory_s: 10.0,
            one_of: 1.0,
            byte_ms: 0.0,
            pause_ms: 0.0,
            sites_are_origins: true,
            planted: Planted::none(),
        }
    }
}

/// What speaks for a move, per access.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Judgement {
    /// What an access gains, with prices.
    pub gain_ms: f32,
    /// What it must gain by the margin.
    pub margin_ms: f32,
    /// What it must gain to stand out from the noise.
    pub noise_ms: f32,
}

impl Judgement {
    /// Whether the gain is enough.
    pub fn is_clear(&self) -> bool {
        self.gain_ms > 0.0 && self.gain_ms >= self.margin_ms.max(self.noise_ms)
    }

    /// What the gain lacks to be enough. The gain is judged with one access more at the owner, so
    /// it is less than that of the counted accesses, which is shown.
    fn lacks_ms(&self) -> f32 {
        (self.margin_ms.max(self.noise_ms) - self.gain_ms).max(0.0)
    }
}

impl Stability {
    /// What speaks for a move of a group that has accesses.
    pub fn judge(&self, solver: &Solver<'_>, groups: &Groups, group: usize, to: Site) -> Judgement {
        let from = groups.owner(group);
        let matrix = solver.matrix();
        let accesses = groups.accesses(group);
        let counted_of_rate = self.memory_s / self.one_of;
        let counted = (accesses.rate() * counted_of_rate).max(f32::MIN_POSITIVE);
        let count = counted + 1.0;
        // One access more, by the owner itself.
        let own = self.sites_are_origins.then_some((Origin(from.0), 1.0));
        let (mut at_owner_ms, mut gain_ms, mut square) = (0.0, 0.0, 0.0);
        for (origin, seen) in
            accesses.iter().map(|(origin, rate)| (origin, rate * counted_of_rate)).chain(own)
        {
            let (here, there) = (matrix.cost(origin, from), matrix.cost(origin, to));
            let share = seen / count;
            at_owner_ms += share * here;
            gain_ms += share * (here - there);
            square += share * (here - there) * (here - there);
        }
        let variance = ((square - gain_ms * gain_ms) / count).max(0.0);
        let price = |site: Site| solver.price_of(groups, group, site);
        let price_ms = (price(from) - price(to)) / (accesses.rate().max(f32::MIN_POSITIVE));
        let price_ms = if price_ms.is_finite() { price_ms } else { 0.0 };
        // The rate that is set against the price is as uncertain as the count.
        let variance = variance + price_ms * price_ms / count;
        let no_margin = self.planted.is(Bug::NoMargin);
        let or_zero = |ms: f32| if no_margin { 0.0 } else { ms };
        Judgement {
            gain_ms: gain_ms + price_ms,
            margin_ms: or_zero(self.margin * at_owner_ms),
            noise_ms: or_zero(self.sigmas * variance.sqrt()),
        }
    }

    /// For how long requests of a group wait while it moves from one site to another.
    pub fn pause_ms(&self, matrix: &Matrix, from: Site, to: Site) -> f32 {
        let way_ms = self.sites_are_origins.then(|| matrix.cost(Origin(from.0), to));
        self.pause_ms + way_ms.filter(|ms| ms.is_finite()).unwrap_or(0.0)
    }

    /// What a move costs the group's users, in ms of waiting, if that many bytes have to go and
    /// requests wait so long.
    pub fn cost_of_move_ms(&self, rate: f32, bytes: u32, pause_ms: f32) -> f32 {
        bytes as f32 * self.byte_ms + rate * pause_ms / 1_000.0 * pause_ms / 2.0
    }

    fn cost_of_moving_ms(
        &self,
        solver: &Solver<'_>,
        groups: &Groups,
        group: usize,
        to: Site,
    ) -> f32 {
        let pause_ms = self.pause_ms(solver.matrix(), groups.owner(group), to);
        self.cost_of_move_ms(groups.accesses(group).rate(), groups.bytes(group), pause_ms)
    }
}

/// What each group's users have waited longer than they would elsewhere, in ms.
#[derive(Clone, Debug)]
pub struct Regrets {
    lost_ms: Vec<f32>,
}

impl Regrets {
    /// None yet.
    pub fn new(groups: usize) -> Regrets {
        Regrets { lost_ms: vec![0.0; groups] }
    }

    /// Those that groups had before.
    pub fn of_groups(lost_ms: Vec<f32>) -> Regrets {
        Regrets { lost_ms }
    }

    /// There are more groups now, or fewer.
    pub fn resize(&mut self, groups: usize) {
        self.lost_ms.resize(groups, 0.0);
    }

    /// Of one group.
    pub fn of(&self, group: usize) -> f32 {
        self.lost_ms[group]
    }

    /// The groups for which a move to their best site is worth it, now that so many seconds have
    /// passed since the last call. A group in a place that is forbidden moves whatever it gains.
    pub fn ready(
        &mut self,
        stability: &Stability,
        solver: &Solver<'_>,
        groups: &Groups,
        solution: &Solution,
        elapsed_s: f32,
    ) -> Vec<bool> {
        assert_eq!(self.lost_ms.len(), groups.len(), "the regrets are of other groups");
        let mut is_ready = |group: usize| {
            let (owner, to) = (groups.owner(group), solution.site(group));
            if to == owner || solver.rules().priority(group) <= 0.0 {
                return false;
            }
            let is_forced = solver.rules().forbids(group, owner).is_some();
            is_forced || self.is_due(stability, solver, groups, group, to, elapsed_s)
        };
        (0..groups.len()).map(&mut is_ready).collect()
    }

    fn is_due(
        &mut self,
        stability: &Stability,
        solver: &Solver<'_>,
        groups: &Groups,
        group: usize,
        to: Site,
        elapsed_s: f32,
    ) -> bool {
        let judgement = stability.judge(solver, groups, group, to);
        if !judgement.is_clear() {
            return false;
        }
        let rate = groups.accesses(group).rate();
        let lost_ms = &mut self.lost_ms[group];
        *lost_ms += rate * judgement.gain_ms * elapsed_s;
        *lost_ms >= stability.cost_of_moving_ms(solver, groups, group, to)
    }

    /// A move was made: it is paid.
    pub fn moved(&mut self, stability: &Stability, group: usize) {
        if !stability.planted.is(Bug::RegretKept) {
            self.lost_ms[group] = 0.0;
        }
    }

    /// [`explain`], with what holds a move back.
    pub fn explain(
        &self,
        stability: &Stability,
        solver: &Solver<'_>,
        groups: &Groups,
        group: usize,
    ) -> Explanation {
        let mut explanation = explain(solver, groups, group, 0.0);
        let is_forced = solver.rules().forbids(group, groups.owner(group)).is_some();
        let Why::Moves { to, gain_ms } = explanation.why else { return explanation };
        if is_forced {
            return explanation;
        }
        let judgement = stability.judge(solver, groups, group, to);
        let needed_ms = stability.cost_of_moving_ms(solver, groups, group, to);
        let lost_ms = self.of(group);
        if !judgement.is_clear() {
            let owner = groups.owner(group);
            let here = explanation.candidates.iter().find(|candidate| candidate.site == owner);
            let at_owner_ms = here.and_then(|here| here.mean_ms).unwrap_or_default();
            let margin_ms = stability.margin * at_owner_ms;
            explanation.why = match gain_ms < margin_ms {
                true => Why::WithinMargin { to, gain_ms, needed_ms: margin_ms },
                false => Why::WithinNoise { to, gain_ms, noise_ms: gain_ms + judgement.lacks_ms() },
            };
        } else if lost_ms < needed_ms {
            explanation.why = Why::Waits { to, gain_ms, lost_ms, needed_ms };
        }
        explanation
    }
}
