//! Log entries as bytes: a batch of commands, and the requests and answers that travel for them.
//!
//! A log entry outlives the process that wrote it and is read by every node of its site, so its
//! format is written down here, byte for byte, and a test holds it to that. Format 1:
//!
//! ```text
//! entry    = 1 ‖ log time (8 bytes, little-endian, milliseconds since 1970) ‖ command*
//! anything else (command, request, answer, failure) = 1 ‖ value
//! ```
//!
//! There is no count: an entry's commands end where it ends, which lets the leader gather them as
//! they come ([`BatchEncoder`]). There is no checksum either: the log and the peer links have
//! theirs. How values are written is described in `compact`; which byte stands for which variant,
//! in `command` and `answer`.
//!
//! A later format gets the next version byte; this one goes on being read.
//!
//! Decoding shares the input's memory: the keys and values of a decoded batch are slices of it.

mod answer;
mod backup;
mod causal;
mod command;
mod compact;
mod deployment;
mod lending;
mod lost_write;
mod operator;
mod phrases;
mod registrar;
#[cfg(test)]
mod tests;

pub use compact::{Code, Input, put_varint, take_varint, varint_bytes};
pub use deployment::{put_epoch, take_epoch};

use model::{
    Answer, Ballot, Bytes, CausalWrite, Command, Failure, Keyspace, LostReport, LostWrite, Query,
    Refusal, Registry, Request, Retained, SlotEpochs, Taken, limits,
};

/// The version byte of everything this version writes.
const FORMAT: u8 = 1;
/// What a request that is a read begins with, behind that.
const READ: u8 = 1;
/// The version byte and the log time.
const HEAD_BYTES: usize = 9;

/// What one log entry holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// The log time at which it was proposed, milliseconds since 1970.
    pub log_time_ms: u64,
    /// At most [`limits::BATCH_COMMANDS_MAX`].
    pub commands: Vec<Command>,
}

/// Why bytes are not what they should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    /// They were written by a version that this one does not read.
    #[error("format {found} is not known here; this version reads up to {FORMAT}")]
    Version {
        /// The version byte.
        found: u8,
    },
    /// They end too early.
    #[error("the bytes end in the middle of a value")]
    Short,
    /// Something in them has no meaning.
    #[error("no {what} at offset {offset}")]
    Malformed {
        /// What should be there.
        what: &'static str,
        /// Where, in bytes.
        offset: usize,
    },
    /// More of something than there may be.
    #[error("more than {max} {what}")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many there may be.
        max: usize,
    },
    /// Bytes follow the value.
    #[error("bytes follow the value, from offset {offset}")]
    Trailing {
        /// Where they begin.
        offset: usize,
    },
}

/// Encodes a batch command by command, as they come.
#[derive(Debug)]
pub struct BatchEncoder {
    bytes: Vec<u8>,
    commands: usize,
}

impl BatchEncoder {
    /// An empty batch.
    pub fn new() -> BatchEncoder {
        BatchEncoder::with_capacity(256)
    }

    /// An empty batch with room for about so many bytes, and no more than a batch takes.
    pub fn with_capacity(bytes: usize) -> BatchEncoder {
        let mut bytes = Vec::with_capacity(bytes.min(limits::BATCH_BYTES_MAX) + HEAD_BYTES);
        bytes.resize(HEAD_BYTES, FORMAT);
        BatchEncoder { bytes, commands: 0 }
    }

    /// Adds a command at the end.
    pub fn push(&mut self, command: &Command) {
        command.put(&mut self.bytes);
        self.commands += 1;
    }

    /// How many commands there are.
    pub fn len(&self) -> usize {
        self.commands
    }

    /// Whether there is no command yet.
    pub fn is_empty(&self) -> bool {
        self.commands == 0
    }

    /// How long the entry is so far.
    pub fn len_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Whether the next command belongs in another entry.
    pub fn is_full(&self) -> bool {
        self.commands >= limits::BATCH_COMMANDS_MAX || self.bytes.len() >= limits::BATCH_BYTES_MAX
    }

    /// The entry.
    pub fn finish(mut self, log_time_ms: u64) -> Bytes {
        self.bytes[1..HEAD_BYTES].copy_from_slice(&log_time_ms.to_le_bytes());
        self.bytes.into()
    }
}

impl Default for BatchEncoder {
    fn default() -> BatchEncoder {
        BatchEncoder::new()
    }
}

/// Writes an entry.
pub fn encode(batch: &Batch) -> Bytes {
    let mut encoder = BatchEncoder::new();
    for command in &batch.commands {
        encoder.push(command);
    }
    encoder.finish(batch.log_time_ms)
}

/// Reads an entry.
pub fn decode(bytes: Bytes) -> Result<Batch, EntryError> {
    let mut input = Input::new(bytes);
    check_format(&mut input)?;
    let log_time_ms = u64::from_le_bytes(input.array()?);
    let mut commands = Vec::new();
    while !input.is_empty() {
        if commands.len() == limits::BATCH_COMMANDS_MAX {
            let max = limits::BATCH_COMMANDS_MAX;
            return Err(EntryError::TooMany { what: "commands of one entry", max });
        }
        commands.push(Command::take(&mut input)?);
    }
    Ok(Batch { log_time_ms, commands })
}

