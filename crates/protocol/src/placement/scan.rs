//! The exact answer for one group: the least cost over all sites.
//!
//! A row of latencies per origin, times its rate, is added into a buffer of sums (4 KB for 1,024
//! sites). The last pass keeps the minimum; where it is, is looked for *after* that. An index kept
//! in the loop makes it five times slower, as the compiler cannot then use vectors.
//!
//! Up to four rows are added in one pass, so that a group with four origins touches the buffer
//! once. The order of additions is that of the accesses, and the same in [`costs`]: both give the
//! same bits.

use super::groups::Accesses;
use super::latencies::{LANES, Matrix};

type Block = [f32; LANES];

/// A buffer for the costs of one group at all sites.
#[derive(Debug)]
pub struct Scan {
    /// Padded with infinite costs.
    sums: Vec<f32>,
}

/// What the sums begin with.
#[derive(Clone, Copy, Debug)]
pub(super) enum Start<'a> {
    /// Nothing.
    Zero,
    /// A price per byte of each site, times so many bytes; infinite where no group may go.
    Prices(&'a [f32], u32),
}

impl Scan {
    /// A buffer for groups over these latencies.
    pub fn new(matrix: &Matrix) -> Scan {
        Scan { sums: vec![0.0; matrix.stride()] }
    }

    /// Fills the buffer with the cost at each site, and returns the least.
    pub(super) fn fill(
        &mut self,
        matrix: &Matrix,
        accesses: Accesses<'_>,
        start: Start<'_>,
    ) -> f32 {
        let (origins, rates) = (accesses.origins, accesses.rates);
        let mut is_fresh = true;
        if let Start::Prices(prices, bytes) = start {
            for (sum, price) in self.sums.iter_mut().zip(prices) {
                *sum = price * bytes as f32;
            }
            is_fresh = false;
        }
        let mut least = f32::INFINITY;
        for (origins, rates) in origins.chunks(4).zip(rates.chunks(4)) {
            let sums = &mut self.sums;
            least = match (origins, rates) {
                (&[a], &[p]) => pass(sums, is_fresh, matrix, [a], [p]),
                (&[a, b], &[p, q]) => pass(sums, is_fresh, matrix, [a, b], [p, q]),
                (&[a, b, c], &[p, q, r]) => pass(sums, is_fresh, matrix, [a, b, c], [p, q, r]),
                (&[a, b, c, d], &[p, q, r, s]) => {
                    pass(sums, is_fresh, matrix, [a, b, c, d], [p, q, r, s])
                }
                _ => unreachable!("as many rates as origins, at most four"),
            };
            is_fresh = false;
        }
        if origins.is_empty() {
            if is_fresh {
                self.sums.fill(f32::INFINITY);
                self.sums[..matrix.sites()].fill(0.0);
            }
            least = self.least();
        }
        least
    }

    /// The sums at all sites, padded.
    pub(super) fn sums(&mut self) -> &mut [f32] {
        &mut self.sums
    }

    /// The least of the sums as they are now.
    pub(super) fn least(&self) -> f32 {
        let mut least = [f32::INFINITY; LANES];
        for block in self.sums.as_chunks::<LANES>().0 {
            keep_least(&mut least, block);
        }
        least.into_iter().fold(f32::INFINITY, f32::min)
    }

    /// The first site with this sum.
    pub(super) fn find(&self, sum: f32) -> Option<u16> {
        if sum == f32::INFINITY {
            return None;
        }
        let has = |block: &Block| block.iter().fold(false, |has, value| has | (*value == sum));
        let at = self.sums.as_chunks::<LANES>().0.iter().position(has)? * LANES;
        let lane = self.sums[at..].iter().position(|value| *value == sum)?;
        Some((at + lane) as u16)
    }
}

fn pass<const N: usize>(
    sums: &mut [f32],
    is_fresh: bool,
    matrix: &Matrix,
    origins: [u16; N],
    rates: [f32; N],
) -> f32 {
    let rows = origins.map(|origin| matrix.row(origin));
    if is_fresh { add::<N, true>(sums, rows, rates) } else { add::<N, false>(sums, rows, rates) }
}

/// Adds rows to the sums (or begins with them) and returns the least sum.
fn add<const N: usize, const FRESH: bool>(
    sums: &mut [f32],
    rows: [&[f32]; N],
    rates: [f32; N],
) -> f32 {
    let sums = sums.as_chunks_mut::<LANES>().0;
    // Of one length, so that the loop needs no checks.
    let rows = rows.map(|row| &row.as_chunks::<LANES>().0[..sums.len()]);
    let mut least = [f32::INFINITY; LANES];
    for (index, sum) in sums.iter_mut().enumerate() {
        let mut block = if FRESH { [0.0; LANES] } else { *sum };
        for (row, rate) in rows.iter().zip(rates) {
            for (lane, ms) in block.iter_mut().zip(&row[index]) {
                *lane += rate * ms;
            }
        }
        *sum = block;
        keep_least(&mut least, &block);
    }
    least.into_iter().fold(f32::INFINITY, f32::min)
}

fn keep_least(least: &mut Block, block: &Block) {
    for (least, value) in least.iter_mut().zip(block) {
        // One instruction, as no value is not a number.
        *least = if value < least { *value } else { *least };
    }
}

/// The cost of a group at one site; infinite if a latency is unknown.
pub fn cost(matrix: &Matrix, accesses: Accesses<'_>, site: u16) -> f32 {
    let [sum] = costs(matrix, accesses, [site]);
    sum
}

/// The same at several sites. One pass over the accesses serves them all, and no sum waits for
/// another.
pub(super) fn costs<const N: usize>(
    matrix: &Matrix,
    accesses: Accesses<'_>,
    sites: [u16; N],
) -> [f32; N] {
    let mut sums = [0.0; N];
    for (origin, rate) in accesses.origins.iter().zip(accesses.rates) {
        let row = matrix.row(*origin);
        for (sum, site) in sums.iter_mut().zip(sites) {
            *sum += rate * row[usize::from(site)];
        }
    }
    sums
}
