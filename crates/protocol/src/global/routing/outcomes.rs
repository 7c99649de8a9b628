//! What comes of a request: the answer of its own path or of another site, no answer, or its
//! deadline.
//!
//! An answer is the outcome, or a reason to go on: to the borrower or the owner that it names, or
//! after a rest. A request in doubt may have been done somewhere: what states that nothing was done
//! is no outcome of it.

use super::{At, Contact, Outcome, Routing};
use crate::admission::Target;
use crate::origin::Origin;
use crate::replica::writes::forgotten_is_unknown;
use model::{Body, Epoch, Failure, NodeId, SiteId};
use std::collections::BTreeSet;
use std::time::Duration;

impl Routing {
    /// This site's own path gave a request back. `None`: it is not to be answered yet.
    pub(crate) fn came_back(
        &mut self,
        id: u64,
        in_doubt: bool,
        outcome: Outcome,
        now: Duration,
    ) -> Option<(Origin, Outcome)> {
        let one = self.routed.get_mut(&id)?;
        let not_held = matches!(outcome, Err(Failure::Refused(model::Refusal::NotHeld(_))));
        if not_held && !matches!(one.origin, Origin::Site { .. }) {
            if in_doubt && !one.body.properties().is_repeatable {
                let why = "its slot moved on while a leader was lost that may have carried it out";
                return self.settle(id, Err(Failure::Unknown { why }));
            }
            self.rest(id, now);
            return None;
        }
        self.settle(id, outcome)
    }

    /// Whether a request is with a site, so that the answer of this one counts. All attempts of a
    /// request have one id: a site that was asked before the present one may answer late, and its
    /// answer must not pass for that of the present one, of which the state has other failovers.
    /// The answer is dropped; the request goes on.
    pub(crate) fn is_with(&self, wire_id: u64, site: SiteId) -> bool {
        let one = self.routed.get(&self.id_here(wire_id));
        one.is_some_and(|one| matches!(one.at, At::Sent(asked, ..) if asked == site))
    }

    /// Another site's answer. `None`: it is not to be passed on (yet).
    pub(crate) fn answered(
        &mut self,
        wire_id: u64,
        outcome: Outcome,
        hint: Option<(SiteId, Epoch)>,
        now: Duration,
    ) -> Option<(Origin, Outcome)> {
        let id = self.id_here(wire_id);
        let one = self.routed.get_mut(&id)?;
        let (At::Sent(site, ..) | At::Held(site, _)) = one.at else { return None };
        if let (At::Sent(_, _, since), Body::Read { .. }) = (one.at, &one.body) {
            self.routes.round_trips().measured(site, now.saturating_sub(since), now);
        }
        let group = one.group.clone();
        match (&outcome, one.target) {
            (Err(Failure::Refused(model::Refusal::Lent { to, loan, .. })), Target::Slot(_)) => {
                let rests = one.returns >= 4;
                if let Some(group) = group {
                    self.borrowers.learn(group, *to, *loan);
                }
                match rests {
                    true => self.rest(id, now),
                    false => self.follow(id),
                }
                None
            }
            (Err(Failure::Refused(model::Refusal::NotHeld(_))), Target::Slot(_))
                if group.as_ref().is_some_and(|group| self.borrowers.drop_at(group, site)) =>
            {
                // The owner of its slot has a newer record, once the loan has come to its end
                // there.
                one.silent_borrower = None;
                self.rest(id, now);
                None
            }
            (Err(Failure::Refused(model::Refusal::NotHeld(_))), Target::Slot(slot)) => {
                // The first few follow at once; a request that is sent in circles rests.
                let rests = one.returns >= 4;
                if self.not_held(slot, site, hint, now) && !rests {
                    self.follow(id);
                } else {
                    self.rest(id, now);
                }
                None
            }
            // Nothing was done there.
            (Err(Failure::NoLeader | Failure::NotServing(_)), _) => {
                self.rest(id, now);
                None
            }
            // It may have been done there, and asking again does it once.
            (Err(Failure::Unknown { .. }), Target::Slot(_))
                if one.body.properties().is_repeatable =>
            {
                one.in_doubt = true;
                self.rest(id, now);
                None
            }
            _ => {
                if matches!(one.target, Target::Slot(_)) {
                    self.direct += u64::from(one.returns == 0);
                    self.redirected += u64::from(one.returns != 0);
                }
                self.settle(id, outcome)
            }
        }
    }

