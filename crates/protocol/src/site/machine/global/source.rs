//! Slots that this site hands to another: the source's side of a handover.
//!
//! A move is begun, and its slots are copied while they go on being served: this site's driver
//! reads the records and then the change log behind them, for which every global keyspace has a
//! cursor in the move's name. *Freeze* ends the serving, so that what the change log has then is
//! all there will ever be; the destination gets the rest and installs. *Release* leaves a pointer,
//! and what lay here stays as a copy ([`super::copies`]). A frozen slot is taken back only if the
//! destination has refused the move, durably and for ever, or has left and no site owns the slot.
//!
//! ```text
//! o number → row of a [`Move`]   (wire::row)
//! ```

use super::Applying;
use super::ownership::FAILOVER_OPEN;
use super::tokens::Token;
use super::{MachineError, Stopped, tables};
use crate::bugs::Bug;
use crate::global::ownership::Records;
use model::{
    Answer, KeyspaceId, MoveError, Refusal, Revision, SiteId, Slot, SlotEpochs, SlotRun, SlotSet,
    SourceStep, limits,
};
use std::collections::BTreeMap;
use storage::state::{Read, State};
use wire::row;

/// A move that gives slots away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// The destination.
    pub to: SiteId,
    /// What moves.
    pub slots: SlotSet,
    /// The revision from which on its slots are served here no more.
    pub frozen: Option<u64>,
    /// Whether copying rests.
    pub paused: bool,
    /// Whether an operator asked for it, so that the ring does not move the slots back.
    pub pinned: bool,
}

row!(Move { to, slots, frozen, paused, pinned });

/// The name of a move's cursors.
pub(in crate::site::machine) fn cursor(number: u64) -> String {
    format!("move/{number}")
}

/// The moves under way, by number.
pub(in crate::site::machine) fn load(
    state: &impl Read,
) -> Result<BTreeMap<u64, Move>, MachineError> {
    super::numbered(state, tables::SOURCE, row::decode)
}

