//! What a client's session has seen, as it travels beside requests and answers.

use crate::{Bytes, Position, SiteId, limits};

/// A token of a session: what it has read and written, in the form of the mode that serves the
/// keyspace. Opaque to all but that mode. A client sends the token of its last answer; an empty one
/// begins a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionToken(Box<[u8]>);

impl SessionToken {
    /// The token with these bytes; `None`: it is longer than [`limits::SESSION_TOKEN_BYTES_MAX`].
    pub fn new(bytes: Bytes) -> Option<SessionToken> {
        (bytes.len() <= limits::SESSION_TOKEN_BYTES_MAX).then(|| SessionToken((*bytes).into()))
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Its bytes.
    pub fn into_bytes(self) -> Bytes {
        self.0.into()
    }
}

/// Why a request in a session was not carried out. Nothing was done. A client that may not wait any
/// longer goes to another site, or begins a new session, which has seen nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// The site lacks a part of the order that the session has seen.
    #[error(
        "this site has the region's order up to {have}, the session has seen {need}: \
         try again, use another site, or begin a new session"
    )]
    Behind {
        /// Where the site is.
        have: Position,
        /// Where it must be.
        need: Position,
    },
    /// A write that the session has made or seen at another site has no position yet, as far as is
    /// known here.
    #[error(
        "what the session has written at {site} is not in the region's order yet: \
         try again, go back to that site, or begin a new session"
    )]
    Unordered {
        /// That site.
        site: SiteId,
    },
    /// The site that the session wrote at is gone, and the write was not in the order then.
    #[error("what the session has written at {site} was lost with that site: begin a new session")]
    Lost {
        /// That site.
        site: SiteId,
    },
    /// The session has seen a part of the region's order that was lost with its root.
    #[error(
        "the session has seen the region's order up to {need}, and what comes after {have} was lost with the \
         region's root: begin a new session"
    )]
    Ended {
        /// The last position that is kept.
        have: Position,
        /// What the session has seen.
        need: Position,
    },
    /// The token is no token of this deployment's region, or of a newer version.
    #[error(
        "this is no token of a session of this deployment, or of a newer version or another secret: begin a \
         new session"
    )]
    Foreign,
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
