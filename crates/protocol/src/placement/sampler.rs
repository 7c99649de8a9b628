//! Which accesses are counted: one of N, in proportion to the load.
//!
//! Up to 50,000 accesses a second all are. Gaps are random, or a client in step with them would be missed; what
//! is counted weighs N. The error of a gain grows with √N: at low rates it matters, and N is 1 there.

/// Accesses that are counted in a second, at most about.
pub const COUNTED_PER_S_MAX: u64 = 50_000;

/// Decides for each access whether it is counted. Each thread has its own.
#[derive(Clone, Debug)]
pub struct Sampler {
    one_of: u32,
    gap: u32,
    random: u64,
}

impl Sampler {
    /// Counts all, until the load is known.
    pub fn new(seed: u64) -> Sampler {
        // Xorshift must not begin with zero.
        Sampler { one_of: 1, gap: 1, random: seed | 1 }
    }

    /// What the load is now.
    pub fn set_load(&mut self, accesses_per_s: u64) {
        let one_of = (accesses_per_s / COUNTED_PER_S_MAX).clamp(1, 1 << 16) as u32;
        if one_of != self.one_of {
            self.one_of = one_of;
            self.gap = self.next_gap();
        }
    }

    /// Whether this access is counted, and what it weighs.
    #[inline]
    pub fn take(&mut self) -> Option<f32> {
        self.gap -= 1;
        if self.gap > 0 {
            return None;
        }
        self.gap = self.next_gap();
        Some(self.one_of as f32)
    }

    /// From 1 to 2N − 1, N on average.
    fn next_gap(&mut self) -> u32 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        1 + ((self.random >> 33) as u32) % (2 * self.one_of - 1)
    }
}
