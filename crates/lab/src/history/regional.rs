//! What sessions asked of causal keys, and the order that their region gave to the writes.
//!
//! A [`Request`] may read several registers at once, or assign several. A *register* is what one
//! assignment overwrites: a string, a field of a hash, an expiry time. Each write has an identity,
//! the site that took it and its revision there; a read reports the identity of the version that it
//! found. Which of two writes comes later is not known when they are answered: a [`Position`],
//! written once the region has come to rest, gives each of them its place in the order.
//!
//! These lines are apart from those of operations: a judge of single keys in real time would find
//! fault with a causal store that does what it promises.
//!
//! ```text
//! {"type":"request","client":"c1","site":"a","call_us":10,"return_us":14,"writes":[{"register":{"key":"x"}}],"write":{"site":"a","revision":7},"got":"done"}
//! {"type":"request","client":"c2","site":"b","call_us":20,"return_us":21,"reads":[{"register":{"key":"x"},"found":{"site":"a","revision":7}},{"register":{"field":["h","f"]},"absent":true}],"got":"done"}
//! {"type":"position","site":"a","revision":7,"position":3}
//! {"type":"position","site":"a","revision":9,"position":8,"instead":[{"of":6}]}
//! ```

use serde::{Deserialize, Serialize};

/// What one assignment overwrites.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Register {
    /// As read: the string of this key. As written: all registers of the key.
    Key(String),
    /// A field of the hash at this key.
    Field(String, String),
    /// When this key expires.
    Expiry(String),
    /// As written: all registers of all keys that begin so. It is never read.
    Keyspace(String),
}

/// The identity of a write: the site that took it, and its revision there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WriteId {
    /// The site.
    pub site: String,
    /// The number of the write in the site's log.
    pub revision: u64,
}

/// One request of a session about causal keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// The client: one session. After it was refused for good (lost, cut off), it is another one.
    pub client: String,
    /// The site that executed it.
    pub site: String,
    /// When it was called.
    pub call_us: u64,
    /// When its answer was there; absent: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub return_us: Option<u64>,
    /// What it read, all from one state.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reads: Vec<Seen>,
    /// What it assigned, all as one write.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub writes: Vec<Assigned>,
    /// The identity of that write; of one that was not answered, where it is known from elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write: Option<WriteId>,
    /// What came back.
    pub got: Got,
}

/// What a read found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Seen {
    /// Where.
    pub register: Register,
    /// The write whose version it found. Where there was nothing: the delete, if the answer names
    /// it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found: Option<WriteId>,
    /// Whether there was nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub absent: bool,
}

/// What a write assigned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Assigned {
    /// Where.
    pub register: Register,
    /// Whether it left nothing there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deletes: bool,
}

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Got {
    /// It was done.
    Done,
    /// It was not done.
    Failed {
        /// The error.
        why: String,
    },
    /// It may have been done.
    Unknown {
        /// The reason.
        why: String,
    },
}

/// The place of a write in its region's order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Position {
    /// The site that took the write.
    pub site: String,
    /// Its revision there.
    pub revision: u64,
    /// Its place; absent: it was lost with its site, and never gets one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<u64>,
    /// Where another write counts in its place.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub instead: Vec<Instead>,
    /// What it deletes, if no request asked for it: what the region itself lets expire.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub removes: Vec<Register>,
}

/// A write that does not count at its own position: it was superseded there, or it is a repetition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Instead {
    /// The position of the write that counts in its place. A superseded one comes just before it.
    pub of: u64,
    /// Whether the two are one write that was sent twice.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub same: bool,
    /// On which registers; none: on all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub registers: Vec<Register>,
}

impl Request {
    /// Whether it was certainly done.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.return_us.is_some() && self.got == Got::Done
    }
}

impl std::fmt::Display for Register {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Register::Key(key) => write!(f, "{key}"),
            Register::Field(key, field) => write!(f, "{key}.{field}"),
            Register::Expiry(key) => write!(f, "the expiry of {key}"),
            Register::Keyspace(prefix) => write!(f, "{prefix}*"),
        }
    }
}

impl std::fmt::Display for WriteId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.site, self.revision)
    }
}

impl std::fmt::Display for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}@{}", self.client, self.site)?;
        for (place, seen) in self.reads.iter().enumerate() {
            let word = if place == 0 { " read" } else { "," };
            write!(f, "{word} {} = ", seen.register)?;
            match (&seen.found, seen.absent) {
                (Some(id), true) => write!(f, "nothing ({id})")?,
                (Some(id), false) => write!(f, "{id}")?,
                (None, true) => f.write_str("nothing")?,
                (None, false) => f.write_str("?")?,
            }
        }
        for (place, assigned) in self.writes.iter().enumerate() {
            let word = match (place, assigned.deletes) {
                (0, false) => " wrote",
                (0, true) => " deleted",
                _ => ",",
            };
            write!(f, "{word} {}", assigned.register)?;
        }
        if let Some(id) = &self.write {
            write!(f, " as {id}")?;
        }
        match &self.got {
            Got::Done => {}
            Got::Failed { why } => write!(f, " -> failed ({why})")?,
            Got::Unknown { why } => write!(f, " -> unknown ({why})")?,
        }
        match self.return_us {
            Some(return_us) => write!(f, " ({} to {return_us} µs)", self.call_us),
            None => write!(f, " ({} µs, never returned)", self.call_us),
        }
    }
}
