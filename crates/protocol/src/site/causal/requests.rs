//! Requests of sessions: admitted by their token, or waiting here until the state has what it
//! names.

use super::{Asked, Shown, UNRELEASED, inter_site, released};
use crate::admission::Target;
use crate::bugs::Bug;
use crate::causal::admission::{Admission, Here, resolve_here};
use crate::origin::Origin;
use crate::site::Site;
use crate::site::interest::Missing;
use model::{
    Body, CausalCommand, CausalToken, Command, Failure, KeyspaceId, KeyspaceSpec, Position,
    ReadConsistency, RegionId, SessionError, limits,
};
use std::time::Duration;
use storage::log::LogReader;
use storage::snapshot::Snapshots;
use storage::state::State;
use wire::causal::CausalStep;
use wire::peer::{Content, OrderAwaited};

const IN_NO_REGION: Failure = Failure::NotServing("its site is in no region");

/// Of a retry: the first attempt has no place up to what its session had seen, by the token with
/// which it came first. What that stands for later may lie behind the attempt.
fn note_since(body: &mut Body, seen: Position) {
    if let Body::Write(Command::Causal(CausalCommand::Retry { since, .. })) = body
        && *since == UNKNOWN
    {
        *since = seen.max(Position(UNKNOWN.0 + 1));
    }
}

/// What a client's retry comes with.
const UNKNOWN: Position = Position(0);

impl<S: State, R: LogReader, N: Snapshots> Site<S, R, N> {
    /// Whether a keyspace's writes are ordered by a region.
    pub(in crate::site) fn is_causal(&self, keyspace: KeyspaceId) -> bool {
        self.machine.spec(keyspace).is_some_and(KeyspaceSpec::is_causal)
    }

    /// The causal keyspace that a request is about.
    pub(in crate::site) fn causal_keyspace(&self, body: &Body) -> Option<KeyspaceId> {
        let keyspace = match body {
            Body::Write(Command::Causal(
                CausalCommand::Clear { keyspace }
                | CausalCommand::Numbered { keyspace, .. }
                | CausalCommand::Retry { keyspace, .. },
            )) => Some(*keyspace),
            other => other.keyspace(),
        };
        keyspace.filter(|keyspace| self.is_causal(*keyspace))
    }

    fn causal_here(&self) -> Option<Here> {
        let member = self.machine.membership()?;
        let region = self.machine.region()?;
        let (own, applied) = (member.own, self.machine.causal().applied());
        let is_planted = self.options.planted.is(Bug::RebuiltUnchecked);
        let (region, rebuilt) = (region.id, region.rebuilt.filter(|_| !is_planted));
        let released = released(&self.machine);
        let lacks_own = self.machine.causal().lacks_own();
        let mut others = [RegionId(0); limits::REGIONS_MAX];
        let all = member.registry.regions.iter().map(|one| one.id).filter(|id| *id != region);
        others.iter_mut().zip(all).for_each(|(other, id)| *other = id);
        let revision = self.machine.revision();
        Some(Here { region, others, own, applied, released, revision, rebuilt, lacks_own })
    }

    /// A keyspace is to be cleared: the root does that, under the token of the request.
    pub(in crate::site) fn take_clear(
        &mut self,
        origin: Origin,
        keyspace: KeyspaceId,
        deadline: Duration,
    ) {
        let body = Body::Write(Command::Causal(CausalCommand::Clear { keyspace }));
        self.take_at_root(origin, body, deadline);
    }

    /// What the root alone does goes there, under the token of the request. While the root moves it
    /// waits for the next one.
    pub(in crate::site) fn take_at_root(&mut self, origin: Origin, body: Body, deadline: Duration) {
        let root = self.machine.region().map(|region| region.root);
        match root {
            Some(root) if self.machine.moves_root() => {
                self.route_later(origin, body, Target::Site(root), deadline)
            }
            Some(root) if !self.machine.is_root() => {
                self.take(origin, body, Target::Site(root), deadline);
            }
            _ => self.take_in_session(origin, body, deadline),
        }
    }

    /// A write is to be made in the place of a site that did not answer: the root does that, under
    /// the token of the request. If that is this site and it has a record of the write, it answers
    /// by itself, also while the root is away.
    pub(in crate::site) fn take_retry(&mut self, origin: Origin, body: Body, deadline: Duration) {
        if let Some(first) = self.own_attempt(&body) {
            return self.take_in_session(origin, first, deadline);
        }
        self.take_at_root(origin, body, deadline);
    }

