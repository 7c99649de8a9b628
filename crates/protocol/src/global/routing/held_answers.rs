//! Answers of other sites, from when they come until they may be handed out.
//!
//! A fence binds a site's log only. A node that lags behind its own site's log has not learned of a
//! failover yet, and may send a request to the failed site; which, if it has not learned of it
//! either, answers as the owner that it was. So beside each request a node takes a read index of
//! its *own* site. The taker serves only after this site's inventory, a command of this site's log:
//! if that was before the request left, the index covers it. Once the index is applied here the
//! answer is checked:
//!
//! - if the site that gave it is fenced, or gave it under an earlier failover than the last one
//!   that took the slot, or before one of a borrower that has taken its groups home, as far as this
//!   site has learned, the answer is void: a read goes again, and the outcome of a write is
//!   unknown. (Sent again, a write might come to the site that gave this answer, once that owns the
//!   slot again, and get the remembered answer.)
//! - otherwise it is handed out.
//!
//! The index is asked for while the request is on its way, so nothing takes longer in the usual
//! case. One index does for all requests that leave before it is asked for. A lease is as good as
//! an index, and a site with one node needs none.

use super::{At, Outcome, Routing};
use crate::admission::Target;
use crate::origin::{Origin, ServedUnder};
use model::{Body, Bytes, Failure, NodeId, ReadConsistency, SiteId, Slot};
use std::time::Duration;

/// What another site has answered about a slot.
#[derive(Debug)]
pub(crate) struct HeldAnswer {
    /// The answer.
    pub(crate) outcome: Outcome,
    /// The failover under which it was served.
    pub(crate) served: ServedUnder,
    /// Whether the node that gave it leads its site.
    pub(crate) leads: bool,
    /// The token of the client's session beside it.
    pub(crate) token: Option<Bytes>,
}

/// Of an answer that may be looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AnswerHead {
    /// About which slot.
    pub(crate) slot: Slot,
    /// The site that gave it.
    pub(crate) site: SiteId,
    /// The node that gave it.
    pub(crate) node: NodeId,
    /// See [`HeldAnswer`].
    pub(crate) served: ServedUnder,
    /// See [`HeldAnswer`].
    pub(crate) leads: bool,
    /// Whether it is what was asked for, and no refusal.
    pub(crate) is_ok: bool,
}

impl Routing {
    /// Whether a request's answer must be true of the moment when it was asked.
    pub(crate) fn needs_index(&self, id: u64) -> bool {
        let Some(one) = self.routed.get(&id) else { return false };
        let is_stale_read = matches!(
            one.body,
            Body::Read { consistency: ReadConsistency::Stale | ReadConsistency::Backup, .. }
        );
        matches!(one.target, Target::Slot(_)) && !is_stale_read
    }

    /// The answer to a request waits for a read index, taken as it left.
    pub(crate) fn waits_for_index(&mut self, id: u64, index: u64) {
        if let Some(one) = self.routed.get_mut(&id) {
            one.index = index;
        }
    }

    /// Takes another site's answer in, if it is one that waits for an index. Gives it back
    /// otherwise.
    #[expect(clippy::result_large_err, reason = "an answer, moved once to its next place")]
    pub(crate) fn hold(
        &mut self,
        wire_id: u64,
        held: HeldAnswer,
        now: Duration,
    ) -> Result<(), HeldAnswer> {
        let id = self.id_here(wire_id);
        let is_definite = matches!(&held.outcome, Ok(_) | Err(Failure::Refused(_)) if !is_not_held(&held.outcome));
        match self.routed.get_mut(&id) {
            Some(one) if is_definite && matches!(one.target, Target::Slot(_)) => {
                let At::Sent(site, node, since) = one.at else { return Ok(()) };
                if let Body::Read { .. } = one.body {
                    self.routes.round_trips().measured(site, now.saturating_sub(since), now);
                }
                one.at = At::Held(site, node);
                one.held = Some(held);
                self.held.insert((one.index, id));
                Ok(())
            }
            _ => Err(held),
        }
    }

    /// The next answer with an applied index.
    pub(crate) fn next_held(&mut self, indexes_applied: u64) -> Option<(u64, AnswerHead)> {
        loop {
            let (index, id) = *self.held.first().filter(|(index, _)| *index <= indexes_applied)?;
            self.held.remove(&(index, id));
            let Some(one) = self.routed.get(&id) else { continue };
            let (At::Held(site, node), Target::Slot(slot), Some(held)) =
                (one.at, one.target, &one.held)
            else {
                continue;
            };
            let (served, leads, is_ok) = (held.served, held.leads, held.outcome.is_ok());
            return Some((id, AnswerHead { slot, site, node, served, leads, is_ok }));
        }
    }

    /// The token beside an answer that is about to be handed out.
    pub(crate) fn held_token(&mut self, id: u64) -> Option<Bytes> {
        self.routed.get_mut(&id)?.held.as_mut()?.token.take()
    }

    /// An answer is true.
    pub(crate) fn hand_out(&mut self, id: u64, now: Duration) -> Option<(Origin, Outcome)> {
        let held = self.routed.get_mut(&id)?.held.take()?;
        let wire_id = self.id_there(id);
        self.answered(wire_id, held.outcome, None, now)
    }

    /// An answer is void: another site had taken over from the one that gave it.
    pub(crate) fn void(&mut self, id: u64, now: Duration) -> Option<(Origin, Outcome)> {
        let one = self.routed.get_mut(&id)?;
        one.held = None;
        let is_question = one.body.properties().is_question;
        let group = one.group.clone();
        if let (Target::Slot(slot), At::Held(site, _)) = (one.target, one.at) {
            match group {
                Some(group) if self.borrowers.drop_at(&group, site) => {}
                _ => drop(self.not_held(slot, site, None, now)),
            }
        }
        if is_question {
            self.rest(id, now);
            return None;
        }
        let why = "the site that carried it out had been taken for lost";
        self.settle(id, Err(Failure::Unknown { why }))
    }
}

fn is_not_held(outcome: &Outcome) -> bool {
    use model::Refusal::{Lent, NotHeld};
    matches!(outcome, Err(Failure::Refused(NotHeld(_) | Lent { .. })))
}
