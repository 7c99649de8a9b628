//! Requests about global keys, from a node to the site that holds their slot.
//!
//! A request goes directly to the owner, as far as it is known; a site that does not hold the slot
//! redirects to the owner in its own map. The map of slots ([`super::map`]) contains facts, of
//! which the highest epoch counts, and guesses. A request about a slot that changes hands just now
//! waits and is sent on.
//!
//! A write is numbered before it leaves the node, unless its client has done so, and keeps its
//! number wherever it goes: what a site remembers of a slot's requests moves along with the slot.
//! So it can be sent again, to another node or to another site, and is applied once. A write that
//! cannot have a number is sent once.
//!
//! An answer of another site is handed out once it is certain that no site had taken over from that
//! one when the request left ([`held_answers`]). What an answer, or none, leads to is in
//! [`outcomes`].

mod copies;
mod held_answers;
mod outcomes;
#[cfg(test)]
mod tests;

use super::cache::{Asked, Copies};
use super::groups::Borrowers;
use super::map::{self, Raised, RunFact, SlotMap, Source};
use super::proxy_reads::Routes;
use super::round_trips::RoundTrips;
use crate::admission::{Arrival, Target};
pub(crate) use crate::deployment::failure_detector::TIMEOUT;
use crate::origin::{Origin, ServedUnder};
pub(crate) use held_answers::HeldAnswer;
use model::{
    Body, ClientId, Epoch, Failure, Group, KeyspaceId, NodeId, Query, ReadConsistency, Request,
    RequestId, SiteId, Slot, limits,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use wire::entry;
use wire::peer::ForwardedRequest;

/// How long a request rests when no owner is known.
const BACKOFF: Duration = Duration::from_millis(20);
/// The longest it rests.
const BACKOFF_MAX: Duration = Duration::from_millis(500);

/// A node that did not answer, or was of no use, is avoided for so long, unless it sends something:
/// its site may name it as its leader all the same.
const AVOIDED: Duration = Duration::from_secs(2);

/// The epoch of what is only guessed.
pub(crate) const GUESSED: Epoch = Epoch::counted(0);

/// Where a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// To be looked at.
    Due,
    /// Among this site's own requests.
    Here,
    /// With a node of another site, since then.
    Sent(SiteId, NodeId, Duration),
    /// That has answered; the answer is not handed out yet.
    Held(SiteId, NodeId),
    /// Waiting until then.
    Resting(Duration),
}

/// The state of a node that was sent a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contact {
    /// Its answer is not due yet.
    Recent,
    /// Its answer is due; the site was in contact since, or is not known to be lost.
    Overdue,
    /// The link to it broke, or its site cannot be reached.
    Lost,
}

#[derive(Debug)]
struct Routed {
    origin: Origin,
    body: Body,
    target: Target,
    deadline: Duration,
    at: At,
    /// It was sent, and its outcome is unknown.
    in_doubt: bool,
    /// How often it came back without an answer.
    returns: u32,
    /// Which question it is, if its answer may be copied.
    asked: Option<Asked>,
    /// Whether the node of another site that asks it keeps copies.
    copies: Copies,
    /// The read index that its answer waits for; 0: none.
    index: u64,
    /// The answer, at [`At::Held`].
    held: Option<HeldAnswer>,
    /// The group that it is about, if that may be lent.
    group: Option<Group>,
    /// Whether it was sent to the borrower of that.
    to_borrower: bool,
    /// The borrower that did not answer, or that a failover is about.
    silent_borrower: Option<SiteId>,
}

impl Routed {
    /// The borrower that it waits for.
    fn awaited_borrower(&self) -> Option<SiteId> {
        match self.at {
            At::Sent(site, ..) if self.to_borrower => Some(site),
            _ => self.silent_borrower,
        }
    }
}

/// The outcome of a request, for its origin.
pub(crate) type Outcome = Result<model::Answer, Failure>;

