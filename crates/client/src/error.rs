//! What can go wrong. The one question a caller must be able to ask is whether its write may have
//! happened: [`Error::Unknown`] means perhaps, everything else means no.

use tonic::Status;
use wire::grpc::Reason;

/// Why a client cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// There is nobody to talk to.
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
    /// No node could serve it until the deadline. Nothing was done.
    #[error("no node of the site could serve it before the deadline: {0}")]
    Unavailable(String),
    /// Too much waits already, or the disk is full. Nothing was done.
    #[error("{0}")]
    Exhausted(String),
    /// The state does not allow it. Nothing was done; it would be refused again.
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

/// What a failed attempt says about the call.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The call has its outcome.
    Final(Error),
    /// Nothing was done; another node, or the same one a little later, may do it.
    Again(String),
    /// It may have been done.
    Perhaps(String),
}

/// Judges one attempt.
pub(crate) fn judge(status: &Status) -> Verdict {
    let message = status.message().to_owned();
    let Some(reason) = Reason::of(status) else {
        return if never_sent(status) {
            Verdict::Again(message)
        } else {
            Verdict::Perhaps(message)
        };
    };
    match reason {
        Reason::UnknownOutcome => Verdict::Perhaps(message),
        Reason::NoLeader | Reason::NotServing | Reason::Overloaded | Reason::Unreachable => {
            Verdict::Again(message)
        }
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

/// Whether the connection was not even made.
fn never_sent(status: &Status) -> bool {
    let mut cause = std::error::Error::source(status);
    while let Some(error) = cause {
        if error.is::<tonic::ConnectError>() {
            return true;
        }
        cause = error.source();
    }
    false
}

impl Error {
    /// Whether this may follow an attempt whose outcome is unknown and still be the whole truth:
    /// the site itself has looked at the request and, by its id, knows whether it did it before.
    pub(crate) fn settles(&self) -> bool {
        matches!(self, Error::Refused { reason: Reason::Refused, .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_failure_that_says_so_is_harmless() {
        assert!(matches!(judge(&Reason::NoLeader.status("")), Verdict::Again(_)));
        assert!(matches!(judge(&Reason::UnknownOutcome.status("")), Verdict::Perhaps(_)));
        assert!(matches!(judge(&Status::unavailable("reset")), Verdict::Perhaps(_)));
        assert!(matches!(judge(&Status::cancelled("timeout")), Verdict::Perhaps(_)));
        let forgotten = judge(&Reason::RequestForgotten.status("old"));
        assert!(matches!(forgotten, Verdict::Final(Error::Unknown(_))));
    }
}
