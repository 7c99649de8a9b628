//! Requests between sites: this node's clients' for what others hold, and others' for what is here.
//!
//! A request of this node's clients goes wherever its slot is ([`crate::global::routing`]). One
//! that came from another site is answered here or not at all: its sender is redirected to the
//! owner of the slot, goes there itself and updates its map. No request travels in circles.

use super::machine::Machine;
use super::machine::global::tokens::Token;
use super::{Origin, Output, Site};
use crate::admission::{
    Admission, Arrival, Context as _, GroupAt, Sender, Target, Wait, admit, group_of, target_of,
};
use crate::bugs::Bug;
use crate::global::proxy_reads::Moved;
use crate::global::routing::{Contact, GUESSED, HeldAnswer, TIMEOUT};
use crate::origin::{Served, ServedUnder};
use model::{
    Answer, Ballot, Body, Bytes, CausalCommand, ClientName, Command, Epoch, Failure, LoanPart,
    NodeId, Refusal, SiteId, Slot, limits,
};
use std::collections::BTreeMap;
use std::time::Duration;
use storage::log::LogReader;
use storage::snapshot::Snapshots;
use storage::state::State;
use wire::entry;
use wire::inter_site::{
    InterSite, InterSiteAnswer, InterSiteAnswers, InterSiteMessage, put_failover, take_failover,
};
use wire::peer::{Forward, ForwardedRequest, in_parts};

/// A request that came back so often has followed what is known, to no end.
const REDIRECTS_BEFORE_SEARCH: u32 = 3;

/// What gathers for nodes of other sites until the end of a round.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    requests: BTreeMap<(SiteId, NodeId), Vec<ForwardedRequest>>,
    answers: BTreeMap<(SiteId, NodeId), Vec<InterSiteAnswer>>,
}

impl Outbox {
    /// A request leaves for a node of another site.
    pub(super) fn push(&mut self, site: SiteId, node: NodeId, request: ForwardedRequest) {
        self.requests.entry((site, node)).or_default().push(request);
    }
}

/// The name of a site, or its number if it is not listed.
pub(super) fn name_of<S: State>(machine: &Machine<S>, site: SiteId) -> String {
    let registry = machine.membership().map(|member| &member.registry);
    let entry = registry.and_then(|registry| registry.site(site));
    entry.map_or_else(|| site.to_string(), |entry| entry.name.to_string())
}

/// Whether the failover counts under which a site answers a request.
fn is_about_keys(body: &Body) -> bool {
    body.keyspace().is_some() || matches!(body, Body::ExplainPlacement { .. })
}

/// Whether another node of a site is to be asked after such an answer, by one that names no leader
/// which answers here: it passes nothing on. Cut off from the others, it would redirect for ever by
/// what it has of former times.
fn is_of_no_use(outcome: &Result<Answer, Failure>, leader: Option<NodeId>) -> bool {
    match outcome {
        Err(Failure::NoLeader | Failure::NotServing(_)) => true,
        Err(Failure::Refused(Refusal::NotHeld(_) | Refusal::Lent { .. })) => leader.is_none(),
        _ => false,
    }
}

impl<S: State, R: LogReader, N: Snapshots> Site<S, R, N> {
    /// A request of a client that goes where its keys are by itself: it is redirected, unless the
    /// keys are here or their owner is unknown for the moment.
    pub(super) fn take_or_redirect(&mut self, origin: Origin, body: Body, deadline: Duration) {
        let arrival = target_of(&body, self).map(|target| {
            let group = group_of(&body, self);
            Arrival { group, ..Arrival::new(target, &body, Sender::Redirected) }
        });
        if let Ok(arrival @ Arrival { target: Target::Slot(slot), .. }) = arrival
            && let Some(failure) = self.redirection(&arrival, slot)
        {
            return self.settle(vec![(origin, Err(failure))]);
        }
        self.take_any(origin, body, deadline);
    }

    /// Where a client has to go. To a slot's owner for good, which alone names the borrower of a
    /// lent group.
    fn redirection(&self, arrival: &Arrival, slot: Slot) -> Option<Failure> {
        let group_at = arrival.group.as_ref().map_or(GroupAt::Slot, |group| self.group_at(group));
        let of_slot = Arrival { group: None, ..arrival.clone() };
        let arrival = match group_at {
            GroupAt::At(site, Some(_)) => {
                let address = self.cluster_address_at(site)?;
                return Some(Failure::Ask { slot, address });
            }
            GroupAt::Here | GroupAt::Between => return None,
            GroupAt::At(_, None) | GroupAt::Slot => &of_slot,
        };
        let Admission::At(site) = admit(arrival, self) else { return None };
        let address = self.cluster_address_at(site)?;
        Some(Failure::Moved { slot, address })
    }

