//! The session of a call on a causal keyspace: its token comes and goes as metadata.
//!
//! A call without the metadata is a session that begins and ends with it. Metadata on a keyspace
//! that keeps no sessions is ignored, as a client may send it with all its calls.
//!
//! The name of the client is metadata, too ([`CLIENT_KEY`]): one connection may carry the calls of
//! many. So is that a call counts nowhere ([`UNCOUNTED_KEY`]).

use crate::causal::{Answers, CausalSession};
use model::{
    Bytes, ClientName, Failure, Keyspace, KeyspaceId, Query, SessionError, SessionToken, limits,
};
use server::users::User;
use server::{Handle, Outcome, Reply};
use std::sync::LazyLock;
use tonic::metadata::{AsciiMetadataKey, MetadataValue};
use tonic::{Request, Status};
use wire::grpc::{CLIENT_KEY, Invalid, SESSION_KEY, UNCOUNTED_KEY, status};

/// What a call has seen.
#[derive(Clone, Default)]
pub(crate) struct CallSession {
    /// `None`: its keyspace keeps no sessions.
    session: Option<CausalSession>,
    /// Whether the client wants the token back.
    is_carried: bool,
    client: ClientName,
}

impl CallSession {
    pub(crate) fn of<T>(
        request: &Request<T>,
        keyspace: &Keyspace,
        user: &User,
        handle: &Handle,
    ) -> Result<CallSession, Status> {
        let name = name_of(request)?;
        let client = match request.metadata().contains_key(&*UNCOUNTED) {
            true => ClientName::UNCOUNTED,
            false => handle.client_name(user, name),
        };
        if !keyspace.spec.is_causal() {
            return Ok(CallSession { client, ..CallSession::default() });
        }
        let sealed = request.metadata().get_bin(SESSION_KEY).map(|value| value.to_bytes());
        let is_carried = sealed.is_some();
        let sealed = sealed.transpose().map_err(|_| foreign())?.unwrap_or_default();
        let session = match sealed.is_empty() {
            true => CausalSession::default(),
            false => {
                let opened = handle.open_session(&sealed);
                opened.as_ref().and_then(CausalSession::of).ok_or_else(foreign)?
            }
        };
        Ok(CallSession { session: Some(session), is_carried, client })
    }

    /// Of what counts nowhere.
    pub(crate) fn uncounted() -> CallSession {
        CallSession { client: ClientName::UNCOUNTED, ..CallSession::default() }
    }

    /// Who calls.
    pub(crate) fn client(&self) -> ClientName {
        self.client
    }

    /// What goes with a request.
    pub(crate) fn token(&self) -> Option<SessionToken> {
        self.session.as_ref().map(CausalSession::token)
    }

    /// Answers a query on this thread, if this node covers what the session has seen.
    pub(crate) fn answer_here(
        &mut self,
        handle: &Handle,
        keyspace: KeyspaceId,
        query: &Query,
    ) -> Option<Outcome> {
        self.session.as_mut()?.answer_here(handle, keyspace, query)
    }

    /// Goes on after an answer.
    pub(crate) fn note(&mut self, reply: &Reply) {
        if let Some(session) = &mut self.session {
            let mut answers = Answers::default();
            answers.note(reply);
            session.take(answers);
        }
    }

    /// What the client carries on; `None`: it wants none.
    pub(crate) fn sealed(&self, handle: &Handle) -> Option<Bytes> {
        let session = self.session.as_ref().filter(|_| self.is_carried)?;
        handle.seal_session(&session.carried())
    }
}

/// Read once: a text is read anew for each call.
static CLIENT: LazyLock<AsciiMetadataKey> =
    LazyLock::new(|| AsciiMetadataKey::from_static(CLIENT_KEY));

static UNCOUNTED: LazyLock<AsciiMetadataKey> =
    LazyLock::new(|| AsciiMetadataKey::from_static(UNCOUNTED_KEY));

/// The name that the client of a call gives itself; empty: none.
fn name_of<T>(request: &Request<T>) -> Result<&[u8], Status> {
    let name = request.metadata().get(&*CLIENT).map_or(&[][..], MetadataValue::as_bytes);
    match name.len() <= limits::CLIENT_NAME_BYTES_MAX {
        true => Ok(name),
        false => {
            let what = format!("at most {} bytes", limits::CLIENT_NAME_BYTES_MAX);
            Err(Invalid::Value { field: CLIENT_KEY, what }.into())
        }
    }
}

fn foreign() -> Status {
    status(&Failure::Session(SessionError::Foreign))
}
