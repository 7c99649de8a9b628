//! What clients asked and what came back: the one format that verdicts judge.
//!
//! A history is a text file of JSON lines, written by the lab, by tests with real processes and by
//! the demo alike, and by any other program whose user wants a verdict. It holds what could be seen
//! from outside and nothing else, so a judge cannot excuse a store by looking inside.
//!
//! ```text
//! {"type":"header","format":1,"source":"lab","world":"three-sites","seed":7,"promises":["linearizable","durable"]}
//! {"type":"op","client":"c1","key":"a:k7","call_us":1200,"return_us":6100,"do":{"put":{"value":"c1-1"}},"got":{"written":{"version":14}}}
//! {"type":"op","client":"c2","key":"a:k7","call_us":1900,"return_us":9000,"do":"get","got":{"value":{"value":"c1-1","version":14}}}
//! {"type":"op","client":"c1","key":"a:k7","call_us":6200,"do":{"add":{"delta":1}},"got":{"unknown":{"why":"timed out"}}}
//! {"type":"owner","at_us":40,"unit":"a/leader","epoch":3,"owner":"a/n1"}
//! {"type":"mark","at_us":9100,"kind":"fault","text":"a/n1 crashes"}
//! {"type":"mark","at_us":9900,"kind":"healed","text":"all faults have ended"}
//! {"type":"state","at_us":9990,"group":"a","replica":"a/n2","digest":"5f2e…"}
//! {"type":"ring","at_us":9990,"point":"1c","site":"a","predecessor":"07","successors":["5f","9b"]}
//! {"type":"lost","from_us":4000,"until_us":9000,"keys":["car:7"]}
//! ```
//!
//! | line | what it contains |
//! | --- | --- |
//! | `header` | first, once: the version of the format, where the history comes from, what was promised |
//! | `op` | one operation on one key, from its call to its return; several of one request name it |
//! | `owner` | a node or site acted as the owner of a unit at an epoch (a leader in its term, an owner of a slot) |
//! | `state` | what a replica held at the end: replicas of one group must agree |
//! | `ring` | the pointers of a virtual node of the ring at the end: its predecessor and its successors |
//! | `lost` | a site was lost and its backup promoted: of these keys, what was answered in this time may be lost |
//! | `mark` | something happened: a fault, and the moment at which all faults had ended |
//! | `request`, `position` | a request about causal keys, and the place of a write in its region's order: [`Request`] |
//!
//! Times are microseconds of one clock, from any zero. A *client* does one thing after the other;
//! it is a session. Keys of different scopes are different keys: a site's own key carries its
//! site's name (`a:k7`). An operation without `return_us` never came back. An outcome of `unknown`
//! may have taken effect at any time after its call, or never; `failed` certainly had none.
//!
//! Verdicts have to distinguish writes, so the values that a generator puts should be unique for
//! their key; each verdict describes what it does where they are not. A `version` is the position
//! of a write in its key's order, as the store reports it; only verdicts of sessions need it.
//!
//! A request that is about several linearizable keys at once is an `op` line a key, all with the
//! same number in `together`. Left out: scans.

mod file;
mod lost;
mod regional;

pub use file::{HistoryError, Writer, check_any, read};
pub use lost::Lost;
pub use regional::{Assigned, Got, Instead, Position, Register, Request, Seen, WriteId};

use serde::{Deserialize, Serialize};

/// The version of the format that is written.
pub const FORMAT: u32 = 1;

/// A whole history, its lines sorted by kind; each kind in the order of the file.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct History {
    /// Where it comes from and what was promised.
    pub header: Header,
    /// What clients did.
    pub operations: Vec<Operation>,
    /// What sessions asked of causal keys.
    pub requests: Vec<Request>,
    /// Where their writes are in the order of the region.
    pub positions: Vec<Position>,
    /// Which node or site acted as the owner of what.
    pub owners: Vec<Owner>,
    /// What replicas held in the end.
    pub states: Vec<ReplicaState>,
    /// The pointers of virtual nodes of the ring in the end.
    pub rings: Vec<RingMember>,
    /// What was lost with sites whose backups were promoted.
    pub lost: Vec<Lost>,
    /// What else happened.
    pub marks: Vec<Mark>,
}

/// One line of the file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Line {
    /// The first line.
    Header(Header),
    /// An operation.
    Op(Operation),
    /// A request about causal keys.
    Request(Request),
    /// The place of a write in its region's order.
    Position(Position),
    /// A node or site acted as an owner.
    Owner(Owner),
    /// A replica's state.
    State(ReplicaState),
    /// A virtual node of the ring.
    Ring(RingMember),
    /// Something was lost with a site.
    Lost(Lost),
    /// Something happened.
    Mark(Mark),
}

/// Where a history comes from and what was promised.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// [`FORMAT`], or an older one that is still read.
    pub format: u32,
    /// What wrote it: `lab`, `demo`, `field`, or any other name.
    pub source: String,
    /// The world, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub world: Option<String>,
    /// The seed, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// What the history is to be judged by; empty: by all that its lines allow.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub promises: Vec<Promise>,
}

impl Default for Header {
    fn default() -> Self {
        Header {
            format: FORMAT,
            source: "unnamed".to_owned(),
            world: None,
            seed: None,
            promises: Vec::new(),
        }
    }
}

