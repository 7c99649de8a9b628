//! Progress as plain lines, for scripts and logs: one a second, one for each event and each window,
//! and some for what is counted, now and then. None is wider than the narrowest of terminals.

use std::{
    io::{self, Write},
    time::Duration,
};

use super::{comparison, course, picture::Picture};

/// What has been written so far.
#[derive(Debug, Default)]
pub(super) struct Lines {
    seconds: u64,
    last_event: Option<Duration>,
    /// Up to where windows have been written.
    windows_to: Duration,
    counted_at_s: u64,
    /// What calls for a line at once when it changes.
    alarms: [u64; 5],
}

/// Counts are printed at least so often.
const COUNTED_EVERY_S: u64 = 10;

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
            "{seconds:>5} s  {:>6} ops/s  p50 {:>6.1} ms  p99 {:>7.1} ms  {:>4} vehicles",
            last.count,
            last.p50_ms,
            last.p99_ms,
            picture.vehicles.len(),
        )?;
        let window = picture.course.newest_whole();
        if let Some(window) = window.filter(|window| window.to > self.windows_to) {
            writeln!(out, "{seconds:>5} s  {}", course::text(window))?;
            self.windows_to = window.to;
        }
        let (found, (trips, attach)) = (picture.found, picture.trips);
        let alarms =
            [counters.elections, counters.retries, counters.errors, found.wrong, trips.anomalies];
        if alarms == self.alarms && seconds < self.counted_at_s + COUNTED_EVERY_S {
            return Ok(());
        }
        (self.alarms, self.counted_at_s) = (alarms, seconds);
        writeln!(
            out,
            "{seconds:>5} s  so far: moves {}, elections {}, retries {}, errors {}",
            counters.moves, counters.elections, counters.retries, counters.errors
        )?;
        writeln!(
            out,
            "{seconds:>5} s  so far: own records read after moving {}, wrong {}",
            found.after_moving, found.wrong
        )?;
        let [waits, anomalies] = trips.text(&attach);
        writeln!(out, "{seconds:>5} s  {waits}{} reads, {anomalies}", trips.reads)?;
        writeln!(out, "{seconds:>5} s  {}", comparison::headline(&picture.sides))?;
        let parts = picture.sides.map(|side| side.cells()[2].clone());
        writeln!(
            out,
            "{seconds:>5} s  at the own site {} and {}; {}",
            parts[0],
            parts[1],
            picture.moved.text()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::picture::tests::{crowded, crowded_world};
    use super::*;

    #[test]
    fn no_line_is_wider_than_a_terminal_and_alarms_are_printed_at_once() {
        let (mut lines, mut picture) = (Lines::default(), crowded(&crowded_world()));
        let mut second = |seconds: u64, picture: &mut Picture| {
            picture.elapsed = Duration::from_secs(seconds);
            let mut out = Vec::new();
            lines.show(picture, &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        let first = second(1, &mut picture);
        assert!(first.lines().all(|line| line.chars().count() <= 80), "{first}");
        assert!(first.contains("so far: moves 12345, elections"), "{first}");
        let trips = "trips: attach p50 12, p99 1234 ms; 12345 reads, 0 anomalies";
        assert!(first.contains(trips), "{first}");
        assert!(first.contains("data that follows: p50 10 ms; placed by hash: 1041 ms"), "{first}");
        assert!(first.contains("at the own site 83 % and 9 %; 12345 moves of 1.18 MiB"), "{first}");
        let window = "8 to 10 s: p50 follows 9.5 ms, by hash 1041.2 ms; groups moved 1";
        assert!(first.contains(window), "{first}");
        assert_eq!(second(1, &mut picture), "", "once a second");
        assert!(!second(2, &mut picture).contains("groups moved"), "each window once");
        assert!(!second(3, &mut picture).contains("so far"), "nothing new is counted");
        picture.counters.errors += 1;
        assert!(second(4, &mut picture).contains("errors 13"));
        assert!(second(14, &mut picture).contains("so far"), "after a while again");
    }
}
