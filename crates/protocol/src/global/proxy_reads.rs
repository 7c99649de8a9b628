//! Reads of keys that other sites hold, past the cores of both sites.
//!
//! Most requests about remote keys are reads of a slot that has not changed hands for hours. They
//! need no core: the front's thread sends them to the node that answered last, and there
//! the thread that receives them answers, if a front there might do so by the [`ReadGate`]. What is
//! not that simple goes the ordinary way, by the cores
//! ([`super::routing`]): the asking end hands a read to its core when the answer is not *the*
//! answer (the slot has moved, there is no leader), when the node is silent, and when its
//! connection breaks. A read can be asked twice without harm.
//!
//! The promise is the ordinary one. [`Routes`] are hints: the asked node answers by its own token
//! of the slot, at one moment between the question and the answer. The core drops a route whenever
//! it learns anything about the slot, and all of them with each version of the registry, so that no
//! read goes to a site that was failed over ([`super::failover`]).
//!
//! For that the node must be as current as its site: see [`super::routing`] for the read index that
//! is taken beside each request. None is taken here. It is sent only while this node's
//! own gate stands open, or by a lease that the keyspace reads by; then its state has all that was
//! acknowledged when the read came, the core has dropped the routes that were not true any more,
//! and a lease is as good as an index. On any other node reads go by the core, which takes an index
//! for many of them at once. If this node leads, that round gives it the lease by which the next
//! reads pass the core again.
//!
//! Left out: writes, which are numbered by the core; transactions; reads that may be stale, which a
//! backup or a copy may answer; keyspaces with copies of remote keys, whose reads bring a validator
//! along; clients that want to be redirected, or an answer within the timeout. A call with a write
//! in it goes the ordinary way as a whole, so that its reads see what is before them and nothing
//! behind.
//!
//! EdgeKV's clients ask a gateway for each key (§4.2 of the paper); this is its location cache
//! taken to the end.

use super::round_trips::RoundTrips;
use super::routing::{Outcome, TIMEOUT};
use crate::admission::{Admission, Arrival, Context, Right, Sender, Target, admit, target_of};
use crate::origin::{ServedUnder, Ticket};
use crate::replica::ReadGate;
use model::{
    Body, Cache, Catalog, ClientId, ClientName, Epoch, Failure, KeySlots, KeyspaceId, KeyspaceSpec,
    NodeId, Query, ReadConsistency, Refusal, Request, SiteId, Slot, limits,
};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use wire::entry;
use wire::inter_site::{InterSiteAnswer, InterSiteAnswers, put_failover};
use wire::peer::ForwardedRequest;

/// What tells the numbers of these reads, at another site, from those of a core's requests.
const PROXY: u64 = 1 << 63;
/// Bits of a node's id in a route; no node of a greater one has one.
const NODE_BITS: u32 = 32;

/// Which node answered for a slot last. The core writes, any thread reads.
#[derive(Debug, Default)]
pub struct Routes {
    routes: OnceLock<Box<[AtomicU64]>>,
    round_trips: RoundTrips,
}

impl Routes {
    /// Whether there ever was one.
    pub fn has_any(&self) -> bool {
        self.routes.get().is_some()
    }

    /// The node to ask about a slot.
    pub fn of(&self, slot: Slot) -> Option<(SiteId, NodeId)> {
        let route = self.routes.get()?[place(slot)].load(Ordering::Acquire);
        let site = u32::try_from(route >> NODE_BITS).unwrap_or_default();
        (site != 0).then_some((SiteId(site), NodeId(route & ((1 << NODE_BITS) - 1))))
    }

    /// A node has answered for a slot, and leads its site.
    pub(crate) fn set(&self, slot: Slot, site: SiteId, node: NodeId) {
        if node.0 >> NODE_BITS == 0 {
            let all = self.routes.get_or_init(|| Slot::all().map(|_| AtomicU64::new(0)).collect());
            all[place(slot)].store(u64::from(site.0) << NODE_BITS | node.0, Ordering::Release);
        }
    }

    /// There is another fact about a slot, or none any more.
    pub(crate) fn forget(&self, slot: Slot) {
        if let Some(all) = self.routes.get() {
            all[place(slot)].store(0, Ordering::Release);
        }
    }