    /// The first attempt of a retry, if this site was asked first and has made it.
    fn own_attempt(&self, body: &Body) -> Option<Body> {
        let Body::Write(Command::Causal(CausalCommand::Retry {
            request,
            tried,
            keyspace,
            pairs,
            ..
        })) = body
        else {
            return None;
        };
        let is_own = self.machine.membership().is_some_and(|member| member.own == *tried);
        let is_made = is_own && self.machine.causal().has_made(request);
        let (request, keyspace, pairs) = (*request, *keyspace, pairs.clone());
        is_made.then_some(Body::Write(Command::Causal(CausalCommand::Numbered {
            request,
            keyspace,
            pairs,
        })))
    }

    /// A request of a causal keyspace has come to this node.
    pub(in crate::site) fn take_in_session(
        &mut self,
        origin: Origin,
        mut body: Body,
        deadline: Duration,
    ) {
        match self.missing(&body) {
            Missing::Nothing => {}
            Missing::Keyspace(miss) => return self.take_elsewhere(origin, body, miss, deadline),
            Missing::Keys(keys) if self.machine.region().is_some() => {
                return self.fetch_first(origin, body, keys, deadline);
            }
            Missing::Keys(_) => {}
        }
        let Some(here) = self.causal_here() else {
            return self.settle(vec![(origin, Err(IN_NO_REGION))]);
        };
        // A request that waited here comes again: what its token stood for may be void by now.
        let came = self.sessions.came(origin);
        let token = match came.map(CausalToken::of_session) {
            None => None,
            Some(None) => {
                return self.settle(vec![(origin, Err(SessionError::Foreign.into()))]);
            }
            Some(Some(token)) => Some(token).filter(|token| *token != CausalToken::default()),
        };
        let Some(mut token) = token else {
            // The session begins: it is served as one of this site alone.
            return self.take(origin, body, Target::Own, deadline);
        };
        // Of another region's places nothing follows here.
        let is_of_here = token.region == here.region;
        note_since(&mut body, if is_of_here { token.seen } else { Position(0) });
        resolve_here(&mut token, &here, &|site| self.machine.causal().ordered_of(site));
        match self.causal.requests.admit(&token, &here) {
            Admission::Served => self.serve_session(origin, body, token, deadline),
            Admission::Refused(error) => self.settle(vec![(origin, Err(error.into()))]),
            Admission::Waits | Admission::Resolves(_) => {
                let bytes = body.properties().size_bytes;
                let asked = (Asked { origin, body, deadline }, bytes);
                if self.causal.requests.push(asked, token, deadline, &here).is_err() {
                    let failure = Failure::Overloaded { what: "requests of sessions" };
                    return self.settle(vec![(origin, Err(failure))]);
                }
                self.ask_positions();
            }
        }
    }

    /// Whether a request that another node passes on is of a session, so that its token counts
    /// here; or needs keys that may have been evicted since.
    pub(in crate::site) fn is_of_session(&self, origin: Origin, body: &Body) -> bool {
        let is_planted = self.options.planted.is(Bug::ForwardUnadmitted);
        let Some(keyspace) = self.causal_keyspace(body).filter(|_| !is_planted) else {
            return false;
        };
        self.sessions.asked(origin).is_some() || self.is_on_demand(keyspace)
    }

    /// The node has what a request's session has seen.
    fn serve_session(
        &mut self,
        origin: Origin,
        body: Body,
        mut token: CausalToken,
        deadline: Duration,
    ) {
        let region = self.machine.causal().region();
        if token.region != region {
            // It has seen nothing there that is not here.
            token = CausalToken { region, ..CausalToken::default() };
        }
        self.sessions.follow(origin, token.into_session());
        let body = match body {
            Body::Read { keyspace, query, .. } => {
                Body::Read { keyspace, query, consistency: ReadConsistency::Stale }
            }
            body => body,
        };
        self.take(origin, body, Target::Own, deadline);
    }

    /// Asks roots for positions that requests wait for. A node that does not answer is down, or a
    /// witness: then all are asked.
    pub(super) fn ask_positions(&mut self) {
        let Some(member) = self.machine.membership() else { return };
        let (own, registry) = (member.own, member.registry.clone());
        for (of, question, again) in self.causal.requests.take_questions(self.now.monotonic) {
            let Some(root) = registry.region(of).map(|region| region.root) else { continue };
            let question = inter_site(CausalStep::Resolve(question));
            match again && root != own {
                true => self.send_to_all(root, question),
                false => self.send_to_site(root, question),
            }
        }
    }

