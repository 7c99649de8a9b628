//! The tokens of clients' sessions, beside the requests and answers that they belong to.
//!
//! Requests are kept in many places on their way: among the writes, the reads, what is forwarded,
//! what is routed. None of them looks at a token, so it stands here from the request's arrival to
//! its answer, under the origin of both. A request of no session has no place here, and costs
//! nothing.
//!
//! Left out on purpose: what a token means. A mode finds that of a request by [`Sessions::asked`],
//! and gives that of its answer by [`Sessions::answered`].
//!
//! There is no limit of its own: each place belongs to a request that waits, and those are limited.

use super::Site;
use crate::origin::{Origin, Ticket};
use model::{Bytes, Failure, NodeId, SessionToken, SiteId};
use std::collections::BTreeMap;
use storage::log::LogReader;
use storage::snapshot::Snapshots;
use storage::state::State;

/// The sender of a request, and its name for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Requester {
    Client(Ticket),
    Node(NodeId, u64),
    Site(SiteId, NodeId, u64),
}

impl Requester {
    fn of(origin: Origin) -> Option<Requester> {
        match origin {
            Origin::Client { ticket, .. } | Origin::Doubtful(ticket) => {
                Some(Requester::Client(ticket))
            }
            Origin::Node { node, id, .. } => Some(Requester::Node(node, id)),
            Origin::Site { site, node, id, .. } => Some(Requester::Site(site, node, id)),
            Origin::Routed { .. } | Origin::Job { .. } | Origin::Registrar(_) | Origin::Discard => {
                None
            }
        }
    }
}

#[derive(Debug)]
struct Waiting {
    /// As it came.
    came: SessionToken,
    /// What it stands for at this node, once that is found.
    here: Option<SessionToken>,
    answered: Option<SessionToken>,
    /// It is a write to a keyspace of a mode with sessions.
    writes: bool,
    /// Another site may send a request again while the first one waits.
    times: u32,
}

/// The sessions of requests that wait at this node.
#[derive(Debug, Default)]
pub(crate) struct Sessions(BTreeMap<Requester, Waiting>);

impl Sessions {
    /// A request has come, with this token.
    pub(crate) fn begin(&mut self, origin: Origin, token: Option<SessionToken>) {
        if let (Some(asked), Some(requester)) = (token, Requester::of(origin)) {
            let (came, here, answered) = (asked, None, None);
            let new = Waiting { came, here, answered, writes: false, times: 0 };
            self.0.entry(requester).or_insert(new).times += 1;
        }
    }

    /// How many requests wait.
    pub(crate) fn waiting(&self) -> usize {
        self.0.len()
    }

    /// The token of a request: with which it came, or what that stands for here.
    pub(crate) fn asked(&self, origin: Origin) -> Option<&SessionToken> {
        let waiting = self.0.get(&Requester::of(origin)?)?;
        Some(waiting.here.as_ref().unwrap_or(&waiting.came))
    }

    /// The token that goes along with a request to another node: with which it came. What that
    /// stands for at this node may be void at the other one.
    pub(crate) fn came(&self, origin: Origin) -> Option<&SessionToken> {
        self.0.get(&Requester::of(origin)?).map(|waiting| &waiting.came)
    }

    /// A request is a write that its mode has a token for, once it is applied.
    pub(crate) fn writes(&mut self, origin: Origin) {
        if let Some(waiting) =
            Requester::of(origin).and_then(|requester| self.0.get_mut(&requester))
        {
            waiting.writes = true;
        }
    }

    /// Whether it is.
    pub(crate) fn is_write(&self, origin: Origin) -> bool {
        Requester::of(origin)
            .and_then(|requester| self.0.get(&requester))
            .is_some_and(|one| one.writes)
    }

    /// The token of a request is another one at this node from here on: the mode has found what it
    /// stands for.
    pub(crate) fn follow(&mut self, origin: Origin, token: SessionToken) {
        if let Some(waiting) =
            Requester::of(origin).and_then(|requester| self.0.get_mut(&requester))
        {
            waiting.here = Some(token);
        }
    }