    /// Where a client of the Redis Cluster protocol finds another site.
    fn cluster_address_at(&self, site: SiteId) -> Option<String> {
        let node = self.global.routing.node_of(site, &self.nodes_of(site))?;
        let entry = self.machine.membership()?.registry.site(site)?;
        let at_leader = entry.nodes.iter().find(|one| one.node == node);
        let nodes = at_leader.into_iter().chain(&entry.nodes);
        nodes.map(|one| &one.cluster).find(|address| !address.is_empty()).cloned()
    }

    /// Takes a request in that may have to go elsewhere.
    pub(super) fn route(&mut self, origin: Origin, body: Body, target: Target, deadline: Duration) {
        if let Err(refused) = self.global.routing.push(origin, body, target, deadline) {
            self.settle(vec![refused]);
        }
    }

    /// A request that rests first: its slot was not here any more when it was to be carried out, or
    /// this site is the root of causal keys and gives that up, or has to begin.
    pub(super) fn route_later(
        &mut self,
        origin: Origin,
        body: Body,
        target: Target,
        deadline: Duration,
    ) {
        let times = (deadline, self.now.monotonic);
        if let Err(refused) = self.global.routing.push_back(origin, body, target, times) {
            self.settle(vec![refused]);
        }
    }

    /// Sends requests on to where they belong.
    pub(super) fn route_due(&mut self) {
        for id in self.global.routing.take_due(self.now.monotonic) {
            if let Some(arrival) = self.global.routing.arrival(id) {
                let body = self.global.routing.body(id);
                let group = body.and_then(|body| group_of(body, self));
                self.global.routing.note_group(id, group.clone());
                self.route_one(id, Arrival { group, ..arrival });
            }
        }
    }

    fn route_one(&mut self, id: u64, arrival: Arrival) {
        let now = self.now.monotonic;
        if let Target::Site(site) = arrival.target
            && let Some((origin, body, deadline)) = self.take_back(id, site)
        {
            return self.take_any(origin, body, deadline);
        }
        // The backup's copy of a lent group is older than the borrower's.
        let group = arrival.group.as_ref();
        let is_lent = group.is_some_and(|group| self.group_at(group) != GroupAt::Slot);
        match (admit(&arrival, self), arrival.target) {
            (here @ (Admission::Here | Admission::Wait(Wait::Index | Wait::Applied)), _) => {
                // What a leader puts into its own log it need not send again.
                let numbered = !self.leads();
                if let Some((body, deadline)) = self.global.routing.go_here(id, numbered) {
                    let origin = Origin::Routed { id, in_doubt: false };
                    self.carry_out(origin, body, here, deadline);
                }
            }
            // The ring may answer at once.
            (Admission::Wait(Wait::Lookup(slot)), _) => {
                match self.looks_up(slot, id) && !self.global.routing.map.locates(slot) {
                    true => self.global.routing.rest(id, now),
                    false => self.route_one(id, Arrival { is_looked_up: true, ..arrival }),
                }
            }
            (Admission::Refuse(_), Target::Slot(slot)) if self.answers_as_backup(id, slot) => {}
            (Admission::Refuse(failure), _) => {
                let settled = self.global.routing.end(id, Err(failure));
                self.settle(settled.into_iter().collect());
            }
            (Admission::At(site) | Admission::Wait(Wait::Failover(site)), Target::Slot(slot))
                if !is_lent && self.reads_from_backup(id, slot, site) => {}
            (Admission::At(site), _) => self.send_request_to(site, id),
            (Admission::Wait(wait @ (Wait::Owner(_) | Wait::Failover(_))), _) => {
                if let Wait::Failover(site) = wait
                    && is_lent
                {
                    self.global.routing.note_silent_borrower(id, site);
                }
                self.global.routing.rest(id, now);
            }
        }
    }

