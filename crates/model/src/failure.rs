//! What comes back when it did not go well. Each text has what happened and what to do.

use crate::{KeyspaceError, Loan, NodeId, RegistryError, SessionError, SiteId, Slot, limits};

/// Why a request has no answer.
///
/// The one question a caller must be able to ask is whether its write may have happened:
/// [`Failure::Unknown`] means perhaps, everything else means no.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The request cannot be done on this state; it would be refused the same way everywhere.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The site has no leader, or this node cannot reach it. Nothing was done. Try again.
    #[error("the site has no reachable leader now; nothing was done, try again")]
    NoLeader,
    /// Too much is waiting already. Nothing was done. Slow down and try again.
    #[error("too many requests wait already ({what}); nothing was done, slow down and try again")]
    Overloaded {
        /// Which queue is full.
        what: &'static str,
    },
    /// The disk is full (or fails) on this node. Nothing was done. Reads go on.
    #[error("the disk refuses writes ({0}); nothing was done, make room and try again")]
    DiskFull(String),
    /// The deadline passed or the leader changed in between: a write may or may not be applied.
    #[error("the outcome is unknown ({why}): a write may or may not have been applied")]
    Unknown {
        /// What cut the wait.
        why: &'static str,
    },
    /// This node is stopping, or is not a member of the site any more. Nothing was done.
    #[error("this node does not serve ({0}); nothing was done, use another node of the site")]
    NotServing(&'static str),
    /// The site that holds the key cannot be reached, or is not found. Nothing was done.
    #[error("the site that holds slot {slot} cannot be reached now; nothing was done, try again")]
    Unreachable {
        /// The key's slot.
        slot: Slot,
    },
    /// The key's group is lent to a site that cannot be reached. Nothing was done.
    #[error(
        "the keys of this tag (slot {slot}) are lent to site {borrower}, which cannot be reached now; nothing was done, \
         try again"
    )]
    BorrowerUnreachable {
        /// The key's slot.
        slot: Slot,
        /// The name of the site that the group is lent to.
        borrower: String,
    },
    /// Another site holds the key, and the client asked for its name rather than an answer.
    #[error("slot {slot} is served at {address}")]
    Moved {
        /// The key's slot.
        slot: Slot,
        /// Where a client of the Redis Cluster protocol finds its owner.
        address: String,
    },
    /// The key's group is lent to another site, and the client asked for its name rather than an
    /// answer. Others of its slot are not.
    #[error("the key of slot {slot} is served at {address} for now")]
    Ask {
        /// The key's slot.
        slot: Slot,
        /// Where a client of the Redis Cluster protocol finds the borrower.
        address: String,
    },
    /// The membership cannot be changed so.
    #[error(transparent)]
    Membership(#[from] MembershipError),
    /// The session has seen what this site has not, or cannot know. Nothing was done.
    #[error(transparent)]
    Session(#[from] SessionError),
}

/// A refusal that every replica would give for this state and log time. Nothing was changed by the
/// step that was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The key holds something else.
    #[error("the key holds a value of another kind")]
    WrongType,
    /// The string (or field) is no decimal i64.
    #[error("the value is not an integer or out of range")]
    NotAnInteger,
    /// The sum does not fit an i64.
    #[error("increment or decrement would overflow")]
    Overflow,
    /// The key is too long or empty.
    #[error("a key must have at most {max} bytes; this one has {0}", max = limits::KEY_BYTES_MAX)]
    KeyTooLong(usize),
    /// The value would be too long.
    #[error(
        "a value (all fields of a hash together) must have at most {max} bytes; this one would have {0}",
        max = limits::VALUE_BYTES_MAX
    )]
    ValueTooLong(usize),
    /// There is no such keyspace.
    #[error("there is no keyspace {0}; `portolan keyspace list` shows those there are")]
    NoKeyspace(String),
    /// The keyspace cannot be made as stated.
    #[error(transparent)]
    Keyspace(#[from] KeyspaceError),
    /// A keyspace with this name or this prefix is there.
    #[error("keyspace {name:?} has this name or prefix already")]
    KeyspaceExists {
        /// The one that is there.
        name: String,
    },
    /// The default keyspace cannot be dropped.
    #[error("the default keyspace cannot be dropped")]
    DefaultKeyspace,
    /// There are too many of something.
    #[error("there are {max} {what} already; remove one first")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many there may be.
        max: usize,
    },
    /// The answer would be too long.
    #[error("an answer may carry at most {max} bytes; ask for less at once", max = limits::ANSWER_BYTES_MAX)]
    AnswerTooLong,
    /// The request's sequence lies below those that its client reported as answered, or its answer
    /// had to be forgotten.
    #[error("this request id is older than what is remembered; its first outcome is unknown")]
    RequestForgotten,
    /// The changes from there are no longer kept.
    #[error(
        "changes before revision {oldest} are no longer kept; read the state and watch from its revision"
    )]
    ChangesTrimmed {
        /// The oldest revision that can still be asked for.
        oldest: u64,
    },
    /// Keys of one request that belong to different slots of a global keyspace.
    #[error(
        "keys of one request to a global keyspace must share a slot; give them a common {{tag}}"
    )]
    CrossSlot,
    /// The slot is not served here, or not at this moment: another site is to be asked.
    #[error("slot {0} is not served by this site now")]
    NotHeld(Slot),
    /// The group of these keys is lent: its borrower is to be asked. Between sites only.
    #[error("keys of slot {slot} are lent to site {to} now")]
    Lent {
        /// The slot.
        slot: Slot,
        /// The borrower.
        to: SiteId,
        /// The loan.
        loan: Loan,
    },
    /// What a global keyspace does not do.
    #[error("a global keyspace cannot {0}")]
    NotGlobal(&'static str),
    /// What a causal keyspace does not do.
    #[error("a causal keyspace cannot {0}")]
    NotCausal(&'static str),
    /// Too much of what this site has written has no place in the region's order yet.
    #[error(
        "{0} bytes of writes wait for the region's order already: its root cannot be reached, or is slow; try again"
    )]
    Unordered(u64),
    /// This site leaves, so that what is written to its causal keys may never be ordered.
    #[error(
        "this site leaves its deployment and takes no more writes of causal keys; write at another site"
    )]
    Leaving,
    /// The registry cannot be changed so.
    #[error(transparent)]
    Registry(RegistryError),
    /// The site belongs to no deployment, or to another one.
    #[error("this site belongs to no deployment, or to another one")]
    NoDeployment,
    /// The move cannot be begun, or not be gone on with.
    #[error(transparent)]
    Move(#[from] MoveError),
    /// The mirror cannot be kept, or not be promoted.
    #[error(transparent)]
    Backup(#[from] BackupError),
}

/// Why slots cannot be moved so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MoveError {
    /// This site does not hold them, or is handing them over already.
    #[error(
        "none of these slots is this site's to give now; `portolan slot list` shows who has them"
    )]
    NotHeld,
    /// There is no site to give them to.
    #[error("the other site is not there, is leaving, or is this one")]
    NoDestination,
    /// There is no such move.
    #[error("there is no move {0}; `portolan slot list` shows those there are")]
    NoMove(u64),
    /// Too many at once.
    #[error("{max} moves are under way already; wait for one of them", max = limits::MOVES_MAX)]
    TooManyMoves,
    /// The destination will not have it.
    #[error("the destination has refused this move for ever")]
    Refused,
    /// The destination lacks something it must have first.
    #[error("the destination is not ready for this step: {0}")]
    NotReady(&'static str),
}

