//! Requests that a node hands to its leader for its clients.
//!
//! A client may ask any node. A write goes to the leader with an id of this node's own (unless the
//! client numbered it itself), so that it can be sent again, to the same leader or to the next one,
//! and is still applied once. A request that cannot be numbered (clearing everything, say) is sent
//! once; if its leader is lost, its outcome is unknown.

use super::writes::{Settled, forgotten_is_unknown, unknown};
use crate::origin::{Origin, ServedUnder};
use model::{Answer, Body, Bytes, ClientId, Failure, NodeId, Request, RequestId, limits};
use std::collections::BTreeMap;
use std::time::Duration;
use wire::entry;
use wire::peer;

struct Outstanding {
    origin: Origin,
    body: Body,
    deadline: Duration,
    /// The leader it was sent to, and the term; `None`: it was not sent yet.
    sent: Option<(NodeId, u64)>,
    not_before: Duration,
}

/// What this node has forwarded and has no answer to.
pub(crate) struct Forwarding {
    client: ClientId,
    outstanding: BTreeMap<u64, Outstanding>,
    last_id: u64,
    unsent: usize,
    /// The lowest number of a request of ours that this node, leading itself, put among its writes,
    /// while there still are any.
    taken_from: Option<u64>,
}

impl Forwarding {
    pub(crate) fn new(client: ClientId) -> Forwarding {
        let outstanding = BTreeMap::new();
        Forwarding { client, outstanding, last_id: 0, unsent: 0, taken_from: None }
    }

    /// Takes in a request for the leader.
    #[expect(clippy::result_large_err, reason = "an outcome, moved once, to what waits for it")]
    pub(crate) fn push(
        &mut self,
        origin: Origin,
        mut body: Body,
        deadline: Duration,
    ) -> Result<(), Settled> {
        if self.outstanding.len() >= limits::WRITES_WAITING_MAX {
            let refusal = Failure::Overloaded { what: "requests for the leader" };
            return Err((origin, Err(refusal)));
        }
        self.last_id += 1;
        if let Some(request) = body.request_id_mut() {
            request.get_or_insert(RequestId {
                client: self.client,
                sequence: self.last_id,
                acknowledged_below: 0,
            });
        }
        let not_before = Duration::ZERO;
        self.unsent += 1;
        self.outstanding
            .insert(self.last_id, Outstanding { origin, body, deadline, sent: None, not_before });
        Ok(())
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.outstanding.is_empty()
    }

    pub(crate) fn waiting(&self) -> usize {
        self.outstanding.len()
    }

    /// The requests to send to `leader` now: no more at a time than its link takes, as what it drops
    /// would count as sent. The rest follows in the next round.
    pub(crate) fn take_unsent(
        &mut self,
        leader: NodeId,
        term: u64,
        now: Duration,
        token_of: impl Fn(Origin) -> Option<Bytes>,
    ) -> Vec<peer::ForwardedRequest> {
        if self.unsent == 0 {
            return Vec::new();
        }
        let client = self.client;
        // A write that came back from this node's own log bears an older number than its id here.
        let numbers = self.outstanding.values_mut().filter_map(|one| own_number(one, client));
        let acknowledged_below = numbers.chain(self.taken_from).min().unwrap_or(self.last_id + 1);
        let (mut requests, mut bytes) = (Vec::new(), 0);
        for (id, one) in &mut self.outstanding {
            if one.sent.is_some() || one.not_before > now {
                continue;
            }
            if bytes > limits::PEER_FRAME_BYTES_MAX {
                break;
            }
            one.sent = Some((leader, term));
            self.unsent -= 1;
            if let Some(Some(request)) = one.body.request_id_mut()
                && request.client == client
            {
                request.acknowledged_below = acknowledged_below;
            }
            let deadline_ms = one.deadline.saturating_sub(now).as_millis() as u64;
            let request =
                Request { deadline_ms: Some(deadline_ms), ..Request::new(one.body.clone()) };
            let request = entry::encode_request(&request);
            let (id, token) = (id.wrapping_add(client.0), token_of(one.origin));
            bytes += request.len() + token.as_ref().map_or(0, Bytes::len);
            requests.push(peer::ForwardedRequest { id, request, token, ..Default::default() });
        }
        requests
    }

