//! Why a call of a roaming session failed, or its sites could not be set up.

use crate::{ConnectError, Error};

/// Why there are no [`super::Sites`].
#[derive(Debug, thiserror::Error)]
pub enum SitesError {
    /// The nodes of a site cannot be used.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The rules of roaming contradict themselves.
    #[error(
        "roaming: share lies between 0 and 1, ping_every is 10 ms at least, stay 1 s, wait 1 ms, \
         attempt_deadline and deadline 10 ms"
    )]
    Roaming,
}

/// Why a call failed. Only after [`RoamingError::Unknown`] something may have been done. The
/// session is kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RoamingError {
    /// The sites that answer have the order up to a lower position than the session has seen. Call
    /// again to wait longer, move it by hand, or begin it anew.
    #[error("no site that answers has what the session has seen, and nothing was done: {0}")]
    Behind(String),
    /// What the session wrote at the site that it came from has no place in the order yet. Call
    /// again, which goes back to that site when it answers; or begin anew, without that write.
    #[error(
        "what the session has written has no place in the order yet, and nothing was done: {0}"
    )]
    Unordered(String),
    /// The site that the session wrote at is gone for good, with that write: begin anew.
    #[error("what the session has written is lost, and nothing was done: {0}")]
    Lost(String),
    /// The token is of another deployment, another secret or a newer version: begin anew.
    #[error("the session's token cannot be used, and nothing was done: {0}")]
    BadToken(String),
    /// A write was sent and has no answer: it may have been made, or not, or may be made yet. It is
    /// not made again. If its site has it, it takes its place when that is back, over what was
    /// written meanwhile.
    #[error("the outcome is unknown: {0}; the write may or may not have been made")]
    Unknown(String),
    /// No site served it within the deadline. Nothing was done; call again.
    #[error("no site serves the session, and nothing was done: {0}")]
    NoSite(String),
    /// The session's site refuses it, as any other would. Nothing was done.
    #[error(transparent)]
    Refused(Error),
}