/// What a store can promise; each has a verdict of that name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Promise {
    /// Each key behaves as one copy, in real time.
    Linearizable,
    /// What is written together is read together.
    Atomic,
    /// No client sees an effect before its cause.
    Causal,
    /// A session sees its own writes.
    ReadYourWrites,
    /// A session never sees a key go back.
    MonotonicReads,
    /// A session's writes take effect in its order, for every reader.
    MonotonicWrites,
    /// A reader of a write also sees what its writer had read before.
    WritesFollowReads,
    /// Replicas that have received everything hold the same.
    Convergent,
    /// A unit has one owner at an epoch.
    OneOwner,
    /// What was acknowledged is there in the end.
    Durable,
    /// The ring in rest is one ring.
    Ring,
    /// After all faults have ended, what is asked is answered.
    Live,
}

impl Promise {
    /// All of them, the strongest about single keys first.
    pub const ALL: [Promise; 12] = [
        Promise::Linearizable,
        Promise::Atomic,
        Promise::Causal,
        Promise::ReadYourWrites,
        Promise::MonotonicReads,
        Promise::MonotonicWrites,
        Promise::WritesFollowReads,
        Promise::Convergent,
        Promise::OneOwner,
        Promise::Durable,
        Promise::Ring,
        Promise::Live,
    ];

    /// Its name in files and on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Promise::Linearizable => "linearizable",
            Promise::Atomic => "atomic",
            Promise::Causal => "causal",
            Promise::ReadYourWrites => "read-your-writes",
            Promise::MonotonicReads => "monotonic-reads",
            Promise::MonotonicWrites => "monotonic-writes",
            Promise::WritesFollowReads => "writes-follow-reads",
            Promise::Convergent => "convergent",
            Promise::OneOwner => "one-owner",
            Promise::Durable => "durable",
            Promise::Ring => "ring",
            Promise::Live => "live",
        }
    }
}

impl std::fmt::Display for Promise {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// One operation on one key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Operation {
    /// The client: one session.
    pub client: String,
    /// The site that received it, if the history names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub site: Option<String>,
    /// The key, with its scope.
    pub key: String,
    /// When it was called.
    pub call_us: u64,
    /// How long it had been due before its call, as the one before it was late: only in open loops.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub waited_us: u64,
    /// When its answer was there; absent: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub return_us: Option<u64>,
    /// What was asked.
    #[serde(rename = "do")]
    pub action: Action,
    /// What came back.
    #[serde(rename = "got")]
    pub outcome: Outcome,
    /// A read that was marked as stale: held only to what stale reads promise.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stale: bool,
    /// The atomic request that it is a part of: all operations of its client with this number,
    /// each on a key of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub together: Option<u64>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
fn is_zero(us: &u64) -> bool {
    *us == 0
}

/// What can be asked of a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Action {
    /// Its value.
    Get,
    /// To hold this value.
    Put {
        /// The value.
        value: String,
    },
    /// To be absent. Answered by `written`.
    Delete,
    /// To be a number greater by this; an absent one counts as 0. Answered by `number`.
    Add {
        /// By how much.
        delta: i64,
    },
    /// To hold this value if it holds that one now. Answered by `written`, or by `conflict`.
    CompareAndSet {
        /// What it must hold; absent: it must be absent.
        expected: Option<String>,
        /// The new value.
        value: String,
    },
}

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Outcome {
    /// To a get: the value and its version, or that there is none.
    Value {
        /// The value; absent: there is none.
        value: Option<String>,
        /// Which write it is of, in the key's order.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        version: Option<u64>,
    },
    /// To a put, a delete, a compare-and-set: done.
    Written {
        /// Its place in the key's order.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        version: Option<u64>,
    },
    /// To an add: the number it is now.
    Number {
        /// The number.
        value: i64,
    },
    /// To a compare-and-set: it held something else, and nothing was done.
    Conflict,
    /// It was not answered as asked, and nothing was done.
    Failed {
        /// The error.
        why: String,
    },
    /// The outcome is unknown: it may take effect at any time after its call, or never.
    Unknown {
        /// The reason.
        why: String,
    },
}

/// A node or site acted as the owner of a unit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Owner {
    /// When it was seen.
    pub at_us: u64,
    /// Of what: a slot, a group of keys, the leadership of a site.
    pub unit: String,
    /// At which epoch (or term).
    pub epoch: u64,
    /// The owner.
    pub owner: String,
}

/// What a replica held in the end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplicaState {
    /// When it was looked at.
    pub at_us: u64,
    /// The group of the replica: all of one group must hold the same.
    pub group: String,
    /// Which.
    pub replica: String,
    /// A digest of what it holds.
    pub digest: String,
}

/// The pointers of a virtual node of the ring in the end. Points are written so that their order as
/// text is their order on the ring.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RingMember {
    /// When it was looked at.
    pub at_us: u64,
    /// Its point.
    pub point: String,
    /// Its site.
    pub site: String,
    /// Its predecessor, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predecessor: Option<String>,
    /// Its successors, in their order.
    pub successors: Vec<String>,
}

/// Something happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mark {
    /// When.
    pub at_us: u64,
    /// What kind of thing.
    pub kind: MarkKind,
    /// A short description.
    pub text: String,
}

/// What kind of thing happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MarkKind {
    /// Something went wrong, or an operator did something.
    Fault,
    /// All faults have ended: from here on everything must be answered.
    Healed,
    /// Anything else worth a mark.
    Note,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_promise_has_the_same_name_everywhere() {
        for promise in Promise::ALL {
            assert_eq!(serde_json::to_string(&promise).unwrap(), format!("\"{promise}\""));
        }
    }
}
