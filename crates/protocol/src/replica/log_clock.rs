//! Log time: the clock of expiry and of the memory for retries, and what it is derived from.
//!
//! Every entry of the log bears a log time, and a state's own is the latest of any entry that it
//! has applied. The leader gives it, and it measures **elapsed time**, never what a clock shows:
//!
//! - log time goes on by what the leader's monotonic clock measures, and at a change of leader by
//!   what the next leader's measured since it last received the time of the one before;
//! - it is *steered* towards the leader's wall clock by at most one part in [`STEERING`] of the
//!   time that passes. So no jump of a wall clock moves it by more, and two nodes with wall clocks
//!   that differ by hours give the same durations;
//! - one entry moves it by at most [`LEAP_MS`]. An idle leader proposes an entry each
//!   [`IDLE_MS`], so only a leader that was asleep or had no quorum meets that bound: time that no
//!   leader measured is not counted, and keys live longer for it, never shorter;
//! - a site that has never had a log time begins with the leader's wall clock.
//!
//! Wall clocks come in where people name a moment: an absolute expiry is translated by the leader's
//! wall clock when it is proposed ([`super::moments`]), which waits until the leader has applied an
//! entry of its own term and so has log time, and back when it is asked for. Followers receive both
//! clocks with every heartbeat and every read index of their leader. The latter also has the time
//! up to which keys are *due*: a linearizable read that meets a key that is due though no entry has
//! removed it yet waits for the entry that does ([`super::reads`]).

use super::Replica;
use crate::options::Options;
use model::Time;
use std::time::Duration;
use storage::log::LogReader;
use wire::peer;

/// etcd's numbers of the messages with the time: heartbeats and read indexes.
const TELLS_TIME: [u32; 2] = [8, 16];

/// Log time differs from elapsed time by at most one part in so many.
const STEERING: u32 = 100;
/// One entry moves log time by at most this.
const LEAP_MS: u64 = 120_000;
/// A leader that proposes nothing else lets time into the log this often.
const IDLE_MS: u64 = 60_000;
/// As near the wall clock is shown as it is: it has no finer steps.
const NEAR_MS: u64 = 1;

/// Log time at one node.
#[derive(Clone, Debug)]
pub(crate) struct LogClock {
    /// Log time when the monotonic clock showed `at`.
    now: Duration,
    at: Duration,
    /// The same in milliseconds, which never go back while this node leads.
    shown_ms: u64,
    /// The leader's wall clock less log time.
    wall_ahead_ms: i64,
    /// The latest log time of an entry that was applied or proposed here; 0: there is none yet.
    last_ms: u64,
    /// The clock that the term's leader has sent.
    received: Option<(u64, peer::Clock)>,
    /// A bug, for a trial: log time is what the wall clock shows.
    by_wall: bool,
}

impl LogClock {
    /// For a state whose log time is `last_ms`.
    pub(crate) fn new(last_ms: u64, now: Time, by_wall: bool) -> LogClock {
        let shown_ms = if last_ms == 0 { now.wall_ms } else { last_ms };
        LogClock {
            now: Duration::from_millis(shown_ms),
            at: now.monotonic,
            shown_ms,
            wall_ahead_ms: ahead(now.wall_ms, shown_ms),
            last_ms,
            received: None,
            by_wall,
        }
    }

    /// Goes on to now. Only a leader steers.
    pub(crate) fn go_on(&mut self, now: Time, leads: bool) {
        let elapsed = now.monotonic.saturating_sub(self.at);
        self.at = now.monotonic;
        let mut next = self.now + elapsed;
        if leads {
            // In the middle of the millisecond that it shows.
            let wall = Duration::from_millis(now.wall_ms) + Duration::from_micros(500);
            let most = elapsed / STEERING;
            match wall.checked_sub(next) {
                Some(behind) => next += behind.min(most),
                None => next -= (next - wall).min(most),
            }
        }
        self.now = next.min(self.latest()).max(self.now);
        let mut shown_ms = self.now.as_millis() as u64;
        if leads {
            if now.wall_ms.abs_diff(shown_ms) <= NEAR_MS {
                shown_ms = now.wall_ms;
            }
            if self.by_wall {
                shown_ms = now.wall_ms.max(self.last_ms);
            }
            self.shown_ms = self.shown_ms.max(shown_ms);
            self.wall_ahead_ms = ahead(now.wall_ms, self.shown_ms);
        } else {
            self.shown_ms = shown_ms;
        }
    }

    /// As far as it may go until the next entry.
    fn latest(&self) -> Duration {
        match self.last_ms {
            0 => Duration::MAX,
            last => Duration::from_millis(last.saturating_add(LEAP_MS)),
        }
    }

