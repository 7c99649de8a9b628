//! Figure 12: how long the solver takes. What it solves is made here; the caller has the clock.

use protocol::placement::{Groups, Matrix, Near, Origin, Rules, Site, Solver};

use crate::random::Random;

/// Origins of a key.
const ORIGINS: usize = 4;
/// Keys of panel (a), servers of panel (b).
pub const FIXED: usize = 1_024;

/// One size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Timed {
    /// Which panel: servers vary, or keys do.
    pub by_servers: bool,
    /// How many.
    pub count: usize,
    /// Seconds over all servers.
    pub exact_s: f64,
    /// Seconds with the nearest server of the heaviest client.
    pub heuristic_s: f64,
}

/// What there is to solve.
pub struct Case {
    matrix: Matrix,
    near: Near,
    rules: Rules,
    groups: Groups,
}

/// The sizes: in panel (a) servers, in (b) keys.
#[must_use]
pub fn sizes(by_servers: bool, is_large: bool) -> &'static [usize] {
    match (by_servers, is_large) {
        (true, false) => &[128, 256, 512, 1_024],
        (true, true) => &[128, 256, 512, 1_024, 2_048, 4_096],
        (false, false) => &[1_024, 4_096, 16_384],
        (false, true) => &[1_024, 4_096, 16_384, 65_536, 262_144, 1_048_576],
    }
}

impl Case {
    /// Servers at random places of a square, keys with four origins each.
    #[must_use]
    pub fn new(servers: usize, keys: usize) -> Case {
        let mut random = Random::stream(servers as u64, "scaling", keys as u64);
        let at: Vec<(f32, f32)> =
            (0..servers).map(|_| (random.fraction() as f32, random.fraction() as f32)).collect();
        let cost = |origin: Origin, site: Site| {
            let (a, b) = (at[usize::from(origin.0)], at[usize::from(site.0)]);
            Some(5.0 + 50.0 * (a.0 - b.0).hypot(a.1 - b.1))
        };
        let matrix = Matrix::from_fn(servers, servers, cost);
        let mut groups = Groups::with_capacity(servers, servers, keys, ORIGINS * keys);
        for _ in 0..keys {
            let mut draw = || random.below(servers as u64) as u16;
            let (owner, origins) = (draw(), [draw(), draw(), draw(), draw()]);
            let rate = |(index, origin): (usize, u16)| (Origin(origin), 1.0 + index as f32);
            groups.push(Site(owner), 1_024, origins.into_iter().enumerate().map(rate));
        }
        Case { near: Near::new(&matrix, 1), rules: Rules::none(servers), matrix, groups }
    }

    /// Solves it over all servers; what all keys cost then, so that nothing is left out.
    #[must_use]
    pub fn exact(&self) -> f64 {
        Solver::new(&self.matrix, &self.near, &self.rules).solve(&self.groups, u64::MAX).total()
    }

    /// The same by the fallback.
    #[must_use]
    pub fn heuristic(&self) -> f64 {
        Solver::new(&self.matrix, &self.near, &self.rules).solve(&self.groups, 0).total()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exact_answer_is_the_better_one() {
        let case = Case::new(32, 100);
        let (exact, heuristic) = (case.exact(), case.heuristic());
        assert!(exact > 0.0 && exact <= heuristic, "{exact} {heuristic}");
    }
}
