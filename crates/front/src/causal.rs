//! A client's session with causal keyspaces, as a front keeps it.
//!
//! The session is a [`CausalToken`]. It goes with each request of a causal keyspace, and the answer
//! brings it back with what was read or written on top; so the answer's token covers the request's.
//! Of requests that are on their way at the same time each begins with the same token, and the
//! session goes on with the maxima of their answers ([`Answers`]). A request that has failed
//! changes nothing.
//!
//! Clients carry tokens sealed ([`server::Handle::seal_session`]). They cannot merge two; attaching
//! one to a session that has gone on is a merge here, once the site has admitted it.
//!
//! Order within a session: a front sends no read of a causal keyspace before the session's earlier
//! requests are answered, and writes together only in an order that the log keeps. So no read is
//! answered by a state that lacks an earlier write, and no later read by an older state than an
//! earlier one.

use model::{CausalToken, KeyspaceId, Query, SessionToken};
use server::{Handle, Outcome, Reply};

/// What a session has seen and written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CausalSession {
    token: Option<CausalToken>,
    /// The token is that of another session, and no request with it has been answered here.
    is_carried: bool,
}

impl CausalSession {
    /// The session of an opened token; `None`: it is none of causal keyspaces, or of a newer
    /// version.
    pub(crate) fn of(token: &SessionToken) -> Option<CausalSession> {
        Some(CausalSession::with(Some(CausalToken::decode(token.bytes())?)))
    }

    fn with(token: Option<CausalToken>) -> CausalSession {
        CausalSession { token, is_carried: false }
    }

    /// What goes with a request: empty until the session has its first answer.
    pub(crate) fn token(&self) -> SessionToken {
        self.token.map_or_else(empty, CausalToken::into_session)
    }

    /// What its client may carry to another connection.
    pub(crate) fn carried(&self) -> SessionToken {
        self.token.unwrap_or_default().into_session()
    }

    /// Answers a query on this thread, if this node covers what the session has seen. The first
    /// read of a session asks the site, so that a client which connects again reads what was
    /// acknowledged to it.
    pub(crate) fn answer_here(
        &mut self,
        handle: &Handle,
        keyspace: KeyspaceId,
        query: &Query,
    ) -> Option<Outcome> {
        let (outcome, token) = handle.answer_in_session(keyspace, query, self.token?)?;
        *self = CausalSession::with(Some(token));
        Some(outcome)
    }

    /// Goes on after these answers.
    pub(crate) fn take(&mut self, answers: Answers) {
        if answers.0.is_some() {
            *self = CausalSession::with(answers.0);
        }
    }

    /// A session that has seen nothing goes on as another one, before the site has admitted that:
    /// each request waits for what it has seen. `false`: it has seen something.
    pub(crate) fn begin_as(&mut self, other: CausalSession) -> bool {
        let is_new = self.token.is_none_or(|token| token == CausalToken::default());
        if is_new {
            *self = CausalSession { is_carried: true, ..other };
        }
        is_new
    }

    /// Has seen what another session had, too: these are the answers to its token here. `false`,
    /// and nothing is changed, if this session's own has to be admitted here first: it is carried,
    /// and may be of another region, or of what is lost, or the two have written at different sites,
    /// as a token names one write.
    pub(crate) fn attach(&mut self, answers: &Answers) -> bool {
        let site = |token: Option<CausalToken>| Some(token?.written?.0);
        let (own, other) = (site(self.token), site(answers.0));
        let is_one_site = own.zip(other).is_none_or(|(own, other)| own == other);
        let may_attach = is_one_site && !self.is_carried;
        if may_attach {
            let mut both = Answers(self.token);
            both.add(answers.0);
            self.token = both.0;
        }
        may_attach
    }
}

/// The tokens of answers to requests that began with the same one.
#[derive(Debug, Default)]
pub(crate) struct Answers(Option<CausalToken>);

impl Answers {
    /// One more answer.
    pub(crate) fn note(&mut self, reply: &Reply) {
        if let Some(token) = &reply.token {
            self.add(CausalToken::decode(token.bytes()));
        }
    }