/// The requests of one node that are about what other sites may hold.
#[derive(Debug)]
pub(crate) struct Routing {
    client: ClientId,
    last_id: u64,
    routed: BTreeMap<u64, Routed>,
    /// To be looked at now.
    due: Vec<u64>,
    /// To be looked at then.
    resting: BTreeSet<(Duration, u64)>,
    /// The owners of slots, as far as this node has learned them.
    pub(crate) map: SlotMap,
    routes: Arc<Routes>,
    /// The borrowers of groups, as far as this node has learned of them.
    pub(crate) borrowers: Borrowers,
    /// The node to ask at a site: its last known leader.
    near: BTreeMap<SiteId, NodeId>,
    /// The nodes that did not answer, or were of no use, and when that was found.
    avoided: BTreeMap<(SiteId, NodeId), Duration>,
    /// Those with an answer, by the read index that it waits for.
    held: BTreeSet<(u64, u64)>,
    /// Requests about slots that ended at other sites: those that went to the owner at once, and
    /// all others, since the start.
    pub(crate) direct: u64,
    pub(crate) redirected: u64,
}

impl Routing {
    /// Nothing yet. `process`: this process, among those that number requests.
    pub(crate) fn new(process: ClientId) -> Routing {
        // Another one than forwarding inside the site uses: both count from 1.
        let client = ClientId(process.0.rotate_left(32) ^ 0x9e37_79b9_7f4a_7c15);
        Routing {
            client,
            last_id: 0,
            routed: BTreeMap::new(),
            due: Vec::new(),
            resting: BTreeSet::new(),
            map: SlotMap::default(),
            routes: Arc::default(),
            borrowers: Borrowers::default(),
            near: BTreeMap::new(),
            avoided: BTreeMap::new(),
            held: BTreeSet::new(),
            direct: 0,
            redirected: 0,
        }
    }

    /// The number that a request has at other sites. Another process of this node will use others;
    /// what goes past the core ([`super::proxy_reads`]) uses those from 2^63 on.
    fn id_there(&self, id: u64) -> u64 {
        id + (self.client.0 >> 2)
    }

    fn id_here(&self, id_there: u64) -> u64 {
        id_there.wrapping_sub(self.client.0 >> 2)
    }

    /// Which nodes answered last.
    pub(crate) fn routes(&self) -> &Arc<Routes> {
        &self.routes
    }

    /// How long other sites took to answer.
    pub(crate) fn round_trips(&self) -> &RoundTrips {
        self.routes.round_trips()
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.routed.is_empty()
    }

    pub(crate) fn waiting(&self) -> usize {
        self.routed.len()
    }

    /// Takes a request in; it is due.
    #[expect(clippy::result_large_err, reason = "an outcome, moved once to what waits for it")]
    pub(crate) fn push(
        &mut self,
        origin: Origin,
        body: Body,
        target: Target,
        deadline: Duration,
    ) -> Result<u64, (Origin, Outcome)> {
        if self.routed.len() >= limits::ROUTED_MAX {
            let what = "requests for other sites";
            return Err((origin, Err(Failure::Overloaded { what })));
        }
        self.last_id += 1;
        let (at, in_doubt, returns) = (At::Due, false, 0);
        let (asked, copies) = (None, Copies::None);
        let (index, held) = (0, None);
        let one = Routed {
            origin,
            body,
            target,
            deadline,
            at,
            in_doubt,
            returns,
            asked,
            copies,
            index,
            held,
            group: None,
            to_borrower: false,
            silent_borrower: None,
        };
        self.routed.insert(self.last_id, one);
        self.due.push(self.last_id);
        Ok(self.last_id)
    }

    /// Takes a request in that rests first: its slot was not here any more when it was carried out,
    /// or it waits for what is to come.
    #[expect(clippy::result_large_err, reason = "an outcome, moved once to what waits for it")]
    pub(crate) fn push_back(
        &mut self,
        origin: Origin,
        body: Body,
        target: Target,
        (deadline, now): (Duration, Duration),
    ) -> Result<(), (Origin, Outcome)> {
        let id = self.push(origin, body, target, deadline)?;
        self.due.pop();
        self.rest(id, now);
        Ok(())
    }

    // ---- where slots are ------------------------------------------------------------------------

    /// A fact about slots; what of it was news.
    pub(crate) fn learn(&mut self, run: RunFact, source: Source, now: Duration) -> Vec<Raised> {
        let raised = self.map.learn(run, source, now);
        self.follow_map(&raised);
        raised
    }