    /// Takes back a request of a causal keyspace that is addressed to a site which has left, or to
    /// one that is the root no more; or that waits here for the root to move.
    fn take_back(&mut self, id: u64, site: SiteId) -> Option<(Origin, Body, Duration)> {
        let (member, body) = (self.machine.membership()?, self.global.routing.body(id)?);
        self.causal_keyspace(body)?;
        let root = self.machine.region().map(|region| region.root);
        let is_elsewhere = match body {
            Body::Write(Command::Causal(
                CausalCommand::Clear { .. } | CausalCommand::Retry { .. },
            )) => root != Some(site) || member.own == site,
            _ => root != Some(site) && member.registry.has_left(site),
        };
        if is_elsewhere { self.global.routing.take_back(id) } else { None }
    }

    fn send_request_to(&mut self, site: SiteId, id: u64) {
        let now = self.now.monotonic;
        let nodes = self.nodes_of(site);
        let Some(node) = self.global.routing.node_of(site, &nodes) else {
            return self.global.routing.rest(id, now);
        };
        let group = self.global.routing.group(id).map(|group| self.group_at(&group));
        let to_borrower = matches!(group, Some(GroupAt::At(to, _)) if to == site);
        let is_silent = || self.deployment.failure_detector.is_silent(site, now);
        if to_borrower && self.global.routing.explains(id) && is_silent() {
            // That the group is lent there is what can be answered without it.
            let name = name_of(&self.machine, site);
            let outcome = self.global.routing.borrower_unreachable(id, name);
            return self.settle(outcome.into_iter().collect());
        }
        self.deployment.failure_detector.asked(site, now);
        self.note_write(id);
        self.take_index(id);
        self.global.routing.note_borrower(id, to_borrower);
        if let Some(mut request) = self.global.routing.go_away(id, site, node, now) {
            request.known = self.known_copy(id);
            request.token = self.session_asked(Origin::Routed { id, in_doubt: false });
            self.deployment.outbox.push(site, node, request);
        }
    }

    /// Which other site is to be asked about a slot, by a request that came back so often.
    ///
    /// The known owner; otherwise its preferred one, and then, as that may not have it yet or have
    /// it no more, one site after the other. The same when the known owner leads nowhere: the trail
    /// may end at a site that handed the slot to one that is gone.
    pub(super) fn owner_elsewhere(&self, slot: Slot, returns: u32) -> Option<SiteId> {
        let member = self.machine.membership()?;
        let map = &self.global.routing.map;
        // Only the token shows that it is here: on the ring this site may be the one to ask.
        let has_token = !matches!(self.machine.token(slot), Token::Never | Token::Gone { .. });
        let guess = map.guess(slot).filter(|_| !has_token);
        let mut known = guess.into_iter().chain(map.fact(slot).map(|fact| fact.owner));
        let is_there = |site: &SiteId| match *site == member.own {
            true => has_token,
            false => member.registry.site(*site).is_some(),
        };
        let best = known.find(is_there);
        match best {
            // Frozen here: its next owner is not certain before it is gone.
            Some(site) if site == member.own => None,
            Some(site) if returns < REDIRECTS_BEFORE_SEARCH || returns.is_multiple_of(2) => {
                Some(site)
            }
            _ => {
                let turn = if best.is_some() { returns / 2 } else { returns };
                let preferred =
                    self.global.preferred_owners.of(slot).filter(|site| *site != member.own);
                let sites = member.registry.sites.iter().map(|site| site.id);
                let others = sites.filter(|site| *site != member.own && Some(*site) != preferred);
                let all: Vec<SiteId> = preferred.into_iter().chain(others).collect();
                all.get(turn as usize % all.len().max(1)).copied()
            }
        }
    }

    /// The leaders of the sites that this node has messages from, its own among them.
    pub fn leaders(&self) -> BTreeMap<SiteId, NodeId> {
        let mut leaders = self.global.routing.leaders().clone();
        if let (Some(member), Some(leader)) =
            (self.machine.membership(), self.replica.raft.leader())
        {
            leaders.insert(member.own, leader);
        }
        leaders
    }

    pub(super) fn nodes_of(&self, site: SiteId) -> Vec<NodeId> {
        let registry = self.machine.membership().map(|member| &member.registry);
        let entry = registry.and_then(|registry| registry.site(site));
        entry.map_or_else(Vec::new, |entry| entry.nodes.iter().map(|node| node.node).collect())
    }

    // ---- what comes in --------------------------------------------------------------------------

