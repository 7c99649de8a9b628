//! The best site of each group, within a budget of operations.
//!
//! An operation is one latency, times a rate, added to a sum. With enough of them every group is
//! answered exactly ([`super::scan`]). With fewer, all groups take the best of the sites near their
//! origins ([`super::near`]), and what is left of the budget goes to those whose answer the bound
//! does not certify. With fewer still, groups go to the site nearest to their heaviest origin
//! (Portkey §4.2.2), except that the most shared ones without a majority are answered exactly while
//! the budget lasts: in a metric the nearest site of an origin with half of the rate is optimal, so
//! those with a majority lose nothing.
//!
//! Every solution states by how much it can be worse than the optimum. For groups at a heaviest
//! origin's site that takes latencies for a metric; the other statements hold for any latencies.

use super::groups::{Accesses, Groups};
use super::latencies::{Matrix, Site};
use super::near::Near;
use super::rules::Rules;
use super::scan::{Scan, Start, cost, costs};

/// How a group was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Over all sites.
    Exact,
    /// Over near sites, and no other is better.
    Certified,
    /// Over near sites.
    Pruned,
    /// The nearest site of the heaviest origin.
    Dominant,
    /// The group stays: it has no users, it is pinned where it is, no site may take it, or its cost
    /// where it is cannot be stated.
    Stays,
}

/// The answer for one group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Answer {
    /// The best site.
    pub site: Site,
    /// Its cost in ms a second, without prices.
    pub cost: f32,
    /// What the group costs where it is.
    pub at_owner: f32,
    /// No site costs less than this, without prices.
    pub bound: f32,
    /// How it was found.
    pub method: Method,
}

/// The best site of each group.
#[derive(Clone, Debug, Default)]
pub struct Solution {
    sites: Vec<u16>,
    costs: Vec<f32>,
    at_owners: Vec<f32>,
    bounds: Vec<f32>,
    counts: [u64; 5],
}

impl Solution {
    fn with_capacity(groups: usize) -> Solution {
        Solution {
            sites: Vec::with_capacity(groups),
            costs: Vec::with_capacity(groups),
            at_owners: Vec::with_capacity(groups),
            bounds: Vec::with_capacity(groups),
            ..Solution::default()
        }
    }

    /// Answers that were found otherwise: by another objective, or by other knowledge.
    pub fn of_answers(answers: impl IntoIterator<Item = Answer>) -> Solution {
        let mut solution = Solution::default();
        answers.into_iter().for_each(|answer| solution.push(answer));
        solution
    }

    /// The best site of a group.
    pub fn site(&self, group: usize) -> Site {
        Site(self.sites[group])
    }

    /// What the group costs there, in ms a second.
    pub fn cost(&self, group: usize) -> f32 {
        self.costs[group]
    }

    /// What moving the group there would gain, in ms a second.
    pub fn gain(&self, group: usize) -> f32 {
        let gain = self.at_owners[group] - self.costs[group];
        // Nothing where a cost is unknown.
        if gain.is_finite() { gain } else { 0.0 }
    }

    /// How many groups were answered so.
    pub fn count(&self, method: Method) -> u64 {
        self.counts[method as usize]
    }

    /// What all groups together cost, in ms a second.
    pub fn total(&self) -> f64 {
        sum(&self.costs)
    }

    /// By what share the total is above the optimum without capacities, at most: 0.02 is 2 %.
    pub fn excess_max(&self) -> f64 {
        let (total, bound) = (self.total(), sum(&self.bounds));
        if bound <= 0.0 { 0.0 } else { (total / bound - 1.0).max(0.0) }
    }

    fn push(&mut self, answer: Answer) {
        self.sites.push(answer.site.0);
        self.costs.push(answer.cost);
        self.at_owners.push(answer.at_owner);
        self.bounds.push(answer.bound);
        self.counts[answer.method as usize] += 1;
    }

    /// Another answer for a group, by other knowledge; how it was answered first counts.
    pub(super) fn replace(&mut self, group: usize, answer: Answer) {
        self.set(group, answer);
        self.counts[answer.method as usize] -= 1;
    }

    fn set(&mut self, group: usize, answer: Answer) {
        self.sites[group] = answer.site.0;
        self.costs[group] = answer.cost;
        self.at_owners[group] = answer.at_owner;
        self.bounds[group] = answer.bound;
        self.counts[answer.method as usize] += 1;
    }
}

fn sum(costs: &[f32]) -> f64 {
    costs.iter().filter(|cost| cost.is_finite()).map(|cost| f64::from(*cost)).sum()
}