    /// Slots are elsewhere: no request goes where they were, and what rests for them is looked at
    /// now.
    pub(crate) fn follow_map(&mut self, raised: &[Raised]) {
        for RunFact { first, last, .. } in raised.iter().map(|one| one.run) {
            (first..=last).filter_map(Slot::new).for_each(|slot| self.routes.forget(slot));
            if self.resting.is_empty() {
                continue;
            }
            let routed = &self.routed;
            let is_about = |id: &u64| match routed.get(id).map(|one| one.target) {
                Some(Target::Slot(slot)) => (first..=last).contains(&slot.number()),
                _ => false,
            };
            let (woken, resting) = std::mem::take(&mut self.resting)
                .into_iter()
                .partition::<BTreeSet<_>, _>(|(_, id)| is_about(id));
            self.resting = resting;
            self.due.extend(woken.into_iter().map(|(_, id)| id));
        }
    }

    /// A site is to be asked about a slot first.
    pub(crate) fn guess(&mut self, slot: Slot, site: SiteId) {
        self.map.set_guess(slot, site);
        self.routes.forget(slot);
    }

    /// A site answered that it does not own a slot, with the owner if it has one. Returns whether
    /// there is another site to ask.
    pub(crate) fn not_held(
        &mut self,
        slot: Slot,
        site: SiteId,
        hint: Option<(SiteId, Epoch)>,
        now: Duration,
    ) -> bool {
        self.map.drop_guess(slot, site);
        self.routes.forget(slot);
        let hint = hint.filter(|(owner, _)| *owner != site);
        match hint {
            Some((owner, epoch)) if epoch > GUESSED => {
                self.learn(map::of_slot(slot, owner, epoch), Source::Other, now);
            }
            // This node's own fact is better than another node's guess, unless it names `site`.
            Some((owner, _)) if self.map.fact(slot).is_none_or(|fact| fact.owner == site) => {
                self.map.set_guess(slot, owner);
            }
            _ => {}
        }
        hint.is_some()
    }

    /// Forgets guesses that name sites that are gone: their slots are elsewhere.
    pub(crate) fn forget_gone(&mut self, is_there: impl Fn(SiteId) -> bool) {
        self.map.forget_gone(&is_there);
        self.borrowers.clear();
        self.near.retain(|site, _| is_there(*site));
        self.avoided.retain(|(site, _), _| is_there(*site));
        self.round_trips().forget_gone(&is_there);
        self.routes.forget_all();
    }

    /// A node leads a site. Returns whether it is the one to ask from now on: one that is avoided
    /// is not.
    pub(crate) fn learn_leader(&mut self, site: SiteId, node: NodeId, now: Duration) -> bool {
        if self.is_avoided(site, node, now) {
            return false;
        }
        if self.near.insert(site, node) != Some(node) {
            self.routes.forget_all();
        }
        true
    }

    /// A node of another site has sent something.
    pub(crate) fn note_contact(&mut self, site: SiteId, node: NodeId) {
        if !self.avoided.is_empty() {
            self.avoided.remove(&(site, node));
        }
    }

    /// A node of another site has not answered in time, or not to any use.
    pub(crate) fn avoid(&mut self, site: SiteId, node: NodeId, now: Duration) {
        self.avoided.insert((site, node), now);
    }

    /// Whether a node was of no use lately, and has sent nothing since.
    pub(crate) fn is_avoided(&self, site: SiteId, node: NodeId, now: Duration) -> bool {
        self.avoided.get(&(site, node)).is_some_and(|since| now < *since + AVOIDED)
    }

    /// The node behind one, in the order of a site's nodes, that is not avoided.
    fn next_of_use(
        &self,
        site: SiteId,
        node: NodeId,
        nodes: &[NodeId],
        now: Duration,
    ) -> Option<NodeId> {
        let at = nodes.iter().position(|one| *one == node).map_or(0, |at| at + 1);
        let mut others = nodes[at..].iter().chain(&nodes[..at]);
        others.find(|one| **one != node && !self.is_avoided(site, **one, now)).copied()
    }

    /// The nodes to ask at the sites that have sent a message.
    pub(crate) fn leaders(&self) -> &BTreeMap<SiteId, NodeId> {
        &self.near
    }

    /// The node to ask at a site: its last known leader, or its first node.
    pub(crate) fn node_of(&self, site: SiteId, nodes: &[NodeId]) -> Option<NodeId> {
        let near = self.near.get(&site).filter(|node| nodes.contains(node));
        near.or(nodes.first()).copied()
    }

