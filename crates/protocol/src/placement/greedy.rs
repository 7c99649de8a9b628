//! Assignment under capacities, by utility: the baseline.
//!
//! Portkey places all groups anew in each window, the one with the highest utility first; at a full
//! site a group goes to its next best (§4.2.2). A group that is well placed has no utility, comes
//! last, and loses its place to any other.

use super::groups::Groups;
use super::latencies::Site;
use super::order::by_utility;
use super::scan::Scan;
use super::solver::{Solution, Solver};

/// The bytes that each site can hold.
pub type Capacities = Vec<u64>;

/// A site for each group.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Assignment {
    pub(super) sites: Vec<u16>,
    /// Groups that no site had room for; they stay, above the capacity of their owner.
    pub unplaced: u64,
}

impl Assignment {
    /// The best site of each group, whatever sites can hold.
    pub fn unlimited(groups: &Groups, solution: &Solution) -> Assignment {
        let sites = (0..groups.len()).map(|group| solution.site(group).0).collect();
        Assignment { sites, unplaced: 0 }
    }

    /// The same, but groups that are not ready stay.
    pub fn of_ready(groups: &Groups, solution: &Solution, ready: &[bool]) -> Assignment {
        let site = |group: usize| match ready[group] {
            true => solution.site(group),
            false => groups.owner(group),
        };
        Assignment { sites: (0..groups.len()).map(|group| site(group).0).collect(), unplaced: 0 }
    }

    /// Where a group should be.
    pub fn site(&self, group: usize) -> Site {
        Site(self.sites[group])
    }

    /// What all groups together cost, in ms a second.
    pub fn total(&self, solver: &Solver<'_>, groups: &Groups) -> f64 {
        let costs = (0..groups.len()).map(|group| solver.cost(groups, group, self.site(group)));
        costs.filter(|cost| cost.is_finite()).map(f64::from).sum()
    }

    /// The bytes at each site.
    pub fn held(&self, groups: &Groups) -> Vec<u64> {
        let mut held = vec![0; groups.sites_known()];
        for (group, site) in self.sites.iter().enumerate() {
            held[usize::from(*site)] += u64::from(groups.bytes(group));
        }
        held
    }
}

/// Assigns groups to sites that have room for them, those with the highest utility first.
pub fn greedy(
    solver: &Solver<'_>,
    groups: &Groups,
    solution: &Solution,
    capacities: &Capacities,
) -> Assignment {
    assert_eq!(capacities.len(), groups.sites_known(), "the capacities are of other sites");
    let bytes_min = (0..groups.len()).map(|group| groups.bytes(group)).min().unwrap_or(0);
    let mut room = Room::new(capacities, u64::from(bytes_min));
    let mut sites: Vec<u16> = (0..groups.len()).map(|group| groups.owner(group).0).collect();
    // No other site can take these.
    let is_fixed = |group: usize| {
        solution.cost(group) == f32::INFINITY || solver.rules().pinned(group).is_some()
    };
    for (group, site) in sites.iter_mut().enumerate() {
        if is_fixed(group) {
            *site = solution.site(group).0;
            room.take(*site, groups.bytes(group));
        }
    }
    let mut scan = Scan::new(solver.matrix());
    let mut unplaced = 0;
    for group in by_utility(solver, groups, solution) {
        let group = group as usize;
        if is_fixed(group) {
            continue;
        }
        match room.nearest(&mut scan, solver, groups, group, solution.site(group).0) {
            Some(site) => sites[group] = site,
            None => unplaced += 1,
        }
        room.take(sites[group], groups.bytes(group));
    }
    Assignment { sites, unplaced }
}

/// What is free at each site.
struct Room {
    free: Vec<i64>,
    /// Sites with less room than any group needs.
    full: Vec<bool>,
    bytes_min: u64,
}

impl Room {
    fn new(capacities: &Capacities, bytes_min: u64) -> Room {
        let free: Vec<i64> = capacities.iter().map(|bytes| (*bytes).min(1 << 62) as i64).collect();
        let mut room = Room { full: vec![false; free.len()], free, bytes_min };
        (0..room.free.len()).for_each(|site| room.look(site));
        room
    }

    fn look(&mut self, site: usize) {
        self.full[site] = self.free[site] < self.bytes_min as i64;
    }

    fn take(&mut self, site: u16, bytes: u32) {
        self.free[usize::from(site)] -= i64::from(bytes);
        self.look(usize::from(site));
    }

    fn has(&self, site: u16, bytes: u32) -> bool {
        self.free[usize::from(site)] >= i64::from(bytes)
    }

    /// The cheapest site with room for the group.
    fn nearest(
        &self,
        scan: &mut Scan,
        solver: &Solver<'_>,
        groups: &Groups,
        group: usize,
        best: u16,
    ) -> Option<u16> {
        let bytes = groups.bytes(group);
        if self.has(best, bytes) {
            return Some(best);
        }
        solver.fill(scan, groups, group);
        for (sum, is_full) in scan.sums().iter_mut().zip(&self.full) {
            *sum = if *is_full { f32::INFINITY } else { *sum };
        }
        loop {
            let least = scan.least();
            let site = scan.find(least)?;
            if self.has(site, bytes) {
                return Some(site);
            }
            scan.sums()[usize::from(site)] = f32::INFINITY;
        }
    }
}
