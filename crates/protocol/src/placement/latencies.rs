//! The matrix of latencies: a row for each origin, a column for each site.
//!
//! Between sites it is square, and a row is what a site has measured itself. Over a Redis Cluster a
//! row is a client and a column a server.

use super::sketch::Distribution;
use super::trial::{Bug, Planted};
use std::collections::BTreeMap;

/// A place where groups can be: a column of the latencies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Site(pub u16);

/// A place where requests come from: a row of the latencies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Origin(pub u16);

/// A latency above this is an error of measurement.
pub const LATENCY_MS_MAX: f32 = 60_000.0;

/// Sites whose costs are added at once. Rows are padded to a multiple of it.
pub(super) const LANES: usize = 16;

/// What an access from an origin costs at a site, row-major. Infinite: unknown, or no such site.
#[derive(Clone, Debug, PartialEq)]
pub struct Matrix {
    origins: usize,
    sites: usize,
    cells: Vec<f32>,
}

impl Matrix {
    fn unknown(origins: usize, sites: usize) -> Matrix {
        let is_addressable = |count: usize| count <= usize::from(u16::MAX);
        assert!(is_addressable(origins) && is_addressable(sites), "{origins} × {sites} latencies");
        let cells = vec![f32::INFINITY; origins * sites.next_multiple_of(LANES)];
        Matrix { origins, sites, cells }
    }

    /// What an access costs, cell by cell; `None`: unknown. Costs are positive or zero.
    pub fn from_fn(
        origins: usize,
        sites: usize,
        cost: impl Fn(Origin, Site) -> Option<f32>,
    ) -> Matrix {
        let mut matrix = Matrix::unknown(origins, sites);
        let stride = matrix.stride();
        for origin in 0..origins {
            for site in 0..sites {
                let cost = cost(Origin(origin as u16), Site(site as u16));
                let is_valid = |cost: &f32| cost.is_finite() && *cost >= 0.0;
                matrix.cells[origin * stride + site] =
                    cost.filter(is_valid).unwrap_or(f32::INFINITY);
            }
        }
        matrix
    }

    /// The number of origins.
    pub fn origins(&self) -> usize {
        self.origins
    }

    /// The number of sites.
    pub fn sites(&self) -> usize {
        self.sites
    }

    /// The length of a row: sites, and columns that no group is ever assigned to.
    pub(super) fn stride(&self) -> usize {
        self.sites.next_multiple_of(LANES)
    }

    /// The costs of an origin, padded.
    pub(super) fn row(&self, origin: u16) -> &[f32] {
        let stride = self.stride();
        &self.cells[usize::from(origin) * stride..][..stride]
    }

    /// What an access costs; infinite if that is unknown.
    pub fn cost(&self, origin: Origin, site: Site) -> f32 {
        self.row(origin.0)[usize::from(site.0)]
    }

    /// The same matrix with another meaning of its cells. Unknown stays unknown.
    pub(super) fn map(&self, of: impl Fn(f32) -> f32) -> Matrix {
        let value = |&ms: &f32| if ms.is_finite() { of(ms) } else { ms };
        Matrix { cells: self.cells.iter().map(value).collect(), ..*self }
    }

    /// The same of two matrices of one shape, cell by cell.
    pub(super) fn zip(&self, other: &Matrix, of: impl Fn(f32, f32) -> f32) -> Matrix {
        let value = |(&a, &b): (&f32, &f32)| if a.is_finite() { of(a, b) } else { a };
        Matrix { cells: self.cells.iter().zip(&other.cells).map(value).collect(), ..*self }
    }
}

/// What is known of latencies, and what was refused.
#[derive(Clone, Debug)]
pub struct Latencies {
    ms: Matrix,
    /// How single accesses vary, where that was measured. Elsewhere all take as long as the mean.
    spread: BTreeMap<(Origin, Site), Distribution>,
    dropped: u64,
}

impl Latencies {
    /// Nothing is known yet. At most 65,535 of each.
    pub fn unknown(origins: usize, sites: usize) -> Latencies {
        Latencies::planted(origins, sites, Planted::none())
    }

    /// The same with a bug, for tests of the tests.
    pub fn planted(origins: usize, sites: usize, planted: Planted) -> Latencies {
        let mut ms = Matrix::unknown(origins, sites);
        if planted.is(Bug::UnknownIsZero) || planted.is(Bug::UnknownIsHuge) {
            let value = if planted.is(Bug::UnknownIsZero) { 0.0 } else { 9_999_999.0 };
            let stride = ms.stride();
            for row in ms.cells.chunks_exact_mut(stride) {
                row[..sites].fill(value);
            }
        }
        Latencies { ms, spread: BTreeMap::new(), dropped: 0 }
    }

    /// Takes in a measurement. Negative and absurd values, and unknown origins and sites, are
    /// dropped and counted; what was known stays.
    pub fn learn(&mut self, origin: Origin, site: Site, ms: f32) {
        if !self.is_known(origin, site) || !(0.0..=LATENCY_MS_MAX).contains(&ms) {
            self.dropped += 1;
            return;
        }
        let cell = usize::from(origin.0) * self.ms.stride() + usize::from(site.0);
        self.ms.cells[cell] = ms;
    }

    /// Takes in how the single accesses behind a mean vary: what a quantile is of. An empty
    /// distribution, and one of a cell without a mean, are dropped.
    pub fn learn_spread(&mut self, origin: Origin, site: Site, spread: Distribution) {
        if self.get(origin, site).is_none() || spread.count() == 0 {
            self.dropped += 1;
            return;
        }
        self.spread.insert((origin, site), spread);
    }

    fn is_known(&self, origin: Origin, site: Site) -> bool {
        usize::from(origin.0) < self.ms.origins && usize::from(site.0) < self.ms.sites
    }

    /// A latency, if it is known.
    pub fn get(&self, origin: Origin, site: Site) -> Option<f32> {
        let is_known = self.is_known(origin, site);
        is_known.then(|| self.ms.cost(origin, site)).filter(|ms| ms.is_finite())
    }

    /// The objective *mean*: an access costs its latency in ms.
    pub fn mean(&self) -> &Matrix {
        &self.ms
    }

    /// A part of the objective *quantile*: an access costs the share that is slower than that.
    /// Without a spread that is 1 or 0.
    pub fn slower_than(&self, threshold_ms: f32) -> Matrix {
        let mut slow = self.ms.map(|ms| f32::from(ms > threshold_ms));
        let stride = slow.stride();
        for ((origin, site), spread) in &self.spread {
            let cell = usize::from(origin.0) * stride + usize::from(site.0);
            slow.cells[cell] = spread.share_above(threshold_ms).unwrap_or(slow.cells[cell]);
        }
        slow
    }

    /// How long accesses take, and which share of them: the spread, or the mean alone.
    pub(super) fn values(&self, origin: Origin, site: Site) -> Vec<(f32, f32)> {
        match self.spread.get(&(origin, site)) {
            Some(spread) => spread.shares().collect(),
            None => vec![(self.ms.cost(origin, site), 1.0)],
        }
    }

    /// All latencies that are known, ascending, each once.
    pub(super) fn ascending(&self) -> Vec<f32> {
        let means = self.ms.cells.iter().copied().filter(|ms| ms.is_finite());
        let spread = self.spread.values().flat_map(Distribution::shares).map(|(ms, _)| ms);
        let mut known: Vec<f32> = means.chain(spread).collect();
        known.sort_unstable_by(f32::total_cmp);
        known.dedup();
        known
    }

    /// Values that were refused, for a metric.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }
}