impl<S: State> Applying<'_, S> {
    pub(in crate::site::machine) fn step_at_source(
        &mut self,
        number: u64,
        step: &SourceStep,
    ) -> Result<Answer, Stopped> {
        if let SourceStep::Begin { slots, to, pinned } = step {
            return self.begin_move(slots, *to, *pinned);
        }
        if let SourceStep::Order { id, slots, to } = step {
            return self.order(*id, slots, *to);
        }
        let one = self.modes.outgoing.get(&number).cloned();
        let mut one = one.ok_or(Refusal::Move(MoveError::NoMove(number)))?;
        match step {
            SourceStep::Begin { .. } | SourceStep::Order { .. } => {}
            SourceStep::Pause(paused) => {
                one.paused = *paused;
                self.set_move(number, one);
            }
            // It may be lost, and what it received would be unknown: it gets nothing until that is
            // settled. And nothing is given to a site that has left.
            SourceStep::Freeze if self.is_parted_from(one.to) || self.has_left(one.to) => {
                return Err(MoveError::NoDestination.into());
            }
            SourceStep::Freeze => {
                if one.frozen.is_none() {
                    self.next_revision();
                    one.frozen = Some(self.known.head.revision.0);
                }
                let frozen = !self.modes.planted.is(Bug::ServeFrozen);
                self.set_tokens(number, &one.slots, |token| Token::Leaving {
                    epoch: token.epoch(),
                    number,
                    frozen,
                });
                self.set_move(number, one);
            }
            SourceStep::Release => {
                if one.frozen.is_none() {
                    return Err(MoveError::NotReady("the move was not begun there").into());
                }
                if self.modes.planted.is(Bug::KeepToken) {
                    self.set_tokens(number, &one.slots, |token| Token::Held(token.epoch()));
                    self.end_move(number);
                    return Ok(Answer::Done(self.known.head.revision));
                }
                // What a promotion took from under the move is not its to give.
                let leaving = self.modes.slots_to_give(number, &one);
                for run in self.alike(&leaving) {
                    self.step(run, |holding, fences| holding.release(fences));
                }
                self.pin(&leaving, false);
                self.end_move(number);
            }
            SourceStep::Reclaim { slots } => {
                if one.frozen.is_none() || !self.has_left(one.to) {
                    return Err(MoveError::NotReady("its destination is listed").into());
                }
                if self.modes.is_failover_open() {
                    return Err(FAILOVER_OPEN.into());
                }
                for (slots, epoch) in &slots.0 {
                    for run in self.alike(slots) {
                        if self.modes.is_leaving_by(number, run.first) {
                            self.step(run, |holding, fences| {
                                holding.reclaim(*epoch, fences);
                                Records::Stay
                            });
                        }
                    }
                }
                slots.slots().runs().for_each(|run| self.settle_loans(run));
                if self.modes.slots_to_give(number, &one).is_empty() {
                    self.end_move(number);
                }
            }
            SourceStep::Abort { refused } => {
                // What is frozen may be installed already, unless the destination has promised not
                // to.
                if one.frozen.is_some() && !refused {
                    return Err(MoveError::NotReady("the move was not begun there").into());
                }
                if one.frozen.is_some() && self.is_parted_from(one.to) {
                    return Err(FAILOVER_OPEN.into());
                }
                // The next epoch: a late install finds it taken.
                let again = |token: Token| match one.frozen {
                    Some(_) => Token::Held(token.epoch().next()),
                    None => Token::Held(token.epoch()),
                };
                self.set_tokens(number, &one.slots, again);
                self.end_move(number);
                one.slots.runs().for_each(|run| self.settle_loans(run));
            }
        }
        Ok(Answer::Done(self.known.head.revision))
    }

    fn begin_move(&mut self, slots: &SlotSet, to: SiteId, pinned: bool) -> Result<Answer, Stopped> {
        self.check_move_to(to)?;
        if slots.len() > limits::SLOTS_PER_MOVE_MAX {
            let max = limits::SLOTS_PER_MOVE_MAX;
            return Err(Refusal::TooMany { what: "slots of one move", max }.into());
        }
        // What is on its way already, or has gone, is not waited for.
        let mut held = self.alike(slots);
        held.retain(|run| self.is_held(run.first));
        let slots: SlotSet = held.into_iter().collect();
        if slots.is_empty() {
            return Err(MoveError::NotHeld.into());
        }
        let number = self.give_away(slots, to, pinned)?;
        Ok(Answer::Done(Revision(number)))
    }

    /// Whether a move to a site can begin at all.
    pub(super) fn check_move_to(&self, to: SiteId) -> Result<(), Refusal> {
        let member = self.member()?;
        let destination = member.registry.site(to).filter(|site| !site.leaving);
        if destination.is_none() || to == member.own {
            return Err(MoveError::NoDestination.into());
        }
        if self.is_parted_from(to) {
            return Err(FAILOVER_OPEN.into());
        }
        match self.modes.outgoing.len() >= limits::MOVES_MAX {
            true => Err(MoveError::TooManyMoves.into()),
            false => Ok(()),
        }
    }

    /// Whether a slot is here and on its way nowhere.
    pub(in crate::site::machine) fn is_held(&self, slot: Slot) -> bool {
        matches!(self.modes.slots.token(slot), Token::Held(_))
    }

    /// Begins a move of slots that are held.
    pub(super) fn give_away(
        &mut self,
        slots: SlotSet,
        to: SiteId,
        pinned: bool,
    ) -> Result<u64, Stopped> {
        self.next_revision();
        let number = self.known.head.revision.0;
        for run in self.alike(&slots) {
            let epoch = self.modes.slots.token(run.first).epoch();
            self.set_token(run, Token::Leaving { epoch, number, frozen: false });
        }
        for keyspace in self.known.keyspaces.globals() {
            self.put_cursor(&cursor(number), keyspace, Revision(number))?;
        }
        self.set_move(number, Move { to, slots, frozen: None, paused: false, pinned });
        Ok(number)
    }

    /// The moves under way receive the changes of a new keyspace, too.
    pub(in crate::site::machine) fn watch_for_moves(
        &mut self,
        keyspace: KeyspaceId,
    ) -> Result<(), Stopped> {
        let numbers: Vec<u64> = self.modes.outgoing.keys().copied().collect();
        for number in numbers {
            self.put_cursor(&cursor(number), keyspace, self.known.head.revision)?;
        }
        Ok(())
    }

    /// Changes the tokens of a move's slots, but not of those that a promotion has taken since.
    fn set_tokens(&mut self, number: u64, slots: &SlotSet, token: impl Fn(Token) -> Token) {
        for run in self.alike(slots) {
            if self.modes.is_leaving_by(number, run.first) {
                let next = token(self.modes.slots.token(run.first));
                self.set_token(run, next);
            }
        }
    }

    fn set_move(&mut self, number: u64, one: Move) {
        self.overlay.put(tables::outgoing(number), row::encode(&one));
        self.modes.outgoing.insert(number, one);
    }

    pub(super) fn end_move(&mut self, number: u64) {
        self.end_ordered(number);
        for keyspace in self.known.keyspaces.globals() {
            self.drop_cursor(&cursor(number), keyspace);
        }
        self.overlay.remove(tables::outgoing(number));
        self.modes.outgoing.remove(&number);
    }
}

impl super::Modes {
    /// The epochs that a move's slots are going to have with their destination.
    pub(in crate::site::machine) fn epochs_to_give(&self, number: u64, one: &Move) -> SlotEpochs {
        let runs = self.runs_to_give(number, one);
        SlotEpochs::of_runs(runs.map(|run| (run, self.slots.token(run.first).epoch().next())))
    }

    /// The slots that a move still gives. What a failover took from under it is not its to give,
    /// also when it has come back since and another move gives it.
    pub(in crate::site::machine) fn slots_to_give(&self, number: u64, one: &Move) -> SlotSet {
        self.runs_to_give(number, one).collect()
    }

    fn runs_to_give<'a>(
        &'a self,
        number: u64,
        one: &'a Move,
    ) -> impl Iterator<Item = SlotRun> + 'a {
        let alike = |run: SlotRun| run.cut(|slot| self.slots.token_run(slot).0);
        let runs = one.slots.runs().flat_map(alike);
        runs.filter(move |run| self.is_leaving_by(number, run.first))
    }

    fn is_leaving_by(&self, number: u64, slot: Slot) -> bool {
        let token = self.slots.token(slot);
        matches!(token, Token::Leaving { number: of, .. } if of == number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn format_1_stays_as_it_is() {
        let slots = "0-3,300".parse().unwrap();
        let one = Move { to: SiteId(2), slots, frozen: Some(9), paused: false, pinned: true };
        let row = row::encode(&one);
        assert_eq!(row, [1, 2, 2, 0, 3, 0xac, 2, 0xac, 2, 1, 9, 0, 1]);
    }
}