    /// A node of a site does not answer: the next one is asked from now on, if possible one that is
    /// not avoided.
    pub(crate) fn fail_over_from(
        &mut self,
        site: SiteId,
        node: NodeId,
        nodes: &[NodeId],
        now: Duration,
    ) {
        if self.node_of(site, nodes) != Some(node) {
            return;
        }
        let at = nodes.iter().position(|one| *one == node).map_or(0, |at| at + 1);
        let in_order = nodes.get(at).or(nodes.first()).copied();
        if let Some(next) = self.next_of_use(site, node, nodes, now).or(in_order) {
            self.near.insert(site, next);
        }
    }

    /// A node of a site answers, and is of no use: another one that is not avoided is asked from
    /// now on, or else the leader that it names.
    pub(crate) fn turn_from(
        &mut self,
        (site, node): (SiteId, NodeId),
        leader: Option<NodeId>,
        nodes: &[NodeId],
        now: Duration,
    ) {
        self.avoid(site, node, now);
        if self.node_of(site, nodes) != Some(node) {
            return;
        }
        if let Some(next) = self.next_of_use(site, node, nodes, now).or(leader) {
            self.near.insert(site, next);
        }
    }

    // ---- on the way -----------------------------------------------------------------------------

    /// The requests to look at now.
    pub(crate) fn take_due(&mut self, now: Duration) -> Vec<u64> {
        while let Some(&(until, id)) = self.resting.first()
            && until <= now
        {
            self.resting.pop_first();
            self.due.push(id);
        }
        let due = std::mem::take(&mut self.due);
        let at = |id: &u64| self.routed.get(id).map(|one| one.at);
        let is_due = |id: &u64| matches!(at(id), Some(At::Due | At::Resting(_)));
        due.into_iter().filter(is_due).collect()
    }

    /// When a request is due next.
    pub(crate) fn next_due(&self) -> Option<Duration> {
        match self.due.is_empty() {
            false => Some(Duration::ZERO),
            true => self.resting.first().map(|(until, _)| *until),
        }
    }

    /// A request goes among this site's own: what it asks. `numbered`: it may leave this node.
    pub(crate) fn go_here(&mut self, id: u64, numbered: bool) -> Option<(Body, Duration)> {
        if numbered {
            self.number(id);
        }
        let one = self.routed.get_mut(&id)?;
        one.at = At::Here;
        Some((one.body.clone(), one.deadline))
    }

    /// A request leaves for a node of another site.
    pub(crate) fn go_away(
        &mut self,
        id: u64,
        site: SiteId,
        node: NodeId,
        now: Duration,
    ) -> Option<ForwardedRequest> {
        self.number(id);
        let oldest = self.routed.keys().next().copied().unwrap_or(id);
        let client = self.client;
        let one = self.routed.get_mut(&id)?;
        one.at = At::Sent(site, node, now);
        if let Some(Some(request)) = one.body.request_id_mut()
            && request.client == client
        {
            request.acknowledged_below = oldest;
        }
        let deadline_ms = one.deadline.saturating_sub(now).as_millis() as u64;
        // It is kept, to be sent again; lending it costs less than a copy.
        let lent = Body::ListJobs;
        let request = Request {
            deadline_ms: Some(deadline_ms.max(1)),
            ..Request::new(std::mem::replace(&mut one.body, lent))
        };
        let encoded = entry::encode_request(&request);
        one.body = request.body;
        let (client, id) = (one.origin.client_name().number(), self.id_there(id));
        Some(ForwardedRequest { id, request: encoded, client, ..Default::default() })
    }

    /// What is asked by a stale read.
    pub(crate) fn stale_read(&self, id: u64) -> Option<(KeyspaceId, Query)> {
        self.read_with(id, ReadConsistency::Stale)
    }

    /// What is asked by a read of another site's mirror.
    pub(crate) fn backup_read(&self, id: u64) -> Option<(KeyspaceId, Query)> {
        self.read_with(id, ReadConsistency::Backup)
    }

    fn read_with(&self, id: u64, wanted: ReadConsistency) -> Option<(KeyspaceId, Query)> {
        match &self.routed.get(&id)?.body {
            Body::Read { keyspace, query, consistency } if *consistency == wanted => {
                Some((*keyspace, query.clone()))
            }
            _ => None,
        }
    }