    /// The leader or the term is another, or the link to the leader broke: what was sent is sent
    /// again, or, if that could do it twice, given up as unknown.
    pub(crate) fn lost(&mut self, settled: &mut Vec<Settled>) {
        let mut given_up = Vec::new();
        for (id, one) in &mut self.outstanding {
            if one.sent.take().is_none() {
                continue;
            }
            self.unsent += 1;
            one.origin = one.origin.in_doubt();
            if !one.body.properties().is_repeatable {
                given_up.push(*id);
            }
        }
        for id in given_up {
            self.settle(id, Err(unknown("the leader was lost before it answered")), settled);
        }
    }

    /// The origin of a request that was sent under this number.
    pub(crate) fn origin(&self, id: u64) -> Option<Origin> {
        self.outstanding.get(&id.wrapping_sub(self.client.0)).map(|one| one.origin)
    }

    /// The leader answers a request, and what it has served that under.
    pub(crate) fn served(&mut self, id: u64, under: ServedUnder) {
        if let Some(one) = self.outstanding.get_mut(&id.wrapping_sub(self.client.0)) {
            one.origin = one.origin.served_by_leader(under);
        }
    }

    /// The outcome of a request. A leader that answers that it leads no more did nothing: ask the
    /// next.
    pub(crate) fn answered(
        &mut self,
        id: u64,
        outcome: Result<Answer, Failure>,
        now: Duration,
        timeout: Duration,
        settled: &mut Vec<Settled>,
    ) {
        // On the wire numbers begin at one of this process: an answer that was meant for an
        // earlier process of this node must not be taken for one to this one's request.
        let id = id.wrapping_sub(self.client.0);
        if outcome == Err(Failure::NoLeader)
            && let Some(one) = self.outstanding.get_mut(&id)
        {
            if one.sent.take().is_some() {
                self.unsent += 1;
            }
            one.not_before = now + timeout;
            return;
        }
        self.settle(id, outcome, settled);
    }

    fn settle(&mut self, id: u64, outcome: Result<Answer, Failure>, settled: &mut Vec<Settled>) {
        let Some(mut one) = self.outstanding.remove(&id) else { return };
        if one.sent.is_none() {
            self.unsent -= 1;
        }
        let outcome = match own_number(&mut one, self.client) {
            Some(_) => forgotten_is_unknown(outcome),
            None => outcome,
        };
        settled.push((one.origin, outcome));
    }

    /// Everything, for a node that leads now itself. A write keeps its id: an earlier leader may
    /// have put it in the log.
    pub(crate) fn take_all(&mut self) -> Vec<(Origin, Body, Duration)> {
        self.unsent = 0;
        let mut all = std::mem::take(&mut self.outstanding);
        let numbers = all.values_mut().filter_map(|one| own_number(one, self.client));
        self.taken_from = numbers.chain(self.taken_from).min();
        all.into_values().map(|one| (one.origin, one.body, one.deadline)).collect()
    }

    /// This node has no writes any more, so none that [`Forwarding::take_all`] gave it.
    pub(crate) fn nothing_taken(&mut self) {
        self.taken_from = None;
    }

