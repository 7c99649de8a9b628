//! What a client's session has seen, as it travels beside requests and answers.

use crate::{Bytes, limits};

/// A token of a session: what it has read and written, in the form of the mode that serves the keyspace.
/// Opaque to all but that mode. A client sends the token of its last answer; an empty one begins a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionToken(Bytes);

impl SessionToken {
    /// The token with these bytes; `None`: it is longer than [`limits::SESSION_TOKEN_BYTES_MAX`].
    pub fn new(bytes: Bytes) -> Option<SessionToken> {
        (bytes.len() <= limits::SESSION_TOKEN_BYTES_MAX).then_some(SessionToken(bytes))
    }

    /// Its bytes.
    pub fn bytes(&self) -> &Bytes {
        &self.0
    }

    /// Its bytes.
    pub fn into_bytes(self) -> Bytes {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_has_a_limit() {
        let of = |length| SessionToken::new(Bytes::from(vec![0; length]));
        assert!(of(0).is_some() && of(limits::SESSION_TOKEN_BYTES_MAX).is_some());
        assert_eq!(of(limits::SESSION_TOKEN_BYTES_MAX + 1), None);
    }
}