    /// The token of a request's answer. `None`: the answer has none, or does not count.
    pub(crate) fn answered(&mut self, origin: Origin, token: Option<SessionToken>) {
        if let Some(waiting) =
            Requester::of(origin).and_then(|requester| self.0.get_mut(&requester))
        {
            waiting.answered = token;
        }
    }

    /// A request is answered: the token that goes with the answer.
    pub(crate) fn end(&mut self, origin: Origin) -> Option<SessionToken> {
        let requester = Requester::of(origin).filter(|_| !self.0.is_empty())?;
        let waiting = self.0.get_mut(&requester)?;
        waiting.times -= 1;
        match waiting.times {
            0 => self.0.remove(&requester)?.answered,
            _ => waiting.answered.clone(),
        }
    }
}

impl<S: State, R: LogReader, N: Snapshots> Site<S, R, N> {
    /// A request of another node has come, with this token.
    pub(super) fn session_begins(
        &mut self,
        origin: Origin,
        token: Option<Bytes>,
    ) -> Result<(), Failure> {
        let Some(token) = token else { return Ok(()) };
        let too_long = Failure::NotServing("the token of the session is too long");
        self.sessions.begin(origin, Some(SessionToken::new(token).ok_or(too_long)?));
        Ok(())
    }

    /// Another node's answer to a request brings this token.
    pub(super) fn session_answered(&mut self, origin: Origin, token: Option<Bytes>) {
        let requester = self.global.routing.requester(origin);
        self.sessions.answered(requester, token.and_then(SessionToken::new));
    }

    /// The token that goes along with a request to another node.
    pub(super) fn session_asked(&self, origin: Origin) -> Option<Bytes> {
        self.sessions
            .came(self.global.routing.requester(origin))
            .map(|token| Bytes::copy_from_slice(token.bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::origin::Served;

    fn token(text: &'static str) -> Option<SessionToken> {
        SessionToken::new(text.into())
    }

    #[test]
    fn an_answer_has_a_token_only_if_its_request_has() {
        let mut sessions = Sessions::default();
        let (with, without) = (Origin::client(Ticket(1)), Origin::client(Ticket(2)));
        sessions.begin(with, token("a"));
        sessions.begin(without, None);
        for origin in [with, without] {
            sessions.answered(origin, token("b"));
        }
        assert_eq!(sessions.asked(with.in_doubt()), token("a").as_ref());
        assert_eq!((sessions.end(with.in_doubt()), sessions.end(without)), (token("b"), None));
        assert!(sessions.0.is_empty());
    }

    #[test]
    fn a_request_goes_on_with_the_token_with_which_it_came() {
        let mut sessions = Sessions::default();
        let origin = Origin::client(Ticket(1));
        sessions.begin(origin, token("a"));
        sessions.follow(origin, token("b").expect("a short one"));
        assert_eq!(sessions.asked(origin), token("b").as_ref());
        assert_eq!(sessions.came(origin), token("a").as_ref());
    }

    #[test]
    fn a_request_that_came_twice_has_its_token_until_the_last_answer() {
        let mut sessions = Sessions::default();
        let (site, node, id) = (SiteId(1), NodeId(2), 3);
        let (served, client) = (Served::NONE, model::ClientName::NONE);
        let origin = Origin::Site { site, node, id, in_doubt: false, served, client };
        sessions.begin(origin, token("a"));
        sessions.begin(origin, token("a"));
        sessions.answered(origin, token("b"));
        assert_eq!(sessions.end(origin), token("b"));
        assert_eq!(sessions.asked(origin), token("a").as_ref());
        // What answers the second one has no token.
        sessions.answered(origin, None);
        assert_eq!(sessions.end(origin), None);
        assert!(sessions.0.is_empty());
    }
}