    /// Gives up what has waited past its deadline.
    pub(crate) fn give_up(&mut self, now: Duration, settled: &mut Vec<Settled>) {
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

/// The number of a request that this node gave it.
fn own_number(one: &mut Outstanding, client: ClientId) -> Option<u64> {
    let request = (*one.body.request_id_mut()?)?;
    (request.client == client).then_some(request.sequence)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::origin::Ticket;
    use model::{Command, Condition, Expiry, KeyspaceId, Refusal, Write};

    const CLIENT: ClientId = ClientId(7);
    const DEADLINE: Duration = Duration::from_secs(1);
    const LEADER: NodeId = NodeId(2);

    fn add() -> Body {
        let write = Write::Add { key: "k".into(), delta: 1 };
        Body::Write(Command::Write { keyspace: KeyspaceId::DEFAULT, write, request: None })
    }

    fn with_one_sent() -> Forwarding {
        let mut forwarding = Forwarding::new(CLIENT);
        forwarding.push(Origin::client(Ticket(1)), add(), DEADLINE).unwrap();
        assert_eq!(forwarding.take_unsent(LEADER, 1, Duration::ZERO, |_| None).len(), 1);
        forwarding
    }

    fn request_ids(sent: Vec<peer::ForwardedRequest>) -> Vec<RequestId> {
        let bodies = sent.into_iter().map(|one| entry::decode_request(one.request).unwrap().body);
        bodies.map(|mut body| body.request_id_mut().unwrap().unwrap()).collect()
    }

    #[test]
    fn a_write_that_a_lost_leader_was_sent_stays_in_doubt() {
        let mut forwarding = with_one_sent();
        let mut settled = Vec::new();
        forwarding.lost(&mut settled);
        forwarding.give_up(DEADLINE, &mut settled);
        let doubtful = Origin::Doubtful(Ticket(1));
        assert_eq!(settled, [(doubtful, Err(Failure::NoLeader))]);
        assert!(forwarding.is_idle());
    }

    #[test]
    fn that_a_number_is_forgotten_says_nothing_to_who_did_not_give_it() {
        let outcome = |request: Option<RequestId>| {
            let mut body = add();
            *body.request_id_mut().unwrap() = request;
            let mut forwarding = Forwarding::new(CLIENT);
            forwarding.push(Origin::client(Ticket(1)), body, DEADLINE).unwrap();
            let id = forwarding.take_unsent(LEADER, 1, Duration::ZERO, |_| None)[0].id;
            let mut settled = Vec::new();
            let forgotten = Err(Failure::Refused(Refusal::RequestForgotten));
            forwarding.answered(id, forgotten, Duration::ZERO, Duration::ZERO, &mut settled);
            settled.pop().expect("an answer").1
        };
        assert!(matches!(outcome(None), Err(Failure::Unknown { .. })));
        let request = RequestId { client: ClientId(8), sequence: 1, acknowledged_below: 0 };
        let reported = Err(Failure::Refused(Refusal::RequestForgotten));
        assert_eq!(outcome(Some(request)), reported, "the client that numbered it can judge it");
    }

    #[test]
    fn no_more_is_taken_than_a_link_takes() {
        let value = Bytes::from(vec![0; limits::PEER_FRAME_BYTES_MAX / 2]);
        let put = || {
            let (key, condition) = ("k".into(), Condition::Always);
            let value = value.clone();
            let write =
                Write::Put { key, value, condition, expiry: Expiry::Never, return_old: false };
            Body::Write(Command::Write { keyspace: KeyspaceId::DEFAULT, write, request: None })
        };
        let mut forwarding = Forwarding::new(CLIENT);
        for ticket in 1..=3 {
            forwarding.push(Origin::client(Ticket(ticket)), put(), DEADLINE).unwrap();
        }
        let rounds = [(); 3].map(|()| {
            let taken = forwarding.take_unsent(LEADER, 1, Duration::ZERO, |_| None);
            let bytes: usize = taken.iter().map(|one| one.request.len()).sum();
            assert!(bytes <= limits::PEER_BACKLOG_BYTES_MAX);
            taken.len()
        });
        assert_eq!(rounds, [2, 1, 0]);
    }

    #[test]
    fn a_write_that_comes_back_is_not_below_what_is_acknowledged() {
        let mut forwarding = with_one_sent();
        let mut settled = Vec::new();
        forwarding.lost(&mut settled);
        let (origin, body, deadline) = forwarding.take_all().pop().unwrap();
        // This node leads, and has the first one among its writes.
        forwarding.push(Origin::client(Ticket(2)), add(), DEADLINE).unwrap();
        let ids = request_ids(forwarding.take_unsent(LEADER, 3, Duration::ZERO, |_| None));
        assert_eq!((ids[0].sequence, ids[0].acknowledged_below), (2, 1));
        // It leads no more, and the first one is forwarded again under its old number.
        forwarding.push(origin, body, deadline).unwrap();
        forwarding.nothing_taken();
        let ids = request_ids(forwarding.take_unsent(LEADER, 3, Duration::ZERO, |_| None));
        assert_eq!((ids[0].sequence, ids[0].acknowledged_below), (1, 1));
    }
}
