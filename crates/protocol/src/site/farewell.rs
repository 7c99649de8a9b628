//! A site that leaves goes when nobody waits for its word any more.
//!
//! The giver of a move that this site has installed, or refused, may not have heard so yet: it keeps
//! the slots frozen until it has. If this site were gone by then, nobody could ever tell. So before it
//! goes, the givers are asked whether they have such a move still. They are asked to forget what they keep
//! of it, which is not done to a move that is frozen, and one that has ended is told as such.
//!
//! What was heard is kept in memory: the next leader asks again.

use super::{Origin, Site};
use model::{Answer, Body, Command, Failure, Giving, MoveError, MoveId, Refusal};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use storage::log::LogReader;
use storage::snapshot::Snapshots;
use storage::state::State;

/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_millis(1_500);
/// Givers' moves that are asked about at once.
const ASKED_MAX: usize = 16;

/// What givers have said.
#[derive(Debug, Default)]
pub(super) struct Farewells {
    /// When a giver was asked about a move.
    asked: BTreeMap<MoveId, Duration>,
    /// Moves that their givers have ended.
    ended: BTreeSet<MoveId>,
}

impl<S: State, R: LogReader, N: Snapshots> Site<S, R, N> {
    /// Whether some giver may still wait for this site's word. Asks those of whom that is not known.
    pub(super) fn is_waited_for(&mut self) -> bool {
        let Some(member) = self.machine.membership() else { return false };
        let (own, registry) = (member.own, member.registry.clone());
        let now = self.now.monotonic;
        // A giver that is gone has no moves.
        let is_open = |id: &MoveId| {
            registry.site(id.from).is_some() && id.from != own && !self.farewells.ended.contains(id)
        };
        let moves = self.machine.settled_moves().map(|(id, _)| id);
        let open: Vec<MoveId> = moves.filter(is_open).collect();
        for id in open.iter().take(ASKED_MAX).copied() {
            let asked = self.farewells.asked.get(&id);
            if asked.is_some_and(|at| *at + PATIENCE > now) {
                continue;
            }
            self.farewells.asked.insert(id, now);
            let command = Command::Giving { number: id.number, step: Giving::Forget };
            let body = Body::AtSite { site: id.from, command: Box::new(command) };
            self.take_any(Origin::Farewell(id), body, now + PATIENCE);
        }
        !open.is_empty()
    }

    /// A giver's answer.
    pub(super) fn giver_answered(&mut self, id: MoveId, outcome: &Result<Answer, Failure>) {
        self.farewells.asked.remove(&id);
        let no_move = Failure::Refused(Refusal::Move(MoveError::NoMove(id.number)));
        if outcome.as_ref().err() == Some(&no_move) {
            self.farewells.ended.insert(id);
        }
    }
}
