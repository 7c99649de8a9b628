//! A session with causal keyspaces: what a program has read and written there, at whatever node or
//! site.

use model::Bytes;
use std::sync::Arc;
use tokio::sync::{Mutex, MutexGuard};
use tonic::metadata::{MetadataMap, MetadataValue};
use wire::grpc::SESSION_KEY;

/// A session. No read in it is answered by a state that lacks what the session has read or written
/// before.
///
/// It belongs to no client: a program that moves to another site goes on with it there
/// ([`crate::Keyspace::in_session`]), and a call waits until that site has what the session has
/// seen. Keyspaces that are not causal ignore it.
///
/// Calls of a session follow one another, also those of clones: tokens cannot be merged by clients.
/// What may happen at the same time belongs to sessions of its own.
#[derive(Clone, Debug, Default)]
pub struct Session(Arc<Mutex<Bytes>>);

impl Session {
    /// A session that has seen nothing.
    pub fn begin() -> Session {
        Session::default()
    }

    /// Goes on with the session of a token: of another process, or from PORTOLAN.TOKEN (decoded).
    pub fn of_token(token: impl Into<Bytes>) -> Session {
        Session(Arc::new(Mutex::new(token.into())))
    }

    /// Its token, once the call in progress has ended. Empty: it has seen nothing.
    pub async fn token(&self) -> Bytes {
        self.0.lock().await.clone()
    }

    /// Waits for its turn.
    pub(crate) async fn turn(&self) -> Turn<'_> {
        Turn(self.0.lock().await)
    }
}

/// One call of a session.
pub(crate) struct Turn<'a>(MutexGuard<'a, Bytes>);

impl Turn<'_> {
    pub(crate) fn write(&self, metadata: &mut MetadataMap) {
        metadata.insert_bin(SESSION_KEY, MetadataValue::from_bytes(&self.0));
    }

    /// What the session has seen so far.
    pub(crate) fn token(&self) -> &Bytes {
        &self.0
    }

    /// Goes on after an answer. One without a token is of a keyspace that keeps no sessions.
    pub(crate) fn read(&mut self, metadata: &MetadataMap) {
        let sealed = metadata.get_bin(SESSION_KEY).and_then(|value| value.to_bytes().ok());
        if let Some(sealed) = sealed {
            *self.0 = sealed;
        }
    }

    /// The same after a page of a scan.
    pub(crate) fn read_page(&mut self, sealed: Bytes) {
        if !sealed.is_empty() {
            *self.0 = sealed;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_token_goes_from_answer_to_request() {
        let session = Session::begin();
        let mut metadata = MetadataMap::new();
        session.turn().await.read(&metadata);
        assert!(session.token().await.is_empty(), "the answer had none");
        metadata.insert_bin(SESSION_KEY, MetadataValue::from_bytes(b"token"));
        session.turn().await.read(&metadata);
        session.turn().await.read_page(Bytes::new());
        let elsewhere = Session::of_token(session.token().await);
        let mut request = MetadataMap::new();
        elsewhere.turn().await.write(&mut request);
        let sent = request.get_bin(SESSION_KEY).unwrap().to_bytes().unwrap();
        assert_eq!(&sent[..], b"token");
    }
}
