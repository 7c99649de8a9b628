//! What enters the log: everything that must survive.
//!
//! The machine's own commands are here, those of the deployment and of each mode in a file of their
//! own. A family has two things beside its enum: what a command's [`Properties`] are, and how traces
//! write it.

#![expect(
    missing_docs,
    reason = "a variant's doc speaks of its fields; their names state the rest"
)]

mod causal;
mod deployment;
mod global;

pub use causal::{
    CausalCommand, LastOrdered, OpenRetry, Resync, ResyncItem, RootStep, StandbyStep,
};
pub use deployment::{DeploymentCommand, RegistrarStep};
pub use global::{GlobalCommand, Lending, SourceStep};

use crate::{Bytes, Epoch, KeyspaceId, KeyspaceSpec, Query, RequestId, Revision};
use std::fmt;

/// One command of a site's replicated log. Applying it is deterministic: its outcome depends on
/// the state, on log time and on nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// A write to one keyspace.
    Write {
        /// Where.
        keyspace: KeyspaceId,
        /// What.
        write: Write,
        /// For writes that may be sent again.
        request: Option<RequestId>,
    },
    /// Several steps at one moment, or none of them: when a guard fails nothing is done. A step
    /// that is refused (a wrong type, say) does not undo the others, as in Redis.
    Transaction {
        /// Where all of it happens.
        keyspace: KeyspaceId,
        /// What must still hold.
        guards: Vec<Guard>,
        /// What is done, in order.
        steps: Vec<Step>,
        /// For transactions that may be sent again.
        request: Option<RequestId>,
    },
    /// Removes every key of every keyspace (FLUSHALL), but of causal ones: [`Write::Clear`] clears
    /// each of those. The keyspaces stay.
    ClearAll,
    /// Makes a keyspace. Its id is the next free one. [`crate::Answer::Keyspace`].
    CreateKeyspace(KeyspaceSpec),
    /// Removes a keyspace with all it holds. The default one stays.
    DropKeyspace { name: String },
    /// Moves a consumer's durable cursor, or makes it: from now on the keyspace's changes are kept
    /// for it. The position never moves back.
    SetCursor { name: String, keyspace: KeyspaceId, position: Revision },
    /// Forgets a consumer.
    DropCursor { name: String, keyspace: KeyspaceId },
    /// Nothing but the time: removes what has expired and trims what is not needed any more.
    Tick,
    /// Of the site's place in its deployment.
    Deployment(DeploymentCommand),
    /// Of the mode of linearizable keys of scope global.
    Global(GlobalCommand),
    /// Of the mode of causal keys.
    Causal(CausalCommand),
}

impl From<DeploymentCommand> for Command {
    fn from(command: DeploymentCommand) -> Command {
        Command::Deployment(command)
    }
}

impl From<GlobalCommand> for Command {
    fn from(command: GlobalCommand) -> Command {
        Command::Global(command)
    }
}

impl From<CausalCommand> for Command {
    fn from(command: CausalCommand) -> Command {
        Command::Causal(command)
    }
}

/// What others than the state machine need to know of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Properties {
    /// Whether applying it twice is the same as applying it once: it bears a number, or names all
    /// that it changes.
    pub is_repeatable: bool,
    /// Whether another site may send it.
    pub crosses_sites: bool,
    /// About how much memory it takes, for limits.
    pub size_bytes: usize,
}

impl Properties {
    /// What a command takes beside what it carries.
    const OVERHEAD_BYTES: usize = 64;

    /// Of a command that carries nothing large.
    const fn new(is_repeatable: bool, crosses_sites: bool) -> Properties {
        Properties { is_repeatable, crosses_sites, size_bytes: Properties::OVERHEAD_BYTES }
    }

    /// The same for a command that carries so much.
    const fn carrying(mut self, bytes: usize) -> Properties {
        self.size_bytes += bytes;
        self
    }
}

impl Command {
    /// The number that it bears, if it bears one.
    pub fn request_id(&self) -> Option<RequestId> {
        match self {
            Command::Write { request, .. } | Command::Transaction { request, .. } => *request,
            _ => None,
        }
    }

