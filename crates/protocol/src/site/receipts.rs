//! A receiver of slots tells their givers when it need not be them any more who keep a copy.
//!
//! A giver keeps what it has handed over ([`super::machine::keeping`]), as its receiver may be lost for
//! good before its own mirror has it. So the receiver's leader notes when it first sees that a move was
//! installed, and as soon as its mirror is known to have been in step later than that, the giver is told
//! to forget its copy. A site that has no mirror has nothing to wait for.
//!
//! What was told is kept in memory: the next leader tells it again, and is told that there is no such
//! move.

use super::{Origin, Site};
use model::{Answer, Body, Command, Failure, Giving, MoveError, MoveId, Refusal};
use std::collections::BTreeMap;
use std::time::Duration;
use storage::log::LogReader;
use storage::snapshot::Snapshots;
use storage::state::State;

/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_millis(1_500);
/// Givers that are told at once.
const TOLD_MAX: usize = 16;

/// How far a giver has been told of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Installed, as was first seen then.
    Seen(Duration),
    /// Told then, and not answered.
    Told(Duration),
    /// The giver keeps nothing of it.
    Known,
}

/// What givers have been told.
#[derive(Debug, Default)]
pub(super) struct Receipts(BTreeMap<MoveId, Stage>);

impl<S: State, R: LogReader, N: Snapshots> Site<S, R, N> {
    /// Tells givers that what they gave is safe, where it is.
    pub(super) fn send_receipts(&mut self) {
        let Some(member) = self.machine.membership() else { return };
        let (own, registry) = (member.own, member.registry.clone());
        let now = self.now.monotonic;
        let stages = std::mem::take(&mut self.receipts.0);
        let seen = |id: MoveId| (id, stages.get(&id).copied().unwrap_or(Stage::Seen(now)));
        // A giver that is gone keeps nothing, and one that is lost does not listen.
        let is_waiting = |(id, installed): &(MoveId, bool)| {
            let is_there = registry.site(id.from).is_some() && !registry.is_lost(id.from);
            *installed && id.from != own && is_there
        };
        let moves = self.machine.settled_moves().filter(is_waiting);
        self.receipts.0 = moves.map(|(id, _)| seen(id)).collect();
        // Without global keyspaces no mirror is kept.
        let is_mirrored = |to| self.machine.own_mirror().is_some_and(|own| own.to == to);
        let safe = match self.backup.filter(|_| self.machine.has_globals()) {
            Some(to) if is_mirrored(to) => self.mirror.in_step(&self.machine),
            Some(_) => None,
            None => Some(Duration::MAX),
        };
        let due = |stage: &Stage| match *stage {
            Stage::Seen(at) => safe.is_some_and(|safe| safe > at),
            Stage::Told(at) => at + PATIENCE <= now,
            Stage::Known => false,
        };
        // Who was not told yet comes first, then who was told longest ago: nobody who is silent takes
        // the place of others.
        let told_at = |stage: Stage| if let Stage::Told(at) = stage { Some(at) } else { None };
        let due = self.receipts.0.iter().filter(|(_, stage)| due(stage));
        let mut due: Vec<_> = due.map(|(id, stage)| (told_at(*stage), *id)).collect();
        due.sort_unstable();
        for (_, id) in due.into_iter().take(TOLD_MAX) {
            self.receipts.0.insert(id, Stage::Told(now));
            let command = Command::Giving { number: id.number, step: Giving::Forget };
            let body = Body::AtSite { site: id.from, command: Box::new(command) };
            self.take_any(Origin::Receipt(id), body, now + PATIENCE);
        }
    }

    /// A giver's answer.
    pub(super) fn receipt_answered(&mut self, id: MoveId, outcome: &Result<Answer, Failure>) {
        let no_move = Failure::Refused(Refusal::Move(MoveError::NoMove(id.number)));
        if let Some(stage) = self.receipts.0.get_mut(&id)
            && (outcome.is_ok() || outcome.as_ref().err() == Some(&no_move))
        {
            *stage = Stage::Known;
        }
    }
}