    /// All of them are of one site: a request that another site may carry out goes alone.
    fn add(&mut self, token: Option<CausalToken>) {
        let Some(mut all) = self.0 else { return self.0 = token };
        let Some(token) = token else { return };
        all.sees(token.seen);
        if let Some((site, revision)) = token.written {
            all.writes(site, revision);
        }
        self.0 = Some(all);
    }
}

/// The question that asks nothing: it is answered once the site covers the token beside it.
pub(crate) fn admission() -> Query {
    Query::GetMany { keys: Vec::new() }
}

fn empty() -> SessionToken {
    SessionToken::new(model::Bytes::new()).expect("it has no bytes")
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Answer, Position, RegionId, Revision, SiteId};

    fn token(seen: u64, written: Option<u64>) -> CausalToken {
        let written = written.map(|revision| (SiteId(2), Revision(revision)));
        CausalToken { region: RegionId(1), seen: Position::new(1, seen), written }
    }

    fn answers(tokens: &[Option<CausalToken>]) -> Answers {
        let mut answers = Answers::default();
        for token in tokens {
            let token = token.map(CausalToken::into_session);
            answers.note(&Reply { outcome: Ok(Answer::Done(Revision(1))), token });
        }
        answers
    }

    #[test]
    fn a_session_goes_on_with_the_maxima_of_its_answers() {
        let mut session = CausalSession::default();
        assert!(session.token().bytes().is_empty());
        session.take(answers(&[
            Some(token(3, None)),
            None,
            Some(token(1, Some(8))),
            Some(token(2, Some(7))),
        ]));
        assert_eq!(session, CausalSession::with(Some(token(3, Some(8)))));
        session.take(answers(&[None]));
        assert_eq!(
            session,
            CausalSession::with(Some(token(3, Some(8)))),
            "a failure changes nothing"
        );
        session.take(answers(&[Some(token(9, None))]));
        assert_eq!(session, CausalSession::with(Some(token(9, None))), "its write has a position");
    }

    #[test]
    fn what_is_attached_takes_nothing_away() {
        let mut session = CausalSession::with(Some(token(3, Some(8))));
        assert!(session.attach(&answers(&[Some(token(5, None))])));
        assert_eq!(session, CausalSession::with(Some(token(5, Some(8)))));
        let mut begins = CausalSession::default();
        assert!(begins.attach(&answers(&[Some(token(5, Some(1)))])));
        let elsewhere = CausalToken { written: Some((SiteId(3), Revision(9))), ..token(4, None) };
        let mut moved = CausalSession::with(Some(elsewhere));
        assert!(!moved.attach(&answers(&[Some(token(5, Some(1)))])));
        assert_eq!(moved, CausalSession::with(Some(elsewhere)), "it forgets neither write");
        assert_eq!(begins, CausalSession::with(Some(token(5, Some(1)))));
    }

    #[test]
    fn only_a_new_session_goes_on_as_another_one_at_once() {
        let other = || CausalSession::with(Some(token(5, Some(1))));
        let mut begins = CausalSession::with(Some(CausalToken::default()));
        assert!(begins.begin_as(other()));
        assert_eq!(begins.token(), other().token());
        // It may be of another region: nothing is merged with it before it is admitted.
        assert!(!begins.attach(&answers(&[Some(token(9, None))])));
        begins.take(answers(&[Some(token(6, None))]));
        assert!(begins.attach(&answers(&[Some(token(9, None))])));
        assert_eq!(begins, CausalSession::with(Some(token(9, None))));
        let mut has_seen = CausalSession::with(Some(token(3, None)));
        assert!(!has_seen.begin_as(other()));
        assert_eq!(has_seen, CausalSession::with(Some(token(3, None))));
    }

    #[test]
    fn a_session_that_has_seen_nothing_can_be_carried() {
        let carried = CausalSession::default().carried();
        assert_eq!(
            CausalSession::of(&carried),
            Some(CausalSession::with(Some(CausalToken::default())))
        );
        assert_eq!(CausalSession::of(&empty()), None);
    }
}
