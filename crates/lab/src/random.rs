//! The only source of chance in a run: a small generator, seeded by its user.
//!
//! SplitMix64 (Steele, Lea and Flood, *Fast splittable pseudorandom number generators*, 2014): a
//! counter and its finaliser. Its stream is fixed here and not by a library's version, so a seed
//! written down today means the same run tomorrow. [`Random::stream`] gives each part of a world
//! (links, disks, each client, the faults) a generator of its own: what one part draws does not
//! shift what the others do, which is what lets a run be repeated with fewer faults.

use std::time::Duration;

use rand::RngCore;

/// A seeded generator.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A generator of this seed.
    #[must_use]
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// The generator of one part of a run: `part` names it, `number` distinguishes parts of one
    /// name.
    #[must_use]
    pub fn stream(seed: u64, part: &str, number: u64) -> Random {
        // FNV-1a over the name; the finaliser of the first draw does the mixing.
        let name = part.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
        let mut mixed = Random(seed ^ name.rotate_left(17));
        let first = mixed.draw();
        Random(first ^ number.wrapping_mul(0xd6e8_feb8_6659_fd93))
    }

    /// The next 64 bits.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// A number below `bound`; 0 when that is 0. The bias is below bound / 2⁶⁴.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.draw() % bound.max(1)
    }

    /// `true` in so many cases of a thousand.
    pub fn chance(&mut self, permille: u64) -> bool {
        self.below(1_000) < permille
    }

    /// A number from 0 to below 1, of 53 bits.
    pub fn fraction(&mut self) -> f64 {
        (self.draw() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A span between two, both included, in whole microseconds.
    pub fn between(&mut self, (low, high): (Duration, Duration)) -> Duration {
        let span_us = high.saturating_sub(low).as_micros() as u64;
        low + Duration::from_micros(self.below(span_us + 1))
    }

    /// An exponential draw of this mean: the time to the next of events that come independently.
    pub fn exponential(&mut self, mean: Duration) -> Duration {
        mean.mul_f64(-(1.0 - self.fraction()).ln())
    }

    /// A normal draw (Box and Muller's method; one of the pair is thrown away).
    pub fn normal(&mut self, mean: f64, deviation: f64) -> f64 {
        let radius = (-2.0 * (1.0 - self.fraction()).ln()).sqrt();
        mean + deviation * radius * (std::f64::consts::TAU * self.fraction()).cos()
    }

    /// One of several.
    ///
    /// # Panics
    /// There is none.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len() as u64) as usize]
    }
}

/// So that generators of other crates' shapes can draw from it too.
impl RngCore for Random {
    fn next_u32(&mut self) -> u32 {
        (self.draw() >> 32) as u32
    }

    fn next_u64(&mut self) -> u64 {
        self.draw()
    }

    fn fill_bytes(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.draw().to_le_bytes()[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_of_a_seed_is_fixed() {
        // The published first outputs of SplitMix64 for seed 1234567.
        let mut random = Random::new(1_234_567);
        let expected =
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!([random.draw(), random.draw(), random.draw()], expected);
    }

    #[test]
    fn streams_differ_by_seed_part_and_number() {
        let first = |seed, part, number| Random::stream(seed, part, number).draw();
        let all = [first(1, "a", 0), first(2, "a", 0), first(1, "b", 0), first(1, "a", 1)];
        for (index, one) in all.iter().enumerate() {
            assert!(all[..index].iter().all(|other| other != one));
        }
        assert_eq!(first(1, "a", 0), all[0]);
    }

    #[test]
    fn draws_have_their_means_and_spread() {
        let mut random = Random::new(1);
        let count = 100_000;
        let mean = |draw: &mut dyn FnMut() -> f64| {
            (0..count).map(|_| draw()).sum::<f64>() / f64::from(count)
        };
        assert!((mean(&mut || random.fraction()) - 0.5).abs() < 0.005);
        let second = Duration::from_secs(1);
        assert!((mean(&mut || random.exponential(second).as_secs_f64()) - 1.0).abs() < 0.02);
        assert!((mean(&mut || random.normal(5.0, 2.0)) - 5.0).abs() < 0.03);
        let variance = mean(&mut || (random.normal(5.0, 2.0) - 5.0).powi(2));
        assert!((variance - 4.0).abs() < 0.1, "{variance}");
        let ms = Duration::from_millis;
        for _ in 0..100 {
            assert!((ms(2)..=ms(3)).contains(&random.between((ms(2), ms(3)))));
        }
        assert_eq!(random.between((ms(2), ms(2))), ms(2));
    }
}
