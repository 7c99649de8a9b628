//! Which position a site's write has: asked by nodes to which a session comes that wrote elsewhere.
//!
//! Any node of the root's site answers from its state: positions are durable when it has them. A question
//! about a write without a position waits here until it has one. Its asker asks again meanwhile, so that a
//! question may be dropped at any time. The position that is answered is that of the site's last ordered
//! write: not before the one that was asked for.

use super::trial::{Bug, Planted};
use super::{AGAIN, Durable};
use model::{NodeId, Position, Revision, SiteId, limits};
use std::collections::BTreeMap;
use std::time::Duration;
use wire::causal::{Resolve, Resolved};

/// Who is answered: a node of a site.
pub(crate) type Asker = (SiteId, NodeId);

/// The questions that wait at a node of the root.
#[derive(Debug, Default)]
pub(crate) struct Questions {
    planted: Planted,
    /// By the write and the asker; until when they wait.
    waiting: BTreeMap<(SiteId, Revision, Asker), Duration>,
}

impl Questions {
    pub(crate) fn new(planted: Planted) -> Questions {
        Questions { planted, ..Questions::default() }
    }

    /// A question has come: its answer, unless it must wait.
    pub(crate) fn asked(
        &mut self,
        asker: Asker,
        question: Resolve,
        (now, has_left): (Duration, bool),
        state: &impl Durable,
    ) -> Option<Resolved> {
        let (site, revision) = (SiteId(question.site), Revision(question.revision));
        let found = self.answer(site, revision, state);
        match found {
            None if has_left => Some(resolved(site, revision, Position::default())),
            None => {
                if self.waiting.len() < limits::CAUSAL_QUESTIONS_WAITING_MAX {
                    self.waiting.insert((site, revision, asker), now + 2 * AGAIN);
                }
                None
            }
            found => found,
        }
    }

    /// The answers that are there by now.
    pub(crate) fn poll(&mut self, now: Duration, state: &impl Durable) -> Vec<(Asker, Resolved)> {
        if self.waiting.is_empty() {
            return Vec::new();
        }
        let mut answers = Vec::new();
        for ((site, revision, asker), until) in std::mem::take(&mut self.waiting) {
            match self.answer(site, revision, state) {
                Some(answer) => answers.push((asker, answer)),
                None if until > now => drop(self.waiting.insert((site, revision, asker), until)),
                None => {}
            }
        }
        answers
    }

    fn answer(&self, site: SiteId, revision: Revision, state: &impl Durable) -> Option<Resolved> {
        let (ordered, position) = state.ordered_of(site)?;
        let is_there = ordered >= revision || self.planted.is(Bug::ResolvedEarly);
        is_there.then(|| resolved(site, revision, position))
    }
}

fn resolved(site: SiteId, revision: Revision, position: Position) -> Resolved {
    Resolved { site: site.0, revision: revision.0, position: position.0 }
}

#[cfg(test)]
mod tests {
    use super::super::simulation::{Store, write};
    use super::*;

    #[test]
    fn a_question_waits_until_there_is_a_position() {
        let mut questions = Questions::default();
        let mut store = Store::of(1);
        let (asker, now) = ((SiteId(3), NodeId(7)), Duration::ZERO);
        let question = |revision| Resolve { site: 2, revision };
        let ask = |questions: &mut Questions, store: &Store, revision, has_left| {
            let answer = questions.asked(asker, question(revision), (now, has_left), store);
            answer.map(|answer| Position(answer.position).count())
        };
        assert_eq!(ask(&mut questions, &store, 4, false), None);
        store.order(SiteId(2), write(3));
        assert!(questions.poll(now, &store).is_empty());
        assert_eq!(ask(&mut questions, &store, 3, false), Some(1));
        store.order(SiteId(2), write(4));
        store.order(SiteId(2), write(5));
        let answers = questions.poll(now, &store);
        let position = Position::new(1, 3).0;
        assert_eq!(answers, [(asker, Resolved { site: 2, revision: 4, position })], "a later one");
        assert!(questions.waiting.is_empty());
        assert_eq!(ask(&mut questions, &store, 6, true), Some(0), "the site is gone");
        assert_eq!(ask(&mut questions, &store, 5, true), Some(3), "what it had ordered is there");
        // A question is dropped after a while: it is asked again.
        assert_eq!(ask(&mut questions, &store, 6, false), None);
        assert!(questions.poll(2 * AGAIN, &store).is_empty());
        assert!(questions.waiting.is_empty());
    }
}