    pub(super) fn take_inter_site(
        &mut self,
        site: SiteId,
        node: NodeId,
        message: InterSiteMessage,
    ) {
        self.deployment.failure_detector.record_contact(site, self.now.monotonic);
        self.global.routing.note_contact(site, node);
        if let Some(message) = self.is_of_known_registry(site, node, message) {
            self.take_site_message(site, node, message);
        }
    }

    /// Handles a message of another site, when this node has the registry that it rests on.
    pub(super) fn take_site_message(&mut self, site: SiteId, node: NodeId, message: InterSite) {
        match message {
            InterSite::Alive(alive) => self.take_alive(site, node, alive),
            InterSite::Mirror(lag) => self.take_mirror_lag(site, lag),
            InterSite::Copies(message) => self.take_copies(site, message),
            InterSite::Forward(forward) => {
                for request in forward.requests {
                    self.take_site_request(site, node, request);
                }
            }
            InterSite::Answered(answered) => self.take_site_answers(site, node, answered),
            InterSite::Registry(gossip) => self.take_gossip(site, gossip),
            InterSite::Ring(message) => self.take_ring(site, node, message),
            InterSite::Map(message) => self.take_map_of_site(site, node, message),
            InterSite::Latencies(message) => self.take_latencies(site, node, message),
            InterSite::Causal(message) => self.take_causal(site, node, message),
        }
    }

    fn take_site_request(&mut self, site: SiteId, node: NodeId, request: ForwardedRequest) {
        let known = request.known;
        let decoded = entry::decode_request(request.request);
        let served = self.served_by(decoded.as_ref().ok());
        let id = request.id;
        let client = ClientName::of_number(request.client);
        let origin = Origin::Site { site, node, id, in_doubt: false, served, client };
        if let Err(failure) = self.session_begins(origin, request.token) {
            return self.settle(vec![(origin, Err(failure))]);
        }
        let failure = match decoded {
            Ok(request) if self.replica.removed => {
                drop(request);
                "it was removed from its site"
            }
            // It has no state by which to tell under which failover its site serves a key: it is a
            // witness, or has just come. Without that the answer of its leader would be void.
            Ok(request) if self.machine.membership().is_none() && is_about_keys(&request.body) => {
                drop(request);
                "it has no keys of its site"
            }
            Ok(request) if request.body.properties().crosses_sites => {
                let deadline =
                    request.deadline_ms.map_or(limits::REQUEST_DEADLINE, Duration::from_millis);
                let deadline = self.now.monotonic + deadline;
                let Some(slot) = served.slot.filter(|_| known.is_some()) else {
                    return self.take_any(origin, request.body, deadline);
                };
                // Routing keeps the validator beside the request.
                self.route(origin, request.body, Target::Slot(slot), deadline);
                return self.global.routing.note_requester(origin, known);
            }
            Ok(_) => "it takes no such request from another site",
            Err(_) => "its version does not know this request",
        };
        self.settle(vec![(origin, Err(Failure::NotServing(failure)))]);
    }

    fn take_site_answers(&mut self, site: SiteId, node: NodeId, answered: InterSiteAnswers) {
        let leads = answered.leader == node.0;
        let now = self.now.monotonic;
        // Unknown, or of an answer of the link's thread: none.
        let leader = Some(NodeId(answered.leader)).filter(|leader| leader.0 != 0);
        let routing = &mut self.global.routing;
        let is_led = leader.is_some_and(|leader| routing.learn_leader(site, leader, now));
        let mut settled = Vec::new();
        for answer in answered.answers {
            if !self.global.routing.is_with(answer.id, site) {
                continue;
            }
            let Some(outcome) = self.inter_site_outcome(&answer) else { continue };
            if !is_led && is_of_no_use(&outcome, leader) {
                let nodes = self.nodes_of(site);
                self.global.routing.turn_from((site, node), leader, &nodes, now);
            }
            let hint = self.hint_reported((SiteId(answer.owner), answer.known_epoch()));
            let held = HeldAnswer {
                outcome,
                served: ServedUnder {
                    failover: take_failover(answer.served),
                    borrowed: answer.borrowed,
                },
                leads,
                token: answer.token,
            };
            let held = self.global.routing.hold(answer.id, held, now);
            let Err(HeldAnswer { outcome, token, .. }) = held else { continue };
            if let Some(one) = self.global.routing.answered(answer.id, outcome, hint, now) {
                let is_unmerged = self.options.planted.is(Bug::ForwardedUnmerged);
                let token = if is_unmerged { self.session_asked(one.0) } else { token };
                self.session_answered(one.0, token);
                settled.push(one);
            }
        }
        self.settle(settled);
        self.hand_out_answers();
    }