    /// What was sent to other sites and has no answer: by the [`Contact`] of the asked node it is
    /// sent again (to another node), or in doubt for ever, or waits. The nodes to turn from, and
    /// the sites that something waits for which may be done once only.
    pub(crate) fn unanswered(
        &mut self,
        contact: impl Fn(SiteId, NodeId, Duration) -> Contact,
        settled: &mut Vec<(Origin, Outcome)>,
    ) -> (Vec<(SiteId, NodeId)>, BTreeSet<SiteId>) {
        let (mut given_up, mut silent, mut awaited) = (Vec::new(), Vec::new(), BTreeSet::new());
        for (id, one) in &mut self.routed {
            let At::Sent(site, node, since) = one.at else { continue };
            let is_repeatable = one.body.properties().is_repeatable;
            match contact(site, node, since) {
                Contact::Recent => continue,
                // The site may be busy. Nothing is gained by doubt, which no later answer takes
                // back.
                Contact::Overdue if !is_repeatable => {
                    awaited.insert(site);
                    continue;
                }
                Contact::Overdue | Contact::Lost => {}
            }
            silent.push((site, node));
            one.in_doubt |= !one.body.properties().is_question;
            one.silent_borrower = one.to_borrower.then_some(site);
            one.returns += 1;
            // A guess without an answer is dropped: other sites are asked as well.
            if let Target::Slot(slot) = one.target {
                self.map.drop_guess(slot, site);
            }
            if let Some(group) = &one.group {
                self.borrowers.drop_at(group, site);
            }
            one.at = At::Due;
            self.due.push(*id);
            if !is_repeatable {
                given_up.push(*id);
            }
        }
        for id in given_up {
            let why = "the site that was asked cannot be reached any more";
            settled.extend(self.settle(id, Err(Failure::Unknown { why })));
        }
        silent.sort_unstable();
        silent.dedup();
        (silent, awaited)
    }

    /// Gives up what has waited past its deadline. `name_of`: the name of a site.
    pub(crate) fn give_up(
        &mut self,
        now: Duration,
        name_of: impl Fn(SiteId) -> String,
        settled: &mut Vec<(Origin, Outcome)>,
    ) {
        let late: Vec<u64> =
            self.routed.iter().filter(|(_, one)| one.deadline <= now).map(|(id, _)| *id).collect();
        for id in late {
            let one = &self.routed[&id];
            let is_read = matches!(one.body, Body::Read { .. });
            let failure = match (one.at, one.target) {
                // Its own path answers it, at the same deadline.
                (At::Here, _) if !is_read => continue,
                (At::Sent(..) | At::Held(..), _) if !one.body.properties().is_question => {
                    let why = match one.to_borrower {
                        true => {
                            "its deadline passed before the site that its key is lent to answered"
                        }
                        false => "its deadline passed before its slot's owner answered",
                    };
                    Failure::Unknown { why }
                }
                (_, Target::Slot(slot)) => match one.awaited_borrower() {
                    Some(site) => Failure::BorrowerUnreachable { slot, borrower: name_of(site) },
                    None => Failure::Unreachable { slot },
                },
                (_, Target::Own | Target::Site(_)) => {
                    Failure::NotServing("the other site cannot be reached")
                }
            };
            settled.extend(self.settle(id, Err(failure)));
        }
    }

    /// A request has its outcome.
    pub(super) fn settle(&mut self, id: u64, outcome: Outcome) -> Option<(Origin, Outcome)> {
        let mut one = self.routed.remove(&id)?;
        self.held.remove(&(one.index, id));
        let number = one.body.request_id_mut().and_then(|request| *request);
        let outcome = match number.is_some_and(|number| number.client == self.client) {
            true => forgotten_is_unknown(outcome),
            false => outcome,
        };
        let outcome = match outcome {
            Err(failure) if one.in_doubt && is_nothing_done(&failure) => {
                let why = "a site was lost that may have carried it out, and no other could tell";
                Err(Failure::Unknown { why })
            }
            outcome => outcome,
        };
        Some((one.origin, outcome))
    }

    /// Ends a request whose group is lent to a site that does not answer.
    pub(crate) fn borrower_unreachable(
        &mut self,
        id: u64,
        borrower: String,
    ) -> Option<(Origin, Outcome)> {
        let Target::Slot(slot) = self.routed.get(&id)?.target else { return None };
        self.settle(id, Err(Failure::BorrowerUnreachable { slot, borrower }))
    }

    /// Takes back a request that nothing was done of: its origin, what it asks, and its deadline.
    pub(crate) fn take_back(&mut self, id: u64) -> Option<(Origin, Body, Duration)> {
        self.routed.get(&id).filter(|one| !one.in_doubt)?;
        let mut one = self.routed.remove(&id)?;
        if let Some(number) = one.body.request_id_mut()
            && number.is_some_and(|number| number.client == self.client)
        {
            *number = None;
        }
        Some((one.origin, one.body, one.deadline))
    }

    /// Ends a request without asking another site.
    pub(crate) fn end(&mut self, id: u64, outcome: Outcome) -> Option<(Origin, Outcome)> {
        self.settle(id, outcome)
    }
}

fn is_nothing_done(failure: &Failure) -> bool {
    matches!(
        failure,
        Failure::NoLeader
            | Failure::Overloaded { .. }
            | Failure::DiskFull(_)
            | Failure::NotServing(_)
            | Failure::Unreachable { .. }
            | Failure::BorrowerUnreachable { .. }
            | Failure::Session(_)
            // It is refused ahead of what is remembered, once its keyspace is adaptive.
            | Failure::Refused(model::Refusal::CrossSlot)
    )
}
