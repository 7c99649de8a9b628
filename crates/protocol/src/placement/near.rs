//! The nearest sites of each origin: candidates for a group, and a proof that no other is better.
//!
//! A site outside the lists of all origins of a group is, from each of them, at least as far as the
//! first site after its list. So it costs at least Σ rate × that distance: the *bound*. A candidate
//! that costs no more is optimal, whether or not latencies are a metric. Otherwise the bound still
//! states how far from the optimum the candidate can be.

use super::groups::Accesses;
use super::latencies::Matrix;
use super::scan::{cost, costs};

/// The k nearest sites of each origin.
#[derive(Clone, Debug)]
pub struct Near {
    k: usize,
    /// Ascending by latency.
    sites: Vec<u16>,
    /// The latency of the nearest site, and that of the first site after the list.
    bounds: Vec<(f32, f32)>,
}

/// The best of a group's candidates.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Candidate {
    pub(super) site: u16,
    /// With the price of the site.
    pub(super) cost: f32,
    /// Every site outside the lists costs at least this.
    pub(super) bound: f32,
}

impl Near {
    /// The k nearest sites of each origin, fewer if fewer are known.
    pub fn new(matrix: &Matrix, k: usize) -> Near {
        let k = k.clamp(1, matrix.sites());
        let (sites, bounds) = (vec![0; k * matrix.origins()], vec![(0.0, 0.0); matrix.origins()]);
        let mut near = Near { k, sites, bounds };
        near.fill(matrix);
        near
    }

    fn fill(&mut self, matrix: &Matrix) {
        let mut order: Vec<u16> = Vec::new();
        for origin in 0..matrix.origins() {
            let row = matrix.row(origin as u16);
            let ms = |site: u16| row[usize::from(site)];
            let by_latency = |a: &u16, b: &u16| ms(*a).total_cmp(&ms(*b)).then(a.cmp(b));
            order.clear();
            order.extend(0..matrix.sites() as u16);
            if self.k < order.len() {
                order.select_nth_unstable_by(self.k, by_latency);
            }
            let next = order.get(self.k).map_or(f32::INFINITY, |site| ms(*site));
            order.truncate(self.k);
            order.sort_unstable_by(by_latency);
            self.bounds[origin] = (ms(order[0]), next);
            self.sites[origin * self.k..][..self.k].copy_from_slice(&order);
        }
    }

    /// The length of the lists.
    pub fn k(&self) -> usize {
        self.k
    }

    /// The best site among those near to an origin of the group. `None`: none may take it.
    pub(super) fn best(
        &self,
        matrix: &Matrix,
        accesses: Accesses<'_>,
        price: impl Fn(u16) -> f32,
    ) -> Option<Candidate> {
        let mut best = (f32::INFINITY, u16::MAX);
        let mut bound = 0.0;
        for (origin, rate) in accesses.origins.iter().zip(accesses.rates) {
            bound += rate * self.bounds[usize::from(*origin)].1;
            let mut consider = |site: u16, cost: f32| {
                let cost = cost + price(site);
                if cost < best.0 || (cost == best.0 && site < best.1) {
                    best = (cost, site);
                }
            };
            let (fours, rest) = self.list(*origin).as_chunks::<4>();
            for sites in fours {
                let costs = costs(matrix, accesses, *sites);
                sites.iter().zip(costs).for_each(|(site, cost)| consider(*site, cost));
            }
            rest.iter().for_each(|site| consider(*site, cost(matrix, accesses, *site)));
        }
        (best.0 < f32::INFINITY).then_some(Candidate { site: best.1, cost: best.0, bound })
    }

    /// The nearest sites of an origin, the nearest first.
    pub(super) fn list(&self, origin: u16) -> &[u16] {
        &self.sites[usize::from(origin) * self.k..][..self.k]
    }

    /// What the group would cost if each of its origins had it at its nearest site: no placement
    /// costs less.
    pub fn floor(&self, accesses: Accesses<'_>) -> f32 {
        let nearest = |(origin, rate): (&u16, &f32)| rate * self.bounds[usize::from(*origin)].0;
        accesses.origins.iter().zip(accesses.rates).map(nearest).sum()
    }
}
