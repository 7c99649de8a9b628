//! Failures as gRPC statuses, and back. The table of both is at the head of `kv.proto`.

use model::{Failure, Refusal, SessionError};
use tonic::{Code, Status};

/// The metadata key of a failure's [`Reason`].
pub const FAILURE_KEY: &str = "portolan-failure";
/// The metadata key of a session's token, in requests and in answers.
pub const SESSION_KEY: &str = "portolan-session-bin";
/// The metadata key of the name of the client: the same wherever it is attached. Placement follows
/// it.
pub const CLIENT_KEY: &str = "portolan-client";
/// The metadata key of a call that may wait, with any value: it counts nowhere, and placement does
/// not follow it.
pub const UNCOUNTED_KEY: &str = "portolan-uncounted";
/// The metadata key of the site at which a numbered put of a session is tried first, of a put that
/// may be sent to several. Empty: the asked one.
pub const TRIED_KEY: &str = "portolan-tried";
/// The metadata key, beside that, of an attempt behind one that may have been made.
pub const AGAIN_KEY: &str = "portolan-again";
/// The metadata key of a failed session's [`Lack`].
pub const LACK_KEY: &str = "portolan-session-lacks";

/// A request that breaks a rule, whatever the state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// A field that must be there is not.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// A field has a value that it cannot have.
    #[error("{field}: {what}")]
    Value {
        /// Which.
        field: &'static str,
        /// What is wrong, and what would be right.
        what: String,
    },
}

/// Why a call failed, for programs: the word under [`FAILURE_KEY`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the table at the head of kv.proto explains each")]
pub enum Reason {
    UnknownOutcome,
    NoLeader,
    NotServing,
    Overloaded,
    DiskFull,
    Refused,
    NoKeyspace,
    KeyspaceExists,
    ChangesTrimmed,
    RequestForgotten,
    Membership,
    Unreachable,
    CrossSlot,
    Deployment,
    Invalid,
    Unauthenticated,
    Denied,
    /// The session has seen what the site has not.
    Session,
}

/// Every reason with its word and its status, in the order of the reasons.
const TABLE: [(Reason, &str, Code); 18] = [
    (Reason::UnknownOutcome, "unknown-outcome", Code::Unknown),
    (Reason::NoLeader, "no-leader", Code::Unavailable),
    (Reason::NotServing, "not-serving", Code::Unavailable),
    (Reason::Overloaded, "overloaded", Code::ResourceExhausted),
    (Reason::DiskFull, "disk-full", Code::ResourceExhausted),
    (Reason::Refused, "refused", Code::FailedPrecondition),
    (Reason::NoKeyspace, "no-keyspace", Code::NotFound),
    (Reason::KeyspaceExists, "keyspace-exists", Code::AlreadyExists),
    (Reason::ChangesTrimmed, "changes-trimmed", Code::OutOfRange),
    (Reason::RequestForgotten, "request-forgotten", Code::Aborted),
    (Reason::Membership, "membership", Code::FailedPrecondition),
    (Reason::Unreachable, "unreachable", Code::Unavailable),
    (Reason::CrossSlot, "cross-slot", Code::InvalidArgument),
    (Reason::Deployment, "deployment", Code::FailedPrecondition),
    (Reason::Invalid, "invalid", Code::InvalidArgument),
    (Reason::Unauthenticated, "unauthenticated", Code::Unauthenticated),
    (Reason::Denied, "denied", Code::PermissionDenied),
    (Reason::Session, "session", Code::Unavailable),
];

impl Reason {
    /// The reason of a failed call. `None`: it carries none, so it came from the connection or
    /// from a proxy, and a write's outcome is unknown.
    pub fn of(status: &Status) -> Option<Reason> {
        let word = status.metadata().get(FAILURE_KEY)?.to_str().ok()?;
        TABLE.iter().find(|(_, known, _)| *known == word).map(|(reason, ..)| *reason)
    }

    /// A status with this reason, and a sentence for people.
    pub fn status(self, message: impl Into<String>) -> Status {
        let (_, word, code) = TABLE[self as usize];
        let mut status = Status::new(code, message);
        let word = tonic::metadata::MetadataValue::from_static(word);
        status.metadata_mut().insert(FAILURE_KEY, word);
        status
    }
}

/// What a session lacks at a site, for programs: the word under [`LACK_KEY`], beside the
/// [`Reason`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// The site has the order up to a lower position than the session has seen.
    Behind,
    /// A write of the session has no place in the order yet.
    Unordered,
    /// A write of the session was lost with its site.
    Lost,
    /// The token cannot be read.
    BadToken,
}

impl Lack {
    const ALL: [(Lack, &str); 4] = [
        (Lack::Behind, "behind"),
        (Lack::Unordered, "unordered"),
        (Lack::Lost, "lost"),
        (Lack::BadToken, "bad-token"),
    ];