/// Finds the best sites by one matrix of costs.
#[derive(Debug)]
pub struct Solver<'a> {
    matrix: &'a Matrix,
    rules: &'a Rules,
    near: &'a Near,
    /// A price per byte of each site, padded, infinite where no group may go; empty: all are free.
    prices: Vec<f32>,
}

impl<'a> Solver<'a> {
    /// By these costs and rules, without prices.
    pub fn new(matrix: &'a Matrix, near: &'a Near, rules: &'a Rules) -> Solver<'a> {
        Solver::with_prices(matrix, near, rules, &[])
    }

    /// The same where a byte at a site costs so many ms a second; empty: nothing.
    pub fn with_prices(
        matrix: &'a Matrix,
        near: &'a Near,
        rules: &'a Rules,
        prices: &[f32],
    ) -> Solver<'a> {
        let sites = matrix.sites();
        assert_eq!(rules.sites(), sites, "the rules are of other sites");
        let mut of_sites = Vec::new();
        if rules.has_barred() || prices.iter().any(|price| *price != 0.0) {
            let of_site = |site: usize| {
                let price = prices.get(site).copied().unwrap_or(0.0);
                if rules.is_barred(Site(site as u16)) { f32::INFINITY } else { price }
            };
            of_sites.extend(
                (0..matrix.stride()).map(
                    |site| {
                        if site < sites { of_site(site) } else { f32::INFINITY }
                    },
                ),
            );
        }
        Solver { matrix, rules, near, prices: of_sites }
    }

