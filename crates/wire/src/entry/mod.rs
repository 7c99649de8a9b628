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
//! theirs. How values are written is said in `compact`; which byte stands for which variant, in
//! `command` and `answer`.
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

pub use compact::{Code, Input, VARINT_BYTES_MAX, put_varint, take_varint, varint_bytes};
pub use deployment::{put_epoch, take_epoch};

use model::{
    Answer, Ballot, Body, Bytes, CausalWrite, Command, DestinationStep, Failure, GlobalCommand,
    Kept, Keyspace, LostReport, LostWrite, Query, Refusal, Registry, Request, SlotEpochs,
    StagedItem, Taken, limits,
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

/// Writes one command.
pub fn encode_command(command: &Command) -> Bytes {
    encode_value(command)
}

/// Reads one command.
pub fn decode_command(bytes: Bytes) -> Result<Command, EntryError> {
    decode_value(bytes)
}

/// Writes a question, as caches name it.
pub fn encode_query(query: &Query) -> Bytes {
    encode_value(query)
}

/// Writes a request, on its way to the leader.
pub fn encode_request(request: &Request) -> Bytes {
    // A chunk of a move is large: its buffer is not to grow step by step.
    let bulk_bytes = match &request.body {
        Body::Write(Command::Global(GlobalCommand::Destination {
            step: DestinationStep::Chunk { items, .. },
            ..
        })) => {
            let item_bytes = |item: &StagedItem| match item {
                StagedItem::Record { key, row, .. } => 16 + key.len() + row.len(),
                StagedItem::Absent { key, .. } => 16 + key.len(),
                StagedItem::Remembered { row, .. } => 64 + row.len(),
                StagedItem::Lent { group, .. } => 64 + group.tag.len(),
                StagedItem::Cleared { .. }
                | StagedItem::Clock { .. }
                | StagedItem::Loans { .. } => 16,
            };
            items.iter().map(item_bytes).sum()
        }
        _ => 0,
    };
    encode_with(request, bulk_bytes)
}

/// Whether an encoded request is a read, as its first bytes say.
pub fn is_read(request: &[u8]) -> bool {
    request.first_chunk() == Some(&[FORMAT, READ])
}

/// Reads a request.
pub fn decode_request(bytes: Bytes) -> Result<Request, EntryError> {
    decode_value(bytes)
}

/// Writes what came of a request, on its way back from the leader. A failure's phrase that this
/// codec does not know arrives as another one.
pub fn encode_reply(reply: &Result<Answer, Failure>) -> Bytes {
    encode_value(reply)
}

/// Reads what came of a request.
pub fn decode_reply(bytes: Bytes) -> Result<Result<Answer, Failure>, EntryError> {
    decode_value(bytes)
}

/// Writes what came of a command, as replicas remember it.
pub fn encode_outcome(outcome: &Result<Answer, Refusal>) -> Bytes {
    encode_value(outcome)
}

/// Reads what came of a command.
pub fn decode_outcome(bytes: Bytes) -> Result<Result<Answer, Refusal>, EntryError> {
    decode_value(bytes)
}

/// Writes a keyspace.
pub fn encode_keyspace(keyspace: &Keyspace) -> Bytes {
    encode_value(keyspace)
}

/// Reads a keyspace.
pub fn decode_keyspace(bytes: Bytes) -> Result<Keyspace, EntryError> {
    decode_value(bytes)
}

/// Writes a write to a causal keyspace.
pub fn encode_causal_write(write: &CausalWrite) -> Bytes {
    encode_value(write)
}

/// Reads a write to a causal keyspace.
///
/// # Errors
/// It is none.
pub fn decode_causal_write(bytes: Bytes) -> Result<CausalWrite, EntryError> {
    decode_value(bytes)
}

/// Writes slots with their epochs.
pub fn encode_slots(slots: &SlotEpochs) -> Bytes {
    encode_value(slots)
}

/// Reads slots with their epochs.
///
/// # Errors
/// They are none.
pub fn decode_slots(bytes: Bytes) -> Result<SlotEpochs, EntryError> {
    decode_value(bytes)
}

/// Writes of one site to causal keyspaces, on their way to other sites.
pub fn encode_writes(writes: &Vec<CausalWrite>) -> Bytes {
    encode_value(writes)
}

/// Reads such writes.
///
/// # Errors
/// They are none.
pub fn decode_writes(bytes: Bytes) -> Result<Vec<CausalWrite>, EntryError> {
    decode_value(bytes)
}

/// Writes what a failover would take.
pub fn encode_taken(taken: &Vec<Taken>) -> Bytes {
    encode_value(taken)
}

/// Reads what a failover would take.
///
/// # Errors
/// It is none.
pub fn decode_taken(bytes: Bytes) -> Result<Vec<Taken>, EntryError> {
    decode_value(bytes)
}

/// Writes a site's list of writes that a failover lost, without the keys.
pub fn encode_lost_report(report: &LostReport) -> Bytes {
    encode_value(report)
}

/// Reads such a list.
///
/// # Errors
/// It is none.
pub fn decode_lost_report(bytes: Bytes) -> Result<LostReport, EntryError> {
    decode_value(bytes)
}

/// Writes a page of the keys in such a list.
pub fn encode_lost_page(page: &Vec<LostWrite>) -> Bytes {
    encode_value(page)
}

/// Reads such a page.
///
/// # Errors
/// It is none.
pub fn decode_lost_page(bytes: Bytes) -> Result<Vec<LostWrite>, EntryError> {
    decode_value(bytes)
}

/// Writes the registry.
pub fn encode_registry(registry: &Registry) -> Bytes {
    encode_value(registry)
}

/// Reads the registry.
pub fn decode_registry(bytes: Bytes) -> Result<Registry, EntryError> {
    decode_value(bytes)
}

/// Writes what a site keeps of the registry beside its copy: what it has promised and used, what it has
/// accepted, and what it has to hand in.
pub fn encode_registrar(
    promised: Ballot,
    used: Ballot,
    accepted: Option<&Registry>,
    kept: &Kept,
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
) -> Result<(Ballot, Ballot, Option<Registry>, Kept), EntryError> {
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

/// The same, where the value is known to be large.
fn encode_with<T: Code>(value: &T, bulk_bytes: usize) -> Bytes {
    let mut out = Vec::with_capacity(64 + bulk_bytes);
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