    /// What the session of a failed call lacks. `None`: it failed for another reason.
    pub fn of(status: &Status) -> Option<Lack> {
        if let Some(word) = status.metadata().get(LACK_KEY).and_then(|word| word.to_str().ok()) {
            return Lack::ALL.iter().find(|(_, known)| *known == word).map(|(lack, _)| *lack);
        }
        // Versions without the word distinguish less.
        (Reason::of(status) == Some(Reason::Session)).then_some(Lack::Behind)
    }

    fn of_error(error: &SessionError) -> Lack {
        match error {
            SessionError::Behind { .. } => Lack::Behind,
            SessionError::Unordered { .. } => Lack::Unordered,
            SessionError::Lost { .. } | SessionError::Ended { .. } => Lack::Lost,
            SessionError::Foreign => Lack::BadToken,
        }
    }

    /// Adds the word to a status.
    pub fn mark(self, mut status: Status) -> Status {
        let (_, word) = Lack::ALL[self as usize];
        let word = tonic::metadata::MetadataValue::from_static(word);
        status.metadata_mut().insert(LACK_KEY, word);
        status
    }
}

/// The status of a failure.
pub fn status(failure: &Failure) -> Status {
    let reason = match failure {
        Failure::Refused(refusal) => of_refusal(refusal),
        Failure::NoLeader => Reason::NoLeader,
        Failure::Overloaded { .. } => Reason::Overloaded,
        Failure::DiskFull(_) => Reason::DiskFull,
        Failure::Unknown { .. } => Reason::UnknownOutcome,
        Failure::NotServing(_) => Reason::NotServing,
        Failure::Membership(_) => Reason::Membership,
        Failure::Unreachable { .. }
        | Failure::BorrowerUnreachable { .. }
        | Failure::Moved { .. }
        | Failure::Ask { .. } => Reason::Unreachable,
        Failure::Session(SessionError::Foreign) => Reason::Invalid,
        Failure::Session(SessionError::Lost { .. } | SessionError::Ended { .. }) => Reason::Refused,
        Failure::Session(_) => Reason::Session,
    };
    let status = reason.status(failure.to_string());
    match failure {
        Failure::Session(error) => Lack::of_error(error).mark(status),
        _ => status,
    }
}

fn of_refusal(refusal: &Refusal) -> Reason {
    match refusal {
        Refusal::NoKeyspace(_) => Reason::NoKeyspace,
        Refusal::KeyspaceExists { .. } => Reason::KeyspaceExists,
        Refusal::RequestForgotten => Reason::RequestForgotten,
        Refusal::ChangesTrimmed { .. } => Reason::ChangesTrimmed,
        Refusal::Keyspace(_) | Refusal::KeyTooLong(_) | Refusal::ValueTooLong(_) => Reason::Invalid,
        Refusal::CrossSlot => Reason::CrossSlot,
        Refusal::NotHeld(_) | Refusal::Lent { .. } => Reason::Unreachable,
        Refusal::Registry(_) | Refusal::NoDeployment | Refusal::Move(_) | Refusal::Backup(_) => {
            Reason::Deployment
        }
        Refusal::NotGlobal(_) | Refusal::NotCausal(_) => Reason::Invalid,
        Refusal::Unordered(_) => Reason::Overloaded,
        Refusal::Leaving => Reason::NotServing,
        Refusal::WrongType
        | Refusal::NotAnInteger
        | Refusal::Overflow
        | Refusal::AnswerTooLong
        | Refusal::DefaultKeyspace
        | Refusal::TooMany { .. } => Reason::Refused,
    }
}

impl From<Invalid> for Status {
    fn from(invalid: Invalid) -> Status {
        Reason::Invalid.status(invalid.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_survives_the_way_over_the_wire() {
        for (at, (reason, _, code)) in TABLE.into_iter().enumerate() {
            assert_eq!(reason as usize, at, "the table is indexed by the reason");
            let status = reason.status("why");
            assert_eq!(status.code(), code);
            assert_eq!(Reason::of(&status), Some(reason));
        }
        assert_eq!(Reason::of(&Status::unavailable("connection reset")), None);
    }

    #[test]
    fn what_a_session_lacks_survives_the_way_over_the_wire() {
        for (at, (lack, _)) in Lack::ALL.into_iter().enumerate() {
            assert_eq!(lack as usize, at, "the table is indexed by it");
            assert_eq!(Lack::of(&lack.mark(Reason::Session.status("why"))), Some(lack));
        }
        let foreign = status(&Failure::Session(SessionError::Foreign));
        assert_eq!(Reason::of(&foreign), Some(Reason::Invalid), "as before there was the word");
        assert_eq!(Lack::of(&foreign), Some(Lack::BadToken));
        let of_before = Reason::Session.status("an answer of a version without the word");
        assert_eq!(Lack::of(&of_before), Some(Lack::Behind));
        assert_eq!(Lack::of(&Reason::NoLeader.status("")), None);
    }

    #[test]
    fn an_unknown_outcome_is_recognised() {
        let status = status(&Failure::Unknown { why: "the deadline passed" });
        assert_eq!(status.code(), Code::Unknown);
        assert_eq!(Reason::of(&status), Some(Reason::UnknownOutcome));
        assert!(status.message().contains("may or may not"));
    }
}