/// Why a backup does not do what it is asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BackupError {
    /// This site is not that one's backup, by its copy of the registry.
    #[error("the site does not keep a mirror of that one, or has not heard yet that it is to")]
    NotTheBackup,
    /// A newer mirror has begun, or the site was lost and its mirror was promoted.
    #[error("the mirror counts for nothing any more")]
    Outdated,
    /// Another site is promoted, or is about to be.
    #[error(
        "{0} is taking over from that site already; ask it by `portolan site promote --at`, or wait"
    )]
    Fenced(SiteId),
    /// It was promoted.
    #[error("{0} has taken over from that site already, which has not come back since")]
    Promoted(SiteId),
    /// It is not lost.
    #[error("{0} answers, so it is not lost; use `portolan site leave` to take its slots over")]
    Answers(SiteId),
    /// Some sites cannot be asked.
    #[error(
        "cannot be asked whether they hold slots of the lost site: {0}; bring them back, or name each with --without and read what that means first"
    )]
    Silent(String),
    /// There is less now than was reported before the failover was opened.
    #[error(
        "more would be lost than was accepted, as things have changed since the preview: nothing was taken; \
         run `portolan site promote` without --accept-loss to see what would be lost now"
    )]
    Worse,
    /// There is no backup.
    #[error("the site has no backup; name the site that is to take over with --at")]
    None,
}

/// Why a membership change was not begun.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MembershipError {
    /// One change at a time.
    #[error("another membership change is under way; wait until `portolan status` shows it done")]
    InProgress,
    /// There is no such node.
    #[error("{0} is not a member of this site")]
    NotAMember(NodeId),
    /// It is there already.
    #[error(
        "{0} is a member already: remove it first if it comes back with an empty disk, or repeat with --force"
    )]
    AlreadyAMember(NodeId),
    /// The site is full.
    #[error("a site has at most {max} nodes", max = limits::NODES_MAX)]
    TooManyNodes,
    /// No voter would be left.
    #[error("{0} is the last voter of this site and cannot be removed")]
    LastVoter(NodeId),
    /// A leader must keep state.
    #[error("{0} is a witness or a learner and cannot lead")]
    CannotLead(NodeId),
    /// It did not win the election that it was to win.
    #[error(
        "leadership was not handed to {0}: it could not be reached, or did not catch up in time; try again"
    )]
    NotHandedOver(NodeId),
    /// The site's keys are in an etcd cluster, which does what other nodes would be for.
    #[error(
        "this site keeps its keys in etcd and is served by one node: start a second process with the \
         same --site, --node and etcd settings, which waits and takes over when this one is gone"
    )]
    KeptInEtcd,
    /// Another machine has this id, and answers.
    #[error(
        "{node} is a member of this site at {address}, and answers: give this node another --node. If it \
         is to take that one's place, stop that one first, or `portolan member remove --force` it"
    )]
    IdInUse {
        /// The id.
        node: NodeId,
        /// Where the member is.
        address: String,
    },
    /// A node that can be reached is to go while another one cannot.
    #[error(
        "{node} can be reached and another voter cannot: without {node} there would be {voters} voters, of \
         whom {reachable} can be reached, {majority}. Remove the one that is lost, or bring it back \
         first; --force removes {node} all the same",
        majority = if 2 * reachable > *voters { "still a majority" } else { "no majority, and the site would stand still" }
    )]
    FewerReachable {
        /// The node that is to go.
        node: NodeId,
        /// How many voters would be left.
        voters: u64,
        /// How many of them can be reached.
        reachable: u64,
    },
}
