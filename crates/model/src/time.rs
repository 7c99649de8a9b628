//! Time as the cores are given it.

use std::time::Duration;

/// A moment, as a core receives it from its shell: a real clock in `server`, a virtual one in the
/// lab. Protocol code never reads a clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    /// Time since the process started. Never goes back; differs in rate between machines.
    /// Timeouts are measured with it.
    pub monotonic: Duration,
    /// Milliseconds since 1970 by the machine's clock. May jump, and nothing is measured with it:
    /// it only translates moments that people name, and log time is steered towards it.
    pub wall_ms: u64,
}

impl Time {
    /// This moment and `after` more, by both clocks.
    pub fn plus(self, after: Duration) -> Time {
        Time {
            monotonic: self.monotonic + after,
            wall_ms: self.wall_ms.saturating_add(after.as_millis() as u64),
        }
    }
}
