//! A node's clocks: the monotonic one may run fast or slow, the wall clock may jump besides.

use model::Time;
use std::time::Duration;

/// The clocks of one node, as a function of the world's true time.
#[derive(Clone, Debug)]
pub(super) struct Clock {
    /// At this true time …
    from: Duration,
    /// … the monotonic clock showed this.
    showed: Duration,
    /// How fast it runs; 1 is right.
    rate: f64,
    /// The wall clock is ahead of the monotonic one by this.
    wall_ahead_ms: i64,
}

impl Clock {
    pub(super) fn new(wall_ms: u64) -> Clock {
        let wall_ahead_ms = i64::try_from(wall_ms).unwrap_or(i64::MAX);
        Clock { from: Duration::ZERO, showed: Duration::ZERO, rate: 1.0, wall_ahead_ms }
    }

    /// What both clocks show at a true time.
    pub(super) fn at(&self, now: Duration) -> Time {
        let monotonic = self.showed + self.scaled(now.saturating_sub(self.from), self.rate);
        let wall_ms = self.wall_ahead_ms.saturating_add_unsigned(monotonic.as_millis() as u64);
        Time { monotonic, wall_ms: u64::try_from(wall_ms).unwrap_or(0) }
    }

    /// The first true time at which the monotonic clock shows at least this.
    pub(super) fn when(&self, monotonic: Duration) -> Duration {
        let left = monotonic.saturating_sub(self.showed);
        let mut at = self.from + self.scaled(left, 1.0 / self.rate);
        while self.at(at).monotonic < monotonic {
            at += Duration::from_nanos(1);
        }
        at
    }

    fn scaled(&self, span: Duration, rate: f64) -> Duration {
        if self.rate == 1.0 { span } else { span.mul_f64(rate) }
    }

    /// Runs at another rate from now on.
    pub(super) fn set_rate(&mut self, now: Duration, rate: f64) {
        self.showed = self.at(now).monotonic;
        self.from = now;
        self.rate = rate;
    }

    /// Moves the wall clock.
    pub(super) fn jump(&mut self, ms: i64) {
        self.wall_ahead_ms = self.wall_ahead_ms.saturating_add(ms);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_right_clock_shows_the_true_time() {
        let clock = Clock::new(5_000);
        assert_eq!(clock.at(3 * SECOND), Time { monotonic: 3 * SECOND, wall_ms: 8_000 });
        assert_eq!(clock.when(3 * SECOND), 3 * SECOND);
    }

    #[test]
    fn a_fast_clock_goes_on_from_where_it_was() {
        let mut clock = Clock::new(0);
        clock.set_rate(10 * SECOND, 1.1);
        assert_eq!(clock.at(20 * SECOND).monotonic, 21 * SECOND);
        assert_eq!(clock.when(21 * SECOND), 20 * SECOND);
        clock.set_rate(20 * SECOND, 1.0);
        assert_eq!(clock.at(30 * SECOND).monotonic, 31 * SECOND);
        for at_us in (0..2_000_000).step_by(7_001) {
            let shown = 31 * SECOND + Duration::from_micros(at_us);
            clock.set_rate(30 * SECOND, 0.93);
            assert!(clock.at(clock.when(shown)).monotonic >= shown);
        }
    }

    #[test]
    fn a_jump_moves_the_wall_clock_alone() {
        let mut clock = Clock::new(10_000);
        clock.jump(-3_000);
        assert_eq!(clock.at(SECOND), Time { monotonic: SECOND, wall_ms: 8_000 });
        clock.jump(-60_000);
        assert_eq!(clock.at(SECOND).wall_ms, 0);
    }
}
