//! When a byte that enters a link leaves it. Pure: the caller brings the time and the random numbers.
//!
//! A link has a propagation delay and an optional uniform jitter, and it keeps order as a TCP
//! connection does: a late chunk holds back the ones behind it. [`Pipe`] is one direction of one
//! connection. [`crate::relay`] applies it to real sockets.
//!
//! Left out for now: bandwidth, loss, other distributions.

use std::time::Duration;

use rand::Rng;

/// A link in one direction; both directions of a connection use the same one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Link {
    /// Propagation delay one way, ms.
    pub delay_ms: f64,
    /// Uniform jitter of at most this much either way, ms.
    pub jitter_ms: f64,
}

impl Link {
    /// A link with a constant delay.
    #[must_use]
    pub fn constant(delay_ms: f64) -> Self {
        Self { delay_ms, jitter_ms: 0.0 }
    }

    /// One draw of the delay; never negative.
    pub fn draw(&self, rng: &mut impl Rng) -> Duration {
        let jitter_ms = if self.jitter_ms > 0.0 {
            rng.random_range(-self.jitter_ms..=self.jitter_ms)
        } else {
            0.0
        };
        Duration::from_secs_f64((self.delay_ms + jitter_ms).max(0.0) / 1_000.0)
    }
}

/// One direction of one connection over a link: remembers when the last chunk leaves, so that no
/// chunk overtakes another, whatever the jitter and even when the link becomes shorter on the way.
#[derive(Debug, Default)]
pub struct Pipe {
    last_due: Duration,
}

impl Pipe {
    /// A pipe that delivers nothing before `opens_at` (a handshake, for example).
    #[must_use]
    pub fn opening(opens_at: Duration) -> Self {
        Self { last_due: opens_at }
    }

    /// When a chunk that enters at `now` leaves. Times are since any fixed instant.
    pub fn due(&mut self, now: Duration, link: &Link, rng: &mut impl Rng) -> Duration {
        self.last_due = self.last_due.max(now + link.draw(rng));
        self.last_due
    }
}

#[cfg(test)]
mod tests {
    use rand::{SeedableRng, rngs::StdRng};

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_constant_link_adds_its_delay() {
        let (mut pipe, mut rng) = (Pipe::default(), StdRng::seed_from_u64(1));
        let link = Link::constant(5.0);
        assert_eq!(pipe.due(10 * MS, &link, &mut rng), 15 * MS);
        assert_eq!(pipe.due(11 * MS, &link, &mut rng), 16 * MS);
    }

    #[test]
    fn order_survives_jitter_and_a_link_that_shrinks() {
        let (mut pipe, mut rng) = (Pipe::default(), StdRng::seed_from_u64(2));
        let jittery = Link { delay_ms: 5.0, jitter_ms: 5.0 };
        let due: Vec<Duration> =
            (0..1_000).map(|step| pipe.due(step * MS / 10, &jittery, &mut rng)).collect();
        assert!(due.is_sorted());
        let held = pipe.due(100 * MS, &Link::constant(50.0), &mut rng);
        assert_eq!(pipe.due(101 * MS, &Link::constant(1.0), &mut rng), held);
    }

    #[test]
    fn jitter_is_uniform_about_the_delay() {
        let mut rng = StdRng::seed_from_u64(3);
        let link = Link { delay_ms: 10.0, jitter_ms: 4.0 };
        let draws: Vec<f64> =
            (0..20_000).map(|_| link.draw(&mut rng).as_secs_f64() * 1_000.0).collect();
        let mean_ms = draws.iter().sum::<f64>() / draws.len() as f64;
        let variance = draws.iter().map(|ms| (ms - mean_ms).powi(2)).sum::<f64>() / 20_000.0;
        assert!(draws.iter().all(|ms| (6.0..=14.0).contains(ms)));
        assert!((mean_ms - 10.0).abs() < 0.1, "{mean_ms}");
        // A uniform distribution 8 wide has variance 8²/12.
        assert!((variance - 64.0 / 12.0).abs() < 0.2, "{variance}");
    }

    #[test]
    fn nothing_leaves_before_the_pipe_opens() {
        let mut rng = StdRng::seed_from_u64(4);
        let mut pipe = Pipe::opening(20 * MS);
        assert_eq!(pipe.due(2 * MS, &Link::constant(1.0), &mut rng), 20 * MS);
        assert_eq!(pipe.due(30 * MS, &Link::constant(1.0), &mut rng), 31 * MS);
    }
}
