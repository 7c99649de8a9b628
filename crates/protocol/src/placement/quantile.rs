//! The objective *quantile*: the p95 of all accesses, or any other.
//!
//! A quantile of all accesses is no sum over groups, so no group has a cost of its own by it. But a
//! threshold T makes it one: at T a group costs the rate of its accesses that are slower than T.
//! The p95 is at most T if all groups together have at most 5 % of the accesses slower than T. That
//! sum is least where each group is at its own best site for T. So the least T for which it is at
//! most 5 % is the best p95 that any placement has (without capacities), and the sites at that T
//! are the placement. It is found by bisection.
//!
//! A latency is a mean where nothing else is known. Where a client has measured how its accesses
//! vary (a DDSketch, [`Latencies::learn_spread`]), the share of them above T is its cost: a server
//! that is near and sometimes stalls loses against one that is a little farther and steady.
//!
//! The matrix for T is of the same kind as that of latencies, so scan, prices, margin and regret
//! apply to it. T is of all groups together, so what finds it must know them all: `portolan place`
//! does. Sites, each with groups of its own, have the mean as their objective.
//!
//! Portkey (§4.2.3) takes for each group the quantile of its own accesses as its cost. That has no
//! rate in it, hence no utility, and it puts groups of few accesses on a par with those that make
//! up the tail: [`per_group`], a baseline.

use super::groups::{Accesses, Groups};
use super::latencies::{Latencies, Matrix, Origin, Site};
use super::near::Near;
use super::rules::Rules;
use super::solver::{Answer, Method, Solution, Solver};

/// How much of a slow access the latency of a fast one counts: it decides between sites that are
/// alike at the threshold.
const TIE: f32 = 1.0 / 1_024.0;

/// The threshold that a placement is to meet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tail {
    /// 0.95: at most 5 % of the accesses are slower than the threshold.
    pub quantile: f32,
    /// In ms.
    pub threshold_ms: f32,
}

impl Tail {
    /// The least threshold that these groups can meet, without capacities. `None`: no group has
    /// users, or no latency is known.
    pub fn find(
        latencies: &Latencies,
        groups: &Groups,
        rules: &Rules,
        quantile: f32,
    ) -> Option<Tail> {
        let thresholds = latencies.ascending();
        let slow = |threshold_ms: f32| slow_rate(latencies, groups, rules, threshold_ms);
        let total: f64 =
            (0..groups.len()).map(|group| f64::from(groups.accesses(group).rate())).sum();
        let allowed = total * (1.0 - f64::from(quantile)) * (1.0 + 1e-6);
        if total <= 0.0 {
            return None;
        }
        let (mut low, mut high) = (0, thresholds.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            if slow(thresholds[middle]) <= allowed { high = middle } else { low = middle + 1 }
        }
        thresholds.get(low).map(|&threshold_ms| Tail { quantile, threshold_ms })
    }

    /// What an access costs by this objective: the threshold, by the share that is slower, and
    /// almost nothing else. In ms, so that it can be set against what moves cost.
    pub fn matrix(&self, latencies: &Latencies) -> Matrix {
        let threshold_ms = self.threshold_ms.max(f32::MIN_POSITIVE);
        latencies.mean().zip(&latencies.slower_than(threshold_ms), |ms, slow| {
            threshold_ms * (slow + TIE * (ms / threshold_ms).min(2.0))
        })
    }
}

/// The rate of accesses that are slower than that, with each group at its best site for it.
fn slow_rate(latencies: &Latencies, groups: &Groups, rules: &Rules, threshold_ms: f32) -> f64 {
    let matrix = latencies.slower_than(threshold_ms);
    let near = Near::new(&matrix, 1);
    Solver::new(&matrix, &near, rules).solve(groups, u64::MAX).total()
}

/// The quantile of all accesses, with each group at this site.
pub fn measure(
    latencies: &Latencies,
    groups: &Groups,
    quantile: f32,
    site: impl Fn(usize) -> Site,
) -> Option<f32> {
    let of_group = |group: usize| {
        let at = site(group);
        let accesses = groups.accesses(group).iter();
        accesses.flat_map(move |(origin, rate)| rated(latencies, origin, at, rate))
    };
    weighted((0..groups.len()).flat_map(of_group).collect(), quantile)
}

/// How long accesses of that rate take.
fn rated(
    latencies: &Latencies,
    origin: Origin,
    at: Site,
    rate: f32,
) -> impl Iterator<Item = (f32, f32)> {
    latencies.values(origin, at).into_iter().map(move |(ms, share)| (ms, share * rate))
}

/// The least value that at most the rest of the weight is above.
fn weighted(mut values: Vec<(f32, f32)>, quantile: f32) -> Option<f32> {
    values.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let total: f64 = values.iter().map(|(_, weight)| f64::from(*weight)).sum();
    let needed = total * f64::from(quantile) * (1.0 - 1e-6);
    let mut sum = 0.0;
    let reaches = |(_, weight): &(f32, f32)| {
        sum += f64::from(*weight);
        sum >= needed
    };
    values.iter().copied().find(reaches).map(|(value, _)| value)
}

/// Portkey's cost of a group: the quantile of its own accesses. The same answers as
/// [`Solver::solve`] otherwise.
pub fn per_group(latencies: &Latencies, groups: &Groups, rules: &Rules, quantile: f32) -> Solution {
    let cost = |accesses: Accesses<'_>, site: Site| -> f32 {
        let of = |(origin, rate)| rated(latencies, origin, site, rate);
        weighted(accesses.iter().flat_map(of).collect(), quantile).unwrap_or(0.0)
    };
    let has_unknown = |accesses: Accesses<'_>, site: Site| {
        accesses.iter().any(|(origin, _)| latencies.get(origin, site).is_none())
    };
    let answer = |group: usize| {
        let (accesses, owner) = (groups.accesses(group), groups.owner(group));
        let at_owner = cost(accesses, owner);
        let stays = Answer {
            site: owner,
            cost: at_owner,
            at_owner,
            bound: at_owner,
            method: Method::Stays,
        };
        let stays_pinned = rules.pinned(group) == Some(owner);
        if stays_pinned || accesses.is_empty() || has_unknown(accesses, owner) {
            return stays;
        }
        let allowed = (0..latencies.mean().sites())
            .map(|site| Site(site as u16))
            .filter(|site| rules.forbids(group, *site).is_none() && !has_unknown(accesses, *site));
        let better = |a: &(f32, bool, Site), b: &(f32, bool, Site)| {
            a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)).then(a.2.cmp(&b.2))
        };
        match allowed.map(|site| (cost(accesses, site), site != owner, site)).min_by(better) {
            Some((cost, _, site)) => {
                Answer { site, cost, at_owner, bound: cost, method: Method::Exact }
            }
            None => stays,
        }
    };
    Solution::of_answers((0..groups.len()).map(answer))
}