    /// An entry of this log time was applied or proposed here.
    pub(crate) fn reached(&mut self, log_time_ms: u64) {
        if log_time_ms <= self.last_ms {
            return;
        }
        let is_first = std::mem::replace(&mut self.last_ms, log_time_ms) == 0;
        // A wall clock that was never proposed counts for nothing.
        let latest = if is_first { 0 } else { LEAP_MS };
        let (first, last) = (log_time_ms, log_time_ms.saturating_add(latest));
        // What was shown may be that little ahead of what was measured, and is not measured again:
        // or a wall clock that runs fast would be followed without a bound.
        let measured = Duration::from_millis(first.saturating_sub(NEAR_MS));
        self.now = self.now.clamp(measured, Duration::from_millis(last));
        self.shown_ms = self.shown_ms.clamp(first, last);
    }

    /// The leader of this term has sent its clock.
    pub(crate) fn receive(&mut self, term: u64, clock: peer::Clock) {
        // A connection that broke may bring what is older.
        let known_ms =
            self.received.filter(|(of, _)| *of == term).map_or(0, |(_, known)| known.log_time_ms);
        let clock = peer::Clock { log_time_ms: clock.log_time_ms.max(known_ms), ..clock };
        self.received = Some((term, clock));
        if clock.log_time_ms >= self.last_ms {
            self.now = Duration::from_millis(clock.log_time_ms).min(self.latest());
            self.shown_ms = self.now.as_millis() as u64;
        }
        self.wall_ahead_ms = clock.wall_ahead_ms;
    }

    /// The time up to which keys are due, by the leader of this term; `None`: it cannot propose an
    /// entry now, or has sent no time.
    pub(crate) fn received_ms(&self, term: u64) -> Option<u64> {
        let (of, clock) = self.received?;
        (of == term && clock.moves).then_some(clock.log_time_ms)
    }

    /// Log time, milliseconds.
    pub(crate) fn now_ms(&self) -> u64 {
        self.shown_ms
    }

    /// The leader's wall clock less log time.
    pub(crate) fn wall_ahead_ms(&self) -> i64 {
        self.wall_ahead_ms
    }

    /// When the leader is to let time into the log though nothing happens.
    pub(crate) fn idle_until_ms(&self) -> Option<u64> {
        (self.last_ms > 0).then(|| self.last_ms.saturating_add(IDLE_MS))
    }

    /// The clock that a leader sends to its followers.
    pub(crate) fn word(&self, moves: bool) -> peer::Clock {
        peer::Clock { log_time_ms: self.shown_ms, wall_ahead_ms: self.wall_ahead_ms, moves }
    }
}

/// Log time between two entries, for those who read beside the core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    /// A moment by the process's monotonic clock.
    pub at: Duration,
    /// Log time then, milliseconds.
    pub log_ms: u64,
    /// The leader's wall clock less log time.
    pub wall_ahead_ms: i64,
    /// Whether keys are due by it: this node leads and can propose entries.
    pub is_due_by: bool,
}

impl Pace {
    /// Log time at a moment of the monotonic clock.
    pub fn log_ms(&self, now: Duration) -> u64 {
        self.log_ms.saturating_add(now.saturating_sub(self.at).as_millis() as u64)
    }
}

fn ahead(wall_ms: u64, log_ms: u64) -> i64 {
    i64::try_from(i128::from(wall_ms) - i128::from(log_ms)).unwrap_or(0)
}

impl<R: LogReader> Replica<R> {
    /// Whether what is due goes, as an entry can be proposed here.
    pub(crate) fn moves_time(&self, options: &Options) -> bool {
        self.leads() && self.disk_full.is_none() && !options.witness
    }

    /// The log time by which a key is due for a read that is looked at now. `None`: nothing can be
    /// proposed now, and what was applied must do.
    pub(crate) fn due_by_ms(&self, options: &Options) -> Option<u64> {
        match self.leads() {
            true => self.moves_time(options).then(|| self.log_clock.now_ms()),
            false => self.log_clock.received_ms(self.raft.term()),
        }
    }

