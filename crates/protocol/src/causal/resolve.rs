//! Which position a site's write has: asked by nodes to which a session comes that wrote elsewhere.
//!
//! Any node of the root's site answers from its state: positions are durable when it has them. A
//! question about a write without a position waits here until it has one that is released. Its
//! requester asks again meanwhile, so that a question may be dropped at any time. The position that
//! is answered is that of the site's last ordered write: not before the one that was asked for.
//!
//! Of a session that comes from another region the root is asked for a position behind all that it
//! has seen there, and written. As soon as the root has taken that region's order so far, it is the
//! last position of its own: a lower one would do for what that region had ordered itself, and not
//! for what it had taken from here. Of a write of a site that has left, the root of the site's own
//! region is asked, too: it gives no more places to that site, and so answers also that there is
//! none.

use super::trial::{Bug, Planted};
use super::{AGAIN, Durable};
use model::{NO_SITE, NodeId, Position, RegionId, Revision, SiteId, limits};
use std::collections::BTreeMap;
use std::time::Duration;
use wire::causal::{Resolve, Resolved};

/// What is answered of a session that has seen, in another region, what was lost with the root of
/// that.
pub(super) const LOST: Position = Position(u64::MAX);

/// Who is answered: a node of a site.
pub(crate) type Requester = (SiteId, NodeId);

/// The questions that wait at a node of the root.
#[derive(Debug, Default)]
pub(crate) struct Questions {
    planted: Planted,
    /// By question and requester: until when they wait, and the position that the answer is once it
    /// is released.
    waiting: BTreeMap<(Asked, Requester), (Duration, Option<Position>)>,
}

/// A question: about a write, or a region and a position of it. See [`Resolve`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Asked {
    site: SiteId,
    revision: Revision,
    region: RegionId,
    seen: Position,
}

impl Asked {
    fn of(question: Resolve) -> Asked {
        Asked {
            site: SiteId(question.site),
            revision: Revision(question.revision),
            region: RegionId(question.region as u16),
            seen: Position(question.seen),
        }
    }

    fn is_foreign(&self) -> bool {
        self.region != RegionId(0)
    }

    fn answer(&self, position: Position) -> Resolved {
        Resolved {
            site: self.site.0,
            revision: self.revision.0,
            position: position.0,
            region: u32::from(self.region.0),
            seen: self.seen.0,
        }
    }
}

impl Questions {
    pub(crate) fn new(planted: Planted) -> Questions {
        Questions { planted, ..Questions::default() }
    }

    /// A question has come: its answer, unless it must wait.
    pub(crate) fn asked(
        &mut self,
        requester: Requester,
        question: Resolve,
        (now, is_lost): (Duration, bool),
        state: &impl Durable,
        released: Position,
    ) -> Option<Resolved> {
        let question = Asked::of(question);
        if is_lost && question.is_foreign() {
            return Some(question.answer(LOST));
        }
        let key = (question, requester);
        let before = self.waiting.remove(&key).and_then(|(_, position)| position);
        let before = before.filter(|position| position.epoch() == released.epoch());
        match before.or_else(|| self.position(&question, state)) {
            Some(position) if self.is_released(position, released) => {
                Some(question.answer(in_epoch(position, released)))
            }
            None if is_lost => Some(question.answer(Position::default())),
            position => {
                if self.waiting.len() < limits::CAUSAL_QUESTIONS_WAITING_MAX {
                    self.waiting.insert(key, (now + 2 * AGAIN, position));
                }
                None
            }
        }
    }

    /// The answers that are there by now.
    pub(crate) fn poll(
        &mut self,
        now: Duration,
        state: &impl Durable,
        released: Position,
        is_lost: impl Fn(RegionId, Position) -> bool,
    ) -> Vec<(Requester, Resolved)> {
        if self.waiting.is_empty() {
            return Vec::new();
        }
        let mut answers = Vec::new();
        for ((question, requester), (until, known)) in std::mem::take(&mut self.waiting) {
            // Its order may have been cut meanwhile, and is taken from there on.
            if question.is_foreign() && is_lost(question.region, question.seen) {
                answers.push((requester, question.answer(LOST)));
                continue;
            }
            // The first one that is seen stays: the site may write on, and its last one is never
            // released then. In another epoch the write may have another one.
            let known = known.filter(|position| position.epoch() == released.epoch());
            match known.or_else(|| self.position(&question, state)) {
                Some(position) if self.is_released(position, released) => {
                    let answer = question.answer(in_epoch(position, released));
                    answers.push((requester, answer));
                }
                known if until > now => {
                    self.waiting.insert((question, requester), (until, known));
                }
                _ => {}
            }
        }
        answers
    }

