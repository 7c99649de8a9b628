//! Errors of calls. A caller must be able to find out whether its write may have been applied:
//! [`Error::Unknown`] means that it may have been, every other error means that it was not.

use crate::connection::NoConnection;
use model::limits;
use tonic::{Code, Status};
use wire::grpc::Reason;

/// Why a client cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The list of nodes is empty.
    #[error("no node was given; name at least one gRPC port, like 127.0.0.1:7380")]
    NoNode,
    /// An address cannot be used.
    #[error("{address:?} is no address of a gRPC port; use host:port, like 127.0.0.1:7380")]
    Address {
        /// The address.
        address: String,
    },
    /// The credentials cannot be sent.
    #[error("a user's name must not have a colon")]
    Credentials,
    /// The name cannot be sent.
    #[error(
        "a client's name has 1 to {} printable ASCII characters",
        limits::CLIENT_NAME_BYTES_MAX
    )]
    Name,
    /// Certificates or key cannot be used.
    #[error("TLS cannot be set up: {0}")]
    Tls(String),
}

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A write may or may not have been applied. Read before writing again.
    #[error("the outcome is unknown: {0}; the write may or may not have been applied")]
    Unknown(String),
    /// No node could serve the call before the deadline, or no address belongs to a node. Nothing
    /// was done.
    #[error("no node of the site could serve it, and nothing was done: {0}")]
    Unavailable(String),
    /// Too many requests wait already, or the disk is full. Nothing was done.
    #[error("{0}")]
    Exhausted(String),
    /// The state does not allow it. Nothing was done; a repetition would be refused again.
    #[error("{message}")]
    Refused {
        /// For programs.
        reason: Reason,
        /// For people.
        message: String,
    },
    /// The request breaks a rule. Nothing was done.
    #[error("{0}")]
    Invalid(String),
    /// No or wrong credentials. Nothing was done.
    #[error("not let in: {0}")]
    Unauthenticated(String),
    /// The user lacks the right. Nothing was done.
    #[error("not allowed: {0}")]
    Denied(String),
}

/// What a failed attempt means for the call.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The call has its outcome.
    Final(Error),
    /// Nothing was done; another node, or the same one later, may succeed.
    Again(String),
    /// Nothing was done: the server at this address is not a node.
    NoNode(String),
    /// The attempt may have taken effect.
    Perhaps(String),
}

/// Evaluates one attempt.
pub(crate) fn judge(status: &Status) -> Verdict {
    let Some(reason) = Reason::of(status) else { return without_reason(status) };
    let message = status.message().to_owned();
    match reason {
        Reason::UnknownOutcome => Verdict::Perhaps(message),
        Reason::NoLeader
        | Reason::NotServing
        | Reason::Overloaded
        | Reason::Unreachable
        | Reason::Session => Verdict::Again(message),
        Reason::DiskFull => Verdict::Final(Error::Exhausted(message)),
        Reason::RequestForgotten => Verdict::Final(Error::Unknown(message)),
        Reason::Invalid | Reason::CrossSlot => Verdict::Final(Error::Invalid(message)),
        Reason::Unauthenticated => Verdict::Final(Error::Unauthenticated(message)),
        Reason::Denied => Verdict::Final(Error::Denied(message)),
        Reason::Refused
        | Reason::NoKeyspace
        | Reason::KeyspaceExists
        | Reason::ChangesTrimmed
        | Reason::Deployment
        | Reason::Membership => Verdict::Final(Error::Refused { reason, message }),
    }
}

/// Evaluates a status without a node's reason.
fn without_reason(status: &Status) -> Verdict {
    let (mut why, mut never_sent) = (status.message().to_owned(), false);
    let mut cause = std::error::Error::source(status);
    if status.code() == Code::Unimplemented {
        // Not a node's answer, or that of a node without this call: an HTTP port sends it too.
        return Verdict::NoNode(
            "it does not know this call: another port, or another version".into(),
        );
    }
    while let Some(error) = cause {
        if let Some(NoConnection::NotGrpc(_)) = error.downcast_ref() {
            return Verdict::NoNode(error.to_string());
        }
        never_sent |= error.is::<tonic::ConnectError>() || is_late_connect(error);
        why = error.to_string();
        cause = error.source();
    }
    if never_sent { Verdict::Again(why) } else { Verdict::Perhaps(why) }
}

/// Whether this is the transport's error for a connection that took too long to make.
fn is_late_connect(error: &(dyn std::error::Error + 'static)) -> bool {
    let inner = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
    inner.is_some_and(|inner| inner.is::<tokio::time::error::Elapsed>())
}

impl Error {
    /// Whether this error is certain even after an attempt with an unknown outcome: the site has
    /// checked the request, and its id shows whether it was applied before. That does not hold for
    /// a session that the site cannot admit (`Lack`), which is refused before the id is read.
    pub(crate) fn settles(&self) -> bool {
        matches!(self, Error::Refused { reason: Reason::Refused, .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_failure_marked_so_is_harmless() {
        assert!(matches!(judge(&Reason::NoLeader.status("")), Verdict::Again(_)));
        assert!(matches!(judge(&Reason::UnknownOutcome.status("")), Verdict::Perhaps(_)));
        assert!(matches!(judge(&Status::unavailable("reset")), Verdict::Perhaps(_)));
        assert!(matches!(judge(&Status::cancelled("timeout")), Verdict::Perhaps(_)));
        assert!(matches!(judge(&Status::unimplemented("404")), Verdict::NoNode(_)));
        let forgotten = judge(&Reason::RequestForgotten.status("old"));
        assert!(matches!(forgotten, Verdict::Final(Error::Unknown(_))));
    }
}