/// A value on its own: the format number, then the value, and nothing behind it.
macro_rules! on_their_own {
    ($($what:literal: $type:ty, $encode:ident, $decode:ident;)+) => { $(
        #[doc = concat!("Writes ", $what, ".")]
        pub fn $encode(value: &$type) -> Bytes {
            encode_value(value)
        }

        #[doc = concat!("Reads ", $what, ".")]
        ///
        /// # Errors
        /// It is none.
        pub fn $decode(bytes: Bytes) -> Result<$type, EntryError> {
            decode_value(bytes)
        }
    )+ };
}

on_their_own! {
    "one command": Command, encode_command, decode_command;
    "what came of a command, as replicas remember it": Result<Answer, Refusal>, encode_outcome, decode_outcome;
    "a keyspace": Keyspace, encode_keyspace, decode_keyspace;
    "a write to a causal keyspace": CausalWrite, encode_causal_write, decode_causal_write;
    "slots with their epochs": SlotEpochs, encode_slots, decode_slots;
    "writes of one site to causal keyspaces, on their way to other sites": Vec<CausalWrite>, encode_writes, decode_writes;
    "what a failover would take": Vec<Taken>, encode_taken, decode_taken;
    "a site's list of writes that a failover lost, without the keys": LostReport, encode_lost_report, decode_lost_report;
    "a page of the keys in such a list": Vec<LostWrite>, encode_lost_page, decode_lost_page;
    "the registry": Registry, encode_registry, decode_registry;
}

/// Writes a question, as caches name it.
pub fn encode_query(query: &Query) -> Bytes {
    encode_value(query)
}

/// Writes a request, on its way to the leader.
pub fn encode_request(request: &Request) -> Bytes {
    encode_with(request, request.body.properties().size_bytes)
}

/// Writes what came of a request, on its way back from the leader. A phrase that this codec does not
/// have arrives as another one, here and in an outcome.
pub fn encode_reply(reply: &Result<Answer, Failure>) -> Bytes {
    encode_with(reply, reply.as_ref().map_or(0, Answer::payload_bytes))
}

/// Reads what came of a request.
///
/// # Errors
/// It is none.
pub fn decode_reply(bytes: Bytes) -> Result<Result<Answer, Failure>, EntryError> {
    decode_value(bytes)
}

/// Whether an encoded request is a read, by its first bytes.
pub fn is_read(request: &[u8]) -> bool {
    request.first_chunk() == Some(&[FORMAT, READ])
}

/// Reads a request.
pub fn decode_request(bytes: Bytes) -> Result<Request, EntryError> {
    decode_value(bytes)
}

/// Writes what a site keeps of the registry beside its copy: what it has promised and used, what it
/// has accepted, and what it has to hand in.
pub fn encode_registrar(
    promised: Ballot,
    used: Ballot,
    accepted: Option<&Registry>,
    kept: &Retained,
) -> Bytes {
    let mut out = vec![FORMAT];
    promised.put(&mut out);
    used.put(&mut out);
    kept.put(&mut out);
    accepted.is_some().put(&mut out);
    if let Some(accepted) = accepted {
        accepted.put(&mut out);
    }
    out.into()
}

/// Reads it. Without anything accepted, that is the copy.
pub fn decode_registrar(
    bytes: Bytes,
) -> Result<(Ballot, Ballot, Option<Registry>, Retained), EntryError> {
    let mut input = Input::new(bytes);
    check_format(&mut input)?;
    let (promised, used) = Code::take(&mut input)?;
    let (kept, accepted) = Code::take(&mut input)?;
    if !input.is_empty() {
        return Err(EntryError::Trailing { offset: input.offset() });
    }
    Ok((promised, used, accepted, kept))
}

/// Whatever these bytes are, reading them must neither panic nor take memory that they do not
/// justify, and what can be read must be written as it was. For fuzzing.
pub fn check_any(bytes: &[u8]) {
    let bytes = Bytes::copy_from_slice(bytes);
    if let Ok(batch) = decode(bytes.clone()) {
        assert_eq!(encode(&batch), bytes);
    }
    if let Ok(command) = decode_command(bytes.clone()) {
        assert_eq!(encode_command(&command), bytes);
    }
    if let Ok(request) = decode_request(bytes.clone()) {
        assert_eq!(encode_request(&request), bytes);
    }
    if let Ok(registry) = decode_registry(bytes.clone()) {
        assert_eq!(encode_registry(&registry), bytes);
    }
    // Phrases may be replaced, so these are compared as values.
    if let Ok(reply) = decode_reply(bytes.clone()) {
        assert_eq!(decode_reply(encode_reply(&reply)), Ok(reply));
    }
    if let Ok(outcome) = decode_outcome(bytes) {
        assert_eq!(decode_outcome(encode_outcome(&outcome)), Ok(outcome));
    }
}

fn encode_value<T: Code>(value: &T) -> Bytes {
    encode_with(value, 0)
}

/// The same for a value that carries about so much: a large buffer is not to grow step by step.
fn encode_with<T: Code>(value: &T, payload_bytes: usize) -> Bytes {
    let mut out = Vec::with_capacity(64 + payload_bytes);
    out.push(FORMAT);
    value.put(&mut out);
    out.into()
}

fn decode_value<T: Code>(bytes: Bytes) -> Result<T, EntryError> {
    let mut input = Input::new(bytes);
    check_format(&mut input)?;
    let value = T::take(&mut input)?;
    if !input.is_empty() {
        return Err(EntryError::Trailing { offset: input.offset() });
    }
    Ok(value)
}

fn check_format(input: &mut Input) -> Result<(), EntryError> {
    match input.byte()? {
        FORMAT => Ok(()),
        found => Err(EntryError::Version { found }),
    }
}
