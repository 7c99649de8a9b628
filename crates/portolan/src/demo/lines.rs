//! Progress as plain lines, for scripts and logs: one a second, and one for each event.

use std::{
    io::{self, Write},
    time::Duration,
};

use super::picture::Picture;

/// What has been written so far.
#[derive(Debug, Default)]
pub(super) struct Lines {
    seconds: u64,
    last_event: Option<Duration>,
}

impl Lines {
    /// Writes what is new at this moment.
    pub(super) fn show(&mut self, picture: &Picture, mut out: impl Write) -> io::Result<()> {
        for event in &picture.events {
            if self.last_event.is_none_or(|last| event.at > last) {
                writeln!(out, "{:>5.1} s  * {}", event.at.as_secs_f64(), event.label)?;
                self.last_event = Some(event.at);
            }
        }
        let seconds = picture.elapsed.as_secs();
        if seconds == self.seconds {
            return Ok(());
        }
        self.seconds = seconds;
        let (last, counters) = (&picture.all.0, picture.counters);
        let (slots, moves) = picture.on_their_way();
        if moves > 0 {
            writeln!(out, "{seconds:>5} s  {slots} slots on their way to other sites")?;
        }
        writeln!(
            out,
            "{seconds:>5} s  {:>6} ops/s  p50 {:>6.1} ms  p99 {:>7.1} ms  {:>4} vehicles  \
             moves {}  own records read there {}, wrong {}  elections {}  retries {}  errors {}",
            last.count,
            last.p50_ms,
            last.p99_ms,
            picture.vehicles.len(),
            counters.moves,
            picture.found.after_moving,
            picture.found.wrong,
            counters.elections,
            counters.retries,
            counters.errors
        )
    }
}