    /// What others than the state machine need to know of it.
    pub fn properties(&self) -> Properties {
        match self {
            Command::Write { write, request, .. } => {
                Properties::new(request.is_some(), true).carrying(write.payload_bytes())
            }
            Command::Transaction { steps, request, .. } => {
                let of_step = |step: &Step| match step {
                    Step::Write(write) => Properties::OVERHEAD_BYTES + write.payload_bytes(),
                    Step::Read(_) | Step::ReadIn { .. } => Properties::OVERHEAD_BYTES,
                };
                Properties::new(request.is_some(), true).carrying(steps.iter().map(of_step).sum())
            }
            Command::CreateKeyspace(_) | Command::DropKeyspace { .. } => {
                Properties::new(false, true)
            }
            Command::ClearAll | Command::DropCursor { .. } => Properties::new(false, false),
            Command::SetCursor { .. } | Command::Tick => Properties::new(true, false),
            Command::Deployment(command) => command.properties(),
            Command::Global(command) => command.properties(),
            Command::Causal(command) => command.properties(),
        }
    }
}

/// As traces write it.
impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Command::Write { write: Write::Put { key, value, .. }, .. } => {
                write!(f, "put {}={}", excerpt(key), excerpt(value))
            }
            Command::Write { write: Write::Add { key, delta }, .. } => {
                write!(f, "add {} {delta}", excerpt(key))
            }
            Command::Write { write: Write::Clear, .. } => f.write_str("clear"),
            Command::Tick => f.write_str("tick"),
            Command::Deployment(command) => command.fmt(f),
            Command::Global(command) => command.fmt(f),
            Command::Causal(command) => command.fmt(f),
            other => write!(f, "{other:?}"),
        }
    }
}

/// Bytes as traces write them: as text if they are short.
pub fn excerpt(bytes: &[u8]) -> String {
    match bytes.len() {
        0..=24 => String::from_utf8_lossy(bytes).into_owned(),
        len => format!("<{len} bytes>"),
    }
}

/// A write to one keyspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// Puts a string. Overwrites any kind. [`crate::Answer::Put`].
    Put {
        /// The key.
        key: Bytes,
        /// Its new string.
        value: Bytes,
        /// Only if.
        condition: Condition,
        /// What becomes of its expiry.
        expiry: Expiry,
        /// Answer with the value before (which must then be a string).
        return_old: bool,
    },
    /// Puts several strings (MSET); with `if_all_absent` all or none (MSETNX).
    /// [`crate::Answer::Flag`]: whether it was done.
    PutMany { pairs: Vec<(Bytes, Bytes)>, if_all_absent: bool },
    /// Appends to a string, which is made if absent. [`crate::Answer::Integer`]: its new length.
    Append { key: Bytes, suffix: Bytes },
    /// Adds to a string that holds a decimal i64 (absent counts as 0). [`crate::Answer::Integer`].
    Add { key: Bytes, delta: i64 },
    /// Removes keys. [`crate::Answer::Integer`]: how many there were.
    Delete { keys: Vec<Bytes> },
    /// Removes a key if its version is still this one. [`crate::Answer::Flag`].
    DeleteIf { key: Bytes, version: Revision },
    /// Removes a key that holds a string and answers with it (GETDEL). [`crate::Answer::Value`].
    Take { key: Bytes },
    /// Answers with a key's string and sets or clears its expiry, if it is there (GETEX).
    /// [`crate::Answer::Value`].
    GetAndExpire { key: Bytes, expiry: Expiry },
    /// Sets or clears a key's expiry. A moment that has passed deletes the key.
    /// [`crate::Answer::Flag`]: whether something was changed.
    SetExpiry { key: Bytes, expiry: Expiry, condition: ExpiryCondition },
    /// Sets fields of a hash, which is made if absent. [`crate::Answer::Integer`]: how many are
    /// new.
    HashSet { key: Bytes, fields: Vec<(Bytes, Bytes)> },
    /// Sets a field if it is absent. [`crate::Answer::Flag`].
    HashSetIfAbsent { key: Bytes, field: Bytes, value: Bytes },
    /// Removes fields; a hash without fields is removed. [`crate::Answer::Integer`]: how many.
    HashDelete { key: Bytes, fields: Vec<Bytes> },
    /// Adds to a field that holds a decimal i64 (absent counts as 0). [`crate::Answer::Integer`].
    HashAdd { key: Bytes, field: Bytes, delta: i64 },
    /// Removes every key of the keyspace. [`crate::Answer::Done`]. Of a causal keyspace the
    /// region's root does it.
    Clear,
    /// Removes every key of every keyspace of the site, as a step of a transaction.
    /// [`crate::Answer::Done`].
    ClearAll,
}