    /// The owner that another site names for a slot that it does not hold, if that is of use.
    fn hint_reported(&self, (owner, epoch): (SiteId, Epoch)) -> Option<(SiteId, Epoch)> {
        let member = self.machine.membership();
        // Without a fact the other site redirects to the slot's preferred owner, this site; that is
        // no news here.
        let own = member.map_or(SiteId(0), |member| member.own);
        // One that is gone owns nothing; one that joined lately may not be in this registry yet.
        let registry = member.map(|member| &member.registry);
        let is_there =
            registry.is_none_or(|all| all.site(owner).is_some() || owner.0 >= all.site_next);
        (owner.0 != 0 && owner != own && is_there).then_some((owner, epoch))
    }

    /// A site answered a read that went past the core that it does not hold a slot.
    pub(super) fn receive_moved(&mut self, moved: Moved) {
        let hint = self.hint_reported(moved.owner);
        self.global.routing.not_held(moved.slot, moved.by, hint, self.now.monotonic);
    }

    /// A site has answered for a slot. If the map has another owner, or none, this site is asked
    /// from now on, until there is a fact.
    pub(super) fn learn_by_detour(&mut self, slot: Slot, site: SiteId) {
        let map = &self.global.routing.map;
        let known = map.guess(slot).or_else(|| map.fact(slot).map(|fact| fact.owner));
        if known != Some(site) {
            self.global.routing.guess(slot, site);
        }
    }

    /// By what the failover is found under which a request is served that has come from another
    /// node.
    pub(super) fn served_by(&self, request: Option<&model::Request>) -> Served {
        let (Some(request), Some(registry)) = (request, self.machine.registry()) else {
            return Served::NONE;
        };
        let slot = match target_of(&request.body, self) {
            Ok(Target::Slot(slot)) => Some(slot),
            _ => None,
        };
        let part = group_of(&request.body, self).and_then(|group| self.machine.part(&group));
        // What an unconfirmed one answers, it answers once it is confirmed.
        let serves = |part: LoanPart| matches!(part, LoanPart::Held | LoanPart::Unconfirmed);
        let lent = part.filter(|part| serves(part.borrowed.part));
        // It has followed all failovers up to this version, of the slot's owner and its own.
        let lent = lent.map(|_| registry.version);
        Served { slot, lent, by_leader: None }
    }

    /// Under which failover a request is served that is answered now.
    pub(super) fn served_under(&self, served: Served) -> ServedUnder {
        let Served { slot, lent, by_leader } = served;
        match (by_leader, lent) {
            (None, _) => {
                // Also one that is frozen since: what was done before that is done.
                let owned_at = slot.and_then(|slot| self.machine.token(slot).owned_at());
                let failover = lent.or(owned_at.map(|epoch| epoch.failover));
                let failover = failover.unwrap_or(Ballot::FIRST);
                ServedUnder { failover, borrowed: lent.is_some() }
            }
            (Some(under), None) => under,
            // A leader that has just begun may not have known of the loan as the request came.
            (Some(under), Some(lent)) => {
                let failover = if under.borrowed { under.failover.min(lent) } else { lent };
                ServedUnder { failover, borrowed: true }
            }
        }
    }

    pub(super) fn answer_site(
        &mut self,
        (site, node): (SiteId, NodeId),
        (id, served): (u64, Served),
        outcome: Result<Answer, Failure>,
        token: Option<Bytes>,
    ) {
        let ServedUnder { failover, borrowed } = self.served_under(served);
        let served = put_failover(failover);
        let hint = match &outcome {
            Err(Failure::Refused(Refusal::NotHeld(slot))) => self.owner_reported(*slot),
            _ => None,
        };
        let (owner, epoch) = hint.map_or_else(Default::default, |(site, epoch)| (site.0, epoch));
        let is_fact = epoch > GUESSED;
        let (failover, epoch) = (put_failover(epoch.failover), epoch.count);
        let outcome = entry::encode_reply(&outcome);
        let answer = InterSiteAnswer {
            id,
            outcome,
            owner,
            epoch,
            failover,
            served,
            borrowed,
            is_fact,
            token,
            ..Default::default()
        };
        self.push_answer(site, node, answer);
    }

