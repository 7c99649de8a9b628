//! Clears that have a place of the order, until that may be answered: the root answers a clear once
//! the place is released.
//!
//! An answer states that all keys are gone for good, and its session has seen the place. If the
//! root is lost while its standby lacks that, neither is true. So what has not been released when
//! another epoch begins is unknown, and so is what waits for too long.

use model::{Position, limits};
use std::time::Duration;

#[derive(Debug)]
struct Clear<T> {
    what: T,
    at: Position,
    until: Duration,
}

/// Those that wait at a node of the root.
#[derive(Debug)]
pub(crate) struct Clears<T> {
    waiting: Vec<Clear<T>>,
}

impl<T> Default for Clears<T> {
    fn default() -> Clears<T> {
        Clears { waiting: Vec::new() }
    }
}

impl<T> Clears<T> {
    /// Whether none waits.
    pub(crate) fn is_idle(&self) -> bool {
        self.waiting.is_empty()
    }

    /// One waits for its place to be released; or there are too many.
    pub(crate) fn push(&mut self, what: T, at: Position, now: Duration) -> Result<(), T> {
        if self.waiting.len() >= limits::CAUSAL_CLEARS_WAITING_MAX {
            return Err(what);
        }
        self.waiting.push(Clear { what, at, until: now + limits::REQUEST_DEADLINE });
        Ok(())
    }

    /// All that wait: none is released any more.
    pub(crate) fn take_all(&mut self) -> Vec<T> {
        self.waiting.drain(..).map(|one| one.what).collect()
    }

    /// Those that wait no longer, and whether their places are released.
    pub(crate) fn take(&mut self, released: Position, now: Duration) -> Vec<(T, bool)> {
        if self.waiting.is_empty() {
            return Vec::new();
        }
        let due = self.waiting.extract_if(.., |one| one.at <= released || one.until <= now);
        let is_released = |at: Position| at <= released && at.epoch() == released.epoch();
        due.map(|one| (one.what, is_released(one.at))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clear_is_answered_once_its_place_is_released_or_is_unknown() {
        let at = Duration::from_secs;
        let mut clears = Clears::default();
        for count in [4, 5, 6] {
            clears.push(count, Position::new(1, count), at(count)).unwrap();
        }
        assert!(clears.take(Position::new(1, 3), at(6)).is_empty());
        assert_eq!(clears.take(Position::new(1, 4), at(6)), [(4, true)]);
        let late = at(5) + limits::REQUEST_DEADLINE;
        assert_eq!(clears.take(Position::new(1, 4), late), [(5, false)]);
        // Another root goes on: it may lack the place.
        assert_eq!(clears.take(Position::new(65, 9), late), [(6, false)]);
        assert!(clears.is_idle());
        for count in 0..limits::CAUSAL_CLEARS_WAITING_MAX as u64 {
            clears.push(count, Position::new(1, count), late).unwrap();
        }
        assert_eq!(clears.push(7, Position::new(1, 7), late), Err(7));
    }
}