impl Write {
    /// The keys and their strings, if it overwrites whole strings and does nothing else.
    #[must_use]
    pub fn into_puts(self) -> Option<Vec<(Bytes, Bytes)>> {
        match self {
            Write::Put {
                key,
                value,
                condition: Condition::Always,
                expiry: Expiry::Never,
                return_old: false,
            } => Some(vec![(key, value)]),
            Write::PutMany { pairs, if_all_absent: false } => Some(pairs),
            _ => None,
        }
    }

    /// How many bytes of keys, fields and values it carries.
    fn payload_bytes(&self) -> usize {
        let of_all = |all: &[Bytes]| all.iter().map(Bytes::len).sum::<usize>();
        let of_pairs = |pairs: &[(Bytes, Bytes)]| {
            pairs.iter().map(|(one, other)| one.len() + other.len()).sum::<usize>()
        };
        match self {
            Write::Put { key, value, .. } => key.len() + value.len(),
            Write::PutMany { pairs, .. } => of_pairs(pairs),
            Write::Append { key, suffix } => key.len() + suffix.len(),
            Write::Delete { keys } => of_all(keys),
            Write::HashSet { key, fields } => key.len() + of_pairs(fields),
            Write::HashSetIfAbsent { key, field, value } => key.len() + field.len() + value.len(),
            Write::HashDelete { key, fields } => key.len() + of_all(fields),
            _ => 0,
        }
    }
}

/// When a put is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Condition {
    /// Always.
    #[default]
    Always,
    /// If the key is absent (NX).
    IfAbsent,
    /// If the key is there (XX).
    IfPresent,
    /// If the key's version is still this one; revision 0 means absent.
    IfVersion(Revision),
}

/// What becomes of a key's expiry. Relative times count from the entry's log time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Expiry {
    /// None from now on.
    #[default]
    Never,
    /// As it was.
    Keep,
    /// This long after the write.
    AfterMs(u64),
    /// At this moment by the wall clock of the leader that proposes it (milliseconds since 1970).
    AtMs(u64),
    /// At this log time: what becomes of [`Expiry::AtMs`] in the log, where the two clocks differ.
    AtLogMs(u64),
}

/// When an expiry is set (EXPIRE's NX, XX, GT, LT).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExpiryCondition {
    /// Always.
    #[default]
    Always,
    /// If the key has none.
    IfNone,
    /// If the key has one.
    IfSome,
    /// If the new one is later (no expiry counts as infinitely late).
    IfLater,
    /// If the new one is earlier.
    IfEarlier,
    /// If the key has one and the new one is earlier (XX with LT; no expiry is not "one").
    IfSomeEarlier,
}

/// What must still hold for a transaction to be done (WATCH).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guard {
    /// The key.
    pub key: Bytes,
    /// The version it must still have; revision 0: it must be absent.
    pub version: Revision,
    /// With revision 0: it must not have been there since this point either. `None`: absent at the
    /// moment of the transaction is enough.
    pub absent_since: Option<ReadPoint>,
}

/// The state that a read saw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadPoint {
    /// How far the site's log had come.
    pub revision: Revision,
    /// Of a key in a slot: the epoch at which the site owned the slot. Revisions of two owners
    /// cannot be compared.
    pub epoch: Epoch,
}

/// One step of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A question, answered as of this step.
    Read(Query),
    /// A write.
    Write(Write),
    /// [`Query::Count`] or [`Query::Scan`] of a keyspace that need not be the transaction's: what
    /// the site that does it holds of it.
    ReadIn { keyspace: KeyspaceId, query: Query },
}