    /// A stale read leaves for a node of its owner's backup.
    pub(crate) fn go_to_backup(
        &mut self,
        id: u64,
        site: SiteId,
        node: NodeId,
        now: Duration,
    ) -> Option<ForwardedRequest> {
        let one = self.routed.get_mut(&id)?;
        let Body::Read { keyspace, query, .. } = one.body.clone() else { return None };
        let stale = std::mem::replace(
            &mut one.body,
            Body::Read { keyspace, query, consistency: ReadConsistency::Backup },
        );
        let request = self.go_away(id, site, node, now);
        self.routed.get_mut(&id)?.body = stale;
        request
    }

    /// A request that came back goes on at once.
    fn follow(&mut self, id: u64) {
        if let Some(one) = self.routed.get_mut(&id) {
            one.returns += 1;
            one.at = At::Due;
            self.due.push(id);
        }
    }

    /// A request is looked at again after a while, longer each time.
    pub(crate) fn rest(&mut self, id: u64, now: Duration) {
        if let Some(one) = self.routed.get_mut(&id) {
            one.returns += 1;
            let until = now + (BACKOFF * one.returns).min(BACKOFF_MAX);
            one.at = At::Resting(until);
            self.resting.insert((until, id));
        }
    }

    /// Tokens changed hands: what rests is looked at now.
    pub(crate) fn wake(&mut self) {
        self.routes.forget_all();
        let resting = std::mem::take(&mut self.resting);
        self.due.extend(resting.into_iter().map(|(_, id)| id));
    }

    /// Gives a write its number, if it can have one and has none.
    fn number(&mut self, id: u64) {
        let client = self.client;
        let Some(one) = self.routed.get_mut(&id) else { return };
        if let Some(request) = one.body.request_id_mut() {
            request.get_or_insert(RequestId { client, sequence: id, acknowledged_below: 0 });
        }
    }

    /// How often a request came back without an answer.
    pub(crate) fn returns(&self, id: u64) -> u32 {
        self.routed.get(&id).map_or(0, |one| one.returns)
    }

    /// What admission looks at.
    pub(crate) fn arrival(&self, id: u64) -> Option<Arrival> {
        let one = self.routed.get(&id)?;
        let arrival = Arrival::new(one.target, &one.body, one.origin.sender());
        Some(Arrival { returns: one.returns, ..arrival })
    }

    /// A request is about a group that may be lent.
    pub(crate) fn note_group(&mut self, id: u64, group: Option<Group>) {
        if let Some(one) = self.routed.get_mut(&id) {
            one.group = group;
        }
    }

    /// Whether a request is about a group that may be lent.
    pub(crate) fn is_of_group(&self, id: u64) -> bool {
        self.routed.get(&id).is_some_and(|one| one.group.is_some())
    }

    /// The group that a request is about, if that may be lent.
    pub(crate) fn group(&self, id: u64) -> Option<Group> {
        self.routed.get(&id)?.group.clone()
    }

    /// A request leaves for the borrower of its group, or for the owner of its slot.
    pub(crate) fn note_borrower(&mut self, id: u64, to_borrower: bool) {
        if let Some(one) = self.routed.get_mut(&id) {
            one.to_borrower = to_borrower;
        }
    }

    /// A request waits for the borrower of its group, which a failover is about.
    pub(crate) fn note_silent_borrower(&mut self, id: u64, site: SiteId) {
        if let Some(one) = self.routed.get_mut(&id) {
            one.silent_borrower = Some(site);
        }
    }

    /// Whether a request was sent to the borrower of its group.
    pub(crate) fn is_to_borrower(&self, id: u64) -> bool {
        self.routed.get(&id).is_some_and(|one| one.to_borrower)
    }

    /// The origin of a request.
    pub(crate) fn origin(&self, id: u64) -> Option<Origin> {
        self.routed.get(&id).map(|one| one.origin)
    }

    /// The same of any request: where it came from before it was routed.
    pub(crate) fn requester(&self, origin: Origin) -> Origin {
        match origin {
            Origin::Routed { id, .. } => self.origin(id).unwrap_or(Origin::Discard),
            origin => origin,
        }
    }

    /// This site's leader has answered a request that was routed to this site itself.
    pub(crate) fn served_by_leader(&mut self, id: u64, under: ServedUnder) {
        if let Some(one) = self.routed.get_mut(&id) {
            one.origin = one.origin.served_by_leader(under);
        }
    }

    /// Whether a request asks why a key is where it is.
    pub(crate) fn explains(&self, id: u64) -> bool {
        matches!(self.body(id), Some(Body::ExplainPlacement { .. }))
    }
}
