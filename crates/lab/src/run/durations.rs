//! Durations: each request is answered by its deadline, and the log time of a site, by which its
//! keys expire, is no further ahead than elapsed time allows, whatever wall clocks show and
//! whichever node leads (ADR 26).
//!
//! Log time begins with a wall clock, and goes on by the monotonic clock of each leader in turn. It
//! may stand still (no leader, or no entry) and is behind then; so there is a bound in one
//! direction only. The next leader may go on from what it received long before the last entry of
//! the one before, by a faster clock: the bound therefore counts from the beginning of the site,
//! and not from one look to the next.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Run, TEND};

/// What log time advances by in a second at most: no clock of a world is faster than 1.09, and
/// steering towards the wall clock adds one part in a hundred.
const FASTEST: f64 = 1.11;
/// A request is answered by then, by any clock: deadlines are ten seconds at most.
const ANSWERED_AFTER_MAX: Duration = Duration::from_secs(40);
/// Log time is shown in whole milliseconds, which may be the wall clock's.
const SLACK_MS: u64 = 20;

/// Of each life of a site.
#[derive(Debug, Default)]
pub(super) struct Durations(BTreeMap<(usize, u64), Bound>);

#[derive(Debug, Clone, Copy)]
struct Bound {
    /// A time before its first entry.
    since: Duration,
    /// The first log time that was seen, ms.
    first_ms: Option<u64>,
}

impl Bound {
    /// The latest log time that a node can have applied by then.
    fn latest_ms(&self, first_ms: u64, now: Duration) -> u64 {
        let elapsed = now.saturating_sub(self.since);
        first_ms.saturating_add(elapsed.mul_f64(FASTEST).as_millis() as u64 + SLACK_MS)
    }

    /// Takes in what a node has applied.
    ///
    /// # Errors
    /// By how many milliseconds that is too far ahead.
    fn take(&mut self, log_time_ms: u64, now: Duration) -> Result<(), u64> {
        if log_time_ms == 0 {
            return Ok(());
        }
        let first_ms = *self.first_ms.get_or_insert(log_time_ms);
        match log_time_ms.saturating_sub(self.latest_ms(first_ms, now)) {
            0 => Ok(()),
            ahead_ms => Err(ahead_ms),
        }
    }
}

impl Run<'_> {
    /// Looks at the requests and the log time of all nodes.
    pub(super) fn judge_durations(&mut self) {
        let now = self.lab.now();
        if let Some((node, ticket)) = self.lab.unanswered(ANSWERED_AFTER_MAX) {
            let (name, seconds) = (self.lab.name(node), ANSWERED_AFTER_MAX.as_secs());
            let what = format!("{name} has not answered #{} for {seconds} s", ticket.0);
            self.failure.get_or_insert(what);
        }
        for site in 0..self.lab.sites.len() {
            let life = self.lab.sites[site].life;
            // The sites that were there before the first look began with the run; others came since
            // the look before this one.
            let is_first = life <= 1 && !self.durations.0.contains_key(&(site, 0));
            let since = if is_first { Duration::ZERO } else { now.saturating_sub(TEND) };
            let bound = Bound { since, first_ms: None };
            let bound = self.durations.0.entry((site, life)).or_insert(bound);
            for node in &self.lab.sites[site].nodes {
                let Some(log_time_ms) = self.lab.log_time_ms(*node) else { continue };
                if let Err(ahead_ms) = bound.take(log_time_ms, now) {
                    let what = format!(
                        "log time is {ahead_ms} ms further than elapsed time allows, at {}",
                        self.lab.name(*node)
                    );
                    self.failure.get_or_insert(what);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use model::{Command, KeyspaceId, Request, Write};

    use super::*;
    use crate::run::Options;
    use crate::world::ready;

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn log_time_may_stand_still_and_not_run_ahead() {
        let mut bound = Bound { since: s(10), first_ms: None };
        assert_eq!(bound.take(0, s(11)), Ok(()), "no entry yet");
        assert_eq!(bound.take(7_000_000, s(12)), Ok(()), "whatever wall clock it begins with");
        assert_eq!(bound.take(7_000_000, s(70)), Ok(()), "an entry a minute");
        assert_eq!(bound.take(7_060_000, s(70)), Ok(()), "the next one makes up for it");
        assert_eq!(bound.take(7_000_000 + 99_900, s(100)), Ok(()), "the fastest clock");
        assert_eq!(bound.take(7_000_000 + 99_950, s(100)), Err(50 - SLACK_MS));
    }

    #[test]
    fn a_run_fails_when_the_log_time_of_a_site_runs_ahead() {
        let world = ready::load("one-site", None).unwrap();
        let options = Options::default();
        let mut run = Run::new(&world, &options);
        run.form().unwrap();
        run.judge_durations();
        run.lab.run(s(5));
        let write = Write::Delete { keys: vec!["key".into()] };
        let write = Command::Write { keyspace: KeyspaceId::DEFAULT, write, request: None };
        run.lab.ask(run.lab.leader(0).unwrap(), Request::write(write));
        run.lab.run(s(1));
        run.judge_durations();
        assert_eq!(run.failure, None);
        let first = run.durations.0.values_mut().find_map(|bound| bound.first_ms.as_mut());
        *first.unwrap() -= 60_000;
        run.judge_durations();
        let why = run.failure.unwrap_or_default();
        assert!(why.starts_with("log time is "), "{why}");
    }
}
