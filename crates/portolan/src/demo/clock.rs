//! From real time to the tracks' time: faster, and round again when a trace is over.

use std::time::Duration;

/// Replays the tracks' seconds from `from_s` to `to_s` at `speed` times real time, again and again.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
    /// First second replayed.
    pub(super) from_s: f64,
    /// Last second replayed; later than the first.
    pub(super) to_s: f64,
    /// Track seconds a real second.
    pub(super) speed: f64,
}

impl Clock {
    /// The tracks' time after so much real time.
    pub(super) fn t_s(&self, elapsed: Duration) -> f64 {
        self.from_s + (elapsed.as_secs_f64() * self.speed) % (self.to_s - self.from_s)
    }

    /// The tracks' seconds that a run of this length sees.
    pub(super) fn window_s(&self, run: Duration) -> (f64, f64) {
        (self.from_s, self.to_s.min(self.from_s + run.as_secs_f64() * self.speed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_runs_fast_and_starts_over() {
        let clock = Clock { from_s: 100.0, to_s: 400.0, speed: 60.0 };
        assert_eq!(clock.t_s(Duration::ZERO), 100.0);
        assert_eq!(clock.t_s(Duration::from_secs(2)), 220.0);
        assert_eq!(clock.t_s(Duration::from_secs(6)), 160.0);
        assert_eq!(clock.window_s(Duration::from_secs(2)), (100.0, 220.0));
        assert_eq!(clock.window_s(Duration::from_secs(20)), (100.0, 400.0));
    }
}
