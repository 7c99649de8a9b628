//! The tokens beside answers: what a session has written and seen with each of them.

use super::{Outcome, UNRELEASED, released};
use crate::bugs::Bug;
use crate::origin::Origin;
use crate::replica::moments;
use crate::replica::reads::WaitingRead;
use crate::replica::writes::Settled;
use crate::site::Site;
use crate::site::machine::causal::NOT_HELD;
use crate::site::machine::causal::session::{Lacks, SessionRead};
use model::{Answer, CausalCommand, CausalToken, Command, Failure, SessionError};
use storage::log::LogReader;
use storage::snapshot::Snapshots;
use storage::state::State;

impl<S: State, R: LogReader, N: Snapshots> Site<S, R, N> {
    /// A write is about to join the log: if it is one of a session, its answer has a token.
    pub(in crate::site) fn note_session_write(&mut self, origin: Origin, command: &Command) {
        if self.sessions.asked(origin).is_none() {
            return;
        }
        if let Command::Write { keyspace, .. }
        | Command::Transaction { keyspace, .. }
        | Command::Causal(
            CausalCommand::Clear { keyspace }
            | CausalCommand::Numbered { keyspace, .. }
            | CausalCommand::Retry { keyspace, .. },
        ) = command
            && self.is_causal(*keyspace)
        {
            self.sessions.writes(origin);
        }
    }

    /// Of what was applied just now: the answers that may go out. Clears wait until their places
    /// are released.
    pub(in crate::site) fn keep_clears(&mut self, settled: Vec<Settled>) -> Vec<Settled> {
        let place = |one: &Settled| match one.1 {
            Ok(Answer::Placed(place)) => Some(place),
            _ => None,
        };
        let is_planted = self.options.planted.is(Bug::ClearedUnreleased);
        if is_planted || settled.iter().all(|one| place(one).is_none()) {
            return settled;
        }
        let (now, released) = (self.now.monotonic, released(&self.machine));
        let mut rest = Vec::with_capacity(settled.len());
        for one in settled {
            match place(&one).filter(|place| *place > released) {
                None => rest.push(one),
                Some(place) => {
                    if let Err((origin, _)) = self.causal.clears.push(one, place, now) {
                        rest.push((origin, Err(UNRELEASED)));
                    }
                }
            }
        }
        rest
    }

    /// Writes were applied just now: their sessions have made them, and have seen what the steps of
    /// a transaction have read.
    pub(in crate::site) fn sessions_wrote(&mut self, settled: &[Settled]) {
        for (origin, outcome) in settled {
            if outcome.is_err() || !self.sessions.is_write(*origin) {
                continue;
            }
            let Some(asked) = self.sessions.asked(*origin) else { continue };
            let (point, token) = (self.machine.reader().causal(), CausalToken::of_session(asked));
            let mut token = token.unwrap_or_default();
            // One that names another site was served without its position: by a planted bug.
            token.written = token.written.filter(|(site, _)| *site == point.own);
            let token = match outcome {
                // A clear has its position at once, and all that its session has written comes
                // before.
                Ok(Answer::Placed(place)) => {
                    let seen = token.seen.max(*place);
                    CausalToken { region: point.region, seen, written: None }
                }
                _ => point.covering(token),
            };
            self.sessions.answered(*origin, Some(token.into_session()));
        }
    }

    /// Whether requests are admitted that must not be: by a planted bug.
    fn attaches_blindly(&self) -> bool {
        let planted = self.options.planted;
        planted.is(Bug::AttachWithoutSeen) || planted.is(Bug::AttachWithoutWritten)
    }

    fn is_of_other_region(&self, token: &CausalToken) -> bool {
        let member = self.machine.membership();
        member.is_some_and(|member| member.registry.region(token.region).is_some())
    }

    /// The answer to a read of a session, from the state as it is. `None`: it is of none.
    pub(in crate::site) fn answer_in_session(&mut self, read: &WaitingRead) -> Option<Outcome> {
        let asked = self.sessions.asked(read.origin)?;
        let token = CausalToken::of_session(asked).unwrap_or_default();
        if !self.is_causal(read.keyspace) {
            return None;
        }
        let reported =
            match self.machine.reader().in_session(read.keyspace, &read.query, None, token) {
                Ok(SessionRead::Answered(mut outcome, reported)) => {
                    if let Ok(answer) = &mut outcome {
                        let clock = &self.replica.log_clock;
                        moments::for_others(answer, clock.now_ms(), clock.wall_ahead_ms());
                    }
                    (outcome.map_err(Failure::Refused), reported)
                }
                Ok(SessionRead::Lacks(Lacks::Keyspace)) => return Some(Err(NOT_HELD.into())),
                Ok(SessionRead::Lacks(Lacks::Region)) if !self.is_of_other_region(&token) => {
                    return Some(Err(SessionError::Foreign.into()));
                }
                Ok(SessionRead::Lacks(Lacks::Ended { have })) => {
                    return Some(Err(SessionError::Ended { have, need: token.seen }.into()));
                }
                Ok(SessionRead::Lacks(_)) if !self.attaches_blindly() => {
                    // Its node had no state yet when it came, and did not look at its token.
                    return Some(Err(Failure::NotServing("it had no state when the request came")));
                }
                Ok(SessionRead::Lacks(_)) => {
                    // It is served as one of no session is.
                    let outcome = self.machine.reader().query(read.keyspace, &read.query);
                    let point = self.machine.reader().causal();
                    let none = CausalToken::default();
                    (outcome.map_err(|_| Failure::NoLeader), point.covering(none))
                }
                Err(stopped) => {
                    self.fail(format!("{stopped:?}"));
                    return Some(Err(Failure::NotServing("its state cannot be read")));
                }
            };
        let planted = self.options.planted;
        let is_unmerged = planted.is(Bug::ReadsUnmerged)
            || (planted.is(Bug::AbsenceUnseen) && matches!(reported.0, Ok(Answer::Value(None))));
        let token = if is_unmerged {
            CausalToken { region: reported.1.region, ..token }
        } else {
            reported.1
        };
        self.sessions.answered(read.origin, Some(token.into_session()));
        Some(reported.0)
    }
}
