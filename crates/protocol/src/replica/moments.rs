//! Moments that people name, by wall clocks, and the log's, by log time.
//!
//! An absolute expiry comes in as a moment by the wall clock. The leader turns it into log time
//! when it proposes the write, by the difference of the two clocks then; so what is left of it
//! counts as elapsed time from there on, like any other expiry, and a clock that jumps later
//! changes nothing. A query for it returns the moment by the wall clock again, and how much is
//! left.

use model::{Answer, Command, Expiring, Expiry, Step, Write};

/// Turns the moments in a command into log time, as it goes into the log. Doing it again changes
/// nothing, under any leader.
pub(crate) fn to_log_time(command: &mut Command, wall_ahead_ms: i64) {
    match command {
        Command::Write { write, .. } => of_write(write, wall_ahead_ms),
        Command::Transaction { steps, .. } => {
            for step in steps {
                if let Step::Write(write) = step {
                    of_write(write, wall_ahead_ms);
                }
            }
        }
        _ => {}
    }
}

/// Whether a command names a moment by the wall clock.
pub(crate) fn names_one(command: &Command) -> bool {
    let of_write = |write: &Write| {
        matches!(
            write,
            Write::Put { expiry: Expiry::AtMs(_), .. }
                | Write::GetAndExpire { expiry: Expiry::AtMs(_), .. }
                | Write::SetExpiry { expiry: Expiry::AtMs(_), .. }
        )
    };
    match command {
        Command::Write { write, .. } => of_write(write),
        Command::Transaction { steps, .. } => {
            steps.iter().any(|step| matches!(step, Step::Write(write) if of_write(write)))
        }
        _ => false,
    }
}

fn of_write(write: &mut Write, wall_ahead_ms: i64) {
    if wall_ahead_ms == 0 {
        return;
    }
    if let Write::Put { expiry, .. }
    | Write::GetAndExpire { expiry, .. }
    | Write::SetExpiry { expiry, .. } = write
        && let Expiry::AtMs(wall_ms) = *expiry
    {
        *expiry = Expiry::AtLogMs(shifted(wall_ms, -i128::from(wall_ahead_ms)));
    }
}

/// Turns the moments in an answer of the state, which are log time, into what others understand.
pub(crate) fn for_others(answer: &mut Answer, log_now_ms: u64, wall_ahead_ms: i64) {
    match answer {
        Answer::Expiry(expiring) => {
            if let Expiring::AtMs(log_ms) = *expiring {
                let wall_ms = shifted(log_ms, i128::from(wall_ahead_ms));
                *expiring = Expiring::At { wall_ms, left_ms: log_ms.saturating_sub(log_now_ms) };
            }
        }
        Answer::Steps(outcomes) => {
            let answers = outcomes.iter_mut().filter_map(|outcome| outcome.as_mut().ok());
            answers.for_each(|answer| for_others(answer, log_now_ms, wall_ahead_ms));
        }
        _ => {}
    }
}

/// A moment by another clock, which shows so much more.
pub(crate) fn shifted(ms: u64, by_ms: i128) -> u64 {
    let moved = i128::from(ms) + by_ms;
    u64::try_from(moved.max(0)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Bytes, ExpiryCondition, KeyspaceId};

    fn expire(expiry: Expiry) -> Write {
        Write::SetExpiry { key: Bytes::new(), expiry, condition: ExpiryCondition::Always }
    }

    #[test]
    fn a_moment_becomes_log_time_once() {
        let keyspace = KeyspaceId::DEFAULT;
        let steps = vec![Step::Write(expire(Expiry::AtMs(5_000)))];
        let mut command =
            Command::Transaction { keyspace, guards: Vec::new(), steps, request: None };
        to_log_time(&mut command, 3_000);
        to_log_time(&mut command, -9_000);
        let Command::Transaction { steps, .. } = command else { unreachable!("as it was made") };
        assert_eq!(steps, [Step::Write(expire(Expiry::AtLogMs(2_000)))]);
    }

    #[test]
    fn clocks_that_agree_leave_it_as_it_is() {
        let write = expire(Expiry::AtMs(5_000));
        let keyspace = KeyspaceId::DEFAULT;
        let mut command = Command::Write { keyspace, write: write.clone(), request: None };
        to_log_time(&mut command, 0);
        assert_eq!(command, Command::Write { keyspace, write, request: None });
    }

    #[test]
    fn what_has_passed_stays_passed_and_the_end_of_time_is_none() {
        assert_eq!(shifted(0, -7), 0);
        assert_eq!(shifted(u64::MAX, 7), u64::MAX);
        assert_eq!(shifted(10, -7), 3);
    }

    #[test]
    fn an_answer_says_the_moment_and_what_is_left() {
        let mut answer = Answer::Steps(vec![Ok(Answer::Expiry(Expiring::AtMs(5_000)))]);
        for_others(&mut answer, 4_400, 3_000);
        let at = Expiring::At { wall_ms: 8_000, left_ms: 600 };
        assert_eq!(answer, Answer::Steps(vec![Ok(Answer::Expiry(at))]));
    }
}