    /// How long sites took to answer.
    pub(crate) fn round_trips(&self) -> &RoundTrips {
        &self.round_trips
    }

    /// Of all slots.
    pub(crate) fn forget_all(&self) {
        for route in self.routes.get().into_iter().flatten() {
            route.store(0, Ordering::Release);
        }
    }
}

fn place(slot: Slot) -> usize {
    usize::from(slot.number())
}

// ---- at the site that asks ----------------------------------------------------------------------

/// A read on its way.
#[derive(Debug)]
struct Sent {
    ticket: Ticket,
    request: Request,
    place: (SiteId, NodeId),
    since: Duration,
}

/// What came of a read.
#[derive(Debug, PartialEq)]
pub enum Came {
    /// This is its answer.
    Answer(Ticket, Outcome),
    /// A site does not hold its slot; the core is notified before the read comes back.
    Moved(Moved),
    /// The core is to be asked.
    Back(Ticket, Request),
}

/// A site's answer that it does not hold a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    /// Which slot.
    pub slot: Slot,
    /// The site that answers.
    pub by: SiteId,
    /// The owner in that site's map, and since which epoch. Site 0: none is known.
    pub owner: (SiteId, Epoch),
}

/// The reads of a node that passed the core and are not answered.
#[derive(Debug)]
pub struct ProxyReads {
    routes: Arc<Routes>,
    last_id: u64,
    asked: BTreeMap<u64, Sent>,
    /// Reads that were answered so, and that came back, since the start.
    pub answered: u64,
    /// See above.
    pub came_back: u64,
}

/// What a front's thread sees of slots that other sites own: the nodes that answered for them last.
struct AtFront<'a> {
    catalog: &'a Catalog,
    routes: &'a Routes,
    right: Right<'a>,
}

impl Context for AtFront<'_> {
    fn spec(&self, keyspace: KeyspaceId) -> Option<&KeyspaceSpec> {
        self.catalog.by_id(keyspace).map(|keyspace| &keyspace.spec)
    }

    fn own_site(&self) -> Option<SiteId> {
        None
    }

    fn serves(&self, _: Slot) -> bool {
        // A read of a slot that is here and was not answered at once is the core's.
        false
    }

    fn locates(&self, slot: Slot) -> bool {
        self.routes.of(slot).is_some()
    }

    fn owner_elsewhere(&self, slot: Slot, _: u32) -> Option<SiteId> {
        self.routes.of(slot).map(|(site, _)| site)
    }

    fn is_fenced(&self, _: SiteId) -> bool {
        // No route leads to one: they are dropped with each version of the registry.
        false
    }

    fn driver_of_failover(&self, _: SiteId, _: Option<SiteId>) -> Result<SiteId, Refusal> {
        Err(Refusal::NoDeployment)
    }

    fn admit_read(&self, keyspace: KeyspaceId, consistency: ReadConsistency) -> Admission {
        let lease_reads = || self.spec(keyspace).is_some_and(|spec| spec.lease_reads);
        self.right.admit(consistency, lease_reads)
    }
}

/// Where a request may go past the core, if it may.
fn way_of(request: &Request, context: &AtFront<'_>) -> Option<(SiteId, NodeId)> {
    let body = &request.body;
    let Body::Read { keyspace, consistency, .. } = body else { return None };
    let Ok(target @ Target::Slot(slot)) = target_of(body, context) else { return None };
    let Admission::At(site) = admit(&Arrival::new(target, body, Sender::Client), context) else {
        return None;
    };
    let may = context.spec(*keyspace)?.cache == Cache::Off
        // Routes are by slot.
        && !context.spec(*keyspace)?.lends()
        && !request.redirect
        // What its session has seen is for the core to wait for.
        && request.token.is_none()
        // Its deadline is before the check whether the node is silent.
        && request.deadline_ms.is_none_or(|ms| Duration::from_millis(ms) > TIMEOUT)
        && *consistency == ReadConsistency::Linearizable
        // This node is as current as its site: the answer needs no read index beside it.
        && context.admit_read(*keyspace, *consistency) == Admission::Here;
    context.routes.of(slot).filter(|route| may && route.0 == site)
}