    /// Serves what waited for the state to move on, and answers other sites' questions.
    pub(in crate::site) fn admit_sessions(&mut self) {
        let Some(here) = self.causal_here() else { return self.end_what_waits() };
        let (now, shown) = (self.now.monotonic, Shown::of(&self.machine));
        let released = released(&self.machine);
        let member = self.machine.membership();
        let is_lost = |id, seen| {
            let region = member.and_then(|member| member.registry.region(id));
            region.is_some_and(|region| region.lacks(seen))
        };
        for (requester, answer) in self.causal.questions.poll(now, &shown, released, is_lost) {
            self.send_to_requester(requester, answer);
        }
        let clears = self.causal.clears.take(released, now).into_iter();
        let settled = clears.map(|((origin, outcome), is_released)| match is_released {
            true => (origin, outcome),
            false => (origin, Err(UNRELEASED)),
        });
        let settled: Vec<_> = settled.collect();
        self.settle(settled);
        let lost = self.causal.requests.take_lost(&here);
        self.refuse_sessions(lost);
        let ordered_of = |site| self.machine.causal().ordered_of(site);
        for (asked, token) in self.causal.requests.take_admitted(&here, ordered_of) {
            let Asked { origin, body, deadline } = asked;
            // What was held when it came may have been evicted while it waited.
            if let Missing::Keys(keys) = self.missing(&body) {
                self.go_on_without(origin, body, keys, deadline);
                continue;
            }
            self.serve_session(origin, body, token, deadline);
        }
        self.admit_fetched();
    }

    /// The site has left, or was: nothing that waits here comes any more.
    fn end_what_waits(&mut self) {
        let clears = self.causal.clears.take_all().into_iter();
        let clears = clears.map(|(origin, _)| (origin, Err(UNRELEASED)));
        let requests = self.causal.requests.take_all().into_iter().map(|asked| asked.origin);
        let fetching = self.causal.fetching.take_all().into_iter();
        let refused = requests.chain(fetching).map(|origin| (origin, Err(IN_NO_REGION)));
        let settled: Vec<_> = clears.chain(refused).collect();
        if !settled.is_empty() {
            self.settle(settled);
        }
    }

    /// What a tick brings: requests end at their deadline, and questions are repeated.
    pub(in crate::site) fn tick_causal(&mut self) {
        let Some(here) = self.causal_here() else { return };
        let late = self.causal.requests.give_up(self.now.monotonic, &here);
        self.refuse_sessions(late);
        self.causal.requests.ask_of_written(here.region);
        self.ask_positions();
        self.await_order(&here);
        self.want_again();
    }

    /// The site's leader learns for how much of the order sessions wait here.
    fn await_order(&mut self, here: &Here) {
        let Some(upto) = self.causal.requests.awaited(here) else { return };
        match self.replica.raft.leader() {
            _ if self.leads() => self.jobs.import.awaited(upto, self.now.monotonic),
            Some(leader) => self.send(leader, Content::OrderAwaited(OrderAwaited { upto: upto.0 })),
            None => {}
        }
    }

    pub(super) fn refuse_sessions(&mut self, refused: Vec<(Asked, SessionError)>) {
        let refused = refused.into_iter();
        let settled = refused.map(|(asked, error)| (asked.origin, Err(Failure::Session(error))));
        let settled: Vec<_> = settled.collect();
        if !settled.is_empty() {
            self.settle(settled);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{ClientId, RequestId, SiteId};

    /// It comes with its token, and again at the leader with what that stands for.
    #[test]
    fn a_retry_is_bounded_by_the_token_with_which_it_came() {
        let noted = |seen: [u64; 2]| {
            let request = RequestId { client: ClientId(9), sequence: 1, acknowledged_below: 0 };
            let (tried, since) = (SiteId(2), UNKNOWN);
            let (keyspace, pairs) = (KeyspaceId(1), Vec::new());
            let retry = CausalCommand::Retry { request, tried, since, keyspace, pairs };
            let mut body = Body::Write(Command::Causal(retry));
            seen.iter().for_each(|seen| note_since(&mut body, Position(*seen)));
            let Body::Write(Command::Causal(CausalCommand::Retry { since, .. })) = body else {
                panic!("{body:?}")
            };
            since.0
        };
        assert_eq!(noted([40, 50]), 40);
        assert_eq!(noted([0, 50]), 1, "it had seen nothing");
    }
}
