//! The one place where this process reads its clocks.

use model::Time;
use std::time::{Duration, Instant, SystemTime};

/// A process's clocks. Clones agree.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    started: Instant,
}

impl Clock {
    /// Clocks that count from now.
    pub fn start() -> Clock {
        Clock { started: Instant::now() }
    }

    /// Both clocks.
    pub fn now(&self) -> Time {
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let wall_ms = since_1970.unwrap_or_default().as_millis() as u64;
        Time { monotonic: self.monotonic(), wall_ms }
    }

    /// Time since the start.
    pub fn monotonic(&self) -> Duration {
        self.started.elapsed()
    }
}