impl ProxyReads {
    /// None yet. `process`: this process; an answer that was meant for an earlier one must not be
    /// taken for one to this one's.
    pub(crate) fn new(process: ClientId, routes: Arc<Routes>) -> ProxyReads {
        let (last_id, asked) = (process.0 >> 2, BTreeMap::new());
        ProxyReads { routes, last_id, asked, answered: 0, came_back: 0 }
    }

    /// Where reads go.
    pub fn routes(&self) -> &Arc<Routes> {
        &self.routes
    }

    /// Takes those requests out that go past the core, as they are to be sent. Those of one call
    /// stand behind each other. The gate: as it is after they came.
    pub fn take(
        &mut self,
        (now, gate): (Duration, ReadGate),
        requests: &mut Vec<(Ticket, Request)>,
        catalog: &Catalog,
        is_same_call: impl Fn(Ticket, Ticket) -> bool,
    ) -> BTreeMap<(SiteId, NodeId), Vec<ForwardedRequest>> {
        let mut sent: BTreeMap<_, Vec<_>> = BTreeMap::new();
        if !self.routes.has_any() || self.asked.len() + requests.len() > limits::ROUTED_MAX {
            return sent;
        }
        let clock = || now;
        let right = Right::of_gate(gate, &clock);
        let context = AtFront { catalog, routes: &self.routes, right };
        let mut ways = Vec::with_capacity(requests.len());
        for call in requests.chunk_by(|a, b| is_same_call(a.0, b.0)) {
            let of_call = call.iter().map(|(_, request)| way_of(request, &context));
            match of_call.collect::<Option<Vec<_>>>() {
                Some(all) => ways.extend(all.into_iter().map(Some)),
                None => ways.extend(call.iter().map(|_| None)),
            }
        }
        let mut left = Vec::new();
        let asked = requests.len();
        for ((ticket, request), way) in requests.drain(..).zip(ways) {
            match way {
                Some(place) => {
                    let request = self.send(now, ticket, request, place);
                    sent.entry(place).or_insert_with(|| Vec::with_capacity(asked)).push(request);
                }
                None => left.push((ticket, request)),
            }
        }
        *requests = left;
        sent
    }

    fn send(
        &mut self,
        now: Duration,
        ticket: Ticket,
        request: Request,
        place: (SiteId, NodeId),
    ) -> ForwardedRequest {
        self.last_id += 1;
        let id = self.last_id | PROXY;
        let (encoded, client) = (entry::encode_request(&request), request.client.number());
        self.asked.insert(id, Sent { ticket, request, place, since: now });
        ForwardedRequest { id, request: encoded, client, ..ForwardedRequest::default() }
    }

    /// Takes the answers to proxy reads out of a message of another site's node. Whether there
    /// is anything left for the core.
    pub fn answered(
        &mut self,
        now: Duration,
        node: NodeId,
        answered: &mut InterSiteAnswers,
        came: &mut Vec<Came>,
    ) -> bool {
        if answered.answers.iter().all(|answer| answer.id & PROXY == 0) {
            return true;
        }
        came.reserve(answered.answers.len());
        for answer in std::mem::take(&mut answered.answers) {
            if answer.id & PROXY == 0 {
                answered.answers.push(answer);
            } else if let Some(asked) = self.asked.remove(&answer.id) {
                self.settle(now, asked, answer, came);
            }
        }
        // Another node leads there: the core is notified.
        !answered.answers.is_empty() || ![0, node.0].contains(&answered.leader)
    }