    fn position(&self, question: &Asked, state: &impl Durable) -> Option<Position> {
        let Asked { site, revision, region, seen } = *question;
        let of_write = || {
            let (ordered, position) = state.ordered_of(site)?;
            let is_there = ordered >= revision || self.planted.is(Bug::ResolvedEarly);
            is_there.then_some(position)
        };
        if !question.is_foreign() {
            return of_write();
        }
        let is_root = state.order_last() >= state.applied();
        let is_taken = is_root && state.taken_of(region) >= seen;
        let is_there = is_taken && (site == NO_SITE || of_write().is_some());
        is_there.then(|| state.order_last())
    }

    fn is_released(&self, position: Position, released: Position) -> bool {
        position <= released || self.planted.is(Bug::ResolvedUnreleased)
    }
}

/// The answer that names this position, by a root in the epoch of what is released: by a position
/// of an epoch of before a rebuild a session could have seen what is lost of that.
fn in_epoch(position: Position, released: Position) -> Position {
    position.max(Position::new(released.epoch(), 0))
}

#[cfg(test)]
mod tests {
    use super::super::simulation::{Store, write};
    use super::*;

    const NOT_LOST: fn(RegionId, Position) -> bool = |_, _| false;

    #[test]
    fn what_is_lost_while_a_question_waits_is_answered_as_lost() {
        let (mut questions, mut store) = (Questions::default(), Store::of(1));
        store.order(SiteId(2), write(3));
        let (requester, now) = ((SiteId(3), NodeId(7)), Duration::ZERO);
        let question = Resolve { region: 5, seen: Position::new(1, 40).0, ..Resolve::default() };
        let released = store.order_last();
        assert_eq!(questions.asked(requester, question, (now, false), &store, released), None);
        assert!(questions.poll(now, &store, released, NOT_LOST).is_empty());
        let is_lost = |region, seen| region == RegionId(5) && seen == Position::new(1, 40);
        let answers = questions.poll(now, &store, released, is_lost);
        assert!(matches!(answers[..], [(_, Resolved { position: u64::MAX, .. })]), "{answers:?}");
    }

    #[test]
    fn a_question_waits_until_there_is_a_position() {
        let mut questions = Questions::default();
        let mut store = Store::of(1);
        let (requester, now) = ((SiteId(3), NodeId(7)), Duration::ZERO);
        let question = |revision| Resolve { site: 2, revision, ..Resolve::default() };
        let ask = |questions: &mut Questions, store: &Store, revision, has_left| {
            let released = store.order_last();
            let answer =
                questions.asked(requester, question(revision), (now, has_left), store, released);
            answer.map(|answer| Position(answer.position).count())
        };
        assert_eq!(ask(&mut questions, &store, 4, false), None);
        store.order(SiteId(2), write(3));
        assert!(questions.poll(now, &store, store.order_last(), NOT_LOST).is_empty());
        assert_eq!(ask(&mut questions, &store, 3, false), Some(1));
        store.order(SiteId(2), write(4));
        store.order(SiteId(2), write(5));
        let before = questions.poll(now, &store, Position::new(1, 2), NOT_LOST);
        assert!(before.is_empty(), "it is not released");
        store.order(SiteId(2), write(6));
        let answers = questions.poll(now, &store, Position::new(1, 3), NOT_LOST);
        let position = Position::new(1, 3).0;
        let wanted = Resolved { site: 2, revision: 4, position, ..Resolved::default() };
        assert_eq!(answers, [(requester, wanted)], "a later one");
        assert!(questions.waiting.is_empty());
        assert_eq!(ask(&mut questions, &store, 7, true), Some(0), "the site is gone");
        assert_eq!(ask(&mut questions, &store, 6, true), Some(4), "what it had ordered is there");
        // Another root goes on, and does not have what was not released: the write gets another
        // position there.
        assert_eq!(ask(&mut questions, &store, 7, false), None);
        store.order(SiteId(2), write(7));
        assert!(questions.poll(now, &store, Position::new(1, 4), NOT_LOST).is_empty());
        let later = Position::new(65, 9);
        let mut other = Store::of(1);
        other.order(SiteId(2), write(6));
        assert!(questions.poll(now, &other, later, NOT_LOST).is_empty());
        assert_eq!(questions.waiting.len(), 1);
        questions.waiting.clear();
        // A question is dropped after a while: it is asked again.
        assert_eq!(ask(&mut questions, &store, 8, false), None);
        assert!(questions.poll(2 * AGAIN, &store, store.order_last(), NOT_LOST).is_empty());
        assert!(questions.waiting.is_empty());
    }
}