    /// The owner of a slot that is not here, for a redirect.
    fn owner_reported(&self, slot: Slot) -> Option<(SiteId, Epoch)> {
        // One that is gone is of no use to the sender.
        let member = self.machine.membership()?;
        let is_there = |site: &SiteId| *site != member.own && member.registry.site(*site).is_some();
        let map = &self.global.routing.map;
        let guess = map.guess(slot).filter(is_there).map(|site| (site, GUESSED));
        let fact = map.fact(slot).filter(|fact| is_there(&fact.owner));
        let known = guess.or(fact.map(|fact| (fact.owner, fact.epoch)));
        // A slot without a registered owner is at its preferred one.
        known.or_else(|| Some((self.global.preferred_owners.of(slot)?, GUESSED)))
    }

    pub(super) fn push_answer(&mut self, site: SiteId, node: NodeId, answer: InterSiteAnswer) {
        self.deployment.outbox.answers.entry((site, node)).or_default().push(answer);
    }

    pub(super) fn inter_site_lost(&mut self, site: SiteId, node: NodeId) {
        self.ring_lost(site);
        // It may be connected again at once, and is not avoided.
        let lost = |lost, lost_node, _| match (lost, lost_node) == (site, node) {
            true => Contact::Lost,
            false => Contact::Recent,
        };
        self.fail_over_from(lost, false);
    }

    /// Asks others instead of those that do not answer in time. Whether a site can be reached is
    /// not decided by one request: a busy one answers late.
    pub(super) fn fail_over_from_silent(&mut self) {
        let now = self.now.monotonic;
        let lost = self.deployment.failure_detector.lost(now);
        let registry = self.machine.membership().map(|member| member.registry.clone());
        let has_left = |site| registry.as_ref().is_some_and(|registry| registry.has_left(site));
        let contact = |site, _, since| match since + TIMEOUT <= now {
            false => Contact::Recent,
            true if lost.contains(&site) || has_left(site) => Contact::Lost,
            true => Contact::Overdue,
        };
        self.fail_over_from(contact, true);
    }

    fn fail_over_from(
        &mut self,
        contact: impl Fn(SiteId, NodeId, Duration) -> Contact,
        avoids: bool,
    ) {
        let (mut settled, now) = (Vec::new(), self.now.monotonic);
        let (silent, awaited) = self.global.routing.unanswered(contact, &mut settled);
        for (site, node) in silent {
            if avoids {
                self.global.routing.avoid(site, node, now);
            }
            let nodes = self.nodes_of(site);
            self.global.routing.fail_over_from(site, node, &nodes, now);
        }
        for site in awaited {
            self.deployment.failure_detector.asked(site, self.now.monotonic);
        }
        self.settle(settled);
    }

    // ---- what goes out --------------------------------------------------------------------------

    pub(super) fn send_inter_site(&mut self, site: SiteId, node: NodeId, message: InterSite) {
        let message = Box::new(self.stamped(message));
        self.outputs.push_back(Output::SendInterSite { site, node, message });
    }

    /// Sends a message to some node of a site. One to this site is taken at once.
    pub(super) fn send_to_site(&mut self, site: SiteId, message: InterSite) {
        if self.machine.membership().is_some_and(|member| member.own == site) {
            return self.take_site_message(site, self.options.node, message);
        }
        let nodes = self.nodes_of(site);
        if let Some(node) = self.global.routing.node_of(site, &nodes) {
            self.send_inter_site(site, node, message);
        }
    }

    /// Sends it to all nodes of another site: the one that is thought to lead has not answered.
    pub(super) fn send_to_all(&mut self, site: SiteId, message: InterSite) {
        for node in self.nodes_of(site) {
            self.send_inter_site(site, node, message.clone());
        }
    }

    /// Sends what has gathered.
    pub(super) fn flush_inter_site(&mut self) {
        let leader = self.replica.raft.leader().map_or(0, |leader| leader.0);
        for ((site, node), answers) in std::mem::take(&mut self.deployment.outbox.answers) {
            for answers in in_parts(answers) {
                let answered = InterSiteAnswers { answers, leader };
                self.send_inter_site(site, node, InterSite::Answered(answered));
            }
        }
        for ((site, node), requests) in std::mem::take(&mut self.deployment.outbox.requests) {
            for requests in in_parts(requests) {
                self.send_inter_site(site, node, InterSite::Forward(Forward { requests }));
            }
        }
    }
}