    /// What goes along with a message of a leader's.
    pub(crate) fn clock_of(&self, options: &Options, message: &peer::Raft) -> Option<peer::Clock> {
        let tells = TELLS_TIME.contains(&message.kind) && message.term == self.raft.term();
        let can_tell = tells && self.leads() && !options.witness;
        can_tell.then(|| self.log_clock.word(self.moves_time(options)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const HOUR_MS: u64 = 3_600_000;
    const BEGIN_MS: u64 = 1_700_000_000_000;

    fn at(monotonic: Duration, wall_ms: u64) -> Time {
        Time { monotonic, wall_ms }
    }

    /// A leader of `seconds`, which looks at its clocks ten times a second and proposes each
    /// second.
    fn lead(clock: &mut LogClock, from: Duration, seconds: u64, wall_ahead_ms: i64) -> Duration {
        for step in 1..=seconds * 10 {
            let monotonic = from + SECOND / 10 * step as u32;
            let wall = BEGIN_MS + monotonic.as_millis() as u64;
            clock.go_on(at(monotonic, wall.saturating_add_signed(wall_ahead_ms)), true);
            if step % 10 == 0 {
                clock.reached(clock.now_ms());
            }
        }
        from + SECOND * seconds as u32
    }

    #[test]
    fn it_is_the_wall_clock_where_nothing_is_wrong() {
        let mut clock = LogClock::new(0, at(Duration::ZERO, BEGIN_MS), false);
        for step in 1..10_000u32 {
            let monotonic = Duration::from_micros(777) * step;
            let wall_ms = BEGIN_MS + monotonic.as_millis() as u64;
            clock.go_on(at(monotonic, wall_ms), true);
            assert_eq!((clock.now_ms(), clock.wall_ahead_ms()), (wall_ms, 0));
            clock.reached(wall_ms);
        }
    }

    #[test]
    fn a_jump_of_hours_moves_it_by_the_steering_alone() {
        for jump_ms in [-(6 * HOUR_MS as i64), 6 * HOUR_MS as i64] {
            let mut clock = LogClock::new(0, at(Duration::ZERO, BEGIN_MS), false);
            let from = lead(&mut clock, Duration::ZERO, 10, 0);
            assert_eq!(clock.now_ms(), BEGIN_MS + 10_000);
            lead(&mut clock, from, 600, jump_ms);
            let off_ms = clock.now_ms() as i64 - (BEGIN_MS + 610_000) as i64;
            assert!((5_900..=6_002).contains(&(off_ms * jump_ms.signum())), "{off_ms}");
            let ahead = clock.wall_ahead_ms() + off_ms;
            assert_eq!(ahead, jump_ms, "what people name as a moment is known exactly");
        }
    }

    #[test]
    fn a_wall_clock_that_runs_fast_is_not_followed_faster() {
        let mut clock = LogClock::new(BEGIN_MS, at(Duration::ZERO, BEGIN_MS), false);
        for step in 1..=100_000u32 {
            let monotonic = Duration::from_micros(100) * step;
            let fast = monotonic.mul_f64(1.2).as_millis() as u64;
            clock.go_on(at(monotonic, BEGIN_MS + fast), true);
            clock.reached(clock.now_ms());
        }
        let passed_ms = clock.now_ms() - BEGIN_MS;
        assert!((10_090..=10_102).contains(&passed_ms), "{passed_ms} ms in ten seconds");
    }

    #[test]
    fn a_small_difference_is_steered_away() {
        let mut clock = LogClock::new(BEGIN_MS - 1_000, at(Duration::ZERO, BEGIN_MS), false);
        lead(&mut clock, Duration::ZERO, 90, 0);
        assert!(clock.wall_ahead_ms() > 0);
        lead(&mut clock, SECOND * 90, 20, 0);
        assert_eq!(clock.wall_ahead_ms(), 0);
    }

    #[test]
    fn the_next_leader_goes_on_from_what_it_heard_whatever_its_wall_clock_shows() {
        let mut next = LogClock::new(0, at(Duration::ZERO, BEGIN_MS + 5 * HOUR_MS), false);
        next.reached(BEGIN_MS);
        let word = peer::Clock { log_time_ms: BEGIN_MS + 30_000, wall_ahead_ms: 7, moves: true };
        next.go_on(at(SECOND, BEGIN_MS + 5 * HOUR_MS), false);
        next.receive(3, word);
        assert_eq!((next.received_ms(3), next.received_ms(4)), (Some(BEGIN_MS + 30_000), None));
        next.go_on(at(3 * SECOND, BEGIN_MS + 5 * HOUR_MS), true);
        assert!((32_000..=32_020).contains(&(next.now_ms() - BEGIN_MS)), "{}", next.now_ms());
    }

    #[test]
    fn time_that_nobody_was_awake_for_is_not_counted() {
        let mut clock = LogClock::new(BEGIN_MS, at(Duration::ZERO, BEGIN_MS), false);
        clock.go_on(at(SECOND * 7_200, BEGIN_MS + 2 * HOUR_MS), true);
        assert_eq!(clock.now_ms(), BEGIN_MS + LEAP_MS);
        clock.reached(clock.now_ms());
        clock.go_on(at(SECOND * 7_201, BEGIN_MS + 2 * HOUR_MS + 1_000), true);
        assert_eq!(clock.now_ms(), BEGIN_MS + LEAP_MS + 1_010);
    }

    #[test]
    fn a_planted_wall_clock_is_believed() {
        let mut clock = LogClock::new(BEGIN_MS, at(Duration::ZERO, BEGIN_MS), true);
        clock.go_on(at(SECOND, BEGIN_MS + HOUR_MS), true);
        assert_eq!(clock.now_ms(), BEGIN_MS + HOUR_MS);
        clock.reached(clock.now_ms());
        clock.go_on(at(2 * SECOND, BEGIN_MS), true);
        assert_eq!(clock.now_ms(), BEGIN_MS + HOUR_MS, "it never goes back");
    }
}
