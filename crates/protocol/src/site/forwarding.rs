//! Requests that a node hands to its leader for its clients.
//!
//! A client may ask any node. A write goes to the leader with an id of this node's own (unless the
//! client numbered it itself), so that it can be sent again, to the same leader or to the next one,
//! and is still applied once. A request that cannot be told from its own repetition (clearing
//! everything, say) is sent once; if its leader is lost, its outcome is unknown.

use super::writes::{Settled, unknown};
use super::{Origin, Ticket};
use model::{Answer, Body, ClientId, Command, Failure, NodeId, Request, RequestId, limits};
use std::collections::BTreeMap;
use std::time::Duration;
use wire::entry;
use wire::peer;

struct Outstanding {
    ticket: Ticket,
    body: Body,
    deadline: Duration,
    /// To whom it went, in which term; `None`: to nobody yet.
    sent: Option<(NodeId, u64)>,
    not_before: Duration,
}

/// What this node has forwarded and not heard of.
pub(super) struct Forwarding {
    client: ClientId,
    outstanding: BTreeMap<u64, Outstanding>,
    last_id: u64,
    unsent: usize,
}

impl Forwarding {
    pub(super) fn new(client: ClientId) -> Forwarding {
        Forwarding { client, outstanding: BTreeMap::new(), last_id: 0, unsent: 0 }
    }

    /// Takes in a request for whoever leads.
    pub(super) fn push(
        &mut self,
        ticket: Ticket,
        mut body: Body,
        deadline: Duration,
    ) -> Result<(), Settled> {
        if self.outstanding.len() >= limits::WRITES_WAITING_MAX {
            let refusal = Failure::Overloaded { what: "requests for the leader" };
            return Err((Origin::Client(ticket), Err(refusal)));
        }
        self.last_id += 1;
        if let Some(request) = request_id(&mut body) {
            request.get_or_insert(RequestId {
                client: self.client,
                sequence: self.last_id,
                acknowledged_below: 0,
            });
        }
        let not_before = Duration::ZERO;
        self.unsent += 1;
        self.outstanding
            .insert(self.last_id, Outstanding { ticket, body, deadline, sent: None, not_before });
        Ok(())
    }

    pub(super) fn is_idle(&self) -> bool {
        self.outstanding.is_empty()
    }

    pub(super) fn waiting(&self) -> usize {
        self.outstanding.len()
    }

    /// The requests to send to `leader` now.
    pub(super) fn take_unsent(
        &mut self,
        leader: NodeId,
        term: u64,
        now: Duration,
    ) -> Vec<peer::ForwardedRequest> {
        if self.unsent == 0 {
            return Vec::new();
        }
        let acknowledged_below =
            self.outstanding.keys().next().copied().unwrap_or(self.last_id + 1);
        let client = self.client;
        let mut requests = Vec::new();
        for (id, one) in &mut self.outstanding {
            if one.sent.is_some() || one.not_before > now {
                continue;
            }
            one.sent = Some((leader, term));
            self.unsent -= 1;
            if let Some(Some(request)) = request_id(&mut one.body)
                && request.client == client
            {
                request.acknowledged_below = acknowledged_below;
            }
            let deadline_ms = one.deadline.saturating_sub(now).as_millis() as u64;
            let request = Request { body: one.body.clone(), deadline_ms: Some(deadline_ms) };
            let request = entry::encode_request(&request);
            requests.push(peer::ForwardedRequest { id: *id, request, join: None });
        }
        requests
    }

    /// The leader or the term is another, or the link to the leader broke: what was sent is sent
    /// again, or, if that could do it twice, given up as unknown.
    pub(super) fn lost(&mut self, settled: &mut Vec<Settled>) {
        let mut given_up = Vec::new();
        for (id, one) in &mut self.outstanding {
            if one.sent.take().is_none() {
                continue;
            }
            self.unsent += 1;
            if !is_repeatable(&mut one.body) {
                given_up.push(*id);
            }
        }
        for id in given_up {
            self.settle(id, Err(unknown("the leader was lost before it answered")), settled);
        }
    }

    /// What became of a request. A leader that says it leads no more did nothing: ask the next.
    pub(super) fn answered(
        &mut self,
        id: u64,
        outcome: Result<Answer, Failure>,
        now: Duration,
        patience: Duration,
        settled: &mut Vec<Settled>,
    ) {
        if outcome == Err(Failure::NoLeader)
            && let Some(one) = self.outstanding.get_mut(&id)
        {
            if one.sent.take().is_some() {
                self.unsent += 1;
            }
            one.not_before = now + patience;
            return;
        }
        self.settle(id, outcome, settled);
    }

    fn settle(&mut self, id: u64, outcome: Result<Answer, Failure>, settled: &mut Vec<Settled>) {
        let Some(one) = self.outstanding.remove(&id) else { return };
        if one.sent.is_none() {
            self.unsent -= 1;
        }
        settled.push((Origin::Client(one.ticket), outcome));
    }

    /// Everything, for a node that leads now itself. A write keeps its id: an earlier leader may
    /// have put it in the log.
    pub(super) fn take_all(&mut self) -> Vec<(Ticket, Body, Duration)> {
        self.unsent = 0;
        let all = std::mem::take(&mut self.outstanding).into_values();
        all.map(|one| (one.ticket, one.body, one.deadline)).collect()
    }

    /// Gives up what has waited past its deadline.
    pub(super) fn give_up(&mut self, now: Duration, settled: &mut Vec<Settled>) {
        let late: Vec<_> = self
            .outstanding
            .iter()
            .filter(|(_, one)| one.deadline <= now)
            .map(|(id, _)| *id)
            .collect();
        for id in late {
            let failure = match self.outstanding[&id].sent {
                None => Failure::NoLeader,
                Some(_) => unknown("its deadline passed before the leader answered"),
            };
            self.settle(id, Err(failure), settled);
        }
    }
}

/// Where a request keeps its id, if it can have one.
fn request_id(body: &mut Body) -> Option<&mut Option<RequestId>> {
    match body {
        Body::Write(Command::Write { request, .. } | Command::Transaction { request, .. }) => {
            Some(request)
        }
        _ => None,
    }
}

/// Whether doing it twice is the same as doing it once.
fn is_repeatable(body: &mut Body) -> bool {
    match body {
        Body::Write(Command::SetCursor { .. } | Command::Tick) => true,
        Body::Write(Command::Write { .. } | Command::Transaction { .. }) => true,
        Body::Write(_) => false,
        Body::Read { .. } => true,
        Body::AddNode { .. } | Body::RemoveNode { .. } | Body::TransferLeader { .. } => false,
    }
}
