//! Which accesses are counted: one of N, in proportion to the load.
//!
//! Below 100,000 accesses a second all are. Gaps are random, or a client in step with them would be
//! missed; what is counted weighs N. The error of a gain grows with √N: at low rates it matters,
//! and N is 1 there; else decisions allow for it ([`super::Stability::one_of`]).

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Accesses that are counted in a second under load: so many to twice as many.
pub const COUNTED_PER_S_MAX: u64 = 50_000;

/// Decides for each access whether it is counted. Each thread has its own; where a few threads
/// share one, an access at the same moment may shorten or lengthen a gap by one.
#[derive(Debug)]
pub struct Sampler {
    one_of: AtomicU32,
    gap: AtomicU32,
    random: AtomicU64,
}

impl Sampler {
    /// Of more accesses than these one is counted at least.
    pub const ONE_OF_MAX: u32 = 1 << 16;

    /// Counts all, until the load is known.
    pub fn new(seed: u64) -> Sampler {
        // Xorshift must not begin with zero.
        let (one_of, gap) = (AtomicU32::new(1), AtomicU32::new(1));
        Sampler { one_of, gap, random: AtomicU64::new(seed | 1) }
    }

    /// What the load is now.
    pub fn set_load(&self, accesses_per_s: u64) {
        let one_of =
            (accesses_per_s / COUNTED_PER_S_MAX).clamp(1, Sampler::ONE_OF_MAX.into()) as u32;
        if one_of != self.one_of.swap(one_of, Relaxed) {
            self.gap.store(self.next_gap(), Relaxed);
        }
    }

    /// Whether this access is counted, and what it weighs.
    #[inline]
    pub fn take(&self) -> Option<f32> {
        let gap = self.gap.load(Relaxed);
        if gap > 1 {
            self.gap.store(gap - 1, Relaxed);
            return None;
        }
        self.gap.store(self.next_gap(), Relaxed);
        Some(self.one_of.load(Relaxed) as f32)
    }

    /// From 1 to 2N − 1, N on average.
    fn next_gap(&self) -> u32 {
        let mut random = self.random.load(Relaxed);
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        self.random.store(random, Relaxed);
        1 + ((random >> 33) as u32) % (2 * self.one_of.load(Relaxed) - 1)
    }
}