    /// The costs it goes by.
    pub fn matrix(&self) -> &'a Matrix {
        self.matrix
    }

    /// The rules it goes by.
    pub fn rules(&self) -> &'a Rules {
        self.rules
    }

    /// The lists it goes by.
    pub fn near(&self) -> &'a Near {
        self.near
    }

    /// What a group costs at a site, in ms a second, without its price.
    pub fn cost(&self, groups: &Groups, group: usize, site: Site) -> f32 {
        cost(self.matrix, groups.accesses(group), site.0)
    }

    /// What a site costs a group of this size changes.
    pub(super) fn set_price(&mut self, site: u16, price: f32) {
        if self.prices.is_empty() {
            self.prices = vec![0.0; self.matrix.sites()];
            self.prices.resize(self.matrix.stride(), f32::INFINITY);
        }
        self.prices[usize::from(site)] = price;
    }

    fn price(&self, site: usize, bytes: u32) -> f32 {
        self.prices.get(site).map_or(0.0, |price| price * bytes as f32)
    }

    /// What a group pays for a place, in ms a second: nothing at home. Infinite where none may go.
    pub(super) fn price_of(&self, groups: &Groups, group: usize, site: Site) -> f32 {
        let price = self.price(usize::from(site.0), groups.bytes(group));
        let is_free = price.is_finite() && groups.home(group) == Some(site);
        if is_free { 0.0 } else { price }
    }

    fn start(&self, bytes: u32) -> Start<'_> {
        if self.prices.is_empty() { Start::Zero } else { Start::Prices(&self.prices, bytes) }
    }

    /// Fills the buffer with what the group costs at each site, with prices; infinite where it must
    /// not go.
    pub(super) fn fill(&self, scan: &mut Scan, groups: &Groups, group: usize) -> f32 {
        let mut least =
            scan.fill(self.matrix, groups.accesses(group), self.start(groups.bytes(group)));
        let mut is_narrowed = false;
        if let Some(home) = groups.home(group).filter(|_| !self.prices.is_empty()) {
            let paid = self.price(usize::from(home.0), groups.bytes(group));
            if paid.is_finite() && paid != 0.0 {
                scan.sums()[usize::from(home.0)] = self.cost(groups, group, home);
                is_narrowed = true;
            }
        }
        if let Some(pin) = self.rules.pinned(group) {
            for (site, sum) in scan.sums().iter_mut().enumerate() {
                *sum = if site == usize::from(pin.0) { *sum } else { f32::INFINITY };
            }
            is_narrowed = true;
        }
        for site in self.rules.excluded(group) {
            scan.sums()[site] = f32::INFINITY;
            is_narrowed = true;
        }
        if is_narrowed {
            least = scan.least();
        }
        least
    }

    /// Whether the group stays whatever sites cost.
    pub(super) fn stays(&self, groups: &Groups, group: usize, at_owner: f32) -> bool {
        match self.rules.pinned(group) {
            Some(pin) => pin == groups.owner(group),
            // From a place whose cost is unknown any other would be an improvement by any amount.
            None => at_owner == f32::INFINITY || groups.accesses(group).is_empty(),
        }
    }

    fn stay(groups: &Groups, group: usize, at_owner: f32) -> Answer {
        let site = groups.owner(group);
        Answer { site, cost: at_owner, at_owner, bound: at_owner, method: Method::Stays }
    }

    /// Over all sites.
    pub fn exact(&self, scan: &mut Scan, groups: &Groups, group: usize) -> Answer {
        let owner = groups.owner(group);
        let at_owner = self.cost(groups, group, owner);
        if self.stays(groups, group, at_owner) {
            return Solver::stay(groups, group, at_owner);
        }
        let least = self.fill(scan, groups, group);
        let keeps = scan.sums()[usize::from(owner.0)] <= least;
        let Some(site) = scan.find(least) else {
            return Solver::stay(groups, group, at_owner);
        };
        let site = if keeps { owner } else { Site(site) };
        if self.prices.is_empty() {
            return Answer { site, cost: least, at_owner, bound: least, method: Method::Exact };
        }
        let (cost, bound) = (self.cost(groups, group, site), self.floor(groups, group));
        Answer { site, cost, at_owner, bound, method: Method::Exact }
    }

    /// Where it is, without a look.
    pub(super) fn stays_here(&self, groups: &Groups, group: usize) -> Answer {
        Solver::stay(groups, group, self.cost(groups, group, groups.owner(group)))
    }

    /// Over all sites but some.
    pub(super) fn exact_without(
        &self,
        scan: &mut Scan,
        (groups, group): (&Groups, usize),
        is_out: impl Fn(Site) -> bool,
    ) -> Answer {
        let owner = groups.owner(group);
        let at_owner = self.cost(groups, group, owner);
        self.fill(scan, groups, group);
        let sums = scan.sums().iter_mut().take(self.matrix.sites());
        for (_, sum) in sums.enumerate().filter(|(site, _)| is_out(Site(*site as u16))) {
            *sum = f32::INFINITY;
        }
        let least = scan.least();
        let keeps = scan.sums()[usize::from(owner.0)] <= least;
        let site = match scan.find(least) {
            Some(site) if !keeps => Site(site),
            _ => return Solver::stay(groups, group, at_owner),
        };
        let (cost, bound) = (self.cost(groups, group, site), self.floor(groups, group));
        Answer { site, cost, at_owner, bound, method: Method::Exact }
    }

    /// No placement costs less, whatever the prices and rules.
    fn floor(&self, groups: &Groups, group: usize) -> f32 {
        self.near.floor(groups.accesses(group))
    }

    /// Over the sites near to an origin of the group.
    pub fn pruned(&self, groups: &Groups, group: usize) -> Answer {
        let owner = groups.owner(group);
        let at_owner = self.cost(groups, group, owner);
        if self.stays(groups, group, at_owner) {
            return Solver::stay(groups, group, at_owner);
        }
        let accesses = groups.accesses(group);
        let is_special = self.rules.is_special(group);
        let price = |site| self.price_if_allowed(groups, group, is_special, site);
        let best = match is_special || !self.prices.is_empty() {
            true => self.near.best(self.matrix, accesses, price),
            false => self.near.best(self.matrix, accesses, |_| 0.0),
        };
        let Some(best) = best else { return Solver::stay(groups, group, at_owner) };
        let owner_net = at_owner + price(owner.0);
        let (mut site, mut net) =
            if owner_net <= best.cost { (owner, owner_net) } else { (Site(best.site), best.cost) };
        // It is free there, and need not be near.
        if let Some(home) = groups.home(group) {
            let home_net = self.cost(groups, group, home) + price(home.0);
            if home_net < net {
                (site, net) = (home, home_net);
            }
        }
        let is_certain = net <= best.bound;
        let method = if is_certain { Method::Certified } else { Method::Pruned };
        if self.prices.is_empty() {
            return Answer { site, cost: net, at_owner, bound: net.min(best.bound), method };
        }
        let (cost, bound) = (self.cost(groups, group, site), self.floor(groups, group));
        Answer { site, cost, at_owner, bound, method }
    }

    /// The nearest site of the heaviest origin, or the owner if that is as good.
    pub fn dominant(&self, groups: &Groups, group: usize) -> Answer {
        let owner = groups.owner(group);
        let accesses = groups.accesses(group);
        let (rate, heaviest) = accesses.rate_and_heaviest();
        let is_special = self.rules.is_special(group);
        let is_allowed =
            |site: &u16| self.price_if_allowed(groups, group, is_special, *site).is_finite();
        let list = heaviest.map(|(origin, _)| self.near.list(origin)).unwrap_or_default();
        let site = match is_special.then(|| self.rules.pinned(group)).flatten() {
            Some(pin) => Some(pin.0).filter(is_allowed),
            None => list.iter().copied().find(is_allowed),
        };
        // In one pass over the accesses: with ten million groups the passes are what it takes.
        let [at_owner, cost] = costs(self.matrix, accesses, [owner.0, site.unwrap_or(owner.0)]);
        let Some(site) = site.filter(|_| !self.stays(groups, group, at_owner)) else {
            return Solver::stay(groups, group, at_owner);
        };
        let keeps = at_owner <= cost && is_allowed(&owner.0);
        let (site, cost) = if keeps { (owner, at_owner) } else { (Site(site), cost) };
        if cost == f32::INFINITY {
            return Solver::stay(groups, group, at_owner);
        }
        // In a metric the site of an origin with the rate w of W costs at most (W − w)/w times the
        // optimum.
        let share = heaviest.map_or(1.0, |(_, heaviest)| heaviest / (rate - heaviest));
        let bound = if share < 1.0 { cost * share } else { cost };
        Answer { site, cost, at_owner, bound, method: Method::Dominant }
    }

    fn price_if_allowed(&self, groups: &Groups, group: usize, is_special: bool, site: u16) -> f32 {
        if is_special && self.rules.forbids(group, Site(site)).is_some() {
            return f32::INFINITY;
        }
        self.price_of(groups, group, Site(site))
    }

    /// By what share the total is above the optimum, from each `step`-th group that could go
    /// elsewhere: an estimate, where [`Solution::excess_max`] is a promise.
    pub fn excess_sampled(&self, groups: &Groups, solution: &Solution, step: usize) -> f64 {
        let mut scan = Scan::new(self.matrix);
        let (mut ours, mut best) = (0.0, 0.0);
        for group in (0..groups.len()).step_by(step) {
            let answer = self.exact(&mut scan, groups, group);
            if answer.method == Method::Exact {
                ours += f64::from(solution.cost(group));
                best += f64::from(answer.cost);
            }
        }
        if best > 0.0 { ours / best - 1.0 } else { 0.0 }
    }

    /// The best site of each group with at most about that many operations.
    pub fn solve(&self, groups: &Groups, operations_max: u64) -> Solution {
        assert_eq!(groups.origins_known(), self.matrix.origins(), "the groups have other origins");
        assert_eq!(groups.sites_known(), self.matrix.sites(), "the groups have other sites");
        let mut scan = Scan::new(self.matrix);
        let accesses = groups.accesses_count() as u64;
        let mut solution = Solution::with_capacity(groups.len());
        if accesses * self.matrix.sites() as u64 <= operations_max {
            (0..groups.len()).for_each(|group| solution.push(self.exact(&mut scan, groups, group)));
            return solution;
        }
        let count = |accesses: Accesses<'_>| accesses.len() as u64;
        let pruned = |group| count(groups.accesses(group)).pow(2) * self.near.k() as u64;
        let mut pruned_all = 0;
        let is_pruned = (0..groups.len()).all(|group| {
            pruned_all += pruned(group);
            pruned_all <= operations_max
        });
        let mut left = operations_max.saturating_sub(if is_pruned { pruned_all } else { accesses });
        let mut exact_if_left = |group: usize, was: Method, solution: &mut Solution| {
            let operations = count(groups.accesses(group)) * self.matrix.sites() as u64;
            if let Some(rest) = left.checked_sub(operations) {
                left = rest;
                solution.counts[was as usize] -= 1;
                solution.set(group, self.exact(&mut scan, groups, group));
            }
        };
        if is_pruned {
            for group in 0..groups.len() {
                let answer = self.pruned(groups, group);
                solution.push(answer);
                if answer.method == Method::Pruned {
                    exact_if_left(group, answer.method, &mut solution);
                }
            }
            return solution;
        }
        (0..groups.len()).for_each(|group| solution.push(self.dominant(groups, group)));
        if operations_max > accesses {
            for group in most_shared(groups) {
                let was = self.dominant(groups, group).method;
                if was == Method::Dominant {
                    exact_if_left(group, was, &mut solution);
                }
            }
        }
        solution
    }
}

/// Groups of which no origin has half of the rate, those with the most origins first.
fn most_shared(groups: &Groups) -> Vec<usize> {
    let has_majority = |accesses: Accesses<'_>| {
        let (rate, heaviest) = accesses.rate_and_heaviest();
        heaviest.is_none_or(|(_, heaviest)| heaviest * 2.0 >= rate)
    };
    let mut shared: Vec<usize> =
        (0..groups.len()).filter(|group| !has_majority(groups.accesses(*group))).collect();
    shared.sort_by_key(|group| std::cmp::Reverse(groups.accesses(*group).len()));
    shared
}