    fn settle(
        &mut self,
        now: Duration,
        asked: Sent,
        answer: InterSiteAnswer,
        came: &mut Vec<Came>,
    ) {
        let owner = (SiteId(answer.owner), answer.known_epoch());
        match entry::decode_reply(answer.outcome) {
            Ok(Err(Failure::Refused(Refusal::NotHeld(slot)))) => {
                came.push(Came::Moved(Moved { slot, by: asked.place.0, owner }));
                came.push(self.give_back(now, asked));
            }
            // This site does not know yet that groups of the keyspace are lent: its core asks the
            // borrower.
            Ok(Err(Failure::Refused(Refusal::Lent { .. }))) => {
                came.push(self.give_back(now, asked));
            }
            // What is wrong with the read itself is as wrong the other way.
            Ok(outcome @ (Ok(_) | Err(Failure::Refused(_)))) => {
                self.answered += 1;
                let (site, took) = (asked.place.0, now.saturating_sub(asked.since));
                self.routes.round_trips().measured(site, took, now);
                came.push(Came::Answer(asked.ticket, outcome));
            }
            _ => came.push(self.give_back(now, asked)),
        }
    }

    /// The connection to a node broke.
    pub fn lost(&mut self, now: Duration, place: (SiteId, NodeId), came: &mut Vec<Came>) {
        self.give_back_all(now, came, |asked| asked.place == place);
    }

    /// Gives back what has been unanswered for the timeout.
    pub fn fail_over_from_silent(&mut self, now: Duration, came: &mut Vec<Came>) {
        if self.deadline().is_some_and(|at| at <= now) {
            self.give_back_all(now, came, |asked| asked.since + TIMEOUT <= now);
        }
    }

    /// When [`ProxyReads::fail_over_from_silent`] has something to do, if nothing is answered.
    pub fn deadline(&self) -> Option<Duration> {
        self.asked.first_key_value().map(|(_, asked)| asked.since + TIMEOUT)
    }

    fn give_back_all(
        &mut self,
        now: Duration,
        came: &mut Vec<Came>,
        is_wanted: impl Fn(&Sent) -> bool,
    ) {
        let wanted = self.asked.iter().filter(|(_, asked)| is_wanted(asked));
        let wanted: Vec<u64> = wanted.map(|(id, _)| *id).collect();
        for id in wanted {
            if let Some(asked) = self.asked.remove(&id) {
                came.push(self.give_back(now, asked));
            }
        }
    }

    fn give_back(&mut self, now: Duration, asked: Sent) -> Came {
        let Sent { ticket, mut request, place, since } = asked;
        if let Body::Read { query, .. } = &request.body
            && let KeySlots::One(slot) = query.key_slots()
            && self.routes.of(slot) == Some(place)
        {
            self.routes.forget(slot);
        }
        let full_ms = request.deadline_ms.unwrap_or(limits::REQUEST_DEADLINE.as_millis() as u64);
        let took_ms = now.saturating_sub(since).as_millis() as u64;
        request.deadline_ms = Some(full_ms.saturating_sub(took_ms).max(1));
        self.came_back += 1;
        Came::Back(ticket, request)
    }
}

// ---- at the site that is asked ------------------------------------------------------------------

/// Answers the reads that requests from another site begin with, each of a client, for as long as
/// `answer` can; it also gives the failover under which it does
/// ([`crate::site::machine::Reader::served_under`]). What it cannot stays in `requests`, as does
/// all behind a write: that may be the same client's.
pub fn answer_reads(
    requests: &mut Vec<ForwardedRequest>,
    mut answer: impl FnMut(
        ClientName,
        KeyspaceId,
        &Query,
        ReadConsistency,
    ) -> Option<(Outcome, ServedUnder)>,
) -> Vec<InterSiteAnswer> {
    let mut answers = Vec::with_capacity(requests.len());
    for request in requests.iter() {
        // A node that keeps copies needs a validator beside the answer, a session a token.
        if request.known.is_some() || request.token.is_some() || !entry::is_read(&request.request) {
            break;
        }
        let decoded = entry::decode_request(request.request.clone());
        let Ok(Request { body: Body::Read { keyspace, query, consistency }, .. }) = decoded else {
            break;
        };
        let client = ClientName::of_number(request.client);
        let answered = answer(client, keyspace, &query, consistency);
        let Some((outcome, ServedUnder { failover, borrowed })) = answered else { break };
        let (id, outcome) = (request.id, entry::encode_reply(&outcome));
        let served = put_failover(failover);
        answers.push(InterSiteAnswer { id, outcome, served, borrowed, ..Default::default() });
    }
    requests.drain(..answers.len());
    answers
}

#[cfg(test)]
mod tests;
